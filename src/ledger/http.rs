//! An HTTP endpoint as a ledger: `POST {"keys":[..]}` answers `{"statuses":{"<key>":"done"|"in_progress"|"failed"|"partial"|"absent"}}`.

use std::collections::HashMap;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::{LedgerError, PATIENCE};
use crate::domain::settings::Secret;
use crate::domain::verdict::TierAnswer;

/// Larger answers are not read: 500 keys and their words are far below.
const ANSWER_LIMIT: usize = 8 * 1024 * 1024;

/// One endpoint.
#[derive(Debug)]
pub struct Endpoint {
    url: Secret,
    client: OnceLock<Result<reqwest::Client, String>>,
}

#[derive(Serialize)]
struct Question<'a> {
    keys: &'a [&'a str],
}

#[derive(Deserialize)]
struct Answer {
    statuses: HashMap<String, String>,
}

impl Endpoint {
    pub(super) fn new(url: Secret) -> Endpoint {
        Endpoint { url, client: OnceLock::new() }
    }

    /// What it says of each key, in the order given. A key that the answer does not name is not taken for absent.
    ///
    /// # Errors
    /// No answer in time, a status other than 2xx, or an answer of another shape.
    pub async fn look_up(&self, keys: &[&str]) -> Result<Vec<TierAnswer>, LedgerError> {
        let client = self.client.get_or_init(client).as_ref().map_err(|why| LedgerError::Unreachable(why.clone()))?;
        let mut response = client.post(self.url.expose()).json(&Question { keys }).send().await.map_err(failed)?;
        if !response.status().is_success() {
            return Err(LedgerError::Unreachable(format!("the endpoint answered {}", response.status().as_u16())));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > ANSWER_LIMIT {
                return Err(LedgerError::Unreachable(format!("the endpoint's answer is larger than {ANSWER_LIMIT} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        // The parser's own words may quote what it found; ours do not.
        let Ok(answer) = serde_json::from_slice::<Answer>(&body) else {
            return Err(LedgerError::Unreachable("the endpoint's answer is not {\"statuses\":{\"<key>\":\"..\"}}".to_owned()));
        };
        Ok(keys.iter().map(|key| meaning(answer.statuses.get(*key).map(String::as_str))).collect())
    }
}

/// Asks a question without keys.
///
/// # Errors
/// As [`Endpoint::look_up`].
pub async fn probe(url: &Secret) -> Result<(), LedgerError> {
    Endpoint::new(url.clone()).look_up(&[]).await.map(drop)
}

fn meaning(status: Option<&str>) -> TierAnswer {
    match status {
        Some("done") => TierAnswer::Done,
        Some("in_progress") => TierAnswer::InProgress { age_s: None },
        Some("failed") => TierAnswer::Failed,
        Some("partial") => TierAnswer::Partial,
        Some("absent") => TierAnswer::Absent,
        Some(_) => TierAnswer::Unclear("the endpoint's status is none of done, in_progress, failed, partial, absent".to_owned()),
        None => TierAnswer::Unclear("the endpoint's answer leaves this key out".to_owned()),
    }
}

/// Follows no redirect: the answer must come from where the operator said.
fn client() -> Result<reqwest::Client, String> {
    let builder = reqwest::Client::builder().connect_timeout(PATIENCE).timeout(PATIENCE).redirect(reqwest::redirect::Policy::none());
    builder.build().map_err(|error| format!("no HTTP client: {error}"))
}

fn failed(error: reqwest::Error) -> LedgerError {
    if error.is_timeout() {
        return LedgerError::TimedOut(PATIENCE.as_secs());
    }
    LedgerError::Unreachable(
        if error.is_connect() {
            "the endpoint refuses the connection, or its host is not known"
        } else {
            "the connection to the endpoint broke"
        }
        .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_not_known_and_a_key_left_out_are_not_absent() {
        assert_eq!(meaning(Some("absent")), TierAnswer::Absent);
        for status in [Some("ABSENT"), Some(""), None] {
            assert!(matches!(meaning(status), TierAnswer::Unclear(_)), "{status:?}");
        }
    }
}
