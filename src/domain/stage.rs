//! The steps in which a batch goes: a canary first, then ten times more each time, each step waiting for the verification of the one before.

use std::collections::{BTreeMap, BTreeSet};

/// An item that may be part of the canary: no earlier item of its key is in the batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub message_id: i64,
    pub key_hash: Option<i64>,
    pub group_id: i64,
    pub origin_partition: Option<i32>,
}

/// The step of the `ordinal`-th item (counted from 0): `canary` items go at step 0, ten times as many at step 1, a hundred times at step 2. Without a
/// canary all go at step 0.
pub fn stage_of(ordinal: u64, canary: u32) -> i32 {
    let (mut size, mut end, mut stage) = (u64::from(canary), u64::from(canary), 0);
    if canary == 0 {
        return 0;
    }
    while ordinal >= end {
        size = size.saturating_mul(10);
        end = end.saturating_add(size);
        stage += 1;
        if end == u64::MAX {
            break;
        }
    }
    stage
}

/// Of `candidates` the ids of at most `canary`, spread over failure groups, partitions and keys: each time one of which the fewest like it are in.
pub fn spread(candidates: &[Candidate], canary: usize) -> Vec<i64> {
    if candidates.len() <= canary {
        return candidates.iter().map(|candidate| candidate.message_id).collect();
    }
    let mut lots: BTreeMap<(i64, Option<i32>), Vec<&Candidate>> = BTreeMap::new();
    // Taken from the end, so that the first of each lot goes first.
    for candidate in candidates.iter().rev() {
        lots.entry((candidate.group_id, candidate.origin_partition)).or_default().push(candidate);
    }
    let (mut of_group, mut of_partition): (BTreeMap<i64, usize>, BTreeMap<Option<i32>, usize>) = Default::default();
    let mut keys: BTreeSet<i64> = BTreeSet::new();
    let mut picked = Vec::with_capacity(canary);
    while picked.len() < canary {
        let likeness = |(group, partition): &(i64, Option<i32>)| {
            let (of_group, of_partition) =
                (of_group.get(group).copied().unwrap_or_default(), of_partition.get(partition).copied().unwrap_or_default());
            (of_group + of_partition, of_group, of_partition)
        };
        let Some(lot) = lots.keys().min_by_key(|lot| likeness(lot)).copied() else { break };
        let of_lot = lots.get_mut(&lot).map(Vec::pop);
        match of_lot {
            Some(Some(candidate)) => {
                if candidate.key_hash.is_none_or(|key| keys.insert(key)) {
                    picked.push(candidate.message_id);
                    *of_group.entry(lot.0).or_default() += 1;
                    *of_partition.entry(lot.1).or_default() += 1;
                }
            }
            _ => drop(lots.remove(&lot)),
        }
    }
    picked
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_step_is_ten_times_the_one_before() {
        let of = |ordinal| stage_of(ordinal, 10);
        assert_eq!([of(0), of(9), of(10), of(109), of(110), of(1_109), of(1_110), of(11_109), of(11_110)], [0, 0, 1, 1, 2, 2, 3, 3, 4]);
        assert_eq!((stage_of(u64::MAX, 0), stage_of(1, 1), stage_of(11, 1)), (0, 1, 2));
        assert!(stage_of(u64::MAX, 1) < 25 && stage_of(u64::MAX, u32::MAX) < 25);
    }

    fn candidate(message_id: i64, group_id: i64, partition: i32) -> Candidate {
        Candidate { message_id, key_hash: Some(message_id), group_id, origin_partition: Some(partition) }
    }

    #[test]
    fn a_canary_is_spread_over_groups_and_partitions() {
        let mut candidates: Vec<Candidate> = (0..100).map(|n| candidate(n, 1, 0)).collect();
        candidates.extend([candidate(200, 2, 0), candidate(201, 3, 1), candidate(202, 1, 2)]);
        let picked = spread(&candidates, 4);
        assert_eq!(picked.len(), 4);
        assert!([200, 201, 202].iter().all(|id| picked.contains(id)), "{picked:?}");
        assert_eq!(spread(&candidates, 1_000).len(), 103);
        assert_eq!(spread(&candidates, 10).len(), 10);
        assert_eq!(spread(&candidates, 0).len(), 0);
    }

    #[test]
    fn a_key_is_in_the_canary_once() {
        let mut candidates: Vec<Candidate> = (0..10).map(|n| candidate(n, n, 0)).collect();
        candidates.iter_mut().for_each(|candidate| candidate.key_hash = Some(7));
        assert_eq!(spread(&candidates, 5).len(), 1);
        candidates.iter_mut().for_each(|candidate| candidate.key_hash = None);
        assert_eq!(spread(&candidates, 5).len(), 5, "no key is no key twice");
    }

    proptest! {
        #[test]
        fn every_pick_is_one_of_them_and_none_comes_twice(
            raw in proptest::collection::vec((0_i64..4, proptest::option::of(0_i32..4), proptest::option::of(0_i64..30)), 0..60),
            canary in 0_usize..40,
        ) {
            let candidates: Vec<Candidate> = (0..).zip(raw)
                .map(|(message_id, (group_id, origin_partition, key_hash))| Candidate { message_id, key_hash, group_id, origin_partition })
                .collect();
            let picked = spread(&candidates, canary);
            prop_assert!(picked.len() <= canary);
            let different: std::collections::BTreeSet<_> = picked.iter().collect();
            prop_assert_eq!(different.len(), picked.len());
            prop_assert!(picked.iter().all(|id| candidates.iter().any(|candidate| candidate.message_id == *id)));
        }
    }
}
