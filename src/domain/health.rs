//! How healthy a DLQ is: what may be said from what was measured, unknown kept apart from zero.
