//! `GET /api/v1/dlqs` and `GET /api/v1/dlqs/{cluster}/{topic}`.

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use serde::Serialize;

use super::groups::GroupItem;
use super::query::{MAX_LIMIT, Query};
use super::{Failure, Page};
use crate::domain::health::{self, Status};
use crate::services::health::{DlqDetail, DlqHealth, Health, PartitionView};
use crate::store::counters::OutcomeCounts;

/// How many failure groups are listed.
const GROUPS_SHOWN: usize = 100;

/// One DLQ. `null` is unknown; an age is also null while there is no message that could have one.
#[derive(Debug, Serialize)]
pub struct DlqItem {
    pub cluster: String,
    pub topic: String,
    pub incarnation: i32,
    pub status: &'static str,
    pub depth: i64,
    pub depth_change_1h: Option<i64>,
    pub uncollected: Option<i64>,
    pub oldest_age_s: Option<i64>,
    pub event_age_s: Option<i64>,
    pub at_risk: AtRiskItem,
    pub arrivals_per_min: Option<f64>,
    pub baseline: Baseline,
    pub replay_success: ReplaySuccess,
    pub follow_up_open: i64,
    pub owner: Option<String>,
    /// The last successful sample.
    pub sampled_at_ms: Option<i64>,
}

#[derive(Debug, Serialize)]
pub struct AtRiskItem {
    pub state: &'static str,
    pub left_s: Option<i64>,
}

/// What this hour usually brings, arrivals per minute from and to. The state is `known`, `zero` (nothing ever came), `learning` or `unknown`; the last
/// two have no numbers.
#[derive(Debug, Serialize)]
pub struct Baseline {
    pub state: &'static str,
    pub low: Option<f64>,
    pub high: Option<f64>,
}

impl Baseline {
    fn of(row: &DlqHealth) -> Baseline {
        let (state, band) = row.usual.map_or(("unknown", None), |(state, band)| (state.as_str(), band));
        Baseline { state, low: band.map(|band| band.low), high: band.map(|band| band.high) }
    }
}

/// How replays ended, of those whose end is known, and what is not known beside it.
#[derive(Debug, Serialize)]
pub struct ReplaySuccess {
    /// confirmed / (confirmed + returned); null while n is zero.
    pub rate: Option<f64>,
    pub n: i64,
    /// The Wilson interval at 95 %.
    pub low: Option<f64>,
    pub high: Option<f64>,
    pub pending: i64,
    pub unproven: i64,
}

impl From<OutcomeCounts> for ReplaySuccess {
    fn from(outcomes: OutcomeCounts) -> ReplaySuccess {
        let health::ReplaySuccess { rate, n, low, high } = health::replay_success(outcomes.confirmed, outcomes.returned);
        ReplaySuccess { rate, n, low, high, pending: outcomes.pending, unproven: outcomes.unproven }
    }
}

impl From<&DlqHealth> for DlqItem {
    fn from(row: &DlqHealth) -> DlqItem {
        DlqItem {
            cluster: row.dlq.cluster.clone(),
            topic: row.dlq.topic.clone(),
            incarnation: row.dlq.incarnation,
            status: row.status.as_str(),
            depth: row.depth,
            depth_change_1h: row.depth_change_1h,
            uncollected: row.uncollected,
            oldest_age_s: row.oldest_age_ms.map(|ms| ms / 1_000),
            event_age_s: row.event_age_ms.map(|ms| ms / 1_000),
            at_risk: AtRiskItem { state: row.at_risk.as_str(), left_s: row.at_risk.left_ms().map(|ms| ms / 1_000) },
            arrivals_per_min: row.arrivals_per_min,
            baseline: Baseline::of(row),
            replay_success: row.outcomes.into(),
            follow_up_open: row.follow_up_open,
            owner: row.dlq.owner.clone(),
            sampled_at_ms: row.sampled_at_ms,
        }
    }
}

/// Which DLQs: the same for the overview's form and the API.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DlqFilter {
    /// Part of topic, owner, cluster or configured consumer group, letter case aside.
    pub q: Option<String>,
    pub owner: Option<String>,
    pub cluster: Option<String>,
    pub status: Option<Status>,
}

/// The parameters of [`DlqFilter`].
pub const DLQ_FILTER: [&str; 4] = ["q", "owner", "cluster", "status"];

impl DlqFilter {
    /// # Errors
    /// 400 naming the parameter and what it takes.
    pub fn parse(query: &Query) -> Result<DlqFilter, Failure> {
        Ok(DlqFilter {
            q: query.text("q")?.map(|q| q.trim().to_lowercase()).filter(|q| !q.is_empty()),
            owner: query.text("owner")?.map(str::to_owned),
            cluster: query.text("cluster")?.map(str::to_owned),
            status: query.text("status")?.map(status).transpose()?,
        })
    }

    /// Everything but the status: what the tiles count.
    pub fn covers_but_status(&self, row: &DlqHealth) -> bool {
        let same = |wanted: &Option<String>, is: Option<&str>| wanted.as_deref().is_none_or(|wanted| Some(wanted) == is);
        let found = |q: &String| {
            let fields = [Some(&row.dlq.topic), Some(&row.dlq.cluster), row.dlq.owner.as_ref(), row.consumer_group.as_ref()];
            fields.into_iter().flatten().any(|field| field.to_lowercase().contains(q.as_str()))
        };
        same(&self.owner, row.dlq.owner.as_deref()) && same(&self.cluster, Some(&row.dlq.cluster)) && self.q.as_ref().is_none_or(found)
    }

    pub fn covers(&self, row: &DlqHealth) -> bool {
        self.status.is_none_or(|status| status == row.status) && self.covers_but_status(row)
    }
}

fn status(word: &str) -> Result<Status, Failure> {
    Status::ALL.into_iter().find(|status| status.as_str() == word).ok_or_else(|| {
        let known = Status::ALL.map(Status::as_str).join(", ");
        Failure::bad_request(format!("The parameter status: unknown status {word:?}: use one of {known}."))
    })
}

/// All DLQs, worst first. `after` is the `next` of the page before (cluster/topic of its last item).
pub async fn list(State(health): State<Health>, RawQuery(raw): RawQuery) -> Result<Json<Page<DlqItem, String>>, Failure> {
    let query = Query::parse(raw.as_deref(), &["q", "owner", "cluster", "status", "after", "limit"])?;
    let filter = DlqFilter::parse(&query)?;
    let limit = usize::try_from(query.limit(MAX_LIMIT)?).unwrap_or(usize::MAX);
    let rows = health.all().await?;
    let rows: Vec<&DlqHealth> = rows.iter().filter(|row| filter.covers(row)).collect();
    let start = match query.text("after")? {
        None => 0,
        Some(after) => match rows.iter().position(|row| cursor(row) == after) {
            Some(place) => place + 1,
            None => return Err(Failure::bad_request("The parameter after names no DLQ of this list (any more): start again without it.")),
        },
    };
    let items = rows.iter().skip(start).take(limit).map(|row| DlqItem::from(*row)).collect();
    let more = rows.len() > start.saturating_add(limit);
    let next = if more { rows.get(start + limit - 1).map(|row| cursor(row)) } else { None };
    Ok(Json(Page { items, next }))
}

fn cursor(row: &DlqHealth) -> String {
    format!("{}/{}", row.dlq.cluster, row.dlq.topic)
}

/// One DLQ with its groups, checks and partitions.
#[derive(Debug, Serialize)]
pub struct DlqDetailItem {
    #[serde(flatten)]
    pub dlq: DlqItem,
    pub groups: Vec<GroupItem>,
    pub checks: Checks,
    pub partitions: Vec<PartitionItem>,
}

/// Which checks a replay would run. This version runs none: both are unknown.
#[derive(Debug, Default, Serialize)]
pub struct Checks {
    pub schema: Option<&'static str>,
    pub idempotency: Option<&'static str>,
}

#[derive(Debug, Serialize)]
pub struct PartitionItem {
    pub partition: i32,
    pub position: Option<i64>,
    pub log_start: Option<i64>,
    pub log_end: Option<i64>,
    pub uncollected: Option<i64>,
    pub sampled_at_ms: Option<i64>,
    pub error: Option<String>,
}

impl From<&PartitionView> for PartitionItem {
    fn from(view: &PartitionView) -> PartitionItem {
        PartitionItem {
            partition: view.partition,
            position: view.position,
            log_start: view.log_start,
            log_end: view.log_end,
            uncollected: view.uncollected,
            sampled_at_ms: view.sampled_at_ms,
            error: view.error.clone(),
        }
    }
}

impl DlqDetailItem {
    fn of(detail: &DlqDetail, now_ms: i64) -> DlqDetailItem {
        DlqDetailItem {
            dlq: DlqItem::from(&detail.health),
            groups: detail.groups.iter().take(GROUPS_SHOWN).map(|group| GroupItem::of(group, now_ms)).collect(),
            checks: Checks::default(),
            partitions: detail.partitions.iter().map(PartitionItem::from).collect(),
        }
    }
}

/// One DLQ.
pub async fn one(
    State(health): State<Health>,
    Path((cluster, topic)): Path<(String, String)>,
    RawQuery(raw): RawQuery,
) -> Result<Json<DlqDetailItem>, Failure> {
    Query::parse(raw.as_deref(), &[])?;
    if !names_could_be(&cluster, &topic) {
        return Err(unknown_dlq(&cluster, &topic));
    }
    match health.one(&cluster, &topic).await? {
        Some(detail) => Ok(Json(DlqDetailItem::of(&detail, health.clock.now_ms()))),
        None => Err(unknown_dlq(&cluster, &topic)),
    }
}

/// Whether these may be names at all: PostgreSQL refuses to compare text with NUL, which no name has.
pub fn names_could_be(cluster: &str, topic: &str) -> bool {
    !cluster.contains('\0') && !topic.contains('\0')
}

/// 404 with a way on.
pub fn unknown_dlq(cluster: &str, topic: &str) -> Failure {
    Failure::not_found(format!("No DLQ {topic:?} was ever seen in cluster {cluster:?}. The overview lists those that were."))
}
