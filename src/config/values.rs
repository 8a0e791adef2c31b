//! What single values must look like, and what they become.

use regex::Regex;

use super::reader::{Wrong, one_of, wrong};
use crate::domain::settings::Start;
use crate::domain::template::KeyTemplate;

const AGE_UNITS: [(&str, i64); 5] = [("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("w", 604_800_000)];

/// An age such as `7d`, `12h`, `90m`, `30s` or `2w`, in ms.
pub fn age_ms(text: &str) -> Option<i64> {
    let (unit, unit_ms) = AGE_UNITS.into_iter().find(|(unit, _)| text.ends_with(unit))?;
    let number: i64 = text.strip_suffix(unit)?.parse().ok()?;
    // "+7d" parses as a number too, and an age of zero would be "latest" by another name.
    if number <= 0 || !text.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    number.checked_mul(unit_ms)
}

pub(super) fn start(text: &str) -> Result<Start, Wrong> {
    match text {
        "earliest" => Ok(Start::Earliest),
        "latest" => Ok(Start::Latest),
        _ => match age_ms(text) {
            Some(ms) => Ok(Start::Age { ms }),
            None => wrong(format!("{text:?} is no starting point"), "Use earliest, latest, or an age such as 7d or 12h"),
        },
    }
}

pub(super) fn regex(text: &str) -> Result<Regex, Wrong> {
    // The error of the regex crate is several lines with a drawing; its last line says what is wrong.
    Regex::new(text).or_else(|error| {
        let error = error.to_string();
        let reason = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
        wrong(
            format!("{text:?} is not a regular expression: {reason}"),
            "Write it in the syntax of https://docs.rs/regex, best in single quotes, for example '\\.DLQ$'",
        )
    })
}

pub(super) fn template(text: &str) -> Result<KeyTemplate, Wrong> {
    KeyTemplate::parse(text).or_else(|error| {
        let remedy = error.remedy;
        wrong(format!("{text:?} is not a key template: {} at character {}", error.problem, error.position), capital(remedy))
    })
}

/// The sentence with its first letter large.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// A JSON pointer (RFC 6901) to something inside the value.
pub(super) fn pointer(text: &str) -> Result<String, Wrong> {
    let escapes_are_right = text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    if text.starts_with('/') && escapes_are_right {
        return Ok(text.to_owned());
    }
    wrong(format!("{text:?} is not a JSON pointer"), "Begin with / and write ~ as ~0 and / within a name as ~1, for example /card/number")
}

/// `host:port`, as a listener takes it.
pub(super) fn listen(text: &str) -> Result<String, Wrong> {
    const REMEDY: &str = "Give address and port, for example 127.0.0.1:8080 or 0.0.0.0:8080";
    let Some((host, port)) = text.rsplit_once(':') else { return wrong(format!("{text:?} has no port"), REMEDY) };
    let bare_ipv6 = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
    if host.is_empty() || bare_ipv6 || host.contains(char::is_whitespace) {
        return wrong(format!("{text:?} has no usable address"), REMEDY);
    }
    match port.parse::<u16>() {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => wrong(format!("{text:?} has no usable port (0 to 65535)"), REMEDY),
    }
}

/// `host:port`, as the command line takes it; the error says what is wrong and what would be right.
pub fn listen_address(text: &str) -> Result<String, String> {
    listen(text).map_err(|wrong| format!("{}. {}.", wrong.what, wrong.remedy))
}

/// An absolute http(s) URL. It is not repeated in the fault: it may hold a password or a key.
pub(super) fn http_url(text: &str) -> Result<String, Wrong> {
    if url_with_scheme(text, &["http", "https"]) {
        return Ok(text.to_owned());
    }
    wrong("is not an absolute http or https URL", "Write it whole, for example https://lazaret.example.com")
}

/// An http(s) URL with scheme, host and port only: pages are served from its root.
pub(super) fn public_url(text: &str) -> Result<String, Wrong> {
    let url = http_url(text)?;
    let trimmed = url.trim_end_matches('/');
    let after_scheme = trimmed.split_once("://").map_or("", |(_, rest)| rest);
    if after_scheme.contains(['/', '?', '#', '@']) {
        return wrong(
            "holds more than scheme, host and port",
            "Write it without path, query or user, for example https://lazaret.example.com",
        );
    }
    Ok(trimmed.to_owned())
}

pub(super) fn url_with_scheme(text: &str, schemes: &[&str]) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else { return false };
    schemes.contains(&scheme) && !rest.is_empty() && !rest.starts_with('/') && fits_in_a_line(text)
}

/// No blanks and no control characters.
pub(super) fn fits_in_a_line(text: &str) -> bool {
    !text.contains(|c: char| c.is_whitespace() || c.is_control())
}

/// A database URL. Not repeated in the fault.
pub(super) fn database_url(text: &str) -> Result<(), Wrong> {
    let sqlite = text.strip_prefix("sqlite://").is_some_and(|path| !path.is_empty());
    if sqlite || url_with_scheme(text, &["postgres", "postgresql"]) {
        return Ok(());
    }
    wrong("is neither a SQLite nor a PostgreSQL URL", "Use sqlite://lazaret-data/lazaret.db or postgres://user@host/database")
}

/// A Kafka topic name (Apache Kafka, `org.apache.kafka.common.internals.Topic`).
pub(super) fn topic(text: &str) -> Result<String, Wrong> {
    let legal = text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
    if legal && !text.is_empty() && text.len() <= 249 && text != "." && text != ".." {
        return Ok(text.to_owned());
    }
    wrong(
        format!("{text:?} cannot be the name of a topic"),
        "Topic names hold letters, digits, dot, underscore and hyphen; for a regular expression use pattern = '..'",
    )
}

/// `host:port` of one or several brokers.
pub(super) fn bootstrap_servers(text: &str) -> Result<String, Wrong> {
    const REMEDY: &str = "Give host:port of one or several brokers, for example kafka-1:9092,kafka-2:9092";
    let servers: Vec<&str> = text.split(',').map(str::trim).collect();
    for server in &servers {
        // librdkafka allows a protocol in front; the port may be left out (9092).
        let address = server.split_once("://").map_or(*server, |(_, address)| address);
        let port = address.rsplit_once(':').map(|(_, port)| port);
        let usable = !address.is_empty() && !address.contains(char::is_whitespace) && !address.starts_with(':') && !address.contains('@');
        if !usable || port.is_some_and(|port| port.parse::<u16>().is_err() && !port.ends_with(']')) {
            return wrong("holds something that is no broker address", REMEDY);
        }
    }
    Ok(servers.join(","))
}

/// An instant with its zone (RFC 3339), in ms since the epoch.
pub(super) fn instant_ms(text: &str) -> Result<i64, Wrong> {
    match chrono::DateTime::parse_from_rfc3339(text) {
        Ok(at) => Ok(at.timestamp_millis()),
        Err(_) => wrong(format!("{text:?} is not a point in time"), "Write date, time and zone, for example 2026-11-16T00:00:00Z"),
    }
}

/// A word of a list, for `parse` functions that cannot borrow the list.
pub(super) fn unknown_word<T>(text: &str, known: &[&str]) -> Result<T, Wrong> {
    wrong(format!("{text:?} is not known"), format!("Use {}", one_of(known)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages() {
        let table = [
            ("7d", Some(604_800_000)),
            ("12h", Some(43_200_000)),
            ("90m", Some(5_400_000)),
            ("2w", Some(1_209_600_000)),
            ("30s", Some(30_000)),
            ("0d", None),
            ("-1d", None),
            ("+1d", None),
            ("d", None),
            ("7", None),
            ("7 d", None),
            ("7days", None),
            ("9223372036854775807d", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(age_ms(text), expected, "{text:?}");
        }
    }

    #[test]
    fn listen_addresses() {
        for good in ["127.0.0.1:8080", "0.0.0.0:0", "[::]:8080", "localhost:80"] {
            assert!(listen(good).is_ok(), "{good}");
        }
        for bad in ["8080", ":8080", "127.0.0.1", "127.0.0.1:65536", "::1:80", "a b:80", "127.0.0.1:http"] {
            assert!(listen(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn broker_addresses() {
        for good in ["kafka:9092", "a:1, b:2", "kafka", "[::1]:9092", "SASL_SSL://kafka:9093"] {
            assert!(bootstrap_servers(good).is_ok(), "{good}");
        }
        for bad in ["a:1,,b:2", "kafka:port", ":9092", "user:pw@kafka:9092", ""] {
            assert!(bootstrap_servers(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn pointers() {
        for good in ["/a", "/a~0b/c~1d", "/"] {
            assert!(pointer(good).is_ok(), "{good}");
        }
        for bad in ["a", "", "/a~", "/a~2"] {
            assert!(pointer(bad).is_err(), "{bad}");
        }
    }
}
