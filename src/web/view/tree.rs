//! JSON as a tree of lines that a template writes as nested `<details>`: flat, so that no depth of a stranger's document recurses here.

use std::collections::BTreeSet;

use super::format;
use super::text::{line, short_line};
use crate::domain::json::{BOM, Fault, Kind, Scanner, Token, decoded, pointer_part};

/// How many values a tree shows.
pub const NODES: usize = 500;
/// How many levels deep it goes.
pub const DEPTH: usize = 32;
/// How many characters of a text or a number it shows.
const TEXT_CHARS: usize = 300;
/// How many characters of a name, and of the pointer before it.
const NAME_CHARS: usize = 100;
const PARENT_CHARS: usize = 60;
/// Trees of up to so many values are shown open.
const ALL_OPEN: usize = 120;
/// Larger ones only so many levels.
const LEVELS_OPEN: usize = 2;

/// The JSON pointer (RFC 6901) of a value, in two parts to be written one after the other. The root's is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer {
    /// "/card/"; cut at its beginning if long.
    pub parents: String,
    /// "number".
    pub name: String,
}

/// One line of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreeLine {
    /// An object or a list; what is in it follows, up to its `Close`.
    Open {
        pointer: Pointer,
        what: String,
        is_open: bool,
        again: bool,
    },
    /// `kind` is "text", "number" or "word".
    Leaf {
        pointer: Pointer,
        kind: &'static str,
        value: String,
        again: bool,
    },
    Close,
}

/// A document to look at.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tree {
    pub lines: Vec<TreeLine>,
    /// In sentences, what of the document is not shown or is out of the ordinary.
    pub notes: Vec<String>,
}

/// Why there is no tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoTree {
    /// It is a single text or number, or does not begin like an object or a list.
    NoContainer,
    /// It begins like JSON, and is none from this byte on.
    NotJson(usize),
    /// It begins like JSON, and ends in the middle.
    EndsEarly,
}

struct Level {
    /// The line that opened it; None where it is not shown.
    line: Option<usize>,
    is_object: bool,
    count: usize,
    pointer: String,
    /// The names so far, to notice those given twice.
    names: BTreeSet<String>,
    /// The member whose value comes next.
    name: Option<String>,
}

#[derive(Default)]
struct Builder {
    lines: Vec<TreeLine>,
    levels: Vec<Level>,
    nodes: usize,
    too_many: bool,
    too_deep: bool,
    twice: BTreeSet<String>,
}

/// The tree of a document, or, when it is larger than `shown`, of that beginning of it.
///
/// # Errors
/// It is no JSON, as far as it was looked at, or nothing that has branches.
pub fn tree(shown: &[u8], is_whole: bool) -> Result<Tree, NoTree> {
    let scanner = if is_whole { Scanner::new(shown) } else { Scanner::of_beginning(shown) };
    let mut builder = Builder::default();
    for (at, token) in scanner.enumerate() {
        match token {
            Ok(Token { kind, .. }) if at == 0 && !matches!(kind, Kind::OpenObject | Kind::OpenArray) => return Err(NoTree::NoContainer),
            Ok(token) => builder.take(token, shown),
            Err(Fault::Cut(at)) if !is_whole => builder.cut(&shown[at..]),
            Err(_) if at == 0 => return Err(NoTree::NoContainer),
            Err(Fault::Cut(_)) => return Err(NoTree::EndsEarly),
            Err(Fault::NotJson(at)) => return Err(NoTree::NotJson(at)),
        }
    }
    Ok(builder.finish(shown.starts_with(BOM)))
}

impl Builder {
    fn take(&mut self, token: Token, document: &[u8]) {
        let written = &document[token.start..token.end];
        match token.kind {
            Kind::Name => {
                if let Some(level) = self.levels.last_mut() {
                    level.name = Some(decoded(written));
                }
            }
            Kind::CloseObject | Kind::CloseArray => self.close(true),
            Kind::OpenObject | Kind::OpenArray => self.open(token.kind == Kind::OpenObject),
            Kind::String => self.leaf("text", || quoted(&decoded(written), true)),
            Kind::Number => self.leaf("number", || short_line(&String::from_utf8_lossy(written), TEXT_CHARS)),
            Kind::True | Kind::False | Kind::Null => self.leaf("word", || String::from_utf8_lossy(written).into_owned()),
        }
    }

    /// Counts the value that comes next and says where it stands: its whole pointer, what is shown of it, whether its name was given before.
    /// None: it is not shown.
    fn place(&mut self) -> Option<(String, Pointer, bool)> {
        let depth = self.levels.len();
        let Some(level) = self.levels.last_mut() else {
            self.nodes += 1;
            return Some((String::new(), Pointer { parents: String::new(), name: String::new() }, false));
        };
        let name = if level.is_object { level.name.take().unwrap_or_default() } else { level.count.to_string() };
        level.count += 1;
        level.line?;
        self.too_deep |= depth > DEPTH;
        self.too_many |= self.nodes >= NODES;
        if depth > DEPTH || self.nodes >= NODES {
            return None;
        }
        self.nodes += 1;
        let part = pointer_part(&name);
        let pointer = format!("{}/{part}", level.pointer);
        let shown = Pointer { parents: format!("{}/", end_of(&level.pointer, PARENT_CHARS)), name: short_line(&part, NAME_CHARS) };
        let again = level.is_object && !level.names.insert(name);
        if again {
            self.twice.insert(short_line(&pointer, NAME_CHARS));
        }
        Some((pointer, shown, again))
    }

    fn open(&mut self, is_object: bool) {
        let (line, pointer) = match self.place() {
            None => (None, String::new()),
            Some((pointer, shown, again)) => {
                self.lines.push(TreeLine::Open { pointer: shown, what: String::new(), is_open: self.levels.len() < LEVELS_OPEN, again });
                (Some(self.lines.len() - 1), pointer)
            }
        };
        self.levels.push(Level { line, is_object, count: 0, pointer, names: BTreeSet::new(), name: None });
    }

    fn close(&mut self, is_complete: bool) {
        let Some(level) = self.levels.pop() else { return };
        let (one, many) = if level.is_object { ("member", "members") } else { ("item", "items") };
        let counted = format::counted(level.count as i64, one, many);
        if let Some(TreeLine::Open { what, .. }) = level.line.and_then(|line| self.lines.get_mut(line)) {
            *what = if is_complete { counted } else { format!("{counted} so far") };
            self.lines.push(TreeLine::Close);
        }
    }

    fn leaf(&mut self, kind: &'static str, value: impl FnOnce() -> String) {
        if let Some((_, pointer, again)) = self.place() {
            self.lines.push(TreeLine::Leaf { pointer, kind, value: value(), again });
        }
    }

    /// The document goes on behind `rest`, which is the beginning of a token. Of a text there is something to show; part of a number is another number.
    fn cut(&mut self, rest: &[u8]) {
        let at_value = self.levels.last().is_some_and(|level| !level.is_object || level.name.is_some());
        if at_value && rest.first() == Some(&b'"') {
            self.leaf("text", || quoted(&decoded(rest), false));
        }
        while !self.levels.is_empty() {
            self.close(false);
        }
    }

    fn finish(mut self, has_bom: bool) -> Tree {
        if self.nodes <= ALL_OPEN {
            for each in &mut self.lines {
                if let TreeLine::Open { is_open, .. } = each {
                    *is_open = true;
                }
            }
        }
        let mut notes = Vec::new();
        if self.too_many {
            notes.push(format!("The tree shows the first {NODES} values."));
        }
        if self.too_deep {
            notes.push(format!("Nested deeper than {DEPTH} levels, nothing is shown."));
        }
        if !self.twice.is_empty() {
            let all: Vec<String> = self.twice.iter().take(5).cloned().collect();
            let more = if self.twice.len() > all.len() { " and others" } else { "" };
            notes.push(format!("Given more than once: {}{more}. Readers differ in which one counts.", all.join(", ")));
        }
        if has_bom {
            notes.push("It begins with a byte order mark, which JSON forbids: many readers refuse it.".to_owned());
        }
        Tree { lines: self.lines, notes }
    }
}

fn quoted(text: &str, is_whole: bool) -> String {
    let length = text.chars().count();
    match (length > TEXT_CHARS, is_whole) {
        (false, true) => format!("\"{}\"", line(text)),
        (true, true) => format!("\"{}\" ({} characters)", short_line(text, TEXT_CHARS), format::exact(length as i64)),
        (_, false) => format!("\"{}… (goes on)", line(&text[..text.floor_char_boundary(TEXT_CHARS)])),
    }
}

/// The end of a pointer, made visible.
fn end_of(pointer: &str, chars: usize) -> String {
    match pointer.char_indices().rev().nth(chars) {
        Some((at, _)) => format!("…{}", line(&pointer[at..])),
        None => line(pointer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree as a text: two blanks a level.
    fn drawn(tree: &Tree) -> String {
        let mut depth = 0;
        let mut out = String::new();
        for each in &tree.lines {
            let pad = "  ".repeat(depth);
            match each {
                TreeLine::Open { pointer, what, again, .. } => {
                    let tag = if *again { " (again)" } else { "" };
                    out.push_str(&format!("{pad}{}{} [{what}]{tag}\n", pointer.parents, pointer.name));
                    depth += 1;
                }
                TreeLine::Leaf { pointer, value, again, .. } => {
                    let tag = if *again { " (again)" } else { "" };
                    out.push_str(&format!("{pad}{}{} = {value}{tag}\n", pointer.parents, pointer.name));
                }
                TreeLine::Close => depth -= 1,
            }
        }
        assert_eq!(depth, 0, "every container that opens closes");
        out
    }

    fn whole(document: &str) -> Tree {
        tree(document.as_bytes(), true).expect("a tree")
    }

    #[test]
    fn every_value_stands_at_its_pointer_with_every_digit() {
        let tree = whole(r#"{"id":9007199254740993,"big":1e400,"card":{"a/b":"x\n\u202e","":null},"list":[true,[]],"half":"\ud800"}"#);
        assert_eq!(
            drawn(&tree),
            " [5 members]\n\
             \u{20} /id = 9007199254740993\n\
             \u{20} /big = 1e400\n\
             \u{20} /card [2 members]\n\
             \u{20}   /card/a~1b = \"x␊⟨U+202E⟩\"\n\
             \u{20}   /card/ = null\n\
             \u{20} /list [2 items]\n\
             \u{20}   /list/0 = true\n\
             \u{20}   /list/1 [0 items]\n\
             \u{20} /half = \"\\ud800\"\n"
        );
        assert_eq!(tree.notes, Vec::<String>::new());
    }

    #[test]
    fn a_member_given_twice_is_shown_twice_and_said() {
        let tree = whole("\u{feff}{\"a\":1,\"b\":2,\"\\u0061\":{}}");
        assert_eq!(drawn(&tree), " [3 members]\n  /a = 1\n  /b = 2\n  /a [0 members] (again)\n");
        assert_eq!(tree.notes[0], "Given more than once: /a. Readers differ in which one counts.");
        assert!(tree.notes[1].contains("byte order mark"));
    }

    #[test]
    fn a_beginning_shows_what_is_certain() {
        let cut = |document: &str| drawn(&tree(document.as_bytes(), false).expect("a tree"));
        assert_eq!(cut(r#"{"a":[1,22"#), " [1 member so far]\n  /a [1 item so far]\n    /a/0 = 1\n", "22 may be the beginning of 220");
        assert_eq!(cut(r#"{"a":"begi"#), " [1 member so far]\n  /a = \"begi… (goes on)\n");
        assert_eq!(cut(r#"{"a":1,"na"#), " [1 member so far]\n  /a = 1\n");
        assert_eq!(cut("["), " [0 items so far]\n");
    }

    #[test]
    fn what_is_no_tree_says_why() {
        for (document, why) in [
            ("", NoTree::NoContainer),
            ("card=4111", NoTree::NoContainer),
            ("\"text\"", NoTree::NoContainer),
            ("12", NoTree::NoContainer),
            (r#"{"a":"#, NoTree::EndsEarly),
            ("{\"a\":\"x\0\"}", NoTree::NotJson(7)),
            ("{a:1}", NoTree::NotJson(1)),
        ] {
            assert_eq!(tree(document.as_bytes(), true), Err(why), "{document}");
        }
        assert_eq!(tree(b"{\"a\":\"\xff\"}", true), Err(NoTree::NotJson(6)));
    }

    #[test]
    fn depth_number_and_length_are_capped_and_said() {
        let deep = whole(&format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)));
        assert_eq!(drawn(&deep).lines().count(), DEPTH + 1);
        assert_eq!(deep.notes, ["Nested deeper than 32 levels, nothing is shown."]);
        let many = whole(&format!("[{}0]", "0,".repeat(9_999)));
        assert_eq!(many.lines.len(), NODES + 1);
        assert!(drawn(&many).starts_with(" [10,000 items]\n"));
        assert_eq!(many.notes, ["The tree shows the first 500 values."]);
        let long = whole(&format!("[\"{}\",{}]", "x".repeat(5_000), "1".repeat(5_000)));
        assert!(drawn(&long).contains("x…\" (5,000 characters)"));
        assert!(drawn(&long).len() < 1_000);
        let name = whole(&format!("{{\"{0}\":{{\"{0}\":1}}}}", "n".repeat(5_000)));
        assert!(drawn(&name).len() < 600, "{}", drawn(&name));
    }
}
