//! `/api/v1`: JSON over the same services as the pages.
//!
//! May use: `services`, `store`'s rows, `domain`. Called by: `web::routes`, which mounts it and guards every route.
//! `null` is unknown, never zero. Instants are ms UTC in `*_ms`, ages seconds in `*_s`. Bytes are `{"utf8":..}` or `{"base64":..}`
//! or null. An error is `application/problem+json` with a sentence that says what would help.

pub mod dlqs;
pub mod failure;
pub mod groups;
pub mod messages;
pub mod query;
pub mod replays;

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

pub use failure::Failure;

/// Bytes as JSON: `{"utf8": ".."}` where they are UTF-8, else `{"base64": ".."}`; a null key or value is `None` around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl Bytes {
    /// In base64, with padding.
    pub fn base64(&self) -> String {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(&self.0)
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        match std::str::from_utf8(&self.0) {
            Ok(text) => map.serialize_entry("utf8", text)?,
            Err(_) => map.serialize_entry("base64", &self.base64())?,
        }
        map.end()
    }
}

/// A page of a list.
#[derive(Debug, Serialize)]
pub struct Page<Item, Cursor> {
    pub items: Vec<Item>,
    /// Pass as `after` for the following page; null on the last.
    pub next: Option<Cursor>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_text_where_they_are_text() {
        assert_eq!(serde_json::to_string(&Bytes(b"a\0\"".to_vec())).unwrap(), r#"{"utf8":"a\u0000\""}"#);
        assert_eq!(serde_json::to_string(&Bytes(vec![0xff, 0, 0xfe])).unwrap(), r#"{"base64":"/wD+"}"#);
        assert_eq!(serde_json::to_string(&Some(Bytes(Vec::new()))).unwrap(), r#"{"utf8":""}"#);
        assert_eq!(serde_json::to_string(&None::<Bytes>).unwrap(), "null");
    }
}
