//! Exact counts without `COUNT(*)`: transactions append to `counter_deltas`, a folder sums them into `counters`, readers add both.

use std::collections::{BTreeMap, HashMap};

use super::sql_pieces::{Dialect as _, rows};
use super::{Store, StoreError, Tx};
use crate::domain::lifecycle::Outcome;
use crate::domain::message::{EARLIEST_PLAUSIBLE_MS, MessageState};

/// What the counters say of one DLQ.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DlqCounts {
    /// Messages by state word; a missing state is zero (counters start with the DLQ).
    pub by_state: BTreeMap<String, i64>,
    /// Archived messages whose follow-up is open.
    pub follow_up_open: i64,
    pub outcomes: OutcomeCounts,
}

/// What became of what was sent, in messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutcomeCounts {
    pub pending: i64,
    pub confirmed: i64,
    pub returned: i64,
    pub unproven: i64,
}

impl OutcomeCounts {
    fn set(&mut self, word: &str, amount: i64) -> Result<(), StoreError> {
        let place = match word {
            "pending" => &mut self.pending,
            "confirmed" => &mut self.confirmed,
            "returned" => &mut self.returned,
            "unproven" => &mut self.unproven,
            _ => return Err(StoreError::unreadable("counter of outcomes", word)),
        };
        *place = amount;
        Ok(())
    }
}

/// A counter that differs from the rows it counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CounterDrift {
    pub dlq_id: i64,
    pub counter: String,
    pub counted: i64,
    pub actual: i64,
}

impl DlqCounts {
    /// Messages that were replayed.
    pub fn replayed(&self) -> i64 {
        self.by_state.get(MessageState::Replayed.as_str()).copied().unwrap_or(0)
    }

    /// Messages not yet replayed or archived.
    pub fn depth(&self) -> i64 {
        MessageState::ALL.iter().filter(|s| s.is_open()).filter_map(|s| self.by_state.get(s.as_str())).sum()
    }
}

/// Kinds of counter: one per state; `ref` is 0.
pub(super) const fn state_kind(state: MessageState) -> &'static str {
    match state {
        MessageState::Quarantined => "state/quarantined",
        MessageState::UnderReview => "state/under_review",
        MessageState::SchemaCheck => "state/schema_check",
        MessageState::IdempotencyCheck => "state/idempotency_check",
        MessageState::Replayed => "state/replayed",
        MessageState::Archived => "state/archived",
    }
}
/// One per outcome, for the DLQ (`ref` is 0) and for each group (`ref` is its id).
pub(super) const fn outcome_kind(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Pending => "outcome/pending",
        Outcome::Confirmed => "outcome/confirmed",
        Outcome::Returned => "outcome/returned",
        Outcome::Unproven => "outcome/unproven",
    }
}
/// Arrivals by minute of dead-lettered time; `ref` is the minute's first ms.
pub(super) const ARRIVALS: &str = "arrivals";
/// The same by the half hour, for what looks at a day of many DLQs; `ref` is the half hour's first ms.
pub(super) const ARRIVALS_COARSE: &str = "arrivals_30m";
/// Open messages of a group; `ref` is its id.
pub(super) const GROUP_OPEN: &str = "group_open";
/// All messages of a group, with the span of their dead-lettered times; `ref` is its id.
pub(super) const GROUP_TOTAL: &str = "group_total";
/// Archived messages whose follow-up is open; `ref` is 0.
pub(super) const FOLLOW_UP: &str = "follow_up";

const MINUTE_MS: i64 = 60_000;
const HALF_HOUR_MS: i64 = 30 * MINUTE_MS;

/// A change of one counter, as a transaction appends it.
#[derive(Debug, PartialEq, Eq, serde::Serialize)]
pub(super) struct Delta {
    dlq_id: i64,
    kind: &'static str,
    #[serde(rename = "ref")]
    of: i64,
    amount: i64,
    first_ms: Option<i64>,
    last_ms: Option<i64>,
}

/// The deltas of new messages, given as (dlq, group, dead-lettered at), summed by counter.
pub(super) fn deltas_of_new(state: MessageState, messages: impl Iterator<Item = (i64, i64, i64)>) -> Vec<Delta> {
    let mut sums: BTreeMap<(i64, &'static str, i64), Delta> = BTreeMap::new();
    let mut add = |dlq_id: i64, kind: &'static str, of: i64, span: Option<i64>| {
        let sum = sums.entry((dlq_id, kind, of)).or_insert(Delta { dlq_id, kind, of, amount: 0, first_ms: span, last_ms: span });
        sum.amount += 1;
        sum.first_ms = sum.first_ms.min(span);
        sum.last_ms = sum.last_ms.max(span);
    };
    for (dlq_id, group_id, at_ms) in messages {
        add(dlq_id, state_kind(state), 0, None);
        add(dlq_id, ARRIVALS, minute(at_ms), None);
        add(dlq_id, ARRIVALS_COARSE, at_ms - at_ms.rem_euclid(HALF_HOUR_MS), None);
        add(dlq_id, GROUP_TOTAL, group_id, Some(at_ms));
        if state.is_open() {
            add(dlq_id, GROUP_OPEN, group_id, None);
        }
    }
    sums.into_values().collect()
}

/// Changes of counters, summed by counter until they are appended.
#[derive(Default)]
pub(super) struct Changes(BTreeMap<(i64, &'static str, i64), i64>);

impl Changes {
    pub(super) fn add(&mut self, dlq_id: i64, kind: &'static str, of: i64, amount: i64) {
        *self.0.entry((dlq_id, kind, of)).or_default() += amount;
    }

    /// One outcome less, one more: of the DLQ and of the group.
    pub(super) fn outcome(&mut self, dlq_id: i64, group_id: i64, from: Option<Outcome>, to: Option<Outcome>) {
        for (outcome, amount) in [(from, -1), (to, 1)] {
            let Some(outcome) = outcome else { continue };
            self.add(dlq_id, outcome_kind(outcome), 0, amount);
            self.add(dlq_id, outcome_kind(outcome), group_id, amount);
        }
    }

    /// Appends them to the deltas, within the caller's transaction.
    pub(super) async fn append(self, tx: &mut Tx) -> Result<(), StoreError> {
        let delta = |((dlq_id, kind, of), amount)| Delta { dlq_id, kind, of, amount, first_ms: None, last_ms: None };
        let deltas: Vec<Delta> = self.0.into_iter().filter(|(_, amount)| *amount != 0).map(delta).collect();
        if deltas.is_empty() {
            return Ok(());
        }
        in_tx!(tx, |connection| {
            sqlx::query(Db::ADD_DELTAS).bind(rows(&deltas)).execute(&mut *connection).await?;
        })
    }
}

fn minute(at_ms: i64) -> i64 {
    at_ms - at_ms.rem_euclid(MINUTE_MS)
}

/// Counters and unfolded deltas in one statement: one snapshot, so each amount is seen exactly once. CROSS JOIN: SQLite then looks the counters of each DLQ up
/// and never reads them all. `$1..$11` the kinds, `$12` the DLQ or 0.
pub(super) const COUNTS: &str = "SELECT dlq_id, kind, CAST(SUM(amount) AS BIGINT) AS amount FROM (
        SELECT c.dlq_id, c.kind, c.amount FROM dlqs d CROSS JOIN counters c
        WHERE c.dlq_id = d.id AND c.ref = 0 AND c.kind IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) AND ($12 = 0 OR d.id = $12)
        UNION ALL SELECT dlq_id, kind, amount FROM counter_deltas
            WHERE ref = 0 AND kind IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) AND ($12 = 0 OR dlq_id = $12)) counted
     GROUP BY dlq_id, kind";

/// The kinds that [`COUNTS`] takes, in its order.
pub(super) fn counted_kinds() -> [&'static str; 11] {
    let [a, b, c, d, e, f] = MessageState::ALL.map(state_kind);
    let [pending, confirmed, returned, unproven] = Outcome::ALL.map(outcome_kind);
    [FOLLOW_UP, a, b, c, d, e, f, pending, confirmed, returned, unproven]
}

/// Outcomes of groups. `$1..$4` the kinds, `$5` the DLQ, `$6` a JSON list of group ids. `{}` is that list as rows.
macro_rules! group_outcomes {
    ($list:expr) => {
        concat!(
            "SELECT ref, kind, CAST(SUM(amount) AS BIGINT) FROM (
            SELECT c.ref, c.kind, c.amount FROM counters c WHERE c.dlq_id = $5 AND c.kind IN ($1, $2, $3, $4) AND c.ref IN ",
            $list,
            "
            UNION ALL SELECT ref, kind, amount FROM counter_deltas WHERE dlq_id = $5 AND kind IN ($1, $2, $3, $4) AND ref IN ",
            $list,
            ") counted
         GROUP BY ref, kind"
        )
    };
}
pub(super) use group_outcomes;

/// `$1` the DLQ or 0, `[$2, $3)` minutes, `$4` the bucket, `$5` the kind.
const ARRIVALS_BY_BUCKET: &str = "SELECT dlq_id, ref - ref % $4 AS bucket, CAST(SUM(amount) AS BIGINT) FROM (
        SELECT c.dlq_id, c.ref, c.amount FROM dlqs d JOIN counters c ON c.dlq_id = d.id AND c.kind = $5 AND c.ref >= $2 AND c.ref < $3 WHERE $1 = 0 OR d.id = $1
        UNION ALL SELECT dlq_id, ref, amount FROM counter_deltas WHERE kind = $5 AND ref >= $2 AND ref < $3 AND ($1 = 0 OR dlq_id = $1)) counted
     GROUP BY dlq_id, ref - ref % $4 HAVING SUM(amount) <> 0 ORDER BY dlq_id, bucket";

/// `$1` the DLQ or 0, `$2` the kind, `[$3, $4)`: one row for each DLQ and one for each delta that is not folded in yet, all of one snapshot.
/// A row for each counter would cost more to carry than to read.
pub(super) const ARRIVALS_OF_EACH: &str =
    "SELECT d.id, (SELECT STRING_AGG(CAST(c.ref AS TEXT) || ' ' || CAST(c.amount AS TEXT), ',') FROM counters c
        WHERE c.dlq_id = d.id AND c.kind = $2 AND c.ref >= $3 AND c.ref < $4) FROM dlqs d WHERE $1 = 0 OR d.id = $1
     UNION ALL SELECT dlq_id, CAST(ref AS TEXT) || ' ' || CAST(amount AS TEXT) FROM counter_deltas
        WHERE kind = $2 AND ref >= $3 AND ref < $4 AND ($1 = 0 OR dlq_id = $1)";

/// Each MIN is the first entry of an index: `messages_time`, `messages_event`. `$1..$4` the open states; `$5` the earliest event that is
/// believed: a header in seconds, or of zero, drives no age. `$6` the DLQ or 0, `$7` the earliest dead-lettered time that counts.
pub(super) const OLDEST_OPEN: &str = "SELECT dlq_id, MIN(oldest), MIN(event) FROM (
        SELECT d.id AS dlq_id,
            (SELECT m.dead_lettered_at_ms FROM messages m WHERE m.dlq_id = d.id AND m.state = o.state AND m.dead_lettered_at_ms >= $7
             ORDER BY m.dead_lettered_at_ms LIMIT 1) AS oldest,
            (SELECT m.origin_at_ms FROM messages m WHERE m.dlq_id = d.id AND m.state = o.state AND m.origin_at_ms >= $5
             ORDER BY m.origin_at_ms LIMIT 1) AS event
        FROM dlqs d CROSS JOIN (SELECT $1 AS state UNION ALL SELECT $2 UNION ALL SELECT $3 UNION ALL SELECT $4) o WHERE $6 = 0 OR d.id = $6) by_state
     WHERE oldest IS NOT NULL GROUP BY dlq_id ORDER BY dlq_id";

/// What is counted (`counted`) against what is there (`actual`), by counter, where they differ. One statement, one snapshot.
/// `$1` the DLQ, `$2..$6` the kinds `arrivals`, `group_total`, `group_open`, `follow_up`, `arrivals_30m`, `$7` and `$8` the states that are not open.
const DRIFT: &str = "SELECT kind, ref, CAST(SUM(counted) AS BIGINT), CAST(SUM(actual) AS BIGINT) FROM (
        SELECT kind, ref, amount AS counted, 0 AS actual FROM counters WHERE dlq_id = $1
        UNION ALL SELECT kind, ref, amount, 0 FROM counter_deltas WHERE dlq_id = $1
        UNION ALL SELECT 'state/' || state, 0, 0, COUNT(*) FROM messages WHERE dlq_id = $1 GROUP BY state
        UNION ALL SELECT $2, minute, 0, COUNT(*) FROM (
            SELECT dead_lettered_at_ms - (dead_lettered_at_ms % 60000 + 60000) % 60000 AS minute FROM messages WHERE dlq_id = $1) minutes GROUP BY minute
        UNION ALL SELECT $6, half_hour, 0, COUNT(*) FROM (
            SELECT dead_lettered_at_ms - (dead_lettered_at_ms % 1800000 + 1800000) % 1800000 AS half_hour FROM messages WHERE dlq_id = $1) halves GROUP BY half_hour
        UNION ALL SELECT $3, group_id, 0, COUNT(*) FROM messages WHERE dlq_id = $1 GROUP BY group_id
        UNION ALL SELECT $4, group_id, 0, COUNT(*) FROM messages WHERE dlq_id = $1 AND state NOT IN ($7, $8) GROUP BY group_id
        UNION ALL SELECT 'outcome/' || outcome, 0, 0, COUNT(*) FROM messages WHERE dlq_id = $1 AND outcome IS NOT NULL GROUP BY outcome
        UNION ALL SELECT 'outcome/' || outcome, group_id, 0, COUNT(*) FROM messages WHERE dlq_id = $1 AND outcome IS NOT NULL GROUP BY outcome, group_id
        UNION ALL SELECT $5, 0, 0, COUNT(*) FROM messages WHERE dlq_id = $1 AND follow_up = 'open') compared
     GROUP BY kind, ref HAVING SUM(counted) <> SUM(actual) ORDER BY kind, ref";

impl Store {
    /// Counts of every DLQ by id, or of `only` one. A DLQ that never held a message is absent.
    pub async fn dlq_counts(&self, only: Option<i64>) -> Result<BTreeMap<i64, DlqCounts>, StoreError> {
        let rows: Vec<(i64, String, i64)> = read!(self, |pool| {
            let mut query = sqlx::query_as::<Db, (i64, String, i64)>(COUNTS);
            for kind in counted_kinds() {
                query = query.bind(kind);
            }
            query.bind(only.unwrap_or(0)).fetch_all(pool).await?
        })?;
        let mut counts: BTreeMap<i64, DlqCounts> = BTreeMap::new();
        for (dlq_id, kind, amount) in rows {
            let counts = counts.entry(dlq_id).or_default();
            match kind.split_once('/') {
                Some(("state", state)) => {
                    counts.by_state.insert(state.to_owned(), amount);
                }
                Some((_, outcome)) => counts.outcomes.set(outcome, amount)?,
                None => counts.follow_up_open = amount,
            }
        }
        Ok(counts)
    }

    /// What became of what was sent of these groups of one DLQ, by group id. A group of which nothing was sent is absent.
    pub async fn group_outcomes(&self, dlq_id: i64, group_ids: &[i64]) -> Result<HashMap<i64, OutcomeCounts>, StoreError> {
        let found: Vec<(i64, String, i64)> = read!(self, |pool| {
            let mut query = sqlx::query_as::<Db, (i64, String, i64)>(Db::GROUP_OUTCOMES);
            for outcome in Outcome::ALL {
                query = query.bind(outcome_kind(outcome));
            }
            query.bind(dlq_id).bind(rows(group_ids)).fetch_all(pool).await?
        })?;
        let mut counts: HashMap<i64, OutcomeCounts> = HashMap::new();
        for (group_id, kind, amount) in found {
            counts.entry(group_id).or_default().set(kind.trim_start_matches("outcome/"), amount)?;
        }
        Ok(counts)
    }

    /// Arrivals of each DLQ with dead-lettered time in `[from, to)` ms, by bucket of `bucket_ms` (a multiple of 60,000): (dlq id, bucket start, count).
    /// Buckets without arrivals are absent. Arrivals are kept by the minute: `from` and `to` count from the start of theirs.
    pub async fn arrivals(
        &self,
        dlq_id: Option<i64>,
        from_ms: i64,
        to_ms: i64,
        bucket_ms: i64,
    ) -> Result<Vec<(i64, i64, i64)>, StoreError> {
        // The last minute of [from, to) counts in full, whether or not `to` falls on its end.
        let end = minute(to_ms.saturating_add(MINUTE_MS - 1));
        read!(self, |pool| {
            let query = sqlx::query_as::<Db, (i64, i64, i64)>(ARRIVALS_BY_BUCKET).bind(dlq_id.unwrap_or(0)).bind(minute(from_ms)).bind(end);
            query.bind(bucket_ms.max(MINUTE_MS)).bind(ARRIVALS).fetch_all(pool).await?
        })
    }

    /// Arrivals of the last days by half hour, of every DLQ or of one, from the half hour of `from_ms` on: by DLQ id, (start of the half hour, count).
    /// Half hours without arrivals are absent.
    pub async fn arrivals_by_half_hour(&self, dlq_id: Option<i64>, from_ms: i64) -> Result<HashMap<i64, Vec<(i64, i64)>>, StoreError> {
        self.arrivals_of_each(dlq_id, ARRIVALS_COARSE, from_ms - from_ms.rem_euclid(HALF_HOUR_MS), i64::MAX).await
    }

    /// Arrivals by minute with dead-lettered time in `[from, to)`, of every DLQ or of one; as [`Store::arrivals_by_half_hour`]. For some minutes: a
    /// day of many DLQs is long.
    pub async fn arrivals_by_minute(
        &self,
        dlq_id: Option<i64>,
        from_ms: i64,
        to_ms: i64,
    ) -> Result<HashMap<i64, Vec<(i64, i64)>>, StoreError> {
        self.arrivals_of_each(dlq_id, ARRIVALS, minute(from_ms), to_ms).await
    }

    async fn arrivals_of_each(
        &self,
        dlq_id: Option<i64>,
        kind: &str,
        from_ms: i64,
        to_ms: i64,
    ) -> Result<HashMap<i64, Vec<(i64, i64)>>, StoreError> {
        let rows: Vec<(i64, Option<String>)> = read!(self, |pool| {
            let query = sqlx::query_as::<Db, (i64, Option<String>)>(ARRIVALS_OF_EACH).bind(dlq_id.unwrap_or(0)).bind(kind);
            query.bind(from_ms).bind(to_ms).fetch_all(pool).await?
        })?;
        let mut arrivals: HashMap<i64, BTreeMap<i64, i64>> = HashMap::new();
        for (dlq_id, counters) in rows.iter().filter_map(|(dlq_id, counters)| Some((*dlq_id, counters.as_deref()?))) {
            let of_dlq = arrivals.entry(dlq_id).or_default();
            for counter in counters.split(',') {
                let pair = counter.split_once(' ').and_then(|(start, count)| Some((start.parse().ok()?, count.parse::<i64>().ok()?)));
                let (start, count) = pair.ok_or_else(|| StoreError::unreadable("counter", counter))?;
                *of_dlq.entry(start).or_default() += count;
            }
        }
        let listed = |(dlq_id, counts): (i64, BTreeMap<i64, i64>)| (dlq_id, counts.into_iter().filter(|(_, count)| *count != 0).collect());
        Ok(arrivals.into_iter().map(listed).collect())
    }

    /// Oldest open message of each DLQ, or of `only` one: (dlq id, min dead_lettered_at_ms, min origin_at_ms of the open ones where known and believable).
    pub async fn oldest_open(&self, only: Option<i64>) -> Result<Vec<(i64, i64, Option<i64>)>, StoreError> {
        self.oldest_open_since(only, i64::MIN).await
    }

    /// As [`Store::oldest_open`], of the messages that were dead-lettered at `from_ms` or later.
    pub async fn oldest_open_since(&self, only: Option<i64>, from_ms: i64) -> Result<Vec<(i64, i64, Option<i64>)>, StoreError> {
        read!(self, |pool| {
            let mut query = sqlx::query_as::<Db, (i64, i64, Option<i64>)>(OLDEST_OPEN);
            for state in MessageState::ALL.into_iter().filter(|state| state.is_open()) {
                query = query.bind(state.as_str());
            }
            query.bind(EARLIEST_PLAUSIBLE_MS).bind(only.unwrap_or(0)).bind(from_ms).fetch_all(pool).await?
        })
    }

    /// Folds at most `limit` deltas. Returns how many; call again while it returns `limit`. Several may fold at once: on PostgreSQL each
    /// takes deltas that no other has in hand, and adds to the counters in one order.
    pub async fn fold_counters(&self, limit: i64) -> Result<i64, StoreError> {
        transaction!(self, |tx| {
            let ids = sqlx::query_scalar::<Db, i64>(Db::PICK_DELTAS).bind(limit).fetch_all(&mut *tx).await?;
            if !ids.is_empty() {
                let list = rows(&ids);
                sqlx::query(Db::FOLD_DELTAS).bind(&list).execute(&mut *tx).await?;
                sqlx::query(Db::DROP_DELTAS).bind(&list).execute(&mut *tx).await?;
            }
            i64::try_from(ids.len()).unwrap_or(i64::MAX)
        })
    }

    /// Compares the counters of one DLQ with its rows (a full count: never on a page's path).
    pub async fn check_counters(&self, dlq_id: i64) -> Result<Vec<CounterDrift>, StoreError> {
        let rows: Vec<(String, i64, i64, i64)> = read!(self, |pool| {
            let mut query = sqlx::query_as::<Db, (String, i64, i64, i64)>(DRIFT).bind(dlq_id);
            for word in [ARRIVALS, GROUP_TOTAL, GROUP_OPEN, FOLLOW_UP, ARRIVALS_COARSE] {
                query = query.bind(word);
            }
            for state in MessageState::ALL.into_iter().filter(|state| !state.is_open()) {
                query = query.bind(state.as_str());
            }
            query.fetch_all(pool).await?
        })?;
        let named = |kind: String, of: i64| if of == 0 { kind } else { format!("{kind} {of}") };
        let drift =
            |(kind, of, counted, actual): (String, i64, i64, i64)| CounterDrift { dlq_id, counter: named(kind, of), counted, actual };
        Ok(rows.into_iter().map(drift).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_a_state_names_the_state() {
        for state in MessageState::ALL {
            assert_eq!(state_kind(state), format!("state/{}", state.as_str()));
        }
    }

    #[test]
    fn the_kind_of_an_outcome_names_the_outcome() {
        for outcome in Outcome::ALL {
            assert_eq!(outcome_kind(outcome), format!("outcome/{}", outcome.as_str()));
            assert!(OutcomeCounts::default().set(outcome.as_str(), 1).is_ok());
        }
    }

    #[test]
    fn new_messages_add_up_by_counter() {
        let deltas = deltas_of_new(MessageState::Quarantined, [(1, 7, 60_000), (1, 7, 119_999), (1, 8, -1)].into_iter());
        let amount = |kind: &str, of: i64| deltas.iter().find(|d| d.kind == kind && d.of == of).map(|d| (d.amount, d.first_ms, d.last_ms));
        assert_eq!(amount("state/quarantined", 0), Some((3, None, None)));
        assert_eq!(amount(ARRIVALS, 60_000), Some((2, None, None)));
        assert_eq!(amount(ARRIVALS, -60_000), Some((1, None, None)));
        assert_eq!(amount(ARRIVALS_COARSE, 0), Some((2, None, None)));
        assert_eq!(amount(ARRIVALS_COARSE, -HALF_HOUR_MS), Some((1, None, None)));
        assert_eq!(amount(GROUP_TOTAL, 7), Some((2, Some(60_000), Some(119_999))));
        assert_eq!(amount(GROUP_OPEN, 8), Some((1, None, None)));
        assert_eq!(deltas.len(), 9);
    }
}
