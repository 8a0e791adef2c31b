//! JSON of strangers, read token by token: nothing is built, nothing recurses, and every token knows the bytes it stands in. So digits,
//! members given twice and escapes stay exactly as written, and no depth fills a stack.

use std::borrow::Cow;

/// The byte order mark (U+FEFF in UTF-8). JSON forbids it; some writers put it first all the same, so it is stepped over.
pub const BOM: &[u8] = b"\xef\xbb\xbf";

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    OpenObject,
    CloseObject,
    OpenArray,
    CloseArray,
    /// A member's name, quotes included; its value follows.
    Name,
    String,
    Number,
    True,
    False,
    Null,
}

/// A token, with the bytes `start..end` of the document that it stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    pub kind: Kind,
    pub start: usize,
    pub end: usize,
}

/// Why there is no further token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The document ends within the token that starts at this byte, or before one.
    Cut(usize),
    /// From this byte on it is no JSON.
    NotJson(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    Value,
    ValueOrClose,
    Name,
    NameOrClose,
    CommaOrClose,
    Nothing,
}

/// Reads a document's tokens in order, by RFC 8259 but for a byte order mark in front and escapes of half a surrogate pair, which many
/// writers make. After a fault it ends.
#[derive(Debug)]
pub struct Scanner<'d> {
    document: &'d [u8],
    /// The bytes given are the beginning of something longer: a number that touches their end may go on.
    is_beginning: bool,
    at: usize,
    expect: Expect,
    /// The open containers, outermost first: true for an object.
    open: Vec<bool>,
    failed: bool,
}

impl<'d> Scanner<'d> {
    /// Over a whole document.
    pub fn new(document: &'d [u8]) -> Scanner<'d> {
        let at = if document.starts_with(BOM) { BOM.len() } else { 0 };
        Scanner { document, is_beginning: false, at, expect: Expect::Value, open: Vec::new(), failed: false }
    }

    /// Over the beginning of a longer document.
    pub fn of_beginning(document: &'d [u8]) -> Scanner<'d> {
        Scanner { is_beginning: true, ..Scanner::new(document) }
    }

    fn step(&mut self) -> Result<Option<Token>, Fault> {
        self.skip_blanks();
        let start = self.at;
        let Some(&byte) = self.document.get(start) else {
            return if self.expect == Expect::Nothing { Ok(None) } else { Err(Fault::Cut(start)) };
        };
        match (self.expect, byte) {
            (Expect::CommaOrClose, b',') => {
                self.at += 1;
                self.expect = if self.open.last() == Some(&true) { Expect::Name } else { Expect::Value };
                self.step()
            }
            (Expect::CommaOrClose | Expect::NameOrClose | Expect::ValueOrClose, b'}' | b']') => self.close(byte).map(Some),
            (Expect::Name | Expect::NameOrClose, b'"') => self.name().map(Some),
            (Expect::Value | Expect::ValueOrClose, _) => self.value(byte).map(Some),
            _ => Err(Fault::NotJson(start)),
        }
    }

    fn skip_blanks(&mut self) {
        while matches!(self.document.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn close(&mut self, byte: u8) -> Result<Token, Fault> {
        let is_object = byte == b'}';
        if self.open.last() != Some(&is_object) {
            return Err(Fault::NotJson(self.at));
        }
        self.open.pop();
        Ok(self.done(if is_object { Kind::CloseObject } else { Kind::CloseArray }, self.at + 1))
    }

    fn name(&mut self) -> Result<Token, Fault> {
        let start = self.at;
        let end = self.string_end()?;
        self.at = end;
        self.skip_blanks();
        match self.document.get(self.at) {
            Some(b':') => self.at += 1,
            Some(_) => return Err(Fault::NotJson(self.at)),
            None => return Err(Fault::Cut(start)),
        }
        self.expect = Expect::Value;
        Ok(Token { kind: Kind::Name, start, end })
    }

    fn value(&mut self, byte: u8) -> Result<Token, Fault> {
        match byte {
            b'{' | b'[' => {
                let start = self.at;
                let is_object = byte == b'{';
                self.open.push(is_object);
                self.at += 1;
                self.expect = if is_object { Expect::NameOrClose } else { Expect::ValueOrClose };
                Ok(Token { kind: if is_object { Kind::OpenObject } else { Kind::OpenArray }, start, end: self.at })
            }
            b'"' => {
                let end = self.string_end()?;
                Ok(self.done(Kind::String, end))
            }
            b'-' | b'0'..=b'9' => {
                let end = self.number_end()?;
                Ok(self.done(Kind::Number, end))
            }
            b't' => self.word(b"true", Kind::True),
            b'f' => self.word(b"false", Kind::False),
            b'n' => self.word(b"null", Kind::Null),
            _ => Err(Fault::NotJson(self.at)),
        }
    }

    /// A value ends at `end`.
    fn done(&mut self, kind: Kind, end: usize) -> Token {
        let start = self.at;
        self.at = end;
        self.expect = if self.open.is_empty() { Expect::Nothing } else { Expect::CommaOrClose };
        Token { kind, start, end }
    }

    fn word(&mut self, word: &[u8], kind: Kind) -> Result<Token, Fault> {
        let rest = &self.document[self.at..];
        if rest.starts_with(word) {
            return Ok(self.done(kind, self.at + word.len()));
        }
        Err(if word.starts_with(rest) { Fault::Cut(self.at) } else { Fault::NotJson(self.at) })
    }

    /// Behind the closing quote of the string that starts here.
    fn string_end(&self) -> Result<usize, Fault> {
        let start = self.at;
        let mut at = start + 1;
        loop {
            match self.document.get(at) {
                None => {
                    // A character that the end splits is no fault of its own.
                    return Err(match std::str::from_utf8(&self.document[start..]) {
                        Err(error) if error.error_len().is_some() => Fault::NotJson(start + error.valid_up_to()),
                        _ => Fault::Cut(start),
                    });
                }
                Some(b'"') => break,
                Some(b'\\') => at = self.escape_end(start, at)?,
                Some(0..=0x1f) => return Err(Fault::NotJson(at)),
                Some(_) => at += 1,
            }
        }
        match std::str::from_utf8(&self.document[start..at]) {
            Ok(_) => Ok(at + 1),
            Err(error) => Err(Fault::NotJson(start + error.valid_up_to())),
        }
    }

    fn escape_end(&self, start: usize, at: usize) -> Result<usize, Fault> {
        match self.document.get(at + 1) {
            None => Err(Fault::Cut(start)),
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
            Some(b'u') => {
                let digits = &self.document[at + 2..self.document.len().min(at + 6)];
                match digits.iter().all(u8::is_ascii_hexdigit) {
                    true if digits.len() == 4 => Ok(at + 6),
                    true => Err(Fault::Cut(start)),
                    false => Err(Fault::NotJson(at)),
                }
            }
            Some(_) => Err(Fault::NotJson(at)),
        }
    }

    /// Behind the number that starts here: `-? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?`.
    fn number_end(&self) -> Result<usize, Fault> {
        let byte = |at: usize| self.document.get(at).copied();
        let digits = |from: usize| {
            let mut at = from;
            while byte(at).is_some_and(|byte| byte.is_ascii_digit()) {
                at += 1;
            }
            match (at > from, byte(at)) {
                (true, _) => Ok(at),
                (false, None) => Err(Fault::Cut(self.at)),
                (false, Some(_)) => Err(Fault::NotJson(at)),
            }
        };
        let first = self.at + usize::from(byte(self.at) == Some(b'-'));
        let mut at = if byte(first) == Some(b'0') { first + 1 } else { digits(first)? };
        if byte(at) == Some(b'.') {
            at = digits(at + 1)?;
        }
        if matches!(byte(at), Some(b'e' | b'E')) {
            at = digits(at + 1 + usize::from(matches!(byte(at + 1), Some(b'+' | b'-'))))?;
        }
        if self.is_beginning && at == self.document.len() { Err(Fault::Cut(self.at)) } else { Ok(at) }
    }
}

impl Iterator for Scanner<'_> {
    type Item = Result<Token, Fault>;

    fn next(&mut self) -> Option<Result<Token, Fault>> {
        if self.failed {
            return None;
        }
        let step = self.step();
        self.failed = step.is_err();
        step.transpose()
    }
}

/// The text of a string token (quotes included) or of the beginning of one that was cut. Half a surrogate pair stands for no character:
/// its escape stays as written.
pub fn decoded(string: &[u8]) -> String {
    let inner = string.strip_prefix(b"\"").unwrap_or(string);
    let text = String::from_utf8_lossy(inner.strip_suffix(b"\"").filter(|_| ends_by_its_quote(inner)).unwrap_or(inner));
    if !text.contains('\\') {
        return text.into_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut rest: &str = &text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let (text, used) = escape(&rest[at..]);
        out.push_str(&text);
        rest = &rest[at + used..];
    }
    out + rest
}

/// A quote at the end closes the string unless it is escaped.
fn ends_by_its_quote(inner: &[u8]) -> bool {
    let before = &inner[..inner.len().saturating_sub(1)];
    before.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 0
}

/// What the escape at the beginning of `text` stands for, and how many bytes it takes.
fn escape(text: &str) -> (Cow<'_, str>, usize) {
    let simple = match text.as_bytes().get(1) {
        Some(b'b') => "\u{8}",
        Some(b'f') => "\u{c}",
        Some(b'n') => "\n",
        Some(b'r') => "\r",
        Some(b't') => "\t",
        Some(b'"' | b'\\' | b'/') => &text[1..2],
        Some(b'u') => return unicode_escape(text),
        _ => return (Cow::Borrowed("\\"), 1),
    };
    (Cow::Borrowed(simple), 2)
}

fn unicode_escape(text: &str) -> (Cow<'_, str>, usize) {
    let unit =
        |at: usize| text.get(at..at + 6).filter(|escape| escape.starts_with("\\u")).and_then(|e| u16::from_str_radix(&e[2..], 16).ok());
    let Some(first) = unit(0) else { return (Cow::Borrowed("\\"), 1) };
    let pair = [first, unit(6).unwrap_or_default()];
    let units = if (0xd800..0xdc00).contains(&first) { &pair[..] } else { &pair[..1] };
    match String::from_utf16(units) {
        Ok(character) => (Cow::Owned(character), 6 * units.len()),
        Err(_) => (Cow::Borrowed(&text[..6]), 6),
    }
}

/// A member's name or an index as a part of a JSON pointer (RFC 6901).
pub fn pointer_part(name: &str) -> Cow<'_, str> {
    match name.contains(['~', '/']) {
        true => Cow::Owned(name.replace('~', "~0").replace('/', "~1")),
        false => Cow::Borrowed(name),
    }
}

/// A value that a pointer names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Its place among the pointers that were asked for.
    pub pointer: usize,
    pub start: usize,
    pub end: usize,
    pub is_null: bool,
}

/// An open container on the way through a document.
struct Level {
    /// The next item's index; None in an object.
    index: Option<usize>,
    /// The pointers that lead into it, by their place.
    leads: Vec<usize>,
    /// Set on a container that a pointer names: which, and where it starts.
    found: Option<(usize, usize)>,
}

/// Where the values lie that JSON pointers name, in the document's order, none within another. A member given twice is found twice.
///
/// # Errors
/// The document is not JSON to its end.
pub fn find(document: &[u8], pointers: &[String]) -> Result<Vec<Found>, Fault> {
    let parts: Vec<Vec<String>> = pointers.iter().map(|pointer| pointer_parts(pointer)).collect();
    let mut found = Vec::new();
    let mut levels: Vec<Level> = Vec::new();
    let mut name = String::new();
    for token in Scanner::new(document) {
        let token = token?;
        match token.kind {
            Kind::Name => {
                if levels.last().is_some_and(|level| !level.leads.is_empty()) {
                    name = decoded(&document[token.start..token.end]);
                }
                continue;
            }
            Kind::CloseObject | Kind::CloseArray => {
                if let Some((pointer, start)) = levels.pop().and_then(|level| level.found) {
                    found.push(Found { pointer, start, end: token.end, is_null: false });
                }
                continue;
            }
            _ => {}
        }
        let leads = leads_to(&parts, &mut levels, &name);
        let here = leads.iter().copied().find(|pointer| parts[*pointer].len() == levels.len());
        match (token.kind, here) {
            (Kind::OpenObject | Kind::OpenArray, _) => levels.push(Level {
                index: (token.kind == Kind::OpenArray).then_some(0),
                leads: if here.is_some() { Vec::new() } else { leads },
                found: here.map(|pointer| (pointer, token.start)),
            }),
            (kind, Some(pointer)) => found.push(Found { pointer, start: token.start, end: token.end, is_null: kind == Kind::Null }),
            _ => {}
        }
    }
    Ok(found)
}

/// The pointers that lead to the next value, or on beyond it.
fn leads_to(parts: &[Vec<String>], levels: &mut [Level], name: &str) -> Vec<usize> {
    let depth = levels.len();
    let Some(level) = levels.last_mut() else { return (0..parts.len()).collect() };
    let index = level.index;
    level.index = index.map(|index| index + 1);
    if level.leads.is_empty() {
        return Vec::new();
    }
    let number = index.map(|index| index.to_string());
    let wanted = number.as_deref().unwrap_or(name);
    level.leads.iter().copied().filter(|pointer| parts[*pointer].get(depth - 1).is_some_and(|part| part == wanted)).collect()
}

fn pointer_parts(pointer: &str) -> Vec<String> {
    pointer.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every token's own bytes, blank-separated, and the fault at the end.
    fn tokens(document: &[u8]) -> String {
        let said = |token| match token {
            Ok(Token { start, end, .. }) => String::from_utf8_lossy(&document[start..end]).into_owned(),
            Err(fault) => format!("{fault:?}"),
        };
        Scanner::new(document).map(said).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn tokens_are_exactly_what_is_written() {
        for (document, said) in [
            (
                r#"{"b":9007199254740993, "a":[1.10,-0,1e400,1E+400,null,true,false]}"#,
                r#"{ "b" 9007199254740993 "a" [ 1.10 -0 1e400 1E+400 null true false ] }"#,
            ),
            (r#"{"a":1,"a":2,"":{}}"#, r#"{ "a" 1 "a" 2 "" { } }"#),
            ("\u{feff} 1 ", "1"),
            (r#""\ud800\u0000\\""#, r#""\ud800\u0000\\""#),
            ("", "Cut(0)"),
            ("{", "{ Cut(1)"),
            (r#"{"a"#, "{ Cut(1)"),
            (r#"{"a":tr"#, r#"{ "a" Cut(5)"#),
            ("[1,]", "[ 1 NotJson(3)"),
            ("[1}", "[ 1 NotJson(2)"),
            ("{} x", "{ } NotJson(3)"),
            ("01", "0 NotJson(1)"),
            ("[1.]", "[ NotJson(3)"),
            ("\"a\nb\"", "NotJson(2)"),
            ("\"a\0\"", "NotJson(2)"),
            (r#""\x""#, "NotJson(1)"),
            (r#""\u12g4""#, "NotJson(1)"),
            ("{1:2}", "{ NotJson(1)"),
            ("{\"a\" 1}", "{ NotJson(5)"),
            ("NaN", "NotJson(0)"),
        ] {
            assert_eq!(tokens(document.as_bytes()), said, "{document}");
        }
        assert_eq!(tokens(b"\"a\xff\""), "NotJson(2)");
        assert_eq!(tokens(b"\"a\xc5"), "Cut(0)");
    }

    #[test]
    fn a_number_that_touches_the_end_of_a_beginning_may_go_on() {
        assert_eq!(Scanner::of_beginning(b"[90071").last(), Some(Err(Fault::Cut(1))));
        assert_eq!(Scanner::new(b"90071").last(), Some(Ok(Token { kind: Kind::Number, start: 0, end: 5 })));
    }

    #[test]
    fn no_depth_is_too_deep() {
        let deep = [vec![b'['; 1_000_000], vec![b']'; 1_000_000]].concat();
        assert!(Scanner::new(&deep).all(|token| token.is_ok()));
        assert_eq!(find(&deep, &["/0/0".to_owned()]), Ok(vec![Found { pointer: 0, start: 2, end: 1_999_998, is_null: false }]));
    }

    #[test]
    fn escapes_are_read_and_half_a_pair_stays_as_written() {
        for (string, text) in [
            (r#""a\"\\\/\b\f\n\r\té""#, "a\"\\/\u{8}\u{c}\n\r\té"),
            (r#""\ud83d\ude00\u00e9""#, "😀é"),
            (r#""\ud800""#, r"\ud800"),
            (r#""\ud800\ud83d\ude00""#, "\\ud800😀"),
            (r#""\udc00x""#, r"\udc00x"),
            (r#""cut \""#, "cut \""),
            (r#""cut \u12"#, r"cut \u12"),
            (r#""""#, ""),
            (r#"""#, ""),
        ] {
            assert_eq!(decoded(string.as_bytes()), text, "{string}");
        }
    }

    #[test]
    fn pointers_find_every_place_they_name() {
        let document = r#"{"a":{"b":[1,{"c":"x"}]},"a":{"b":null},"s/t":2,"\u0061":{"b":3},"":4}"#;
        let found = |pointers: &[&str]| -> Vec<(usize, &str, bool)> {
            let pointers: Vec<String> = pointers.iter().map(|pointer| (*pointer).to_owned()).collect();
            let found = find(document.as_bytes(), &pointers).expect("JSON");
            found.into_iter().map(|found| (found.pointer, &document[found.start..found.end], found.is_null)).collect()
        };
        assert_eq!(found(&["/a/b"]), [(0, r#"[1,{"c":"x"}]"#, false), (0, "null", true), (0, "3", false)]);
        assert_eq!(found(&["/absent", "/a/b/1/c", "/s~1t", "/"]), [(1, r#""x""#, false), (2, "2", false), (3, "4", false)]);
        assert_eq!(found(&["/a/b", "/a"]).len(), 3, "what lies within a found value is not found again");
        assert_eq!(found(&[""]), [(0, document, false)]);
        assert_eq!(find(b"{\"a\":1} and", &["/a".to_owned()]), Err(Fault::NotJson(8)));
    }

    proptest! {
        #[test]
        fn whatever_serde_writes_is_read_and_no_bytes_panic(text in "\\PC*", bytes in any::<Vec<u8>>()) {
            let document = serde_json::json!({ text.clone(): [text.clone(), 1.5, {"x": null}] }).to_string();
            prop_assert!(Scanner::new(document.as_bytes()).all(|token| token.is_ok()));
            prop_assert_eq!(decoded(serde_json::to_string(&text).unwrap().as_bytes()), text);
            let _ = Scanner::new(&bytes).count();
            let _ = decoded(&bytes);
            let ours = Scanner::new(&bytes).all(|token| token.is_ok());
            prop_assert!(ours || serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).is_err());
        }
    }
}
