//! What the configuration names for the checks and what is none: a schema file that is no JSON Schema, a transform that is no jq. The room `config`
//! reads keys; what the files hold is for `schema` to say. Registries are not asked here: they may be down when we start.

use std::collections::BTreeMap;

use crate::config::{ConfigError, Fault};
use crate::domain::terms::{ReplayTerms, Schema, SchemaKind};
use crate::schema::{Schemas, text_file};

/// Looks into every file that the checks use. `terms`: those of each `[[dlq]]`, in the order of the file.
///
/// # Errors
/// What is wrong, with key, place and remedy.
pub async fn refuse(terms: impl Iterator<Item = &ReplayTerms>, schemas: &BTreeMap<String, Schema>) -> Result<(), ConfigError> {
    let room = Schemas::new(schemas);
    let mut faults = Vec::new();
    for (name, schema) in schemas {
        if let SchemaKind::JsonSchema { .. } = &schema.kind
            && let Err(what) = room.described(name).await
        {
            let remedy = "Put a JSON Schema (draft 4 to 2020-12) there; what it refers to must be inside of it".to_owned();
            faults.push(Fault { key: format!("schemas.{name}.path"), what, remedy });
        }
    }
    for (index, terms) in terms.enumerate() {
        let Some(path) = terms.schema.as_ref().and_then(|check| check.transform.as_ref()) else { continue };
        let text = text_file(path).await;
        let compiled = text.and_then(|text| room.transform(&text).map_err(|fault| format!("{}: {fault}", path.display())));
        if let Err(what) = compiled {
            let remedy = "Correct the jq filter; it gets the value as JSON and gives what is to be sent".to_owned();
            faults.push(Fault { key: format!("dlq[{index}].schema.transform"), what, remedy });
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(ConfigError::Faults { source_name: "the files that the checks use".to_owned(), faults }) }
}
