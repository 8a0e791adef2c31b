//! What differs between PostgreSQL and SQLite: the few texts that one body cannot share.
//!
//! Lists go in as one JSON text: PostgreSQL takes it apart with `json_to_recordset`, SQLite with `json_each`.

use std::borrow::Cow;

use super::counters::group_outcomes;

/// SQLite's transactions take the write lock at once; one that began as a reader could fail in its middle.
pub(super) const BEGIN_IMMEDIATE: &str = "BEGIN IMMEDIATE";

/// PostgreSQL's transactions walk lists of rows by their keys, of which an index knows each. Where a batch or a DLQ has just come in there are no statistics yet,
/// and the planner would read the whole of it for each list.
pub(super) const BEGIN_BY_KEY: &str = "BEGIN; SET LOCAL enable_seqscan = off";

/// Compiling a query costs more than any of ours takes. Limits of every PostgreSQL session: a statement and a lock that take too long become errors (57014, 55P03), a transaction whose owner froze is ended.
/// Set by a statement and not by start-up options, which connection poolers refuse.
pub(super) const POSTGRES_SESSION: &str = "SELECT set_config('statement_timeout', '30s', false), set_config('lock_timeout', '10s', false), \
     set_config('idle_in_transaction_session_timeout', '60s', false), set_config('jit', 'off', false)";

/// Text as both databases hold it: PostgreSQL refuses U+0000, so its visible picture takes its place. Every text is bound through this.
pub(super) fn text(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{2400}")) } else { Cow::Borrowed(text) }
}

/// [`text`] of an optional one.
pub(super) fn optional_text(value: Option<&str>) -> Option<Cow<'_, str>> {
    value.map(text)
}

/// Rows as the JSON text that the list statements below take.
pub(super) fn rows(rows: &[impl serde::Serialize]) -> String {
    json_text(serde_json::to_string(rows).expect("plain structs of numbers and texts have a JSON form"))
}

/// JSON that PostgreSQL can take apart: it refuses to read any part of one with U+0000 in a text, so its visible picture takes its place, as in [`text`].
pub(super) fn json_text(json: String) -> String {
    // An escaped backslash before "u0000" looks alike; what is read and written anew keeps it.
    match json.contains("\\u0000").then(|| serde_json::from_str::<serde_json::Value>(&json)) {
        Some(Ok(mut value)) => {
            show_nul(&mut value);
            value.to_string()
        }
        _ => json,
    }
}

fn show_nul(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::String(string) => *string = string.replace('\0', "\u{2400}"),
        serde_json::Value::Array(list) => list.iter_mut().for_each(show_nul),
        serde_json::Value::Object(fields) => {
            *fields = std::mem::take(fields)
                .into_iter()
                .map(|(name, mut value)| {
                    show_nul(&mut value);
                    (name.replace('\0', "\u{2400}"), value)
                })
                .collect();
        }
        _ => {}
    }
}

/// The texts of one database.
pub(super) trait Dialect {
    /// Its version.
    const VERSION: &'static str;
    /// The positions of `$1`, `[{dlq_id, incarnation, partition}]`, locked where the database locks rows; in one order, so that two batches cannot deadlock.
    const LOCK_POSITIONS: &'static str;
    /// Moves the positions of `$1`, `[{dlq_id, incarnation, partition, next_offset}]`, at `$2`.
    const MOVE_POSITIONS: &'static str;
    /// The newest stored offset of each partition of `$1`, null where there is none.
    const NEWEST_OFFSETS: &'static str;
    /// `$1` new message ids.
    const MESSAGE_IDS: &'static str;
    /// Appends the deltas `$1`.
    const ADD_DELTAS: &'static str;
    /// Ids of at most `$1` deltas that no other folder has in hand.
    const PICK_DELTAS: &'static str;
    /// Adds the deltas with the ids `$1` to the counters, in one order.
    const FOLD_DELTAS: &'static str;
    const DROP_DELTAS: &'static str;
    /// Outcomes of the groups `$6`; see `counters::group_outcomes`.
    const GROUP_OUTCOMES: &'static str;
    /// What moving the messages of `$1` (a JSON list of ids) needs to know, locked where the database locks rows; in the order of their ids.
    const LOCK_MESSAGES: &'static str;
    /// Moves the messages of `$1`, `[{id, from_state, to_state, resolution, outcome, reason, follow_up}]`.
    const MOVE_MESSAGES: &'static str;
    /// The batches that have the messages of `$1` (a JSON list of ids), with each of those messages.
    const LIVE_ITEMS: &'static str;
    /// Closes the open follow-ups of the messages of `$1` (a JSON list of ids).
    const CLOSE_FOLLOW_UPS: &'static str;
    /// Appends the history rows `$1`.
    const ADD_TRANSITIONS: &'static str;
    /// Sets the outcomes of `$1`, `[{id, from_outcome, to_outcome}]`.
    const SET_OUTCOMES: &'static str;
    /// Which of the fingerprints `$2` the DLQ `$1` has groups for.
    const FIND_GROUPS: &'static str;
    /// Makes the groups `$1` that do not exist yet.
    const ADD_GROUPS: &'static str;
    /// A row if the lease `$1` still has the epoch `$2`; nobody takes it over before the transaction ends.
    const LEASE_HOLDS: &'static str;
    const SAVE_SAMPLES: &'static str;
    const SAVE_PARTITION_SAMPLES: &'static str;
    /// Appends the verdicts `$1`.
    const ADD_VERDICTS: &'static str;
    /// A JSON list of numbers as rows of one column, to stand after `IN`. `{}` is the placeholder.
    const IN_LIST: &'static str;
    /// A JSON list of `{dlq_id, state}` as rows. `{}` is the placeholder.
    const DLQ_STATES: &'static str;
    /// The arrivals of the DLQs `$1` (counters of kind `$2`) in `[$3, $4)`, of at most `$5` counters.
    const SOME_ARRIVALS: &'static str;
    /// Keys, tenants and dialects of the newest `$2` open messages of the DLQ `$1`, the first `$3` bytes of each key; `$4..=$7` the open states.
    const NEWEST_OPEN_KEYS: &'static str;
    const EXPLAIN_NEWEST_OPEN_KEYS: &'static str;
    /// One value of a column, and the ids of it before another; so put that only the index of that column gives the order (see `store/filter.rs`).
    const PIN: &'static str;
    /// `messages m`, read by the index `{index}` where that can be said.
    const MESSAGES_BY: &'static str;
    /// What stands before a query to be told its plan, and the column that tells it.
    const EXPLAIN: &'static str;
    const EXPLAIN_COLUMN: &'static str;
    /// The packed headers of the messages `$1` (a JSON list of ids) where they are at most `$2` bytes.
    const HEADERS_OF: &'static str;
    /// The ids that the query `{inner}` gives for each row `s` of `{outer}`.
    const FOR_EACH: &'static str;
    /// Those of the messages `$1` (a JSON list of ids) that wait in the DLQ `$2`, locked in the order of their ids.
    const LOCK_WANTED: &'static str;
    /// Puts the messages `$2`, `[{message_id, key_hash, taken_up}]`, into the batch `$1`, but those that are in a live batch; gives their ids.
    const ADD_ITEMS: &'static str;
    /// How many of the messages `$2` (as above) other live batches than `$1` have, by batch.
    const IN_OTHER_BATCHES: &'static str;
    /// Of the messages `$1` (a JSON list of ids) that wait in the DLQ `$2`: the topics they came from and the groups that failed, counted.
    const WAITING_AMONG: &'static str;
    /// The messages `$1` (a JSON list of ids) with their bodies, where those are left, by id.
    const TO_CHECK: &'static str;
    /// Stores the forecasts `$2`, `[{message_id, forecast, note}]`, of pending items of the batch `$1`, with the stage `$3`.
    const SET_FORECASTS: &'static str;
    /// Blocks the copies `$2`, `[{message_id, blocked_by}]`, among the pending items of the batch `$1`.
    const SET_COPIES: &'static str;
    /// Stores the stages `$2`, `[{message_id, stage}]`, of pending items of the batch `$1`.
    const SET_STAGES: &'static str;
    /// Ends the pending items `$2` (a JSON list of ids) of the batch `$1` with the note `$3` at `$4`, in the state `$5`, and no longer (`$6`) live; gives
    /// their ids, and whether the batch had taken them up.
    const RELEASE_ITEMS: &'static str;
    /// Moves items of the batch `$1` as `$2` says, `[{message_id, from_state, to_state, live, ..}]`; what a row leaves out stays as it is.
    const MOVE_ITEMS: &'static str;
    /// The pending items among the ids `$2` of the batch `$1`, with message and body.
    const ITEMS_TO_SEND: &'static str;
    /// The size of each of the messages `$1` (a JSON list of ids).
    const SIZES_OF: &'static str;
    /// The batches of the cluster `$1` that are approved or executing, and those of which something is in doubt.
    const REPLAY_WORK: &'static str;
    /// Where the items with the ids `$2` stand in the order of the batch `$1`.
    const PLACES_OF_ITEMS: &'static str;
    /// How many messages of the groups `$1` (a JSON list of ids), of the newest `$3` of each, were dead-lettered at `$2` or later.
    const ARRIVALS_OF_GROUPS: &'static str;
    /// Those of the DLQs `$1` (a JSON list of ids) that have ever sent anything, and whether the outcome of any of it is still open.
    const REPLAYING_DLQS: &'static str;
    /// The items that the replay ids `$1`, `[{new_id, dlq_id, uid, message_id}]`, name.
    const SENT_BY_ID: &'static str;
    /// The items that were sent to the places `$1`, `[{new_id, dlq_id, topic, partition, place_offset, failed_at_ms}]`, no later (by `$2` ms) than what came
    /// from there failed, and not before `$3`.
    const SENT_TO_PLACE: &'static str;
    /// How the items `$1`, `[{batch_id, message_id}]`, stand.
    const ITEM_OUTCOMES: &'static str;
    /// Where those of the DLQs `$1` (a JSON list of ids) send to of which something is still open.
    const OPEN_TARGETS: &'static str;
    /// Links the new messages `$1`, `[{id, replay_of, lap}]`, with what they came back from.
    const LINK_RETURNS: &'static str;
    /// Notes at the items `$1`, `[{batch_id, message_id, returned_as}]`, that they came back.
    const NOTE_RETURNS: &'static str;
    /// Keeps the traces `$1`, `[{dlq_id, topic, partition, place_offset, message_id, at_ms}]`.
    const ADD_TRACES: &'static str;
    /// Stores the outcomes `$1`, `[{batch_id, message_id, outcome, proof, returned_as}]`, of items, at `$2`.
    const RESOLVE_ITEMS: &'static str;
    /// DLQ and group of each of the messages `$1` (a JSON list of ids), each pair once.
    const PLACES_OF: &'static str;
    /// Batches of the cluster `$1` that began at `$2` or later and whose target is not known to be replaced: id, target, Kafka's id of it.
    const TARGETS_SENT_TO: &'static str;
    /// Replaces the looks `$1`, `[{cluster, consumer_group, topic, partition, at_ms, committed, passed_from, members}]`, unless there are newer ones.
    const SAVE_LOOKS: &'static str;
    /// At most `$3` pending items of the batch `$1` that are not known to be passed and lie in the stretches `$2`, `[{partition, from_offset, to_offset}]`.
    const PASSED_ITEMS: &'static str;
    /// The items of the batch `$1` with the ids `$2` (a JSON list) are passed as of `$3`, where they still are pending.
    const MARK_PASSED: &'static str;
    /// Stores the alerts `$1` that are new, and gives their ids with rule, cluster and topic.
    const ADD_ALERTS: &'static str;
    /// Stores the alerts `$1`, `[{alert_id, seen_version, ..}]`, that are still of the version that was seen, and gives their ids.
    const CHANGE_ALERTS: &'static str;
    /// Appends the news `$1`; what is there already stays.
    const ADD_NEWS: &'static str;
    /// Stores the baselines `$1`, each of the version that follows the stored one (1: there is none), and gives the ids of their DLQs.
    const SAVE_BASELINES: &'static str;
    /// Stores the watches `$1`, `[{of_dlq, seen_version, ..}]`, of baselines that are still of the version that was seen, and gives the ids of their DLQs.
    const SAVE_WATCHES: &'static str;
    /// Appends the anomalies `$1`; what is there already stays.
    const ADD_ANOMALIES: &'static str;
    /// The alerts with the ids `$1` (a JSON list).
    const SOME_ALERTS: &'static str;
    /// The baselines of the DLQs `$1` (a JSON list of ids).
    const SOME_BASELINES: &'static str;
}

/// Each text once, with what PostgreSQL and SQLite write for the list `$1`.
macro_rules! dialects {
    ($($name:ident: $postgres:expr, $sqlite:expr;)+) => {
        impl Dialect for sqlx::Postgres { $(const $name: &'static str = $postgres;)+ }
        impl Dialect for sqlx::Sqlite { $(const $name: &'static str = $sqlite;)+ }
    };
}

macro_rules! partitions {
    (postgres) => {
        "json_to_recordset($1::json) AS b(dlq_id BIGINT, incarnation INTEGER, partition INTEGER, next_offset BIGINT)"
    };
    (sqlite) => {
        "(SELECT value ->> 'dlq_id' AS dlq_id, value ->> 'incarnation' AS incarnation, value ->> 'partition' AS partition, \
          value ->> 'next_offset' AS next_offset FROM json_each($1)) AS b"
    };
}

macro_rules! fold {
    ($ids:literal) => {
        concat!(
            "INSERT INTO counters (dlq_id, kind, ref, amount, first_ms, last_ms)
             SELECT dlq_id, kind, ref, CAST(SUM(amount) AS BIGINT), MIN(first_ms), MAX(last_ms) FROM counter_deltas WHERE id IN (",
            $ids,
            ") GROUP BY dlq_id, kind, ref ORDER BY dlq_id, kind, ref
             ON CONFLICT (dlq_id, kind, ref) DO UPDATE SET amount = counters.amount + excluded.amount,
                first_ms = CASE WHEN counters.first_ms <= excluded.first_ms THEN counters.first_ms ELSE excluded.first_ms END,
                last_ms = CASE WHEN counters.last_ms >= excluded.last_ms THEN counters.last_ms ELSE excluded.last_ms END"
        )
    };
}

/// A conflict is with the message's item in another live batch, or in this one: a chunk that is frozen twice.
macro_rules! add_items {
    (@ $items:literal) => {
        concat!(
            "INSERT INTO replay_items (batch_id, message_id, place, key_hash, group_id, stage, lap, origin_partition, live, taken_up, state, body_hash)
             SELECT $1, m.id, COALESCE(m.origin_offset, m.id), i.key_hash, m.group_id, -1, m.lap, m.origin_partition, true, i.taken_up, 'pending', m.body_hash
             FROM ",
            $items,
            " JOIN messages m ON m.id = i.message_id WHERE true ORDER BY m.id ON CONFLICT DO NOTHING RETURNING message_id"
        )
    };
    (postgres) => {
        add_items!(@ "json_to_recordset($2::json) AS i(message_id BIGINT, key_hash BIGINT, taken_up BOOLEAN)")
    };
    (sqlite) => {
        add_items!(@ "(SELECT value ->> 'message_id' AS message_id, value ->> 'key_hash' AS key_hash, value ->> 'taken_up' AS taken_up FROM json_each($2)) AS i")
    };
}

macro_rules! waiting_among {
    ($ids:literal) => {
        concat!(
            "SELECT origin_topic, consumer_group, COUNT(*) FROM messages WHERE id IN (",
            $ids,
            ") AND dlq_id = $2 AND state IN ('quarantined', 'under_review') GROUP BY origin_topic, consumer_group"
        )
    };
}

macro_rules! to_check {
    ($ids:literal) => {
        concat!(
            "SELECT m.id, d.topic, m.partition, m.record_offset, m.record_at_ms, m.record_key, b.value, b.headers, m.origin_at_ms, m.timestamp_suspect,
                m.lap, m.origin_topic, m.origin_partition
             FROM messages m JOIN dlqs d ON d.id = m.dlq_id LEFT JOIN bodies b ON b.message_id = m.id WHERE m.id IN (",
            $ids,
            ") ORDER BY m.id"
        )
    };
}

macro_rules! release_items {
    ($ids:literal) => {
        concat!(
            "UPDATE replay_items SET state = $5, live = $6, note = $3, resolved_at_ms = $4 WHERE batch_id + 0 = $1 AND state = 'pending' AND message_id IN (",
            $ids,
            ") RETURNING message_id, taken_up"
        )
    };
}

macro_rules! some_arrivals {
    ($ids:literal) => {
        concat!(
            "SELECT CAST(COALESCE(SUM(amount), 0) AS BIGINT) FROM (SELECT c.amount FROM counters c WHERE c.dlq_id IN (",
            $ids,
            ") AND c.kind = $2 AND c.ref >= $3 AND c.ref < $4 AND c.amount > 0 LIMIT $5) sampled"
        )
    };
}

/// Each state is a walk down `messages_state` for `$2` ids, pinned to that index as the lists are (`store/filter.rs`); of all, the newest are
/// kept. SQLite's SUBSTR of no bytes is NULL, which a key of no bytes is not.
macro_rules! newest_open_keys {
    (@walk postgres $state:literal) => {
        concat!("SELECT m.id FROM messages m WHERE m.dlq_id = $1 AND m.state >= ", $state, " AND (m.state, m.id) < (", $state,
            ", 9223372036854775807) ORDER BY m.state DESC, m.id DESC LIMIT $2")
    };
    (@walk sqlite $state:literal) => {
        concat!("SELECT m.id FROM messages m INDEXED BY messages_state WHERE m.dlq_id = $1 AND m.state = ", $state, " ORDER BY m.id DESC LIMIT $2")
    };
    ($db:ident $explain:literal) => {
        concat!($explain, "SELECT m.key_hash, COALESCE(SUBSTR(m.record_key, 1, CAST($3 AS INTEGER)), m.record_key) AS key, m.tenant, m.dialect FROM (
            SELECT id FROM (SELECT id FROM (", newest_open_keys!(@walk $db "$4"), ") a
                UNION ALL SELECT id FROM (", newest_open_keys!(@walk $db "$5"), ") b
                UNION ALL SELECT id FROM (", newest_open_keys!(@walk $db "$6"), ") c
                UNION ALL SELECT id FROM (", newest_open_keys!(@walk $db "$7"), ") d) walked ORDER BY id DESC LIMIT $2) newest
            JOIN messages m ON m.id = newest.id")
    };
}

/// `INSERT .. SELECT` from a JSON list: the columns once, with their PostgreSQL types.
macro_rules! insert_rows {
    (postgres $table:literal ($($column:literal $kind:literal),+) $rest:literal) => {
        concat!("INSERT INTO ", $table, " SELECT * FROM json_to_recordset($1::json) AS x(", insert_rows!(@join $(($column, " ", $kind)),+), ") ", $rest)
    };
    (sqlite $table:literal ($($column:literal $kind:literal),+) $rest:literal) => {
        concat!("INSERT INTO ", $table, " SELECT ", insert_rows!(@join $(("value ->> '", $column, "'")),+), " FROM json_each($1) ", $rest)
    };
    (@join ($($first:expr),+) $(, ($($next:expr),+))*) => { concat!($($first),+ $(, ", ", $($next),+)*) };
}

macro_rules! add_deltas {
    ($db:ident) => {
        insert_rows!($db "counter_deltas (dlq_id, kind, ref, amount, first_ms, last_ms)"
            ("dlq_id" "BIGINT", "kind" "TEXT", "ref" "BIGINT", "amount" "BIGINT", "first_ms" "BIGINT", "last_ms" "BIGINT") "")
    };
}

macro_rules! add_groups {
    ($db:ident) => {
        insert_rows!($db "groups (dlq_id, fingerprint, class, consumer_group, exception_class, normalised_text, top_frame, exception_folded, normalised_folded)"
            ("dlq_id" "BIGINT", "fingerprint" "TEXT", "class" "TEXT", "consumer_group" "TEXT", "exception_class" "TEXT", "normalised_text" "TEXT",
             "top_frame" "TEXT", "exception_folded" "TEXT", "normalised_folded" "TEXT")
            "WHERE true ON CONFLICT (dlq_id, fingerprint) DO NOTHING")
    };
}

macro_rules! add_transitions {
    ($db:ident) => {
        insert_rows!($db "transitions (message_id, dlq_id, at_ms, batch_id, review_id, from_state, to_state, move, actor, reason, evidence)"
            ("message_id" "BIGINT", "dlq_id" "BIGINT", "at_ms" "BIGINT", "batch_id" "BIGINT", "review_id" "BIGINT", "from_state" "TEXT", "to_state" "TEXT", "move" "TEXT",
             "actor" "TEXT", "reason" "TEXT", "evidence" "TEXT") "")
    };
}

/// `UPDATE messages AS m .. FROM` a JSON list of rows `x` that name a message by `id`: its columns with their PostgreSQL types.
macro_rules! update_messages {
    (postgres $set:literal ($($column:literal $kind:literal),+) $rest:literal) => {
        concat!("UPDATE messages AS m SET ", $set, " FROM json_to_recordset($1::json) AS x(", insert_rows!(@join $(($column, " ", $kind)),+),
            ") WHERE m.id = x.id AND ", $rest)
    };
    (sqlite $set:literal ($($column:literal $kind:literal),+) $rest:literal) => {
        concat!("UPDATE messages AS m SET ", $set, " FROM (SELECT ", insert_rows!(@join $(("value ->> '", $column, "' AS ", $column)),+),
            " FROM json_each($1)) AS x WHERE m.id = x.id AND ", $rest)
    };
}

macro_rules! move_messages {
    ($db:ident) => {
        update_messages!($db "state = x.to_state, resolution = x.resolution, outcome = x.outcome, reason = x.reason, follow_up = x.follow_up"
            ("id" "BIGINT", "from_state" "TEXT", "to_state" "TEXT", "resolution" "TEXT", "outcome" "TEXT", "reason" "TEXT", "follow_up" "TEXT")
            "m.state = x.from_state")
    };
}

macro_rules! set_outcomes {
    ($db:ident) => {
        update_messages!($db "outcome = x.to_outcome" ("id" "BIGINT", "from_outcome" "TEXT", "to_outcome" "TEXT") "m.outcome = x.from_outcome")
    };
}

/// Both databases join the list by name; only how it is taken apart differs. Either would look at every item of the batch for a list of some (a batch that
/// was just frozen has no statistics yet): `+ 0` leaves it the index that begins with the message. So in all statements that take some items of a batch.
macro_rules! move_items {
    ($rows:literal $of_batch:literal) => {
        concat!(
            "UPDATE replay_items AS i SET state = b.to_state, live = b.live, note = COALESCE(b.note, i.note), blocked_by = COALESCE(b.blocked_by, i.blocked_by),
                unchecked = COALESCE(b.unchecked, i.unchecked), target_partition = COALESCE(b.target_partition, i.target_partition),
                lower_bound = COALESCE(b.lower_bound, i.lower_bound), intended_at_ms = COALESCE(b.intended_at_ms, i.intended_at_ms),
                epoch = COALESCE(b.epoch, i.epoch), sent_offset = COALESCE(b.sent_offset, i.sent_offset), sent_at_ms = COALESCE(b.sent_at_ms, i.sent_at_ms),
                outcome = COALESCE(b.outcome, i.outcome)
             FROM ", $rows, " WHERE ", $of_batch, " AND i.message_id = b.message_id AND i.state = b.from_state"
        )
    };
}

/// What is in doubt has an index of its own, which SQLite does not choose by itself.
macro_rules! replay_work {
    ($items:literal) => {
        concat!(
            "SELECT b.id FROM (
                SELECT id FROM batches WHERE state IN ('approved', 'executing')
                UNION SELECT batch_id FROM ",
            $items,
            " WHERE state = 'intended') w
             JOIN batches b ON b.id = w.id JOIN dlqs d ON d.id = b.dlq_id WHERE d.cluster = $1 ORDER BY b.id"
        )
    };
}

macro_rules! items_to_send {
    ($items:literal) => {
        concat!(
            "SELECT i.message_id, i.place, i.key_hash, i.event_hash, i.lap, i.forecast, i.intended_at_ms, d.topic, m.partition, m.record_offset, m.record_at_ms,
                m.record_key, m.state, m.group_id, m.origin_topic, m.origin_partition, m.origin_offset, m.origin_at_ms, m.timestamp_suspect, b.value, b.headers
             FROM ", $items, " JOIN messages m ON m.id = i.message_id JOIN dlqs d ON d.id = m.dlq_id LEFT JOIN bodies b ON b.message_id = m.id"
        )
    };
}

macro_rules! set_copies {
    ($db:ident) => {
        concat!("UPDATE replay_items SET forecast = 'blocked', blocked_by = x.blocked_by FROM ",
            listed!($db "$2" ("message_id" "BIGINT", "blocked_by" "BIGINT")),
            " WHERE replay_items.batch_id + 0 = $1 AND replay_items.message_id = x.message_id AND replay_items.state = 'pending'")
    };
}

macro_rules! save_samples {
    ($db:ident) => {
        insert_rows!($db "samples (dlq_id, at_ms, uncollected, depth, at_risk_state, at_risk_left_ms, error, oldest_open_ms, follow_up_open, confirmed, returned)"
            ("dlq_id" "BIGINT", "at_ms" "BIGINT", "uncollected" "BIGINT", "depth" "BIGINT", "at_risk_state" "TEXT", "at_risk_left_ms" "BIGINT", "error" "TEXT",
             "oldest_open_ms" "BIGINT", "follow_up_open" "BIGINT", "confirmed" "BIGINT", "returned" "BIGINT")
            "WHERE true ON CONFLICT (dlq_id, at_ms) DO UPDATE SET uncollected = excluded.uncollected, depth = excluded.depth,
             at_risk_state = excluded.at_risk_state, at_risk_left_ms = excluded.at_risk_left_ms, error = excluded.error,
             oldest_open_ms = excluded.oldest_open_ms, follow_up_open = excluded.follow_up_open, confirmed = excluded.confirmed, returned = excluded.returned")
    };
}

macro_rules! save_partition_samples {
    ($db:ident) => {
        insert_rows!($db "partition_samples (dlq_id, incarnation, partition, at_ms, position, log_start, log_end, error)"
            ("dlq_id" "BIGINT", "incarnation" "INTEGER", "partition" "INTEGER", "at_ms" "BIGINT", "position" "BIGINT", "log_start" "BIGINT", "log_end" "BIGINT", "error" "TEXT")
            "WHERE true ON CONFLICT (dlq_id, incarnation, partition) DO UPDATE SET at_ms = excluded.at_ms, position = excluded.position,
             log_start = excluded.log_start, log_end = excluded.log_end, error = excluded.error")
    };
}

/// A JSON list of rows `x`: its columns with their PostgreSQL types.
macro_rules! listed {
    (postgres $list:literal ($($column:literal $kind:literal),+)) => {
        concat!("json_to_recordset(", $list, "::json) AS x(", insert_rows!(@join $(($column, " ", $kind)),+), ")")
    };
    (sqlite $list:literal ($($column:literal $kind:literal),+)) => {
        concat!("(SELECT ", insert_rows!(@join $(("value ->> '", $column, "' AS ", $column)),+), " FROM json_each(", $list, ")) AS x")
    };
}

/// The topic that a batch sends to, and Kafka's id of it, out of its plan.
macro_rules! of_plan {
    (postgres $field:literal) => {
        concat!("(b.plan::json ->> '", $field, "')")
    };
    (sqlite $field:literal) => {
        concat!("(b.plan ->> '", $field, "')")
    };
}

macro_rules! replaying_dlqs {
    ($ids:literal) => {
        concat!("SELECT d.id, EXISTS (SELECT 1 FROM batches b WHERE b.dlq_id = d.id AND b.started_at_ms IS NOT NULL AND b.verified_at_ms IS NULL)
             FROM dlqs d WHERE d.id IN (", $ids, ") AND EXISTS (SELECT 1 FROM batches b WHERE b.dlq_id = d.id AND b.started_at_ms IS NOT NULL)")
    };
}

macro_rules! sent_by_id {
    ($db:ident) => {
        concat!("SELECT x.new_id, i.batch_id, i.message_id, i.intended_at_ms, m.lap FROM ",
            listed!($db "$1" ("new_id" "BIGINT", "dlq_id" "BIGINT", "uid" "TEXT", "message_id" "BIGINT")),
            " JOIN batches b ON b.uid = x.uid AND b.dlq_id = x.dlq_id
             JOIN replay_items i ON i.batch_id = b.id AND i.message_id = x.message_id
             JOIN messages m ON m.id = i.message_id WHERE i.intended_at_ms IS NOT NULL")
    };
}

macro_rules! sent_to_place {
    ($db:ident) => {
        concat!("SELECT x.new_id, i.batch_id, i.message_id, i.intended_at_ms, m.lap FROM ",
            listed!($db "$1" ("new_id" "BIGINT", "dlq_id" "BIGINT", "topic" "TEXT", "partition" "INTEGER", "place_offset" "BIGINT", "failed_at_ms" "BIGINT")),
            " JOIN replay_items i ON i.sent_offset = x.place_offset AND i.target_partition = x.partition
             JOIN batches b ON b.id = i.batch_id AND b.dlq_id = x.dlq_id
             JOIN messages m ON m.id = i.message_id
             WHERE x.topic IN (", of_plan!($db "target"), ", ", of_plan!($db "target_id"), ") AND x.failed_at_ms + $2 >= i.intended_at_ms
                AND i.intended_at_ms >= $3 AND (b.replaced_at_ms IS NULL OR x.failed_at_ms < b.replaced_at_ms)")
    };
}

macro_rules! item_outcomes {
    ($db:ident) => {
        concat!("SELECT i.batch_id, i.message_id, i.outcome, i.proof FROM ", listed!($db "$1" ("batch_id" "BIGINT", "message_id" "BIGINT")),
            " JOIN replay_items i ON i.batch_id = x.batch_id AND i.message_id = x.message_id")
    };
}

macro_rules! open_targets {
    ($db:ident $ids:literal) => {
        concat!("SELECT DISTINCT b.dlq_id, ", of_plan!($db "target"), " AS target, ", of_plan!($db "target_id"), " AS target_id FROM batches b
             WHERE b.started_at_ms IS NOT NULL AND b.verified_at_ms IS NULL AND b.dlq_id IN (", $ids, ")")
    };
}

macro_rules! targets_sent_to {
    ($db:ident) => {
        concat!("SELECT b.id, ", of_plan!($db "target"), ", ", of_plan!($db "target_id"), " FROM batches b JOIN dlqs d ON d.id = b.dlq_id
             WHERE d.cluster = $1 AND b.started_at_ms >= $2 AND b.replaced_at_ms IS NULL AND ", of_plan!($db "target_id"), " IS NOT NULL ORDER BY b.id")
    };
}

macro_rules! link_returns {
    ($db:ident) => {
        update_messages!($db "replay_of = x.replay_of, lap = CASE WHEN m.lap < x.lap THEN x.lap ELSE m.lap END"
            ("id" "BIGINT", "replay_of" "BIGINT", "lap" "INTEGER") "m.replay_of IS NULL")
    };
}

macro_rules! note_returns {
    ($db:ident) => {
        concat!("UPDATE replay_items AS i SET returned_as = x.returned_as FROM ",
            listed!($db "$1" ("batch_id" "BIGINT", "message_id" "BIGINT", "returned_as" "BIGINT")),
            " WHERE i.batch_id = x.batch_id AND i.message_id = x.message_id AND i.returned_as IS NULL")
    };
}

macro_rules! add_traces {
    ($db:ident) => {
        insert_rows!($db "return_traces (dlq_id, topic, partition, \"offset\", message_id, at_ms)"
            ("dlq_id" "BIGINT", "topic" "TEXT", "partition" "INTEGER", "place_offset" "BIGINT", "message_id" "BIGINT", "at_ms" "BIGINT")
            "WHERE true ON CONFLICT DO NOTHING")
    };
}

macro_rules! resolve_items {
    ($db:ident) => {
        concat!("UPDATE replay_items AS i SET outcome = x.outcome, proof = x.proof, returned_as = COALESCE(i.returned_as, x.returned_as), resolved_at_ms = $2 FROM ",
            listed!($db "$1" ("batch_id" "BIGINT", "message_id" "BIGINT", "outcome" "TEXT", "proof" "TEXT", "returned_as" "BIGINT")),
            " WHERE i.batch_id = x.batch_id AND i.message_id = x.message_id")
    };
}

macro_rules! save_looks {
    ($db:ident) => {
        insert_rows!($db "group_looks (cluster, consumer_group, topic, partition, at_ms, committed, passed_from, members)"
            ("cluster" "TEXT", "consumer_group" "TEXT", "topic" "TEXT", "partition" "INTEGER", "at_ms" "BIGINT", "committed" "BIGINT", "passed_from" "BIGINT",
             "members" "TEXT")
            "WHERE true ON CONFLICT (cluster, consumer_group, topic, partition) DO UPDATE SET at_ms = excluded.at_ms, committed = excluded.committed,
             passed_from = excluded.passed_from, members = excluded.members WHERE group_looks.at_ms <= excluded.at_ms")
    };
}

macro_rules! passed_items {
    ($db:ident) => {
        concat!("SELECT i.message_id FROM ", listed!($db "$2" ("partition" "INTEGER", "from_offset" "BIGINT", "to_offset" "BIGINT")),
            " JOIN replay_items i ON i.batch_id = $1 AND i.target_partition = x.partition AND i.sent_offset >= x.from_offset AND i.sent_offset < x.to_offset
             WHERE i.outcome = 'pending' AND i.passed_at_ms IS NULL LIMIT $3")
    };
}

macro_rules! mark_passed {
    ($ids:literal) => {
        concat!(
            "UPDATE replay_items SET passed_at_ms = $3 WHERE batch_id + 0 = $1 AND message_id IN (",
            $ids,
            ") AND outcome = 'pending' AND passed_at_ms IS NULL"
        )
    };
}

macro_rules! add_verdicts {
    ($db:ident) => {
        insert_rows!($db "verdicts (message_id, batch_id, at_ms, phase, schema, idempotency, decision, schema_note, asked, answered, others)"
            ("message_id" "BIGINT", "batch_id" "BIGINT", "at_ms" "BIGINT", "phase" "TEXT", "schema" "TEXT", "idempotency" "TEXT", "decision" "TEXT",
             "schema_note" "TEXT", "asked" "TEXT", "answered" "TEXT", "others" "TEXT")
            "")
    };
}

macro_rules! add_alerts {
    ($db:ident) => {
        insert_rows!($db "alerts (rule_id, rule_version, changed_at_ms, version, cluster, topic, phase, life)"
            ("rule_id" "BIGINT", "rule_version" "BIGINT", "changed_at_ms" "BIGINT", "version" "BIGINT", "cluster" "TEXT", "topic" "TEXT", "phase" "TEXT", "life" "TEXT")
            "WHERE true ON CONFLICT (rule_id, cluster, topic) DO NOTHING RETURNING id, rule_id, cluster, topic")
    };
}

macro_rules! change_alerts {
    ($db:ident) => {
        concat!("UPDATE alerts AS a SET rule_version = x.new_rule_version, changed_at_ms = x.at_ms, version = a.version + 1, phase = x.new_phase, life = x.new_life FROM ",
            listed!($db "$1" ("alert_id" "BIGINT", "seen_version" "BIGINT", "new_rule_version" "BIGINT", "at_ms" "BIGINT", "new_phase" "TEXT", "new_life" "TEXT")),
            " WHERE a.id = x.alert_id AND a.version = x.seen_version RETURNING id")
    };
}

macro_rules! add_news {
    ($db:ident) => {
        insert_rows!($db "alert_news (alert_id, number, at_ms, severity, news)"
            ("alert_id" "BIGINT", "number" "BIGINT", "at_ms" "BIGINT", "severity" "TEXT", "news" "TEXT")
            "WHERE true ON CONFLICT (alert_id, number) DO NOTHING")
    };
}

macro_rules! save_baselines {
    ($db:ident) => {
        insert_rows!($db "baselines (dlq_id, changed_at_ms, version, history, watch, usual)"
            ("dlq_id" "BIGINT", "changed_at_ms" "BIGINT", "version" "BIGINT", "history" "TEXT", "watch" "TEXT", "usual" "TEXT")
            "WHERE true ON CONFLICT (dlq_id) DO UPDATE SET changed_at_ms = excluded.changed_at_ms, version = excluded.version, history = excluded.history,
             watch = excluded.watch, usual = excluded.usual WHERE baselines.version = excluded.version - 1 RETURNING dlq_id")
    };
}

macro_rules! save_watches {
    ($db:ident) => {
        concat!("UPDATE baselines AS b SET watch = x.new_watch, changed_at_ms = x.at_ms, version = b.version + 1 FROM ",
            listed!($db "$1" ("of_dlq" "BIGINT", "seen_version" "BIGINT", "at_ms" "BIGINT", "new_watch" "TEXT")),
            " WHERE b.dlq_id = x.of_dlq AND b.version = x.seen_version RETURNING dlq_id")
    };
}

macro_rules! add_anomalies {
    ($db:ident) => {
        insert_rows!($db "anomalies (dlq_id, from_ms, to_ms)" ("dlq_id" "BIGINT", "from_ms" "BIGINT", "to_ms" "BIGINT")
            "WHERE true ON CONFLICT (dlq_id, from_ms) DO NOTHING")
    };
}

macro_rules! some_alerts {
    ($ids:literal) => {
        concat!("SELECT id, rule_id, rule_version, changed_at_ms, version, cluster, topic, life FROM alerts WHERE id IN (", $ids, ")")
    };
}

macro_rules! some_baselines {
    ($ids:literal) => {
        concat!("SELECT dlq_id, version, history, watch FROM baselines WHERE dlq_id IN (", $ids, ")")
    };
}

dialects! {
    VERSION: "SHOW server_version", "SELECT sqlite_version()";
    LOCK_POSITIONS:
        concat!("SELECT p.dlq_id, p.incarnation, p.partition, p.next_offset, p.owner_epoch FROM positions p JOIN ", partitions!(postgres),
            " USING (dlq_id, incarnation, partition) ORDER BY p.dlq_id, p.incarnation, p.partition FOR UPDATE OF p"),
        concat!("SELECT p.dlq_id, p.incarnation, p.partition, p.next_offset, p.owner_epoch FROM positions p JOIN ", partitions!(sqlite),
            " USING (dlq_id, incarnation, partition) ORDER BY p.dlq_id, p.incarnation, p.partition");
    MOVE_POSITIONS:
        concat!("UPDATE positions AS p SET next_offset = b.next_offset, updated_at_ms = $2 FROM ", partitions!(postgres),
            " WHERE p.dlq_id = b.dlq_id AND p.incarnation = b.incarnation AND p.partition = b.partition"),
        concat!("UPDATE positions AS p SET next_offset = b.next_offset, updated_at_ms = $2 FROM ", partitions!(sqlite),
            " WHERE p.dlq_id = b.dlq_id AND p.incarnation = b.incarnation AND p.partition = b.partition");
    NEWEST_OFFSETS:
        concat!("SELECT b.dlq_id AS dlq_id, b.incarnation AS incarnation, b.partition AS partition, (SELECT m.record_offset FROM messages m WHERE m.dlq_id = b.dlq_id AND m.incarnation = b.incarnation
            AND m.partition = b.partition ORDER BY m.record_offset DESC LIMIT 1) AS record_offset FROM ", partitions!(postgres)),
        concat!("SELECT b.dlq_id AS dlq_id, b.incarnation AS incarnation, b.partition AS partition, (SELECT m.record_offset FROM messages m WHERE m.dlq_id = b.dlq_id AND m.incarnation = b.incarnation
            AND m.partition = b.partition ORDER BY m.record_offset DESC LIMIT 1) AS record_offset FROM ", partitions!(sqlite));
    MESSAGE_IDS:
        "SELECT nextval('message_ids') FROM generate_series(1, $1)",
        // The sequence of AUTOINCREMENT, which never goes back. The writer's transaction holds it until the rows are in.
        "WITH RECURSIVE n(id) AS (SELECT COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'messages'), 0) + 1 UNION ALL SELECT id + 1 FROM n LIMIT $1) SELECT id FROM n";
    ADD_DELTAS: add_deltas!(postgres), add_deltas!(sqlite);
    PICK_DELTAS:
        "SELECT id FROM counter_deltas ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED",
        "SELECT id FROM counter_deltas ORDER BY id LIMIT $1";
    FOLD_DELTAS: fold!("SELECT value::BIGINT FROM json_array_elements_text($1::json)"), fold!("SELECT value FROM json_each($1)");
    DROP_DELTAS:
        "DELETE FROM counter_deltas WHERE id IN (SELECT value::BIGINT FROM json_array_elements_text($1::json))",
        "DELETE FROM counter_deltas WHERE id IN (SELECT value FROM json_each($1))";
    GROUP_OUTCOMES:
        group_outcomes!("(SELECT value::BIGINT FROM json_array_elements_text($6::json))"), group_outcomes!("(SELECT value FROM json_each($6))");
    LOCK_MESSAGES:
        "SELECT m.id, m.dlq_id, m.group_id, m.state, m.outcome, m.follow_up FROM json_array_elements_text($1::json) AS ids
         JOIN messages m ON m.id = ids.value::BIGINT ORDER BY m.id FOR UPDATE OF m",
        "SELECT m.id, m.dlq_id, m.group_id, m.state, m.outcome, m.follow_up FROM json_each($1) AS ids CROSS JOIN messages m ON m.id = ids.value ORDER BY m.id";
    LIVE_ITEMS:
        "SELECT i.message_id, i.batch_id FROM json_array_elements_text($1::json) AS ids JOIN replay_items i ON i.message_id = ids.value::BIGINT AND i.live",
        "SELECT i.message_id, i.batch_id FROM json_each($1) AS ids CROSS JOIN replay_items i ON i.message_id = ids.value AND i.live";
    CLOSE_FOLLOW_UPS:
        "UPDATE messages SET follow_up = 'closed' WHERE id IN (SELECT value::BIGINT FROM json_array_elements_text($1::json)) AND follow_up = 'open'",
        "UPDATE messages SET follow_up = 'closed' WHERE id IN (SELECT value FROM json_each($1)) AND follow_up = 'open'";
    MOVE_MESSAGES: move_messages!(postgres), move_messages!(sqlite);
    ADD_TRANSITIONS: add_transitions!(postgres), add_transitions!(sqlite);
    SET_OUTCOMES: set_outcomes!(postgres), set_outcomes!(sqlite);
    FIND_GROUPS:
        "SELECT fingerprint, id FROM groups WHERE dlq_id = $1 AND fingerprint IN (SELECT value FROM json_array_elements_text($2::json))",
        "SELECT fingerprint, id FROM groups WHERE dlq_id = $1 AND fingerprint IN (SELECT value FROM json_each($2))";
    ADD_GROUPS: add_groups!(postgres), add_groups!(sqlite);
    LEASE_HOLDS:
        "SELECT epoch FROM leases WHERE name = $1 AND epoch = $2 FOR SHARE",
        "SELECT epoch FROM leases WHERE name = $1 AND epoch = $2";
    SAVE_SAMPLES: save_samples!(postgres), save_samples!(sqlite);
    SAVE_PARTITION_SAMPLES: save_partition_samples!(postgres), save_partition_samples!(sqlite);
    ADD_VERDICTS: add_verdicts!(postgres), add_verdicts!(sqlite);
    IN_LIST:
        "(SELECT value::BIGINT FROM json_array_elements_text({}::json))",
        "(SELECT value FROM json_each({}))";
    DLQ_STATES:
        "json_to_recordset({}::json) AS s(dlq_id BIGINT, state TEXT)",
        "(SELECT value ->> 'dlq_id' AS dlq_id, value ->> 'state' AS state FROM json_each({})) AS s";
    SOME_ARRIVALS:
        some_arrivals!("SELECT value::BIGINT FROM json_array_elements_text($1::json)"), some_arrivals!("SELECT value FROM json_each($1)");
    NEWEST_OPEN_KEYS: newest_open_keys!(postgres ""), newest_open_keys!(sqlite "");
    EXPLAIN_NEWEST_OPEN_KEYS: newest_open_keys!(postgres "EXPLAIN "), newest_open_keys!(sqlite "EXPLAIN QUERY PLAN ");
    PIN: "m.{column} >= {value} AND (m.{column}, m.id) < ({value}, {after})", "m.{column} = {value} AND m.id < {after}";
    MESSAGES_BY: "messages m", "messages m INDEXED BY {index}";
    EXPLAIN: "EXPLAIN", "EXPLAIN QUERY PLAN";
    EXPLAIN_COLUMN: "QUERY PLAN", "detail";
    HEADERS_OF:
        "SELECT b.message_id, b.headers FROM json_array_elements_text($1::json) AS ids JOIN bodies b ON b.message_id = ids.value::BIGINT WHERE length(b.headers) <= $2",
        "SELECT b.message_id, b.headers FROM json_each($1) AS ids JOIN bodies b ON b.message_id = ids.value WHERE length(b.headers) <= $2";
    LOCK_WANTED:
        "SELECT id, state, origin_topic, key_hash, CASE WHEN key_hash IS NULL THEN record_key END AS masked_key FROM messages
         WHERE id IN (SELECT value::BIGINT FROM json_array_elements_text($1::json)) AND dlq_id + 0 = $2 AND state IN ('quarantined', 'under_review') ORDER BY id FOR UPDATE",
        "SELECT id, state, origin_topic, key_hash, CASE WHEN key_hash IS NULL THEN record_key END AS masked_key FROM messages
         WHERE id IN (SELECT value FROM json_each($1)) AND dlq_id + 0 = $2 AND state IN ('quarantined', 'under_review') ORDER BY id";
    ADD_ITEMS: add_items!(postgres), add_items!(sqlite);
    IN_OTHER_BATCHES:
        "SELECT batch_id, COUNT(*) FROM replay_items WHERE live AND batch_id <> $1
         AND message_id IN (SELECT message_id FROM json_to_recordset($2::json) AS i(message_id BIGINT)) GROUP BY batch_id ORDER BY batch_id",
        "SELECT batch_id, COUNT(*) FROM replay_items WHERE live AND batch_id <> $1
         AND message_id IN (SELECT value ->> 'message_id' FROM json_each($2)) GROUP BY batch_id ORDER BY batch_id";
    WAITING_AMONG:
        waiting_among!("SELECT value::BIGINT FROM json_array_elements_text($1::json)"), waiting_among!("SELECT value FROM json_each($1)");
    TO_CHECK:
        to_check!("SELECT value::BIGINT FROM json_array_elements_text($1::json)"), to_check!("SELECT value FROM json_each($1)");
    SET_FORECASTS:
        "UPDATE replay_items SET forecast = f.forecast, note = f.note, event_hash = f.event_hash, blocked_by = NULL, stage = $3
         FROM json_to_recordset($2::json) AS f(message_id BIGINT, event_hash BIGINT, forecast TEXT, note TEXT)
         WHERE replay_items.batch_id + 0 = $1 AND replay_items.message_id = f.message_id AND replay_items.state = 'pending'",
        "UPDATE replay_items SET forecast = f.forecast, note = f.note, event_hash = f.event_hash, blocked_by = NULL, stage = $3
         FROM (SELECT value ->> 'message_id' AS message_id, value ->> 'event_hash' AS event_hash, value ->> 'forecast' AS forecast, value ->> 'note' AS note FROM json_each($2)) AS f
         WHERE replay_items.batch_id + 0 = $1 AND replay_items.message_id = f.message_id AND replay_items.state = 'pending'";
    SET_COPIES: set_copies!(postgres), set_copies!(sqlite);
    SET_STAGES:
        "UPDATE replay_items SET stage = s.stage FROM json_to_recordset($2::json) AS s(message_id BIGINT, stage INTEGER)
         WHERE replay_items.batch_id + 0 = $1 AND replay_items.message_id = s.message_id AND replay_items.state = 'pending'",
        "UPDATE replay_items SET stage = s.stage FROM (SELECT value ->> 'message_id' AS message_id, value ->> 'stage' AS stage FROM json_each($2)) AS s
         WHERE replay_items.batch_id + 0 = $1 AND replay_items.message_id = s.message_id AND replay_items.state = 'pending'";
    RELEASE_ITEMS:
        release_items!("SELECT value::BIGINT FROM json_array_elements_text($2::json)"), release_items!("SELECT value FROM json_each($2)");
    MOVE_ITEMS:
        move_items!("json_to_recordset($2::json) AS b(message_id BIGINT, from_state TEXT, to_state TEXT, live BOOLEAN, note TEXT, blocked_by BIGINT, unchecked BOOLEAN,
            target_partition INTEGER, lower_bound BIGINT, intended_at_ms BIGINT, epoch BIGINT, sent_offset BIGINT, sent_at_ms BIGINT, outcome TEXT)" "i.batch_id + 0 = $1"),
        move_items!("(SELECT value ->> 'message_id' AS message_id, value ->> 'from_state' AS from_state, value ->> 'to_state' AS to_state, value ->> 'live' AS live,
            value ->> 'note' AS note, value ->> 'blocked_by' AS blocked_by, value ->> 'unchecked' AS unchecked, value ->> 'target_partition' AS target_partition,
            value ->> 'lower_bound' AS lower_bound, value ->> 'intended_at_ms' AS intended_at_ms, value ->> 'epoch' AS epoch, value ->> 'sent_offset' AS sent_offset,
            value ->> 'sent_at_ms' AS sent_at_ms, value ->> 'outcome' AS outcome FROM json_each($2)) AS b" "i.batch_id + 0 = $1");
    // LATERAL with LIMIT, and CROSS JOIN: the list first, and each item by its key.
    ITEMS_TO_SEND:
        items_to_send!("json_array_elements_text($2::json) AS ids CROSS JOIN LATERAL (
            SELECT * FROM replay_items WHERE batch_id = $1 AND message_id = ids.value::BIGINT AND state = 'pending' LIMIT 1) i"),
        items_to_send!("json_each($2) AS ids CROSS JOIN replay_items i ON i.batch_id = $1 AND i.message_id = ids.value AND i.state = 'pending'");
    SIZES_OF:
        "SELECT id, size FROM messages WHERE id IN (SELECT value::BIGINT FROM json_array_elements_text($1::json))",
        "SELECT id, size FROM messages WHERE id IN (SELECT value FROM json_each($1))";
    REPLAY_WORK: replay_work!("replay_items"), replay_work!("replay_items INDEXED BY replay_items_intended");
    PLACES_OF_ITEMS:
        "SELECT i.message_id, i.place FROM json_array_elements_text($2::json) AS ids CROSS JOIN LATERAL (
            SELECT message_id, place FROM replay_items WHERE batch_id = $1 AND message_id = ids.value::BIGINT LIMIT 1) i",
        "SELECT message_id, place FROM replay_items WHERE batch_id + 0 = $1 AND message_id IN (SELECT value FROM json_each($2))";
    ARRIVALS_OF_GROUPS:
        "SELECT CAST(COALESCE(SUM(n.recent), 0) AS BIGINT) FROM json_array_elements_text($1::json) AS ids CROSS JOIN LATERAL (
            SELECT COUNT(*) AS recent FROM (SELECT m.dead_lettered_at_ms FROM messages m WHERE m.group_id = ids.value::BIGINT ORDER BY m.id DESC LIMIT $3) newest
            WHERE newest.dead_lettered_at_ms >= $2) n",
        "SELECT COALESCE(SUM((SELECT COUNT(*) FROM (SELECT m.dead_lettered_at_ms FROM messages m WHERE m.group_id = ids.value ORDER BY m.id DESC LIMIT $3) newest
            WHERE newest.dead_lettered_at_ms >= $2)), 0) FROM json_each($1) AS ids";
    REPLAYING_DLQS:
        replaying_dlqs!("SELECT value::BIGINT FROM json_array_elements_text($1::json)"), replaying_dlqs!("SELECT value FROM json_each($1)");
    SENT_BY_ID: sent_by_id!(postgres), sent_by_id!(sqlite);
    SENT_TO_PLACE: sent_to_place!(postgres), sent_to_place!(sqlite);
    ITEM_OUTCOMES: item_outcomes!(postgres), item_outcomes!(sqlite);
    OPEN_TARGETS:
        open_targets!(postgres "SELECT value::BIGINT FROM json_array_elements_text($1::json)"), open_targets!(sqlite "SELECT value FROM json_each($1)");
    LINK_RETURNS: link_returns!(postgres), link_returns!(sqlite);
    NOTE_RETURNS: note_returns!(postgres), note_returns!(sqlite);
    ADD_TRACES: add_traces!(postgres), add_traces!(sqlite);
    RESOLVE_ITEMS: resolve_items!(postgres), resolve_items!(sqlite);
    PLACES_OF:
        "SELECT DISTINCT dlq_id, group_id FROM messages WHERE id IN (SELECT value::BIGINT FROM json_array_elements_text($1::json))",
        "SELECT DISTINCT dlq_id, group_id FROM messages WHERE id IN (SELECT value FROM json_each($1))";
    TARGETS_SENT_TO: targets_sent_to!(postgres), targets_sent_to!(sqlite);
    SAVE_LOOKS: save_looks!(postgres), save_looks!(sqlite);
    PASSED_ITEMS: passed_items!(postgres), passed_items!(sqlite);
    MARK_PASSED:
        mark_passed!("SELECT value::BIGINT FROM json_array_elements_text($2::json)"), mark_passed!("SELECT value FROM json_each($2)");
    FOR_EACH:
        "SELECT c.id FROM {outer} CROSS JOIN LATERAL ({inner}) c",
        "SELECT c.value AS id FROM {outer} CROSS JOIN json_each((SELECT json_group_array(i.id) FROM ({inner}) i)) c";
    ADD_ALERTS: add_alerts!(postgres), add_alerts!(sqlite);
    CHANGE_ALERTS: change_alerts!(postgres), change_alerts!(sqlite);
    ADD_NEWS: add_news!(postgres), add_news!(sqlite);
    SAVE_BASELINES: save_baselines!(postgres), save_baselines!(sqlite);
    SAVE_WATCHES: save_watches!(postgres), save_watches!(sqlite);
    ADD_ANOMALIES: add_anomalies!(postgres), add_anomalies!(sqlite);
    SOME_ALERTS: some_alerts!("SELECT value::BIGINT FROM json_array_elements_text($1::json)"), some_alerts!("SELECT value FROM json_each($1)");
    SOME_BASELINES: some_baselines!("SELECT value::BIGINT FROM json_array_elements_text($1::json)"), some_baselines!("SELECT value FROM json_each($1)");
}
