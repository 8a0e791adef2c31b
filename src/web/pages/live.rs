//! `/events`: the stream of hints after which fragments fetch themselves again. An event has a name and the time, never a payload.
//!
//! `dlqs`, `reviews`: some DLQ or review changed. `dlq-7`, `group-9`, `review-3`: that one did. `all`: anything may have; look at everything again. `beat`: nothing, but
//! the stream lives. `signed-out`: the session ended, and so does the stream.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::SignedIn;
use crate::api::Failure;
use crate::api::query::Query;
use crate::store::notify::{Hint, Subscription};
use crate::web::AppState;
use crate::web::guard::identify;

/// Streams of one process at once: each browser tab that is looked at holds one open.
const PLACES: usize = 500;
/// Streams of one name at once: nobody shall keep all others from looking.
const EACH: usize = 20;
/// More names than this that wait for one reader become `all`.
const MANY: usize = 200;
/// A browser whose stream breaks comes back after this, ms.
const RETRY: Duration = Duration::from_secs(2);

/// What streams share.
#[derive(Debug, Clone)]
pub struct Live {
    pub pace: Pace,
    pub places: Arc<Places>,
    pub stop: CancellationToken,
}

/// How many streams may be open, and which are.
#[derive(Debug)]
pub struct Places {
    most: usize,
    each: usize,
    taken: Mutex<BTreeMap<String, usize>>,
}

/// A place that is given back when the stream ends.
#[derive(Debug)]
struct Place {
    of: Arc<Places>,
    name: String,
}

impl Places {
    /// Room for `most` streams, of which one name may hold `each`.
    pub fn new(most: usize, each: usize) -> Places {
        Places { most, each, taken: Mutex::default() }
    }

    /// A place for `name`, or the sentence that says why there is none.
    fn take(self: &Arc<Places>, name: &str) -> Result<Place, String> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let works = "This one works, but has to be reloaded to show what is new.";
        if taken.get(name).is_some_and(|own| *own >= self.each) {
            return Err(format!("{name} keeps {} pages live already, and nobody may have more. {works}", self.each));
        }
        if taken.values().sum::<usize>() >= self.most {
            return Err(format!("Too many pages are kept live at once. {works}"));
        }
        *taken.entry(name.to_owned()).or_default() += 1;
        Ok(Place { of: Arc::clone(self), name: name.to_owned() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.of.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = taken.get_mut(&self.name) {
            *own -= 1;
        }
        taken.retain(|_, own| *own > 0);
    }
}

/// How often a stream does what.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Between two beats.
    pub beat: Duration,
    /// A name comes once in this time at most.
    pub hints: Duration,
    /// Whether the session still holds is looked up this often.
    pub session: Duration,
}

impl Default for Live {
    fn default() -> Live {
        let pace = Pace { beat: Duration::from_secs(5), hints: Duration::from_secs(2), session: Duration::from_secs(30) };
        Live { pace, places: Arc::new(Places::new(PLACES, EACH)), stop: CancellationToken::new() }
    }
}

/// `GET /events?seen=`, with the mark that the page carries: what changed since it was made is `all`.
pub async fn events(
    State(state): State<AppState>,
    SignedIn(principal): SignedIn,
    headers: HeaderMap,
    RawQuery(raw): RawQuery,
) -> Result<Response, Failure> {
    let query = Query::parse(raw.as_deref(), &["seen"])?;
    let place = match state.live.places.take(&principal.name) {
        Ok(place) => place,
        Err(full) => return Ok(([(header::RETRY_AFTER, "30")], Failure::new(StatusCode::SERVICE_UNAVAILABLE, full)).into_response()),
    };
    let mut reader = Reader::new(state, headers, place);
    if query.text("seen")?.is_some_and(|seen| seen != reader.state.store.hints().mark().to_string()) {
        reader.note(&[Hint::All]);
    }
    let events = stream::unfold(reader, |mut reader| async move { reader.next().await.map(|event| (Ok::<_, Infallible>(event), reader)) });
    // nginx would hold events back until a buffer is full.
    Ok(([(HeaderName::from_static("x-accel-buffering"), "no")], Sse::new(events)).into_response())
}

/// One open stream. It is asked for the next event when the last one was taken, so a reader that does not read costs nothing: the
/// subscription tells it `all` afterwards.
struct Reader {
    state: AppState,
    headers: HeaderMap,
    changes: Subscription,
    /// Names that go out with the next tick of `hints`.
    waiting: BTreeSet<String>,
    ready: VecDeque<Event>,
    beat: Interval,
    hints: Interval,
    session: Interval,
    ended: bool,
    _place: Place,
}

impl Reader {
    fn new(state: AppState, headers: HeaderMap, place: Place) -> Reader {
        let every = |period| {
            let mut interval = interval(period);
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            interval
        };
        let pace = state.live.pace;
        let mut session = every(pace.session);
        session.reset();
        let changes = state.store.hints().subscribe();
        let (beat, hints) = (every(pace.beat), every(pace.hints));
        Reader {
            state,
            headers,
            changes,
            waiting: BTreeSet::new(),
            ready: VecDeque::new(),
            beat,
            hints,
            session,
            ended: false,
            _place: place,
        }
    }

    async fn next(&mut self) -> Option<Event> {
        let stop = self.state.live.stop.clone();
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.ended {
                return None;
            }
            tokio::select! {
                () = stop.cancelled() => return None,
                _ = self.beat.tick() => self.say("beat"),
                _ = self.session.tick() => self.check_session().await,
                _ = self.hints.tick(), if !self.waiting.is_empty() => {
                    std::mem::take(&mut self.waiting).iter().for_each(|name| self.say(name));
                }
                hints = self.changes.next() => self.note(&hints),
            }
        }
    }

    fn say(&mut self, name: &str) {
        let event = Event::default().event(name).retry(RETRY).data(self.state.clock.now_ms().to_string());
        self.ready.push_back(event);
    }

    fn note(&mut self, hints: &[Hint]) {
        for hint in hints {
            let some = match hint {
                Hint::Dlq(_) => Some("dlqs"),
                Hint::Review(_) => Some("reviews"),
                Hint::All | Hint::Group(_) => None,
            };
            self.waiting.extend(some.map(str::to_owned));
            self.waiting.insert(hint.to_string());
        }
        let all = Hint::All.to_string();
        if self.waiting.len() > MANY || self.waiting.contains(&all) {
            self.waiting = BTreeSet::from([all]);
        }
    }

    /// A database that does not answer says nothing against the session.
    async fn check_session(&mut self) {
        let holds = match identify(&self.state, &self.headers).await {
            Ok(principal) => principal.is_some(),
            Err(failure) => failure.status != StatusCode::UNAUTHORIZED,
        };
        if !holds {
            self.say("signed-out");
            self.ended = true;
        }
    }
}
