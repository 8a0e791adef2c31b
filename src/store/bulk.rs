//! The fast paths of intake: binary `COPY` on PostgreSQL, multi-row `INSERT` on SQLite.
//!
//! Both walk the same columns in the same order ([`message_columns`], [`body_columns`]) into a [`Sink`] of their own.

use sqlx::Arguments as _;
use sqlx::sqlite::SqliteArguments;

use super::StoreError;
use super::positions::PartitionId;
use super::sql_pieces::text;
use crate::domain::message::{MessageState, NewMessage};
use crate::domain::record::{pack_headers, short_hash};

/// A message on its way into the table.
pub(super) struct NewRow<'a> {
    pub id: i64,
    pub partition: PartitionId,
    pub group_id: i64,
    /// 0, unless another record had this offset before the log was truncated.
    pub rewrite: i32,
    pub message: &'a NewMessage,
}

/// The state every message begins in.
pub(super) const FIRST_STATE: MessageState = MessageState::Quarantined;

/// Takes the values of a row one by one.
trait Sink {
    fn long(&mut self, value: Option<i64>) -> Result<(), StoreError>;
    fn int(&mut self, value: Option<i32>) -> Result<(), StoreError>;
    fn flag(&mut self, value: bool) -> Result<(), StoreError>;
    fn text(&mut self, value: Option<&str>) -> Result<(), StoreError>;
    fn bytes(&mut self, value: Option<&[u8]>) -> Result<(), StoreError>;
}

macro_rules! message_columns {
    () => {
        "id, dlq_id, group_id, record_offset, dead_lettered_at_ms, first_seen_at_ms, size, record_at_ms, origin_at_ms, origin_offset, attempts, \
         key_hash, business_hash, incarnation, partition, rewrite, lap, origin_partition, timestamp_suspect, state, class, dialect, class_reason, \
         body_hash, record_key, business_key, tenant, exception_class, exception_message, origin_topic, consumer_group"
    };
}
const MESSAGE_COLUMNS: i16 = 31;

fn message_columns(row: &NewRow<'_>, sink: &mut impl Sink) -> Result<(), StoreError> {
    let message = row.message;
    let record = &message.record;
    let origin = message.origin.as_ref();
    sink.long(Some(row.id))?;
    sink.long(Some(row.partition.dlq_id))?;
    sink.long(Some(row.group_id))?;
    sink.long(Some(record.offset))?;
    sink.long(Some(message.dead_lettered_at_ms))?;
    sink.long(Some(message.first_seen_at_ms))?;
    sink.long(Some(i64::try_from(record.size()).unwrap_or(i64::MAX)))?;
    sink.long(message.record_at_ms)?;
    sink.long(origin.and_then(|origin| origin.timestamp_ms))?;
    sink.long(origin.and_then(|origin| origin.offset))?;
    sink.long(message.attempts)?;
    sink.long(record.key.as_deref().filter(|_| !message.key_masked).map(short_hash))?;
    sink.long(message.business_key.as_deref().map(|key| short_hash(text(key).as_bytes())))?;
    sink.int(Some(row.partition.incarnation))?;
    sink.int(Some(row.partition.partition))?;
    sink.int(Some(row.rewrite))?;
    sink.int(Some(message.lap))?;
    sink.int(origin.and_then(|origin| origin.partition))?;
    sink.flag(message.timestamp_suspect)?;
    sink.text(Some(FIRST_STATE.as_str()))?;
    sink.text(Some(message.class.as_str()))?;
    sink.text(Some(&message.dialect))?;
    sink.text(Some(&message.class_reason))?;
    sink.bytes(Some(&message.body_hash))?;
    sink.bytes(record.key.as_deref())?;
    sink.text(message.business_key.as_deref())?;
    sink.text(message.tenant.as_deref())?;
    sink.text(message.exception_class.as_deref())?;
    sink.text(message.exception_message.as_deref())?;
    sink.text(origin.and_then(|origin| origin.topic.as_deref()))?;
    sink.text(message.consumer_group.as_deref())
}

const BODY_COLUMNS: i16 = 3;

fn body_columns(row: &NewRow<'_>, sink: &mut impl Sink) -> Result<(), StoreError> {
    sink.long(Some(row.id))?;
    sink.bytes(row.message.record.value.as_deref())?;
    sink.bytes(Some(&pack_headers(&row.message.record.headers)))
}

/// Puts the rows into `messages` and `bodies`, within the caller's transaction.
pub(super) trait Bulk: sqlx::Database {
    fn insert(connection: &mut Self::Connection, rows: &[NewRow<'_>]) -> impl Future<Output = Result<(), StoreError>> + Send;
}

impl Bulk for sqlx::Postgres {
    async fn insert(connection: &mut sqlx::PgConnection, rows: &[NewRow<'_>]) -> Result<(), StoreError> {
        const MESSAGES: &str = concat!("COPY messages (", message_columns!(), ") FROM STDIN (FORMAT binary)");
        const BODIES: &str = "COPY bodies (message_id, value, headers) FROM STDIN (FORMAT binary)";
        copy(connection, MESSAGES, MESSAGE_COLUMNS, rows, message_columns).await?;
        copy(connection, BODIES, BODY_COLUMNS, rows, body_columns).await
    }
}

/// The start of a binary COPY: signature, no flags, no extension (PostgreSQL manual, COPY, "Binary Format").
const COPY_HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
const COPY_TRAILER: i16 = -1;
/// How much is gathered before it goes to the socket.
const COPY_CHUNK: usize = 256 * 1024;

async fn copy(
    connection: &mut sqlx::PgConnection,
    statement: &'static str,
    columns: i16,
    rows: &[NewRow<'_>],
    fill: impl Fn(&NewRow<'_>, &mut CopyRows) -> Result<(), StoreError> + Send,
) -> Result<(), StoreError> {
    let mut buffer = CopyRows(Vec::with_capacity(COPY_CHUNK + COPY_CHUNK / 4));
    buffer.0.extend_from_slice(COPY_HEADER);
    let mut copy = connection.copy_in_raw(statement).await?;
    for row in rows {
        buffer.0.extend_from_slice(&columns.to_be_bytes());
        if let Err(error) = fill(row, &mut buffer) {
            copy.abort("a row could not be encoded").await?;
            return Err(error);
        }
        if buffer.0.len() >= COPY_CHUNK {
            copy.send(buffer.0.as_slice()).await?;
            buffer.0.clear();
        }
    }
    buffer.0.extend_from_slice(&COPY_TRAILER.to_be_bytes());
    copy.send(buffer.0.as_slice()).await?;
    copy.finish().await?;
    Ok(())
}

/// Rows in PostgreSQL's binary COPY format.
struct CopyRows(Vec<u8>);

impl CopyRows {
    fn field(&mut self, bytes: Option<&[u8]>) -> Result<(), StoreError> {
        match bytes {
            None => self.0.extend_from_slice(&(-1_i32).to_be_bytes()),
            Some(bytes) => {
                let length = i32::try_from(bytes.len()).map_err(|_| StoreError::TooLarge(bytes.len()))?;
                self.0.extend_from_slice(&length.to_be_bytes());
                self.0.extend_from_slice(bytes);
            }
        }
        Ok(())
    }
}

impl Sink for CopyRows {
    fn long(&mut self, value: Option<i64>) -> Result<(), StoreError> {
        self.field(value.map(i64::to_be_bytes).as_ref().map(<[u8; 8]>::as_slice))
    }
    fn int(&mut self, value: Option<i32>) -> Result<(), StoreError> {
        self.field(value.map(i32::to_be_bytes).as_ref().map(<[u8; 4]>::as_slice))
    }
    fn flag(&mut self, value: bool) -> Result<(), StoreError> {
        self.field(Some(&[u8::from(value)]))
    }
    fn text(&mut self, value: Option<&str>) -> Result<(), StoreError> {
        self.field(value.map(text).as_deref().map(str::as_bytes))
    }
    fn bytes(&mut self, value: Option<&[u8]>) -> Result<(), StoreError> {
        self.field(value)
    }
}

/// `VALUES` of 64, 8 and 1 rows: one row per statement costs twelve times more.
macro_rules! insert_many {
    ($into:expr, $row:expr) => {
        [
            (64, concat!("INSERT INTO ", $into, " VALUES ", insert_many!(@8 concat!(insert_many!(@8 $row))))),
            (8, concat!("INSERT INTO ", $into, " VALUES ", insert_many!(@8 $row))),
            (1, concat!("INSERT INTO ", $into, " VALUES ", $row)),
        ]
    };
    (@8 $row:expr) => { concat!($row, ",", $row, ",", $row, ",", $row, ",", $row, ",", $row, ",", $row, ",", $row) };
}

type InsertMany = [(usize, &'static str); 3];

const INSERT_MESSAGES: InsertMany =
    insert_many!(concat!("messages (", message_columns!(), ")"), "(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
const INSERT_BODIES: InsertMany = insert_many!("bodies (message_id, value, headers)", "(?,?,?)");

impl Bulk for sqlx::Sqlite {
    async fn insert(connection: &mut sqlx::SqliteConnection, rows: &[NewRow<'_>]) -> Result<(), StoreError> {
        insert_many(connection, INSERT_MESSAGES, rows, message_columns).await?;
        insert_many(connection, INSERT_BODIES, rows, body_columns).await
    }
}

async fn insert_many(
    connection: &mut sqlx::SqliteConnection,
    statements: InsertMany,
    mut rows: &[NewRow<'_>],
    fill: impl Fn(&NewRow<'_>, &mut BindRows) -> Result<(), StoreError> + Send,
) -> Result<(), StoreError> {
    for (size, statement) in statements {
        while let Some((now, later)) = rows.split_at_checked(size) {
            let mut values = BindRows(SqliteArguments::default());
            for row in now {
                fill(row, &mut values)?;
            }
            sqlx::query_with(statement, values.0).execute(&mut *connection).await?;
            rows = later;
        }
    }
    Ok(())
}

/// Rows as the arguments of one multi-row statement.
struct BindRows(SqliteArguments);

impl BindRows {
    fn add<'v, T: sqlx::Encode<'v, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>>(&mut self, value: T) -> Result<(), StoreError> {
        self.0.add(value).map_err(|error| StoreError::Database(sqlx::Error::Encode(error)))
    }
}

impl Sink for BindRows {
    fn long(&mut self, value: Option<i64>) -> Result<(), StoreError> {
        self.add(value)
    }
    fn int(&mut self, value: Option<i32>) -> Result<(), StoreError> {
        self.add(value)
    }
    fn flag(&mut self, value: bool) -> Result<(), StoreError> {
        self.add(value)
    }
    fn text(&mut self, value: Option<&str>) -> Result<(), StoreError> {
        self.add(value.map(text))
    }
    fn bytes(&mut self, value: Option<&[u8]>) -> Result<(), StoreError> {
        self.add(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_multi_row_statements_have_a_placeholder_for_each_value() {
        for (statements, columns) in [(INSERT_MESSAGES, MESSAGE_COLUMNS), (INSERT_BODIES, BODY_COLUMNS)] {
            for (rows, statement) in statements {
                assert_eq!(statement.matches('?').count(), rows * columns as usize, "{statement}");
            }
        }
        assert_eq!(message_columns!().split(',').count(), MESSAGE_COLUMNS as usize);
    }
}
