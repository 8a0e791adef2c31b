-- What is usual, what fires, and what samples say of more measures.

-- What a look saw beside depth and what is not taken in. Null: not known, or seen by an earlier version.
ALTER TABLE samples ADD COLUMN oldest_open_ms INTEGER;
ALTER TABLE samples ADD COLUMN follow_up_open INTEGER;
ALTER TABLE samples ADD COLUMN confirmed INTEGER;
ALTER TABLE samples ADD COLUMN returned INTEGER;

-- What a DLQ usually brings, by hour, and whether what arrives now is unusual: domain::baseline::{History, Watch} as JSON.
CREATE TABLE baselines (
    dlq_id        INTEGER PRIMARY KEY REFERENCES dlqs,
    changed_at_ms INTEGER NOT NULL,
    -- Raised by each change; guards against the evaluation and a person at once.
    version       INTEGER NOT NULL,
    history       TEXT NOT NULL,
    watch         TEXT NOT NULL,
    usual         TEXT NOT NULL -- JSON, domain::baseline::Usual: what pages show of it
) STRICT;

-- Anomalies that are over. What nobody accepted does not teach.
CREATE TABLE anomalies (
    dlq_id      INTEGER NOT NULL REFERENCES dlqs,
    from_ms     INTEGER NOT NULL,
    to_ms       INTEGER NOT NULL,
    accepted_by TEXT,
    PRIMARY KEY (dlq_id, from_ms)
) STRICT, WITHOUT ROWID;

CREATE TABLE rules (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    created_at_ms INTEGER NOT NULL,
    changed_at_ms INTEGER NOT NULL,
    -- Raised by each change; guards against two who change it at once.
    version       INTEGER NOT NULL,
    disabled      INTEGER NOT NULL,
    name          TEXT NOT NULL,
    name_folded   TEXT NOT NULL UNIQUE,
    changed_by    TEXT NOT NULL,
    terms         TEXT NOT NULL -- JSON, domain::alert::Terms
) STRICT;

-- One for each rule and DLQ that was ever beyond the threshold; the newest life of it.
CREATE TABLE alerts (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    rule_id       INTEGER NOT NULL,
    -- Of the rule when it was last looked at.
    rule_version  INTEGER NOT NULL,
    changed_at_ms INTEGER NOT NULL,
    -- Raised by each change; guards against the evaluation and a person at once.
    version       INTEGER NOT NULL,
    cluster       TEXT NOT NULL,
    topic         TEXT NOT NULL,
    phase         TEXT NOT NULL, -- quiet | pending | firing | resolved, as in `life`
    life          TEXT NOT NULL, -- JSON, domain::alert::Alert
    UNIQUE (rule_id, cluster, topic)
) STRICT;
CREATE INDEX alerts_live ON alerts (id) WHERE phase IN ('pending', 'firing');
CREATE INDEX alerts_dlq ON alerts (cluster, topic, id);

-- What is to be told and what was: one row for each notification of an alert, whoever it went to.
CREATE TABLE alert_news (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    alert_id INTEGER NOT NULL REFERENCES alerts,
    number   INTEGER NOT NULL,
    at_ms    INTEGER NOT NULL,
    severity TEXT NOT NULL,
    news     TEXT NOT NULL, -- JSON, domain::alert::News
    UNIQUE (alert_id, number)
) STRICT;
CREATE INDEX alert_news_at ON alert_news (at_ms);

-- What happened in the last day.
CREATE INDEX gaps_noticed ON gaps (noticed_at_ms);
CREATE INDEX incarnations_started ON incarnations (started_at_ms);
