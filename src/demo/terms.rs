//! On which terms the shop's operators allow replays: the wallet with both checks, the others not yet.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::pipelines::{PIPELINES, WALLET};
use super::wallet::LEDGER_QUERY;
use crate::domain::settings::Secret;
use crate::domain::template::KeyTemplate;
use crate::domain::terms::{ExpiredClaim, Idempotency, Ledger, ReplayTerms, Schema, SchemaCheck, SchemaKind, Tier};

/// A payment as the wallet reads it since the migration to cents.
pub(super) const PAYMENT_SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "title": "payments.initiated, version 2: amounts in cents",
  "type": "object",
  "required": ["schema_version", "payment_id", "user", "amount_cents", "currency"],
  "properties": {
    "schema_version": { "const": 2 },
    "payment_id": { "type": "string", "minLength": 1 },
    "user": { "type": "string", "minLength": 1 },
    "amount_cents": { "type": "integer", "minimum": 1 },
    "currency": { "type": "string", "pattern": "^[A-Z]{3}$" }
  }
}
"#;

const LEDGER: &str = "wallet";
const SCHEMA: &str = "payment";

/// One for each DLQ, in the order of the settings.
pub(super) fn terms() -> Vec<ReplayTerms> {
    PIPELINES.iter().map(|pipeline| if pipeline.topic == WALLET { wallet() } else { ReplayTerms::default() }).collect()
}

fn wallet() -> ReplayTerms {
    ReplayTerms {
        schema: Some(SchemaCheck { schema: SCHEMA.to_owned(), transform: None, fences: Vec::new() }),
        idempotency: KeyTemplate::parse("{value:/payment_id}").ok().map(|key| Idempotency { ledger: LEDGER.to_owned(), key }),
        ..ReplayTerms::default()
    }
}

/// The wallet's table of markers.
pub(super) fn ledgers(database: &Path) -> BTreeMap<String, Ledger> {
    let url = Secret::new(format!("sqlite://{}", database.display()));
    let durable = Some(Tier::Sql { url, query: LEDGER_QUERY.to_owned() });
    BTreeMap::from([(LEDGER.to_owned(), Ledger { expired_claim: ExpiredClaim::Hold, hot: None, durable })])
}

/// What payments look like today.
pub(super) fn schemas(path: PathBuf) -> BTreeMap<String, Schema> {
    BTreeMap::from([(SCHEMA.to_owned(), Schema { kind: SchemaKind::JsonSchema { path } })])
}
