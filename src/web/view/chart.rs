//! A chart of 24 hours as numbers for `templates/charts.html`: where its line, ticks, gaps and marks go, and the same in words and as a table.
//!
//! Positions along the time axis are percent of the plot's width and those along the other are pixels, so that one drawing fits every screen
//! and its text keeps its size.

use std::fmt::Write as _;

use super::format;
use super::spark::{Series, line};

/// Height of the plot, px; `.chart` in `static/app.css` is as high.
const HEIGHT: f64 = 168.0;
/// The plot's own units along time, for the line: it is stretched to the width there is.
const SPAN: f64 = 1_000.0;
/// At most so many steps between the lines of the grid.
const STEPS: i64 = 4;
const HOUR_MS: i64 = 3_600_000;
/// A time under every sixth hour; every third one is left out where the screen is narrow.
const TICK_MS: i64 = 3 * HOUR_MS;
/// A gap's mark shows this much, however short it is, percent.
const NARROWEST: f64 = 0.4;

/// Something that happened, to be told beside the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    pub at_ms: i64,
    pub label: String,
}

/// What a bucket's number is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Messages that came within the bucket. The last one is still counting.
    Arrivals,
    /// How many there were at the bucket's end.
    Depth,
}

/// A chart ready for the template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chart {
    /// What it shows, in words.
    pub label: String,
    /// What one number of it is: "messages per 5 minutes".
    pub unit: String,
    /// SVG path data in a box of 1000 by [`HEIGHT`]; empty when nothing is known.
    pub path: String,
    /// From the last whole bucket to the one that is still counting; empty where that is not known.
    pub running: String,
    pub end: Option<(String, String)>,
    /// Where nothing is known: start and width, percent.
    pub gaps: Vec<(String, String)>,
    pub levels: Vec<Level>,
    pub hours: Vec<Hour>,
    pub marks: Vec<MarkLine>,
    /// Every number, spans of the same one together.
    pub rows: Vec<Span>,
}

/// A line of the grid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Level {
    pub y: String,
    pub label: String,
}

/// A time below the plot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hour {
    pub x: String,
    pub label: String,
    /// Left out on a narrow screen.
    pub fine: bool,
}

/// A mark: a number in the picture, its words below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkLine {
    pub x: String,
    pub number: usize,
    pub at: String,
    pub label: String,
    /// Half an hour around it.
    pub from_ms: i64,
    pub to_ms: i64,
}

/// One row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    pub from: String,
    pub to: String,
    pub from_ms: i64,
    pub to_ms: i64,
    /// None: no data.
    pub count: Option<String>,
    /// There are messages of this time to look at.
    pub any: bool,
}

impl Chart {
    /// Draws `series` as of `now_ms`; `now` is today's figure in words. Marks outside the time of the series are left out.
    pub fn draw(series: &Series, measure: Measure, now: &str, now_ms: i64, marks: &[Mark]) -> Chart {
        let frame = Frame::of(series);
        let points: Vec<Option<(f64, f64)>> =
            series.buckets.iter().enumerate().map(|(index, count)| count.map(|count| (frame.middle(index), frame.y(count)))).collect();
        // What is still counting would end each line in a fall that may be none.
        let counting = measure == Measure::Arrivals && series.end_ms() > now_ms;
        let whole = points.len() - usize::from(counting && !points.is_empty());
        let running = match points[whole.saturating_sub(1)..] {
            [Some(_), Some(_)] if counting && whole > 0 => line(&points[whole - 1..]),
            _ => String::new(),
        };
        let end = points.iter().rev().flatten().next().map(|(x, y)| (number(x / SPAN * 100.0), number(*y)));
        Chart {
            label: label(series, measure, now, now_ms),
            unit: unit(series, measure),
            path: line(&points[..whole]),
            running,
            end,
            gaps: frame.gaps(),
            levels: frame.levels(),
            hours: frame.hours(),
            marks: frame.marks(marks),
            rows: rows(series, measure, now_ms),
        }
    }
}

/// The measures of a drawing.
struct Frame<'a> {
    series: &'a Series,
    step: i64,
    top: i64,
}

impl Frame<'_> {
    fn of(series: &Series) -> Frame<'_> {
        let most = series.buckets.iter().flatten().copied().max().unwrap_or(0).max(1);
        let step = round_step(most);
        Frame { series, step, top: most.div_euclid(step).saturating_add(i64::from(most % step > 0)).saturating_mul(step) }
    }

    fn y(&self, count: i64) -> f64 {
        HEIGHT - HEIGHT * count.max(0) as f64 / self.top as f64
    }

    fn middle(&self, index: usize) -> f64 {
        SPAN * (index as f64 + 0.5) / self.series.buckets.len() as f64
    }

    /// Percent of the width; None outside the series.
    fn x(&self, at_ms: i64) -> Option<f64> {
        let (from, end) = (self.series.from_ms, self.series.end_ms());
        (from..=end).contains(&at_ms).then(|| (at_ms - from) as f64 / (end - from).max(1) as f64 * 100.0)
    }

    fn gaps(&self) -> Vec<(String, String)> {
        let place = |(from, to): (i64, i64)| {
            let (from, to) = (self.x(from)?, self.x(to)?);
            Some((number(from), number((to - from).max(NARROWEST))))
        };
        self.series.gaps().into_iter().filter_map(place).collect()
    }

    fn levels(&self) -> Vec<Level> {
        let level = |count: i64| Level { y: number(self.y(count)), label: format::short(count) };
        (0..=self.top / self.step).map(|index| level(index * self.step)).collect()
    }

    fn hours(&self) -> Vec<Hour> {
        let (from, end) = (self.series.from_ms, self.series.end_ms());
        let first = from.div_euclid(TICK_MS) + i64::from(from.rem_euclid(TICK_MS) > 0);
        let ticks = (first..=end.div_euclid(TICK_MS)).map(|index| index * TICK_MS);
        let hour = |at_ms: i64| {
            let x = number(self.x(at_ms)?);
            Some(Hour { x, label: format::hour_minute(at_ms), fine: at_ms.rem_euclid(2 * TICK_MS) != 0 })
        };
        ticks.filter_map(hour).collect()
    }

    fn marks(&self, marks: &[Mark]) -> Vec<MarkLine> {
        let mut inside: Vec<(&Mark, f64)> = marks.iter().filter_map(|mark| Some((mark, self.x(mark.at_ms)?))).collect();
        inside.sort_by_key(|(mark, _)| mark.at_ms);
        let line = |(index, (mark, x)): (usize, (&Mark, f64))| MarkLine {
            x: number(x),
            number: index + 1,
            at: format::utc(mark.at_ms),
            label: mark.label.clone(),
            from_ms: mark.at_ms - HOUR_MS / 4,
            to_ms: mark.at_ms + HOUR_MS / 4,
        };
        inside.into_iter().enumerate().map(line).collect()
    }
}

/// The smallest of 1, 2, 5, 10, 20, 50 .. of which [`STEPS`] reach `most`.
fn round_step(most: i64) -> i64 {
    let mut decade = 1_i64;
    loop {
        for factor in [1, 2, 5] {
            let step = decade.saturating_mul(factor);
            if step.saturating_mul(STEPS) >= most {
                return step;
            }
        }
        decade = decade.saturating_mul(10);
    }
}

fn unit(series: &Series, measure: Measure) -> String {
    match measure {
        Measure::Arrivals => format!("messages per {}", minutes(series)),
        Measure::Depth => format!("messages, every {}", minutes(series)),
    }
}

fn minutes(series: &Series) -> String {
    format::counted(series.bucket_ms / 60_000, "minute", "minutes")
}

fn label(series: &Series, measure: Measure, now: &str, now_ms: i64) -> String {
    match measure {
        Measure::Arrivals => arrivals_label(series, now, now_ms),
        Measure::Depth => depth_label(series, now, now_ms),
    }
}

/// "Arrivals 24 h: now 42/min, peak 61/min at 13:40 UTC, no data 02:10-02:40 UTC". The peak is that of a whole bucket.
pub(super) fn arrivals_label(series: &Series, now: &str, now_ms: i64) -> String {
    let mut label = format!("Arrivals 24 h: now {now}");
    if let Some((index, peak)) = series.peak() {
        let start = series.start_ms(index);
        let lasted = (now_ms - start).clamp(60_000, series.bucket_ms);
        let rate = format::per_minute(peak as f64 / (lasted as f64 / 60_000.0));
        let _ = write!(label, ", peak {rate} at {} UTC", format::hour_minute(start));
    }
    push_gaps(&mut label, series, now_ms);
    label
}

fn depth_label(series: &Series, now: &str, now_ms: i64) -> String {
    let mut label = format!("Depth 24 h: now {now}");
    if let Some((index, peak)) = series.peak() {
        let _ = write!(label, ", highest {} at {} UTC", format::exact(peak), format::hour_minute(series.start_ms(index)));
    }
    push_gaps(&mut label, series, now_ms);
    label
}

/// More gaps than these are told by their number.
const GAPS_TOLD: usize = 3;

fn push_gaps(label: &mut String, series: &Series, now_ms: i64) {
    let gaps = series.gaps();
    if series.buckets.iter().all(Option::is_none) {
        label.push_str(", no data");
    } else if gaps.len() > GAPS_TOLD {
        let _ = write!(label, ", no data at {} times", gaps.len());
    } else if !gaps.is_empty() {
        let told: Vec<String> =
            gaps.iter().map(|(from, to)| format!("{}-{}", format::hour_minute(*from), format::hour_minute((*to).min(now_ms)))).collect();
        let _ = write!(label, ", no data {} UTC", told.join(", "));
    }
}

/// Neighbours that say the same become one row: quiet hours, gaps, a depth that stayed. Arrivals of the same number do not, for
/// their sum is another.
fn rows(series: &Series, measure: Measure, now_ms: i64) -> Vec<Span> {
    let mut rows: Vec<(i64, i64, Option<i64>)> = Vec::new();
    for (index, count) in series.buckets.iter().enumerate() {
        let (from, to) = (series.start_ms(index), series.start_ms(index) + series.bucket_ms);
        let joins = measure == Measure::Depth || matches!(count, None | Some(0));
        match rows.last_mut() {
            Some((_, end, last)) if joins && last == count => *end = to,
            _ => rows.push((from, to, *count)),
        }
    }
    let span = |(from_ms, to_ms, count): (i64, i64, Option<i64>)| Span {
        from: format::day_minute(from_ms),
        to: if to_ms > now_ms { "now".to_owned() } else { format::day_minute(to_ms) },
        from_ms,
        to_ms,
        count: count.map(format::exact),
        any: measure == Measure::Arrivals && count.is_some_and(|count| count > 0),
    };
    // The newest first: that is what one looks for.
    rows.into_iter().rev().map(span).collect()
}

fn number(value: f64) -> String {
    super::spark::number(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60_000;
    /// 2026-11-30 00:00 UTC.
    const MIDNIGHT: i64 = 1_795_996_800_000;

    fn day(bucket_minutes: i64, buckets: Vec<Option<i64>>) -> Series {
        Series { buckets, from_ms: MIDNIGHT, bucket_ms: bucket_minutes * MINUTE }
    }

    fn after(series: &Series) -> i64 {
        series.end_ms()
    }

    fn arrivals(series: &Series) -> Chart {
        Chart::draw(series, Measure::Arrivals, "2/min", after(series), &[])
    }

    #[test]
    fn a_day_with_a_gap() {
        let chart = arrivals(&day(360, vec![Some(0), Some(8), None, Some(4)]));
        assert_eq!(chart.path, "M125 168L375 0M875 84h0");
        assert_eq!(chart.end, Some(("87.5".to_owned(), "84".to_owned())));
        assert_eq!(chart.gaps, [("50".to_owned(), "25".to_owned())]);
        let levels: Vec<(&str, &str)> = chart.levels.iter().map(|level| (level.label.as_str(), level.y.as_str())).collect();
        assert_eq!(levels, [("0", "168"), ("2", "126"), ("4", "84"), ("6", "42"), ("8", "0")]);
        let hours: Vec<(&str, &str, bool)> = chart.hours.iter().map(|hour| (hour.label.as_str(), hour.x.as_str(), hour.fine)).collect();
        assert_eq!(hours[..3], [("00:00", "0", false), ("03:00", "12.5", true), ("06:00", "25", false)]);
        assert_eq!(hours.len(), 9);
        assert_eq!(chart.label, "Arrivals 24 h: now 2/min, peak 0.02/min at 06:00 UTC, no data 12:00-18:00 UTC");
        assert_eq!(chart.unit, "messages per 360 minutes");
    }

    #[test]
    fn what_is_still_counting_is_a_line_of_its_own() {
        let series = day(5, vec![Some(10), Some(10), Some(2)]);
        let now = series.end_ms() - 4 * MINUTE;
        let chart = Chart::draw(&series, Measure::Arrivals, "2/min", now, &[]);
        assert_eq!(chart.path, "M166.7 0L500 0");
        assert_eq!(chart.running, "M500 0L833.3 134.4");
        assert_eq!(chart.rows[0].to, "now");
        let depth = Chart::draw(&series, Measure::Depth, "2", now, &[]);
        assert_eq!((depth.running.as_str(), depth.path.as_str()), ("", "M166.7 0L500 0L833.3 134.4"), "a depth does not count up");
        let unknown = Chart::draw(&day(5, vec![Some(1), None, Some(2)]), Measure::Arrivals, "—", now, &[]);
        assert_eq!(unknown.running, "", "a line from a gap would be invented");
        let first = Chart::draw(&day(5, vec![Some(3)]), Measure::Arrivals, "—", MIDNIGHT + MINUTE, &[]);
        assert_eq!((first.path.as_str(), first.running.as_str()), ("", ""));
        assert!(first.end.is_some(), "the dot shows it");
        assert_eq!(first.label, "Arrivals 24 h: now —, peak 3/min at 00:00 UTC", "three in the first minute");
    }

    #[test]
    fn one_point_is_a_dot_and_nothing_known_is_nothing() {
        let one = arrivals(&day(5, vec![None, Some(7), None]));
        assert_eq!(one.path, "M500 21h0");
        let none = arrivals(&day(5, vec![None, None]));
        assert_eq!((none.path.as_str(), none.end.clone()), ("", None));
        assert_eq!(none.label, "Arrivals 24 h: now 2/min, no data");
        assert_eq!(none.gaps, [("0".to_owned(), "100".to_owned())]);
        assert_eq!(none.rows.iter().map(|row| row.count.clone()).collect::<Vec<_>>(), [None]);
        let empty = arrivals(&day(5, vec![]));
        assert_eq!((empty.path.as_str(), empty.rows.len(), empty.gaps.len()), ("", 0, 0));
    }

    #[test]
    fn a_quiet_day_is_a_line_at_the_bottom() {
        let chart = arrivals(&day(5, vec![Some(0), Some(0)]));
        assert_eq!(chart.path, "M250 168L750 168");
        assert_eq!(chart.levels.iter().map(|level| level.label.as_str()).collect::<Vec<_>>(), ["0", "1"]);
        assert_eq!(chart.label, "Arrivals 24 h: now 2/min");
    }

    #[test]
    fn ticks_are_round_however_many_there_are() {
        for (most, step) in
            [(1, 1), (4, 1), (5, 2), (9, 5), (61, 20), (212, 100), (1_000_000, 500_000), (i64::MAX, 5_000_000_000_000_000_000)]
        {
            assert_eq!(round_step(most), step, "{most}");
        }
        let chart = arrivals(&day(5, vec![Some(i64::MAX), Some(12_431)]));
        assert!(chart.path.starts_with("M250 0L750 168"), "{}", chart.path);
        assert_eq!(chart.rows[0].count.as_deref(), Some("12,431"), "exact in the table");
        assert!(chart.levels.len() <= 6, "{:?}", chart.levels);
    }

    #[test]
    fn the_table_has_every_number_and_joins_only_what_is_the_same() {
        let series = day(5, vec![Some(0), Some(0), Some(3), Some(3), None, None, Some(0)]);
        let told = |measure| -> Vec<String> {
            let rows = Chart::draw(&series, measure, "", after(&series), &[]).rows;
            rows.iter().map(|row| format!("{} {} {}", row.from, row.to, row.count.as_deref().unwrap_or("no data"))).collect()
        };
        let arrivals = [
            "30 Nov 00:30 30 Nov 00:35 0",
            "30 Nov 00:20 30 Nov 00:30 no data",
            "30 Nov 00:15 30 Nov 00:20 3",
            "30 Nov 00:10 30 Nov 00:15 3",
            "30 Nov 00:00 30 Nov 00:10 0",
        ];
        assert_eq!(told(Measure::Arrivals), arrivals);
        assert_eq!(told(Measure::Depth).len(), 4);
    }

    #[test]
    fn marks_are_numbered_in_time_and_stay_within() {
        let series = day(720, vec![Some(1), Some(1)]);
        let mark = |hours: i64, label: &str| Mark { at_ms: MIDNIGHT + hours * HOUR_MS, label: label.to_owned() };
        let marks = [mark(18, "second"), mark(6, "first"), mark(25, "later"), mark(-1, "before")];
        let drawn = Chart::draw(&series, Measure::Arrivals, "", after(&series), &marks).marks;
        let told: Vec<(usize, &str, &str)> = drawn.iter().map(|mark| (mark.number, mark.x.as_str(), mark.label.as_str())).collect();
        assert_eq!(told, [(1, "25", "first"), (2, "75", "second")]);
        assert_eq!(drawn[0].to_ms - drawn[0].from_ms, HOUR_MS / 2);
    }

    #[test]
    fn many_gaps_are_counted() {
        let buckets = (0..12).map(|index| (index % 2 == 0).then_some(1)).collect();
        assert_eq!(arrivals(&day(5, buckets)).label, "Arrivals 24 h: now 2/min, peak 0.2/min at 00:00 UTC, no data at 6 times");
    }
}
