//! One request to a place outside: resolve, judge, connect to the very addresses that were judged. No redirect is followed, no proxy of the environment is used (it would
//! resolve the name anew), and of the answer only the beginning is read.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::domain::egress::{AllowList, Refused, Target};
use crate::domain::record::display_text;
use crate::domain::settings::Secret;

/// How long a whole attempt may take, name and answer included.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long resolving and connecting may take of that.
const CONNECT: Duration = Duration::from_secs(5);
/// How long an answer's body is read.
const BODY: Duration = Duration::from_secs(2);
/// Bytes of it that are read.
const ANSWER_LIMIT: usize = 4 * 1024;

/// How names become addresses.
#[derive(Debug, Clone)]
pub enum Names {
    /// As the machine does it.
    System,
    /// For tests: what each name resolves to, the next time first; the last answer stays.
    Scripted(Arc<Mutex<HashMap<String, VecDeque<Vec<IpAddr>>>>>),
}

/// Sends to places that are public or allowed. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Sender {
    allow: Arc<AllowList>,
    names: Names,
    patience: Duration,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub status: u16,
    pub retry_after: Option<String>,
    /// Its beginning, as text that can be shown.
    pub body: String,
}

/// Why nothing came back. No part of a URL but its host is in it.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("{0} cannot be resolved. If the name is right, look at the DNS that this machine asks")]
    Unresolved(String),
    #[error("no answer from {0} within {1} s; it may have taken the message all the same")]
    TimedOut(String, u64),
    #[error("{host}: {what}")]
    Broken { host: String, what: &'static str },
    /// A fault of the machine's: no TLS roots, a header that is none.
    #[error("the request cannot be made: {0}")]
    Unusable(&'static str),
}

impl SendError {
    /// Whether the same would come of it again until somebody changes something. A name may resolve to another address later, and is judged anew each time; but
    /// who made it lead inwards once gets no second try.
    pub fn is_final(&self) -> bool {
        matches!(self, SendError::Refused(_) | SendError::Unusable(_))
    }
}

impl Sender {
    /// With the machine's own resolver.
    pub fn new(allow: AllowList) -> Sender {
        Sender { allow: Arc::new(allow), names: Names::System, patience: PATIENCE }
    }

    /// For tests: with names of their own, and less patience.
    pub fn scripted(allow: AllowList, names: Names, patience: Duration) -> Sender {
        Sender { allow: Arc::new(allow), names, patience }
    }

    /// Whether this URL may be sent to, as of now. Gives its host. Nothing is sent.
    ///
    /// # Errors
    /// It is no URL, its name is not known, or it leads where nothing is sent.
    pub async fn check(&self, url: &str) -> Result<String, SendError> {
        let target = Target::parse(url)?;
        self.admitted(&target).await?;
        Ok(target.host)
    }

    /// Posts JSON.
    pub(super) async fn post(&self, url: &str, headers: &[(&'static str, String)], body: Vec<u8>) -> Result<Answer, SendError> {
        let target = Target::parse(url)?;
        let attempt = async {
            let addresses = self.admitted(&target).await?;
            let request = self.client(&target, &addresses)?.post(target.url.clone()).header("content-type", "application/json").body(body);
            let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, value));
            self.answer(&target, request).await
        };
        self.in_time(&target, attempt).await
    }

    /// Gets a URL that the operator wrote into the configuration. It may lead anywhere: who writes there decides over this machine anyway. Gives the status.
    ///
    /// # Errors
    /// There was no answer.
    pub async fn ping(&self, url: &Secret) -> Result<u16, SendError> {
        let target = Target::parse(url.expose())?;
        let attempt = async {
            let request = self.client(&target, &[])?.get(target.url.clone());
            self.answer(&target, request).await
        };
        self.in_time(&target, attempt).await.map(|answer| answer.status)
    }

    async fn in_time(&self, target: &Target, attempt: impl Future<Output = Result<Answer, SendError>>) -> Result<Answer, SendError> {
        let late = |_| Err(SendError::TimedOut(target.host.clone(), self.patience.as_secs()));
        tokio::time::timeout(self.patience, attempt).await.unwrap_or_else(late)
    }

    /// The addresses that may be connected to.
    async fn admitted(&self, target: &Target) -> Result<Vec<SocketAddr>, SendError> {
        let addresses = match target.address() {
            Some(address) => vec![address],
            None => self.resolved(target).await?,
        };
        self.allow.admit(target, &addresses)?;
        Ok(addresses.into_iter().map(|address| SocketAddr::new(address, target.port)).collect())
    }

    async fn resolved(&self, target: &Target) -> Result<Vec<IpAddr>, SendError> {
        let unresolved = || SendError::Unresolved(target.host.clone());
        match &self.names {
            Names::System => {
                let look_up = tokio::net::lookup_host((target.host.as_str(), target.port));
                let found = tokio::time::timeout(CONNECT, look_up).await.map_err(|_| unresolved())?.map_err(|_| unresolved())?;
                Ok(found.map(|address| address.ip()).collect())
            }
            Names::Scripted(script) => {
                let mut script = script.lock().unwrap_or_else(PoisonError::into_inner);
                let answers = script.get_mut(&target.host).ok_or_else(unresolved)?;
                let next = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
                next.ok_or_else(unresolved)
            }
        }
    }

    /// A client for one request: what was admitted for this one says nothing of the next. Where addresses are given, the host means these and no other.
    fn client(&self, target: &Target, addresses: &[SocketAddr]) -> Result<reqwest::Client, SendError> {
        let builder = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .no_proxy()
            .retry(reqwest::retry::never())
            .user_agent(concat!("lazaret/", env!("CARGO_PKG_VERSION")));
        let builder = if addresses.is_empty() { builder } else { builder.resolve_to_addrs(&target.host, addresses) };
        builder
            .build()
            .map_err(|_| SendError::Unusable("there is no HTTP client; look whether this machine has certificates of authorities"))
    }

    async fn answer(&self, target: &Target, request: reqwest::RequestBuilder) -> Result<Answer, SendError> {
        let mut response = request.send().await.map_err(|error| self.failed(target, &error))?;
        let status = response.status().as_u16();
        let retry_after = response.headers().get("retry-after").and_then(|value| value.to_str().ok()).map(str::to_owned);
        let (mut body, mut cut) = (Vec::new(), false);
        let reading = async {
            while let Ok(Some(chunk)) = response.chunk().await {
                let taken = chunk.len().min(ANSWER_LIMIT - body.len());
                body.extend_from_slice(&chunk[..taken]);
                if taken < chunk.len() {
                    cut = true;
                    break;
                }
            }
        };
        // Status and headers are an answer; a body that breaks off or dribbles changes nothing about them.
        let _ = tokio::time::timeout(BODY, reading).await;
        let mut body = display_text(&body);
        if cut {
            body.push('…');
        }
        Ok(Answer { status, retry_after, body })
    }

    /// In words of our own: reqwest's hold the whole URL.
    fn failed(&self, target: &Target, error: &reqwest::Error) -> SendError {
        if error.is_builder() {
            return SendError::Unusable("a header or the URL is not usable");
        }
        if error.is_timeout() {
            return SendError::TimedOut(target.host.clone(), CONNECT.as_secs());
        }
        let what = if is_about_certificates(error) {
            "its certificate is not trusted. Authorities of your own belong into the machine's store, or into the file that SSL_CERT_FILE names"
        } else if error.is_connect() {
            "it refuses the connection, or cannot be reached"
        } else {
            "the connection broke; it may have taken the message all the same"
        };
        SendError::Broken { host: target.host.clone(), what }
    }
}

fn is_about_certificates(error: &reqwest::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if matches!(tls_error(error), Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented)) {
            return true;
        }
        source = error.source();
    }
    false
}

/// rustls' error, bare or inside of errors of input and output: tokio makes one of it, and hyper another of that.
fn tls_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    match error.downcast_ref::<std::io::Error>() {
        Some(outer) => tls_error(outer.get_ref()?),
        None => error.downcast_ref::<rustls::Error>(),
    }
}
