//! Batches: freeze, preflight, digest, approval, and the API over them.
