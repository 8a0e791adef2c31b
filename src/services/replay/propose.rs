//! Proposing: what is asked for becomes a draft, and a draft is submitted.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::freeze::WAITING;
use super::plan::{ORIGIN, another_life};
use super::rights::subject;
use super::warn::missing;
use super::{Entry, ReplayError, Replays};
use crate::domain::access::{OwnerScope, look_of_name};
use crate::domain::audit::{Action, By, Event};
use crate::domain::digest::Agreement;
use crate::domain::record::says_something;
use crate::domain::replay::{BatchMove, BatchState, Plan, Step, check_waivers, quorum};
use crate::domain::terms::ReplayTerms;
use crate::domain::verdict::Waiver;
use crate::store::audit;
use crate::store::messages::MessageFilter;
use crate::store::notify::Hint;
use crate::store::replays::{self, Batch, Listed, NewBatch, Redraft, Scope};

/// Which messages.
#[derive(Debug, Clone, PartialEq)]
pub enum Wanted {
    /// All that match as of now. `query` is the same as a query string, for people.
    Filter {
        filter: Box<MessageFilter>,
        query: String,
    },
    Ids(Vec<i64>),
}

/// A proposal as a form or the API gives it. What is None is the configuration's.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    pub cluster: String,
    pub topic: String,
    pub wanted: Wanted,
    pub reason: String,
    pub target: Option<String>,
    pub max_per_second: Option<u32>,
    pub canary: Option<u32>,
    pub stop_on_returned_pct: Option<u32>,
    /// A jq filter.
    pub transform: Option<String>,
    pub waivers: Vec<Waiver>,
    pub why_now: Option<String>,
    pub incident: Option<String>,
    /// Submitted by itself once the preflight is through, unless something is missing.
    pub auto_submit: bool,
    pub emergency: bool,
    /// Made with the form: the same form sent twice is one batch.
    pub form_id: String,
}

/// A new batch, and what could not be had.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposed {
    pub batch: Batch,
    /// The same form came before: this is the batch it made.
    pub repeated: bool,
}

/// What the proposer adds when submitting a draft whose preflight is through.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Submission {
    pub why_now: Option<String>,
    pub waivers: Vec<Waiver>,
}

/// How far a draft has come by one tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prepared {
    /// Nothing was there to do.
    Idle,
    /// A chunk was frozen or looked at; there may be more.
    More,
}

/// Texts that people type, in characters.
const REASON_CHARS: usize = 2_000;
const INCIDENT_CHARS: usize = 200;
/// Ids that may be named one by one; more are a filter's.
const IDS: usize = 10_000;
/// Pages of the list that are looked through before a proposal is stored, to see whether its messages have one origin. Freezing looks at all.
const PAGES: usize = 20;

fn invalid(field: &'static str, problem: impl Into<String>) -> ReplayError {
    ReplayError::Invalid { field, problem: problem.into() }
}

/// What somebody typed, if it says something.
///
/// # Errors
/// It says nothing, or too much.
pub(super) fn said(field: &'static str, typed: &str, most: usize) -> Result<String, ReplayError> {
    let typed = typed.trim();
    if !says_something(typed) {
        return Err(invalid(field, "say something that others can read"));
    }
    let chars = typed.chars().count();
    if chars > most {
        return Err(invalid(field, format!("at most {most} characters, and this has {chars}")));
    }
    Ok(typed.to_owned())
}

/// A reason that somebody typed.
pub(super) fn reason(field: &'static str, typed: &str) -> Result<String, ReplayError> {
    said(field, typed, REASON_CHARS)
}

fn optional(field: &'static str, typed: Option<&str>, most: usize) -> Result<Option<String>, ReplayError> {
    typed.filter(|typed| !typed.trim().is_empty()).map(|typed| said(field, typed, most)).transpose()
}

impl Replays {
    /// Stores a draft. It is frozen and preflighted by [`Replays::prepare`].
    ///
    /// # Errors
    /// Not in the person's scope; no entry covers the DLQ; a target that is not configured or does not exist; a filter, transform or number that cannot be taken.
    pub async fn propose(&self, by: &By, scope: &OwnerScope, proposal: Proposal) -> Result<Proposed, ReplayError> {
        if proposal.form_id.is_empty() || proposal.form_id.len() > 200 {
            return Err(invalid("form_id", "the form has lost its number: send it again"));
        }
        if let Some(batch) = self.store.batch_of_form(&proposal.form_id).await? {
            return repeated(by, batch);
        }
        let (cluster, topic) = (proposal.cluster.as_str(), proposal.topic.as_str());
        let Some(dlq) = self.store.dlq(cluster, topic).await? else {
            return Err(invalid("topic", format!("there is no DLQ {topic:?} in the cluster {cluster:?}")));
        };
        self.in_scope(by, scope, (cluster, topic), format!("dlq {cluster}/{topic}")).await?;
        let Some(entry) = self.entry(cluster, topic) else {
            return Err(invalid("topic", "no [[dlq]] entry covers it: what is not configured is not replayed"));
        };
        let as_of_message_id = self.store.newest_message_id().await?;
        let wanted = self.wanted(&proposal, dlq.id, as_of_message_id).await?;
        let plan = self.plan(&proposal, entry, &wanted.listed).await?;
        let reason = reason("reason", &proposal.reason)?;
        let why_now = optional("why_now", proposal.why_now.as_deref(), REASON_CHARS)?;
        let incident = optional("incident", proposal.incident.as_deref(), INCIDENT_CHARS)?;
        if proposal.emergency {
            emergency(&plan, entry.terms, incident.as_deref())?;
        }
        let now_ms = self.clock.now_ms();
        let new = NewBatch {
            dlq_id: dlq.id,
            created_at_ms: now_ms,
            as_of_message_id,
            quorum: quorum(&self.approval, wanted.listed.messages, !plan.waivers.is_empty(), proposal.emergency),
            emergency: proposal.emergency,
            auto_submit: proposal.auto_submit,
            uid: random_hex()?,
            form_id: proposal.form_id.clone(),
            proposer: by.actor.clone(),
            proposer_folded: look_of_name(&by.actor),
            reason,
            why_now,
            incident,
            scope: wanted.scope,
            plan,
        };
        let mut tx = self.store.begin().await?;
        let Some(id) = replays::insert(&mut tx, &new).await? else {
            drop(tx);
            let batch = self.store.batch_of_form(&proposal.form_id).await?;
            return repeated(by, batch.ok_or_else(|| ReplayError::Conflict("the form was used already".to_owned()))?);
        };
        replays::log(&mut tx, id, now_ms, &by.actor, "proposed").await?;
        audit::append(&mut tx, &proposed_event(by, id, &new, (cluster, topic), now_ms)).await?;
        tx.commit().await?;
        self.store.changed(&[Hint::Dlq(dlq.id)]);
        Ok(Proposed { batch: self.batch(id).await?, repeated: false })
    }

    /// Which messages are asked for, and what they have in common.
    async fn wanted(&self, proposal: &Proposal, dlq_id: i64, as_of: i64) -> Result<Listing, ReplayError> {
        let listing = match &proposal.wanted {
            Wanted::Ids(ids) => {
                let mut ids = ids.clone();
                ids.sort_unstable();
                ids.dedup();
                if ids.is_empty() || ids.len() > IDS {
                    return Err(invalid("message_ids", format!("name 1 to {IDS} messages; for more give a filter")));
                }
                let listed = self.store.waiting_among(dlq_id, &ids).await?;
                if listed.messages < ids.len() as u64 {
                    let others = ids.len() as u64 - listed.messages;
                    let problem =
                        format!("{others} of the {} are not of this DLQ, or do not wait (quarantined or under review)", ids.len());
                    return Err(invalid("message_ids", problem));
                }
                Listing { scope: Scope::MessageIds(ids), listed }
            }
            Wanted::Filter { filter, query } => {
                let filter = of_dlq(filter, proposal)?;
                let listed = self.listed(&filter, as_of).await?;
                Listing { scope: Scope::Filter { query: query.clone(), filter: Box::new(filter) }, listed }
            }
        };
        if listing.listed.messages == 0 {
            return Err(invalid("filter", "no message that waits (quarantined or under review) is found by it"));
        }
        Ok(listing)
    }

    /// What the newest messages that a filter finds have in common.
    async fn listed(&self, filter: &MessageFilter, as_of: i64) -> Result<Listed, ReplayError> {
        let mut listed = Listed::default();
        let mut before = Some(as_of.saturating_add(1));
        for _ in 0..PAGES {
            let Some(from) = before else { break };
            let (rows, next) = self.waiting_page(filter, from).await?;
            for row in rows {
                listed.add(row.origin_topic, row.consumer_group, 1);
            }
            before = next;
        }
        Ok(listed)
    }

    async fn plan(&self, proposal: &Proposal, entry: Entry<'_>, listed: &Listed) -> Result<Plan, ReplayError> {
        let terms = entry.terms;
        let name = target_name(proposal, terms, listed)?;
        if name == proposal.topic {
            return Err(invalid("target", "that is the DLQ itself: its messages would come right back"));
        }
        let Some(target) = self.target(&proposal.cluster, &name).await? else {
            return Err(invalid(
                "target",
                format!("the topic {name} does not exist in {}; nothing is created by sending to it", proposal.cluster),
            ));
        };
        if target.compacted == Some(true) && !terms.allow_compacted_target {
            let problem = format!("{name} is compacted: what is sent there may vanish unseen. allow_compacted_target = true lets it be");
            return Err(invalid("target", problem));
        }
        check_waivers(&proposal.waivers).map_err(|fault| invalid("waivers", fault.to_string()))?;
        let canary = proposal.canary.unwrap_or(terms.canary);
        if canary == 0 && !proposal.waivers.is_empty() {
            return Err(invalid("canary", "a replay with a waiver needs a canary: say how many go first"));
        }
        let max_per_second = proposal.max_per_second.unwrap_or(terms.max_per_second);
        if max_per_second == 0 || max_per_second > terms.max_per_second {
            return Err(invalid("max_per_second", format!("1 to {} messages a second (max_per_second of the DLQ)", terms.max_per_second)));
        }
        let stop_on_returned_pct = proposal.stop_on_returned_pct.unwrap_or(terms.stop_on_returned_pct);
        if stop_on_returned_pct > 100 {
            return Err(invalid("stop_on_returned_pct", "a share in percent, 0 to 100"));
        }
        Ok(Plan {
            group: group_of(entry, &name, listed),
            target: name,
            target_id: target.id,
            target_partitions: target.partitions,
            transform: self.transform(entry, proposal.transform.as_deref())?,
            max_per_second,
            canary,
            stop_on_returned_pct,
            waivers: proposal.waivers.clone(),
        })
    }

    /// A jq filter that compiles, where a schema can say whether its output fits; None: that of the configuration, if any.
    fn transform(&self, entry: Entry<'_>, typed: Option<&str>) -> Result<Option<String>, ReplayError> {
        let Some(typed) = typed.filter(|typed| !typed.trim().is_empty()) else { return Ok(None) };
        if entry.terms.schema.is_none() {
            let problem =
                "is used only where its output fits a schema, and none is configured for this DLQ: add [dlq.schema], or leave it out";
            return Err(invalid("transform", problem));
        }
        self.checker.schemas.transform(typed).map_err(|fault| invalid("transform", fault.to_string()))?;
        Ok(Some(typed.to_owned()))
    }

    /// Puts a draft up for approval. Whoever may propose may submit it as it stands; what is agreed to is its proposer's alone to change, since
    /// whoever wrote a part of it must not be the one who approves it. With waivers that are new it is preflighted anew first, and submitted by itself after.
    ///
    /// # Errors
    /// It is no draft any more or its preflight is not through; why now, or a waiver, is missing, or is added by somebody else than its proposer.
    pub async fn submit(&self, by: &By, scope: &OwnerScope, batch_id: i64, submission: Submission) -> Result<Batch, ReplayError> {
        let batch = self.batch(batch_id).await?;
        self.in_scope(by, scope, (&batch.cluster, &batch.topic), subject(batch_id)).await?;
        let entry = self.entry_of(&batch).ok_or_else(|| ReplayError::Conflict("no [[dlq]] entry covers this DLQ any more".to_owned()))?;
        if batch.state != BatchState::Draft || batch.step != Step::Ready {
            let how = if batch.state == BatchState::Draft { "still being preflighted" } else { batch.state.as_str() };
            return Err(ReplayError::Conflict(format!(
                "replay {batch_id} is {how}: only a draft whose preflight is through can be submitted"
            )));
        }
        let why_now = optional("why_now", submission.why_now.as_deref(), REASON_CHARS)?.or_else(|| batch.why_now.clone());
        let adds = why_now != batch.why_now || (!submission.waivers.is_empty() && submission.waivers != batch.plan.waivers);
        if adds && look_of_name(&by.actor) != batch.proposer_folded {
            let why = format!(
                "{} proposed it: only they say why now or waive a check, since whoever does must not approve it. Propose it anew to do so in your own name.",
                batch.proposer
            );
            return Err(self.refuse(by, subject(batch_id), why).await?);
        }
        let mut plan = batch.plan.clone();
        if !submission.waivers.is_empty() {
            check_waivers(&submission.waivers).map_err(|fault| invalid("waivers", fault.to_string()))?;
            plan.waivers = submission.waivers;
            if plan.canary == 0 {
                return Err(invalid("canary", "a replay with a waiver needs a canary: propose it again with one"));
            }
        }
        match self.target(&batch.cluster, &plan.target).await? {
            None => return Err(ReplayError::Conflict(format!("the target topic {} does not exist any more", plan.target))),
            Some(target) => {
                if let Some(why) = another_life(&batch, &target) {
                    return Err(ReplayError::Conflict(why));
                }
                (plan.target_id, plan.target_partitions) = (target.id, target.partitions);
            }
        }
        // Without a digest the settings of the checks could not be read: that is tried again, too.
        if plan != batch.plan || batch.agreement.is_none() {
            return self.resubmit(by, &batch, &plan, why_now.as_deref()).await;
        }
        let asked = Batch { why_now, ..batch };
        if let Some(missing) = missing(&asked, entry.terms) {
            let field = if missing.starts_with("say why now") { "why_now" } else { "waivers" };
            return Err(invalid(field, missing));
        }
        let mut tx = self.store.begin().await?;
        let mut now = self.lock(&mut tx, batch_id).await?;
        if now.version != asked.version || now.state != asked.state {
            return Err(ReplayError::Conflict(format!("replay {batch_id} changed meanwhile. Reload to see how it stands.")));
        }
        if let (Some(why_now), Some(agreement)) = (&asked.why_now, &asked.agreement)
            && now.why_now.as_ref() != Some(why_now)
        {
            let agreement = Agreement { why_now: Some(why_now.clone()), ..agreement.clone() };
            replays::set_why_now(&mut tx, batch_id, why_now, &agreement).await?;
            now = self.lock(&mut tx, batch_id).await?;
        }
        self.shift(&mut tx, &now, BatchMove::Submit, None).await?;
        let event = self.submitted(&now, by);
        self.done(tx, &now, "submitted for approval", &event).await
    }

    /// Has a draft preflighted anew on another plan, to be submitted by itself after.
    async fn resubmit(&self, by: &By, batch: &Batch, plan: &Plan, why_now: Option<&str>) -> Result<Batch, ReplayError> {
        let mut tx = self.store.begin().await?;
        let now = self.lock(&mut tx, batch.id).await?;
        if now.version != batch.version || now.state != batch.state {
            return Err(ReplayError::Conflict(format!("replay {} changed meanwhile. Reload to see how it stands.", batch.id)));
        }
        let redraft = Redraft { plan, why_now, auto_submit: true, note: Some("preflighted anew, on its changed plan") };
        replays::preflight_anew(&mut tx, &now, &redraft).await?;
        let mut event = Event::new(self.clock.now_ms(), by, Action::ReplayReopened, subject(batch.id));
        event.after = Some(json!({ "waivers": plan.waivers, "target_partitions": plan.target_partitions }));
        self.done(tx, &now, "preflighted anew, on its changed plan", &event).await
    }
}

/// Which messages were asked for.
struct Listing {
    scope: Scope,
    listed: Listed,
}

/// The same form sent twice is one batch; somebody else's is not shown.
fn repeated(by: &By, batch: Batch) -> Result<Proposed, ReplayError> {
    if batch.proposer != by.actor {
        return Err(ReplayError::Conflict("this form was sent by somebody else before: open a new one".to_owned()));
    }
    Ok(Proposed { batch, repeated: true })
}

/// The filter, narrowed to the DLQ.
fn of_dlq(filter: &MessageFilter, proposal: &Proposal) -> Result<MessageFilter, ReplayError> {
    let other = |named: &Option<String>, own: &str| named.as_deref().is_some_and(|named| named != own);
    if other(&filter.cluster, &proposal.cluster) || other(&filter.topic, &proposal.topic) {
        return Err(invalid("filter", "names another DLQ than the replay: one replay is of one DLQ"));
    }
    if let Some(state) = filter.state.filter(|state| !WAITING.contains(state)) {
        let problem = format!("messages that are {} cannot be replayed: only those quarantined or under review", state.as_str());
        return Err(invalid("filter", problem));
    }
    Ok(MessageFilter { cluster: Some(proposal.cluster.clone()), topic: Some(proposal.topic.clone()), ..filter.clone() })
}

/// The topic to send to. `origin` needs messages that all came from one topic.
fn target_name(proposal: &Proposal, terms: &ReplayTerms, listed: &Listed) -> Result<String, ReplayError> {
    let asked = proposal.target.as_deref().filter(|target| !target.is_empty());
    let asked = asked.or(terms.targets.first().map(String::as_str)).unwrap_or(ORIGIN);
    let by_origin = terms.targets.iter().any(|target| target == ORIGIN);
    let only = match listed.origins.iter().next() {
        Some((Some(topic), _)) if listed.origins.len() == 1 => Some(topic),
        _ => None,
    };
    if asked != ORIGIN && terms.targets.iter().any(|target| target == asked) {
        return Ok(asked.to_owned());
    }
    match only {
        Some(topic) if by_origin && (asked == ORIGIN || asked == topic) => Ok(topic.clone()),
        _ if asked == ORIGIN && by_origin => Err(invalid("target", origins_in_words(listed, terms))),
        _ => Err(invalid("target", format!("{asked:?} is not among the targets of this DLQ: use {}", terms.targets.join(", ")))),
    }
}

/// Why "origin" is no target for these messages.
fn origins_in_words(listed: &Listed, terms: &ReplayTerms) -> String {
    let mut counts: Vec<(&Option<String>, &u64)> = listed.origins.iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let word = |(topic, count): &(&Option<String>, &u64)| match topic {
        Some(topic) => format!("{count} from {topic}"),
        None => format!("{count} from a topic that nobody knows"),
    };
    let said: Vec<String> = counts.iter().take(5).map(word).collect();
    let more = if counts.len() > 5 { format!(", and from {} more", counts.len() - 5) } else { String::new() };
    let others: Vec<&str> = terms.targets.iter().map(String::as_str).filter(|target| *target != ORIGIN).collect();
    let remedy = match others[..] {
        [] => "narrow the filter to one origin, or add a topic to targets".to_owned(),
        _ => format!("name a target ({}), or narrow the filter to one origin", others.join(", ")),
    };
    format!("they did not come from one topic: {}{more}; {remedy}", said.join(", "))
}

/// The group that reads the target; None: nobody knows.
fn group_of(entry: Entry<'_>, target: &str, listed: &Listed) -> Option<String> {
    let of_messages = match listed.groups.iter().next() {
        Some((Some(group), _)) if listed.groups.len() == 1 => Some(group.clone()),
        _ => None,
    };
    let of_target = entry.terms.target_groups.get(target).cloned();
    of_target.or_else(|| entry.settings.consumer_group.clone()).or(of_messages)
}

fn emergency(plan: &Plan, terms: &ReplayTerms, incident: Option<&str>) -> Result<(), ReplayError> {
    let faults = [
        (!terms.emergency_replay, "emergency", "emergency replays are off for this DLQ: emergency_replay = true allows them"),
        (incident.is_none(), "incident", "an emergency replay names its incident"),
        (
            terms.schema.is_none() || terms.idempotency.is_none(),
            "emergency",
            "an emergency replay needs both checks, and this DLQ lacks one",
        ),
        (!plan.waivers.is_empty(), "waivers", "an emergency replay takes no waiver"),
        (plan.canary == 0, "canary", "an emergency replay needs a canary"),
    ];
    match faults.into_iter().find(|(fault, ..)| *fault) {
        Some((_, field, problem)) => Err(invalid(field, problem)),
        None => Ok(()),
    }
}

/// In the trail: what was asked for, without what was searched for, which may be somebody's data.
fn proposed_event(by: &By, id: i64, new: &NewBatch, (cluster, topic): (&str, &str), now_ms: i64) -> Event {
    let mut event = Event::new(now_ms, by, Action::ReplayProposed, subject(id));
    event.reason = Some(new.reason.clone());
    let messages = match &new.scope {
        Scope::Filter { .. } => json!("by filter"),
        Scope::MessageIds(ids) => json!(ids.len()),
    };
    event.after = Some(json!({
        "dlq": format!("{cluster}/{topic}"),
        "messages": messages,
        "as_of": new.as_of_message_id,
        "target": new.plan.target,
        "max_per_second": new.plan.max_per_second,
        "canary": new.plan.canary,
        "waivers": new.plan.waivers,
        "emergency": new.emergency,
        "incident": new.incident,
    }));
    event
}

/// 96 random bits, hex.
fn random_hex() -> Result<String, ReplayError> {
    let mut bytes = [0_u8; 12];
    getrandom::fill(&mut bytes).map_err(|error| ReplayError::Machine(format!("the system gives no random bytes: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
