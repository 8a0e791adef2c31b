//! OAUTHBEARER tokens from a file or a command, read anew each time librdkafka asks (at 80 % of a token's life).
//! No error says anything of the token itself.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rdkafka::client::OAuthToken;

use crate::domain::clock::Clock;
use crate::domain::settings::TokenSource;

/// How long a command may take to print its token.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// No token is larger; a file or command that gives more is the wrong one.
const LARGEST_TOKEN: u64 = 64 * 1024;
/// How soon a token without `exp` is read again.
const UNLIMITED_READ_AGAIN_MS: i64 = 300_000;

/// Why there is no token. Never contains a part of one.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum TokenError {
    #[error("the token file {path} cannot be read: {reason}")]
    File { path: String, reason: String },
    #[error("the token command {program} cannot be run: {reason}")]
    Start { program: String, reason: String },
    #[error("the token command {program} did not end within {seconds} s")]
    Timeout { program: String, seconds: u64 },
    #[error("the token command {program} failed ({status}): run it by hand to see why")]
    Failed { program: String, status: String },
    #[error("{origin} gave no JWT: three parts in base64url with dots between them, the second a JSON object, are expected")]
    NotAJwt { origin: String },
    #[error("the token of {origin} expired {seconds} s ago: whoever renews it has stopped")]
    Expired { origin: String, seconds: i64 },
}

/// Reads a token and what librdkafka must know of it: who it speaks for and when it ends.
pub(super) fn fetch(source: &TokenSource, clock: &Clock) -> Result<OAuthToken, TokenError> {
    let (origin, text) = match source {
        TokenSource::File(path) => (path.display().to_string(), read_file(path)?),
        TokenSource::Command(words) => {
            let (program, arguments) = words.split_first().ok_or_else(|| TokenError::Start {
                program: "(none)".to_owned(),
                reason: "the command is empty: name a program and its arguments".to_owned(),
            })?;
            (program.clone(), run(program, arguments, COMMAND_TIMEOUT, clock)?)
        }
    };
    parse(origin, text.trim(), clock.now_ms())
}

fn read_file(path: &std::path::Path) -> Result<String, TokenError> {
    let failed = |reason: std::io::Error| TokenError::File { path: path.display().to_string(), reason: reason.to_string() };
    let mut text = String::new();
    std::fs::File::open(path).map_err(failed)?.take(LARGEST_TOKEN).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

/// Runs the command without a shell. Its error output is thrown away: it may hold anything.
fn run(program: &str, arguments: &[String], timeout: Duration, clock: &Clock) -> Result<String, TokenError> {
    let failed = |reason: std::io::Error| TokenError::Start { program: program.to_owned(), reason: reason.to_string() };
    let mut child =
        Command::new(program).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().map_err(failed)?;
    let (sender, receiver) = std::sync::mpsc::channel();
    if let Some(output) = child.stdout.take() {
        // A thread of its own: a program that hangs with its output open must not hang us.
        std::thread::spawn(move || {
            let mut text = String::new();
            let read = output.take(LARGEST_TOKEN).read_to_string(&mut text);
            let _ = sender.send(read.map(|_| text));
        });
    }
    let deadline = clock.monotonic() + timeout;
    let timed_out = |child: &mut std::process::Child| {
        let _ = child.kill();
        let _ = child.wait();
        TokenError::Timeout { program: program.to_owned(), seconds: timeout.as_secs() }
    };
    let Ok(text) = receiver.recv_timeout(timeout) else { return Err(timed_out(&mut child)) };
    let status = loop {
        match child.try_wait().map_err(failed)? {
            Some(status) => break status,
            None if clock.monotonic() >= deadline => return Err(timed_out(&mut child)),
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    if !status.success() {
        return Err(TokenError::Failed { program: program.to_owned(), status: status.to_string() });
    }
    text.map_err(failed)
}

/// `exp` and `sub` of a JWT (RFC 7519). The signature is the broker's business.
fn parse(origin: String, token: &str, now_ms: i64) -> Result<OAuthToken, TokenError> {
    let Some(claims) = claims(token) else { return Err(TokenError::NotAJwt { origin }) };
    let lifetime_ms = match claims.get("exp").and_then(serde_json::Value::as_f64) {
        Some(seconds) => (seconds * 1000.0) as i64,
        None => now_ms.saturating_add(UNLIMITED_READ_AGAIN_MS),
    };
    if lifetime_ms <= now_ms {
        return Err(TokenError::Expired { origin, seconds: (now_ms.saturating_sub(lifetime_ms)) / 1000 });
    }
    let name = ["sub", "client_id", "azp"].iter().find_map(|claim| claims.get(*claim)?.as_str()).filter(|name| !name.is_empty());
    Ok(OAuthToken { token: token.to_owned(), principal_name: name.unwrap_or("lazaret").to_owned(), lifetime_ms })
}

fn claims(token: &str) -> Option<serde_json::Map<String, serde_json::Value>> {
    // An unsecured token (RFC 7519, 6) ends in the second dot.
    let (_header, rest) = token.split_once('.')?;
    let (payload, _signature) = rest.split_once('.')?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jwt(claims: &str) -> String {
        format!("{}.{}.", URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#), URL_SAFE_NO_PAD.encode(claims))
    }

    fn from_file(text: &str, now_ms: i64) -> Result<OAuthToken, TokenError> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        std::fs::write(&path, text).expect("written");
        fetch(&TokenSource::File(path), &Clock::fake(now_ms))
    }

    #[test]
    fn a_token_says_who_and_until_when() {
        let token = from_file(&format!("{}\n", jwt(r#"{"sub":"svc","exp":2000.5}"#)), 1_000_000).expect("a token");
        assert_eq!((token.principal_name.as_str(), token.lifetime_ms), ("svc", 2_000_500));
        assert!(token.token.ends_with('.'), "the newline is not part of it");
        let token = from_file(&jwt(r#"{"client_id":"c"}"#), 1_000).expect("a token");
        assert_eq!((token.principal_name.as_str(), token.lifetime_ms), ("c", 301_000));
    }

    #[test]
    fn no_error_tells_anything_of_the_token() {
        for text in ["hunter2", "hunter2.hunter2.hunter2", ""] {
            let error = from_file(text, 0).err().expect("refused").to_string();
            assert!(error.contains("JWT") && !error.contains("hunter2"), "{error}");
        }
        let error = from_file(&jwt(r#"{"sub":"hunter2","exp":10}"#), 70_000).err().expect("refused").to_string();
        assert!(error.contains("expired 60 s ago") && !error.contains("hunter2"), "{error}");
    }

    #[test]
    fn a_command_gives_a_token_or_a_reason() {
        let clock = Clock::system();
        let command = |words: &[&str]| fetch(&TokenSource::Command(words.iter().map(|w| (*w).to_owned()).collect()), &clock);
        assert_eq!(command(&["printf", "%s", &jwt(r#"{"sub":"svc"}"#)]).expect("a token").principal_name, "svc");
        assert!(matches!(command(&["false"]), Err(TokenError::Failed { .. })));
        assert!(matches!(command(&["/nonexistent/program"]), Err(TokenError::Start { .. })));
        assert!(matches!(command(&[]), Err(TokenError::Start { .. })));
        // No shell: the operators of one are plain words.
        assert!(matches!(command(&["printf", "a; echo b"]), Err(TokenError::NotAJwt { .. })));
    }

    #[test]
    fn a_command_that_hangs_is_ended() {
        let arguments = ["600".to_owned()];
        let error = run("sleep", &arguments, Duration::from_millis(100), &Clock::system());
        assert!(matches!(error, Err(TokenError::Timeout { .. })), "{error:?}");
    }
}
