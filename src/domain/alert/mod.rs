//! Alerts: what is measured ([`measure`]), what a rule says about it ([`rule`]), the life of an alert ([`life`]), how many notifications become one
//! ([`gather`]), and what a rule would have done or should be ([`back_test`]).
//!
//! Pure: a service brings observations and takes notifications away.

pub mod back_test;
pub mod gather;
pub mod life;
pub mod measure;
mod observe;
pub mod rule;

use serde::{Deserialize, Serialize};

pub use back_test::{Fired, Suggestion, back_test, suggest};
pub use gather::{Bundle, Pending, gather};
pub use life::{Alert, Look, News, Notify, step};
pub use measure::{Measure, Observation};
pub use observe::observe;
pub use rule::{Rule, Scope, Terms, built_in};

/// How bad it is. The greater is the worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    Warning,
    Critical,
}

impl Severity {
    /// The word in the database, the API and the form.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        }
    }

    /// The reverse of [`Severity::as_str`].
    pub fn parse(word: &str) -> Option<Severity> {
        [Severity::Warning, Severity::Critical].into_iter().find(|severity| severity.as_str() == word)
    }
}

/// What an alert is about: there is one alert for each.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    pub rule_id: i64,
    pub cluster: String,
    pub topic: String,
}
