//! The lists: what narrows them stands in the address, every address shows its rows again, and nonsense in one is said in a sentence.

use axum::http::{StatusCode, header};
use lazaret::api::query::encode;
use lazaret::domain::settings::{DlqSettings, TopicMatch};
use lazaret::domain::template::KeyTemplate;
use lazaret::store::Store;

use super::house::{HOUR_MS, House, MINUTE_MS, NOW_MS, all, attributes, record, text_of};
use crate::on_both_stores;

/// 120 messages of payments.wallet.DLQ, one a minute, the newest a minute ago; one of another DLQ.
async fn filled(store: Store) -> House {
    let house = House::new(store).await;
    let records =
        (0..120).map(|offset| record("payments.wallet.DLQ", offset, NOW_MS - (120 - offset) * MINUTE_MS, "{}", "timed out")).collect();
    let wallet = house.take_in("payments.wallet.DLQ", records).await;
    house.sample(&wallet, 4_000, None).await;
    house.take_in("orders.DLQ", vec![record("orders.DLQ", 0, NOW_MS, "{}", "no such order")]).await;
    house
}

fn ids(page: &scraper::Html) -> Vec<String> {
    attributes(page, "#messages tbody tr", "id")
}

on_both_stores! {
    async fn each_filter_is_a_chip_that_can_be_taken_off(store: Store) {
        let house = filled(store).await;
        let page = house.page("/messages?topic=payments.wallet.DLQ&owner=payments&state=quarantined&q=ORG.postgres&from=2026-11-30T13%3A00&to_ms=1796047331000").await;
        let chips = all(&page, ".chips li");
        assert_eq!(
            chips,
            [
                "DLQ payments.wallet.DLQ Remove",
                "owner payments Remove",
                "state quarantined Remove",
                "search ORG.postgres Remove",
                "from 2026-11-30 13:00 UTC Remove",
                "before 2026-11-30 14:02:11.000 UTC Remove",
                "Clear all"
            ]
        );
        assert_eq!(ids(&page).len(), 50);
        let without = attributes(&page, ".chips a", "href");
        assert_eq!(without[2], "/messages?topic=payments.wallet.DLQ&owner=payments&q=ORG.postgres&from=2026-11-30T13%3A00&to_ms=1796047331000");
        let fewer = house.page(&without[0]).await;
        assert_eq!(all(&fewer, ".chips li").len(), 6);
        assert_eq!(attributes(&page, "input[name=from]", "value"), ["2026-11-30T13:00"]);
        assert_eq!(attributes(&page, "input[name=to]", "value"), ["2026-11-30T14:02:11"]);
        assert_eq!(attributes(&page, "input[name=to]", "step"), ["0.001"], "or the browser would refuse its own value");
        assert_eq!(all(&house.page("/messages?owner=fraud").await, ".empty"), ["No message matches this filter. Clear it"]);
    }

    async fn a_time_range_is_utc_and_half_open(store: Store) {
        let house = filled(store).await;
        let count = async |query: &str| house.json(&format!("/api/v1/messages?limit=500&topic=payments.wallet.DLQ&{query}")).await["items"].as_array().unwrap().len();
        // The messages are of 12:02:11 to 14:01:11.
        assert_eq!(count("from=2026-11-30T13:00").await, 62);
        assert_eq!(count("from=2026-11-30T13:00&to=2026-11-30T13:10").await, 10);
        assert_eq!(count(&format!("from={}&to={}", NOW_MS - 2 * MINUTE_MS, NOW_MS - MINUTE_MS)).await, 1);
        assert_eq!(count(&format!("to_ms={}", NOW_MS - HOUR_MS)).await, 60);
    }

    async fn pages_go_to_the_end_and_say_so(store: Store) {
        let house = filled(store).await;
        let mut path = "/messages?topic=payments.wallet.DLQ".to_owned();
        let (mut seen, mut pages) = (Vec::new(), 0);
        loop {
            let page = house.page(&path).await;
            pages += 1;
            seen.extend(ids(&page));
            let ends = all(&page, ".pages > .muted");
            let links: Vec<(String, String)> = all(&page, ".pages > a").into_iter().zip(attributes(&page, ".pages > a", "href")).collect();
            match links.iter().find(|(word, _)| word == "Older") {
                Some((_, older)) => {
                    assert!(ends.is_empty(), "not the end");
                    path = older.trim_end_matches("#messages").to_owned();
                }
                None => {
                    assert_eq!(ends, ["End of the list: nothing older matches."]);
                    assert_eq!(links, [("Newest".to_owned(), "/messages?topic=payments.wallet.DLQ#messages".to_owned())]);
                    break;
                }
            }
        }
        assert_eq!((seen.len(), pages), (120, 3));
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 120, "none twice");
        let past = house.page("/messages?after=1").await;
        assert_eq!(all(&past, ".empty"), ["Nothing older matches."]);
        assert_eq!(all(&past, ".pages > a"), ["Newest"]);
    }

    async fn nonsense_names_the_parameter(store: Store) {
        let house = filled(store).await;
        for (query, said) in [
            ("state=lost", "The parameter state"),
            ("class=odd", "The parameter class"),
            ("from=yesterday", "The parameter from must be a date and time in UTC"),
            ("from=2026-11-30T14:02&to=2026-11-30T13:02", "The parameter from (2026-11-30T14:02) lies after to (2026-11-30T13:02)"),
            ("partition=x", "The parameter partition must be a whole number"),
            ("after=0", "The parameter after must be a whole number"),
            ("colour=red", "Unknown parameter \"colour\""),
            ("q=%ff", "The parameter q must be UTF-8 text without NUL"),
            ("q=a%00b", "The parameter q must be UTF-8 text without NUL"),
        ] {
            for path in ["/messages", "/api/v1/messages"] {
                let answer = house.get(&format!("{path}?{query}")).await;
                assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{query}");
                let said_there = if path == "/messages" { text_of(&answer.page(), "main") } else { answer.json()["detail"].as_str().unwrap().to_owned() };
                assert!(said_there.contains(said), "{query}: {said_there}");
            }
        }
        assert!(text_of(&house.get("/?status=odd").await.page(), "main").contains("The parameter status: unknown status"));
    }

    async fn no_search_breaks_the_page(store: Store) {
        let house = filled(store).await;
        let long = "x".repeat(20_000);
        for q in ["%", "%2", "%zz", "%25%32", "'%3B DROP TABLE messages%3B--", "%3Cscript%3Ealert(1)%3C/script%3E", "%E2%80%AE", "$1", "\\", "%F4%8F%BF%BF", "../../etc", "-@", "a/1/2", "a-1@2", "a/b/1/2", &long] {
            let q = q.replace(' ', "+");
            let answer = house.get(&format!("/messages?q={q}")).await;
            assert_eq!(answer.status, StatusCode::OK, "{q}");
            assert_eq!(all(&answer.page(), ".empty"), ["No message matches this filter. Clear it"], "{q}");
            assert!(!answer.text().contains("<script>alert"), "{q}");
        }
    }

    async fn coordinates_lead_to_the_message_and_both_lives_are_listed(store: Store) {
        let house = filled(store).await;
        let id = house.json("/api/v1/messages?key=key-17").await["items"][0]["id"].as_i64().unwrap();
        for q in ["payments.wallet.DLQ/0/17", "payments.wallet.DLQ-0@17", "main/payments.wallet.DLQ/0/17", " payments.wallet.DLQ/0/17 "] {
            let answer = house.get(&format!("/messages?q={}", encode(q.as_bytes()))).await;
            assert_eq!((answer.status, answer.header(header::LOCATION)), (StatusCode::SEE_OTHER, format!("/messages/{id}").as_str()), "{q}");
        }
        let orders = house.store.dlq("main", "orders.DLQ").await.unwrap().unwrap();
        house.store.start_incarnation(orders.id, 1, None, NOW_MS).await.unwrap().expect("the second life");
        house.take_in("orders.DLQ", vec![record("orders.DLQ", 0, NOW_MS, "second life", "x")]).await;
        let page = house.page("/messages?q=orders.DLQ-0@0").await;
        assert_eq!(ids(&page).len(), 2);
        assert!(text_of(&page, ".note").starts_with("2 messages have had these coordinates"));
        assert!(all(&page, "#messages tbody tr")[0].contains("2nd topic"), "the newest life first");
        assert_eq!(house.get("/messages?q=orders.DLQ-0@0&state=quarantined").await.status, StatusCode::OK, "a filter makes it an ordinary search");
        for q in ["payments.wallet.DLQ/0/9999", "other/payments.wallet.DLQ/0/17"] {
            assert_eq!(all(&house.page(&format!("/messages?q={}", encode(q.as_bytes()))).await, ".empty").len(), 1, "{q}");
        }
    }

    async fn s6_the_value_of_a_masked_field_finds_nothing_anywhere(store: Store) {
        let mut house = House::new(store).await;
        // The same address in the value, the record's key, the header that business key and tenant are made of, the error's text, its class,
        // its stack trace and the consumer group.
        let secret = "ana@b.example";
        let mut settings = DlqSettings::for_topics("main", TopicMatch::Names(vec!["people.DLQ".to_owned()]));
        settings.mask = vec!["/email".to_owned()];
        settings.business_key = Some(KeyTemplate::parse("{header:customer}").unwrap());
        settings.tenant = Some(KeyTemplate::parse("t-{key}").unwrap());
        house.options.dlqs.insert(0, settings);
        let quoting = |offset: i64, value: &str| {
            let mut record = record("people.DLQ", offset, NOW_MS, value, &format!("{secret} has no account"));
            record.key = Some(secret.into());
            record.headers[3].value = Some(format!("{secret} group").into());
            record.headers[4].value = Some(format!("{secret} is gone").into());
            let trace = format!("E: {secret}\n\tat com.acme.A.b(A.java:3)\nCaused by: {secret}: x\n");
            for (name, value) in [("customer", secret), ("kafka_dlt-exception-stacktrace", &trace)] {
                record.headers.push(lazaret::domain::record::Header { name: name.into(), value: Some(value.into()) });
            }
            record
        };
        let plain = format!(r#"{{"id":1,"email":"{secret}"}}"#);
        let mut tombstone = quoting(2, "");
        tombstone.value = None;
        let mut unrelated = record("people.DLQ", 3, NOW_MS, r#"{"id":2,"email":"eva@b.example"}"#, "no account");
        unrelated.key = Some(b"customer-7".to_vec());
        house.take_in("people.DLQ", vec![quoting(0, &plain), quoting(1, "email=ana@b.example"), tombstone, unrelated]).await;
        for q in [secret, "ana", "ana@b", "ana@b.example has", "ana@b.example is", "ANA@B.EXAMPLE", "t-ana@b.example"] {
            let q = encode(q.as_bytes());
            for query in [format!("q={q}"), format!("key={q}"), format!("q={q}&topic=people.DLQ"), format!("q={q}&key={q}")] {
                assert_eq!(house.json(&format!("/api/v1/messages?{query}")).await["items"], serde_json::json!([]), "{query}");
                assert_eq!(ids(&house.page(&format!("/messages?{query}")).await), [""; 0], "{query}");
            }
        }
        let items = house.json("/api/v1/messages?topic=people.DLQ").await["items"].clone();
        let mut paths = vec!["/messages".to_owned(), "/messages?topic=people.DLQ".to_owned(), "/dlqs/main/people.DLQ".to_owned(), "/api/v1/messages".to_owned(), "/api/v1/dlqs/main/people.DLQ".to_owned(), "/messages/export?format=csv".to_owned(), "/messages/export?format=json".to_owned()];
        for item in items.as_array().unwrap() {
            paths.extend([format!("/messages/{}", item["id"]), format!("/api/v1/messages/{}", item["id"]), format!("/groups/{}", item["group"])]);
        }
        for path in paths {
            let text = house.get(&path).await.text();
            assert!(text.len() > 100 && !text.contains(secret) && !text.contains("b.example"), "{path}: {text}");
        }
        let keys: Vec<&str> = items.as_array().unwrap().iter().map(|item| item["key"]["utf8"].as_str().unwrap()).collect();
        assert_eq!(keys, ["customer-7", "•••", "•••", "•••"], "a key that gives nothing away stays");
        assert_eq!(house.json("/api/v1/messages?key=customer-7").await["items"].as_array().unwrap().len(), 1);
    }

    async fn an_owner_is_listed_by_the_name_it_has(store: Store) {
        let mut house = House::new(store).await;
        for (topic, owner) in [("a.DLQ", "team_a"), ("b.DLQ", "team\u{202e}b"), ("c.DLQ", "team_a")] {
            let mut settings = DlqSettings::for_topics("main", TopicMatch::Names(vec![topic.to_owned()]));
            settings.owner = Some(owner.to_owned());
            house.options.dlqs.insert(0, settings);
            house.dlq(topic).await;
        }
        for path in ["/", "/messages"] {
            let page = house.page(path).await;
            assert_eq!(all(&page, "select[name=owner] option:not([value=''])"), ["team_a", "team⟨U+202E⟩b"], "{path}");
            assert_eq!(attributes(&page, "select[name=owner] option:not([value=''])", "value"), ["team_a", "team\u{202e}b"], "{path}");
        }
    }

    async fn the_overview_leads_to_the_worst_and_tells_how_depth_changed(store: Store) {
        let house = filled(store).await;
        let wallet = house.store.dlq("main", "payments.wallet.DLQ").await.unwrap().unwrap();
        house.sample(&wallet, 58 * MINUTE_MS, None).await;
        let page = house.page("/").await;
        assert_eq!(attributes(&page, ".answer a.btn", "href"), attributes(&page, "#sentence a", "href"), "one press to the worst");
        assert_eq!(attributes(&page, "#dlqs tbody", "data-keep-order"), [""]);
        let row = format!("#dlq-{}", wallet.id);
        assert!(text_of(&page, &format!("{row} td[data-l=Depth]")).contains("+120 in 1 h"), "the sample of then says 0");
        assert_eq!(house.json("/api/v1/dlqs?q=wallet").await["items"][0]["depth_change_1h"], 120);
        assert_eq!(attributes(&page, "#dlqs, #summary", "hx-get"), ["/", "/"]);
        let narrowed = house.page("/?q=wallet&owner=payments").await;
        assert_eq!(all(&narrowed, ".chips li"), ["search wallet Remove", "owner payments Remove", "Clear all"]);
        assert_eq!(attributes(&narrowed, "#dlqs", "hx-get"), ["/?q=wallet&owner=payments"]);
        assert_eq!(attributes(&narrowed, ".files a", "href"), ["/export?format=csv&q=wallet&owner=payments", "/export?format=json&q=wallet&owner=payments"]);
    }
}
