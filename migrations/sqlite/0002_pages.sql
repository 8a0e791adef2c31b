-- The trail of decisions, and what people say of a failure group.

-- One row: where the chain of audit_events ends.
CREATE TABLE audit_head (
    id   INTEGER PRIMARY KEY CHECK (id = 1),
    seq  INTEGER NOT NULL,
    hash BLOB NOT NULL
) STRICT;
INSERT INTO audit_head (id, seq, hash) VALUES (1, 0, zeroblob(32));

-- `event` is what the hash covers, byte for byte; the columns before it repeat parts of it for filters.
CREATE TABLE audit_events (
    seq     INTEGER PRIMARY KEY,
    at_ms   INTEGER NOT NULL,
    actor   TEXT NOT NULL,
    action  TEXT NOT NULL,
    subject TEXT NOT NULL,
    event   TEXT NOT NULL,
    hash    BLOB NOT NULL
) STRICT;
CREATE INDEX audit_events_subject ON audit_events (subject, seq);
CREATE INDEX audit_events_actor ON audit_events (actor, seq);
CREATE INDEX audit_events_action ON audit_events (action, seq);

-- What people decided about a group; no row: open. `version` guards against two people who decide at once.
CREATE TABLE group_status (
    group_id      INTEGER PRIMARY KEY REFERENCES groups,
    decided_at_ms INTEGER NOT NULL,
    until_ms      INTEGER,
    since_ms      INTEGER,
    version       INTEGER NOT NULL,
    status        TEXT NOT NULL,
    decided_by    TEXT NOT NULL,
    owner         TEXT,
    ticket        TEXT,
    runbook       TEXT
) STRICT;

CREATE TABLE group_notes (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    group_id INTEGER NOT NULL REFERENCES groups,
    at_ms    INTEGER NOT NULL,
    author   TEXT NOT NULL,
    form_id  TEXT NOT NULL UNIQUE, -- made with the form: the same form sent twice is one note
    note     TEXT NOT NULL
) STRICT;
CREATE INDEX group_notes_group ON group_notes (group_id, id);

-- Arrivals by the half hour, kept since this version beside those by the minute.
INSERT INTO counters (dlq_id, kind, ref, amount)
SELECT dlq_id, 'arrivals_30m', ref - ref % 1800000, CAST(SUM(amount) AS BIGINT) FROM (
    SELECT dlq_id, ref, amount FROM counters WHERE kind = 'arrivals'
    UNION ALL SELECT dlq_id, ref, amount FROM counter_deltas WHERE kind = 'arrivals') counted
GROUP BY dlq_id, ref - ref % 1800000;
