//! What people do to messages by hand, on pages: buttons, marks in lists, lines, and the history that stays.

use axum::http::{Request, StatusCode, header};
use lazaret::domain::access::{OwnerScope, Role};
use lazaret::domain::lifecycle::Move;
use lazaret::domain::message::MessageState;
use lazaret::services::review::Reviews;
use lazaret::store::Store;
use lazaret::store::transitions::{self, Cause, Change};
use scraper::Html;

use super::house::{Answer, House, NOW_MS, all, attributes, record, text_of};
use crate::on_both_stores;

const TOPIC: &str = "payments.wallet.DLQ";

/// A wallet's DLQ with some messages, and people who may and may not.
async fn house(store: Store, messages: i64) -> (House, Vec<i64>) {
    let house = House::new(store).await;
    let people = [
        ("vera", Role::Viewer, OwnerScope::All),
        ("olga", Role::Operator, OwnerScope::Listed(vec!["payments".to_owned()])),
        ("otto", Role::Operator, OwnerScope::Listed(vec!["fraud".to_owned()])),
    ];
    for (name, role, owners) in people {
        house.access.add_user(name, "correct horse battery", role, owners).await.expect("a user");
    }
    let old = |offset: i64| record(TOPIC, offset, NOW_MS - (messages - offset) * 60_000, "{\"id\":1}", "it failed");
    house.take_in(TOPIC, (0..messages).map(old).collect()).await;
    let mut ids = Vec::new();
    for offset in 0..messages {
        ids.push(house.store.message_at("main", TOPIC, 0, offset, None).await.unwrap().unwrap().id);
    }
    (house, ids)
}

async fn signed_in(house: &House, name: &str) -> String {
    let answer = house.post("/sign-in", &format!("name={name}&password=correct+horse+battery"), "").await;
    answer.header("set-cookie").split(';').next().expect("a cookie").to_owned()
}

async fn get(house: &House, cookie: &str, path: &str) -> Answer {
    house.send(Request::get(path).header(header::COOKIE, cookie).body(axum::body::Body::empty()).unwrap()).await
}

async fn page(house: &House, cookie: &str, path: &str) -> Html {
    let answer = get(house, cookie, path).await;
    assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text());
    answer.page()
}

fn escaped(text: &str) -> String {
    lazaret::api::query::encode(text.as_bytes())
}

/// What the first form that `selector` finds sends when its button `button` is pressed and these fields are typed, as a browser without script does.
fn filled(page: &Html, selector: &str, button: Option<&str>, typed: &[(&str, &str)]) -> String {
    let values = |what: &str| {
        let (names, values) =
            (attributes(page, &format!("{selector} {what}"), "name"), attributes(page, &format!("{selector} {what}"), "value"));
        names.into_iter().zip(values)
    };
    let hidden = values("input[type=hidden]").map(|(name, value)| format!("{name}={}", escaped(&value)));
    let typed = typed.iter().map(|(name, value)| format!("{name}={}", escaped(value)));
    let button = button.map(|word| {
        assert!(attributes(page, &format!("{selector} button[name=action]"), "value").contains(&word.to_owned()), "{word} in {selector}");
        format!("action={word}")
    });
    hidden.chain(typed).chain(button).collect::<Vec<_>>().join("&")
}

async fn until_done(house: &House) {
    let reviews = Reviews { store: house.store.clone(), clock: house.clock.clone(), dlqs: house.options.dlqs.clone().into() };
    while reviews.tick().await.unwrap() {}
}

async fn led(house: &House, id: i64, moves: &[Move], reason: &str) {
    let from = house.store.message(id).await.unwrap().unwrap().state;
    let change = Change { message_id: id, from, moves, reason: Some(reason), evidence: Some("{\"key\":\"pay-1\"}") };
    let mut tx = house.store.begin().await.unwrap();
    let cause = Cause { at_ms: NOW_MS, actor: "replay 12", batch_id: Some(12) };
    assert_eq!(transitions::move_messages(&mut tx, &[change], &cause).await.unwrap(), [id]);
    tx.commit().await.unwrap();
}

async fn state(house: &House, id: i64) -> MessageState {
    house.store.message(id).await.unwrap().unwrap().state
}

on_both_stores! {
    async fn a_message_is_taken_up_archived_and_restored_by_its_buttons(store: Store) {
        let (house, ids) = house(store, 1).await;
        let (olga, path) = (signed_in(&house, "olga").await, format!("/messages/{}", ids[0]));
        let first = page(&house, &olga, &path).await;
        assert_eq!(attributes(&first, "#acts a", "href"), [format!("/replays/new?cluster=main&topic={TOPIC}&ids={}", ids[0])]);
        let form = filled(&first, "#acts form:not(.filters)", Some("take_up"), &[]);
        let answer = house.post("/reviews", &form, &olga).await;
        assert_eq!((answer.status, answer.header(header::LOCATION)), (StatusCode::SEE_OTHER, path.as_str()));
        let cookie = format!("{olga}; {}", answer.header(header::SET_COOKIE).split(';').next().unwrap());
        let taken = page(&house, &cookie, &path).await;
        assert_eq!(text_of(&taken, ".flash"), "The message is taken up: it is under review.");
        assert_eq!(house.post("/reviews", &form, &olga).await.status, StatusCode::SEE_OTHER, "the same form again does no harm");
        assert_eq!(all(&taken, "#acts button"), ["Release", "Archive"]);
        let silent = house.post("/reviews", &filled(&taken, "#acts details form", Some("archive"), &[("reason", " ")]), &olga).await;
        assert_eq!(silent.status, StatusCode::UNPROCESSABLE_ENTITY);
        assert!(silent.text().contains("Say why"), "{}", silent.text());
        let archive = filled(&taken, "#acts details form", Some("archive"), &[("reason", "double of <PAY-7>")]);
        assert_eq!(house.post("/reviews", &archive, &olga).await.status, StatusCode::SEE_OTHER);
        let archived = page(&house, &olga, &path).await;
        assert_eq!(text_of(&archived, ".head .st"), "archived");
        assert!(text_of(&archived, "main").contains("decided: double of <PAY-7>"));
        assert_eq!(all(&archived, "#acts a"), [] as [&str; 0], "what is archived is not replayed");
        let restore = filled(&archived, "#acts details form", Some("restore"), &[("reason", "it was none")]);
        assert_eq!(house.post("/reviews", &restore, &olga).await.status, StatusCode::SEE_OTHER);
        let restored = page(&house, &olga, &path).await;
        let steps = all(&restored, ".steps-taken li");
        assert_eq!(steps.len(), 3);
        assert!(steps[0].starts_with("restored in review 3it was noneolga · now (2026-11-30 14:02:11.000 UTC)"), "{steps:?}");
        assert!(steps[1].starts_with("archived in review 2double of <PAY-7>olga"), "{steps:?}");
        assert!(steps[2].starts_with("taken up for review in review 1olga"), "{steps:?}");
        // A page that was open all the while.
        let late = house.post("/reviews", &filled(&taken, "#acts form:not(.filters)", Some("release"), &[]).replace("form_id=", "form_id=0"), &olga).await;
        assert_eq!(late.status, StatusCode::SEE_OTHER, "it is under review again");
        let late = house.post("/reviews", &filled(&taken, "#acts form:not(.filters)", Some("release"), &[]).replace("form_id=", "form_id=1"), &olga).await;
        assert_eq!(late.status, StatusCode::CONFLICT);
        assert!(late.text().contains("The message is quarantined by now: only what is under review can be released."));
        let detail = house.json(&format!("/api/v1{path}")).await;
        let moves: Vec<_> = detail["transitions"].as_array().unwrap().iter().map(|step| (step["move"].as_str().unwrap(), step["review"].as_i64())).collect();
        assert_eq!(moves, [("taken_up", Some(1)), ("archived", Some(2)), ("restored", Some(3)), ("released", Some(4))]);
        let archived = &detail["transitions"][1];
        let expected = serde_json::json!({
            "at_ms": NOW_MS, "from": "under_review", "to": "archived", "move": "archived", "actor": "olga", "replay": null, "review": 2,
            "reason": "double of <PAY-7>", "evidence": null,
        });
        assert_eq!(archived, &expected);
    }

    async fn who_may_not_is_told_why_and_offered_nothing(store: Store) {
        let (house, ids) = house(store, 2).await;
        let path = format!("/messages/{}", ids[0]);
        for (name, said) in [("vera", "need the role operator"), ("otto", "does not act on the DLQs of payments")] {
            let cookie = signed_in(&house, name).await;
            let page = page(&house, &cookie, &path).await;
            assert!(text_of(&page, "#acts").contains(said));
            assert_eq!(all(&page, "#acts button, #acts a"), [] as [&str; 0]);
            let dlq = self::page(&house, &cookie, &format!("/dlqs/main/{TOPIC}")).await;
            assert_eq!(all(&dlq, "#bulk, #line, td.mark"), [] as [&str; 0]);
            let form = format!("action=take_up&id={}&form_id=0123456789abcdef0", ids[0]);
            assert_eq!(house.post("/reviews", &form, &cookie).await.status, StatusCode::FORBIDDEN, "{name}");
        }
        assert_eq!(state(&house, ids[0]).await, MessageState::Quarantined);
    }

    async fn marked_messages_of_a_list_and_all_that_match(store: Store) {
        let (house, ids) = house(store, 60).await;
        let olga = signed_in(&house, "olga").await;
        let list = page(&house, &olga, &format!("/messages?topic={TOPIC}&state=quarantined")).await;
        assert_eq!(attributes(&list, "td.mark input", "value").len(), 50);
        assert!(attributes(&list, "td.mark input", "form").iter().all(|form| form == "bulk"));
        let (first, second) = (ids[59].to_string(), ids[58].to_string());
        let marked = filled(&list, "#bulk", None, &[("which", "marked"), ("action", "archive"), ("reason", "old"), ("id", &first), ("id", &second)]);
        let answer = house.post("/reviews", &marked, &olga).await;
        assert_eq!((answer.status, answer.header(header::LOCATION)), (StatusCode::SEE_OTHER, "/reviews/1"));
        let done = page(&house, &olga, "/reviews/1").await;
        assert_eq!(text_of(&done, "h1"), "Archive: 2 marked messages");
        assert_eq!(text_of(&done, ".lede"), "2 of 2 changed.");
        let none = house.post("/reviews", &filled(&list, "#bulk", None, &[("which", "marked"), ("action", "archive"), ("reason", "old")]).replace("form_id=", "form_id=0"), &olga).await;
        assert_eq!(none.status, StatusCode::UNPROCESSABLE_ENTITY);
        assert!(none.text().contains("No message is marked"));
        // All that match: more than the page shows.
        let everything = filled(&list, "#bulk", None, &[("which", "all"), ("action", "take_up"), ("reason", "")]).replace("form_id=", "form_id=1");
        let begun = house.post("/reviews", &everything, &olga).await;
        let path = begun.header(header::LOCATION).to_owned();
        let counting = page(&house, &olga, &path).await;
        assert_eq!((text_of(&counting, ".head .st"), all(&counting, "progress").len()), ("Counting".to_owned(), 1));
        assert!(text_of(&counting, "h1").ends_with("all messages with DLQ payments.wallet.DLQ, state quarantined"));
        assert_eq!(attributes(&counting, "#review", "hx-trigger"), [format!("sse:review-{}", path.rsplit('/').next().unwrap())]);
        until_done(&house).await;
        let done = page(&house, &olga, &path).await;
        assert_eq!((text_of(&done, ".lede"), text_of(&done, ".head .st")), ("58 of 58 changed.".to_owned(), "Done".to_owned()));
        assert_eq!(all(&done, "main progress, main form"), [] as [&str; 0], "what was taken up is not taken back as one");
        assert!(all(&page(&house, &olga, "/reviews").await, "td.first").len() == 2);
        // Without anything that narrows it, a list offers the marked ones only.
        let whole = page(&house, &olga, "/messages").await;
        assert_eq!(attributes(&whole, "#bulk input[type=radio]", "value"), ["marked"]);
        let all_of_all = house.post("/reviews", "action=archive&reason=x&which=all&filter=&form_id=0123456789abcdef2", &olga).await;
        assert_eq!(all_of_all.status, StatusCode::UNPROCESSABLE_ENTITY);
    }

    async fn a_refused_form_comes_back_with_what_was_typed_and_can_be_sent_again(store: Store) {
        let (house, ids) = house(store, 3).await;
        let olga = signed_in(&house, "olga").await;
        let list = page(&house, &olga, &format!("/messages?topic={TOPIC}")).await;
        let long = "because ".repeat(80);
        let (first, second) = (ids[0].to_string(), ids[1].to_string());
        let value = |page: &Html, name: &str| attributes(page, &format!("main form input[name={name}]"), "value");

        // A list's form: the action can be changed as it could be there.
        let marked = filled(&list, "#bulk", None, &[("which", "marked"), ("action", "archive"), ("reason", &long), ("id", &first), ("id", &second)]);
        let refused = house.post("/reviews", &marked, &olga).await;
        assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
        let again = refused.page();
        assert_eq!(text_of(&again, "h1"), "Archive: 2 marked messages");
        assert!(text_of(&again, ".fault").starts_with("The reason has 639 characters"), "{}", text_of(&again, ".fault"));
        assert_eq!((value(&again, "reason"), value(&again, "id")), (vec![long.clone()], vec![first.clone(), second.clone()]));
        assert_eq!(attributes(&again, "select[name=action] option[selected]", "value"), ["archive"]);
        assert_eq!(attributes(&again, "main > p > .btn", "href"), [format!("/messages?topic={TOPIC}")]);
        let shorter = filled(&again, "main form", None, &[("action", "archive"), ("reason", "because")]);
        assert_eq!(house.post("/reviews", &shorter, &olga).await.header(header::LOCATION), "/reviews/1");

        // A conflict keeps the reason, too, and the form of a message leads back to it.
        let message = format!("/messages/{first}");
        let restore = filled(&page(&house, &olga, &message).await, "#acts details form", Some("restore"), &[("reason", "it was none")]);
        assert_eq!(house.post("/reviews", &restore, &olga).await.status, StatusCode::SEE_OTHER);
        let late = house.post("/reviews", &restore.replace("form_id=", "form_id=0"), &olga).await;
        assert_eq!(late.status, StatusCode::CONFLICT);
        let again = late.page();
        assert_eq!((value(&again, "reason"), value(&again, "back")), (vec!["it was none".to_owned()], vec!["1".to_owned()]));
        assert_eq!(attributes(&again, "main > p > .btn", "href"), [message]);
        assert_eq!(attributes(&again, "main form button[name=action]", "value"), ["restore"]);

        // A line keeps its instant, whatever is wrong.
        let dlq = page(&house, &olga, &format!("/dlqs/main/{TOPIC}")).await;
        for (to, reason, said) in [("2026-11-30T13:57", " ", "Say why"), ("the day before", "before our time", "must be a date and time in UTC")] {
            let line = filled(&dlq, "#line form", Some("draw_line"), &[("to", to), ("reason", reason)]);
            let refused = house.post("/reviews", &line, &olga).await;
            assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", refused.text());
            let again = refused.page();
            assert!(text_of(&again, ".fault").contains(said), "{}", text_of(&again, ".fault"));
            assert_eq!((value(&again, "to"), value(&again, "which")), (vec![to.to_owned()], vec!["all".to_owned()]));
            let mended = filled(&again, "main form", Some("draw_line"), &[("to", "2026-11-30T13:57"), ("reason", "before our time")]);
            assert_eq!(house.post("/reviews", &mended, &olga).await.status, StatusCode::SEE_OTHER);
        }

        // A whole failure, and what a review archived.
        let group = house.store.message(ids[2]).await.unwrap().unwrap().group_id;
        let shown = page(&house, &olga, &format!("/groups/{group}")).await;
        let silent = house.post("/reviews", &filled(&shown, "#bulk-review form", None, &[("action", "archive"), ("reason", "")]), &olga).await;
        assert_eq!(silent.status, StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(value(&silent.page(), "filter"), [format!("group={group}")]);
        let undo = filled(&page(&house, &olga, "/reviews/1").await, "#undo form", Some("restore"), &[("reason", " ")]);
        let undone = house.post("/reviews", &undo, &olga).await;
        assert_eq!((undone.status, value(&undone.page(), "archived_by")), (StatusCode::UNPROCESSABLE_ENTITY, vec!["1".to_owned()]));

        // Nothing marked: there is nothing to send again, and the reason can be taken along.
        let none = filled(&list, "#bulk", None, &[("which", "marked"), ("action", "archive"), ("reason", "old <b>")]).replace("form_id=", "form_id=5");
        let none = house.post("/reviews", &none, &olga).await.page();
        assert_eq!((all(&none, "main form").len(), text_of(&none, "q")), (0, "old <b>".to_owned()));
    }

    async fn marked_messages_are_replayed_from_their_list(store: Store) {
        let (house, ids) = house(store, 3).await;
        house.take_in("payments.refunds.DLQ", vec![record("payments.refunds.DLQ", 0, NOW_MS, "{}", "it failed")]).await;
        let refund = house.store.message_at("main", "payments.refunds.DLQ", 0, 0, None).await.unwrap().unwrap().id.to_string();
        let olga = signed_in(&house, "olga").await;
        for path in ["/messages".to_owned(), format!("/dlqs/main/{TOPIC}")] {
            let list = page(&house, &olga, &path).await;
            assert_eq!(attributes(&list, "#bulk button[name=replay]", "value"), ["1"], "{path}");
            let (first, second) = (ids[0].to_string(), ids[2].to_string());
            let marked = filled(&list, "#bulk", None, &[("which", "marked"), ("action", "archive"), ("replay", "1"), ("id", &second), ("id", &first)]);
            let answer = house.post("/reviews", &marked, &olga).await;
            let new = answer.header(header::LOCATION).to_owned();
            assert_eq!((answer.status, new.as_str()), (StatusCode::SEE_OTHER, format!("/replays/new?cluster=main&topic={TOPIC}&ids={second},{first}").replace(',', "%2C").as_str()));
            let form = page(&house, &olga, &new).await;
            assert!(text_of(&form, "#f-scope").contains("2 messages, chosen one by one."), "{}", text_of(&form, "#f-scope"));
        }
        let list = page(&house, &olga, "/messages").await;
        let none = house.post("/reviews", &filled(&list, "#bulk", None, &[("which", "all"), ("action", "archive"), ("replay", "1")]), &olga).await;
        assert_eq!(none.status, StatusCode::UNPROCESSABLE_ENTITY);
        assert!(text_of(&none.page(), ".fault").starts_with("No message is marked"));
        let mixed = filled(&list, "#bulk", None, &[("which", "marked"), ("action", "archive"), ("replay", "1"), ("id", &ids[0].to_string()), ("id", &refund)]);
        let mixed = house.post("/reviews", &mixed, &olga).await;
        assert_eq!(mixed.status, StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(all(&mixed.page(), ".ways a"), ["Replay the 1 message of payments.refunds.DLQ".to_owned(), format!("Replay the 1 message of {TOPIC}")]);
        for id in ids {
            assert_eq!(state(&house, id).await, MessageState::Quarantined, "nothing is done to them by that");
        }
    }

    async fn a_line_is_drawn_on_the_page_of_a_dlq_and_taken_back(store: Store) {
        let (house, ids) = house(store, 10).await;
        let (olga, path) = (signed_in(&house, "olga").await, format!("/dlqs/main/{TOPIC}"));
        let dlq = page(&house, &olga, &path).await;
        // The fifth was dead-lettered five minutes before 14:02:11.
        let line = filled(&dlq, "#line form", Some("draw_line"), &[("to", "2026-11-30T13:57"), ("reason", "before our time")]);
        let begun = house.post("/reviews", &line, &olga).await;
        assert_eq!((begun.status, begun.header(header::LOCATION)), (StatusCode::SEE_OTHER, "/reviews/1"), "{}", begun.text());
        until_done(&house).await;
        let archived: Vec<bool> = {
            let mut states = Vec::new();
            for id in &ids {
                states.push(state(&house, *id).await == MessageState::Archived);
            }
            states
        };
        assert_eq!(archived, [true, true, true, true, true, false, false, false, false, false]);
        let dlq = page(&house, &olga, &path).await;
        assert!(text_of(&dlq, "#reviews li").starts_with("Draw a line: all messages with cluster main, DLQ payments.wallet.DLQ, state quarantined, before 2026-11-30 13:57 UTC"));
        let review = page(&house, &olga, "/reviews/1").await;
        let form = filled(&review, "#undo form", Some("restore"), &[("reason", "too much")]);
        let undone = house.post("/reviews", &form, &olga).await;
        assert_eq!(undone.header(header::LOCATION), "/reviews/2", "{}", undone.text());
        until_done(&house).await;
        assert_eq!(state(&house, ids[0]).await, MessageState::Quarantined);
        assert!(text_of(&page(&house, &olga, "/reviews/2").await, "h1").contains("what review 1 archived"));
        assert_eq!(house.post("/reviews", &filled(&dlq, "#line form", Some("draw_line"), &[("to", ""), ("reason", "x")]), &olga).await.status, StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(house.store.check_counters(house.dlq(TOPIC).await.id).await.unwrap(), []);
    }

    async fn what_is_held_says_why_and_follow_ups_are_found_and_closed(store: Store) {
        let (house, ids) = house(store, 3).await;
        let olga = signed_in(&house, "olga").await;
        led(&house, ids[0], &[Move::TakenUp, Move::CheckBegun, Move::Held], "the ledger did not answer").await;
        led(&house, ids[1], &[Move::TakenUp, Move::CheckBegun, Move::SchemaFits, Move::Unsafe], "debited, not credited").await;
        led(&house, ids[2], &[Move::TakenUp, Move::CheckBegun, Move::SchemaFits, Move::Sent], "").await;
        let held = page(&house, &olga, &format!("/messages/{}", ids[0])).await;
        assert_eq!(text_of(&held, ".head .st"), "held: needs a person");
        assert_eq!(text_of(&held, ".held"), "Held: needs a person. the ledger did not answer");
        assert!(all(&held, ".steps-taken li")[0].starts_with("held: needs a person in replay 12the ledger did not answerreplay 12"));
        let sent = page(&house, &olga, &format!("/messages/{}", ids[2])).await;
        assert_eq!((text_of(&sent, ".head .st"), all(&sent, "#acts button").len()), ("sent, waiting for proof".to_owned(), 0));
        let list = page(&house, &olga, "/messages?follow_up=open").await;
        assert_eq!(all(&list, "td[data-l=State]"), ["archived, follow-up opendebited, not credited"]);
        assert!(text_of(&page(&house, &olga, &format!("/dlqs/main/{TOPIC}")).await, "#messages .note").contains("1 archived message with an open follow-up"));
        let unsafe_one = page(&house, &olga, &format!("/messages/{}", ids[1])).await;
        assert_eq!(all(&unsafe_one, "#acts summary"), ["Close follow-up", "Restore"]);
        let close = filled(&unsafe_one, "#acts details:first-of-type form", Some("close_follow_up"), &[("reason", "credited by hand, PAY-9")]);
        assert_eq!(house.post("/reviews", &close, &olga).await.status, StatusCode::SEE_OTHER);
        let closed = page(&house, &olga, &format!("/messages/{}", ids[1])).await;
        assert_eq!(text_of(&closed, ".head .st"), "archived");
        assert!(all(&closed, ".steps-taken li")[0].starts_with("follow-up closed in review 1credited by hand, PAY-9"));
        assert_eq!(house.json("/api/v1/messages?follow_up=open").await["items"], serde_json::json!([]));
        let detail = house.json(&format!("/api/v1/messages/{}", ids[1])).await;
        assert_eq!((&detail["follow_up"], &detail["transitions"][3]["evidence"]["key"]), (&"closed".into(), &"pay-1".into()));
        assert_eq!(detail["transitions"][3]["replay"], 12);
    }

    async fn what_a_mask_hides_is_hidden_in_history_and_verdicts(store: Store) {
        let house = House::new(store).await;
        let value = r#"{"card":{"number":"4111111111111111"},"email":"ana@b.example"}"#;
        house.take_in("cards.DLQ", vec![record("cards.DLQ", 0, NOW_MS, value, "declined")]).await;
        let id = house.store.message_at("main", "cards.DLQ", 0, 0, None).await.unwrap().unwrap().id;
        let from = MessageState::Quarantined;
        let moves = [Move::TakenUp, Move::CheckBegun, Move::SchemaUnfit];
        let said = "4111111111111111 is no number";
        let change = Change { message_id: id, from, moves: &moves, reason: Some(said), evidence: Some("{\"at\":\"ana@b.example\"}") };
        let mut tx = house.store.begin().await.unwrap();
        transitions::move_messages(&mut tx, &[change], &Cause { at_ms: NOW_MS, actor: "replay 1", batch_id: Some(1) }).await.unwrap();
        tx.commit().await.unwrap();
        const VERDICT: &str = "INSERT INTO verdicts (message_id, batch_id, at_ms, phase, schema, idempotency, decision, schema_note, asked, answered, others)
            VALUES ($1, 1, 1796047331000, 'preflight', 'incompatible', 'new', 'incompatible', 'ana@b.example is no address', '{\"keys\":[\"4111111111111111\"]}', '\"none\"', '[[\"audit\",\"new\"]]')";
        match &house.store {
            Store::Postgres(database) => drop(sqlx::query(VERDICT).bind(id).execute(&database.pool).await.unwrap()),
            Store::Sqlite(database) => drop(sqlx::query(VERDICT).bind(id).execute(&database.writer).await.unwrap()),
        }
        let page = house.page(&format!("/messages/{id}")).await;
        let shown = format!("{} {}", page.html(), house.get(&format!("/api/v1/messages/{id}")).await.text());
        assert!(!shown.contains("4111111111111111") && !shown.contains("ana@b.example"), "{shown}");
        let verdict = text_of(&page, "#verdicts li");
        assert!(verdict.starts_with("incompatible, before the approval in replay 1Schema: incompatible••• is no addressDuplicate: new"), "{verdict}");
        assert!(verdict.contains("audit: new"), "{verdict}");
        let detail = house.json(&format!("/api/v1/messages/{id}")).await;
        assert_eq!((&detail["verdicts"][0]["schema_note"], &detail["verdicts"][0]["asked"]), (&"••• is no address".into(), &r#"{"keys":["•••"]}"#.into()));
        assert_eq!((&detail["transitions"][2]["reason"], &detail["transitions"][2]["evidence"]["at"]), (&"••• is no number".into(), &"•••".into()));
    }

    async fn a_message_that_came_back_names_the_one_it_was_and_its_attempt(store: Store) {
        let (house, ids) = house(store, 2).await;
        let sql = "UPDATE messages SET lap = 2, replay_of = $1 WHERE id = $2";
        match &house.store {
            Store::Postgres(database) => drop(sqlx::query(sql).bind(ids[0]).bind(ids[1]).execute(&database.pool).await.unwrap()),
            Store::Sqlite(database) => drop(sqlx::query(sql).bind(ids[0]).bind(ids[1]).execute(&database.writer).await.unwrap()),
        }
        let back = house.page(&format!("/messages/{}", ids[1])).await;
        assert_eq!(text_of(&back, ".head .tag"), "replay attempt 2 of 3");
        assert!(attributes(&back, "aside dd a", "href").contains(&format!("/messages/{}", ids[0])));
    }

    async fn a_group_is_archived_as_a_whole(store: Store) {
        let (house, ids) = house(store, 4).await;
        let olga = signed_in(&house, "olga").await;
        let group = house.store.message(ids[0]).await.unwrap().unwrap().group_id;
        let shown = page(&house, &olga, &format!("/groups/{group}")).await;
        let form = filled(&shown, "#bulk-review form", None, &[("action", "archive"), ("reason", "noise")]);
        assert_eq!(house.post("/reviews", &form, &olga).await.status, StatusCode::SEE_OTHER);
        until_done(&house).await;
        for id in ids {
            assert_eq!(state(&house, id).await, MessageState::Archived);
        }
        let otto = signed_in(&house, "otto").await;
        let stolen = form.replace("form_id=", "form_id=2").replace("archive", "restore");
        assert_eq!(house.post("/reviews", &stolen, &otto).await.status, StatusCode::FORBIDDEN);
    }
}
