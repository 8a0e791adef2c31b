//! The health of DLQs as pages, API and metrics show it: one read of counters and samples, judged by `domain::health`.
