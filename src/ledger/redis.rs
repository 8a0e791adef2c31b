//! Redis as a ledger: what decides whether an absent key proves anything.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisError};

use super::LedgerError;
use crate::domain::settings::Secret;

/// What a Redis says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisFacts {
    /// None: it will not say.
    pub version: Option<String>,
    /// Seconds since it started. None: it will not say.
    pub uptime_s: Option<u64>,
    /// `maxmemory-policy`; anything but `noeviction` throws keys away when memory is short. None: it will not say.
    pub eviction_policy: Option<String>,
}

/// Connects, pings, and asks for uptime and eviction policy. Reads nothing else and writes nothing.
///
/// # Errors
/// The URL is unusable, or nobody answers the ping.
pub async fn probe(url: &Secret, timeout: Duration) -> Result<RedisFacts, LedgerError> {
    let client = Client::open(url.expose()).map_err(|_| LedgerError::Url("redis://user:password@host:6379/0"))?;
    let config = AsyncConnectionConfig::new().set_connection_timeout(Some(timeout)).set_response_timeout(Some(timeout));
    // The time-outs above do not cover looking up the host's name.
    let connect = client.get_multiplexed_async_connection_with_config(&config);
    let connected = tokio::time::timeout(timeout, connect).await.map_err(|_| LedgerError::TimedOut(timeout.as_secs()))?;
    let mut connection = connected.map_err(|error| unreachable(&error, timeout))?;
    redis::cmd("PING").query_async::<()>(&mut connection).await.map_err(|error| unreachable(&error, timeout))?;
    let info = ask::<String>(&mut connection, redis::cmd("INFO").arg("server")).await.unwrap_or_default();
    let policy = ask::<Vec<String>>(&mut connection, redis::cmd("CONFIG").arg("GET").arg("maxmemory-policy")).await;
    Ok(RedisFacts {
        version: field(&info, "redis_version").map(str::to_owned),
        uptime_s: field(&info, "uptime_in_seconds").and_then(|text| text.parse().ok()),
        eviction_policy: policy.and_then(|answer| answer.into_iter().nth(1)),
    })
}

/// None where the user may not ask: INFO and CONFIG are often forbidden, and managed services have no CONFIG at all.
async fn ask<T: redis::FromRedisValue>(connection: &mut MultiplexedConnection, command: &redis::Cmd) -> Option<T> {
    command.query_async(connection).await.ok()
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
