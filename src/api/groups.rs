//! `GET /api/v1/groups/{id}`.

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use serde::Serialize;

use super::Failure;
use super::query::Query;
use crate::services::messages::Messages;
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
}

impl From<&Group> for GroupItem {
    fn from(group: &Group) -> GroupItem {
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
        }
    }
}

/// One group.
pub async fn one(State(messages): State<Messages>, Path(id): Path<String>, RawQuery(raw): RawQuery) -> Result<Json<GroupItem>, Failure> {
    Query::parse(raw.as_deref(), &[])?;
    let group = match super::query::id(&id) {
        Some(id) => messages.store.group(id).await?,
        None => None,
    };
    group.as_ref().map(|group| Json(GroupItem::from(group))).ok_or_else(|| unknown_group(&id))
}

/// 404 with a way on.
pub fn unknown_group(id: &str) -> Failure {
    Failure::not_found(format!("There is no failure group {id:?}. The page of a DLQ lists its groups."))
}
