//! A shop on real servers: payments in Kafka, a wallet that debits in PostgreSQL with a marker row beside the debit and a hot tier in Redis,
//! and the outage that the replay is to mend.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lazaret::app::Settings;
use lazaret::app::audit_key::KeySource;
use lazaret::domain::egress::AllowList;
use lazaret::domain::settings::{ClusterSettings, DlqSettings, Secret, TopicMatch};
use lazaret::domain::template::KeyTemplate;
use lazaret::domain::terms::{
    ApprovalTerms, ExpiredClaim, Idempotency, Ledger, RedisLedger, ReplayTerms, Schema, SchemaCheck, SchemaKind, Tier,
};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::message::Message as _;
use redis::Commands as _;

use crate::support::producer::{NewRecord, TestProducer, Topics};
use crate::support::{self, Server, unique, variable};

const PATIENCE: Duration = Duration::from_secs(60);
const SCHEMA: &str = r#"{"type":"object","required":["payment_id","amount_cents"],"properties":{"amount_cents":{"type":"integer"}}}"#;
/// Payments of the outage; those of them that were debited late; those with a payload from before the migration.
pub const OUTAGE: usize = 200;
pub const APPLIED_LATE: usize = 12;
pub const OLD_PAYLOADS: usize = 3;

/// Topics, databases and names of its own.
pub struct Shop {
    pub topic: String,
    pub dlq: String,
    pub group: String,
    topics: Topics,
    prefix: String,
    wallet: sqlx::PgPool,
    wallet_url: String,
    database_url: String,
    folder: tempfile::TempDir,
}

impl Shop {
    /// Open, with nothing sold yet. Lazaret's own database is PostgreSQL.
    pub async fn open() -> Shop {
        let (topic, dlq, group) = (unique("payments"), unique("payments.wallet.DLQ"), unique("wallet"));
        let topics = Topics::real();
        topics.create_many(&[&topic, &dlq], 3, &[]).await;
        let wallet_url = support::postgres_url().await;
        let wallet = sqlx::PgPool::connect(&wallet_url).await.expect("the wallet's database");
        sqlx::raw_sql("CREATE TABLE markers (event_id TEXT PRIMARY KEY); CREATE TABLE debits (event_id TEXT NOT NULL)")
            .execute(&wallet)
            .await
            .expect("its tables");
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("payment.json"), SCHEMA).expect("a schema");
        let database_url = support::postgres_url().await;
        Shop { topic, dlq, group, topics, prefix: unique("wallet"), wallet, wallet_url, database_url, folder }
    }

    /// Everything that Lazaret is told, with short times so that nobody waits.
    pub fn settings(&self) -> Settings {
        let key = KeyTemplate::parse("{value:/payment_id}").expect("a template");
        let dlq = DlqSettings {
            owner: Some("payments".to_owned()),
            consumer_group: Some(self.group.clone()),
            business_key: Some(key.clone()),
            ..DlqSettings::for_topics("main", TopicMatch::Names(vec![self.dlq.clone()]))
        };
        let terms = ReplayTerms {
            schema: Some(SchemaCheck { schema: "payment".to_owned(), transform: None, fences: Vec::new() }),
            idempotency: Some(Idempotency { ledger: "wallet".to_owned(), key }),
            max_per_second: 100,
            verify_after_s: 1,
            ..ReplayTerms::default()
        };
        let hot = RedisLedger {
            url: Secret::new(Server::Redis.address()),
            key: format!("{}:{{id}}", self.prefix),
            done: vec!["done".to_owned()],
            in_progress: vec!["in_progress".to_owned()],
            failed: Vec::new(),
            partial: Vec::new(),
            ttl_s: 86_400,
            margin_s: 3_600,
            claim_lease_s: 300,
        };
        let query = "SELECT event_id FROM markers WHERE event_id = ANY($1::text[])".to_owned();
        let durable = Tier::Sql { url: Secret::new(self.wallet_url.clone()), query };
        Settings {
            listen: "127.0.0.1:0".to_owned(),
            public_url: None,
            metrics_listen: None,
            read_only: false,
            database_url: Secret::new(self.database_url.clone()),
            audit_key: KeySource::Given(support::audit_key()),
            instance_name: "test".to_owned(),
            lease: Duration::from_secs(3),
            session_hours: 12,
            sign_in_attempts_per_minute: 100,
            samples_fine: Duration::from_secs(48 * 3_600),
            clusters: vec![ClusterSettings {
                name: "main".to_owned(),
                bootstrap_servers: self.topics.bootstrap().to_owned(),
                properties: BTreeMap::new(),
                oauth_token: None,
                discovery_interval_s: 5,
                sample_interval_s: 5,
                group_id: unique("lazaret"),
            }],
            checks: Vec::new(),
            dlqs: vec![dlq],
            terms: vec![terms],
            approval: ApprovalTerms::default(),
            ledgers: BTreeMap::from([(
                "wallet".to_owned(),
                Ledger { expired_claim: ExpiredClaim::Hold, hot: Some(hot), durable: Some(durable) },
            )]),
            schemas: BTreeMap::from([(
                "payment".to_owned(),
                Schema { kind: SchemaKind::JsonSchema { path: self.folder.path().join("payment.json") } },
            )]),
            class_rules: Vec::new(),
            allow_private: AllowList::default(),
            heartbeat_url: None,
        }
    }

    /// 200 payments of 200 users that the wallet could not debit, but for 12 whose last try it committed without knowing. All are dead-lettered, and the
    /// wallet's group has committed past them.
    pub async fn outage(&self, now_ms: i64) {
        let producer = TestProducer::at(self.topics.bootstrap());
        let mut next = [0_i64; 3];
        for n in 0..OUTAGE {
            let (id, user) = (format!("pay-{n:03}"), format!("user-{n}"));
            let value = match n % 60 == 30 && n / 60 < OLD_PAYLOADS {
                true => format!(r#"{{"payment_id":"{id}","user":"{user}","amount":"2.50"}}"#),
                false => format!(r#"{{"payment_id":"{id}","user":"{user}","amount_cents":250}}"#),
            };
            let partition = n % 3;
            let record = NewRecord::value(value).key(user).on_partition(partition as i32);
            producer.send(&self.topic, &record.clone().at(now_ms - 600_000));
            let header = |name: &str, value: &[u8]| (name.to_owned(), Some(value.to_vec()));
            let headers = vec![
                header("kafka_dlt-original-topic", self.topic.as_bytes()),
                header("kafka_dlt-original-partition", &(partition as i32).to_be_bytes()),
                header("kafka_dlt-original-offset", &next[partition].to_be_bytes()),
                header("kafka_dlt-original-timestamp", &(now_ms - 600_000).to_be_bytes()),
                header("kafka_dlt-original-consumer-group", self.group.as_bytes()),
                header("kafka_dlt-exception-fqcn", b"com.northquay.wallet.WalletUnavailableException"),
                header("kafka_dlt-exception-message", b"wallet database refused the connection"),
            ];
            producer.send(&self.dlq, &NewRecord { headers, ..record }.at(now_ms - 1_200_000));
            next[partition] += 1;
            if n % 16 == 7 && n / 16 < APPLIED_LATE {
                self.debit(&id).await;
            }
        }
        producer.flush();
        let consumer = self.consumer();
        let mut past = rdkafka::TopicPartitionList::new();
        for (partition, offset) in (0..).zip(next) {
            past.add_partition_offset(&self.topic, partition, rdkafka::Offset::Offset(offset)).expect("an offset");
        }
        consumer.commit(&past, CommitMode::Sync).expect("the group commits");
    }

    /// Marker and debit in one transaction. Whether it was done: false for a duplicate.
    async fn debit(&self, id: &str) -> bool {
        let mut tx = self.wallet.begin().await.expect("a transaction");
        let marked = sqlx::query("INSERT INTO markers (event_id) VALUES ($1) ON CONFLICT DO NOTHING").bind(id).execute(&mut *tx).await;
        if marked.expect("a marker").rows_affected() == 0 {
            return false;
        }
        sqlx::query("INSERT INTO debits (event_id) VALUES ($1)").bind(id).execute(&mut *tx).await.expect("a debit");
        tx.commit().await.expect("a commit");
        true
    }

    fn consumer(&self) -> BaseConsumer {
        ClientConfig::new()
            .set("bootstrap.servers", self.topics.bootstrap())
            .set("group.id", &self.group)
            .set("enable.auto.commit", "false")
            .set("allow.auto.create.topics", "false")
            .set("auto.offset.reset", "earliest")
            .create()
            .expect("a consumer")
    }

    /// The wallet at work, a member of its group, until dropped.
    pub fn wallet(self: &Arc<Self>) -> Wallet {
        let (shop, stop) = (Arc::clone(self), Arc::new(AtomicBool::new(false)));
        let (runtime, over) = (tokio::runtime::Handle::current(), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let consumer = shop.consumer();
            consumer.subscribe(&[&shop.topic]).expect("a subscription");
            let mut hot = redis::Client::open(Server::Redis.address()).and_then(|client| client.get_connection()).expect("Redis");
            while !over.load(Ordering::Relaxed) {
                let Some(Ok(message)) = consumer.poll(Duration::from_millis(50)) else { continue };
                let payment: serde_json::Value = serde_json::from_slice(message.payload().unwrap_or_default()).expect("JSON");
                let id = payment["payment_id"].as_str().expect("an id");
                let key = format!("{}:{id}", shop.prefix);
                if hot.get::<_, Option<String>>(&key).expect("Redis answers").as_deref() != Some("done") {
                    runtime.block_on(shop.debit(id));
                    hot.set_ex::<_, _, ()>(&key, "done", 86_400).expect("Redis answers");
                }
                consumer.commit_message(&message, CommitMode::Sync).expect("a commit");
            }
        });
        Wallet { stop, thread: Some(thread) }
    }

    /// Payments that were debited, and how many debits there are of them all.
    pub async fn debits(&self) -> (i64, i64) {
        sqlx::query_as("SELECT COUNT(DISTINCT event_id), COUNT(*) FROM debits").fetch_one(&self.wallet).await.expect("an answer")
    }

    /// What kcat reads in the topic beyond the payments of the outage: the replay id of each record.
    pub fn replayed(&self) -> Vec<String> {
        let kcat = std::process::Command::new(variable("LAZARET_TEST_KCAT"))
            .args([
                "-C",
                "-b",
                self.topics.bootstrap(),
                "-t",
                &self.topic,
                "-e",
                "-q",
                "-f",
                "%h\n",
                "-X",
                "isolation.level=read_uncommitted",
            ])
            .output()
            .expect("kcat runs");
        assert!(kcat.status.success(), "{}", String::from_utf8_lossy(&kcat.stderr));
        let out = String::from_utf8(kcat.stdout).expect("text");
        let id = |line: &str| line.split(',').find_map(|header| header.strip_prefix("lazaret-replay-id=")).map(str::to_owned);
        out.lines().filter_map(id).collect()
    }

    /// That each replayed record is there once; how many there are.
    pub fn replayed_once(&self) -> usize {
        let ids = self.replayed();
        let different: BTreeSet<&String> = ids.iter().collect();
        assert_eq!(ids.len(), different.len(), "a replay id is there twice");
        ids.len()
    }

    /// Waits until the group has a member that was given the topic's partitions.
    pub async fn wallet_reads(&self) {
        let consumer = self.consumer();
        support::producer::until(PATIENCE, "a member of the wallet's group", || {
            let groups = consumer.fetch_group_list(Some(&self.group), Duration::from_secs(5)).ok()?;
            let group = groups.groups().iter().find(|group| group.name() == self.group)?;
            (group.state() == "Stable" && !group.members().is_empty()).then_some(())
        })
        .await;
    }
}

/// The wallet's consumer.
pub struct Wallet {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Wallet {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the wallet failed");
        }
    }
}
