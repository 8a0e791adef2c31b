//! Processes that die at any instant, and what an independent reader then finds in target and ledger: nothing lost, nothing twice.

#![cfg_attr(
    not(feature = "failpoints"),
    allow(dead_code, unused_imports, reason = "most of it needs the points at which a process can die")
)]

use std::process::{Child, Command, Stdio};

use super::*;
use crate::support::producer::TestProducer;

/// What a child process is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Orders {
    place: Place,
    /// The point at which it kills itself, and how often it passes there before.
    dies_at: Option<(String, usize)>,
    /// Points at which it sleeps, and for how many ms.
    stalls_at: Vec<(String, u64)>,
    /// Faults that are planted.
    planted: Vec<String>,
}

const ORDERS: &str = "LAZARET_CHILD_ORDERS";

/// An executor in a process of its own.
struct Process(Child);

impl Process {
    fn start(place: &Place, dies_at: Option<(&str, usize)>, planted: &[&str]) -> Process {
        Process::with(&Orders {
            place: place.clone(),
            dies_at: dies_at.map(|(point, after)| (point.to_owned(), after)),
            stalls_at: Vec::new(),
            planted: planted.iter().map(|fault| (*fault).to_owned()).collect(),
        })
    }

    fn with(orders: &Orders) -> Process {
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "replay::execution::faults::executor_process", "--include-ignored", "--nocapture"])
            .env(ORDERS, serde_json::to_string(orders).expect("JSON"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        Process(child)
    }

    fn signal(&self, signal: &str) {
        let done = Command::new("kill").args(["-s", signal, &self.0.id().to_string()]).status().expect("kill runs");
        assert!(done.success());
    }

    fn kill(mut self) {
        self.0.kill().expect("it can be killed");
        self.0.wait().expect("it is gone");
    }

    fn is_dead(&mut self) -> bool {
        self.0.try_wait().expect("can be asked").is_some()
    }

    async fn until_dead(&mut self) {
        let clock = Clock::system();
        while !self.is_dead() {
            assert!(clock.monotonic() < PATIENCE, "it did not come to the point at which it dies");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The body of a [`Process`]; alone it does nothing.
#[test]
#[ignore = "a process of other tests: run tests/run"]
fn executor_process() {
    let Ok(orders) = std::env::var(ORDERS) else { return };
    let orders: Orders = serde_json::from_str(&orders).expect("orders");
    points::set(&orders);
    lazaret::telemetry::install_logs(lazaret::telemetry::LogFormat::Human, |write| write()).expect("a filter");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (replays, cluster) = orders.place.replays().await;
        let mut supervisor = Supervisor::new(Clock::system());
        ReplayJob { replays, cluster, holder: unique("child"), timing: timing() }.spawn(&mut supervisor);
        // Until it is killed; a test that forgets it ends with its parent's patience.
        tokio::time::sleep(PATIENCE * 3).await;
    });
}

#[cfg(feature = "failpoints")]
mod points {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    pub fn set(orders: &Orders) {
        if let Some((point, after)) = orders.dies_at.clone() {
            let passed = AtomicUsize::new(0);
            let in_the_middle = point == "replay::mid_produce";
            fail::cfg_callback(point, move || {
                if passed.fetch_add(1, Ordering::SeqCst) == after {
                    if in_the_middle {
                        // What was handed over so far is acknowledged, the rest never left.
                        std::thread::sleep(Duration::from_millis(300));
                    }
                    let _ = Command::new("kill").args(["-9", &std::process::id().to_string()]).status();
                    loop {
                        std::thread::park();
                    }
                }
            })
            .expect("a point");
        }
        for (point, ms) in &orders.stalls_at {
            fail::cfg(point.as_str(), &format!("1*sleep({ms})")).expect("a point");
        }
        for fault in &orders.planted {
            fail::cfg(fault.as_str(), "return").expect("a fault");
        }
    }
}

#[cfg(not(feature = "failpoints"))]
mod points {
    use super::*;

    pub fn set(orders: &Orders) {
        assert!(orders.dies_at.is_none() && orders.planted.is_empty() && orders.stalls_at.is_empty(), "build with --features failpoints");
    }
}

/// What an independent look at target and ledger finds wrong: payments that neither arrived nor are in the ledger, and those that did so more than once.
async fn damage(rig: &Rig, payments: usize, applied: &[usize]) -> (Vec<String>, Vec<String>) {
    let copies = rig.copies();
    let count = |n: usize| copies.get(&format!("p{n}")).copied().unwrap_or(0) + usize::from(applied.contains(&n));
    let lost = (0..payments).filter(|n| count(*n) == 0).map(|n| format!("p{n}")).collect();
    let double = (0..payments).filter(|n| count(*n) > 1).map(|n| format!("p{n} x{}", count(n.to_owned()))).collect();
    (lost, double)
}

/// Every offset that the database believes in holds that message.
async fn what_is_stored_is_true(rig: &Rig, id: i64, ids: &[i64]) {
    let uid = rig.batch(id).await.uid;
    let by_replay_id: BTreeMap<String, (i32, i64)> = rig
        .arrived()
        .into_iter()
        .map(|arrived| {
            let at =
                arrived.headers.split("lazaret-replay-id=").nth(1).expect("a replay id").split(',').next().expect("it ends").to_owned();
            (at, (arrived.partition, arrived.offset))
        })
        .collect();
    let stored = sent_places(rig, id).await;
    for id in ids {
        let at = by_replay_id.get(&format!("{uid}.{id}")).copied();
        assert_eq!(stored.get(id).copied(), at, "message {id}");
    }
}

/// Partition and offset of each item that is stored as sent.
async fn sent_places(rig: &Rig, id: i64) -> BTreeMap<i64, (i32, i64)> {
    const SQL: &str = "SELECT message_id, target_partition, sent_offset FROM replay_items WHERE batch_id = $1 AND state = 'sent'";
    let rows: Vec<(i64, i32, i64)> = match &rig.store {
        Store::Postgres(database) => sqlx::query_as(SQL).bind(id).fetch_all(&database.pool).await.expect("rows"),
        Store::Sqlite(database) => sqlx::query_as(SQL).bind(id).fetch_all(&database.readers).await.expect("rows"),
    };
    rows.into_iter().map(|(message, partition, offset)| (message, (partition, offset))).collect()
}

const APPLIED: [usize; 3] = [5, 50, 95];

/// A batch of 120 payments of 30 users, three of which are applied already, about to go.
async fn about_to_go(base: Base, partitions: i32) -> (Rig, Vec<i64>, i64) {
    let rig = Rig::new(base, partitions, "canary = 0\nmax_per_second = 40").await;
    rig.applied(APPLIED.into_iter()).await;
    let ids = rig.payments(120, 30).await;
    let id = rig.approved(rig.proposal()).await;
    (rig, ids, id)
}

/// One process dies where it is told; the next goes on.
async fn survives(base: Base, point: &str, after: usize) {
    let (rig, ids, id) = about_to_go(base, 2).await;
    Process::start(&rig.place, Some((point, after)), &[]).until_dead().await;
    let next = Process::start(&rig.place, None, &[]);
    let batch = rig.until_executed(id).await;
    next.kill();
    assert_eq!(damage(&rig, 120, &APPLIED).await, (Vec::new(), Vec::new()), "{point}: {:#?}", rig.log(id).await);
    assert_eq!((batch.progress.sent, batch.progress.already_applied), (117, 3));
    what_is_stored_is_true(&rig, id, &ids).await;
    let expected = [("replayed/already_applied", 3), ("replayed/sent", 117)];
    assert_eq!(rig.states(&ids).await, expected.map(|(word, count)| (word.to_owned(), count)).into());
}

macro_rules! dies_at {
    ($($name:ident: $point:literal;)+) => {
        on_both_bases! {$(
            #[cfg(feature = "failpoints")]
            async fn $name(base: Base) {
                survives(base, $point, 1).await;
            }
        )+}
    };
}

dies_at! {
    killed_when_claimed: "replay::claimed";
    killed_when_checked: "replay::checked";
    killed_when_intended: "replay::intended";
    killed_while_producing: "replay::mid_produce";
    killed_when_produced: "replay::produced";
    killed_while_storing_outcomes: "replay::mid_outcome";
}

/// How many random kills; 100 on demand.
fn kills() -> usize {
    std::env::var("LAZARET_TEST_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(20)
}

on_both_bases! {
    async fn killed_at_random_nothing_is_lost_and_nothing_is_sent_twice(base: Base) {
        // Half of the kills for each of the two databases.
        let kills = kills().div_ceil(2);
        let rig = Rig::new(base, 3, "canary = 0\nmax_per_second = 100").await;
        rig.applied(APPLIED.into_iter()).await;
        let payments = 100 * kills.max(5);
        let ids = rig.payments(payments, 97).await;
        let id = rig.approved(rig.proposal()).await;
        let seed = u64::try_from(rig.clock.now_ms()).unwrap();
        let mut random = seed;
        let (mut killed, mut in_doubt) = (0, 0);
        while killed < kills {
            let process = Process::start(&rig.place, None, &[]);
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // It takes the lease over and resolves what is in doubt within some three seconds; then it sends for a while.
            tokio::time::sleep(Duration::from_millis(2_200 + (random >> 33) % 3_000)).await;
            process.kill();
            killed += 1;
            in_doubt += usize::from(!rig.store.items_in_doubt(id).await.unwrap().is_empty());
            if rig.batch(id).await.state == BatchState::Executed {
                break;
            }
        }
        let process = Process::start(&rig.place, None, &[]);
        let batch = rig.until_executed(id).await;
        process.kill();
        let (lost, double) = damage(&rig, payments, &APPLIED).await;
        println!("{base:?}, seed {seed}: {killed} kills, {in_doubt} of them with something in doubt: {} lost, {} double", lost.len(), double.len());
        assert_eq!((lost, double), (Vec::new(), Vec::new()), "seed {seed}: {:#?}", rig.log(id).await);
        assert_eq!(batch.progress.sent, i64::try_from(payments - APPLIED.len()).unwrap());
        what_is_stored_is_true(&rig, id, &ids).await;
    }

    /// Each key's messages arrive in the order of their origin, whatever died in between.
    #[cfg(feature = "failpoints")]
    async fn a_key_keeps_its_order_across_a_death(base: Base) {
        let (rig, _, id) = about_to_go(base, 1).await;
        Process::start(&rig.place, Some(("replay::mid_produce", 1)), &[]).until_dead().await;
        let next = Process::start(&rig.place, None, &[]);
        rig.until_executed(id).await;
        next.kill();
        let mut last: BTreeMap<String, usize> = BTreeMap::new();
        for arrived in rig.arrived() {
            let n: usize = payment_of(&arrived.value)[1..].parse().unwrap();
            assert!(last.insert(arrived.key.clone(), n).is_none_or(|before| before < n), "{}: {n} came late", arrived.key);
        }
    }

    /// Case R12: a process that was stopped past its lease sends and writes nothing more.
    #[cfg(feature = "failpoints")]
    async fn stopped_past_its_lease_it_sends_nothing_more(base: Base) {
        let (rig, ids, id) = about_to_go(base, 2).await;
        // It sleeps between the intent and the sending, and is stopped there.
        let orders = Orders { place: rig.place.clone(), dies_at: None, stalls_at: vec![("replay::intended".to_owned(), 400)], planted: Vec::new() };
        let first = Process::with(&orders);
        let clock = Clock::system();
        while rig.store.items_in_doubt(id).await.unwrap().is_empty() {
            assert!(clock.monotonic() < PATIENCE);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        first.signal("STOP");
        let next = Process::start(&rig.place, None, &[]);
        rig.until(id, "the next one has sent", |batch| batch.progress.sent > 0).await;
        first.signal("CONT");
        rig.until_executed(id).await;
        drop((first, next));
        assert_eq!(damage(&rig, 120, &APPLIED).await, (Vec::new(), Vec::new()), "{:#?}", rig.log(id).await);
        what_is_stored_is_true(&rig, id, &ids).await;
    }

    /// Case R13: what an open transaction of somebody else hides from consumers is there all the same.
    #[cfg(feature = "failpoints")]
    async fn an_open_transaction_hides_nothing_from_who_looks(base: Base) {
        let (rig, ids, id) = about_to_go(base, 2).await;
        let other = TestProducer::transactional(&rig.place.bootstrap, &unique("tx"));
        other.begin();
        for partition in 0..2 {
            other.send(&rig.place.topic, &crate::support::producer::NewRecord::value("{\"payment_id\":\"other\"}").on_partition(partition));
        }
        other.flush();
        Process::start(&rig.place, Some(("replay::produced", 1)), &[]).until_dead().await;
        let next = Process::start(&rig.place, None, &[]);
        rig.until_executed(id).await;
        next.kill();
        other.abort();
        assert_eq!(damage(&rig, 120, &APPLIED).await, (Vec::new(), Vec::new()), "{:#?}", rig.log(id).await);
        let _ = ids;
    }

    /// Case R4.
    #[cfg(feature = "failpoints")]
    async fn of_a_chunk_the_half_that_arrived_is_found_and_the_other_is_sent_once(base: Base) {
        let rig = Rig::new(base, 1, "canary = 0\nmax_per_second = 12").await;
        let ids = rig.payments(24, 1).await;
        let id = rig.approved(rig.proposal()).await;
        // Of the second chunk one half is acknowledged, the other half never left.
        Process::start(&rig.place, Some(("replay::mid_produce", 1)), &[]).until_dead().await;
        assert_eq!(rig.arrived().len(), 18);
        let next = Process::start(&rig.place, None, &[]);
        let batch = rig.until_executed(id).await;
        next.kill();
        assert_eq!(batch.progress.sent, 24);
        let order: Vec<String> = rig.arrived().iter().map(|arrived| payment_of(&arrived.value)).collect();
        assert_eq!(order, (0..24).map(|n| format!("p{n}")).collect::<Vec<_>>(), "one key: in its order too");
        let log = rig.log(id).await;
        assert!(log.iter().any(|line| line.contains("6 were found in the target, 6 go once more")), "{log:#?}");
        what_is_stored_is_true(&rig, id, &ids).await;
        // What goes once more was checked once more.
        let phases = |verdicts: Vec<lazaret::store::verdicts::Verdict>| verdicts.into_iter().map(|verdict| verdict.phase).collect::<Vec<_>>();
        let twice = phases(rig.store.verdicts(ids[23]).await.unwrap());
        assert!(twice.ends_with(&["in_doubt".to_owned(), "sending".to_owned(), "preflight".to_owned()]), "{twice:?}");
        assert_eq!(phases(rig.store.verdicts(ids[0]).await.unwrap()), ["sending", "preflight"]);
    }

    /// What is absent is not sent behind a later record of its key.
    #[cfg(feature = "failpoints")]
    async fn absent_behind_a_later_record_of_its_key_it_is_held(base: Base) {
        let rig = Rig::new(base, 1, "canary = 0").await;
        let ids = rig.payments(4, 2).await;
        let id = rig.approved(rig.proposal()).await;
        Process::start(&rig.place, Some(("replay::intended", 0)), &[]).until_dead().await;
        let live = crate::support::producer::NewRecord::value("{\"payment_id\":\"live\"}").key("user-1");
        TestProducer::at(&rig.place.bootstrap).send_all(&rig.place.topic, [live]);
        let next = Process::start(&rig.place, None, &[]);
        let batch = rig.until_executed(id).await;
        next.kill();
        assert_eq!((batch.progress.sent, batch.progress.held, batch.progress.blocked), (2, 2, 0), "{:#?}", rig.log(id).await);
        let held = rig.store.message(ids[1]).await.unwrap().unwrap();
        assert_eq!(held.state.as_str(), "under_review");
        assert!(held.reason.unwrap().contains("a later record of its key"));
    }

    /// Case R14: in doubt on a compacted target, a person is asked.
    #[cfg(feature = "failpoints")]
    async fn in_doubt_on_a_compacted_target_a_person_is_asked(base: Base) {
        let rig = Rig::at(&Server::Kafka.address(), base, 1, &[("cleanup.policy", "compact")], "canary = 0\nallow_compacted_target = true").await;
        let ids = rig.payments(5, 5).await;
        let id = rig.approved(rig.proposal()).await;
        Process::start(&rig.place, Some(("replay::produced", 0)), &[]).until_dead().await;
        let next = Process::start(&rig.place, None, &[]);
        let batch = rig.until_executed(id).await;
        next.kill();
        assert_eq!((batch.progress.sent, batch.progress.held, rig.arrived().len()), (0, 5, 5));
        let held = rig.store.message(ids[0]).await.unwrap().unwrap();
        assert!(held.reason.as_deref().unwrap().starts_with("maybe sent"), "{held:?}");
    }

    /// What the broker refuses for good is not tried for ever.
    async fn what_the_broker_refuses_for_good_is_not_sent_and_says_why(base: Base) {
        let rig = Rig::at(&Server::Kafka.address(), base, 1, &[("max.message.bytes", "20000")], "canary = 0").await;
        let mut letters: Vec<Letter> = (0..6).map(|n| Letter::payment(n, n)).collect();
        letters[2].value = Some(format!("{{\"payment_id\":\"p2\",\"note\":\"{}\"}}", "x".repeat(40_000)).into_bytes());
        let ids = rig.take_in(&letters).await;
        let id = rig.approved(rig.proposal()).await;
        let execution = rig.execute();
        let batch = rig.until_executed(id).await;
        execution.end().await;
        assert_eq!((batch.progress.sent, batch.progress.not_sent), (5, 1), "{:#?}", rig.log(id).await);
        let refused = rig.store.message(ids[2]).await.unwrap().unwrap();
        assert_eq!(refused.state.as_str(), "under_review");
        assert!(refused.reason.as_deref().unwrap().contains("the broker refused it"), "{refused:?}");
        // And while it was in doubt, whoever looked was told why.
        let log = rig.log(id).await;
        assert!(log.iter().any(|line| line.contains("maybe sent (") && line.contains("size too large")), "{log:#?}");
        let copies = rig.copies();
        assert!(copies.len() == 5 && copies.values().all(|copies| *copies == 1), "{copies:?}");
    }

    /// Stopped while something is in doubt: what was sent is found all the same, what was not stays where it is.
    #[cfg(feature = "failpoints")]
    async fn stopped_in_doubt_what_arrived_counts_and_the_rest_goes_back(base: Base) {
        let rig = Rig::new(base, 1, "canary = 0\nmax_per_second = 10").await;
        let ids = rig.payments(30, 30).await;
        let id = rig.approved(rig.proposal()).await;
        Process::start(&rig.place, Some(("replay::mid_produce", 1)), &[]).until_dead().await;
        rig.replays.stop(&decider("petra"), id, None).await.unwrap();
        let next = Process::start(&rig.place, None, &[]);
        let batch = rig.until(id, "all have ended", |batch| batch.progress.done() == 30).await;
        next.kill();
        assert_eq!((batch.state, batch.progress.sent, batch.progress.not_sent), (BatchState::Cancelled, 15, 15));
        assert_eq!(rig.arrived().len(), 15);
        assert_eq!(rig.states(&ids).await["replayed/sent"], 15);
    }

    /// Planted faults: the loop above is able to see what it is there to see.
    #[cfg(feature = "failpoints")]
    async fn without_an_intent_something_is_sent_twice(base: Base) {
        assert!(!planted(base, "replay::produced", &["replay::no_intent"], &[]).await.1.is_empty());
    }

    #[cfg(feature = "failpoints")]
    async fn without_a_scan_something_is_sent_twice(base: Base) {
        assert!(!planted(base, "replay::produced", &["replay::no_scan"], &[]).await.1.is_empty());
    }

    #[cfg(feature = "failpoints")]
    async fn without_a_check_at_send_time_something_is_applied_twice(base: Base) {
        let (_, double) = planted(base, "replay::produced", &["replay::no_check"], &[7, 77]).await;
        assert_eq!(double, ["p5 x2", "p7 x2", "p50 x2", "p77 x2", "p95 x2"]);
    }

    /// A process dies, and what it sent arrives only after another took over: later than at once, sooner than the wait.
    #[cfg(feature = "failpoints")]
    async fn without_the_wait_before_the_scan_something_is_sent_twice(base: Base) {
        assert_eq!(late_arrivals(base, &[]).await, Vec::<String>::new(), "with the wait, nothing");
        assert!(!late_arrivals(base, &["replay::no_wait"]).await.is_empty());
    }
}

/// Lost and double, when the first process dies at `point` and both have the faults. `late`: payments that are applied after the approval.
async fn planted(base: Base, point: &str, faults: &[&str], late: &[usize]) -> (Vec<String>, Vec<String>) {
    let (rig, _, id) = about_to_go(base, 2).await;
    rig.applied(late.iter().copied()).await;
    Process::start(&rig.place, Some((point, 1)), faults).until_dead().await;
    let next = Process::start(&rig.place, None, faults);
    // Without intents it never ends.
    let enough = |batch: &Batch| batch.state == BatchState::Executed || (faults.contains(&"replay::no_intent") && batch.progress.held > 0);
    let clock = Clock::system();
    while !enough(&rig.batch(id).await) && clock.monotonic() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    next.kill();
    let applied: Vec<usize> = APPLIED.iter().chain(late).copied().collect();
    damage(&rig, 120, &applied).await
}

/// Payments that arrived twice when requests of a dead process are on their way for a second after its lease is another's.
async fn late_arrivals(base: Base, faults: &[&str]) -> Vec<String> {
    use crate::support::producer::NewRecord;
    let (rig, _, id) = about_to_go(base, 2).await;
    Process::start(&rig.place, Some(("replay::intended", 0)), &[]).until_dead().await;
    let uid = rig.batch(id).await.uid;
    let mut on_their_way = Vec::new();
    for doubt in rig.store.items_in_doubt(id).await.unwrap() {
        let body = rig.store.body(doubt.message_id).await.unwrap().unwrap();
        let record = NewRecord::value(body.value.unwrap()).key(body.key.unwrap()).on_partition(doubt.target_partition);
        on_their_way.push(record.header("lazaret-replay-id", Some(format!("{uid}.{}", doubt.message_id).as_bytes())));
    }
    assert!(!on_their_way.is_empty());
    let held = rig.store.lease("replay/main").await.unwrap().unwrap();
    let next = Process::start(&rig.place, None, faults);
    let clock = Clock::system();
    while rig.store.lease("replay/main").await.unwrap().unwrap().epoch == held.epoch {
        assert!(clock.monotonic() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    if faults.is_empty() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    } else {
        rig.until(id, "the next one has sent them again", |batch| batch.progress.sent > 0).await;
    }
    TestProducer::at(&rig.place.bootstrap).send_all(&rig.place.topic, on_their_way);
    rig.until_executed(id).await;
    drop(next);
    damage(&rig, 120, &APPLIED).await.1
}
