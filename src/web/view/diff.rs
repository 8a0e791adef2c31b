//! What a transform changes, line by line: only what differs, with a few lines around it.

use similar::{ChangeTag, TextDiff};

/// More than this of a text is not compared, characters.
const COMPARED: usize = 40_000;
/// Lines that are the same around one that differs.
const AROUND: usize = 3;
/// More lines than this are not shown.
const LINES: usize = 200;

/// A line of a diff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiffLine {
    Same(String),
    Gone(String),
    New(String),
    /// Lines that are the same lie between.
    Gap,
}

/// A diff, as far as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Diff {
    /// Empty: nothing differs.
    pub lines: Vec<DiffLine>,
    /// More was there than is shown.
    pub cut: bool,
}

/// What of `after` differs from `before`. Both are text that may be shown.
pub fn diff(before: &str, after: &str) -> Diff {
    let (old, new) = (head(before), head(after));
    let compared = TextDiff::from_lines(old, new);
    let mut lines = Vec::new();
    for (place, group) in compared.grouped_ops(AROUND).iter().enumerate() {
        if place > 0 {
            lines.push(DiffLine::Gap);
        }
        for change in group.iter().flat_map(|op| compared.iter_changes(op)) {
            let line = change.value().trim_end_matches('\n').to_owned();
            lines.push(match change.tag() {
                ChangeTag::Equal => DiffLine::Same(line),
                ChangeTag::Delete => DiffLine::Gone(line),
                ChangeTag::Insert => DiffLine::New(line),
            });
        }
    }
    let cut = old.len() < before.len() || new.len() < after.len() || lines.len() > LINES;
    lines.truncate(LINES);
    Diff { lines, cut }
}

fn head(text: &str) -> &str {
    match text.char_indices().nth(COMPARED) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_shown_with_what_stands_around_it() {
        let lines =
            |changed: &str| (0..20).map(|n| if n == 10 { format!("{changed}\n") } else { format!("line {n}\n") }).collect::<String>();
        let shown = diff(&lines("amount: 12.5"), &lines("amount_minor: 1250")).lines;
        let expected = [
            DiffLine::Same("line 7".into()),
            DiffLine::Same("line 8".into()),
            DiffLine::Same("line 9".into()),
            DiffLine::Gone("amount: 12.5".into()),
            DiffLine::New("amount_minor: 1250".into()),
            DiffLine::Same("line 11".into()),
            DiffLine::Same("line 12".into()),
            DiffLine::Same("line 13".into()),
        ];
        assert_eq!(shown, expected);
        assert_eq!(diff("a\n", "a\n"), Diff::default());
    }

    #[test]
    fn a_huge_difference_is_cut() {
        let many: String = (0..5_000).map(|n| format!("{n}\n")).collect();
        let shown = diff(&many, "");
        assert!(shown.cut);
        assert_eq!(shown.lines.len(), LINES);
    }
}
