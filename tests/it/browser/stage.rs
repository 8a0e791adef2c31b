//! What the browser is pointed at: a real server over the test house, with users of every role and something to see.

use std::net::SocketAddr;

use lazaret::domain::access::{OwnerScope, Role};
use lazaret::domain::record::Record;
use lazaret::services::intake::ClusterStatus;
use lazaret::store::samples::Sample;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::driver::Browser;
use super::line::Line;
use crate::support;
use crate::web::hostile::{fixtures, hostile};
use crate::web::house::{HOUR_MS, House, MINUTE_MS, NOW_MS, record};

pub const PASSWORD: &str = "correct horse battery";
/// Who can sign in, with [`PASSWORD`].
pub const USERS: [(&str, Role); 3] = [("vera", Role::Viewer), ("otto", Role::Operator), ("ada", Role::Admin)];
/// The worst of the furnished house.
pub const WALLET: &str = "payments.wallet.DLQ";
const BEHIND: &str = "orders.fulfilment.DLT";
const DARK: &str = "clicks.app.dlq";
/// The offset of the first of its hostile records: markup, text turned around, a line of 1 MB, NUL.
pub const HOSTILE: i64 = 280;

/// A house that is served until dropped.
pub struct Stage {
    pub house: House,
    pub url: String,
    /// How the one cluster is getting on.
    pub cluster: ClusterStatus,
    folder: TempDir,
    task: JoinHandle<()>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Stage {
    /// Nobody and nothing in it.
    pub async fn bare() -> Stage {
        let listener = free_port().await;
        let url = url_of(&listener);
        Stage::at_url(listener, url).await
    }

    /// Served at `listener`, reached at `url`.
    async fn at_url(listener: TcpListener, url: String) -> Stage {
        let (store, folder) = support::sqlite().await;
        let mut house = House::new(store).await;
        house.options.public_url = url.clone();
        let cluster = ClusterStatus::new("main");
        let task = serve(&house, &cluster, listener);
        Stage { house, url, cluster, folder, task }
    }

    /// The users, and no DLQ yet.
    pub async fn empty() -> Stage {
        let stage = Stage::bare().await;
        stage.add_users().await;
        stage
    }

    async fn add_users(&self) {
        for (name, role) in USERS {
            self.house.access.add_user(name, PASSWORD, role, OwnerScope::All).await.expect("a user");
        }
    }

    /// The users and a bad night.
    pub async fn furnished() -> Stage {
        let stage = Stage::empty().await;
        furnish(&stage.house).await;
        stage
    }

    /// A bad night on which the cluster does not answer, either.
    pub async fn failing() -> Stage {
        let stage = Stage::furnished().await;
        stage.cluster.disconnected(NOW_MS - 6 * MINUTE_MS, "broker-1:9092 and broker-2:9092 do not answer: connection refused".to_owned());
        for dlq in stage.house.store.dlqs().await.expect("DLQs") {
            stage.house.sample(&dlq, 0, Some("main: broker 3 does not answer")).await;
        }
        stage
    }

    /// The furnished house, and the line by which it is reached.
    pub async fn behind_a_line() -> (Stage, Line) {
        let (server, outside) = (free_port().await, free_port().await);
        let (url, inside) = (url_of(&outside), server.local_addr().expect("its address"));
        let stage = Stage::at_url(server, url).await;
        stage.add_users().await;
        furnish(&stage.house).await;
        (stage, Line::new(outside, inside))
    }

    pub fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    /// Lets the browser in without the form. It leaves where it was: all stages are one host, and a host has one session.
    pub async fn admit(&self, browser: &Browser, name: &str) {
        browser.goto("about:blank").await;
        let cookie = self.house.access.sign_in(name, PASSWORD, None).await.expect("an answer").expect("a session");
        browser.set_cookie(&self.url, "lazaret", &cookie).await;
    }

    /// Runs SQL on the database behind the server's back, as an accident would.
    pub async fn spoil(&self, statement: &'static str) {
        use sqlx::Connection as _;
        let url = format!("sqlite://{}", self.folder.path().join("test.db").display());
        let mut connection = sqlx::SqliteConnection::connect(&url).await.expect("the database opens");
        sqlx::query(statement).execute(&mut connection).await.expect("it is spoilt");
    }
}

async fn free_port() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.expect("a free port")
}

fn url_of(listener: &TcpListener) -> String {
    format!("http://{}", listener.local_addr().expect("its address"))
}

#[allow(clippy::disallowed_methods, reason = "a test's own server; a panic in it shows as a page that does not come")]
fn serve(house: &House, cluster: &ClusterStatus, listener: TcpListener) -> JoinHandle<()> {
    let service = lazaret::web::router(house.state().with_clusters([cluster.clone()])).into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await.expect("it serves") })
}

/// A day's arrivals of a failing wallet, and a few neighbours.
async fn furnish(house: &House) {
    let mut ats: Vec<i64> =
        (0..60).map(|n| NOW_MS - 23 * HOUR_MS + n * 23 * MINUTE_MS).filter(|at| *at < NOW_MS - 12 * MINUTE_MS).collect();
    ats.extend((0..220).map(|n| NOW_MS - 11 * MINUTE_MS + n * 2_900));
    let mut records: Vec<Record> = Vec::new();
    for (offset, at) in ats.into_iter().enumerate() {
        let value = format!(
            r#"{{"payment_id":"pay-{offset}","amount_minor":12900,"currency":"EUR","user":{}}}"#,
            9_007_199_254_740_993_i64 + offset as i64
        );
        let said = if offset % 9 == 3 { "Payload has no field amount_minor" } else { "Connection to wallet-db timed out after 5000 ms" };
        records.push(record(WALLET, offset as i64, at, &value, said));
    }
    assert_eq!(records.len() as i64, HOSTILE);
    records.extend(hostile(WALLET, HOSTILE));
    house.take_in(WALLET, records).await;
    let mut records = fixtures(BEHIND);
    // Those that a header dates lie years back, and this DLQ is not to be the worst.
    let dated: [&[u8]; 3] = [b"failed-at", b"MT-Fault-Timestamp", b"NServiceBus.TimeOfFailure"];
    records.retain(|record| !record.headers.iter().any(|header| dated.contains(&header.name.as_slice())));
    records.iter_mut().for_each(|record| record.timestamp_ms = Some(NOW_MS - 70 * MINUTE_MS));
    house.take_in(BEHIND, records).await;
    for topic in
        ["payments.fraud.DLQ", "ledger.export.dlq", "a-topic-with-a-rather-long-name.of-some-team.and-its-consumer-group.dead-letters.v2"]
    {
        house.dlq(topic).await;
    }
    house.dlq(&longest_topic()).await;
    let dark = house.dlq(DARK).await;
    house.sample(&dark, 4 * MINUTE_MS, None).await;
    look_at_all(house).await;
}

/// What the sampler finds at this moment: nothing unread, but for one queue that is behind and one that cannot be reached.
pub async fn look_at_all(house: &House) {
    for dlq in house.store.dlqs().await.expect("DLQs") {
        match dlq.topic.as_str() {
            DARK => house.sample(&dlq, 1_000, Some("main: broker 3 does not answer")).await,
            BEHIND => {
                let at_ms = house.clock.now_ms() - 4_000;
                let (state, left) = ("at_risk".to_owned(), Some(7 * HOUR_MS));
                let risk = Sample {
                    dlq_id: dlq.id,
                    at_ms,
                    uncollected: Some(431),
                    depth: Some(19),
                    at_risk_state: state,
                    at_risk_left_ms: left,
                    error: None,
                    ..Sample::default()
                };
                house.store.save_samples(None, &[risk], &[]).await.expect("a sample");
            }
            _ => house.sample(&dlq, 4_000, None).await,
        }
    }
}

/// How many records the worst has.
pub fn wallet_records() -> i64 {
    HOSTILE + hostile(WALLET, HOSTILE).len() as i64
}

/// A topic's name may have 249 characters, none of them one at which a browser breaks a line.
pub fn longest_topic() -> String {
    format!("{}.DLQ", "payments_".repeat(30)[..245].trim_end_matches('.'))
}
