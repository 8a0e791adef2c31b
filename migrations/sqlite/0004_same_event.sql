-- The key a ledger is asked for, as the first 8 bytes of its SHA-256: two dead letters of one event are one payment. Null: no ledger, or no key.
ALTER TABLE replay_items ADD COLUMN event_hash INTEGER;
