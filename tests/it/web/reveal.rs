//! Masked fields, and the one way around the mask.

use std::io::Write;
use std::sync::{Arc, Mutex};

use axum::http::StatusCode;
use lazaret::domain::access::{OwnerScope, Role};
use lazaret::domain::record::{Header, Record};
use lazaret::store::Store;
use scraper::Html;

use super::house::{Answer, House, NOW_MS, all, attributes, record, text_of};
use crate::on_both_stores;

const SECRET: &str = "4111111111111111";
const EMAIL: &str = "ana@b.example";

/// A DLQ of owner `payments` whose card numbers and addresses are masked, and people who may and may not.
async fn house(store: Store) -> House {
    let mut house = House::new(store).await;
    house.options.dlqs[0].owner = Some("payments".to_owned());
    let people = [
        ("vera", Role::Viewer, OwnerScope::All),
        ("olga", Role::Operator, OwnerScope::Listed(vec!["payments".to_owned()])),
        ("otto", Role::Operator, OwnerScope::Listed(vec!["fraud".to_owned()])),
    ];
    for (name, role, owners) in people {
        house.access.add_user(name, "correct horse battery", role, owners).await.expect("a user");
    }
    house
}

async fn signed_in(house: &House, name: &str) -> String {
    let answer = house.post("/sign-in", &format!("name={name}&password=correct+horse+battery"), "").await;
    answer.header("set-cookie").split(';').next().expect("a cookie").to_owned()
}

async fn page_as(house: &House, cookie: &str, path: &str) -> Answer {
    let request = axum::http::Request::get(path).header("cookie", cookie).body(axum::body::Body::empty()).expect("a request");
    house.send(request).await
}

fn value() -> String {
    format!(r#"{{"id":9007199254740993,"card":{{"number":"{SECRET}","net":"visa"}},"email":"{EMAIL}"}}"#)
}

async fn id_at(house: &House, offset: i64) -> i64 {
    house.store.message_at("main", "cards.DLQ", 0, offset, None).await.expect("asked").expect("the message").id
}

/// What the trail holds of revealing, as its stored texts.
async fn trail(house: &House) -> Vec<serde_json::Value> {
    const SQL: &str = "SELECT event FROM audit_events WHERE action = 'revealed' ORDER BY seq";
    let texts: Vec<String> = match &house.store {
        Store::Postgres(database) => sqlx::query_scalar(SQL).fetch_all(&database.pool).await,
        Store::Sqlite(database) => sqlx::query_scalar(SQL).fetch_all(&database.readers).await,
    }
    .expect("the trail");
    texts.iter().map(|text| serde_json::from_str(text).expect("JSON")).collect()
}

fn assert_hidden(what: &str, text: &str) {
    for secret in [SECRET, EMAIL, "34 31 31 31", "34313131"] {
        assert!(!text.contains(secret), "{what} shows {secret}");
    }
}

/// Log lines of this thread.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("the lines").extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

on_both_stores! {
    async fn an_operator_reveals_with_a_reason_and_the_trail_says_so(store: Store) {
        let house = house(store).await;
        let lines = Lines::default();
        let made = lines.clone();
        let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(move || made.clone()).finish();
        let log = tracing::subscriber::set_default(subscriber);
        house.take_in("cards.DLQ", vec![record("cards.DLQ", 0, NOW_MS, &value(), &format!("card {SECRET} declined"))]).await;
        let path = format!("/messages/{}", id_at(&house, 0).await);
        let olga = signed_in(&house, "olga").await;
        let page = page_as(&house, &olga, &path).await;
        assert_hidden("the page", &page.text());
        let page = page.page();
        assert!(text_of(&page, "#value").contains("Masked: /card/number, /email."));
        assert_eq!(attributes(&page, ".reveal form", "action"), [format!("{path}/reveal#value")]);
        assert_eq!(attributes(&page, ".reveal form", "method"), ["post"]);
        for (form, fault) in [("reason=", "Say why"), ("reason=+%09", "Say why"), ("", "Say why"), (&*format!("reason={}", "x".repeat(501)), "500 at most")] {
            let answer = house.post(&format!("{path}/reveal"), form, &olga).await;
            assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{form}");
            assert_hidden("the form again", &answer.text());
            let page = answer.page();
            assert!(text_of(&page, ".reveal [role=alert]").contains(fault));
            assert_eq!(attributes(&page, ".reveal", "open").len(), 1);
        }
        let typed = house.post(&format!("{path}/reveal"), &format!("reason={}", "x".repeat(501)), &olga).await.page();
        assert_eq!(attributes(&typed, "#reason", "value"), ["x".repeat(501)], "what was typed is there to be mended");
        assert_eq!(trail(&house).await, Vec::<serde_json::Value>::new(), "nothing was shown so far");
        let shown = house.post(&format!("{path}/reveal"), "reason=ticket+PAY-1&view=text", &olga).await;
        assert_eq!((shown.status, shown.header("cache-control")), (StatusCode::OK, "no-store"));
        let page = shown.page();
        assert_eq!(text_of(&page, "pre.value"), value(), "in the view it was looked at");
        assert_eq!(all(&page, "#value dt"), ["/card/number", "/email"]);
        assert_eq!(all(&page, "#value dd"), [format!("\"{SECRET}\""), format!("\"{EMAIL}\"")]);
        assert!(text_of(&page, "#value [role=status]").starts_with("Revealed to olga, this once."));
        assert_eq!(text_of(&page, "pre.said"), "card ••• declined", "what quotes it stays masked");
        let links = attributes(&page, "a", "href").join(" ");
        assert_hidden("a link", &links);
        assert!(links.contains(&format!("{path}#value")), "a way back to the mask");
        let trail = trail(&house).await;
        assert_eq!(trail.len(), 1);
        assert_eq!((&trail[0]["actor"], &trail[0]["reason"]), (&"olga".into(), &"ticket PAY-1".into()));
        assert_eq!(trail[0]["subject"], path.replace("/messages/", "message "));
        assert_eq!(trail[0]["after"], serde_json::json!({"fields": ["/card/number", "/email"], "whole_value": false, "download": false}));
        assert_eq!(trail[0]["request_id"], shown.header("x-request-id"));
        assert_hidden("the trail", &trail[0].to_string());
        assert_hidden("the page after that", &page_as(&house, &olga, &path).await.text());
        drop(log);
        let log = String::from_utf8(lines.0.lock().expect("the lines").clone()).expect("text");
        assert!(log.contains("/reveal"), "the log was listened to");
        assert_hidden("the log", &log);
        assert!(!log.contains("PAY-1"));
    }

    async fn the_exact_bytes_can_be_had_once_too(store: Store) {
        let house = house(store).await;
        house.take_in("cards.DLQ", vec![record("cards.DLQ", 0, NOW_MS, &value(), "said")]).await;
        let path = format!("/messages/{}", id_at(&house, 0).await);
        let olga = signed_in(&house, "olga").await;
        assert_eq!(page_as(&house, &olga, &format!("{path}/value")).await.status, StatusCode::FORBIDDEN);
        let file = house.post(&format!("{path}/reveal"), "reason=a+file&download=1", &olga).await;
        assert_eq!(file.body, value().into_bytes());
        assert!(file.header("content-disposition").starts_with("attachment;"));
        let trail = trail(&house).await;
        assert_eq!((&trail[0]["after"]["download"], &trail[0]["after"]["whole_value"]), (&true.into(), &true.into()));
    }

    async fn who_may_not_is_told_which_role_or_owner_can(store: Store) {
        let house = house(store).await;
        house.take_in("cards.DLQ", vec![record("cards.DLQ", 0, NOW_MS, &value(), "said")]).await;
        let path = format!("/messages/{}", id_at(&house, 0).await);
        for (name, on_page, refusal) in [
            ("vera", "Revealing what is masked needs the role operator.", "needs the role operator"),
            ("otto", "You cannot reveal what is masked: otto does not act on the DLQs of payments. An admin can change that.", "otto does not act on the DLQs of payments"),
        ] {
            let cookie = signed_in(&house, name).await;
            let page = page_as(&house, &cookie, &path).await.page();
            assert!(all(&page, ".reveal form").is_empty(), "{name}: no form");
            assert!(text_of(&page, "#value").contains(on_page), "{}", text_of(&page, "#value"));
            for form in ["reason=why", "reason=why&download=1", "reason="] {
                let refused = house.post(&format!("{path}/reveal"), form, &cookie).await;
                assert_eq!(refused.status, StatusCode::FORBIDDEN, "{name} {form}");
                assert_hidden(name, &refused.text());
                assert!(refused.text().contains(refusal), "{}", refused.text());
            }
        }
        assert!(trail(&house).await.is_empty());
    }

    async fn the_configuration_says_whose_a_dlq_is_for_its_messages_and_its_failures(store: Store) {
        let mut house = house(store).await;
        house.take_in("cards.DLQ", vec![record("cards.DLQ", 0, NOW_MS, &value(), "said")]).await;
        let id = id_at(&house, 0).await;
        let group = house.json(&format!("/api/v1/messages/{id}")).await["group"].clone();
        let group = group.as_i64().or_else(|| group["id"].as_i64()).expect("the group's id");
        let (olga, otto) = (signed_in(&house, "olga").await, signed_in(&house, "otto").await);
        // An empty reason or note does not do, but only who may act is told so.
        let may = async |house: &House, cookie: &str| {
            let reveals = house.post(&format!("/messages/{id}/reveal"), "reason=", cookie).await.status;
            let notes = house.post(&format!("/groups/{group}/notes"), "form_id=f&note=", cookie).await.status;
            [reveals, notes].map(|status| status == StatusCode::UNPROCESSABLE_ENTITY)
        };
        assert_eq!((may(&house, &olga).await, may(&house, &otto).await), ([true; 2], [false; 2]));
        house.options.dlqs[0].owner = Some("fraud".to_owned());
        assert_eq!((may(&house, &olga).await, may(&house, &otto).await), ([false; 2], [true; 2]), "the database still says payments");
        assert_eq!(all(&page_as(&house, &otto, &format!("/messages/{id}")).await.page(), ".reveal form").len(), 1);
        house.options.dlqs.clear();
        assert_eq!((may(&house, &olga).await, may(&house, &otto).await), ([true; 2], [false; 2]), "no entry covers it: as it was last");
    }

    async fn a_value_without_fields_to_find_is_revealed_whole_and_said_so(store: Store) {
        let house = house(store).await;
        let odd = format!("number={SECRET};{}", "x".repeat(100_000));
        let said = format!("card {SECRET} of {EMAIL} declined");
        house.take_in("cards.DLQ", vec![record("cards.DLQ", 0, NOW_MS, &odd, &said), record("cards.DLQ", 1, NOW_MS, r#"{"id":1,"email":null}"#, "said")]).await;
        let olga = signed_in(&house, "olga").await;
        let path = format!("/messages/{}", id_at(&house, 0).await);
        let page = page_as(&house, &olga, &path).await;
        assert_hidden("the page", &page.text());
        assert!(text_of(&page.page(), "#value").contains("all of it is withheld"));
        let page = house.post(&format!("{path}/reveal"), "reason=PAY-2", &olga).await.page();
        let value = text_of(&page, "#value");
        assert!(text_of(&page, "pre.value").starts_with(&format!("number={SECRET};xx")));
        assert!(value.contains("all of it was withheld") && value.contains("Cut: the first 64 kB of 100 kB."), "{}", &value[..600]);
        let trail = trail(&house).await;
        assert_eq!(trail[0]["after"], serde_json::json!({"fields": ["/card/number", "/email"], "whole_value": true, "download": false}));
        // Where nothing is hidden there is nothing to reveal, and the exact bytes are anyone's.
        let path = format!("/messages/{}", id_at(&house, 1).await);
        assert!(all(&page_as(&house, &olga, &path).await.page(), ".reveal").is_empty());
        assert_eq!(house.post(&format!("{path}/reveal"), "reason=PAY-3", &olga).await.status, StatusCode::CONFLICT);
        assert_eq!(house.get(&format!("{path}/value")).await.body, br#"{"id":1,"email":null}"#);
        assert_eq!(house.post("/messages/999999/reveal", "reason=PAY-3", &olga).await.status, StatusCode::NOT_FOUND);
    }

    async fn what_cannot_be_put_on_the_trail_is_not_shown(store: Store) {
        let house = house(store).await;
        house.take_in("cards.DLQ", vec![record("cards.DLQ", 0, NOW_MS, &value(), "said")]).await;
        let path = format!("/messages/{}/reveal", id_at(&house, 0).await);
        let olga = signed_in(&house, "olga").await;
        const BREAK: &str = "DROP TABLE audit_events";
        match &house.store {
            Store::Postgres(database) => sqlx::query(BREAK).execute(&database.pool).await.map(|_| ()),
            Store::Sqlite(database) => sqlx::query(BREAK).execute(&database.writer).await.map(|_| ()),
        }
        .expect("no trail any more");
        for form in ["reason=why", "reason=why&download=1"] {
            let answer = house.post(&path, form, &olga).await;
            assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
            assert_hidden("the error", &answer.text());
        }
    }

    async fn s6_whatever_quotes_a_masked_field_is_masked_too_also_of_old(store: Store) {
        let mut house = house(store).await;
        let mut quoting = record("cards.DLQ", 0, NOW_MS, &value(), &format!("card {SECRET} of {EMAIL} declined"));
        quoting.key = Some(SECRET.into());
        quoting.headers[4].value = Some(format!("com.acme.Declined for {EMAIL}").into());
        quoting.headers.push(Header { name: "kafka_dlt-exception-stacktrace".into(), value: Some(format!("E: {SECRET}\n\tat a.B.c(B.java:1)").into()) });
        quoting.headers.push(Header { name: format!("for-{EMAIL}").into(), value: Some([b"\xff", SECRET.as_bytes()].concat()) });
        let twice = format!(r#"{{"email":"{EMAIL}","email":"bob@b.example","card":{{"number":{SECRET}}}}}"#);
        let again = Record { offset: 1, value: Some(twice.into_bytes()), ..quoting.clone() };
        // Taken in before the mask was set: what was stored to be shown holds the values as they came.
        let mask = std::mem::take(&mut house.options.dlqs[0].mask);
        house.take_in("cards.DLQ", vec![quoting, again]).await;
        let vera = signed_in(&house, "vera").await;
        let before = page_as(&house, &vera, &format!("/messages/{}", id_at(&house, 0).await)).await.text();
        assert!(before.contains(SECRET) && before.contains(EMAIL), "it would show");
        house.options.dlqs[0].mask = mask;
        for offset in [0, 1] {
            let id = id_at(&house, offset).await;
            for path in [format!("/messages/{id}"), format!("/messages/{id}?view=text"), format!("/messages/{id}?view=hex"), format!("/messages/{id}/value"), format!("/api/v1/messages/{id}")] {
                assert_hidden(&path, &page_as(&house, &vera, &path).await.text());
            }
        }
        let page: Html = page_as(&house, &vera, &format!("/messages/{}", id_at(&house, 0).await)).await.page();
        assert_eq!(text_of(&page, "h1"), "com.acme.Declined for •••");
        assert_eq!(text_of(&page, "pre.said"), "card ••• of ••• declined");
        assert!(text_of(&page, "pre.value, .tree").contains("9007199254740993"));
    }
}
