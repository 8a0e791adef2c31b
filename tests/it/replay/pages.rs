//! The pages of replays: what they say in each state, to whom they offer what, and that forms keep what was typed.

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use lazaret::domain::access::{OwnerScope, Role};
use lazaret::domain::lifecycle::{Outcome, Proof};
use lazaret::domain::replay::{BatchMove, Expected, ItemState, Progress, Warning};
use lazaret::domain::terms::AlsoReadBy;
use lazaret::store::replay_pages::{ItemCursor, ItemList};
use lazaret::web::routes::ROUTES;
use scraper::Html;

use super::seeded::Seeded;
use crate::on_both_stores;
use crate::web::house::{Answer, HOUR_MS, House, MINUTE_MS, all, attributes, record, text_of};

const TOPIC: &str = "payments.wallet.DLQ";
const PASSWORD: &str = "correct horse battery";

/// Somebody who is signed in.
struct Person<'a> {
    house: &'a House,
    cookie: String,
}

impl<'a> Person<'a> {
    async fn new(house: &'a House, name: &str, role: Role, owners: OwnerScope) -> Person<'a> {
        house.access.add_user(name, PASSWORD, role, owners).await.unwrap();
        let session = house.access.sign_in(name, PASSWORD, None).await.unwrap().unwrap();
        Person { house, cookie: format!("lazaret={session}") }
    }

    async fn get(&self, path: &str) -> Answer {
        self.house.send(Request::get(path).header(header::COOKIE, &self.cookie).body(Body::empty()).unwrap()).await
    }

    async fn page(&self, path: &str) -> Html {
        let answer = self.get(path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text());
        answer.page()
    }

    async fn post(&self, path: &str, form: &[(&str, &str)]) -> Answer {
        let encoded = |value: &str| lazaret::api::query::encode(value.as_bytes());
        let form: Vec<String> = form.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        self.house.post(path, &form.join("&"), &self.cookie).await
    }
}

async fn operator<'a>(house: &'a House, name: &str) -> Person<'a> {
    Person::new(house, name, Role::Operator, OwnerScope::All).await
}

async fn approver<'a>(house: &'a House, name: &str) -> Person<'a> {
    Person::new(house, name, Role::Approver, OwnerScope::All).await
}

fn badge(page: &Html) -> String {
    text_of(page, ".head .st")
}

fn lede(page: &Html) -> String {
    text_of(page, "#stands")
}

/// What the buttons on a page are called; the ways to them on a narrow screen aside.
fn buttons(page: &Html) -> Vec<String> {
    all(page, "main :not(.jump) > .btn")
}

/// Everything that the worked example forecasts: 12 applied, 3 that do not fit, 185 to be sent.
const WORKED: [(Expected, i64); 2] = [(Expected::AlreadyApplied, 12), (Expected::Incompatible, 3)];

on_both_stores! {
    async fn the_list_shows_each_state_and_narrows_by_state_and_dlq(store: Store) {
        let house = House::new(store).await;
        let empty = house.page("/replays").await;
        assert!(text_of(&empty, ".empty").starts_with("No replay yet."));
        assert_eq!(text_of(&empty, "nav.main a[aria-current]"), "Replays");

        let draft = Seeded::frozen(&house, TOPIC, 3, "ana", |_| ()).await;
        let halted = Seeded::frozen(&house, "orders.DLQ", 2, "ana", |_| ()).await;
        halted.preflighted(&[], &[], 1).await;
        halted.moved(BatchMove::Submit, None).await;
        halted.approved_by("ben", None).await;
        halted.moved(BatchMove::Start, None).await;
        halted.moved(BatchMove::Halt, Some("3 of 40 sent came back")).await;
        let page = house.page("/replays").await;
        assert_eq!(all(&page, "tbody .st"), ["Halted", "Being checked"]);
        assert_eq!(all(&page, "tbody a.name[href^='/replays/']"), [
            format!("Replay {}: 2 messages", halted.id),
            format!("Replay {}: 3 messages", draft.id)
        ]);
        assert!(all(&page, "td[data-l=Counts]")[1].contains("0 of 3 checked"), "{:?}", all(&page, "td[data-l=Counts]"));

        let page = house.page("/replays?state=halted").await;
        assert_eq!(all(&page, "tbody .st"), ["Halted"]);
        let page = house.page(&format!("/replays?cluster=main&topic={TOPIC}")).await;
        assert_eq!(all(&page, "tbody .st"), ["Being checked"]);
        assert_eq!(attributes(&page, ".chips a[href='/replays?cluster=main']", "aria-label"), [format!("Remove DLQ {TOPIC}")]);
        let page = house.page("/replays?state=verified").await;
        assert!(text_of(&page, ".empty").starts_with("No replay matches this filter."));
        assert_eq!(house.get("/replays?state=lost").await.status, StatusCode::BAD_REQUEST);
        assert_eq!(house.get("/replays/99").await.status, StatusCode::NOT_FOUND);
    }

    async fn a_draft_shows_how_far_it_is_and_then_the_exact_forecast(store: Store) {
        let house = House::new(store).await;
        let ana = operator(&house, "ana").await;
        let seeded = Seeded::frozen(&house, TOPIC, 200, "ana", |_| ()).await;
        let path = format!("/replays/{}", seeded.id);
        seeded.counted(Progress { checked: 120, ..Progress::default() }).await;
        let page = ana.page(&path).await;
        assert_eq!(badge(&page), "Being checked");
        assert_eq!((attributes(&page, "progress", "value"), attributes(&page, "progress", "max")), (vec!["120".into()], vec!["200".into()]));
        assert!(text_of(&page, ".goes-on").starts_with("120 of 200 messages checked, 0.1/s since the start"), "{}", text_of(&page, ".goes-on"));
        assert_eq!(buttons(&page), ["Drop this draft"]);

        seeded.counted(Progress { checked: -120, ..Progress::default() }).await;
        let active = Warning::CauseActive { arrivals: 4 };
        seeded.preflighted(&WORKED, &[active], 1).await;
        let page = ana.page(&path).await;
        assert_eq!(badge(&page), "Draft");
        let legend = all(&page, ".legend li");
        assert_eq!(legend, ["185will be sent", "12already applied, nothing sent", "3do not fit, archived", "0held for a person"]);
        let label = attributes(&page, "svg.forecast", "aria-label").remove(0);
        assert_eq!(label, "185 will be sent, 12 already applied, nothing sent, 3 do not fit, archived, 0 held for a person");
        assert!(text_of(&page, "#warnings .note").contains("It still fails: 4 new failures of the same kind in the last 15 minutes."));
        assert_eq!(attributes(&page, "input[name=why_now]", "required"), [""]);
        assert_eq!(buttons(&page), ["Submit for approval", "Drop this draft"]);

        // A viewer sees all of it and is offered nothing.
        let page = house.page(&path).await;
        assert_eq!(all(&page, ".legend li").len(), 4);
        assert!(buttons(&page).is_empty());
        assert!(text_of(&page, "aside").contains("Steering a replay needs the role operator; token viewer has the role viewer."));
    }

    async fn what_was_forecast_can_be_listed_with_reasons_page_by_page(store: Store) {
        let house = House::new(store).await;
        let seeded = Seeded::frozen(&house, TOPIC, 200, "ana", |_| ()).await;
        seeded.preflighted(&[(Expected::Incompatible, 70), (Expected::Held, 1)], &[], 1).await;
        let path = format!("/replays/{}", seeded.id);
        let page = house.page(&format!("{path}?items=expect_incompatible")).await;
        assert_eq!(all(&page, "#items tbody tr").len(), 50);
        assert_eq!(all(&page, "#items td[data-l=Why]")[0], "does not fit, will be archived · at /amount_minor: required and missing");
        assert_eq!(text_of(&page, "#items .tile[aria-current]"), "Expected: do not fit 70");
        let next = attributes(&page, "nav.pages[aria-label='Pages of its messages'] a", "href").remove(0);
        let page = house.page(next.split('#').next().unwrap()).await;
        assert_eq!(all(&page, "#items tbody tr").len(), 20);
        assert_eq!(house.get(&format!("{path}?items=all&after=nonsense")).await.status, StatusCode::BAD_REQUEST);
        assert_eq!(house.get(&format!("{path}?items=everything")).await.status, StatusCode::BAD_REQUEST);

        // Each list by the index it walks: what is in it, once, and in order.
        for (list, expected) in [(ItemList::All, 200), (ItemList::State(ItemState::Pending), 200), (ItemList::Forecast(Expected::Held), 1)] {
            let (mut after, mut seen) = (ItemCursor::START, Vec::new());
            loop {
                let page = house.store.items_of_batch(seeded.id, list, after, 17).await.unwrap();
                seen.extend(page.items.iter().map(|item| item.message_id));
                match page.next {
                    Some(next) => after = next,
                    None => break,
                }
            }
            seen.sort_unstable();
            let count = seen.len();
            seen.dedup();
            assert_eq!((seen.len(), count), (expected, expected), "{list:?}");
        }
    }

    /// A record key that repeats a masked field has no hash, and is shown nowhere.
    async fn a_list_of_items_shows_no_masked_key(store: Store) {
        let house = House::new(store).await;
        let value = r#"{"card":{"number":"4111111111111111"},"email":"ana@example.com"}"#;
        let card = lazaret::domain::record::Record { key: Some(b"4111111111111111".to_vec()), ..record("cards.DLQ", 0, house.clock.now_ms() - HOUR_MS, value, "no") };
        let plain = lazaret::domain::record::Record { key: Some(b"plain-key".to_vec()), ..record("cards.DLQ", 1, house.clock.now_ms() - HOUR_MS, value, "no") };
        house.take_in("cards.DLQ", vec![card, plain]).await;
        let seeded = Seeded::frozen(&house, "cards.DLQ", 0, "ana", |_| ()).await;
        seeded.preflighted(&[], &[], 1).await;
        let answer = house.get(&format!("/replays/{}?items=all", seeded.id)).await;
        let text = answer.text();
        assert!(text.contains("plain-key") && text.contains("•••"), "{text}");
        assert!(!text.contains("4111"), "{text}");
    }

    async fn the_review_shows_what_is_agreed_to_and_offers_a_decision_only_to_another(store: Store) {
        let house = House::new(store).await;
        let seeded = Seeded::frozen(&house, TOPIC, 200, "Ana", |_| ()).await;
        let also = Warning::AlsoReadBy { group: "analytics".into(), why: "it has no ledger".into(), items: 185 };
        seeded.preflighted(&WORKED, &[also], 1).await;
        seeded.moved(BatchMove::Submit, None).await;
        let (path, review) = (format!("/replays/{}", seeded.id), format!("/replays/{}/review", seeded.id));
        let digest = seeded.batch().await.digest.unwrap();

        let ben = approver(&house, "ben").await;
        let page = ben.page(&review).await;
        let needs = "Needs an approver for the DLQs of payments: anybody but Ana, who proposed it.";
        assert_eq!(text_of(&page, ".lede"), needs);
        assert_eq!(text_of(&page, "main").matches("Needs an approver").count(), 1);
        assert!(text_of(&page, "#decision").contains("You decide as ben, approver."));
        assert_eq!(text_of(&page, "#samples > .meta"), "5 of 200 messages, the same for everybody who looks.");
        // As it is read and as the Tab key goes: what is agreed to, then the decision, then what is only looked into.
        let order = attributes(&page, "main section[id]", "id");
        assert_eq!(order, ["plan", "warnings", "forecast", "earlier", "decision", "samples"]);
        assert_eq!(all(&page, "#samples .sample").len(), 5);
        assert_eq!(all(&page, "#samples .sample").len(), all(&ben.page(&review).await, "#samples .sample").len());
        assert_eq!(all(&page, "#samples .sample"), all(&ben.page(&review).await, "#samples .sample"), "the same for everybody who looks");
        assert_eq!(all(&page, "#verdicts tbody tr"), [
            "185fits today's schemanot applied yet, as of the look-up",
            "12fits today's schemaalready applied",
            "3does not fitnot applied yet, as of the look-up"
        ]);
        assert_eq!(attributes(&page, "input[name=digest]", "value"), std::slice::from_ref(&digest));
        let tick = "#warnings input[type=checkbox][form=decide]";
        assert_eq!((attributes(&page, tick, "name"), attributes(&page, "#decision form", "id")), (vec!["tick_0".into()], vec!["decide".into()]));
        let plan = text_of(&page, "#plan");
        for words in ["payments.initiated", "6 partitions, read by group wallet", "at most 50/s", "first 10 messages", &digest[..8]] {
            assert!(plan.contains(words), "{words}: {plan}");
        }
        assert_eq!(buttons(&page), ["Approve", "Reject"]);

        // Not by the proposer, in whatever letter case; not outside of one's owners; not by a viewer. All of them see it.
        let ana = approver(&house, "ana").await;
        assert!(text_of(&ana.page(&review).await, "#decision").contains("You proposed it, so somebody else decides."));
        let eve = Person::new(&house, "eve", Role::Approver, OwnerScope::Listed(vec!["risk".into()])).await;
        assert!(text_of(&eve.page(&review).await, "#decision").contains("eve does not act on the DLQs of payments."));
        assert!(text_of(&house.page(&review).await, "#decision").contains("needs the role approver; token viewer has the role viewer"));
        for person in [&ana, &eve] {
            assert_eq!(all(&person.page(&review).await, "input[name=digest]").len(), 0);
        }
        let page = ben.page(&path).await;
        assert_eq!((badge(&page), lede(&page)), ("Awaits approval".into(), needs.into()));
        assert_eq!(attributes(&page, "aside a.btn", "href"), [review]);
    }

    async fn what_is_sent_is_counted_exactly_and_the_next_decision_is_said_in_words(store: Store) {
        let house = House::new(store).await;
        let seeded = Seeded::frozen(&house, TOPIC, 200, "ana", |_| ()).await;
        seeded.preflighted(&WORKED, &[], 1).await;
        seeded.moved(BatchMove::Submit, None).await;
        seeded.approved_by("ben", Some("looks right")).await;
        seeded.moved_at(BatchMove::Start, None, house.clock.now_ms() - 500_000).await;
        seeded.ended(0, 7, "sent", Some((Outcome::Confirmed, Some(Proof::Offset))), None).await;
        seeded.ended(7, 3, "sent", Some((Outcome::Pending, None)), None).await;
        seeded.counted(Progress { sent: 10, confirmed_offset: 7, ..Progress::default() }).await;
        seeded.waits_since(house.clock.now_ms() - 500_000).await;
        let path = format!("/replays/{}", seeded.id);
        let ana = operator(&house, "ana").await;
        let page = ana.page(&path).await;
        assert_eq!(badge(&page), "Sending");
        assert_eq!(lede(&page), "10 sent, 7 proven; it goes on as soon as the rest is proven, next decision in 1m 40s.");
        let figures = all(&page, ".figures dd b");
        assert_eq!(figures, ["10", "0", "7", "0", "3", "0"]);
        assert!(text_of(&page, ".goes-on").starts_with("10 of 200 messages have ended."));
        assert_eq!(buttons(&page), ["Pause", "Slow down", "Stop"]);
        assert!(text_of(&page, "aside").contains("looks right"));
        assert_eq!(text_of(&page, "#log li:first-child .text"), "start");

        // What came in since is not in it, and is said.
        let at = house.clock.now_ms();
        house.take_in(TOPIC, vec![record(TOPIC, 500, at, "{}", "again"), record(TOPIC, 501, at, "{}", "again")]).await;
        let page = ana.page(&path).await;
        assert!(all(&page, ".meta").iter().any(|said| said.starts_with("2 new dead letters wait in this DLQ since it was frozen.")));

        seeded.moved(BatchMove::Pause, Some("the canary was not proven within 10m")).await;
        let page = ana.page(&path).await;
        assert_eq!(badge(&page), "Paused");
        assert!(text_of(&page, ".note").contains("the canary was not proven within 10m."));
        assert_eq!(buttons(&page), ["Go on", "Slow down", "Stop"]);
        // Going on unproven is an approver's.
        assert_eq!(buttons(&approver(&house, "ben").await.page(&path).await), ["Go on", "Continue unproven", "Slow down", "Stop"]);

        seeded.moved(BatchMove::Halt, Some("verdicts left the forecast: 200 do not fit instead of 3")).await;
        let page = ana.page(&path).await;
        assert_eq!((badge(&page), lede(&page)), ("Halted".into(), "Halted: nothing more is sent. Going on needs a new approval.".into()));
        assert!(text_of(&page, ".note").contains("200 do not fit instead of 3."));
        assert_eq!(buttons(&page), ["Reopen as a draft", "Stop"]);
    }

    async fn the_end_adds_up_in_words_and_lists_what_needs_a_person(store: Store) {
        let house = House::new(store).await;
        let seeded = Seeded::frozen(&house, TOPIC, 200, "ana", |_| ()).await;
        seeded.preflighted(&WORKED, &[], 1).await;
        seeded.moved(BatchMove::Submit, None).await;
        seeded.approved_by("ben", None).await;
        seeded.moved(BatchMove::Start, None).await;
        seeded.ended(0, 12, "already_applied", None, None).await;
        seeded.ended(12, 3, "archived", None, Some("at /amount_minor: required and missing")).await;
        seeded.ended(15, 184, "sent", Some((Outcome::Confirmed, Some(Proof::Ledger))), None).await;
        seeded.ended(199, 1, "sent", Some((Outcome::Returned, None)), None).await;
        seeded.counted(Progress { sent: 185, already_applied: 12, archived: 3, confirmed_ledger: 185, ..Progress::default() }).await;
        seeded.moved(BatchMove::Finish, None).await;
        seeded.moved(BatchMove::Verify, None).await;
        let path = format!("/replays/{}", seeded.id);
        let page = house.page(&path).await;
        assert_eq!(badge(&page), "Verified");
        assert_eq!(attributes(&page, ".head .st", "class"), ["st healthy"]);
        assert_eq!(lede(&page), "12 already applied + 3 archived + 185 sent = 200 messages.");
        assert!(text_of(&page, "section[aria-label='How it stands']").contains("Of 185 sent: 185 applied (ledger)."));
        let page = house.page(&format!("{path}?items=archived")).await;
        assert_eq!(all(&page, "#items td[data-l=Why]"), ["at /amount_minor: required and missing"; 3]);

        // A return that comes late is no green any more.
        seeded.counted(Progress { confirmed_ledger: -1, returned: 1, ..Progress::default() }).await;
        let page = house.page(&format!("{path}?items=returned")).await;
        assert_eq!(attributes(&page, ".head .st", "class"), ["st warning"]);
        assert_eq!(all(&page, "#items tbody .st"), ["Returned"]);
        assert!(buttons(&page).is_empty());
    }

    async fn what_was_weighed_is_told_as_of_then_once_it_is_decided(store: Store) {
        let house = House::new(store).await;
        let warnings = [
            Warning::CauseActive { arrivals: 4 },
            Warning::AlsoReadBy { group: "analytics".into(), why: "it has no ledger".into(), items: 3 },
        ];
        let rejected = Seeded::frozen(&house, TOPIC, 3, "ana", |_| ()).await;
        let verified = Seeded::frozen(&house, "orders.DLQ", 3, "ana", |_| ()).await;
        for seeded in [&rejected, &verified] {
            seeded.preflighted(&[], &warnings, 1).await;
            let page = house.page(&format!("/replays/{}", seeded.id)).await;
            assert_eq!(all(&page, "#warnings h2"), ["What to weigh"]);
            assert!(text_of(&page, "#warnings").contains("What is sent now will likely come back."));
            assert!(all(&page, "h2").contains(&"What will happen".to_owned()));
            seeded.moved(BatchMove::Submit, None).await;
        }
        rejected.moved(BatchMove::Reject, Some("the cause is not mended")).await;
        verified.approved_by("ben", None).await;
        for movement in [BatchMove::Start, BatchMove::Finish, BatchMove::Verify] {
            verified.moved(movement, None).await;
        }
        for (seeded, accepted) in [(&rejected, false), (&verified, true)] {
            for page in [format!("/replays/{}", seeded.id), format!("/replays/{}/review", seeded.id)] {
                let page = house.page(&page).await;
                let said = text_of(&page, "#warnings");
                assert!(said.starts_with("What was weighed"), "{said}");
                assert!(said.contains("It still failed then: 4 new failures of the same kind in the 15 minutes before."), "{said}");
                assert!(!said.contains("will") && !said.contains("I accept"), "{said}");
                assert_eq!(said.contains("Who approved it accepted that they may get there twice."), accepted, "{said}");
                assert!(all(&page, "h2").contains(&"What was forecast".to_owned()));
                assert_eq!(all(&page, ".legend li")[0], "3to be sent");
            }
        }
    }

    async fn as_many_different_messages_are_picked_as_are_promised(store: Store) {
        let house = House::new(store).await;
        // Few messages, so that places drawn at random often lead to the same one.
        for (n, count) in [5_i64, 6, 6, 7, 7, 8, 9, 3, 1].into_iter().enumerate() {
            let seeded = Seeded::frozen(&house, &format!("{n}.DLQ"), count, "ana", |_| ()).await;
            seeded.preflighted(&[], &[], 1).await;
            for round in 1..=4 {
                let page = house.page(&format!("/replays/{}/review?samples={round}", seeded.id)).await;
                let links = attributes(&page, "#samples .sample > p > a", "href");
                let different: std::collections::BTreeSet<&String> = links.iter().collect();
                assert_eq!((links.len(), different.len()), (count.min(5) as usize, count.min(5) as usize), "of {count}, round {round}");
                let said = text_of(&page, "#samples > .meta");
                match count {
                    1 => assert_eq!(said, "All 1 message."),
                    ..=5 => assert_eq!(said, format!("All {count} messages.")),
                    _ => assert_eq!(said, format!("5 of {count} messages, the same for everybody who looks.")),
                }
                assert_eq!(all(&page, "#samples a").contains(&"Others".to_owned()), count > 5);
            }
        }
    }

    async fn what_was_typed_into_a_refused_form_is_seen_where_it_was_typed(store: Store) {
        let house = House::new(store).await;
        let seeded = Seeded::frozen(&house, TOPIC, 20, "ana", |_| ()).await;
        seeded.preflighted(&[], &[], 1).await;
        let (path, ben) = (format!("/replays/{}", seeded.id), approver(&house, "ben").await);
        let value = |page: &Html, form: &str, name: &str| attributes(page, &format!("{form} input[name={name}]"), "value").remove(0);
        let long = "x".repeat(2_500);
        let stop = ben.post(&format!("{path}/stop"), &[("reason", &long)]).await;
        assert_eq!(stop.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", stop.text());
        assert_eq!(value(&stop.page(), "#stop", "reason"), long);
        seeded.moved(BatchMove::Submit, None).await;
        seeded.approved_by("cem", None).await;
        seeded.moved(BatchMove::Start, None).await;
        seeded.moved(BatchMove::Pause, None).await;
        let fast = ben.post(&format!("{path}/slow-down"), &[("max_per_second", "many")]).await;
        assert_eq!(fast.status, StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!((value(&fast.page(), "#slow[open]", "max_per_second"), all(&fast.page(), "#unproven[open]").len()), ("many".into(), 0));
        let unproven = ben.post(&format!("{path}/resume"), &[("unproven", &long)]).await;
        assert_eq!(unproven.status, StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(value(&unproven.page(), "#unproven[open]", "unproven"), long);
        // What is wrong stays on the page when the rest of it is looked at again.
        assert_eq!(all(&unproven.page(), "#replay .fault").len(), 0);
        assert_eq!(all(&unproven.page(), "main > .fault").len(), 1);
    }

    async fn an_emergency_replay_is_loud_and_reviewed_by_a_second_person(store: Store) {
        let house = House::new(store).await;
        let seeded = Seeded::frozen(&house, TOPIC, 3, "ben", |new| {
            new.emergency = true;
            new.incident = Some("INC-2291".into());
        })
        .await;
        seeded.preflighted(&[], &[], 1).await;
        seeded.moved(BatchMove::Submit, None).await;
        let (path, ben) = (format!("/replays/{}", seeded.id), approver(&house, "ben").await);
        let page = ben.page(&format!("{path}/review")).await;
        assert_eq!(all(&page, ".head .st"), ["Awaits approval", "Emergency replay"]);
        assert!(text_of(&page, ".lede").ends_with("Of an emergency replay that may be ben, who proposed it."), "{}", text_of(&page, ".lede"));
        let digest = attributes(&page, "input[name=digest]", "value").remove(0);
        let answer = ben.post(&format!("{path}/approve"), &[("digest", &digest), ("password", "not the password"), ("comment", "so it is")]).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
        assert!(text_of(&answer.page(), ".fault").starts_with("That is not the password of who is signed in."));
        assert_eq!(text_of(&answer.page(), "textarea[name=comment]"), "so it is");
        assert!(!answer.text().contains("not the password\""), "what was typed as a password does not come back");

        seeded.approved_by("ben", None).await;
        assert_eq!(all(&ben.page(&path).await, "#emergency input").len(), 0, "not by who approved it");
        let cem = approver(&house, "cem").await;
        let page = cem.page(&path).await;
        assert!(text_of(&page, "#emergency").contains("A second person must look at it by 2026-12-01 13:52:11 UTC (in 23 h)."));
        let answer = cem.post(&format!("{path}/reviewed"), &[("comment", " ")]).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", answer.text());
        assert_eq!(cem.post(&format!("{path}/reviewed"), &[("comment", "all three were right")]).await.status, StatusCode::SEE_OTHER);
        let page = cem.page(&path).await;
        assert!(text_of(&page, ".note").contains("Reviewed afterwards by cem"), "{}", text_of(&page, ".note"));
        assert_eq!(all(&page, "#emergency").len(), 0);
    }

    async fn of_two_who_decide_the_second_is_told_who_was_first(store: Store) {
        let house = House::new(store).await;
        let first = Seeded::frozen(&house, TOPIC, 3, "ana", |_| ()).await;
        first.preflighted(&[], &[], 1).await;
        first.moved(BatchMove::Submit, None).await;
        let (ben, cem) = (approver(&house, "ben").await, approver(&house, "cem").await);
        let review = format!("/replays/{}/review", first.id);
        let digest = attributes(&cem.page(&review).await, "input[name=digest]", "value").remove(0);
        let reject = format!("/replays/{}/reject", first.id);
        let answer = ben.post(&reject, &[("digest", &digest), ("comment", "")]).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "a rejection says why");
        assert!(text_of(&answer.page(), ".fault").starts_with("Reason"), "{}", text_of(&answer.page(), ".fault"));
        let answer = ben.post(&reject, &[("digest", &digest), ("comment", "the cause is not mended")]).await;
        assert_eq!((answer.status, answer.header(header::LOCATION)), (StatusCode::SEE_OTHER, format!("/replays/{}", first.id).as_str()));
        let answer = cem.post(&format!("/replays/{}/approve", first.id), &[("digest", &digest), ("comment", "fine by me")]).await;
        assert_eq!(answer.status, StatusCode::CONFLICT, "{}", answer.text());
        let page = answer.page();
        assert!(text_of(&page, ".fault").contains("ben"), "{}", text_of(&page, ".fault"));
        assert_eq!(badge(&page), "Rejected");
        assert_eq!(all(&page, "input[name=digest]").len(), 0);

        // What came of it stands on the next review of this failure.
        let second = Seeded::frozen(&house, TOPIC, 3, "ana", |_| ()).await;
        second.preflighted(&[], &[], 1).await;
        second.moved(BatchMove::Submit, None).await;
        let page = ben.page(&format!("/replays/{}/review", second.id)).await;
        let earlier = text_of(&page, "#earlier li");
        assert!(earlier.starts_with(&format!("Replay {}, rejected", first.id)) && earlier.contains("nothing was sent"), "{earlier}");
    }

    async fn live_replays_show_where_their_dlq_does(store: Store) {
        let house = House::new(store).await;
        let seeded = Seeded::frozen(&house, TOPIC, 2, "ana", |_| ()).await;
        let link = format!("a[href='/replays/{}']", seeded.id);
        assert_eq!(all(&house.page("/").await, &link), [format!("replay {}, draft", seeded.id)]);
        let dlq = house.page(&format!("/dlqs/main/{TOPIC}")).await;
        assert_eq!(all(&dlq, &format!("#open-replays {link}")), [format!("replay {}, draft", seeded.id)]);
        seeded.moved(BatchMove::Stop, None).await;
        assert!(all(&house.page("/").await, &link).is_empty());
        assert!(all(&house.page(&format!("/dlqs/main/{TOPIC}")).await, "#open-replays").is_empty());
    }

    async fn a_replay_begins_where_its_messages_are(store: Store) {
        let house = House::new(store).await;
        let at = house.clock.now_ms() - HOUR_MS;
        house.take_in(TOPIC, (0..60).map(|n| record(TOPIC, n, at + n * MINUTE_MS / 2, "{}", "timed out")).collect()).await;
        house.take_in("orders.DLQ", vec![record("orders.DLQ", 0, at, "{}", "timed out")]).await;
        let group = house.json(&format!("/api/v1/messages?topic={TOPIC}&limit=1")).await["items"][0]["group"].as_i64().unwrap();
        let new = format!("/replays/new?cluster=main&topic={TOPIC}");
        let links = |page: &Html| attributes(page, "main a[href^='/replays/new']", "href");
        assert_eq!(links(&house.page(&format!("/dlqs/main/{TOPIC}?state=quarantined")).await), [new.clone(), format!("{new}&state=quarantined")]);
        assert_eq!(links(&house.page(&format!("/groups/{group}")).await), [format!("{new}&group={group}")]);
        assert_eq!(links(&house.page(&format!("/messages?topic={TOPIC}&class=transient")).await), [format!("{new}&class=transient")]);
        assert!(links(&house.page("/messages?class=transient").await).is_empty(), "a replay is of one DLQ");

        let ana = operator(&house, "ana").await;
        let page = ana.page(&format!("{new}&state=quarantined")).await;
        let labels = all(&page, "#f-scope .choice");
        assert_eq!(labels, ["All 60 that match, as of 14:02:11 UTC", "The 50 on this page"]);
        assert_eq!(attributes(&page, "input[name=filter]", "value"), ["state=quarantined"]);
        assert_eq!(attributes(&page, "input[name=page_ids]", "value")[0].split(',').count(), 50);
        assert_eq!(all(&page, "select[name=target] option"), ["where they came from: payments.initiated"]);
        assert_eq!(buttons(&page), ["Try it on the newest messages", "Freeze and check"]);
        assert_eq!(all(&page, "#f-waivers pre")[1], "[dlq.idempotency] ledger = \"name of a [ledgers.NAME]\" key = \"{value:/payment_id}\"");

        let page = ana.page(&format!("{new}&ids=1,2,9999")).await;
        assert!(text_of(&page, "#f-scope").contains("2 messages, chosen one by one."));
        let page = ana.page(&format!("{new}&state=archived")).await;
        assert!(text_of(&page, "#f-scope .empty").starts_with("Archived messages are not replayed: restore them first"));
        assert_eq!(buttons(&page), ["Try it on the newest messages"]);
        let page = ana.page("/replays/new").await;
        assert_eq!(all(&page, "select[name=topic] option"), ["Choose a DLQ", "orders.DLQ", TOPIC]);
        assert_eq!(ana.get("/replays/new?cluster=main&topic=no.such").await.status, StatusCode::NOT_FOUND);
        assert_eq!(ana.get(&format!("{new}&colour=red")).await.status, StatusCode::BAD_REQUEST);
        assert_eq!(ana.get(&format!("{new}&ids=a")).await.status, StatusCode::BAD_REQUEST);
        let page = house.page(&new).await;
        assert!(text_of(&page, "main").contains("Proposing a replay needs the role operator; token viewer has the role viewer."));
        assert!(!buttons(&page).contains(&"Freeze and check".to_owned()));
    }

    async fn a_form_that_does_not_do_comes_back_as_it_was_typed(store: Store) {
        let mut house = House::new(store).await;
        house.terms[1].also_read_by = vec![AlsoReadBy { group: "analytics".into(), ledger: None }];
        let at = house.clock.now_ms() - HOUR_MS;
        house.terms[1].emergency_replay = true;
        house.take_in(TOPIC, (0..4).map(|n| record(TOPIC, n, at, "{}", "timed out")).collect()).await;
        let ana = approver(&house, "ana").await;
        let listed = house.json(&format!("/api/v1/messages?topic={TOPIC}")).await["items"].clone();
        // Not the newest: the page was one further back.
        let shown = [3, 2].map(|n: usize| listed[n]["id"].to_string()).join(",");
        let form = |reason: &'static str, canary: &'static str| {
            vec![
                ("cluster", "main"),
                ("topic", TOPIC),
                ("filter", "class=transient"),
                ("form_id", "0123456789abcdef"),
                ("target", "origin"),
                ("max_per_second", "7"),
                ("canary", canary),
                ("stop_on_returned_pct", "9"),
                ("transform", ".a\r\n| .b"),
                ("reason", reason),
                ("waive_idempotency_not_configured", "1"),
                ("waiver_reason", "seen <by> hand"),
                ("scope", "page"),
                ("page_ids", shown.as_str()),
                ("emergency", "1"),
                ("incident", "INC-2291"),
            ]
        };
        let faults = [
            (form("back since 13:40", "ten"), "First send only: a whole number is needed, not \"ten\"."),
            // The service's own word.
            (form("back since 13:40", "3"), "Cluster: nothing can be sent to the cluster \"main\" from here"),
        ];
        for (form, said) in faults {
            let answer = ana.post("/replays", &form).await;
            assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", answer.text());
            let page = answer.page();
            assert!(text_of(&page, ".fault").starts_with(said), "{}", text_of(&page, ".fault"));
            let value = |name: &str| attributes(&page, &format!("[name={name}]"), "value").remove(0);
            assert_eq!(
                (value("max_per_second"), value("stop_on_returned_pct"), value("waiver_reason"), value("reason")),
                ("7".into(), "9".into(), "seen <by> hand".into(), "back since 13:40".into())
            );
            assert_eq!(value("filter"), "class=transient");
            assert_eq!((value("page_ids"), attributes(&page, "[name=scope][checked]", "value")), (shown.clone(), vec!["page".into()]));
            assert_eq!(all(&page, "#f-scope .choice")[1], "The 2 on this page");
            assert_eq!((attributes(&page, "[name=emergency]", "checked"), value("incident")), (vec![String::new()], "INC-2291".into()));
            assert_eq!(text_of(&page, "textarea[name=transform]"), ".a | .b");
            assert_eq!(attributes(&page, "[name=waive_idempotency_not_configured]", "checked"), [""]);
            let marked = if said.starts_with("First") { vec!["canary".to_owned()] } else { vec![] };
            assert_eq!(attributes(&page, "[aria-invalid]", "name"), marked);
            assert!(text_of(&page, "main").contains("analytics"));
        }
        // Somebody else's DLQ is refused whatever the form says.
        let eve = Person::new(&house, "eve", Role::Operator, OwnerScope::Listed(vec!["risk".into()])).await;
        assert_eq!(eve.post("/replays", &form("x", "3")).await.status, StatusCode::FORBIDDEN);
    }

    async fn a_transform_is_tried_without_showing_what_is_masked(store: Store) {
        let house = House::new(store).await;
        let value = r#"{"id":9007199254740993,"amount":12.50,"card":{"number":"4111111111111111"}}"#;
        house.take_in("cards.DLQ", vec![record("cards.DLQ", 0, house.clock.now_ms(), value, "does not fit")]).await;
        let ana = operator(&house, "ana").await;
        let tried = |filter: &str| {
            let filter = lazaret::api::query::encode(filter.as_bytes());
            format!("/replays/new?cluster=main&topic=cards.DLQ&preview=1&transform={filter}")
        };
        let page = ana.page(&tried(".amount_minor = 1250 | del(.amount) | .leak = .card.number")).await;
        assert_eq!(all(&page, ".diff del")[0], "- \"amount\": 12.50,");
        let new = all(&page, ".diff ins");
        assert!(new.contains(&"+ \"amount_minor\": 1250,".to_owned()) && new.contains(&"+ \"leak\": \"•••\"".to_owned()), "{new:?}");
        assert!(!page.html().contains("4111"), "a masked field");
        assert!(page.html().contains("9007199254740993"));

        let page = ana.page(&tried(".[")).await;
        assert!(text_of(&page, ".fault").starts_with("The transform is no jq filter: line 1"), "{}", text_of(&page, ".fault"));
        let page = ana.page(&tried("error(\"no <b>way</b>\")")).await;
        assert!(text_of(&page, ".sample").contains("The transform fails on it:"));
        let page = ana.page(&tried("def f: f; f")).await;
        assert!(text_of(&page, ".sample").contains("The transform fails on it:"), "{}", text_of(&page, ".sample"));
    }

    async fn no_viewer_changes_anything_about_a_replay(store: Store) {
        let house = House::new(store).await;
        let seeded = Seeded::frozen(&house, TOPIC, 2, "ana", |_| ()).await;
        seeded.preflighted(&[], &[], 1).await;
        let vera = Person::new(&house, "vera", Role::Viewer, OwnerScope::All).await;
        let before = seeded.batch().await;
        let posts = ROUTES.iter().filter(|route| route.method == "POST" && route.path.starts_with("/replays"));
        let mut walked = 0;
        for route in posts {
            let path = route.path.replace("{id}", &seeded.id.to_string());
            let answer = vera.post(&path, &[("reason", "x"), ("comment", "x")]).await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
            assert!(answer.text().contains("vera has the role viewer"), "{path}: {}", answer.text());
            walked += 1;
        }
        assert!(walked >= 9, "{walked} routes");
        assert_eq!(seeded.batch().await, before);
        // An operator does not decide.
        let otto = operator(&house, "otto").await;
        for path in ["approve", "reject"] {
            let answer = otto.post(&format!("/replays/{}/{path}", seeded.id), &[("comment", "x")]).await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
        }
    }

    async fn hostile_texts_stay_inert_on_the_pages_of_a_replay(store: Store) {
        let house = House::new(store).await;
        let evil = "<script>alert(1)</script>\u{202e}gnp\u{0}";
        let seeded = Seeded::frozen(&house, TOPIC, 2, "ana", |new| {
            new.reason = evil.into();
            new.why_now = Some(evil.into());
            new.plan.transform = Some(format!(".a\n# {evil}"));
        })
        .await;
        let warnings = [
            Warning::NewerOfKey { keys: vec![evil.into()], count: 3 },
            Warning::CannotConfirm { why: evil.into() },
            Warning::AlsoReadBy { group: evil.into(), why: evil.into(), items: 2 },
        ];
        seeded.preflighted(&[(Expected::Incompatible, 1)], &warnings, 1).await;
        seeded.moved(BatchMove::Submit, Some(evil)).await;
        for path in ["/replays".to_owned(), format!("/replays/{}?items=all", seeded.id), format!("/replays/{}/review", seeded.id)] {
            let html = house.get(&path).await.text();
            assert!(!html.contains("<script>alert") && !html.contains('\u{202e}') && !html.contains('\0'), "{path}");
            assert!(html.contains("&#60;script&#62;alert(1)"), "{path}");
        }
    }
}
