//! `/groups/{id}`: what broke, since when, and why it is one group.

use askama::Template;
use askama_web::WebTemplate;
use axum::extract::{Path, RawQuery, State};

use super::{GroupLine, Look, MessageTable, Shell, SignedIn, dlq_path, kind_after_label};
use crate::api::Failure;
use crate::api::groups::unknown_group;
use crate::api::query::{self, DEFAULT_LIMIT, Query};
use crate::store::groups::Group;
use crate::store::messages::MessageFilter;
use crate::web::AppState;
use crate::web::view::text;

#[derive(Template, WebTemplate)]
#[template(path = "groups/page.html")]
pub struct GroupPage {
    shell: Shell,
    group: GroupLine,
    topic: String,
    cluster: String,
    dlq_path: String,
    identity: Vec<(&'static str, Option<String>)>,
    fingerprint: String,
    table: MessageTable,
}

/// `GET /groups/{id}`.
pub async fn page(
    State(state): State<AppState>,
    SignedIn(principal): SignedIn,
    look: Look,
    Path(id): Path<String>,
    RawQuery(raw): RawQuery,
) -> Result<GroupPage, Failure> {
    let query = Query::parse(raw.as_deref(), &["after"])?;
    let after = query.integer("after", 1, i64::MAX)?;
    let group = match query::id(&id) {
        Some(id) => state.store.group(id).await?,
        None => None,
    };
    let group = group.ok_or_else(|| unknown_group(&id))?;
    let now_ms = state.clock.now_ms();
    let filter = MessageFilter { group_id: Some(group.id), ..MessageFilter::default() };
    let found = state.store.messages(&filter, after, DEFAULT_LIMIT).await?;
    let mut table = MessageTable::of(&found, now_ms, &format!("/groups/{}", group.id), &query, &[]);
    table.would_fill = "No message of this group is stored.";
    Ok(GroupPage {
        shell: Shell::new(&state, Some(&principal), look, "overview"),
        topic: text::line(&group.topic),
        cluster: text::line(&group.cluster),
        dlq_path: dlq_path(&group.cluster, &group.topic),
        identity: identity(&group),
        fingerprint: group.fingerprint.clone(),
        group: GroupLine::of(&group, now_ms),
        table,
    })
}

/// Everything that goes into the fingerprint: messages that agree on all of it are one group.
pub fn identity(group: &Group) -> Vec<(&'static str, Option<String>)> {
    let said = |text: &str| (!text.trim().is_empty()).then(|| text::short_line(text, 2_000));
    vec![
        ("DLQ", Some(text::line(&group.topic))),
        ("Consumer group", group.consumer_group.as_deref().and_then(said)),
        ("Kind of failure", Some(kind_after_label(group.class).to_owned())),
        ("Root exception", group.exception_class.as_deref().and_then(said)),
        ("Text, numbers and ids replaced", said(&group.normalised_text)),
        ("Top frame", group.top_frame.as_deref().and_then(said)),
    ]
}

/// `POST /groups/{id}/status`.
pub async fn set_status() -> Result<axum::response::Response, Failure> {
    Err(Failure::of_status(axum::http::StatusCode::NOT_IMPLEMENTED))
}

/// `POST /groups/{id}/notes`.
pub async fn add_note() -> Result<axum::response::Response, Failure> {
    Err(Failure::of_status(axum::http::StatusCode::NOT_IMPLEMENTED))
}
