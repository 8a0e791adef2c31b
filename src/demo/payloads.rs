//! What the shop's records hold: JSON of several shapes, one Avro value in Confluent framing, and text that means harm.

use serde_json::{Value, json};

use super::headers;
use super::random::Random;
use crate::domain::record::Header;

/// What one event is about. The same facts fill payload and error text, as they would in life.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pub(super) payment: String,
    pub(super) order: String,
    pub(super) user: String,
    pub(super) email: String,
    pub(super) amount_cents: i64,
    pub(super) uuid: String,
    /// A small number and a larger one, for the texts.
    pub(super) n: i64,
    pub(super) ms: i64,
}

impl Facts {
    /// A customer and what they did, by chance.
    pub(super) fn new(random: &mut Random) -> Facts {
        // A few customers buy much more often than others, so that some keys are hot.
        let user = if random.below(5) == 0 { random.between(1001, 1009) } else { random.between(1010, 4999) };
        Facts::of_user(random, user)
    }

    /// What this customer did, by chance.
    pub(super) fn of_user(random: &mut Random, user: i64) -> Facts {
        Facts {
            payment: random.uuid(),
            order: format!("NQ-{}", random.between(4_100_000, 4_999_999)),
            user: format!("user-{user}"),
            email: format!("user-{user}@customers.example"),
            amount_cents: random.between(150, 48_000),
            uuid: random.uuid(),
            n: random.between(2, 250),
            ms: random.between(3_000, 30_000),
        }
    }

    /// Puts the facts where a text names them in braces.
    pub(super) fn fill(&self, text: &str) -> String {
        let numbers = [("{n}", self.n), ("{ms}", self.ms), ("{amount}", self.amount_cents)];
        let words = [("{payment}", &self.payment), ("{order}", &self.order), ("{user}", &self.user), ("{uuid}", &self.uuid)];
        let text = numbers.iter().fold(text.to_owned(), |text, (name, number)| text.replace(name, &number.to_string()));
        words.iter().fold(text, |text, (name, word)| text.replace(name, word))
    }
}

/// Key, value and the business's own headers of one record.
#[derive(Debug, Clone)]
pub(super) struct Payload {
    pub(super) key: Option<Vec<u8>>,
    pub(super) value: Option<Vec<u8>>,
    pub(super) headers: Vec<Header>,
}

/// Makes a pipeline's payload.
pub(super) type PayloadOf = fn(&Facts, &mut Random) -> Payload;

/// Payment networks' own test numbers.
const CARDS: [&str; 4] = ["4111111111111111", "5555555555554444", "4242424242424242", "378282246310005"];
const TENANTS: [&str; 3] = ["nordic", "iberia", "alpine"];

pub(super) fn payment(facts: &Facts, random: &mut Random) -> Payload {
    json_payload(&facts.user, payment_value(facts, random))
}

/// A payment as `payments.initiated` carries it since the schema's migration to cents.
pub(super) fn payment_value(facts: &Facts, random: &mut Random) -> Value {
    json!({
        "schema_version": 2,
        "payment_id": facts.payment,
        "user": facts.user,
        "email": facts.email,
        "amount_cents": facts.amount_cents,
        "currency": "EUR",
        "card": { "network": "visa", "number": random.pick(&CARDS) },
        "tenant": random.pick(&TENANTS),
    })
}

/// The same as it was before that migration: an amount in euros, as text.
pub(super) fn old_payment_value(facts: &Facts, random: &mut Random) -> Value {
    json!({
        "schema_version": 1,
        "payment_id": facts.payment,
        "user": facts.user,
        "email": facts.email,
        "amount": format!("{}.{:02}", facts.amount_cents / 100, facts.amount_cents % 100),
        "card": { "network": "visa", "number": random.pick(&CARDS) },
        "tenant": random.pick(&TENANTS),
    })
}

pub(super) fn order(facts: &Facts, random: &mut Random) -> Payload {
    json_payload(
        &facts.order,
        json!({
            "order_id": facts.order,
            "customer": facts.user,
            "lines": [{ "sku": facts.n * 17, "quantity": random.between(1, 4), "price_cents": facts.amount_cents }],
            "ship_to": { "street": format!("Kaivokatu {}", random.between(1, 90)), "city": "Helsinki", "country": "FI" },
            "tenant": random.pick(&TENANTS),
        }),
    )
}

pub(super) fn notification(facts: &Facts, random: &mut Random) -> Payload {
    json_payload(
        &facts.user,
        json!({
            "payment_id": facts.payment,
            "email": facts.email,
            "template": "receipt",
            "locale": random.pick(&["fi-FI", "de-AT", "es-ES", "en-GB"]),
            "amount_cents": facts.amount_cents,
        }),
    )
}

/// MassTransit wraps the message in an envelope.
pub(super) fn envelope(facts: &Facts, random: &mut Random) -> Payload {
    json_payload(
        &facts.order,
        json!({
            "messageId": facts.uuid,
            "messageType": ["urn:message:Shop.Contracts:OrderSubmitted"],
            "message": {
                "orderId": facts.order,
                "customer": facts.user,
                "email": facts.email,
                "lines": [{ "sku": facts.n * 17, "price": random.between(100, 9_000) }],
            },
        }),
    )
}

pub(super) fn reply(facts: &Facts, random: &mut Random) -> Payload {
    json_payload(
        &facts.user,
        json!({
            "ticket": format!("T-{}", random.between(20_000, 29_999)),
            "email": facts.email,
            "subject": random.pick(&["Refund", "Where is my order?", "Wrong item", "Invoice please"]),
            "body": "Hei! Kiitos viestistäsi. We have sent you a new parcel; it should be with you in three days.",
        }),
    )
}

pub(super) fn click(facts: &Facts, random: &mut Random) -> Payload {
    json_payload(
        &facts.user,
        json!({
            "session": facts.uuid,
            "page": random.pick(&["/", "/cart", "/checkout", "/p/lamp", "/p/chair"]),
            "ip": format!("198.51.100.{}", random.between(1, 254)),
            "at": facts.ms,
        }),
    )
}

/// Schema 42: record StockChange { string sku; long quantity; string warehouse; }.
pub(super) fn stock_change(facts: &Facts, random: &mut Random) -> Payload {
    let sku = format!("SKU-{}", facts.n * 17);
    let mut value = vec![0];
    value.extend_from_slice(&42u32.to_be_bytes());
    avro_string(&mut value, &sku);
    avro_long(&mut value, random.between(-20, 400));
    let warehouse: &str = random.pick::<&str>(&["vantaa-1", "turku-2"]);
    avro_string(&mut value, warehouse);
    Payload { key: Some(sku.into_bytes()), value: Some(value), headers: Vec::new() }
}

/// Avro's binary long: zigzag, then seven bits a byte, lowest first (Avro 1.12 specification, "Binary encoding").
fn avro_long(out: &mut Vec<u8>, number: i64) {
    let mut rest = ((number << 1) ^ (number >> 63)).cast_unsigned();
    while rest >= 0x80 {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn avro_string(out: &mut Vec<u8>, text: &str) {
    avro_long(out, i64::try_from(text.len()).unwrap_or(i64::MAX));
    out.extend_from_slice(text.as_bytes());
}

pub(super) fn json_payload(key: &str, value: Value) -> Payload {
    let trace = headers::text("traceparent", &format!("00-{:032x}-{:016x}-01", digest(key, &value), key.len()));
    Payload { key: Some(key.as_bytes().to_vec()), value: Some(value.to_string().into_bytes()), headers: vec![trace] }
}

/// FNV-1a over key and value: an id for tracing that takes nothing from the story's chance.
fn digest(key: &str, value: &Value) -> u64 {
    let bytes = key.bytes().chain(value.to_string().into_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A dead letter that somebody, or an accident, made harmful to look at.
pub(super) struct Hostile {
    pub(super) message: &'static str,
    pub(super) key: Option<&'static [u8]>,
    pub(super) value: Option<Vec<u8>>,
    /// Without failure headers nothing can be recognised.
    pub(super) failure_headers: bool,
}

/// Markup, direction overrides, spreadsheet formulas, NUL and broken UTF-8, a line of 64 KB, no headers at all, nothing at all.
pub(super) fn hostile() -> Vec<Hostile> {
    let text = |text: &str| Some(text.as_bytes().to_vec());
    let line = format!("{{\"payment_id\":\"long\",\"note\":\"{}\"}}", "x".repeat(64 * 1024));
    let one = |message, key: &'static [u8], value| Hostile { message, key: Some(key), value, failure_headers: true };
    vec![
        one(
            "<script>alert('reason')</script><img src=x onerror=alert(1)>",
            b"<b>user-666</b>",
            text("{\"payment_id\":\"<script>alert(1)</script>\",\"email\":\"\\\"><svg onload=alert(1)>\"}"),
        ),
        one("=HYPERLINK(\"http://evil.example\",\"open\")", b"=1+1", text("{\"payment_id\":\"@SUM(A1:A9)\"}")),
        one("name \u{202e}gpj.exe\u{202c} refused", "user-\u{202e}7001".as_bytes(), text("{\"payment_id\":\"\u{202e}reversed\"}")),
        one("value holds \u{0} bytes", b"user-\0-7002", Some(b"\x00\xff\xfe{\"broken\": \xc3\x28}\x00".to_vec())),
        one("line too long", b"user-7003", Some(line.into_bytes())),
        Hostile { message: "", key: Some(b"user-7004"), value: text("{\"payment_id\":\"nobody-knows-why\"}"), failure_headers: false },
        Hostile { message: "tombstone", key: None, value: None, failure_headers: true },
    ]
}
