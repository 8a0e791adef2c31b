//! The fingerprint of everything an approver agrees to (SHA-256, length-prefixed, versioned).
