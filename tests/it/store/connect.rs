//! Opening, migrating, locking, and what errors say.

use super::*;
use crate::on_both_stores;
use crate::support::{postgres_url, sqlite};
use lazaret::domain::audit::{Action, AuditKey, By, Event};
use lazaret::store::{StoreError, audit};

on_both_stores! {
    async fn migrations_run_once(store: Store) {
        assert_eq!(store.migrate().await.unwrap(), 0);
        store.ping().await.unwrap();
        let version = store.version().await.unwrap();
        let (name, number) = version.split_once(' ').unwrap();
        assert!(matches!((name, &store), ("SQLite", Store::Sqlite(_)) | ("PostgreSQL", Store::Postgres(_))), "{version}");
        assert!(number.split('.').count() >= 2 && number.split('.').all(|part| part.parse::<u32>().is_ok()), "{version}");
    }

    async fn a_transaction_counts_only_when_committed(store: Store) {
        let store = store.with_audit_key(AuditKey::new(vec![7; 32]).unwrap());
        let by = By { actor: "ana".to_owned(), request_id: None };
        let append = async |commit: bool| {
            let mut tx = store.begin().await.unwrap();
            let seq = audit::append(&mut tx, &Event::new(0, &by, Action::SignedIn, "user ana")).await.unwrap();
            if commit {
                tx.commit().await.unwrap();
            }
            seq
        };
        // The number of what was rolled back is given again.
        assert_eq!([append(false).await, append(true).await, append(true).await], [1, 1, 2]);
    }
}

#[tokio::test]
async fn sqlite_makes_its_folder_and_survives_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("a/b/lazaret.db").display());
    let store = Store::connect(&url).await.unwrap();
    assert!(store.migrate().await.unwrap() > 0);
    let mut feed = Feed::open(&store, "orders.DLQ", 0).await;
    feed.take_in(&store, vec![message(0, 0)]).await;
    drop(store);
    let store = Store::connect(&url).await.unwrap();
    assert_eq!(store.migrate().await.unwrap(), 0);
    assert_eq!(all(&store, &MessageFilter::default()).await.len(), 1);
}

#[tokio::test]
async fn a_second_serve_on_the_same_sqlite_file_is_refused_with_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lazaret.db");
    let url = format!("sqlite://{}", path.display());
    let first = Store::connect_exclusive(&url).await.unwrap();
    let refusal = Store::connect_exclusive(&url).await.unwrap_err();
    assert!(matches!(refusal, StoreError::InUse(_)));
    assert!(refusal.to_string().contains(&path.display().to_string()) && refusal.to_string().contains("stop it first"), "{refusal}");
    assert!(!refusal.is_transient());
    // Commands beside it (`lazaret user add`) go on.
    first.migrate().await.unwrap();
    Store::connect(&url).await.unwrap().ping().await.unwrap();
    let clone = first.clone();
    drop(first);
    assert!(Store::connect_exclusive(&url).await.is_err(), "a clone still holds it");
    drop(clone);
    Store::connect_exclusive(&url).await.unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn a_new_sqlite_database_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("a/b/lazaret.db");
    let store = Store::connect(&format!("sqlite://{}", file.display())).await.unwrap();
    store.migrate().await.unwrap();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for name in ["lazaret.db", "lazaret.db-wal", "lazaret.db-shm"] {
        assert_eq!(mode(&file.with_file_name(name)), 0o600, "{name}");
    }
    assert_eq!(mode(file.parent().unwrap()), 0o700);
}

#[cfg(unix)]
#[tokio::test]
async fn the_same_sqlite_file_by_another_name_is_refused_too() {
    let folder = tempfile::tempdir().unwrap();
    let url = |name: &str| format!("sqlite://{}", folder.path().join(name).display());
    drop(Store::connect(&url("lazaret.db")).await.unwrap());
    std::os::unix::fs::symlink("lazaret.db", folder.path().join("link.db")).unwrap();
    let _first = Store::connect_exclusive(&url("lazaret.db")).await.unwrap();
    assert!(matches!(Store::connect_exclusive(&url("link.db")).await, Err(StoreError::InUse(_))));
}

on_both_stores! {
    async fn a_database_of_a_newer_version_is_refused_with_a_sentence(store: Store) {
        let sql = "UPDATE _sqlx_migrations SET version = 9999 WHERE version = 1";
        match &store {
            Store::Postgres(database) => drop(sqlx::query(sql).execute(&database.pool).await.unwrap()),
            Store::Sqlite(database) => drop(sqlx::query(sql).execute(&database.writer).await.unwrap()),
        }
        for refusal in [store.migrate().await.unwrap_err(), store.missing_migrations().await.unwrap_err()] {
            assert!(matches!(refusal, StoreError::Newer { migration: 9999 }), "{refusal}");
            assert!(refusal.to_string().contains("newer Lazaret"), "{refusal}");
        }
    }
}

#[tokio::test]
#[ignore = "needs a real PostgreSQL: run tests/run"]
async fn instances_that_start_together_on_an_empty_database_all_start() {
    let url = postgres_url().await;
    let stores = futures_util::future::join_all((0..4).map(|_| Store::connect(&url))).await;
    let stores: Vec<Store> = stores.into_iter().map(Result::unwrap).collect();
    let applied = futures_util::future::join_all(stores.iter().map(Store::migrate)).await;
    let applied: Vec<usize> = applied.into_iter().map(Result::unwrap).collect();
    assert_eq!(applied.iter().filter(|count| **count > 0).count(), 1, "{applied:?}");
}

#[tokio::test]
async fn sqlite_readers_cannot_write() {
    let (store, _folder) = sqlite().await;
    let Store::Sqlite(database) = &store else { panic!("SQLite was asked for") };
    assert!(sqlx::query("DELETE FROM messages").execute(&database.readers).await.is_err());
    let (mode, sync, keys): (String, i64, i64) = (
        sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&database.writer).await.unwrap(),
        sqlx::query_scalar("PRAGMA synchronous").fetch_one(&database.writer).await.unwrap(),
        sqlx::query_scalar("PRAGMA foreign_keys").fetch_one(&database.writer).await.unwrap(),
    );
    assert_eq!((mode.as_str(), sync, keys), ("wal", 2, 1));
}

#[tokio::test]
async fn an_absent_server_is_transient_and_a_wrong_file_is_not() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let refused = Store::connect(&format!("postgres://u:hunter2@127.0.0.1:{port}/d")).await.unwrap_err();
    assert!(refused.is_transient(), "{refused:?}");
    assert!(!format!("{refused} {refused:?}").contains("hunter2"), "{refused:?}");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("not-a-database");
    std::fs::write(&path, [7; 4_096]).unwrap();
    let wrong = Store::connect(&format!("sqlite://{}", path.display())).await.unwrap_err();
    assert!(!wrong.is_transient(), "{wrong:?}");
    let no_folder = Store::connect(&format!("sqlite://{}/below/it.db", path.display())).await.unwrap_err();
    assert!(no_folder.to_string().contains("not-a-database"), "{no_folder}");
}

#[tokio::test]
async fn a_busy_sqlite_writer_is_transient() {
    let (store, folder) = sqlite().await;
    let _held = store.begin().await.unwrap();
    // Another process, as SQLite sees it, that will not wait.
    let url = format!("sqlite://{}", folder.path().join("test.db").display());
    let options: sqlx::sqlite::SqliteConnectOptions = url.parse().unwrap();
    let mut other = sqlx::ConnectOptions::connect(&options.busy_timeout(std::time::Duration::ZERO)).await.unwrap();
    let busy = sqlx::query("DELETE FROM messages").execute(&mut other).await.unwrap_err();
    assert!(StoreError::from(busy).is_transient());
}

/// What is wrong with the rows is told from what is wrong with the place: intake gives up a record's reading only for the first.
#[tokio::test]
async fn a_full_sqlite_disk_says_nothing_against_the_rows() {
    let (store, _folder) = sqlite().await;
    let Store::Sqlite(database) = &store else { panic!("SQLite was asked for") };
    let fails = async |sql: &'static str| StoreError::from(sqlx::query(sql).execute(&database.writer).await.unwrap_err());
    assert!(fails("INSERT INTO leases (name, holder, epoch, renewal) VALUES ('a', 'b', 1, NULL)").await.refuses_the_data());
    assert!(fails("INSERT INTO leases (name, holder, epoch, renewal) VALUES ('a', 'b', 1, 'x')").await.refuses_the_data());
    assert!(!fails("SELECT * FROM no_such_table").await.refuses_the_data());
    sqlx::query("PRAGMA max_page_count = 1").execute(&database.writer).await.unwrap();
    let full = fails("INSERT INTO bodies (message_id, value, headers) VALUES (1, zeroblob(10000000), x'')").await;
    assert!(!full.refuses_the_data() && full.to_string().contains("full"), "{full}");
}

#[tokio::test]
#[ignore = "needs a real PostgreSQL: run tests/run"]
async fn postgres_errors_are_judged_by_their_state() {
    let url = postgres_url().await;
    let (head, tail) = url.rsplit_once('@').unwrap();
    let (scheme_and_user, _) = head.rsplit_once(':').unwrap();
    let refused = Store::connect(&format!("{scheme_and_user}:hunter2@{tail}")).await.unwrap_err();
    assert!(!refused.is_transient(), "{refused:?}");
    assert!(!format!("{refused} {refused:?}").contains("hunter2"));
    let store = Store::connect(&url).await.unwrap();
    let Store::Postgres(database) = &store else { panic!("PostgreSQL was asked for") };
    let fails = async |sql: &'static str| StoreError::from(sqlx::query(sql).execute(&database.pool).await.unwrap_err());
    assert!(!fails("SELECT 1 / 0").await.is_transient());
    assert!(!fails("SELECT * FROM messages").await.is_transient());
    assert!(fails("SELECT 1 / 0").await.refuses_the_data() && fails("SELECT 'x'::int").await.refuses_the_data());
    for elsewhere in ["SELECT * FROM messages", "BEGIN READ ONLY; CREATE TABLE t ()", "SELECT pg_terminate_backend(pg_backend_pid())"] {
        assert!(!fails(elsewhere).await.refuses_the_data(), "{elsewhere}");
    }
    assert!(fails("SELECT pg_terminate_backend(pg_backend_pid())").await.is_transient());
    store.ping().await.unwrap();
    let limits = sqlx::query_scalar::<_, String>("SHOW statement_timeout").fetch_one(&database.pool).await.unwrap();
    assert_eq!(limits, "30s");
}
