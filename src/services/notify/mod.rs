//! Channels and what they were told: making, changing, testing and removing them, their delivery log. [`courier`] delivers.
//!
//! Who has something to tell puts it into the outbox in its own transaction (`store::outbox::enqueue`). A channel's URL and key come in here and never go out again: they are stored
//! sealed, and opened to be sent to.

pub mod courier;

use serde_json::json;
use uuid::Uuid;

use crate::channels::{self, Destination, PAGERDUTY_URL, SEALING, SealError, Sender};
use crate::domain::access::OwnerScope;
use crate::domain::audit::{Action, By, Event};
use crate::domain::clock::Clock;
use crate::domain::delivery::{ChannelKind, Verdict};
use crate::domain::notice::{Links, Notice, NoticeEvent, event_id};
use crate::domain::record::{deceives, says_something};
use crate::domain::settings::Secret;
use crate::store::channels::{self as rows, Channel, ChannelChange, SealedSecret};
use crate::store::outbox::{self, Delivery, DeliveryState, Finished};
use crate::store::{Store, StoreError, Tx, audit};

/// A channel's name has at most so many characters.
pub const NAME_CHARS: usize = 64;

/// Channels over the store. Cheap to clone.
#[derive(Clone)]
pub struct Notify {
    pub store: Store,
    pub clock: Clock,
    sender: Sender,
    /// Of this Lazaret, as a test message names it.
    instance: String,
    key: [u8; 32],
}

/// Why something about a channel could not be done.
#[derive(Debug, thiserror::Error)]
pub enum NotifyError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// 409: it is not as they saw it any more.
    #[error("{0}")]
    Conflict(String),
    /// 422: what was typed does not do; the sentence says what would.
    #[error("{0}")]
    Invalid(String),
    /// 404.
    #[error("there is no {0}")]
    NotFound(String),
    /// The machine gives no randomness.
    #[error("{0}")]
    Machine(String),
}

/// A channel as somebody types it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewChannel {
    pub kind: ChannelKind,
    pub name: String,
    /// None: PagerDuty's own, which is none for any other kind.
    pub url: Option<Secret>,
    /// PagerDuty's integration key; a webhook's signing secret, and None there has one made.
    pub key: Option<Secret>,
    /// Whose DLQs it is told of.
    pub owners: OwnerScope,
}

/// What somebody changes about a channel. What is None stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangedChannel {
    pub name: Option<String>,
    pub url: Option<Secret>,
    pub key: Option<Secret>,
    pub owners: Option<OwnerScope>,
}

/// A channel that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    pub id: i64,
    /// A signing secret that was made for it: shown this once, for the receiver.
    pub signing_secret: Option<Secret>,
}

/// A channel with how the last thing it was told went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelView {
    pub channel: Channel,
    /// With its last attempt alone.
    pub last: Option<Delivery>,
}

/// Deliveries, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryPage {
    pub items: Vec<Delivery>,
    /// Pass as `before` for the following page; None on the last.
    pub next: Option<i64>,
}

/// What a test came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tested {
    pub delivered: bool,
    /// None: there was no answer.
    pub status: Option<u16>,
    /// The beginning of the answer.
    pub body: Option<String>,
    pub took_ms: i64,
    /// What it means and what to do, in a sentence.
    pub sentence: String,
}

impl Notify {
    /// # Errors
    /// The store has no audit key, from which the key of the secrets is made.
    pub fn new(store: Store, clock: Clock, sender: Sender, instance: &str) -> Result<Notify, StoreError> {
        let key = store.derived_key(SEALING)?;
        Ok(Notify { store, clock, sender, instance: instance.to_owned(), key })
    }

    /// All channels by name.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn channels(&self) -> Result<Vec<ChannelView>, NotifyError> {
        let (channels, mut last) = (self.store.channels().await?, self.store.last_deliveries().await?);
        let view = |channel: Channel| {
            let at = last.iter().position(|delivery| delivery.channel_id == channel.id);
            ChannelView { channel, last: at.map(|at| last.swap_remove(at)) }
        };
        Ok(channels.into_iter().map(view).collect())
    }

    /// One channel.
    ///
    /// # Errors
    /// There is none of that id, or the database could not be asked.
    pub async fn channel(&self, id: i64) -> Result<Channel, NotifyError> {
        self.store.channel(id).await?.ok_or_else(|| NotifyError::NotFound(format!("channel {id}")))
    }

    /// What a channel was told, newest first: before the delivery `before`, at most `limit`.
    ///
    /// # Errors
    /// As [`Notify::channel`].
    pub async fn deliveries(&self, channel_id: i64, before: Option<i64>, limit: i64) -> Result<DeliveryPage, NotifyError> {
        self.channel(channel_id).await?;
        let limit = limit.clamp(1, 200);
        let mut items = self.store.deliveries(channel_id, before, limit + 1).await?;
        let more = items.len() > usize::try_from(limit).unwrap_or(usize::MAX);
        items.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        let next = items.last().map(|delivery| delivery.id).filter(|_| more);
        Ok(DeliveryPage { items, next })
    }

    /// Makes a channel. Its URL must lead where Lazaret sends to; nothing is sent.
    ///
    /// # Errors
    /// Name, URL or key do not do, in a sentence that never repeats URL or key.
    pub async fn create(&self, by: &By, new: NewChannel) -> Result<Created, NotifyError> {
        let name = usable_name(&new.name)?;
        let key = given(new.key.as_ref());
        let made = match (new.kind, &key) {
            (ChannelKind::Webhook, None) => Some(channels::signing_secret(random()?)),
            _ => None,
        };
        let url = match (new.kind, given(new.url.as_ref())) {
            (_, Some(url)) => url,
            (ChannelKind::PagerDuty, None) => PAGERDUTY_URL.to_owned(),
            (kind, None) => return Err(NotifyError::Invalid(format!("The URL is missing: copy it from {}.", kind.title()))),
        };
        let destination = Destination { url, key: made.clone().or(key) };
        let uid = event_id(self.clock.now_ms(), random()?).to_string();
        let secret = self.checked(new.kind, &uid, &destination).await?;
        let now_ms = self.clock.now_ms();
        let mut tx = self.store.begin().await?;
        let row = rows::NewChannel { uid: &uid, kind: new.kind, name, owners: &new.owners, secret: &secret, by: &by.actor, now_ms };
        let Some(id) = rows::add(&mut tx, &row).await? else { return Err(taken(name)) };
        let mut event = Event::new(now_ms, by, Action::ChannelAdded, subject(id));
        event.after = Some(json!({ "kind": new.kind, "name": name, "host": secret.host, "owners": new.owners.to_text() }));
        audit::append(&mut tx, &event).await?;
        tx.commit().await?;
        Ok(Created { id, signing_secret: made.map(Secret::new) })
    }

    /// Changes a channel that is still as they saw it. A new URL keeps the key, and a new key the URL.
    ///
    /// # Errors
    /// As [`Notify::create`]; or somebody else changed it meanwhile.
    pub async fn change(&self, by: &By, id: i64, version: i64, change: ChangedChannel) -> Result<(), NotifyError> {
        let channel = self.channel(id).await?;
        let name = change.name.as_deref().map(usable_name).transpose()?;
        let secret = match (given(change.url.as_ref()), given(change.key.as_ref())) {
            (None, None) => None,
            (Some(url), key) if key.is_some() || !has_key(channel.kind) => Some(Destination { url, key }),
            (url, key) => {
                let before = self.opened(&channel).await?;
                Some(Destination { url: url.unwrap_or(before.url), key: key.or(before.key) })
            }
        };
        let secret = match &secret {
            Some(destination) => Some(self.checked(channel.kind, &channel.uid, destination).await?),
            None => None,
        };
        let now_ms = self.clock.now_ms();
        let mut tx = self.store.begin().await?;
        if let Some(name) = name.filter(|name| *name != channel.name)
            && rows::is_taken(&mut tx, id, name).await?
        {
            return Err(taken(name));
        }
        let changed = ChannelChange { name, owners: change.owners.as_ref(), secret: secret.as_ref(), disabled: None };
        if !rows::change(&mut tx, id, version, &changed, &by.actor, now_ms).await? {
            return Err(stale());
        }
        let mut event = Event::new(now_ms, by, Action::ChannelChanged, subject(id));
        event.before = Some(json!({ "name": channel.name, "host": channel.host, "owners": channel.owners.to_text() }));
        let (host, owners) =
            (secret.as_ref().map_or(&channel.host, |secret| &secret.host), change.owners.as_ref().unwrap_or(&channel.owners));
        event.after = Some(json!({
            "name": name.unwrap_or(&channel.name), "host": host, "owners": owners.to_text(), "secret_changed": secret.is_some()
        }));
        audit::append(&mut tx, &event).await?;
        Ok(tx.commit().await?)
    }

    /// Switches a channel off, which gives up what still waits for it, or on again.
    ///
    /// # Errors
    /// There is none of that id, or somebody else changed it meanwhile.
    pub async fn set_disabled(&self, by: &By, id: i64, version: i64, disabled: bool) -> Result<(), NotifyError> {
        let channel = self.channel(id).await?;
        let now_ms = self.clock.now_ms();
        let mut tx = self.store.begin().await?;
        let change = ChannelChange { disabled: Some(disabled), ..ChannelChange::default() };
        if !rows::change(&mut tx, id, version, &change, &by.actor, now_ms).await? {
            return Err(stale());
        }
        let action = if disabled { Action::ChannelDisabled } else { Action::ChannelEnabled };
        self.ended(tx, by, action, &channel, disabled).await
    }

    /// Removes a channel and its secret, and gives up what still waits for it. Its log stays in the database.
    ///
    /// # Errors
    /// As [`Notify::set_disabled`].
    pub async fn remove(&self, by: &By, id: i64, version: i64) -> Result<(), NotifyError> {
        let channel = self.channel(id).await?;
        let mut tx = self.store.begin().await?;
        if !rows::remove(&mut tx, id, version, &by.actor, self.clock.now_ms()).await? {
            return Err(stale());
        }
        self.ended(tx, by, Action::ChannelRemoved, &channel, true).await
    }

    async fn ended(&self, mut tx: Tx, by: &By, action: Action, channel: &Channel, give_up: bool) -> Result<(), NotifyError> {
        let now_ms = self.clock.now_ms();
        let given_up = if give_up { outbox::give_up_all(&mut tx, channel.id, now_ms).await? } else { 0 };
        let mut event = Event::new(now_ms, by, action, subject(channel.id));
        event.before = Some(json!({ "kind": channel.kind, "name": channel.name, "host": channel.host }));
        event.after = give_up.then(|| json!({ "given_up": given_up }));
        audit::append(&mut tx, &event).await?;
        Ok(tx.commit().await?)
    }

    /// Sends a test message now, once, and says what came back. A channel that is switched off can be tested.
    ///
    /// # Errors
    /// There is none of that id, or its secret cannot be read. That the service refuses is no error but the answer.
    pub async fn test(&self, by: &By, id: i64) -> Result<Tested, NotifyError> {
        let channel = self.channel(id).await?;
        let destination = self.opened(&channel).await?;
        let now_ms = self.clock.now_ms();
        let notice = self.test_notice(&by.actor, event_id(now_ms, random()?), now_ms);
        let mut tx = self.store.begin().await?;
        let begun =
            outbox::begin_test(&mut tx, &notice, id, now_ms).await?.ok_or_else(|| NotifyError::NotFound(format!("channel {id}")))?;
        let mut event = Event::new(now_ms, by, Action::ChannelTested, subject(id));
        event.after = Some(json!({ "kind": channel.kind, "name": channel.name, "host": channel.host, "event_id": notice.event_id }));
        audit::append(&mut tx, &event).await?;
        tx.commit().await?;

        let (id_text, body) = (notice.event_id.to_string(), crate::domain::notice::render(channel.kind, &notice));
        let attempt = channels::deliver(&self.sender, &self.clock, channel.kind, &destination, &id_text, &body).await;
        let delivered = attempt.verdict == Verdict::Accepted;
        let finished = Finished {
            took_ms: attempt.took_ms,
            status: attempt.status,
            body: attempt.body.as_deref(),
            error: attempt.error.as_deref(),
            state: if delivered { DeliveryState::Delivered } else { DeliveryState::Failed },
            due_at_ms: now_ms,
            // That it answers is news for what waits; that it does not is found out by what waits itself.
            hold: delivered.then(|| outbox::Hold { not_before_ms: self.clock.now_ms() + channel.kind.gap_ms(), failures: 0 }),
        };
        outbox::finish(&self.store, &begun, &finished, self.clock.now_ms()).await?;
        let sentence = match (&attempt.error, channel.kind) {
            (Some(why), _) => format!("Not delivered. {why}."),
            (None, ChannelKind::PagerDuty) => "Delivered. PagerDuty has opened an incident for it: resolve it there.".to_owned(),
            (None, ChannelKind::Teams) => {
                "Accepted. Teams posts it a little later; if it does not come, look at the workflow's runs.".to_owned()
            }
            (None, _) => "Delivered.".to_owned(),
        };
        Ok(Tested { delivered, status: attempt.status, body: attempt.body, took_ms: attempt.took_ms, sentence })
    }

    fn test_notice(&self, by: &str, event_id: Uuid, now_ms: i64) -> Notice {
        Notice {
            event_id,
            dedup_key: format!("test/{event_id}"),
            occurred_at_ms: now_ms,
            dlq: None,
            owner: None,
            links: Links::default(),
            event: NoticeEvent::Test { by: by.to_owned(), instance: self.instance.clone() },
        }
    }

    /// Sends what has ended once more, with the same id and body, under the rules of anything that waits.
    ///
    /// # Errors
    /// There is none of that id, it has not ended, or its channel is switched off.
    pub async fn send_again(&self, by: &By, delivery_id: i64) -> Result<(), NotifyError> {
        let missing = || NotifyError::NotFound(format!("delivery {delivery_id}"));
        let delivery = self.store.delivery(delivery_id).await?.ok_or_else(missing)?;
        let channel = self.channel(delivery.channel_id).await?;
        if channel.disabled {
            return Err(NotifyError::Conflict("The channel is switched off: switch it on first.".to_owned()));
        }
        let now_ms = self.clock.now_ms();
        let mut tx = self.store.begin().await?;
        if !outbox::send_again(&mut tx, delivery_id, delivery.version, now_ms).await? {
            return Err(NotifyError::Conflict("It is on its way already.".to_owned()));
        }
        let mut event = Event::new(now_ms, by, Action::NoticeSentAgain, subject(channel.id));
        event.after = Some(json!({ "delivery": delivery_id, "event_id": delivery.event_id, "was": delivery.state.as_str() }));
        audit::append(&mut tx, &event).await?;
        Ok(tx.commit().await?)
    }

    /// The destination sealed, once it is seen to do.
    async fn checked(&self, kind: ChannelKind, uid: &str, destination: &Destination) -> Result<SealedSecret, NotifyError> {
        let sentence = |why: String| NotifyError::Invalid(format!("{}.", capital(&why)));
        destination.check_key(kind).map_err(sentence)?;
        let host = self.sender.check(&destination.url).await.map_err(|why| sentence(why.to_string()))?;
        let sealed = channels::seal(&self.key, uid, destination, random()?);
        Ok(SealedSecret { sealed, host, hint: destination.hint() })
    }

    async fn opened(&self, channel: &Channel) -> Result<Destination, NotifyError> {
        let sealed = self.store.sealed_secret(channel.id).await?.ok_or_else(unreadable)?;
        channels::open(&self.key, &channel.uid, &sealed).map_err(|_| unreadable())
    }
}

fn has_key(kind: ChannelKind) -> bool {
    matches!(kind, ChannelKind::PagerDuty | ChannelKind::Webhook)
}

/// What was typed, if anything was.
fn given(text: Option<&Secret>) -> Option<String> {
    text.map(|text| text.expose().trim()).filter(|text| !text.is_empty()).map(str::to_owned)
}

fn subject(id: i64) -> String {
    format!("channel {id}")
}

fn taken(name: &str) -> NotifyError {
    NotifyError::Invalid(format!("There is a channel {name:?} already: choose another name."))
}

fn stale() -> NotifyError {
    NotifyError::Conflict("Somebody else has changed the channel meanwhile. Look at it again, and change it from there.".to_owned())
}

fn unreadable() -> NotifyError {
    NotifyError::Invalid(format!("{}.", capital(&SealError::Unreadable.to_string())))
}

fn usable_name(name: &str) -> Result<&str, NotifyError> {
    let name = name.trim();
    let usable = says_something(name) && !name.contains(|c: char| c.is_control() || deceives(c));
    if usable && name.chars().count() <= NAME_CHARS {
        return Ok(name);
    }
    Err(NotifyError::Invalid(format!("The name must be 1 to {NAME_CHARS} characters that can be seen.")))
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn random<const N: usize>() -> Result<[u8; N], NotifyError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| NotifyError::Machine(format!("the system gives no random bytes: {error}")))?;
    Ok(bytes)
}
