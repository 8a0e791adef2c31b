//! One body for both databases: three small macros that expand it once for each.
//!
//! Inside the body `Db` names sqlx's database type, and through [`super::sql_pieces::Dialect`] the few texts that differ.
//! Each expansion runs under [`within`], so that a database that stopped answering becomes an error and not a hang.

use std::future::Future;
use std::time::Duration;

use super::StoreError;

/// How long any one call may take. PostgreSQL itself gives up on a statement and on a lock earlier (`store/connect.rs`); this limit is for a server,
/// or a network, that does not answer at all. A call that is cut off may still have been committed: every write
/// here is safe to repeat or is guarded by a compare-and-set.
pub(super) const CALL_LIMIT: Duration = Duration::from_secs(40);

/// Runs a store call under [`CALL_LIMIT`].
pub(super) async fn within<T>(call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    match tokio::time::timeout(CALL_LIMIT, call).await {
        Ok(result) => result,
        Err(_) => Err(StoreError::Stalled(CALL_LIMIT)),
    }
}

/// `read!(store, |pool| { .. })`: the body's value, read through the readers' pool. `?` inside gives a [`StoreError`].
macro_rules! read {
    ($store:expr, |$pool:ident| $body:block) => {
        match $store {
            $crate::store::Store::Postgres(database) => {
                #[allow(dead_code)]
                type Db = sqlx::Postgres;
                let $pool = &database.pool;
                $crate::store::either::within(async { Ok($body) }).await
            }
            $crate::store::Store::Sqlite(database) => {
                #[allow(dead_code)]
                type Db = sqlx::Sqlite;
                let $pool = &database.readers;
                $crate::store::either::within(async { Ok($body) }).await
            }
        }
    };
}

/// `write_one!(store, |pool| { .. })`: like `read!`, for one statement that writes and commits by itself, on the writer's pool.
macro_rules! write_one {
    ($store:expr, |$pool:ident| $body:block) => {
        match $store {
            $crate::store::Store::Postgres(database) => {
                #[allow(dead_code)]
                type Db = sqlx::Postgres;
                let $pool = &database.pool;
                $crate::store::either::within(async { Ok($body) }).await
            }
            $crate::store::Store::Sqlite(database) => {
                #[allow(dead_code)]
                type Db = sqlx::Sqlite;
                let $pool = &database.writer;
                $crate::store::either::within(async { Ok($body) }).await
            }
        }
    };
}

/// `transaction!(store, |tx| { .. })`: commits when the body ends, rolls back when it fails. `tx` is a connection (`&mut`); pass it as `&mut *tx`.
/// On SQLite it is `BEGIN IMMEDIATE` on the one writer.
macro_rules! transaction {
    ($store:expr, |$tx:ident| $body:block) => {
        match $store {
            $crate::store::Store::Postgres(database) => {
                #[allow(dead_code)]
                type Db = sqlx::Postgres;
                $crate::store::either::within(async {
                    let mut transaction = database.pool.begin().await?;
                    let $tx: &mut sqlx::PgConnection = &mut transaction;
                    let value = $body;
                    transaction.commit().await?;
                    Ok(value)
                })
                .await
            }
            $crate::store::Store::Sqlite(database) => {
                #[allow(dead_code)]
                type Db = sqlx::Sqlite;
                $crate::store::either::within(async {
                    let mut transaction = database.writer.begin_with($crate::store::sql_pieces::BEGIN_IMMEDIATE).await?;
                    let $tx: &mut sqlx::SqliteConnection = &mut transaction;
                    let value = $body;
                    transaction.commit().await?;
                    Ok(value)
                })
                .await
            }
        }
    };
}

/// `in_tx!(tx, |connection| { .. })`: statements in an open [`super::Tx`] (`&mut`). `connection` is a `&mut`; pass it as `&mut *connection`.
macro_rules! in_tx {
    ($tx:expr, |$connection:ident| $body:block) => {
        match &mut $tx.open {
            $crate::store::OpenTx::Postgres(tx) => {
                #[allow(dead_code)]
                type Db = sqlx::Postgres;
                $crate::store::either::within(async {
                    let $connection: &mut sqlx::PgConnection = &mut *tx;
                    Ok($body)
                })
                .await
            }
            $crate::store::OpenTx::Sqlite(tx) => {
                #[allow(dead_code)]
                type Db = sqlx::Sqlite;
                $crate::store::either::within(async {
                    let $connection: &mut sqlx::SqliteConnection = &mut *tx;
                    Ok($body)
                })
                .await
            }
        }
    };
}
