//! What people do to messages by hand, and the state machine under it.
