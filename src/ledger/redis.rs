//! Redis as a ledger: its keys, and what decides whether an absent one proves anything.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisError, Value};
use tokio::sync::Mutex;

use super::{LedgerError, PATIENCE};
use crate::domain::settings::Secret;
use crate::domain::terms::RedisLedger;
pub use crate::domain::verdict::RedisFacts;
use crate::domain::verdict::TierAnswer;

/// The keys of one ledger. The connection is kept, and made anew when it broke.
pub struct Keys {
    settings: RedisLedger,
    kept: Mutex<Option<MultiplexedConnection>>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Keys {
    pub(super) fn new(settings: RedisLedger) -> Keys {
        Keys { settings, kept: Mutex::new(None) }
    }

    /// What Redis says of each key, in the order given, and of itself: all in one pipeline, so that no restart comes between a key's absence and the
    /// uptime that it is judged by.
    ///
    /// # Errors
    /// Nobody answers.
    pub async fn look_up(&self, keys: &[&str]) -> Result<(Vec<TierAnswer>, RedisFacts), LedgerError> {
        let mut pipeline = redis::Pipeline::with_capacity(keys.len() + 2);
        pipeline.ignore_errors();
        for key in keys {
            pipeline.cmd("GET").arg(self.name(key));
        }
        pipeline.cmd("INFO").arg("server").cmd("CONFIG").arg("GET").arg("maxmemory-policy");
        let mut values = self.ask(&pipeline).await?;
        if values.len() != keys.len() + 2 {
            return Err(LedgerError::Unreachable("Redis answered another number of keys than it was asked for".to_owned()));
        }
        let facts = facts(&values.split_off(keys.len()));
        let mut said: Vec<TierAnswer> = values.iter().map(|value| self.meaning(value)).collect();
        self.claims(keys, &mut said).await?;
        Ok((said, facts))
    }

    /// How old claims are, from how long they are kept on: `ttl_s` less what is left. Where less is left than a claim's lease, the consumer may have
    /// given the claim a life of its own, so its age is not known; the same without an expiry.
    async fn claims(&self, keys: &[&str], said: &mut [TierAnswer]) -> Result<(), LedgerError> {
        let claimed: Vec<usize> = (0..keys.len()).filter(|place| matches!(said[*place], TierAnswer::InProgress { .. })).collect();
        if claimed.is_empty() {
            return Ok(());
        }
        let mut pipeline = redis::Pipeline::with_capacity(claimed.len());
        pipeline.ignore_errors();
        for place in &claimed {
            pipeline.cmd("PTTL").arg(self.name(keys[*place]));
        }
        let left = self.ask(&pipeline).await?;
        for (place, left) in claimed.into_iter().zip(left) {
            let left_s = redis::from_redis_value::<i64>(left).ok().and_then(|ms| u64::try_from(ms / 1_000).ok());
            let whole = |left_s: &u64| *left_s > self.settings.claim_lease_s && *left_s <= self.settings.ttl_s;
            said[place] = TierAnswer::InProgress { age_s: left_s.filter(whole).map(|left_s| self.settings.ttl_s - left_s) };
        }
        Ok(())
    }

    fn name(&self, key: &str) -> String {
        self.settings.key.replace("{id}", key)
    }

    /// What a value means. One that stands in no list means nothing, unless existence alone means done.
    fn meaning(&self, value: &Value) -> TierAnswer {
        let settings = &self.settings;
        let text = match value {
            Value::Nil => return TierAnswer::Absent,
            Value::BulkString(bytes) => String::from_utf8_lossy(bytes),
            Value::SimpleString(text) => text.as_str().into(),
            Value::ServerError(error) => return TierAnswer::Unclear(format!("Redis: {}", error.code())),
            _ => return TierAnswer::Unclear("Redis: the key holds something else than a text".to_owned()),
        };
        let lists = [
            (&settings.in_progress, TierAnswer::InProgress { age_s: None }),
            (&settings.failed, TierAnswer::Failed),
            (&settings.partial, TierAnswer::Partial),
            (&settings.done, TierAnswer::Done),
        ];
        match lists.into_iter().find(|(values, _)| values.iter().any(|value| *value == text)) {
            Some((_, answer)) => answer,
            None if settings.done.is_empty() => TierAnswer::Done,
            None => TierAnswer::Unclear("Redis: the key's value is in none of done, in_progress, failed, partial".to_owned()),
        }
    }

    /// Sends a pipeline over the kept connection; once more over a new one if that broke. Only reads are ever sent.
    async fn ask(&self, pipeline: &redis::Pipeline) -> Result<Vec<Value>, LedgerError> {
        let kept = self.kept.lock().await.clone();
        if let Some(mut connection) = kept {
            match pipeline.query_async(&mut connection).await {
                Ok(values) => return Ok(values),
                Err(error) if error.is_timeout() => {
                    *self.kept.lock().await = None;
                    return Err(unreachable(&error, PATIENCE));
                }
                // It broke: the server restarted, or cut it off.
                Err(_) => *self.kept.lock().await = None,
            }
        }
        let mut connection = connect(&self.settings.url, PATIENCE).await?;
        let values = pipeline.query_async(&mut connection).await.map_err(|error| unreachable(&error, PATIENCE))?;
        *self.kept.lock().await = Some(connection);
        Ok(values)
    }
}

/// From the answers to INFO and CONFIG GET; an error to either is a Redis that will not say.
fn facts(answers: &[Value]) -> RedisFacts {
    let info: String = answers.first().cloned().and_then(|value| redis::from_redis_value(value).ok()).unwrap_or_default();
    let policy: Option<Vec<String>> = answers.get(1).cloned().and_then(|value| flat(value).ok());
    RedisFacts {
        version: field(&info, "redis_version").map(str::to_owned),
        uptime_s: field(&info, "uptime_in_seconds").and_then(|text| text.parse().ok()),
        eviction_policy: policy.and_then(|answer| answer.into_iter().nth(1)),
    }
}

fn flat(value: Value) -> Result<Vec<String>, redis::ParsingError> {
    redis::from_redis_value(value)
}

async fn connect(url: &Secret, timeout: Duration) -> Result<MultiplexedConnection, LedgerError> {
    let client = Client::open(url.expose()).map_err(|_| LedgerError::Url("redis://user:password@host:6379/0"))?;
    let config = AsyncConnectionConfig::new().set_connection_timeout(Some(timeout)).set_response_timeout(Some(timeout));
    // The time-outs above do not cover looking up the host's name.
    let connect = client.get_multiplexed_async_connection_with_config(&config);
    let connected = tokio::time::timeout(timeout, connect).await.map_err(|_| LedgerError::TimedOut(timeout.as_secs()))?;
    connected.map_err(|error| match unreachable(&error, timeout) {
        // Host and port, never user or password.
        LedgerError::Unreachable(why) => LedgerError::Unreachable(format!("{}: {why}", client.get_connection_info().addr())),
        error => error,
    })
}

/// Connects, pings, and asks for uptime and eviction policy. Reads nothing else and writes nothing.
///
/// # Errors
/// The URL is unusable, or nobody answers the ping.
pub async fn probe(url: &Secret, timeout: Duration) -> Result<RedisFacts, LedgerError> {
    let mut connection = connect(url, timeout).await?;
    redis::cmd("PING").query_async::<()>(&mut connection).await.map_err(|error| unreachable(&error, timeout))?;
    let mut pipeline = redis::Pipeline::new();
    // INFO and CONFIG are often forbidden, and managed services have no CONFIG at all.
    pipeline.ignore_errors().cmd("INFO").arg("server").cmd("CONFIG").arg("GET").arg("maxmemory-policy");
    let answers: Vec<Value> = pipeline.query_async(&mut connection).await.map_err(|error| unreachable(&error, timeout))?;
    Ok(facts(&answers))
}

/// The value in `name:value` lines of INFO.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'))
}

fn unreachable(error: &RedisError, timeout: Duration) -> LedgerError {
    match error.is_timeout() {
        true => LedgerError::TimedOut(timeout.as_secs()),
        false => LedgerError::Unreachable(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn info_lines() {
        let info = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nuptime_in_seconds:42\r\n";
        assert_eq!(field(info, "redis_version"), Some("7.0.15"));
        assert_eq!(field(info, "uptime_in_seconds"), Some("42"));
        assert_eq!(field(info, "uptime_in_days"), None);
        assert_eq!(field("", "redis_version"), None);
    }
}
