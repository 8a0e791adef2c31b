//! Arroyo (Sentry) had a release line whose Rust half writes the offset into `original_partition`.

use super::Origin;

/// A partition equal to the offset, or without an offset beside it, may be an offset: it is not known then. A replay hashes by key.
pub(super) fn doubt_partition(origin: &mut Origin) {
    let offset = origin.offset;
    origin.partition = origin.partition.filter(|partition| offset.is_some_and(|offset| offset != i64::from(*partition)));
}
