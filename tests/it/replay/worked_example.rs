//! The worked example on real Kafka, PostgreSQL and Redis: 200 dead letters of an outage, 12 applied late, 3 of an old payload. One proposes, another
//! approves; 12 + 3 + 185 = 200, and an independent reader counts what arrived.

use std::sync::Arc;
use std::time::Duration;

use lazaret::app::{Running, start};
use lazaret::domain::access::{OwnerScope, Role};
use lazaret::domain::clock::Clock;
use serde_json::{Value, json};

use super::shop::Shop;

const PATIENCE: Duration = Duration::from_secs(90);

/// Somebody with a token.
struct Caller {
    client: reqwest::Client,
    url: String,
    token: &'static str,
}

impl Caller {
    async fn of(running: &Running, token: &'static str, role: Role) -> Caller {
        running.access.create_token(token, role, OwnerScope::All, None, Some(token)).await.expect("a token");
        Caller { client: reqwest::Client::new(), url: running.url.clone(), token }
    }

    async fn get(&self, path: &str) -> Value {
        let answer = self.client.get(format!("{}{path}", self.url)).bearer_auth(self.token).send().await.expect("an answer");
        assert_eq!(answer.status(), 200, "{path}");
        answer.json().await.expect("JSON")
    }

    async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let request = self.client.post(format!("{}{path}", self.url)).bearer_auth(self.token).json(body);
        let answer = request.send().await.expect("an answer");
        (answer.status().as_u16(), answer.json().await.unwrap_or(Value::Null))
    }

    /// Asks until `enough` says so.
    async fn until(&self, path: &str, what: &str, enough: impl Fn(&Value) -> bool) -> Value {
        let clock = Clock::system();
        loop {
            let answer = self.get(path).await;
            if enough(&answer) {
                return answer;
            }
            assert!(clock.monotonic() < PATIENCE, "{what}: {answer:#}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka, PostgreSQL and Redis: run tests/run"]
async fn twelve_were_applied_three_do_not_fit_and_185_are_sent_and_confirmed() {
    let shop = Arc::new(Shop::open().await);
    shop.outage(Clock::system().now_ms()).await;
    let wallet = shop.wallet();
    shop.wallet_reads().await;
    let running = start(shop.settings(), Clock::system()).await.expect("Lazaret starts");
    let operator = Caller::of(&running, "otto-the-operator", Role::Operator).await;
    let approver = Caller::of(&running, "petra-the-approver", Role::Approver).await;
    let dlq = format!("/api/v1/dlqs/main/{}", shop.dlq);
    operator.client.get(format!("{}{dlq}", operator.url)).bearer_auth(operator.token).send().await.expect("an answer");
    operator.until("/api/v1/dlqs", "200 dead letters", |dlqs| dlqs["items"][0]["depth"] == 200).await;

    let proposal = json!({ "cluster": "main", "topic": shop.dlq, "filter": {}, "reason": "the wallet's database is back" });
    let (status, proposed) = operator.post("/api/v1/replays", &proposal).await;
    assert_eq!((status, &proposed["state"], &proposed["forecast"]), (201, &json!("draft"), &Value::Null), "{proposed:#}");
    let replay = format!("/api/v1/replays/{}", proposed["id"]);
    let proposed = operator.until(&replay, "the forecast", |replay| replay["state"] == "awaiting_approval").await;
    let forecast =
        json!({ "send": 185, "send_unchecked": 0, "already_applied": 12, "incompatible": 3, "partly_applied": 0, "held": 0, "blocked": 0 });
    assert_eq!(proposed["forecast"], forecast);
    assert_eq!(shop.replayed_once(), 0, "a preflight sends nothing");

    let digest = json!({ "digest": proposed["digest"] });
    let (status, refused) = operator.post(&format!("{replay}/approve"), &digest).await;
    assert_eq!(status, 403, "nobody approves alone: {refused:#}");
    let (status, approved) = approver.post(&format!("{replay}/approve"), &digest).await;
    assert_eq!(status, 200, "{approved:#}");
    let ended = operator.until(&replay, "every outcome", |replay| replay["state"] == "verified").await;
    let progress = &ended["progress"];
    assert_eq!((&progress["sent"], &progress["already_applied"], &progress["archived"]), (&json!(185), &json!(12), &json!(3)), "{ended:#}");
    let confirmed = progress["confirmed_ledger"].as_i64().unwrap_or(0) + progress["confirmed_offset"].as_i64().unwrap_or(0);
    assert_eq!((confirmed, &progress["returned"], &progress["unproven"]), (185, &json!(0), &json!(0)), "{ended:#}");

    assert_eq!(shop.replayed_once(), 185, "kcat counts");
    assert_eq!(shop.debits().await, (197, 197), "12 before and 185 now, each once");
    let one = operator.get("/api/v1/dlqs").await["items"][0].clone();
    assert_eq!((&one["depth"], &one["replay_success"]["n"], &one["follow_up_open"]), (&json!(0), &json!(185), &json!(3)), "{one:#}");
    drop(wallet);
    assert_eq!(running.shutdown().await, Vec::<String>::new());
}
