//! What a person does to messages by hand: take up, release, archive, restore, close follow-ups.
