//! `/dlqs/{cluster}/{topic}`: one failure or many? still arriving? and its messages.

use std::collections::BTreeMap;

use askama::Template;
use askama_web::WebTemplate;
use axum::extract::{Path, RawQuery, State};
use axum_htmx::HxRequest;

use super::messages::FilterForm;
use super::overview::{at_risk, no_data};
use super::replays::OpenReplay;
use super::reviews::{self, BulkForm, ReviewLine};
use super::{GroupLine, Look, MessageTable, Shell, SignedIn, When, dlq_path, new_replay, status_word, words};
use crate::api::Failure;
use crate::api::dlqs::{names_could_be, unknown_dlq};
use crate::api::query::{DEFAULT_LIMIT, Query, encode};
use crate::domain::group::Decision;
use crate::domain::health::Status;
use crate::domain::readiness::Checks;
use crate::domain::settings::{DialectChoice, DlqSettings, Partitioner, Start, entry_for};
use crate::domain::template::KeyTemplate;
use crate::services::health::{Buckets, DlqDetail, PartitionView};
use crate::services::heat::{HeatView, Hot, Key, NEWEST};
use crate::store::groups::Group;
use crate::store::messages::MessageFilter;
use crate::store::positions::{Gap, GapKind};
use crate::web::AppState;
use crate::web::view::chart::{Chart, Mark, Measure};
use crate::web::view::format::{self, Number};
use crate::web::view::spark::Series;
use crate::web::view::success::Success;
use crate::web::view::text;

const FILTERS: [&str; 11] = ["state", "follow_up", "class", "group", "partition", "key", "q", "from", "to", "from_ms", "to_ms"];

/// Failures on a page of the list.
const FAILURES: usize = 100;
/// So many notices stand above the figures; the rest are folded.
const NOTICES: usize = 4;
/// More partitions than Kafka carries in a topic anywhere.
const MOST_PARTITIONS: i32 = 100_000;

#[derive(Template, WebTemplate)]
#[template(path = "dlqs/page.html")]
pub struct DlqPage {
    shell: Shell,
    /// What the live stream says when this DLQ changed.
    hint: String,
    cluster: String,
    topic: String,
    path: String,
    /// This page as it stands, for its live regions.
    here: String,
    status: &'static str,
    status_word: &'static str,
    because: String,
    meta: Vec<String>,
    /// To a new replay of its messages.
    replay: String,
    /// Its live replays.
    open: Vec<OpenReplay>,
    notices: Vec<String>,
    more_notices: Vec<String>,
    figures: Figures,
    hot: bool,
    arrivals: Chart,
    depths: Chart,
    failures: Failures,
    /// None: a part of the page is asked for, and this stands in none.
    heat: Option<HeatCard>,
    settings: Vec<Setting>,
    kept: Vec<(&'static str, String)>,
    filters: FilterForm,
    table: MessageTable,
    partitions: Vec<PartitionLine>,
    /// To the messages whose follow-up is open, and how many.
    follow_ups: Option<String>,
    /// The number of the form that draws a line; None: this person may not.
    line: Option<String>,
    /// The query string of what a line is drawn under.
    line_filter: String,
    reviews: Vec<ReviewLine>,
}

struct Figures {
    depth: Number,
    depth_note: String,
    oldest: String,
    oldest_note: String,
    rate: String,
    rate_note: String,
    success: Success,
}

struct Failures {
    lines: Vec<FailureLine>,
    /// "The first 100 of 230."; None when all are shown.
    said: Option<String>,
    newer: Option<String>,
    older: Option<String>,
}

struct FailureLine {
    group: GroupLine,
    /// Of the depth.
    share: String,
    /// Its messages, with the span of time from the first to the last.
    messages: String,
}

struct HeatCard {
    /// "Of the newest 5,000 open messages, as of 14:02:11 UTC."
    said: String,
    looked_at: usize,
    keys: Vec<HotLine>,
    keys_said: String,
    has_masked_key: bool,
    /// None: no place for a tenant is configured.
    tenants: Option<Vec<HotLine>>,
    tenants_said: String,
    /// The count that was asked for.
    partitions: String,
    moves: Vec<String>,
    partitions_now: String,
}

struct HotLine {
    what: String,
    link: Option<String>,
    count: usize,
    /// "17.2% (n = 861)"
    share: String,
}

struct Setting {
    name: &'static str,
    /// None: not configured.
    value: Option<String>,
    note: Option<&'static str>,
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
    HxRequest(is_fragment): HxRequest,
    Path((cluster, topic)): Path<(String, String)>,
    RawQuery(raw): RawQuery,
) -> Result<DlqPage, Failure> {
    let known = [&FILTERS[..], &["after", "failures", "partitions"]].concat();
    let query = Query::parse(raw.as_deref(), &known)?;
    let filter = MessageFilter { cluster: Some(cluster.clone()), topic: Some(topic.clone()), ..query.message_filter()? };
    let after = query.integer("after", 1, i64::MAX)?;
    let failures_page = query.integer("failures", 1, 10)?.unwrap_or(1_usize);
    let asked = query.integer("partitions", 1, MOST_PARTITIONS)?;
    if !names_could_be(&cluster, &topic) {
        return Err(unknown_dlq(&cluster, &topic));
    }
    let Some(detail) = state.health.one(&cluster, &topic).await? else {
        return Err(unknown_dlq(&cluster, &topic));
    };
    let now_ms = state.clock.now_ms();
    let found = state.store.messages(&filter, after, DEFAULT_LIMIT).await?;
    let heat = if is_fragment { None } else { Some(state.heat.of(&detail.health.dlq).await?) };
    let (place, settings) = entry_for(&state.options.dlqs, &cluster, &topic).unzip();
    let checks = place.and_then(|place| state.options.configured.checks.get(place));
    let has_tenant = settings.is_some_and(|settings| settings.tenant.is_some());
    let path = dlq_path(&cluster, &topic);
    let health = &detail.health;
    let owner = state.owner_of(&cluster, &topic).await?;
    let place = [("cluster", cluster.as_str()), ("topic", topic.as_str())];
    let bulk = BulkForm::of(&principal, Some(owner.as_deref()), &query, &place)?;
    let mut notices = notices(&detail, now_ms);
    let more_notices = notices.split_off(notices.len().min(NOTICES));
    let rate = format::per_minute_or_unknown(health.arrivals_per_min);
    let now = if health.has_data() { rate.as_str() } else { "not known" };
    Ok(DlqPage {
        shell: Shell::new(&state, Some(&principal), look, "overview"),
        hint: format!("dlq-{}", health.dlq.id),
        cluster: text::line(&cluster),
        topic: text::line(&topic),
        here: format!("{path}{}", query.link("", None)),
        status: health.status.as_str(),
        status_word: status_word(health.status),
        because: super::because(health.because),
        meta: meta(&detail, heat.as_ref().map_or(&[], |heat| &heat.dialects)),
        replay: new_replay(&cluster, &topic, &[]),
        open: state.store.open_batches(Some(health.dlq.id)).await?.iter().map(OpenReplay::of).collect(),
        notices,
        more_notices,
        figures: figures(&detail, now_ms),
        hot: health.status == Status::Critical,
        arrivals: Chart::draw(&series(&detail.arrivals), Measure::Arrivals, now, now_ms, &marks(&detail)),
        depths: Chart::draw(&series(&detail.depths), Measure::Depth, &format::exact(health.depth), now_ms, &[]),
        failures: Failures::of(&detail, failures_page, now_ms, &path, &query),
        heat: heat.map(|heat| HeatCard::of(&heat, &detail, has_tenant, asked, now_ms, &path)),
        settings: settings.map(|settings| settings_lines(settings, checks)).unwrap_or_default(),
        kept: kept(&query),
        filters: FilterForm::of(&query)?,
        table: MessageTable::of(&found, now_ms, &path, &query, &FILTERS)
            .exported(&query, &place)
            .replayed(&query, &place, &FILTERS)
            .bulk(bulk.clone()),
        follow_ups: (health.follow_up_open > 0)
            .then(|| format!("{} with an open follow-up", format::counted(health.follow_up_open, "archived message", "archived messages"))),
        line: if bulk.is_some() { Some(super::group::new_form_id()?) } else { None },
        line_filter: Query::default().rewritten(&[], &[("cluster", &cluster), ("topic", &topic), ("state", "quarantined")]),
        reviews: reviews::of_dlq(&state, &principal, health.dlq.id).await?,
        partitions: detail.partitions.iter().map(|view| partition_line(view, now_ms)).collect(),
        path,
    })
}

fn series(buckets: &Buckets) -> Series {
    Series { buckets: buckets.counts.clone(), from_ms: buckets.from_ms, bucket_ms: buckets.bucket_ms }
}

/// Whose it is, who failed, and how its headers are written: as configured, else as seen.
fn meta(detail: &DlqDetail, dialects: &[Hot<String>]) -> Vec<String> {
    let health = &detail.health;
    let owner = health.dlq.owner.as_deref().map_or_else(|| "no owner".to_owned(), |owner| text::short_line(owner, 60));
    let mut groups: Vec<&str> = match health.consumer_group.as_deref() {
        Some(group) => vec![group],
        None => detail.groups.iter().filter_map(|group| group.consumer_group.as_deref()).collect(),
    };
    groups.sort_unstable();
    groups.dedup();
    let group = match groups.as_slice() {
        [] => "consumer group not known".to_owned(),
        [group] => format!("group {}", text::short_line(group, 80)),
        [group, others @ ..] => format!("group {} and {} more", text::short_line(group, 80), others.len()),
    };
    let headers = match dialects {
        [] => return vec![owner, group],
        [hot] if hot.what == "none" => "headers of no known format".to_owned(),
        [hot] => format!("{} headers", words(&hot.what)),
        several => format!("headers: {}", several.iter().map(|hot| words(&hot.what)).collect::<Vec<_>>().join(", ")),
    };
    vec![owner, group, headers]
}

/// What the chart of arrivals has to tell beside its line.
fn marks(detail: &DlqDetail) -> Vec<Mark> {
    let recreated = detail.incarnations.iter().filter(|life| life.incarnation > 1);
    let mut marks: Vec<Mark> = recreated
        .map(|life| Mark { at_ms: life.started_at_ms, label: format!("Topic recreated ({})", format::ordinal(life.incarnation)) })
        .collect();
    for group in &detail.groups {
        if let Decision::FixedSince { at_ms } = group.status.decision {
            marks.push(Mark { at_ms, label: format!("Said to be fixed: {}", super::group_title(group)) });
        }
    }
    // What was noticed at once is one mark: a topic has many partitions.
    let mut gaps: BTreeMap<(i64, &str), Vec<&Gap>> = BTreeMap::new();
    for gap in &detail.gaps {
        gaps.entry((gap.noticed_at_ms.div_euclid(60_000), gap.kind.as_str())).or_default().push(gap);
    }
    for gaps in gaps.into_values() {
        let Some(first) = gaps.iter().min_by_key(|gap| gap.noticed_at_ms) else { continue };
        let count = gaps.iter().fold(0_u64, |sum, gap| sum.saturating_add(gap.from_offset.abs_diff(gap.to_offset)));
        let count = format::exact(i64::try_from(count).unwrap_or(i64::MAX));
        let place = match gaps.as_slice() {
            [gap] => format!("partition {}", gap.id.partition),
            several => format!("{} partitions", several.len()),
        };
        let label = match first.kind {
            GapKind::Retention => format!("Up to {count} records lost to retention, {place}"),
            GapKind::Truncation => format!("Log truncated by {count} offsets, {place}"),
        };
        marks.push(Mark { at_ms: first.noticed_at_ms, label });
    }
    marks
}

impl Failures {
    fn of(detail: &DlqDetail, page: usize, now_ms: i64, path: &str, query: &Query) -> Failures {
        let all = detail.groups.len();
        let from = (page - 1).saturating_mul(FAILURES);
        let shown: Vec<&Group> = detail.groups.iter().skip(from).take(FAILURES).collect();
        let link = |page: usize| format!("{path}{}#failures", query.link("failures", (page > 1).then(|| page.to_string()).as_deref()));
        let more = if detail.more_groups { "more than " } else { "" };
        let said = match (shown.len() == all && !detail.more_groups, shown.len()) {
            (true, _) => None,
            (false, 0) => Some(format!("There is no page {page} of these: there are {all}.")),
            (false, some) => Some(format!("{} to {} of {more}{}.", from + 1, from + some, format::exact(all as i64))),
        };
        Failures {
            lines: shown.into_iter().map(|group| FailureLine::of(group, detail.health.depth, now_ms, path)).collect(),
            said,
            newer: (page > 1).then(|| link(page - 1)),
            older: (from + FAILURES < all).then(|| link(page + 1)),
        }
    }
}

impl FailureLine {
    fn of(group: &Group, depth: i64, now_ms: i64, path: &str) -> FailureLine {
        let span = match (group.first_at_ms, group.last_at_ms) {
            (Some(first), Some(last)) if first >= 0 => format!("&from_ms={first}&to_ms={}", last.saturating_add(1)),
            _ => String::new(),
        };
        FailureLine {
            group: GroupLine::of(group, now_ms),
            share: format::percent(group.open, depth),
            messages: format!("{path}?group={}{span}#messages", group.id),
        }
    }
}

impl HeatCard {
    fn of(heat: &HeatView, detail: &DlqDetail, has_tenant: bool, asked: Option<i32>, now_ms: i64, path: &str) -> HeatCard {
        let looked_at = heat.looked_at as i64;
        let which = if looked_at < NEWEST { "all" } else { "the newest" };
        let said =
            format!("Of {which} {}, as of {}.", format::counted(looked_at, "open message", "open messages"), format::time_of_day(now_ms));
        let key = |hot: &Hot<Key>| {
            let key = &hot.what;
            let shown = if key.bytes.is_empty() { "empty key".to_owned() } else { text::bytes_line(&key.bytes, 60) };
            let link = (!key.cut && !key.bytes.is_empty()).then(|| format!("{path}?key={}#messages", encode(&key.bytes)));
            HotLine { what: shown, link, count: hot.count, share: share(hot.count, looked_at) }
        };
        let tenant = |hot: &Hot<String>| HotLine {
            what: text::short_line(&hot.what, 60),
            link: None,
            count: hot.count,
            share: share(hot.count, looked_at),
        };
        HeatCard {
            said,
            looked_at: heat.looked_at,
            keys: heat.keys.iter().map(key).collect(),
            keys_said: told(
                [heat.distinct_keys, heat.keys.len()],
                ["key", "keys"],
                &[(heat.without_key, "without key"), (heat.masked_key, "with a masked key")],
                looked_at,
            ),
            has_masked_key: heat.masked_key > 0,
            tenants: has_tenant.then(|| heat.tenants.iter().map(tenant).collect()),
            tenants_said: told(
                [heat.distinct_tenants, heat.tenants.len()],
                ["tenant", "tenants"],
                &[(heat.without_tenant, "without tenant"), (heat.masked_tenant, "with a masked tenant")],
                looked_at,
            ),
            partitions: asked.map(|count| count.to_string()).unwrap_or_default(),
            moves: asked.map(|to| moves(heat, detail, to, now_ms)).unwrap_or_default(),
            partitions_now: match sampled_partitions(detail) {
                Some((count, at_ms)) => {
                    format!("{} as sampled {}.", format::counted(count.into(), "partition", "partitions"), format::ago(at_ms, now_ms))
                }
                None => "How many partitions the topic has is not known: it was never sampled.".to_owned(),
            },
        }
    }
}

/// "163 keys; the first 10. 12 messages without key (0.2%)."
fn told([distinct, shown]: [usize; 2], [one, many]: [&str; 2], others: &[(usize, &str)], of: i64) -> String {
    let mut said = format::counted(distinct as i64, one, many);
    if shown < distinct {
        said.push_str(&format!(", the hottest {shown} shown"));
    }
    for (count, what) in others.iter().filter(|(count, _)| *count > 0) {
        let (count, messages) = (*count as i64, format::counted(*count as i64, "message", "messages"));
        said.push_str(&format!("; {messages} {what} ({})", format::percent(count, of)));
    }
    said + "."
}

fn share(count: usize, of: i64) -> String {
    format!("{} (n = {})", format::percent(count as i64, of), format::exact(count as i64))
}

/// How many partitions the topic had at the newest look, and when that was.
fn sampled_partitions(detail: &DlqDetail) -> Option<(i32, i64)> {
    let sampled = detail.partitions.iter().filter_map(|view| view.sampled_at_ms);
    let at_ms = sampled.clone().max()?;
    Some((i32::try_from(sampled.count()).unwrap_or(i32::MAX), at_ms))
}

fn moves(heat: &HeatView, detail: &DlqDetail, to: i32, now_ms: i64) -> Vec<String> {
    let Some((from, at_ms)) = sampled_partitions(detail) else {
        return vec!["What would move cannot be told: how many partitions the topic has is not known.".to_owned()];
    };
    let moves = heat.moves(from, to);
    let by = match heat.partitioner() {
        Partitioner::Murmur2Random => "murmur2, as Java producers hash",
        Partitioner::ConsistentRandom => "CRC32, as librdkafka hashes",
    };
    let counts = format!(
        "From {} (as sampled {}) to {to}, by {by}:",
        format::counted(from.into(), "partition", "partitions"),
        format::ago(at_ms, now_ms)
    );
    let (keys, moved) = (moves.keys as i64, moves.moved as i64);
    let mut said = vec![match keys {
        0 => format!("{counts} there is no key here that is hashed."),
        _ => format!(
            "{counts} {} of {} would go to another partition ({}).",
            format::exact(moved),
            format::counted(keys, "key", "keys"),
            format::percent(moved, keys)
        ),
    }];
    if let (Some((before, after)), Some(hottest)) = (moves.first, heat.keys.iter().find(|hot| !hot.what.cut)) {
        let key = text::bytes_line(&hottest.what.bytes, 60);
        said.push(match before == after {
            true => format!("The hottest, {key}, stays in partition {before}."),
            false => format!("The hottest, {key}, goes from partition {before} to {after}."),
        });
    }
    if heat.masked_key > 0 {
        said.push(format!("Of {} the key is masked and not counted.", format::counted(heat.masked_key as i64, "message", "messages")));
    }
    if heat.long_keys() > 0 {
        said.push(format!("{} too long to be read whole and not counted.", format::counted(heat.long_keys() as i64, "key is", "keys are")));
    }
    said
}

/// What its `[[dlq]]` entry says, for reading.
fn settings_lines(settings: &DlqSettings, checks: Option<&Checks>) -> Vec<Setting> {
    let line = |name, value: Option<String>, note| Setting { name, value, note };
    let template = |template: &Option<KeyTemplate>| template.as_ref().map(|template| text::line(template.source()));
    let dialect = match &settings.dialect {
        DialectChoice::Auto => "found by itself".to_owned(),
        DialectChoice::Named(dialect) => words(dialect.as_str()),
        DialectChoice::Custom(_) => "custom".to_owned(),
    };
    let partitioner = match settings.partitioner {
        Partitioner::Murmur2Random => "murmur2 (Java producers)",
        Partitioner::ConsistentRandom => "CRC32 (librdkafka)",
    };
    let start = match settings.start {
        Start::Earliest => "at its beginning".to_owned(),
        Start::Latest => "with what came after".to_owned(),
        Start::Age { ms } => format!("with records of the last {}", format::age(ms)),
    };
    let named = |name: fn(&Checks) -> &Option<String>| checks.and_then(|checks| name(checks).as_deref()).map(text::line);
    vec![
        line("Schema", named(|checks| &checks.schema), None),
        line("Duplicate check", named(|checks| &checks.ledger), None),
        line("Business key", template(&settings.business_key), None),
        line("Tenant", template(&settings.tenant), None),
        line("Masked in values", (!settings.mask.is_empty()).then(|| text::line(&settings.mask.join(", "))), None),
        line("Keys are hashed by", Some(partitioner.to_owned()), None),
        line("Header format", Some(dialect), None),
        line("Replay attempts", Some(format!("at most {}", settings.max_laps)), None),
        line("When first seen, read", Some(start), None),
    ]
}

/// What the form for the partition count keeps of the view. What would have to be made visible to be shown cannot stand in a form.
fn kept(query: &Query) -> Vec<(&'static str, String)> {
    let value = |name: &&'static str| {
        let value = std::str::from_utf8(query.bytes(name)?).ok()?;
        (text::line(value) == value).then(|| (*name, value.to_owned()))
    };
    FILTERS.iter().filter_map(value).collect()
}

fn figures(detail: &DlqDetail, now_ms: i64) -> Figures {
    let health = &detail.health;
    let change = match (health.has_data(), health.depth_change_1h) {
        (false, _) => Some("stored".to_owned()),
        (true, None) => None,
        (true, Some(0)) => Some("no change in the last hour".to_owned()),
        (true, Some(change)) => Some(format!("{}{} in the last hour", if change > 0 { "+" } else { "" }, format::exact(change))),
    };
    let waiting = match health.uncollected {
        Some(count) => format!("{} not read yet (est.)", format::exact(count)),
        None => "not read yet: not known".to_owned(),
    };
    let event = health.event_age_ms.map(|age| format!("oldest event {}", format::age(age)));
    let risk = format!("in the topic: {}", at_risk(health.at_risk));
    Figures {
        depth: Number::of(health.depth),
        depth_note: change.into_iter().chain([waiting]).collect::<Vec<_>>().join(" · "),
        oldest: format::age_or_unknown(health.oldest_age_ms),
        oldest_note: event.into_iter().chain([risk]).collect::<Vec<_>>().join(" · "),
        rate: format::per_minute_or_unknown(health.arrivals_per_min),
        rate_note: if health.has_data() { "over 15 min, by dead-lettered time".to_owned() } else { no_data(health, now_ms) },
        success: Success::of(health.outcomes),
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
