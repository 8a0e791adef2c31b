//! The messages of a replay, listed by what was forecast for them or what became of them.

use std::str::FromStr;

use super::super::StatusLine;
use super::words;
use crate::api::Failure;
use crate::domain::lifecycle::Outcome;
use crate::domain::mask::MASK;
use crate::domain::replay::{Expected, ItemState};
use crate::store::replay_pages::{ItemCursor, ItemList, ItemRow};
use crate::store::replays::Batch;
use crate::web::AppState;
use crate::web::view::{format, text};

const SHOWN: i64 = 50;

/// A list of items that the page can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListKind {
    /// Its word in the query string.
    word: &'static str,
    label: &'static str,
    list: ItemList,
}

const KINDS: [ListKind; 18] = [
    ListKind { word: "all", label: "All", list: ItemList::All },
    ListKind { word: "expect_send_unchecked", label: "To be sent unchecked", list: ItemList::Forecast(Expected::SendUnchecked) },
    ListKind { word: "expect_already_applied", label: "Expected: already applied", list: ItemList::Forecast(Expected::AlreadyApplied) },
    ListKind { word: "expect_incompatible", label: "Expected: do not fit", list: ItemList::Forecast(Expected::Incompatible) },
    ListKind { word: "expect_unsafe", label: "Expected: partly applied", list: ItemList::Forecast(Expected::Unsafe) },
    ListKind { word: "expect_held", label: "Expected: held", list: ItemList::Forecast(Expected::Held) },
    ListKind { word: "expect_blocked", label: "Expected: blocked", list: ItemList::Forecast(Expected::Blocked) },
    ListKind { word: "pending", label: "Not sent yet", list: ItemList::State(ItemState::Pending) },
    ListKind { word: "intended", label: "Maybe sent, checking", list: ItemList::State(ItemState::Intended) },
    ListKind { word: "sent", label: "Sent", list: ItemList::State(ItemState::Sent) },
    ListKind { word: "already_applied", label: "Already applied", list: ItemList::State(ItemState::AlreadyApplied) },
    ListKind { word: "archived", label: "Archived", list: ItemList::State(ItemState::Archived) },
    ListKind { word: "held", label: "Held", list: ItemList::State(ItemState::Held) },
    ListKind { word: "blocked", label: "Blocked", list: ItemList::State(ItemState::Blocked) },
    ListKind { word: "not_sent", label: "Not sent", list: ItemList::State(ItemState::NotSent) },
    ListKind { word: "returned", label: "Returned", list: ItemList::Outcome(Outcome::Returned) },
    ListKind { word: "unproven", label: "Sent, not confirmed", list: ItemList::Outcome(Outcome::Unproven) },
    ListKind { word: "unconfirmed", label: "Not confirmed yet", list: ItemList::Outcome(Outcome::Pending) },
];

impl FromStr for ListKind {
    type Err = String;

    fn from_str(word: &str) -> Result<ListKind, String> {
        KINDS.into_iter().find(|kind| kind.word == word).ok_or_else(|| {
            let known: Vec<_> = KINDS.iter().map(|kind| kind.word).collect();
            format!("unknown list {word:?}: use one of {}", known.join(", "))
        })
    }
}

/// A way to a list, with how many are in it.
pub struct Tab {
    pub label: &'static str,
    /// None: not counted.
    pub count: Option<String>,
    pub link: String,
    pub chosen: bool,
}

/// The lists that have something in them.
pub fn tabs(batch: &Batch, chosen: Option<ListKind>) -> Vec<Tab> {
    let progress = &batch.progress;
    let began = batch.started_at_ms.is_some();
    let counted = |kind: &ListKind| -> Option<i64> {
        match kind.list {
            ItemList::All => Some(progress.items),
            ItemList::Forecast(expected) if !began => {
                batch.forecast.map(|mut forecast| i64::try_from(*forecast.of(expected)).unwrap_or(i64::MAX))
            }
            ItemList::Forecast(_) => None,
            ItemList::State(state) => match state {
                ItemState::Pending | ItemState::Intended => None,
                ItemState::Sent => Some(progress.sent),
                ItemState::AlreadyApplied => Some(progress.already_applied),
                ItemState::Archived => Some(progress.archived),
                ItemState::Held => Some(progress.held),
                ItemState::Blocked => Some(progress.blocked),
                ItemState::NotSent => Some(progress.not_sent),
            },
            ItemList::Outcome(Outcome::Returned) => Some(progress.returned),
            ItemList::Outcome(Outcome::Unproven) => Some(progress.unproven),
            ItemList::Outcome(_) => Some(progress.pending()),
        }
    };
    let waits = began && progress.done() < progress.items;
    let tab = |kind: &ListKind| {
        let count = counted(kind);
        let is_chosen = chosen == Some(*kind);
        let uncounted = waits && matches!(kind.list, ItemList::State(ItemState::Pending | ItemState::Intended));
        (is_chosen || uncounted || count.is_some_and(|count| count > 0)).then(|| Tab {
            label: kind.label,
            count: count.map(format::exact),
            link: format!("/replays/{}?items={}#items", batch.id, kind.word),
            chosen: is_chosen,
        })
    };
    KINDS.iter().filter_map(tab).collect()
}

/// One page of a list.
pub struct ItemTable {
    pub label: &'static str,
    pub lines: Vec<ItemLine>,
    pub first: Option<String>,
    pub next: Option<String>,
}

/// An item with its reason.
pub struct ItemLine {
    pub id: i64,
    pub title: String,
    pub key: Option<String>,
    pub place: String,
    pub status: StatusLine,
    /// Why, and what stands in its way.
    pub said: Option<String>,
    pub blocked_by: Option<i64>,
    pub returned_as: Option<i64>,
    pub sent_to: Option<String>,
    pub lap: Option<String>,
}

impl ItemTable {
    /// Reads the page of `kind` after the cursor `after`.
    pub async fn read(state: &AppState, batch: &Batch, kind: ListKind, after: Option<&str>) -> Result<ItemTable, Failure> {
        let cursor = match after {
            None => ItemCursor::START,
            Some(text) => parse(text).ok_or_else(|| Failure::bad_request("The parameter after is not one that this list gave."))?,
        };
        let page = state.store.items_of_batch(batch.id, kind.list, cursor, SHOWN).await?;
        let path = format!("/replays/{}?items={}", batch.id, kind.word);
        let max_laps = state.replays.entry(&batch.cluster, &batch.topic).map(|entry| entry.settings.max_laps);
        Ok(ItemTable {
            label: kind.label,
            lines: page.items.iter().map(|item| ItemLine::of(item, max_laps)).collect(),
            first: after.map(|_| format!("{path}#items")),
            next: page.next.map(|next| format!("{path}&after={}.{}.{}#items", next.stage, next.place, next.message_id)),
        })
    }
}

fn parse(text: &str) -> Option<ItemCursor> {
    let mut parts = text.splitn(3, '.');
    let mut part = || parts.next();
    let (stage, place, message_id) = (part()?, part()?, part()?);
    Some(ItemCursor { stage: stage.parse().ok()?, place: place.parse().ok()?, message_id: message_id.parse().ok()? })
}

impl ItemLine {
    fn of(item: &ItemRow, max_laps: Option<i32>) -> ItemLine {
        let (kind, word) = words::item(&item.state, item.outcome.as_deref(), item.proof.as_deref());
        let key = item.business_key.as_deref().map(|key| text::short_line(key, 60));
        let note = item.note.as_deref().map(|note| text::short_line(note, 300));
        let expected = item.forecast.as_deref().filter(|_| item.state == ItemState::Pending.as_str()).map(words::forecast);
        let unchecked = item.unchecked.then_some("sent without a check, as waived");
        let said: Vec<&str> = [expected, note.as_deref(), unchecked].into_iter().flatten().collect();
        let sent_to =
            item.target_partition.zip(item.sent_offset).map(|(partition, offset)| format!("{partition} / {}", format::exact(offset)));
        let of = max_laps.map_or_else(String::new, |max| format!(" of {max}"));
        ItemLine {
            id: item.message_id,
            title: item.exception_class.as_deref().map_or_else(|| "No exception named".to_owned(), |class| text::short_line(class, 120)),
            key: key
                .or_else(|| item.key_masked.then(|| MASK.to_owned()))
                .or_else(|| item.record_key.as_deref().map(|key| text::bytes_line(key, 60))),
            place: format!("{} / {}", item.partition, format::exact(item.offset)),
            status: StatusLine { kind, word },
            said: (!said.is_empty()).then(|| said.join(" · ")),
            blocked_by: item.blocked_by,
            returned_as: item.returned_as,
            sent_to,
            lap: (item.lap > 1).then(|| format!("replay attempt {}{of}", item.lap)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_it_went_out() {
        assert_eq!(parse("2.-9.77"), Some(ItemCursor { stage: 2, place: -9, message_id: 77 }));
        for text in ["", "1", "1.2", "1.2.3.4", "a.b.c", "1..2"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn every_list_has_a_word_of_its_own() {
        for kind in KINDS {
            assert_eq!(kind.word.parse(), Ok(kind));
        }
    }
}
