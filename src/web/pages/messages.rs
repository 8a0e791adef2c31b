//! `/messages`: where is payment 123?

use askama::Template;
use askama_web::WebTemplate;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Redirect, Response};

use super::{Choice, Look, MessageTable, Shell, SignedIn, choices};
use crate::api::Failure;
use crate::api::query::{DEFAULT_LIMIT, MESSAGE_FILTER, Query};
use crate::domain::classify::FailureClass;
use crate::domain::message::MessageState;
use crate::web::AppState;
use crate::web::view::text;

#[derive(Template, WebTemplate)]
#[template(path = "messages/page.html")]
struct MessagesPage {
    shell: Shell,
    filters: FilterForm,
    clusters: Vec<Choice>,
    topics: Vec<Choice>,
    table: MessageTable,
}

/// The fields of a message filter form, as they stand in the query string.
#[derive(Debug, Clone)]
pub struct FilterForm {
    pub q: String,
    pub states: Vec<Choice>,
    pub classes: Vec<Choice>,
    pub partition: String,
    pub group: String,
    /// Text only: a key of other bytes stays in the query string, hidden from the form.
    pub key: String,
    pub key_is_bytes: bool,
}

impl FilterForm {
    /// # Errors
    /// 400 naming a parameter that is no text.
    pub fn of(query: &Query) -> Result<FilterForm, Failure> {
        let key = query.bytes("key").unwrap_or_default();
        let shown = std::str::from_utf8(key).ok().filter(|key| text::line(key) == *key);
        Ok(FilterForm {
            q: text::line(query.text("q")?.unwrap_or_default()),
            states: choices(MessageState::ALL.map(MessageState::as_str), query.text("state")?),
            classes: choices(FailureClass::ALL.map(FailureClass::as_str), query.text("class")?),
            partition: query.text("partition")?.unwrap_or_default().to_owned(),
            group: query.text("group")?.unwrap_or_default().to_owned(),
            key: shown.unwrap_or_default().to_owned(),
            key_is_bytes: shown.is_none(),
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
    if let Some(path) = coordinates(&state, &query, filter.q.as_deref()).await? {
        return Ok(Redirect::to(&path).into_response());
    }
    let after = query.integer("after", 1, i64::MAX)?;
    let now_ms = state.clock.now_ms();
    let found = state.store.messages(&filter, after, DEFAULT_LIMIT).await?;
    let dlqs = state.store.dlqs().await?;
    let mut clusters: Vec<&str> = dlqs.iter().map(|dlq| dlq.cluster.as_str()).collect();
    clusters.dedup();
    let mut topics: Vec<&str> = dlqs.iter().map(|dlq| dlq.topic.as_str()).collect();
    topics.sort_unstable();
    topics.dedup();
    let mut table = MessageTable::of(&found, now_ms, "/messages", &query, &MESSAGE_FILTER);
    table.with_topic = true;
    let find = filter.q.as_deref().map(text::line).unwrap_or_default();
    let page = MessagesPage {
        shell: Shell { find, ..Shell::new(&state, Some(&principal), look, "messages") },
        filters: FilterForm::of(&query)?,
        clusters: plain(clusters, filter.cluster.as_deref()),
        topics: plain(topics, filter.topic.as_deref()),
        table,
    };
    Ok(page.into_response())
}

/// Choices whose labels are names, shown as they are.
fn plain(names: Vec<&str>, chosen: Option<&str>) -> Vec<Choice> {
    let choice = |name: &str| Choice { value: name.to_owned(), label: text::line(name), chosen: chosen == Some(name) };
    names.into_iter().map(choice).collect()
}

/// The search box also takes `topic/partition/offset`: if that names a stored message and nothing else narrows the list, its page.
async fn coordinates(state: &AppState, query: &Query, q: Option<&str>) -> Result<Option<String>, Failure> {
    if query.any(&["cluster", "topic", "state", "class", "group", "partition", "key", "from_ms", "to_ms", "after"]) {
        return Ok(None);
    }
    let Some((topic, partition, offset)) = q.and_then(parse_coordinates) else {
        return Ok(None);
    };
    for dlq in state.store.dlqs().await?.iter().filter(|dlq| dlq.topic == topic) {
        if let Some(row) = state.store.message_at(&dlq.cluster, topic, partition, offset, None).await? {
            return Ok(Some(format!("/messages/{}", row.id)));
        }
    }
    Ok(None)
}

fn parse_coordinates(q: &str) -> Option<(&str, i32, i64)> {
    let (rest, offset) = q.rsplit_once('/')?;
    let (topic, partition) = rest.rsplit_once('/')?;
    let whole = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (whole(partition) && whole(offset)).then_some(())?;
    Some((topic, partition.parse().ok()?, offset.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_are_three_parts() {
        assert_eq!(parse_coordinates("orders.DLT/3/77"), Some(("orders.DLT", 3, 77)));
        for q in ["orders.DLT/3", "orders/a/7", "orders/-1/7", "orders/1/", "orders/1/99999999999999999999"] {
            assert_eq!(parse_coordinates(q), None, "{q}");
        }
    }
}
