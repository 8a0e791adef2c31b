//! What a payload is checked against: JSON Schema files, a schema registry (Avro, Protobuf, JSON Schema), and jq transforms.
//!
//! May use: `domain`, reqwest. Called by: `services`, and by `app` at start-up. No text from here holds a URL with a password, nor a value of a payload.

pub mod avro;
pub mod json;
pub mod protobuf;
pub mod registry;
pub mod transform;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use self::json::JsonSchema;
use self::registry::{Registry, Subject};
use self::transform::{FilterFault, Refusal, Transform};
use crate::domain::framing::{Framing, framing};
use crate::domain::terms::{Schema, SchemaKind};

/// Compiled filters that are kept; the next one empties the shelf.
const KEPT_TRANSFORMS: usize = 64;

/// Whether a payload fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fit {
    Fits,
    /// What does not fit, and where; never a value.
    Unfit(String),
    /// Why nobody can tell.
    Unclear(String),
}

/// All schemas that are configured.
#[derive(Debug)]
pub struct Schemas {
    sources: BTreeMap<String, Source>,
    transforms: Mutex<HashMap<String, Arc<Transform>>>,
}

#[derive(Debug)]
enum Source {
    File(FileSource),
    Registry(Box<Registry>),
}

/// A schema as it was when a chunk of messages began to be checked.
#[derive(Debug, Clone)]
pub enum Current {
    Json(Arc<JsonSchema>),
    Registry(Arc<Subject>),
}

impl Schemas {
    /// Nothing is read yet.
    pub fn new(schemas: &BTreeMap<String, Schema>) -> Schemas {
        let source = |schema: &Schema| match &schema.kind {
            SchemaKind::JsonSchema { path } => Source::File(FileSource { path: path.clone(), compiled: Mutex::new(None) }),
            SchemaKind::Registry { url, subject, message } => {
                Source::Registry(Box::new(Registry::new(url.clone(), subject.clone(), message.clone())))
            }
        };
        let sources = schemas.iter().map(|(name, schema)| (name.clone(), source(schema))).collect();
        Schemas { sources, transforms: Mutex::default() }
    }

    /// A schema as it is now, with what it takes to judge `values`: a file is read again, a registry asked (or remembered).
    ///
    /// # Errors
    /// The file or registry cannot be read, or holds no schema: which, and why.
    pub async fn now(&self, name: &str, values: &[&[u8]]) -> Result<Current, String> {
        match self.sources.get(name) {
            Some(Source::File(file)) => file.now().await.map(Current::Json),
            Some(Source::Registry(registry)) => registry.now(values).await.map(|subject| Current::Registry(Arc::new(subject))),
            None => Err(format!("there is no [schemas.{name}]")),
        }
    }

    /// What a schema says now, exactly, so that a change of it shows.
    ///
    /// # Errors
    /// As [`Schemas::now`].
    pub async fn contents(&self, name: &str) -> Result<Vec<u8>, String> {
        match self.sources.get(name) {
            Some(Source::File(file)) => file.read().await,
            Some(Source::Registry(registry)) => registry.contents().await,
            None => Err(format!("there is no [schemas.{name}]")),
        }
    }

    /// A schema in words, for a check-up and for start-up.
    ///
    /// # Errors
    /// As [`Schemas::now`].
    pub async fn described(&self, name: &str) -> Result<String, String> {
        match self.sources.get(name) {
            Some(Source::File(file)) => file.now().await.map(|_| format!("JSON Schema in {}", file.path.display())),
            Some(Source::Registry(registry)) => registry.described().await,
            None => Err(format!("there is no [schemas.{name}]")),
        }
    }

    /// A filter, compiled once for each text.
    ///
    /// # Errors
    /// It does not compile: where and why.
    pub fn transform(&self, text: &str) -> Result<Arc<Transform>, FilterFault> {
        let hash = transform::hash(text);
        let kept = || self.transforms.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(transform) = kept().get(&hash) {
            return Ok(Arc::clone(transform));
        }
        let transform = Arc::new(Transform::compile(text)?);
        let mut kept = kept();
        if kept.len() >= KEPT_TRANSFORMS {
            kept.clear();
        }
        kept.insert(hash, Arc::clone(&transform));
        Ok(transform)
    }
}

impl Current {
    /// Whether a value fits. `mask`: the DLQ's masked fields, of which no inner place is named.
    pub fn judge(&self, value: &[u8], mask: &[String]) -> Fit {
        match self {
            Current::Json(schema) => match framing(value) {
                Framing::Confluent { schema_id } => Fit::Unclear(format!(
                    "is framed (schema id {schema_id}), and the schema is a file: name the registry in [schemas] with kind = \"registry\""
                )),
                Framing::Unframed => schema.judge(value, mask),
            },
            Current::Registry(subject) => subject.judge(value, mask),
        }
    }

    /// What a filter makes of a value, framed as before.
    ///
    /// # Errors
    /// The filter cannot be used on this kind of value, or refuses it.
    pub fn transformed(&self, transform: &Transform, value: &[u8]) -> Result<Vec<u8>, Refusal> {
        match self {
            Current::Json(_) => transform.apply(value),
            Current::Registry(subject) => subject.transformed(transform, value),
        }
    }
}

/// A JSON Schema file. Its content is compared at each look, so that a replaced file is noticed whatever its date.
#[derive(Debug)]
struct FileSource {
    path: PathBuf,
    compiled: Mutex<Option<Compiled>>,
}

/// A file's content and what came of it.
type Compiled = (Vec<u8>, Result<Arc<JsonSchema>, String>);

impl FileSource {
    async fn read(&self) -> Result<Vec<u8>, String> {
        tokio::fs::read(&self.path).await.map_err(|error| unreadable(&self.path, &error))
    }

    async fn now(&self) -> Result<Arc<JsonSchema>, String> {
        let content = self.read().await?;
        let kept = || self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, result)) = kept().as_ref().filter(|(known, _)| *known == content) {
            return result.clone();
        }
        let result = JsonSchema::compile(&content).map(Arc::new).map_err(|why| format!("{} is {why}", self.path.display()));
        *kept() = Some((content, result.clone()));
        result
    }
}

/// A text file, such as a transform.
///
/// # Errors
/// It cannot be read: its name and why.
pub async fn text_file(path: &Path) -> Result<String, String> {
    tokio::fs::read_to_string(path).await.map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &std::io::Error) -> String {
    format!("{} cannot be read: {error}", path.display())
}
