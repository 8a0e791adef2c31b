//! Query strings, parsed at the door. A parameter nobody knows, or given twice, is refused by name rather than ignored: a filter that
//! silently does nothing shows the wrong rows. Values keep their exact bytes, for `key` (`%ff` is that byte, not a replacement).

use std::str::FromStr;

use super::Failure;
use crate::store::messages::MessageFilter;

/// The parameters that say which messages.
pub const MESSAGE_FILTER: [&str; 14] =
    ["cluster", "topic", "owner", "state", "follow_up", "class", "group", "partition", "key", "q", "from", "to", "from_ms", "to_ms"];

/// How many items a page has when nobody says.
pub const DEFAULT_LIMIT: i64 = 50;
/// How many it has at most.
pub const MAX_LIMIT: i64 = 500;

/// A parsed query string. A parameter with an empty value counts as not given: forms send those.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    pairs: Vec<(String, Vec<u8>)>,
}

impl Query {
    /// Parses `raw`, allowing only the parameters in `known`.
    ///
    /// # Errors
    /// 400 naming the parameter that is unknown or given twice.
    pub fn parse(raw: Option<&str>, known: &[&str]) -> Result<Query, Failure> {
        let mut pairs: Vec<(String, Vec<u8>)> = Vec::new();
        for piece in raw.unwrap_or_default().split('&').filter(|piece| !piece.is_empty()) {
            let (name, value) = piece.split_once('=').unwrap_or((piece, ""));
            let name = String::from_utf8_lossy(&decode(name)).into_owned();
            if !known.contains(&name.as_str()) {
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return Err(Failure::bad_request(format!("Unknown parameter {name:?}: this address knows {known}.")));
            }
            if value.is_empty() {
                continue;
            }
            if pairs.iter().any(|(other, _)| *other == name) {
                return Err(Failure::bad_request(format!("The parameter {name} is given twice: give it once.")));
            }
            pairs.push((name, decode(value)));
        }
        Ok(Query { pairs })
    }

    /// The exact bytes of a parameter.
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.pairs.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_slice())
    }

    /// A parameter as text.
    ///
    /// # Errors
    /// 400 when it is not UTF-8 or holds NUL, which no stored text does.
    pub fn text(&self, name: &str) -> Result<Option<&str>, Failure> {
        match self.bytes(name).map(std::str::from_utf8) {
            None => Ok(None),
            Some(Ok(text)) if !text.contains('\0') => Ok(Some(text)),
            Some(_) => Err(Failure::bad_request(format!("The parameter {name} must be UTF-8 text without NUL."))),
        }
    }

    /// A parameter that is one of a set of words.
    ///
    /// # Errors
    /// 400 with the words.
    pub fn word<T: FromStr<Err = String>>(&self, name: &str) -> Result<Option<T>, Failure> {
        let word = self.text(name)?.map(str::parse).transpose();
        word.map_err(|sentence| Failure::bad_request(format!("The parameter {name}: {sentence}.")))
    }

    /// A whole number between `least` and `most`.
    ///
    /// # Errors
    /// 400 with the bounds.
    pub fn integer<T>(&self, name: &str, least: T, most: T) -> Result<Option<T>, Failure>
    where
        T: FromStr + PartialOrd + std::fmt::Display + Copy,
    {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        match text.parse::<T>() {
            Ok(number) if (least..=most).contains(&number) => Ok(Some(number)),
            _ => Err(Failure::bad_request(format!("The parameter {name} must be a whole number from {least} to {most}, not {text:?}."))),
        }
    }

    /// An instant, ms, and which of the two parameters gave it: `name` as a form's date and time field has it, in UTC, or in ms; `name_ms` in ms.
    ///
    /// # Errors
    /// 400 naming the parameter and the forms it takes.
    fn instant<'n>(&self, name: &'n str, name_ms: &'n str) -> Result<(&'n str, Option<i64>), Failure> {
        let ms = self.integer(name_ms, 0, i64::MAX)?;
        let Some(text) = self.text(name)? else {
            return Ok((name_ms, ms));
        };
        if ms.is_some() {
            return Err(Failure::bad_request(format!("The parameters {name} and {name_ms} say the same thing: give one of them.")));
        }
        match date_and_time(text).or_else(|| text.parse().ok()).filter(|ms| *ms >= 0) {
            Some(ms) => Ok((name, Some(ms))),
            None => Err(Failure::bad_request(format!(
                "The parameter {name} must be a date and time in UTC, as in 2026-11-30T14:02, or milliseconds since 1970, not {text:?}."
            ))),
        }
    }

    /// `limit`, or `default`.
    ///
    /// # Errors
    /// 400 with the bounds.
    pub fn limit(&self, default: i64) -> Result<i64, Failure> {
        Ok(self.integer("limit", 1, MAX_LIMIT)?.unwrap_or(default))
    }

    /// Which messages, out of the parameters of [`MESSAGE_FILTER`].
    ///
    /// # Errors
    /// 400 naming the parameter and what it takes.
    pub fn message_filter(&self) -> Result<MessageFilter, Failure> {
        let ((from, from_ms), (to, to_ms)) = (self.instant("from", "from_ms")?, self.instant("to", "to_ms")?);
        if from_ms.is_some() && to_ms.is_some() && from_ms > to_ms {
            let shown = |name: &str| String::from_utf8_lossy(self.bytes(name).unwrap_or_default()).into_owned();
            return Err(Failure::bad_request(format!(
                "The parameter {from} ({}) lies after {to} ({}): swap them.",
                shown(from),
                shown(to)
            )));
        }
        Ok(MessageFilter {
            cluster: self.text("cluster")?.map(str::to_owned),
            topic: self.text("topic")?.map(str::to_owned),
            owner: self.text("owner")?.map(str::to_owned),
            state: self.word("state")?,
            follow_up: self.word("follow_up")?,
            class: self.word("class")?,
            group_id: self.integer("group", 1, i64::MAX)?,
            partition: self.integer("partition", 0, i32::MAX)?,
            key: self.bytes("key").map(<[u8]>::to_vec),
            q: self.text("q")?.map(str::trim).filter(|q| !q.is_empty()).map(str::to_owned),
            from_ms,
            to_ms,
        })
    }

    /// Whether any of these parameters is given.
    pub fn any(&self, names: &[&str]) -> bool {
        self.pairs.iter().any(|(name, _)| names.contains(&name.as_str()))
    }

    /// The query string again, with `name` set to `value` (or left out), for links that keep the rest of the view.
    pub fn with(&self, name: &str, value: Option<&str>) -> String {
        let kept = self.pairs.iter().filter(|(other, _)| other != name).map(|(other, bytes)| (other.as_str(), bytes.as_slice()));
        let pairs = kept.chain(value.map(|value| (name, value.as_bytes())));
        let pieces: Vec<String> = pairs.map(|(name, value)| format!("{name}={}", encode(value))).collect();
        pieces.join("&")
    }

    /// The query string again with `pairs` in front and the parameters of `without` left out.
    pub fn rewritten(&self, without: &[&str], pairs: &[(&str, &str)]) -> String {
        let kept =
            self.pairs.iter().filter(|(name, _)| !without.contains(&name.as_str())).map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
        let pairs = pairs.iter().map(|(name, value)| (*name, value.as_bytes()));
        let pieces: Vec<String> = pairs.chain(kept).map(|(name, value)| format!("{name}={}", encode(value))).collect();
        pieces.join("&")
    }

    /// The parameters that are given, in their order, with their exact bytes.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.pairs.iter().map(|(name, value)| (name.as_str(), value.as_slice()))
    }

    /// As [`Query::with`], but with a `?` in front where there is anything.
    pub fn link(&self, name: &str, value: Option<&str>) -> String {
        let query = self.with(name, value);
        if query.is_empty() { query } else { format!("?{query}") }
    }
}

/// A date and time as HTML's `datetime-local` field writes it, taken as UTC, in ms.
fn date_and_time(text: &str) -> Option<i64> {
    let text = text.strip_suffix('Z').unwrap_or(text).replacen(' ', "T", 1);
    let forms = ["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%.f"];
    let parsed = forms.iter().find_map(|form| chrono::NaiveDateTime::parse_from_str(&text, form).ok())?;
    Some(parsed.and_utc().timestamp_millis())
}

/// An id in a path: a positive whole number. Anything else is an id that nothing has.
pub fn id(text: &str) -> Option<i64> {
    text.parse().ok().filter(|id| *id > 0)
}

/// The fields of a form as a browser sends it, in their order; unlike a query string it may give one several times.
pub fn form_fields(body: &str) -> impl Iterator<Item = (String, Vec<u8>)> {
    body.split('&').filter(|piece| !piece.is_empty()).map(|piece| {
        let (name, value) = piece.split_once('=').unwrap_or((piece, ""));
        (String::from_utf8_lossy(&decode(name)).into_owned(), decode(value))
    })
}

/// Undoes form encoding, byte for byte. A `%` without two hex digits stands for itself, as browsers have it.
fn decode(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digits = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match (bytes[at], escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok())) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 2;
            }
            (b'+', _) => out.push(b' '),
            (byte, _) => out.push(byte),
        }
        at += 1;
    }
    out
}

/// Percent-encodes everything but unreserved characters, for query strings and path segments.
pub fn encode(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len()), |mut out, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(*byte)),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::message::MessageState;
    use proptest::prelude::*;

    fn parse(raw: &str) -> Result<Query, Failure> {
        Query::parse(Some(raw), &MESSAGE_FILTER)
    }

    #[test]
    fn a_filter_is_typed_and_keeps_exact_bytes() {
        let filter = parse("state=under_review&partition=3&key=%ff%00+a&q=%20Socket%20&class=&topic=a%2Fb")
            .and_then(|q| q.message_filter())
            .unwrap();
        assert_eq!(filter.state, Some(MessageState::UnderReview));
        assert_eq!(filter.partition, Some(3));
        assert_eq!(filter.key.as_deref(), Some(&b"\xff\0 a"[..]));
        assert_eq!(filter.q.as_deref(), Some("Socket"));
        assert_eq!(filter.topic.as_deref(), Some("a/b"));
        assert_eq!(filter.class, None);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_remedy() {
        for (raw, word) in [
            ("colour=red", "Unknown parameter \"colour\": this address knows cluster, topic"),
            ("q=a&q=b", "q is given twice"),
            ("state=lost", "use one of quarantined, under_review"),
            ("class=odd", "use one of transient"),
            ("partition=-1", "partition must be a whole number from 0 to 2147483647, not \"-1\""),
            ("group=x", "group must be a whole number"),
            ("from_ms=9&to_ms=3", "from_ms (9) lies after to_ms (3)"),
            ("from=2026-11-30T14:02&to_ms=3", "from (2026-11-30T14:02) lies after to_ms (3)"),
            ("from=5&from_ms=5", "from and from_ms say the same thing"),
            ("to=yesterday", "to must be a date and time in UTC, as in 2026-11-30T14:02, or milliseconds since 1970, not \"yesterday\""),
            ("to=2026-11-31T10:00", "to must be a date and time in UTC"),
            ("q=%ff", "q must be UTF-8 text without NUL"),
            ("q=%00", "q must be UTF-8 text without NUL"),
        ] {
            let failure = parse(raw).and_then(|query| query.message_filter()).unwrap_err();
            assert_eq!(failure.status.as_u16(), 400);
            assert!(failure.detail.contains(word), "{raw}: {}", failure.detail);
        }
    }

    #[test]
    fn an_instant_is_a_date_and_time_in_utc_or_milliseconds() {
        let from = |raw: &str| parse(raw).and_then(|query| query.message_filter()).unwrap().from_ms;
        for raw in [
            "from=2026-11-30T14:02",
            "from=2026-11-30T14%3A02%3A00Z",
            "from=2026-11-30+14:02",
            "from=1796047320000",
            "from_ms=1796047320000",
        ] {
            assert_eq!(from(raw), Some(1_796_047_320_000), "{raw}");
        }
        assert_eq!(from("from=2026-11-30T14:02:11.5"), Some(1_796_047_331_500));
        assert_eq!(from("from="), None);
    }

    #[test]
    fn links_keep_the_rest_of_the_view() {
        let query = parse("state=quarantined&key=%ff%26").unwrap();
        assert_eq!(query.link("state", None), "?key=%FF%26");
        assert_eq!(query.link("q", Some("a b")), "?state=quarantined&key=%FF%26&q=a%20b");
        assert_eq!(parse("").unwrap().link("q", None), "");
    }

    proptest! {
        #[test]
        fn any_bytes_survive_a_link(bytes in proptest::collection::vec(any::<u8>(), 1..40)) {
            prop_assert_eq!(decode(&encode(&bytes)), bytes);
        }

        #[test]
        fn no_query_string_panics(raw in "\\PC*") {
            let _ = parse(&raw).and_then(|query| query.message_filter());
        }
    }
}
