//! The same over HTTP.

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use lazaret::services::access::Access;
use lazaret::web::{AppState, WebOptions, router};
use serde_json::{Value, json};

use super::*;
use crate::web::house::{Answer, answer};

struct Door {
    desk: Desk,
    access: Access,
    read_only: bool,
}

impl Door {
    async fn open(desk: Desk) -> Door {
        let access = Access::new(desk.store.clone(), desk.clock.clone(), 12);
        for (name, role, owners) in [
            ("viewer", Role::Viewer, OwnerScope::All),
            ("operator", Role::Operator, OwnerScope::All),
            ("approver", Role::Approver, OwnerScope::All),
            ("admin", Role::Admin, OwnerScope::All),
            ("stranger", Role::Approver, OwnerScope::Listed(vec!["fraud".into()])),
        ] {
            access.create_token(name, role, owners, None, Some(&format!("t-{name}"))).await.unwrap();
        }
        Door { desk, access, read_only: false }
    }

    async fn send(&self, method: &str, path: &str, who: &str, body: Option<Value>) -> Answer {
        let options = WebOptions { dlqs: self.desk.replays.dlqs.to_vec(), read_only: self.read_only, ..WebOptions::default() };
        let state = AppState::new(self.desk.store.clone(), self.access.clone(), self.desk.clock.clone(), options).unwrap();
        let state = state.with_replays(self.desk.replays.clone());
        let request = Request::builder().method(method).uri(path).header(header::AUTHORIZATION, format!("Bearer t-{who}"));
        let request = match body {
            Some(body) => request.header(header::CONTENT_TYPE, "application/json").body(Body::from(body.to_string())),
            None => request.body(Body::empty()),
        };
        answer(router(state), request.unwrap()).await
    }

    async fn post(&self, path: &str, who: &str, body: Value) -> Answer {
        self.send("POST", path, who, Some(body)).await
    }
}

fn everything() -> Value {
    json!({ "cluster": "main", "topic": desk::DLQ, "filter": {}, "reason": "the wallet database was down" })
}

on_both_stores! {
    async fn a_replay_is_proposed_approved_and_controlled(store: Store) {
        let door = Door::open(Desk::with_ledger(store).await).await;
        door.desk.take_in((0..5).map(Letter::of)).await;
        let made = door.post("/api/v1/replays", "operator", everything()).await;
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
        let draft = made.json();
        let id = draft["id"].as_i64().unwrap();
        assert_eq!((&draft["state"], &draft["forecast"]), (&json!("draft"), &Value::Null));
        assert_eq!(made.header(header::LOCATION), format!("/api/v1/replays/{id}"));
        door.desk.prepare().await;
        let path = format!("/api/v1/replays/{id}");
        let shown = door.send("GET", &path, "viewer", None).await.json();
        assert_eq!(shown["state"], "awaiting_approval");
        for (kind, n) in [("send", 5), ("send_unchecked", 0), ("already_applied", 0), ("incompatible", 0), ("held", 0), ("blocked", 0)] {
            assert_eq!(shown["forecast"][kind], n, "{kind}");
        }
        let digest = shown["digest"].as_str().unwrap().to_owned();
        let decide = |digest: &str| json!({ "digest": digest });

        let early = door.post(&format!("{path}/pause"), "operator", json!({})).await;
        assert_eq!((early.status, early.header(header::CONTENT_TYPE)), (StatusCode::CONFLICT, "application/problem+json"));
        let stranger = door.post(&format!("{path}/approve"), "stranger", decide(&digest)).await;
        assert_eq!(stranger.status, StatusCode::FORBIDDEN);
        let other = door.post(&format!("{path}/approve"), "approver", decide(&"0".repeat(64))).await;
        assert_eq!(other.status, StatusCode::CONFLICT);
        let approved = door.post(&format!("{path}/approve"), "approver", decide(&digest)).await;
        assert_eq!((approved.status, approved.json()["state"].as_str()), (StatusCode::OK, Some("approved")));
        let late = door.post(&format!("{path}/approve"), "admin", decide(&digest)).await;
        assert!(late.status == StatusCode::CONFLICT && late.text().contains("token approver approved"), "{}", late.text());
        let shown = door.send("GET", &path, "viewer", None).await.json();
        assert_eq!(shown["approvals"][0]["name"], "token approver");

        let slower = door.post(&format!("{path}/slow-down"), "operator", json!({ "max_per_second": 5 })).await;
        assert_eq!((slower.status, &slower.json()["plan"]["max_per_second"]), (StatusCode::OK, &json!(5)));
        let faster = door.post(&format!("{path}/slow-down"), "operator", json!({ "max_per_second": 6 })).await;
        assert_eq!(faster.status, StatusCode::UNPROCESSABLE_ENTITY);
        let stopped = door.send("POST", &format!("{path}/stop"), "operator", None).await;
        assert_eq!((stopped.status, stopped.json()["state"].as_str()), (StatusCode::OK, Some("cancelled")));
        let list = door.send("GET", "/api/v1/replays?state=cancelled", "viewer", None).await.json();
        assert_eq!((list["items"].as_array().unwrap().len(), &list["items"][0]["id"]), (1, &json!(id)));
        assert_eq!(door.send("GET", "/api/v1/replays/999", "viewer", None).await.status, StatusCode::NOT_FOUND);
        assert_eq!(door.post("/api/v1/replays/999/stop", "operator", json!({})).await.status, StatusCode::NOT_FOUND);
    }

    /// S1, through the API.
    async fn s1_an_admin_does_not_approve_their_own_through_the_api(store: Store) {
        let door = Door::open(Desk::with_ledger(store).await).await;
        door.desk.take_in((0..5).map(Letter::of)).await;
        let id = door.post("/api/v1/replays", "admin", everything()).await.json()["id"].as_i64().unwrap();
        door.desk.prepare().await;
        let digest = door.desk.batch(id).await.digest.unwrap();
        let own = door.post(&format!("/api/v1/replays/{id}/approve"), "admin", json!({ "digest": digest })).await;
        assert!(own.status == StatusCode::FORBIDDEN && own.text().contains("another approver"), "{}", own.text());
        assert_eq!(on_trail(&door.desk.store, lazaret::domain::audit::Action::ReplayRefused).await, 1);
        assert_eq!(door.desk.batch(id).await.state, BatchState::AwaitingApproval);
    }

    /// R7, through the API: a request that is sent again makes no second batch.
    async fn r7_a_request_with_its_key_is_answered_twice_and_done_once(store: Store) {
        let door = Door::open(Desk::with_ledger(store).await).await;
        door.desk.take_in((0..5).map(Letter::of)).await;
        let mut answers = Vec::new();
        for _ in 0..2 {
            let state = AppState::new(door.desk.store.clone(), door.access.clone(), door.desk.clock.clone(), WebOptions::default()).unwrap();
            let request = Request::post("/api/v1/replays").header(header::AUTHORIZATION, "Bearer t-operator").header("idempotency-key", "k-1");
            let request = request.header(header::CONTENT_TYPE, "application/json").body(Body::from(everything().to_string())).unwrap();
            answers.push(answer(router(state.with_replays(door.desk.replays.clone())), request).await);
        }
        assert_eq!((answers[0].status, answers[1].status), (StatusCode::CREATED, StatusCode::OK));
        assert_eq!(answers[0].json()["id"], answers[1].json()["id"]);
    }

    async fn a_body_that_does_not_do_is_refused_with_what_would(store: Store) {
        let door = Door::open(Desk::with_ledger(store).await).await;
        door.desk.take_in((0..2).map(Letter::of)).await;
        let with = |change: Value| {
            let mut body = everything();
            body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            body
        };
        for (body, status, word) in [
            (json!({}), 422, "missing field `cluster`"),
            (with(json!({ "colour": "red" })), 422, "unknown field `colour`"),
            (with(json!({ "message_ids": [1] })), 422, "either filter"),
            (with(json!({ "filter": null })), 422, "either filter"),
            (with(json!({ "filter": { "colour": "red" } })), 400, "Unknown parameter"),
            (with(json!({ "filter": { "state": "archived" } })), 422, "cannot be replayed"),
            (with(json!({ "reason": "" })), 422, "reason: say something"),
            (with(json!({ "max_per_second": 0 })), 422, "max_per_second: 1 to 50"),
            (with(json!({ "waivers": [{ "check": "schema", "verdict": "not_configured", "reason": "" }] })), 422, "needs a reason"),
            (with(json!({ "topic": "no.DLQ" })), 422, "there is no DLQ"),
        ] {
            let refused = door.post("/api/v1/replays", "operator", body).await;
            assert!(refused.status.as_u16() == status && refused.text().contains(word), "{word}: {} {}", refused.status, refused.text());
            assert_eq!(refused.header(header::CONTENT_TYPE), "application/problem+json");
        }
        for path in ["/api/v1/replays", "/api/v1/replays/1/approve", "/api/v1/replays/1/stop", "/api/v1/replays/1/submit"] {
            assert_eq!(door.post(path, "viewer", json!({})).await.status, StatusCode::FORBIDDEN, "{path}");
        }
        assert_eq!(door.post("/api/v1/replays/1/approve", "operator", json!({})).await.status, StatusCode::FORBIDDEN);
    }

    async fn an_emergency_is_approved_with_a_password_and_by_no_token(store: Store) {
        let desk = Desk::with_ledger(store).await.configured(|text| text.replace("owner = 'payments'", "owner = 'payments'\nemergency_replay = true")).await;
        let door = Door::open(desk).await;
        door.desk.take_in((0..3).map(Letter::of)).await;
        let mut body = everything();
        (body["emergency"], body["incident"]) = (json!(true), json!("INC-9"));
        let id = door.post("/api/v1/replays", "admin", body).await.json()["id"].as_i64().unwrap();
        door.desk.prepare().await;
        let digest = door.desk.batch(id).await.digest.unwrap();
        let path = format!("/api/v1/replays/{id}/approve");
        for body in [json!({ "digest": digest }), json!({ "digest": digest, "password": "t-admin" })] {
            let refused = door.post(&path, "admin", body).await;
            assert!(refused.status == StatusCode::FORBIDDEN && refused.text().contains("password"), "{}", refused.text());
        }
        door.access.add_user("Rosa", "correct horse battery", Role::Approver, OwnerScope::All).await.unwrap();
        assert!(door.access.reauthenticate(&desk::by("Rosa"), "correct horse battery").await.unwrap());
        assert!(!door.access.reauthenticate(&desk::by("Rosa"), "wrong horse battery").await.unwrap());
        assert_eq!(door.desk.batch(id).await.state, BatchState::AwaitingApproval);

        // A stolen session guesses the password no faster than a stranger does.
        let options = WebOptions { dlqs: door.desk.replays.dlqs.to_vec(), sign_in_attempts_per_minute: 2, ..WebOptions::default() };
        let state = AppState::new(door.desk.store.clone(), door.access.clone(), door.desk.clock.clone(), options).unwrap();
        let house = router(state.with_replays(door.desk.replays.clone()));
        let session = door.access.sign_in("Rosa", "correct horse battery", None).await.unwrap().unwrap();
        let mut said = Vec::new();
        for password in ["a guess", "another", "one more", "correct horse battery"] {
            let body = json!({ "digest": digest, "password": password }).to_string();
            let request = Request::post(&path).header(header::COOKIE, format!("lazaret={session}")).header(header::CONTENT_TYPE, "application/json");
            said.push(answer(house.clone(), request.body(Body::from(body)).unwrap()).await.status.as_u16());
        }
        assert_eq!(said, [403, 403, 429, 429]);
        assert_eq!(door.desk.batch(id).await.state, BatchState::AwaitingApproval);
    }
}

/// S10
#[tokio::test]
async fn s10_a_read_only_lazaret_prepares_nothing() {
    let (store, _folder) = crate::support::sqlite().await;
    let mut door = Door::open(Desk::with_ledger(store).await).await;
    door.desk.take_in((0..2).map(Letter::of)).await;
    door.read_only = true;
    for route in lazaret::web::routes::ROUTES.iter().filter(|route| route.method != "GET" && route.path.contains("/replays")) {
        let refused = door.post(&route.path.replace("{id}", "1"), "admin", everything()).await;
        assert!(refused.status == StatusCode::FORBIDDEN && refused.text().contains("read-only"), "{}: {}", route.path, refused.text());
    }
    let clusters = std::sync::Arc::default();
    let nowhere = lazaret::services::replay::Replays { clusters, ..door.desk.replays.clone() };
    let error = nowhere.propose(&ana().by, &OwnerScope::All, door.desk.everything()).await.unwrap_err();
    assert!(invalid(&error).1.contains("read-only"), "{error}");
}
