//! Intake driven by hand: one instance is a consumer and its state machine, pumped until something holds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lazaret::domain::clock::Clock;
use lazaret::domain::message::MessageState;
use lazaret::domain::settings::{ClusterSettings, DlqSettings, Secret, Start, TopicMatch};
use lazaret::kafka::inspect::Inspector;
use lazaret::kafka::intake::{BatchLimits, IntakeCommand, IntakeConsumer, IntakeEvent};
use lazaret::services::intake::{ClusterStatus, Intake};
use lazaret::store::Store;
use lazaret::store::messages::{MessageFilter, MessageRow};

use crate::support::producer::{NewRecord, TestProducer};

/// Longer than anything here takes on a busy machine; a condition that holds earlier ends the wait.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What one test watches: topics that begin with `prefix`, a consumer group of its own, its database.
#[derive(Clone)]
pub struct Rig {
    pub store: Store,
    pub clock: Clock,
    pub cluster: ClusterSettings,
    pub dlqs: Vec<DlqSettings>,
}

/// An instance: what a process runs for one cluster.
pub struct Instance {
    pub intake: Intake,
    pub consumer: IntakeConsumer,
    pub status: ClusterStatus,
    pub clock: Clock,
    /// Everything it was told, in short words, for the message of a failed wait.
    seen: Vec<String>,
}

impl Rig {
    pub fn new(store: Store, bootstrap: &str, prefix: &str) -> Rig {
        let pattern = regex::Regex::new(&format!("^{}", regex::escape(prefix))).expect("a valid pattern");
        Rig {
            store,
            clock: Clock::system(),
            cluster: cluster(bootstrap, prefix),
            dlqs: vec![DlqSettings::for_topics("main", TopicMatch::Pattern(pattern))],
        }
    }

    pub fn start_at(mut self, start: Start) -> Rig {
        self.dlqs[0].start = start;
        self
    }

    pub fn property(mut self, name: &str, value: &str) -> Rig {
        self.cluster.properties.insert(name.to_owned(), Secret::new(value));
        self
    }

    pub fn inspector(&self) -> Arc<Inspector> {
        Arc::new(Inspector::connect(&self.cluster).expect("valid settings"))
    }

    /// A further instance with its own consumer. Nothing is asked before it is pumped.
    pub fn instance(&self) -> Instance {
        let status = ClusterStatus::new(&self.cluster.name);
        let intake = Intake::new(
            self.store.clone(),
            self.inspector(),
            self.clock.clone(),
            &self.cluster,
            self.dlqs.clone(),
            Vec::new(),
            status.clone(),
        );
        let limits = BatchLimits { records: 500, bytes: 4 << 20, linger: Duration::from_millis(20) };
        let consumer = IntakeConsumer::start(&self.cluster, limits).expect("valid settings");
        Instance { intake, consumer, status, clock: self.clock.clone(), seen: Vec::new() }
    }

    /// Every stored message of a topic, by incarnation, partition and offset.
    pub async fn messages(&self, topic: &str) -> Vec<MessageRow> {
        let filter = MessageFilter { cluster: Some("main".to_owned()), topic: Some(topic.to_owned()), ..MessageFilter::default() };
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = self.store.messages(&filter, after, 500).await.expect("messages can be read");
            all.extend(page.items);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        all.sort_by_key(|message| (message.incarnation, message.partition, message.offset));
        all
    }

    /// How many offsets are stored, by incarnation and partition; panics if one is stored twice.
    pub async fn stored(&self, topic: &str) -> BTreeMap<(i32, i32), Vec<i64>> {
        let mut stored: BTreeMap<(i32, i32), Vec<i64>> = BTreeMap::new();
        for message in self.messages(topic).await {
            stored.entry((message.incarnation, message.partition)).or_default().push(message.offset);
        }
        for ((incarnation, partition), offsets) in &stored {
            assert!(offsets.is_sorted_by(|a, b| a < b), "{topic} {incarnation}/{partition}: stored twice among {offsets:?}");
        }
        stored
    }

    /// What the counters say is quarantined: cheap enough to ask in a loop.
    pub async fn count(&self, topic: &str) -> i64 {
        let Some(dlq) = self.store.dlq("main", topic).await.expect("DLQs can be read") else { return 0 };
        let counts = self.store.dlq_counts(None).await.expect("counters can be read");
        counts.get(&dlq.id).map_or(0, |counts| counts.by_state.get(MessageState::Quarantined.as_str()).copied().unwrap_or(0))
    }

    pub async fn positions(&self, topic: &str) -> Vec<i64> {
        let Some(dlq) = self.store.dlq("main", topic).await.expect("DLQs can be read") else { return Vec::new() };
        let mut positions = self.store.positions(Some(dlq.id)).await.expect("positions can be read");
        positions.sort_by_key(|position| position.id);
        positions.iter().map(|position| position.next_offset).collect()
    }
}

/// Settings of a cluster whose group nobody else uses. Discovery runs when a test says so, or when intake finds a reason.
pub fn cluster(bootstrap: &str, group: &str) -> ClusterSettings {
    ClusterSettings {
        name: "main".to_owned(),
        bootstrap_servers: bootstrap.to_owned(),
        properties: BTreeMap::new(),
        oauth_token: None,
        discovery_interval_s: 5,
        sample_interval_s: 15,
        group_id: group.to_owned(),
    }
}

/// `n` small records for one partition, with values that tell them apart.
pub fn records(n: usize, partition: i32, word: &str) -> Vec<NewRecord> {
    (0..n)
        .map(|i| NewRecord::value(format!("{{\"payment_id\":\"{word}-{partition}-{i}\"}}")).key(format!("k{i}")).on_partition(partition))
        .collect()
}

/// Writes them and waits until the broker has them.
pub fn produce(bootstrap: &str, topic: &str, records: Vec<NewRecord>) {
    TestProducer::at(bootstrap).send_all(topic, records);
}

impl Instance {
    /// One event, or whatever is due, or a short wait.
    pub async fn step(&mut self) {
        let due = self.intake.due_in().min(Duration::from_millis(50));
        let commands = tokio::select! {
            biased;
            event = self.consumer.next_event(), if !self.intake.is_stalled() => {
                self.seen.push(in_short(&event));
                self.intake.on_event(event).await
            }
            () = tokio::time::sleep(due) => {
                if self.intake.due_in().is_zero() { self.intake.tick().await } else { Vec::new() }
            }
        };
        self.obey(commands);
    }

    pub fn obey(&mut self, commands: Vec<IntakeCommand>) {
        for command in commands {
            self.seen.push(format!("{command:?}"));
            self.consumer.command(command);
        }
    }

    pub async fn discover(&mut self) {
        let commands = self.intake.discover().await;
        self.obey(commands);
    }

    /// Goes on until `holds`; panics with what happened when that takes longer than [`PATIENCE`].
    pub async fn until(&mut self, what: &str, holds: impl AsyncFn() -> bool) {
        let deadline = self.clock.monotonic() + PATIENCE;
        while !holds().await {
            assert!(self.clock.monotonic() < deadline, "waited in vain until {what}; {:#?}\n{:#?}", self.status.view(), self.tail());
            self.step().await;
        }
    }

    /// Goes on for a while: for what must *not* happen.
    pub async fn go_on_for(&mut self, time: Duration) {
        let end = self.clock.monotonic() + time;
        while self.clock.monotonic() < end {
            self.step().await;
        }
    }

    /// Goes on while `time` passes and `then` happens beside it.
    pub async fn go_on_at_least(&mut self, time: Duration, then: impl AsyncFnOnce()) {
        let over = std::sync::atomic::AtomicBool::new(false);
        let ordering = std::sync::atomic::Ordering::SeqCst;
        let other = async {
            tokio::time::sleep(time).await;
            then().await;
            over.store(true, ordering);
        };
        let ours = async {
            while !over.load(ordering) {
                self.step().await;
            }
        };
        tokio::join!(other, ours);
    }

    /// What it was told and what it answered, in short words.
    pub fn seen(&self) -> &[String] {
        &self.seen
    }

    fn tail(&self) -> &[String] {
        &self.seen[self.seen.len().saturating_sub(60)..]
    }
}

/// Two instances at once, each as a task would run it.
pub async fn both_until(a: &mut Instance, b: &mut Instance, what: &str, holds: impl AsyncFn() -> bool) {
    let deadline = a.clock.monotonic() + PATIENCE;
    while !holds().await {
        assert!(a.clock.monotonic() < deadline, "waited in vain until {what}\nfirst: {:#?}\nsecond: {:#?}", a.tail(), b.tail());
        tokio::join!(a.step(), b.step());
    }
}

fn in_short(event: &IntakeEvent) -> String {
    match event {
        IntakeEvent::Batch(batch) => {
            let parts: Vec<_> = batch
                .partitions
                .iter()
                .map(|((_, partition), read)| (*partition, read.generation, read.records.len(), read.position))
                .collect();
            format!("Batch (partition, generation, records, position) {parts:?}")
        }
        event => format!("{event:?}"),
    }
}

/// Like `on_both_stores!`, for what needs the real broker too.
#[macro_export]
macro_rules! on_real_kafka {
    ($($(#[$meta:meta])* async fn $name:ident($store:ident: Store) $body:block)+) => {$(
        mod $name {
            use super::*;

            async fn body($store: Store) $body

            $(#[$meta])*
            #[tokio::test(flavor = "multi_thread")]
            #[ignore = "needs a real Kafka: run tests/run"]
            async fn sqlite() {
                let (store, _folder) = $crate::support::sqlite().await;
                body(store).await;
            }

            $(#[$meta])*
            #[tokio::test(flavor = "multi_thread")]
            #[ignore = "needs a real Kafka and a real PostgreSQL: run tests/run"]
            async fn postgres() {
                body($crate::support::postgres().await).await;
            }
        }
    )+};
}
