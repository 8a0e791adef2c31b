//! The job that goes on with reviews, in processes that are killed in the middle of one: each chunk is done once, whoever does it.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lazaret::jobs::Supervisor;
use lazaret::jobs::review::ReviewJob;

use super::*;
use crate::support::{audit_key, postgres_url};

/// The database of a [`Process`].
const DATABASE: &str = "LAZARET_CHILD_REVIEWS";
const PATIENCE: Duration = Duration::from_secs(60);
/// Eight chunks.
const MESSAGES: i64 = 16_000;

/// A process with nothing but the job.
struct Process(Child);

impl Process {
    fn start(url: &str) -> Process {
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "replay::review::restart::review_process", "--include-ignored", "--nocapture"])
            .env(DATABASE, url)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        Process(child)
    }

    /// As `kill -9` does it.
    fn kill(mut self) {
        self.0.kill().expect("it can be killed");
        self.0.wait().expect("it is gone");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The body of a [`Process`]; alone it does nothing.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a process of other tests: run tests/run"]
async fn review_process() {
    let Ok(url) = std::env::var(DATABASE) else { return };
    let job = ReviewJob { reviews: on(&open(&url).await), holder: unique("child"), lease: Duration::from_millis(600) };
    let mut supervisor = Supervisor::new(Clock::system());
    job.spawn(&mut supervisor);
    // Until it is killed; a test that forgets it ends with its parent's patience.
    tokio::time::sleep(PATIENCE * 3).await;
}

async fn open(url: &str) -> Store {
    let store = Store::connect(url).await.unwrap();
    store.migrate().await.unwrap();
    store.with_audit_key(audit_key())
}

/// By the machine's clock, which leases are kept by.
fn on(store: &Store) -> Reviews {
    Reviews { clock: Clock::system(), ..reviews(store) }
}

async fn goes_on_after_kill_9(url: &str) {
    let store = open(url).await;
    let mut feed = Feed::open(&store).await;
    for _ in 0..MESSAGES / 2_000 {
        feed.take_in(&store, 2_000).await;
    }
    let filter = MessageFilter { topic: Some(feed.topic.clone()), ..MessageFilter::default() };
    let begun = on(&store).begin(&by("ana"), &OwnerScope::All, of_filter(ReviewAction::Archive, filter)).await.unwrap();
    let clock = Clock::system();
    let mut cut_short = 0;
    // Killed as soon as another chunk is through, three times; then left alone.
    let mut kills = 3;
    let mut process = Process::start(url);
    let mut seen = 0;
    let done = loop {
        let review = store.review(begun.id).await.unwrap().unwrap();
        assert_eq!((review.seen, review.seen % 2_000), (review.changed, 0), "whole chunks, and nothing but those");
        if !review.state.is_live() {
            break review;
        }
        if kills > 0 && review.seen > seen {
            (kills, seen) = (kills - 1, review.seen);
            process.kill();
            cut_short += usize::from(store.review(begun.id).await.unwrap().unwrap().state.is_live());
            process = Process::start(url);
        }
        assert!(clock.monotonic() < PATIENCE, "it does not go on: {review:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    process.kill();
    assert!(cut_short > 0, "it was over before it could be killed: more messages are needed here");
    assert_eq!((done.state, done.total, done.seen, done.changed), (ReviewState::Done, Some(MESSAGES), MESSAGES, MESSAGES));
    assert_eq!(states(&feed.messages(&store).await), HashMap::from([("archived", usize::try_from(MESSAGES).unwrap())]));
    // Each message was moved once, and the trail tells each chunk once.
    let moves: i64 = count(&store, "SELECT COUNT(*) FROM transitions").await;
    assert_eq!(moves, MESSAGES * 2, "taken up and archived");
    let told: Vec<i64> = trail(&store).await.iter().filter_map(|event| event["after"]["messages"].as_i64()).collect();
    assert_eq!((told.len() as i64, told.iter().sum::<i64>()), (MESSAGES / 2_000, MESSAGES));
    assert_eq!(store.check_counters(feed.id.dlq_id).await.unwrap(), []);
}

async fn count(store: &Store, sql: &'static str) -> i64 {
    match store {
        Store::Postgres(database) => sqlx::query_scalar(sql).fetch_one(&database.pool).await.unwrap(),
        Store::Sqlite(database) => sqlx::query_scalar(sql).fetch_one(&database.readers).await.unwrap(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_review_goes_on_after_kill_9_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    goes_on_after_kill_9(&format!("sqlite://{}", folder.path().join("test.db").display())).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real PostgreSQL: run tests/run"]
async fn a_review_goes_on_after_kill_9_on_postgres() {
    goes_on_after_kill_9(&postgres_url().await).await;
}

/// Two at once would do no harm, and only one works; ending it ends its turn in order, so that another need not wait for the lease.
#[tokio::test(flavor = "multi_thread")]
async fn the_job_does_what_is_begun_and_ends_in_order() {
    let (store, _folder) = crate::support::sqlite().await;
    let mut feed = Feed::open(&store).await;
    feed.take_in(&store, 2_500).await;
    let filter = MessageFilter { topic: Some(feed.topic.clone()), ..MessageFilter::default() };
    let clock = Clock::system();
    for (action, state) in [(ReviewAction::TakeUp, "under_review"), (ReviewAction::Release, "quarantined")] {
        let begun = on(&store).begin(&by("ana"), &OwnerScope::All, of_filter(action, filter.clone())).await.unwrap();
        let mut supervisor = Supervisor::new(clock.clone());
        for holder in ["one", "two"] {
            // A lease that nobody could wait for here.
            let job = ReviewJob { reviews: on(&store), holder: unique(holder), lease: PATIENCE * 10 };
            job.spawn(&mut supervisor);
        }
        while store.review(begun.id).await.unwrap().unwrap().state.is_live() {
            assert!(clock.monotonic() < PATIENCE, "nobody does it");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(supervisor.shutdown(Duration::from_secs(10)).await, Vec::<String>::new());
        assert_eq!(states(&feed.messages(&store).await), HashMap::from([(state, 2_500)]));
    }
    assert_eq!(count(&store, "SELECT COUNT(*) FROM transitions").await, 5_000);
}
