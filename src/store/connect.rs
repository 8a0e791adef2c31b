//! Opening and migrating a database.

use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use sqlx::ConnectOptions as _;
use sqlx::migrate::{Migrate, MigrateError, Migrator};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

use super::notify::Hints;
use super::{PostgresStore, SqliteStore, Store, StoreError, sql_pieces};

static POSTGRES_MIGRATIONS: Migrator = sqlx::migrate!("migrations/postgres");
static SQLITE_MIGRATIONS: Migrator = sqlx::migrate!("migrations/sqlite");

/// How long a call waits for a free connection, or for a new one.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long SQLite waits for another process's write.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
const POSTGRES_CONNECTIONS: u32 = 10;
const SQLITE_READERS: u32 = 4;

impl Store {
    /// Opens `sqlite://path` (made when missing, WAL) or `postgres://..`. Does not migrate. Never shows the URL's password in an error.
    pub async fn connect(url: &str) -> Result<Store, StoreError> {
        match Target::parse(url)? {
            Target::Postgres(options) => postgres(*options).await,
            Target::Sqlite(options) => sqlite(*options, None).await,
        }
    }

    /// A SQLite database held exclusively for one `serve`: a second process gets [`StoreError::InUse`] with a sentence. Postgres: same as connect.
    pub async fn connect_exclusive(url: &str) -> Result<Store, StoreError> {
        match Target::parse(url)? {
            Target::Postgres(options) => postgres(*options).await,
            Target::Sqlite(options) => {
                let lock = lock(options.get_filename())?;
                sqlite(*options, Some(Arc::new(lock))).await
            }
        }
    }

    /// Applies the migrations that are missing. Returns how many were applied. Concurrent calls wait for each other.
    ///
    /// # Errors
    /// [`StoreError::Newer`]: the database holds migrations that this version does not know. Nothing was changed.
    pub async fn migrate(&self) -> Result<usize, StoreError> {
        match self {
            Store::Postgres(database) => {
                // Under no time limit, on a connection of its own: building an index on a large table takes what it takes.
                let mut connection = database.pool.connect_options().connect().await?;
                // The lock before all else: of two instances that both make the table of migrations, PostgreSQL fails one.
                // It goes with the connection.
                connection.lock().await?;
                let applied = run(&POSTGRES_MIGRATIONS, &mut connection).await?;
                sqlx::Connection::close(connection).await?;
                Ok(applied)
            }
            Store::Sqlite(database) => {
                let mut connection = database.writer.acquire().await?;
                run(&SQLITE_MIGRATIONS, &mut *connection).await
            }
        }
    }
}

impl Store {
    /// How many migrations are not applied yet. Changes nothing: a database that never was migrated lacks all of them.
    ///
    /// # Errors
    /// As [`Store::migrate`].
    pub async fn missing_migrations(&self) -> Result<usize, StoreError> {
        match self {
            Store::Postgres(database) => {
                let mut connection = database.pool.acquire().await?;
                let migrated = sqlx::query_scalar("SELECT to_regclass('_sqlx_migrations') IS NOT NULL").fetch_one(&mut *connection).await?;
                missing(&POSTGRES_MIGRATIONS, &mut *connection, migrated).await
            }
            Store::Sqlite(database) => {
                let mut connection = database.readers.acquire().await?;
                let migrated = sqlx::query_scalar("SELECT COUNT(*) > 0 FROM sqlite_master WHERE name = '_sqlx_migrations'");
                let migrated = migrated.fetch_one(&mut *connection).await?;
                missing(&SQLITE_MIGRATIONS, &mut *connection, migrated).await
            }
        }
    }
}

/// The table in which sqlx notes what was applied.
const APPLIED: &str = "_sqlx_migrations";

/// Applies what is missing; returns how many.
async fn run(migrations: &Migrator, connection: &mut impl Migrate) -> Result<usize, StoreError> {
    connection.ensure_migrations_table(APPLIED).await?;
    let before = connection.list_applied_migrations(APPLIED).await?.len();
    migrations.run_direct(None, connection, false).await.map_err(|error| match error {
        MigrateError::VersionMissing(migration) => StoreError::Newer { migration },
        error => error.into(),
    })?;
    Ok(connection.list_applied_migrations(APPLIED).await?.len() - before)
}

async fn missing(migrations: &Migrator, connection: &mut impl Migrate, migrated: bool) -> Result<usize, StoreError> {
    let applied = if migrated { connection.list_applied_migrations(APPLIED).await? } else { Vec::new() };
    match applied.iter().map(|applied| applied.version).find(|version| !migrations.version_exists(*version)) {
        Some(migration) => Err(StoreError::Newer { migration }),
        None => Ok(migrations.iter().count().saturating_sub(applied.len())),
    }
}

/// What may stand behind the `?` of a PostgreSQL URL. sqlx would ignore any other and write its value to the log, where a misspelt
/// `pasword=` does not belong.
const POSTGRES_PARAMETERS: [&str; 11] =
    ["sslmode", "sslrootcert", "sslcert", "sslkey", "host", "hostaddr", "port", "dbname", "user", "password", "options"];

/// The name of the first parameter that is not among them, without its value.
fn unknown_parameter(url: &str) -> Option<&str> {
    let query = url.split_once('?')?.1;
    let mut names = query.split('&').map(|pair| pair.split_once('=').map_or(pair, |(name, _)| name));
    names.find(|name| !name.is_empty() && !name.starts_with("options[") && !POSTGRES_PARAMETERS.contains(name))
}

/// A parsed `database.url`.
enum Target {
    Postgres(Box<PgConnectOptions>),
    Sqlite(Box<SqliteConnectOptions>),
}

impl Target {
    fn parse(url: &str) -> Result<Target, StoreError> {
        match url.split_once(':') {
            Some(("postgres" | "postgresql", rest)) => {
                if let Some(name) = unknown_parameter(rest) {
                    return Err(StoreError::Url(format!("the parameter {name:?} is not known: use {}", POSTGRES_PARAMETERS.join(", "))));
                }
                // The parser's own words may quote a part of the URL; ours do not.
                let options = PgConnectOptions::from_str(url).map_err(|_| {
                    StoreError::Url("not a usable address: write postgres://user:password@host:port/database, with %-escapes for : / @ ? # in user and password".into())
                })?;
                Ok(Target::Postgres(Box::new(options.application_name("lazaret").disable_statement_logging())))
            }
            Some(("sqlite", path)) => {
                let path = path.trim_start_matches("//");
                if path.is_empty() || path.starts_with(":memory:") || url.contains("mode=memory") {
                    return Err(StoreError::Url("SQLite needs a file, as in sqlite://lazaret-data/lazaret.db".into()));
                }
                let options = SqliteConnectOptions::from_str(url)
                    .map_err(|_| StoreError::Url("not a usable path: write sqlite://lazaret-data/lazaret.db".into()))?;
                Ok(Target::Sqlite(Box::new(options)))
            }
            _ => Err(StoreError::Url("use sqlite://path/to/file.db or postgres://user:password@host:port/database".into())),
        }
    }
}

async fn postgres(options: PgConnectOptions) -> Result<Store, StoreError> {
    // The pool retries a refused connection until it may say no more than "timed out"; one connection first gives the real reason.
    let first = tokio::time::timeout(ACQUIRE_TIMEOUT, options.connect()).await.map_err(|_| StoreError::Stalled(ACQUIRE_TIMEOUT))??;
    sqlx::Connection::close(first).await?;
    let pool = PgPoolOptions::new()
        .max_connections(POSTGRES_CONNECTIONS)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .after_connect(|connection, _| {
            Box::pin(async move {
                sqlx::query(sql_pieces::POSTGRES_SESSION).execute(connection).await?;
                Ok(())
            })
        })
        .after_release(|connection, _| Box::pin(answers(connection)))
        .connect_lazy_with(options);
    Ok(Store::Postgres(PostgresStore { pool, groups: Arc::default(), hints: Hints::default(), audit_key: None }))
}

/// Whether a connection that comes back still answers. Without this limit the pool would wait for one that never does, and keep its place taken.
async fn answers(connection: &mut sqlx::PgConnection) -> Result<bool, sqlx::Error> {
    match tokio::time::timeout(ACQUIRE_TIMEOUT, sqlx::Connection::ping(connection)).await {
        Ok(answer) => answer.map(|()| true),
        Err(_) => Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())),
    }
}

async fn sqlite(options: SqliteConnectOptions, lock: Option<Arc<std::fs::File>>) -> Result<Store, StoreError> {
    make_folder(options.get_filename())?;
    make_private(options.get_filename())?;
    let options = options
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .foreign_keys(true)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY_TIMEOUT)
        // 16 MiB of log between checkpoints: half the fsyncs of the default under load.
        .pragma("wal_autocheckpoint", "4000")
        .disable_statement_logging();
    let pool = || SqlitePoolOptions::new().acquire_timeout(ACQUIRE_TIMEOUT).idle_timeout(None).max_lifetime(None);
    // The writer first: it makes the file and switches it to WAL.
    let writer = pool().max_connections(1).connect_with(options.clone().pragma("cache_size", "-16000")).await?;
    let readers = pool().max_connections(SQLITE_READERS).connect_lazy_with(options.create_if_missing(false).pragma("query_only", "1"));
    Ok(Store::Sqlite(SqliteStore { readers, writer, groups: Arc::default(), hints: Hints::default(), audit_key: None, _lock: lock }))
}

fn make_folder(file: &Path) -> Result<(), StoreError> {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => {
            let mut builder = std::fs::DirBuilder::new();
            #[cfg(unix)]
            std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
            builder.recursive(true).create(folder).map_err(|source| at(folder, source))
        }
        _ => Ok(()),
    }
}

/// A new database is its owner's alone: it holds payloads and sessions. SQLite gives the files beside it the same mode. One that is there
/// already keeps the mode that somebody gave it.
fn make_private(database: &Path) -> Result<(), StoreError> {
    let mut options = std::fs::File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(database) {
        Err(source) if source.kind() != std::io::ErrorKind::AlreadyExists => Err(at(database, source)),
        _ => Ok(()),
    }
}

/// Takes the operating system's lock on `<database>.lock`.
fn lock(database: &Path) -> Result<std::fs::File, StoreError> {
    make_folder(database)?;
    // One file may be known by several names; SQLite follows links as well.
    let resolved = std::fs::canonicalize(database).unwrap_or_else(|_| database.to_owned());
    let mut path = resolved.into_os_string();
    path.push(".lock");
    let path = PathBuf::from(path);
    let file = std::fs::OpenOptions::new().create(true).write(true).truncate(false).open(&path).map_err(|source| at(&path, source))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(StoreError::InUse(format!(
            "another `lazaret serve` is using {}: stop it first, give this one a file of its own ([database] url), or use PostgreSQL, which several may share",
            database.display()
        ))),
        Err(std::fs::TryLockError::Error(source)) => Err(at(&path, source)),
    }
}

fn at(path: &Path, source: std::io::Error) -> StoreError {
    StoreError::File { path: path.display().to_string(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> String {
        match Target::parse(url) {
            Ok(_) => panic!("{url} was accepted"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn unusable_urls_say_what_is_usable_and_show_no_password() {
        assert!(refusal("mysql://u:hunter2@h/d").contains("postgres://"));
        assert!(refusal("").contains("sqlite://"));
        assert!(refusal("sqlite::memory:").contains("needs a file"));
        assert!(refusal("sqlite://").contains("needs a file"));
        for url in ["postgres://u:hunter2@h:notaport/d", "postgres://u:hunter2@h/d?sslmode=hunter2", "mysql://u:hunter2@h/d"] {
            assert!(!refusal(url).contains("hunter2"), "{url}");
        }
        let misspelt = refusal("postgres://h/d?sslmode=require&pasword=hunter2");
        assert!(misspelt.contains("\"pasword\"") && !misspelt.contains("hunter2"), "{misspelt}");
        assert!(Target::parse("postgres://h/d?sslmode=require&options[search_path]=a").is_ok());
    }
}
