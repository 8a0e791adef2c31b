//! Which partition a key maps to: murmur2 as Java producers do, CRC32 as librdkafka does by default.

use super::settings::Partitioner;

/// murmur2 as `org.apache.kafka.common.utils.Utils.murmur2` computes it: the value that Java calls an `int`.
pub fn murmur2(data: &[u8]) -> i32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    const R: u32 = 24;
    let mut hash = SEED ^ (data.len() as u32);
    let mut words = data.chunks_exact(4);
    for word in &mut words {
        let mut k = u32::from_le_bytes([word[0], word[1], word[2], word[3]]).wrapping_mul(M);
        k ^= k >> R;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let tail = words.remainder();
    if !tail.is_empty() {
        for (i, byte) in tail.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * i);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^= hash >> 15;
    hash as i32
}

/// The partition that a producer with this partitioner picks for a key, out of `partitions` (0 or fewer: none).
/// `None` means any: a null key under both, an empty key under [`Partitioner::ConsistentRandom`] (librdkafka's
/// `consistent_random` treats the two alike; Java hashes an empty key).
pub fn partition_for(partitioner: Partitioner, key: Option<&[u8]>, partitions: i32) -> Option<i32> {
    let key = key?;
    if partitions < 1 {
        return None;
    }
    match partitioner {
        // `Utils.toPositive` clears the sign bit; it is not the absolute value.
        Partitioner::Murmur2Random => Some((murmur2(key) & i32::MAX) % partitions),
        Partitioner::ConsistentRandom if key.is_empty() => None,
        Partitioner::ConsistentRandom => i32::try_from(crc32fast::hash(key) % partitions.unsigned_abs()).ok(),
    }
}

/// What happens to known keys when a topic of `from` partitions gets `to`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moves {
    pub from: i32,
    pub to: i32,
    /// Keys that are hashed: a null key goes anywhere, before and after.
    pub keys: usize,
    /// How many of them would go to another partition.
    pub moved: usize,
    /// Where the first of them goes, before and after.
    pub first: Option<(i32, i32)>,
}

/// Counts over `keys`, of which the first is the one that is told apart.
pub fn moves<'a>(partitioner: Partitioner, keys: impl IntoIterator<Item = &'a [u8]>, from: i32, to: i32) -> Moves {
    let mut moves = Moves { from, to, keys: 0, moved: 0, first: None };
    let place = |key: &[u8]| Some((partition_for(partitioner, Some(key), from)?, partition_for(partitioner, Some(key), to)?));
    for (before, after) in keys.into_iter().filter_map(place) {
        moves.first.get_or_insert((before, after));
        moves.keys += 1;
        moves.moved += usize::from(before != after);
    }
    moves
}

/// One key and where both partitioners put it. `None` is "any partition".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    pub key: String,
    pub murmur2: Option<i32>,
    pub crc32: Option<i32>,
}

/// What `lazaret partition explain` prints.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    pub partitions: i32,
    pub new_partitions: i32,
    /// The key now.
    pub now: Placement,
    /// The key once the topic has `new_partitions`.
    pub then: Placement,
    /// Of all keys, the share (0 to 1) whose partition changes from `partitions` to `new_partitions`.
    pub moved_share: f64,
    /// Where `key-0` to `key-11` go now: a hot key split by salting it.
    pub salted: Vec<Placement>,
}

impl Explanation {
    /// How many different partitions the salted keys reach: (by murmur2, by CRC32).
    pub fn salted_reach(&self) -> (usize, usize) {
        let distinct = |pick: fn(&Placement) -> Option<i32>| {
            let mut reached: Vec<i32> = self.salted.iter().filter_map(pick).collect();
            reached.sort_unstable();
            reached.dedup();
            reached.len()
        };
        (distinct(|p| p.murmur2), distinct(|p| p.crc32))
    }
}

/// How many salted keys are shown.
const SALTS: u32 = 12;

/// Where a key goes, what moves when the topic grows, and where salting would spread it. Both counts must be at least 1.
pub fn explain(key: &str, partitions: i32, new_partitions: i32) -> Explanation {
    Explanation {
        partitions,
        new_partitions,
        now: place(key.to_owned(), partitions),
        then: place(key.to_owned(), new_partitions),
        moved_share: moved_share(partitions, new_partitions),
        salted: (0..SALTS).map(|salt| place(format!("{key}-{salt}"), partitions)).collect(),
    }
}

fn place(key: String, partitions: i32) -> Placement {
    let by = |partitioner| partition_for(partitioner, Some(key.as_bytes()), partitions);
    let (murmur2, crc32) = (by(Partitioner::Murmur2Random), by(Partitioner::ConsistentRandom));
    Placement { key, murmur2, crc32 }
}

/// Hashes that stay are those with the same remainder by both counts: `min` of every `lcm`.
fn moved_share(partitions: i32, new_partitions: i32) -> f64 {
    let (a, b) = (f64::from(partitions.max(1)), f64::from(new_partitions.max(1)));
    let (mut x, mut y) = (partitions.max(1), new_partitions.max(1));
    while y != 0 {
        (x, y) = (y, x % y);
    }
    let lcm = a / f64::from(x) * b;
    1.0 - a.min(b) / lcm
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worked_example() {
        let told = explain("user-1042", 6, 8);
        assert_eq!((told.now.murmur2, told.now.crc32), (Some(4), Some(3)));
        assert_eq!(told.salted.len(), 12);
        assert_eq!(told.salted[11].key, "user-1042-11");
        assert!((told.moved_share - 0.75).abs() < 1e-12, "of 24 hashes in a row, 6 have one remainder by 6 and by 8");
    }

    #[test]
    fn known_keys_move_where_the_hash_says() {
        let keys = ["user-1042", "user-7", "user-8", ""].map(str::as_bytes);
        let told = moves(Partitioner::Murmur2Random, keys, 6, 8);
        assert_eq!((told.keys, told.first.map(|(before, _)| before)), (4, Some(4)));
        let moved = |key: &&[u8]| (murmur2(key) & i32::MAX) % 6 != (murmur2(key) & i32::MAX) % 8;
        assert_eq!(told.moved, keys.iter().filter(|key| moved(key)).count());
        assert_eq!(moves(Partitioner::ConsistentRandom, keys, 6, 8).keys, 3, "librdkafka spreads the empty key");
        assert_eq!(moves(Partitioner::Murmur2Random, keys, 6, 6).moved, 0);
        assert_eq!(moves(Partitioner::Murmur2Random, keys, 0, 6).first, None);
    }

    #[test]
    fn the_share_that_moves_agrees_with_counting() {
        for (a, b) in [(6, 8), (6, 12), (6, 6), (3, 7), (12, 5), (1, 4)] {
            let span = 5040;
            let moved = (0..span).filter(|hash| hash % a != hash % b).count();
            assert!((moved_share(a, b) - moved as f64 / f64::from(span)).abs() < 1e-9, "{a} to {b}");
        }
    }

    #[test]
    fn null_keys_and_empty_topics_have_no_partition() {
        for partitioner in [Partitioner::Murmur2Random, Partitioner::ConsistentRandom] {
            assert_eq!(partition_for(partitioner, None, 6), None);
            assert_eq!(partition_for(partitioner, Some(b"k"), 0), None);
            assert_eq!(partition_for(partitioner, Some(b"k"), -1), None);
        }
    }
}
