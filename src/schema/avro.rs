//! Avro: read with the writer's schema, resolved to the reader's.

use apache_avro::Schema;
use apache_avro::reader::datum::GenericDatumReader;
use apache_avro::schema_compatibility::SchemaCompatibility;
use apache_avro::types::Value;

use super::Fit;

/// What a length inside a payload may make the decoder allocate.
const ALLOCATION: usize = 64 * 1024 * 1024;
/// Payloads longer than this are not read with a schema that contains itself: each byte may be another level of nesting.
const NESTED: usize = 1024;

/// Unions one within the other that are resolved: apache-avro tries a branch before it takes it, so each level doubles the work.
const UNIONS: usize = 12;

/// A parsed schema.
#[derive(Debug)]
pub struct AvroSchema {
    /// What it refers to is written out in it.
    schema: Schema,
    /// It contains itself, so payloads may nest without end.
    recursive: bool,
}

impl AvroSchema {
    /// Parses a schema. `references`: texts of what it refers to by name.
    ///
    /// # Errors
    /// It is no Avro schema: why.
    pub fn parse(text: &str, references: &[String]) -> Result<AvroSchema, String> {
        // One limit for the process; setting it again changes nothing.
        apache_avro::util::max_allocation_bytes(ALLOCATION);
        let fault = |error: apache_avro::Error| format!("no Avro schema: {error}");
        let schema = match references {
            [] => Schema::parse_str(text).map_err(fault)?,
            references => {
                let (mut schema, others) = Schema::parse_str_with_list(text, references).map_err(fault)?;
                schema.denormalize(&others).map_err(fault)?;
                schema
            }
        };
        let recursive = contains_itself(&schema, &mut Vec::new());
        Ok(AvroSchema { schema, recursive })
    }

    /// Whether what was written with `writer` can be read with this one: decoded whole, and resolved to this schema's fields, types and defaults. The
    /// names of the outermost types must agree (or be an alias), so that a payload of another subject is not read as one of this.
    pub fn judge(&self, writer: &AvroSchema, payload: &[u8]) -> Fit {
        if (self.recursive || writer.recursive) && payload.len() > NESTED {
            return Fit::Unclear(format!("the schema contains itself, and the payload is longer than {NESTED} bytes"));
        }
        if !same_name(&writer.schema, &self.schema) {
            return Fit::Unfit("was written as another type than the reader's".to_owned());
        }
        let decoder = GenericDatumReader::builder(&writer.schema).build();
        let Ok(decoder) = decoder else { return Fit::Unclear("the schema refers to a type that it does not hold".to_owned()) };
        let mut rest = payload;
        // The errors' own words may quote the value; those about the schemas alone do not.
        let value = match decoder.read_value(&mut rest) {
            Ok(value) if rest.is_empty() => value,
            Ok(_) => return Fit::Unfit(format!("goes on for {} bytes after the end of the value", rest.len())),
            Err(_) => return Fit::Unfit("is no value of the schema it was written with".to_owned()),
        };
        if writer.schema == self.schema {
            return Fit::Fits;
        }
        if unions_within(&value) > UNIONS {
            return Fit::Unclear(format!("nests more than {UNIONS} unions, which cannot be compared with the reader's schema in time"));
        }
        match value.resolve(&self.schema) {
            Ok(_) => Fit::Fits,
            Err(_) => Fit::Unfit(match SchemaCompatibility::can_read(&writer.schema, &self.schema) {
                Ok(_) => "is no value of the reader's schema".to_owned(),
                Err(why) => format!("cannot be read with the reader's schema: {why}"),
            }),
        }
    }
}

/// How many unions lie one within the other, at most.
fn unions_within(value: &Value) -> usize {
    match value {
        Value::Union(_, inner) => 1 + unions_within(inner),
        Value::Record(fields) => fields.iter().map(|(_, value)| unions_within(value)).max().unwrap_or(0),
        Value::Array(values) => values.iter().map(unions_within).max().unwrap_or(0),
        Value::Map(values) => values.values().map(unions_within).max().unwrap_or(0),
        _ => 0,
    }
}

fn same_name(writer: &Schema, reader: &Schema) -> bool {
    match (writer.name(), reader.name()) {
        (Some(writer), Some(name)) => {
            let aliases = reader.aliases().into_iter().flatten();
            writer.name() == name.name() || aliases.into_iter().any(|alias| alias.name() == writer.name())
        }
        _ => true,
    }
}

/// Whether a type is referred to inside of itself.
fn contains_itself(schema: &Schema, within: &mut Vec<String>) -> bool {
    match schema {
        Schema::Ref { name } => within.iter().any(|outer| outer == name.name()),
        Schema::Record(record) => {
            within.push(record.name.name().to_owned());
            let found = record.fields.iter().any(|field| contains_itself(&field.schema, within));
            within.pop();
            found
        }
        Schema::Array(array) => contains_itself(&array.items, within),
        Schema::Map(map) => contains_itself(&map.types, within),
        Schema::Union(union) => union.variants().iter().any(|variant| contains_itself(variant, within)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = r#"{"type":"record","name":"Order","fields":[{"name":"id","type":"string"},{"name":"amount","type":"int"}]}"#;
    const V2: &str = r#"{"type":"record","name":"Order","fields":[{"name":"id","type":"string"},{"name":"amount","type":"long"},{"name":"currency","type":"string","default":"EUR"}]}"#;
    const V3: &str = r#"{"type":"record","name":"Order","fields":[{"name":"id","type":"string"},{"name":"shop","type":"string"}]}"#;
    /// "a", 3
    const ORDER: &[u8] = b"\x02a\x06";

    fn judge(writer: &str, reader: &str, payload: &[u8]) -> Fit {
        let parse = |text| AvroSchema::parse(text, &[]).expect("a schema");
        parse(reader).judge(&parse(writer), payload)
    }

    #[test]
    fn values_are_decoded_and_resolved_for_real() {
        assert_eq!(judge(V1, V1, ORDER), Fit::Fits);
        assert_eq!(judge(V1, V2, ORDER), Fit::Fits, "int becomes long, and the new field has a default");
        for (writer, reader, payload, why) in [
            (V1, V3, ORDER, "shop"),
            (V1, V1, &b"\x02a"[..], "no value"),
            (V1, V1, b"\x02a\x06\x00", "1 bytes after"),
            (V1, V1, b"", "no value"),
            (V2, V1, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "no value"),
            (&V1.replace("Order", "Refund"), V1, ORDER, "another type"),
        ] {
            let Fit::Unfit(said) = judge(writer, reader, payload) else { panic!("{payload:?} fits") };
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn a_payload_that_nests_without_end_fills_no_stack() {
        let list = r#"{"type":"record","name":"List","fields":[{"name":"next","type":["null","List"]}]}"#;
        let longer =
            r#"{"type":"record","name":"List","fields":[{"name":"next","type":["null","List"]},{"name":"n","type":"int","default":0}]}"#;
        let nested = |levels: usize| [vec![2; levels], vec![0]].concat();
        let judged = super::super::transform::deep(|| {
            let deepest = nested(NESTED - 1);
            [
                judge(list, list, &deepest),
                judge(list, longer, &nested(UNIONS - 1)),
                judge(list, longer, &deepest),
                judge(list, list, &nested(NESTED)),
            ]
        });
        assert!(matches!(judged, Some([Fit::Fits, Fit::Fits, Fit::Unclear(_), Fit::Unclear(_)])), "{judged:?}");
    }

    #[test]
    fn references_are_parts_of_the_schema() {
        let money = r#"{"type":"record","name":"Money","fields":[{"name":"cents","type":"long"}]}"#.to_owned();
        let order = r#"{"type":"record","name":"Order","fields":[{"name":"total","type":"Money"}]}"#;
        let schema = AvroSchema::parse(order, &[money]).expect("a schema");
        assert_eq!(schema.judge(&schema, b"\x06"), Fit::Fits);
        assert!(AvroSchema::parse(order, &[]).is_err_and(|why| why.starts_with("no Avro schema")));
    }
}
