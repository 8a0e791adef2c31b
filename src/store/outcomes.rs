//! What became of what was sent: proofs, returns, and what is known of consumer groups.
