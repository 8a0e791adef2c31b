//! Who may do what, and how requests are refused.

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use lazaret::domain::access::{OwnerScope, Role};
use lazaret::web::routes::ROUTES;
use lazaret::web::{metrics_router, router};

use super::house::{House, TOKEN, all, answer, attributes, text_of};

async fn house() -> (House, tempfile::TempDir) {
    let (store, folder) = crate::support::sqlite().await;
    (House::new(store).await, folder)
}

/// A path of the table with its parameters filled in.
fn sample(path: &str) -> String {
    path.split('/').map(|part| if part.starts_with('{') { "1" } else { part }).collect::<Vec<_>>().join("/")
}

#[tokio::test]
async fn every_route_refuses_whoever_is_not_signed_in_unless_the_table_says_otherwise() {
    let (house, _folder) = house().await;
    assert!(ROUTES.iter().any(|route| route.path == "/api/v1/messages/{id}"), "the table is the table");
    let open: Vec<&str> = ROUTES.iter().filter(|route| route.role.is_none()).map(|route| route.path).collect();
    assert_eq!(open, ["/healthz", "/readyz", "/static/{file}", "/sign-in", "/sign-in", "/sign-out", "/setup", "/setup"]);
    for route in ROUTES.iter().filter(|route| route.role.is_some()) {
        let path = sample(route.path);
        let answer = house.anonymous(route.method, &path).await;
        if path.starts_with("/api/") || path == "/metrics" {
            assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{path}");
            assert_eq!(answer.header(header::WWW_AUTHENTICATE), "Bearer", "{path}");
        } else {
            assert_eq!(answer.status, StatusCode::SEE_OTHER, "{path}");
            assert!(answer.header(header::LOCATION).starts_with("/sign-in"), "{path}");
        }
        let viewer = house.get(&path).await;
        assert!(!matches!(viewer.status.as_u16(), 401 | 403 | 405 | 500..), "{path} as a viewer: {}", viewer.status);
    }
}

#[tokio::test]
async fn a_token_that_is_wrong_revoked_or_expired_is_refused_everywhere() {
    let (house, _folder) = house().await;
    let with = async |value: &str| {
        house.send(Request::get("/api/v1/dlqs").header(header::AUTHORIZATION, value).body(Body::empty()).unwrap()).await
    };
    assert_eq!(with(&format!("Bearer {TOKEN}")).await.status, StatusCode::OK);
    assert_eq!(with(&format!("bearer  {TOKEN} ")).await.status, StatusCode::OK);
    for value in ["Bearer nonsense", "Bearer", "Basic YTpi", ""] {
        let answer = with(value).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{value:?}");
        assert_eq!(answer.header(header::CONTENT_TYPE), "application/problem+json");
    }
    house.access.revoke_token("viewer").await.unwrap();
    assert_eq!(with(&format!("Bearer {TOKEN}")).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn signing_in_and_out() {
    let (house, _folder) = house().await;
    house.access.add_user("Ana", "correct horse battery", Role::Viewer, OwnerScope::All).await.unwrap();
    let asked = house.anonymous("GET", "/messages?state=archived").await;
    assert_eq!(asked.header(header::LOCATION), "/sign-in?next=%2Fmessages%3Fstate%3Darchived");
    let form = house.anonymous("GET", asked.header(header::LOCATION)).await;
    assert_eq!(attributes(&form.page(), "input[name=next]", "value"), ["/messages?state=archived"]);
    let wrong = house.post("/sign-in", "name=ana&password=wrong", "").await;
    assert_eq!(wrong.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(text_of(&wrong.page(), "[role=alert]"), "Name or password is wrong.");
    assert!(!wrong.text().contains("value=\"wrong\""), "the password is not sent back");
    let right = house.post("/sign-in", "name=ana&password=correct+horse+battery&next=%2Fmessages%3Fstate%3Darchived", "").await;
    assert_eq!((right.status, right.header(header::LOCATION)), (StatusCode::SEE_OTHER, "/messages?state=archived"));
    let cookie = right.header(header::SET_COOKIE).to_owned();
    assert!(
        cookie.starts_with("lazaret=") && cookie.contains("HttpOnly") && cookie.contains("SameSite=Lax") && cookie.contains("Path=/"),
        "{cookie}"
    );
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let signed_in = async || house.send(Request::get("/").header(header::COOKIE, &cookie).body(Body::empty()).unwrap()).await;
    assert!(text_of(&signed_in().await.page(), ".who").contains("Ana · viewer"));
    let elsewhere = house.post("/sign-in", "name=ana&password=correct+horse+battery&next=%2F%2Fevil.example", "").await;
    assert_eq!(elsewhere.header(header::LOCATION), "/", "never to another host");
    let out = house.post("/sign-out", "", &cookie).await;
    assert_eq!((out.status, out.header(header::LOCATION)), (StatusCode::SEE_OTHER, "/sign-in"));
    assert_eq!(signed_in().await.status, StatusCode::SEE_OTHER, "the session is over, whoever kept the cookie");
}

#[tokio::test]
async fn guessing_is_slowed_down() {
    let (mut house, _folder) = house().await;
    house.options.sign_in_attempts_per_minute = 2;
    let state = house.state();
    let guess = async || {
        let request = Request::post("/sign-in").header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        answer(router(state.clone()), request.body(Body::from("name=ana&password=guess")).unwrap()).await
    };
    assert_eq!(guess().await.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(guess().await.status, StatusCode::UNPROCESSABLE_ENTITY);
    let refused = guess().await;
    assert_eq!((refused.status, refused.header(header::RETRY_AFTER)), (StatusCode::TOO_MANY_REQUESTS, "60"));
    house.clock.step(std::time::Duration::from_secs(60));
    assert_eq!(guess().await.status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn over_tls_cookies_never_leave_it() {
    let (mut house, _folder) = house().await;
    house.options.public_url = "https://lazaret.example.org/".to_owned();
    house.access.add_user("ana", "correct horse battery", Role::Viewer, OwnerScope::All).await.unwrap();
    let right = house.post("/sign-in", "name=ana&password=correct+horse+battery", "").await;
    let cookie = right.header(header::SET_COOKIE);
    assert!(cookie.starts_with("__Host-lazaret=") && cookie.contains("Secure"), "{cookie}");
    house.options.public_url = "lazaret.example.org/path".to_owned();
    let made = lazaret::web::AppState::new(house.store.clone(), house.access.clone(), house.clock.clone(), house.options.clone());
    assert!(made.unwrap_err().to_string().starts_with("server.public_url: \"lazaret.example.org/path\" is not usable"));
}

#[tokio::test]
async fn forms_from_other_sites_are_refused() {
    let (house, _folder) = house().await;
    let post = async |name: &str, value: &str| {
        let request = Request::post("/sign-out").header(header::HOST, "127.0.0.1:8080").header(name, value);
        house.send(request.body(Body::empty()).unwrap()).await
    };
    assert_eq!(post("sec-fetch-site", "cross-site").await.status, StatusCode::FORBIDDEN);
    let refused = post("origin", "https://evil.example").await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert!(text_of(&refused.page(), "main").contains("another site's page"));
    assert_eq!(post("origin", "http://127.0.0.1:8080").await.status, StatusCode::SEE_OTHER, "public_url");
}

#[tokio::test]
async fn the_first_admin_sets_a_password_once() {
    let (house, _folder) = house().await;
    let token = house.access.setup_token().await.unwrap().expect("no user yet");
    assert_eq!(house.anonymous("GET", "/setup?token=wrong").await.status, StatusCode::FORBIDDEN);
    let form = house.anonymous("GET", &format!("/setup?token={token}")).await;
    assert_eq!(attributes(&form.page(), "input[name=token]", "value"), std::slice::from_ref(&token));
    let post = async |password: &str, again: &str| {
        house.post("/setup", &format!("token={token}&name=root&password={password}&again={again}"), "").await
    };
    assert_eq!(text_of(&post("correct+horse+1", "correct+horse+2").await.page(), "[role=alert]"), "The two passwords differ.");
    assert!(text_of(&post("short", "short").await.page(), "[role=alert]").contains("12 characters"));
    let made = post("correct+horse+battery", "correct+horse+battery").await;
    assert_eq!((made.status, made.header(header::LOCATION)), (StatusCode::SEE_OTHER, "/"));
    let cookie = made.header(header::SET_COOKIE).split(';').next().unwrap().to_owned();
    let page = house.send(Request::get("/").header(header::COOKIE, cookie).body(Body::empty()).unwrap()).await.page();
    assert!(text_of(&page, ".who").contains("root · admin"));
    assert_eq!(post("correct+horse+battery", "correct+horse+battery").await.status, StatusCode::FORBIDDEN, "once");
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_said() {
    let (house, _folder) = house().await;
    for (path, status, word) in [
        ("/api/v1/messages?colour=red", 400, "Unknown parameter \"colour\": this address knows cluster, topic"),
        ("/api/v1/messages?state=lost", 400, "use one of quarantined"),
        ("/api/v1/messages?limit=501", 400, "limit must be a whole number from 1 to 500, not \"501\""),
        ("/api/v1/messages?limit=0", 400, "limit"),
        ("/api/v1/messages?after=x", 400, "after must be a whole number"),
        ("/api/v1/dlqs?status=green", 400, "use one of critical, warning"),
        ("/api/v1/dlqs?after=gone%2Ftopic", 400, "start again without it"),
        ("/api/v1/dlqs/main/absent", 404, "No DLQ \"absent\" was ever seen"),
        ("/api/v1/messages/77", 404, "no message \"77\""),
        ("/api/v1/messages/x", 404, "no message \"x\""),
        ("/api/v1/groups/77", 404, "no failure group"),
        ("/api/v1/nothing", 404, "nothing at this address"),
    ] {
        let answer = house.get(path).await;
        assert_eq!(answer.status.as_u16(), status, "{path}");
        assert_eq!(answer.header(header::CONTENT_TYPE), "application/problem+json", "{path}");
        let problem = answer.json();
        assert!(problem["detail"].as_str().unwrap().contains(word), "{path}: {problem}");
        assert_eq!(problem["status"], status);
        assert_eq!(problem["request_id"], answer.header("x-request-id"));
        assert_eq!(problem["request_id"].as_str().unwrap().len(), 12);
    }
    for (path, status) in [
        ("/nothing", 404),
        ("/?colour=red", 400),
        ("/messages/77", 404),
        ("/messages/77?view=tree", 400),
        ("/dlqs/main/absent", 404),
        ("/groups/0", 404),
    ] {
        let answer = house.get(path).await;
        assert_eq!(answer.status.as_u16(), status, "{path}");
        assert_eq!(all(&answer.page(), ".meta code"), [answer.header("x-request-id")], "{path}");
    }
    let wrong = house.anonymous("DELETE", "/api/v1/dlqs").await;
    assert_eq!((wrong.status, wrong.header(header::ALLOW)), (StatusCode::METHOD_NOT_ALLOWED, "GET,HEAD"));
}

#[tokio::test]
async fn a_role_that_is_too_low_is_named() {
    let (house, _folder) = house().await;
    // No route of this version needs more than a viewer; the guard is the one every later route gets.
    assert!(ROUTES.iter().all(|route| route.role.is_none_or(|role| role == Role::Viewer)));
    house.access.add_user("ana", "correct horse battery", Role::Viewer, OwnerScope::Listed(vec!["payments".into()])).await.unwrap();
    let right = house.post("/sign-in", "name=ana&password=correct+horse+battery", "").await;
    let cookie = right.header(header::SET_COOKIE).split(';').next().unwrap().to_owned();
    house.dlq("fraud.DLQ").await;
    let page = house.send(Request::get("/").header(header::COOKIE, &cookie).body(Body::empty()).unwrap()).await.page();
    assert_eq!(all(&page, "#dlqs .name"), ["fraud.DLQ"], "owners limit what one acts on, not what one sees");
    house.access.disable_user("ana").await.unwrap();
    assert_eq!(
        house.send(Request::get("/").header(header::COOKIE, &cookie).body(Body::empty()).unwrap()).await.status,
        StatusCode::SEE_OTHER
    );
}

/// S10. That no producer can exist is held by `architecture.rs`: rdkafka's is named by the demo alone.
#[tokio::test]
async fn s10_read_only_refuses_every_route_that_sends_and_says_why() {
    let (mut house, _folder) = house().await;
    let routes = ["/api/v1/replays", "/api/v1/replays/1/approve", "/api/v1/replays/1/resume", "/replays", "/replays/1/review"];
    let post = async |house: &House, path: &str| {
        let request = Request::post(path).header(header::AUTHORIZATION, format!("Bearer {TOKEN}"));
        house.send(request.body(Body::empty()).unwrap()).await
    };
    for path in routes {
        assert_eq!(post(&house, path).await.status, StatusCode::NOT_FOUND, "{path}: nothing sends yet");
    }
    house.options.read_only = true;
    for path in routes {
        let answer = post(&house, path).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
        assert!(answer.text().contains("read-only") && answer.text().contains("no producer"), "{path}: {}", answer.text());
    }
    assert_eq!(post(&house, "/api/v1/replays").await.json()["status"], 403);
    assert_eq!(post(&house, "/replaysx").await.status, StatusCode::NOT_FOUND);
    // Looking, signing in and out go on.
    assert!(text_of(&house.page("/").await, "header").contains("Read-only"));
    assert_eq!(house.post("/sign-in", "name=nobody&password=wrong", "").await.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(house.post("/sign-out", "", "").await.status, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn every_answer_carries_the_headers_that_keep_it_inert() {
    let (house, _folder) = house().await;
    for path in ["/", "/sign-in", "/static/app.css", "/healthz", "/nothing", "/api/v1/dlqs", "/metrics"] {
        let answer = house.get(path).await;
        let policy = answer.header("content-security-policy");
        assert!(
            policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"),
            "{path}: {policy}"
        );
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(answer.header("referrer-policy"), "same-origin", "{path}");
        assert_eq!(answer.header("x-request-id").len(), 12, "{path}");
        if !path.starts_with("/static") {
            assert_eq!(answer.header(header::CACHE_CONTROL), "no-store", "{path}");
        }
    }
}

#[tokio::test]
async fn the_style_sheet_is_kept_by_browsers_until_it_changes() {
    let (house, _folder) = house().await;
    let href = attributes(&house.anonymous("GET", "/sign-in").await.page(), "link[rel=stylesheet]", "href").remove(0);
    let css = house.anonymous("GET", &href).await;
    assert_eq!(css.header(header::CACHE_CONTROL), "public, max-age=31536000, immutable");
    assert_eq!(css.header(header::CONTENT_TYPE), "text/css; charset=utf-8");
    let again = house
        .send(Request::get("/static/app.css").header(header::IF_NONE_MATCH, css.header(header::ETAG)).body(Body::empty()).unwrap())
        .await;
    assert_eq!((again.status, again.body.len()), (StatusCode::NOT_MODIFIED, 0));
    assert_eq!(house.anonymous("GET", "/static/app.css?v=old").await.header(header::CACHE_CONTROL), "no-cache");
    assert_eq!(house.anonymous("GET", "/static/..%2Fapp.css").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn machines_ask_without_signing_in_and_learn_no_secret() {
    let (house, _folder) = house().await;
    assert_eq!(house.anonymous("GET", "/healthz").await.text(), "ok\n");
    assert_eq!(house.anonymous("GET", "/readyz").await.text(), "ready\n");
    let own = answer(metrics_router(house.state()), Request::get("/metrics").body(Body::empty()).unwrap()).await;
    assert_eq!(own.status, StatusCode::OK);
    assert!(own.header(header::CONTENT_TYPE).starts_with("text/plain; version=0.0.4"));
    let mut elsewhere = house;
    elsewhere.options.metrics_on_main = false;
    assert_eq!(elsewhere.get("/metrics").await.status, StatusCode::NOT_FOUND);
}
