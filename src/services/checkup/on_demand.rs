//! Tests of a cluster that somebody starts from a page. One at a time for each cluster; the last result is kept until the next, or a restart.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Outcome, Progress, Step};
use crate::domain::clock::Clock;
use crate::domain::settings::{ClusterSettings, DlqSettings};

/// How long one step may take: somebody waits for the page.
const STEP: Duration = Duration::from_secs(5);
/// How long the answer waits for the result. A test that takes longer goes on, and the page shows how far it is.
const WAIT: Duration = Duration::from_secs(6);

/// A test under way or done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Run {
    pub started_at_ms: i64,
    /// None: it is under way.
    pub ended_at_ms: Option<i64>,
    /// What is being tried now.
    pub trying: Option<String>,
    pub steps: Vec<Step>,
    /// `kafka-acls` lines for what is missing.
    pub acls: Vec<String>,
}

/// Why no test was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotStarted {
    /// One is under way since then, ms.
    Running {
        since_ms: i64,
    },
    NoSuchCluster,
}

/// The configured clusters and the last test of each. Cheap to clone; clones share the results.
#[derive(Debug, Clone)]
pub struct ClusterTests {
    clusters: Arc<[ClusterSettings]>,
    dlqs: Arc<[DlqSettings]>,
    clock: Clock,
    runs: Arc<Mutex<BTreeMap<String, Run>>>,
}

impl ClusterTests {
    pub fn new(clusters: Vec<ClusterSettings>, dlqs: Vec<DlqSettings>, clock: Clock) -> ClusterTests {
        ClusterTests { clusters: clusters.into(), dlqs: dlqs.into(), clock, runs: Arc::default() }
    }

    /// The last test of this cluster, maybe under way.
    pub fn last(&self, cluster: &str) -> Option<Run> {
        self.runs().get(cluster).cloned()
    }

    /// Starts a test on a thread that may wait, and waits some seconds for its result.
    ///
    /// # Errors
    /// No such cluster, or a test of it is under way.
    pub async fn test(&self, cluster: &str) -> Result<(), NotStarted> {
        let settings = self.clusters.iter().find(|settings| settings.name == cluster).ok_or(NotStarted::NoSuchCluster)?.clone();
        let under_way = self.begin(cluster)?;
        let dlqs = Arc::clone(&self.dlqs);
        let test = tokio::task::spawn_blocking(move || {
            let acls = super::cluster(&settings, &dlqs, STEP, &mut |progress| under_way.note(progress)).acls;
            under_way.change(|run| run.acls = acls);
        });
        // Its outcome is in `runs`, whether it came in time or not.
        let _ = tokio::time::timeout(WAIT, test).await;
        Ok(())
    }

    fn begin(&self, cluster: &str) -> Result<UnderWay, NotStarted> {
        let mut runs = self.runs();
        if let Some(Run { started_at_ms, ended_at_ms: None, .. }) = runs.get(cluster) {
            return Err(NotStarted::Running { since_ms: *started_at_ms });
        }
        runs.insert(cluster.to_owned(), Run { started_at_ms: self.clock.now_ms(), ..Run::default() });
        Ok(UnderWay { tests: self.clone(), cluster: cluster.to_owned() })
    }

    fn runs(&self) -> MutexGuard<'_, BTreeMap<String, Run>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Marks its test as ended when it goes, however that comes about.
struct UnderWay {
    tests: ClusterTests,
    cluster: String,
}

impl UnderWay {
    fn change(&self, change: impl FnOnce(&mut Run)) {
        if let Some(run) = self.tests.runs().get_mut(&self.cluster) {
            change(run);
        }
    }

    fn note(&self, progress: Progress) {
        self.change(|run| match progress {
            Progress::Trying(what) => run.trying = Some(what),
            Progress::Done(step) => run.steps.push(step),
        });
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let now_ms = self.tests.clock.now_ms();
        let cut_off = std::thread::panicking();
        self.change(|run| {
            run.trying = None;
            run.ended_at_ms = Some(now_ms);
            if cut_off {
                let said = "the test stopped in its middle; the log says why";
                run.steps.push(Step::new(&format!("cluster {}", self.cluster), Outcome::Failed, said));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tests() -> ClusterTests {
        ClusterTests::new(Vec::new(), Vec::new(), Clock::fake(1_000))
    }

    #[test]
    fn one_test_of_a_cluster_at_a_time_and_its_result_stays() {
        let tests = tests();
        let first = tests.begin("main").ok().unwrap();
        first.note(Progress::Trying("cluster main: TLS".to_owned()));
        assert_eq!(tests.begin("main").err(), Some(NotStarted::Running { since_ms: 1_000 }));
        assert!(tests.begin("other").is_ok(), "another cluster");
        assert_eq!(tests.last("main").unwrap().trying.as_deref(), Some("cluster main: TLS"));
        first.note(Progress::Done(Step::new("cluster main", Outcome::Passed, "TLS")));
        drop(first);
        let run = tests.last("main").unwrap();
        assert_eq!((run.ended_at_ms, run.trying, run.steps.len()), (Some(1_000), None, 1));
        assert!(tests.begin("main").is_ok(), "again");
    }

    #[test]
    fn a_test_that_breaks_off_is_not_under_way_for_ever() {
        let tests = tests();
        let under_way = tests.begin("main").ok().unwrap();
        let broken = std::thread::spawn(move || {
            let _under_way = under_way;
            panic!("as librdkafka might");
        });
        assert!(broken.join().is_err());
        let run = tests.last("main").unwrap();
        assert!(run.ended_at_ms.is_some());
        assert_eq!(run.steps.last().map(|step| step.outcome), Some(Outcome::Failed));
    }
}
