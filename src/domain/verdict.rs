//! What the two checks before a replay say, and what follows from it.

use serde::{Deserialize, Serialize};

use super::terms::{ExpiredClaim, Ledger, RedisLedger};

/// Whether a payload fits what the consumer expects today.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SchemaVerdict {
    Compatible,
    /// Fits after a named transform.
    Transformed,
    Incompatible,
    CouldNotCheck,
    NotConfigured,
}

impl SchemaVerdict {
    pub const ALL: [SchemaVerdict; 5] = [
        SchemaVerdict::Compatible,
        SchemaVerdict::Transformed,
        SchemaVerdict::Incompatible,
        SchemaVerdict::CouldNotCheck,
        SchemaVerdict::NotConfigured,
    ];

    /// The word in the database and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            SchemaVerdict::Compatible => "compatible",
            SchemaVerdict::Transformed => "transformed",
            SchemaVerdict::Incompatible => "incompatible",
            SchemaVerdict::CouldNotCheck => "could_not_check",
            SchemaVerdict::NotConfigured => "not_configured",
        }
    }

    /// What follows. Only [`Conclusion::Held`] can be waived.
    pub fn conclusion(self) -> Conclusion {
        match self {
            SchemaVerdict::Compatible | SchemaVerdict::Transformed => Conclusion::Passed,
            SchemaVerdict::Incompatible => Conclusion::Archive,
            SchemaVerdict::CouldNotCheck | SchemaVerdict::NotConfigured => Conclusion::Held { waivable: true },
        }
    }
}

/// Whether a message was already applied downstream, as of the look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdempotencyVerdict {
    New,
    Applied,
    InProgress,
    /// The ledger positively calls it partly applied.
    Unsafe,
    /// The ledger says that it was tried and failed: counts as new.
    Failed,
    CouldNotCheck,
    /// The ledger's silence proves nothing: its record may have expired.
    Unprovable,
    NotConfigured,
}

impl IdempotencyVerdict {
    pub const ALL: [IdempotencyVerdict; 8] = [
        IdempotencyVerdict::New,
        IdempotencyVerdict::Applied,
        IdempotencyVerdict::InProgress,
        IdempotencyVerdict::Unsafe,
        IdempotencyVerdict::Failed,
        IdempotencyVerdict::CouldNotCheck,
        IdempotencyVerdict::Unprovable,
        IdempotencyVerdict::NotConfigured,
    ];

    /// The word in the database and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            IdempotencyVerdict::New => "new",
            IdempotencyVerdict::Applied => "applied",
            IdempotencyVerdict::InProgress => "in_progress",
            IdempotencyVerdict::Unsafe => "unsafe",
            IdempotencyVerdict::Failed => "failed",
            IdempotencyVerdict::CouldNotCheck => "could_not_check",
            IdempotencyVerdict::Unprovable => "unprovable",
            IdempotencyVerdict::NotConfigured => "not_configured",
        }
    }

    /// What follows. Somebody at work on it right now is held and never waived.
    pub fn conclusion(self) -> Conclusion {
        match self {
            IdempotencyVerdict::New | IdempotencyVerdict::Failed => Conclusion::Passed,
            IdempotencyVerdict::Applied => Conclusion::AlreadyApplied,
            IdempotencyVerdict::Unsafe => Conclusion::Archive,
            IdempotencyVerdict::InProgress => Conclusion::Held { waivable: false },
            IdempotencyVerdict::CouldNotCheck | IdempotencyVerdict::Unprovable | IdempotencyVerdict::NotConfigured => {
                Conclusion::Held { waivable: true }
            }
        }
    }
}

/// What a verdict means for the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conclusion {
    Passed,
    AlreadyApplied,
    /// Archived with a note, follow-up open.
    Archive,
    /// A person is needed.
    Held {
        waivable: bool,
    },
}

/// Which of the two checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    Schema,
    Idempotency,
}

impl Check {
    /// The word in the database and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Check::Schema => "schema",
            Check::Idempotency => "idempotency",
        }
    }
}

/// The result of both checks on one message: the evidence, and the bytes that would be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    pub message_id: i64,
    /// When the look-up was made, ms.
    pub at_ms: i64,
    pub schema: SchemaVerdict,
    /// What did not fit, which fence, which transform (by its hash), why it could not be checked. For display.
    pub schema_note: Option<String>,
    /// The output of the transform, if one was used; None: the original bytes go.
    pub transformed: Option<Vec<u8>>,
    pub idempotency: IdempotencyVerdict,
    /// The key the ledger was asked for, exact. None: it could not be built.
    pub asked: Option<String>,
    /// What the ledger answered, or why it could not: for display, never a secret.
    pub answered: Option<String>,
    /// Other groups that read the target (`also_read_by`): the group and its verdict.
    pub others: Vec<(String, IdempotencyVerdict)>,
    /// It is known what is wrong, so no waiver of a check that could not run is of this: the payload does not fit as it is and its transform could not
    /// be used, or the transform changes the key.
    pub beyond_waivers: bool,
}

/// A waiver of a check for one batch: who goes on without it takes it upon them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiver {
    pub check: Check,
    /// The word of the verdict that is waived, such as `not_configured`.
    pub verdict: String,
    /// Why; typed by the proposer, part of the digest.
    pub reason: String,
}

/// What happens to a message in a batch with these waivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    Send,
    /// Sent without a check that could not run: waived.
    SendUnchecked,
    AlreadyApplied,
    /// The payload does not fit.
    Incompatible,
    /// Partly applied.
    Unsafe,
    Held,
}

impl Decision {
    /// The word in the database and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Decision::Send => "send",
            Decision::SendUnchecked => "send_unchecked",
            Decision::AlreadyApplied => "already_applied",
            Decision::Incompatible => "incompatible",
            Decision::Unsafe => "unsafe",
            Decision::Held => "held",
        }
    }
}

impl Checked {
    /// What follows from both checks. `idempotent_consumer`: the DLQ's standing waiver (`consumer_is_idempotent`) of the idempotency check.
    /// What is [`Checked::beyond_waivers`] is held.
    ///
    /// In the order of the states: first the schema, then the ledger.
    pub fn decision(&self, waivers: &[Waiver], idempotent_consumer: bool) -> Decision {
        let (waivers, idempotent_consumer) = if self.beyond_waivers { (&[][..], false) } else { (waivers, idempotent_consumer) };
        let waived = |check: Check, verdict: &str| waivers.iter().any(|waiver| waiver.check == check && waiver.verdict == verdict);
        let schema_unchecked = match self.schema.conclusion() {
            Conclusion::Archive => return Decision::Incompatible,
            Conclusion::Passed | Conclusion::AlreadyApplied => false,
            Conclusion::Held { waivable } if waivable && waived(Check::Schema, self.schema.as_str()) => true,
            Conclusion::Held { .. } => return Decision::Held,
        };
        let idempotency = self.idempotency;
        let idempotency_unchecked = match idempotency.conclusion() {
            Conclusion::AlreadyApplied => return Decision::AlreadyApplied,
            Conclusion::Archive => return Decision::Unsafe,
            Conclusion::Passed => false,
            Conclusion::Held { waivable } if waivable && (idempotent_consumer || waived(Check::Idempotency, idempotency.as_str())) => true,
            Conclusion::Held { .. } => return Decision::Held,
        };
        if schema_unchecked || idempotency_unchecked { Decision::SendUnchecked } else { Decision::Send }
    }
}

/// What a Redis says of itself: what decides whether an absent key proves anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisFacts {
    /// None: it will not say.
    pub version: Option<String>,
    /// Seconds since it started. None: it will not say.
    pub uptime_s: Option<u64>,
    /// `maxmemory-policy`; anything but `noeviction` throws keys away when memory is short. None: it will not say.
    pub eviction_policy: Option<String>,
}

/// What one tier of a ledger says of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TierAnswer {
    Done,
    Partial,
    Failed,
    /// Claimed and not finished. `age_s` in seconds; None: the tier does not tell.
    InProgress {
        age_s: Option<u64>,
    },
    Absent,
    /// It could not be asked, or said what means nothing: why, for display, without a secret.
    Unclear(String),
}

impl TierAnswer {
    fn words(&self) -> String {
        match self {
            TierAnswer::Done => "done".to_owned(),
            TierAnswer::Partial => "partly applied".to_owned(),
            TierAnswer::Failed => "failed".to_owned(),
            TierAnswer::InProgress { age_s: Some(age_s) } => format!("in progress for {age_s} s"),
            TierAnswer::InProgress { age_s: None } => "in progress".to_owned(),
            TierAnswer::Absent => "absent".to_owned(),
            TierAnswer::Unclear(why) => why.clone(),
        }
    }
}

/// What the tiers of one ledger say of one key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LedgerAnswer {
    /// None: there is no hot tier.
    pub hot: Option<TierAnswer>,
    /// None: there is no durable tier, or the hot one settled it.
    pub durable: Option<TierAnswer>,
    /// Of the hot tier, read with the key. None: there is none, or it could not be asked.
    pub facts: Option<RedisFacts>,
}

/// Timestamps further ahead than this are no timestamps (PROTOCOLS 3).
const AHEAD_MS: i64 = 5 * 60_000;

/// A message's age in seconds, rounded up, as far as a ledger's memory is concerned. None: not known, which counts as too old for every ledger that forgets.
pub fn message_age_s(origin_at_ms: Option<i64>, timestamp_suspect: bool, now_ms: i64) -> Option<u64> {
    let at_ms = origin_at_ms.filter(|at_ms| !timestamp_suspect && *at_ms > 0 && *at_ms <= now_ms.saturating_add(AHEAD_MS))?;
    Some(u64::try_from(now_ms.saturating_sub(at_ms).max(0)).unwrap_or(0).div_ceil(1_000))
}

/// Whether the durable tier has a say: the hot one alone settles what it calls done, partly applied, or claimed.
pub fn asks_durable(ledger: &Ledger, hot: &TierAnswer) -> bool {
    match hot {
        TierAnswer::Done | TierAnswer::Partial => false,
        TierAnswer::InProgress { age_s } => may_retry(ledger, *age_s),
        TierAnswer::Failed | TierAnswer::Absent | TierAnswer::Unclear(_) => true,
    }
}

/// Whether a claim of this age is one that the ledger declares abandoned.
fn may_retry(ledger: &Ledger, age_s: Option<u64>) -> bool {
    let lease_s = ledger.hot.as_ref().map_or(u64::MAX, |hot| hot.claim_lease_s);
    ledger.expired_claim == ExpiredClaim::Retry && age_s.is_some_and(|age_s| age_s > lease_s)
}

/// The verdict of one ledger on one message, and its answer in words (PROTOCOLS 4).
///
/// What the hot tier positively says stands. For the rest the durable tier decides, and only what both have nothing against is new. Where there is no
/// durable tier, silence of the hot one counts only for a message that it cannot have forgotten.
pub fn idempotency(ledger: &Ledger, answer: &LedgerAnswer, age_s: Option<u64>) -> (IdempotencyVerdict, String) {
    use IdempotencyVerdict::{Applied, CouldNotCheck, Failed, InProgress, New, Unsafe};
    let words = in_words(answer);
    let by_durable = match answer.durable.as_ref() {
        Some(TierAnswer::Done) => Some(Applied),
        Some(TierAnswer::Partial) => Some(Unsafe),
        Some(TierAnswer::InProgress { .. }) => Some(InProgress),
        Some(TierAnswer::Unclear(_)) => Some(CouldNotCheck),
        None if ledger.durable.is_some() => Some(CouldNotCheck),
        Some(TierAnswer::Failed | TierAnswer::Absent) | None => None,
    };
    let verdict = match (answer.hot.as_ref(), by_durable) {
        (Some(TierAnswer::Done), _) => Applied,
        (Some(TierAnswer::Partial), _) => Unsafe,
        (Some(TierAnswer::InProgress { age_s }), _) if !may_retry(ledger, *age_s) => InProgress,
        (_, Some(verdict)) => verdict,
        (Some(TierAnswer::Unclear(_)), None) => CouldNotCheck,
        (Some(TierAnswer::Failed), None) => Failed,
        (Some(TierAnswer::InProgress { .. }), None) => New,
        (Some(TierAnswer::Absent) | None, None) => match (&answer.durable, &ledger.hot) {
            (Some(TierAnswer::Failed), _) => Failed,
            (Some(_), _) => New,
            (None, Some(hot)) => match why_silence_proves_nothing(hot, answer.facts.as_ref(), age_s) {
                Some(why) => return (IdempotencyVerdict::Unprovable, format!("{words}; {why}")),
                None => New,
            },
            // A ledger without tiers is refused by the configuration.
            (None, None) => IdempotencyVerdict::NotConfigured,
        },
    };
    (verdict, words)
}

/// "hot: absent; durable: done"
fn in_words(answer: &LedgerAnswer) -> String {
    let tiers = [("hot", &answer.hot), ("durable", &answer.durable)];
    let said: Vec<String> = tiers.iter().filter_map(|(tier, said)| Some(format!("{tier}: {}", said.as_ref()?.words()))).collect();
    said.join("; ")
}

/// Why a key that is not in this Redis may have been there. None: it cannot have been.
fn why_silence_proves_nothing(hot: &RedisLedger, facts: Option<&RedisFacts>, age_s: Option<u64>) -> Option<String> {
    let Some(age_s) = age_s else { return Some("when the event happened is not known, so its record may have expired".to_owned()) };
    let kept_s = hot.ttl_s.saturating_sub(hot.margin_s);
    if age_s > kept_s {
        return Some(format!("the message is {age_s} s old and records are sure for {kept_s} s only"));
    }
    match facts.and_then(|facts| facts.uptime_s) {
        None => return Some("Redis will not say when it started (INFO server), so records may be lost".to_owned()),
        Some(up_s) if up_s < age_s => return Some(format!("Redis started {up_s} s ago, the message is {age_s} s old")),
        Some(_) => {}
    }
    match facts.and_then(|facts| facts.eviction_policy.as_deref()) {
        None => Some("Redis will not say whether it throws keys away (CONFIG GET maxmemory-policy)".to_owned()),
        Some("noeviction") => None,
        Some(policy) => Some(format!("Redis throws keys away when memory is short (maxmemory-policy {policy})")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::settings::Secret;
    use crate::domain::terms::Tier;
    use IdempotencyVerdict::{Applied, CouldNotCheck, Failed, InProgress, New, NotConfigured, Unprovable, Unsafe};

    const DAY: u64 = 86_400;

    fn ledger(durable: bool, expired_claim: ExpiredClaim) -> Ledger {
        let hot = RedisLedger {
            url: Secret::new("redis://h"),
            key: "{id}".to_owned(),
            done: Vec::new(),
            in_progress: Vec::new(),
            failed: Vec::new(),
            partial: Vec::new(),
            ttl_s: DAY,
            margin_s: 3_600,
            claim_lease_s: 300,
        };
        let durable = durable.then(|| Tier::Http { url: Secret::new("http://h") });
        Ledger { expired_claim, hot: Some(hot), durable }
    }

    fn facts(uptime_s: Option<u64>, policy: Option<&str>) -> Option<RedisFacts> {
        Some(RedisFacts { version: None, uptime_s, eviction_policy: policy.map(str::to_owned) })
    }

    fn steady() -> Option<RedisFacts> {
        facts(Some(30 * DAY), Some("noeviction"))
    }

    fn unclear() -> TierAnswer {
        TierAnswer::Unclear("no answer within 5 s".to_owned())
    }

    #[test]
    fn what_the_hot_tier_says_and_what_its_silence_proves() {
        let claim = |age_s| TierAnswer::InProgress { age_s };
        let young = Some(600);
        let table = [
            ("K3 done", TierAnswer::Done, steady(), young, Applied),
            ("K3 in progress", claim(None), steady(), young, InProgress),
            ("K3 failed counts as new", TierAnswer::Failed, steady(), young, Failed),
            ("partly applied", TierAnswer::Partial, steady(), young, Unsafe),
            ("absent, young, steady", TierAnswer::Absent, steady(), young, New),
            ("K4 down", unclear(), None, young, CouldNotCheck),
            ("K5 three days old", TierAnswer::Absent, steady(), Some(3 * DAY), Unprovable),
            ("the last second that proves", TierAnswer::Absent, steady(), Some(DAY - 3_600), New),
            ("within the margin", TierAnswer::Absent, steady(), Some(DAY - 3_599), Unprovable),
            ("age unknown", TierAnswer::Absent, steady(), None, Unprovable),
            ("K8 restarted 10 min ago, 1 h old", TierAnswer::Absent, facts(Some(600), Some("noeviction")), Some(3_600), Unprovable),
            ("up just as long", TierAnswer::Absent, facts(Some(600), Some("noeviction")), young, New),
            ("will not say since when", TierAnswer::Absent, facts(None, Some("noeviction")), young, Unprovable),
            ("evicts", TierAnswer::Absent, facts(Some(30 * DAY), Some("allkeys-lru")), young, Unprovable),
            ("evicts what has a TTL", TierAnswer::Absent, facts(Some(30 * DAY), Some("volatile-ttl")), young, Unprovable),
            ("will not say whether it evicts", TierAnswer::Absent, facts(Some(30 * DAY), None), young, Unprovable),
            ("says nothing of itself", TierAnswer::Absent, None, young, Unprovable),
            ("positive words need no proof", TierAnswer::Done, None, None, Applied),
            ("nor do these", TierAnswer::Failed, None, None, Failed),
        ];
        for (case, hot, facts, age_s, verdict) in table {
            let answer = LedgerAnswer { hot: Some(hot), durable: None, facts };
            let (said, words) = idempotency(&ledger(false, ExpiredClaim::Hold), &answer, age_s);
            assert_eq!(said, verdict, "{case}: {words}");
        }
    }

    #[test]
    fn a_claim_past_its_lease_is_what_the_ledger_declares() {
        for (age_s, declared, verdict) in [
            (Some(300), ExpiredClaim::Retry, InProgress),
            (Some(301), ExpiredClaim::Retry, New),
            (Some(301), ExpiredClaim::Hold, InProgress),
            (None, ExpiredClaim::Retry, InProgress),
        ] {
            let answer = LedgerAnswer { hot: Some(TierAnswer::InProgress { age_s }), durable: None, facts: steady() };
            assert_eq!(idempotency(&ledger(false, declared), &answer, Some(600)).0, verdict, "{age_s:?} {declared:?}");
        }
    }

    #[test]
    fn the_durable_tier_has_the_last_word_on_what_the_hot_one_does_not_know() {
        let expired = TierAnswer::InProgress { age_s: Some(900) };
        let old = Some(30 * DAY);
        let table = [
            ("K6 hot tier flushed", TierAnswer::Absent, Some(TierAnswer::Done), Applied),
            ("in neither, however old", TierAnswer::Absent, Some(TierAnswer::Absent), New),
            ("durable failed", TierAnswer::Absent, Some(TierAnswer::Failed), Failed),
            ("durable partly applied", TierAnswer::Absent, Some(TierAnswer::Partial), Unsafe),
            ("durable in progress", TierAnswer::Absent, Some(TierAnswer::InProgress { age_s: None }), InProgress),
            ("durable down", TierAnswer::Absent, Some(unclear()), CouldNotCheck),
            ("durable not asked after all", TierAnswer::Absent, None, CouldNotCheck),
            ("hot failed, durable done", TierAnswer::Failed, Some(TierAnswer::Done), Applied),
            ("hot failed, durable absent", TierAnswer::Failed, Some(TierAnswer::Absent), Failed),
            ("hot failed, durable down", TierAnswer::Failed, Some(unclear()), CouldNotCheck),
            ("expired claim, durable done", expired.clone(), Some(TierAnswer::Done), Applied),
            ("expired claim, durable absent", expired, Some(TierAnswer::Absent), New),
            ("hot down, durable done", unclear(), Some(TierAnswer::Done), Applied),
            ("hot down, a claim would not be seen", unclear(), Some(TierAnswer::Absent), CouldNotCheck),
            ("hot done", TierAnswer::Done, None, Applied),
            ("hot in progress", TierAnswer::InProgress { age_s: None }, None, InProgress),
        ];
        let ledger = ledger(true, ExpiredClaim::Retry);
        for (case, hot, durable, verdict) in table {
            assert!(durable.is_none() || asks_durable(&ledger, &hot), "{case}: is asked");
            let answer = LedgerAnswer { hot: Some(hot), durable, facts: None };
            assert_eq!(idempotency(&ledger, &answer, old).0, verdict, "{case}");
        }
        let alone = Ledger { hot: None, ..ledger };
        let answer = LedgerAnswer { hot: None, durable: Some(TierAnswer::Absent), facts: None };
        assert_eq!(idempotency(&alone, &answer, None).0, New, "a durable ledger does not forget");
        assert_eq!(idempotency(&Ledger { durable: None, ..alone }, &LedgerAnswer::default(), Some(1)).0, NotConfigured);
    }

    #[test]
    fn an_age_that_nobody_can_trust_is_none() {
        const NOW: i64 = 1_796_083_200_000;
        for (origin, suspect, age) in [
            (Some(NOW - 1_000), false, Some(1)),
            (Some(NOW - 1_001), false, Some(2)),
            (Some(NOW + 60_000), false, Some(0)),
            (Some(NOW + 360_000), false, None),
            (Some(NOW - 1_000), true, None),
            (Some(0), false, None),
            (None, false, None),
        ] {
            assert_eq!(message_age_s(origin, suspect, NOW), age, "{origin:?} {suspect}");
        }
    }
}
