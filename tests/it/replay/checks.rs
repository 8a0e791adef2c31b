//! Schemas, ledgers and the verdicts of both.
