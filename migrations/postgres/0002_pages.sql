-- The trail of decisions, and what people say of a failure group.

-- One row: where the chain of audit_events ends.
CREATE TABLE audit_head (
    id   INTEGER PRIMARY KEY CHECK (id = 1),
    seq  BIGINT NOT NULL,
    hash BYTEA NOT NULL
);
INSERT INTO audit_head (id, seq, hash) VALUES (1, 0, decode(repeat('00', 32), 'hex'));

-- `event` is what the hash covers, byte for byte; the columns before it repeat parts of it for filters.
CREATE TABLE audit_events (
    seq     BIGINT PRIMARY KEY,
    at_ms   BIGINT NOT NULL,
    actor   TEXT COLLATE "C" NOT NULL,
    action  TEXT COLLATE "C" NOT NULL,
    subject TEXT COLLATE "C" NOT NULL,
    event   TEXT NOT NULL,
    hash    BYTEA NOT NULL
);
CREATE INDEX audit_events_subject ON audit_events (subject, seq);
CREATE INDEX audit_events_actor ON audit_events (actor, seq);
CREATE INDEX audit_events_action ON audit_events (action, seq);

-- What people decided about a group; no row: open. `version` guards against two people who decide at once.
CREATE TABLE group_status (
    group_id      BIGINT PRIMARY KEY REFERENCES groups,
    decided_at_ms BIGINT NOT NULL,
    until_ms      BIGINT,
    since_ms      BIGINT,
    version       BIGINT NOT NULL,
    status        TEXT NOT NULL,
    decided_by    TEXT NOT NULL,
    owner         TEXT,
    ticket        TEXT,
    runbook       TEXT
);

CREATE TABLE group_notes (
    id       BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    group_id BIGINT NOT NULL REFERENCES groups,
    at_ms    BIGINT NOT NULL,
    author   TEXT NOT NULL,
    form_id  TEXT COLLATE "C" NOT NULL UNIQUE, -- made with the form: the same form sent twice is one note
    note     TEXT NOT NULL
);
CREATE INDEX group_notes_group ON group_notes (group_id, id);

-- Arrivals by the half hour, kept since this version beside those by the minute.
INSERT INTO counters (dlq_id, kind, ref, amount)
SELECT dlq_id, 'arrivals_30m', ref - ref % 1800000, CAST(SUM(amount) AS BIGINT) FROM (
    SELECT dlq_id, ref, amount FROM counters WHERE kind = 'arrivals'
    UNION ALL SELECT dlq_id, ref, amount FROM counter_deltas WHERE kind = 'arrivals') counted
GROUP BY dlq_id, ref - ref % 1800000;
