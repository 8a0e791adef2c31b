//! Who may do what, and how requests are refused.

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use lazaret::domain::access::{OwnerScope, Role};
use lazaret::store::audit::EventFilter;
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

const ROLES: [Role; 4] = [Role::Viewer, Role::Operator, Role::Approver, Role::Admin];

/// A request of a browser that is signed in, up to the head of the answer: the body of `/events` has no end.
async fn status_of(house: &House, method: &str, path: &str, cookie: &str, form: &'static str) -> StatusCode {
    let request = Request::builder().method(method).uri(path).header(header::COOKIE, cookie);
    let request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded").header("sec-fetch-site", "same-origin");
    let response = tower::ServiceExt::oneshot(router(house.state()), request.body(Body::from(form)).unwrap()).await.unwrap();
    response.status()
}

/// The cookie of a new user with this role.
async fn signed_in(house: &House, name: &str, role: Role, owners: OwnerScope) -> String {
    house.access.add_user(name, "correct horse battery", role, owners).await.unwrap();
    let right = house.post("/sign-in", &format!("name={name}&password=correct+horse+battery"), "").await;
    assert_eq!(right.status, StatusCode::SEE_OTHER, "{}", right.text());
    right.header(header::SET_COOKIE).split(';').next().unwrap().to_owned()
}

/// S3.
#[tokio::test]
async fn every_route_refuses_nobody_and_each_lesser_role() {
    let (house, _folder) = house().await;
    let open: Vec<_> = ROUTES.iter().filter(|route| route.role.is_none()).map(|route| (route.method, route.path)).collect();
    assert_eq!(
        open,
        [
            ("POST", "/preferences"),
            ("GET", "/healthz"),
            ("GET", "/readyz"),
            ("GET", "/static/{file}"),
            ("GET", "/sign-in"),
            ("POST", "/sign-in"),
            ("POST", "/sign-out"),
            ("GET", "/setup"),
            ("POST", "/setup")
        ]
    );
    let mut cookies = Vec::new();
    for role in ROLES {
        cookies.push((role, signed_in(&house, &format!("a-{}", role.as_str()), role, OwnerScope::All).await));
    }
    let mut refused = 0;
    for route in ROUTES {
        let Some(least) = route.role else { continue };
        let path = sample(route.path);
        let who = format!("{} {path}", route.method);
        let nobody = house.anonymous(route.method, &path).await;
        if path.starts_with("/api/") || path == "/metrics" {
            assert_eq!(nobody.status, StatusCode::UNAUTHORIZED, "{who}");
            assert_eq!(nobody.header(header::WWW_AUTHENTICATE), "Bearer", "{who}");
        } else {
            assert_eq!(nobody.status, StatusCode::SEE_OTHER, "{who}");
            assert!(nobody.header(header::LOCATION).starts_with("/sign-in"), "{who}");
        }
        for (role, cookie) in &cookies {
            // The role is judged before the form is looked at, whatever it holds.
            for form in ["", "colour=red&reason=x"] {
                let status = status_of(&house, route.method, &path, cookie, form).await;
                if *role < least {
                    assert_eq!(status, StatusCode::FORBIDDEN, "{who} as {}", role.as_str());
                    refused += 1;
                } else {
                    assert!(!matches!(status.as_u16(), 401 | 403 | 405), "{who} as {}: {status}", role.as_str());
                }
            }
        }
    }
    assert!(refused > 0, "some route needs more than a viewer");
}

#[tokio::test]
async fn a_form_of_another_site_is_refused_by_every_route_that_changes_something() {
    let (house, _folder) = house().await;
    let cookie = signed_in(&house, "root", Role::Admin, OwnerScope::All).await;
    let mut tried = 0;
    for route in ROUTES.iter().filter(|route| route.method != "GET") {
        for (name, value) in [("sec-fetch-site", "cross-site"), ("origin", "https://evil.example"), ("origin", "null")] {
            let request = Request::builder().method(route.method).uri(sample(route.path)).header(header::COOKIE, &cookie);
            let request = request.header(header::HOST, "127.0.0.1:8080").header(name, value);
            let answer = house.send(request.body(Body::empty()).unwrap()).await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{} {name}: {value}", route.path);
            tried += 1;
        }
    }
    assert!(tried >= 12, "the table has routes that change something");
    assert_eq!(status_of(&house, "GET", "/", &cookie, "").await, StatusCode::OK, "the session is still there");
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
    let said = text_of(&wrong.page(), "[role=alert]");
    assert!(said.starts_with("Name or password is wrong. Try again;") && said.contains("lazaret user passwd"), "{said}");
    assert_eq!(attributes(&wrong.page(), "#name", "value"), ["ana"], "what was typed is still there");
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
    assert_eq!((made.status, made.header(header::LOCATION)), (StatusCode::SEE_OTHER, "/setup"), "to what is left to do");
    let cookie = made.header(header::SET_COOKIE).split(';').next().unwrap().to_owned();
    let page = house.send(Request::get("/").header(header::COOKIE, cookie).body(Body::empty()).unwrap()).await.page();
    assert!(text_of(&page, ".who").contains("root · admin"));
    assert_eq!(post("correct+horse+battery", "correct+horse+battery").await.status, StatusCode::FORBIDDEN, "once");
}

#[tokio::test]
async fn the_set_up_link_ends_with_the_first_user_whoever_made_that_one() {
    let (house, _folder) = house().await;
    let token = house.access.setup_token().await.unwrap().expect("no user yet");
    house.access.add_user("ana", "correct horse battery", Role::Operator, OwnerScope::All).await.unwrap();
    let answer = house.anonymous("GET", &format!("/setup?token={token}")).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    let said = text_of(&answer.page(), "main");
    assert!(said.contains("there is a user by now") && said.contains("lazaret user add NAME --role admin"), "{said}");
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
        ("/messages/77?view=odd", 400),
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
    let cookie = signed_in(&house, "ana", Role::Viewer, OwnerScope::Listed(vec!["payments".into()])).await;
    let refused = house.post("/settings/clusters/main/test", "", &cookie).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    let said = text_of(&refused.page(), "main");
    assert!(said.contains("needs the role admin, and ana has the role viewer"), "{said}");
    assert!(text_of(&refused.page(), ".who").contains("ana · viewer"), "the page knows who is refused");
    house.dlq("fraud.DLQ").await;
    let page = house.send(Request::get("/").header(header::COOKIE, &cookie).body(Body::empty()).unwrap()).await.page();
    assert_eq!(all(&page, "#dlqs .name"), ["fraud.DLQ"], "owners limit what one acts on, not what one sees");
    house.access.disable_user("ana").await.unwrap();
    assert_eq!(status_of(&house, "GET", "/", &cookie, "").await, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn a_session_that_ended_comes_back_to_where_it_was() {
    let (house, _folder) = house().await;
    let cookie = signed_in(&house, "ana", Role::Operator, OwnerScope::All).await;
    house.clock.step(std::time::Duration::from_secs(13 * 3_600));
    let ask = async |method: &str, path: &str, extra: &[(&str, &str)]| {
        let mut request = Request::builder().method(method).uri(path).header(header::COOKIE, &cookie).header(header::HOST, "lazaret.test");
        for (name, value) in extra {
            request = request.header(*name, *value);
        }
        house.send(request.body(Body::empty()).unwrap()).await
    };
    let filter = ask("GET", "/messages?state=archived&q=a%20b", &[]).await;
    assert_eq!(filter.header(header::LOCATION), "/sign-in?next=%2Fmessages%3Fstate%3Darchived%26q%3Da%2520b");
    assert_eq!(ask("GET", "/", &[]).await.header(header::LOCATION), "/sign-in");

    // A form is not sent again by signing in: its reader comes back to the page it stood on and is told.
    for (referer, goes) in [
        (Some("http://lazaret.test/groups/7?page=2"), "/sign-in?next=%2Fgroups%2F7%3Fpage%3D2&unsent=1"),
        (Some("http://127.0.0.1:8080/groups/7"), "/sign-in?next=%2Fgroups%2F7&unsent=1"),
        (Some("https://evil.example/groups/7"), "/sign-in?unsent=1"),
        (Some("not a url"), "/sign-in?unsent=1"),
        (None, "/sign-in?unsent=1"),
    ] {
        let extra: Vec<(&str, &str)> = referer.map(|referer| ("referer", referer)).into_iter().collect();
        let sent = ask("POST", "/groups/7/notes", &extra).await;
        assert_eq!((sent.status, sent.header(header::LOCATION)), (StatusCode::SEE_OTHER, goes), "{referer:?}");
    }
    let page = house.anonymous("GET", "/sign-in?next=%2Fgroups%2F7&unsent=1").await.page();
    assert!(text_of(&page, "main [role=status]").contains("the change was not made. Sign in, and send it again."));
    assert_eq!(attributes(&page, "input[name=next]", "value"), ["/groups/7"]);
    assert!(all(&house.anonymous("GET", "/sign-in").await.page(), "main [role=status]").is_empty());

    // htmx follows only a header, and would put the sign-in page into the middle of the other one.
    let part = |page: &'static str| [("hx-request", "true"), ("hx-current-url", page)];
    let region = ask("GET", "/messages?state=archived", &part("http://lazaret.test/messages?state=archived")).await;
    assert_eq!((region.status, region.header("hx-redirect")), (StatusCode::UNAUTHORIZED, "/sign-in?next=%2Fmessages%3Fstate%3Darchived"));
    let form = ask("POST", "/groups/7/notes", &part("http://lazaret.test/groups/7")).await;
    assert_eq!(form.header("hx-redirect"), "/sign-in?next=%2Fgroups%2F7&unsent=1");
}

#[tokio::test]
async fn who_came_and_who_tried_to_is_in_the_trail() {
    let (mut house, _folder) = house().await;
    house.options.sign_in_attempts_per_minute = 3;
    let cookie = signed_in(&house, "ana", Role::Viewer, OwnerScope::All).await;
    let out = house.post("/sign-out", "", &cookie).await;
    house.post("/sign-out", "", &cookie).await;
    let state = house.state();
    let long = "x".repeat(100);
    let guess = async |name: &str| {
        let request = Request::post("/sign-in").header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        answer(router(state.clone()), request.body(Body::from(format!("name={name}&password=swordfish"))).unwrap()).await
    };
    let wrong = guess("Ana").await;
    assert_eq!(wrong.status, StatusCode::UNPROCESSABLE_ENTITY);
    for _ in 0..6 {
        guess(&long).await;
    }
    guess("nul%00name").await;
    let mut told = house.store.events(&EventFilter::default(), None, 50).await.unwrap();
    told.reverse();
    let lines: Vec<String> = told.iter().map(|entry| format!("{}: {} {}", entry.actor, entry.action, entry.subject)).collect();
    let guessed = format!("not signed in: sign_in_failed user {}", "x".repeat(64));
    assert_eq!(
        lines[1..],
        [
            "command line: user_added user ana",
            "ana: signed_in user ana",
            "ana: signed_out user ana",
            "not signed in: sign_in_failed user Ana",
            &guessed,
            &guessed,
            &guessed,
            "not signed in: sign_in_failed user nul\u{2400}name",
        ],
        "as many as the limit lets through, and a session ends once"
    );
    let of = |entry: usize| -> serde_json::Value { serde_json::from_str(&told[entry].event).unwrap() };
    assert_eq!(of(3)["request_id"], out.header("x-request-id"));
    assert_eq!((of(4)["request_id"].as_str(), of(4)["reason"].as_str()), (Some(wrong.header("x-request-id")), Some("wrong password")));
    assert_eq!(of(5)["reason"], "no such user");
    assert!(told.iter().all(|entry| !entry.event.contains("swordfish") && !entry.event.contains("horse")));
}

/// S10. No producer is built either: the job that has one is not started (`app/mod.rs`), and `Replays` knows no cluster to send to.
#[tokio::test]
async fn s10_read_only_refuses_every_route_that_sends_and_says_why() {
    let (mut house, _folder) = house().await;
    let routes = ["/api/v1/replays", "/api/v1/replays/1/approve", "/api/v1/replays/1/resume", "/replays", "/replays/1/review"];
    let post = async |house: &House, path: &str| {
        let request = Request::post(path).header(header::AUTHORIZATION, format!("Bearer {TOKEN}"));
        house.send(request.body(Body::empty()).unwrap()).await
    };
    for path in routes {
        assert!(!post(&house, path).await.text().contains("read-only"), "{path}: refused for another reason");
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
