//! `/api/v1/replays`: propose, look, decide, control. The same services as the pages.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequestParts, Path, RawQuery, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tower_http::request_id::RequestId;

use super::query::{self, DEFAULT_LIMIT, MESSAGE_FILTER, Query, encode};
use super::{Failure, Page};
use crate::domain::access::{Principal, look_of_name};
use crate::domain::audit::By;
use crate::domain::replay::{BatchState, Forecast, Plan, Progress, Warning};
use crate::domain::verdict::Waiver;
use crate::services::access::Access;
use crate::services::replay::approval::Decider;
use crate::services::replay::propose::{Proposal, Submission, Wanted};
use crate::services::replay::{ReplayError, Replays};
use crate::services::sign_in_limit::SignInLimit;
use crate::store::messages::MessageFilter;
use crate::store::replays::{Approval, Batch, BatchFilter, Scope};

impl From<ReplayError> for Failure {
    fn from(error: ReplayError) -> Failure {
        match error {
            ReplayError::Store(error) => error.into(),
            ReplayError::Forbidden(why) => Failure::forbidden(why),
            ReplayError::Conflict(why) => Failure::new(StatusCode::CONFLICT, why),
            ReplayError::Invalid { .. } => Failure::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string()),
            ReplayError::NotFound(_) => Failure::not_found(format!("{error}. The page Replays lists them.")),
            ReplayError::Kafka(error) => {
                tracing::warn!(error = %error, "Kafka could not be asked for a replay");
                Failure::new(StatusCode::SERVICE_UNAVAILABLE, format!("{error}. Nothing was changed; try again when it answers."))
            }
            ReplayError::Unready(why) => Failure::new(StatusCode::SERVICE_UNAVAILABLE, format!("{why}. Nothing was changed; try again.")),
            ReplayError::Machine(why) => {
                tracing::error!(why, "a replay could not be worked on");
                Failure::internal()
            }
        }
    }
}

/// Who acts, as services take them.
#[derive(Debug, Clone)]
pub struct Acting(pub Decider);

impl<S: Sync> FromRequestParts<S> for Acting {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Acting, Failure> {
        let principal = parts.extensions.get::<Principal>().cloned().ok_or_else(|| Failure::unauthorized("Sign in first."))?;
        let request_id = parts.extensions.get::<RequestId>().and_then(|id| id.header_value().to_str().ok().map(str::to_owned));
        let by = By { actor: principal.name.clone(), request_id };
        Ok(Acting(Decider { by, folded: look_of_name(&principal.name), role: principal.role, scope: principal.owners }))
    }
}

/// A body that is the JSON this address takes.
fn body<T>(body: Result<Json<T>, JsonRejection>) -> Result<T, Failure> {
    match body {
        Ok(Json(body)) => Ok(body),
        Err(rejection) => {
            Err(Failure::new(rejection.status(), format!("The body is not what this address takes: {}.", rejection.body_text())))
        }
    }
}

/// As [`body`], where none at all will do.
fn optional_body<T: Default>(headers: &HeaderMap, given: Result<Json<T>, JsonRejection>) -> Result<T, Failure> {
    let nothing =
        headers.get(header::CONTENT_LENGTH).is_none_or(|length| length == "0") && !headers.contains_key(header::TRANSFER_ENCODING);
    if nothing { Ok(T::default()) } else { body(given) }
}

/// `POST /api/v1/replays`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewReplay {
    cluster: String,
    topic: String,
    /// The parameters of the list of messages, as in its query string.
    filter: Option<serde_json::Map<String, serde_json::Value>>,
    message_ids: Option<Vec<i64>>,
    reason: String,
    target: Option<String>,
    max_per_second: Option<u32>,
    canary: Option<u32>,
    stop_on_returned_pct: Option<u32>,
    transform: Option<String>,
    #[serde(default)]
    waivers: Vec<Waiver>,
    why_now: Option<String>,
    incident: Option<String>,
    #[serde(default)]
    emergency: bool,
    /// False: it stays a draft until it is submitted.
    #[serde(default = "yes")]
    auto_submit: bool,
}

fn yes() -> bool {
    true
}

/// One replay.
#[derive(Debug, Serialize)]
pub struct ReplayItem {
    pub id: i64,
    pub cluster: String,
    pub topic: String,
    pub state: &'static str,
    /// What is being prepared of a draft; `ready` after.
    pub step: &'static str,
    /// Why it is where it is.
    pub note: Option<String>,
    /// Null until the preflight is through.
    pub forecast: Option<Forecast>,
    pub digest: Option<String>,
    pub proposer: String,
    pub reason: String,
    pub why_now: Option<String>,
    pub incident: Option<String>,
    pub emergency: bool,
    /// The query string that was asked for; null: messages were named one by one.
    pub filter: Option<String>,
    pub plan: Plan,
    /// The place of each in this list is what an approver ticks.
    pub warnings: Vec<Warning>,
    pub quorum: u32,
    pub progress: Progress,
    pub created_at_ms: i64,
    pub submitted_at_ms: Option<i64>,
    pub approved_at_ms: Option<i64>,
    pub started_at_ms: Option<i64>,
    pub ended_at_ms: Option<i64>,
    pub verified_at_ms: Option<i64>,
}

impl From<Batch> for ReplayItem {
    fn from(batch: Batch) -> ReplayItem {
        ReplayItem {
            id: batch.id,
            cluster: batch.cluster,
            topic: batch.topic,
            state: batch.state.as_str(),
            step: batch.step.as_str(),
            note: batch.note,
            forecast: batch.forecast,
            digest: batch.digest,
            proposer: batch.proposer,
            reason: batch.reason,
            why_now: batch.why_now,
            incident: batch.incident,
            emergency: batch.emergency,
            filter: match batch.scope {
                Scope::Filter { query, .. } => Some(query),
                Scope::MessageIds(_) => None,
            },
            plan: batch.plan,
            warnings: batch.warnings,
            quorum: batch.quorum,
            progress: batch.progress,
            created_at_ms: batch.created_at_ms,
            submitted_at_ms: batch.submitted_at_ms,
            approved_at_ms: batch.approved_at_ms,
            started_at_ms: batch.started_at_ms,
            ended_at_ms: batch.ended_at_ms,
            verified_at_ms: batch.verified_at_ms,
        }
    }
}

/// One replay with who approved it.
#[derive(Debug, Serialize)]
pub struct ReplayDetailItem {
    #[serde(flatten)]
    pub replay: ReplayItem,
    pub approvals: Vec<ApprovalItem>,
}

#[derive(Debug, Serialize)]
pub struct ApprovalItem {
    pub name: String,
    pub at_ms: i64,
    pub digest: String,
    pub comment: Option<String>,
}

impl From<Approval> for ApprovalItem {
    fn from(approval: Approval) -> ApprovalItem {
        ApprovalItem { name: approval.name, at_ms: approval.at_ms, digest: approval.digest, comment: approval.comment }
    }
}

/// Proposes a replay: 201 with the draft, which is frozen and preflighted, and put up for approval unless something is missing. The header `Idempotency-Key`
/// makes a request that is sent again harmless: it is answered with the replay of the first, and 200.
pub async fn propose(
    State(replays): State<Replays>,
    Acting(who): Acting,
    headers: HeaderMap,
    given: Result<Json<NewReplay>, JsonRejection>,
) -> Result<Response, Failure> {
    let new = body(given)?;
    let proposal = new.proposal(form_id(&headers, &who)?)?;
    let proposed = replays.propose(&who.by, &who.scope, proposal).await?;
    let status = if proposed.repeated { StatusCode::OK } else { StatusCode::CREATED };
    let location = format!("/api/v1/replays/{}", proposed.batch.id);
    Ok((status, [(header::LOCATION, location)], Json(ReplayItem::from(proposed.batch))).into_response())
}

/// What makes a repeated request the same: the client's key, as this person's.
fn form_id(headers: &HeaderMap, who: &Decider) -> Result<String, Failure> {
    let Some(key) = headers.get("idempotency-key") else {
        let mut bytes = [0_u8; 16];
        getrandom::fill(&mut bytes).map_err(|error| {
            tracing::error!(error = %error, "the system gives no random bytes");
            Failure::internal()
        })?;
        return Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect());
    };
    let key = key.to_str().ok().filter(|key| (1..=100).contains(&key.len()));
    let key = key.ok_or_else(|| Failure::bad_request("The header Idempotency-Key must be 1 to 100 visible ASCII characters."))?;
    Ok(format!("api {} {key}", who.by.actor))
}

impl NewReplay {
    fn proposal(self, form_id: String) -> Result<Proposal, Failure> {
        let wanted = match (self.filter, self.message_ids) {
            (Some(filter), None) => {
                let (filter, query) = message_filter(&filter)?;
                Wanted::Filter { filter: Box::new(filter), query }
            }
            (None, Some(ids)) => Wanted::Ids(ids),
            _ => return Err(Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "Give either filter (it may be {}) or message_ids.")),
        };
        Ok(Proposal {
            cluster: self.cluster,
            topic: self.topic,
            wanted,
            reason: self.reason,
            target: self.target,
            max_per_second: self.max_per_second,
            canary: self.canary,
            stop_on_returned_pct: self.stop_on_returned_pct,
            transform: self.transform,
            waivers: self.waivers,
            why_now: self.why_now,
            incident: self.incident,
            auto_submit: self.auto_submit,
            emergency: self.emergency,
            form_id,
        })
    }
}

/// A filter given as JSON is the one of the query string: the same names, the same words.
fn message_filter(fields: &serde_json::Map<String, serde_json::Value>) -> Result<(MessageFilter, String), Failure> {
    let mut pieces = Vec::with_capacity(fields.len());
    for (name, value) in fields {
        let text = match value {
            serde_json::Value::Null => continue,
            serde_json::Value::String(text) => text.clone(),
            serde_json::Value::Number(number) => number.to_string(),
            _ => return Err(Failure::bad_request(format!("filter.{name} must be a text or a number."))),
        };
        pieces.push(format!("{}={}", encode(name.as_bytes()), encode(text.as_bytes())));
    }
    let raw = pieces.join("&");
    Ok((Query::parse(Some(&raw), &MESSAGE_FILTER)?.message_filter()?, raw))
}

/// Replays, newest first. `after` is the `next` of the page before.
pub async fn list(State(replays): State<Replays>, RawQuery(raw): RawQuery) -> Result<Json<Page<ReplayItem, i64>>, Failure> {
    let query = Query::parse(raw.as_deref(), &["cluster", "topic", "state", "after", "limit"])?;
    let dlq_id = match (query.text("cluster")?, query.text("topic")?) {
        (None, None) => None,
        (Some(cluster), Some(topic)) => match replays.store.dlq(cluster, topic).await? {
            Some(dlq) => Some(dlq.id),
            None => return Ok(Json(Page { items: Vec::new(), next: None })),
        },
        _ => return Err(Failure::bad_request("Give cluster and topic together.")),
    };
    let filter = BatchFilter { dlq_id, state: query.word::<BatchState>("state")? };
    let after = query.integer("after", 1, i64::MAX)?;
    let page = replays.store.batches(&filter, after, query.limit(DEFAULT_LIMIT)?).await?;
    Ok(Json(Page { items: page.items.into_iter().map(ReplayItem::from).collect(), next: page.next }))
}

/// One replay.
pub async fn one(
    State(replays): State<Replays>,
    Path(id): Path<String>,
    RawQuery(raw): RawQuery,
) -> Result<Json<ReplayDetailItem>, Failure> {
    Query::parse(raw.as_deref(), &[])?;
    let id = id_of(&id)?;
    let batch = replays.store.batch(id).await?.ok_or(ReplayError::NotFound(id))?;
    let approvals = replays.store.approvals(id).await?.into_iter().map(ApprovalItem::from).collect();
    Ok(Json(ReplayDetailItem { replay: batch.into(), approvals }))
}

fn id_of(text: &str) -> Result<i64, Failure> {
    query::id(text).ok_or_else(|| Failure::not_found(format!("There is no replay {text:?}. The page Replays lists them.")))
}

/// `POST .../submit`: why now, and waivers, where they were missing.
pub async fn submit(
    State(replays): State<Replays>,
    Path(id): Path<String>,
    Acting(who): Acting,
    headers: HeaderMap,
    given: Result<Json<Submission>, JsonRejection>,
) -> Result<Json<ReplayItem>, Failure> {
    let submission = optional_body(&headers, given)?;
    Ok(Json(replays.submit(&who.by, &who.scope, id_of(&id)?, submission).await?.into()))
}

/// `POST .../approve`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approve {
    /// As it was shown.
    digest: String,
    comment: Option<String>,
    /// Places in `warnings` of those that must be ticked.
    #[serde(default)]
    ticked: Vec<usize>,
    /// Once more, for an emergency replay.
    password: Option<String>,
}

/// Approves a proposal.
pub async fn approve(
    State(replays): State<Replays>,
    State(access): State<Access>,
    State(limit): State<Arc<SignInLimit>>,
    Path(id): Path<String>,
    Acting(who): Acting,
    given: Result<Json<Approve>, JsonRejection>,
) -> Result<Json<ReplayItem>, Failure> {
    let (id, approve) = (id_of(&id)?, body(given)?);
    let comment = approve.comment.as_deref();
    let batch = match &approve.password {
        None => replays.approve(&who, id, &approve.digest, &approve.ticked, comment).await?,
        Some(password) => {
            // Passwords are guessed no faster here than where one signs in.
            limit.attempt(None, &who.by.actor, replays.clock.monotonic()).map_err(|wait| {
                let detail = format!("Too many attempts. Try again in {} s.", wait.as_secs().max(1));
                Failure::new(StatusCode::TOO_MANY_REQUESTS, detail)
            })?;
            if !access.reauthenticate(&who.by, password).await? {
                return Err(Failure::forbidden(
                    "That is not the password of who is signed in. A token has none: approve on the replay's page.",
                ));
            }
            replays.approve_emergency(&who, id, &approve.digest, &approve.ticked, comment).await?
        }
    };
    Ok(Json(batch.into()))
}

/// `POST .../reject` and `.../stop`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Because {
    reason: Option<String>,
}

/// Rejects a proposal.
pub async fn reject(
    State(replays): State<Replays>,
    Path(id): Path<String>,
    Acting(who): Acting,
    headers: HeaderMap,
    given: Result<Json<Because>, JsonRejection>,
) -> Result<Json<ReplayItem>, Failure> {
    let because = optional_body(&headers, given)?;
    Ok(Json(replays.reject(&who, id_of(&id)?, because.reason.as_deref().unwrap_or_default()).await?.into()))
}

/// Pauses a replay.
pub async fn pause(State(replays): State<Replays>, Path(id): Path<String>, Acting(who): Acting) -> Result<Json<ReplayItem>, Failure> {
    Ok(Json(replays.pause(&who, id_of(&id)?).await?.into()))
}

/// `POST .../resume`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resume {
    /// Why it goes on although its canary is not proven: for an approver.
    unproven: Option<String>,
}

/// Goes on with a replay that is paused.
pub async fn resume(
    State(replays): State<Replays>,
    Path(id): Path<String>,
    Acting(who): Acting,
    headers: HeaderMap,
    given: Result<Json<Resume>, JsonRejection>,
) -> Result<Json<ReplayItem>, Failure> {
    let resume = optional_body(&headers, given)?;
    Ok(Json(replays.resume(&who, id_of(&id)?, resume.unproven.as_deref()).await?.into()))
}

/// Stops a replay for good.
pub async fn stop(
    State(replays): State<Replays>,
    Path(id): Path<String>,
    Acting(who): Acting,
    headers: HeaderMap,
    given: Result<Json<Because>, JsonRejection>,
) -> Result<Json<ReplayItem>, Failure> {
    let because = optional_body(&headers, given)?;
    Ok(Json(replays.stop(&who, id_of(&id)?, because.reason.as_deref()).await?.into()))
}

/// Has a replay preflighted anew: it needs a new approval.
pub async fn reopen(State(replays): State<Replays>, Path(id): Path<String>, Acting(who): Acting) -> Result<Json<ReplayItem>, Failure> {
    Ok(Json(replays.reopen(&who, id_of(&id)?).await?.into()))
}

/// `POST .../slow-down`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlowDown {
    max_per_second: u32,
}

/// Lowers the pace of a replay.
pub async fn slow_down(
    State(replays): State<Replays>,
    Path(id): Path<String>,
    Acting(who): Acting,
    given: Result<Json<SlowDown>, JsonRejection>,
) -> Result<Json<ReplayItem>, Failure> {
    let slower = body(given)?;
    Ok(Json(replays.slow_down(&who, id_of(&id)?, slower.max_per_second).await?.into()))
}

/// `POST .../emergency-review`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmergencyReview {
    comment: String,
}

/// A second person has looked at an emergency replay.
pub async fn review_emergency(
    State(replays): State<Replays>,
    Path(id): Path<String>,
    Acting(who): Acting,
    given: Result<Json<EmergencyReview>, JsonRejection>,
) -> Result<Json<ReplayItem>, Failure> {
    let review = body(given)?;
    Ok(Json(replays.review_emergency(&who, id_of(&id)?, &review.comment).await?.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_in_json_is_that_of_the_query_string() {
        let fields = serde_json::json!({ "state": "quarantined", "group": 7, "q": "a b&c", "class": null });
        let (filter, query) = message_filter(fields.as_object().unwrap()).unwrap();
        assert_eq!((filter.group_id, filter.q.as_deref()), (Some(7), Some("a b&c")));
        assert_eq!(query, "state=quarantined&group=7&q=a%20b%26c");
        let fault = |json: serde_json::Value| message_filter(json.as_object().unwrap()).unwrap_err().detail;
        assert!(fault(serde_json::json!({ "colour": "red" })).contains("Unknown parameter \"colour\""));
        assert!(fault(serde_json::json!({ "group": [7] })).contains("filter.group must be a text or a number"));
    }
}
