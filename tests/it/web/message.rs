//! The message page: what failed, what it is, where it came from, and what of it is not shown.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::{Request, header};
use lazaret::domain::dialect::Dialect;
use lazaret::domain::record::{Header, Record};
use lazaret::domain::settings::{DialectChoice, DlqSettings, Partitioner, TopicMatch};
use lazaret::services::intake::ClusterStatus;
use lazaret::web::router;
use scraper::Html;
use tokio::time::Instant;

use super::house::{House, NOW_MS, TOKEN, all, answer, attributes, record, text_of};
use crate::on_both_stores;
use crate::support::cases;

/// The id of the message at this offset of partition 0.
async fn id_at(house: &House, topic: &str, offset: i64) -> i64 {
    house.store.message_at("main", topic, 0, offset, None).await.expect("asked").expect("the message").id
}

/// Takes these values in and gives the pages of their messages, each in its default view.
async fn pages(house: &House, topic: &str, values: &[&[u8]]) -> Vec<Html> {
    let records =
        values.iter().zip(0..).map(|(value, offset)| Record { value: Some(value.to_vec()), ..record(topic, offset, NOW_MS, "", "said") });
    house.take_in(topic, records.collect()).await;
    let mut pages = Vec::new();
    for offset in 0..values.len() as i64 {
        pages.push(house.page(&format!("/messages/{}", id_at(house, topic, offset).await)).await);
    }
    pages
}

/// "/pointer = value" of every leaf.
fn leaves(page: &Html) -> Vec<String> {
    all(page, ".leaf").into_iter().map(|leaf| leaf.replacen(' ', " = ", 1)).collect()
}

fn fact(page: &Html, name: &str) -> String {
    let (names, values) = (all(page, "aside dt"), all(page, "aside dd"));
    let at = names.iter().position(|each| each == name).unwrap_or_else(|| panic!("{name} in {names:?}"));
    values[at].clone()
}

on_both_stores! {
    async fn the_page_says_first_what_failed_then_what_it_is_and_where_it_came_from(store: Store) {
        let house = House::new(store).await;
        let mut failed = record("payments.wallet.DLQ", 0, NOW_MS, r#"{"payment_id":9007199254740993,"big":1e400}"#, "Connection timed out");
        failed.headers.push(Header { name: "kafka_dlt-exception-stacktrace".into(), value: Some(b"E: x\n\tat com.acme.Wallet.debit(Wallet.java:7)".to_vec()) });
        failed.headers.push(Header { name: "twice".into(), value: None });
        failed.headers.push(Header { name: "twice".into(), value: Some(Vec::new()) });
        house.take_in("payments.wallet.DLQ", vec![failed]).await;
        let id = id_at(&house, "payments.wallet.DLQ", 0).await;
        let page = house.page(&format!("/messages/{id}")).await;
        let main = text_of(&page, "main");
        let place = |said: &str| main.find(said).unwrap_or_else(|| panic!("{said} in {main}"));
        let order = ["org.postgresql.util.PSQLException", "Kind of failure:", "Connection timed out", "Stack trace", "Value", "Headers", "Where from", "History"];
        assert!(order.windows(2).all(|pair| place(pair[0]) < place(pair[1])), "{main}");
        assert_eq!(leaves(&page), ["/payment_id = 9007199254740993", "/big = 1e400"]);
        assert_eq!(attributes(&page, "details.trace", "open"), Vec::<String>::new(), "folded");
        assert_eq!(fact(&page, "Came from"), "payments.initiated, partition 7, offset 404269");
        assert_eq!(fact(&page, "Replayed before"), "never");
        assert_eq!(fact(&page, "Checks"), "none have run");
        assert!(fact(&page, "Stored from").starts_with("payments.wallet.DLQ/0/0"));
        assert_eq!(fact(&page, "Permalink"), "http://127.0.0.1:8080/dlqs/main/payments.wallet.DLQ/0/0?incarnation=1");
        assert_eq!(house.get(&attributes(&page, "dt a", "href")[0]).await.header(header::LOCATION), format!("/messages/{id}"));
        assert!(fact(&page, "Taken in").contains("2026-11-30 14:02:11.000 UTC"));
        let rows = all(&page, "#headers tbody tr");
        assert!(rows[2].contains("0x0000000000062b2dbytes, shown as hex, 8 B origin offset: 404269 (i64 big-endian)"), "{}", rows[2]);
        assert!(rows[0].ends_with("origin topic (text)"), "what stands there as text is not said again: {}", rows[0]);
        assert_eq!(rows[rows.len() - 2..], ["twice1 of 2 null", "twice2 of 2 empty"]);
        assert_eq!(all(&page, ".views a"), ["Tree", "Text", "Hex"]);
        assert_eq!(all(&page, ".views a[aria-current]"), ["Tree"]);
        let text = house.page(&format!("/messages/{id}?view=text")).await;
        assert_eq!(text_of(&text, "pre.value"), r#"{"payment_id":9007199254740993,"big":1e400}"#);
        let refused = house.get(&format!("/messages/{id}?view=xml")).await;
        assert_eq!(refused.status, 400);
        assert!(refused.text().contains("none of tree, text, hex"));
    }

    async fn odd_json_is_shown_as_it_is_and_what_is_odd_is_said(store: Store) {
        let house = House::new(store).await;
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let line = format!(r#"{{"a":"{}","b":1}}"#, "x".repeat(1 << 20));
        let values: [&[u8]; 10] = [
            br#"{"a":1,"a":2}"#,
            "\u{feff}{\"a\":1}".as_bytes(),
            br#"{"half":"\ud800","nul":"\u0000"}"#,
            deep.as_bytes(),
            line.as_bytes(),
            b"{\"a\":\"\0\"}",
            b"{\"a\":\"\xff\"}",
            br#"{"a":1"#,
            b"\x00\x00\x00\x00\x2a\x02\x10abc",
            b"plain",
        ];
        let pages = pages(&house, "odd.DLQ", &values).await;
        let said = |at: usize| text_of(&pages[at], "#value");
        assert_eq!(leaves(&pages[0]), ["/a = 1", "/a = 2again"]);
        assert!(said(0).contains("Given more than once: /a."));
        assert_eq!(leaves(&pages[1]), ["/a = 1"]);
        assert!(said(1).contains("begins with a byte order mark"));
        assert_eq!(leaves(&pages[2]), [r#"/half = "\ud800""#, "/nul = \"␀\""]);
        assert!(said(3).contains("Nested deeper than 32 levels, nothing is shown.") && said(3).contains("Cut: the first 64 kB of 200 kB."), "{}", said(3));
        assert!(leaves(&pages[4])[0].ends_with("x… (goes on)"), "{:?}", leaves(&pages[4]));
        assert!(said(4).contains("Cut: the first 64 kB of 1 MB."), "{}", &said(4)[..400]);
        assert!(said(5).contains("No JSON: it begins like it, and is none from byte 6 on."), "{}", said(5));
        assert_eq!(text_of(&pages[5], "pre.value"), "{\"a\":\"␀\"}");
        assert!(said(6).contains("none from byte 6 on."));
        assert!(text_of(&pages[6], "pre.hex").starts_with("00000000 7b 22 61 22 3a 22 ff 22 7d"));
        assert!(said(7).contains("No JSON: it begins like it, and ends in the middle."));
        assert!(said(8).contains("schema 42, if it is. Not decoded") && !all(&pages[8], "pre.hex").is_empty(), "{}", said(8));
        assert_eq!(text_of(&pages[9], "pre.value"), "plain");
        let tree = house.page(&format!("/messages/{}?view=tree", id_at(&house, "odd.DLQ", 9).await)).await;
        assert!(text_of(&tree, "#value").contains("No JSON object or list: there is no tree to show."));
        assert_eq!(text_of(&tree, "pre.value"), "plain", "shown all the same");
    }

    async fn s4_a_value_of_20_mb_makes_no_page_slow_and_its_download_is_exact(store: Store) {
        let house = House::new(store).await;
        let items: Vec<String> = (0..400_000).map(|n| format!(r#"{{"id":{n},"text":"the quick brown fox {n}"}}"#)).collect();
        let value = format!(r#"{{"email":"ana@b.example","items":[{}]}}"#, items.join(","));
        assert!(value.len() > 18_000_000, "{}", value.len());
        for topic in ["big.DLQ", "cards.DLQ"] {
            house.take_in(topic, vec![record(topic, 0, NOW_MS, &value, "said"), record(topic, 1, NOW_MS, "{}", "said")]).await;
            let (big, small) = (id_at(&house, topic, 0).await, id_at(&house, topic, 1).await);
            for path in ["/messages".to_owned(), format!("/messages/{small}"), format!("/messages/{big}"), format!("/messages/{big}?view=text")] {
                let began = Instant::now();
                let answer = house.get(&path).await;
                let took = began.elapsed();
                println!("{topic} {path}: {} bytes in {took:?}", answer.body.len());
                assert_eq!(answer.status, 200);
                assert!(answer.body.len() < 400_000, "{path}: {} bytes", answer.body.len());
            }
            let page = house.page(&format!("/messages/{big}")).await;
            let said = text_of(&page, "#value");
            assert!(said.contains("Cut: the first 64 kB of 19.") || said.contains("Cut: the first 64 kB of 2"), "{}", &said[..300]);
            assert!(said.contains("2 members so far"), "{}", &said[..300]);
        }
        let download = house.get(&format!("/messages/{}/value", id_at(&house, "big.DLQ", 0).await)).await;
        assert!(download.body == value.as_bytes(), "byte for byte");
        let masked = house.page(&format!("/messages/{}", id_at(&house, "cards.DLQ", 0).await)).await;
        assert_eq!(leaves(&masked)[0], "/email = \"•••\"");
    }

    async fn the_key_says_which_partition_it_would_go_to_now(store: Store) {
        let mut house = House::new(store).await;
        let mut crc = DlqSettings::for_topics("main", TopicMatch::Names(vec!["crc.DLQ".to_owned()]));
        crc.partitioner = Partitioner::ConsistentRandom;
        house.options.dlqs.insert(0, crc);
        let status = ClusterStatus::new("main");
        let state = house.state().with_clusters([status.clone()]);
        let page_of = async |topic: &str, offset: i64| {
            let path = format!("/messages/{}", id_at(&house, topic, offset).await);
            let request = Request::get(path).header(header::AUTHORIZATION, format!("Bearer {TOKEN}"));
            fact(&answer(router(state.clone()), request.body(Body::empty()).unwrap()).await.page(), "Its key hashes to")
        };
        let known: Vec<_> = cases::lines("partitions.jsonl").into_iter().filter(|line| line["partitions"].is_i64()).collect();
        assert!(known.len() >= 9);
        let from = |topic: &str, offset: i64, key: Option<&str>, partition: i32, of: &str| {
            let mut made = record(topic, offset, NOW_MS, "{}", "said");
            made.key = key.map(|key| key.as_bytes().to_vec());
            made.headers[0].value = Some(of.into());
            made.headers[1].value = Some(partition.to_be_bytes().to_vec());
            made
        };
        let topics = |line: &serde_json::Value| format!("topic-of-{}", line["partitions"]);
        for topic in ["java.DLQ", "crc.DLQ"] {
            let records = known.iter().zip(0..).map(|(line, offset)| from(topic, offset, line["key"].as_str(), 4, &topics(line)));
            house.take_in(topic, records.collect()).await;
        }
        assert_eq!(page_of("java.DLQ", 0).await, "not knownthe topics of this cluster were not listed yet");
        let mut counts: BTreeMap<String, i32> = known.iter().map(|line| (topics(line), line["partitions"].as_i64().unwrap() as i32)).collect();
        counts.insert("small".to_owned(), 3);
        status.listed(counts);
        for (line, offset) in known.iter().zip(0..) {
            for (topic, column, name) in [("java.DLQ", "murmur2", "murmur2_random"), ("crc.DLQ", "crc32", "consistent_random")] {
                let said = page_of(topic, offset).await;
                match line[column].as_i64() {
                    Some(hashed) => {
                        assert!(said.starts_with(&format!("partition {hashed} of {} ({name})", line["partitions"])), "{line}: {said}");
                        assert_eq!(said.ends_with(")the one it came from"), hashed == 4, "{line}: {said}");
                        assert_eq!(said.contains("not the one it came from (4): its topic had another number of partitions then"), hashed != 4, "{said}");
                    }
                    None => assert_eq!(said, format!("empty key: any partition ({name})")),
                }
            }
        }
        let mut unnamed = from("other.DLQ", 2, Some("k"), 4, "x");
        unnamed.headers.remove(0);
        house.take_in("other.DLQ", vec![from("other.DLQ", 0, None, 4, "small"), from("other.DLQ", 1, Some("k"), 4, "gone"), unnamed, from("other.DLQ", 3, Some("k"), 7, "small")]).await;
        assert_eq!(page_of("other.DLQ", 0).await, "no key: any partition");
        assert_eq!(page_of("other.DLQ", 1).await, "not knowntopic gone was not seen in the last listing");
        assert_eq!(page_of("other.DLQ", 2).await, "not knownthe headers do not say which topic it came from");
        assert!(page_of("other.DLQ", 3).await.ends_with("It has no partition 7 now."));
    }

    async fn a_masked_key_is_not_hashed_and_still_tells_where_it_came_from(store: Store) {
        let mut house = House::new(store).await;
        let mut own = DlqSettings::for_topics("main", TopicMatch::Names(vec!["uber.DLQ".to_owned()]));
        own.mask = vec!["/email".to_owned()];
        own.dialect = DialectChoice::Named(Dialect::Uforwarder);
        house.options.dlqs.insert(0, own);
        let status = ClusterStatus::new("main");
        status.listed(BTreeMap::from([("payments.initiated".to_owned(), 6), ("rides".to_owned(), 6)]));
        let state = house.state().with_clusters([status]);
        let page_of = async |topic: &str, offset: i64| {
            let path = format!("/messages/{}", id_at(&house, topic, offset).await);
            let request = Request::get(path).header(header::AUTHORIZATION, format!("Bearer {TOKEN}"));
            answer(router(state.clone()), request.body(Body::empty()).unwrap()).await.page()
        };
        let keyed = |offset: i64, key: &str| Record { key: Some(key.into()), ..record("cards.DLQ", offset, NOW_MS, r#"{"email":"ana@b.example"}"#, "x") };
        house.take_in("cards.DLQ", vec![keyed(0, "ana@b.example"), keyed(1, "customer-7")]).await;
        assert_eq!(fact(&page_of("cards.DLQ", 0).await, "Its key hashes to"), "not knownthe key is masked");
        assert_eq!(fact(&page_of("cards.DLQ", 0).await, "Record key"), "•••");
        assert!(fact(&page_of("cards.DLQ", 1).await, "Its key hashes to").starts_with("partition "), "one that gives nothing away is hashed");

        // Topic, partition and offset in protobuf, beside a tombstone: nobody knows what the key repeats.
        let metadata = [&b"\x12\x05rides\x18\x03\x20\x07"[..]].concat();
        let tombstone = Record { key: Some(metadata), value: None, headers: Vec::new(), ..record("uber.DLQ", 0, NOW_MS, "", "") };
        house.take_in("uber.DLQ", vec![tombstone]).await;
        let page = page_of("uber.DLQ", 0).await;
        assert_eq!(fact(&page, "Came from"), "rides, partition 3, offset 7");
        let key = fact(&page, "Record key");
        assert!(key.starts_with("•••") && key.contains("rides (protobuf in the key)"), "{key}");
        assert!(fact(&page, "Its key hashes to").contains("the record's key tells of the failure"));
    }
}
