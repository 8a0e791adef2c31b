-- Checks, approval, replay and proof.

-- Each step of a message, written in the transaction of the step. Being taken in is no step: the record is the fact.
CREATE TABLE transitions (
    id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    message_id BIGINT NOT NULL,
    dlq_id     BIGINT NOT NULL,
    at_ms      BIGINT NOT NULL,
    batch_id   BIGINT,
    -- The review that moved it, where a person did.
    review_id  BIGINT,
    from_state TEXT COLLATE "C" NOT NULL,
    to_state   TEXT COLLATE "C" NOT NULL,
    move       TEXT COLLATE "C" NOT NULL,
    actor      TEXT NOT NULL,
    reason     TEXT,
    evidence   TEXT
);
CREATE INDEX transitions_message ON transitions (message_id, id);
-- What a review did, for the way back.
CREATE INDEX transitions_review ON transitions (review_id, message_id) WHERE review_id IS NOT NULL;

-- What a person does to messages by hand. Of many at once: as of a maximum id, in chunks, going on after a restart.
CREATE TABLE reviews (
    id               BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    created_at_ms    BIGINT NOT NULL,
    -- Raised by each chunk; guards against two that do the same.
    version          BIGINT NOT NULL,
    -- Where it concerns one DLQ.
    dlq_id           BIGINT,
    -- Messages above this id were not there.
    as_of_message_id BIGINT NOT NULL,
    -- Messages from this id on are through, downwards.
    cursor           BIGINT NOT NULL,
    ran_from_ms      BIGINT,
    progress_at_ms   BIGINT NOT NULL,
    ended_at_ms      BIGINT,
    -- Messages: that match (null: not counted yet), that were looked at, and what became of those.
    total            BIGINT,
    seen             BIGINT NOT NULL DEFAULT 0,
    changed          BIGINT NOT NULL DEFAULT 0,
    in_replay        BIGINT NOT NULL DEFAULT 0,
    not_theirs       BIGINT NOT NULL DEFAULT 0,
    -- While it is counted: how many so far.
    counted          BIGINT NOT NULL DEFAULT 0,
    form_id          TEXT COLLATE "C" NOT NULL UNIQUE, -- made with the form: the same form sent twice is one review
    action           TEXT COLLATE "C" NOT NULL,
    state            TEXT COLLATE "C" NOT NULL,
    actor            TEXT NOT NULL,
    owners           TEXT NOT NULL, -- whose DLQs the actor acts on
    scope            TEXT NOT NULL, -- JSON, store::review::Scope
    reason           TEXT,
    replays          TEXT           -- JSON list of replays that have some of the messages
);
CREATE INDEX reviews_live ON reviews (id) WHERE ended_at_ms IS NULL;
CREATE INDEX reviews_dlq ON reviews (dlq_id, id) WHERE dlq_id IS NOT NULL;

-- Lists of follow-ups.
CREATE INDEX messages_follow_up ON messages (dlq_id, follow_up, id) WHERE follow_up IS NOT NULL;

-- The message that this one came back from.
ALTER TABLE messages ADD COLUMN replay_of BIGINT;

CREATE TABLE batches (
    id               BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    dlq_id           BIGINT NOT NULL REFERENCES dlqs,
    created_at_ms    BIGINT NOT NULL,
    -- Raised by each change; guards against two who decide at once.
    version          BIGINT NOT NULL,
    -- Messages above this id were not there when it was frozen.
    as_of_message_id BIGINT NOT NULL,
    -- How far freezing has come, downwards; null: done.
    freeze_after     BIGINT,
    submitted_at_ms  BIGINT,
    approved_at_ms   BIGINT,
    started_at_ms    BIGINT,
    ended_at_ms      BIGINT,
    verified_at_ms   BIGINT,
    -- When the target was seen to be another topic under the same name: from then on its places are not those that were sent to.
    replaced_at_ms   BIGINT,
    -- When it came into its state.
    state_since_ms   BIGINT NOT NULL,
    -- How far the step has come: the last message id, or a count.
    step_after       BIGINT NOT NULL,
    -- The steps of canary and ramp: items of stages up to this one may go.
    stage            INTEGER NOT NULL,
    stage_since_ms   BIGINT,
    quorum           INTEGER NOT NULL,
    emergency        BOOLEAN NOT NULL,
    -- Submitted by itself once the preflight is through and nothing is missing.
    auto_submit      BOOLEAN NOT NULL,
    -- Goes on although the canary is not proven: an approver said so.
    unproven_allowed BOOLEAN NOT NULL,
    uid              TEXT COLLATE "C" NOT NULL UNIQUE, -- begins each replay id; random
    form_id          TEXT COLLATE "C" NOT NULL UNIQUE, -- made with the form: the same form sent twice is one batch
    state            TEXT COLLATE "C" NOT NULL,
    proposer         TEXT NOT NULL,
    proposer_folded  TEXT COLLATE "C" NOT NULL,
    reason           TEXT NOT NULL,
    why_now          TEXT,
    incident         TEXT,
    -- Why it is where it is: halted, paused, rejected, waiting.
    note             TEXT,
    -- What is being prepared, domain::replay::Step.
    step             TEXT COLLATE "C" NOT NULL,
    -- The pace that was agreed to, where it was lowered after; null: that of the plan.
    agreed_per_second INTEGER,
    scope            TEXT NOT NULL, -- JSON: the filter or the ids that were asked for
    plan             TEXT NOT NULL, -- JSON, domain::replay::Plan
    forecast         TEXT,          -- JSON, domain::replay::Forecast
    warnings         TEXT,          -- JSON list of domain::replay::Warning
    digest           TEXT COLLATE "C",
    agreement        TEXT,          -- JSON, domain::digest::Agreement: what the digest is made of
    tally            TEXT NOT NULL, -- JSON, domain::replay::Tally: what freeze and preflight counted beside the forecast
    -- Progress, changed in the transactions that change items.
    items            BIGINT NOT NULL DEFAULT 0,
    checked          BIGINT NOT NULL DEFAULT 0,
    sent             BIGINT NOT NULL DEFAULT 0,
    sent_unchecked   BIGINT NOT NULL DEFAULT 0,
    already_applied  BIGINT NOT NULL DEFAULT 0,
    archived         BIGINT NOT NULL DEFAULT 0,
    held             BIGINT NOT NULL DEFAULT 0,
    blocked          BIGINT NOT NULL DEFAULT 0,
    not_sent         BIGINT NOT NULL DEFAULT 0,
    confirmed_ledger BIGINT NOT NULL DEFAULT 0,
    confirmed_offset BIGINT NOT NULL DEFAULT 0,
    returned         BIGINT NOT NULL DEFAULT 0,
    unproven         BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX batches_dlq ON batches (dlq_id, id);
CREATE INDEX batches_state ON batches (state, id);
-- Whether a DLQ has any of which something may come back, and any of which something is still open.
CREATE INDEX batches_started ON batches (dlq_id, verified_at_ms) WHERE started_at_ms IS NOT NULL;
-- What there is to prepare, or to give back.
CREATE INDEX batches_step ON batches (id) WHERE step NOT IN ('ready', 'released');
CREATE INDEX batches_emergency ON batches (dlq_id, approved_at_ms) WHERE emergency;

CREATE TABLE replay_items (
    batch_id         BIGINT NOT NULL,
    message_id       BIGINT NOT NULL,
    -- Order of the origin: its offset, or the message's id where that is not known.
    place            BIGINT NOT NULL,
    -- The first 8 bytes of the SHA-256 of the record key; null: no key, or order does not matter.
    key_hash         BIGINT,
    group_id         BIGINT NOT NULL,
    lower_bound      BIGINT,
    intended_at_ms   BIGINT,
    sent_offset      BIGINT,
    sent_at_ms       BIGINT,
    -- When the target's group was seen past it.
    passed_at_ms     BIGINT,
    resolved_at_ms   BIGINT,
    blocked_by       BIGINT,
    -- The message as which it came back.
    returned_as      BIGINT,
    -- Of the lease under which it was intended.
    epoch            BIGINT,
    -- -1: not known yet.
    stage            INTEGER NOT NULL,
    lap              INTEGER NOT NULL,
    origin_partition INTEGER,
    target_partition INTEGER,
    -- The batch is live and the item has not ended: no other batch may take its message.
    live             BOOLEAN NOT NULL,
    unchecked        BOOLEAN NOT NULL DEFAULT false,
    -- The batch took the message up: it gives it back to where it was.
    taken_up         BOOLEAN NOT NULL DEFAULT false,
    state            TEXT COLLATE "C" NOT NULL,
    outcome          TEXT COLLATE "C",
    proof            TEXT COLLATE "C",
    -- What the preflight said, a word of domain::verdict::Decision, or blocked.
    forecast         TEXT COLLATE "C",
    note             TEXT,
    body_hash        BYTEA NOT NULL,
    PRIMARY KEY (batch_id, message_id)
);
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
    batch_id      BIGINT NOT NULL REFERENCES batches,
    at_ms         BIGINT NOT NULL,
    name          TEXT NOT NULL,
    name_folded   TEXT COLLATE "C" NOT NULL,
    digest        TEXT COLLATE "C" NOT NULL,
    comment       TEXT,
    PRIMARY KEY (batch_id, name_folded)
);

-- The look of a second person at an emergency replay.
CREATE TABLE emergency_reviews (
    batch_id    BIGINT PRIMARY KEY REFERENCES batches,
    at_ms       BIGINT NOT NULL,
    name        TEXT NOT NULL,
    name_folded TEXT COLLATE "C" NOT NULL,
    comment     TEXT NOT NULL
);

-- What happened to a batch, for its log.
CREATE TABLE batch_log (
    id       BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    batch_id BIGINT NOT NULL,
    at_ms    BIGINT NOT NULL,
    actor    TEXT NOT NULL,
    entry    TEXT NOT NULL
);
CREATE INDEX batch_log_batch ON batch_log (batch_id, id);

-- Evidence: what was asked, what was answered, when. One row for both checks of a message.
CREATE TABLE verdicts (
    id          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    message_id  BIGINT NOT NULL,
    batch_id    BIGINT NOT NULL,
    at_ms       BIGINT NOT NULL,
    phase       TEXT COLLATE "C" NOT NULL, -- preflight | sending | in_doubt
    schema      TEXT COLLATE "C" NOT NULL,
    idempotency TEXT COLLATE "C" NOT NULL,
    decision    TEXT COLLATE "C" NOT NULL,
    schema_note TEXT,
    asked       TEXT,
    answered    TEXT,
    others      TEXT -- JSON list of [group, verdict]
);
CREATE INDEX verdicts_message ON verdicts (message_id, id);

-- How far a consumer group had come when it was last looked at, by partition; kept while something sent there waits for its outcome.
CREATE TABLE group_looks (
    cluster        TEXT COLLATE "C" NOT NULL,
    consumer_group TEXT COLLATE "C" NOT NULL,
    topic          TEXT COLLATE "C" NOT NULL,
    partition      INTEGER NOT NULL,
    at_ms          BIGINT NOT NULL,
    committed      BIGINT,
    -- The lowest commit of a row of looks, up to this one, each of which shares a member with the one before: what lies from here up to `committed` was passed
    -- while somebody was there. Null: there was no commit yet.
    passed_from    BIGINT,
    members        TEXT NOT NULL, -- JSON list of member ids
    PRIMARY KEY (cluster, consumer_group, topic, partition)
);

-- Where records taken in came from, while something that was sent there may still come back.
CREATE TABLE return_traces (
    dlq_id     BIGINT NOT NULL,
    topic      TEXT COLLATE "C" NOT NULL,
    partition  INTEGER NOT NULL,
    "offset"   BIGINT NOT NULL,
    message_id BIGINT NOT NULL,
    at_ms      BIGINT NOT NULL,
    PRIMARY KEY (dlq_id, topic, partition, "offset", message_id)
);
