//! The two checks on messages: does the payload fit today's schema, has the message already been applied.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::{StreamExt as _, stream};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::Entry;
use crate::domain::mask::{MASK, MaskedValues, hides_key};
use crate::domain::record::{Record, clip};
use crate::domain::template::KeyTemplate;
use crate::domain::terms::{Fence, Ledger, RedisLedger, Schema, Tier};
use crate::domain::verdict::{Checked, IdempotencyVerdict, SchemaVerdict, idempotency, message_age_s};
use crate::ledger::{LOOK_UP, Ledgers};
use crate::schema::transform::{Refusal, Transform, deep};
use crate::schema::{Current, Fit, Schemas, text_file};

/// Chunks under way at once: while one waits for a ledger, others use the cores.
const AT_ONCE: usize = 4;
/// Chunks hold as many messages as a look-up takes keys.
const CHUNK: usize = LOOK_UP;
/// How long the schema check of a chunk may take before it counts as one that cannot be made.
const SCHEMA_PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);
/// Characters of a transform's hash by which it is named.
const HASH_SHOWN: usize = 12;

/// A message to be checked.
#[derive(Debug, Clone)]
pub struct Candidate {
    pub message_id: i64,
    /// Key, value and headers as they were dead-lettered.
    pub record: Record,
    /// When the event happened, ms; None: not known.
    pub origin_at_ms: Option<i64>,
    pub timestamp_suspect: bool,
}

/// Checks messages. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Checker {
    pub schemas: Arc<Schemas>,
    pub ledgers: Arc<BTreeMap<String, Ledgers>>,
}

impl Checker {
    /// Nothing is opened yet: ledgers and registries are reached when they are asked.
    pub fn new(ledgers: &BTreeMap<String, Ledger>, schemas: &BTreeMap<String, Schema>) -> Checker {
        let ledgers = ledgers.iter().map(|(name, ledger)| (name.clone(), Ledgers::new(ledger))).collect();
        Checker { schemas: Arc::new(Schemas::new(schemas)), ledgers: Arc::new(ledgers) }
    }

    /// Both checks on messages of one DLQ, in the order given. Never fails: what could not be asked is a verdict. `transform`: the jq filter of the batch;
    /// None: the configuration's.
    ///
    /// A null value (a tombstone) has no payload that could fit a schema: it could not be checked. The key a ledger is asked for comes from the bytes to be
    /// sent; where the original yields one too and they differ, nobody can say which of the two was applied.
    pub async fn check(&self, entry: Entry<'_>, transform: Option<&str>, messages: &[Candidate], now_ms: i64) -> Vec<Checked> {
        let chunks: Vec<_> = messages.chunks(CHUNK).map(|chunk| self.check_chunk(entry, transform, chunk, now_ms)).collect();
        stream::iter(chunks).buffered(AT_ONCE).concat().await
    }

    /// Only the ledger, for messages that were sent: what it says of each, in the order given.
    pub async fn ledger_says(
        &self,
        entry: Entry<'_>,
        transform: Option<&str>,
        messages: &[Candidate],
        now_ms: i64,
    ) -> Vec<IdempotencyVerdict> {
        let chunks: Vec<_> = messages.chunks(CHUNK).map(|chunk| self.ledger_says_chunk(entry, transform, chunk, now_ms)).collect();
        stream::iter(chunks).buffered(AT_ONCE).concat().await
    }

    /// A fingerprint of all settings that decide the checks, contents of schema and transform files included. It is part of a batch's digest.
    /// Passwords are not in it: a new one changes no check.
    ///
    /// # Errors
    /// A file or the registry could not be read: its name and why.
    pub async fn fingerprint(&self, entry: Entry<'_>) -> Result<String, String> {
        let terms = entry.terms;
        let schema = match &terms.schema {
            None => None,
            Some(check) => {
                let content = self.schemas.contents(&check.schema).await?;
                let transform = match &check.transform {
                    Some(path) => Some(text_file(path).await?),
                    None => None,
                };
                let fences: Vec<_> = check.fences.iter().map(|fence| json!([fence.before_ms, fence.reason])).collect();
                Some(json!([check.schema, hex(&Sha256::digest(&content)), transform, fences]))
            }
        };
        let ledger = |name: &String| json!([name, self.ledgers.get(name).map(|ledger| described(ledger.settings()))]);
        let idempotency = terms.idempotency.as_ref().map(|check| json!([ledger(&check.ledger), check.key.source()]));
        let others: Vec<_> = terms.also_read_by.iter().map(|other| json!([other.group, other.ledger.as_ref().map(ledger)])).collect();
        let settings = json!({
            "version": 1,
            "schema": schema,
            "idempotency": idempotency,
            "also_read_by": others,
            "business_key": entry.settings.business_key.as_ref().map(KeyTemplate::source),
            "consumer_is_idempotent": terms.consumer_is_idempotent,
            "partitioner": format!("{:?}", entry.settings.partitioner),
        });
        Ok(hex(&Sha256::digest(settings.to_string())))
    }

    async fn check_chunk(&self, entry: Entry<'_>, transform: Option<&str>, messages: &[Candidate], now_ms: i64) -> Vec<Checked> {
        let payloads = self.payloads(entry, transform, messages).await;
        let keys: Vec<Option<&str>> = payloads.iter().map(|payload| payload.key.as_deref().ok()).collect();
        let ages: Vec<Option<u64>> = messages.iter().map(|message| age_s(message, now_ms)).collect();
        let own = match &entry.terms.idempotency {
            Some(check) => Some(self.verdicts(&check.ledger, &keys, &ages).await),
            None => None,
        };
        let mut others = vec![Vec::new(); messages.len()];
        for other in &entry.terms.also_read_by {
            let said = match &other.ledger {
                Some(ledger) => self.verdicts(ledger, &keys, &ages).await,
                None => vec![(IdempotencyVerdict::NotConfigured, String::new()); messages.len()],
            };
            for (others, (verdict, _)) in others.iter_mut().zip(said) {
                others.push((other.group.clone(), verdict));
            }
        }
        let mut own = own.map(Vec::into_iter);
        let mask = &entry.settings.mask;
        let one = |((message, payload), others): ((&Candidate, &Payload), Vec<(String, IdempotencyVerdict)>)| {
            let (idempotency, answered) = match own.as_mut() {
                None => (IdempotencyVerdict::NotConfigured, None),
                Some(said) => {
                    let (verdict, words) = said.next().unwrap_or((IdempotencyVerdict::CouldNotCheck, String::new()));
                    (verdict, Some(payload.key.as_ref().err().cloned().unwrap_or(words)))
                }
            };
            let key = payload.key.as_deref().ok().filter(|_| own.is_some());
            let (asked, answered) = shown(message, key, payload.is_key_made, answered, mask);
            Checked {
                message_id: message.message_id,
                at_ms: now_ms,
                schema: payload.verdict,
                schema_note: payload.note.clone(),
                transformed: payload.transformed.clone(),
                idempotency,
                asked,
                answered,
                others,
                beyond_waivers: payload.beyond_waivers,
            }
        };
        messages.iter().zip(&payloads).zip(others).map(one).collect()
    }

    async fn ledger_says_chunk(
        &self,
        entry: Entry<'_>,
        transform: Option<&str>,
        messages: &[Candidate],
        now_ms: i64,
    ) -> Vec<IdempotencyVerdict> {
        let Some(check) = &entry.terms.idempotency else { return vec![IdempotencyVerdict::NotConfigured; messages.len()] };
        let mut keys: Vec<Option<String>> = messages.iter().map(|message| check.key.render(&message.record)).collect();
        // Only what yields no key as it is can have been sent under one that a transform made.
        let without: Vec<usize> = (0..keys.len()).filter(|place| keys[*place].is_none()).collect();
        if !without.is_empty() && (transform.is_some() || entry.terms.schema.as_ref().is_some_and(|schema| schema.transform.is_some())) {
            let some: Vec<Candidate> = without.iter().map(|place| messages[*place].clone()).collect();
            for (place, payload) in without.into_iter().zip(self.payloads(entry, transform, &some).await) {
                keys[place] = payload.key.ok();
            }
        }
        let keys: Vec<Option<&str>> = keys.iter().map(Option::as_deref).collect();
        let ages: Vec<Option<u64>> = messages.iter().map(|message| age_s(message, now_ms)).collect();
        self.verdicts(&check.ledger, &keys, &ages).await.into_iter().map(|(verdict, _)| verdict).collect()
    }

    /// What one ledger says of each key; a message without a key could not be checked.
    async fn verdicts(&self, ledger: &str, keys: &[Option<&str>], ages: &[Option<u64>]) -> Vec<(IdempotencyVerdict, String)> {
        let could_not = |why: String| (IdempotencyVerdict::CouldNotCheck, why);
        let Some(ledger) = self.ledgers.get(ledger) else {
            return vec![could_not(format!("there is no [ledgers.{ledger}]")); keys.len()];
        };
        let asked: Vec<&str> = keys.iter().copied().flatten().collect();
        let mut answers = ledger.look_up(&asked).await.into_iter();
        let one = |(key, age_s): (&Option<&str>, &Option<u64>)| match key.and_then(|_| answers.next()) {
            Some(answer) => idempotency(ledger.settings(), &answer, *age_s),
            None => could_not("there is no key to ask for".to_owned()),
        };
        keys.iter().zip(ages).map(one).collect()
    }

    /// The schema's half of the check, on a thread of its own.
    async fn payloads(&self, entry: Entry<'_>, transform: Option<&str>, messages: &[Candidate]) -> Vec<Payload> {
        let terms = entry.terms;
        let schema = match &terms.schema {
            Some(check) => {
                let values: Vec<&[u8]> = messages.iter().filter_map(|message| message.record.value.as_deref()).collect();
                Some(self.schemas.now(&check.schema, &values).await)
            }
            None => None,
        };
        let key = terms.idempotency.as_ref().map(|check| &check.key).or(entry.settings.business_key.as_ref());
        let given_up = Arc::new(AtomicBool::new(false));
        let work = Work {
            messages: messages.to_vec(),
            schema,
            transform: self.transform(entry, transform).await,
            fences: terms.schema.as_ref().map(|check| check.fences.clone()).unwrap_or_default(),
            key: key.cloned(),
            asks_ledger: terms.idempotency.is_some(),
            mask: entry.settings.mask.clone(),
            given_up: Arc::clone(&given_up),
        };
        let done = tokio::task::spawn_blocking(move || deep(|| work.done()));
        match tokio::time::timeout(SCHEMA_PATIENCE, done).await {
            Ok(Ok(Some(payloads))) => payloads,
            _ => {
                given_up.store(true, Ordering::Relaxed);
                messages.iter().map(|_| Payload::stopped()).collect()
            }
        }
    }

    /// The filter to be used, if there is one; or why it cannot be.
    async fn transform(&self, entry: Entry<'_>, of_batch: Option<&str>) -> Option<Result<Arc<Transform>, String>> {
        let configured = entry.terms.schema.as_ref().and_then(|check| check.transform.as_ref());
        let (name, text) = match (of_batch, configured) {
            (Some(text), _) => ("the transform".to_owned(), Ok(text.to_owned())),
            (None, Some(path)) => (path.display().to_string(), text_file(path).await),
            (None, None) => return None,
        };
        Some(text.and_then(|text| self.schemas.transform(&text).map_err(|fault| format!("{name}: {fault}"))))
    }
}

fn age_s(message: &Candidate, now_ms: i64) -> Option<u64> {
    message_age_s(message.origin_at_ms, message.timestamp_suspect, now_ms)
}

/// Key and answer as pages may show them: a key that repeats a masked field, or may, is hidden, and so is what an answer quotes of it. A key that a
/// transform made (`is_made`) may be a part of one.
fn shown(
    message: &Candidate,
    key: Option<&str>,
    is_made: bool,
    answered: Option<String>,
    mask: &[String],
) -> (Option<String>, Option<String>) {
    let value = message.record.value.as_deref();
    match key {
        Some(key) if !mask.is_empty() && (is_made || hides_key(value, mask, key.as_bytes())) => {
            let answered = answered.map(|words| MaskedValues::of(value, mask).hide(&words.replace(key, MASK)).into_owned());
            (Some(MASK.to_owned()), answered)
        }
        key => (key.map(str::to_owned), answered),
    }
}

/// A ledger's settings without its passwords.
fn described(ledger: &Ledger) -> serde_json::Value {
    let hot = |hot: &RedisLedger| {
        let RedisLedger { url, key, done, in_progress, failed, partial, ttl_s, margin_s, claim_lease_s } = hot;
        json!([without_password(url.expose()), key, done, in_progress, failed, partial, ttl_s, margin_s, claim_lease_s])
    };
    let durable = |tier: &Tier| match tier {
        Tier::Sql { url, query } => json!(["sql", without_password(url.expose()), query]),
        Tier::Http { url } => json!(["http", without_password(url.expose())]),
    };
    json!([format!("{:?}", ledger.expired_claim), ledger.hot.as_ref().map(hot), ledger.durable.as_ref().map(durable)])
}

/// Host, port and path; what is no URL with a host (a socket, a file) is taken whole. Only ever hashed.
fn without_password(url: &str) -> String {
    match url::Url::parse(url) {
        Ok(mut url) => {
            // Both fail for a URL without a host, which has no password.
            let _ = url.set_password(None);
            let _ = url.set_username("");
            url.to_string()
        }
        Err(_) => url.to_owned(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What the schema check says of one message, and the key of what would be sent.
struct Payload {
    verdict: SchemaVerdict,
    note: Option<String>,
    transformed: Option<Vec<u8>>,
    /// Or why there is none.
    key: Result<String, String>,
    /// The transform alone yields the key: the message as it is has none.
    is_key_made: bool,
    /// See [`Checked::beyond_waivers`].
    beyond_waivers: bool,
}

impl Payload {
    fn plain(verdict: SchemaVerdict, note: Option<String>) -> Payload {
        Payload { verdict, note, transformed: None, key: Err(String::new()), is_key_made: false, beyond_waivers: false }
    }

    fn stopped() -> Payload {
        let why = "the check took too long or stopped";
        Payload { key: Err(why.to_owned()), ..Payload::plain(SchemaVerdict::CouldNotCheck, Some(why.to_owned())) }
    }

    /// Known not to fit as it is, and what would make it fit cannot be used or judged now.
    fn stuck(misfit: &str, why: &str) -> Payload {
        let note = format!("{misfit}; {why}. It does not fit as it is, so no waiver lets it go");
        Payload { beyond_waivers: true, ..Payload::plain(SchemaVerdict::CouldNotCheck, Some(note)) }
    }
}

/// A chunk of messages and all it takes to judge their payloads.
struct Work {
    messages: Vec<Candidate>,
    /// None: not configured.
    schema: Option<Result<Current, String>>,
    /// None: there is none.
    transform: Option<Result<Arc<Transform>, String>>,
    fences: Vec<Fence>,
    /// None: neither a ledger nor a business key is configured.
    key: Option<KeyTemplate>,
    /// A ledger is asked for the key.
    asks_ledger: bool,
    mask: Vec<String>,
    /// Nobody waits for the rest any more.
    given_up: Arc<AtomicBool>,
}

impl Work {
    fn done(self) -> Vec<Payload> {
        let one = |message: &Candidate| {
            let payload = self.payload(message);
            self.with_key(message, payload)
        };
        // A decoder that a payload brings down takes no other message with it.
        let caught = |message| match self.given_up.load(Ordering::Relaxed) {
            true => Payload::stopped(),
            false => catch_unwind(AssertUnwindSafe(|| one(message))).unwrap_or_else(|_| Payload::stopped()),
        };
        self.messages.iter().map(caught).collect()
    }

    fn payload(&self, message: &Candidate) -> Payload {
        use SchemaVerdict::{Compatible, CouldNotCheck, Incompatible, NotConfigured};
        let Some(schema) = &self.schema else { return Payload::plain(NotConfigured, None) };
        let Some(value) = message.record.value.as_deref() else {
            return Payload::plain(CouldNotCheck, Some("the value is null: there is no payload that could fit".to_owned()));
        };
        let too_old =
            self.fence(message).map(|fence| format!("older than the format cutover of {}: {}", instant(fence.before_ms), fence.reason));
        let (schema, misfit) = match (schema, too_old) {
            (Ok(schema), Some(misfit)) => (schema, misfit),
            (Err(why), Some(misfit)) => return Payload::stuck(&misfit, why),
            (Err(why), None) => return Payload::plain(CouldNotCheck, Some(why.clone())),
            (Ok(schema), None) => match schema.judge(value, &self.mask) {
                Fit::Fits => return Payload::plain(Compatible, None),
                Fit::Unclear(why) => return Payload::plain(CouldNotCheck, Some(why)),
                Fit::Unfit(why) => (schema, why),
            },
        };
        match &self.transform {
            None => Payload::plain(Incompatible, Some(misfit)),
            Some(Err(why)) => Payload::stuck(&misfit, why),
            Some(Ok(transform)) => self.transformed(schema, transform, value, &misfit),
        }
    }

    fn transformed(&self, schema: &Current, transform: &Transform, value: &[u8], misfit: &str) -> Payload {
        use SchemaVerdict::{Incompatible, Transformed};
        /// A filter may carry what is masked anywhere, into a name too: where something is masked, no place in its output is named.
        static EVERYTHING: [String; 1] = [String::new()];
        let mask = if self.mask.is_empty() { &[][..] } else { &EVERYTHING[..] };
        let name = format!("transform {}", clip(transform.hash(), HASH_SHOWN));
        let note = |said: &str| Some(format!("{misfit}; {name}: {said}"));
        match schema.transformed(transform, value) {
            Ok(output) => match schema.judge(&output, mask) {
                Fit::Fits => Payload { transformed: Some(output), ..Payload::plain(Transformed, Some(format!("{name}: {misfit}"))) },
                Fit::Unfit(why) => Payload::plain(Incompatible, note(&format!("its output does not fit: {why}"))),
                Fit::Unclear(why) => Payload::stuck(misfit, &format!("{name}: {why}")),
            },
            Err(refusal @ Refusal::Limit) => Payload::stuck(misfit, &format!("{name}: {refusal}")),
            // Its own words may quote the payload: they are not kept.
            Err(refusal) => Payload::plain(Incompatible, note(&refusal.to_string())),
        }
    }

    /// The first fence that the message is older than; one whose age nobody knows is older than all.
    fn fence(&self, message: &Candidate) -> Option<&Fence> {
        let at_ms = message.origin_at_ms.filter(|_| !message.timestamp_suspect);
        self.fences.iter().find(|fence| at_ms.is_none_or(|at_ms| at_ms < fence.before_ms))
    }

    /// With the key of the bytes to be sent. Where the message as it is yields one too, both must agree: what the ledger says of the one says nothing of
    /// the other, and a consumer that is idempotent is so by its key.
    fn with_key(&self, message: &Candidate, mut payload: Payload) -> Payload {
        let Some(template) = &self.key else {
            payload.key = Err("no key template is configured".to_owned());
            return payload;
        };
        let nothing = || format!("the key template {} yields nothing for this message", template.source());
        let original = template.render(&message.record);
        let Some(transformed) = &payload.transformed else {
            payload.key = original.ok_or_else(nothing);
            return payload;
        };
        let sent = Record { value: Some(transformed.clone()), ..message.record.clone() };
        payload.key = match (original, template.render(&sent)) {
            (None, None) => Err(nothing()),
            (None, Some(after)) => {
                payload.is_key_made = true;
                Ok(after)
            }
            (Some(before), Some(after)) if before == after => Ok(after),
            (Some(_), _) => {
                payload.beyond_waivers |= self.asks_ledger;
                Err("the transform changes the key, and no waiver is of that".to_owned())
            }
        };
        payload
    }
}

/// A point in time for people, UTC.
fn instant(ms: i64) -> String {
    let at = chrono::DateTime::from_timestamp_millis(ms);
    at.map_or_else(|| ms.to_string(), |at| at.format("%Y-%m-%d %H:%M:%S UTC").to_string())
}
