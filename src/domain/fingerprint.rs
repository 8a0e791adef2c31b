//! Which failure group a message belongs to, and why.
