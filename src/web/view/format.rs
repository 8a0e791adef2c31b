//! Numbers, ages and instants as pages show them. Unknown is an em dash, never a zero.

use crate::domain::figures::{DAY, HOUR, MINUTE, SECOND, instant};
pub use crate::domain::figures::{age, exact, utc};

/// What stands for "not known".
pub const UNKNOWN: &str = "—";

/// An age that may be unknown.
pub fn age_or_unknown(ms: Option<i64>) -> String {
    ms.map_or_else(|| UNKNOWN.to_owned(), age)
}

/// How long ago `at_ms` was, in one unit and words: `4 min ago`, `in 3 h` when it lies ahead.
pub fn ago(at_ms: i64, now_ms: i64) -> String {
    let distance = now_ms.saturating_sub(at_ms);
    let size = distance.saturating_abs();
    let (amount, unit) = match size {
        size if size >= DAY => (size / DAY, "d"),
        size if size >= HOUR => (size / HOUR, "h"),
        size if size >= MINUTE => (size / MINUTE, "min"),
        size => (size / SECOND, "s"),
    };
    match (amount, distance < 0) {
        (0, _) => "now".to_owned(),
        (amount, false) => format!("{amount} {unit} ago"),
        (amount, true) => format!("in {amount} {unit}"),
    }
}

/// The same with milliseconds, for the message page.
pub fn utc_exact(at_ms: i64) -> String {
    match instant(at_ms) {
        Some(at) => at.format("%Y-%m-%d %H:%M:%S%.3f UTC").to_string(),
        None => format!("{at_ms} ms"),
    }
}

/// The time of day: `14:02:11 UTC`.
pub fn time_of_day(at_ms: i64) -> String {
    match instant(at_ms) {
        Some(at) => at.format("%H:%M:%S UTC").to_string(),
        None => format!("{at_ms} ms"),
    }
}

/// The time of day to the minute, UTC: `14:02`.
pub fn hour_minute(at_ms: i64) -> String {
    instant(at_ms).map_or_else(|| format!("{at_ms} ms"), |at| at.format("%H:%M").to_string())
}

/// Day and time to the minute, UTC: `30 Nov 14:02`.
pub fn day_minute(at_ms: i64) -> String {
    instant(at_ms).map_or_else(|| format!("{at_ms} ms"), |at| at.format("%-d %b %H:%M").to_string())
}

/// For the `datetime` attribute of `<time>`.
pub fn machine_time(at_ms: i64) -> String {
    instant(at_ms).map_or_else(|| at_ms.to_string(), |at| at.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
}

/// For a form's field for date and time, as exact as need be: `2026-11-30T14:02`. Empty for what is no date.
pub fn field_time(at_ms: i64) -> String {
    let form = match (at_ms % MINUTE, at_ms % SECOND) {
        (0, _) => "%Y-%m-%dT%H:%M",
        (_, 0) => "%Y-%m-%dT%H:%M:%S",
        _ => "%Y-%m-%dT%H:%M:%S%.3f",
    };
    instant(at_ms).map(|at| at.format(form).to_string()).unwrap_or_default()
}

/// For file names: `20261130T140211Z`.
pub fn file_time(at_ms: i64) -> String {
    instant(at_ms).map_or_else(|| at_ms.to_string(), |at| at.format("%Y%m%dT%H%M%SZ").to_string())
}

/// Exact below 10,000, then `12.4k`, `3.1M`. Rounded down, so that it never shows more than there is.
pub fn short(number: i64) -> String {
    let size = number.unsigned_abs();
    if size < 10_000 {
        return exact(number);
    }
    let (unit, name) = match size {
        0..1_000_000 => (1_000, "k"),
        1_000_000..1_000_000_000 => (1_000_000, "M"),
        _ => (1_000_000_000, "G"),
    };
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{}.{}{name}", exact(i64::try_from(size / unit).unwrap_or(i64::MAX)), size % unit * 10 / unit)
}

/// A number for a cell: short on screen, exact for whoever cannot see it or hovers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Number {
    pub short: String,
    /// Set only where `short` lost digits.
    pub exact: Option<String>,
}

impl Number {
    /// A measured number.
    pub fn of(number: i64) -> Number {
        let (short, exact) = (short(number), exact(number));
        let exact = (short != exact).then_some(exact);
        Number { short, exact }
    }

    /// A number that may be unknown.
    pub fn of_option(number: Option<i64>) -> Number {
        number.map_or_else(|| Number { short: UNKNOWN.to_owned(), exact: None }, Number::of)
    }
}

/// A rate: `42/min`, `1.1/min`, `0/min` when measured as nothing, `under 0.01/min` when it is not quite.
pub fn per_minute(rate: f64) -> String {
    match rate {
        0.0 => "0/min".to_owned(),
        rate if rate < 0.01 => "under 0.01/min".to_owned(),
        rate if rate < 0.1 => format!("{rate:.2}/min"),
        rate if rate < 9.95 => format!("{}/min", trim_zero(format!("{rate:.1}"))),
        rate => format!("{}/min", short(rate.round() as i64)),
    }
}

/// A rate that may be unknown.
pub fn per_minute_or_unknown(rate: Option<f64>) -> String {
    rate.map_or_else(|| UNKNOWN.to_owned(), per_minute)
}

fn trim_zero(text: String) -> String {
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

/// Bytes: `512 B`, `1.4 kB`, `20.0 MB` (powers of ten).
pub fn bytes(count: i64) -> String {
    match count {
        count if count < 1_000 => format!("{count} B"),
        count if count < 1_000_000 => format!("{:.1} kB", count as f64 / 1e3),
        count => format!("{:.1} MB", count as f64 / 1e6),
    }
}

/// A share: `17.2%`, `under 0.1%`; 100% only where it is all, and unknown where there is nothing to have a share of.
pub fn percent(part: i64, whole: i64) -> String {
    if whole <= 0 {
        return UNKNOWN.to_owned();
    }
    match part as f64 / whole as f64 * 100.0 {
        _ if part >= whole => "100%".to_owned(),
        _ if part <= 0 => "0%".to_owned(),
        share if share < 0.1 => "under 0.1%".to_owned(),
        // Rounded down, so that 99.96 is no 100.
        share => format!("{}%", trim_zero(format!("{:.1}", (share * 10.0).floor() / 10.0))),
    }
}

/// "1 message", "212 messages": exact, with the right form of the noun.
pub fn counted(count: i64, one: &str, many: &str) -> String {
    format!("{} {}", exact(count), if count == 1 { one } else { many })
}

/// "2nd", "3rd", "11th".
pub fn ordinal(number: i32) -> String {
    let suffix = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_at_most_two_units() {
        let cases = [
            (-5, "0s"),
            (0, "0s"),
            (999, "0s"),
            (8_400, "8s"),
            (12 * MINUTE, "12m"),
            (12 * MINUTE + 30 * SECOND, "12m 30s"),
            (3 * HOUR + 12 * MINUTE + 59 * SECOND, "3h 12m"),
            (HOUR + 59 * SECOND, "1h"),
            (2 * DAY + 4 * HOUR, "2d 4h"),
            (400 * DAY, "400d"),
        ];
        for (ms, text) in cases {
            assert_eq!(age(ms), text, "{ms} ms");
        }
        assert_eq!(age_or_unknown(None), "—");
    }

    #[test]
    fn relative_times_say_which_side_of_now() {
        assert_eq!(ago(0, 4 * MINUTE + 10), "4 min ago");
        assert_eq!(ago(0, 3 * DAY), "3 d ago");
        assert_eq!(ago(2 * HOUR, 0), "in 2 h");
        assert_eq!(ago(100, 0), "now");
        assert_eq!(ago(i64::MIN, i64::MAX), format!("{} d ago", i64::MAX / DAY));
    }

    #[test]
    fn instants_are_utc_and_nonsense_stays_a_number() {
        assert_eq!(utc(1_767_225_600_000), "2026-01-01 00:00:00 UTC");
        assert_eq!(utc_exact(1_767_225_600_007), "2026-01-01 00:00:00.007 UTC");
        assert_eq!(time_of_day(1_767_225_600_000), "00:00:00 UTC");
        assert_eq!(machine_time(1_767_225_600_000), "2026-01-01T00:00:00.000Z");
        assert_eq!((hour_minute(1_767_279_720_000).as_str(), day_minute(1_767_279_720_000).as_str()), ("15:02", "1 Jan 15:02"));
        assert_eq!(utc(i64::MAX), format!("{} ms", i64::MAX));
        assert_eq!(utc(253_402_300_800_000), "253402300800000 ms");
    }

    #[test]
    fn numbers_are_exact_below_ten_thousand() {
        let cases = [
            (0, "0"),
            (999, "999"),
            (9_999, "9,999"),
            (10_000, "10.0k"),
            (12_431, "12.4k"),
            (999_999, "999.9k"),
            (3_100_000, "3.1M"),
            (-12_431, "-12.4k"),
        ];
        for (number, text) in cases {
            assert_eq!(short(number), text);
        }
        assert_eq!(exact(1_234_567), "1,234,567");
        assert_eq!(exact(i64::MIN), "-9,223,372,036,854,775,808");
        assert_eq!(Number::of(9_999).exact, None);
        assert_eq!(Number::of(12_431).exact.as_deref(), Some("12,431"));
        assert_eq!(Number::of_option(None).short, "—");
    }

    #[test]
    fn rates_tell_nothing_from_hardly_anything() {
        let cases = [
            (0.0, "0/min"),
            (0.004, "under 0.01/min"),
            (0.07, "0.07/min"),
            (0.4, "0.4/min"),
            (1.0, "1/min"),
            (1.13, "1.1/min"),
            (9.97, "10/min"),
            (41.9, "42/min"),
        ];
        for (rate, text) in cases {
            assert_eq!(per_minute(rate), text);
        }
        assert_eq!(per_minute_or_unknown(None), "—");
    }

    #[test]
    fn a_share_is_never_rounded_to_all_or_nothing() {
        let cases = [
            (0, 0, "—"),
            (0, 9, "0%"),
            (1, 5_000, "under 0.1%"),
            (861, 5_000, "17.2%"),
            (1, 4, "25%"),
            (4_999, 5_000, "99.9%"),
            (9, 9, "100%"),
        ];
        for (part, whole, text) in cases {
            assert_eq!(percent(part, whole), text, "{part} of {whole}");
        }
    }

    #[test]
    fn the_small_words() {
        assert_eq!(bytes(512), "512 B");
        assert_eq!(bytes(20_000_000), "20.0 MB");
        assert_eq!(counted(1, "message", "messages"), "1 message");
        assert_eq!(counted(12_431, "message", "messages"), "12,431 messages");
        assert_eq!([1, 2, 3, 4, 11, 12, 13, 21, 112].map(ordinal).join(" "), "1st 2nd 3rd 4th 11th 12th 13th 21st 112th");
    }
}
