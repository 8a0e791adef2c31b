//! Hostile records on every page: nothing runs, nothing deceives, nothing is too long.

use std::collections::BTreeSet;

use lazaret::domain::record::{Header, Record};
use scraper::Html;

use super::house::{House, NOW_MS, attributes, record, text_of};
use crate::on_both_stores;
use crate::support::cases;

/// The records of all cases as if they were of one topic, offsets in order.
pub fn fixtures(topic: &str) -> Vec<Record> {
    cases::records().into_iter().map(|case| Record { topic: topic.to_owned(), ..case.record }).collect()
}

const OVERRIDE: &str = "invoice\u{202e}gpj.exe\u{200b}\u{2066}";

/// What a person who means harm would send.
pub fn hostile(topic: &str, from: i64) -> Vec<Record> {
    let nasty = "\"><script>alert(1)</script><img src=x onerror=alert(2)><b style=position:fixed>&lt;";
    let mut everywhere = record(topic, from, NOW_MS, nasty, nasty);
    everywhere.key = Some(nasty.as_bytes().to_vec());
    everywhere.headers.push(Header { name: nasty.into(), value: Some(nasty.into()) });
    everywhere.headers[4].value = Some(nasty.into());
    everywhere.headers[0].value = Some(nasty.into());
    everywhere.headers[3].value = Some(nasty.into());
    let mut turned = record(topic, from + 1, NOW_MS, OVERRIDE, OVERRIDE);
    turned.key = Some(OVERRIDE.as_bytes().to_vec());
    turned.headers.push(Header { name: OVERRIDE.into(), value: Some(OVERRIDE.into()) });
    let line = format!("{{\"a\":\"{}\"}}", "x".repeat(1 << 20));
    let mut long = record(topic, from + 2, NOW_MS, &line, &line);
    long.key = Some(line.clone().into_bytes());
    long.headers.push(Header { name: "long".into(), value: Some(line.into_bytes()) });
    let mut nul = record(topic, from + 3, NOW_MS, "a\0b\x1b[31mc\r\nd", "a\0b\x1b[31mc");
    nul.key = Some(b"a\0b".to_vec());
    nul.headers.push(Header { name: vec![0xff, 0, b'<'], value: Some(vec![0xff, 0, b'<']) });
    let broken = [b"\xff\xc0\x80", nasty.as_bytes(), b"\xed\xa0\x80"].concat();
    let mut invalid = record(topic, from + 4, NOW_MS, "", "");
    invalid.key = Some(broken.clone());
    invalid.value = Some(broken.clone());
    invalid.headers.iter_mut().for_each(|header| header.value = Some(broken.clone()));
    let named = serde_json::json!({ nasty: [nasty, { OVERRIDE: OVERRIDE }], "\0": "\u{1b}" }).to_string();
    let mut tree = record(topic, from + 5, NOW_MS, &named, nasty);
    tree.headers.push(Header { name: "kafka_dlt-exception-stacktrace".into(), value: Some(format!("{nasty}\n\tat {OVERRIDE}").into()) });
    vec![everywhere, turned, long, nul, invalid, tree]
}

fn assert_inert(path: &str, text: &str) {
    let page = Html::parse_document(text);
    // What our own templates are made of. Scripts are files of ours, and empty.
    let known: BTreeSet<&str> = "a article aside b body br button caption circle code dd details dialog div dl dt fieldset form h1 h2 h3 head header \
        html input kbd label legend li line link main meta meter nav ol option p path pre progress rect section select span summary svg table tbody \
        td text textarea th thead time title tr ul"
        .split_whitespace()
        .collect();
    for node in page.tree.nodes() {
        let Some(element) = node.value().as_element() else { continue };
        let is_ours =
            element.name() == "script" && element.attr("src").is_some_and(|src| src.starts_with("/static/")) && !node.has_children();
        assert!(is_ours || known.contains(element.name()), "{path}: <{}>", element.name());
        for (name, value) in element.attrs() {
            assert!(!name.starts_with("on") && name != "style" && name != "srcdoc", "{path}: {name}={value:?}");
            assert!(!matches!(name, "href" | "action") || value.starts_with('/') || value.starts_with('#'), "{path}: {name}={value:?}");
        }
    }
    for deceit in ['\0', '\u{1b}', '\u{202e}', '\u{200b}', '\u{2066}', '\u{feff}'] {
        assert!(!text.contains(deceit), "{path}: U+{:04X}", deceit as u32);
    }
    assert!(text.len() < 400_000, "{path}: {} bytes", text.len());
}

on_both_stores! {
    async fn hostile_records_are_inert_on_every_page(store: Store) {
        let house = House::new(store).await;
        let mut records = fixtures("x.DLQ");
        let from = records.len() as i64;
        records.extend(hostile("x.DLQ", from));
        let count = records.len();
        let dlq = house.take_in("x.DLQ", records).await;
        house.sample(&dlq, 0, Some("<script>alert(1)</script>\u{202e}")).await;
        let items = house.json("/api/v1/messages?limit=500").await["items"].clone();
        let items = items.as_array().expect("items");
        assert_eq!(items.len(), count, "every one is kept");
        let mut paths: BTreeSet<String> = ["/", "/messages", "/dlqs/main/x.DLQ", "/?q=%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E%E2%80%AE", "/messages?q=%3Cscript%3E%E2%80%AE&key=%3Cscript%3E"].map(str::to_owned).into();
        for item in items {
            let id = item["id"].as_i64().expect("an id");
            paths.extend([format!("/messages/{id}"), format!("/messages/{id}?view=hex"), format!("/messages/{id}?view=text"), format!("/messages/{id}?view=tree"), format!("/groups/{}", item["group"])]);
        }
        for path in paths {
            let answer = house.get(&path).await;
            assert_eq!(answer.status, 200, "{path}");
            assert!(answer.header("content-security-policy").starts_with("default-src 'none'; script-src 'self'; style-src 'self'"));
            assert_inert(&path, &answer.text());
        }
        let at = |offset: i64| items.iter().find(|item| item["offset"] == offset).expect("the message")["id"].as_i64().expect("an id");
        let page = house.page(&format!("/messages/{}", at(from + 1))).await;
        assert_eq!(text_of(&page, "pre.value"), "invoice⟨U+202E⟩gpj.exe⟨U+200B⟩⟨U+2066⟩");
        let page = house.page(&format!("/messages/{}?view=text", at(from + 3))).await;
        assert_eq!(text_of(&page, "pre.value"), "a␀b␛[31mc d");
        let page = house.page(&format!("/messages/{}", at(from + 2))).await;
        assert!(text_of(&page, "#value").contains("Cut: the first 64 kB of 1 MB."));
        assert_eq!(attributes(&page, "#value a[download]", "href"), [format!("/messages/{}/value", at(from + 2))]);
        let page = house.page(&format!("/messages/{}", at(from))).await;
        assert!(text_of(&page, "h1").contains("<script>alert(1)</script>"), "shown as the text it is");
    }
}

#[tokio::test]
async fn a_record_of_nothing_but_headers_is_a_page_of_bounded_length() {
    let (store, _folder) = crate::support::sqlite().await;
    let house = House::new(store).await;
    let mut crowded = record("x.DLQ", 0, NOW_MS, "{}", "said");
    let own = crowded.headers.len();
    crowded.headers.extend((0..100_000).map(|_| Header { name: "kafka_dlt-exception-fqcn".into(), value: Some(b"E".to_vec()) }));
    house.take_in("x.DLQ", vec![crowded]).await;
    let id = house.json("/api/v1/messages").await["items"][0]["id"].as_i64().expect("an id");
    let answer = house.get(&format!("/messages/{id}")).await;
    assert_eq!(answer.status, 200, "in time");
    assert!(answer.text().len() < 400_000, "{} bytes", answer.text().len());
    assert!(text_of(&answer.page(), "#headers").contains(&format!("Headers {} Cut: the first 500 are shown", 100_000 + own)));
    let all = house.json(&format!("/api/v1/messages/{id}")).await["headers"].as_array().expect("headers").len();
    assert_eq!(all, 100_000 + own);
}

#[tokio::test]
async fn the_longest_page_that_a_record_can_make_is_bounded() {
    let (store, _folder) = crate::support::sqlite().await;
    let house = House::new(store).await;
    // What grows most when it is escaped, in every field, and a tree of as many long names as there is room for.
    let quotes = "\"".repeat(300_000);
    let members: Vec<String> = (0..2_000).map(|n| format!("\"{}{n}\":{{\"{}\":1}}", "&".repeat(80), "<".repeat(120))).collect();
    let mut worst = Vec::new();
    for (value, offset) in
        [quotes.clone(), format!("{{{}}}", members.join(",")), format!("[{}]", "[],".repeat(90_000))].into_iter().zip(0..)
    {
        let mut record = record("x.DLQ", offset, NOW_MS, &value, &quotes);
        record.key = Some(quotes.clone().into_bytes());
        record.headers[4].value = Some(quotes.clone().into_bytes());
        record.headers.push(Header { name: "kafka_dlt-exception-stacktrace".into(), value: Some(quotes.clone().into_bytes()) });
        record.headers.extend((0..600).map(|_| Header { name: quotes[..400].into(), value: Some(quotes[..5_000].into()) }));
        worst.push(record);
    }
    house.take_in("x.DLQ", worst).await;
    for item in house.json("/api/v1/messages").await["items"].as_array().expect("items") {
        for view in ["tree", "text", "hex"] {
            let path = format!("/messages/{}?view={view}", item["id"]);
            let answer = house.get(&path).await;
            assert_eq!(answer.status, 200);
            println!("{path}: {} bytes", answer.body.len());
            assert!(answer.body.len() < 2_000_000, "{path}: {} bytes", answer.body.len());
        }
    }
}

on_both_stores! {
    async fn hostile_queries_and_paths_are_inert_in_error_pages(store: Store) {
        let house = House::new(store).await;
        for path in [
            "/%3Cscript%3Ealert(1)%3C/script%3E",
            "/?%3Cscript%3E=1",
            "/dlqs/main/%3Cscript%3E%E2%80%AE",
            "/dlqs/%ff/x",
            "/dlqs/main/%00",
            "/dlqs/main/%00/0/0",
            "/api/v1/dlqs/%00/a",
            "/messages/%3Cimg%20src=x%20onerror=alert(1)%3E",
            "/messages/%00",
            "/messages?topic=%00",
            "/messages?state=%3Cscript%3E",
        ] {
            let answer = house.get(path).await;
            assert!(answer.status.is_client_error(), "{path}: {}", answer.status);
            assert_inert(path, &answer.text());
        }
        for form in ["name=%00&password=x", "name=%3Cscript%3E%E2%80%AE&password=%00"] {
            let answer = house.post("/sign-in", form, "").await;
            assert_eq!(answer.status, 422, "{form}");
            assert_inert(form, &answer.text());
        }
    }
}
