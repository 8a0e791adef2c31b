//! What is sent, where, in which order, and what is not.

use super::*;
use lazaret::domain::partition::partition_for;
use lazaret::domain::settings::Partitioner;
use lazaret::store::transitions::Transition;

on_both_bases! {
    async fn what_fits_and_is_new_is_sent_once_and_everything_is_accounted_for(base: Base) {
        let rig = Rig::new(base, 3, "canary = 0\nmax_per_second = 100000").await;
        let mut letters: Vec<Letter> = (0..200).map(|n| Letter::payment(n, n)).collect();
        for (n, letter) in letters.iter_mut().enumerate() {
            letter.partition = i32::try_from(n % 3).unwrap();
        }
        for letter in &mut letters[..3] {
            letter.value = Some(letter.value.as_ref().map(|value| String::from_utf8_lossy(value).replace("payment_id", "paymentId").into_bytes()).unwrap());
        }
        rig.applied(100..112).await;
        let ids = rig.take_in(&letters).await;
        let batch = rig.propose(rig.proposal()).await;
        let forecast = batch.forecast.unwrap();
        assert_eq!((forecast.send, forecast.already_applied, forecast.incompatible), (185, 12, 3));
        rig.approve(&batch).await;
        let execution = rig.execute();
        let batch = rig.until_executed(batch.id).await;
        execution.end().await;
        let progress = batch.progress;
        assert_eq!((progress.sent, progress.already_applied, progress.archived, progress.held), (185, 12, 3, 0));
        assert_eq!(progress.done(), 200);
        let copies = rig.copies();
        assert_eq!(copies.len(), 185);
        assert!(copies.values().all(|copies| *copies == 1), "{copies:?}");
        assert!((100..112).all(|n| !copies.contains_key(&format!("p{n}"))));
        let expected = [("archived", 3), ("replayed/already_applied", 12), ("replayed/sent", 185)];
        assert_eq!(rig.states(&ids).await, expected.map(|(word, count)| (word.to_owned(), count)).into());
        // The origin's partition, since the target is where they came from.
        for arrived in rig.arrived() {
            let n: i32 = payment_of(&arrived.value)[1..].parse().unwrap();
            assert_eq!(arrived.partition, n % 3);
        }
        let steps = |transitions: Vec<Transition>| transitions.into_iter().map(|step| step.movement).collect::<Vec<_>>();
        let last = rig.store.transitions(ids[199]).await.unwrap();
        assert_eq!(steps(last), ["taken_up", "check_begun", "schema_fits", "sent"]);
        let verdicts = rig.store.verdicts(ids[0]).await.unwrap();
        assert_eq!(verdicts.iter().map(|verdict| verdict.phase.as_str()).collect::<Vec<_>>(), ["sending", "preflight"]);
    }

    async fn one_event_that_was_dead_lettered_three_times_goes_once(base: Base) {
        let rig = Rig::new(base, 1, "canary = 0").await;
        // Two copies under the same key, with another event of that key behind them, and one under another key.
        let letters = [Letter::payment(1, 1), Letter { offset: 2, ..Letter::payment(1, 1) }, Letter { offset: 3, ..Letter::payment(2, 1) }, Letter { offset: 4, ..Letter::payment(1, 9) }];
        let ids = rig.take_in(&letters).await;
        let batch = rig.propose(rig.proposal()).await;
        let forecast = batch.forecast.unwrap();
        assert_eq!((forecast.send, forecast.blocked), (2, 2));
        rig.approve(&batch).await;
        let execution = rig.execute();
        let batch = rig.until_executed(batch.id).await;
        execution.end().await;
        assert_eq!((batch.progress.sent, batch.progress.blocked), (2, 2));
        assert_eq!(rig.copies(), [("p1".to_owned(), 1), ("p2".to_owned(), 1)].into());
        let copy = rig.store.message(ids[3]).await.unwrap().unwrap();
        assert!(copy.reason.as_deref().is_some_and(|reason| reason.starts_with(&format!("message {} is of the same event", ids[0]))), "{:?}", copy.reason);
        // Once the consumer has applied it, the copies are known to be that.
        rig.applied(1..2).await;
        let batch = rig.propose(rig.proposal()).await;
        assert_eq!(batch.forecast.unwrap().already_applied, 2);
    }

    async fn bytes_and_headers_arrive_as_they_were(base: Base) {
        let rig = Rig::new(base, 1, "canary = 0\norder = 'none'").await;
        let header = |name: &str, value: Option<&[u8]>| Header { name: name.as_bytes().to_vec(), value: value.map(<[u8]>::to_vec) };
        let mut letter = Letter::payment(1, 1);
        letter.key = Some(Vec::new());
        letter.headers = vec![header("trace", Some(b"a")), header("empty", Some(b"")), header("null", None), header("trace", Some(b"b"))];
        letter.headers.push(Header { name: b"odd-\xff".to_vec(), value: Some(b"\x00\xfe".to_vec()) });
        let keyless = Letter { key: None, ..Letter::payment(2, 2) };
        let ids = rig.take_in(&[letter.clone(), keyless]).await;
        let id = rig.approved(rig.proposal()).await;
        let execution = rig.execute();
        let batch = rig.until_executed(id).await;
        execution.end().await;
        let uid = batch.uid;
        let inspector = &rig.cluster.inspector;
        let at = |offset| inspector.record_at(&(rig.place.topic.clone(), 0), offset, PATIENCE).unwrap().unwrap();
        let (first, second) = (at(0), at(1));
        assert_eq!((first.key.as_deref(), second.key), (Some(b"".as_slice()), None));
        assert_eq!(first.value, letter.value);
        let own = [
            ("lazaret-replay-id", format!("{uid}.{}", ids[0])),
            ("lazaret-batch", id.to_string()),
            ("lazaret-lap", "1".to_owned()),
            ("lazaret-origin", format!("{}/0/1", rig.place.topic)),
        ];
        let expected: Vec<Header> =
            letter.headers.into_iter().chain(own.iter().map(|(name, value)| header(name, Some(value.as_bytes())))).collect();
        assert_eq!(first.headers[..expected.len()], expected);
        assert_eq!(first.headers.len(), expected.len() + 1);
        assert_eq!(first.headers[expected.len()].name, b"lazaret-original-timestamp-ms");
    }

    /// However many messages a second go: of large ones only so many are held at once.
    async fn large_messages_go_a_few_at_a_time(base: Base) {
        let rig = Rig::at(&Server::Kafka.address(), base, 1, &[("max.message.bytes", "10000000")], "canary = 0\nmax_per_second = 1000").await;
        let large = |n: usize| {
            let value = format!("{{\"payment_id\":\"p{n}\",\"note\":\"{}\"}}", "x".repeat(8_000_000));
            Letter { value: Some(value.into_bytes()), ..Letter::payment(n, n) }
        };
        rig.take_in(&(0..6).map(large).collect::<Vec<_>>()).await;
        let id = rig.approved(rig.proposal()).await;
        let execution = rig.execute_with(Timing { message_timeout: Duration::from_secs(20), ..timing() });
        let batch = rig.until_executed(id).await;
        execution.end().await;
        assert_eq!(batch.progress.sent, 6);
        const SQL: &str = "SELECT COUNT(*) FROM replay_items WHERE batch_id = $1 GROUP BY intended_at_ms ORDER BY intended_at_ms";
        let chunks: Vec<i64> = match &rig.store {
            Store::Postgres(database) => sqlx::query_scalar(SQL).bind(id).fetch_all(&database.pool).await.unwrap(),
            Store::Sqlite(database) => sqlx::query_scalar(SQL).bind(id).fetch_all(&database.readers).await.unwrap(),
        };
        assert_eq!(chunks, [4, 2], "four of 8 MB are as many as fit into 32 MiB");
    }

    /// Cases R1 and R2: hashed as Java's producers do, read back from the broker; a partition that is not there is never taken modulo.
    async fn a_partition_that_the_target_does_not_have_is_hashed_by_key(base: Base) {
        let rig = Rig::new(base, 4, "canary = 0").await;
        let keys: Vec<Vec<u8>> = crate::support::cases::lines("partitions.jsonl")
            .iter()
            .map(|line| line["key"].as_str().unwrap().as_bytes().to_vec())
            .collect();
        let letters: Vec<Letter> = keys.iter().enumerate().map(|(n, key)| Letter { key: Some(key.clone()), partition: 7, ..Letter::payment(n, 0) }).collect();
        rig.take_in(&letters).await;
        let id = rig.approved(rig.proposal()).await;
        let execution = rig.execute();
        rig.until_executed(id).await;
        execution.end().await;
        let arrived = rig.arrived();
        assert_eq!(arrived.len(), keys.len());
        for arrived in arrived {
            let n: usize = payment_of(&arrived.value)[1..].parse().unwrap();
            assert_eq!(Some(arrived.partition), partition_for(Partitioner::Murmur2Random, Some(&keys[n]), 4), "{:?}", keys[n]);
        }
    }

    /// Case R19, and the order within a key.
    async fn what_is_archived_stands_in_the_way_of_its_key(base: Base) {
        let rig = Rig::new(base, 2, "canary = 0").await;
        let mut letters: Vec<Letter> = (0..40).map(|n| Letter::payment(n, n % 4)).collect();
        // User 1's second payment does not fit; what comes before it goes, what comes after it does not.
        letters[5].value = Some(b"{\"id\":5}".to_vec());
        // User 2's was applied, which is in nobody's way.
        rig.applied([6].into_iter()).await;
        let ids = rig.take_in(&letters).await;
        let id = rig.approved(rig.proposal()).await;
        let execution = rig.execute();
        let batch = rig.until_executed(id).await;
        execution.end().await;
        assert_eq!((batch.progress.archived, batch.progress.blocked, batch.progress.already_applied, batch.progress.sent), (1, 8, 1, 30));
        let arrived = rig.arrived();
        let of_user = |user: usize| -> Vec<usize> {
            let key = format!("user-{user}");
            arrived.iter().filter(|arrived| arrived.key == key).map(|arrived| payment_of(&arrived.value)[1..].parse().unwrap()).collect()
        };
        assert_eq!(of_user(1), [1]);
        assert_eq!(of_user(0), (0..10).map(|n| n * 4).collect::<Vec<_>>(), "in the order of their origin");
        let blocked = rig.store.message(ids[9]).await.unwrap().unwrap();
        assert_eq!(blocked.state.as_str(), "under_review");
        let why = blocked.reason.unwrap();
        assert!(why.contains(&format!("message {}", ids[5])), "{why}");
    }

    /// Case R11: what would be found is not what was approved.
    async fn verdicts_that_leave_the_forecast_halt_before_anything_is_archived_or_sent(base: Base) {
        let rig = Rig::new(base, 1, "canary = 0\nmax_per_second = 1000").await;
        let ids = rig.payments(200, 200).await;
        rig.applied(0..12).await;
        let id = rig.approved(rig.proposal()).await;
        // Something else applied them meanwhile: no setting changed, the approval holds, and still nobody agreed to this.
        rig.applied(12..200).await;
        let execution = rig.execute();
        let batch = rig.until(id, "it halts", |batch| batch.state == BatchState::Halted).await;
        execution.end().await;
        assert_eq!((batch.progress.done(), rig.arrived().len()), (0, 0));
        let note = batch.note.unwrap();
        assert!(note.contains("+188 already applied") && note.contains("-188 send"), "{note}");
        assert_eq!(rig.states(&ids).await, [("under_review".to_owned(), 200)].into());
    }

    /// Cases R11 and S9: the settings are not those that were approved.
    async fn a_schema_that_was_replaced_voids_the_approval(base: Base) {
        let rig = Rig::new(base, 1, "canary = 0").await;
        rig.payments(20, 20).await;
        let id = rig.approved(rig.proposal()).await;
        std::fs::write(rig.place.folder.join("payment.json"), r#"{"type":"object","required":["id"]}"#).unwrap();
        let execution = rig.execute();
        let batch = rig.until(id, "it halts", |batch| batch.state == BatchState::Halted).await;
        execution.end().await;
        assert_eq!((batch.progress.done(), rig.arrived().len()), (0, 0));
        assert!(batch.note.as_deref().unwrap().starts_with("approval void"), "{:?}", batch.note);
    }

    /// Case K3: at send time, not only in the preflight.
    async fn the_ledger_is_asked_again_right_before_sending(base: Base) {
        let rig = Rig::new(base, 1, "canary = 0").await;
        rig.payments(20, 20).await;
        let id = rig.approved(rig.proposal()).await;
        rig.applied([3, 7].into_iter()).await;
        let execution = rig.execute();
        let batch = rig.until_executed(id).await;
        execution.end().await;
        assert_eq!((batch.progress.sent, batch.progress.already_applied), (18, 2));
        let copies = rig.copies();
        assert!(copies.len() == 18 && !copies.contains_key("p3") && !copies.contains_key("p7"), "{copies:?}");
    }
}
