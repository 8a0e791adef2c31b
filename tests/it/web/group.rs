//! The page of a failure group: what is said of it, who may decide, what two who decide at once see.

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use lazaret::domain::access::{OwnerScope, Role};
use lazaret::domain::record::{Header, Record};
use lazaret::store::Store;
use scraper::Html;
use serde_json::{Value, json};

use super::house::{Answer, HOUR_MS, House, MINUTE_MS, NOW_MS, TOKEN, all, attributes, record, text_of};
use crate::on_both_stores;

const TOPIC: &str = "payments.wallet.DLQ";

/// Somebody who is signed in.
struct Person<'a> {
    house: &'a House,
    cookie: String,
}

impl Person<'_> {
    async fn get(&self, path: &str) -> Answer {
        self.house.send(Request::get(path).header(header::COOKIE, &self.cookie).body(Body::empty()).unwrap()).await
    }

    async fn page(&self, path: &str) -> Html {
        let answer = self.get(path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text());
        answer.page()
    }

    async fn post(&self, path: &str, form: &[(&str, &str)]) -> Answer {
        let form: Vec<String> = form.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        self.house.post(path, &form.join("&"), &self.cookie).await
    }

    /// Adds a note with the form that the page gives.
    async fn note(&self, id: i64, note: &str) -> Answer {
        let form_id = attributes(&self.page(&format!("/groups/{id}")).await, "input[name=form_id]", "value").remove(0);
        self.post(&format!("/groups/{id}/notes"), &[("form_id", &form_id), ("note", note)]).await
    }
}

fn encoded(value: &str) -> String {
    lazaret::api::query::encode(value.as_bytes())
}

async fn person<'a>(house: &'a House, name: &str, role: Role, owners: OwnerScope) -> Person<'a> {
    house.access.add_user(name, "correct horse battery", role, owners).await.unwrap();
    let answer = house.post("/sign-in", &format!("name={name}&password=correct+horse+battery"), "").await;
    let cookie = answer.header(header::SET_COOKIE).split(';').next().unwrap().to_owned();
    Person { house, cookie }
}

async fn operator<'a>(house: &'a House, name: &str) -> Person<'a> {
    person(house, name, Role::Operator, OwnerScope::All).await
}

/// A failure of the wallet at each of these times; gives its group.
async fn failing(house: &House, from: i64, times: &[i64]) -> i64 {
    let records = times.iter().zip(from..).map(|(at, offset)| record(TOPIC, offset, *at, "{}", "Connection to wallet-db timed out"));
    house.take_in(TOPIC, records.collect()).await;
    house.json(&format!("/api/v1/messages?topic={TOPIC}&limit=1")).await["items"][0]["group"].as_i64().unwrap()
}

async fn events(house: &House) -> Vec<Value> {
    const SQL: &str = "SELECT event FROM audit_events WHERE action IN ('group_status_set', 'group_note_added') ORDER BY seq";
    let events: Vec<String> = match &house.store {
        Store::Postgres(database) => sqlx::query_scalar(SQL).fetch_all(&database.pool).await.unwrap(),
        Store::Sqlite(database) => sqlx::query_scalar(SQL).fetch_all(&database.readers).await.unwrap(),
    };
    events.iter().map(|event| serde_json::from_str(event).unwrap()).collect()
}

fn badge(page: &Html) -> String {
    text_of(page, "#group .head .st")
}

on_both_stores! {
    async fn a_failure_is_taken_fixed_and_comes_back(store: Store) {
        let house = House::new(store).await;
        let id = failing(&house, 0, &[NOW_MS - 3 * HOUR_MS, NOW_MS - 10 * MINUTE_MS]).await;
        let (path, api) = (format!("/groups/{id}"), format!("/api/v1/groups/{id}"));
        let ana = operator(&house, "ana").await;
        let page = ana.page(&path).await;
        assert_eq!((badge(&page).as_str(), text_of(&page, ".decided").as_str()), ("Open", "Nobody has decided anything about it yet."));
        assert_eq!(house.json(&api).await["status"]["decided_by"], Value::Null);
        let set = async |version: &str, form: &[(&str, &str)]| {
            let answer = ana.post(&format!("{path}/status"), &[form, &[("version", version)]].concat()).await;
            assert_eq!((answer.status, answer.header(header::LOCATION)), (StatusCode::SEE_OTHER, path.as_str()), "{}", answer.text());
        };

        set("0", &[("status", "known"), ("owner", "wallet team"), ("ticket", "PAY-812"), ("runbook", "https://wiki.example/wallet")]).await;
        let page = ana.page(&path).await;
        assert_eq!(badge(&page), "Known");
        let said = text_of(&page, ".decided");
        assert!(said.starts_with("wallet team looks after it. Ticket: PAY-812. Decided by ana, now"), "{said}");
        assert_eq!(attributes(&page, "#group .goes a", "href")[0], "https://wiki.example/wallet");
        let listed = house.page(&format!("/dlqs/main/{TOPIC}")).await;
        assert_eq!(all(&listed, "td[data-l='Status'] .st"), ["Known", "Still arriving"]);

        house.clock.step(std::time::Duration::from_secs(60));
        set("1", &[("status", "fixed_since"), ("since", ""), ("runbook", "https://wiki.example/wallet")]).await;
        assert_eq!(badge(&ana.page(&path).await), "Fixed");
        let fixed_ms = NOW_MS + MINUTE_MS;
        failing(&house, 2, &[fixed_ms - 1]).await;
        assert_eq!(badge(&ana.page(&path).await), "Fixed", "dead-lettered before the fix, taken in after it");
        failing(&house, 3, &[fixed_ms + 1]).await;
        let page = ana.page(&path).await;
        assert_eq!(badge(&page), "Regressed");
        assert!(text_of(&page, ".decided").contains("messages came after that"), "{}", text_of(&page, ".decided"));
        let status = house.json(&api).await["status"].clone();
        assert_eq!(
            status,
            json!({"shown":"regressed","decision":"fixed_since","owner":null,"ticket":null,"fixed_since_ms":fixed_ms,"ignored_until_ms":null,
                "runbook":"https://wiki.example/wallet","decided_by":"ana","decided_at_ms":fixed_ms,"version":2})
        );
        let groups = house.json(&format!("/api/v1/dlqs/main/{TOPIC}")).await["groups"].clone();
        assert_eq!(groups[0]["status"], status, "the list says the same");

        set("2", &[("status", "ignored_until"), ("until", "2026-11-30T15:00:00")]).await;
        assert_eq!(badge(&ana.page(&path).await), "Ignored");
        house.clock.step(std::time::Duration::from_secs(3_600));
        assert_eq!(badge(&ana.page(&path).await), "Open");

        let trail = events(&house).await;
        assert_eq!(trail.len(), 3);
        assert_eq!((&trail[1]["subject"], &trail[1]["actor"]), (&json!(format!("group {id}")), &json!("ana")));
        assert_eq!(trail[1]["before"], json!({"status":"known","owner":"wallet team","ticket":"PAY-812","runbook":"https://wiki.example/wallet"}));
        assert_eq!(trail[1]["after"], json!({"status":"fixed_since","since_ms":fixed_ms,"runbook":"https://wiki.example/wallet"}));
        assert!(trail[1]["request_id"].is_string());
    }

    async fn of_two_who_decide_at_once_the_second_is_told_who_was_first(store: Store) {
        let house = House::new(store).await;
        let id = failing(&house, 0, &[NOW_MS]).await;
        let (ana, ben) = (operator(&house, "ana").await, operator(&house, "ben").await);
        let path = format!("/groups/{id}/status");
        let form = [("version", "0"), ("status", "known"), ("owner", ""), ("ticket", "PAY-812")];
        assert_eq!(ana.post(&path, &form).await.status, StatusCode::SEE_OTHER);
        assert_eq!(ana.post(&path, &form).await.status, StatusCode::SEE_OTHER, "the same form once more decides nothing more");
        assert_eq!(events(&house).await.len(), 1);

        let lost = ben.post(&path, &[("version", "0"), ("status", "fixed_since"), ("since", "2026-11-30T13:00:00")]).await;
        assert_eq!(lost.status, StatusCode::CONFLICT);
        let page = lost.page();
        let fault = text_of(&page, "[role=alert]");
        assert!(fault.starts_with("ana decided first (now): known, PAY-812."), "{fault}");
        assert_eq!(badge(&page), "Known", "what holds");
        assert_eq!(attributes(&page, "input[name=since]", "value"), ["2026-11-30T13:00:00"], "what ben typed");
        assert_eq!(attributes(&page, "input[name=status][checked]", "value"), ["fixed_since"]);
        assert_eq!(attributes(&page, "input[name=version]", "value"), ["1"], "he may set it again");
        assert_eq!(ben.post(&path, &[("version", "1"), ("status", "fixed_since"), ("since", "")]).await.status, StatusCode::SEE_OTHER);
        assert_eq!(house.json(&format!("/api/v1/groups/{id}")).await["status"]["decided_by"], "ben");
    }

    async fn what_does_not_do_comes_back_as_typed_with_a_sentence(store: Store) {
        let house = House::new(store).await;
        let id = failing(&house, 0, &[NOW_MS]).await;
        let ana = operator(&house, "ana").await;
        for (form, sentence) in [
            (vec![("status", "")], "Choose a status"),
            (vec![("status", "gone")], "Choose a status"),
            (vec![("status", "known")], "Known needs an owner or a ticket"),
            (vec![("status", "known"), ("ticket", "javascript:alert(1)")], "Ticket: a link begins with https:// or http://, not with javascript:"),
            (vec![("status", "known"), ("ticket", "https://ana:pw@jira.example/")], "Ticket: a link holds no user name"),
            (vec![("status", "open"), ("runbook", "data:text/html,<script>alert(1)</script>")], "Runbook: a link begins with"),
            (vec![("status", "open"), ("runbook", "the wiki")], "Runbook: a link begins with"),
            (vec![("status", "known"), ("owner", "pay\u{202e}ments")], "Owner: no control characters"),
            (vec![("status", "fixed_since"), ("since", "2026-11-30T14:02:12")], "Fixed since lies ahead: it is 2026-11-30 14:02:11 UTC now"),
            (vec![("status", "fixed_since"), ("since", "this morning")], "Fixed since is a time in UTC like"),
            (vec![("status", "ignored_until"), ("until", "")], "Ignored until is a time in UTC like"),
            (vec![("status", "ignored_until"), ("until", "2026-11-30T14:02:11")], "Ignored until must lie ahead"),
        ] {
            let answer = ana.post(&format!("/groups/{id}/status"), &[&form[..], &[("version", "0")]].concat()).await;
            assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{form:?}");
            let fault = text_of(&answer.page(), "[role=alert]");
            assert!(fault.starts_with(sentence), "{form:?}: {fault}");
            for (name, typed) in form.iter().filter(|(name, typed)| *name != "status" && !typed.contains('\u{202e}')) {
                assert_eq!(attributes(&answer.page(), &format!("input[name={name}]"), "value"), [*typed]);
            }
            assert!(attributes(&answer.page(), "a", "href").iter().all(|href| href.starts_with('/') || href.starts_with('#')), "{form:?}");
            assert!(!answer.text().contains('\u{202e}'));
        }
        assert_eq!(house.json(&format!("/api/v1/groups/{id}")).await["status"]["version"], 0);
        assert_eq!(events(&house).await, Vec::<Value>::new());
    }

    async fn notes_are_added_once_read_newest_first_and_stay_text(store: Store) {
        let house = House::new(store).await;
        let id = failing(&house, 0, &[NOW_MS]).await;
        let ana = operator(&house, "ana").await;
        let path = format!("/groups/{id}");
        assert!(text_of(&ana.page(&path).await, "#notes .empty").starts_with("No note yet."));
        let form_id = attributes(&ana.page(&path).await, "input[name=form_id]", "value").remove(0);
        let hostile = "first\r\n<script>alert(1)</script> \u{202e}gpj.exe";
        for _ in 0..2 {
            let answer = ana.post(&format!("{path}/notes"), &[("form_id", &form_id), ("note", hostile)]).await;
            assert_eq!((answer.status, answer.header(header::LOCATION)), (StatusCode::SEE_OTHER, format!("{path}#notes").as_str()));
        }
        let other = ana.post(&format!("{path}/notes"), &[("form_id", &form_id), ("note", "went back and wrote another")]).await;
        assert_eq!(other.status, StatusCode::CONFLICT, "not silently dropped");
        assert_eq!(text_of(&other.page(), "textarea[name=note]"), "went back and wrote another");
        assert_ne!(attributes(&other.page(), "input[name=form_id]", "value"), [form_id.as_str()]);
        let page = ana.page(&path).await;
        assert_eq!(all(&page, "#notes .text"), ["first <script>alert(1)</script> ⟨U+202E⟩gpj.exe"]);
        assert_eq!(text_of(&page, "#notes .meta"), "ana · now (2026-11-30 14:02:11 UTC)");
        assert_eq!(attributes(&page, "script:not([src])", "type"), Vec::<String>::new());

        for n in 0..50 {
            assert_eq!(ana.note(id, &format!("note {n}")).await.status, StatusCode::SEE_OTHER);
        }
        let mut link = path.clone();
        let mut read = Vec::new();
        for _ in 0..3 {
            let page = ana.page(&link).await;
            read.extend(all(&page, "#notes .text"));
            link = attributes(&page, "#notes .pages a", "href").pop().unwrap();
        }
        assert_eq!(read.len(), 51);
        assert_eq!((read[0].as_str(), read[49].as_str()), ("note 49", "note 0"));

        for (note, sentence) in [(" \r\n ".to_owned(), "The note is empty"), ("é".repeat(4_001), "A note has at most 4,000 characters; this one has 4,001.")] {
            let answer = ana.note(id, &note).await;
            assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
            assert!(text_of(&answer.page(), "[role=alert]").starts_with(sentence));
        }
        assert_eq!(ana.note(id, &"é".repeat(4_000)).await.status, StatusCode::SEE_OTHER);
        let trail = events(&house).await;
        assert_eq!(trail.len(), 52);
        assert_eq!(trail[0]["after"]["chars"], 40, "its length, not its text");
        assert!(!trail[0].to_string().contains("script"), "{}", trail[0]);
    }

    async fn only_who_may_act_on_the_dlq_decides_about_its_failures(store: Store) {
        let house = House::new(store).await;
        let id = failing(&house, 0, &[NOW_MS]).await;
        let viewer = person(&house, "vic", Role::Viewer, OwnerScope::All).await;
        let stranger = person(&house, "fay", Role::Approver, OwnerScope::Listed(vec!["fraud".to_owned()])).await;
        let owner = person(&house, "ana", Role::Operator, OwnerScope::Listed(vec!["payments".to_owned()])).await;
        let forms = [
            (format!("/groups/{id}/status"), vec![("version", "0"), ("status", "fixed_since")]),
            (format!("/groups/{id}/notes"), vec![("form_id", "0123456789abcdef"), ("note", "seen")]),
        ];
        for (path, form) in &forms {
            for (who, sentence) in [(&viewer, "This needs the role operator, and vic has the role viewer."), (&stranger, "fay does not act on the DLQs of payments.")] {
                let answer = who.post(path, form).await;
                assert_eq!(answer.status, StatusCode::FORBIDDEN);
                assert!(text_of(&answer.page(), "main").contains(sentence), "{}", text_of(&answer.page(), "main"));
            }
        }
        for (who, sentence) in [(&viewer, "vic has the role viewer"), (&stranger, "fay does not act on the DLQs of payments")] {
            let page = who.page(&format!("/groups/{id}")).await;
            assert_eq!(attributes(&page, "form[action^='/groups/']", "action"), Vec::<String>::new());
            assert!(text_of(&page, "#status").contains(sentence));
        }
        assert_eq!(events(&house).await, Vec::<Value>::new());
        for (path, form) in &forms {
            assert_eq!(owner.post(path, form).await.status, StatusCode::SEE_OTHER);
            let unknown = path.replace(&format!("/{id}/"), "/4711/");
            assert_eq!(owner.post(&unknown, form).await.status, StatusCode::NOT_FOUND);
        }
    }

    async fn the_page_says_what_sets_the_failure_apart(store: Store) {
        let house = House::new(store).await;
        let header = |name: &str, value: &str| Header { name: name.into(), value: Some(value.into()) };
        let one = |offset: i64, said: &str, region: &str| {
            let mut record = record("orders.DLQ", offset, NOW_MS - offset, "{}", said);
            record.key = Some(format!("user-{}", if region == "eu" { 7 } else { offset }).into_bytes());
            record.headers.push(header("region\u{202e}", region));
            record
        };
        let outage = |offset: i64| one(offset, "Connection timed out", if offset % 10 == 0 { "us" } else { "eu" });
        let id = {
            house.take_in("orders.DLQ", (0..100).map(outage).collect()).await;
            house.json("/api/v1/messages?topic=orders.DLQ&limit=1").await["items"][0]["group"].as_i64().unwrap()
        };
        let alone = house.page(&format!("/groups/{id}")).await;
        assert!(text_of(&alone, "#unusual").contains("Nothing to compare with"), "{}", text_of(&alone, "#unusual"));
        house.take_in("orders.DLQ", (100..200).map(|offset| one(offset, "Unknown magic byte!", "us")).collect()).await;
        let page = house.page(&format!("/groups/{id}")).await;
        let lines = all(&page, "#unusual li");
        assert_eq!(lines, ["key user-790% here, 0% elsewhere", "header region⟨U+202E⟩ = eu90% here, 0% elsewhere"]);
        assert!(text_of(&page, "#unusual").contains("(n = 100 / 100)"));
        assert_eq!(all(&page, "#samples tbody tr").len(), 5);
        assert_eq!(text_of(&page, "#samples td[data-l='Partition / offset']"), "0 / 0", "the newest that failed, not the last taken in");
        assert!(attributes(&page, "#group a", "href").contains(&format!("/dlqs/main/orders.DLQ?group={id}#messages")));
        assert_eq!(all(&page, ".stat b")[..2], ["100", "100"], "open, and all of them in the last hour");
        let part = house
            .send(
                Request::get(format!("/groups/{id}"))
                    .header(header::AUTHORIZATION, format!("Bearer {TOKEN}"))
                    .header("hx-request", "true")
                    .body(Body::empty())
                    .unwrap(),
            )
            .await;
        assert_eq!((all(&part.page(), "#group").len(), all(&part.page(), "#unusual").len()), (1, 0), "a fragment pays for no comparison");
    }

    async fn headers_of_many_bytes_are_left_out_of_a_comparison(store: Store) {
        let house = House::new(store).await;
        let one = |offset: i64, said: &str, bytes: usize| {
            let mut record = record("orders.DLQ", offset, NOW_MS - offset, "{}", said);
            record.key = None;
            for (name, value) in [("region", "eu".to_owned()), ("baggage", "x".repeat(bytes))] {
                record.headers.push(Header { name: name.into(), value: Some(value.into()) });
            }
            record
        };
        for (topic, bytes, wanted) in [("orders.DLQ", 3_000, 2), ("mail.DLQ", 4_096, 0)] {
            let here = (0..20).map(|offset| Record { topic: topic.to_owned(), ..one(offset, "timed out", bytes) }).collect();
            house.take_in(topic, here).await;
            let id = house.json(&format!("/api/v1/messages?topic={topic}&limit=1")).await["items"][0]["group"].as_i64().unwrap();
            house.take_in(topic, (20..40).map(|offset| record(topic, offset, NOW_MS, "{}", "no such order")).map(|other| Record { key: None, ..other }).collect()).await;
            assert_eq!(all(&house.page(&format!("/groups/{id}")).await, "#unusual li").len(), wanted, "{topic}");
        }
    }

    async fn a_masked_dlq_gives_no_value_away_in_a_comparison(store: Store) {
        let house = House::new(store).await;
        let card = "4111111111111111";
        let one = |offset: i64, said: &str, card: &str| {
            let mut record: Record = record("cards.DLQ", offset, NOW_MS, &format!("{{\"card\":{{\"number\":\"{card}\"}}}}"), said);
            record.key = Some(card.as_bytes().to_vec());
            record.headers.push(Header { name: "pan".into(), value: Some(card.into()) });
            record
        };
        let mut records: Vec<Record> = (0..50).map(|offset| one(offset, "declined", card)).collect();
        records.extend((50..100).map(|offset| record("cards.DLQ", offset, NOW_MS, "{}", "Unknown magic byte!")));
        house.take_in("cards.DLQ", records).await;
        let oldest = house.json("/api/v1/messages?topic=cards.DLQ&limit=500").await["items"][99]["group"].as_i64().unwrap();
        let page = house.page(&format!("/groups/{oldest}")).await;
        assert_eq!(all(&page, "#unusual li"), ["has the header pan100% here, 0% elsewhere"]);
        assert!(text_of(&page, "#unusual").contains("fields of this DLQ are masked"));
        assert!(!text_of(&page, "#unusual").contains(card));
    }
}
