//! `/settings` and the set-up checklist: what is connected, what is missing, who may.

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use lazaret::domain::access::{OwnerScope, Role};
use lazaret::domain::readiness::Checks;
use lazaret::domain::settings::{ClusterSettings, Secret};
use lazaret::services::checkup::ClusterTests;
use lazaret::services::intake::ClusterStatus;
use lazaret::web::{AppState, Configured, ConfiguredCluster, ConfiguredPart, router};

use super::house::{Answer, HOUR_MS, House, NOW_MS, all, answer, attributes, record, text_of};
use crate::on_both_stores;
use lazaret::store::Store;

const PASSWORD: &str = "correct horse battery";

/// A house with a cluster that nobody listens for.
async fn house(store: Store) -> House {
    let mut house = House::new(store).await;
    house.options.configured = Configured {
        clusters: vec![ConfiguredCluster {
            name: "main".to_owned(),
            bootstrap_servers: "127.0.0.1:1".to_owned(),
            group_id: "lazaret".to_owned(),
            security: "SASL_SSL, PLAIN".to_owned(),
        }],
        checks: vec![
            Checks::default(),
            Checks { schema: Some("payment".to_owned()), ledger: Some("wallet".to_owned()), names_target: false },
            Checks::default(),
        ],
        ledgers: vec![ConfiguredPart { name: "wallet".to_owned(), kind: "Redis, then SQL".to_owned() }],
        schemas: vec![ConfiguredPart { name: "payment".to_owned(), kind: "JSON Schema, payment.json".to_owned() }],
    };
    house
}

fn cluster() -> ClusterSettings {
    ClusterSettings {
        name: "main".to_owned(),
        bootstrap_servers: "127.0.0.1:1".to_owned(),
        properties: [("sasl.password".to_owned(), Secret::new("hunter2"))].into(),
        oauth_token: None,
        discovery_interval_s: 30,
        sample_interval_s: 15,
        group_id: "lazaret".to_owned(),
    }
}

/// The state that several requests share, as in a running server.
fn state(house: &House, status: &ClusterStatus) -> AppState {
    let tests = ClusterTests::new(vec![cluster()], house.options.dlqs.clone(), house.clock.clone());
    house.state().with_clusters([status.clone()]).with_cluster_tests(tests)
}

async fn cookie(house: &House, name: &str, role: Role) -> String {
    house.access.add_user(name, PASSWORD, role, OwnerScope::All).await.unwrap();
    format!("lazaret={}", house.access.sign_in(name, PASSWORD, None).await.unwrap().expect("the right password"))
}

async fn ask(state: &AppState, method: &str, path: &str, cookie: &str) -> Answer {
    let request = Request::builder().method(method).uri(path).header(header::COOKIE, cookie).header("sec-fetch-site", "same-origin");
    answer(router(state.clone()), request.body(Body::empty()).unwrap()).await
}

on_both_stores! {
    async fn a_viewer_sees_what_is_connected_and_an_admin_tests_it(store: Store) {
        let house = house(store).await;
        let status = ClusterStatus::new("main");
        let state = state(&house, &status);
        let (viewer, admin) = (cookie(&house, "ana", Role::Viewer).await, cookie(&house, "root", Role::Admin).await);
        let page = ask(&state, "GET", "/settings", &viewer).await.page();
        assert_eq!(text_of(&page, "#clusters .st"), "Connecting", "not known is not connected");
        status.disconnected(NOW_MS - HOUR_MS, "127.0.0.1:1: refused".to_owned());
        let page = ask(&state, "GET", "/settings", &viewer).await.page();
        assert_eq!(text_of(&page, "#clusters .st"), "Disconnected");
        let card = text_of(&page, "#clusters article");
        assert!(card.contains("Since 1 h ago (2026-11-30 13:02:11 UTC): 127.0.0.1:1: refused"), "{card}");
        assert!(card.contains("SASL_SSL, PLAIN") && card.contains("DLQs found—"), "{card}");
        assert!(attributes(&page, "#clusters form", "action").is_empty(), "a viewer has no button");
        assert!(text_of(&page, "#users").contains("shown to admins") && !text_of(&page, "#users").contains("root"));

        assert_eq!(ask(&state, "POST", "/settings/clusters/main/test", &viewer).await.status, StatusCode::FORBIDDEN);
        let page = ask(&state, "GET", "/settings", &admin).await.page();
        assert_eq!(attributes(&page, "#clusters form", "action"), ["/settings/clusters/main/test"]);
        let sent = ask(&state, "POST", "/settings/clusters/main/test", &admin).await;
        assert_eq!((sent.status, sent.header(header::LOCATION)), (StatusCode::SEE_OTHER, "/settings#clusters"));
        let answer = ask(&state, "GET", "/settings", &viewer).await;
        let steps = all(&answer.page(), ".steps li");
        assert!(steps[0].starts_with("Passedclient settings"), "{steps:?}");
        assert!(steps[1].starts_with("Failedname and port: 127.0.0.1:1") && steps[1].contains("Check bootstrap_servers, DNS"), "{steps:?}");
        assert!(steps[2].starts_with("Not triedTLS"), "{steps:?}");
        assert!(text_of(&answer.page(), ".test").contains("Test failed: 1 step"));
        assert!(!answer.text().contains("hunter2"));
        assert_eq!(ask(&state, "POST", "/settings/clusters/other/test", &admin).await.status, StatusCode::NOT_FOUND);
    }

    async fn each_dlq_has_a_ladder_that_names_the_missing_lines(store: Store) {
        let house = house(store).await;
        let page = house.page("/settings").await;
        assert!(text_of(&page, "#dlqs .empty").contains("No DLQ has been found yet"));
        house.take_in("payments.wallet.DLQ", vec![record("payments.wallet.DLQ", 0, NOW_MS - 5_000, "{}", "no")]).await;
        let mut plain = record("odd.DLQ", 0, NOW_MS - 5_000, "{}", "no");
        plain.headers.clear();
        house.take_in("odd.DLQ", vec![plain]).await;
        house.dlq("silent.DLQ").await;
        let page = house.page("/settings").await;
        let words = |row: usize| all(&page, &format!("#dlqs tbody tr:nth-child({row}) td"));
        assert_eq!(all(&page, "#dlqs tbody .name"), ["odd.DLQ", "payments.wallet.DLQ", "silent.DLQ"]);
        assert_eq!(words(1), ["Done", "Lines missing", "Lines missing", "Lines missing", "Later version"]);
        assert_eq!(words(2), ["Done", "Done", "Done", "Done", "Later version"]);
        assert_eq!(words(3), ["Done", "No message yet", "No message yet", "Lines missing", "Later version"]);
        let lines = all(&page, "#dlqs tbody tr:nth-child(1) pre").concat();
        assert!(lines.contains("[dlq.custom]") && lines.contains("consumer_group = ") && lines.contains("[dlq.idempotency]"), "{lines}");
        assert!(all(&page, "#dlqs tbody tr:nth-child(2) pre").is_empty(), "nothing is missing there");
        assert!(text_of(&page, "[aria-labelledby=checks-title]").contains("walletLedgerRedis, then SQL"));

        let page = house.page("/settings?dlq=WALLET").await;
        assert_eq!(all(&page, "#dlqs tbody .name"), ["payments.wallet.DLQ"]);
        let page = house.page("/settings?dlq=nothing").await;
        assert!(text_of(&page, "#dlqs .empty").contains("No DLQ matches this filter"));
        assert_eq!(house.get("/settings?colour=red").await.status, StatusCode::BAD_REQUEST);
    }

    async fn the_clusters_keep_themselves_up_to_date_without_the_rest(store: Store) {
        let house = house(store).await;
        house.take_in("payments.wallet.DLQ", vec![record("payments.wallet.DLQ", 0, NOW_MS, "{}", "no")]).await;
        let admin = cookie(&house, "root", Role::Admin).await;
        let page = ask(&house.state(), "GET", "/settings", &admin).await.page();
        assert_eq!((attributes(&page, "[hx-get]", "id"), all(&page, "main > section").len()), (vec!["clusters".to_owned()], 4));
        let request = Request::get("/settings").header(header::COOKIE, &admin).header("hx-request", "true");
        let part = house.send(request.body(Body::empty()).unwrap()).await.page();
        assert_eq!(all(&part, "main > section"), [text_of(&page, "#clusters")]);
    }

    async fn two_hundred_dlqs_and_five_hundred_users_come_in_pages(store: Store) {
        let house = house(store).await;
        for n in 0..60 {
            house.dlq(&format!("topic-{n:03}.DLQ")).await;
        }
        let admin = cookie(&house, "root", Role::Admin).await;
        let mut tx = house.store.begin().await.unwrap();
        for n in 0..120 {
            let (name, role) = (format!("user-{n:03}"), if n == 7 { Role::Approver } else { Role::Viewer });
            lazaret::store::users::add(&mut tx, &name, "no password", role, &OwnerScope::Listed(vec!["risk".into()]), NOW_MS).await.unwrap();
        }
        tx.commit().await.unwrap();
        let status = ClusterStatus::new("main");
        let state = state(&house, &status);
        let (mut dlqs, mut users, mut next) = (Vec::new(), Vec::new(), Some("/settings".to_owned()));
        while let Some(path) = next {
            let page = ask(&state, "GET", path.split('#').next().unwrap(), &admin).await.page();
            dlqs.extend(all(&page, "#dlqs tbody .name"));
            next = attributes(&page, "#dlqs .pages a", "href").into_iter().find(|href| href.contains("dlq_after"));
        }
        assert_eq!((dlqs.len(), dlqs.first().map(String::as_str), dlqs.last().map(String::as_str)), (60, Some("topic-000.DLQ"), Some("topic-059.DLQ")));
        next = Some("/settings".to_owned());
        while let Some(path) = next {
            let page = ask(&state, "GET", path.split('#').next().unwrap(), &admin).await.page();
            users.extend(all(&page, "#users h3 + table:not(#tokens ~ table) .name"));
            next = attributes(&page, "nav[aria-label='Pages of users'] a", "href").into_iter().find(|href| href.contains("user_after"));
        }
        assert_eq!((users.len(), users[0].as_str(), users[120].as_str()), (121, "root", "user-119"));
        let page = ask(&state, "GET", "/settings?who=approver", &admin).await.page();
        assert_eq!(all(&page, "#users h3 + table .name"), ["user-007"]);
    }

    async fn the_checklist_says_what_is_left_from_what_is_there(store: Store) {
        let house = house(store).await;
        let status = ClusterStatus::new("main");
        let state = state(&house, &status);
        let (viewer, admin) = (cookie(&house, "ana", Role::Viewer).await, cookie(&house, "root", Role::Admin).await);
        let refused = ask(&state, "GET", "/setup", &viewer).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN);
        assert!(refused.text().contains("needs the role admin"));
        for (who, links) in [(&viewer, 0), (&admin, 1)] {
            let page = ask(&state, "GET", "/settings", who).await.page();
            assert_eq!(attributes(&page, "main a[href='/setup']", "href").len(), links, "a link to where one may go");
        }
        let page = ask(&state, "GET", "/setup", &admin).await.page();
        assert_eq!(text_of(&page, ".lede"), "3 of 3 steps to do.");
        assert_eq!(all(&page, ".checklist .head .st"), ["To do", "To do", "To do"]);
        assert!(all(&page, ".checklist pre").concat().contains("lazaret user add NAME --role approver"));
        assert!(!all(&page, ".checklist pre").concat().contains("[[dlq]] of main"), "nothing was listed, so nothing is said of it");

        for n in 0..7 {
            house.take_in(&format!("t{n}.DLQ"), vec![record("t", 0, NOW_MS - 5_000, "{}", "no")]).await;
        }
        cookie(&house, "ben", Role::Approver).await;
        let page = ask(&state, "GET", "/setup", &admin).await.page();
        assert_eq!(all(&page, ".checklist .head .st"), ["To do", "Done", "Done"]);
        assert!(all(&page, ".checklist pre").concat().contains("[[dlq]] of main: topics cards.DLQ"), "an entry that covers nothing");
        assert_eq!((all(&page, ".checklist tbody tr").len(), all(&page, ".checklist tbody td.num")[0].as_str()), (5, "1"));
        assert!(text_of(&page, ".checklist").contains("7 DLQs found") && text_of(&page, ".checklist").contains("2 more on the overview"));
        assert!(text_of(&page, ".checklist").contains("ben (approver) can approve what you propose."));
        house.access.disable_user("ben").await.unwrap();
        let page = ask(&state, "GET", "/setup", &admin).await.page();
        assert_eq!(all(&page, ".checklist .head .st"), ["To do", "Done", "To do"], "who is disabled approves nothing");
    }
}
