//! Opening the database for a command, and `lazaret migrate`.

use super::args::Place;
use super::terminal::Waiting;
use super::{Failure, environment, source};
use crate::app::audit_key::{self, AuditKeyError, KeySource};
use crate::config::{Config, Purpose};
use crate::store::{Store, StoreError};

/// The configuration that a command about the database needs.
pub fn config(place: &Place, purpose: Purpose) -> Result<Config, Failure> {
    let environment = environment()?;
    Ok(match source::file(place.config.as_deref()) {
        Some(file) => Config::load(file, environment, purpose)?,
        None => Config::from_text("", "environment", "".into(), environment, purpose)?,
    })
}

/// Connects for `user` and `token`. A SQLite file that is not there is refused: a new one, made in whatever folder this is, would be no
/// one's. One that is there is brought up to date; PostgreSQL may be in use by another version and is left as it is. With
/// [`Purpose::Trail`] the store can write to its trail.
pub async fn open(place: &Place, purpose: Purpose) -> Result<(Config, Store), Failure> {
    let config = config(place, purpose)?;
    if let Some(path) = config.database.sqlite_path().filter(|path| !path.exists()) {
        return Err(Failure::Usage(format!(
            "no database at {}: run this where serve runs, or give --config. `lazaret migrate` makes a new one here.",
            path.display()
        )));
    }
    let store = Store::connect(config.database.url.expose()).await.map_err(|error| failed(&config, &error))?;
    if config.database.sqlite_path().is_some() {
        store.migrate().await.map_err(|error| failed(&config, &error))?;
    }
    if purpose != Purpose::Trail {
        return Ok((config, store));
    }
    let store = audit_key::open(store, &KeySource::from(&config)).await.map_err(|error| match error {
        AuditKeyError::Store(error) => failed(&config, &error),
        error if error.is_configuration() => Failure::Usage(format!("{error}.")),
        error => Failure::Failed(format!("{error}.")),
    })?;
    Ok((config, store))
}

/// Brings the database up to this version.
pub async fn migrate(place: &Place) -> Result<(), Failure> {
    let config = config(place, Purpose::Database)?;
    let waiting = Waiting::start(&format!("Migrating {}", config.database.shown()));
    let outcome = async {
        let store = Store::connect(config.database.url.expose()).await?;
        let applied = store.migrate().await?;
        Ok::<_, StoreError>((store.version().await?, applied))
    }
    .await;
    waiting.end();
    let (version, applied) = outcome.map_err(|error| failed(&config, &error))?;
    let said = match applied {
        0 => "up to date, nothing to do".to_owned(),
        1 => "1 migration applied".to_owned(),
        n => format!("{n} migrations applied"),
    };
    say!("{} ({version}): {said}", config.database.shown());
    Ok(())
}

/// A database failure in words: which database, what happened, and the remedy.
pub fn failed(config: &Config, error: &StoreError) -> Failure {
    let said = error.to_string();
    let said = said.strip_prefix("database: ").unwrap_or(&said);
    match error {
        StoreError::Url(what) => Failure::Usage(format!("{}: {what}.", config.database.setting)),
        // These name their remedy.
        StoreError::InUse(_) | StoreError::Newer { .. } | StoreError::File { .. } => Failure::Failed(format!("{said}.")),
        _ => Failure::Failed(format!("{}: {said}. `lazaret check` says what is missing.", config.database.shown())),
    }
}
