//! Protobuf: decoded with the reader's descriptor.
//!
//! Almost any bytes are some Protobuf message, so decoding alone says little. A payload fits when the message it was written as is the one the reader
//! reads; each field that both know has the same encoding in both; what `required` (proto2) asks for is there; and no field is in it that neither the
//! reader nor the writer knows. A field that only the writer knows fits: readers skip it.

use std::collections::HashMap;

use prost_reflect::{DynamicMessage, FieldDescriptor, FileDescriptor, Kind, MessageDescriptor, ReflectMessage as _, Value};
use protox::Compiler;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};

use super::Fit;

/// Name of the schema itself among its references.
const MAIN: &str = "lazaret.proto";

/// A compiled `.proto` file.
#[derive(Debug)]
pub struct ProtobufSchema {
    file: FileDescriptor,
}

/// Files that the registry holds, by the names under which they are imported.
struct InMemory(HashMap<String, String>);

impl FileResolver for InMemory {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match self.0.get(name) {
            Some(source) => File::from_source(name, source),
            None => Err(protox::Error::file_not_found(name)),
        }
    }
}

impl ProtobufSchema {
    /// Compiles a file. `references`: name and text of each import but Google's own.
    ///
    /// # Errors
    /// It is no `.proto`, or an import is missing: why.
    pub fn compile(text: &str, references: &[(String, String)]) -> Result<ProtobufSchema, String> {
        let mut files: HashMap<String, String> = references.iter().cloned().collect();
        files.insert(MAIN.to_owned(), text.to_owned());
        let mut resolver = ChainFileResolver::new();
        resolver.add(InMemory(files));
        resolver.add(GoogleFileResolver::new());
        let mut compiler = Compiler::with_file_resolver(resolver);
        compiler.include_imports(true).open_file(MAIN).map_err(|error| format!("no Protobuf schema: {error}"))?;
        let file = compiler.descriptor_pool().get_file_by_name(MAIN);
        file.map(|file| ProtobufSchema { file }).ok_or_else(|| "no Protobuf schema".to_owned())
    }

    /// Whether a message written with `writer` can be read with this one. `rest` begins with the message's place in the writer's file, as Confluent's
    /// serializers write it. `expected`: the message that the reader reads; None: the one it was written as.
    pub fn judge(&self, writer: &ProtobufSchema, rest: &[u8], expected: Option<&str>) -> Fit {
        let Some((places, payload)) = message_indexes(rest) else {
            return Fit::Unfit("does not begin with the place of its message".to_owned());
        };
        let Some(written) = writer.message(&places) else {
            return Fit::Unfit("names a message that the schema it was written with does not hold".to_owned());
        };
        if expected.is_some_and(|name| name != written.full_name() && name != written.name()) {
            return Fit::Unfit(format!("is a {}, and the reader reads another message", written.full_name()));
        }
        let Some(reader) = self.file.parent_pool().get_message_by_name(written.full_name()) else {
            return Fit::Unfit(format!("is a {}, which the reader's schema does not hold", written.full_name()));
        };
        match DynamicMessage::decode(reader, payload) {
            Ok(message) => misfit(&message, &written, "").map_or(Fit::Fits, Fit::Unfit),
            // prost names fields and encodings, never a value.
            Err(error) => Fit::Unfit(format!("cannot be decoded as {}: {error}", written.full_name())),
        }
    }

    fn message(&self, places: &[usize]) -> Option<MessageDescriptor> {
        let (first, inner) = places.split_first()?;
        let declared =
            |messages: Vec<MessageDescriptor>, place: usize| messages.into_iter().filter(|found| !found.is_map_entry()).nth(place);
        let outermost = declared(self.file.messages().collect(), *first)?;
        inner.iter().try_fold(outermost, |message, place| declared(message.child_messages().collect(), *place))
    }
}

/// Confluent's message indexes: a count, then the indexes from the outermost message inwards, all zigzag varints; a single 0 byte is the first message.
fn message_indexes(bytes: &[u8]) -> Option<(Vec<usize>, &[u8])> {
    /// Deeper nesting than anybody declares.
    const DEPTH: usize = 64;
    let (count, mut rest) = zigzag(bytes)?;
    if count == 0 {
        return Some((vec![0], rest));
    }
    let mut places = Vec::new();
    for _ in 0..usize::try_from(count).ok().filter(|count| *count <= DEPTH)? {
        let (place, after) = zigzag(rest)?;
        places.push(usize::try_from(place).ok()?);
        rest = after;
    }
    Some((places, rest))
}

fn zigzag(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let mut value = 0_u64;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f).checked_shl(u32::try_from(at * 7).ok()?)?;
        if byte & 0x80 == 0 {
            return Some(((value >> 1) as i64 ^ -((value & 1) as i64), &bytes[at + 1..]));
        }
    }
    None
}

/// What does not fit in a message or those inside of it, with the names of the fields that lead there.
fn misfit(message: &DynamicMessage, written: &MessageDescriptor, at: &str) -> Option<String> {
    let reader = message.descriptor();
    let place = |name: &str| if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
    if let Some(field) = reader.fields().find(|field| field.is_required() && !message.has_field(field)) {
        return Some(format!("{} is missing", place(field.name())));
    }
    if let Some(field) = message.unknown_fields().find(|field| written.get_field(field.number()).is_none()) {
        return Some(format!("{} holds field {}, which nobody declares", if at.is_empty() { "the message" } else { at }, field.number()));
    }
    message.fields().find_map(|(field, value)| {
        let counterpart = written.get_field(field.number());
        match &counterpart {
            Some(written) if !same_encoding(written, &field) => Some(format!("{} was written with another type", place(field.name()))),
            counterpart => inner_misfit(value, counterpart.as_ref(), &place(field.name())),
        }
    })
}

fn inner_misfit(value: &Value, written: Option<&FieldDescriptor>, at: &str) -> Option<String> {
    let written_as = |message: &DynamicMessage| match written.map(FieldDescriptor::kind) {
        Some(Kind::Message(written)) => written,
        _ => message.descriptor(),
    };
    match value {
        Value::Message(message) => misfit(message, &written_as(message), at),
        Value::List(values) => values.iter().find_map(|value| inner_misfit(value, written, at)),
        Value::Map(entries) => {
            let value_field = written.and_then(|field| match field.kind() {
                Kind::Message(entry) if entry.is_map_entry() => Some(entry.map_entry_value_field()),
                _ => None,
            });
            entries.values().find_map(|value| inner_misfit(value, value_field.as_ref(), at))
        }
        _ => None,
    }
}

/// Whether both read the same bytes as the same kind of value (protobuf.dev, "Updating A Message Type").
fn same_encoding(one: &FieldDescriptor, other: &FieldDescriptor) -> bool {
    let encoding = |kind: Kind| match kind {
        Kind::Int32 | Kind::Int64 | Kind::Uint32 | Kind::Uint64 | Kind::Bool | Kind::Enum(_) => 0,
        Kind::Sint32 | Kind::Sint64 => 1,
        Kind::Fixed32 | Kind::Sfixed32 => 2,
        Kind::Fixed64 | Kind::Sfixed64 => 3,
        Kind::String | Kind::Bytes => 4,
        Kind::Message(_) => 5,
        Kind::Float => 6,
        Kind::Double => 7,
    };
    encoding(one.kind()) == encoding(other.kind()) && one.is_map() == other.is_map()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(body: &str) -> ProtobufSchema {
        ProtobufSchema::compile(&format!("syntax = \"proto3\"; package shop; {body}"), &[]).expect("a schema")
    }

    /// `id` = "a", `cents` = 3
    const ORDER: &[u8] = b"\x00\x0a\x01a\x10\x03";

    #[test]
    fn what_fits_is_read_as_it_was_written() {
        let written = compile("message Order { string id = 1; int64 cents = 2; }");
        for (reader, expected, said) in [
            ("message Order { string id = 1; int64 cents = 2; }", None, None),
            ("message Order { string id = 1; int64 cents = 2; }", Some("Order"), None),
            ("message Order { string id = 1; int64 cents = 2; }", Some("shop.Order"), None),
            ("message Order { string id = 1; int64 cents = 2; }", Some("Refund"), Some("another message")),
            ("message Order { string id = 1; }", None, None),
            ("message Order { bytes id = 1; uint32 cents = 2; string note = 3; }", None, None),
            ("message Order { string id = 1; sint64 cents = 2; }", None, Some("cents was written with another type")),
            ("message Order { int64 id = 1; int64 cents = 2; }", None, Some("cannot be decoded")),
            ("message Refund { string id = 1; }", None, Some("does not hold")),
        ] {
            let fit = compile(reader).judge(&written, ORDER, expected);
            match (said, fit) {
                (None, fit) => assert_eq!(fit, Fit::Fits, "{reader}"),
                (Some(said), Fit::Unfit(why)) => assert!(why.contains(said), "{reader}: {why}"),
                (Some(_), fit) => panic!("{reader}: {fit:?}"),
            }
        }
    }

    #[test]
    fn bytes_that_nobody_wrote_do_not_fit() {
        let schema = compile("message Order { string id = 1; int64 cents = 2; }");
        for payload in [
            &b"\x00\x4a\x01a"[..],
            b"\x00\x0a\x05a",
            b"",
            b"\x02\x04\x0a\x01a",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x00\x0a\x01\xff",
        ] {
            assert!(matches!(schema.judge(&schema, payload, None), Fit::Unfit(_)), "{payload:?}");
        }
    }

    #[test]
    fn required_fields_nested_messages_and_imports() {
        let proto2 = "syntax = \"proto2\"; import \"money.proto\"; import \"google/protobuf/timestamp.proto\";
            message Order { message Line { required string sku = 1; } required string id = 1; repeated Line lines = 2;
              map<string, Line> by_sku = 3; optional Money total = 4; optional google.protobuf.Timestamp at = 5; }";
        let money = ("money.proto".to_owned(), "syntax = \"proto3\"; message Money { int64 cents = 1; }".to_owned());
        let schema = ProtobufSchema::compile(proto2, &[money]).expect("a schema");
        let said = |payload: &[u8]| match schema.judge(&schema, payload, None) {
            Fit::Unfit(why) => why,
            fit => format!("{fit:?}"),
        };
        assert_eq!(said(b"\x00\x0a\x01a\x12\x03\x0a\x01s"), "Fits");
        assert_eq!(said(b"\x00\x12\x03\x0a\x01s"), "id is missing");
        assert_eq!(said(b"\x00\x0a\x01a\x12\x00"), "lines.sku is missing");
        assert_eq!(said(b"\x00\x0a\x01a\x1a\x05\x0a\x01k\x12\x00"), "by_sku.sku is missing");
        assert_eq!(said(b"\x00\x0a\x01a\x22\x02\x48\x01"), "total holds field 9, which nobody declares");
        // The message Order.Line itself: two indexes, 0 and 0.
        assert_eq!(said(b"\x04\x00\x00\x0a\x01s"), "Fits");
        assert_eq!(said(b"\x04\x00\x00"), "sku is missing");
        assert!(ProtobufSchema::compile(proto2, &[]).is_err_and(|why| why.contains("money.proto")));
    }
}
