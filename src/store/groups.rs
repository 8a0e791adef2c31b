//! Failure groups: messages with one fingerprint.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use super::counters::{GROUP_OPEN, GROUP_TOTAL};
use super::group_status::RawStatus;
use super::messages::PartitionBatch;
use super::sql_pieces::{Dialect as _, rows, text};
use super::take_in::GroupIds;
use super::{Store, StoreError};
use crate::domain::classify::FailureClass;
use crate::domain::group::{GroupStatus, Shown};
use crate::domain::message::GroupIdentity;

/// A failure group with its counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub id: i64,
    pub dlq_id: i64,
    pub cluster: String,
    pub topic: String,
    pub fingerprint: String,
    pub class: FailureClass,
    pub consumer_group: Option<String>,
    pub exception_class: Option<String>,
    pub normalised_text: String,
    pub top_frame: Option<String>,
    /// Messages of it that count towards depth.
    pub open: i64,
    /// Messages of it ever taken in.
    pub total: i64,
    /// By dead-lettered time, ms; None only for a group whose first batch was thrown away.
    pub first_at_ms: Option<i64>,
    pub last_at_ms: Option<i64>,
    /// What people decided about it.
    pub status: GroupStatus,
}

impl Group {
    /// What its status says at `now_ms`.
    pub fn shown(&self, now_ms: i64) -> Shown {
        self.status.decision.shown(self.last_at_ms, now_ms)
    }
}

/// How many characters of a text the search by prefix has an index for; longer prefixes are compared in so many.
pub(super) const FOLDED_CHARS: usize = 200;

/// Lower case, cut to what the index holds.
pub(super) fn folded(text: &str) -> String {
    text.to_lowercase().chars().take(FOLDED_CHARS).collect()
}

/// Ids of groups seen before, so that intake asks once for each. Groups are never deleted, so an id stays true.
#[derive(Debug, Default)]
pub(super) struct KnownGroups(Mutex<HashMap<i64, HashMap<String, i64>>>);

/// Fingerprints kept at most; past it the memory starts over.
const KNOWN_LIMIT: usize = 20_000;

impl KnownGroups {
    fn get(&self, dlq_id: i64, fingerprint: &str) -> Option<i64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&dlq_id)?.get(fingerprint).copied()
    }

    fn add(&self, dlq_id: i64, found: &[(String, i64)]) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.values().map(HashMap::len).sum::<usize>() + found.len() > KNOWN_LIMIT {
            known.clear();
        }
        known.entry(dlq_id).or_default().extend(found.iter().cloned());
    }
}

#[derive(serde::Serialize)]
struct NewGroup<'a> {
    dlq_id: i64,
    fingerprint: &'a str,
    class: &'static str,
    consumer_group: Option<String>,
    exception_class: Option<String>,
    normalised_text: String,
    top_frame: Option<String>,
    exception_folded: String,
    normalised_folded: String,
}

impl<'a> NewGroup<'a> {
    fn of(dlq_id: i64, group: &'a GroupIdentity) -> NewGroup<'a> {
        let owned = |value: &Option<String>| value.as_deref().map(|value| text(value).into_owned());
        NewGroup {
            dlq_id,
            fingerprint: &group.fingerprint,
            class: group.class.as_str(),
            consumer_group: owned(&group.consumer_group),
            exception_class: owned(&group.exception_class),
            normalised_text: text(&group.normalised_text).into_owned(),
            top_frame: owned(&group.top_frame),
            exception_folded: folded(&text(group.exception_class.as_deref().unwrap_or_default())),
            normalised_folded: folded(&text(&group.normalised_text)),
        }
    }
}

#[derive(sqlx::FromRow)]
struct RawGroup {
    id: i64,
    dlq_id: i64,
    cluster: String,
    topic: String,
    fingerprint: String,
    class: String,
    consumer_group: Option<String>,
    exception_class: Option<String>,
    normalised_text: String,
    top_frame: Option<String>,
    open: i64,
    total: i64,
    first_at_ms: Option<i64>,
    last_at_ms: Option<i64>,
    #[sqlx(flatten)]
    status: RawStatus,
}

impl TryFrom<RawGroup> for Group {
    type Error = StoreError;

    fn try_from(raw: RawGroup) -> Result<Group, StoreError> {
        Ok(Group {
            class: raw.class.parse().map_err(|_| StoreError::unreadable("class", &raw.class))?,
            id: raw.id,
            dlq_id: raw.dlq_id,
            cluster: raw.cluster,
            topic: raw.topic,
            fingerprint: raw.fingerprint,
            consumer_group: raw.consumer_group,
            exception_class: raw.exception_class,
            normalised_text: raw.normalised_text,
            top_frame: raw.top_frame,
            open: raw.open,
            total: raw.total,
            first_at_ms: raw.first_at_ms,
            last_at_ms: raw.last_at_ms,
            status: raw.status.try_into()?,
        })
    }
}

/// Groups with their counts: counters and the deltas not folded yet, in one statement and so as of one moment. `$1` is the DLQ, `$2..=$3` the ids
/// (a range even for one: both databases walk their index by it, which an "or all" would keep them from), `$4` the limit, `$5` and `$6` the
/// kinds of counter, `$7` from when on a last message puts a group first. A group's status comes with it.
const GROUPS: &str = "WITH counted AS (
        SELECT ref, CAST(SUM(CASE WHEN kind = $5 THEN amount ELSE 0 END) AS BIGINT) AS open,
            CAST(SUM(CASE WHEN kind = $6 THEN amount ELSE 0 END) AS BIGINT) AS total, MIN(first_ms) AS first_at_ms, MAX(last_ms) AS last_at_ms
        FROM (SELECT ref, kind, amount, first_ms, last_ms FROM counters WHERE dlq_id = $1 AND kind IN ($5, $6) AND ref BETWEEN $2 AND $3
            UNION ALL SELECT ref, kind, amount, first_ms, last_ms FROM counter_deltas WHERE dlq_id = $1 AND kind IN ($5, $6) AND ref BETWEEN $2 AND $3) both_kinds
        GROUP BY ref)
    SELECT g.id, g.dlq_id, d.cluster, d.topic, g.fingerprint, g.class, g.consumer_group, g.exception_class, g.normalised_text, g.top_frame,
        COALESCE(c.open, 0) AS open, COALESCE(c.total, 0) AS total, c.first_at_ms, c.last_at_ms,
        s.status, s.since_ms, s.until_ms, s.owner, s.ticket, s.runbook, s.decided_by, s.decided_at_ms, s.version
    FROM groups g JOIN dlqs d ON d.id = g.dlq_id LEFT JOIN counted c ON c.ref = g.id LEFT JOIN group_status s ON s.group_id = g.id
    WHERE g.dlq_id = $1 AND g.id BETWEEN $2 AND $3
    ORDER BY CASE WHEN c.last_at_ms >= $7 THEN 0 ELSE 1 END, COALESCE(c.open, 0) DESC, g.id LIMIT $4";

impl Store {
    /// The groups of a DLQ: first those whose last message came at `arriving_from_ms` or later, then the others; among each, most open messages first.
    pub async fn groups(&self, dlq_id: i64, arriving_from_ms: i64, limit: i64) -> Result<Vec<Group>, StoreError> {
        self.counted_groups(dlq_id, (0, i64::MAX), arriving_from_ms, limit).await
    }

    /// One group; None if there is none of that id.
    pub async fn group(&self, id: i64) -> Result<Option<Group>, StoreError> {
        const DLQ_OF: &str = "SELECT dlq_id FROM groups WHERE id = $1";
        let dlq_id = read!(self, |pool| { sqlx::query_scalar::<Db, i64>(DLQ_OF).bind(id).fetch_optional(pool).await? })?;
        match dlq_id {
            Some(dlq_id) => Ok(self.counted_groups(dlq_id, (id, id), i64::MAX, 1).await?.pop()),
            None => Ok(None),
        }
    }

    async fn counted_groups(
        &self,
        dlq_id: i64,
        (first, last): (i64, i64),
        arriving_from_ms: i64,
        limit: i64,
    ) -> Result<Vec<Group>, StoreError> {
        read!(self, |pool| {
            let query = sqlx::query_as::<Db, RawGroup>(GROUPS)
                .bind(dlq_id)
                .bind(first)
                .bind(last)
                .bind(limit)
                .bind(GROUP_OPEN)
                .bind(GROUP_TOTAL)
                .bind(arriving_from_ms);
            query.fetch_all(pool).await?.into_iter().map(Group::try_from).collect::<Result<Vec<Group>, StoreError>>()?
        })
    }

    /// The ids of all groups of these batches; those that are new are made, in a transaction of their own: concurrent batches share groups,
    /// and none shall wait for another's rows.
    pub(super) async fn group_ids<'a>(&self, batches: &'a [PartitionBatch]) -> Result<GroupIds<'a>, StoreError> {
        let mut ids = GroupIds::new();
        let mut unknown: BTreeMap<i64, BTreeMap<&str, &GroupIdentity>> = BTreeMap::new();
        for batch in batches {
            for message in &batch.messages {
                let fingerprint = message.group.fingerprint.as_str();
                let key = (batch.id.dlq_id, fingerprint);
                if ids.contains_key(&key) {
                    continue;
                }
                match self.known_groups().get(batch.id.dlq_id, fingerprint) {
                    Some(id) => {
                        ids.insert(key, id);
                    }
                    None => {
                        unknown.entry(batch.id.dlq_id).or_default().insert(fingerprint, &message.group);
                    }
                }
            }
        }
        for (dlq_id, groups) in unknown {
            let found = self.find_or_make_groups(dlq_id, &groups).await?;
            self.known_groups().add(dlq_id, &found);
            let found: HashMap<String, i64> = found.into_iter().collect();
            ids.extend(groups.into_keys().filter_map(|fingerprint| Some(((dlq_id, fingerprint), *found.get(fingerprint)?))));
        }
        Ok(ids)
    }

    async fn find_or_make_groups(&self, dlq_id: i64, groups: &BTreeMap<&str, &GroupIdentity>) -> Result<Vec<(String, i64)>, StoreError> {
        let fingerprints = rows(&groups.keys().collect::<Vec<_>>());
        let find = async || {
            read!(self, |pool| {
                sqlx::query_as::<Db, (String, i64)>(Db::FIND_GROUPS).bind(dlq_id).bind(&fingerprints).fetch_all(pool).await?
            })
        };
        let found = find().await?;
        if found.len() == groups.len() {
            return Ok(found);
        }
        let there: BTreeSet<&str> = found.iter().map(|(fingerprint, _)| fingerprint.as_str()).collect();
        // In the order of their fingerprints, so that two instances that make the same ones wait for each other in one order.
        let missing = groups.iter().filter(|(fingerprint, _)| !there.contains(*fingerprint));
        let missing: Vec<NewGroup> = missing.map(|(_, group)| NewGroup::of(dlq_id, group)).collect();
        write_one!(self, |pool| {
            sqlx::query(Db::ADD_GROUPS).bind(rows(&missing)).execute(pool).await?;
        })?;
        let found = find().await?;
        if found.len() < groups.len() {
            return Err(StoreError::unreadable("group", "a fingerprint that was just stored"));
        }
        Ok(found)
    }
}
