//! Cases K1 to K9 of the field: what the two checks say, on real ledgers.

#![allow(
    clippy::unwrap_used,
    reason = "tests: the exception in clippy.toml does not reach the bodies that on_both_stores! makes functions of"
)]

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lazaret::config::{Config, Purpose};
use lazaret::domain::clock::Clock;
use lazaret::domain::record::Record;
use lazaret::domain::settings::Secret;
use lazaret::domain::verdict::{Check, Checked, Decision, IdempotencyVerdict, SchemaVerdict, Waiver};
use lazaret::ledger::redis::probe;
use lazaret::services::replay::Entry;
use lazaret::services::replay::check::{Candidate, Checker};
use lazaret::store::verdicts::{self, Phase};
use redis::AsyncCommands as _;
use wiremock::matchers::{body_json, method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::on_both_stores;
use crate::support::{Server, postgres_url, unique};

const SCHEMA: &str =
    r#"{"type":"object","required":["id","amount_cents"],"properties":{"id":{"type":"integer"},"amount_cents":{"type":"integer"}}}"#;
const TO_CENTS: &str = ".amount_cents = .amount * 100 | del(.amount)";

/// A configuration with one DLQ, and what it is checked by.
struct Rig {
    config: Config,
    checker: Checker,
    folder: tempfile::TempDir,
}

impl Rig {
    /// `tables` of the file beside a cluster; `dlq` what stands in the one `[[dlq]]`.
    fn new(tables: &str, dlq: &str) -> Rig {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("payment.json"), SCHEMA).unwrap();
        std::fs::write(folder.path().join("cents.jq"), TO_CENTS).unwrap();
        let text = format!(
            "[clusters.main]\nbootstrap_servers = '127.0.0.1:1'\n[schemas.payment]\nkind = 'json_schema'\npath = 'payment.json'\n{tables}\n\
             [[dlq]]\ncluster = 'main'\ntopics = ['payments.DLQ']\nbusiness_key = '{{value:/id}}'\n{dlq}"
        );
        let config = Config::from_text(&text, "test", folder.path().to_owned(), Vec::new(), Purpose::Check).expect("a configuration");
        let checker = Checker::new(&config.ledgers, &config.schemas);
        Rig { config, checker, folder }
    }

    fn entry(&self) -> Entry<'_> {
        Entry { settings: &self.config.dlqs[0].settings, terms: &self.config.dlqs[0].replay }
    }

    async fn check(&self, messages: &[Candidate]) -> Vec<Checked> {
        self.checker.check(self.entry(), None, messages, now_ms()).await
    }

    /// The ledger's verdict on each.
    async fn idempotency(&self, messages: &[Candidate]) -> Vec<IdempotencyVerdict> {
        let checked = self.check(messages).await;
        let verdicts: Vec<_> = checked.iter().map(|checked| checked.idempotency).collect();
        let again = self.checker.ledger_says(self.entry(), None, messages, now_ms()).await;
        assert_eq!(verdicts, again, "asked alone, the ledger says the same");
        verdicts
    }

    async fn fingerprint(&self) -> String {
        self.checker.fingerprint(self.entry()).await.expect("a fingerprint")
    }
}

fn now_ms() -> i64 {
    Clock::system().now_ms()
}

fn valued(value: Option<&[u8]>) -> Candidate {
    let record = Record {
        topic: "payments.DLQ".into(),
        partition: 0,
        offset: 0,
        timestamp_ms: None,
        key: Some(b"k".to_vec()),
        value: value.map(<[u8]>::to_vec),
        headers: Vec::new(),
    };
    Candidate { message_id: 1, record, origin_at_ms: Some(now_ms() - 500), timestamp_suspect: false }
}

/// A payment of half a second ago.
fn payment(id: &str) -> Candidate {
    valued(Some(format!(r#"{{"id":{id},"amount_cents":1}}"#).as_bytes()))
}

fn aged(mut message: Candidate, age_s: i64) -> Candidate {
    message.origin_at_ms = Some(now_ms() - age_s * 1_000);
    message
}

/// A Redis of the test's own, which may be stopped and emptied.
struct OwnRedis {
    process: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl OwnRedis {
    async fn start() -> OwnRedis {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        OwnRedis::start_on(port).await
    }

    async fn start_on(port: u16) -> OwnRedis {
        // Noted as used, though this one is another.
        Server::Redis.address();
        let folder = tempfile::tempdir().unwrap();
        let port_text = port.to_string();
        let args = ["--bind", "127.0.0.1", "--port", &port_text, "--save", "", "--appendonly", "no"];
        let process =
            Command::new("redis-server").args(args).current_dir(folder.path()).stdout(Stdio::null()).spawn().expect("redis-server");
        let redis = OwnRedis { process, port, _folder: folder };
        for _ in 0..200 {
            if probe(&Secret::new(redis.url()), Duration::from_secs(1)).await.is_ok() {
                return redis;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("redis-server does not answer on port {port}");
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    async fn command(&self, words: &[&str]) {
        let mut connection = connect(&self.url()).await;
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query_async::<redis::Value>(&mut connection).await.expect("the command");
    }
}

impl Drop for OwnRedis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn connect(url: &str) -> redis::aio::MultiplexedConnection {
    redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.expect("Redis answers")
}

fn redis_tier(url: &str, prefix: &str) -> String {
    format!(
        "[ledgers.wallet.hot]\nkind = 'redis'\nurl = '{url}'\nkey = '{prefix}:{{id}}'\ndone = ['1', 'sent']\nin_progress = ['busy']\n\
         failed = ['failed']\npartial = ['half']\nttl_s = 86400\nmargin_s = 3600\nclaim_lease_s = 300\n"
    )
}

const LEDGER: &str = "[dlq.schema]\nuse = 'payment'\n[dlq.idempotency]\nledger = 'wallet'\n";

/// A table of applied events in PostgreSQL, and the tier over it.
async fn postgres_tier(applied: &[&str]) -> String {
    let url = postgres_url().await;
    let pool = sqlx::PgPool::connect(&url).await.unwrap();
    sqlx::query("CREATE TABLE applied (event_id text PRIMARY KEY)").execute(&pool).await.unwrap();
    for event in applied {
        sqlx::query("INSERT INTO applied VALUES ($1)").bind(event).execute(&pool).await.unwrap();
    }
    format!(
        "[ledgers.wallet.durable]\nkind = 'sql'\nurl = '{url}'\nquery = 'SELECT event_id FROM applied WHERE event_id = ANY($1::text[])'\n"
    )
}

/// The same in a SQLite file.
async fn sqlite_tier(folder: &std::path::Path, applied: &[&str]) -> String {
    let url = format!("sqlite://{}", folder.join("wallet.db").display());
    let pool = sqlx::SqlitePool::connect(&format!("{url}?mode=rwc")).await.unwrap();
    sqlx::query("CREATE TABLE applied (event_id TEXT PRIMARY KEY)").execute(&pool).await.unwrap();
    for event in applied {
        sqlx::query("INSERT INTO applied VALUES ($1)").bind(event).execute(&pool).await.unwrap();
    }
    let query = "SELECT event_id FROM applied WHERE event_id IN (SELECT value FROM json_each($1))";
    format!("[ledgers.wallet.durable]\nkind = 'sql'\nurl = '{url}'\nquery = '{query}'\n")
}

#[tokio::test]
async fn k2_digits_beyond_2_to_the_53rd_are_two_keys() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Rig::new(&sqlite_tier(folder.path(), &["9007199254740992"]).await, LEDGER);
    let messages = [payment("9007199254740992"), payment("9007199254740993")];
    let checked = rig.check(&messages).await;
    assert_eq!(checked[0].asked.as_deref(), Some("9007199254740992"));
    assert_eq!(checked[1].asked.as_deref(), Some("9007199254740993"));
    assert_eq!((checked[0].idempotency, checked[1].idempotency), (IdempotencyVerdict::Applied, IdempotencyVerdict::New));
    assert!(checked.iter().all(|checked| checked.schema == SchemaVerdict::Compatible && checked.transformed.is_none()));
}

#[tokio::test]
#[ignore = "needs a real Redis: run tests/run"]
async fn k3_done_in_progress_and_failed() {
    use IdempotencyVerdict::{Applied, CouldNotCheck, Failed, InProgress, New, Unsafe};
    let (url, prefix) = (Server::Redis.address(), unique("k3"));
    let mut redis = connect(&url).await;
    for (id, value) in [("1", "1"), ("2", "sent"), ("3", "busy"), ("4", "failed"), ("5", "half"), ("6", "no word of ours")] {
        let _: () = redis.set(format!("{prefix}:{id}"), value).await.unwrap();
    }
    let _: () = redis.lpush(format!("{prefix}:7"), "a list").await.unwrap();
    let rig = Rig::new(&redis_tier(&url, &prefix), LEDGER);
    let messages: Vec<Candidate> = (1..=8).map(|id| payment(&id.to_string())).collect();
    let said = rig.idempotency(&messages).await;
    assert_eq!(said, [Applied, Applied, InProgress, Failed, Unsafe, CouldNotCheck, CouldNotCheck, New]);
    let decisions: Vec<Decision> = rig.check(&messages).await.iter().map(|checked| checked.decision(&[], false)).collect();
    use Decision::{AlreadyApplied, Held, Send};
    assert_eq!(decisions, [AlreadyApplied, AlreadyApplied, Held, Send, Decision::Unsafe, Held, Held, Send]);
}

#[tokio::test]
#[ignore = "needs a real Redis: run tests/run"]
async fn an_expired_claim_is_what_the_ledger_declares() {
    use IdempotencyVerdict::{InProgress, New};
    let (url, prefix) = (Server::Redis.address(), unique("claims"));
    let mut redis = connect(&url).await;
    // What is left of a day: claimed 100 s ago, 400 s ago, a claim with a life of its own, and one that stays.
    for (id, left_s) in [("1", 86_300), ("2", 86_000), ("3", 250)] {
        let _: () = redis.set_ex(format!("{prefix}:{id}"), "busy", left_s).await.unwrap();
    }
    let _: () = redis.set(format!("{prefix}:4"), "busy").await.unwrap();
    let messages: Vec<Candidate> = (1..=4).map(|id| payment(&id.to_string())).collect();
    let hold = Rig::new(&redis_tier(&url, &prefix), LEDGER);
    assert_eq!(hold.idempotency(&messages).await, [InProgress; 4]);
    let retry = Rig::new(&format!("[ledgers.wallet]\nexpired_claim = 'retry'\n{}", redis_tier(&url, &prefix)), LEDGER);
    assert_eq!(retry.idempotency(&messages).await, [InProgress, New, InProgress, InProgress]);
}

#[tokio::test]
#[ignore = "needs a real Redis: run tests/run"]
async fn k4_redis_is_down_and_comes_back() {
    let redis = OwnRedis::start().await;
    let port = redis.port;
    let rig = Rig::new(&redis_tier(&redis.url(), "p"), LEDGER);
    redis.command(&["SET", "p:1", "1"]).await;
    assert_eq!(rig.idempotency(&[payment("1")]).await, [IdempotencyVerdict::Applied]);
    drop(redis);
    let checked = rig.check(&[payment("1")]).await;
    assert_eq!((checked[0].idempotency, checked[0].decision(&[], false)), (IdempotencyVerdict::CouldNotCheck, Decision::Held));
    assert!(checked[0].answered.as_deref().unwrap().starts_with("hot: "), "{checked:?}");
    let redis = OwnRedis::start_on(port).await;
    redis.command(&["SET", "p:1", "1"]).await;
    assert_eq!(rig.idempotency(&[payment("1")]).await, [IdempotencyVerdict::Applied], "it is asked again over a new connection");
}

#[tokio::test]
#[ignore = "needs a real Redis: run tests/run"]
async fn k5_a_ledger_that_forgets_proves_nothing_of_an_old_message() {
    use IdempotencyVerdict::{New, Unprovable};
    let url = Server::Redis.address();
    let rig = Rig::new(&redis_tier(&url, &unique("k5")), LEDGER);
    let unknown = Candidate { origin_at_ms: None, ..payment("3") };
    let suspect = Candidate { timestamp_suspect: true, ..payment("4") };
    let messages = [payment("1"), aged(payment("2"), 3 * 86_400), unknown, suspect];
    assert_eq!(rig.idempotency(&messages).await, [New, Unprovable, Unprovable, Unprovable]);
    let why = rig.check(&messages).await[1].answered.clone().unwrap();
    assert!(why.contains("hot: absent") && why.contains("records are sure for 82800 s only"), "{why}");
}

#[tokio::test]
#[ignore = "needs real Redis and PostgreSQL: run tests/run"]
async fn k6_the_hot_tier_was_flushed_and_the_durable_one_knows() {
    use IdempotencyVerdict::{Applied, New};
    let redis = OwnRedis::start().await;
    redis.command(&["SET", "p:1", "1"]).await;
    redis.command(&["FLUSHALL"]).await;
    let tiers = format!("{}{}", redis_tier(&redis.url(), "p"), postgres_tier(&["1"]).await);
    let rig = Rig::new(&tiers, LEDGER);
    assert_eq!(rig.idempotency(&[payment("1"), aged(payment("2"), 3 * 86_400)]).await, [Applied, New]);
    assert_eq!(rig.check(&[payment("1")]).await[0].answered.as_deref(), Some("hot: absent; durable: done"));
}

#[tokio::test]
async fn k7_without_a_ledger_nothing_goes_unless_it_is_waived() {
    let rig = Rig::new("", "[dlq.schema]\nuse = 'payment'\n");
    let checked = rig.check(&[payment("1")]).await.remove(0);
    assert_eq!((checked.idempotency, checked.asked.as_deref()), (IdempotencyVerdict::NotConfigured, None));
    assert_eq!(checked.decision(&[], false), Decision::Held);
    let waiver = Waiver { check: Check::Idempotency, verdict: "not_configured".into(), reason: "the wallet is idempotent".into() };
    assert_eq!(checked.decision(&[waiver], false), Decision::SendUnchecked);
    assert_eq!(checked.decision(&[], true), Decision::SendUnchecked);
    let rig = Rig::new("", "");
    assert_eq!(rig.check(&[payment("1")]).await[0].schema, SchemaVerdict::NotConfigured);
}

#[tokio::test]
#[ignore = "needs a real Redis: run tests/run"]
async fn k8_redis_restarted_after_the_message() {
    use IdempotencyVerdict::{New, Unprovable};
    let redis = OwnRedis::start().await;
    let rig = Rig::new(&redis_tier(&redis.url(), "p"), LEDGER);
    redis.command(&["SET", "p:1", "1"]).await;
    let port = redis.port;
    drop(redis);
    let redis = OwnRedis::start_on(port).await;
    let checked = rig.check(&[aged(payment("1"), 3_600)]).await;
    assert_eq!(checked[0].idempotency, Unprovable);
    assert!(checked[0].answered.as_deref().unwrap().contains("Redis started"), "{checked:?}");
    // One that throws keys away proves nothing either, nor one that will not say.
    let young = Candidate { origin_at_ms: Some(now_ms() + 60_000), ..payment("2") };
    assert_eq!(rig.idempotency(std::slice::from_ref(&young)).await, [New]);
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await;
    assert_eq!(rig.idempotency(std::slice::from_ref(&young)).await, [Unprovable]);
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;
    redis.command(&["ACL", "SETUSER", "default", "-config", "-info"]).await;
    assert_eq!(rig.idempotency(std::slice::from_ref(&young)).await, [Unprovable]);
}

#[tokio::test]
#[ignore = "needs a real PostgreSQL: run tests/run"]
async fn k9_what_other_groups_have_applied() {
    let folder = tempfile::tempdir().unwrap();
    let fraud = sqlite_tier(folder.path(), &["1"]).await.replace("ledgers.wallet", "ledgers.fraud");
    let readers = "[[dlq.also_read_by]]\ngroup = 'fraud'\nledger = 'fraud'\n[[dlq.also_read_by]]\ngroup = 'mail'\n";
    let rig = Rig::new(&format!("{}{fraud}", postgres_tier(&[]).await), &format!("{LEDGER}{readers}"));
    let checked = rig.check(&[payment("1")]).await.remove(0);
    assert_eq!(checked.idempotency, IdempotencyVerdict::New, "the failed group's ledger decides");
    let others = [("fraud".to_owned(), IdempotencyVerdict::Applied), ("mail".to_owned(), IdempotencyVerdict::NotConfigured)];
    assert_eq!(checked.others, others);
}

#[tokio::test]
#[ignore = "needs a real PostgreSQL: run tests/run"]
async fn one_key_that_spoils_the_query_spoils_no_other() {
    use IdempotencyVerdict::{Applied, CouldNotCheck, New};
    let tier = postgres_tier(&["00000000-0000-0000-0000-000000000001"])
        .await
        .replace("event_id = ANY($1::text[])", "event_id::uuid = ANY($1::uuid[])");
    let rig = Rig::new(&tier, &format!("{LEDGER}key = '{{value:/id}}'"));
    let id = |n: usize| format!("\"00000000-0000-0000-0000-{n:012}\"");
    let mut messages: Vec<Candidate> = (1..=600).map(|n| payment(&id(n))).collect();
    messages[3] = payment("\"no uuid\"");
    messages[500] = payment("\"nul \\u0000 inside\"");
    let said = rig.idempotency(&messages).await;
    for (place, verdict) in said.iter().enumerate() {
        let expected = match place {
            0 => Applied,
            3 | 500 => CouldNotCheck,
            _ => New,
        };
        assert_eq!(*verdict, expected, "message {place}");
    }
    // Another spelling of the same key is not another key.
    let upper = rig.idempotency(&[payment("\"00000000000000000000000000000001\"")]).await;
    assert_eq!(upper, [CouldNotCheck]);
}

#[tokio::test]
#[ignore = "needs a real PostgreSQL: run tests/run"]
async fn a_ledgers_query_cannot_write_and_its_failure_holds() {
    let url = postgres_url().await;
    let pool = sqlx::PgPool::connect(&url).await.unwrap();
    sqlx::query("CREATE TABLE applied (event_id text)").execute(&pool).await.unwrap();
    for (query, why) in [
        ("WITH x AS (INSERT INTO applied SELECT unnest($1::text[]) RETURNING event_id) SELECT event_id FROM x", "read-only"),
        ("SELECT event_id FROM no_table WHERE event_id = ANY($1::text[])", "no_table"),
        ("SELECT 1 WHERE ''1'' = ANY($1::text[])", "cast it"),
    ] {
        let query = query.replace("''", "\"").replace('"', "''");
        let tier = format!("[ledgers.wallet.durable]\nkind = 'sql'\nurl = '{url}'\nquery = \"\"\"{}\"\"\"\n", query.replace("''", "'"));
        let rig = Rig::new(&tier, LEDGER);
        let checked = rig.check(&[payment("1")]).await.remove(0);
        assert_eq!(checked.idempotency, IdempotencyVerdict::CouldNotCheck);
        assert!(checked.answered.as_deref().unwrap().contains(why), "{checked:?}");
    }
    let rows: i64 = sqlx::query_scalar("SELECT count(*) FROM applied").fetch_one(&pool).await.unwrap();
    assert_eq!(rows, 0);
    let password = "hunter2";
    let tier = format!(
        "[ledgers.wallet.durable]\nkind = 'sql'\nurl = 'postgres://lazaret:{password}@127.0.0.1:1/x'\nquery = 'SELECT id FROM t WHERE id = ANY($1)'\n"
    );
    let checked = Rig::new(&tier, LEDGER).check(&[payment("1")]).await.remove(0);
    assert_eq!(checked.idempotency, IdempotencyVerdict::CouldNotCheck);
    assert!(!format!("{checked:?}").contains(password), "{checked:?}");
}

#[tokio::test]
async fn an_http_ledger_is_believed_only_where_it_speaks() {
    use IdempotencyVerdict::{Applied, CouldNotCheck, Failed, InProgress, New, Unsafe};
    lazaret::app::use_ring();
    let server = MockServer::start().await;
    let statuses = serde_json::json!({"1":"done","2":"in_progress","3":"failed","4":"partial","5":"absent","6":"who knows"});
    let keys = serde_json::json!({"keys":["1","2","3","4","5","6","7"]});
    let answer = ResponseTemplate::new(200).set_body_json(serde_json::json!({"statuses": statuses}));
    Mock::given(method("POST")).and(path("/applied")).and(body_json(keys)).respond_with(answer).mount(&server).await;
    Mock::given(path("/down")).respond_with(ResponseTemplate::new(503)).mount(&server).await;
    Mock::given(path("/other")).respond_with(ResponseTemplate::new(200).set_body_string("<html>")).mount(&server).await;
    let tier = |path: &str| format!("[ledgers.wallet.durable]\nkind = 'http'\nurl = '{}{path}'\n", server.uri());
    let messages: Vec<Candidate> = (1..=7).map(|id| payment(&id.to_string())).collect();
    let said = Rig::new(&tier("/applied"), LEDGER).idempotency(&messages).await;
    assert_eq!(said, [Applied, InProgress, Failed, Unsafe, New, CouldNotCheck, CouldNotCheck]);
    for (path, why) in [("/down", "answered 503"), ("/other", "is not {\"statuses\"")] {
        let checked = Rig::new(&tier(path), LEDGER).check(&messages[..1]).await.remove(0);
        assert_eq!(checked.idempotency, CouldNotCheck, "{path}");
        assert!(checked.answered.as_deref().unwrap().contains(why), "{checked:?}");
    }
}

#[tokio::test]
async fn a_key_that_cannot_be_built_or_changes_is_held() {
    let folder = tempfile::tempdir().unwrap();
    let tier = sqlite_tier(folder.path(), &[]).await;
    let rig = Rig::new(&tier, LEDGER);
    let checked = rig.check(&[valued(Some(br#"{"amount_cents":1}"#)), valued(None)]).await;
    for checked in &checked {
        assert_eq!((checked.idempotency, checked.asked.as_deref()), (IdempotencyVerdict::CouldNotCheck, None));
        assert!(checked.answered.as_deref().unwrap().contains("{value:/id}"), "{checked:?}");
    }
    let old = valued(Some(br#"{"id":7,"amount":3}"#));
    let rig = Rig::new(&tier, LEDGER);
    let checked =
        rig.checker.check(rig.entry(), Some(".amount_cents = .amount * 100 | .id += 1"), std::slice::from_ref(&old), now_ms()).await;
    assert_eq!((checked[0].schema, checked[0].idempotency), (SchemaVerdict::Transformed, IdempotencyVerdict::CouldNotCheck));
    assert_eq!(checked[0].answered.as_deref(), Some("the transform changes the key, and no waiver is of that"));
    let waiver = Waiver { check: Check::Idempotency, verdict: "could_not_check".into(), reason: "the wallet is down".into() };
    assert_eq!(checked[0].decision(&[waiver], true), Decision::Held, "a consumer is idempotent by its key");
    // An original without a key has none that could differ.
    let nested = valued(Some(br#"{"payment":{"id":7},"amount_cents":3}"#));
    let filter = "{id: .payment.id, amount_cents}";
    let checked = rig.checker.check(rig.entry(), Some(filter), std::slice::from_ref(&nested), now_ms()).await;
    assert_eq!((checked[0].asked.as_deref(), checked[0].idempotency), (Some("7"), IdempotencyVerdict::New));
    let said = rig.checker.ledger_says(rig.entry(), Some(filter), &[nested], now_ms()).await;
    assert_eq!(said, [IdempotencyVerdict::New]);
}

#[tokio::test]
async fn transforms_and_fences() {
    use SchemaVerdict::{Compatible, CouldNotCheck, Incompatible, Transformed};
    let cutover = "[[dlq.schema.fence]]\nbefore = '2026-11-16T00:00:00Z'\nreason = 'amount became cents'\n";
    let before = |message: Candidate| Candidate { origin_at_ms: Some(1_794_787_199_999), ..message };
    let after = |message: Candidate| Candidate { origin_at_ms: Some(1_794_787_200_000), ..message };
    let (old, new) = (valued(Some(br#"{"amount":12,"id":9007199254740993}"#)), payment("1"));

    let rig = Rig::new("", "[dlq.schema]\nuse = 'payment'\n");
    let said: Vec<_> = rig.check(&[old.clone(), new.clone(), valued(None)]).await.iter().map(|checked| checked.schema).collect();
    assert_eq!(said, [Incompatible, Compatible, CouldNotCheck]);

    let rig = Rig::new("", "[dlq.schema]\nuse = 'payment'\ntransform = 'cents.jq'\n");
    let checked = rig.check(&[old.clone(), new.clone()]).await;
    assert_eq!(checked[0].schema, Transformed);
    assert_eq!(checked[0].transformed.as_deref(), Some(&br#"{"amount_cents":1200,"id":9007199254740993}"#[..]));
    assert_eq!((checked[1].schema, checked[1].transformed.as_deref()), (Compatible, None), "what fits is left alone");
    let hash = "transform ";
    assert!(checked[0].schema_note.as_deref().unwrap().starts_with(hash), "{checked:?}");

    let rig = Rig::new("", &format!("[dlq.schema]\nuse = 'payment'\n{cutover}"));
    let unknown = Candidate { origin_at_ms: None, ..new.clone() };
    let suspect = Candidate { timestamp_suspect: true, ..after(new.clone()) };
    let said: Vec<_> = rig.check(&[before(new.clone()), after(new.clone()), unknown, suspect]).await;
    assert_eq!(said.iter().map(|checked| checked.schema).collect::<Vec<_>>(), [Incompatible, Compatible, Incompatible, Incompatible]);
    assert!(said[0].schema_note.as_deref().unwrap().contains("amount became cents"), "{said:?}");

    let rig = Rig::new("", &format!("[dlq.schema]\nuse = 'payment'\ntransform = 'cents.jq'\n{cutover}"));
    let said = rig.check(&[before(old.clone()), before(new.clone())]).await;
    assert_eq!(said[0].schema, Transformed);
    // `null * 100` is null in jq, and null is no integer.
    assert_eq!((said[1].schema, said[1].transformed.as_deref()), (Incompatible, None), "an output that does not fit is not used");

    let endless = rig.checker.check(rig.entry(), Some("[repeat(1)]"), &[before(old)], now_ms()).await;
    assert_eq!(endless[0].schema, CouldNotCheck, "{endless:?}");
}

/// A waiver is of a check that could not run, not of what is known to be wrong.
#[tokio::test]
async fn what_is_known_not_to_fit_goes_by_no_waiver() {
    let waivers = [(Check::Schema, "could_not_check"), (Check::Idempotency, "not_configured")].map(|(check, verdict)| Waiver {
        check,
        verdict: verdict.into(),
        reason: "customers wait".into(),
    });
    let decide = |checked: &Checked| (checked.schema, checked.decision(&waivers, false));
    let held = (SchemaVerdict::CouldNotCheck, Decision::Held);
    let cutover = "[[dlq.schema.fence]]\nbefore = '2026-11-16T00:00:00Z'\nreason = 'amount became cents'\n";
    let rig = Rig::new("", &format!("[dlq.schema]\nuse = 'payment'\ntransform = 'cents.jq'\n{cutover}"));
    let old = valued(Some(br#"{"id":7,"amount":3}"#));
    let before_the_cutover = Candidate { origin_at_ms: Some(1_794_787_199_999), ..payment("1") };
    let both = [old, before_the_cutover, payment("2")];

    // The filter takes too long, then its file is gone, then the schema's.
    let endless = rig.checker.check(rig.entry(), Some("[repeat(1)]"), &both, now_ms()).await;
    assert_eq!(endless.iter().map(decide).collect::<Vec<_>>()[..2], [held, held], "{endless:?}");
    assert!(endless[0].schema_note.as_deref().unwrap().contains("no waiver lets it go"), "{endless:?}");
    std::fs::remove_file(rig.folder.path().join("cents.jq")).unwrap();
    let gone = rig.check(&both).await;
    assert_eq!(gone.iter().map(decide).collect::<Vec<_>>(), [held, held, (SchemaVerdict::Compatible, Decision::SendUnchecked)]);
    std::fs::remove_file(rig.folder.path().join("payment.json")).unwrap();
    let blind = rig.check(&both).await;
    let unchecked = (SchemaVerdict::CouldNotCheck, Decision::SendUnchecked);
    assert_eq!(blind.iter().map(decide).collect::<Vec<_>>(), [unchecked, held, unchecked], "{blind:?}");
}

#[tokio::test]
async fn r11_a_schema_file_that_was_replaced_is_noticed_at_the_next_check() {
    let rig = Rig::new("", "[dlq.schema]\nuse = 'payment'\ntransform = 'cents.jq'\n");
    let fingerprint = rig.fingerprint().await;
    assert_eq!(rig.check(&[payment("1")]).await[0].schema, SchemaVerdict::Compatible);
    let file = rig.folder.path().join("payment.json");
    let written = std::fs::metadata(&file).unwrap().modified().unwrap();
    std::fs::write(&file, SCHEMA.replace("amount_cents", "amount_total")).unwrap();
    // Same length, same date: only the content tells.
    std::fs::File::options().write(true).open(&file).unwrap().set_modified(written).unwrap();
    assert_ne!(rig.fingerprint().await, fingerprint);
    assert_eq!(rig.check(&[payment("1")]).await[0].schema, SchemaVerdict::Incompatible);
    std::fs::write(&file, "{").unwrap();
    let checked = rig.check(&[payment("1")]).await.remove(0);
    assert_eq!(checked.schema, SchemaVerdict::CouldNotCheck, "a file that is no schema any more archives nothing");
    assert!(checked.schema_note.as_deref().unwrap().contains("payment.json is no JSON"), "{checked:?}");
    std::fs::remove_file(&file).unwrap();
    assert_eq!(rig.check(&[payment("1")]).await[0].schema, SchemaVerdict::CouldNotCheck);
    assert!(rig.checker.fingerprint(rig.entry()).await.unwrap_err().contains("payment.json cannot be read"));
}

#[tokio::test]
async fn s9_whatever_decides_the_checks_is_in_the_fingerprint() {
    let ledger = |extra: &str| format!("{}[ledgers.wallet]\nexpired_claim = 'hold'\n{extra}", "");
    let hot = redis_tier("redis://u:secret@127.0.0.1:1/0", "p");
    let base = (format!("{}{hot}", ledger("")), LEDGER.to_owned());
    let print = async |(tables, dlq): (String, String)| Rig::new(&tables, &dlq).fingerprint().await;
    let reference = print(base.clone()).await;
    assert_eq!(print(base.clone()).await, reference, "the same settings, the same fingerprint");
    let password = (base.0.replace("secret", "another"), base.1.clone());
    assert_eq!(print(password).await, reference, "a new password changes no check");
    for (from, to) in
        [("'hold'", "'retry'"), ("ttl_s = 86400", "ttl_s = 90000"), ("'p:{id}'", "'q:{id}'"), ("'half'", "'quarter'"), (":1/0", ":1/1")]
    {
        assert!(base.0.contains(from), "{from}");
        assert_ne!(print((base.0.replace(from, to), base.1.clone())).await, reference, "{from} -> {to}");
    }
    for dlq in [
        format!("{LEDGER}key = '{{value:/other}}'\n"),
        LEDGER.replace("[dlq.idempotency]", "transform = 'cents.jq'\n[dlq.idempotency]"),
        LEDGER.replace("[dlq.idempotency]", "[[dlq.schema.fence]]\nbefore = '2026-11-16T00:00:00Z'\nreason = 'r'\n[dlq.idempotency]"),
        format!("partitioner = 'consistent_random'\n{LEDGER}"),
        format!("consumer_is_idempotent = 'upserts'\n{LEDGER}"),
        format!("{LEDGER}[[dlq.also_read_by]]\ngroup = 'g'\n"),
        "[dlq.schema]\nuse = 'payment'\n".to_owned(),
    ] {
        assert_ne!(print((base.0.clone(), dlq.clone())).await, reference, "{dlq}");
    }
    let rig = Rig::new(&base.0, &LEDGER.replace("[dlq.idempotency]", "transform = 'cents.jq'\n[dlq.idempotency]"));
    let with_transform = rig.fingerprint().await;
    std::fs::write(rig.folder.path().join("cents.jq"), ".").unwrap();
    assert_ne!(rig.fingerprint().await, with_transform, "the transform's text");
}

#[tokio::test]
async fn masked_fields_are_in_no_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let tier = sqlite_tier(folder.path(), &[]).await;
    let dlq = format!("mask = ['/card', '/email']\n{LEDGER}key = '{{header:card}}'\n");
    let rig = Rig::new(&tier, &dlq);
    let mut message = valued(Some(br#"{"id":"SECRET-1","amount":1,"card":{"number":"SECRET-2"},"email":"SECRET-3"}"#));
    message.record.headers.push(lazaret::domain::record::Header { name: b"card".to_vec(), value: Some(b"SECRET-2".to_vec()) });
    let filters = [
        None,
        Some(".card.number.x"),
        Some(".id = 1 | .amount_cents = .email"),
        // A filter may make a name or a key of what is masked, or of a part of it.
        Some("{id: 1, amount_cents: 1, (.card.number): {(.email): 1}}"),
        Some("{id: {(.card.number): 1}, amount_cents: 1}"),
        Some("{id: 1, amount_cents: {(.email[:7]): 1}}"),
    ];
    for filter in filters {
        let checked = rig.checker.check(rig.entry(), filter, std::slice::from_ref(&message), now_ms()).await;
        let shown = format!("{:?} {:?} {:?}", checked[0].schema_note, checked[0].asked, checked[0].answered);
        assert!(!shown.contains("SECRET"), "{filter:?}: {shown}");
    }
    let strict = SCHEMA.replace("\"properties\"", "\"additionalProperties\":{\"type\":\"null\"},\"properties\"");
    std::fs::write(rig.folder.path().join("payment.json"), strict).unwrap();
    let named = "{id: 1, amount_cents: 1, (.card.number): 1}";
    let checked = rig.checker.check(rig.entry(), Some(named), std::slice::from_ref(&message), now_ms()).await.remove(0);
    assert_eq!(checked.schema, SchemaVerdict::Incompatible);
    assert!(!checked.schema_note.as_deref().unwrap().contains("SECRET"), "{checked:?}");

    // The key of what is sent is a part of a masked field, and the original has none.
    let rig = Rig::new(&tier, &format!("mask = ['/card']\n{LEDGER}"));
    let message = valued(Some(br#"{"card":"SECRET-2","amount":1}"#));
    std::fs::write(rig.folder.path().join("payment.json"), r#"{"required":["id"]}"#).unwrap();
    let part = ".id = .card[:6]";
    let checked = rig.checker.check(rig.entry(), Some(part), std::slice::from_ref(&message), now_ms()).await.remove(0);
    assert_eq!((checked.schema, checked.asked.as_deref()), (SchemaVerdict::Transformed, Some("•••")));
}

on_both_stores! {
    async fn verdicts_are_kept_as_they_were_given(store: Store) {
        let folder = tempfile::tempdir().unwrap();
        let readers = "[[dlq.also_read_by]]\ngroup = 'mail'\n";
        let rig = Rig::new(&sqlite_tier(folder.path(), &["1"]).await, &format!("{LEDGER}{readers}"));
        let mut messages = [payment("1"), valued(Some(b"{\"id\":\"nul \\u0000\"}"))];
        messages[1].message_id = 2;
        let checked = rig.check(&messages).await;
        let decided: Vec<_> = checked.iter().map(|checked| (checked.clone(), checked.decision(&[], false))).collect();
        let mut tx = store.begin().await.unwrap();
        verdicts::append(&mut tx, 7, Phase::Preflight, &decided).await.unwrap();
        verdicts::append(&mut tx, 7, Phase::Sending, &decided[..1]).await.unwrap();
        verdicts::append(&mut tx, 7, Phase::Sending, &[]).await.unwrap();
        tx.commit().await.unwrap();
        let kept = store.verdicts(1).await.unwrap();
        assert_eq!(kept.iter().map(|verdict| verdict.phase.as_str()).collect::<Vec<_>>(), ["sending", "preflight"]);
        let newest = &kept[0];
        assert_eq!((newest.batch_id, newest.schema.as_str(), newest.idempotency.as_str()), (7, "compatible", "applied"));
        assert_eq!((newest.decision.as_str(), newest.asked.as_deref(), newest.answered.as_deref()), ("already_applied", Some("1"), Some("durable: done")));
        assert_eq!(newest.others.as_deref(), Some(r#"[["mail","not_configured"]]"#));
        assert_eq!((newest.at_ms, newest.schema_note.as_deref()), (checked[0].at_ms, None));
        let other = &store.verdicts(2).await.unwrap()[0];
        assert_eq!((other.schema.as_str(), other.decision.as_str()), ("incompatible", "incompatible"));
        assert_eq!(other.asked.as_deref(), Some("nul \u{2400}"), "PostgreSQL holds no NUL");
    }
}

/// A figure, not a test of speed: `cargo test --release --test it -- --ignored --nocapture measured_checks`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs real Redis and PostgreSQL: run tests/run"]
async fn measured_checks_of_many_messages() {
    let count: usize = std::env::var("LAZARET_TEST_CHECKS").ok().and_then(|text| text.parse().ok()).unwrap_or(5_000);
    let (redis, prefix) = (Server::Redis.address(), unique("many"));
    let tiers = format!("{}{}", redis_tier(&redis, &prefix), postgres_tier(&["3"]).await);
    let rig = Rig::new(&tiers, LEDGER);
    let filler = "x".repeat(980);
    let value = |id: usize| format!(r#"{{"id":{id},"amount_cents":1,"note":"{filler}"}}"#);
    let messages: Vec<Candidate> = (0..count).map(|id| valued(Some(value(id).as_bytes()))).collect();
    let clock = Clock::system();
    let checked = rig.check(&messages).await;
    let took = clock.monotonic();
    println!("{count} messages of 1 KiB, JSON Schema, Redis then PostgreSQL: {took:?}");
    let sends = checked.iter().filter(|checked| checked.decision(&[], false) == Decision::Send).count();
    assert_eq!((checked.len(), sends, checked[3].idempotency), (count, count - 1, IdempotencyVerdict::Applied));
    assert!(checked.iter().zip(0..).all(|(checked, id)| checked.asked.as_deref() == Some(id.to_string().as_str())), "in the order given");
}
