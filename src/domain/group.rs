//! What people decided about a failure group, and what of it still holds.

use super::record::deceives;

/// What people decided about a group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Decision {
    /// Nobody took it yet, or somebody put it back.
    #[default]
    Open,
    /// Somebody looks after it. At least one of the two is there.
    Known { owner: Option<String>, ticket: Option<Ticket> },
    /// The cause is gone since then, ms.
    FixedSince { at_ms: i64 },
    /// Nobody needs to look before then, ms.
    IgnoredUntil { until_ms: i64 },
}

/// Who decided, and when (ms).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    pub by: String,
    pub at_ms: i64,
}

/// The status of a group as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GroupStatus {
    pub decision: Decision,
    /// Where to read what to do.
    pub runbook: Option<Link>,
    /// None: nobody has decided anything yet.
    pub decided: Option<Decided>,
    /// Rises by one with each decision; 0 before the first.
    pub version: i64,
}

/// What a status says at a given time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    Open,
    Known,
    Fixed,
    /// It was called fixed, and messages came after that.
    Regressed,
    Ignored,
}

impl Shown {
    /// The word in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Shown::Open => "open",
            Shown::Known => "known",
            Shown::Fixed => "fixed",
            Shown::Regressed => "regressed",
            Shown::Ignored => "ignored",
        }
    }
}

impl Decision {
    /// The word in the database, the trail and the form.
    pub fn as_str(&self) -> &'static str {
        match self {
            Decision::Open => "open",
            Decision::Known { .. } => "known",
            Decision::FixedSince { .. } => "fixed_since",
            Decision::IgnoredUntil { .. } => "ignored_until",
        }
    }

    /// What holds at `now_ms` of a group whose newest message was dead-lettered at `newest_ms`.
    ///
    /// Only the dead-lettered time counts: a catch-up that takes in old messages late is no regression. A message whose own time is not to be
    /// trusted (missing, before 2000, ahead of the clock) counts as dead-lettered when it was first seen, and so may make a fixed group
    /// regressed though it is old. That is meant: nothing shows that it failed before the fix, and a false alarm costs a look, where a
    /// false all-clear costs the messages.
    pub fn shown(&self, newest_ms: Option<i64>, now_ms: i64) -> Shown {
        match self {
            Decision::Open => Shown::Open,
            Decision::Known { .. } => Shown::Known,
            Decision::FixedSince { at_ms } if newest_ms.is_some_and(|newest| newest > *at_ms) => Shown::Regressed,
            Decision::FixedSince { .. } => Shown::Fixed,
            Decision::IgnoredUntil { until_ms } if now_ms < *until_ms => Shown::Ignored,
            Decision::IgnoredUntil { .. } => Shown::Open,
        }
    }
}

/// A link that may stand on a page: absolute, `http` or `https`, without a name or password in it; as the URL standard writes it, so ASCII.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link(String);

/// Longer links are refused.
const LINK_LIMIT: usize = 2_000;
/// Longer ticket ids and names of owners are refused.
const WORD_LIMIT: usize = 100;

impl Link {
    /// Reads what somebody typed.
    ///
    /// # Errors
    /// A sentence that says what a link looks like.
    pub fn parse(typed: &str) -> Result<Link, String> {
        let shape = "a link begins with https:// or http://";
        let url = url::Url::parse(typed).map_err(|_| format!("{shape}, and this is none"))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(format!("{shape}, not with {}:", url.scheme()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("a link holds no user name and no password: leave them out".to_owned());
        }
        if url.as_str().len() > LINK_LIMIT {
            return Err(format!("a link has at most {LINK_LIMIT} characters"));
        }
        Ok(Link(url.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A ticket: a link, or the plain id by which people know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ticket {
    Link(Link),
    Id(String),
}

impl Ticket {
    /// Reads what somebody typed. What has a scheme is meant as a link; all else is an id.
    ///
    /// # Errors
    /// A sentence that says what would do.
    pub fn parse(typed: &str) -> Result<Ticket, String> {
        if url::Url::parse(typed).is_ok() {
            return Link::parse(typed).map(Ticket::Link).map_err(|why| format!("{why}; a plain id like PAY-812 does too"));
        }
        word(typed).map(Ticket::Id)
    }

    pub fn as_str(&self) -> &str {
        match self {
            Ticket::Link(link) => link.as_str(),
            Ticket::Id(id) => id,
        }
    }
}

/// A short word of people's own: the name of an owner, a ticket's id.
///
/// # Errors
/// A sentence that says what would do.
pub fn word(typed: &str) -> Result<String, String> {
    if typed.chars().count() > WORD_LIMIT {
        return Err(format!("at most {WORD_LIMIT} characters"));
    }
    if typed.chars().any(|c| c.is_control() || deceives(c)) {
        return Err("no control characters and none that cannot be seen".to_owned());
    }
    Ok(typed.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: i64 = 1_800_000_000_000;

    fn known() -> Decision {
        Decision::Known { owner: Some("payments".to_owned()), ticket: None }
    }

    #[test]
    fn an_arrival_after_the_fix_makes_it_regressed_and_an_older_one_does_not() {
        let fixed = Decision::FixedSince { at_ms: NOW };
        for (newest, shown) in
            [(None, Shown::Fixed), (Some(NOW - 1), Shown::Fixed), (Some(NOW), Shown::Fixed), (Some(NOW + 1), Shown::Regressed)]
        {
            assert_eq!(fixed.shown(newest, NOW + 60_000), shown, "{newest:?}");
        }
    }

    #[test]
    fn what_is_ignored_is_open_again_when_the_time_is_over() {
        let ignored = Decision::IgnoredUntil { until_ms: NOW };
        assert_eq!(ignored.shown(Some(NOW - 1), NOW - 1), Shown::Ignored);
        assert_eq!(ignored.shown(Some(NOW - 1), NOW), Shown::Open);
    }

    #[test]
    fn a_ticket_is_a_link_or_an_id_and_never_code() {
        let ticket = |typed: &str| Ticket::parse(typed);
        assert_eq!(ticket("PAY-812"), Ok(Ticket::Id("PAY-812".to_owned())));
        assert_eq!(ticket("//evil.example"), Ok(Ticket::Id("//evil.example".to_owned())), "shown as text");
        let Ok(Ticket::Link(link)) = ticket("HTTPS://Jira.Example/browse/PAY-812?a=\"b\"") else { panic!("a link") };
        assert_eq!(link.as_str(), "https://jira.example/browse/PAY-812?a=%22b%22");
        for bad in [
            "javascript:alert(1)",
            "java\nscript:alert(1)",
            "\u{1}javascript:alert(1)",
            "data:text/html,x",
            "vbscript:x",
            "ftp://a.example",
            "https://ana:secret@a.example/",
            "PAY\u{202e}812",
            "PAY\u{0}812",
        ] {
            assert!(ticket(bad).is_err(), "{bad:?}");
        }
        assert!(ticket(&"x".repeat(101)).is_err());
        assert!(Link::parse(&format!("https://a.example/{}", "x".repeat(2_000))).is_err());
        assert!(Link::parse("runbook").is_err(), "a runbook is a link");
    }

    fn decisions() -> impl Strategy<Value = Decision> {
        prop_oneof![
            Just(Decision::Open),
            Just(known()),
            any::<i64>().prop_map(|at_ms| Decision::FixedSince { at_ms }),
            any::<i64>().prop_map(|until_ms| Decision::IgnoredUntil { until_ms }),
        ]
    }

    proptest! {
        #[test]
        fn nothing_that_still_arrives_is_called_fixed(decision in decisions(), newest in any::<Option<i64>>(), now in any::<i64>(), near in -2_i64..3) {
            // Half of the cases lie around the fix itself.
            let newest = match (&decision, newest) {
                (Decision::FixedSince { at_ms }, None) => Some(at_ms.saturating_add(near)),
                _ => newest,
            };
            let shown = decision.shown(newest, now);
            if let Decision::FixedSince { at_ms } = decision {
                let arrived_after = newest.is_some_and(|newest| newest > at_ms);
                prop_assert_eq!(shown, if arrived_after { Shown::Regressed } else { Shown::Fixed });
            } else {
                prop_assert_ne!(shown, Shown::Fixed);
            }
        }

        #[test]
        fn what_is_taken_as_a_link_is_http_and_ascii(typed in "\\PC*") {
            if let Ok(link) = Link::parse(&typed) {
                prop_assert!(link.as_str().starts_with("http://") || link.as_str().starts_with("https://"));
                prop_assert!(link.as_str().is_ascii());
                prop_assert_eq!(Link::parse(link.as_str()), Ok(link.clone()));
            }
        }
    }
}
