//! A schema registry that speaks Confluent's API: schemas by the id that framed values carry, and the reader's current one.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use moka::future::Cache;
use serde::Deserialize;
use serde_json::json;

use super::Fit;
use super::avro::AvroSchema;
use super::json::JsonSchema;
use super::protobuf::ProtobufSchema;
use super::transform::{Refusal, Transform, deep};
use crate::domain::framing::{FRAME_LENGTH, Framing, framing};
use crate::domain::settings::Secret;

/// How long connecting may take, and again the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long all that is asked for at one look may take together: references and ids are many small waits.
const IN_ALL: Duration = Duration::from_secs(20);
/// How long the subject's current schema is taken for current.
const LATEST_FOR: Duration = Duration::from_secs(5);
/// How long an id that the registry does not know is not asked for again.
const MISSING_FOR: Duration = Duration::from_secs(30);
/// Schemas by id never change; this many are kept.
const KEPT: u64 = 10_000;
/// Different ids in one chunk; more are the sign of bytes that only look framed.
const IDS_AT_ONCE: usize = 64;
const REQUESTS_AT_ONCE: usize = 4;
/// Larger answers are not read.
const ANSWER_LIMIT: usize = 16 * 1024 * 1024;
/// Schemas that one may refer to, all levels together.
const REFERENCES: usize = 200;

/// One subject of a registry.
#[derive(Debug)]
pub struct Registry {
    url: Secret,
    subject: String,
    /// The Protobuf message that the reader reads.
    message: Option<String>,
    client: OnceLock<Result<reqwest::Client, String>>,
    by_id: Cache<u32, Arc<Kept>>,
    missing: Cache<u32, Arc<str>>,
    latest: Cache<(), Arc<Kept>>,
    in_all: Duration,
}

/// A schema that the registry holds, and what came of it.
#[derive(Debug)]
pub struct Kept {
    id: u32,
    /// None: asked for by id.
    version: Option<i64>,
    kind: String,
    text: String,
    parsed: Result<Parsed, String>,
}

#[derive(Debug)]
enum Parsed {
    Avro(AvroSchema),
    Protobuf(ProtobufSchema),
    Json(JsonSchema),
}

/// What it takes to judge a chunk of values: the reader's schema now, and those that the values were written with.
#[derive(Debug, Clone)]
pub struct Subject {
    reader: Arc<Kept>,
    message: Option<String>,
    writers: HashMap<u32, Result<Arc<Kept>, String>>,
}

/// The answers to `/schemas/ids/{id}` and `/subjects/{subject}/versions/{version}`; the first has neither id nor version.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    id: Option<u32>,
    version: Option<i64>,
    /// Absent for Avro.
    schema_type: Option<String>,
    schema: String,
    #[serde(default)]
    references: Vec<Reference>,
}

#[derive(Debug, Clone, Deserialize)]
struct Reference {
    name: String,
    subject: String,
    version: i64,
}

/// Why the registry gave nothing.
enum Trouble {
    /// 404.
    Missing,
    Other(String),
}

impl Registry {
    pub(super) fn new(url: Secret, subject: String, message: Option<String>) -> Registry {
        let latest = Cache::builder().max_capacity(1).time_to_live(LATEST_FOR).build();
        let missing = Cache::builder().max_capacity(KEPT).time_to_live(MISSING_FOR).build();
        Registry { url, subject, message, client: OnceLock::new(), by_id: Cache::new(KEPT), missing, latest, in_all: IN_ALL }
    }

    /// What a look at the registry came to, if it ends in time.
    async fn in_time<T>(&self, look: impl Future<Output = Result<T, String>>) -> Result<T, String> {
        let late = |_| Err(format!("the registry takes longer than {} s for all that it is asked", self.in_all.as_secs()));
        tokio::time::timeout(self.in_all, look).await.unwrap_or_else(late)
    }

    /// The reader's schema now and the writers' of these values.
    ///
    /// # Errors
    /// The registry does not tell the reader's schema, or not in time, or that is none.
    pub async fn now(&self, values: &[&[u8]]) -> Result<Subject, String> {
        self.in_time(self.look(values)).await
    }

    async fn look(&self, values: &[&[u8]]) -> Result<Subject, String> {
        let reader = self.latest().await?;
        if let Err(why) = &reader.parsed {
            return Err(format!("the schema of {} is {why}", self.subject));
        }
        let ids: BTreeSet<u32> = values.iter().filter_map(|value| schema_id(value)).collect();
        let asked = ids.iter().copied().take(IDS_AT_ONCE).map(|id| async move { (id, self.by_id(id).await) });
        let mut writers: HashMap<u32, _> = stream::iter(asked).buffer_unordered(REQUESTS_AT_ONCE).collect().await;
        let too_many = || Err("too many different schema ids at once".to_owned());
        writers.extend(ids.into_iter().skip(IDS_AT_ONCE).map(|id| (id, too_many())));
        Ok(Subject { reader, message: self.message.clone(), writers })
    }

    /// What decides whether a value fits, exactly, but for the registry's password.
    ///
    /// # Errors
    /// The registry does not tell.
    pub async fn contents(&self) -> Result<Vec<u8>, String> {
        let reader = self.in_time(self.latest()).await?;
        Ok(json!([self.subject, self.message, reader.id, reader.kind, reader.text]).to_string().into_bytes())
    }

    /// The subject's current schema in words, for a check-up.
    ///
    /// # Errors
    /// The registry does not tell, or it is none.
    pub async fn described(&self) -> Result<String, String> {
        let kept = self.in_time(self.latest()).await?;
        let version = kept.version.map_or_else(String::new, |version| format!("version {version}, "));
        match &kept.parsed {
            Ok(_) => Ok(format!("{} of {} ({version}id {})", kept.kind, self.subject, kept.id)),
            Err(why) => Err(format!("the schema of {} is {why}", self.subject)),
        }
    }

    async fn latest(&self) -> Result<Arc<Kept>, String> {
        if let Some(kept) = self.latest.get(&()).await {
            return Ok(kept);
        }
        let answer = self.ask(&["subjects", &self.subject, "versions", "latest"]).await.map_err(|trouble| match trouble {
            Trouble::Missing => format!("the registry knows no subject {}", self.subject),
            Trouble::Other(why) => why,
        })?;
        let Some(id) = answer.id else { return Err("the registry gives the subject's schema no id".to_owned()) };
        let kept = Arc::new(self.parsed(id, answer).await?);
        self.latest.insert((), Arc::clone(&kept)).await;
        Ok(kept)
    }

    async fn by_id(&self, id: u32) -> Result<Arc<Kept>, String> {
        if let Some(kept) = self.by_id.get(&id).await {
            return Ok(kept);
        }
        if let Some(why) = self.missing.get(&id).await {
            return Err(why.to_string());
        }
        match self.ask(&["schemas", "ids", &id.to_string()]).await {
            Ok(answer) => {
                let kept = Arc::new(self.parsed(id, answer).await?);
                self.by_id.insert(id, Arc::clone(&kept)).await;
                Ok(kept)
            }
            Err(Trouble::Missing) => {
                let why = format!("the registry knows no schema id {id}; the value may only look framed");
                self.missing.insert(id, why.as_str().into()).await;
                Err(why)
            }
            Err(Trouble::Other(why)) => Err(why),
        }
    }

    /// Fetches what a schema refers to, and parses it. What cannot be parsed is kept too: it will not get better.
    async fn parsed(&self, id: u32, answer: Answer) -> Result<Kept, String> {
        let kind = answer.schema_type.unwrap_or_else(|| "AVRO".to_owned());
        let references = self.references(answer.references).await?;
        let (text, kind_known) = (answer.schema, kind.clone());
        let parse = {
            let text = text.clone();
            move || deep(|| parse(&kind_known, &text, &references)).unwrap_or_else(|| Err("not to be read".to_owned()))
        };
        let parsed = tokio::task::spawn_blocking(parse).await.unwrap_or_else(|_| Err("not to be read".to_owned()));
        Ok(Kept { id, version: answer.version, kind, text, parsed })
    }

    /// Name and text of all that these refer to, each name once; inner ones before those that refer to them.
    async fn references(&self, first: Vec<Reference>) -> Result<Vec<(String, String)>, String> {
        let (mut found, mut open): (Vec<(String, String)>, _) = (Vec::new(), first);
        while let Some(next) = open.pop() {
            if found.iter().any(|(name, _)| *name == next.name) {
                continue;
            }
            if found.len() >= REFERENCES {
                return Err(format!("the schema refers to more than {REFERENCES} others"));
            }
            let answer =
                self.ask(&["subjects", &next.subject, "versions", &next.version.to_string()]).await.map_err(|trouble| match trouble {
                    Trouble::Missing => {
                        format!("the registry does not hold {} version {}, which the schema refers to", next.subject, next.version)
                    }
                    Trouble::Other(why) => why,
                })?;
            found.push((next.name, answer.schema));
            open.extend(answer.references);
        }
        found.reverse();
        Ok(found)
    }

    async fn ask(&self, path: &[&str]) -> Result<Answer, Trouble> {
        let client = self.client.get_or_init(client).as_ref().map_err(|why| Trouble::Other(why.clone()))?;
        let mut url = reqwest::Url::parse(self.url.expose()).map_err(|_| Trouble::Other("the registry's URL is not usable".to_owned()))?;
        match url.path_segments_mut() {
            Ok(mut segments) => drop(segments.pop_if_empty().extend(path)),
            Err(()) => return Err(Trouble::Other("the registry's URL is not usable".to_owned())),
        }
        let mut response = client.get(url).send().await.map_err(failed)?;
        match response.status().as_u16() {
            200 => {}
            404 => return Err(Trouble::Missing),
            status @ (401 | 403) => return Err(Trouble::Other(format!("the registry refuses the user of its URL ({status})"))),
            status => return Err(Trouble::Other(format!("the registry answered {status}"))),
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > ANSWER_LIMIT {
                return Err(Trouble::Other(format!("the registry's answer is larger than {ANSWER_LIMIT} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        serde_json::from_slice(&body).map_err(|_| Trouble::Other("the registry's answer is none of a schema registry".to_owned()))
    }
}

fn parse(kind: &str, text: &str, references: &[(String, String)]) -> Result<Parsed, String> {
    match kind {
        "AVRO" => {
            let texts: Vec<String> = references.iter().map(|(_, text)| text.clone()).collect();
            AvroSchema::parse(text, &texts).map(Parsed::Avro)
        }
        "PROTOBUF" => ProtobufSchema::compile(text, references).map(Parsed::Protobuf),
        "JSON" => JsonSchema::compile_with(text.as_bytes(), references).map(Parsed::Json),
        other => Err(format!("of the kind {other}, which is not known")),
    }
}

/// Follows no redirect: the answer must come from where the operator said.
fn client() -> Result<reqwest::Client, String> {
    let builder = reqwest::Client::builder().connect_timeout(PATIENCE).timeout(PATIENCE).redirect(reqwest::redirect::Policy::none());
    builder.build().map_err(|error| format!("no HTTP client: {error}"))
}

fn failed(error: reqwest::Error) -> Trouble {
    let said = match (error.is_timeout(), error.is_connect()) {
        (true, _) => format!("the registry gives no answer within {} s", PATIENCE.as_secs()),
        (_, true) => "the registry refuses the connection, or its host is not known".to_owned(),
        _ => "the connection to the registry broke".to_owned(),
    };
    Trouble::Other(said)
}

fn schema_id(value: &[u8]) -> Option<u32> {
    match framing(value) {
        Framing::Confluent { schema_id } => Some(schema_id),
        Framing::Unframed => None,
    }
}

impl Subject {
    /// Whether a framed value fits the reader's schema. What is not framed is not guessed to be.
    pub fn judge(&self, value: &[u8], mask: &[String]) -> Fit {
        let Some(id) = schema_id(value) else {
            return Fit::Unclear("is not framed, so nobody knows what it was written with".to_owned());
        };
        let writer = match self.writers.get(&id) {
            Some(Ok(writer)) => writer,
            Some(Err(why)) => return Fit::Unclear(why.clone()),
            // What a transform made: framed with the reader's own id.
            None if id == self.reader.id => &self.reader,
            None => return Fit::Unclear(format!("schema id {id} was not asked for")),
        };
        let payload = value.get(FRAME_LENGTH..).unwrap_or_default();
        let fit = match (&self.reader.parsed, &writer.parsed) {
            (Ok(Parsed::Avro(reader)), Ok(Parsed::Avro(writer))) => reader.judge(writer, payload),
            (Ok(Parsed::Protobuf(reader)), Ok(Parsed::Protobuf(writer))) => reader.judge(writer, payload, self.message.as_deref()),
            (Ok(Parsed::Json(reader)), Ok(Parsed::Json(_))) => reader.judge(payload, mask),
            (Ok(_), Ok(_)) => Fit::Unfit(format!("is {}, and the reader reads {}", writer.kind, self.reader.kind)),
            (Err(why), _) | (_, Err(why)) => Fit::Unclear(format!("the schema is {why}")),
        };
        match fit {
            Fit::Unfit(why) => Fit::Unfit(format!("schema id {id}: {why}")),
            fit => fit,
        }
    }

    /// What a filter makes of a value: of JSON only, framed with the reader's id.
    ///
    /// # Errors
    /// The value is Avro or Protobuf, or the filter refuses it.
    pub fn transformed(&self, transform: &Transform, value: &[u8]) -> Result<Vec<u8>, Refusal> {
        let Ok(Parsed::Json(_)) = &self.reader.parsed else { return Err(Refusal::Kind(self.reader.kind.clone())) };
        let output = transform.apply(value.get(FRAME_LENGTH..).unwrap_or_default())?;
        Ok([&[0][..], &self.reader.id.to_be_bytes(), &output].concat())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use wiremock::matchers::{method, path};
    use wiremock::{Mock, MockServer, ResponseTemplate};

    use super::*;

    /// Each answer comes in time, and all of them together do not.
    #[tokio::test]
    async fn many_small_waits_are_no_hang() {
        const STEP: Duration = Duration::from_millis(100);
        let server = MockServer::start().await;
        let refers = |to: usize| serde_json::json!([{ "name": format!("part-{to}"), "subject": "part", "version": to }]);
        let answer =
            |to: usize| -> Value { serde_json::json!({ "id": 1, "schemaType": "JSON", "schema": "true", "references": refers(to) }) };
        for (at, body) in std::iter::once(("/subjects/s/versions/latest".to_owned(), answer(1)))
            .chain((1..100).map(|at| (format!("/subjects/part/versions/{at}"), answer(at + 1))))
        {
            let slow = ResponseTemplate::new(200).set_body_json(body).set_delay(STEP);
            Mock::given(method("GET")).and(path(at)).respond_with(slow).mount(&server).await;
        }
        // The one error is "there is one already".
        let _ = rustls::crypto::ring::default_provider().install_default();
        let registry = Registry { in_all: STEP * 5, ..Registry::new(Secret::new(server.uri()), "s".to_owned(), None) };
        for said in [registry.now(&[]).await.err(), registry.contents().await.err(), registry.described().await.err()] {
            assert!(said.as_deref().is_some_and(|why| why.contains("takes longer than")), "{said:?}");
        }
    }
}
