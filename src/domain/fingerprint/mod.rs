//! Which failure group a message belongs to, and why.
//!
//! [`normalise()`] takes what differs from message to message out of an error text; [`fingerprint()`] hashes the rest with the DLQ, the consumer
//! group, the class, the exception and the frame that [`super::stacktrace`] found.

mod normalise;

use sha2::{Digest as _, Sha256};

use super::classify::FailureClass;

pub use normalise::normalise;

/// What makes one failure group.
#[derive(Debug, Clone, Copy)]
pub struct Ingredients<'a> {
    pub cluster: &'a str,
    pub topic: &'a str,
    pub consumer_group: Option<&'a str>,
    pub class: FailureClass,
    /// The root exception's class.
    pub exception_class: Option<&'a str>,
    /// From [`normalise()`].
    pub normalised_text: &'a str,
    /// From [`super::stacktrace::top_frame`].
    pub top_frame: Option<&'a str>,
}

/// Changed whenever the same ingredients would give another fingerprint.
const VERSION: u8 = 1;

/// SHA-256, hex, over a version and the length-prefixed ingredients; what is unknown differs from what is empty.
pub fn fingerprint(of: &Ingredients<'_>) -> String {
    let mut hash = Sha256::new();
    hash.update([VERSION]);
    let parts = [
        Some(of.cluster),
        Some(of.topic),
        of.consumer_group,
        Some(of.class.as_str()),
        of.exception_class,
        Some(of.normalised_text),
        of.top_frame,
    ];
    for part in parts {
        hash.update(part.map_or(u64::MAX, |text| text.len() as u64).to_be_bytes());
        hash.update(part.unwrap_or_default());
    }
    hex(&hash.finalize())
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        out.push(char::from(DIGITS[usize::from(byte >> 4)]));
        out.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Ingredients<'static> = Ingredients {
        cluster: "main",
        topic: "orders.DLT",
        consumer_group: Some("billing"),
        class: FailureClass::Transient,
        exception_class: Some("java.net.SocketTimeoutException"),
        normalised_text: "timed out after <n>ms",
        top_frame: Some("com.acme.Billing.charge"),
    };

    #[test]
    fn every_ingredient_counts_and_none_runs_into_the_next() {
        let variants = [
            BASE,
            Ingredients { cluster: "other", ..BASE },
            Ingredients { topic: "orders.DLQ", ..BASE },
            Ingredients { cluster: "mainorders", topic: ".DLT", ..BASE },
            Ingredients { consumer_group: None, ..BASE },
            Ingredients { consumer_group: Some(""), ..BASE },
            Ingredients { class: FailureClass::Bug, ..BASE },
            Ingredients { exception_class: None, ..BASE },
            Ingredients { normalised_text: "", ..BASE },
            Ingredients { top_frame: None, ..BASE },
        ];
        let mut seen: Vec<String> = variants.iter().map(fingerprint).collect();
        assert!(seen.iter().all(|print| print.len() == 64));
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), variants.len());
    }

    #[test]
    fn the_fingerprint_is_the_same_in_every_build() {
        // Groups are stored under it: a change here needs a new VERSION and a rebuild of the groups.
        assert_eq!(fingerprint(&BASE), "cdbc0b3fa5d2a1c1912988f495836c36a81cc948cc54a0f98bd308da2fd39afb");
    }
}
