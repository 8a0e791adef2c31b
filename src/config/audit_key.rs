//! The file that holds the key of the trail, and what to do where there is none.

use std::path::Path;

use crate::domain::audit::AuditKey;

/// Why PostgreSQL needs `audit.key_file`: its instances share one trail and no folder in which a key could be made for them.
pub const MISSING: &str = "is missing: on PostgreSQL the trail of decisions needs a key, the same for every instance";
pub const REMEDY: &str = "Make one: `openssl rand -hex 32 > FILE`; then name it: [audit] with key_file = \"FILE\"";

/// Reads a key file.
///
/// # Errors
/// What is wrong with the file, beginning with its path. Never what it holds.
pub fn read(path: &Path) -> Result<AuditKey, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    AuditKey::from_text(&text).ok_or_else(|| {
        format!("{} is too short for a key: it must hold 64 hex digits or {} bytes of text", path.display(), AuditKey::MIN_BYTES)
    })
}
