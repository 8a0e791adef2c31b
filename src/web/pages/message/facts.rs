//! Where a message came from, where its key would take it, and what happened to it when.

use std::collections::BTreeMap;

use super::headers::reading_in_words;
use crate::domain::dialect::{FieldReading, Reading};
use crate::domain::partition::partition_for;
use crate::domain::settings::{DlqSettings, Partitioner};
use crate::store::messages::MessageRow;
use crate::web::pages::When;
use crate::web::view::{format, text};

pub struct Fact {
    pub name: &'static str,
    /// None is shown as unknown.
    pub value: Option<String>,
    pub note: Option<String>,
    /// Something to copy.
    pub is_code: bool,
}

pub struct TimeFact {
    pub name: &'static str,
    pub when: Option<When>,
    pub note: Option<String>,
}

fn fact(name: &'static str, value: Option<String>) -> Fact {
    Fact { name, value, note: None, is_code: false }
}

fn short(value: &Option<String>) -> Option<String> {
    value.as_deref().map(|value| text::short_line(value, 500))
}

/// What the message is and where it comes from. `counts` are the partitions of all topics of its cluster as last listed.
pub fn facts(
    row: &MessageRow,
    reading: Option<&Reading>,
    fields: &[FieldReading],
    settings: Option<&DlqSettings>,
    counts: Option<&BTreeMap<String, i32>>,
) -> Vec<Fact> {
    let came_from = [
        row.origin_topic.as_deref().map(|topic| text::short_line(topic, 250)),
        row.origin_partition.map(|partition| format!("partition {partition}")),
        row.origin_offset.map(|offset| format!("offset {offset}")),
    ];
    let came_from = came_from.into_iter().flatten().reduce(|all, part| format!("{all}, {part}"));
    let key = match row.key.as_deref() {
        None => "null".to_owned(),
        Some([]) => "empty".to_owned(),
        Some(key) => text::bytes_line(key, 200),
    };
    // One dialect says it all in the record's key.
    let read_from_key =
        fields.iter().filter(|field| field.header.is_none()).map(reading_in_words).reduce(|all, said| format!("{all}; {said}"));
    let max_laps = settings.map(|settings| settings.max_laps);
    vec![
        fact("Came from", came_from),
        partition_fact(row, read_from_key.is_some(), settings, counts),
        Fact { note: read_from_key, is_code: row.key.as_ref().is_some_and(|key| !key.is_empty()), ..fact("Record key", Some(key)) },
        Fact { is_code: true, ..fact("Business key", row.business_key.as_deref().map(|key| text::short_line(key, 200))) },
        fact("Tenant", short(&row.tenant)),
        fact("Consumer group", short(&row.consumer_group)),
        fact("Attempts before giving up", row.attempts.map(|attempts| attempts.to_string())),
        Fact { note: (row.lap > 1).then(|| of_laps(max_laps)).flatten(), ..fact("Replayed before", Some(laps(row.lap))) },
        fact("Stage", reading.and_then(|reading| short(&reading.stage))),
        fact("Header format", Some(text::short_line(&row.dialect, 60))),
        fact("Size", Some(format!("{} bytes of key, value and headers", format::exact(row.size)))),
    ]
    .into_iter()
    // Not every framework has stages, nor every DLQ tenants: those rows show only where there is something.
    .filter(|fact| fact.value.is_some() || !matches!(fact.name, "Stage" | "Tenant" | "Business key"))
    .collect()
}

fn laps(lap: i32) -> String {
    match lap - 1 {
        ..=0 => "never".to_owned(),
        1 => "once, and it came back".to_owned(),
        times => format!("{times} times, and it came back each time"),
    }
}

fn of_laps(max_laps: Option<i32>) -> Option<String> {
    max_laps.map(|most| format!("after {most} only a person may replay it"))
}

/// Where a producer would put its key today, against where it was.
fn partition_fact(row: &MessageRow, key_is_taken: bool, settings: Option<&DlqSettings>, counts: Option<&BTreeMap<String, i32>>) -> Fact {
    const NAME: &str = "Its key hashes to";
    let unknown = |why: String| Fact { note: Some(why), ..fact(NAME, None) };
    if key_is_taken {
        return unknown("the record's key tells of the failure; the one it had before is not known".to_owned());
    }
    if row.key_masked {
        return unknown("the key is masked".to_owned());
    }
    let Some(key) = row.key.as_deref() else { return fact(NAME, Some("no key: any partition".to_owned())) };
    let Some(topic) = row.origin_topic.as_deref() else { return unknown("the headers do not say which topic it came from".to_owned()) };
    let Some(counts) = counts else { return unknown("the topics of this cluster were not listed yet".to_owned()) };
    let Some(&count) = counts.get(topic) else {
        return unknown(format!("topic {} was not seen in the last listing", text::short_line(topic, 250)));
    };
    let partitioner = settings.map_or(Partitioner::Murmur2Random, |settings| settings.partitioner);
    let name = match partitioner {
        Partitioner::Murmur2Random => "murmur2_random",
        Partitioner::ConsistentRandom => "consistent_random",
    };
    let Some(hashed) = partition_for(partitioner, Some(key), count) else {
        return fact(NAME, Some(format!("empty key: any partition ({name})")));
    };
    let note = match row.origin_partition {
        None => "which it came from is not known".to_owned(),
        Some(origin) if origin == hashed => "the one it came from".to_owned(),
        Some(origin) => {
            let less = if origin >= count { format!(" It has no partition {origin} now.") } else { String::new() };
            format!(
                "not the one it came from ({origin}): its topic had another number of partitions then, its producer chose the partition \
                 in another way, or partitioner is not set right for this DLQ.{less}"
            )
        }
    };
    Fact { note: Some(note), ..fact(NAME, Some(format!("partition {hashed} of {count} ({name})"))) }
}

/// What happened to it, oldest first as a rule.
pub fn history(row: &MessageRow, now_ms: i64) -> Vec<TimeFact> {
    let exact = |at: i64| When { utc: format::utc_exact(at), ..When::of(at, now_ms) };
    let suspect = row
        .timestamp_suspect
        .then(|| "not to be trusted: missing, before 2000 or ahead of the clock; when we first saw it counts instead".to_owned());
    let recreated = (row.incarnation > 1).then(|| format!("from the {} topic of that name", format::ordinal(row.incarnation)));
    vec![
        TimeFact { name: "Event before it failed", when: row.origin_at_ms.map(exact), note: None },
        TimeFact { name: "Record's own timestamp", when: row.record_at_ms.map(exact), note: suspect },
        TimeFact { name: "Dead-lettered", when: Some(exact(row.dead_lettered_at_ms)), note: None },
        TimeFact { name: "Taken in", when: Some(exact(row.first_seen_at_ms)), note: recreated },
    ]
}

/// Why it is where it is, if that was said: of an archive, of a hold.
pub fn decision(row: &MessageRow) -> Option<String> {
    row.reason.as_deref().map(|reason| text::short_line(reason, 500))
}

/// Which attempt at a replay the next one is, of a message that came back.
pub fn attempt(row: &MessageRow, settings: Option<&DlqSettings>) -> Option<String> {
    let most = settings.map_or_else(String::new, |settings| format!(" of {}", settings.max_laps));
    (row.lap > 1).then(|| format!("replay attempt {}{most}", row.lap))
}
