//! Replays in words: states, verdicts, plans, and how a batch is getting on.

use super::super::{StatusLine, When};
use crate::domain::replay::{BatchState, Forecast, Plan, Progress, Step};
use crate::domain::terms::ReplayTerms;
use crate::domain::verdict::Check;
use crate::store::outcomes::EarlierReplay;
use crate::store::replays::Batch;
use crate::web::view::{format, text};

/// The state of a batch for `m::status`.
pub fn state(batch: &Batch) -> StatusLine {
    let well = batch.progress.returned == 0 && batch.progress.unproven == 0;
    let (kind, word) = match batch.state {
        BatchState::Draft if batch.step == Step::Freezing => ("info", "Being frozen"),
        BatchState::Draft if batch.step != Step::Ready => ("info", "Being checked"),
        BatchState::Draft => ("info", "Draft"),
        BatchState::AwaitingApproval => ("info", "Awaits approval"),
        BatchState::Approved => ("info", "Approved"),
        BatchState::Executing => ("info", "Sending"),
        BatchState::Paused => ("warning", "Paused"),
        BatchState::Executed => ("info", "Sent, being verified"),
        BatchState::Verified if well => ("healthy", "Verified"),
        BatchState::Verified => ("warning", "Verified"),
        BatchState::Halted => ("critical", "Halted"),
        BatchState::Rejected => ("muted", "Rejected"),
        BatchState::Expired => ("muted", "Expired"),
        BatchState::Cancelled => ("muted", "Stopped"),
    };
    StatusLine { kind, word }
}

/// Whether what was found before the approval still is to be weighed, or was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// It is about to be decided on.
    Now,
    /// It was decided on, or never will be: what was found then need not hold any more.
    Then,
}

impl Told {
    pub fn of(state: BatchState) -> Told {
        if matches!(state, BatchState::Draft | BatchState::AwaitingApproval) { Told::Now } else { Told::Then }
    }

    /// The words for now, or those for then.
    pub fn pick<T>(self, now: T, then: T) -> T {
        if self == Told::Now { now } else { then }
    }
}

/// A state as a filter offers it.
pub fn state_name(state: BatchState) -> &'static str {
    match state {
        BatchState::Draft => "draft",
        BatchState::AwaitingApproval => "awaits approval",
        BatchState::Approved => "approved",
        BatchState::Executing => "sending",
        BatchState::Paused => "paused",
        BatchState::Executed => "sent, being verified",
        BatchState::Verified => "verified",
        BatchState::Halted => "halted",
        BatchState::Rejected => "rejected",
        BatchState::Expired => "expired",
        BatchState::Cancelled => "stopped",
    }
}

/// "200 messages", exact.
pub fn messages(count: i64) -> String {
    format::counted(count, "message", "messages")
}

/// An item's state and, where it was sent, what became of it.
pub fn item(state: &str, outcome: Option<&str>, proof: Option<&str>) -> (&'static str, &'static str) {
    match (state, outcome, proof) {
        ("sent", Some("confirmed"), Some("ledger")) => ("healthy", "Applied (ledger)"),
        ("sent", Some("confirmed"), _) => ("healthy", "Passed (offset)"),
        ("sent", Some("returned"), _) => ("critical", "Returned"),
        ("sent", Some("unproven"), _) => ("warning", "Sent, not confirmed"),
        ("sent", ..) => ("info", "Sent, not confirmed yet"),
        ("intended", ..) => ("warning", "Maybe sent, checking"),
        ("already_applied", ..) => ("healthy", "Already applied"),
        ("archived", ..) => ("warning", "Archived"),
        ("held", ..) => ("warning", "Held: needs a person"),
        ("blocked", ..) => ("warning", "Blocked"),
        ("not_sent", ..) => ("muted", "Not sent"),
        _ => ("muted", "Waits"),
    }
}

/// What the preflight said of an item.
pub fn forecast(word: &str) -> &'static str {
    match word {
        "send" => "will be sent",
        "send_unchecked" => "will be sent unchecked",
        "already_applied" => "already applied, nothing sent",
        "incompatible" => "does not fit, will be archived",
        "unsafe" => "partly applied, will be archived",
        "held" => "held: needs a person",
        "blocked" => "blocked by an earlier one of its key",
        _ => "not looked at yet",
    }
}

/// An earlier replay of the same failure.
pub struct EarlierLine {
    pub id: i64,
    pub state: &'static str,
    pub when: When,
    pub proposer: String,
    /// "88 sent, 88 proven, 0 returned"
    pub said: String,
}

impl EarlierLine {
    pub fn of(earlier: &EarlierReplay, now_ms: i64) -> EarlierLine {
        let unproven = match earlier.unproven {
            0 => String::new(),
            n => format!(", {} not confirmed", format::exact(n)),
        };
        let [sent, confirmed, returned] = [earlier.sent, earlier.confirmed, earlier.returned].map(format::exact);
        let said = match earlier.started_at_ms {
            None => "nothing was sent".to_owned(),
            Some(_) => format!("{sent} sent, {confirmed} proven, {returned} returned{unproven}"),
        };
        EarlierLine {
            id: earlier.id,
            state: earlier.state.parse().map_or("in a state of a later version", state_name),
            when: When::of(earlier.started_at_ms.unwrap_or(earlier.created_at_ms), now_ms),
            proposer: text::short_line(&earlier.proposer, 64),
            said,
        }
    }
}

/// A check's name.
pub fn check(check: Check) -> &'static str {
    match check {
        Check::Schema => "schema check",
        Check::Idempotency => "duplicate check",
    }
}

/// What the schema check said, after its label.
pub fn schema_verdict(word: &str) -> &'static str {
    match word {
        "compatible" => "fits today's schema",
        "transformed" => "fits after the transform",
        "incompatible" => "does not fit",
        "could_not_check" => "could not be checked",
        _ => "no schema is configured",
    }
}

/// What the ledger said, after its label.
pub fn idempotency_verdict(word: &str) -> &'static str {
    match word {
        "new" => "not applied yet, as of the look-up",
        "applied" => "already applied",
        "in_progress" => "being applied right now",
        "unsafe" => "partly applied",
        "failed" => "tried and failed: counts as new",
        "could_not_check" => "could not be asked",
        "unprovable" => "can't tell: its record may have expired",
        _ => "no ledger is configured",
    }
}

/// What a form calls a field of the service.
pub fn field(field: &str) -> &'static str {
    match field {
        "reason" => "Reason",
        "why_now" => "Why now",
        "comment" => "Comment",
        "incident" => "Incident",
        "target" => "Target",
        "transform" => "Transform",
        "max_per_second" => "Messages a second",
        "canary" => "First send only",
        "stop_on_returned_pct" => "Halt when more come back",
        "waivers" => "Waivers",
        "unproven" => "Continue unproven",
        "emergency" => "Emergency replay",
        "ticked" => "What to weigh",
        "digest" => "Plan fingerprint",
        "cluster" => "Cluster",
        "form_id" => "This form",
        _ => "Which messages",
    }
}

/// A verdict that a waiver can stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waivable {
    pub check: Check,
    /// The verdict's word.
    pub verdict: &'static str,
    /// The form's field.
    pub field: &'static str,
    pub label: &'static str,
}

impl Waivable {
    /// Whether a message with these verdicts is held by the one that this waives.
    pub fn holds(&self, schema: &str, idempotency: &str) -> bool {
        match self.check {
            Check::Schema => schema == self.verdict,
            Check::Idempotency => idempotency == self.verdict,
        }
    }
}

/// Everything that can be waived.
pub const WAIVABLE: [Waivable; 5] = [
    Waivable {
        check: Check::Schema,
        verdict: "not_configured",
        field: "waive_schema_not_configured",
        label: "Send although no schema is configured",
    },
    Waivable {
        check: Check::Schema,
        verdict: "could_not_check",
        field: "waive_schema_could_not_check",
        label: "Send what the schema check could not check",
    },
    Waivable {
        check: Check::Idempotency,
        verdict: "not_configured",
        field: "waive_idempotency_not_configured",
        label: "Send although no ledger is configured: what was applied already is applied twice",
    },
    Waivable {
        check: Check::Idempotency,
        verdict: "could_not_check",
        field: "waive_idempotency_could_not_check",
        label: "Send what the ledger could not be asked about",
    },
    Waivable {
        check: Check::Idempotency,
        verdict: "unprovable",
        field: "waive_idempotency_unprovable",
        label: "Send what the ledger cannot tell: its record may have expired",
    },
];

/// For people, who never meet a count beyond an `i64`.
pub fn count(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Ends with a full stop.
pub fn sentence(said: &str) -> String {
    let said = text::short_line(said.trim(), 600);
    if said.ends_with(['.', '…', '!', '?']) { said } else { format!("{said}.") }
}

/// A part of the forecast's bar, and its number.
pub struct ForecastPart {
    pub kind: &'static str,
    pub count: i64,
    /// The count, exact.
    pub shown: String,
    pub label: &'static str,
    /// In thousandths of the bar.
    pub from: i64,
    pub width: i64,
    /// The items themselves.
    pub link: Option<String>,
}

/// The forecast as a bar with exact numbers.
pub struct ForecastView {
    pub parts: Vec<ForecastPart>,
    /// "185 will be sent, 12 already applied, ..."
    pub label: String,
}

impl ForecastView {
    /// `path` is the batch's page. What is always of interest is there even where it is 0.
    pub fn of(forecast: &Forecast, path: &str, told: Told) -> ForecastView {
        let unchecked = told.pick("will be sent unchecked, waived", "to be sent unchecked, waived");
        let parts = [
            ("send", forecast.send, told.pick("will be sent", "to be sent"), None, true),
            ("unchecked", forecast.send_unchecked, unchecked, Some("expect_send_unchecked"), false),
            ("applied", forecast.already_applied, "already applied, nothing sent", Some("expect_already_applied"), true),
            ("unfit", forecast.incompatible, "do not fit, archived", Some("expect_incompatible"), true),
            ("partly", forecast.partly_applied, "partly applied, archived", Some("expect_unsafe"), false),
            ("held", forecast.held, "held for a person", Some("expect_held"), true),
            ("blocked", forecast.blocked, "blocked by an earlier one of their key", Some("expect_blocked"), false),
        ];
        let whole = parts.iter().map(|(_, n, ..)| count(*n)).sum::<i64>();
        let mut from = 0;
        let parts: Vec<ForecastPart> = parts
            .into_iter()
            .filter(|(_, n, .., always)| *always || *n > 0)
            .map(|(kind, n, label, list, _)| {
                let n = count(n);
                // What there is can be seen, however little of the whole it is.
                let width = if n == 0 || whole == 0 { 0 } else { (n.saturating_mul(1_000) / whole).max(8) };
                let link = list.filter(|_| n > 0).map(|list| format!("{path}?items={list}#items"));
                let part = ForecastPart { kind, count: n, shown: format::exact(n), label, from, width, link };
                from += width;
                part
            })
            .collect();
        let label = parts.iter().map(|part| format!("{} {}", format::exact(part.count), part.label)).collect::<Vec<_>>().join(", ");
        ForecastView { parts, label }
    }
}

/// A line of a plan.
pub struct PlanLine {
    pub name: &'static str,
    pub value: String,
    pub note: Option<String>,
    pub is_code: bool,
}

/// What was planned, for the page and the review. `terms` are today's; None: no entry covers the DLQ any more.
pub fn plan(batch: &Batch, terms: Option<&ReplayTerms>) -> Vec<PlanLine> {
    let plan = &batch.plan;
    let line = |name, value: String, note: Option<String>| PlanLine { name, value, note, is_code: false };
    let partitions = format::counted(plan.target_partitions.into(), "partition", "partitions");
    let group = match &plan.group {
        Some(group) => format!("{partitions}, read by group {}", text::short_line(group, 120)),
        None => format!("{partitions}; which group reads it is not known, so success cannot be confirmed by offsets"),
    };
    let transform = match &plan.transform {
        Some(filter) => PlanLine { is_code: true, ..line("Transform", text::block(filter), Some("typed for this replay".to_owned())) },
        None => match terms.and_then(|terms| terms.schema.as_ref()).and_then(|schema| schema.transform.as_ref()) {
            Some(path) => line(
                "Transform",
                text::line(&path.display().to_string()),
                Some("of the configuration, used where a payload does not fit as it is".to_owned()),
            ),
            None => line("Transform", "none".to_owned(), None),
        },
    };
    let mut lines = vec![
        PlanLine { is_code: true, ..line("Target", text::line(&plan.target), Some(group)) },
        line("Pace", format!("at most {}/s", format::exact(plan.max_per_second.into())), None),
        line("Canary", steps(plan), None),
        line(
            "Stops when",
            format!("more than {}% of what was sent comes back, and at least 3 did", plan.stop_on_returned_pct),
            Some("or when the checks find more than the larger of 5 messages and 2% off the forecast".to_owned()),
        ),
    ];
    if let Some(forecast) = &batch.forecast {
        let (long, why) = duration(plan, forecast, terms);
        lines.push(line("Takes about", long, Some(why)));
    }
    lines.push(transform);
    for waiver in &plan.waivers {
        lines.push(line(
            "Waived",
            format!("{}: {}", check(waiver.check), waived(waiver.check, &waiver.verdict)),
            Some(format!("because: {}", text::short_line(&waiver.reason, 500))),
        ));
    }
    lines
}

/// What a waiver stands for.
pub fn waived(check: Check, verdict: &str) -> &'static str {
    match check {
        Check::Schema => schema_verdict(verdict),
        Check::Idempotency => idempotency_verdict(verdict),
    }
}

/// "first 10, then 100, then the rest, each step only once the one before is proven".
fn steps(plan: &Plan) -> String {
    match plan.canary {
        0 => "none: everything goes at once".to_owned(),
        canary => {
            format!("first {}, then 10 times as many at each step; each waits until the one before is proven", messages(canary.into()))
        }
    }
}

/// How long it may take, and what that rests on: sending at the pace, and the waits for proof between the steps. How long a ledger takes to say applied is
/// its consumer's affair, so such waits are counted and not measured.
fn duration(plan: &Plan, forecast: &Forecast, terms: Option<&ReplayTerms>) -> (String, String) {
    let to_send = forecast.would_send();
    let sending = count(to_send.div_ceil(plan.max_per_second.max(1).into())).saturating_mul(1_000);
    let (waits, pace) =
        (waits(u64::from(plan.canary), to_send), "Slower while its checks, its consumers or other replays to this topic are");
    let Some(terms) = terms.filter(|_| waits > 0) else {
        return (format!("{} of sending", format::age(sending)), format!("{pace}."));
    };
    let age_s = |seconds: u64| format::age(count(seconds).saturating_mul(1_000));
    let by_offset = plan.group.is_some() && terms.returns_traceable;
    let times = format::counted(waits, "wait", "waits");
    match (terms.idempotency.is_some(), by_offset) {
        (true, _) => {
            let rest = match by_offset {
                true => format!("; what it does not name waits for its consumer group and {} more", age_s(terms.verify_after_s)),
                false => String::new(),
            };
            let said = format!("A wait ends within seconds of the ledger saying applied of every message of the step{rest}. {pace}.");
            (format!("{} of sending, and {times} for proof", format::age(sending)), said)
        }
        (false, true) => {
            let proof = count(terms.verify_after_s).saturating_mul(1_000);
            let whole = sending.saturating_add(proof.saturating_mul(waits));
            let said = format!("{} of sending, and {times} of about {} for proof. {pace}.", format::age(sending), format::age(proof));
            (format::age(whole), said)
        }
        (false, false) => {
            let said = format!("Nothing can prove its canary: after {} of waiting it pauses for that.", age_s(terms.canary_timeout_s));
            (format!("{} of sending, and until an approver lets it go on unproven", format::age(sending)), said)
        }
    }
}

/// How often a batch waits for a step's proof before it goes on.
fn waits(canary: u64, to_send: u64) -> i64 {
    let (mut step, mut sent, mut waits) = (canary, canary, 0);
    while canary > 0 && sent < to_send {
        waits += 1;
        step = step.saturating_mul(10);
        sent = sent.saturating_add(step);
    }
    waits
}

/// What became of everything, as a sum: "12 already applied + 3 archived + 185 sent = 200 messages".
pub fn sum(progress: &Progress) -> String {
    let parts = [
        (progress.already_applied, "already applied"),
        (progress.archived, "archived"),
        (progress.held, "held"),
        (progress.blocked, "blocked"),
        (progress.not_sent, "not sent"),
        (progress.sent, "sent"),
    ];
    let waiting = progress.items - progress.done();
    let parts = parts.into_iter().chain([(waiting, "not decided")]).filter(|(n, _)| *n > 0);
    let parts: Vec<String> = parts.map(|(n, what)| format!("{} {what}", format::exact(n))).collect();
    match parts.is_empty() {
        true => format!("{}.", messages(progress.items)),
        false => format!("{} = {}.", parts.join(" + "), messages(progress.items)),
    }
}

/// What is proven of what was sent: "185 sent: 180 applied (ledger), 5 passed (offset)."
pub fn proofs(progress: &Progress) -> Option<String> {
    let parts = [
        (progress.confirmed_ledger, "applied (ledger)"),
        (progress.confirmed_offset, "passed (offset)"),
        (progress.returned, "returned"),
        (progress.unproven, "sent, not confirmed"),
        (progress.pending(), "not confirmed yet"),
    ];
    let parts = parts.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{} {what}", format::exact(n)));
    let parts = parts.collect::<Vec<_>>().join(", ");
    let unchecked = match progress.sent_unchecked {
        0 => String::new(),
        n => format!(" {} went without a check, as waived.", format::exact(n)),
    };
    (progress.sent > 0).then(|| format!("Of {} sent: {parts}.{unchecked}", format::exact(progress.sent)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::verdict::{Conclusion, IdempotencyVerdict, SchemaVerdict};

    #[test]
    fn the_worked_example_adds_up_in_words() {
        let progress = Progress {
            items: 200,
            checked: 200,
            sent: 185,
            already_applied: 12,
            archived: 3,
            confirmed_ledger: 185,
            ..Progress::default()
        };
        assert_eq!(sum(&progress), "12 already applied + 3 archived + 185 sent = 200 messages.");
        assert_eq!(proofs(&progress).unwrap(), "Of 185 sent: 185 applied (ledger).");
    }

    #[test]
    fn what_is_not_decided_stays_in_the_sum() {
        let progress = Progress { items: 10, sent: 4, held: 1, sent_unchecked: 4, unproven: 1, ..Progress::default() };
        assert_eq!(sum(&progress), "1 held + 4 sent + 5 not decided = 10 messages.");
        assert_eq!(proofs(&progress).unwrap(), "Of 4 sent: 1 sent, not confirmed, 3 not confirmed yet. 4 went without a check, as waived.");
        assert_eq!(sum(&Progress::default()), "0 messages.");
        assert_eq!(proofs(&Progress::default()), None);
    }

    #[test]
    fn what_can_be_waived_is_what_the_verdicts_say() {
        let schema = SchemaVerdict::ALL.map(|verdict| (Check::Schema, verdict.as_str(), verdict.conclusion()));
        let idempotency = IdempotencyVerdict::ALL.map(|verdict| (Check::Idempotency, verdict.as_str(), verdict.conclusion()));
        let waivable = schema.into_iter().chain(idempotency).filter(|(.., conclusion)| *conclusion == Conclusion::Held { waivable: true });
        let mut waivable: Vec<_> = waivable.map(|(check, word, _)| (check, word)).collect();
        let mut offered: Vec<_> = WAIVABLE.iter().map(|waivable| (waivable.check, waivable.verdict)).collect();
        waivable.sort_unstable();
        offered.sort_unstable();
        assert_eq!(offered, waivable);
    }

    #[test]
    fn steps_wait_for_proof_as_often_as_they_grow() {
        for (canary, to_send, expected) in [(0, 200, 0), (10, 10, 0), (10, 11, 1), (10, 110, 1), (10, 111, 2), (10, 1_111, 3), (1, 0, 0)] {
            assert_eq!(waits(canary, to_send), expected, "{to_send} with a canary of {canary}");
        }
    }

    #[test]
    fn how_long_it_takes_is_what_can_be_known() {
        let mut plan = Plan {
            target: "payments".into(),
            target_id: None,
            target_partitions: 1,
            group: Some("wallet".into()),
            transform: None,
            max_per_second: 50,
            canary: 10,
            stop_on_returned_pct: 5,
            waivers: Vec::new(),
        };
        let forecast = Forecast { send: 185, ..Forecast::default() };
        let key = crate::domain::template::KeyTemplate::parse("{key}").expect("a template");
        let ledger = crate::domain::terms::Idempotency { ledger: "wallet".into(), key };
        let with_ledger = ReplayTerms { idempotency: Some(ledger), ..ReplayTerms::default() };
        let without = ReplayTerms::default();
        let (long, why) = duration(&plan, &forecast, Some(&with_ledger));
        assert_eq!(long, "4s of sending, and 2 waits for proof");
        assert!(why.contains("within seconds of the ledger saying applied") && why.contains("its consumer group and 5m more"), "{why}");
        let (long, why) = duration(&plan, &forecast, Some(&without));
        assert_eq!(long, "10m 4s");
        assert!(why.starts_with("4s of sending, and 2 waits of about 5m for proof."), "{why}");
        plan.group = None;
        let (long, why) = duration(&plan, &forecast, Some(&without));
        assert!(long.contains("until an approver lets it go on") && why.contains("after 10m"), "{long}: {why}");
        assert!(!duration(&plan, &forecast, Some(&with_ledger)).1.contains("consumer group"));
        plan.canary = 0;
        assert_eq!(duration(&plan, &forecast, Some(&with_ledger)).0, "4s of sending");
    }

    #[test]
    fn a_forecast_is_always_exact_and_a_little_is_seen() {
        let forecast = Forecast { send: 12_431, already_applied: 1, ..Forecast::default() };
        let view = ForecastView::of(&forecast, "/replays/7", Told::Now);
        assert_eq!(view.label, "12,431 will be sent, 1 already applied, nothing sent, 0 do not fit, archived, 0 held for a person");
        assert_eq!(view.parts[1].width, 8);
        assert_eq!(view.parts[1].link.as_deref(), Some("/replays/7?items=expect_already_applied#items"));
        assert_eq!(view.parts[2].link, None);
        let then = ForecastView::of(&forecast, "/replays/7", Told::Then);
        assert!(then.label.starts_with("12,431 to be sent, "), "what was forecast promises nothing any more: {}", then.label);
    }
}
