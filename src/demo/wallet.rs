//! The shop's wallet: a consumer that debits, and that notes in the same transaction what it has debited.
//!
//! A hot tier in memory makes duplicates cheap; the marker row beside the debit makes them impossible. The table of markers is the ledger
//! that a replay's check asks, so what the demo says of the outage comes from here and from no script.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use serde::Deserialize;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use tokio_util::sync::CancellationToken;

use super::pipelines::{self, Failure, PARTITIONS};
use super::{Broker, DemoError};
use crate::domain::clock::Clock;
use crate::domain::record::{Header, Record};

/// Its consumer group.
pub const GROUP: &str = "wallet";
/// The topic it reads.
pub const TOPIC: &str = "payments.initiated";
/// What the ledger is asked: which of these payments have a marker. `$1` is a JSON list (SQLite).
pub const LEDGER_QUERY: &str = "SELECT event_id FROM wallet_processed_events WHERE event_id IN (SELECT value FROM json_each($1))";

const TABLES: &str = "CREATE TABLE accounts (holder TEXT PRIMARY KEY, balance_cents INTEGER NOT NULL CHECK (balance_cents >= 0)) STRICT;
    CREATE TABLE wallet_processed_events (event_id TEXT PRIMARY KEY, processed_at_ms INTEGER NOT NULL) STRICT";
/// What every customer of the shop begins with.
const OPENING_BALANCE_CENTS: i64 = 10_000_000;
/// How long one poll waits, and so how soon the consumer notices that it is to end.
const POLL: Duration = Duration::from_millis(100);

/// The state of the wallet's database, a switch of the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Database {
    Up,
    /// Refuses connections.
    Down,
    /// Commits, and answers when nobody waits any more: the consumer takes for failed what was done.
    AnswersTooLate,
}

/// What the wallet made of a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handled {
    Debited,
    /// It was debited before: nothing was done.
    Duplicate,
    /// Nothing was done, as far as the consumer knows: to be dead-lettered.
    Failed(Trouble),
}

/// Why the wallet gave up on a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    Unavailable,
    Unreadable,
    InsufficientFunds,
}

impl Trouble {
    /// How its framework words it.
    pub(super) fn failure(self) -> &'static Failure {
        match self {
            Trouble::Unavailable => &pipelines::OUTAGE,
            Trouble::Unreadable => &pipelines::UNREADABLE,
            Trouble::InsufficientFunds => &pipelines::INSUFFICIENT_FUNDS,
        }
    }
}

/// A payment as the wallet reads it, since the migration to cents.
#[derive(Deserialize)]
struct Payment {
    payment_id: String,
    user: String,
    amount_cents: i64,
}

/// The wallet, its database open.
pub struct Wallet {
    database: sqlx::SqlitePool,
    /// Payments that this process has debited. It may forget; the markers do not.
    hot: Mutex<HashSet<String>>,
}

impl Wallet {
    /// A new database in this file, which must not exist.
    ///
    /// # Errors
    /// The file cannot be made.
    pub async fn create(file: &Path) -> Result<Wallet, DemoError> {
        let options = SqliteConnectOptions::new().filename(file).create_if_missing(true).journal_mode(SqliteJournalMode::Wal);
        let database = SqlitePoolOptions::new().max_connections(1).connect_with(options).await.map_err(DemoError::Wallet)?;
        sqlx::raw_sql(TABLES).execute(&database).await.map_err(DemoError::Wallet)?;
        Ok(Wallet { database, hot: Mutex::default() })
    }

    /// Debits a payment, or says why not. Its value is read only once a connection is there, as the wallet's listener does it.
    ///
    /// # Errors
    /// The database itself is broken, not in a way the demo plays.
    pub async fn handle(&self, value: &[u8], now_ms: i64, state: Database) -> Result<Handled, DemoError> {
        if state == Database::Down {
            return Ok(Handled::Failed(Trouble::Unavailable));
        }
        let Ok(payment) = serde_json::from_slice::<Payment>(value) else { return Ok(Handled::Failed(Trouble::Unreadable)) };
        if self.hot().contains(&payment.payment_id) {
            return Ok(Handled::Duplicate);
        }
        let handled = self.debit(&payment, now_ms).await.map_err(DemoError::Wallet)?;
        if state == Database::AnswersTooLate {
            return Ok(Handled::Failed(Trouble::Unavailable));
        }
        if handled != Handled::Failed(Trouble::InsufficientFunds) {
            self.hot().insert(payment.payment_id);
        }
        Ok(handled)
    }

    /// Marker and debit in one transaction. Where the money does not suffice both are rolled back.
    async fn debit(&self, payment: &Payment, now_ms: i64) -> Result<Handled, sqlx::Error> {
        const MARK: &str =
            "INSERT INTO wallet_processed_events (event_id, processed_at_ms) VALUES ($1, $2) ON CONFLICT (event_id) DO NOTHING";
        const OPEN: &str = "INSERT INTO accounts (holder, balance_cents) VALUES ($1, $2) ON CONFLICT (holder) DO NOTHING";
        const DEBIT: &str = "UPDATE accounts SET balance_cents = balance_cents - $2 WHERE holder = $1 AND balance_cents >= $2";
        let mut tx = self.database.begin_with("BEGIN IMMEDIATE").await?;
        if sqlx::query(MARK).bind(&payment.payment_id).bind(now_ms).execute(&mut *tx).await?.rows_affected() == 0 {
            return Ok(Handled::Duplicate);
        }
        sqlx::query(OPEN).bind(&payment.user).bind(OPENING_BALANCE_CENTS).execute(&mut *tx).await?;
        if sqlx::query(DEBIT).bind(&payment.user).bind(payment.amount_cents).execute(&mut *tx).await?.rows_affected() == 0 {
            return Ok(Handled::Failed(Trouble::InsufficientFunds));
        }
        tx.commit().await?;
        Ok(Handled::Debited)
    }

    /// How many payments were debited, and what all of them came to in cents.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn debits(&self) -> Result<(i64, i64), DemoError> {
        const SQL: &str =
            "SELECT (SELECT COUNT(*) FROM wallet_processed_events), (SELECT COALESCE(SUM($1 - balance_cents), 0) FROM accounts)";
        sqlx::query_as(SQL).bind(OPENING_BALANCE_CENTS).fetch_one(&self.database).await.map_err(DemoError::Wallet)
    }

    fn hot(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.hot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads its topic until it is told to stop: debits, skips, or dead-letters, and commits after that. `from` is where each partition starts.
    ///
    /// # Errors
    /// Its broker or its database is not there any more.
    pub async fn run(&self, broker: &Broker, from: &[i64], clock: Clock, stop: CancellationToken) -> Result<(), DemoError> {
        let consumer = consumer(broker.bootstrap_servers(), from)?;
        while !stop.is_cancelled() {
            // What a poll waits for is waited for here: the poll itself would block the thread.
            let Some(message) = consumer.poll(Duration::ZERO) else {
                tokio::select! {
                    () = stop.cancelled() => break,
                    () = tokio::time::sleep(POLL) => continue,
                }
            };
            let message = message.map_err(DemoError::Broker)?;
            let record = copied(&message);
            let now_ms = clock.now_ms();
            let value = record.value.as_deref().unwrap_or_default();
            if let Handled::Failed(trouble) = self.handle(value, now_ms, Database::Up).await? {
                broker.produce(&[super::scenario::dead_letter_of(&record, trouble.failure(), now_ms)]).await?;
            }
            consumer.commit_message(&message, CommitMode::Async).map_err(DemoError::Broker)?;
        }
        Ok(())
    }
}

/// A consumer of all partitions in the wallet's group. Assigned by hand: there is one of it, and a rebalance would take seconds.
fn consumer(bootstrap_servers: &str, from: &[i64]) -> Result<BaseConsumer, DemoError> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap_servers)
        .set("group.id", GROUP)
        .set("enable.auto.commit", "false")
        .set("allow.auto.create.topics", "false")
        .set("auto.offset.reset", "earliest")
        .create()
        .map_err(DemoError::Broker)?;
    let mut partitions = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        let next = usize::try_from(partition).ok().and_then(|index| from.get(index)).copied().unwrap_or(0);
        partitions.add_partition_offset(TOPIC, partition, Offset::Offset(next)).map_err(DemoError::Broker)?;
    }
    consumer.assign(&partitions).map_err(DemoError::Broker)?;
    Ok(consumer)
}

fn copied(message: &BorrowedMessage<'_>) -> Record {
    let headers = message.headers().map(|headers| {
        headers.iter().map(|header| Header { name: header.key.as_bytes().to_vec(), value: header.value.map(<[u8]>::to_vec) }).collect()
    });
    Record {
        topic: message.topic().to_owned(),
        partition: message.partition(),
        offset: message.offset(),
        timestamp_ms: message.timestamp().to_millis(),
        key: message.key().map(<[u8]>::to_vec),
        value: message.payload().map(<[u8]>::to_vec),
        headers: headers.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn wallet() -> (Wallet, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        (Wallet::create(&folder.path().join("wallet.db")).await.unwrap(), folder)
    }

    fn payment(id: &str, cents: i64) -> Vec<u8> {
        format!(r#"{{"payment_id":"{id}","user":"ana","amount_cents":{cents}}}"#).into_bytes()
    }

    #[tokio::test]
    async fn a_payment_is_debited_once_whatever_the_consumer_was_told() {
        let (wallet, _folder) = wallet().await;
        let value = payment("p1", 250);
        assert_eq!(wallet.handle(&value, 1, Database::Down).await.unwrap(), Handled::Failed(Trouble::Unavailable));
        assert_eq!(wallet.debits().await.unwrap(), (0, 0));
        assert_eq!(wallet.handle(&value, 1, Database::AnswersTooLate).await.unwrap(), Handled::Failed(Trouble::Unavailable));
        assert_eq!(wallet.debits().await.unwrap(), (1, 250), "done, though nobody heard of it");
        assert!(wallet.hot().is_empty(), "the hot tier did not hear of it either");
        assert_eq!(wallet.handle(&value, 2, Database::Up).await.unwrap(), Handled::Duplicate, "the marker knows");
        assert_eq!(wallet.handle(&payment("p2", 50), 3, Database::Up).await.unwrap(), Handled::Debited);
        assert_eq!(wallet.handle(&payment("p2", 50), 4, Database::Up).await.unwrap(), Handled::Duplicate);
        assert_eq!(wallet.debits().await.unwrap(), (2, 300));
    }

    #[tokio::test]
    async fn without_the_money_nothing_is_debited_and_nothing_marked() {
        let (wallet, _folder) = wallet().await;
        let value = payment("p1", OPENING_BALANCE_CENTS + 1);
        assert_eq!(wallet.handle(&value, 1, Database::Up).await.unwrap(), Handled::Failed(Trouble::InsufficientFunds));
        assert_eq!(wallet.debits().await.unwrap(), (0, 0));
        let old = br#"{"payment_id":"p2","user":"ana","amount":"2.50"}"#;
        assert_eq!(wallet.handle(old, 1, Database::Up).await.unwrap(), Handled::Failed(Trouble::Unreadable));
    }
}
