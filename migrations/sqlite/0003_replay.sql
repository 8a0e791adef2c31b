-- Checks, approval, replay and proof.

-- Each step of a message, written in the transaction of the step. Being taken in is no step: the record is the fact.
CREATE TABLE transitions (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id INTEGER NOT NULL,
    dlq_id     INTEGER NOT NULL,
    at_ms      INTEGER NOT NULL,
    batch_id   INTEGER,
    -- The review that moved it, where a person did.
    review_id  INTEGER,
    from_state TEXT NOT NULL,
    to_state   TEXT NOT NULL,
    move       TEXT NOT NULL,
    actor      TEXT NOT NULL,
    reason     TEXT,
    evidence   TEXT
) STRICT;
CREATE INDEX transitions_message ON transitions (message_id, id);
-- What a review did, for the way back.
CREATE INDEX transitions_review ON transitions (review_id, message_id) WHERE review_id IS NOT NULL;

-- What a person does to messages by hand. Of many at once: as of a maximum id, in chunks, going on after a restart.
CREATE TABLE reviews (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    created_at_ms    INTEGER NOT NULL,
    -- Raised by each chunk; guards against two that do the same.
    version          INTEGER NOT NULL,
    -- Where it concerns one DLQ.
    dlq_id           INTEGER,
    -- Messages above this id were not there.
    as_of_message_id INTEGER NOT NULL,
    -- Messages from this id on are through, downwards.
    cursor           INTEGER NOT NULL,
    ran_from_ms      INTEGER,
    progress_at_ms   INTEGER NOT NULL,
    ended_at_ms      INTEGER,
    -- Messages: that match (null: not counted yet), that were looked at, and what became of those.
    total            INTEGER,
    seen             INTEGER NOT NULL DEFAULT 0,
    changed          INTEGER NOT NULL DEFAULT 0,
    in_replay        INTEGER NOT NULL DEFAULT 0,
    not_theirs       INTEGER NOT NULL DEFAULT 0,
    -- While it is counted: how many so far.
    counted          INTEGER NOT NULL DEFAULT 0,
    form_id          TEXT NOT NULL UNIQUE, -- made with the form: the same form sent twice is one review
    action           TEXT NOT NULL,
    state            TEXT NOT NULL,
    actor            TEXT NOT NULL,
    owners           TEXT NOT NULL, -- whose DLQs the actor acts on
    scope            TEXT NOT NULL, -- JSON, store::review::Scope
    reason           TEXT,
    replays          TEXT           -- JSON list of replays that have some of the messages
) STRICT;
CREATE INDEX reviews_live ON reviews (id) WHERE ended_at_ms IS NULL;
CREATE INDEX reviews_dlq ON reviews (dlq_id, id) WHERE dlq_id IS NOT NULL;

-- Lists of follow-ups.
CREATE INDEX messages_follow_up ON messages (dlq_id, follow_up) WHERE follow_up IS NOT NULL;

-- The message that this one came back from.
ALTER TABLE messages ADD COLUMN replay_of INTEGER;

CREATE TABLE batches (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    dlq_id           INTEGER NOT NULL REFERENCES dlqs,
    created_at_ms    INTEGER NOT NULL,
    -- Raised by each change; guards against two who decide at once.
    version          INTEGER NOT NULL,
    -- Messages above this id were not there when it was frozen.
    as_of_message_id INTEGER NOT NULL,
    -- How far freezing has come, downwards; null: done.
    freeze_after     INTEGER,
    submitted_at_ms  INTEGER,
    approved_at_ms   INTEGER,
    started_at_ms    INTEGER,
    ended_at_ms      INTEGER,
    verified_at_ms   INTEGER,
    -- When the target was seen to be another topic under the same name: from then on its places are not those that were sent to.
    replaced_at_ms   INTEGER,
    -- When it came into its state.
    state_since_ms   INTEGER NOT NULL,
    -- How far the step has come: the last message id, or a count.
    step_after       INTEGER NOT NULL,
    -- The steps of canary and ramp: items of stages up to this one may go.
    stage            INTEGER NOT NULL,
    stage_since_ms   INTEGER,
    quorum           INTEGER NOT NULL,
    emergency        INTEGER NOT NULL,
    -- Submitted by itself once the preflight is through and nothing is missing.
    auto_submit      INTEGER NOT NULL,
    -- Goes on although the canary is not proven: an approver said so.
    unproven_allowed INTEGER NOT NULL,
    uid              TEXT NOT NULL UNIQUE, -- begins each replay id; random
    form_id          TEXT NOT NULL UNIQUE, -- made with the form: the same form sent twice is one batch
    state            TEXT NOT NULL,
    proposer         TEXT NOT NULL,
    proposer_folded  TEXT NOT NULL,
    reason           TEXT NOT NULL,
    why_now          TEXT,
    incident         TEXT,
    -- Why it is where it is: halted, paused, rejected, waiting.
    note             TEXT,
    -- What is being prepared, domain::replay::Step.
    step             TEXT NOT NULL,
    -- The pace that was agreed to, where it was lowered after; null: that of the plan.
    agreed_per_second INTEGER,
    scope            TEXT NOT NULL, -- JSON: the filter or the ids that were asked for
    plan             TEXT NOT NULL, -- JSON, domain::replay::Plan
    forecast         TEXT,          -- JSON, domain::replay::Forecast
    warnings         TEXT,          -- JSON list of domain::replay::Warning
    digest           TEXT,
    agreement        TEXT,          -- JSON, domain::digest::Agreement: what the digest is made of
    tally            TEXT NOT NULL, -- JSON, domain::replay::Tally: what freeze and preflight counted beside the forecast
    -- Progress, changed in the transactions that change items.
    items            INTEGER NOT NULL DEFAULT 0,
    checked          INTEGER NOT NULL DEFAULT 0,
    sent             INTEGER NOT NULL DEFAULT 0,
    sent_unchecked   INTEGER NOT NULL DEFAULT 0,
    already_applied  INTEGER NOT NULL DEFAULT 0,
    archived         INTEGER NOT NULL DEFAULT 0,
    held             INTEGER NOT NULL DEFAULT 0,
    blocked          INTEGER NOT NULL DEFAULT 0,
    not_sent         INTEGER NOT NULL DEFAULT 0,
    confirmed_ledger INTEGER NOT NULL DEFAULT 0,
    confirmed_offset INTEGER NOT NULL DEFAULT 0,
    returned         INTEGER NOT NULL DEFAULT 0,
    unproven         INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX batches_dlq ON batches (dlq_id, id);
CREATE INDEX batches_state ON batches (state, id);
-- Whether a DLQ has any of which something may come back, and any of which something is still open.
CREATE INDEX batches_started ON batches (dlq_id, verified_at_ms) WHERE started_at_ms IS NOT NULL;
-- What there is to prepare, or to give back.
CREATE INDEX batches_step ON batches (id) WHERE step NOT IN ('ready', 'released');
CREATE INDEX batches_emergency ON batches (dlq_id, approved_at_ms) WHERE emergency;

CREATE TABLE replay_items (
    batch_id         INTEGER NOT NULL,
    message_id       INTEGER NOT NULL,
    -- Order of the origin: its offset, or the message's id where that is not known.
    place            INTEGER NOT NULL,
    -- The first 8 bytes of the SHA-256 of the record key; null: no key, or order does not matter.
    key_hash         INTEGER,
    group_id         INTEGER NOT NULL,
    lower_bound      INTEGER,
    intended_at_ms   INTEGER,
    sent_offset      INTEGER,
    sent_at_ms       INTEGER,
    -- When the target's group was seen past it.
    passed_at_ms     INTEGER,
    resolved_at_ms   INTEGER,
    blocked_by       INTEGER,
    -- The message as which it came back.
    returned_as      INTEGER,
    -- Of the lease under which it was intended.
    epoch            INTEGER,
    -- -1: not known yet.
    stage            INTEGER NOT NULL,
    lap              INTEGER NOT NULL,
    origin_partition INTEGER,
    target_partition INTEGER,
    -- The batch is live and the item has not ended: no other batch may take its message.
    live             INTEGER NOT NULL,
    unchecked        INTEGER NOT NULL DEFAULT 0,
    -- The batch took the message up: it gives it back to where it was.
    taken_up         INTEGER NOT NULL DEFAULT 0,
    state            TEXT NOT NULL,
    outcome          TEXT,
    proof            TEXT,
    -- What the preflight said, a word of domain::verdict::Decision, or blocked.
    forecast         TEXT,
    note             TEXT,
    body_hash        BLOB NOT NULL,
    PRIMARY KEY (batch_id, message_id)
) STRICT;
CREATE UNIQUE INDEX replay_items_live ON replay_items (message_id) WHERE live;
-- What goes next, in the order of the origin.
CREATE INDEX replay_items_next ON replay_items (batch_id, state, stage, place, message_id);
-- Items of one key, to see what blocks what.
CREATE INDEX replay_items_key ON replay_items (batch_id, key_hash, place, message_id) WHERE key_hash IS NOT NULL;
-- Items that the preflight expects to block later ones of their key.
CREATE INDEX replay_items_blockers ON replay_items (batch_id, key_hash, place, message_id)
    WHERE key_hash IS NOT NULL AND forecast IN ('held', 'incompatible', 'unsafe');
-- What was sent there, for a dead letter that came from there.
CREATE INDEX replay_items_sent ON replay_items (sent_offset, target_partition) WHERE sent_offset IS NOT NULL;
-- What still waits for its outcome.
CREATE INDEX replay_items_pending ON replay_items (batch_id, target_partition, sent_offset) WHERE outcome = 'pending';
-- Which batches had messages of a failure group.
CREATE INDEX replay_items_group ON replay_items (group_id, batch_id);
-- Passed by their group, and waiting whether they come back.
CREATE INDEX replay_items_passed ON replay_items (batch_id, passed_at_ms) WHERE outcome = 'pending' AND passed_at_ms IS NOT NULL;
-- Came back before it was stored that they were sent.
CREATE INDEX replay_items_came_back ON replay_items (batch_id) WHERE outcome = 'pending' AND returned_as IS NOT NULL;
-- What may have been sent: intended, and no outcome yet.
CREATE INDEX replay_items_intended ON replay_items (batch_id, message_id) WHERE state = 'intended';
CREATE INDEX replay_items_message ON replay_items (message_id, batch_id);
-- For pages: what the preflight did not simply pass, and what was sent and is not well.
CREATE INDEX replay_items_odd ON replay_items (batch_id, forecast, message_id) WHERE forecast <> 'send';
CREATE INDEX replay_items_unwell ON replay_items (batch_id, outcome, message_id) WHERE outcome IN ('returned', 'unproven');

CREATE TABLE approvals (
    batch_id      INTEGER NOT NULL REFERENCES batches,
    at_ms         INTEGER NOT NULL,
    name          TEXT NOT NULL,
    name_folded   TEXT NOT NULL,
    digest        TEXT NOT NULL,
    comment       TEXT,
    PRIMARY KEY (batch_id, name_folded)
) STRICT;

-- The look of a second person at an emergency replay.
CREATE TABLE emergency_reviews (
    batch_id    INTEGER PRIMARY KEY REFERENCES batches,
    at_ms       INTEGER NOT NULL,
    name        TEXT NOT NULL,
    name_folded TEXT NOT NULL,
    comment     TEXT NOT NULL
) STRICT;

-- What happened to a batch, for its log.
CREATE TABLE batch_log (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    batch_id INTEGER NOT NULL,
    at_ms    INTEGER NOT NULL,
    actor    TEXT NOT NULL,
    entry    TEXT NOT NULL
) STRICT;
CREATE INDEX batch_log_batch ON batch_log (batch_id, id);

-- Evidence: what was asked, what was answered, when. One row for both checks of a message.
CREATE TABLE verdicts (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id  INTEGER NOT NULL,
    batch_id    INTEGER NOT NULL,
    at_ms       INTEGER NOT NULL,
    phase       TEXT NOT NULL, -- preflight | sending | in_doubt
    schema      TEXT NOT NULL,
    idempotency TEXT NOT NULL,
    decision    TEXT NOT NULL,
    schema_note TEXT,
    asked       TEXT,
    answered    TEXT,
    others      TEXT -- JSON list of [group, verdict]
) STRICT;
CREATE INDEX verdicts_message ON verdicts (message_id, id);

-- How far a consumer group had come when it was last looked at, by partition; kept while something sent there waits for its outcome.
CREATE TABLE group_looks (
    cluster        TEXT NOT NULL,
    consumer_group TEXT NOT NULL,
    topic          TEXT NOT NULL,
    partition      INTEGER NOT NULL,
    at_ms          INTEGER NOT NULL,
    committed      INTEGER,
    -- The lowest commit of a row of looks, up to this one, each of which shares a member with the one before: what lies from here up to `committed` was passed
    -- while somebody was there. Null: there was no commit yet.
    passed_from    INTEGER,
    members        TEXT NOT NULL, -- JSON list of member ids
    PRIMARY KEY (cluster, consumer_group, topic, partition)
) STRICT;

-- Where records taken in came from, while something that was sent there may still come back.
CREATE TABLE return_traces (
    dlq_id     INTEGER NOT NULL,
    topic      TEXT NOT NULL,
    partition  INTEGER NOT NULL,
    "offset"   INTEGER NOT NULL,
    message_id INTEGER NOT NULL,
    at_ms      INTEGER NOT NULL,
    PRIMARY KEY (dlq_id, topic, partition, "offset", message_id)
) STRICT;

-- What SQLite is to think of the items before there are any: without this it takes a batch for a handful of rows, and walks all of it for each of the
-- messages that a statement names. It keeps no statistics by itself.
ANALYZE sqlite_schema;
INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES
    ('replay_items', 'sqlite_autoindex_replay_items_1', '1000000 100000 1'),
    ('replay_items', 'replay_items_live', '1000000 1'),
    ('replay_items', 'replay_items_next', '1000000 100000 50000 20000 2 1'),
    ('replay_items', 'replay_items_key', '1000000 100000 4 2 1'),
    ('replay_items', 'replay_items_blockers', '10000 1000 2 1 1'),
    ('replay_items', 'replay_items_sent', '1000000 20 1'),
    ('replay_items', 'replay_items_pending', '100000 10000 1000 1'),
    ('replay_items', 'replay_items_group', '1000000 50000 5000'),
    ('replay_items', 'replay_items_passed', '10000 1000 10'),
    ('replay_items', 'replay_items_came_back', '100 10'),
    ('replay_items', 'replay_items_intended', '1000 500 1'),
    ('replay_items', 'replay_items_message', '1000000 2 1'),
    ('replay_items', 'replay_items_odd', '10000 1000 500 1'),
    ('replay_items', 'replay_items_unwell', '10000 1000 500 1');
ANALYZE sqlite_schema;
