//! What stands around every page: theme, shortcuts, messages after a form, errors.

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use lazaret::domain::access::{OwnerScope, Role};
use scraper::Html;

use super::house::{Answer, House, NOW_MS, TOKEN, all, attributes, record, text_of};
use crate::support::sqlite;

const HOST: &str = "127.0.0.1:8080";

async fn house() -> (House, tempfile::TempDir) {
    let (store, folder) = sqlite().await;
    (House::new(store).await, folder)
}

/// The menu's button, pressed on the page `referer`.
async fn prefer(house: &House, form: &str, referer: &str) -> Answer {
    let request = Request::post("/preferences")
        .header(header::HOST, HOST)
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .header("sec-fetch-site", "same-origin")
        .header(header::REFERER, referer);
    house.send(request.body(Body::from(form.to_owned())).unwrap()).await
}

async fn with_cookie(house: &House, path: &str, cookie: &str) -> Html {
    let request = Request::get(path).header(header::AUTHORIZATION, format!("Bearer {TOKEN}")).header(header::COOKIE, cookie);
    house.send(request.body(Body::empty()).unwrap()).await.page()
}

#[tokio::test]
async fn a_theme_is_chosen_by_anybody_and_kept_by_the_browser() {
    let (house, _folder) = house().await;
    let sign_in = house.anonymous("GET", "/sign-in").await.page();
    assert_eq!(attributes(&sign_in, "meta[name=color-scheme]", "content"), ["light dark"]);
    assert_eq!(attributes(&sign_in, "html", "data-theme"), Vec::<String>::new(), "the system decides");
    assert_eq!(attributes(&sign_in, "[name=theme][aria-pressed=true]", "value"), ["system"]);
    assert_eq!(attributes(&sign_in, "[name=keys], body[data-events]", "value"), Vec::<String>::new(), "not before signing in");

    let set = prefer(&house, "theme=dark", "http://127.0.0.1:8080/messages?state=archived").await;
    assert_eq!((set.status, set.header(header::LOCATION)), (StatusCode::SEE_OTHER, "/messages?state=archived"));
    let cookie = set.header(header::SET_COOKIE);
    assert_eq!(cookie, "lazaret-theme=dark; Path=/; HttpOnly; SameSite=Lax; Max-Age=31536000");
    let page = with_cookie(&house, "/", cookie.split(';').next().unwrap()).await;
    assert_eq!(attributes(&page, "html", "data-theme"), ["dark"]);
    assert_eq!(attributes(&page, "meta[name=color-scheme]", "content"), ["dark"]);
    assert_eq!(attributes(&page, "[name=theme][aria-pressed=true]", "value"), ["dark"]);

    for forged in ["blue", "dark\"><script>"] {
        let page = with_cookie(&house, "/", &format!("lazaret-theme={forged}")).await;
        assert_eq!(attributes(&page, "html", "data-theme"), Vec::<String>::new());
    }
    let refused = prefer(&house, "theme=blue", "http://127.0.0.1:8080/").await;
    assert_eq!((refused.status, refused.header(header::SET_COOKIE)), (StatusCode::BAD_REQUEST, ""));
}

#[tokio::test]
async fn shortcuts_are_switched_off_and_on() {
    let (house, _folder) = house().await;
    let page = house.page("/").await;
    assert_eq!(attributes(&page, "[name=keys][aria-pressed=true]", "value"), ["on"]);
    assert!(attributes(&page, "body", "data-no-keys").is_empty());
    let set = prefer(&house, "keys=off", "http://127.0.0.1:8080/").await;
    let cookie = set.header(header::SET_COOKIE).split(';').next().unwrap().to_owned();
    let page = with_cookie(&house, "/", &cookie).await;
    assert_eq!(attributes(&page, "body", "data-no-keys").len(), 1);
    assert_eq!(attributes(&page, "[name=keys][aria-pressed=true]", "value"), ["off"]);
}

#[tokio::test]
async fn preferences_lead_back_to_a_page_of_ours_or_to_the_overview() {
    let (house, _folder) = house().await;
    for (referer, goes) in [
        ("http://127.0.0.1:8080/dlqs/main/a.DLQ?state=quarantined", "/dlqs/main/a.DLQ?state=quarantined"),
        ("http://evil.example/dlqs", "/"),
        ("http://127.0.0.1:8080//evil.example", "/"),
        ("no address", "/"),
    ] {
        assert_eq!(prefer(&house, "theme=light", referer).await.header(header::LOCATION), goes, "{referer}");
    }
    let elsewhere = Request::post("/preferences").header(header::HOST, HOST).header("sec-fetch-site", "cross-site");
    assert_eq!(house.send(elsewhere.body(Body::from("theme=dark")).unwrap()).await.status, StatusCode::FORBIDDEN);
}

/// Behind a proxy the host that is asked for is not the one that the browser sees.
#[tokio::test]
async fn preferences_lead_back_to_the_page_behind_a_proxy() {
    let (mut house, _folder) = house().await;
    house.options.public_url = "https://lazaret.example.org".to_owned();
    for (referer, goes) in [
        ("https://lazaret.example.org/messages?state=archived", "/messages?state=archived"),
        ("http://lazaret.example.org/messages", "/"),
        ("https://evil.example/messages", "/"),
    ] {
        assert_eq!(prefer(&house, "theme=light", referer).await.header(header::LOCATION), goes, "{referer}");
    }
}

/// The answer to a form that does not do is a page, and stands at the form's address.
#[tokio::test]
async fn from_the_answer_to_a_form_one_comes_back_to_its_page() {
    let (house, _folder) = house().await;
    house.access.add_user("olga", "correct horse battery", Role::Operator, OwnerScope::All).await.unwrap();
    let cookie = format!("lazaret={}", house.access.sign_in("olga", "correct horse battery", None).await.unwrap().unwrap());
    house.take_in("cards.DLQ", vec![record("cards.DLQ", 0, NOW_MS, r#"{"email":"ana@b.example"}"#, "no")]).await;
    let message = house.json("/api/v1/messages?limit=1").await["items"][0].clone();
    let (group, message) = (format!("/groups/{}", message["group"]), format!("/messages/{}", message["id"]));
    for (form, page) in [
        (format!("{group}/status"), &group),
        (format!("{group}/notes"), &group),
        (format!("{message}/reveal"), &message),
        ("/settings/clusters/main/test".to_owned(), &"/settings#clusters".to_owned()),
    ] {
        // Without a session: signing in leads to the form's address again.
        let unsent = Request::post(&form).header(header::HOST, HOST).header(header::REFERER, format!("http://{HOST}{form}"));
        let unsent = house.send(unsent.header("sec-fetch-site", "same-origin").body(Body::empty()).unwrap()).await;
        let again = format!("/sign-in?next={}&unsent=1", lazaret::api::query::encode(form.as_bytes()));
        assert_eq!(unsent.header(header::LOCATION), again);
        let back = prefer(&house, "theme=dark", &format!("http://{HOST}{form}")).await;
        assert_eq!(back.header(header::LOCATION), form);
        let there = house.get(&form).await;
        assert_eq!((there.status, there.header(header::LOCATION)), (StatusCode::SEE_OTHER, page.as_str()), "{form}");
        house.page(page.split('#').next().unwrap()).await;
    }
    for form in [format!("{group}/status"), format!("{group}/notes"), format!("{message}/reveal")] {
        let typed = if form.ends_with("status") { "version=0&status=gone" } else { "form_id=0123456789abcdef&note=&reason=" };
        let answer = house.post(&form, typed, &cookie).await;
        assert_eq!((answer.status, all(&answer.page(), "#error").len()), (StatusCode::UNPROCESSABLE_ENTITY, 0), "a page at {form}");
    }
}

#[tokio::test]
async fn what_was_done_is_said_once() {
    let (house, _folder) = house().await;
    house.access.add_user("ana", "correct horse battery", Role::Viewer, OwnerScope::All).await.unwrap();
    let session = house.access.sign_in("ana", "correct horse battery", None).await.unwrap().unwrap();
    let out = house.post("/sign-out", "", &format!("lazaret={session}")).await;
    let cookies: Vec<&str> = out.headers.get_all(header::SET_COOKIE).iter().map(|cookie| cookie.to_str().unwrap()).collect();
    let flash = cookies.iter().find(|cookie| cookie.starts_with("lazaret-flash=")).expect("what to say next");
    assert!(flash.contains("Max-Age=60") && flash.contains("HttpOnly"), "{flash}");
    assert!(cookies.iter().any(|cookie| cookie.starts_with("lazaret=;") && cookie.contains("Max-Age=0")), "{cookies:?}");
    let carried = flash.split(';').next().unwrap();

    let see = async |cookie: &str, part: bool| {
        let mut request = Request::get("/sign-in").header(header::COOKIE, cookie);
        if part {
            request = request.header("hx-request", "true");
        }
        house.send(request.body(Body::empty()).unwrap()).await
    };
    let part = see(carried, true).await;
    assert_eq!((all(&part.page(), ".flash"), part.header(header::SET_COOKIE)), (Vec::new(), ""), "a part leaves it to the page");
    let said = see(carried, false).await;
    assert_eq!(text_of(&said.page(), ".flash[role=status]"), "You are signed out.");
    assert!(said.header(header::SET_COOKIE).starts_with("lazaret-flash=;") && said.header(header::SET_COOKIE).contains("Max-Age=0"));
    assert_eq!(all(&see("lazaret-flash=You+won+a+prize", false).await.page(), ".flash"), Vec::<String>::new(), "only words of ours");
}

#[tokio::test]
async fn an_error_says_what_why_and_what_helps() {
    let (house, _folder) = house().await;
    let missing = house.get("/groups/999999").await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
    let page = missing.page();
    assert_eq!(text_of(&page, "#error h1"), "Not found");
    let meta = text_of(&page, "#error .meta");
    assert!(meta.contains("404 Not Found") && meta.contains("2026-11-30 14:02:11 UTC"), "{meta}");
    assert_eq!(text_of(&page, "#error code"), missing.header("x-request-id"));
    assert_eq!(attributes(&page, "#error a.btn", "href"), ["/"]);

    // Where no guard came first, the page still knows who asks.
    let nowhere = house.get("/no/such/page").await.page();
    assert!(text_of(&nowhere, ".who").contains("viewer"), "signed in");
    let stranger = house.anonymous("GET", "/no/such/page").await.page();
    assert_eq!(attributes(&stranger, "#error a.btn", "href"), ["/sign-in"]);
    assert_eq!(attributes(&stranger, "nav.main a", "href"), Vec::<String>::new());

    let forbidden = Request::post("/groups/1/notes").header(header::AUTHORIZATION, format!("Bearer {TOKEN}"));
    let forbidden = house.send(forbidden.body(Body::empty()).unwrap()).await;
    assert_eq!(forbidden.status, StatusCode::FORBIDDEN);
    assert!(text_of(&forbidden.page(), "#error").contains("needs the role operator, and token viewer has the role viewer"));

    let large = house.post("/sign-in", &format!("name={}", "a".repeat(300_000)), "").await;
    assert_eq!((large.status, text_of(&large.page(), "#error h1").as_str()), (StatusCode::PAYLOAD_TOO_LARGE, "Too large"));
}

#[tokio::test]
async fn nothing_on_a_page_is_inline_and_scripts_are_ours() {
    let (house, _folder) = house().await;
    let answer = house.get("/").await;
    let policy = answer.header(header::CONTENT_SECURITY_POLICY);
    for part in ["default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'"] {
        assert!(policy.contains(part), "{policy}");
    }
    let page = answer.page();
    let scripts = attributes(&page, "script", "src");
    assert_eq!(scripts.len(), 2);
    assert_eq!(attributes(&page, "script[defer]", "src"), scripts);
    assert_eq!(all(&page, "script").concat(), "", "no code in the page");
    for script in &scripts {
        let file = house.anonymous("GET", script).await;
        assert_eq!((file.status, file.header(header::CONTENT_TYPE)), (StatusCode::OK, "text/javascript; charset=utf-8"));
        assert_eq!(file.header(header::CACHE_CONTROL), "public, max-age=31536000, immutable");
    }
    let config = attributes(&page, "meta[name=htmx-config]", "content").concat();
    let config: serde_json::Value = serde_json::from_str(&config).expect("JSON, or htmx would fall back to its defaults");
    assert_eq!((&config["allowEval"], &config["includeIndicatorStyles"]), (&false.into(), &false.into()));
    assert_eq!(attributes(&page, "[style], [onclick]", "class"), Vec::<String>::new());
}
