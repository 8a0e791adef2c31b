//! The demo's folder. The demo starts over each time, so it deletes: only files whose names it knows, only in a folder that it marked.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use super::DemoError;

/// Marks a folder as a demo's own. It is locked while that demo runs.
const MARKER: &str = "made-by-lazaret-demo";
const DATABASE: &str = "lazaret.db";
const AUDIT_KEY: &str = "lazaret.db.audit-key";
const WALLET: &str = "wallet.db";
const SCHEMA: &str = "payment.schema.json";

/// A folder in which this demo, and no other, runs.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Holds the lock for as long as it is open.
    _marker: File,
}

impl Folder {
    /// Makes the folder, or takes over what an earlier demo left and deletes its database.
    pub fn take(path: &Path) -> Result<Folder, DemoError> {
        let failed = |source| DemoError::Folder { path: path.to_owned(), source };
        fs::create_dir_all(path).map_err(failed)?;
        let marker_path = path.join(MARKER);
        let marked = marker_path.try_exists().map_err(failed)?;
        if !marked && fs::read_dir(path).map_err(failed)?.next().is_some() {
            return Err(DemoError::NotOurs(path.to_owned()));
        }
        let marker = File::options().create(true).truncate(false).write(true).open(&marker_path).map_err(failed)?;
        match marker.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(DemoError::Running(path.to_owned())),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        for (database, suffix) in
            [DATABASE, WALLET].into_iter().flat_map(|name| ["", "-wal", "-shm", "-journal"].map(|suffix| (name, suffix)))
        {
            remove(&path.join(format!("{database}{suffix}"))).map_err(failed)?;
        }
        // A key without its trail fits nothing.
        for file in [AUDIT_KEY, SCHEMA] {
            remove(&path.join(file)).map_err(failed)?;
        }
        Ok(Folder { path: path.to_owned(), _marker: marker })
    }

    /// Where the key of the trail is made.
    pub fn audit_key(&self) -> PathBuf {
        self.path.join(AUDIT_KEY)
    }

    /// The database of the shop's wallet.
    pub fn wallet(&self) -> PathBuf {
        self.path.join(WALLET)
    }

    /// Writes what the shop's payments look like today, as JSON Schema.
    pub fn write_schema(&self, schema: &str) -> Result<PathBuf, DemoError> {
        let path = self.path.join(SCHEMA);
        fs::write(&path, schema).map_err(|source| DemoError::Folder { path: path.clone(), source })?;
        Ok(path)
    }

    /// Where the store opens its database.
    pub fn database_url(&self) -> String {
        format!("sqlite://{}", self.path.join(DATABASE).display())
    }
}

impl fmt::Display for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

fn remove(file: &Path) -> std::io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_over_in_its_own_folder_and_deletes_only_what_a_demo_made() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("demo");
        drop(Folder::take(&path).unwrap());
        fs::write(path.join(DATABASE), "old").unwrap();
        fs::write(path.join("lazaret.db-wal"), "old").unwrap();
        fs::write(path.join(AUDIT_KEY), "old").unwrap();
        fs::write(path.join("notes.txt"), "mine").unwrap();
        let folder = Folder::take(&path).unwrap();
        assert!(!path.join(DATABASE).exists() && !path.join("lazaret.db-wal").exists() && !folder.audit_key().exists());
        assert_eq!(fs::read_to_string(path.join("notes.txt")).unwrap(), "mine");
    }

    #[test]
    fn a_folder_with_foreign_files_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(DATABASE), "production").unwrap();
        assert!(matches!(Folder::take(folder.path()), Err(DemoError::NotOurs(_))));
        assert_eq!(fs::read_to_string(folder.path().join(DATABASE)).unwrap(), "production");
    }

    #[test]
    fn two_demos_do_not_share_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let first = Folder::take(folder.path()).unwrap();
        assert!(matches!(Folder::take(folder.path()), Err(DemoError::Running(_))));
        drop(first);
        assert!(Folder::take(folder.path()).is_ok());
    }
}
