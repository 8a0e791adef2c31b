//! What speaks against a replay, in words: while it is to be decided on, and afterwards, when it is what was weighed.

use super::words::{Told, check, count, messages, sentence};
use crate::domain::replay::Warning;
use crate::store::replays::Batch;
use crate::web::view::{format, text};

/// Something to weigh, for a note with a label.
pub struct WarningLine {
    pub kind: &'static str,
    pub label: &'static str,
    pub said: String,
    /// Lines to be pasted into the configuration.
    pub lines: Option<String>,
    /// The box that an approver must tick; None: nothing is to be accepted, or not any more.
    pub tick: Option<Tick>,
}

/// A box to be ticked.
pub struct Tick {
    pub field: String,
    pub label: String,
}

/// The form's field of the box for the warning at this place.
pub fn tick(place: usize) -> String {
    format!("tick_{place}")
}

/// Asks the proposer why now, by what speaks against it; None: nothing does.
pub fn why_now(warnings: &[Warning]) -> Option<String> {
    let against = |warning: &Warning| match warning {
        Warning::CauseActive { .. } => "it still fails",
        Warning::GroupEmpty { .. } => "nobody reads the target",
        _ => "its warnings speak against it",
    };
    let reasons: Vec<&str> = warnings.iter().filter(|warning| warning.asks_why_now()).map(against).collect();
    (!reasons.is_empty()).then(|| format!("Why now, although {}?", reasons.join(" and ")))
}

/// The warnings of a batch.
pub fn lines(batch: &Batch) -> Vec<WarningLine> {
    let told = Told::of(batch.state);
    let line = |(place, warning): (usize, &Warning)| {
        let (kind, label, said) = told_of(warning, told);
        let accepted = batch.approved_at_ms.filter(|_| told == Told::Then).and_then(|_| accepted(warning));
        WarningLine {
            kind,
            label,
            said: accepted.map_or(said.clone(), |accepted| format!("{said} {accepted}")),
            lines: match warning {
                Warning::CheckMissing { lines, .. } if told == Told::Now => Some(text::block(lines)),
                _ => None,
            },
            tick: to_accept(warning).filter(|_| told == Told::Now).map(|label| Tick { field: tick(place), label }),
        }
    };
    batch.warnings.iter().enumerate().map(line).collect()
}

/// What an approver must accept by a tick.
fn to_accept(warning: &Warning) -> Option<String> {
    match warning {
        Warning::AlsoReadBy { group, items, .. } => {
            Some(format!("I accept that {} may get {} twice", name(group), messages(count(*items))))
        }
        _ => None,
    }
}

/// That it was accepted.
fn accepted(warning: &Warning) -> Option<&'static str> {
    matches!(warning, Warning::AlsoReadBy { .. }).then_some("Who approved it accepted that they may get there twice.")
}

fn name(name: &str) -> String {
    text::short_line(name, 120)
}

/// Kind, label and sentence.
fn told_of(warning: &Warning, told: Told) -> (&'static str, &'static str, String) {
    match warning {
        Warning::CauseActive { arrivals } => {
            let failures = format::counted(count(*arrivals), "new failure", "new failures");
            let said = told.pick(
                format!("It still fails: {failures} of the same kind in the last 15 minutes. What is sent now will likely come back."),
                format!("It still failed then: {failures} of the same kind in the 15 minutes before."),
            );
            ("critical", "Cause", said)
        }
        Warning::GroupEmpty { group } => {
            let group = name(group);
            let said = told.pick(
                format!("Group {group} has no members: nobody would read what is sent."),
                format!("Group {group} had no members: nobody would have read what is sent."),
            );
            ("critical", "Consumer", said)
        }
        Warning::Lag { group, records } => {
            let (group, records) = (name(group), format::counted(count(*records), "record", "records"));
            let said = told.pick(
                format!("Group {group} is behind by {records}. Replayed messages queue behind them."),
                format!("Group {group} was behind by {records}, and replayed messages queue behind such a lag."),
            );
            ("warning", "Consumer", said)
        }
        Warning::GroupUnknown { group, why } => {
            ("warning", "Consumer", format!("Group {} could not be looked at: {}", name(group), sentence(why)))
        }
        Warning::NewerOfKey { keys, count: n } => {
            let named = keys.iter().map(|key| text::short_line(key, 60)).collect::<Vec<_>>().join(", ");
            let more = count(*n) - keys.len() as i64;
            let more = if more > 0 { format!(" and {} more", format::exact(more)) } else { String::new() };
            let are = told.pick("are", "were");
            let said =
                format!("Newer records of these keys {are} in the target already: {named}{more}. Replaying puts older ones behind them.");
            ("warning", "Order", said)
        }
        Warning::NewerNotLookedFor { why } => {
            let are = told.pick("are", "were");
            let said = format!("Whether newer records of these keys {are} in the target was not fully looked for: {}", sentence(why));
            ("warning", "Order", said)
        }
        Warning::CannotConfirm { why } => {
            let (can, is) = (told.pick("cannot", "could not"), told.pick("is", "was"));
            let said = format!("Success {can} be confirmed here: {} What {is} sent stays \"sent, not confirmed\".", sentence(why));
            ("warning", "Proof", said)
        }
        Warning::CheckMissing { check: which, .. } => {
            let which = check(*which);
            let said = told.pick(
                format!("The {which} is not configured, so messages are held unless it is waived. Lines to paste:"),
                format!("The {which} was not configured, so messages were held unless it was waived."),
            );
            ("warning", "Check", said)
        }
        Warning::AlsoReadBy { group, why, items } => {
            let receives = told.pick("receives this, too,", "was to receive this, too,");
            let said = format!("Group {} {receives} {}: {}", name(group), messages(count(*items)), sentence(why));
            ("warning", "Who else", said)
        }
        Warning::OtherGroups { groups } => {
            let names = groups.iter().map(|group| name(group)).collect::<Vec<_>>().join(", ");
            let said = told.pick(
                format!("The broker names other readers of the target that nobody configured: {names}."),
                format!("The broker named other readers of the target that nobody had configured: {names}."),
            );
            ("info", "Who else", said)
        }
        Warning::InOtherReplay { batch, items } => {
            let items = messages(count(*items));
            let said = told.pick(
                format!("{items} stay where they are: replay {batch} has them."),
                format!("{items} stayed where they were: replay {batch} had them."),
            );
            ("info", "Left out", said)
        }
        Warning::OtherOrigin { topic, items } => ("warning", "Left out", other_origin(topic.as_deref(), count(*items), told)),
        Warning::TargetUnknown { why } => {
            let said = told.pick(
                format!("Kafka could not be asked about the target, which is looked at again before the start: {}", sentence(why)),
                format!("Kafka could not be asked about the target then: {}", sentence(why)),
            );
            ("warning", "Target", said)
        }
        Warning::ReadersUnknown { why } => {
            let reads = told.pick("reads", "read");
            ("warning", "Who else", format!("Who else {reads} the target could not be found out: {}", sentence(why)))
        }
        Warning::Repartitioned { items } => {
            let items = messages(count(*items));
            let said = told.pick(
                format!("The target has another number of partitions than when these were read: {items} go where their key hashes to."),
                format!(
                    "The target had another number of partitions than when these were read: {items} were to go where their key hashes to."
                ),
            );
            ("info", "Partitions", said)
        }
        Warning::Laps { items, max } => {
            let items = messages(count(*items));
            let said = told.pick(
                format!("{items} came back from {max} replays or more already: only a person may replay them again."),
                format!("{items} had come back from {max} replays or more already: only a person may replay such again."),
            );
            ("warning", "Attempts", said)
        }
        Warning::ConsumerIsIdempotent { why } => {
            let are = told.pick("are", "were to be");
            let said = format!(
                "The consumer may be sent anything twice, so messages the ledger cannot tell about {are} sent unchecked: {}",
                sentence(why)
            );
            ("info", "Standing waiver", said)
        }
    }
}

/// What is left out because it did not come from the target.
fn other_origin(topic: Option<&str>, items: i64, told: Told) -> String {
    let (items, are, from) = (messages(items), told.pick("are", "were"), topic.map(name));
    match from {
        Some(topic) => format!("{items} came from {topic} and not from the target, and {are} left out."),
        None => {
            let says = told.pick("do", "did");
            format!("{items} {says} not say where they came from, and {are} left out. A target named in the configuration takes them.")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::verdict::Check;

    /// One of each.
    fn each() -> Vec<Warning> {
        let (group, why) = (|| "wallet".to_owned(), || "it did not answer".to_owned());
        vec![
            Warning::CauseActive { arrivals: 4 },
            Warning::GroupEmpty { group: group() },
            Warning::Lag { group: group(), records: 12_431 },
            Warning::GroupUnknown { group: group(), why: why() },
            Warning::NewerOfKey { keys: vec!["user-1".into()], count: 3 },
            Warning::NewerNotLookedFor { why: why() },
            Warning::CannotConfirm { why: why() },
            Warning::CheckMissing { check: Check::Schema, lines: "[dlq.schema]".into() },
            Warning::AlsoReadBy { group: group(), why: why(), items: 9 },
            Warning::OtherGroups { groups: vec![group()] },
            Warning::InOtherReplay { batch: 7, items: 2 },
            Warning::OtherOrigin { topic: Some("orders".into()), items: 2 },
            Warning::OtherOrigin { topic: None, items: 2 },
            Warning::TargetUnknown { why: why() },
            Warning::ReadersUnknown { why: why() },
            Warning::Repartitioned { items: 200 },
            Warning::Laps { items: 2, max: 3 },
            Warning::ConsumerIsIdempotent { why: why() },
        ]
    }

    #[test]
    fn afterwards_nothing_is_said_of_the_present() {
        for warning in each() {
            let (kind, label, now) = told_of(&warning, Told::Now);
            let (kind_then, label_then, then) = told_of(&warning, Told::Then);
            assert_eq!((kind, label), (kind_then, label_then));
            if !matches!(warning, Warning::GroupUnknown { .. }) {
                assert_ne!(now, then, "{warning:?}");
            }
            for present in [
                "still fails",
                "will ",
                " is sent now",
                " has no ",
                " is behind",
                " are in the target",
                " is not configured",
                "names other",
            ] {
                assert!(!then.contains(present), "{present:?}: {then}");
            }
        }
    }
}
