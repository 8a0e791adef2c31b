//! `GET /api/v1/messages` and `GET /api/v1/messages/{id}`.

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use serde::Serialize;

use super::query::{self, DEFAULT_LIMIT, MESSAGE_FILTER, Query};
use super::{Bytes, Failure, Page};
use crate::domain::lifecycle::FollowUp;
use crate::domain::record::display_text;
use crate::services::messages::{MessageView, Messages, ShownValue};
use crate::store::messages::MessageRow;
use crate::store::transitions::Transition;
use crate::store::verdicts::Verdict;

/// One message of a list.
#[derive(Debug, Serialize)]
pub struct MessageItem {
    pub id: i64,
    pub cluster: String,
    pub topic: String,
    pub incarnation: i32,
    pub partition: i32,
    pub offset: i64,
    pub state: &'static str,
    pub resolution: Option<String>,
    pub outcome: Option<String>,
    pub reason: Option<String>,
    pub dialect: String,
    pub class: &'static str,
    /// The failure group's id.
    pub group: i64,
    pub exception_class: Option<String>,
    pub exception_message: Option<String>,
    /// Null where the headers say nothing of it; a part they do not say is null within.
    pub origin: Option<OriginItem>,
    pub consumer_group: Option<String>,
    pub attempts: Option<i64>,
    pub lap: i32,
    pub business_key: Option<String>,
    pub record_at_ms: Option<i64>,
    pub dead_lettered_at_ms: i64,
    pub timestamp_suspect: bool,
    pub key: Option<Bytes>,
    pub size: i64,
}

#[derive(Debug, Serialize)]
pub struct OriginItem {
    pub topic: Option<String>,
    pub partition: Option<i32>,
    pub offset: Option<i64>,
    pub timestamp_ms: Option<i64>,
}

impl From<&MessageRow> for MessageItem {
    fn from(row: &MessageRow) -> MessageItem {
        MessageItem {
            id: row.id,
            cluster: row.cluster.clone(),
            topic: row.topic.clone(),
            incarnation: row.incarnation,
            partition: row.partition,
            offset: row.offset,
            state: row.state.as_str(),
            resolution: row.resolution.clone(),
            outcome: row.outcome.clone(),
            reason: row.reason.clone(),
            dialect: row.dialect.clone(),
            class: row.class.as_str(),
            group: row.group_id,
            exception_class: row.exception_class.clone(),
            exception_message: row.exception_message.clone(),
            origin: origin(row),
            consumer_group: row.consumer_group.clone(),
            attempts: row.attempts,
            lap: row.lap,
            business_key: row.business_key.clone(),
            record_at_ms: row.record_at_ms,
            dead_lettered_at_ms: row.dead_lettered_at_ms,
            timestamp_suspect: row.timestamp_suspect,
            key: row.key.clone().map(Bytes),
            size: row.size,
        }
    }
}

fn origin(row: &MessageRow) -> Option<OriginItem> {
    let known = row.origin_topic.is_some() || row.origin_partition.is_some() || row.origin_offset.is_some() || row.origin_at_ms.is_some();
    known.then(|| OriginItem {
        topic: row.origin_topic.clone(),
        partition: row.origin_partition,
        offset: row.origin_offset,
        timestamp_ms: row.origin_at_ms,
    })
}

/// Messages, newest id first. `after` is the `next` of the page before.
pub async fn list(State(messages): State<Messages>, RawQuery(raw): RawQuery) -> Result<Json<Page<MessageItem, i64>>, Failure> {
    let known = [&MESSAGE_FILTER[..], &["after", "limit"]].concat();
    let query = Query::parse(raw.as_deref(), &known)?;
    let filter = query.message_filter()?;
    let after = query.integer("after", 1, i64::MAX)?;
    let page = messages.store.messages(&filter, after, query.limit(DEFAULT_LIMIT)?).await?;
    Ok(Json(Page { items: page.items.iter().map(MessageItem::from).collect(), next: page.next }))
}

/// One message with value and headers.
#[derive(Debug, Serialize)]
pub struct MessageDetailItem {
    #[serde(flatten)]
    pub message: MessageItem,
    /// Null for a null value, and for one that is not shown: `value_note` tells them apart.
    pub value: Option<Bytes>,
    /// Why `value` is not the exact bytes (masked, withheld, purged); null when it is.
    pub value_note: Option<String>,
    /// Name and value of each, in the record's order. A name that is not UTF-8 is shown with replacement characters.
    pub headers: Vec<(String, Option<Bytes>)>,
    /// `open` or `closed` of what a check archived.
    pub follow_up: Option<&'static str>,
    /// The message that came back as this one.
    pub replay_of: Option<i64>,
    /// Oldest first. A message that was only taken in has none.
    pub transitions: Vec<TransitionItem>,
    /// Newest first.
    pub verdicts: Vec<VerdictItem>,
}

/// A step of a message's history.
#[derive(Debug, Serialize)]
pub struct TransitionItem {
    pub at_ms: i64,
    pub from: String,
    pub to: String,
    #[serde(rename = "move")]
    pub movement: String,
    pub actor: String,
    /// The replay and the review on whose behalf it was, if any.
    pub replay: Option<i64>,
    pub review: Option<i64>,
    pub reason: Option<String>,
    pub evidence: Option<serde_json::Value>,
}

impl From<Transition> for TransitionItem {
    fn from(step: Transition) -> TransitionItem {
        TransitionItem {
            at_ms: step.at_ms,
            from: step.from_state,
            to: step.to_state,
            movement: step.movement,
            actor: step.actor,
            replay: step.batch_id,
            review: step.review_id,
            reason: step.reason,
            evidence: step.evidence.map(json_or_text),
        }
    }
}

/// What both checks found of a message at one time.
#[derive(Debug, Serialize)]
pub struct VerdictItem {
    pub at_ms: i64,
    pub replay: i64,
    /// `preflight`, `sending` or `in_doubt`.
    pub phase: String,
    pub schema: String,
    pub schema_note: Option<String>,
    pub idempotency: String,
    /// The key, exact.
    pub asked: Option<String>,
    pub answered: Option<String>,
    /// `[[consumer group, verdict]]` of who else reads the target.
    pub others: Option<serde_json::Value>,
    pub decision: String,
}

impl From<Verdict> for VerdictItem {
    fn from(verdict: Verdict) -> VerdictItem {
        VerdictItem {
            at_ms: verdict.at_ms,
            replay: verdict.batch_id,
            phase: verdict.phase,
            schema: verdict.schema,
            schema_note: verdict.schema_note,
            idempotency: verdict.idempotency,
            asked: verdict.asked,
            answered: verdict.answered,
            others: verdict.others.map(json_or_text),
            decision: verdict.decision,
        }
    }
}

/// JSON as such; a text that is none, as one that a mask cut may be, as text.
fn json_or_text(stored: String) -> serde_json::Value {
    serde_json::from_str(&stored).unwrap_or(serde_json::Value::String(stored))
}

impl From<MessageView> for MessageDetailItem {
    fn from(view: MessageView) -> MessageDetailItem {
        let value_note = value_note(&view.value);
        let value = match view.value {
            ShownValue::Plain(bytes) => Some(Bytes(bytes)),
            ShownValue::Masked { json, .. } => Some(Bytes(json.into_bytes())),
            ShownValue::Purged | ShownValue::Null | ShownValue::Withheld => None,
        };
        let headers = view.headers.into_iter().map(|header| (display_text(&header.name), header.value.map(Bytes))).collect();
        MessageDetailItem {
            message: MessageItem::from(&view.row),
            value,
            value_note,
            headers,
            follow_up: view.row.follow_up.map(FollowUp::as_str),
            replay_of: view.row.replay_of,
            transitions: view.evidence.transitions.into_iter().map(TransitionItem::from).collect(),
            verdicts: view.evidence.verdicts.into_iter().map(VerdictItem::from).collect(),
        }
    }
}

/// In a sentence, why what is shown is not the exact bytes. None when it is.
pub fn value_note(value: &ShownValue) -> Option<String> {
    match value {
        ShownValue::Plain(_) | ShownValue::Null => None,
        ShownValue::Purged => Some("The bytes were removed after their retention; what was read out of them stays.".to_owned()),
        ShownValue::Withheld => Some(
            "Fields of this DLQ are masked, and this value is not JSON in which they could be found: all of it is withheld.".to_owned(),
        ),
        ShownValue::Masked { fields, .. } if fields.is_empty() => {
            Some("None of the masked fields is in this value: it is shown as written.".to_owned())
        }
        ShownValue::Masked { fields, .. } => Some(format!("Masked: {}. All else is as written.", fields.join(", "))),
    }
}

/// One message.
pub async fn one(
    State(messages): State<Messages>,
    Path(id): Path<String>,
    RawQuery(raw): RawQuery,
) -> Result<Json<MessageDetailItem>, Failure> {
    Query::parse(raw.as_deref(), &[])?;
    let view = match query::id(&id) {
        Some(id) => messages.view(id).await?,
        None => None,
    };
    view.map(|view| Json(MessageDetailItem::from(view))).ok_or_else(|| unknown_message(&id))
}

/// 404 with a way on.
pub fn unknown_message(id: &str) -> Failure {
    Failure::not_found(format!("There is no message {id:?}. The page Messages finds one by its key."))
}
