//! `/replays/{id}/review`: what will happen, who asked, what is the risk?

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use askama::Template;
use askama_web::WebTemplate;
use axum::body::Bytes;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use axum_htmx::HxRequest;
use sha2::{Digest as _, Sha256};

use super::super::access::Client;
use super::super::{Acting, Look, Shell, SignedIn};
use super::batch::{Head, LOOKED_AT, View, awaits, grouped, typed};
use super::samples::{self, Sample};
use super::warnings::{self, WarningLine};
use super::words::{self, EarlierLine, ForecastView, PlanLine, Told};
use super::{Refused, answer, cannot, decider, find, refused};
use crate::api::Failure;
use crate::api::query::Query;
use crate::domain::access::{Role, look_of_name};
use crate::domain::replay::{BatchState, Step};
use crate::store::replay_pages::VerdictCount;
use crate::store::replays::{Approval, Batch};
use crate::web::AppState;
use crate::web::view::diff::DiffLine;
use crate::web::view::{format, text};

/// Messages picked at random to be looked at.
const SAMPLES: u64 = 5;
/// Earlier replays that are named.
const EARLIER: i64 = 5;
/// Others are at hand so many times.
const ROUNDS: u64 = 1_000;
/// So many places are drawn at most; what they do not bring is filled up from the lowest id on.
const DRAWN: u64 = 40;

#[derive(Template, WebTemplate)]
#[template(path = "replays/review.html")]
pub struct ReviewPage {
    shell: Shell,
    url: String,
    head: Head,
    fault: Option<String>,
    told: Told,
    /// Who can decide, or why nothing is to be decided.
    lede: String,
    forecast: Option<ForecastView>,
    checked: Option<String>,
    verdicts: Vec<VerdictLine>,
    verdicts_said: String,
    warnings: Vec<WarningLine>,
    plan: Vec<PlanLine>,
    fingerprint: Option<String>,
    /// None in an answer to a fragment, which does not show them.
    samples: Option<Vec<Sample>>,
    /// "5 of 200 messages."
    samples_said: String,
    /// None: all there are stand here.
    more_samples: Option<String>,
    earlier: Vec<EarlierLine>,
    decision: Decision,
}

/// How many messages got this pair of verdicts.
struct VerdictLine {
    count: String,
    schema: &'static str,
    idempotency: &'static str,
}

/// What the reader can decide.
enum Decision {
    /// Nothing, and why.
    None(String),
    Form(DecisionForm),
}

struct DecisionForm {
    /// An emergency replay is approved by whoever proposed it, with the password once more.
    emergency: bool,
    digest: String,
    comment: String,
    /// The boxes that are ticked already.
    ticked: Vec<String>,
    /// "You decide as petra, approver."
    who: String,
    /// What comes after an approval.
    follows: String,
}

impl DecisionForm {
    fn is_ticked(&self, field: &str) -> bool {
        self.ticked.iter().any(|ticked| ticked == field)
    }
}

/// `GET /replays/{id}/review`.
pub async fn page(
    State(state): State<AppState>,
    SignedIn(principal): SignedIn,
    look: Look,
    HxRequest(is_fragment): HxRequest,
    Path(id): Path<String>,
    RawQuery(raw): RawQuery,
) -> Result<ReviewPage, Failure> {
    let query = Query::parse(raw.as_deref(), &["samples"])?;
    let round = query.integer("samples", 1, ROUNDS)?.unwrap_or(1);
    let batch = find(&state, &id).await?;
    View { state: &state, principal: &principal, look }.review(batch, round, is_fragment, None, &Query::default()).await
}

/// `POST /replays/{id}/approve`.
pub async fn approve(
    State(state): State<AppState>,
    Client(client): Client,
    acting: Acting,
    look: Look,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, Failure> {
    let batch = find(&state, &id).await?;
    let form = form(&batch, &body)?;
    let ticked: Vec<usize> = (0..batch.warnings.len()).filter(|place| form.bytes(&warnings::tick(*place)).is_some()).collect();
    let comment = form.text("comment")?.map(str::trim).filter(|comment| !comment.is_empty());
    let digest = form.text("digest")?.unwrap_or_default();
    let who = decider(&acting);
    let done = match batch.emergency {
        false => state.replays.approve(&who, batch.id, digest, &ticked, comment).await,
        true => match password(&state, &acting, client, form.text("password")?.unwrap_or_default()).await? {
            None => state.replays.approve_emergency(&who, batch.id, digest, &ticked, comment).await,
            Some(refused) => return again(&state, &acting, look, batch.id, &form, refused).await,
        },
    };
    decided(&state, &acting, look, batch.id, &form, done.map(|_| ())).await
}

/// `POST /replays/{id}/reject`.
pub async fn reject(
    State(state): State<AppState>,
    acting: Acting,
    look: Look,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, Failure> {
    let batch = find(&state, &id).await?;
    let form = form(&batch, &body)?;
    let reason = form.text("comment")?.unwrap_or_default().trim().to_owned();
    let done = state.replays.reject(&decider(&acting), batch.id, &reason).await;
    decided(&state, &acting, look, batch.id, &form, done.map(|_| ())).await
}

fn form(batch: &Batch, body: &[u8]) -> Result<Query, Failure> {
    let ticks: Vec<String> = (0..batch.warnings.len()).map(warnings::tick).collect();
    let fields: Vec<&str> = ["digest", "comment", "password"].into_iter().chain(ticks.iter().map(String::as_str)).collect();
    typed(body, &fields)
}

/// To the replay, or the review again with what stood in the way and what was typed.
async fn decided(
    state: &AppState,
    acting: &Acting,
    look: Look,
    id: i64,
    form: &Query,
    done: Result<(), crate::services::replay::ReplayError>,
) -> Result<Response, Failure> {
    match done {
        Ok(()) => Ok(Redirect::to(&format!("/replays/{id}")).into_response()),
        Err(error) => again(state, acting, look, id, form, refused(error)?).await,
    }
}

/// The review again, with what stood in the way and what was typed.
async fn again(state: &AppState, acting: &Acting, look: Look, id: i64, form: &Query, refused: Refused) -> Result<Response, Failure> {
    let view = View { state, principal: &acting.principal, look };
    let page = view.review(find(state, &id.to_string()).await?, 1, false, Some(refused.clone()), form).await?;
    Ok(answer(refused.status, page))
}

/// Why the password is not that of who acts; None: it is.
async fn password(state: &AppState, acting: &Acting, client: Option<IpAddr>, typed: &str) -> Result<Option<Refused>, Failure> {
    let said = match state.sign_ins.attempt(client, &acting.principal.name, state.clock.monotonic()) {
        Err(wait) => format!("Too many attempts. Try again in {} s.", wait.as_secs().max(1)),
        Ok(()) if state.access.reauthenticate(&acting.by, typed).await? => return Ok(None),
        Ok(()) => "That is not the password of who is signed in. Nothing was approved.".to_owned(),
    };
    Ok(Some(Refused { status: StatusCode::UNPROCESSABLE_ENTITY, field: Some("password"), said }))
}

impl View<'_> {
    async fn review(
        &self,
        batch: Batch,
        round: u64,
        is_fragment: bool,
        refused: Option<Refused>,
        form: &Query,
    ) -> Result<ReviewPage, Failure> {
        let (state, now_ms) = (self.state, self.state.clock.now_ms());
        let path = format!("/replays/{}", batch.id);
        let owner = state.owner_of(&batch.cluster, &batch.topic).await?;
        let terms = state.replays.entry(&batch.cluster, &batch.topic).map(|entry| entry.terms);
        let given = state.store.approvals(batch.id).await?;
        let verdicts = state.store.verdict_counts(batch.id, LOOKED_AT).await?;
        let samples = match is_fragment || batch.progress.items == 0 || batch.step == Step::Freezing {
            true => None,
            false => Some(self.samples(&batch, round).await?),
        };
        let lede = match batch.state {
            BatchState::AwaitingApproval => awaits(&batch, owner.as_deref(), given.len()),
            BatchState::Draft => "This is still a draft: there is nothing to decide before it is submitted.".to_owned(),
            state => format!("Decided: this replay is {} now.", words::state_name(state)),
        };
        Ok(ReviewPage {
            shell: Shell::new(state, Some(self.principal), self.look, "replays"),
            url: if round > 1 { format!("{path}/review?samples={round}") } else { format!("{path}/review") },
            fault: refused.map(|refused| refused.said),
            told: Told::of(batch.state),
            lede,
            forecast: batch.forecast.as_ref().map(|forecast| ForecastView::of(forecast, &path, Told::of(batch.state))),
            checked: checked(&batch),
            verdicts_said: looked_at(&verdicts, batch.progress.items),
            verdicts: verdicts.iter().map(VerdictLine::of).collect(),
            warnings: warnings::lines(&batch),
            plan: words::plan(&batch, terms),
            fingerprint: batch.digest.as_deref().map(grouped),
            earlier: self.earlier(&batch, samples.as_deref().unwrap_or_default(), now_ms).await?,
            samples_said: picked_words(samples.as_ref().map_or(0, Vec::len), batch.progress.items),
            samples,
            more_samples: (batch.progress.items > SAMPLES as i64).then(|| format!("{path}/review?samples={}#samples", round % ROUNDS + 1)),
            decision: self.decision(&batch, owner.as_deref(), &given, form)?,
            head: Head::of(&batch, now_ms),
        })
    }

    /// What came of earlier replays of the failures that the samples are of.
    async fn earlier(&self, batch: &Batch, samples: &[Sample], now_ms: i64) -> Result<Vec<EarlierLine>, Failure> {
        let groups: BTreeSet<i64> = samples.iter().map(|sample| sample.group_id).collect();
        let mut found = BTreeMap::new();
        for group in groups {
            let earlier = self.state.store.replays_of_group(group, EARLIER).await?;
            found.extend(earlier.into_iter().filter(|earlier| earlier.id < batch.id).map(|earlier| (earlier.id, earlier)));
        }
        Ok(found.values().rev().take(EARLIER as usize).map(|earlier| EarlierLine::of(earlier, now_ms)).collect())
    }

    fn decision(&self, batch: &Batch, owner: Option<&str>, given: &[Approval], form: &Query) -> Result<Decision, Failure> {
        let Some(digest) = batch.digest.clone().filter(|_| batch.state == BatchState::AwaitingApproval) else {
            return Ok(Decision::None("There is nothing to decide here now.".to_owned()));
        };
        if let Some(why) = cannot(self.principal, Role::Approver, owner, "Deciding about a replay") {
            return Ok(Decision::None(why));
        }
        if look_of_name(&self.principal.name) == batch.proposer_folded && !batch.emergency {
            return Ok(Decision::None("You proposed it, so somebody else decides.".to_owned()));
        }
        let left = i64::from(batch.quorum) - i64::try_from(given.len()).unwrap_or(i64::MAX);
        if given.iter().any(|approval| approval.name_folded == look_of_name(&self.principal.name)) {
            let more = format::counted(left, "approval", "approvals");
            return Ok(Decision::None(format!("You have approved it. It needs {more} more, by somebody else.")));
        }
        // What was approved is what was shown: a form that comes back keeps its own fingerprint only while that holds.
        let ticks = (0..batch.warnings.len()).map(warnings::tick).filter(|field| form.bytes(field).is_some()).collect();
        Ok(Decision::Form(DecisionForm {
            emergency: batch.emergency,
            digest,
            comment: text::block(&form.text("comment")?.unwrap_or_default().replace("\r\n", "\n")),
            ticked: ticks,
            who: format!("You decide as {}, {}.", text::short_line(&self.principal.name, 64), self.principal.role.as_str()),
            follows: match left {
                ..=1 => "It starts within seconds of your approval.".to_owned(),
                left => format!("After yours it needs {} more.", format::counted(left - 1, "approval", "approvals")),
            },
        }))
    }

    /// Messages at places that the batch's own id picks: the same for everybody who looks, and nobody's choice.
    async fn samples(&self, batch: &Batch, round: u64) -> Result<Vec<Sample>, Failure> {
        let store = &self.state.store;
        let ids: Vec<i64> = self.picked(batch, round).await?.into_iter().collect();
        let entry = self.state.replays.entry(&batch.cluster, &batch.topic);
        let mut shown = Vec::with_capacity(ids.len());
        for sample in samples::of(self.state, entry, &ids, batch.plan.transform.as_deref()).await? {
            let verdicts = store.verdicts(sample.id).await?;
            shown.push(match verdicts.iter().find(|verdict| verdict.batch_id == batch.id) {
                Some(verdict) => sample.checked(verdict),
                None => sample,
            });
        }
        Ok(shown)
    }

    /// The ids of as many different messages as are shown.
    async fn picked(&self, batch: &Batch, round: u64) -> Result<BTreeSet<i64>, Failure> {
        let store = &self.state.store;
        let mut ids = BTreeSet::new();
        let (Some(first), Some(last)) = (store.item_from(batch.id, i64::MIN).await?, store.item_from(batch.id, i64::MAX).await?) else {
            return Ok(ids);
        };
        let wanted = usize::try_from(batch.progress.items.min(SAMPLES as i64)).unwrap_or(0);
        // Two places may lead to one message: more are drawn then.
        for n in 0..DRAWN {
            if ids.len() < wanted {
                let at = first.saturating_add(point(&batch.uid, round, n, first.abs_diff(last)));
                ids.extend(store.item_from(batch.id, at).await?);
            }
        }
        let mut at = first;
        while ids.len() < wanted {
            let Some(id) = store.item_from(batch.id, at).await? else { break };
            ids.insert(id);
            if id == last {
                break;
            }
            at = id + 1;
        }
        Ok(ids)
    }
}

/// How many of how many messages are shown.
fn picked_words(shown: usize, items: i64) -> String {
    let shown = i64::try_from(shown).unwrap_or(i64::MAX);
    let picked = items.min(SAMPLES as i64);
    let gone = match picked - shown {
        ..=0 => String::new(),
        gone => format!(
            " {} of the {} picked {} not stored any more.",
            format::exact(gone),
            format::exact(picked),
            if gone == 1 { "is" } else { "are" }
        ),
    };
    match shown == items {
        true => format!("All {}.", words::messages(items)),
        false => format!("{} of {}, the same for everybody who looks.{gone}", format::exact(shown), words::messages(items)),
    }
}

/// A number up to `span`, out of the batch's own id.
fn point(uid: &str, round: u64, n: u64, span: u64) -> i64 {
    let hash = Sha256::digest(format!("sample {uid} {round} {n}").as_bytes());
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&hash[..8]);
    let chosen = u64::from_be_bytes(bytes) % span.saturating_add(1).max(1);
    i64::try_from(chosen).unwrap_or(i64::MAX)
}

impl VerdictLine {
    fn of(count: &VerdictCount) -> VerdictLine {
        VerdictLine {
            count: format::exact(count.count),
            schema: words::schema_verdict(&count.schema),
            idempotency: words::idempotency_verdict(&count.idempotency),
        }
    }
}

fn looked_at(verdicts: &[VerdictCount], items: i64) -> String {
    let looked: i64 = verdicts.iter().map(|count| count.count).sum();
    match looked < items {
        true => format!("Of the first {} of {}.", format::exact(looked), words::messages(items)),
        false => format!("Of all {}.", words::messages(items)),
    }
}

/// When the checks ran, and that they run again.
fn checked(batch: &Batch) -> Option<String> {
    batch.forecast.as_ref()?;
    let all = words::messages(batch.progress.checked);
    Some(Told::of(batch.state).pick(
        format!("Both checks ran on all {all} and run again on each message right before it is sent. More off this forecast than the larger of 5 messages and 2% halts the replay."),
        format!("Both checks ran on all {all} before it was decided on."),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_how_many_of_how_many_are_shown() {
        assert_eq!(picked_words(5, 200), "5 of 200 messages, the same for everybody who looks.");
        assert_eq!(picked_words(4, 200), "4 of 200 messages, the same for everybody who looks. 1 of the 5 picked is not stored any more.");
        assert_eq!(picked_words(3, 3), "All 3 messages.");
    }

    #[test]
    fn random_places_lie_within_and_are_the_same_for_everybody() {
        for span in [0, 1, 4, 1_000_000] {
            for n in 0..50 {
                let at = point("a batch", 1, n, span);
                assert!((0..=span as i64).contains(&at), "{at} of {span}");
                assert_eq!(at, point("a batch", 1, n, span));
            }
        }
        let places = |uid: &str, round| (0..5).map(|n| point(uid, round, n, 1_000_000)).collect::<Vec<_>>();
        assert_ne!(places("a batch", 1), places("a batch", 2));
        assert_ne!(places("a batch", 1), places("another", 1));
    }
}
