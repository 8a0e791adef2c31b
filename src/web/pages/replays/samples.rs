//! A few messages of a replay to look at: what they hold, masked as everywhere, and what a transform makes of it.

use super::words;
use crate::api::Failure;
use crate::services::messages::ShownValue;
use crate::services::replay::Entry;
use crate::services::replay::preview::{Fit, Tried};
use crate::store::verdicts::Verdict;
use crate::web::AppState;
use crate::web::view::diff::{DiffLine, diff};
use crate::web::view::text;

/// How much of a value a sample shows, characters.
const SHOWN: usize = 4_000;

/// One message.
pub struct Sample {
    pub id: i64,
    pub group_id: i64,
    pub title: String,
    pub key: Option<String>,
    /// What the checks said; empty before they ran.
    pub checks: Vec<(&'static str, String)>,
    /// What of it changes; empty: nothing does, or there is no transform.
    pub lines: Vec<DiffLine>,
    /// The value, where there is no diff to show.
    pub value: Option<String>,
    /// What else there is to say.
    pub notes: Vec<String>,
}

/// The messages with these ids, those that are gone left out. `transform`: a jq filter to try on them; None: none is tried.
///
/// # Errors
/// The database could not be asked.
pub async fn of(state: &AppState, entry: Option<Entry<'_>>, ids: &[i64], transform: Option<&str>) -> Result<Vec<Sample>, Failure> {
    let mut samples = Vec::with_capacity(ids.len());
    for id in ids {
        let Some(view) = state.messages.view(*id).await? else { continue };
        let row = &view.row;
        let key = row.business_key.as_deref().map(|key| text::short_line(key, 60));
        let mut sample = Sample {
            id: *id,
            group_id: row.group_id,
            title: row.exception_class.as_deref().map_or_else(|| "No exception named".to_owned(), |class| text::short_line(class, 120)),
            key: key.or_else(|| row.key.as_deref().map(|key| text::bytes_line(key, 60))),
            checks: Vec::new(),
            lines: Vec::new(),
            value: None,
            notes: Vec::new(),
        };
        sample.show(state, &view.value, entry.zip(transform)).await;
        samples.push(sample);
    }
    Ok(samples)
}

impl Sample {
    async fn show(&mut self, state: &AppState, value: &ShownValue, transform: Option<(Entry<'_>, &str)>) {
        let (bytes, is_masked) = match value {
            ShownValue::Purged => return self.notes.push("Its bytes were removed after their retention: it cannot be sent.".to_owned()),
            ShownValue::Null => return self.notes.push("A null value: a tombstone.".to_owned()),
            ShownValue::Withheld => {
                return self.notes.push(
                    "Fields are masked here, and this value is not JSON in which they could be found: nothing of it is shown.".to_owned(),
                );
            }
            ShownValue::Plain(bytes) => (bytes.as_slice(), false),
            ShownValue::Masked { json, fields } => (json.as_bytes(), !fields.is_empty()),
        };
        let before = readable(bytes);
        let Some((entry, filter)) = transform else {
            self.value = Some(text::cut_block(&before, SHOWN));
            return;
        };
        if is_masked {
            self.notes.push("Tried on the masked value, so that no filter can show what is masked. The real one is sent.".to_owned());
        }
        match state.replays.try_transform(entry, filter, bytes.to_vec(), !is_masked).await {
            Tried::Made { value: after, fit } => {
                self.notes.extend(fit.map(fits));
                let made = diff(&text::block(&before), &text::block(&readable(&after)));
                if made.cut {
                    self.notes.push("Cut: more differs than is shown.".to_owned());
                }
                if made.lines.is_empty() {
                    self.notes.push("The transform changes nothing in it.".to_owned());
                    self.value = Some(text::cut_block(&before, SHOWN));
                }
                self.lines = made.lines;
            }
            Tried::Failed(why) => {
                self.notes.push(format!("The transform fails on it: {}", words::sentence(&why)));
                self.value = Some(text::cut_block(&before, SHOWN));
            }
        }
    }

    /// With what the checks said of it in the preflight.
    pub fn checked(mut self, verdict: &Verdict) -> Sample {
        let with_note = |said: &str, note: &Option<String>| match note {
            Some(note) => format!("{said}: {}", text::short_line(note, 300)),
            None => said.to_owned(),
        };
        self.checks = vec![
            ("Schema check", with_note(words::schema_verdict(&verdict.schema), &verdict.schema_note)),
            ("Duplicate check", with_note(words::idempotency_verdict(&verdict.idempotency), &verdict.answered)),
            ("Then", words::forecast(&verdict.decision).to_owned()),
        ];
        self
    }
}

fn fits(fit: Fit) -> String {
    match fit {
        Fit::Fits => "What it makes of it fits today's schema.".to_owned(),
        Fit::Unfit(why) => format!("What it makes of it does not fit: {}", words::sentence(&why)),
        Fit::Unclear(why) => format!("Whether what it makes of it fits cannot be told: {}", words::sentence(&why)),
    }
}

/// JSON with a field a line, its numbers as they were written; anything else as text.
fn readable(bytes: &[u8]) -> String {
    let pretty = serde_json::from_slice::<serde_json::Value>(bytes).ok().and_then(|json| serde_json::to_string_pretty(&json).ok());
    pretty.unwrap_or_else(|| String::from_utf8_lossy(&bytes[..bytes.len().min(text::VALUE_CAP)]).into_owned())
}
