//! Review: what a person does to messages by hand.
