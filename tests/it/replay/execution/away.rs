//! A broker and a database that go away in the middle, and come back. They are servers of this test's own.

use std::process::Command;

use super::*;

/// Servers that this test may stop; they end with it.
struct Servers {
    state: tempfile::TempDir,
    exports: BTreeMap<String, String>,
}

impl Servers {
    fn up() -> Servers {
        let state = tempfile::tempdir().expect("a folder");
        let mut servers = Servers { state, exports: BTreeMap::new() };
        let printed = servers.ctl(&["up", "kafka", "postgres"]);
        let exports = printed.lines().filter_map(|line| line.strip_prefix("export ")?.split_once('='));
        servers.exports = exports.map(|(name, value)| (name.to_owned(), value.replace('\\', ""))).collect();
        servers
    }

    fn ctl(&self, arguments: &[&str]) -> String {
        let output = Command::new(variable("LAZARET_TEST_SERVICES"))
            .args(arguments)
            .env("LAZARET_TEST_STATE", self.state.path())
            .output()
            .expect("ctl runs");
        assert!(output.status.success(), "ctl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        let _ = Command::new(variable("LAZARET_TEST_SERVICES")).arg("down").env("LAZARET_TEST_STATE", self.state.path()).status();
    }
}

/// Cases R5 and the faults of the issue: acknowledgements lost with their broker, a broker and a database that are down for a while.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka and a real PostgreSQL: run tests/run"]
async fn a_broker_and_a_database_go_away_and_nothing_is_lost_or_sent_twice() {
    lazaret::telemetry::install_logs(lazaret::telemetry::LogFormat::Human, |write| write()).expect("a filter");
    let servers = tokio::task::spawn_blocking(Servers::up).await.expect("servers");
    let (kafka, database) = (servers.exports["LAZARET_TEST_KAFKA"].clone(), servers.exports["LAZARET_TEST_POSTGRES"].clone());
    let lines = "canary = 0\nmax_per_second = 40";
    let on_postgres = Rig::on(&kafka, tempfile::tempdir().unwrap(), database, 2, &[], lines).await;
    let on_sqlite = Rig::at(&kafka, Base::Sqlite, 2, &[], lines).await;
    let mut running = Vec::new();
    for rig in [&on_postgres, &on_sqlite] {
        rig.payments(2_000, 2_000).await;
        let id = rig.approved(rig.proposal()).await;
        running.push((rig, id, rig.execute()));
    }
    for (rig, id, _) in &running {
        rig.until(*id, "some are sent", |batch| batch.progress.sent >= 40).await;
    }

    // The broker stands still: what it was sent lies in its socket, and no acknowledgement comes.
    servers.ctl(&["pause", "kafka"]);
    for (rig, id, _) in &running {
        rig.until(*id, "it says why it waits", |batch| batch.note.is_some()).await;
    }
    servers.ctl(&["resume", "kafka"]);
    for (rig, id, _) in &running {
        let before = rig.batch(*id).await.progress.sent;
        rig.until(*id, "it goes on", |batch| batch.progress.sent > before + 40 && batch.note.is_none()).await;
    }

    // The broker is gone and comes back.
    servers.ctl(&["stop", "kafka"]);
    for (rig, id, _) in &running {
        rig.until(*id, "it says why it waits", |batch| batch.note.is_some()).await;
    }
    servers.ctl(&["start", "kafka"]);
    for (rig, id, _) in &running {
        let before = rig.batch(*id).await.progress.sent;
        rig.until(*id, "it goes on", |batch| batch.progress.sent > before + 40 && batch.note.is_none()).await;
    }

    // The database is gone and comes back; the other batch does not care.
    servers.ctl(&["stop", "postgres"]);
    let (sqlite, id, _) = &running[1];
    let before = sqlite.batch(*id).await.progress.sent;
    sqlite.until(*id, "the other goes on", |batch| batch.progress.sent > before).await;
    servers.ctl(&["start", "postgres"]);
    for (rig, id, execution) in running {
        let clock = Clock::system();
        while rig.store.ping().await.is_err() {
            assert!(clock.monotonic() < PATIENCE);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // The rest at a pace of its own: what was to be seen has been seen.
        let batch = tokio::time::timeout(PATIENCE * 2, async {
            loop {
                let batch = rig.batch(id).await;
                if batch.state == BatchState::Executed {
                    break batch;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        let Ok(batch) = batch.await else {
            let (batch, log) = (rig.batch(id).await, rig.log(id).await);
            panic!("not sent in time: {:?} {:?} {:?}\n{log:#?}", batch.state, batch.note, batch.progress);
        };
        execution.end().await;
        assert_eq!((batch.progress.sent, batch.note), (2_000, None), "{:#?}", rig.log(id).await);
        let copies = rig.copies();
        let double: Vec<_> = copies.iter().filter(|(_, copies)| **copies > 1).collect();
        assert!(copies.len() == 2_000 && double.is_empty(), "{} arrived, twice: {double:?}, {:#?}", copies.len(), rig.log(id).await);
    }
}
