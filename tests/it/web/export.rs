//! Exports: the rows of the same query as a file, exact, harmless to a spreadsheet, noted in the trail.

use axum::http::{StatusCode, header};
use futures_util::StreamExt as _;
use lazaret::domain::access::{OwnerScope, Role};
use lazaret::domain::record::Header;
use lazaret::store::Store;
use tower::ServiceExt as _;

use super::house::{HOUR_MS, House, MINUTE_MS, NOW_MS, TOKEN, record};
use crate::on_both_stores;

/// The cells by column name.
fn rows(csv: &str) -> Vec<std::collections::HashMap<String, String>> {
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    reader.deserialize().map(|row| row.expect("a row with all its cells")).collect()
}

/// What the trail holds of exports, oldest first.
async fn trail(store: &Store) -> Vec<serde_json::Value> {
    const SQL: &str = "SELECT event FROM audit_events WHERE action = 'exported' ORDER BY seq";
    let events: Vec<String> = match store {
        Store::Postgres(database) => sqlx::query_scalar(SQL).fetch_all(&database.pool).await.unwrap(),
        Store::Sqlite(database) => sqlx::query_scalar(SQL).fetch_all(&database.readers).await.unwrap(),
    };
    events.iter().map(|event| serde_json::from_str(event).unwrap()).collect()
}

on_both_stores! {
    async fn every_message_of_the_query_is_in_the_file_however_many(store: Store) {
        let house = House::new(store).await;
        let records = (0..1_234).map(|offset| record("payments.wallet.DLQ", offset, NOW_MS - 2_000 + offset, "{}", "timed out")).collect();
        house.take_in("payments.wallet.DLQ", records).await;
        house.take_in("orders.DLQ", vec![record("orders.DLQ", 0, NOW_MS, "{}", "no such order")]).await;
        let answer = house.get("/messages/export?format=csv&cluster=main&topic=payments.wallet.DLQ&after=900").await;
        assert_eq!((answer.status, answer.header(header::CONTENT_TYPE)), (StatusCode::OK, "text/csv; charset=utf-8"));
        assert_eq!(answer.header(header::CONTENT_DISPOSITION), "attachment; filename=\"lazaret-payments.wallet.DLQ-20261130T140211Z.csv\"");
        let offsets: Vec<i64> = rows(&answer.text()).iter().map(|row| row["offset"].parse().unwrap()).collect();
        assert_eq!(offsets, (0..1_234).rev().collect::<Vec<_>>(), "newest first, all of them, from whichever page");
        let answer = house.get("/messages/export?format=json").await;
        assert!(answer.header(header::CONTENT_DISPOSITION).contains("lazaret-messages-20261130T140211Z.json"));
        let file = answer.json();
        assert_eq!((file["items"].as_array().unwrap().len(), &file["exported_at"]), (1_235, &serde_json::json!("2026-11-30T14:02:11.000Z")));
        let listed = house.json("/api/v1/messages?limit=500").await["items"].clone();
        assert_eq!(file["items"].as_array().unwrap()[..500], listed.as_array().unwrap()[..], "as the API has them");
        let few = house.get(&format!("/messages/export?format=csv&from_ms={}&to_ms={}", NOW_MS - 2_000, NOW_MS - 1_990)).await;
        assert_eq!(rows(&few.text()).len(), 10);
        assert_eq!(rows(&house.get("/messages/export?format=csv&state=archived").await.text()).len(), 0);
        assert_eq!(house.get("/messages/export?format=json&state=archived").await.json()["items"], serde_json::json!([]));
    }

    async fn a_spreadsheet_runs_nothing_and_numbers_and_times_are_exact(store: Store) {
        let house = House::new(store).await;
        let odd = ["=cmd|' /C calc'!A0", "+1", "-2", "@SUM(A1)", "\tx", "\rx", "a,\"b\"\nc", "plain"];
        let records = odd.iter().enumerate().map(|(offset, odd)| {
            let mut record = record("x.DLQ", offset as i64, NOW_MS - 1, "{}", odd);
            record.key = Some(odd.as_bytes().to_vec());
            record
        });
        let mut bytes = record("x.DLQ", 8, NOW_MS - 1, "{}", "x");
        bytes.key = Some(vec![0xff, 0]);
        let mut null = record("x.DLQ", 9_007_199_254_740_993, NOW_MS - 1, "{}", "x");
        null.key = None;
        null.headers.push(Header { name: b"x".to_vec(), value: None });
        house.take_in("x.DLQ", records.chain([bytes, null]).collect()).await;
        let mut table = rows(&house.get("/messages/export?format=csv").await.text());
        table.reverse();
        for (row, odd) in table.iter().zip(odd) {
            let cell = if odd.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{odd}") } else { odd.to_owned() };
            assert_eq!(row["key_utf8"], cell);
            assert!(!row["exception_message"].starts_with(['=', '+', '-', '@', '\t', '\r']), "{}", row["exception_message"]);
        }
        assert_eq!((table[8]["key_base64"].as_str(), table[8]["key_is_null"].as_str()), ("/wA=", "false"));
        let last = &table[9];
        assert_eq!((last["offset"].as_str(), last["key_is_null"].as_str(), last["key_utf8"].as_str()), ("9007199254740993", "true", ""));
        assert_eq!((last["dead_lettered_at"].as_str(), last["dead_lettered_at_ms"].as_str()), ("2026-11-30T14:02:10.999Z", "1796047330999"));
        assert_eq!((last["origin_offset"].as_str(), last["attempts"].as_str()), ("404269", ""), "unknown is empty, not 0");
    }

    async fn the_overview_goes_as_a_file_with_its_filter(store: Store) {
        let house = House::new(store).await;
        let wallet = house.take_in("payments.wallet.DLQ", vec![record("payments.wallet.DLQ", 0, NOW_MS - 3 * HOUR_MS, "{}", "x")]).await;
        house.sample(&wallet, 4_000, None).await;
        let dark = house.dlq("=1+1.DLQ").await;
        house.sample(&dark, 5 * MINUTE_MS, Some("broker 3 does not answer")).await;
        let answer = house.get("/export?format=csv").await;
        assert_eq!(answer.header(header::CONTENT_DISPOSITION), "attachment; filename=\"lazaret-dlqs-20261130T140211Z.csv\"");
        let table = rows(&answer.text());
        assert_eq!((table[0]["topic"].as_str(), table[0]["status"].as_str(), table[0]["uncollected"].as_str()), ("'=1+1.DLQ", "no_data", ""), "worst first, unknown empty");
        assert_eq!((table[1]["depth"].as_str(), table[1]["oldest_age_s"].as_str(), table[1]["owner"].as_str()), ("1", "10800", "payments"));
        let file = house.get("/export?format=json&owner=payments").await.json();
        assert_eq!(file["items"], house.json("/api/v1/dlqs?owner=payments").await["items"]);
    }

    async fn what_is_taken_away_is_in_the_trail_and_a_wrong_format_is_not(store: Store) {
        let house = House::new(store).await;
        house.take_in("payments.wallet.DLQ", vec![record("payments.wallet.DLQ", 0, NOW_MS, "{}", "x")]).await;
        for path in ["/messages/export", "/messages/export?format=xml", "/export?format=", "/messages/export?format=csv&state=lost", "/export?format=csv&status=odd"] {
            assert_eq!(house.get(path).await.status, StatusCode::BAD_REQUEST, "{path}");
        }
        assert_eq!(trail(&house.store).await, [] as [serde_json::Value; 0]);
        house.get("/messages/export?format=csv&cluster=main&topic=payments.wallet.DLQ&state=quarantined&after=5").await;
        house.get("/messages/export?format=json").await;
        house.get("/export?format=csv&status=critical&q=ana%40b.example").await;
        house.get("/messages/export?format=csv&q=ana%40b.example&state=archived&key=4111111111111111").await;
        let events = trail(&house.store).await;
        let told: Vec<(&str, &str, &serde_json::Value)> = events.iter().map(|event| (event["actor"].as_str().unwrap(), event["subject"].as_str().unwrap(), &event["after"])).collect();
        assert_eq!(
            told,
            [
                ("token viewer", "dlq main/payments.wallet.DLQ", &serde_json::json!({"query": "cluster=main&topic=payments.wallet.DLQ&state=quarantined", "format": "csv"})),
                ("token viewer", "messages", &serde_json::json!({"query": "", "format": "json"})),
                ("token viewer", "overview", &serde_json::json!({"query": "q=given&status=critical", "format": "csv"})),
                ("token viewer", "messages", &serde_json::json!({"query": "q=given&key=given&state=archived", "format": "csv"})),
            ]
        );
        assert_eq!(house.anonymous("GET", "/messages/export?format=csv").await.status, StatusCode::SEE_OTHER, "not without signing in");
    }

    async fn a_downloaded_value_is_in_the_trail_and_a_token_is_not_taken_for_a_user(store: Store) {
        let house = House::new(store).await;
        let dlq = house.take_in("payments.wallet.DLQ", vec![record("payments.wallet.DLQ", 0, NOW_MS, "exact bytes", "x")]).await;
        let mut tombstone = record("payments.wallet.DLQ", 1, NOW_MS, "", "x");
        tombstone.value = None;
        house.take_in("payments.wallet.DLQ", vec![tombstone]).await;
        let id = async |offset: i64| house.store.message_at("main", &dlq.topic, 0, offset, None).await.unwrap().unwrap().id;
        house.access.add_user("ana", "correct horse battery", Role::Viewer, OwnerScope::All).await.unwrap();
        house.access.create_token("ana", Role::Viewer, OwnerScope::All, None, Some("the-token-of-ana")).await.unwrap();
        let signed_in = house.post("/sign-in", "name=ana&password=correct+horse+battery", "").await;
        let cookie = signed_in.header(header::SET_COOKIE).split(';').next().unwrap().to_owned();
        let (value, none) = (format!("/messages/{}/value", id(0).await), format!("/messages/{}/value", id(1).await));
        for (name, secret) in [(header::COOKIE, cookie.as_str()), (header::AUTHORIZATION, "Bearer the-token-of-ana")] {
            for (path, status) in [(&value, StatusCode::OK), (&none, StatusCode::NOT_FOUND)] {
                let request = axum::http::Request::get(path).header(&name, secret);
                assert_eq!(house.send(request.body(axum::body::Body::empty()).unwrap()).await.status, status, "{path}");
            }
        }
        let events = trail(&house.store).await;
        let told: Vec<(&str, &str)> = events.iter().map(|event| (event["actor"].as_str().unwrap(), event["subject"].as_str().unwrap())).collect();
        let subject = format!("message {}", id(0).await);
        assert_eq!(told, [("ana", subject.as_str()), ("token ana", subject.as_str())], "what was not there to be taken is not told");
        let refused = house.access.add_user("Token ana", "correct horse battery", Role::Viewer, OwnerScope::All).await;
        assert!(refused.unwrap_err().to_string().contains("choose another name"));
    }

    async fn a_reader_that_goes_away_ends_the_query(store: Store) {
        let house = House::new(store).await;
        let records = (0..2_000).map(|offset| record("payments.wallet.DLQ", offset, NOW_MS - 2_000 + offset, "{}", "timed out")).collect();
        house.take_in("payments.wallet.DLQ", records).await;
        let request = axum::http::Request::get("/messages/export?format=csv").header(header::AUTHORIZATION, format!("Bearer {TOKEN}"));
        let response = lazaret::web::router(house.state()).oneshot(request.body(axum::body::Body::empty()).unwrap()).await.unwrap();
        let mut body = response.into_body().into_data_stream();
        let piece = body.next().await.expect("a piece").expect("sent");
        let lines = piece.iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(lines, 501, "one page and its heading, not all 2,000");
        drop(body);
        let idle = async || match &house.store {
            Store::Postgres(database) => database.pool.num_idle() == database.pool.size() as usize,
            Store::Sqlite(database) => database.readers.num_idle() == database.readers.size() as usize,
        };
        // A connection goes back to its pool by a task of sqlx's own.
        for _ in 0..200 {
            if idle().await {
                break;
            }
            tokio::task::yield_now().await;
        }
        assert!(idle().await, "no connection is held");
    }
}
