-- The quarantine table and what stands beside it.
--
-- Instants are BIGINT milliseconds UTC, bound by the program. Keys compare byte by byte (COLLATE "C"), as in SQLite.
-- messages, bodies, counters and counter_deltas carry no foreign keys: a check per row would be paid on the intake path, and the rows
-- they would point to (DLQs, groups) are never deleted.

CREATE TABLE dlqs (
    id               BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    first_seen_at_ms BIGINT NOT NULL,
    gone_since_ms    BIGINT,
    incarnation      INTEGER NOT NULL,
    cluster          TEXT COLLATE "C" NOT NULL,
    topic            TEXT COLLATE "C" NOT NULL,
    owner            TEXT COLLATE "C",
    start_note       TEXT,
    UNIQUE (cluster, topic)
);

CREATE TABLE incarnations (
    dlq_id        BIGINT NOT NULL REFERENCES dlqs,
    incarnation   INTEGER NOT NULL,
    started_at_ms BIGINT NOT NULL,
    topic_id      TEXT,
    PRIMARY KEY (dlq_id, incarnation)
);

CREATE TABLE positions (
    dlq_id        BIGINT NOT NULL REFERENCES dlqs,
    incarnation   INTEGER NOT NULL,
    partition     INTEGER NOT NULL,
    next_offset   BIGINT NOT NULL,
    owner_epoch   BIGINT NOT NULL,
    updated_at_ms BIGINT NOT NULL,
    PRIMARY KEY (dlq_id, incarnation, partition)
) WITH (fillfactor = 50); -- updated with each batch: room for it on the same page

CREATE TABLE gaps (
    id            BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    dlq_id        BIGINT NOT NULL REFERENCES dlqs,
    from_offset   BIGINT NOT NULL,
    to_offset     BIGINT NOT NULL,
    noticed_at_ms BIGINT NOT NULL,
    incarnation   INTEGER NOT NULL,
    partition     INTEGER NOT NULL,
    kind          TEXT COLLATE "C" NOT NULL
);
CREATE INDEX gaps_dlq ON gaps (dlq_id, id);

CREATE TABLE groups (
    id                BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    dlq_id            BIGINT NOT NULL REFERENCES dlqs,
    fingerprint       TEXT COLLATE "C" NOT NULL,
    class             TEXT COLLATE "C" NOT NULL,
    consumer_group    TEXT COLLATE "C",
    exception_class   TEXT COLLATE "C",
    normalised_text   TEXT COLLATE "C" NOT NULL,
    top_frame         TEXT COLLATE "C",
    -- Lower case and cut, for the search by prefix: whole texts may be longer than an index entry can be.
    exception_folded  TEXT COLLATE "C" NOT NULL,
    normalised_folded TEXT COLLATE "C" NOT NULL,
    UNIQUE (dlq_id, fingerprint)
);
CREATE INDEX groups_exception ON groups (exception_folded);
CREATE INDEX groups_normalised ON groups (normalised_folded);
CREATE INDEX groups_class ON groups (class, dlq_id);

CREATE SEQUENCE message_ids;

CREATE TABLE messages (
    id                  BIGINT NOT NULL,
    dlq_id              BIGINT NOT NULL,
    group_id            BIGINT NOT NULL,
    record_offset       BIGINT NOT NULL,
    dead_lettered_at_ms BIGINT NOT NULL,
    first_seen_at_ms    BIGINT NOT NULL,
    size                BIGINT NOT NULL,
    record_at_ms        BIGINT,
    origin_at_ms        BIGINT,
    origin_offset       BIGINT,
    attempts            BIGINT,
    -- The first 8 bytes of SHA-256: keys may be longer than an index entry can be.
    key_hash            BIGINT,
    business_hash       BIGINT,
    incarnation         INTEGER NOT NULL,
    partition           INTEGER NOT NULL,
    -- 0, unless the log was truncated and another record took the offset: then 1, 2 and so on.
    rewrite             INTEGER NOT NULL,
    lap                 INTEGER NOT NULL,
    origin_partition    INTEGER,
    timestamp_suspect   BOOLEAN NOT NULL,
    state               TEXT COLLATE "C" NOT NULL,
    class               TEXT COLLATE "C" NOT NULL,
    dialect             TEXT COLLATE "C" NOT NULL,
    class_reason        TEXT COLLATE "C" NOT NULL,
    body_hash           BYTEA NOT NULL,
    record_key          BYTEA,
    business_key        TEXT COLLATE "C",
    tenant              TEXT COLLATE "C",
    exception_class     TEXT COLLATE "C",
    exception_message   TEXT COLLATE "C",
    origin_topic        TEXT COLLATE "C",
    consumer_group      TEXT COLLATE "C",
    resolution          TEXT COLLATE "C",
    outcome             TEXT COLLATE "C",
    reason              TEXT,
    follow_up           TEXT COLLATE "C",
    PRIMARY KEY (id)
);
-- Identity; also finds a message by its coordinates and the newest record of a partition.
CREATE UNIQUE INDEX messages_coordinates ON messages (dlq_id, incarnation, partition, record_offset, rewrite);
-- Lists by DLQ and state, newest first.
CREATE INDEX messages_state ON messages (dlq_id, state, id);
-- The oldest open message, and lists by dead-lettered time.
CREATE INDEX messages_time ON messages (dlq_id, state, dead_lettered_at_ms, id);
-- The oldest open event.
CREATE INDEX messages_event ON messages (dlq_id, state, origin_at_ms) WHERE origin_at_ms IS NOT NULL;
-- Lists by group, and by all that a group decides: class, and the search by prefix.
CREATE INDEX messages_group ON messages (group_id, id);
CREATE INDEX messages_key ON messages (key_hash, id) WHERE key_hash IS NOT NULL;
CREATE INDEX messages_business ON messages (business_hash, id) WHERE business_hash IS NOT NULL;

-- Purged by deleting the row. Headers are packed (domain::record::pack_headers).
CREATE TABLE bodies (
    message_id BIGINT PRIMARY KEY,
    value      BYTEA,
    headers    BYTEA NOT NULL
);

CREATE TABLE counter_deltas (
    id       BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    dlq_id   BIGINT NOT NULL,
    ref      BIGINT NOT NULL,
    amount   BIGINT NOT NULL,
    first_ms BIGINT,
    last_ms  BIGINT,
    kind     TEXT COLLATE "C" NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000); -- lives by insert and delete

CREATE TABLE counters (
    dlq_id   BIGINT NOT NULL,
    kind     TEXT COLLATE "C" NOT NULL,
    ref      BIGINT NOT NULL,
    amount   BIGINT NOT NULL,
    first_ms BIGINT,
    last_ms  BIGINT,
    PRIMARY KEY (dlq_id, kind, ref)
) WITH (fillfactor = 80);

CREATE TABLE samples (
    dlq_id          BIGINT NOT NULL REFERENCES dlqs,
    at_ms           BIGINT NOT NULL,
    uncollected     BIGINT,
    depth           BIGINT,
    at_risk_left_ms BIGINT,
    at_risk_state   TEXT COLLATE "C" NOT NULL,
    error           TEXT,
    PRIMARY KEY (dlq_id, at_ms)
);
-- The newest look that succeeded, past any number that did not.
CREATE INDEX samples_succeeded ON samples (dlq_id, at_ms) WHERE error IS NULL;
-- Thinning goes by age over all DLQs.
CREATE INDEX samples_at ON samples (at_ms);

CREATE TABLE partition_samples (
    dlq_id      BIGINT NOT NULL REFERENCES dlqs,
    incarnation INTEGER NOT NULL,
    partition   INTEGER NOT NULL,
    at_ms       BIGINT NOT NULL,
    position    BIGINT,
    log_start   BIGINT,
    log_end     BIGINT,
    error       TEXT,
    PRIMARY KEY (dlq_id, incarnation, partition)
) WITH (fillfactor = 50);

CREATE TABLE leases (
    name    TEXT COLLATE "C" PRIMARY KEY,
    holder  TEXT COLLATE "C" NOT NULL, -- empty: free
    epoch   BIGINT NOT NULL,
    renewal BIGINT NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE users (
    id            BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    created_at_ms BIGINT NOT NULL,
    disabled      BOOLEAN NOT NULL,
    name          TEXT COLLATE "C" NOT NULL,
    name_folded   TEXT COLLATE "C" NOT NULL UNIQUE,
    role          TEXT COLLATE "C" NOT NULL,
    owners        TEXT COLLATE "C" NOT NULL,
    password_hash TEXT COLLATE "C" NOT NULL
);

CREATE TABLE sessions (
    token_hash    BYTEA PRIMARY KEY,
    user_id       BIGINT NOT NULL REFERENCES users,
    created_at_ms BIGINT NOT NULL,
    expires_at_ms BIGINT NOT NULL
);
CREATE INDEX sessions_user ON sessions (user_id);
CREATE INDEX sessions_expiry ON sessions (expires_at_ms);

CREATE TABLE tokens (
    id            BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    created_at_ms BIGINT NOT NULL,
    expires_at_ms BIGINT,
    revoked_at_ms BIGINT,
    name          TEXT COLLATE "C" NOT NULL,
    name_folded   TEXT COLLATE "C" NOT NULL,
    role          TEXT COLLATE "C" NOT NULL,
    owners        TEXT COLLATE "C" NOT NULL,
    token_hash    BYTEA NOT NULL
);
CREATE UNIQUE INDEX tokens_live_name ON tokens (name_folded) WHERE revoked_at_ms IS NULL;
CREATE UNIQUE INDEX tokens_live_hash ON tokens (token_hash) WHERE revoked_at_ms IS NULL;
