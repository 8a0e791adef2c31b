//! Execution and recovery: what is sent, in which order, and that nothing is sent twice or lost.
