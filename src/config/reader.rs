//! Walks a TOML table key by key. It goes on after a fault, so that an operator sees all of them at once (serde would stop at the
//! first), and it knows which keys were asked for, so that every other key is refused.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::fault::Fault;
use crate::domain::settings::Secret;

/// What all sections of one configuration share.
pub(super) struct Source {
    faults: RefCell<Vec<Fault>>,
    /// Keys that came from elsewhere than the file, and the name under which they were given. Their values are text.
    given_as: BTreeMap<String, String>,
    /// Relative paths start here.
    folder: PathBuf,
}

impl Source {
    pub fn new(folder: PathBuf, given_as: BTreeMap<String, String>) -> Source {
        Source { faults: RefCell::default(), given_as, folder }
    }

    pub fn fault(&self, key: &str, what: impl Into<String>, remedy: impl Into<String>) {
        let key = self.given_as.get(key).map_or_else(|| key.to_owned(), |name| format!("{name} ({key})"));
        self.faults.borrow_mut().push(Fault { key, what: what.into(), remedy: remedy.into() });
    }

    pub fn into_faults(self) -> Vec<Fault> {
        self.faults.into_inner()
    }
}

/// One table and the path that leads to it. Dropping it reports the keys that nobody asked for.
pub(super) struct Section<'a> {
    source: &'a Source,
    path: String,
    /// What is left of the table; keys leave it when they are asked for.
    table: Table,
    /// Keys that the operator wrote.
    given: BTreeSet<String>,
    /// Keys that were asked for.
    known: Vec<&'static str>,
}

/// What a text must be to be accepted, and what it becomes.
type Parse<T> = fn(&str) -> Result<T, Wrong>;

/// A value that does not do.
pub(super) struct Wrong {
    pub what: String,
    pub remedy: String,
}

pub(super) fn wrong<T>(what: impl Into<String>, remedy: impl Into<String>) -> Result<T, Wrong> {
    Err(Wrong { what: what.into(), remedy: remedy.into() })
}

impl<'a> Section<'a> {
    pub fn new(source: &'a Source, path: impl Into<String>, table: Table) -> Section<'a> {
        let given = table.keys().cloned().collect();
        Section { source, path: path.into(), table, given, known: Vec::new() }
    }

    pub fn source(&self) -> &'a Source {
        self.source
    }

    /// The path of a key in this section.
    pub fn path_of(&self, key: &str) -> String {
        join(&self.path, key)
    }

    /// The path of the section itself.
    pub fn path(&self) -> &str {
        &self.path
    }

    pub fn fault(&self, key: &str, what: impl Into<String>, remedy: impl Into<String>) {
        self.source.fault(&self.path_of(key), what, remedy);
    }

    /// Whether the operator wrote this key, whatever its value.
    pub fn has(&self, key: &str) -> bool {
        self.given.contains(key)
    }

    /// Gives up on this section after a fault that makes its other keys meaningless: they are not reported.
    pub fn ignore_the_rest(&mut self) {
        self.table.clear();
    }

    /// Reports a key that must be there and is not.
    pub fn require(&mut self, key: &'static str, example: &str) {
        if !self.has(key) {
            self.known.push(key);
            self.fault(key, "is missing", format!("Add it, for example {key} = \"{example}\""));
        }
    }

    fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.table.remove(key)
    }

    fn is_text_from_elsewhere(&self, key: &str) -> bool {
        self.source.given_as.contains_key(&self.path_of(key))
    }

    fn mistyped(&self, key: &str, value: &Value, wanted: &str) {
        self.fault(key, format!("is {}", article(value.type_str())), format!("Give {wanted}"));
    }

    /// A text; an empty one counts as absent.
    pub fn text(&mut self, key: &'static str) -> Option<String> {
        match self.take(key)? {
            Value::String(text) if text.is_empty() => None,
            Value::String(text) => Some(text),
            other => {
                self.mistyped(key, &other, "a text in quotes");
                None
            }
        }
    }

    /// A text, or a point in time as TOML writes it without quotes.
    pub fn text_or_instant(&mut self, key: &'static str) -> Option<String> {
        match self.table.get(key) {
            Some(Value::Datetime(at)) => {
                let at = at.to_string();
                self.take(key);
                Some(at)
            }
            _ => self.text(key),
        }
    }

    /// Whether the operator wrote nothing into it.
    pub fn is_empty(&self) -> bool {
        self.given.is_empty()
    }

    /// A text that must be there.
    pub fn required_text(&mut self, key: &'static str, example: &str) -> Option<String> {
        self.require(key, example);
        if !self.has(key) {
            return None;
        }
        let faults_before = self.source.faults.borrow().len();
        let text = self.text(key);
        if text.is_none() && self.source.faults.borrow().len() == faults_before {
            self.fault(key, "is empty", format!("Give a value, for example \"{example}\""));
        }
        text
    }

    /// A text that is parsed; a wrong one is reported and counts as absent.
    pub fn parsed<T>(&mut self, key: &'static str, parse: Parse<T>) -> Option<T> {
        let text = self.text(key)?;
        self.parse(key, &text, parse)
    }

    pub fn parse<T>(&self, key: &str, text: &str, parse: Parse<T>) -> Option<T> {
        match parse(text) {
            Ok(value) => Some(value),
            Err(wrong) => {
                self.fault(key, wrong.what, wrong.remedy);
                None
            }
        }
    }

    /// One of several words.
    pub fn word<T: Copy>(&mut self, key: &'static str, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(key)?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.fault(key, format!("{text:?} is not known"), format!("Use {}", one_of(&known)));
        }
        found
    }

    /// A whole number within a range.
    pub fn number<T: TryFrom<i64>>(&mut self, key: &'static str, default: T, range: RangeInclusive<i64>) -> T {
        let Some(value) = self.take(key) else { return default };
        let number = match &value {
            Value::Integer(number) => Some(*number),
            Value::String(text) if self.is_text_from_elsewhere(key) => text.trim().parse().ok(),
            _ => None,
        };
        let remedy = format!("Give a whole number from {} to {}", range.start(), range.end());
        match number {
            None => self.fault(key, "is not a whole number", remedy),
            Some(number) if !range.contains(&number) => self.fault(key, format!("{number} is out of range"), remedy),
            Some(number) => match T::try_from(number) {
                Ok(number) => return number,
                Err(_) => self.fault(key, format!("{number} is out of range"), remedy),
            },
        }
        default
    }

    pub fn flag(&mut self, key: &'static str, default: bool) -> bool {
        let Some(value) = self.take(key) else { return default };
        match value {
            Value::Boolean(flag) => flag,
            Value::String(text) if self.is_text_from_elsewhere(key) && ["true", "false"].contains(&text.as_str()) => text == "true",
            _ => {
                self.fault(key, "is neither true nor false", "Write true or false, without quotes");
                default
            }
        }
    }

    /// A list of texts; absent is empty.
    pub fn texts(&mut self, key: &'static str) -> Vec<String> {
        match self.take(key) {
            None => Vec::new(),
            Some(Value::Array(values)) => {
                let texts: Option<Vec<String>> = values.iter().map(|value| value.as_str().map(str::to_owned)).collect();
                texts.unwrap_or_else(|| {
                    self.fault(key, "holds something that is not text", "Put every element in quotes");
                    Vec::new()
                })
            }
            Some(other) => {
                self.mistyped(key, &other, "a list of texts, for example [\"a\", \"b\"]");
                Vec::new()
            }
        }
    }

    /// A table of texts with keys of the operator's choosing.
    pub fn text_table(&mut self, key: &'static str) -> BTreeMap<String, String> {
        let Some(table) = self.table(key) else { return BTreeMap::new() };
        let mut texts = BTreeMap::new();
        for (name, value) in table {
            match value {
                Value::String(text) => {
                    texts.insert(name, text);
                }
                // librdkafka takes text for everything; a number or flag is taken as it is written.
                Value::Integer(number) => {
                    texts.insert(name, number.to_string());
                }
                Value::Boolean(flag) => {
                    texts.insert(name, flag.to_string());
                }
                _ => self.source.fault(
                    &join(&self.path_of(key), &quoted(&name)),
                    "is no single value",
                    "Give a text; property names with dots need quotes, for example \"security.protocol\" = \"SSL\"",
                ),
            }
        }
        texts
    }

    fn table(&mut self, key: &'static str) -> Option<Table> {
        match self.take(key)? {
            Value::Table(table) => Some(table),
            other => {
                self.mistyped(key, &other, &format!("a table: [{}]", self.path_of(key)));
                None
            }
        }
    }

    /// A sub-table, if it is there.
    pub fn section(&mut self, key: &'static str) -> Option<Section<'a>> {
        let table = self.table(key)?;
        Some(Section::new(self.source, self.path_of(key), table))
    }

    /// A sub-table; an absent one is empty, so that its defaults hold.
    pub fn section_or_empty(&mut self, key: &'static str) -> Section<'a> {
        let path = self.path_of(key);
        let table = self.table(key).unwrap_or_default();
        Section::new(self.source, path, table)
    }

    /// `[[key]]`: a list of tables.
    pub fn sections(&mut self, key: &'static str) -> Vec<Section<'a>> {
        let path = self.path_of(key);
        let values = match self.take(key) {
            None => return Vec::new(),
            Some(Value::Array(values)) => values,
            Some(other) => {
                self.mistyped(key, &other, &format!("a list of tables: [[{path}]]"));
                return Vec::new();
            }
        };
        let mut sections = Vec::with_capacity(values.len());
        for (index, value) in values.into_iter().enumerate() {
            let path = format!("{path}[{index}]");
            match value {
                Value::Table(table) => sections.push(Section::new(self.source, path, table)),
                other => self.source.fault(&path, format!("is {}", article(other.type_str())), "Give a table"),
            }
        }
        sections
    }

    /// The names under `[key.NAME]`, without asking for them.
    pub fn names_in(&self, key: &str) -> BTreeSet<String> {
        self.table.get(key).and_then(Value::as_table).map(|table| table.keys().cloned().collect()).unwrap_or_default()
    }

    /// `[key.NAME]`: tables with names of the operator's choosing.
    pub fn named_sections(&mut self, key: &'static str) -> Vec<(String, Section<'a>)> {
        let path = self.path_of(key);
        let Some(table) = self.table(key) else { return Vec::new() };
        let mut sections = Vec::with_capacity(table.len());
        for (name, value) in table {
            let path = join(&path, &quoted(&name));
            match value {
                Value::Table(table) => sections.push((name, Section::new(self.source, path, table))),
                other => self.source.fault(&path, format!("is {}", article(other.type_str())), format!("Give a table: [{path}]")),
            }
        }
        sections
    }

    /// A secret given in the file as `key`, or in a file of its own named by `key_file`. Both at once is a fault. The value is never shown.
    pub fn secret(&mut self, key: &'static str, key_file: &'static str) -> Option<Secret> {
        let (in_place, file) = (self.text(key), self.text(key_file));
        match (in_place, file) {
            (Some(_), Some(_)) => {
                self.fault(key, format!("is given beside {key_file}"), format!("Keep one of the two, best {key_file}"));
                None
            }
            (Some(value), None) => Some(Secret::new(value)),
            (None, Some(path)) => read_secret(self.source, &self.path_of(key_file), &path),
            (None, None) => None,
        }
    }

    /// A path to a file that must exist.
    pub fn existing_file(&mut self, key: &'static str) -> Option<PathBuf> {
        let text = self.text(key)?;
        let path = self.source.folder.join(&text);
        match std::fs::metadata(&path) {
            Ok(found) if found.is_file() => return Some(path),
            Ok(_) => self.fault(key, format!("{} is not a file", path.display()), "Name a file"),
            Err(error) => self.fault(key, format!("{} cannot be read: {error}", path.display()), "Name a readable file"),
        }
        None
    }

    /// A path that need not exist yet.
    pub fn file(&mut self, key: &'static str) -> Option<PathBuf> {
        self.text(key).map(|text| self.source.folder.join(text))
    }
}

impl Drop for Section<'_> {
    fn drop(&mut self) {
        for key in self.table.keys() {
            let remedy = match closest(key, &self.known) {
                Some(known) => format!("Did you mean {known}?"),
                None => format!("Known here: {}", self.known.join(", ")),
            };
            self.fault(&quoted(key), "is not a known setting", remedy);
        }
    }
}

/// The content of a secret's file without its last line end.
pub(super) fn read_secret(source: &Source, key: &str, path: &str) -> Option<Secret> {
    let path = source.folder.join(path);
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let value = text.strip_suffix('\n').map(|text| text.strip_suffix('\r').unwrap_or(text)).unwrap_or(&text);
            if value.is_empty() {
                source.fault(key, format!("{} is empty", path.display()), "Write the secret into it");
                return None;
            }
            Some(Secret::new(value))
        }
        Err(error) => {
            source.fault(key, format!("{} cannot be read: {error}", path.display()), remedy_for(&error, &path));
            None
        }
    }
}

fn remedy_for(error: &std::io::Error, path: &Path) -> String {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => format!("Let the user that runs Lazaret read {}", path.display()),
        _ => "Name a file that holds the secret and nothing else".to_owned(),
    }
}

pub(super) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// A key as TOML wants it written.
pub(super) fn quoted(key: &str) -> String {
    let bare = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if bare { key.to_owned() } else { format!("{key:?}") }
}

fn article(type_name: &str) -> String {
    let article = if type_name.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{article} {type_name}")
}

pub(super) fn one_of(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [head @ .., last] => format!("{} or {last}", head.join(", ")),
    }
}

/// The known name that is one slip of the finger away, or two for a long one.
pub(super) fn closest<'k>(typed: &str, known: &[&'k str]) -> Option<&'k str> {
    let allowed = if typed.len() > 6 { 2 } else { 1 };
    let distances = known.iter().map(|name| (edit_distance(typed, name), *name));
    distances.filter(|(distance, _)| *distance <= allowed).min().map(|(_, name)| name)
}

/// Insertions, deletions, replacements and swaps of neighbours that turn one text into the other (optimal string alignment).
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0_usize; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_is_recognised_and_a_different_word_is_not() {
        assert_eq!(closest("lisen", &["listen", "public_url"]), Some("listen"));
        assert_eq!(closest("bussiness_kye", &["business_key", "tenant"]), Some("business_key"));
        assert_eq!(closest("owenr", &["owner", "order"]), Some("owner"));
        assert_eq!(closest("colour", &["owner", "order"]), None);
    }
}
