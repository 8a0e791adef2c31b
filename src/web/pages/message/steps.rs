//! The history of a message and the evidence of its checks, in words.

use crate::domain::lifecycle::Move;
use crate::store::transitions::{FOLLOW_UP_CLOSED, Transition};
use crate::store::verdicts::Verdict;
use crate::web::pages::{When, words};
use crate::web::view::{format, text};

/// A step of the history.
pub struct StepLine {
    pub what: String,
    pub when: When,
    pub who: String,
    pub reason: Option<String>,
    pub batch: Option<i64>,
    pub review: Option<i64>,
}

/// The verdicts of one look at a message.
pub struct VerdictLine {
    pub when: When,
    /// "before the approval", "right before sending".
    pub phase: String,
    pub batch: i64,
    pub decision: String,
    pub schema: String,
    pub schema_note: Option<String>,
    pub idempotency: String,
    pub asked: Option<String>,
    pub answered: Option<String>,
    pub others: Option<String>,
}

fn exactly(at_ms: i64, now_ms: i64) -> When {
    When { utc: format::utc_exact(at_ms), ..When::of(at_ms, now_ms) }
}

/// A step in words; a word of a later version stands for itself.
fn step_words(word: &str) -> String {
    let Some(movement) = Move::ALL.into_iter().find(|movement| movement.as_str() == word) else {
        return if word == FOLLOW_UP_CLOSED { "follow-up closed".to_owned() } else { words(word) };
    };
    let said = match movement {
        Move::TakenUp => "taken up for review",
        Move::Released => "released: back in quarantine",
        Move::LineDrawn => "archived: a line was drawn under it",
        Move::Retention => "archived: nobody addressed it in time",
        Move::NoiseRule => "archived by a rule about noise",
        Move::Archived => "archived",
        Move::CheckBegun => "checks begun",
        Move::SchemaFits => "schema fits",
        Move::SchemaUnfit => "archived: does not fit the schema",
        Move::Held => "held: needs a person",
        Move::NotSent => "not sent, and proven absent",
        Move::Sent => "sent",
        Move::AlreadyApplied => "already applied: nothing was sent",
        Move::Unsafe => "archived: partly applied",
        Move::Restored => "restored",
    };
    said.to_owned()
}

/// Newest first.
pub fn steps(history: &[Transition], now_ms: i64) -> Vec<StepLine> {
    let line = |step: &Transition| StepLine {
        what: step_words(&step.movement),
        when: exactly(step.at_ms, now_ms),
        who: text::short_line(&step.actor, 64),
        reason: step.reason.as_deref().map(|reason| text::cut_block(reason, super::TEXT_CAP)),
        batch: step.batch_id,
        review: step.review_id,
    };
    history.iter().rev().map(line).collect()
}

/// Why a message is held, where it is: its last step says so.
pub fn held_because(history: &[Transition]) -> Option<&str> {
    let last = history.last()?;
    [Move::Held, Move::NotSent].iter().any(|movement| movement.as_str() == last.movement).then_some(())?;
    last.reason.as_deref()
}

/// Newest first, as they come.
pub fn verdicts(verdicts: &[Verdict], now_ms: i64) -> Vec<VerdictLine> {
    let cut = |text: &Option<String>| text.as_deref().map(|text| text::cut_block(text, 2_000));
    let line = |verdict: &Verdict| VerdictLine {
        when: exactly(verdict.at_ms, now_ms),
        phase: match verdict.phase.as_str() {
            "preflight" => "before the approval".to_owned(),
            "sending" => "right before sending".to_owned(),
            "in_doubt" => "before it is sent again".to_owned(),
            other => words(other),
        },
        batch: verdict.batch_id,
        decision: words(&verdict.decision),
        schema: words(&verdict.schema),
        schema_note: cut(&verdict.schema_note),
        idempotency: words(&verdict.idempotency),
        asked: cut(&verdict.asked),
        answered: cut(&verdict.answered),
        others: verdict.others.as_deref().and_then(others),
    };
    verdicts.iter().map(line).collect()
}

/// "audit: new, fraud: applied", out of the stored JSON list of [group, verdict].
fn others(stored: &str) -> Option<String> {
    let pairs: Vec<(String, String)> = serde_json::from_str(stored).ok()?;
    let said: Vec<String> = pairs.iter().map(|(group, verdict)| format!("{}: {}", text::short_line(group, 80), words(verdict))).collect();
    (!said.is_empty()).then(|| said.join(", "))
}
