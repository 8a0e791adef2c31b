//! Case K1 and framed values: Avro, Protobuf and JSON Schema from a registry that speaks Confluent's API.

use lazaret::config::{Config, Purpose};
use lazaret::domain::record::Record;
use lazaret::domain::verdict::{Checked, Decision, SchemaVerdict};
use lazaret::services::replay::Entry;
use lazaret::services::replay::check::{Candidate, Checker};
use serde_json::{Value, json};
use wiremock::matchers::{header, method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::support::{Server, unique};

const ORDER_1: &str = r#"{"type":"record","name":"Order","fields":[{"name":"id","type":"string"},{"name":"amount","type":"int"}]}"#;
const ORDER_2: &str = r#"{"type":"record","name":"Order","fields":[{"name":"id","type":"string"},{"name":"amount","type":"long"},{"name":"currency","type":"string","default":"EUR"}]}"#;
const ORDER_3: &str = r#"{"type":"record","name":"Order","fields":[{"name":"id","type":"string"},{"name":"shop","type":"string"}]}"#;
const SHOP: &str = r#"syntax = "proto3"; package shop; import "money.proto"; message Order { string id = 1; Money total = 2; } message Refund { string id = 1; }"#;
const MONEY: &str = r#"syntax = "proto3"; package shop; message Money { int64 cents = 1; }"#;
const PAYMENT: &str = r#"{"type":"object","required":["id"],"properties":{"id":{"type":"integer"},"total":{"$ref":"money.json"}}}"#;
const MONEY_JSON: &str = r#"{"type":"object","required":["cents"],"properties":{"cents":{"type":"integer"}}}"#;

/// One DLQ whose payloads are checked against a subject of the registry at `url`.
struct Rig {
    config: Config,
    checker: Checker,
}

impl Rig {
    fn new(url: &str, subject: &str, rest: &str) -> Rig {
        lazaret::app::use_ring();
        let text = format!(
            "[clusters.main]\nbootstrap_servers = '127.0.0.1:1'\n[schemas.order]\nkind = 'registry'\nurl = '{url}'\nsubject = '{subject}'\n{rest}\n\
             [[dlq]]\ncluster = 'main'\ntopics = ['orders.DLQ']\n[dlq.schema]\nuse = 'order'\n"
        );
        let config = Config::from_text(&text, "test", "".into(), Vec::new(), Purpose::Check).expect("a configuration");
        let checker = Checker::new(&config.ledgers, &config.schemas);
        Rig { config, checker }
    }

    fn entry(&self) -> Entry<'_> {
        Entry { settings: &self.config.dlqs[0].settings, terms: &self.config.dlqs[0].replay }
    }

    async fn check(&self, transform: Option<&str>, values: &[&[u8]]) -> Vec<Checked> {
        let messages: Vec<Candidate> = values.iter().map(|value| candidate(value)).collect();
        self.checker.check(self.entry(), transform, &messages, 1_796_083_200_000).await
    }

    async fn verdicts(&self, values: &[&[u8]]) -> Vec<SchemaVerdict> {
        self.check(None, values).await.iter().map(|checked| checked.schema).collect()
    }
}

fn candidate(value: &[u8]) -> Candidate {
    let value = Some(value.to_vec());
    let record = Record { topic: "orders.DLQ".into(), partition: 0, offset: 0, timestamp_ms: None, key: None, value, headers: Vec::new() };
    Candidate { message_id: 1, record, origin_at_ms: Some(1_796_083_100_000), timestamp_suspect: false }
}

/// Confluent's frame around a payload.
fn framed(id: u32, payload: &[u8]) -> Vec<u8> {
    [&[0][..], &id.to_be_bytes(), payload].concat()
}

/// A registry with the answers that Confluent's API documents.
async fn registry(answers: &[(&str, u16, Value)]) -> MockServer {
    let server = MockServer::start().await;
    for (at, status, body) in answers {
        let answer = ResponseTemplate::new(*status).set_body_json(body);
        Mock::given(method("GET")).and(path(*at)).respond_with(answer).mount(&server).await;
    }
    server
}

fn missing() -> Value {
    json!({"error_code": 40403, "message": "Schema not found"})
}

#[tokio::test]
async fn k1_what_is_framed_and_what_is_not() {
    use SchemaVerdict::{Compatible, CouldNotCheck, Incompatible};
    let latest = json!({"subject":"orders-value","version":2,"id":43,"schema":ORDER_2});
    let server = registry(&[
        ("/subjects/orders-value/versions/latest", 200, latest),
        ("/schemas/ids/42", 200, json!({"schema":ORDER_1})),
        ("/schemas/ids/44", 200, json!({"schema":ORDER_3})),
        ("/schemas/ids/7", 404, missing()),
    ])
    .await;
    let rig = Rig::new(&server.uri(), "orders-value", "");
    let (fits, cut, other, unknown) = (framed(42, b"\x02a\x06"), framed(42, b"\x02a"), framed(44, b"\x02a\x02b"), framed(7, b"\x02a\x06"));
    let values: [&[u8]; 7] = [&fits, &cut, &other, &unknown, b"\x00\x00", br#"{"id":"a"}"#, b"\x01\x00\x00\x00\x2a\x02a\x06"];
    let checked = rig.check(None, &values).await;
    let said: Vec<_> = checked.iter().map(|checked| checked.schema).collect();
    assert_eq!(said, [Compatible, Incompatible, Incompatible, CouldNotCheck, CouldNotCheck, CouldNotCheck, CouldNotCheck], "{checked:?}");
    assert!(checked[3].schema_note.as_deref().unwrap().contains("knows no schema id 7"), "{checked:?}");
    assert!(checked[4].schema_note.as_deref().unwrap().contains("not framed"), "{checked:?}");
    assert_eq!(checked[3].decision(&[], true), Decision::Held);
    // Ids are asked for once, also those that are not there.
    rig.check(None, &values).await;
    let asked = server.received_requests().await.expect("a record of requests");
    assert_eq!(asked.iter().filter(|request| request.url.path() == "/schemas/ids/42").count(), 1);
    assert_eq!(asked.iter().filter(|request| request.url.path() == "/schemas/ids/7").count(), 1);
}

#[tokio::test]
async fn k4_a_registry_that_is_away_holds() {
    let server = registry(&[
        ("/subjects/orders-value/versions/latest", 200, json!({"id":43,"schema":ORDER_2})),
        ("/schemas/ids/42", 503, json!({})),
        ("/subjects/down-value/versions/latest", 503, json!({})),
        ("/subjects/none-value/versions/latest", 404, missing()),
        ("/subjects/secret-value/versions/latest", 401, json!({})),
        ("/subjects/odd-value/versions/latest", 200, json!(["no registry"])),
        ("/subjects/broken-value/versions/latest", 200, json!({"id":9,"schema":"{"})),
        ("/subjects/new-value/versions/latest", 200, json!({"id":9,"schema":"{}","schemaType":"THRIFT"})),
    ])
    .await;
    let value = framed(42, b"\x02a\x06");
    let dead = "http://user:hunter2@127.0.0.1:1".to_owned();
    for (url, subject, why) in [
        (server.uri(), "orders-value", "answered 503"),
        (server.uri(), "down-value", "answered 503"),
        (server.uri(), "none-value", "knows no subject none-value"),
        (server.uri(), "secret-value", "refuses the user"),
        (server.uri(), "odd-value", "none of a schema registry"),
        (server.uri(), "broken-value", "no Avro schema"),
        (server.uri(), "new-value", "THRIFT"),
        (dead, "orders-value", "refuses the connection"),
    ] {
        let checked = Rig::new(&url, subject, "").check(None, &[&value]).await.remove(0);
        assert_eq!((checked.schema, checked.decision(&[], true)), (SchemaVerdict::CouldNotCheck, Decision::Held), "{subject}");
        let note = checked.schema_note.as_deref().unwrap();
        assert!(note.contains(why) && !note.contains("hunter2"), "{subject}: {note}");
    }
}

#[tokio::test]
async fn the_urls_user_is_told_to_the_registry_and_its_path_is_kept() {
    let server = MockServer::start().await;
    let answer = ResponseTemplate::new(200).set_body_json(json!({"id":43,"schema":ORDER_2}));
    let basic = header("authorization", "Basic dXNlcjpodW50ZXIy");
    Mock::given(path("/apis/ccompat/v7/subjects/a%2Fb/versions/latest")).and(basic).respond_with(answer).mount(&server).await;
    let url = format!("{}/apis/ccompat/v7/", server.uri()).replace("http://", "http://user:hunter2@");
    assert_eq!(
        Rig::new(&url, "a/b", "").verdicts(&[&framed(43, b"\x02a\x06\x02x")]).await,
        [SchemaVerdict::CouldNotCheck],
        "43 is asked for too"
    );
    assert!(Rig::new(&url, "a/b", "").checker.schemas.described("order").await.is_ok_and(|said| said == "AVRO of a/b (id 43)"));
}

#[tokio::test]
async fn protobuf_with_references_and_a_named_message() {
    use SchemaVerdict::{Compatible, Incompatible};
    let reference = json!([{"name":"money.proto","subject":"money","version":1}]);
    let shop = json!({"id":5,"schemaType":"PROTOBUF","schema":SHOP,"references":reference});
    let server = registry(&[
        ("/subjects/shop-value/versions/latest", 200, shop.clone()),
        ("/schemas/ids/5", 200, shop),
        ("/subjects/money/versions/1", 200, json!({"id":4,"schemaType":"PROTOBUF","schema":MONEY})),
    ])
    .await;
    let order = framed(5, b"\x00\x0a\x01a\x12\x02\x08\x03");
    let refund = framed(5, b"\x02\x02\x0a\x01a");
    let garbage = framed(5, b"\x00\x4a\x01a");
    let any = Rig::new(&server.uri(), "shop-value", "");
    assert_eq!(any.verdicts(&[&order, &refund, &garbage]).await, [Compatible, Compatible, Incompatible]);
    let orders = Rig::new(&server.uri(), "shop-value", "message = 'shop.Order'");
    assert_eq!(orders.verdicts(&[&order, &refund, &garbage]).await, [Compatible, Incompatible, Incompatible]);
}

#[tokio::test]
async fn framed_json_with_references_and_a_transform() {
    use SchemaVerdict::{Compatible, Incompatible, Transformed};
    let reference = json!([{"name":"money.json","subject":"money","version":3}]);
    let payment = json!({"id":6,"schemaType":"JSON","schema":PAYMENT,"references":reference});
    let server = registry(&[
        ("/subjects/payments-value/versions/latest", 200, payment.clone()),
        ("/schemas/ids/6", 200, payment),
        ("/schemas/ids/2", 200, json!({"schemaType":"JSON","schema":"{}"})),
        ("/subjects/money/versions/3", 200, json!({"id":1,"schemaType":"JSON","schema":MONEY_JSON})),
    ])
    .await;
    let rig = Rig::new(&server.uri(), "payments-value", "");
    let (fits, not) = (framed(6, br#"{"id":1,"total":{"cents":3}}"#), framed(2, br#"{"id":1,"total":{"SECRET":"SECRET"}}"#));
    assert_eq!(rig.verdicts(&[&fits, &not]).await, [Compatible, Incompatible]);
    let checked = rig.check(Some(".total = {cents: 300}"), &[&fits, &not]).await;
    assert_eq!(checked[1].schema, Transformed, "{checked:?}");
    assert_eq!(checked[1].transformed, Some(framed(6, br#"{"id":1,"total":{"cents":300}}"#)), "with the id of what it fits");
    assert!(!format!("{:?}", checked[1].schema_note).contains("SECRET"), "{checked:?}");
}

#[tokio::test]
async fn s9_a_new_version_of_the_subject_changes_the_fingerprint() {
    let answers = |schema: &str| [("/subjects/orders-value/versions/latest", 200, json!({"id":43,"schema":schema}))];
    let print = async |schema: &str| {
        let server = registry(&answers(schema)).await;
        let rig = Rig::new(&server.uri(), "orders-value", "");
        rig.checker.fingerprint(rig.entry()).await.expect("a fingerprint")
    };
    assert_eq!(print(ORDER_1).await, print(ORDER_1).await);
    assert_ne!(print(ORDER_1).await, print(ORDER_2).await);
    let away = Rig::new("http://127.0.0.1:1", "orders-value", "");
    assert!(away.checker.fingerprint(away.entry()).await.is_err_and(|why| why.contains("refuses the connection")));
}

/// Registers a schema with the real registry; its id.
async fn register(url: &str, subject: &str, schema: Value) -> u32 {
    let client = reqwest::Client::new();
    let request =
        client.post(format!("{url}/subjects/{subject}/versions")).header("content-type", "application/vnd.schemaregistry.v1+json");
    let answer = request.body(schema.to_string()).send().await.expect("the registry answers");
    let (status, text) = (answer.status(), answer.text().await.expect("a text"));
    assert!(status.is_success(), "{status}: {text}");
    let answer: Value = serde_json::from_str(&text).expect("JSON");
    u32::try_from(answer["id"].as_u64().expect("an id")).expect("4 bytes")
}

#[tokio::test]
#[ignore = "needs a real schema registry: run tests/run"]
async fn avro_from_a_real_registry() {
    use SchemaVerdict::{Compatible, CouldNotCheck, Incompatible};
    lazaret::app::use_ring();
    let (url, subject) = (Server::Registry.address(), unique("orders-value"));
    let first = register(&url, &subject, json!({"schema": ORDER_1})).await;
    let rig = Rig::new(&url, &subject, "");
    let print = rig.checker.fingerprint(rig.entry()).await.expect("a fingerprint");
    let second = register(&url, &subject, json!({"schema": ORDER_2})).await;
    let other = register(&url, &unique("shops-value"), json!({"schema": ORDER_3.replace("Order", "Shop")})).await;
    assert!(first != second && second != other);
    let rig = Rig::new(&url, &subject, "");
    assert_ne!(rig.checker.fingerprint(rig.entry()).await.expect("a fingerprint"), print, "a new version");
    let values = [
        framed(first, b"\x02a\x06"),
        framed(second, b"\x02a\x06\x06USD"),
        framed(second, b"\x02a\x06"),
        framed(other, b"\x02a\x02b"),
        framed(u32::MAX - 7, b"\x02a\x06"),
    ];
    let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
    assert_eq!(rig.verdicts(&values).await, [Compatible, Compatible, Incompatible, Incompatible, CouldNotCheck]);
    let said = rig.checker.schemas.described("order").await.expect("described");
    assert!(said.starts_with("AVRO of") && said.contains("version 2"), "{said}");
}

#[tokio::test]
#[ignore = "needs a real schema registry: run tests/run"]
async fn protobuf_and_json_with_references_from_a_real_registry() {
    use SchemaVerdict::{Compatible, Incompatible};
    lazaret::app::use_ring();
    let url = Server::Registry.address();
    let (money, shop) = (unique("money-proto"), unique("shop-value"));
    register(&url, &money, json!({"schema": MONEY, "schemaType": "PROTOBUF"})).await;
    let references = json!([{"name": "money.proto", "subject": money, "version": 1}]);
    let id = register(&url, &shop, json!({"schema": SHOP, "schemaType": "PROTOBUF", "references": references})).await;
    let rig = Rig::new(&url, &shop, "message = 'shop.Order'");
    let (order, refund) = (framed(id, b"\x00\x0a\x01a\x12\x02\x08\x03"), framed(id, b"\x02\x02\x0a\x01a"));
    let checked = rig.check(None, &[&order, &refund]).await;
    assert_eq!(checked.iter().map(|checked| checked.schema).collect::<Vec<_>>(), [Compatible, Incompatible], "{checked:?}");

    let (money, payment) = (unique("money-json"), unique("payments-value"));
    register(&url, &money, json!({"schema": MONEY_JSON, "schemaType": "JSON"})).await;
    let references = json!([{"name": "money.json", "subject": money, "version": 1}]);
    let id = register(&url, &payment, json!({"schema": PAYMENT, "schemaType": "JSON", "references": references})).await;
    let rig = Rig::new(&url, &payment, "");
    let (fits, not) = (framed(id, br#"{"id":1,"total":{"cents":3}}"#), framed(id, br#"{"id":1,"total":{"cents":"3"}}"#));
    let checked = rig.check(None, &[&fits, &not]).await;
    assert_eq!(checked.iter().map(|checked| checked.schema).collect::<Vec<_>>(), [Compatible, Incompatible], "{checked:?}");
}
