//! The stream of hints: what is told, how often, and when it ends.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::{Request, StatusCode, header};
use futures_util::StreamExt as _;
use lazaret::domain::access::{OwnerScope, Role};
use lazaret::services::access::Access;
use lazaret::store::Store;
use lazaret::store::notify::Hint;
use lazaret::web::pages::live::{Pace, Places};
use lazaret::web::{AppState, router};
use tower::ServiceExt as _;

use super::house::{House, NOW_MS, TOKEN, answer, attributes, record};
use crate::support::{postgres_url, sqlite};

const BEAT: Duration = Duration::from_millis(50);
const HINTS: Duration = Duration::from_millis(400);
const TOPIC: &str = "payments.wallet.DLQ";

/// An open stream as a browser reads it.
struct Listener {
    body: BodyDataStream,
    text: String,
}

impl Listener {
    async fn open(state: &AppState, path: &str, who: (header::HeaderName, String)) -> Listener {
        let request = Request::get(path).header(who.0, who.1).body(Body::empty()).unwrap();
        let response = router(state.clone()).oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
        Listener { body: response.into_body().into_data_stream(), text: String::new() }
    }

    /// The next event's name. None: the stream ended.
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let name = event.lines().find_map(|line| line.strip_prefix("event: ")).expect("every event has a name").to_owned();
                assert!(event.contains(&format!("data: {NOW_MS}")), "the time and nothing else: {event}");
                self.text = rest.to_owned();
                return Some(name);
            }
            let chunk = tokio::time::timeout(Duration::from_secs(20), self.body.next()).await.expect("an event or the end")?;
            self.text.push_str(std::str::from_utf8(&chunk.unwrap()).unwrap());
        }
    }

    /// The next names that are no beat.
    async fn hints(&mut self, count: usize) -> Vec<String> {
        let mut names = Vec::new();
        let come = async {
            while names.len() < count {
                let name = self.next().await.expect("the stream goes on");
                if name != "beat" {
                    names.push(name);
                }
            }
        };
        let in_time = tokio::time::timeout(Duration::from_secs(20), come).await;
        assert!(in_time.is_ok(), "beats and nothing else after {names:?}, where {count} names were to come");
        names
    }
}

fn bearer() -> (header::HeaderName, String) {
    (header::AUTHORIZATION, format!("Bearer {TOKEN}"))
}

fn quick(house: &House) -> AppState {
    let mut state = house.state();
    state.live.pace = Pace { beat: BEAT, hints: HINTS, session: Duration::from_millis(100) };
    state
}

/// Clears what the page's furniture caused, so that only what follows is heard.
fn seen(state: &AppState) -> String {
    format!("/events?seen={}", state.store.hints().mark())
}

#[tokio::test]
async fn what_is_taken_in_and_looked_at_is_told_by_name() {
    let (store, _folder) = sqlite().await;
    let house = House::new(store).await;
    let state = quick(&house);
    let mut listener = Listener::open(&state, &seen(&state), bearer()).await;
    assert_eq!(listener.next().await.as_deref(), Some("beat"), "at once, so that the page can say it is live");
    let dlq = house.take_in(TOPIC, vec![record(TOPIC, 0, NOW_MS, "{}", "no route to host")]).await;
    let own = format!("dlq-{}", dlq.id);
    let mut told: Vec<String> = Vec::new();
    while !told.iter().any(|name| name.starts_with("group-")) {
        told.extend(listener.hints(1).await);
    }
    assert!(told.contains(&own) && told.contains(&"dlqs".to_owned()), "{told:?}");
    let group = told.iter().find_map(|name| name.strip_prefix("group-")).unwrap().to_owned();
    assert_eq!(house.get(&format!("/groups/{group}")).await.status, StatusCode::OK, "it is the id of the page");
    house.sample(&dlq, 0, None).await;
    assert_eq!(listener.hints(2).await, [own, "dlqs".to_owned()], "a look from outside changes no group");
}

#[tokio::test]
async fn what_people_decide_and_note_about_a_group_is_told() {
    let (store, _folder) = sqlite().await;
    let house = House::new(store).await;
    let state = quick(&house);
    let dlq = house.take_in(TOPIC, vec![record(TOPIC, 0, NOW_MS, "{}", "no route to host")]).await;
    let id = house.json("/api/v1/messages?limit=1").await["items"][0]["group"].as_i64().unwrap();
    house.access.add_user("olga", "correct horse battery", Role::Operator, OwnerScope::All).await.unwrap();
    let cookie = format!("lazaret={}", house.access.sign_in("olga", "correct horse battery", None).await.unwrap().unwrap());
    let (own, group) = (format!("dlq-{}", dlq.id), format!("group-{id}"));

    let mut listener = Listener::open(&state, &seen(&state), bearer()).await;
    let done = house.post(&format!("/groups/{id}/status"), "version=0&status=known&owner=wallet+team", &cookie).await;
    assert_eq!(done.status, StatusCode::SEE_OTHER, "{}", done.text());
    assert_eq!(listener.hints(3).await, [own, "dlqs".to_owned(), group.clone()], "the DLQ's page shows the status, too");
    let done = house.post(&format!("/groups/{id}/notes"), "form_id=0123456789abcdef&note=asked+the+wallet+team", &cookie).await;
    assert_eq!(done.status, StatusCode::SEE_OTHER, "{}", done.text());
    assert_eq!(listener.hints(1).await, [group], "a note is no change of the DLQ");
    house.sample(&dlq, 0, None).await;
    assert_eq!(listener.hints(2).await, [format!("dlq-{}", dlq.id), "dlqs".to_owned()], "nor was there more of the note");
}

#[tokio::test]
async fn a_name_comes_once_in_a_while_however_much_happens() {
    let (store, _folder) = sqlite().await;
    let house = House::new(store).await;
    let state = quick(&house);
    let mut listener = Listener::open(&state, &seen(&state), bearer()).await;
    let (mut beats, mut names) = (0, Vec::new());
    // One round of hints, and those of the next: it is counted in beats, of which some eight go by between two rounds.
    while beats < 24 {
        house.store.changed(&[Hint::Dlq(7), Hint::Dlq(8)]);
        match listener.next().await.unwrap().as_str() {
            "beat" => beats += 1,
            name => names.push(name.to_owned()),
        }
    }
    let times = |wanted: &str| names.iter().filter(|name| *name == wanted).count();
    for name in ["dlqs", "dlq-7", "dlq-8"] {
        assert!((2..=5).contains(&times(name)), "{name} in 24 beats of 50 ms, once in 400 ms at most: {names:?}");
    }
    house.store.changed(&(0..1_000).map(Hint::Dlq).collect::<Vec<_>>());
    let everything = async { while listener.hints(1).await != ["all"] {} };
    tokio::time::timeout(5 * HINTS, everything).await.expect("more than a reader would want to hear one by one");
}

#[tokio::test]
async fn a_page_learns_what_happened_before_its_stream_was_open() {
    let (store, _folder) = sqlite().await;
    let house = House::new(store).await;
    house.dlq(TOPIC).await;
    let state = quick(&house);
    let events = attributes(&house.page("/").await, "body", "data-events");
    let mut quiet = Listener::open(&state, &events[0], bearer()).await;
    assert_eq!([quiet.next().await, quiet.next().await], [Some("beat".to_owned()), Some("beat".to_owned())], "nothing happened");
    house.dlq("orders.DLQ").await;
    let mut late = Listener::open(&state, &events[0], bearer()).await;
    assert_eq!(late.hints(1).await, ["all"]);
    assert_eq!(house.get("/events?since=1").await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn it_ends_with_the_session_and_with_the_process() {
    let (store, _folder) = sqlite().await;
    let house = House::new(store).await;
    house.access.add_user("ana", "correct horse battery", Role::Viewer, OwnerScope::All).await.unwrap();
    let cookie = house.access.sign_in("ana", "correct horse battery", None).await.unwrap().unwrap();
    let state = quick(&house).with_stop(Default::default());
    let mut hers = Listener::open(&state, "/events", (header::COOKIE, format!("lazaret={cookie}"))).await;
    let mut tokens = Listener::open(&state, "/events", bearer()).await;
    assert_eq!(hers.next().await.as_deref(), Some("beat"));
    house.access.sign_out(&cookie, None).await.unwrap();
    assert_eq!(hers.hints(1).await, ["signed-out"]);
    assert_eq!(hers.next().await, None);
    for _ in 0..4 {
        assert_eq!(tokens.next().await.as_deref(), Some("beat"), "another's session is another's");
    }
    state.live.stop.cancel();
    while let Some(name) = tokens.next().await {
        assert_eq!(name, "beat");
    }
}

#[tokio::test]
async fn places_are_counted_and_given_back() {
    let (store, _folder) = sqlite().await;
    let house = House::new(store).await;
    let mut state = quick(&house);
    state.live.places = Arc::new(Places::new(1, 1));
    let first = Listener::open(&state, "/events", bearer()).await;
    let refused = refused(&state, bearer()).await;
    assert!(refused.contains("viewer keeps 1 pages live already"), "{refused}");
    drop(first);
    Listener::open(&state, "/events", bearer()).await;
}

#[tokio::test]
async fn nobody_takes_the_places_of_all_others() {
    let (store, _folder) = sqlite().await;
    let house = House::new(store).await;
    house.access.add_user("ana", "correct horse battery", Role::Viewer, OwnerScope::All).await.unwrap();
    let session = house.access.sign_in("ana", "correct horse battery", None).await.unwrap().unwrap();
    let ana = || (header::COOKIE, format!("lazaret={session}"));
    let state = quick(&house);
    let mut hers = Vec::new();
    for _ in 0..20 {
        hers.push(Listener::open(&state, "/events", ana()).await);
    }
    assert!(refused(&state, ana()).await.contains("ana keeps 20 pages live already"));
    let other = Listener::open(&state, "/events", bearer()).await;
    drop(hers.pop());
    hers.push(Listener::open(&state, "/events", ana()).await);

    let mut state = quick(&house);
    state.live.places = Arc::new(Places::new(2, 2));
    let both = (Listener::open(&state, "/events", bearer()).await, Listener::open(&state, "/events", ana()).await);
    assert!(refused(&state, ana()).await.contains("Too many pages are kept live"), "of all together");
    drop((both, other));
}

/// What is said to a reader for whom there is no place.
async fn refused(state: &AppState, who: (header::HeaderName, String)) -> String {
    let request = Request::get("/events").header(who.0, who.1).body(Body::empty()).unwrap();
    let refused = answer(router(state.clone()), request).await;
    assert_eq!((refused.status, refused.header(header::RETRY_AFTER)), (StatusCode::SERVICE_UNAVAILABLE, "30"));
    refused.text()
}

#[tokio::test]
async fn nobody_listens_without_signing_in() {
    let (store, _folder) = sqlite().await;
    let house = House::new(store).await;
    assert_eq!(house.anonymous("GET", "/events").await.header(header::LOCATION), "/sign-in?next=%2Fevents");
    let request = Request::get("/").header("hx-request", "true").header("hx-current-url", "http://127.0.0.1:8080/messages?q=a");
    let answer = house.send(request.body(Body::empty()).unwrap()).await;
    assert_eq!(answer.header("hx-redirect"), "/sign-in?next=%2Fmessages%3Fq%3Da", "a part that is fetched leads back to its page");
}

/// Two instances on one PostgreSQL; the listener's connection is cut, as a restart of the server or a firewall would.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real PostgreSQL: run tests/run"]
async fn another_instance_tells_too_and_a_lost_listener_says_all() {
    let url = postgres_url().await;
    let (one, other) = (Store::connect(&url).await.unwrap(), Store::connect(&url).await.unwrap());
    one.migrate().await.unwrap();
    let house = House::new(one.clone()).await;
    let access = Access::new(other.clone(), house.clock.clone(), 12);
    let mut state = AppState::new(other.clone(), access, house.clock.clone(), house.options.clone()).unwrap();
    state.live.pace = Pace { beat: BEAT, hints: HINTS, session: Duration::from_secs(30) };
    let mut listener = Listener::open(&state, &seen(&state), bearer()).await;
    let relays = async {
        tokio::join!(again_and_again(&one), again_and_again(&other));
    };
    let journey = async {
        assert_eq!(listener.hints(1).await, ["all"], "from here on it listens");
        let dlq = house.take_in(TOPIC, vec![record(TOPIC, 0, NOW_MS, "{}", "no route to host")]).await;
        let own = format!("dlq-{}", dlq.id);
        while listener.hints(1).await != [own.clone()] {}
        cut_listeners(&one).await;
        while listener.hints(1).await != ["all"] {}
        loop {
            house.sample(&dlq, 0, None).await;
            let told = tokio::time::timeout(Duration::from_secs(2), listener.hints(1)).await;
            if told.is_ok_and(|told| told == [own.clone()]) {
                break;
            }
        }
    };
    tokio::select! {
        () = relays => {}
        () = journey => {}
    }
}

/// As the job does.
async fn again_and_again(store: &Store) {
    loop {
        let _ = store.relay_hints().await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn cut_listeners(store: &Store) {
    let Store::Postgres(database) = store else { unreachable!("PostgreSQL is asked for") };
    let cut = "SELECT COUNT(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'";
    let ended: i64 = sqlx::query_scalar(cut).fetch_one(&database.pool).await.unwrap();
    assert_eq!(ended, 2, "each instance has one listener");
}
