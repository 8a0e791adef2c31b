//! The heartbeat is there while everything gets on, and only then.

use lazaret::services::heartbeat::{Beat, Heartbeat, Watched};

use super::*;
use crate::on_both_stores;

on_both_stores! {
    async fn it_is_held_as_soon_as_anything_is_stuck(store: Store) {
        lazaret::app::use_ring();
        let receiver = Receiver::open(ChannelKind::Mattermost).await;
        let clock = Clock::fake(NOW);
        // No place is allowed: it is the operator's own.
        let sender = Sender::new(AllowList::default());
        let minute = Duration::from_secs(60);
        let (own, shared) = (vec![Watched::new("intake:main", minute)], vec![Watched::new("sampler:main", minute * 5), Watched::new("outbox", SECOND)]);
        let mut heartbeat = Heartbeat::new(store.clone(), clock.clone(), sender, Secret::new(receiver.url()), own, shared);
        let held = |jobs: &[&str]| Beat::Held(jobs.iter().map(|job| (*job).to_owned()).collect());
        let mut intake = HashMap::new();

        assert_eq!(heartbeat.tick(&intake).await, held(&["intake:main", "sampler:main", "outbox"]), "nothing has got on yet");
        store.note_progress("sampler:main", NOW).await.unwrap();
        store.note_progress("outbox", NOW).await.unwrap();
        // What was there before we looked may be of yesterday.
        heartbeat.tick(&intake).await;
        store.note_progress("sampler:main", NOW).await.unwrap();
        store.note_progress("outbox", NOW).await.unwrap();
        intake.insert("intake:main".to_owned(), clock.monotonic());
        assert_eq!(receiver.seen().len(), 0);
        let beat = heartbeat.tick(&intake).await;
        assert!(matches!(beat, Beat::Sent(_)), "{beat:?}");
        assert_eq!((receiver.seen().len(), receiver.seen()[0].method.as_str()), (1, "GET"));

        clock.step(minute * 4);
        assert_eq!(heartbeat.tick(&intake).await, held(&["intake:main", "outbox"]), "the sampler has longer intervals");
        intake.insert("intake:main".to_owned(), clock.monotonic());
        assert_eq!(heartbeat.tick(&intake).await, held(&["outbox"]));
        store.note_progress("outbox", NOW).await.unwrap();
        assert!(matches!(heartbeat.tick(&intake).await, Beat::Sent(_)));
        clock.step(minute * 12);
        assert_eq!(heartbeat.tick(&intake).await, held(&["intake:main", "sampler:main", "outbox"]));
        assert_eq!(receiver.seen().len(), 2);
    }

    async fn nobody_there_is_said_without_the_url(store: Store) {
        let receiver = Receiver::open(ChannelKind::Mattermost).await;
        let url = receiver.url();
        drop(receiver);
        lazaret::app::use_ring();
        let mut heartbeat = Heartbeat::new(store, Clock::fake(NOW), Sender::new(AllowList::default()), Secret::new(url), Vec::new(), Vec::new());
        let Beat::Unanswered(why) = heartbeat.tick(&HashMap::new()).await else { panic!("nobody is there") };
        assert!(why.contains("127.0.0.1") && !why.contains("swordfish"), "{why}");
    }
}
