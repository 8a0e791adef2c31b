//! What pages and API say, and that they say the same.

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use lazaret::store::Store;
use lazaret::store::positions::PartitionId;
use lazaret::store::samples::PartitionSample;
use serde_json::Value;

use super::house::{HOUR_MS, House, MINUTE_MS, NOW_MS, TOKEN, all, attributes, record, text_of};
use crate::on_both_stores;

/// Three DLQs: one with an outage of 200, one quiet, one that cannot be sampled.
async fn filled(store: Store) -> House {
    let house = House::new(store).await;
    let mut records =
        vec![record("payments.wallet.DLQ", 0, NOW_MS - 3 * HOUR_MS - 12 * MINUTE_MS, r#"{"payment_id":9007199254740993}"#, "old")];
    records.extend((1..200).map(|offset| {
        let at = NOW_MS - 10 * MINUTE_MS + offset;
        record("payments.wallet.DLQ", offset, at, r#"{"payment_id":9007199254740993}"#, &format!("Connection timed out after {offset} ms"))
    }));
    let wallet = house.take_in("payments.wallet.DLQ", records).await;
    house.sample(&wallet, 4_000, None).await;
    let quiet = house.dlq("payments.fraud.DLQ").await;
    house.sample(&quiet, 4_000, None).await;
    let dark = house.dlq("clicks.app.dlq").await;
    house.sample(&dark, 4 * MINUTE_MS, None).await;
    house.sample(&dark, 1_000, Some("main: broker 3 does not answer")).await;
    house
}

fn item<'a>(list: &'a Value, topic: &str) -> &'a Value {
    list["items"].as_array().expect("items").iter().find(|item| item["topic"] == topic).unwrap_or_else(|| panic!("{topic} in {list}"))
}

on_both_stores! {
    async fn the_overview_names_the_worst_and_the_api_agrees(store: Store) {
        let house = filled(store).await;
        let page = house.page("/").await;
        let sentence = text_of(&page, "#sentence");
        assert!(sentence.contains("of 3; worst payments.wallet.DLQ, oldest 3h 12m, 13/min arriving."), "{sentence}");
        assert_eq!(attributes(&page, "#sentence a", "href"), ["/dlqs/main/payments.wallet.DLQ"]);
        let list = house.json("/api/v1/dlqs").await;
        let api: Vec<&str> = list["items"].as_array().unwrap().iter().map(|item| item["topic"].as_str().unwrap()).collect();
        assert_eq!(all(&page, "#dlqs .name"), api, "the same order");
        assert_eq!(api, ["clicks.app.dlq", "payments.wallet.DLQ", "payments.fraud.DLQ"], "what cannot be seen first, then the worst");
        let wallet = item(&list, "payments.wallet.DLQ");
        assert_eq!(wallet["depth"], 200);
        assert_eq!(wallet["oldest_age_s"], 3 * 3600 + 12 * 60);
        assert_eq!(wallet["owner"], "payments");
        assert_eq!(wallet["at_risk"]["state"], "all_stored");
        assert_eq!(wallet["uncollected"], 0);
        let rate = wallet["arrivals_per_min"].as_f64().unwrap();
        assert!((rate - 199.0 / (15.0 + 11.0 / 60.0)).abs() < 1e-9, "{rate}");
        let row = all(&page, "#dlqs tbody tr").remove(1);
        assert!(row.contains("200") && row.contains("3h 12m") && row.contains("all stored") && row.contains("13/min"), "{row}");
        assert!(row.contains("payments · wallet"), "{row}");
        assert_eq!(all(&page, "#dlqs .why"), ["13/min arriving"], "why it is critical; nothing explains no data and healthy");
        assert_eq!(text_of(&house.page("/dlqs/main/payments.wallet.DLQ").await, ".head .why"), "13/min arriving");
    }

    async fn what_is_unknown_is_null_and_a_dash_and_zero_is_zero(store: Store) {
        let house = filled(store).await;
        let list = house.json("/api/v1/dlqs").await;
        let dark = item(&list, "clicks.app.dlq");
        assert_eq!(dark["status"], "no_data");
        for field in ["uncollected", "oldest_age_s", "event_age_s", "arrivals_per_min"] {
            assert_eq!(dark[field], Value::Null, "{field}");
        }
        assert_eq!(dark["depth"], 0, "nothing of it is stored: that is known");
        assert_eq!(dark["at_risk"]["state"], "unknown");
        assert_eq!(dark["sampled_at_ms"], NOW_MS - 4 * MINUTE_MS, "the last success");
        assert_eq!(dark["replay_success"]["rate"], Value::Null);
        assert_eq!(dark["replay_success"]["n"], 0);
        assert_eq!(dark["baseline"]["low"], Value::Null);
        let quiet = item(&list, "payments.fraud.DLQ");
        assert_eq!((&quiet["uncollected"], quiet["arrivals_per_min"].as_f64()), (&Value::from(0), Some(0.0)));
        let page = house.page("/?q=clicks").await;
        let row = text_of(&page, "#dlqs tbody tr");
        assert!(row.contains("No data") && row.contains("no data, last seen 4 min ago"), "{row}");
        assert_eq!(text_of(&page, "#dlqs td[data-l='Not read yet (est.)']"), "—");
        let detail = house.page("/dlqs/main/clicks.app.dlq").await;
        let notice = text_of(&detail, ".notes");
        assert!(notice.contains("No data, last seen 4 min ago: main: broker 3 does not answer"), "{notice}");
    }

    async fn an_old_success_is_no_data_and_its_arrivals_are_no_zero(store: Store) {
        let house = House::new(store).await;
        let dlq = house.dlq("orders.DLQ").await;
        house.sample(&dlq, 0, None).await;
        assert_eq!(house.json("/api/v1/dlqs").await["items"][0]["status"], "healthy");
        house.clock.step(std::time::Duration::from_secs(61));
        let list = house.json("/api/v1/dlqs").await;
        assert_eq!(list["items"][0]["status"], "no_data", "older than three intervals and a minute");
        house.clock.step(std::time::Duration::from_secs(2 * 3600));
        let page = house.page("/").await;
        let label = attributes(&page, "svg.spark", "aria-label").remove(0);
        assert!(label.contains("now not known, no data 14:30-16:30 UTC"), "{label}");
    }

    async fn where_nothing_can_be_seen_no_dlq_is_called_the_worst(store: Store) {
        let house = House::new(store).await;
        let sentence = async || text_of(&house.page("/").await, "#sentence");
        let dlq = house.take_in("orders.DLQ", vec![record("orders.DLQ", 0, NOW_MS - 480 * HOUR_MS, "{}", "old")]).await;
        assert_eq!(sentence().await, "1 DLQ, not looked at yet.");
        house.dlq("payments.fraud.DLQ").await;
        assert_eq!(sentence().await, "2 DLQs, none looked at yet.");
        house.sample(&dlq, 0, Some("main: broker 3 does not answer")).await;
        assert_eq!(sentence().await, "2 DLQs, none looked at yet.", "a failed look saw nothing");
        house.sample(&dlq, 90 * MINUTE_MS, None).await;
        assert_eq!(sentence().await, "2 DLQs, all without data.");
    }

    async fn tiles_and_form_filter_and_an_empty_result_offers_a_way_back(store: Store) {
        let house = filled(store).await;
        let page = house.page("/?owner=payments").await;
        assert_eq!(all(&page, "#dlqs .name"), ["payments.wallet.DLQ"]);
        let page = house.page("/?status=no_data").await;
        assert_eq!(all(&page, "#dlqs .name"), ["clicks.app.dlq"]);
        assert_eq!(all(&page, ".tile[aria-current]"), ["No data1"]);
        let page = house.page("/?q=nothing-like-it").await;
        assert_eq!(text_of(&page, ".empty"), "No DLQ matches this filter. Clear it");
    }

    async fn failures_that_still_arrive_come_first_and_say_so(store: Store) {
        let house = House::new(store).await;
        let said = |word: &str, n: i64, age_ms: i64, from: i64| -> Vec<_> {
            (from..from + n).map(|offset| record("orders.DLQ", offset, NOW_MS - age_ms, "{}", word)).collect()
        };
        let records = [
            said("many and over", 5, 3 * HOUR_MS, 0),
            said("few and now", 1, 2 * MINUTE_MS, 5),
            said("some and just within", 2, HOUR_MS, 6),
            said("just over", 3, HOUR_MS + 1, 8),
        ];
        house.take_in("orders.DLQ", records.concat()).await;
        let page = house.page("/dlqs/main/orders.DLQ").await;
        let order = all(&page, "#failures td.first > a");
        assert_eq!(order, ["some and just within", "few and now", "many and over", "just over"]);
        let arriving: Vec<bool> = all(&page, "#failures tbody tr").iter().map(|row| row.contains("Still arriving")).collect();
        assert_eq!(arriving, [true, true, false, false]);
    }

    async fn pages_of_messages_follow_without_gap_or_repetition(store: Store) {
        let house = filled(store).await;
        let mut seen = Vec::new();
        let mut path = "/api/v1/messages?cluster=main&topic=payments.wallet.DLQ".to_owned();
        loop {
            let page = house.json(&path).await;
            let items = page["items"].as_array().unwrap();
            assert!(items.len() <= 50);
            seen.extend(items.iter().map(|item| item["offset"].as_i64().unwrap()));
            match page["next"].as_i64() {
                Some(next) => path = format!("/api/v1/messages?cluster=main&topic=payments.wallet.DLQ&after={next}"),
                None => break,
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..200).collect::<Vec<i64>>());
        let page = house.page("/dlqs/main/payments.wallet.DLQ?class=transient").await;
        let older = attributes(&page, ".pages a", "href").remove(0);
        assert!(older.starts_with("/dlqs/main/payments.wallet.DLQ?class=transient&after="), "the filter stays: {older}");
        let second = house.page(older.trim_end_matches("#messages")).await;
        assert_eq!(all(&second, ".pages a")[0], "Newest");
    }

    async fn filters_find_by_key_text_class_and_group(store: Store) {
        let house = filled(store).await;
        let count = async |query: &str| house.json(&format!("/api/v1/messages?limit=500&{query}")).await["items"].as_array().unwrap().len();
        assert_eq!(count("key=key-17").await, 1);
        assert_eq!(count("q=key-17").await, 1);
        assert_eq!(count("q=ORG.postgresql").await, 200, "a prefix of the exception class, letter case aside");
        assert_eq!(count("q=ostgres").await, 0, "no search inside words");
        assert_eq!(count("state=archived").await, 0);
        assert_eq!(count("partition=1").await, 0);
        assert_eq!(count(&format!("from_ms={}&to_ms={NOW_MS}", NOW_MS - HOUR_MS)).await, 199);
        let groups = house.json("/api/v1/dlqs/main/payments.wallet.DLQ").await["groups"].clone();
        let biggest = &groups[0];
        assert_eq!((&biggest["open"], &biggest["total"]), (&Value::from(199), &Value::from(199)));
        let id = biggest["id"].as_i64().unwrap();
        assert_eq!(count(&format!("group={id}")).await, 199);
        assert_eq!(house.json(&format!("/api/v1/groups/{id}")).await["fingerprint"], biggest["fingerprint"]);
        let page = house.page(&format!("/groups/{id}")).await;
        assert!(text_of(&page, "main").contains("wallet"), "why it is one group");
    }

    async fn a_message_shows_everything_and_digits_are_exact(store: Store) {
        let house = filled(store).await;
        let message = house.json("/api/v1/messages?key=key-17").await["items"][0].clone();
        let id = message["id"].as_i64().unwrap();
        assert_eq!(message["origin"], serde_json::json!({"topic":"payments.initiated","partition":7,"offset":404_269,"timestamp_ms":null}));
        assert_eq!(message["key"], serde_json::json!({"utf8":"key-17"}));
        assert_eq!(message["consumer_group"], "wallet");
        assert_eq!(message["state"], "quarantined");
        assert_eq!(message["lap"], 1);
        let detail = house.json(&format!("/api/v1/messages/{id}")).await;
        assert_eq!(detail["value"]["utf8"], r#"{"payment_id":9007199254740993}"#);
        assert_eq!(detail["headers"][0], serde_json::json!(["kafka_dlt-original-topic", {"utf8":"payments.initiated"}]));
        assert_eq!(detail["headers"][2], serde_json::json!(["kafka_dlt-original-offset", {"utf8":"\0\0\0\0\0\u{6}+-"}]), "bytes that happen to be UTF-8");
        assert_eq!((&detail["transitions"], &detail["verdicts"]), (&serde_json::json!([]), &serde_json::json!([])));
        let page = house.page(&format!("/messages/{id}")).await;
        assert_eq!(text_of(&page, "h1"), "org.postgresql.util.PSQLException");
        assert_eq!(text_of(&page, "pre.said"), "Connection timed out after 17 ms");
        assert_eq!(text_of(&page, ".leaf"), "/payment_id 9007199254740993");
        let facts = all(&page, "dd").join(" | ");
        assert!(facts.contains("payments.initiated, partition 7, offset 404269"), "{facts}");
        assert!(all(&page, "#headers code").contains(&"0x0000000000062b2d".to_owned()), "an offset in eight bytes is no text");
        let hex = house.page(&format!("/messages/{id}?view=hex")).await;
        assert!(text_of(&hex, "pre.hex").starts_with("00000000 7b 22 70 61"));
        let permalink = house.get("/dlqs/main/payments.wallet.DLQ/0/17").await;
        assert_eq!((permalink.status, permalink.header(header::LOCATION)), (StatusCode::SEE_OTHER, format!("/messages/{id}").as_str()));
        let found = house.get("/messages?q=payments.wallet.DLQ%2F0%2F17").await;
        assert_eq!(found.header(header::LOCATION), format!("/messages/{id}"));
    }

    async fn the_download_is_the_exact_bytes(store: Store) {
        let house = House::new(store).await;
        let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
        let mut whole = record("bin.DLQ", 0, NOW_MS, "", "x");
        whole.value = Some(bytes.clone());
        let mut tombstone = record("bin.DLQ", 1, NOW_MS, "", "x");
        tombstone.value = None;
        let empty = record("bin.DLQ", 2, NOW_MS, "", "x");
        house.take_in("bin.DLQ", vec![whole, tombstone, empty]).await;
        let items = house.json("/api/v1/messages").await["items"].clone();
        let id = |offset: i64| items.as_array().unwrap().iter().find(|item| item["offset"] == offset).unwrap()["id"].as_i64().unwrap();
        let download = house.get(&format!("/messages/{}/value", id(0))).await;
        assert_eq!(download.body, bytes);
        assert_eq!(download.header(header::CONTENT_TYPE), "application/octet-stream");
        assert!(download.header(header::CONTENT_DISPOSITION).starts_with("attachment;"));
        assert_eq!(download.header(header::X_CONTENT_TYPE_OPTIONS), "nosniff");
        assert_eq!(house.get(&format!("/messages/{}/value", id(1))).await.status, StatusCode::NOT_FOUND);
        assert_eq!(house.get(&format!("/messages/{}/value", id(2))).await.body, b"");
        assert_eq!(house.json(&format!("/api/v1/messages/{}", id(1))).await["value"], Value::Null);
        assert_eq!(house.json(&format!("/api/v1/messages/{}", id(2))).await["value"]["utf8"], "");
        let page = house.page(&format!("/messages/{}", id(0))).await;
        assert!(text_of(&page, "#value").contains("Cut: the first 16 kB of 300 kB."), "not UTF-8, so hex");
        assert!(text_of(&house.page(&format!("/messages/{}", id(1))).await, "#value").contains("null: a tombstone"));
        assert!(text_of(&house.page(&format!("/messages/{}", id(2))).await, "#value").contains("empty, which is not null"));
    }

    async fn masked_fields_are_nowhere(store: Store) {
        let house = House::new(store).await;
        let secret = "4111111111111111";
        let value = format!(r#"{{"id":9007199254740993,"card":{{"number":"{secret}"}},"email":"a@b.example"}}"#);
        let odd = format!("number={secret};email=a@b.example");
        let said = format!("card {secret} of a@b.example declined");
        house.take_in("cards.DLQ", vec![record("cards.DLQ", 0, NOW_MS, &value, &said), record("cards.DLQ", 1, NOW_MS, &odd, &said)]).await;
        let items = house.json("/api/v1/messages").await["items"].clone();
        for item in items.as_array().unwrap() {
            let id = item["id"].as_i64().unwrap();
            for path in [format!("/messages/{id}"), format!("/messages/{id}?view=hex"), format!("/api/v1/messages/{id}"), format!("/messages/{id}/value"), "/messages".to_owned(), "/dlqs/main/cards.DLQ".to_owned()] {
                let text = house.get(&path).await.text();
                assert!(!text.contains(secret) && !text.contains("a@b.example"), "{path}");
                assert!(!text.contains("34 31 31 31"), "{path}: nor in hex");
            }
            assert_eq!(house.get(&format!("/messages/{id}/value")).await.status, StatusCode::FORBIDDEN);
        }
        let detail = async |offset: i64| {
            let item = items.as_array().unwrap().iter().find(|item| item["offset"] == offset).unwrap();
            house.json(&format!("/api/v1/messages/{}", item["id"])).await
        };
        assert_eq!(detail(0).await["value"]["utf8"], r#"{"id":9007199254740993,"card":{"number":"•••"},"email":"•••"}"#);
        assert_eq!(detail(0).await["value_note"], "Masked: /card/number, /email. All else is as written.");
        assert_eq!(detail(1).await["value"], Value::Null);
        assert!(detail(1).await["value_note"].as_str().unwrap().contains("withheld"));
        assert_eq!(detail(0).await["exception_message"], "card ••• of ••• declined");
        assert_eq!(detail(1).await["exception_message"], "card <n> of <email> declined");
        for q in [secret, "a@b.example", &said] {
            assert_eq!(house.json(&format!("/api/v1/messages?q={}", lazaret::api::query::encode(q.as_bytes()))).await["items"], serde_json::json!([]));
        }
    }

    async fn i8_the_page_says_what_the_start_left_out(store: Store) {
        let house = House::new(store).await;
        let dlq = house.dlq("orders.DLQ").await;
        house.store.describe_dlq(dlq.id, None, Some("records before 2026-11-23 14:02:11 UTC were not taken in")).await.unwrap();
        let page = house.page("/dlqs/main/orders.DLQ").await;
        assert!(text_of(&page, ".notes").contains("Records before 2026-11-23 14:02:11 UTC were not taken in."));
    }

    async fn m4_a_deleted_topic_is_judged_by_what_it_left(store: Store) {
        let house = House::new(store).await;
        let gone = house.take_in("old.DLQ", vec![record("old.DLQ", 0, NOW_MS - HOUR_MS, "v", "x")]).await;
        house.store.set_gone(gone.id, Some(NOW_MS)).await.unwrap();
        house.dlq("unseen.DLQ").await;
        let listed = house.json("/api/v1/dlqs").await;
        let of = |at: usize| (listed["items"][at]["topic"].as_str().unwrap(), listed["items"][at]["status"].as_str().unwrap());
        assert_eq!((of(0), of(1)), (("unseen.DLQ", "no_data"), ("old.DLQ", "warning")));
        assert_eq!((&listed["items"][1]["depth"], &listed["items"][1]["uncollected"]), (&Value::from(1), &Value::Null));
        assert!(text_of(&house.page("/dlqs/main/old.DLQ").await, ".notes").contains("The topic does not exist in the cluster"));
    }

    async fn a_recreated_topic_is_told_and_both_lives_are_found(store: Store) {
        let house = House::new(store).await;
        let first = house.take_in("orders.DLQ", vec![record("orders.DLQ", 0, NOW_MS - HOUR_MS, "first life", "x")]).await;
        house.store.start_incarnation(first.id, 1, None, NOW_MS).await.unwrap().expect("the second life");
        let second = house.take_in("orders.DLQ", vec![record("orders.DLQ", 0, NOW_MS, "second life", "x")]).await;
        assert_eq!(second.incarnation, 2);
        house.sample(&second, 0, None).await;
        let id = PartitionId { dlq_id: second.id, incarnation: 2, partition: 0 };
        let look = PartitionSample { id, at_ms: NOW_MS, position: Some(1), log_start: Some(0), log_end: Some(4), error: None };
        house.store.save_samples(None, &[], &[look]).await.unwrap();
        let page = house.page("/dlqs/main/orders.DLQ").await;
        assert!(text_of(&page, ".notes").contains("Topic recreated (2nd): noticed 2026-11-30 14:02:11 UTC"));
        let detail = house.json("/api/v1/dlqs/main/orders.DLQ").await;
        assert_eq!(detail["incarnation"], 2);
        let partition = &detail["partitions"][0];
        assert_eq!((&partition["position"], &partition["log_end"], &partition["uncollected"]), (&Value::from(1), &Value::from(4), &Value::from(3)));
        let value = async |path: &str| {
            let to = house.get(path).await.header(header::LOCATION).to_owned();
            text_of(&house.page(&to).await, "pre.value")
        };
        assert_eq!(value("/dlqs/main/orders.DLQ/0/0").await, "second life", "the newest by default");
        assert_eq!(value("/dlqs/main/orders.DLQ/0/0?incarnation=1").await, "first life");
        assert_eq!(house.get("/dlqs/main/orders.DLQ/0/0?incarnation=3").await.status, StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn metrics_name_what_is_known_and_leave_out_what_is_not() {
    let (store, _folder) = crate::support::sqlite().await;
    let house = filled(store).await;
    let text = house.get("/metrics").await.text();
    assert!(text.contains("lazaret_dlq_depth{cluster=\"main\",topic=\"payments.wallet.DLQ\"} 200\n"), "{text}");
    assert!(text.contains("lazaret_dlq_uncollected{cluster=\"main\",topic=\"payments.fraud.DLQ\"} 0\n"), "{text}");
    assert!(!text.contains("lazaret_dlq_uncollected{cluster=\"main\",topic=\"clicks.app.dlq\"}"), "unknown is absent: {text}");
    let fraud = house.store.dlq("main", "payments.fraud.DLQ").await.unwrap().unwrap();
    house.store.set_gone(fraud.id, Some(NOW_MS)).await.unwrap();
    assert!(!house.get("/metrics").await.text().contains("payments.fraud.DLQ"), "a deleted topic leaves");
    assert!(text_of(&house.page("/dlqs/main/payments.fraud.DLQ").await, ".notes").contains("The topic does not exist"));
}

#[tokio::test]
async fn the_api_pages_dlqs_and_filters_them_like_the_overview() {
    let (store, _folder) = crate::support::sqlite().await;
    let house = filled(store).await;
    let mut seen = Vec::new();
    let mut path = "/api/v1/dlqs?limit=1".to_owned();
    loop {
        let page = house.json(&path).await;
        seen.push(page["items"][0]["topic"].as_str().unwrap().to_owned());
        match page["next"].as_str() {
            Some(next) => path = format!("/api/v1/dlqs?limit=1&after={}", next.replace('/', "%2F")),
            None => break,
        }
    }
    assert_eq!(seen, all(&house.page("/").await, "#dlqs .name"));
    assert_eq!(house.json("/api/v1/dlqs?status=no_data").await["items"].as_array().unwrap().len(), 1);
    assert_eq!(house.json("/api/v1/dlqs?q=FRAUD").await["items"][0]["topic"], "payments.fraud.DLQ");
}

#[tokio::test]
async fn two_hundred_dlqs_stay_a_small_page() {
    let (store, _folder) = crate::support::sqlite().await;
    let house = House::new(store).await;
    for n in 0..200 {
        let topic = format!("team-{}.service-{n}.DLQ", n % 17);
        let records = (0..20).map(|offset| record(&topic, offset, NOW_MS - (19 - offset) * HOUR_MS - n * 1_000, "{}", "x")).collect();
        let dlq = house.take_in(&topic, records).await;
        house.sample(&dlq, 4_000, None).await;
    }
    let request = Request::get("/").header(header::AUTHORIZATION, format!("Bearer {TOKEN}")).header(header::ACCEPT_ENCODING, "gzip");
    let answer = house.send(request.body(Body::empty()).unwrap()).await;
    assert_eq!(answer.header(header::CONTENT_ENCODING), "gzip");
    assert!(answer.body.len() <= 50_000, "{} bytes of the 60 kB that page and style sheet may take", answer.body.len());
    assert_eq!(all(&house.page("/").await, "#dlqs .name").len(), 200);
}

#[tokio::test]
async fn an_empty_overview_says_what_would_fill_it() {
    let (store, _folder) = crate::support::sqlite().await;
    let page = House::new(store).await.page("/").await;
    assert_eq!(text_of(&page, "#sentence"), "No DLQ is known yet.");
    assert!(text_of(&page, ".empty").starts_with("DLQs appear here as soon as"));
}
