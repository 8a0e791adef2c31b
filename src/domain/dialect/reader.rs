//! The rules that hold for every row of the table: which dialect a record is of, which repetition of a header counts, which values belong
//! to one pass through the dead-letter queue.

use super::super::record::{Header, Record, display_both_ends, display_text_within};
use super::super::returns::Place;
use super::super::settings::DialectChoice;
use super::table::{AFTER_UFORWARDER, BEFORE_UFORWARDER, CustomRow, Field, Meaning, RecordTime, Repeats, Spec, row};
use super::uforwarder::{Metadata, Strictness};
use super::values::{Form, Number, number, text};
use super::{DeadLetteredAt, Dialect, FieldReading, Origin, Reading};

/// Texts are cut to about this many bytes. A Kafka topic's name has at most 249 characters.
const NAME_LIMIT: usize = 512;
const MESSAGE_LIMIT: usize = 16 * 1024;
const STACKTRACE_LIMIT: usize = 64 * 1024;
/// On the message page the bytes themselves stand beside the reading.
const SHOWN_LIMIT: usize = 200;

/// What a record was recognised as.
pub(super) enum Recognised<'a> {
    Row(&'static Spec<'static>),
    Custom(CustomRow<'a>),
    Uforwarder(Metadata),
    Nothing,
}

impl Recognised<'_> {
    /// The row to read headers by, where there is one.
    pub(super) fn spec(&self) -> Option<Spec<'_>> {
        match self {
            Recognised::Row(spec) => Some(**spec),
            Recognised::Custom(row) => Some(row.spec()),
            Recognised::Uforwarder(_) | Recognised::Nothing => None,
        }
    }
}

/// The configured dialect if the record is of it, else the first of the table. A DLQ configured as `none` is read by nothing.
pub(super) fn recognise<'a>(record: &Record, choice: &'a DialectChoice) -> Recognised<'a> {
    let own = match choice {
        DialectChoice::Auto | DialectChoice::Named(Dialect::Custom) => None,
        DialectChoice::Named(Dialect::None) => return Recognised::Nothing,
        DialectChoice::Named(Dialect::Uforwarder) => Metadata::from_key(record, Strictness::Configured).map(Recognised::Uforwarder),
        DialectChoice::Named(dialect) => row(*dialect).filter(|spec| is_of(record, spec)).map(Recognised::Row),
        DialectChoice::Custom(mapping) => Some(CustomRow::new(mapping)).filter(|row| is_of(record, &row.spec())).map(Recognised::Custom),
    };
    own.or_else(|| first_of(record, &BEFORE_UFORWARDER))
        .or_else(|| Metadata::from_key(record, Strictness::Guarded).map(Recognised::Uforwarder))
        .or_else(|| first_of(record, &AFTER_UFORWARDER))
        .unwrap_or(Recognised::Nothing)
}

fn first_of<'a>(record: &Record, rows: &'static [Spec<'static>]) -> Option<Recognised<'a>> {
    rows.iter().find(|spec| is_of(record, spec)).map(Recognised::Row)
}

/// Every dialect whose headers are on the record, in the table's order.
pub(super) fn recognised_by_table(record: &Record) -> impl Iterator<Item = &'static Spec<'static>> + '_ {
    BEFORE_UFORWARDER.iter().chain(&AFTER_UFORWARDER).filter(|spec| is_of(record, spec))
}

/// Every whole place that the headers of a dialect name: one for each pass through a dead-letter queue or retry topic.
pub(super) fn places(record: &Record, spec: &Spec<'_>) -> Vec<Place> {
    let values = |meaning: Meaning| -> Vec<(usize, &Field<'_>, &[u8])> {
        let Some(field) = spec.fields.iter().find(|field| field.meaning == meaning) else { return Vec::new() };
        let repetitions = record.headers.iter().enumerate().filter(|(_, header)| header.name == field.name.as_bytes());
        repetitions.filter_map(|(at, header)| Some((at, field, header.value.as_deref()?))).collect()
    };
    let topics = values(Meaning::OriginTopic);
    if topics.is_empty() {
        return Vec::new();
    }
    let (partitions, offsets) = (values(Meaning::OriginPartition), values(Meaning::OriginOffset));
    // As many of each: the first belongs to the first, whatever the order within a pass. Else a pass left one out: what follows a topic's name, up to
    // the next one, is of its pass.
    let aligned = topics.len() == partitions.len() && topics.len() == offsets.len();
    let of_pass = |values: &[(usize, &Field<'_>, &[u8])], pass: usize| {
        let next = topics.get(pass + 1).map_or(usize::MAX, |(at, ..)| *at);
        let followed = |(at, ..): &&(usize, &Field<'_>, &[u8])| topics[pass].0 < *at && *at < next;
        let (_, field, bytes) = if aligned { values.get(pass) } else { values.iter().find(followed) }?;
        number(field.form, bytes).map(|number| number.value).filter(|number| *number >= 0)
    };
    let place = |pass: usize| {
        let (_, field, bytes) = topics[pass];
        let topic = text(field.form, bytes, NAME_LIMIT)?;
        Some(Place { topic, partition: of_pass(&partitions, pass)?.try_into().ok()?, offset: of_pass(&offsets, pass)? })
    };
    (0..topics.len()).filter_map(place).collect()
}

fn is_of(record: &Record, spec: &Spec<'_>) -> bool {
    spec.recognised_by.iter().any(|name| record.headers.iter().any(|header| header.name == name.as_bytes()))
}

/// Where a header stands on a record: how often, first and last.
#[derive(Debug, Clone, Copy)]
struct Places {
    count: usize,
    first: usize,
    last: usize,
    /// The second, if there is one.
    second: usize,
}

fn repetitions(headers: &[Header], name: &str) -> Option<Places> {
    let mut found: Option<Places> = None;
    for (at, _) in headers.iter().enumerate().filter(|(_, header)| header.name == name.as_bytes()) {
        match &mut found {
            None => found = Some(Places { count: 1, first: at, last: at, second: usize::MAX }),
            Some(places) => {
                places.count += 1;
                places.last = at;
                places.second = places.second.min(at);
            }
        }
    }
    found
}

/// Reads one record by one row.
struct Reader<'a> {
    headers: &'a [Header],
    spec: &'a Spec<'a>,
    /// Where the headers stand to which the other origin values, and the other values of a failure, belong.
    topic: Option<Places>,
    exception: Option<Places>,
}

impl<'a> Reader<'a> {
    fn new(record: &'a Record, spec: &'a Spec<'a>) -> Reader<'a> {
        let anchor = |meaning| {
            spec.fields.iter().filter(|field| field.meaning == meaning).find_map(|field| repetitions(&record.headers, field.name))
        };
        Reader { headers: &record.headers, spec, topic: anchor(Meaning::OriginTopic), exception: anchor(Meaning::ExceptionClass) }
    }

    /// The repetition of a field that counts; null and empty values say nothing.
    fn bytes(&self, field: &Field<'_>) -> Option<&'a [u8]> {
        let places = repetitions(self.headers, field.name)?;
        let takes_first = (self.spec.repeats == Repeats::OriginFirst) == field.meaning.is_origin();
        let anchor = if field.meaning.is_origin() { self.topic } else { self.exception };
        // A pass may leave a header out (an exception without a message, say). With fewer repetitions than its anchor has, the
        // value could be of another pass: it must stand on the anchor's side.
        if let Some(anchor) = anchor.filter(|anchor| places.count < anchor.count) {
            let is_of_that_pass = if takes_first { places.first < anchor.second } else { places.last > anchor.last };
            if !is_of_that_pass {
                return None;
            }
        }
        let at = if takes_first { places.first } else { places.last };
        self.headers[at].value.as_deref().filter(|value| !value.is_empty())
    }

    fn text(&self, meaning: Meaning) -> Option<String> {
        let limit = if meaning == Meaning::ExceptionMessage { MESSAGE_LIMIT } else { NAME_LIMIT };
        let mut fields = self.spec.fields.iter().filter(|field| field.meaning == meaning);
        fields.find_map(|field| text(field.form, self.bytes(field)?, limit))
    }

    fn number(&self, meaning: Meaning) -> Option<i64> {
        let mut fields = self.spec.fields.iter().filter(|field| field.meaning == meaning);
        fields.find_map(|field| number(field.form, self.bytes(field)?)).map(|number| number.value)
    }

    fn stacktrace(&self) -> Option<String> {
        let mut fields = self.spec.fields.iter().filter(|field| field.meaning == Meaning::Stacktrace);
        fields.find_map(|field| self.bytes(field)).map(|bytes| display_both_ends(bytes, STACKTRACE_LIMIT))
    }

    fn origin(&self, record: &Record) -> Option<Origin> {
        let not_negative = |meaning| self.number(meaning).filter(|number| *number >= 0);
        let mut origin = Origin {
            topic: self.text(Meaning::OriginTopic),
            partition: not_negative(Meaning::OriginPartition).and_then(|partition| partition.try_into().ok()),
            offset: not_negative(Meaning::OriginOffset),
            timestamp_ms: not_negative(Meaning::OriginTimestamp),
        };
        if self.spec.time == RecordTime::Copied {
            origin.timestamp_ms = origin.timestamp_ms.or(record.timestamp_ms);
        }
        if let Some(correct) = self.spec.correct {
            correct(&mut origin);
        }
        (origin != Origin::default()).then_some(origin)
    }

    fn dead_lettered_at(&self) -> DeadLetteredAt {
        match (self.number(Meaning::DeadLetteredAt), self.spec.time) {
            (Some(ms), _) => DeadLetteredAt::Header { ms },
            (None, RecordTime::New) => DeadLetteredAt::Record,
            (None, RecordTime::Copied | RecordTime::Unknown) => DeadLetteredAt::FirstSeen,
        }
    }
}

/// Reads a record that is of this dialect. History and configured group are the caller's.
pub(super) fn read(record: &Record, spec: &Spec<'_>) -> Reading {
    let reader = Reader::new(record, spec);
    let cause_class = reader.text(Meaning::CauseClass);
    let exception_class = reader.text(Meaning::ExceptionClass);
    let connector = || reader.text(Meaning::ConnectorName).map(|name| format!("connect-{name}"));
    Reading {
        dialect: spec.dialect,
        history: Vec::new(),
        origin: reader.origin(record),
        consumer_group: reader.text(Meaning::ConsumerGroup).or_else(connector),
        exception_class: if spec.prefers_cause {
            cause_class.clone().or(exception_class)
        } else {
            exception_class.or_else(|| cause_class.clone())
        },
        cause_class,
        exception_message: reader.text(Meaning::ExceptionMessage),
        stacktrace: reader.stacktrace(),
        attempts: reader.number(Meaning::Attempts),
        stage: reader.text(Meaning::Stage),
        dead_lettered_at: reader.dead_lettered_at(),
        places: places(record, spec),
    }
}

/// How each header that is of this dialect was read.
pub(super) fn field_readings(record: &Record, spec: &Spec<'_>) -> Vec<FieldReading> {
    let mut readings = Vec::new();
    for (at, header) in record.headers.iter().enumerate() {
        if let Some(field) = spec.fields.iter().find(|field| field.name.as_bytes() == header.name) {
            let (value, odd) = in_words(field, header.value.as_deref());
            readings.push(FieldReading { header: Some(at), meaning: field.meaning.words(), value, odd });
        } else if spec.is_never_read(&header.name) {
            let length = header.value.as_ref().map_or(0, Vec::len);
            readings.push(FieldReading { header: Some(at), meaning: "not read", value: format!("{length} bytes"), odd: false });
        }
    }
    readings
}

fn in_words(field: &Field<'_>, value: Option<&[u8]>) -> (String, bool) {
    let Some(bytes) = value else { return ("null".to_owned(), false) };
    if bytes.is_empty() {
        return ("empty".to_owned(), false);
    }
    let form = field.form.words();
    let is_number = field.meaning.is_number() || field.form == Form::Signed;
    if is_number {
        return match number(field.form, bytes) {
            Some(Number { value, odd: false }) => (format!("{value} ({form})"), false),
            Some(Number { value, odd: true }) => (format!("{value} (text; {form} was expected)"), true),
            None => (format!("not readable as {form}: {} bytes", bytes.len()), true),
        };
    }
    match text(field.form, bytes, SHOWN_LIMIT) {
        Some(text) => (format!("{text} ({form})"), std::str::from_utf8(bytes).is_err()),
        None => (format!("{} (not readable as {form})", display_text_within(bytes, SHOWN_LIMIT)), true),
    }
}
