//! The headers of a record, and how each was read.

use std::collections::BTreeMap;

use crate::domain::dialect::FieldReading;
use crate::domain::record::{Header, clip, display_text};
use crate::web::view::{format, text};

/// A record of a megabyte has room for hundreds of thousands of headers; a page shows so many.
const SHOWN: usize = 500;
/// A value longer than this many bytes is cut.
const VALUE_CAP: usize = 1_000;
/// Of all values together a page shows so many bytes.
const TOTAL_CAP: usize = 64_000;

pub struct HeaderLine {
    pub name: String,
    /// "2 of 3" for a name that is there more than once.
    pub repeated: Option<String>,
    /// None is a null value.
    pub value: Option<String>,
    pub is_empty: bool,
    /// "text, 24 B".
    pub format: Option<String>,
    pub reading: Option<String>,
    pub odd: bool,
}

pub struct HeaderTable {
    pub lines: Vec<HeaderLine>,
    /// All there are, shown or not.
    pub count: usize,
}

pub fn table(headers: &[Header], fields: &[FieldReading]) -> HeaderTable {
    let mut by_header: BTreeMap<usize, Vec<&FieldReading>> = BTreeMap::new();
    for field in fields {
        if let Some(index) = field.header {
            by_header.entry(index).or_default().push(field);
        }
    }
    let mut times: BTreeMap<&[u8], usize> = BTreeMap::new();
    headers.iter().for_each(|header| *times.entry(&header.name).or_default() += 1);
    let mut seen: BTreeMap<&[u8], usize> = BTreeMap::new();
    let mut left = TOTAL_CAP;
    let mut lines = Vec::with_capacity(headers.len().min(SHOWN));
    for (index, header) in headers.iter().enumerate().take(SHOWN) {
        let read = by_header.get(&index).map_or(&[][..], Vec::as_slice);
        let said: Vec<String> = read.iter().map(|field| beside(field, header.value.as_deref())).collect();
        let nth = seen.entry(&header.name).or_default();
        *nth += 1;
        let of = times.get(header.name.as_slice()).copied().unwrap_or(1);
        let cap = VALUE_CAP.min(left);
        left -= header.value.as_ref().map_or(0, Vec::len).min(cap);
        lines.push(HeaderLine {
            name: text::short_line(&display_text(&header.name), 250),
            repeated: (of > 1).then(|| format!("{nth} of {of}")),
            value: header.value.as_deref().map(|value| shown_value(value, cap)),
            is_empty: header.value.as_ref().is_some_and(Vec::is_empty),
            format: header.value.as_deref().filter(|value| !value.is_empty()).map(format_of),
            reading: (!said.is_empty()).then(|| said.join("; ")),
            odd: read.iter().any(|field| field.odd),
        });
    }
    HeaderTable { lines, count: headers.len() }
}

/// What a header, or the record's key, was read as: "origin offset: 404269 (i64 big-endian)".
pub fn reading_in_words(field: &FieldReading) -> String {
    format!("{}: {}", field.meaning, text::short_line(&field.value, 300))
}

/// The same beside the header itself: what stands there as text is not said again.
fn beside(field: &FieldReading, value: Option<&[u8]>) -> String {
    let repeats = |said: &str| field.value.ends_with(" (text)") && field.value.starts_with(clip(said.trim(), 100));
    match value.and_then(as_text).is_some_and(repeats) {
        true => format!("{} (text)", field.meaning),
        false => reading_in_words(field),
    }
}

/// An offset in eight bytes is no text even where it is valid UTF-8; a long text with a stray control character is one all the same.
fn as_text(bytes: &[u8]) -> Option<&str> {
    let said = std::str::from_utf8(bytes).ok()?;
    let is_plain = !said.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t'));
    (is_plain || bytes.len() > 16).then_some(said)
}

fn shown_value(bytes: &[u8], cap: usize) -> String {
    match as_text(bytes) {
        Some(said) => text::cut_block(said, cap),
        None => text::bytes_line_hex(bytes, cap / 2),
    }
}

fn format_of(bytes: &[u8]) -> String {
    let kind = if as_text(bytes).is_some() { "text" } else { "bytes, shown as hex" };
    format!("{kind}, {}", format::bytes(bytes.len() as i64))
}
