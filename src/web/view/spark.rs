//! The 24 h sparkline: 120 x 24, a gap where nothing is known, the end dotted, and the same in words.

use std::fmt::Write as _;

use super::format;

const WIDTH: f64 = 120.0;
const HEIGHT: f64 = 24.0;
const MARGIN: f64 = 2.0;

/// Counts of arrivals in equal buckets, oldest first. `None` is "not known".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    pub buckets: Vec<Option<i64>>,
    /// Start of the first bucket, ms.
    pub from_ms: i64,
    pub bucket_ms: i64,
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
        let peak = series.buckets.iter().flatten().copied().max();
        let points = points(series, peak.unwrap_or(0));
        let end = points.iter().rev().flatten().next().map(|(x, y)| (number(*x), number(*y)));
        Spark { path: path(&points), end, label: label(series, peak, now) }
    }
}

fn points(series: &Series, peak: i64) -> Vec<Option<(f64, f64)>> {
    let steps = series.buckets.len().saturating_sub(1).max(1) as f64;
    let scale = peak.max(1) as f64;
    let place = |(index, count): (usize, &Option<i64>)| {
        count.map(|count| {
            let x = MARGIN + (WIDTH - 2.0 * MARGIN) * index as f64 / steps;
            (x, HEIGHT - MARGIN - (HEIGHT - 2.0 * MARGIN) * count as f64 / scale)
        })
    };
    series.buckets.iter().enumerate().map(place).collect()
}

fn path(points: &[Option<(f64, f64)>]) -> String {
    let mut path = String::with_capacity(points.len() * 10);
    let mut drawing = false;
    for point in points {
        if let Some((x, y)) = point {
            // Writing to a String cannot fail.
            let _ = write!(path, "{}{} {}", if drawing { 'L' } else { 'M' }, number(*x), number(*y));
        }
        drawing = point.is_some();
    }
    path
}

fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

fn label(series: &Series, peak: Option<i64>, now: &str) -> String {
    let Some(peak) = peak else {
        return "Arrivals 24 h: not known".to_owned();
    };
    let total: i64 = series.buckets.iter().flatten().sum();
    let mut label = format!("Arrivals 24 h: {} in all, now {now}", format::exact(total));
    if let (true, Some(index)) = (peak > 0, series.buckets.iter().position(|count| *count == Some(peak))) {
        let at = series.from_ms + series.bucket_ms * index as i64;
        let (minutes, time) = (series.bucket_ms / 60_000, format::time_of_day(at));
        let _ = write!(label, ", peak {} in the {minutes} min from {time}", format::exact(peak));
    }
    if series.buckets.iter().any(Option::is_none) {
        label.push_str(", partly not known");
    }
    label
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(buckets: &[Option<i64>]) -> Series {
        Series { buckets: buckets.to_vec(), from_ms: 1_767_225_600_000, bucket_ms: 1_800_000 }
    }

    #[test]
    fn a_gap_breaks_the_line_and_is_no_zero() {
        let spark = Spark::draw(&series(&[Some(0), Some(4), None, Some(2)]), "2/min");
        assert_eq!(spark.path, "M2 22L40.7 2M118 12");
        assert_eq!(spark.end, Some(("118".to_owned(), "12".to_owned())));
        assert_eq!(spark.label, "Arrivals 24 h: 6 in all, now 2/min, peak 4 in the 30 min from 00:30:00 UTC, partly not known");
    }

    #[test]
    fn nothing_known_draws_nothing_and_says_so() {
        let spark = Spark::draw(&series(&[None, None]), "—");
        assert_eq!((spark.path.as_str(), spark.end), ("", None));
        assert_eq!(spark.label, "Arrivals 24 h: not known");
    }

    #[test]
    fn a_quiet_day_is_a_line_at_the_bottom() {
        let spark = Spark::draw(&series(&[Some(0), Some(0)]), "0/min");
        assert_eq!(spark.path, "M2 22L118 22");
        assert_eq!(spark.label, "Arrivals 24 h: 0 in all, now 0/min");
    }
}
