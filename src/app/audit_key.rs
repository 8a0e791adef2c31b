//! The key of the trail: the configured one, or on SQLite one that lies beside the database, where the first start makes it.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::config::{Config, audit_key};
use crate::domain::audit::AuditKey;
use crate::store::{Store, StoreError, audit};

/// Where the key comes from.
#[derive(Debug, Clone)]
pub enum KeySource {
    /// `audit.key_file` was given.
    Given(AuditKey),
    /// This file, made when it is not there.
    Beside(PathBuf),
    /// PostgreSQL without `audit.key_file`.
    Missing,
}

pub(super) const GONE: &str = "is gone, and the trail in the database was made with it";
pub(super) const ANOTHER: &str = "the newest entry of the trail was not made with this key, or was changed since";
pub(super) const ANOTHER_REMEDY: &str = "Use the key that the trail was begun with";

/// Why the trail cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum AuditKeyError {
    #[error("audit.key_file: {}. {}", audit_key::MISSING, audit_key::REMEDY)]
    Missing,
    /// The file beside the database cannot be used.
    #[error("audit key: {0}. Put the right file back, or name another in audit.key_file")]
    Unusable(String),
    #[error("audit key: {} cannot be made: {reason}. Let this user write there, or name a file in audit.key_file", path.display())]
    NotMade { path: PathBuf, reason: std::io::Error },
    /// A new key would begin a chain that nobody could verify as one.
    #[error("audit key: {} {}. Put the file back", .0.display(), GONE)]
    Gone(PathBuf),
    #[error("audit key: {}. {}", ANOTHER, ANOTHER_REMEDY)]
    Another,
    #[error("{0}")]
    Store(#[from] StoreError),
}

impl AuditKeyError {
    /// Whether the configuration is at fault, not the world.
    pub fn is_configuration(&self) -> bool {
        !matches!(self, AuditKeyError::NotMade { .. } | AuditKeyError::Store(_))
    }
}

impl From<&Config> for KeySource {
    fn from(config: &Config) -> KeySource {
        match (&config.audit.key, config.database.sqlite_path()) {
            (Some(key), _) => KeySource::Given(key.clone()),
            (None, Some(database)) => KeySource::beside(&database),
            (None, None) => KeySource::Missing,
        }
    }
}

impl KeySource {
    /// The file beside a SQLite database: `lazaret.db.audit-key` for `lazaret.db`.
    pub fn beside(database: &Path) -> KeySource {
        let mut path = database.as_os_str().to_owned();
        path.push(".audit-key");
        KeySource::Beside(path.into())
    }
}

/// The store, able to write to its trail. The database must be up to date. Makes the file beside it where there is no trail yet.
///
/// # Errors
/// There is no key, or it is not the one that the trail was made with.
pub async fn open(store: Store, source: &KeySource) -> Result<Store, AuditKeyError> {
    let key = match source {
        KeySource::Given(key) => key.clone(),
        KeySource::Missing => return Err(AuditKeyError::Missing),
        KeySource::Beside(path) => {
            if !path.exists() {
                if audit::begun(&store).await? {
                    return Err(AuditKeyError::Gone(path.clone()));
                }
                make(path).map_err(|reason| AuditKeyError::NotMade { path: path.clone(), reason })?;
            }
            audit_key::read(path).map_err(AuditKeyError::Unusable)?
        }
    };
    if audit::newest_fits(&store, &key).await? { Ok(store.with_audit_key(key)) } else { Err(AuditKeyError::Another) }
}

/// Writes a new key to `path`, whole or not at all. One that is there already, or is made by another process meanwhile, stays.
fn make(path: &Path) -> std::io::Result<()> {
    let mut key = [0_u8; AuditKey::MIN_BYTES];
    getrandom::fill(&mut key).map_err(std::io::Error::other)?;
    let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}", std::process::id()));
    let draft = PathBuf::from(draft);
    let written = write_new(&draft, &hex).and_then(|()| match std::fs::hard_link(&draft, path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    });
    // Left behind by a process that died, or by us: of no use to anybody.
    let removed = std::fs::remove_file(&draft);
    written.and(removed)
}

fn write_new(path: &Path, hex: &str) -> std::io::Result<()> {
    let mut file = std::fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    writeln!(file, "{hex}")?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_is_made_once_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lazaret.db.audit-key");
        make(&path).unwrap();
        let (key, mode) = (audit_key::read(&path).unwrap(), std::fs::metadata(&path).unwrap().permissions().mode());
        assert_eq!(mode & 0o777, 0o600);
        make(&path).unwrap();
        assert_eq!(audit_key::read(&path).unwrap(), key, "never overwritten");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no draft is left");
        std::fs::write(&path, "short").unwrap();
        let said = audit_key::read(&path).unwrap_err();
        assert!(said.contains("lazaret.db.audit-key is too short") && !said.contains("hold short"), "{said}");
        let nowhere = folder.path().join("nowhere/key");
        assert!(make(&nowhere).is_err());
    }
}
