//! When a consumer group's commits prove that it got past a record.
//!
//! Commits alone prove nothing: somebody may have set them. Kafka lets others set the offsets of a group only while nobody is in it
//! (`GroupCoordinator`: a commit without a member is refused with `UNKNOWN_MEMBER_ID` unless the group is empty), and a member's id is given out once. So a member
//! that is seen at two looks was there all the time between them, and what the commits went over in that time, the group itself went over. A member that
//! skips records and commits cannot be told from one that handles them.

use std::collections::BTreeSet;
use std::ops::Range;

/// What was seen of a group in one partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Look {
    /// The next offset it will read, as it committed; None: it has committed nothing.
    pub committed: Option<i64>,
    /// Ids of the members that were there around the moment of the commit that was read.
    pub members: BTreeSet<String>,
    /// The lowest commit of a row of looks, up to this one, each of which shares a member with the one before.
    pub passed_from: Option<i64>,
}

impl Look {
    /// A look that follows another one (None: it is the first).
    pub fn after(before: Option<&Look>, committed: Option<i64>, members: BTreeSet<String>) -> Look {
        let reached_by_members = |before: &&Look| !before.members.is_disjoint(&members);
        let from = before.filter(reached_by_members).and_then(|before| before.passed_from);
        let passed_from = committed.map(|committed| from.map_or(committed, |from| from.min(committed)));
        Look { committed, members, passed_from }
    }

    /// The offsets that the group was seen to get past. No commit yet proves nothing.
    pub fn passed(&self) -> Option<Range<i64>> {
        let passed = self.passed_from?..self.committed?;
        (!passed.is_empty()).then_some(passed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row(looks: &[(Option<i64>, &[&str])]) -> Vec<Look> {
        let mut row: Vec<Look> = Vec::new();
        for (committed, members) in looks {
            let members = members.iter().map(|member| (*member).to_owned()).collect();
            row.push(Look::after(row.last(), *committed, members));
        }
        row
    }

    fn last(looks: &[(Option<i64>, &[&str])]) -> Option<Range<i64>> {
        row(looks).last().and_then(Look::passed)
    }

    #[test]
    fn what_a_member_that_stays_goes_over_is_passed() {
        assert_eq!(last(&[(Some(5), &["a"]), (Some(9), &["a"])]), Some(5..9));
        assert_eq!(last(&[(Some(5), &["a"]), (Some(9), &["a", "b"]), (Some(12), &["b"])]), Some(5..12), "they hand over");
        assert_eq!(last(&[(Some(5), &["a"]), (Some(5), &["a"])]), None, "it stands");
        assert_eq!(last(&[(Some(9), &["a"])]), None, "nobody knows how it came there");
    }

    #[test]
    fn r16_a_reset_takes_an_empty_group_and_so_proves_nothing() {
        assert_eq!(last(&[(Some(5), &["a"]), (Some(90), &[])]), None, "reset and nobody back yet");
        assert_eq!(last(&[(Some(5), &["a"]), (Some(90), &["b"])]), None, "reset between two looks, another member after");
        assert_eq!(last(&[(Some(5), &[]), (Some(90), &[])]), None);
        assert_eq!(last(&[(Some(5), &["a"]), (Some(90), &["b"]), (Some(95), &["b"])]), Some(90..95), "from the reset on it counts again");
    }

    #[test]
    fn no_commit_yet_proves_nothing() {
        assert_eq!(last(&[(None, &["a"]), (Some(9), &["a"])]), None);
        assert_eq!(last(&[(Some(5), &["a"]), (None, &["a"]), (Some(9), &["a"])]), None, "it lost its commit in between");
    }

    #[test]
    fn a_member_that_goes_back_has_passed_what_it_commits_over_again() {
        assert_eq!(last(&[(Some(50), &["a"]), (Some(10), &["a"])]), None);
        assert_eq!(last(&[(Some(50), &["a"]), (Some(10), &["a"]), (Some(30), &["a"])]), Some(10..30));
    }

    proptest! {
        /// An offset is passed only if between two looks in a row, with a member in common, the commit went from at or below it to above it.
        #[test]
        fn every_passed_offset_was_gone_over_while_somebody_stayed(
            looks in prop::collection::vec((prop::option::of(0i64..12), prop::collection::btree_set(0u8..4, 0..3)), 1..8)
        ) {
            let mut row: Vec<Look> = Vec::new();
            for (committed, members) in &looks {
                row.push(Look::after(row.last(), *committed, members.iter().map(u8::to_string).collect()));
            }
            let gone_over = |offset: i64| row.windows(2).any(|pair| {
                let (Some(from), Some(to)) = (pair[0].committed, pair[1].committed) else { return false };
                !pair[0].members.is_disjoint(&pair[1].members) && from <= offset && offset < to
            });
            for look in &row {
                for offset in look.passed().into_iter().flatten() {
                    prop_assert!(gone_over(offset), "{} in {:?}", offset, row);
                }
            }
        }
    }
}
