//! Where consumers record what they have applied: Redis keys, a SQL table, an HTTP endpoint, and a hot and a durable tier together.
//!
//! May use: `domain`, redis, sqlx (in `sql`), reqwest (in `http`). Called by: `services`. Nothing is ever written. No text from here holds a URL: it may
//! hold a password.

pub mod http;
pub mod redis;
pub mod sql;

use std::collections::HashMap;
use std::time::Duration;

use crate::domain::terms::{Ledger, Tier};
use crate::domain::verdict::{LedgerAnswer, RedisFacts, TierAnswer, asks_durable};

/// Keys a look-up (PROTOCOLS 4).
pub const LOOK_UP: usize = 500;
/// How long connecting may take, and again the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why a ledger could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The URL is not one of this kind of ledger.
    #[error("the URL is not usable: write {0}")]
    Url(&'static str),
    /// Refused, unknown host, wrong password, TLS, or an answer that cannot be understood.
    #[error("{0}")]
    Unreachable(String),
    /// The query cannot serve; says what would.
    #[error("{0}")]
    Query(String),
    #[error("no answer within {0} s")]
    TimedOut(u64),
}

/// One ledger, its tiers composed.
#[derive(Debug)]
pub struct Ledgers {
    settings: Ledger,
    hot: Option<redis::Keys>,
    durable: Option<Durable>,
}

#[derive(Debug)]
enum Durable {
    Sql(Box<sql::Table>),
    Http(http::Endpoint),
}

impl Ledgers {
    /// Nothing is opened yet: that happens with the first look-up.
    pub fn new(ledger: &Ledger) -> Ledgers {
        let durable = ledger.durable.as_ref().map(|tier| match tier {
            Tier::Sql { url, query } => Durable::Sql(Box::new(sql::Table::new(url.clone(), query))),
            Tier::Http { url } => Durable::Http(http::Endpoint::new(url.clone())),
        });
        Ledgers { settings: ledger.clone(), hot: ledger.hot.clone().map(redis::Keys::new), durable }
    }

    /// What it was made of.
    pub fn settings(&self) -> &Ledger {
        &self.settings
    }

    /// What the tiers say of each key, in the order given. Keys are asked for once however often they are given, [`LOOK_UP`] at a time: the hot tier
    /// first, the durable one for what that does not settle. Never fails: what could not be asked is an answer.
    pub async fn look_up(&self, keys: &[&str]) -> Vec<LedgerAnswer> {
        let mut places: HashMap<&str, usize> = HashMap::with_capacity(keys.len());
        let mut distinct: Vec<&str> = Vec::with_capacity(keys.len());
        for key in keys {
            places.entry(key).or_insert_with(|| {
                distinct.push(key);
                distinct.len() - 1
            });
        }
        let mut answers = Vec::with_capacity(distinct.len());
        for chunk in distinct.chunks(LOOK_UP) {
            answers.extend(self.look_up_chunk(chunk).await);
        }
        keys.iter().map(|key| answers[places[key]].clone()).collect()
    }

    async fn look_up_chunk(&self, keys: &[&str]) -> Vec<LedgerAnswer> {
        let mut answers = vec![LedgerAnswer::default(); keys.len()];
        if let Some(hot) = &self.hot {
            let (said, facts) = spread(hot.look_up(keys).await, keys.len());
            for (answer, said) in answers.iter_mut().zip(said) {
                *answer = LedgerAnswer { hot: Some(said), durable: None, facts: facts.clone() };
            }
        }
        let Some(durable) = &self.durable else { return answers };
        let open = |answer: &LedgerAnswer| answer.hot.as_ref().is_none_or(|hot| asks_durable(&self.settings, hot));
        let places: Vec<usize> = (0..keys.len()).filter(|place| open(&answers[*place])).collect();
        let asked: Vec<&str> = places.iter().map(|place| keys[*place]).collect();
        if asked.is_empty() {
            return answers;
        }
        let said = match durable {
            Durable::Sql(table) => table.look_up(&asked).await,
            Durable::Http(endpoint) => all_or_unclear(endpoint.look_up(&asked).await, asked.len()),
        };
        for (place, said) in places.into_iter().zip(said) {
            answers[place].durable = Some(said);
        }
        answers
    }
}

/// The answers, or the reason why there are none as the answer to each.
fn all_or_unclear(said: Result<Vec<TierAnswer>, LedgerError>, count: usize) -> Vec<TierAnswer> {
    said.unwrap_or_else(|error| vec![TierAnswer::Unclear(error.to_string()); count])
}

fn spread(said: Result<(Vec<TierAnswer>, RedisFacts), LedgerError>, count: usize) -> (Vec<TierAnswer>, Option<RedisFacts>) {
    match said {
        Ok((said, facts)) => (said, Some(facts)),
        Err(error) => (all_or_unclear(Err(error), count), None),
    }
}
