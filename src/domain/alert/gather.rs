//! Many notifications at once become one.

use std::collections::BTreeMap;

use super::life::{News, Notify};
use super::{Key, Severity};

/// From so many within [`WITHIN_MS`] on a channel gets one digest instead.
pub const MANY: usize = 5;
/// ms
pub const WITHIN_MS: i64 = 60_000;
/// Lines of a digest.
pub const LINES: usize = 10;

/// A notification that a channel has not been given yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Pending {
    pub channel: String,
    pub key: Key,
    pub notify: Notify,
    /// Not before this, ms.
    pub due_ms: i64,
}

/// What a channel is given now.
#[derive(Debug, Clone, PartialEq)]
pub enum Bundle {
    One(Pending),
    Digest(Digest),
}

/// Several notifications of one channel.
#[derive(Debug, Clone, PartialEq)]
pub struct Digest {
    pub channel: String,
    /// The worst of those that fire; a warning where all are resolved.
    pub severity: Severity,
    /// All of it, worst first: critical before warning, news of trouble before ends, then by age.
    pub all: Vec<Pending>,
}

impl Digest {
    /// The lines to be shown, and how many more there are.
    pub fn lines(&self) -> (&[Pending], usize) {
        let shown = self.all.len().min(LINES);
        (&self.all[..shown], self.all.len() - shown)
    }

    /// "and 12 more", where there are more.
    pub fn more_words(&self) -> Option<String> {
        let (_, more) = self.lines();
        (more > 0).then(|| format!("and {more} more"))
    }
}

/// Decides what goes out now: `pending` are those of all channels that are to have digests (not those that want each alert apart, as PagerDuty does),
/// `given` the times (ms) at which each channel was given a notification in the last minute, one for each, those in a digest included.
///
/// Fewer than five within a minute go at once, one by one. Five and more become one digest; if the channel was given something within this minute
/// already, they wait for it to pass. Returns what goes, and what waits.
pub fn gather(pending: Vec<Pending>, given: &BTreeMap<String, Vec<i64>>, now_ms: i64) -> (Vec<Bundle>, Vec<Pending>) {
    let (due, mut waits): (Vec<Pending>, Vec<Pending>) = pending.into_iter().partition(|pending| pending.due_ms <= now_ms);
    let mut by_channel: BTreeMap<String, Vec<Pending>> = BTreeMap::new();
    for pending in due {
        by_channel.entry(pending.channel.clone()).or_default().push(pending);
    }
    let mut goes = Vec::new();
    for (channel, mut all) in by_channel {
        all.sort_by(|a, b| (a.due_ms, &a.key, a.notify.number).cmp(&(b.due_ms, &b.key, b.notify.number)));
        let recent = given.get(&channel).into_iter().flatten().filter(|at_ms| now_ms.saturating_sub(**at_ms) < WITHIN_MS).count();
        if recent + all.len() < MANY {
            goes.extend(all.into_iter().map(Bundle::One));
        } else if recent == 0 {
            goes.push(Bundle::Digest(digest(channel, all)));
        } else {
            waits.extend(all);
        }
    }
    (goes, waits)
}

fn digest(channel: String, mut all: Vec<Pending>) -> Digest {
    let is_over = |pending: &Pending| matches!(pending.notify.news, News::Resolved(_));
    all.sort_by(|a, b| is_over(a).cmp(&is_over(b)).then(b.notify.severity.cmp(&a.notify.severity)).then(a.due_ms.cmp(&b.due_ms)));
    let severity = all.iter().filter(|pending| !is_over(pending)).map(|pending| pending.notify.severity).max();
    Digest { channel, severity: severity.unwrap_or(Severity::Warning), all }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: i64 = 1_800_000_000_000;

    fn pending(channel: &str, rule_id: i64, due_ms: i64, severity: Severity, news: News) -> Pending {
        let key = Key { rule_id, cluster: "main".into(), topic: format!("t{rule_id}.DLQ") };
        Pending { channel: channel.into(), key, notify: Notify { number: 1, at_ms: due_ms, severity, news }, due_ms }
    }

    fn fires(channel: &str, rule_id: i64, due_ms: i64) -> Pending {
        pending(channel, rule_id, due_ms, Severity::Warning, News::Fires { value: 1.0, since_ms: due_ms })
    }

    #[test]
    fn five_within_a_minute_are_one() {
        let four: Vec<Pending> = (0..4).map(|n| fires("slack", n, NOW)).collect();
        let (goes, waits) = gather(four.clone(), &BTreeMap::new(), NOW);
        assert_eq!((goes.len(), waits.len()), (4, 0));
        assert!(goes.iter().all(|bundle| matches!(bundle, Bundle::One(_))));

        let mut five = four;
        five.push(fires("slack", 9, NOW - 30_000));
        five.push(fires("teams", 9, NOW));
        five.push(fires("teams", 8, NOW + 1));
        let (goes, waits) = gather(five, &BTreeMap::new(), NOW);
        assert!(
            matches!(&goes[..], [Bundle::Digest(digest), Bundle::One(one)] if digest.all.len() == 5 && one.channel == "teams"),
            "{goes:?}"
        );
        assert!(matches!(&waits[..], [later] if later.due_ms == NOW + 1), "not due yet");
    }

    #[test]
    fn what_comes_after_some_went_waits_for_the_end_of_their_minute() {
        let given: BTreeMap<String, Vec<i64>> = [("slack".to_owned(), vec![NOW - 50_000; 4])].into();
        let six = || (0..6).map(|n| fires("slack", n, NOW)).collect::<Vec<_>>();
        let (goes, waits) = gather(six(), &given, NOW);
        assert_eq!((goes.len(), waits.len()), (0, 6));
        let (goes, _) = gather(waits, &given, NOW + 10_000);
        assert!(matches!(&goes[..], [Bundle::Digest(digest)] if digest.all.len() == 6));
        assert_eq!(gather(vec![fires("slack", 1, NOW)], &given, NOW).0.len(), 0);
        assert_eq!(gather(vec![fires("slack", 1, NOW)], &[("slack".to_owned(), vec![NOW - 50_000; 3])].into(), NOW).0.len(), 1);
    }

    #[test]
    fn a_digest_begins_with_the_worst_and_is_short() {
        let end = super::super::life::End { why: super::super::life::Why::Cleared, lasted_ms: 1, peak: 1.0, replayed: None };
        let mut all: Vec<Pending> = (0..20).map(|n| fires("slack", n, NOW - n)).collect();
        all.push(pending("slack", 30, NOW, Severity::Critical, News::Resolved(end)));
        all.push(pending("slack", 31, NOW, Severity::Critical, News::Fires { value: 1.0, since_ms: NOW }));
        let (goes, _) = gather(all, &BTreeMap::new(), NOW);
        let [Bundle::Digest(digest)] = &goes[..] else { panic!("{goes:?}") };
        let (lines, more) = digest.lines();
        assert_eq!((lines.len(), more, digest.more_words().as_deref()), (10, 12, Some("and 12 more")));
        assert_eq!((lines[0].key.rule_id, lines[1].key.rule_id, digest.severity), (31, 19, Severity::Critical));
        assert_eq!(digest.all[21].key.rule_id, 30, "ends come last");
    }

    proptest! {
        #[test]
        fn none_is_lost_and_none_waits_longer_than_a_minute(
            dues in proptest::collection::vec((0..3usize, 0..120_000i64), 0..40),
        ) {
            let mut pending: Vec<Pending> = Vec::new();
            let mut coming: Vec<Pending> = (0..).zip(&dues).map(|(n, (channel, due))| fires(["a", "b", "c"][*channel], n, NOW + due)).collect();
            let (mut given, mut ids): (BTreeMap<String, Vec<i64>>, Vec<i64>) = Default::default();
            for tick in 0..20 {
                let now = NOW + tick * 15_000;
                pending.append(&mut coming);
                let (goes, waits) = gather(std::mem::take(&mut pending), &given, now);
                for one in goes.into_iter().flat_map(|bundle| match bundle { Bundle::One(one) => vec![one], Bundle::Digest(digest) => digest.all }) {
                    prop_assert!(one.due_ms <= now && now - one.due_ms < WITHIN_MS + 2 * 15_000, "{} {}", one.due_ms, now);
                    given.entry(one.channel).or_default().push(now);
                    ids.push(one.key.rule_id);
                }
                pending = waits;
            }
            ids.sort_unstable();
            prop_assert_eq!(ids, (0..dues.len() as i64).collect::<Vec<_>>());
        }
    }
}
