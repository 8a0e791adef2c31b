//! Verification: what was sent counts as a success only when proven.
