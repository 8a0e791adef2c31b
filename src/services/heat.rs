//! Which keys and tenants the dead letters of a DLQ belong to, and what another partition count would do to those keys.
//!
//! Of the newest open messages only: a page that read all of them would be slowest where it is needed most.

use std::collections::HashMap;
use std::sync::Arc;

use crate::domain::mask::MASK;
use crate::domain::partition::{Moves, moves};
use crate::domain::settings::{DlqSettings, Partitioner, settings_for};
use crate::store::dlqs::Dlq;
use crate::store::heat::{KEY_READ, OpenKey};
use crate::store::{Store, StoreError};

/// How many open messages are looked at.
pub const NEWEST: i64 = 5_000;
/// How many keys and tenants are told.
const HOTTEST: usize = 10;

/// Heat over the store.
#[derive(Debug, Clone)]
pub struct Heat {
    pub store: Store,
    /// In the order of the configuration: the first that covers a topic wins.
    pub dlqs: Arc<[DlqSettings]>,
}

/// Whom the newest open messages of a DLQ belong to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeatView {
    /// How many messages were looked at; [`NEWEST`] where there may be more.
    pub looked_at: usize,
    /// The hottest keys, hottest first.
    pub keys: Vec<Hot<Key>>,
    /// How many different keys there are.
    pub distinct_keys: usize,
    /// Messages whose record has a null key.
    pub without_key: usize,
    /// Messages whose key must not be shown: which keys those are, and how many, is not told.
    pub masked_key: usize,
    pub tenants: Vec<Hot<String>>,
    pub distinct_tenants: usize,
    /// Messages in which the configured place holds no tenant.
    pub without_tenant: usize,
    /// Messages whose tenant must not be shown.
    pub masked_tenant: usize,
    /// Header conventions, the most frequent first.
    pub dialects: Vec<Hot<String>>,
    /// Whole keys, hottest first, to be hashed; those longer than [`KEY_READ`] bytes are missing.
    whole: Vec<Vec<u8>>,
    partitioner: Partitioner,
}

/// A record key, as far as it was read.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The first bytes of it.
    pub bytes: Vec<u8>,
    /// There are more.
    pub cut: bool,
}

/// Something and how many of the messages are of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hot<T> {
    pub what: T,
    pub count: usize,
}

impl Heat {
    /// Looks at the newest open messages of a DLQ.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn of(&self, dlq: &Dlq) -> Result<HeatView, StoreError> {
        let partitioner = settings_for(&self.dlqs, &dlq.cluster, &dlq.topic).map_or(Partitioner::Murmur2Random, |dlq| dlq.partitioner);
        Ok(HeatView::of(self.store.newest_open_keys(dlq.id, NEWEST).await?, partitioner))
    }
}

impl HeatView {
    fn of(messages: Vec<OpenKey>, partitioner: Partitioner) -> HeatView {
        let looked_at = messages.len();
        // Keys that are cut are told apart by their hash.
        let mut keys: HashMap<(Vec<u8>, i64), usize> = HashMap::new();
        let (mut tenants, mut dialects) = (HashMap::new(), HashMap::new());
        let (mut without_key, mut masked_key, mut without_tenant, mut masked_tenant) = (0, 0, 0, 0);
        for message in messages {
            match (message.key, message.key_hash) {
                (Some(key), Some(hash)) => *keys.entry((key, hash)).or_default() += 1,
                (Some(_), None) => masked_key += 1,
                (None, _) => without_key += 1,
            }
            match message.tenant {
                Some(tenant) if tenant == MASK => masked_tenant += 1,
                Some(tenant) => *tenants.entry(tenant).or_default() += 1,
                None => without_tenant += 1,
            }
            *dialects.entry(message.dialect).or_default() += 1;
        }
        let (mut keys, tenants, dialects) = (hottest(keys), hottest(tenants), hottest(dialects));
        let most = usize::try_from(KEY_READ).unwrap_or(usize::MAX);
        let whole = keys.iter().filter(|hot| hot.what.0.len() <= most).map(|hot| hot.what.0.clone()).collect();
        let (distinct_keys, distinct_tenants) = (keys.len(), tenants.len());
        keys.truncate(HOTTEST);
        let key = |Hot { what: (mut bytes, _), count }: Hot<(Vec<u8>, i64)>| {
            let cut = bytes.len() > most;
            bytes.truncate(most);
            Hot { what: Key { bytes, cut }, count }
        };
        HeatView {
            looked_at,
            keys: keys.into_iter().map(key).collect(),
            distinct_keys,
            without_key,
            masked_key,
            tenants: tenants.into_iter().take(HOTTEST).collect(),
            distinct_tenants,
            without_tenant,
            masked_tenant,
            dialects,
            whole,
            partitioner,
        }
    }

    /// What would move if the topic had `to` partitions instead of `from`, over all keys that were looked at.
    pub fn moves(&self, from: i32, to: i32) -> Moves {
        moves(self.partitioner, self.whole.iter().map(Vec::as_slice), from, to)
    }

    /// Keys that are too long to have been read whole, and so are not in [`HeatView::moves`].
    pub fn long_keys(&self) -> usize {
        self.distinct_keys - self.whole.len()
    }

    /// How keys are hashed here.
    pub fn partitioner(&self) -> Partitioner {
        self.partitioner
    }
}

/// By count, and among equals by themselves, so that the order stays from look to look.
fn hottest<T: Ord>(counts: HashMap<T, usize>) -> Vec<Hot<T>> {
    let mut hot: Vec<Hot<T>> = counts.into_iter().map(|(what, count)| Hot { what, count }).collect();
    hot.sort_unstable_by(|a, b| b.count.cmp(&a.count).then_with(|| a.what.cmp(&b.what)));
    hot
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(key: Option<&[u8]>, hash: i64, tenant: Option<&str>) -> OpenKey {
        OpenKey {
            key_hash: key.map(|_| hash),
            key: key.map(<[u8]>::to_vec),
            tenant: tenant.map(str::to_owned),
            dialect: "spring_dlt".to_owned(),
        }
    }

    #[test]
    fn the_hottest_come_first_and_null_keys_are_apart() {
        let messages = vec![
            message(Some(b"a"), 1, Some("acme")),
            message(Some(b"b"), 2, Some("acme")),
            message(Some(b"b"), 2, None),
            message(Some(b""), 3, None),
            message(None, 0, None),
        ];
        let heat = HeatView::of(messages, Partitioner::Murmur2Random);
        let keys: Vec<(&[u8], usize)> = heat.keys.iter().map(|hot| (hot.what.bytes.as_slice(), hot.count)).collect();
        assert_eq!(keys, [(&b"b"[..], 2), (b"", 1), (b"a", 1)]);
        assert_eq!((heat.looked_at, heat.distinct_keys, heat.without_key), (5, 3, 1), "an empty key is one, a null key is none");
        assert_eq!((heat.distinct_tenants, heat.without_tenant), (1, 3));
        assert_eq!(heat.moves(6, 8).keys, 3);
    }

    #[test]
    fn what_is_masked_is_neither_hot_nor_missing() {
        let masked = OpenKey { key_hash: None, ..message(Some(b"secret"), 0, Some(MASK)) };
        let heat =
            HeatView::of(vec![masked.clone(), masked, message(Some(b"a"), 1, None), message(None, 0, None)], Partitioner::Murmur2Random);
        assert_eq!((heat.distinct_keys, heat.masked_key, heat.without_key), (1, 2, 1));
        assert_eq!((heat.distinct_tenants, heat.masked_tenant, heat.without_tenant), (0, 2, 2));
        assert_eq!(heat.moves(6, 8).keys, 1);
    }

    #[test]
    fn long_keys_of_one_beginning_are_two_keys_and_are_not_hashed() {
        let long = vec![b'x'; KEY_READ as usize + 1];
        let messages = vec![message(Some(&long), 1, None), message(Some(&long), 2, None), message(Some(b"y"), 3, None)];
        let heat = HeatView::of(messages, Partitioner::Murmur2Random);
        assert_eq!((heat.distinct_keys, heat.long_keys(), heat.moves(1, 2).keys), (3, 2, 1));
        let cut: Vec<bool> = heat.keys.iter().map(|hot| hot.what.cut).collect();
        assert_eq!(cut, [true, true, false]);
        assert!(heat.keys.iter().all(|hot| hot.what.bytes.len() <= KEY_READ as usize));
    }

    #[test]
    fn an_empty_dlq_has_none() {
        let heat = HeatView::of(Vec::new(), Partitioner::Murmur2Random);
        assert_eq!((heat.looked_at, heat.keys.len(), heat.moves(6, 8).first), (0, 0, None));
    }

    #[test]
    fn ten_are_told_and_all_are_hashed() {
        let keys: Vec<Vec<u8>> = (0..40).map(|key| format!("key-{key}").into_bytes()).collect();
        let messages = keys.iter().enumerate().map(|(index, key)| message(Some(key), index as i64, None)).collect();
        let heat = HeatView::of(messages, Partitioner::Murmur2Random);
        assert_eq!((heat.keys.len(), heat.distinct_keys, heat.moves(6, 8).keys), (10, 40, 40));
    }
}
