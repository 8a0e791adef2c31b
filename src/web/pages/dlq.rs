//! `/dlqs/{cluster}/{topic}`: one failure or many? still arriving? and its messages.

use askama::Template;
use askama_web::WebTemplate;
use axum::extract::{Path, RawQuery, State};

use super::messages::FilterForm;
use super::overview::{at_risk, no_data};
use super::{GroupLine, Look, MessageTable, Shell, SignedIn, When, dlq_path, status_word};
use crate::api::Failure;
use crate::api::dlqs::{names_could_be, unknown_dlq};
use crate::api::query::{DEFAULT_LIMIT, Query};
use crate::services::health::{BUCKET_MS, DlqDetail, PartitionView};
use crate::store::messages::MessageFilter;
use crate::store::positions::{Gap, GapKind};
use crate::web::AppState;
use crate::web::view::format::{self, Number};
use crate::web::view::spark::{Series, Spark};
use crate::web::view::text;

const FILTERS: [&str; 10] = ["state", "class", "group", "partition", "key", "q", "from", "to", "from_ms", "to_ms"];

#[derive(Template, WebTemplate)]
#[template(path = "dlqs/page.html")]
pub struct DlqPage {
    shell: Shell,
    cluster: String,
    topic: String,
    path: String,
    status: &'static str,
    status_word: &'static str,
    because: String,
    meta: String,
    notices: Vec<String>,
    figures: Figures,
    groups: Vec<GroupLine>,
    filters: FilterForm,
    table: MessageTable,
    partitions: Vec<PartitionLine>,
}

struct Figures {
    depth: Number,
    depth_note: String,
    oldest: String,
    oldest_note: String,
    rate: String,
    rate_note: String,
    spark: Spark,
}

struct PartitionLine {
    partition: i32,
    position: String,
    log_start: String,
    log_end: String,
    uncollected: Number,
    sampled: Option<When>,
    error: Option<String>,
}

/// `GET /dlqs/{cluster}/{topic}`.
pub async fn page(
    State(state): State<AppState>,
    SignedIn(principal): SignedIn,
    look: Look,
    Path((cluster, topic)): Path<(String, String)>,
    RawQuery(raw): RawQuery,
) -> Result<DlqPage, Failure> {
    let known = [&FILTERS[..], &["after"]].concat();
    let query = Query::parse(raw.as_deref(), &known)?;
    let filter = MessageFilter { cluster: Some(cluster.clone()), topic: Some(topic.clone()), ..query.message_filter()? };
    let after = query.integer("after", 1, i64::MAX)?;
    if !names_could_be(&cluster, &topic) {
        return Err(unknown_dlq(&cluster, &topic));
    }
    let Some(detail) = state.health.one(&cluster, &topic).await? else {
        return Err(unknown_dlq(&cluster, &topic));
    };
    let now_ms = state.clock.now_ms();
    let found = state.store.messages(&filter, after, DEFAULT_LIMIT).await?;
    let path = dlq_path(&cluster, &topic);
    let health = &detail.health;
    let meta: Vec<String> = [
        health.dlq.owner.as_deref().map(|owner| text::short_line(owner, 60)),
        health.consumer_group.as_deref().map(|group| format!("group {}", text::short_line(group, 80))),
    ]
    .into_iter()
    .flatten()
    .collect();
    Ok(DlqPage {
        shell: Shell::new(&state, Some(&principal), look, "overview"),
        cluster: text::line(&cluster),
        topic: text::line(&topic),
        status: health.status.as_str(),
        status_word: status_word(health.status),
        because: super::because(health.because),
        meta: meta.join(" · "),
        notices: notices(&detail, now_ms),
        figures: figures(&detail, now_ms),
        groups: detail.groups.iter().map(|group| GroupLine::of(group, now_ms)).collect(),
        filters: FilterForm::of(&query)?,
        table: MessageTable::of(&found, now_ms, &path, &query, &FILTERS).exported(&query, &[("cluster", &cluster), ("topic", &topic)]),
        partitions: detail.partitions.iter().map(|view| partition_line(view, now_ms)).collect(),
        path,
    })
}

fn figures(detail: &DlqDetail, now_ms: i64) -> Figures {
    let health = &detail.health;
    let change = detail.depth_change_1h.map(|change| match change {
        0 => "no change in the last hour".to_owned(),
        change if change > 0 => format!("+{} in the last hour", format::exact(change)),
        change => format!("{} in the last hour", format::exact(change)),
    });
    let waiting = match health.uncollected {
        Some(count) => format!("{} not read yet (est.)", format::exact(count)),
        None => "not read yet: not known".to_owned(),
    };
    let event = health.event_age_ms.map(|age| format!("oldest event {}", format::age(age)));
    let risk = format!("in the topic: {}", at_risk(health.at_risk));
    let rate = format::per_minute_or_unknown(health.arrivals_per_min);
    let rate_note = if health.has_data() { "over 15 min, by dead-lettered time".to_owned() } else { no_data(health, now_ms) };
    let series = Series { buckets: health.arrivals.clone(), from_ms: health.arrivals_from_ms, bucket_ms: BUCKET_MS };
    Figures {
        depth: Number::of(health.depth),
        depth_note: change.into_iter().chain([waiting]).collect::<Vec<_>>().join(" · "),
        oldest: format::age_or_unknown(health.oldest_age_ms),
        oldest_note: event.into_iter().chain([risk]).collect::<Vec<_>>().join(" · "),
        spark: Spark::draw(&series, if health.has_data() { &rate } else { "not known" }),
        rate,
        rate_note,
    }
}

/// What a reader must know before trusting the figures.
fn notices(detail: &DlqDetail, now_ms: i64) -> Vec<String> {
    let health = &detail.health;
    let mut notices = Vec::new();
    if !health.has_data() {
        let mut said = capital(&no_data(health, now_ms));
        if let Some(error) = &health.sample_error {
            said.push_str(&format!(": {}", text::short_line(error, 300)));
        }
        said.push_str(". Depth and ages are of what is stored; what waits in the topic is not known.");
        notices.push(said);
    }
    if let Some(since) = health.dlq.gone_since_ms {
        notices.push(format!(
            "The topic does not exist in the cluster, noticed {} ({}). Its messages stay.",
            format::ago(since, now_ms),
            format::utc(since)
        ));
    }
    for life in detail.incarnations.iter().filter(|life| life.incarnation > 1) {
        notices.push(format!(
            "Topic recreated ({}): noticed {}. Offsets began anew.",
            format::ordinal(life.incarnation),
            format::utc(life.started_at_ms)
        ));
    }
    notices.extend(health.dlq.start_note.as_deref().map(|note| format!("{}.", capital(&text::line(note)).trim_end_matches('.'))));
    notices.extend(detail.gaps.iter().map(gap));
    if !detail.mask.is_empty() {
        notices.push(format!("Masked in values: {}.", text::line(&detail.mask.join(", "))));
    }
    notices
}

fn gap(gap: &Gap) -> String {
    let count = gap.from_offset.abs_diff(gap.to_offset);
    let count = format::exact(i64::try_from(count).unwrap_or(i64::MAX));
    let place = format!(
        "partition {}, offsets {} to {}, noticed {}",
        gap.id.partition,
        gap.from_offset,
        gap.to_offset,
        format::utc(gap.noticed_at_ms)
    );
    match gap.kind {
        GapKind::Retention => format!("Up to {count} records lost to retention before they were taken in: {place}."),
        GapKind::Truncation => format!("The log was truncated by {count} offsets; reading went on at its end: {place}."),
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

fn partition_line(view: &PartitionView, now_ms: i64) -> PartitionLine {
    let offset = |offset: Option<i64>| offset.map_or_else(|| format::UNKNOWN.to_owned(), format::exact);
    PartitionLine {
        partition: view.partition,
        position: offset(view.position),
        log_start: offset(view.log_start),
        log_end: offset(view.log_end),
        uncollected: Number::of_option(view.uncollected),
        sampled: view.sampled_at_ms.map(|at| When::of(at, now_ms)),
        error: view.error.as_deref().map(|error| text::short_line(error, 200)),
    }
}
