//! What counts as a success, and what came back.
