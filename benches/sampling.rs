//! How fast both ends of 2,000 partitions are asked for on a real broker. Run by `cargo bench --bench sampling` with the servers of
//! `tests/services/ctl up`.
//!
//! One line each: name, ours, reference, ratio (medians of 5, interleaved in this run).
//! - `sampling`: the reference is `fetch_watermarks` one partition at a time; the ratio says how many times faster ours is (goal: at least 8).
//! - `sampling_100x_messages`: ours is a log with 100 times the messages, the reference one with few; the ratio is ours to the
//!   reference (goal: at most 1.1).

use std::time::Duration;

use lazaret::domain::clock::Clock;
use lazaret::domain::settings::ClusterSettings;
use lazaret::kafka::inspect::{Inspector, TopicPartition};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer as _, ThreadedProducer};

const TOPICS: i32 = 40;
const PARTITIONS: i32 = 50;
const RUNS: usize = 5;
/// One sample takes some 25 ms, less than a scheduler's whim: so many are one measurement.
const SAMPLES: u32 = 8;
const FEW: usize = 2;
const MANY: usize = 100 * FEW;
const PATIENCE: Duration = Duration::from_secs(120);

fn main() {
    // `cargo test --all-targets` runs benches too, without this word.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let Ok(bootstrap) = std::env::var("LAZARET_TEST_KAFKA") else {
        println!("sampling: not run: LAZARET_TEST_KAFKA is not set (eval \"$(tests/services/ctl up)\")");
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let cluster = Cluster::new(&bootstrap);
    let (few, many) = (cluster.topics("few"), cluster.topics("many"));
    runtime.block_on(async {
        cluster.create(&few).await;
        cluster.create(&many).await;
    });
    cluster.fill(&few, FEW);
    cluster.fill(&many, MANY);
    let outcome = std::panic::catch_unwind(|| measure(&bootstrap, &partitions(&few), &partitions(&many)));
    runtime.block_on(async {
        cluster.delete(&few).await;
        cluster.delete(&many).await;
    });
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

fn measure(bootstrap: &str, few: &[TopicPartition], many: &[TopicPartition]) {
    let settings = ClusterSettings {
        name: "bench".to_owned(),
        bootstrap_servers: bootstrap.to_owned(),
        properties: std::collections::BTreeMap::new(),
        oauth_token: None,
        discovery_interval_s: 30,
        sample_interval_s: 15,
        group_id: "lazaret-bench".to_owned(),
    };
    let inspector = Inspector::connect(&settings).expect("the settings are fine");
    let reference: BaseConsumer = ClientConfig::new().set("bootstrap.servers", bootstrap).create().expect("a consumer");
    let bulk = |partitions: &[TopicPartition], messages: usize| {
        for ((topic, partition), ends) in inspector.log_ends(partitions, PATIENCE) {
            let ends = ends.unwrap_or_else(|error| panic!("{topic} {partition}: {error}"));
            assert_eq!(usize::try_from(ends.end - ends.start), Ok(messages), "{topic} {partition}");
        }
    };
    let one_by_one = || {
        for (topic, partition) in few {
            reference.fetch_watermarks(topic, *partition, PATIENCE).expect("watermarks");
        }
    };
    // Connections and metadata first: neither side is to pay for them.
    bulk(few, FEW);
    bulk(many, MANY);
    one_by_one();

    let clock = Clock::system();
    let timed = |work: &dyn Fn()| {
        let began = clock.monotonic();
        work();
        clock.monotonic() - began
    };
    let sampled =
        |partitions: &[TopicPartition], messages: usize| timed(&|| (0..SAMPLES).for_each(|_| bulk(partitions, messages))) / SAMPLES;
    let (mut ours, mut theirs, mut with_many) = (Vec::new(), Vec::new(), Vec::new());
    for run in 0..RUNS {
        theirs.push(timed(&one_by_one));
        // Whoever comes first alternates.
        if run % 2 == 0 {
            ours.push(sampled(few, FEW));
            with_many.push(sampled(many, MANY));
        } else {
            with_many.push(sampled(many, MANY));
            ours.push(sampled(few, FEW));
        }
    }
    let (ours, theirs, with_many) = (median(ours), median(theirs), median(with_many));
    println!("sampling {:.1}ms {:.1}ms {:.1}", ms(ours), ms(theirs), ms(theirs) / ms(ours));
    println!("sampling_100x_messages {:.1}ms {:.1}ms {:.2}", ms(with_many), ms(ours), ms(with_many) / ms(ours));
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn partitions(topics: &[String]) -> Vec<TopicPartition> {
    topics.iter().flat_map(|topic| (0..PARTITIONS).map(|partition| (topic.clone(), partition))).collect()
}

/// The topics that this run makes and takes away again.
struct Cluster {
    admin: AdminClient<DefaultClientContext>,
    producer: ThreadedProducer<DefaultProducerContext>,
    run: i64,
}

impl Cluster {
    fn new(bootstrap: &str) -> Cluster {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", bootstrap).set("linger.ms", "20");
        let admin = config.create().expect("an admin client");
        let producer = config.create().expect("a producer");
        Cluster { admin, producer, run: Clock::system().now_ms() }
    }

    fn topics(&self, kind: &str) -> Vec<String> {
        (0..TOPICS).map(|n| format!("bench-sampling-{kind}-{}-{n}", self.run)).collect()
    }

    async fn create(&self, names: &[String]) {
        let topics: Vec<NewTopic<'_>> = names.iter().map(|name| NewTopic::new(name, PARTITIONS, TopicReplication::Fixed(1))).collect();
        let options = AdminOptions::new().request_timeout(Some(PATIENCE)).operation_timeout(Some(PATIENCE));
        for created in self.admin.create_topics(&topics, &options).await.expect("topics can be made") {
            created.expect("the topic is new");
        }
    }

    async fn delete(&self, names: &[String]) {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let options = AdminOptions::new().request_timeout(Some(PATIENCE)).operation_timeout(Some(PATIENCE));
        let _ = self.admin.delete_topics(&names, &options).await;
    }

    fn fill(&self, names: &[String], messages: usize) {
        for name in names {
            for partition in 0..PARTITIONS {
                for _ in 0..messages {
                    let record = BaseRecord::<[u8], [u8]>::to(name).partition(partition).payload(&[b'x'; 64]);
                    self.producer.send(record).map_err(|(error, _)| error).expect("room in the queue");
                }
            }
            self.producer.flush(PATIENCE).expect("the broker takes them");
        }
    }
}
