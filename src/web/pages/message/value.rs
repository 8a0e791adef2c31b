//! The value of a message, as a tree, as text or as hex. The server cuts it; the download is whole.

use crate::api::messages::value_note;
use crate::domain::framing::{Framing, framing};
use crate::services::messages::{Revelation, ShownValue};
use crate::web::view::tree::{NoTree, Tree, tree};
use crate::web::view::{format, text};

/// A revealed field is shown up to so many characters; the value below it and the download have more.
const FIELD_CHARS: usize = 2_000;
/// The page lists so many revealed fields.
const FIELDS_SHOWN: usize = 100;

/// The ways to look at bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewKind {
    Tree,
    Text,
    Hex,
}

impl ViewKind {
    pub const ALL: [ViewKind; 3] = [ViewKind::Tree, ViewKind::Text, ViewKind::Hex];

    /// The word in the query string.
    pub fn as_str(self) -> &'static str {
        match self {
            ViewKind::Tree => "tree",
            ViewKind::Text => "text",
            ViewKind::Hex => "hex",
        }
    }

    /// The word on the page.
    pub fn label(self) -> &'static str {
        match self {
            ViewKind::Tree => "Tree",
            ViewKind::Text => "Text",
            ViewKind::Hex => "Hex",
        }
    }
}

impl std::str::FromStr for ViewKind {
    type Err = String;

    fn from_str(word: &str) -> Result<ViewKind, String> {
        ViewKind::ALL.into_iter().find(|kind| kind.as_str() == word).ok_or_else(|| format!("{word:?} is none of tree, text, hex"))
    }
}

pub enum Shown {
    Nothing,
    Tree(Tree),
    Text(String),
    Hex(String),
}

pub struct ValueBox {
    pub shown: Shown,
    /// "12,431 bytes", "null: a tombstone", "empty".
    pub what: String,
    pub notes: Vec<String>,
    /// How it is shown; None where there is nothing to show.
    pub view: Option<ViewKind>,
    /// The exact bytes may be had as a file.
    pub download: bool,
    /// Something is hidden, so there is something to reveal.
    pub hides: bool,
    /// Each revealed field and what it holds, as written.
    pub revealed: Vec<(String, String)>,
}

pub fn value_box(value: &ShownValue, view: Option<ViewKind>) -> ValueBox {
    let notes: Vec<String> = value_note(value).into_iter().collect();
    let nothing = |what: &str, notes| ValueBox {
        shown: Shown::Nothing,
        what: what.to_owned(),
        notes,
        view: None,
        download: false,
        hides: false,
        revealed: Vec::new(),
    };
    match value {
        ShownValue::Purged => nothing("removed", notes),
        ShownValue::Withheld => ValueBox { hides: true, ..nothing("withheld", notes) },
        ShownValue::Null => nothing("null: a tombstone", notes),
        ShownValue::Plain(bytes) if bytes.is_empty() => ValueBox { download: true, ..nothing("empty, which is not null", notes) },
        ShownValue::Plain(bytes) => bytes_box(bytes, view, notes),
        ShownValue::Masked { json, fields } => {
            let hides = !fields.is_empty();
            ValueBox { hides, download: !hides, ..bytes_box(json.as_bytes(), view, notes) }
        }
    }
}

/// What was hidden, once.
pub fn revealed_box(revelation: &Revelation, view: Option<ViewKind>) -> ValueBox {
    let mut notes = Vec::new();
    if revelation.fields.is_empty() {
        notes.push("Not JSON in which the masked fields could be found: all of it was withheld.".to_owned());
    }
    if revelation.fields.len() > FIELDS_SHOWN {
        notes.push(format!("The first {FIELDS_SHOWN} of {} masked fields are listed.", format::exact(revelation.fields.len() as i64)));
    }
    let field = |(pointer, written): &(String, String)| (text::line(pointer), text::short_line(written, FIELD_CHARS));
    let revealed = revelation.fields.iter().take(FIELDS_SHOWN).map(field).collect();
    ValueBox { download: false, revealed, ..bytes_box(&revelation.value, view, notes) }
}

fn bytes_box(bytes: &[u8], view: Option<ViewKind>, mut notes: Vec<String>) -> ValueBox {
    let is_text = std::str::from_utf8(bytes).is_ok();
    let beginning = &bytes[..bytes.len().min(text::VALUE_CAP)];
    let grown = match view {
        None | Some(ViewKind::Tree) => tree(beginning, beginning.len() == bytes.len()),
        Some(_) => Err(NoTree::NoContainer),
    };
    if let Framing::Confluent { schema_id } = framing(bytes) {
        notes.push(format!(
            "Begins like Confluent's framing (byte 0, then a schema id): schema {schema_id}, if it is. Not decoded: no registry was asked."
        ));
    }
    let (shown, view) = match (grown, view) {
        (Ok(mut grown), _) => {
            notes.append(&mut grown.notes);
            (Shown::Tree(grown), ViewKind::Tree)
        }
        (Err(why), view) => {
            notes.extend(why_no_tree(why, view));
            match view.filter(|view| *view != ViewKind::Tree) {
                Some(ViewKind::Text) => (Shown::Text(text::value_text(bytes)), ViewKind::Text),
                None if is_text && (why != NoTree::NoContainer || !beginning.contains(&0)) => {
                    (Shown::Text(text::value_text(bytes)), ViewKind::Text)
                }
                _ => (Shown::Hex(text::hex_dump(bytes)), ViewKind::Hex),
            }
        }
    };
    let cap = if view == ViewKind::Hex { text::HEX_CAP } else { text::VALUE_CAP };
    if bytes.len() > cap {
        notes.push(format!("Cut: the first {} of {}.", short_bytes(cap), short_bytes(bytes.len())));
    }
    if !is_text && view == ViewKind::Text {
        notes.push("Not UTF-8: bytes that are no text are shown as \u{fffd}.".to_owned());
    }
    ValueBox {
        shown,
        what: format::counted(bytes.len() as i64, "byte", "bytes"),
        notes,
        view: Some(view),
        download: true,
        hides: false,
        revealed: Vec::new(),
    }
}

/// Said where a tree was asked for, or the value begins like one: broken JSON is often why it failed.
fn why_no_tree(why: NoTree, asked: Option<ViewKind>) -> Option<String> {
    match (why, asked) {
        (NoTree::NotJson(at), _) => Some(format!("No JSON: it begins like it, and is none from byte {} on.", format::exact(at as i64))),
        (NoTree::EndsEarly, _) => Some("No JSON: it begins like it, and ends in the middle.".to_owned()),
        (NoTree::NoContainer, Some(ViewKind::Tree)) => Some("No JSON object or list: there is no tree to show.".to_owned()),
        (NoTree::NoContainer, _) => None,
    }
}

/// "64 kB", "20 MB".
fn short_bytes(count: usize) -> String {
    format::bytes(count as i64).replace(".0 ", " ")
}
