//! `[schemas.NAME]`: what a payload is checked against.

use super::reader::Section;
use super::values;
use crate::domain::settings::Secret;
use crate::domain::terms::{Schema, SchemaKind};

pub(super) fn schema(mut section: Section<'_>) -> Option<Schema> {
    let Some(kind) = section.required_text("kind", "json_schema") else {
        section.ignore_the_rest();
        return None;
    };
    let kind = match kind.as_str() {
        "json_schema" => {
            section.require("path", "schemas/payment.json");
            SchemaKind::JsonSchema { path: section.existing_file("path")? }
        }
        "registry" => {
            let url = section.required_text("url", "http://registry:8081");
            let url = url.and_then(|url| section.parse("url", &url, values::http_url));
            let subject = section.required_text("subject", "orders-value");
            let message = section.text("message");
            SchemaKind::Registry { url: Secret::new(url?), subject: subject?, message }
        }
        _ => {
            section.fault("kind", format!("{kind:?} is not known"), "Use json_schema or registry");
            section.ignore_the_rest();
            return None;
        }
    };
    Some(Schema { kind })
}
