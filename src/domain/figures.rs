//! Numbers, ages and instants in words, for pages and for chats.

use chrono::{DateTime, Utc};

/// Lengths of time in ms.
pub const SECOND: i64 = 1_000;
pub const MINUTE: i64 = 60 * SECOND;
pub const HOUR: i64 = 60 * MINUTE;
pub const DAY: i64 = 24 * HOUR;

/// An age of `ms` in at most two units: `3h 12m`, `2d 4h`, `41m`, `8s`. Negative ages (a clock ahead of ours) read as `0s`.
pub fn age(ms: i64) -> String {
    let ms = ms.max(0);
    let units = [(DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (SECOND, "s")];
    let Some(first) = units.iter().position(|(size, _)| ms >= *size) else {
        return "0s".to_owned();
    };
    let (size, name) = units[first];
    let mut text = format!("{}{name}", ms / size);
    if let Some((smaller, name)) = units.get(first + 1) {
        let rest = ms % size / smaller;
        if rest > 0 {
            text.push_str(&format!(" {rest}{name}"));
        }
    }
    text
}

/// The exact instant: `2026-11-30 14:02:11 UTC`. A number that is no date of our calendar is shown as the number it is.
pub fn utc(at_ms: i64) -> String {
    match instant(at_ms) {
        Some(at) => at.format("%Y-%m-%d %H:%M:%S UTC").to_string(),
        None => format!("{at_ms} ms"),
    }
}

/// As a date of the calendar; None: the number is none.
pub fn instant(at_ms: i64) -> Option<DateTime<Utc>> {
    // Years of more than four digits are numbers gone wrong, not dates.
    DateTime::from_timestamp_millis(at_ms).filter(|at| (0..=9999).contains(&chrono::Datelike::year(at)))
}

/// An exact number with thousands separated: `12,431`.
pub fn exact(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3 + 1);
    if number < 0 {
        text.push('-');
    }
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
