//! `/messages`: where is payment 123?

use askama::Template;
use askama_web::WebTemplate;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Redirect, Response};

use super::reviews::BulkForm;
use super::{Choice, Look, MessageTable, Shell, SignedIn, choices, names};
use crate::api::Failure;
use crate::api::query::{DEFAULT_LIMIT, MESSAGE_FILTER, Query};
use crate::domain::classify::FailureClass;
use crate::domain::message::MessageState;
use crate::store::dlqs::Dlq;
use crate::store::messages::{MessageFilter, MessagePage, MessageRow};
use crate::web::AppState;
use crate::web::view::{format, text};

#[derive(Template, WebTemplate)]
#[template(path = "messages/page.html")]
struct MessagesPage {
    shell: Shell,
    filters: FilterForm,
    clusters: Vec<Choice>,
    topics: Vec<Choice>,
    owners: Vec<Choice>,
    /// Said above a list of messages that share their coordinates.
    note: Option<String>,
    /// This view's path and query, for the live region.
    url: String,
    table: MessageTable,
}

/// The fields of a message filter form, as they stand in the query string.
#[derive(Debug, Clone)]
pub struct FilterForm {
    pub q: String,
    pub states: Vec<Choice>,
    pub follow_ups: Vec<Choice>,
    pub classes: Vec<Choice>,
    pub partition: String,
    pub group: String,
    /// Text only: a key of other bytes stays in the query string, hidden from the form.
    pub key: String,
    pub key_is_bytes: bool,
    pub from: Moment,
    pub to: Moment,
    /// One of the fields that are folded away is filled.
    pub more: bool,
}

/// An end of a time range in a form's field for date and time.
#[derive(Debug, Clone, Default)]
pub struct Moment {
    pub value: String,
    /// The value has seconds, which the field takes only when told so.
    pub fine: bool,
}

impl Moment {
    fn of(at_ms: Option<i64>) -> Moment {
        let value = at_ms.map(format::field_time).unwrap_or_default();
        Moment { fine: value.len() > "2026-11-30T14:02".len(), value }
    }
}

impl FilterForm {
    /// # Errors
    /// 400 naming a parameter that is no text.
    pub fn of(query: &Query) -> Result<FilterForm, Failure> {
        let key = query.bytes("key").unwrap_or_default();
        let shown = std::str::from_utf8(key).ok().filter(|key| text::line(key) == *key);
        let filter = query.message_filter()?;
        Ok(FilterForm {
            q: text::line(query.text("q")?.unwrap_or_default()),
            states: choices(MessageState::ALL.map(MessageState::as_str), query.text("state")?),
            follow_ups: choices(["open", "closed"], query.text("follow_up")?),
            classes: choices(FailureClass::ALL.map(FailureClass::as_str), query.text("class")?),
            partition: query.text("partition")?.unwrap_or_default().to_owned(),
            group: query.text("group")?.unwrap_or_default().to_owned(),
            key: shown.unwrap_or_default().to_owned(),
            key_is_bytes: shown.is_none(),
            from: Moment::of(filter.from_ms),
            to: Moment::of(filter.to_ms),
            more: query.any(&["follow_up", "partition", "group", "key", "from", "to", "from_ms", "to_ms"]),
        })
    }
}

/// `GET /messages`.
pub async fn page(
    State(state): State<AppState>,
    SignedIn(principal): SignedIn,
    look: Look,
    RawQuery(raw): RawQuery,
) -> Result<Response, Failure> {
    let known = [&MESSAGE_FILTER[..], &["after"]].concat();
    let query = Query::parse(raw.as_deref(), &known)?;
    let filter = query.message_filter()?;
    let after = query.integer("after", 1, i64::MAX)?;
    let at_coordinates = at_coordinates(&state, &query, filter.q.as_deref()).await?;
    if let [one] = &at_coordinates[..] {
        return Ok(Redirect::to(&format!("/messages/{}", one.id)).into_response());
    }
    let note = (!at_coordinates.is_empty()).then(|| {
        format!("{} messages have had these coordinates: a topic that is created again begins anew at offset 0.", at_coordinates.len())
    });
    let found = match &note {
        Some(_) => MessagePage { items: at_coordinates, next: None },
        None => state.store.messages(&filter, after, DEFAULT_LIMIT).await?,
    };
    let dlqs = state.store.dlqs().await?;
    let table = MessageTable::of(&found, state.clock.now_ms(), "/messages", &query, &MESSAGE_FILTER);
    let table = match one_dlq(&dlqs, &filter) {
        Some(dlq) => table.replayed(&query, &[("cluster", &dlq.cluster), ("topic", &dlq.topic)], &REPLAYABLE),
        None => table,
    };
    let find = filter.q.as_deref().map(text::line).unwrap_or_default();
    let page = MessagesPage {
        shell: Shell { find, ..Shell::new(&state, Some(&principal), look, "messages") },
        filters: FilterForm::of(&query)?,
        clusters: names(dlqs.iter().map(|dlq| dlq.cluster.as_str()), filter.cluster.as_deref()),
        topics: names(dlqs.iter().map(|dlq| dlq.topic.as_str()), filter.topic.as_deref()),
        owners: names(dlqs.iter().filter_map(|dlq| dlq.owner.as_deref()), filter.owner.as_deref()),
        note,
        url: format!("/messages{}", query.link("", None)),
        table: MessageTable { with_topic: true, bulk: BulkForm::of(&principal, None, &query, &[])?, ..table.exported(&query, &[]) },
    };
    Ok(page.into_response())
}

/// What narrows a list that can be replayed as it is: a replay is of one DLQ, whoever owns it.
const REPLAYABLE: [&str; 11] = ["state", "follow_up", "class", "group", "partition", "key", "q", "from", "to", "from_ms", "to_ms"];

/// The DLQ that a list is of; None: of several.
fn one_dlq<'a>(dlqs: &'a [Dlq], filter: &MessageFilter) -> Option<&'a Dlq> {
    let topic = filter.topic.as_deref()?;
    let mut named = dlqs.iter().filter(|dlq| dlq.topic == topic && filter.cluster.as_ref().is_none_or(|cluster| dlq.cluster == *cluster));
    named.next().filter(|_| named.next().is_none())
}

/// How many messages of the same coordinates are listed.
const SAME_COORDINATES: i64 = 50;

/// The search box also takes coordinates, if nothing else narrows the list: every message that has or had them.
async fn at_coordinates(state: &AppState, query: &Query, q: Option<&str>) -> Result<Vec<MessageRow>, Failure> {
    let narrowed = query.pairs().any(|(name, _)| name != "q");
    let Some(at) = q.filter(|_| !narrowed).and_then(Coordinates::parse) else {
        return Ok(Vec::new());
    };
    Ok(state.store.messages_at(at.cluster, at.topic, at.partition, at.offset, SAME_COORDINATES).await?)
}

#[derive(Debug, PartialEq, Eq)]
struct Coordinates<'a> {
    cluster: Option<&'a str>,
    topic: &'a str,
    partition: i32,
    offset: i64,
}

impl Coordinates<'_> {
    /// `topic/partition/offset`, `cluster/topic/partition/offset` or, as Kafka's own tools write it, `topic-partition@offset`.
    fn parse(q: &str) -> Option<Coordinates<'_>> {
        let (place, topic, partition, offset) = match q.split('/').collect::<Vec<_>>()[..] {
            [topic, partition, offset] => (None, topic, partition, offset),
            [cluster, topic, partition, offset] => (Some(cluster), topic, partition, offset),
            [at] => {
                let (at, offset) = at.rsplit_once('@')?;
                let (topic, partition) = at.rsplit_once('-')?;
                (None, topic, partition, offset)
            }
            _ => return None,
        };
        let whole = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        (!topic.is_empty() && whole(partition) && whole(offset)).then_some(())?;
        Some(Coordinates { cluster: place, topic, partition: partition.parse().ok()?, offset: offset.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_are_read_in_each_of_their_forms() {
        let at = |cluster| Some(Coordinates { cluster, topic: "orders-eu.DLT", partition: 3, offset: 77 });
        assert_eq!(Coordinates::parse("orders-eu.DLT/3/77"), at(None));
        assert_eq!(Coordinates::parse("orders-eu.DLT-3@77"), at(None));
        assert_eq!(Coordinates::parse("main/orders-eu.DLT/3/77"), at(Some("main")));
        for q in [
            "orders.DLT/3",
            "orders/a/7",
            "orders/-1/7",
            "orders/1/",
            "/1/7",
            "orders/1/99999999999999999999",
            "orders/99999999999/1",
            "a/b/c/1/2",
            "ana-1@b.example",
            "@",
            "-@",
            "",
        ] {
            assert_eq!(Coordinates::parse(q), None, "{q}");
        }
    }
}
