-- The quarantine table and what stands beside it.
--
-- Instants are milliseconds UTC, bound by the program. AUTOINCREMENT: an id is never given twice, whatever was deleted.
-- messages, bodies, counters and counter_deltas carry no foreign keys: a check per row would be paid on the intake path, and the rows
-- they would point to (DLQs, groups) are never deleted.

CREATE TABLE dlqs (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    first_seen_at_ms INTEGER NOT NULL,
    gone_since_ms    INTEGER,
    incarnation      INTEGER NOT NULL,
    cluster          TEXT NOT NULL,
    topic            TEXT NOT NULL,
    owner            TEXT,
    start_note       TEXT,
    UNIQUE (cluster, topic)
) STRICT;

CREATE TABLE incarnations (
    dlq_id        INTEGER NOT NULL REFERENCES dlqs,
    incarnation   INTEGER NOT NULL,
    started_at_ms INTEGER NOT NULL,
    topic_id      TEXT,
    PRIMARY KEY (dlq_id, incarnation)
) STRICT, WITHOUT ROWID;

CREATE TABLE positions (
    dlq_id        INTEGER NOT NULL REFERENCES dlqs,
    incarnation   INTEGER NOT NULL,
    partition     INTEGER NOT NULL,
    next_offset   INTEGER NOT NULL,
    owner_epoch   INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL,
    PRIMARY KEY (dlq_id, incarnation, partition)
) STRICT, WITHOUT ROWID;

CREATE TABLE gaps (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    dlq_id        INTEGER NOT NULL REFERENCES dlqs,
    from_offset   INTEGER NOT NULL,
    to_offset     INTEGER NOT NULL,
    noticed_at_ms INTEGER NOT NULL,
    incarnation   INTEGER NOT NULL,
    partition     INTEGER NOT NULL,
    kind          TEXT NOT NULL
) STRICT;
CREATE INDEX gaps_dlq ON gaps (dlq_id, id);

CREATE TABLE groups (
    id                INTEGER PRIMARY KEY AUTOINCREMENT,
    dlq_id            INTEGER NOT NULL REFERENCES dlqs,
    fingerprint       TEXT NOT NULL,
    class             TEXT NOT NULL,
    consumer_group    TEXT,
    exception_class   TEXT,
    normalised_text   TEXT NOT NULL,
    top_frame         TEXT,
    -- Lower case and cut, for the search by prefix: whole texts may be longer than an index entry can be.
    exception_folded  TEXT NOT NULL,
    normalised_folded TEXT NOT NULL,
    UNIQUE (dlq_id, fingerprint)
) STRICT;
CREATE INDEX groups_exception ON groups (exception_folded);
CREATE INDEX groups_normalised ON groups (normalised_folded);
CREATE INDEX groups_class ON groups (class, dlq_id);

CREATE TABLE messages (
    id                  INTEGER PRIMARY KEY AUTOINCREMENT,
    dlq_id              INTEGER NOT NULL,
    group_id            INTEGER NOT NULL,
    record_offset       INTEGER NOT NULL,
    dead_lettered_at_ms INTEGER NOT NULL,
    first_seen_at_ms    INTEGER NOT NULL,
    size                INTEGER NOT NULL,
    record_at_ms        INTEGER,
    origin_at_ms        INTEGER,
    origin_offset       INTEGER,
    attempts            INTEGER,
    -- The first 8 bytes of SHA-256: keys may be longer than an index entry can be.
    key_hash            INTEGER,
    business_hash       INTEGER,
    incarnation         INTEGER NOT NULL,
    partition           INTEGER NOT NULL,
    -- 0, unless the log was truncated and another record took the offset: then 1, 2 and so on.
    rewrite             INTEGER NOT NULL,
    lap                 INTEGER NOT NULL,
    origin_partition    INTEGER,
    timestamp_suspect   INTEGER NOT NULL,
    state               TEXT NOT NULL,
    class               TEXT NOT NULL,
    dialect             TEXT NOT NULL,
    class_reason        TEXT NOT NULL,
    body_hash           BLOB NOT NULL,
    record_key          BLOB,
    business_key        TEXT,
    tenant              TEXT,
    exception_class     TEXT,
    exception_message   TEXT,
    origin_topic        TEXT,
    consumer_group      TEXT,
    resolution          TEXT,
    outcome             TEXT,
    reason              TEXT,
    follow_up           TEXT
) STRICT;
-- Every index of SQLite ends in the row's id, which these lists are ordered by.
-- Identity; also finds a message by its coordinates and the newest record of a partition.
CREATE UNIQUE INDEX messages_coordinates ON messages (dlq_id, incarnation, partition, record_offset, rewrite);
-- Lists by DLQ and state, newest first.
CREATE INDEX messages_state ON messages (dlq_id, state);
-- The oldest open message, and lists by dead-lettered time.
CREATE INDEX messages_time ON messages (dlq_id, state, dead_lettered_at_ms);
-- The oldest open event.
CREATE INDEX messages_event ON messages (dlq_id, state, origin_at_ms) WHERE origin_at_ms IS NOT NULL;
-- Lists by group, and by all that a group decides: class, and the search by prefix.
CREATE INDEX messages_group ON messages (group_id);
CREATE INDEX messages_key ON messages (key_hash) WHERE key_hash IS NOT NULL;
CREATE INDEX messages_business ON messages (business_hash) WHERE business_hash IS NOT NULL;

-- Purged by deleting the row. Headers are packed (domain::record::pack_headers).
CREATE TABLE bodies (
    message_id INTEGER PRIMARY KEY,
    value      BLOB,
    headers    BLOB NOT NULL
) STRICT;

CREATE TABLE counter_deltas (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    dlq_id   INTEGER NOT NULL,
    ref      INTEGER NOT NULL,
    amount   INTEGER NOT NULL,
    first_ms INTEGER,
    last_ms  INTEGER,
    kind     TEXT NOT NULL
) STRICT;

CREATE TABLE counters (
    dlq_id   INTEGER NOT NULL,
    kind     TEXT NOT NULL,
    ref      INTEGER NOT NULL,
    amount   INTEGER NOT NULL,
    first_ms INTEGER,
    last_ms  INTEGER,
    PRIMARY KEY (dlq_id, kind, ref)
) STRICT, WITHOUT ROWID;

CREATE TABLE samples (
    dlq_id          INTEGER NOT NULL REFERENCES dlqs,
    at_ms           INTEGER NOT NULL,
    uncollected     INTEGER,
    depth           INTEGER,
    at_risk_left_ms INTEGER,
    at_risk_state   TEXT NOT NULL,
    error           TEXT,
    PRIMARY KEY (dlq_id, at_ms)
) STRICT, WITHOUT ROWID;
-- The newest look that succeeded, past any number that did not.
CREATE INDEX samples_succeeded ON samples (dlq_id, at_ms) WHERE error IS NULL;
-- Thinning goes by age over all DLQs.
CREATE INDEX samples_at ON samples (at_ms);

CREATE TABLE partition_samples (
    dlq_id      INTEGER NOT NULL REFERENCES dlqs,
    incarnation INTEGER NOT NULL,
    partition   INTEGER NOT NULL,
    at_ms       INTEGER NOT NULL,
    position    INTEGER,
    log_start   INTEGER,
    log_end     INTEGER,
    error       TEXT,
    PRIMARY KEY (dlq_id, incarnation, partition)
) STRICT, WITHOUT ROWID;

CREATE TABLE leases (
    name    TEXT PRIMARY KEY,
    holder  TEXT NOT NULL, -- empty: free
    epoch   INTEGER NOT NULL,
    renewal INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE users (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    created_at_ms INTEGER NOT NULL,
    disabled      INTEGER NOT NULL,
    name          TEXT NOT NULL,
    name_folded   TEXT NOT NULL UNIQUE,
    role          TEXT NOT NULL,
    owners        TEXT NOT NULL,
    password_hash TEXT NOT NULL
) STRICT;

CREATE TABLE sessions (
    token_hash    BLOB PRIMARY KEY,
    user_id       INTEGER NOT NULL REFERENCES users,
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_user ON sessions (user_id);
CREATE INDEX sessions_expiry ON sessions (expires_at_ms);

CREATE TABLE tokens (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER,
    revoked_at_ms INTEGER,
    name          TEXT NOT NULL,
    name_folded   TEXT NOT NULL,
    role          TEXT NOT NULL,
    owners        TEXT NOT NULL,
    token_hash    BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX tokens_live_name ON tokens (name_folded) WHERE revoked_at_ms IS NULL;
CREATE UNIQUE INDEX tokens_live_hash ON tokens (token_hash) WHERE revoked_at_ms IS NULL;
