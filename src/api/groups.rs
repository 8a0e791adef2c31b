//! `GET /api/v1/groups/{id}`.

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use serde::Serialize;

use super::Failure;
use super::query::Query;
use crate::domain::group::{Decision, Link, Ticket};
use crate::services::groups::Groups;
use crate::store::groups::Group;

/// A failure group, with everything its fingerprint is made of.
#[derive(Debug, Serialize)]
pub struct GroupItem {
    pub id: i64,
    pub cluster: String,
    pub topic: String,
    pub fingerprint: String,
    pub class: &'static str,
    pub consumer_group: Option<String>,
    pub exception_class: Option<String>,
    /// The exception's text with numbers, ids and the like replaced.
    pub normalised_text: String,
    pub top_frame: Option<String>,
    /// Messages of it that count towards depth.
    pub open: i64,
    /// Messages of it ever taken in.
    pub total: i64,
    pub first_at_ms: Option<i64>,
    pub last_at_ms: Option<i64>,
    pub status: StatusItem,
}

/// What people decided about a group.
#[derive(Debug, Serialize)]
pub struct StatusItem {
    /// What holds now: open, known, fixed, regressed (messages came after the fix) or ignored.
    pub shown: &'static str,
    /// What was decided: open, known, fixed_since or ignored_until.
    pub decision: &'static str,
    pub owner: Option<String>,
    pub ticket: Option<String>,
    pub fixed_since_ms: Option<i64>,
    pub ignored_until_ms: Option<i64>,
    pub runbook: Option<String>,
    /// Null: nobody decided anything yet.
    pub decided_by: Option<String>,
    pub decided_at_ms: Option<i64>,
    /// Rises with each decision.
    pub version: i64,
}

impl StatusItem {
    fn of(group: &Group, now_ms: i64) -> StatusItem {
        let status = &group.status;
        let (owner, ticket) = match &status.decision {
            Decision::Known { owner, ticket } => (owner.clone(), ticket.as_ref().map(Ticket::as_str)),
            _ => (None, None),
        };
        let decided = status.decided.as_ref();
        StatusItem {
            shown: group.shown(now_ms).as_str(),
            decision: status.decision.as_str(),
            owner,
            ticket: ticket.map(str::to_owned),
            fixed_since_ms: if let Decision::FixedSince { at_ms } = status.decision { Some(at_ms) } else { None },
            ignored_until_ms: if let Decision::IgnoredUntil { until_ms } = status.decision { Some(until_ms) } else { None },
            runbook: status.runbook.as_ref().map(Link::as_str).map(str::to_owned),
            decided_by: decided.map(|decided| decided.by.clone()),
            decided_at_ms: decided.map(|decided| decided.at_ms),
            version: status.version,
        }
    }
}

impl GroupItem {
    /// The group as of `now_ms`.
    pub fn of(group: &Group, now_ms: i64) -> GroupItem {
        GroupItem {
            id: group.id,
            cluster: group.cluster.clone(),
            topic: group.topic.clone(),
            fingerprint: group.fingerprint.clone(),
            class: group.class.as_str(),
            consumer_group: group.consumer_group.clone(),
            exception_class: group.exception_class.clone(),
            normalised_text: group.normalised_text.clone(),
            top_frame: group.top_frame.clone(),
            open: group.open,
            total: group.total,
            first_at_ms: group.first_at_ms,
            last_at_ms: group.last_at_ms,
            status: StatusItem::of(group, now_ms),
        }
    }
}

/// One group.
pub async fn one(State(groups): State<Groups>, Path(id): Path<String>, RawQuery(raw): RawQuery) -> Result<Json<GroupItem>, Failure> {
    Query::parse(raw.as_deref(), &[])?;
    let group = match super::query::id(&id) {
        Some(id) => groups.store.group(id).await?,
        None => None,
    };
    let now_ms = groups.clock.now_ms();
    group.map(|group| Json(GroupItem::of(&group, now_ms))).ok_or_else(|| unknown_group(&id))
}

/// 404 with a way on.
pub fn unknown_group(id: &str) -> Failure {
    Failure::not_found(format!("There is no failure group {id:?}. The page of a DLQ lists its groups."))
}
