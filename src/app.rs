//! The composition root: builds store, Kafka clients, services, jobs and router, and takes them down in order.

use crate::config::Database;
use crate::store::{Store, StoreError};

/// Why the program could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The folder of the SQLite file cannot be made.
    #[error("{}: the folder cannot be made: {reason}", path.display())]
    Folder { path: std::path::PathBuf, reason: std::io::Error },
}

/// Connects to the configured database; the folder of a SQLite file is made if it is missing.
pub async fn open_store(database: &Database) -> Result<Store, AppError> {
    make_folder(database)?;
    Ok(Store::connect(database.url.expose()).await?)
}

fn make_folder(database: &Database) -> Result<(), AppError> {
    let Some(file) = database.sqlite_path() else { return Ok(()) };
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => {
            std::fs::create_dir_all(folder).map_err(|reason| AppError::Folder { path: folder.to_owned(), reason })
        }
        _ => Ok(()),
    }
}
