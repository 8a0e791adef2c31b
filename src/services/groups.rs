//! Failure groups: what people decide and note about one, and what its messages have that the rest of the DLQ has not.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::json;

use crate::domain::audit::{Action, By, Event};
use crate::domain::clock::Clock;
use crate::domain::contrast::{Contrast, Trait, contrasts};
use crate::domain::dialect;
use crate::domain::group::{Decided, Decision, GroupStatus, Link, Ticket};
use crate::domain::record::{Header, Record};
use crate::domain::settings::{DialectChoice, DlqSettings, settings_for};
use crate::store::group_status::{self, AddedNote, NewNote};
use crate::store::groups::Group;
use crate::store::messages::{MessageFilter, MessageRow};
use crate::store::notify::Hint;
use crate::store::{Store, StoreError, audit};

/// So many of the newest messages of a group are compared with so many of the others.
pub const COMPARED: usize = 500;
/// The others are looked for among so many pages of [`COMPARED`] of the newest of the DLQ: where one group is nearly all of it, looking on for
/// others would read the whole table.
const PAGES: usize = 4;
/// Headers of a message are left out of the comparison where they are more bytes than this, packed: a thousand messages are compared at once.
const HEADERS_LIMIT: i64 = 4 * 1024;
/// Keys and header values longer than this many bytes are documents, not something that messages share.
const VALUE_LIMIT: usize = 200;
/// More headers of one message than this are not compared.
const HEADERS_COMPARED: usize = 100;

/// Why a group could not be compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The thread that read the headers was lost.
    #[error("a failure could not be compared: {0}")]
    Stopped(#[from] tokio::task::JoinError),
}

/// Groups over the store.
#[derive(Debug, Clone)]
pub struct Groups {
    pub store: Store,
    pub clock: Clock,
    /// In the order of the configuration: the first that covers a topic wins.
    pub dlqs: Arc<[DlqSettings]>,
}

/// What somebody wants a group's status to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    pub decision: Wanted,
    pub runbook: Option<Link>,
    /// The version they saw when they decided.
    pub version: i64,
}

/// A decision as it is asked for; "now" is the moment at which it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    Exactly(Decision),
    FixedNow,
}

/// How a decision ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Setting {
    /// Stored, or it was stored before by the same form.
    Done,
    /// Somebody decided first; this is what holds.
    Lost(GroupStatus),
}

/// What messages of a group have more often than the rest of their DLQ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comparison {
    /// Messages of the group that were looked at.
    pub here: usize,
    /// Messages of the rest.
    pub elsewhere: usize,
    /// The largest difference first.
    pub contrasts: Vec<Contrast>,
    /// Fields of this DLQ are masked: keys, tenants and what headers hold were not compared, since they may quote them.
    pub masked: bool,
}

impl Groups {
    /// Stores a decision and writes it to the trail, if nobody decided since `wish.version`.
    ///
    /// # Errors
    /// The database could not be asked, or there is no audit key.
    pub async fn set_status(&self, by: &By, group: &Group, wish: &Wish) -> Result<Setting, StoreError> {
        let group_id = group.id;
        let now_ms = self.clock.now_ms();
        let decision = match &wish.decision {
            Wanted::Exactly(decision) => decision.clone(),
            Wanted::FixedNow => Decision::FixedSince { at_ms: now_ms },
        };
        let new = GroupStatus { decision, runbook: wish.runbook.clone(), decided: None, version: wish.version };
        let decided = Decided { by: by.actor.clone(), at_ms: now_ms };
        let mut tx = self.store.begin().await?;
        let before = group_status::status(&mut tx, group_id).await?;
        if !group_status::set_status(&mut tx, group_id, &new, &decided).await? {
            drop(tx);
            let there = self.store.group_status(group_id).await?;
            return Ok(if repeats(by, wish, &there) { Setting::Done } else { Setting::Lost(there) });
        }
        let mut event = Event::new(now_ms, by, Action::GroupStatusSet, format!("group {group_id}"));
        event.before = Some(in_trail(&before));
        event.after = Some(in_trail(&new));
        audit::append(&mut tx, &event).await?;
        tx.commit().await?;
        // The DLQ's list of failures shows the status, too.
        self.store.changed(&[Hint::Group(group_id), Hint::Dlq(group.dlq_id)]);
        Ok(Setting::Done)
    }

    /// Stores a note and writes to the trail that there is one: its text stays with the group, for it may quote a payload.
    ///
    /// # Errors
    /// The database could not be asked, or there is no audit key.
    pub async fn add_note(&self, by: &By, group_id: i64, form_id: &str, note: &str) -> Result<AddedNote, StoreError> {
        let now_ms = self.clock.now_ms();
        let mut tx = self.store.begin().await?;
        let new = NewNote { group_id, at_ms: now_ms, author: &by.actor, form_id, note };
        let added = group_status::add_note(&mut tx, new).await?;
        if let AddedNote::Added(id) = added {
            let mut event = Event::new(now_ms, by, Action::GroupNoteAdded, format!("group {group_id}"));
            event.after = Some(json!({ "note": id, "chars": note.chars().count() }));
            audit::append(&mut tx, &event).await?;
            tx.commit().await?;
            self.store.changed(&[Hint::Group(group_id)]);
        }
        Ok(added)
    }

    /// Compares the group's newest messages, which the caller has read, with the newest others of its DLQ.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn compare(&self, group: &Group, newest: Arc<[MessageRow]>) -> Result<Comparison, CompareError> {
        let settings = settings_for(&self.dlqs, &group.cluster, &group.topic);
        let masked = settings.is_some_and(|settings| !settings.mask.is_empty());
        let rest: Arc<[MessageRow]> = self.rest_of_dlq(group).await?.into();
        let here = self.traits(newest, settings, masked).await?;
        let elsewhere = self.traits(rest, settings, masked).await?;
        Ok(Comparison { here: here.len(), elsewhere: elsewhere.len(), contrasts: contrasts(&here, &elsewhere), masked })
    }

    async fn rest_of_dlq(&self, group: &Group) -> Result<Vec<MessageRow>, StoreError> {
        let filter = MessageFilter { cluster: Some(group.cluster.clone()), topic: Some(group.topic.clone()), ..MessageFilter::default() };
        let (mut rest, mut after) = (Vec::new(), None);
        for _ in 0..PAGES {
            let page = self.store.messages(&filter, after, COMPARED as i64).await?;
            rest.extend(page.items.into_iter().filter(|row| row.group_id != group.id));
            after = page.next;
            if after.is_none() || rest.len() >= COMPARED {
                break;
            }
        }
        rest.truncate(COMPARED);
        Ok(rest)
    }

    /// What each message has. Headers of a thousand messages take a while to read, so not on the async threads.
    async fn traits(
        &self,
        rows: Arc<[MessageRow]>,
        settings: Option<&DlqSettings>,
        masked: bool,
    ) -> Result<Vec<BTreeSet<Trait>>, CompareError> {
        let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
        let mut headers = self.store.headers_of(&ids, HEADERS_LIMIT).await?;
        let choice = settings.map_or(DialectChoice::Auto, |settings| settings.dialect.clone());
        let all = move || rows.iter().map(|row| traits_of(row, headers.remove(&row.id).unwrap_or_default(), &choice, masked)).collect();
        Ok(tokio::task::spawn_blocking(all).await?)
    }
}

/// Whether `there` is what the same person's same form stored before: a form sent twice decides once.
fn repeats(by: &By, wish: &Wish, there: &GroupStatus) -> bool {
    let same_decision = match &wish.decision {
        Wanted::Exactly(decision) => *decision == there.decision,
        Wanted::FixedNow => matches!(there.decision, Decision::FixedSince { .. }),
    };
    let same_person = there.decided.as_ref().is_some_and(|decided| decided.by == by.actor);
    same_decision && same_person && wish.runbook == there.runbook && wish.version + 1 == there.version
}

/// A status as the trail keeps it.
fn in_trail(status: &GroupStatus) -> serde_json::Value {
    let mut said = serde_json::Map::from_iter([("status".to_owned(), json!(status.decision.as_str()))]);
    match &status.decision {
        Decision::Open => {}
        Decision::Known { owner, ticket } => {
            said.insert("owner".to_owned(), json!(owner));
            said.insert("ticket".to_owned(), json!(ticket.as_ref().map(Ticket::as_str)));
        }
        Decision::FixedSince { at_ms } => _ = said.insert("since_ms".to_owned(), json!(at_ms)),
        Decision::IgnoredUntil { until_ms } => _ = said.insert("until_ms".to_owned(), json!(until_ms)),
    }
    said.insert("runbook".to_owned(), json!(status.runbook.as_ref().map(Link::as_str)));
    said.into()
}

/// What one message has. Of the headers only those that the dialect does not read: the others say what failed, which is what makes the group.
/// Where fields are masked, keys, tenants and the values of headers are left out: without the value at hand nobody knows whether they quote it.
fn traits_of(row: &MessageRow, headers: Vec<Header>, choice: &DialectChoice, masked: bool) -> BTreeSet<Trait> {
    let mut traits = BTreeSet::from([Trait::Partition(row.partition)]);
    traits.extend(row.origin_partition.map(Trait::OriginPartition));
    traits.extend(row.consumer_group.clone().map(Trait::ConsumerGroup));
    let short = |text: &String| text.len() <= VALUE_LIMIT;
    if !masked {
        let record_key = || row.key.as_deref().and_then(|key| std::str::from_utf8(key).ok()).map(str::to_owned);
        traits.extend(row.business_key.clone().or_else(record_key).filter(short).map(Trait::Key));
        traits.extend(row.tenant.clone().filter(short).map(Trait::Tenant));
    }
    let record = Record {
        topic: row.topic.clone(),
        partition: row.partition,
        offset: row.offset,
        timestamp_ms: row.record_at_ms,
        key: row.key.clone(),
        value: None,
        headers,
    };
    let read: BTreeSet<usize> = dialect::field_readings(&record, choice).into_iter().filter_map(|field| field.header).collect();
    let others = record.headers.iter().enumerate().filter(|(index, _)| !read.contains(index)).take(HEADERS_COMPARED);
    for (_, header) in others {
        let Ok(name) = String::from_utf8(header.name.clone()) else { continue };
        let value = header.value.as_deref().and_then(|value| std::str::from_utf8(value).ok()).map(str::to_owned);
        traits.extend(value.filter(|value| short(value) && !masked).map(|value| Trait::HeaderValue(name.clone(), value)));
        traits.extend(Some(name).filter(short).map(Trait::Header));
    }
    traits
}
