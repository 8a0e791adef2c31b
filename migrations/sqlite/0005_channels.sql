-- Channels: where people are told, and what is on its way to them.

CREATE TABLE channels (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    created_at_ms INTEGER NOT NULL,
    changed_at_ms INTEGER NOT NULL,
    -- Raised by each change that a person makes; guards against two who change it at once.
    version       INTEGER NOT NULL,
    -- Nothing goes before: what the service asked for, a pause after failures, its pace.
    not_before_ms INTEGER NOT NULL DEFAULT 0,
    -- Attempts in a row that failed in a way that may pass.
    failures      INTEGER NOT NULL DEFAULT 0,
    -- A removed channel keeps its log and loses its secret.
    removed_at_ms INTEGER,
    disabled      INTEGER NOT NULL DEFAULT 0,
    uid           TEXT NOT NULL UNIQUE, -- the secret is sealed for it
    kind          TEXT NOT NULL,
    name          TEXT NOT NULL,
    name_folded   TEXT NOT NULL,
    owners        TEXT NOT NULL, -- whose DLQs it is told of
    host          TEXT NOT NULL, -- what may be shown of the URL
    hint          TEXT,          -- and of the key
    created_by    TEXT NOT NULL,
    changed_by    TEXT NOT NULL,
    sealed        BLOB          -- channels::seal; null once removed
) STRICT;
CREATE UNIQUE INDEX channels_name ON channels (name_folded) WHERE removed_at_ms IS NULL;

-- One notice for one channel, written in the transaction of what it tells.
CREATE TABLE outbox (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    channel_id     INTEGER NOT NULL REFERENCES channels,
    created_at_ms  INTEGER NOT NULL,
    due_at_ms      INTEGER NOT NULL,
    -- What is not delivered by then is given up.
    give_up_at_ms  INTEGER NOT NULL,
    ended_at_ms    INTEGER,
    attempts       INTEGER NOT NULL DEFAULT 0,
    -- Raised by each attempt and each outcome: nobody records the outcome of another's attempt.
    version        INTEGER NOT NULL DEFAULT 1,
    event_id       TEXT NOT NULL,
    dedup_key      TEXT NOT NULL,
    event          TEXT NOT NULL, -- what kind of event, NoticeEvent::as_str
    state          TEXT NOT NULL, -- waiting | delivered | failed | given_up
    headline       TEXT NOT NULL,
    notice         TEXT NOT NULL,  -- JSON, domain::notice::Notice
    body           BLOB NOT NULL, -- as it was rendered first; the same at each attempt
    UNIQUE (event_id, channel_id)
) STRICT;
CREATE INDEX outbox_waiting ON outbox (channel_id, due_at_ms, id) WHERE state = 'waiting';
-- What of one alert waits: it goes in its order.
CREATE INDEX outbox_waiting_key ON outbox (channel_id, dedup_key, id) WHERE state = 'waiting';
CREATE INDEX outbox_channel ON outbox (channel_id, id);
CREATE INDEX outbox_ended ON outbox (ended_at_ms) WHERE ended_at_ms IS NOT NULL;

-- Each attempt, written before it is made. No took_ms: under way, or the process ended before the answer came.
CREATE TABLE outbox_attempts (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    outbox_id INTEGER NOT NULL,
    at_ms     INTEGER NOT NULL,
    took_ms   INTEGER,
    status    INTEGER,
    body      TEXT, -- the beginning of the answer, without secrets
    error     TEXT
) STRICT;
CREATE INDEX outbox_attempts_outbox ON outbox_attempts (outbox_id, id);

-- How often jobs that one instance does for all have done what they are for. Whoever watches compares two looks by a clock of its own.
CREATE TABLE job_progress (
    job   TEXT PRIMARY KEY,
    turns INTEGER NOT NULL,
    at_ms INTEGER NOT NULL
) STRICT;
