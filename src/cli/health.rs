//! `lazaret healthcheck`: what a container's HEALTHCHECK runs. The runtime image holds neither curl nor a need for a shell.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::args::Healthcheck;
use super::{Failure, database};
use crate::config::Purpose;

const TIMEOUT: Duration = Duration::from_secs(3);

/// Asks `/healthz` on the given or configured port of this machine.
pub async fn check(options: &Healthcheck) -> Result<(), Failure> {
    let (listen, whence) = match &options.listen {
        Some(listen) => (listen.clone(), "--listen"),
        None => (database::config(&options.place, Purpose::Database)?.server.listen, "server.listen"),
    };
    let address = reachable(&listen);
    let status = tokio::time::timeout(TIMEOUT, status(&address)).await;
    match status {
        Ok(Ok(status)) if status.contains(" 200 ") => Ok(()),
        Ok(Ok(status)) => Err(Failure::Failed(format!("http://{address}/healthz answers {status}"))),
        Ok(Err(error)) => Err(Failure::Failed(format!(
            "http://{address}/healthz: {error}. That is the address by {whence}; where serve was started with another --listen, give it here too."
        ))),
        Err(_) => Err(Failure::Failed(format!("http://{address}/healthz: no answer within {} s", TIMEOUT.as_secs()))),
    }
}

/// An address that listens on all interfaces is asked on the loopback one.
fn reachable(listen: &str) -> String {
    match listen.rsplit_once(':') {
        Some(("0.0.0.0", port)) => format!("127.0.0.1:{port}"),
        Some(("[::]", port)) => format!("[::1]:{port}"),
        _ => listen.to_owned(),
    }
}

/// The status line. HTTP/1.0, so that the server closes and no client library is needed for one line.
async fn status(address: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("GET /healthz HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(4_096).read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    Ok(answer.lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::reachable;

    #[test]
    fn all_interfaces_are_asked_on_loopback() {
        assert_eq!(reachable("0.0.0.0:8080"), "127.0.0.1:8080");
        assert_eq!(reachable("[::]:8080"), "[::1]:8080");
        assert_eq!(reachable("10.0.0.1:80"), "10.0.0.1:80");
    }
}
