//! Review: what a person does to messages by hand. A few at once in one transaction; all that match a filter as of now in chunks, by a job, so that it
//! goes on after a restart and everybody sees how far it has come.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::domain::access::OwnerScope;
use crate::domain::audit::{By, Event};
use crate::domain::clock::Clock;
use crate::domain::lifecycle::Move;
use crate::domain::message::MessageState;
use crate::domain::record::says_something;
use crate::domain::review::{ReviewAction, ReviewState, way_back};
use crate::domain::settings::{DlqSettings, settings_for};
use crate::store::dlqs::Dlq;
use crate::store::messages::MessageFilter;
use crate::store::notify::Hint;
use crate::store::review::{self, Advance, NewReview, Review, Scope};
use crate::store::transitions::{self, Cause, Change, Locked};
use crate::store::{Store, StoreError, Tx, audit};

/// More messages than this are not named one by one: a page of a list holds fewer.
pub const MOST_IDS: usize = 500;
/// Messages in one transaction.
const CHUNK: i64 = 2_000;
/// Messages counted at once.
const COUNTED: i64 = 5_000;
/// So many replays that have messages of a review are named.
const REPLAYS_NAMED: usize = 20;
/// A reason has at most so many characters.
pub const REASON_CHARS: usize = 500;

/// Reviews over the store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Reviews {
    pub store: Store,
    pub clock: Clock,
    /// In the order of the configuration: the first that covers a topic wins.
    pub dlqs: Arc<[DlqSettings]>,
}

/// What somebody asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub action: ReviewAction,
    pub scope: Scope,
    pub reason: Option<String>,
    /// Made with the form: the same form sent twice is one review.
    pub form_id: String,
}

/// Why a review could not be begun or stopped.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// 403: not this person's to do.
    #[error("{0}")]
    Forbidden(String),
    /// 409: it is not as they saw it any more, or a replay has it.
    #[error("{0}")]
    Conflict(String),
    /// 422: what was asked for cannot be taken.
    #[error("{0}")]
    Invalid(String),
    /// 404.
    #[error("there is no {0}")]
    NotFound(String),
}

/// What became of the messages of one chunk.
#[derive(Debug, Default)]
struct Applied {
    changed: Vec<i64>,
    in_replay: Vec<(i64, i64)>,
    not_theirs: i64,
    hints: BTreeSet<Hint>,
}

/// What is to happen to one message, if it is still in this state.
struct Wanted {
    id: i64,
    from: MessageState,
    moves: &'static [Move],
}

impl Reviews {
    /// Does it, where it is a few messages; begins it, where it is all that match. The same form sent again gives the review it made.
    ///
    /// # Errors
    /// What was asked for is incomplete; a message is not in the person's scope, in a live replay, or not in a state that the action knows.
    pub async fn begin(&self, by: &By, owners: &OwnerScope, request: Request) -> Result<Review, ReviewError> {
        let request = checked(request)?;
        if let Some(made) = self.store.review_of_form(&request.form_id).await? {
            return repeated(made, by, &request);
        }
        let made = match &request.scope {
            Scope::Ids(ids) => self.at_once(by, owners, &request, ids).await?,
            Scope::Filter { filter, .. } => {
                let dlq = self.dlq_of(filter).await?;
                if let Some(dlq) = &dlq {
                    self.acts_on(owners, dlq)?;
                }
                self.later(by, owners, &request, dlq.map(|dlq| dlq.id)).await?
            }
            Scope::ArchivedBy(undone) => {
                let undone = self.store.review(*undone).await?.ok_or_else(|| ReviewError::NotFound(format!("review {undone}")))?;
                if !undone.action.archives() || undone.state.is_live() {
                    return Err(ReviewError::Conflict(
                        "There is nothing to restore: it archived nothing, or is still at it. Stop it first.".to_owned(),
                    ));
                }
                let dlq = self.store.dlqs().await?.into_iter().find(|dlq| Some(dlq.id) == undone.dlq_id);
                if let Some(dlq) = &dlq {
                    self.acts_on(owners, dlq)?;
                }
                self.later(by, owners, &request, undone.dlq_id).await?
            }
        };
        match made {
            Some(id) => self.store.review(id).await?.ok_or_else(|| ReviewError::NotFound(format!("review {id}"))),
            // The same form came twice at the same time.
            None => match self.store.review_of_form(&request.form_id).await? {
                Some(made) => repeated(made, by, &request),
                None => Err(ReviewError::Conflict(
                    "The form was sent twice at once. Look whether it was done, and send it again if not.".to_owned(),
                )),
            },
        }
    }

    /// A few messages, all of them in one transaction or none.
    async fn at_once(&self, by: &By, owners: &OwnerScope, request: &Request, ids: &[i64]) -> Result<Option<i64>, ReviewError> {
        let now_ms = self.clock.now_ms();
        let mut tx = self.store.begin().await?;
        let Some(id) = insert(&mut tx, by, owners, request, None, ReviewState::Running, now_ms).await? else { return Ok(None) };
        let locked = transitions::lock(&mut tx, ids).await?;
        if let Some(missing) = ids.iter().find(|id| !locked.contains_key(id)) {
            return Err(ReviewError::NotFound(format!("message {missing}")));
        }
        // Read after the messages, so that each one's DLQ is among them.
        let dlqs = self.store.dlqs().await?;
        for dlq_id in locked.values().map(|message| message.dlq_id).collect::<BTreeSet<_>>() {
            let dlq = dlqs.iter().find(|dlq| dlq.id == dlq_id);
            self.acts_on(owners, dlq.ok_or_else(|| ReviewError::NotFound(format!("DLQ {dlq_id}")))?)?;
        }
        let wanted: Vec<Wanted> = ids.iter().filter_map(|id| wanted(request.action, &locked[id])).collect();
        let applied = self.apply(&mut tx, &Doing::of(request, by, id, now_ms), wanted, &locked, |_| true).await?;
        if let Some(&(message, batch)) = applied.in_replay.first() {
            return Err(ReviewError::Conflict(in_a_replay(message, batch, ids.len())));
        }
        if applied.changed.is_empty() {
            return Err(ReviewError::Conflict(nothing_to_do(request.action, ids, &locked)));
        }
        let seen = i64::try_from(ids.len()).unwrap_or(i64::MAX);
        let changed = i64::try_from(applied.changed.len()).unwrap_or(i64::MAX);
        let done = Advance { total: Some(seen), seen, changed, ..Advance::to(0, ReviewState::Done, Vec::new()) };
        review::advance(&mut tx, id, Review::FIRST_VERSION, &done, now_ms).await?;
        let subject = if let [one] = ids { format!("message {one}") } else { format!("review {id}") };
        audit::append(&mut tx, &event(now_ms, by, request.action, subject, request.reason.as_deref(), id, &applied.changed)).await?;
        tx.commit().await?;
        self.store.changed(&applied.hints.into_iter().collect::<Vec<_>>());
        Ok(Some(id))
    }

    /// All that match: begun here, done by [`Reviews::tick`].
    async fn later(&self, by: &By, owners: &OwnerScope, request: &Request, dlq_id: Option<i64>) -> Result<Option<i64>, ReviewError> {
        let now_ms = self.clock.now_ms();
        let mut tx = self.store.begin().await?;
        let Some(id) = insert(&mut tx, by, owners, request, dlq_id, ReviewState::Counting, now_ms).await? else { return Ok(None) };
        let mut event = Event::new(now_ms, by, request.action.in_trail(), format!("review {id}"));
        event.reason = request.reason.clone();
        event.after = Some(match &request.scope {
            Scope::Filter { query, .. } => json!({ "begun": true, "filter": for_the_trail(query) }),
            Scope::ArchivedBy(undone) => json!({ "begun": true, "archived_by": undone }),
            Scope::Ids(ids) => json!({ "begun": true, "messages": ids.len() }),
        });
        audit::append(&mut tx, &event).await?;
        tx.commit().await?;
        self.store.changed(&[Hint::Review(id)]);
        Ok(Some(id))
    }

    /// Ends a review where it stands. What was done stays done.
    ///
    /// # Errors
    /// There is none of that id, it has ended, or it is another owner's.
    pub async fn stop(&self, by: &By, owners: &OwnerScope, id: i64) -> Result<Review, ReviewError> {
        loop {
            let review = self.store.review(id).await?.ok_or_else(|| ReviewError::NotFound(format!("review {id}")))?;
            if review.state == ReviewState::Stopped {
                return Ok(review);
            }
            if !review.state.is_live() {
                return Err(ReviewError::Conflict("It is through already.".to_owned()));
            }
            if let Some(dlq) = self.store.dlqs().await?.into_iter().find(|dlq| Some(dlq.id) == review.dlq_id) {
                self.acts_on(owners, &dlq)?;
            } else if *owners != OwnerScope::All && review.actor != by.actor {
                return Err(ReviewError::Forbidden(format!(
                    "{} began it, over the DLQs of several owners: only they, or who acts on all, stops it.",
                    review.actor
                )));
            }
            let now_ms = self.clock.now_ms();
            let mut tx = self.store.begin().await?;
            let end = Advance::to(review.cursor, ReviewState::Stopped, review.replays.clone());
            if !review::advance(&mut tx, id, review.version, &end, now_ms).await? {
                // A chunk came between.
                continue;
            }
            let mut event = Event::new(now_ms, by, review.action.in_trail(), format!("review {id}"));
            event.after = Some(json!({ "stopped": true, "changed": review.changed }));
            audit::append(&mut tx, &event).await?;
            tx.commit().await?;
            self.store.changed(&[Hint::Review(id)]);
            return self.store.review(id).await?.ok_or_else(|| ReviewError::NotFound(format!("review {id}")));
        }
    }

    /// One chunk of each review that has not ended. Whether there may be more to do at once. Called by the job under its lease; two that do it at the
    /// same time do no harm.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn tick(&self) -> Result<bool, StoreError> {
        let live = self.store.live_reviews().await?;
        for review in &live {
            match review.state {
                ReviewState::Counting => self.count(review).await?,
                _ => self.chunk(review).await?,
            }
        }
        Ok(!live.is_empty())
    }

    /// The messages of a review before its cursor, newest first: each with its state, or with the one it had before that review archived it.
    async fn found(&self, review: &Review, limit: i64) -> Result<Vec<(i64, MessageState)>, StoreError> {
        match &review.scope {
            Scope::Filter { filter, .. } => self.store.matching(filter, Some(review.cursor), limit).await,
            Scope::ArchivedBy(undone) => {
                let mut tx = self.store.begin().await?;
                review::archived_by(&mut tx, *undone, review.cursor, limit).await
            }
            Scope::Ids(_) => Ok(Vec::new()),
        }
    }

    async fn count(&self, review: &Review) -> Result<(), StoreError> {
        let found = self.found(review, COUNTED).await?;
        let counted = i64::try_from(found.len()).unwrap_or(i64::MAX);
        let to = |cursor, state| Advance { counted, ..Advance::to(cursor, state, Vec::new()) };
        let step = match found.last() {
            Some(&(last, _)) if counted == COUNTED => to(last, ReviewState::Counting),
            _ => Advance { total: Some(review.counted + counted), ..to(review.as_of_message_id.saturating_add(1), ReviewState::Running) },
        };
        let mut tx = self.store.begin().await?;
        if review::advance(&mut tx, review.id, review.version, &step, self.clock.now_ms()).await? {
            tx.commit().await?;
            self.store.changed(&[Hint::Review(review.id)]);
        }
        Ok(())
    }

    async fn chunk(&self, review: &Review) -> Result<(), StoreError> {
        let theirs = self.theirs(&review.owners).await?;
        let now_ms = self.clock.now_ms();
        let by = By { actor: review.actor.clone(), request_id: None };
        let found = self.found(review, CHUNK).await?;
        let mut tx = self.store.begin().await?;
        let ids: Vec<i64> = found.iter().map(|(id, _)| *id).collect();
        let locked = transitions::lock(&mut tx, &ids).await?;
        let wanted: Vec<Wanted> = match review.scope {
            Scope::ArchivedBy(undone) => {
                // Again now that nobody else changes them: one that was restored and archived anew in between is not that review's any more.
                let still: HashMap<i64, MessageState> =
                    review::archived_by(&mut tx, undone, review.cursor, CHUNK).await?.into_iter().collect();
                let back = |id: &i64| Some(Wanted { id: *id, from: MessageState::Archived, moves: way_back(*still.get(id)?) });
                ids.iter().filter_map(back).collect()
            }
            _ => found.iter().filter_map(|&(id, from)| Some(Wanted { id, from, moves: review.action.moves(from)? })).collect(),
        };
        let doing = Doing { action: review.action, reason: review.reason.as_deref(), by: &by, review_id: review.id, now_ms };
        let applied = self.apply(&mut tx, &doing, wanted, &locked, |dlq_id| theirs.contains(&dlq_id)).await?;
        let seen = i64::try_from(ids.len()).unwrap_or(i64::MAX);
        let mut replays: BTreeSet<i64> = review.replays.iter().copied().collect();
        replays.extend(applied.in_replay.iter().map(|(_, batch)| *batch));
        let state = if seen < CHUNK { ReviewState::Done } else { ReviewState::Running };
        let step = Advance {
            seen,
            changed: i64::try_from(applied.changed.len()).unwrap_or(i64::MAX),
            in_replay: i64::try_from(applied.in_replay.len()).unwrap_or(i64::MAX),
            not_theirs: applied.not_theirs,
            ..Advance::to(ids.last().copied().unwrap_or(review.cursor), state, replays.into_iter().take(REPLAYS_NAMED).collect())
        };
        if !review::advance(&mut tx, review.id, review.version, &step, now_ms).await? {
            // Somebody else did this chunk, or stopped it: nothing of this is written.
            return Ok(());
        }
        if !applied.changed.is_empty() {
            let subject = format!("review {}", review.id);
            audit::append(&mut tx, &event(now_ms, &by, review.action, subject, review.reason.as_deref(), review.id, &applied.changed))
                .await?;
        }
        tx.commit().await?;
        let mut hints: Vec<Hint> = applied.hints.into_iter().collect();
        hints.push(Hint::Review(review.id));
        self.store.changed(&hints);
        Ok(())
    }

    /// Moves the messages that are theirs, in no replay, and still as they were seen.
    async fn apply(
        &self,
        tx: &mut Tx,
        doing: &Doing<'_>,
        mut wanted: Vec<Wanted>,
        locked: &HashMap<i64, Locked>,
        theirs: impl Fn(i64) -> bool,
    ) -> Result<Applied, StoreError> {
        let mut applied = Applied::default();
        wanted.retain(|message| locked.get(&message.id).is_some_and(|there| there.state == message.from.as_str()));
        let before = wanted.len();
        wanted.retain(|message| theirs(locked[&message.id].dlq_id));
        applied.not_theirs = i64::try_from(before - wanted.len()).unwrap_or(i64::MAX);
        if doing.action.disturbs_replays() {
            let ids: Vec<i64> = wanted.iter().map(|message| message.id).collect();
            applied.in_replay = review::in_live_replays(tx, &ids).await?;
            let taken: HashSet<i64> = applied.in_replay.iter().map(|(message, _)| *message).collect();
            wanted.retain(|message| !taken.contains(&message.id));
        }
        let cause = Cause { at_ms: doing.now_ms, actor: &doing.by.actor, batch_id: None };
        applied.changed = if doing.action == ReviewAction::CloseFollowUp {
            let messages: Vec<&Locked> = wanted.iter().map(|message| &locked[&message.id]).collect();
            transitions::close_follow_ups(tx, &messages, doing.reason.unwrap_or_default(), &cause, doing.review_id).await?
        } else {
            let change = |message: &Wanted| Change {
                message_id: message.id,
                from: message.from,
                moves: message.moves,
                reason: doing.reason,
                evidence: None,
            };
            let changes: Vec<Change<'_>> = wanted.iter().map(change).collect();
            transitions::move_in_review(tx, &changes, &cause, Some(doing.review_id)).await?
        };
        for message in applied.changed.iter().map(|id| &locked[id]) {
            applied.hints.extend([Hint::Dlq(message.dlq_id), Hint::Group(message.group_id)]);
        }
        Ok(applied)
    }

    /// The one DLQ that a filter is about; None: it may be about several.
    async fn dlq_of(&self, filter: &MessageFilter) -> Result<Option<Dlq>, ReviewError> {
        let dlqs = self.store.dlqs().await?;
        if let Some(group_id) = filter.group_id {
            let group = self.store.group(group_id).await?.ok_or_else(|| ReviewError::NotFound(format!("failure group {group_id}")))?;
            return Ok(dlqs.into_iter().find(|dlq| dlq.id == group.dlq_id));
        }
        let covers = |dlq: &&Dlq| {
            filter.cluster.as_ref().is_none_or(|cluster| *cluster == dlq.cluster)
                && filter.topic.as_ref().is_none_or(|topic| *topic == dlq.topic)
        };
        let mut found = dlqs.iter().filter(covers);
        Ok(match (found.next(), found.next()) {
            (Some(one), None) => Some(one.clone()),
            _ => None,
        })
    }

    /// Whose a DLQ is: as the configuration says now, and where it says nothing any more, as it said last.
    fn owner<'a>(&'a self, dlq: &'a Dlq) -> Option<&'a str> {
        match settings_for(&self.dlqs, &dlq.cluster, &dlq.topic) {
            Some(settings) => settings.owner.as_deref(),
            None => dlq.owner.as_deref(),
        }
    }

    fn acts_on(&self, owners: &OwnerScope, dlq: &Dlq) -> Result<(), ReviewError> {
        let owner = self.owner(dlq);
        if owners.covers(owner) {
            return Ok(());
        }
        let whose = owner.map_or_else(|| "DLQs without an owner".to_owned(), |owner| format!("the DLQs of {owner}"));
        Err(ReviewError::Forbidden(format!("You do not act on {whose}. An admin can change that.")))
    }

    /// The DLQs that lie in the scope.
    async fn theirs(&self, owners: &OwnerScope) -> Result<HashSet<i64>, StoreError> {
        let dlqs = self.store.dlqs().await?;
        Ok(dlqs.iter().filter(|dlq| owners.covers(self.owner(dlq))).map(|dlq| dlq.id).collect())
    }
}

async fn insert(
    tx: &mut Tx,
    by: &By,
    owners: &OwnerScope,
    request: &Request,
    dlq_id: Option<i64>,
    state: ReviewState,
    now_ms: i64,
) -> Result<Option<i64>, StoreError> {
    let new = NewReview {
        created_at_ms: now_ms,
        dlq_id,
        as_of_message_id: review::newest_message(tx).await?,
        form_id: &request.form_id,
        action: request.action,
        state,
        actor: &by.actor,
        owners,
        scope: &request.scope,
        reason: request.reason.as_deref(),
    };
    review::insert(tx, &new).await
}

/// What is done, on whose behalf.
struct Doing<'a> {
    action: ReviewAction,
    reason: Option<&'a str>,
    by: &'a By,
    review_id: i64,
    now_ms: i64,
}

impl<'a> Doing<'a> {
    fn of(request: &'a Request, by: &'a By, review_id: i64, now_ms: i64) -> Doing<'a> {
        Doing { action: request.action, reason: request.reason.as_deref(), by, review_id, now_ms }
    }
}

/// What a message of this state is moved by; None: the action has no move for it.
fn wanted(action: ReviewAction, message: &Locked) -> Option<Wanted> {
    let from: MessageState = message.state.parse().ok()?;
    Some(Wanted { id: message.id, from, moves: action.moves(from)? })
}

/// A request that is whole.
///
/// # Errors
/// What is missing, in a sentence.
fn checked(mut request: Request) -> Result<Request, ReviewError> {
    let invalid = |sentence: &str| Err(ReviewError::Invalid(sentence.to_owned()));
    request.reason = request.reason.map(|reason| reason.trim().to_owned()).filter(|reason| says_something(reason));
    match &request.reason {
        None if request.action.needs_reason() => {
            return invalid("Say why: the reason stays in the history of each message, and on the audit trail.");
        }
        Some(reason) if reason.chars().count() > REASON_CHARS => {
            return invalid(&format!("The reason has {} characters: {REASON_CHARS} at most.", reason.chars().count()));
        }
        _ => {}
    }
    let usable = (16..=64).contains(&request.form_id.len()) && request.form_id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !usable {
        return invalid("The form has lost its number. Open the page again, and send it from there.");
    }
    match &mut request.scope {
        Scope::Ids(ids) => {
            ids.sort_unstable();
            ids.dedup();
            if ids.is_empty() {
                return invalid("No message is marked: mark some, or choose all that match.");
            }
            if ids.len() > MOST_IDS {
                return invalid(&format!("{} messages are named: {MOST_IDS} at most. A filter takes any number.", ids.len()));
            }
            if request.action == ReviewAction::DrawLine {
                return invalid("A line is drawn under what a DLQ holds from before an instant, not under single messages.");
            }
        }
        Scope::Filter { filter, .. } => {
            if **filter == MessageFilter::default() {
                return invalid("Nothing narrows the list: that would be every message of every DLQ. Narrow it first.");
            }
            let is_line = filter.topic.is_some() && filter.to_ms.is_some() && filter.state == Some(MessageState::Quarantined);
            if request.action == ReviewAction::DrawLine && !is_line {
                return invalid("A line needs a DLQ and the instant before which its messages are archived.");
            }
        }
        Scope::ArchivedBy(_) if request.action != ReviewAction::Restore => {
            return invalid("What a review archived can be restored, nothing else.");
        }
        Scope::ArchivedBy(_) => {}
    }
    Ok(request)
}

/// The review that the same form made before.
fn repeated(made: Review, by: &By, request: &Request) -> Result<Review, ReviewError> {
    if made.actor == by.actor && made.action == request.action && made.scope == request.scope {
        return Ok(made);
    }
    Err(ReviewError::Conflict(format!(
        "This form has already done something else: review {}. Open the page again, and send it from there.",
        made.id
    )))
}

/// A filter as the trail keeps it: what somebody looks for may be what a mask hides, so that it was given is kept, not what it was.
fn for_the_trail(query: &str) -> String {
    let kept = |piece: &str| match piece.split_once('=') {
        Some((name @ ("q" | "key"), value)) if !value.is_empty() => format!("{name}=given"),
        _ => piece.to_owned(),
    };
    query.split('&').map(kept).collect::<Vec<_>>().join("&")
}

fn in_a_replay(message: i64, batch: i64, asked: usize) -> String {
    let rest = if asked > 1 { " Nothing was changed: leave it out, or end the replay first." } else { " End the replay first." };
    format!("Message {message} is in replay {batch}, which has not ended.{rest}")
}

/// Why an action changed none of these.
fn nothing_to_do(action: ReviewAction, ids: &[i64], locked: &HashMap<i64, Locked>) -> String {
    let which = match ids {
        [one] => format!("The message is {} by now", locked.get(one).map_or("gone", |message| &message.state).replace('_', " ")),
        _ => "None of the marked messages is in a state for that".to_owned(),
    };
    let needs = match action {
        ReviewAction::TakeUp => "only what is quarantined can be taken up",
        ReviewAction::Release => "only what is under review can be released",
        ReviewAction::Archive => "only what is quarantined or under review can be archived by hand",
        ReviewAction::Restore => "only what is archived can be restored",
        ReviewAction::CloseFollowUp => "only a follow-up that is open can be closed",
        ReviewAction::DrawLine => "a line archives only what is quarantined",
    };
    format!("{which}: {needs}. Nothing was changed.")
}

/// What the trail says of a chunk: how many, and a digest of which.
fn event(now_ms: i64, by: &By, action: ReviewAction, subject: String, reason: Option<&str>, review_id: i64, ids: &[i64]) -> Event {
    let mut event = Event::new(now_ms, by, action.in_trail(), subject);
    event.reason = reason.map(str::to_owned);
    let mut digest = Sha256::new();
    ids.iter().for_each(|id| digest.update(id.to_be_bytes()));
    let digest: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    event.after =
        Some(json!({ "review": review_id, "messages": ids.len(), "first": ids.first(), "last": ids.last(), "ids_sha256": digest }));
    event
}
