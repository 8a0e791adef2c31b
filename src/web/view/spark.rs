//! The 24 h sparkline: 120 x 24, a gap where nothing is known, the end dotted, and the same in words.

use std::fmt::Write as _;

use super::chart::arrivals_label;

const WIDTH: f64 = 120.0;
const HEIGHT: f64 = 24.0;
const MARGIN: f64 = 2.0;

/// Counts in equal buckets, oldest first. `None` is "not known".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    pub buckets: Vec<Option<i64>>,
    /// Start of the first bucket, ms.
    pub from_ms: i64,
    pub bucket_ms: i64,
}

impl Series {
    /// Where a bucket begins, ms.
    pub fn start_ms(&self, index: usize) -> i64 {
        self.from_ms + self.bucket_ms * index as i64
    }

    /// Where the last bucket ends, ms.
    pub fn end_ms(&self) -> i64 {
        self.start_ms(self.buckets.len())
    }

    /// The largest count and its bucket, the first of several; None where nothing came or nothing is known.
    pub fn peak(&self) -> Option<(usize, i64)> {
        let known = self.buckets.iter().enumerate().filter_map(|(index, count)| Some((index, (*count)?)));
        known.filter(|(_, count)| *count > 0).rev().max_by_key(|(_, count)| *count)
    }

    /// The times, `[from, to)` in ms, of which nothing is known.
    pub fn gaps(&self) -> Vec<(i64, i64)> {
        let mut gaps: Vec<(i64, i64)> = Vec::new();
        for (index, _) in self.buckets.iter().enumerate().filter(|(_, count)| count.is_none()) {
            let (from, to) = (self.start_ms(index), self.start_ms(index + 1));
            match gaps.last_mut() {
                Some((_, end)) if *end == from => *end = to,
                _ => gaps.push((from, to)),
            }
        }
        gaps
    }
}

/// A sparkline ready for the template.
#[derive(Debug, Clone, PartialEq)]
pub struct Spark {
    /// SVG path data; empty when nothing is known.
    pub path: String,
    /// The last known point.
    pub end: Option<(String, String)>,
    /// What the picture shows, in words.
    pub label: String,
}

impl Spark {
    /// Draws `series`; `now` is today's rate in words for the label.
    pub fn draw(series: &Series, now: &str) -> Spark {
        let points = points(series);
        let end = points.iter().rev().flatten().next().map(|(x, y)| (number(*x), number(*y)));
        Spark { path: line(&points), end, label: arrivals_label(series, now, series.end_ms()) }
    }
}

fn points(series: &Series) -> Vec<Option<(f64, f64)>> {
    let steps = series.buckets.len().saturating_sub(1).max(1) as f64;
    let scale = series.peak().map_or(1, |(_, count)| count) as f64;
    let place = |(index, count): (usize, &Option<i64>)| {
        count.map(|count| {
            let x = MARGIN + (WIDTH - 2.0 * MARGIN) * index as f64 / steps;
            (x, HEIGHT - MARGIN - (HEIGHT - 2.0 * MARGIN) * count as f64 / scale)
        })
    };
    series.buckets.iter().enumerate().map(place).collect()
}

/// Path data through the points, broken where there is none. A point alone is a line of no length, which round ends make a dot.
pub(super) fn line(points: &[Option<(f64, f64)>]) -> String {
    let mut path = String::with_capacity(points.len() * 10);
    let mut drawing = false;
    for (index, point) in points.iter().enumerate() {
        if let Some((x, y)) = point {
            let alone = !drawing && points.get(index + 1).is_none_or(Option::is_none);
            // Writing to a String cannot fail.
            let _ = write!(path, "{}{} {}{}", if drawing { 'L' } else { 'M' }, number(*x), number(*y), if alone { "h0" } else { "" });
        }
        drawing = point.is_some();
    }
    path
}

/// One decimal at most.
pub(super) fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From 2026-01-01 00:00 UTC.
    fn spark(buckets: &[Option<i64>], now: &str) -> Spark {
        let series = Series { buckets: buckets.to_vec(), from_ms: 1_767_225_600_000, bucket_ms: 1_800_000 };
        Spark::draw(&series, now)
    }

    #[test]
    fn a_gap_breaks_the_line_and_is_no_zero() {
        let spark = spark(&[Some(0), Some(60), None, Some(30)], "2/min");
        assert_eq!(spark.path, "M2 22L40.7 2M118 12h0");
        assert_eq!(spark.end, Some(("118".to_owned(), "12".to_owned())));
        assert_eq!(spark.label, "Arrivals 24 h: now 2/min, peak 2/min at 00:30 UTC, no data 01:00-01:30 UTC");
    }

    #[test]
    fn nothing_known_draws_nothing_and_says_so() {
        let spark = spark(&[None, None], "not known");
        assert_eq!((spark.path.as_str(), spark.end), ("", None));
        assert_eq!(spark.label, "Arrivals 24 h: now not known, no data");
    }

    #[test]
    fn a_quiet_day_is_a_line_at_the_bottom() {
        let spark = spark(&[Some(0), Some(0)], "0/min");
        assert_eq!(spark.path, "M2 22L118 22");
        assert_eq!(spark.label, "Arrivals 24 h: now 0/min");
    }

    #[test]
    fn the_first_of_equal_peaks_is_told() {
        assert!(spark(&[Some(1), Some(30), Some(30)], "1/min").label.contains("peak 1/min at 00:30 UTC"));
    }
}
