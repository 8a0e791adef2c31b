//! A DLQ's page: charts with gaps, hot keys, what another partition count would move, failures by the hundred.

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use lazaret::domain::readiness::Checks;
use lazaret::domain::settings::{DlqSettings, TopicMatch};
use lazaret::domain::template::KeyTemplate;
use lazaret::store::positions::{Gap, GapKind, PartitionId};
use lazaret::store::samples::PartitionSample;

use super::house::{HOUR_MS, House, MINUTE_MS, NOW_MS, TOKEN, all, attributes, record, text_of};
use crate::on_both_stores;

const PATH: &str = "/dlqs/main/orders.DLQ";

async fn looked_at(house: &House, topic: &str, partitions: i32) {
    let dlq = house.dlq(topic).await;
    house.sample(&dlq, 0, None).await;
    let look = |partition| PartitionSample {
        id: PartitionId { dlq_id: dlq.id, incarnation: dlq.incarnation, partition },
        at_ms: NOW_MS,
        position: Some(0),
        log_start: Some(0),
        log_end: Some(0),
        error: None,
    };
    house.store.save_samples(None, &[], &(0..partitions).map(look).collect::<Vec<_>>()).await.expect("samples");
}

on_both_stores! {
    async fn the_chart_says_in_words_and_as_a_table_what_it_draws(store: Store) {
        let house = House::new(store).await;
        // 305 in the five minutes from 13:40, 42 in those that run since 14:00.
        let at = |time: i64, n: i64, from: i64| (from..from + n).map(move |offset| record("orders.DLQ", offset, time, "{}", "x"));
        let peak = NOW_MS - NOW_MS % (5 * MINUTE_MS) - 20 * MINUTE_MS;
        house.take_in("orders.DLQ", at(peak, 305, 0).chain(at(NOW_MS - 1_000, 42, 305)).collect()).await;
        looked_at(&house, "orders.DLQ", 6).await;
        let page = house.page(PATH).await;
        let label = attributes(&page, ".chart", "aria-label").remove(0);
        assert_eq!(label, "Arrivals 24 h: now 2.8/min, peak 61/min at 13:40 UTC");
        assert_eq!(attributes(&page, ".chart", "role"), ["img", "img"]);
        assert_eq!(all(&page, "#dlq .unit")[0], "messages per 5 minutes, UTC");
        let cells = all(&page, "#arrivals-data td");
        assert_eq!(cells[..3], ["30 Nov 14:00", "now", "42"], "the newest first, still counting");
        assert_eq!(cells[6..9], ["30 Nov 13:40", "30 Nov 13:45", "305"]);
        assert_eq!(cells.len(), 4 * 3, "quiet times are one row: {cells:?}");
        let link = attributes(&page, "#arrivals-data a", "href").remove(1);
        let range = house.page(link.trim_end_matches("#messages")).await;
        assert_eq!(all(&range, "table.messages tbody tr").len(), 50, "absolute times, so the link shows the same to whoever gets it");
        assert_eq!(attributes(&page, ".chart .running", "d").len(), 1);
    }

    async fn where_nothing_was_seen_there_is_no_zero(store: Store) {
        let house = House::new(store).await;
        let dlq = house.take_in("orders.DLQ", vec![record("orders.DLQ", 0, NOW_MS - 6 * HOUR_MS, "{}", "x")]).await;
        house.sample(&dlq, 3 * HOUR_MS, None).await;
        house.sample(&dlq, 1_000, Some("main: broker 3 does not answer")).await;
        let page = house.page(PATH).await;
        let labels = attributes(&page, ".chart", "aria-label");
        assert_eq!(labels[0], "Arrivals 24 h: now not known, peak 0.2/min at 08:00 UTC, no data 11:05-14:02 UTC");
        assert!(labels[1].starts_with("Depth 24 h: now 1, highest 0") || labels[1].starts_with("Depth 24 h: now 1, no data"), "{}", labels[1]);
        assert_eq!(all(&page, "#arrivals-data td")[..3], ["30 Nov 11:05", "now", "no data"]);
        assert_eq!(attributes(&page, ".chart .nodata", "x").len(), 3, "one gap of arrivals, two of the depth's looks");
        let never = house.dlq("never.DLQ").await;
        let page = house.page("/dlqs/main/never.DLQ").await;
        assert_eq!(attributes(&page, ".chart", "aria-label"), ["Arrivals 24 h: now not known, no data", "Depth 24 h: now 0, no data"]);
        assert_eq!(attributes(&page, "#dlq", "hx-trigger"), [format!("sse:dlq-{}", never.id)]);
        assert_eq!(all(&page, "#heat p"), ["No message is open."]);
    }

    async fn gaps_and_a_new_life_are_marked_with_the_messages_around_them(store: Store) {
        let house = House::new(store).await;
        let dlq = house.take_in("orders.DLQ", vec![record("orders.DLQ", 0, NOW_MS - HOUR_MS, "{}", "x")]).await;
        for partition in 0..3 {
            let id = PartitionId { dlq_id: dlq.id, incarnation: 1, partition };
            house.store.ensure_position(id, 5, NOW_MS).await.unwrap();
            let claimed = house.store.claim_position(id, NOW_MS).await.unwrap().unwrap();
            let gap = Gap { id, kind: GapKind::Retention, from_offset: claimed.next_offset, to_offset: claimed.next_offset + 100, noticed_at_ms: NOW_MS - HOUR_MS };
            assert!(house.store.step_over_gap(&gap, claimed.owner_epoch, claimed.next_offset).await.unwrap());
        }
        house.store.start_incarnation(dlq.id, 1, None, NOW_MS - 2 * HOUR_MS).await.unwrap().expect("the second life");
        let page = house.page(PATH).await;
        let marks = all(&page, ".marks li");
        assert_eq!(marks[0], "Topic recreated (2nd) 2026-11-30 12:02:11 UTC · messages around it");
        assert!(marks[1].starts_with("Up to 300 records lost to retention, 3 partitions 2026-11-30 13:02:11 UTC"), "{marks:?}");
        assert_eq!(all(&page, ".chart .number"), ["1", "2"]);
        let link = attributes(&page, ".marks a", "href").remove(1);
        assert_eq!(link, format!("{PATH}?from_ms={}&to_ms={}#messages", NOW_MS - HOUR_MS - 15 * MINUTE_MS, NOW_MS - HOUR_MS + 15 * MINUTE_MS));
        assert_eq!(all(&house.page(link.trim_end_matches("#messages")).await, "table.messages tbody tr").len(), 1);
    }

    async fn hot_keys_tenants_and_what_another_partition_count_moves(store: Store) {
        let mut house = House::new(store).await;
        let mut settings = DlqSettings::for_topics("main", TopicMatch::Names(vec!["orders.DLQ".to_owned()]));
        settings.tenant = Some(KeyTemplate::parse("{value:/tenant}").unwrap());
        house.options.dlqs.insert(0, settings);
        let keyed = |offset: i64, key: Option<&[u8]>, value: &str| {
            let mut record = record("orders.DLQ", offset, NOW_MS - MINUTE_MS, value, "x");
            record.key = key.map(<[u8]>::to_vec);
            record
        };
        let acme = r#"{"tenant":"acme"}"#;
        let records = vec![
            keyed(0, Some(b"user-1042"), acme),
            keyed(1, Some(b"user-1042"), acme),
            keyed(2, Some(b"user-1042"), acme),
            keyed(3, Some(b"<script>\x00"), "{}"),
            keyed(4, Some(b"\xff\xfe"), "{}"),
            keyed(5, None, "{}"),
            keyed(6, None, "no JSON"),
            keyed(7, Some(b""), acme),
        ];
        house.take_in("orders.DLQ", records).await;
        let unknown = house.page(&format!("{PATH}?partitions=8")).await;
        assert!(text_of(&unknown, "#tenants").contains("cannot be told: how many partitions the topic has is not known"));
        looked_at(&house, "orders.DLQ", 6).await;
        let page = house.page(&format!("{PATH}?partitions=8&state=quarantined")).await;
        assert_eq!((&*all(&page, "#heat code")[0], &*all(&page, "#heat .num")[0]), ("user-1042", "37.5% (n = 3)"));
        let keys = all(&page, "#heat code");
        assert!(keys.contains(&"<script>\u{2400}".to_owned()) && keys.contains(&"0xfffe".to_owned()) && keys.contains(&"empty key".to_owned()), "{keys:?}");
        assert!(text_of(&page, "#heat .meta").starts_with("4 keys; 2 messages without key (25%). Of all 8 open messages, as of 14:02:11 UTC."));
        assert_eq!(attributes(&page, "#heat a", "href")[0], format!("{PATH}?key=user-1042#messages"));
        assert_eq!(all(&page, "#tenants .hbar > *")[..2], ["acme", "50% (n = 4)"]);
        let said = text_of(&page, "#tenants");
        assert!(said.contains("From 6 partitions (as sampled now) to 8, by murmur2, as Java producers hash:"), "{said}");
        assert!(said.contains("The hottest, user-1042, goes from partition 4 to"), "{said}");
        assert_eq!(attributes(&page, "#tenants input[name=state]", "value"), ["quarantined"], "the filter of the messages stays");
        assert_eq!(attributes(&page, "#messages form input[name=partitions]", "value"), ["8"]);
        for nonsense in ["0", "-1", "many", "99999999999", "100001"] {
            let answer = house.get(&format!("{PATH}?partitions={nonsense}")).await;
            assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{nonsense}");
            assert!(answer.text().contains("partitions must be a whole number from 1 to 100000"), "{nonsense}: {}", answer.text());
        }
        let plain = house.take_in("mail.DLT", vec![record("mail.DLT", 0, NOW_MS, "{}", "x")]).await;
        assert_eq!(plain.topic, "mail.DLT");
        assert!(text_of(&house.page("/dlqs/main/mail.DLT").await, "#tenants").contains("Not configured"));
    }

    async fn masked_keys_and_tenants_are_counted_apart(store: Store) {
        let mut house = House::new(store).await;
        let mut settings = DlqSettings::for_topics("main", TopicMatch::Names(vec!["people.DLQ".to_owned()]));
        settings.mask = vec!["/email".to_owned()];
        settings.tenant = Some(KeyTemplate::parse("{key}").unwrap());
        house.options.dlqs.insert(0, settings);
        let secret = "ana@b.example";
        let keyed = |offset: i64, key: Option<&str>| {
            let mut record = record("people.DLQ", offset, NOW_MS - MINUTE_MS, &format!(r#"{{"email":"{secret}"}}"#), "x");
            record.key = key.map(Into::into);
            record
        };
        house.take_in("people.DLQ", vec![keyed(0, Some(secret)), keyed(1, Some(secret))]).await;
        let page = house.page("/dlqs/main/people.DLQ").await;
        assert!(text_of(&page, "#heat").contains("No open message has a key that may be shown. 0 keys; 2 messages with a masked key (100%)."));
        house.take_in("people.DLQ", vec![keyed(2, Some("customer-7")), keyed(3, None)]).await;
        looked_at(&house, "people.DLQ", 6).await;
        let page = house.page("/dlqs/main/people.DLQ?partitions=8").await;
        assert_eq!(all(&page, "#heat code"), ["customer-7"]);
        assert!(text_of(&page, "#heat .meta").starts_with("1 key; 1 message without key (25%); 2 messages with a masked key (50%)."));
        assert_eq!(all(&page, "#tenants code")[0], "customer-7");
        assert!(text_of(&page, "#tenants .meta").starts_with("1 tenant; 1 message without tenant (25%); 2 messages with a masked tenant (50%)."));
        assert!(text_of(&page, "#tenants").contains("Of 2 messages the key is masked and not counted."));
    }

    async fn failures_by_the_hundred_say_how_many_there_are(store: Store) {
        let house = House::new(store).await;
        let records = (0..230_u32).map(|n| {
            // No digits: those are variable, and would make one failure of all.
            let word: String = format!("{n:03}").bytes().map(|digit| char::from(digit - b'0' + b'a')).collect();
            record("orders.DLQ", i64::from(n), NOW_MS - 2 * HOUR_MS, "{}", &format!("failure of the kind {word}"))
        });
        house.take_in("orders.DLQ", records.collect()).await;
        let page = house.page(PATH).await;
        assert_eq!(all(&page, "#failures tbody tr").len(), 100);
        assert_eq!(all(&page, "#failures > p"), ["1 to 100 of 230."]);
        let more = attributes(&page, "#failures .pages a", "href").remove(0);
        assert_eq!(more, format!("{PATH}?failures=2#failures"));
        let third = house.page(&format!("{PATH}?failures=3")).await;
        assert_eq!((all(&third, "#failures tbody tr").len(), all(&third, "#failures > p").remove(0)), (30, "201 to 230 of 230.".to_owned()));
        assert_eq!(all(&third, "#failures .pages a"), ["Back"]);
        assert_eq!(all(&house.page(&format!("{PATH}?failures=4")).await, "#failures > p"), ["There is no page 4 of these: there are 230."]);
        assert_eq!(house.get(&format!("{PATH}?failures=0")).await.status, StatusCode::BAD_REQUEST);
        assert_eq!(house.json("/api/v1/dlqs/main/orders.DLQ").await["groups"].as_array().unwrap().len(), 100);
        let own = attributes(&page, "#failures td.first .meta a", "href").remove(0);
        assert!(own.contains("&from_ms=") && own.contains("&to_ms="), "{own}");
        assert_eq!(all(&house.page(own.trim_end_matches("#messages")).await, "table.messages tbody tr").len(), 1);
        assert_eq!(all(&page, "#failures td[data-l='Of the depth']")[0], "0.4%");
    }

    async fn the_head_and_the_settings_say_what_is_not_known_and_not_configured(store: Store) {
        let mut house = House::new(store).await;
        let nothing = Checks::default;
        let wallet = Checks { schema: Some("payment".to_owned()), ledger: Some("wallet-redis".to_owned()), names_target: false };
        house.options.configured.checks = vec![nothing(), wallet, nothing()];
        house.take_in("payments.wallet.DLQ", vec![record("payments.wallet.DLQ", 0, NOW_MS, "{}", "x")]).await;
        let page = house.page("/dlqs/main/payments.wallet.DLQ").await;
        assert_eq!(text_of(&page, ".head .muted"), "payments · group wallet · spring dlt headers");
        let settings = all(&page, "#checks dd");
        assert!(settings[0].starts_with("payment") && settings[1].starts_with("wallet-redis"), "{settings:?}");
        assert_eq!(settings[2..5], ["not configured", "not configured", "not configured"]);
        assert!(settings.contains(&"at most 3".to_owned()), "{settings:?}");
        house.dlq("never.DLQ").await;
        assert_eq!(text_of(&house.page("/dlqs/main/never.DLQ").await, ".head .muted"), "no owner · consumer group not known");
        let masked = house.dlq("cards.DLQ").await;
        assert!(masked.owner.is_none());
        assert!(all(&house.page("/dlqs/main/cards.DLQ").await, "#checks dd").contains(&"/card/number, /email".to_owned()));
        assert_eq!(all(&page, "main .head .btn"), ["Replay"]);
        house.options.read_only = true;
        let page = house.page("/dlqs/main/payments.wallet.DLQ").await;
        assert!(all(&page, "button, .btn").iter().all(|label| !label.contains("Replay")), "nothing that cannot be done here");
    }

    async fn what_keeps_itself_up_to_date_comes_without_the_rest(store: Store) {
        let house = House::new(store).await;
        house.take_in("payments.wallet.DLQ", vec![record("payments.wallet.DLQ", 0, NOW_MS, "{}", "x")]).await;
        let path = "/dlqs/main/payments.wallet.DLQ";
        let page = house.page(path).await;
        let live = attributes(&page, "[hx-get]", "id");
        assert_eq!(live, ["status", "dlq", "below"]);
        assert_eq!(all(&page, "#heat, #tenants, .head .muted").len(), 3);
        assert!(all(&page, "[hx-get] #heat, [hx-get] #tenants, [hx-get] .muted:not(.stat .muted, .pages .muted)").is_empty());
        let request = Request::get(path).header(header::AUTHORIZATION, format!("Bearer {TOKEN}")).header("hx-request", "true");
        let part = house.send(request.body(Body::empty()).unwrap()).await.page();
        assert_eq!(attributes(&part, "[hx-get]", "id"), live);
        for id in live {
            assert_eq!(text_of(&part, &format!("#{id}")), text_of(&page, &format!("#{id}")));
        }
        assert_eq!(all(&part, "#heat, #tenants"), Vec::<String>::new(), "5,000 messages are not read for what is not shown");
    }

    async fn how_the_depth_changed_is_said_only_where_it_is_known(store: Store) {
        let house = House::new(store).await;
        let dlq = house.take_in("orders.DLQ", vec![record("orders.DLQ", 0, NOW_MS - 2 * HOUR_MS, "{}", "x")]).await;
        house.sample(&dlq, HOUR_MS, None).await;
        let depth = async || text_of(&house.page(PATH).await, ".stats .stat .meta");
        house.sample(&dlq, 1_000, None).await;
        assert_eq!(depth().await, "+1 in the last hour · 0 not read yet (est.)");
        house.sample(&dlq, 500, Some("main: broker 3 does not answer")).await;
        assert_eq!(depth().await, "stored · not read yet: not known", "what came meanwhile nobody knows");
    }

    async fn each_id_is_there_once(store: Store) {
        let house = House::new(store).await;
        house.take_in("orders.DLQ", vec![record("orders.DLQ", 0, NOW_MS, "{}", "x")]).await;
        let mut ids = attributes(&house.page(&format!("{PATH}?partitions=8&state=quarantined")).await, "[id]", "id");
        let count = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), count, "{ids:?}");
    }
}
