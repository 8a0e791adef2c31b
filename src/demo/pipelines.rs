//! The made-up shop: which consumers it has, how each fails and in which framework's words. A table; nothing here decides anything.

use std::collections::BTreeSet;

use super::payloads::{self, PayloadOf};
use crate::domain::dialect::Dialect;
use crate::domain::settings::{CustomDialect, CustomField, DialectChoice, DlqSettings, Encoding, TopicMatch};
use crate::domain::template::KeyTemplate;

/// One consumer of the shop and the topic that its dead letters go to.
pub(super) struct Pipeline {
    pub(super) topic: &'static str,
    pub(super) dialect: Dialect,
    pub(super) origin: &'static str,
    pub(super) group: &'static str,
    pub(super) owner: &'static str,
    /// Template of the key that identifies a message for people and ledgers.
    pub(super) business_key: &'static str,
    pub(super) mask: &'static [&'static str],
    /// How long the topic has kept its records, so how far its history reaches back.
    pub(super) kept_days: i64,
    /// Dead letters on a usual weekday.
    pub(super) per_day: f64,
    /// Dead letters that lie in the topic when the demo starts, for dialects that copy the original's timestamp: their history would
    /// all be dated "first seen now", so they have none.
    pub(super) backlog: u32,
    /// Its share of the new failures while the demo runs.
    pub(super) trickle_weight: u32,
    pub(super) payload: PayloadOf,
    pub(super) failures: &'static [Failure],
}

/// One way to fail. `{name}` in the texts is filled from the event's facts (`payloads::Facts`), `{message}` and the exceptions in traces.
pub(super) struct Failure {
    pub(super) weight: u32,
    pub(super) exception: &'static str,
    pub(super) cause: Option<&'static str>,
    pub(super) message: &'static str,
    pub(super) trace: &'static str,
}

/// A past hour in which one consumer failed far more than usual.
pub(super) struct Incident {
    pub(super) topic: &'static str,
    pub(super) hours_ago: i64,
    pub(super) minutes: i64,
    pub(super) count: u32,
    /// Index into the pipeline's failures.
    pub(super) failure: usize,
}

pub(super) const WALLET: &str = "payments.wallet.DLQ";
pub(super) const NOTIFY: &str = "payments.notify.DLQ";

/// Every DLQ of the demo has this many partitions, and so has every origin topic.
pub(super) const PARTITIONS: i32 = 3;

const LISTENER: &str = "org.springframework.kafka.listener.ListenerExecutionFailedException";

pub(super) const INCIDENTS: &[Incident] = &[
    Incident { topic: NOTIFY, hours_ago: 9 * 24 + 5, minutes: 50, count: 45, failure: 0 },
    Incident { topic: "orders_error", hours_ago: 3 * 24 + 2, minutes: 20, count: 30, failure: 1 },
    Incident { topic: "orders.fulfilment-dlt", hours_ago: 16 * 24 + 9, minutes: 90, count: 60, failure: 0 },
];

/// What the outage looks like in the wallet's dead letters.
pub(super) const OUTAGE: Failure = Failure {
    weight: 0,
    exception: LISTENER,
    cause: Some("com.northquay.wallet.WalletUnavailableException"),
    message: "wallet database wallet-db-1.payments.svc:5432 refused the connection (attempt 4 of 4, waited 30000 ms)",
    trace: concat!(
        "{exception}: Listener method 'void com.northquay.wallet.DebitListener.onPayment(PaymentInitiated)' threw exception\n",
        "\tat org.springframework.kafka.listener.KafkaMessageListenerContainer$ListenerConsumer.decorateException(KafkaMessageListenerContainer.java:2944)\n",
        "\tat org.springframework.kafka.listener.KafkaMessageListenerContainer$ListenerConsumer.doInvokeRecordListener(KafkaMessageListenerContainer.java:2841)\n",
        "Caused by: {cause}: {message}\n",
        "\tat com.northquay.wallet.db.WalletConnections.borrow(WalletConnections.java:88)\n",
        "\tat com.northquay.wallet.DebitService.debit(DebitService.java:131)\n",
        "\tat com.northquay.wallet.DebitListener.onPayment(DebitListener.java:54)\n",
        "Caused by: org.postgresql.util.PSQLException: Connection to wallet-db-1.payments.svc:5432 refused.\n",
        "\tat org.postgresql.core.v3.ConnectionFactoryImpl.openConnectionImpl(ConnectionFactoryImpl.java:346)\n",
        "\t... 14 more\n",
    ),
};

/// A payload from before the migration, as the wallet words it.
pub(super) const UNREADABLE: Failure = Failure {
    weight: 0,
    exception: LISTENER,
    cause: Some("com.fasterxml.jackson.databind.exc.MismatchedInputException"),
    message: "Missing required creator property 'amount_cents' (index 4)",
    trace: concat!(
        "{exception}: Listener failed\nCaused by: {cause}: {message}\n",
        "\tat com.fasterxml.jackson.databind.exc.MismatchedInputException.from(MismatchedInputException.java:59)\n",
        "\tat com.northquay.wallet.DebitListener.onPayment(DebitListener.java:47)\n",
    ),
};

/// A customer who cannot pay.
pub(super) const INSUFFICIENT_FUNDS: Failure = Failure {
    weight: 0,
    exception: LISTENER,
    cause: Some("com.northquay.wallet.InsufficientFundsException"),
    message: "the wallet holds less than the payment needs",
    trace: concat!(
        "{exception}: Listener failed\nCaused by: {cause}: {message}\n",
        "\tat com.northquay.wallet.Balance.reserve(Balance.java:41)\n",
        "\tat com.northquay.wallet.DebitService.debit(DebitService.java:122)\n",
    ),
};

pub(super) const PIPELINES: &[Pipeline] = &[
    Pipeline {
        topic: WALLET,
        dialect: Dialect::SpringDlt,
        origin: "payments.initiated",
        group: "wallet",
        owner: "payments",
        business_key: "{value:/payment_id}",
        mask: &["/card/number", "/email"],
        kept_days: 28,
        per_day: 18.0,
        backlog: 0,
        trickle_weight: 2,
        payload: payloads::payment,
        failures: &[
            Failure {
                weight: 9,
                exception: LISTENER,
                cause: Some("java.net.SocketTimeoutException"),
                message: "Read timed out after {ms} ms calling https://ledger-{n}.payments.svc:8443/v2/entries",
                trace: concat!(
                    "{exception}: Listener failed\nCaused by: {cause}: {message}\n",
                    "\tat java.base/sun.nio.ch.NioSocketImpl.timedRead(NioSocketImpl.java:278)\n",
                    "\tat com.northquay.wallet.ledger.LedgerClient.append(LedgerClient.java:73)\n",
                    "\tat com.northquay.wallet.DebitService.debit(DebitService.java:140)\n",
                ),
            },
            Failure {
                weight: 5,
                exception: LISTENER,
                cause: Some("com.northquay.wallet.InsufficientFundsException"),
                message: "wallet of {user} holds {n} cents, payment {payment} needs {amount}",
                trace: concat!(
                    "{exception}: Listener failed\nCaused by: {cause}: {message}\n",
                    "\tat com.northquay.wallet.Balance.reserve(Balance.java:41)\n",
                    "\tat com.northquay.wallet.DebitService.debit(DebitService.java:122)\n",
                ),
            },
            Failure {
                weight: 3,
                exception: LISTENER,
                cause: Some("jakarta.validation.ConstraintViolationException"),
                message: "debit.currency: must match \"[A-Z]{3}\", was \"eur\" in payment {payment}",
                trace: concat!(
                    "{exception}: Listener failed\nCaused by: {cause}: {message}\n",
                    "\tat org.hibernate.validator.internal.engine.ValidatorImpl.validate(ValidatorImpl.java:170)\n",
                    "\tat com.northquay.wallet.DebitListener.onPayment(DebitListener.java:49)\n",
                ),
            },
            Failure {
                weight: 1,
                exception: LISTENER,
                cause: Some("java.lang.NullPointerException"),
                message: "Cannot invoke \"com.northquay.wallet.Limit.daily()\" because \"limit\" is null",
                trace: "{exception}: Listener failed\nCaused by: {cause}: {message}\n\tat com.northquay.wallet.LimitCheck.check(LimitCheck.java:27)\n",
            },
        ],
    },
    Pipeline {
        topic: "orders.fulfilment-dlt",
        dialect: Dialect::SpringRetry,
        origin: "orders.placed",
        group: "fulfilment",
        owner: "orders",
        business_key: "{value:/order_id}",
        mask: &["/ship_to/street"],
        kept_days: 27,
        per_day: 22.0,
        backlog: 0,
        trickle_weight: 3,
        payload: payloads::order,
        failures: &[
            Failure {
                weight: 6,
                exception: LISTENER,
                cause: Some("org.springframework.web.client.HttpServerErrorException$ServiceUnavailable"),
                message: "503 Service Unavailable from POST https://carrier-api.example/v1/labels: \"no capacity, request {uuid}\"",
                trace: concat!(
                    "{exception}: Listener failed\nCaused by: {cause}: {message}\n",
                    "\tat org.springframework.web.client.DefaultResponseErrorHandler.handleError(DefaultResponseErrorHandler.java:183)\n",
                    "\tat com.northquay.fulfilment.CarrierClient.label(CarrierClient.java:66)\n",
                ),
            },
            Failure {
                weight: 3,
                exception: LISTENER,
                cause: Some("com.fasterxml.jackson.databind.exc.InvalidFormatException"),
                message: "Cannot deserialize value of type `java.time.LocalDate` from String \"31.11.2026\": Text '31.11.2026' could not be parsed at index 0",
                trace: concat!(
                    "{exception}: Listener failed\nCaused by: {cause}: {message}\n",
                    "\tat com.fasterxml.jackson.databind.exc.InvalidFormatException.from(InvalidFormatException.java:67)\n",
                    "\tat com.northquay.fulfilment.OrderReader.read(OrderReader.java:35)\n",
                ),
            },
            Failure {
                weight: 4,
                exception: LISTENER,
                cause: Some("com.northquay.fulfilment.UnknownSkuException"),
                message: "SKU {n} of order {order} is not stocked in any warehouse",
                trace: "{exception}: Listener failed\nCaused by: {cause}: {message}\n\tat com.northquay.fulfilment.Allocation.place(Allocation.java:92)\n",
            },
        ],
    },
    Pipeline {
        topic: NOTIFY,
        dialect: Dialect::Smallrye,
        origin: "payments.settled",
        group: "notify",
        owner: "payments",
        business_key: "{value:/payment_id}",
        mask: &["/email"],
        kept_days: 27,
        per_day: 30.0,
        backlog: 0,
        trickle_weight: 4,
        payload: payloads::notification,
        failures: &[
            Failure {
                weight: 6,
                exception: "java.util.concurrent.CompletionException",
                cause: Some("java.net.ConnectException"),
                message: "Connection refused: smtp-relay-2.mail.svc/10.2.14.{n}:587",
                trace: "",
            },
            Failure {
                weight: 3,
                exception: "com.northquay.notify.TemplateMissingException",
                cause: None,
                message: "no template 'receipt' for locale de-AT, payment {payment}",
                trace: "",
            },
            Failure {
                weight: 2,
                exception: "jakarta.mail.internet.AddressException",
                cause: None,
                message: "Local address contains control or whitespace in string at position {n}",
                trace: "",
            },
        ],
    },
    Pipeline {
        topic: "orders_error",
        dialect: Dialect::Masstransit,
        origin: "orders.placed",
        group: "order-billing",
        owner: "orders",
        business_key: "{value:/message/orderId}",
        mask: &["/message/email"],
        kept_days: 6,
        per_day: 16.0,
        backlog: 0,
        trickle_weight: 2,
        payload: payloads::envelope,
        failures: &[
            Failure {
                weight: 4,
                exception: "System.TimeoutException",
                cause: None,
                message: "The operation has timed out after {ms} ms.",
                trace: concat!(
                    "   at Shop.Orders.Billing.InvoiceClient.CreateAsync(Invoice invoice) in /src/Billing/InvoiceClient.cs:line 58\n",
                    "   at Shop.Orders.OrderSubmittedConsumer.Consume(ConsumeContext`1 context) in /src/OrderSubmittedConsumer.cs:line 31\n",
                ),
            },
            Failure {
                weight: 3,
                exception: "Npgsql.PostgresException",
                cause: None,
                message: "40P01: deadlock detected (0x80004005): Process {n} waits for ShareLock on transaction {ms}",
                trace: concat!(
                    "   at Npgsql.Internal.NpgsqlConnector.ReadMessageLong(Boolean async, DataRowLoadingMode dataRowLoadingMode)\n",
                    "   at Shop.Orders.Data.OrderStore.SaveAsync(Order order) in /src/Data/OrderStore.cs:line 112\n",
                ),
            },
            Failure {
                weight: 2,
                exception: "System.Text.Json.JsonException",
                cause: None,
                message: "The JSON value could not be converted to System.Decimal. Path: $.lines[0].price | LineNumber: 0 | BytePositionInLine: {n}.",
                trace: "   at Shop.Orders.Contracts.OrderReader.Read(ReadOnlySpan`1 json) in /src/Contracts/OrderReader.cs:line 24\n",
            },
            Failure {
                weight: 1,
                exception: "System.NullReferenceException",
                cause: None,
                message: "Object reference not set to an instance of an object.",
                trace: "   at Shop.Orders.Pricing.Discounts.Apply(Order order) in /src/Pricing/Discounts.cs:line 77\n",
            },
        ],
    },
    Pipeline {
        topic: "risk.poison",
        dialect: Dialect::Watermill,
        origin: "payments.initiated",
        group: "risk",
        owner: "risk",
        business_key: "{value:/payment_id}",
        mask: &["/card/number", "/email"],
        kept_days: 14,
        per_day: 9.0,
        backlog: 0,
        trickle_weight: 2,
        payload: payloads::payment,
        failures: &[
            Failure {
                weight: 4,
                exception: "",
                cause: None,
                message: "score payment {payment}: model call: context deadline exceeded",
                trace: "",
            },
            Failure {
                weight: 3,
                exception: "",
                cause: None,
                message: "score payment {payment}: dial tcp 10.4.2.{n}:9000: connect: connection refused",
                trace: "",
            },
            Failure {
                weight: 2,
                exception: "",
                cause: None,
                message: "json: cannot unmarshal string into Go struct field Payment.amount_cents of type int64",
                trace: "",
            },
        ],
    },
    Pipeline {
        topic: "fraud.features.dlq",
        dialect: Dialect::Custom,
        origin: "payments.initiated",
        group: "fraud-features",
        owner: "risk",
        business_key: "{value:/payment_id}",
        mask: &["/card/number", "/email"],
        kept_days: 6,
        per_day: 14.0,
        backlog: 0,
        trickle_weight: 2,
        payload: payloads::payment,
        failures: &[
            Failure {
                weight: 3,
                exception: "KeyError",
                cause: None,
                message: "'device_fingerprint'",
                trace: concat!(
                    "Traceback (most recent call last):\n",
                    "  File \"/app/features/consumer.py\", line 88, in handle\n    row = extract(event)\n",
                    "  File \"/app/features/extract.py\", line 41, in extract\n    device = event[\"device_fingerprint\"]\n",
                    "{exception}: {message}\n",
                ),
            },
            Failure {
                weight: 4,
                exception: "requests.exceptions.ReadTimeout",
                cause: None,
                message: "HTTPConnectionPool(host='geo-ip.risk.svc', port=8080): Read timed out. (read timeout={n})",
                trace: concat!(
                    "Traceback (most recent call last):\n",
                    "  File \"/app/features/geo.py\", line 27, in locate\n    answer = session.get(url, timeout=TIMEOUT)\n",
                    "{exception}: {message}\n",
                ),
            },
            Failure {
                weight: 2,
                exception: "pydantic_core._pydantic_core.ValidationError",
                cause: None,
                message: "1 validation error for Payment\ncard.bin\n  Field required [type=missing, input_value={'number': '**'}, input_type=dict]",
                trace: concat!(
                    "Traceback (most recent call last):\n",
                    "  File \"/app/features/consumer.py\", line 84, in handle\n    event = Payment.model_validate_json(raw)\n",
                    "{exception}: {message}\n",
                ),
            },
        ],
    },
    Pipeline {
        topic: "support.email.dead",
        dialect: Dialect::Custom,
        origin: "support.replies",
        group: "support-mailer",
        owner: "support",
        business_key: "{value:/ticket}",
        mask: &["/email"],
        kept_days: 5,
        per_day: 6.0,
        backlog: 0,
        trickle_weight: 1,
        payload: payloads::reply,
        failures: &[
            Failure {
                weight: 3,
                exception: "TypeError",
                cause: None,
                message: "Cannot read properties of undefined (reading 'locale')",
                trace: concat!(
                    "{exception}: {message}\n    at renderReply (/app/dist/render.js:118:31)\n",
                    "    at process.processTicksAndRejections (node:internal/process/task_queues:105:5)\n    at async onReply (/app/dist/consumer.js:54:5)\n",
                ),
            },
            Failure {
                weight: 2,
                exception: "Error",
                cause: None,
                message: "read ECONNRESET",
                trace: "{exception}: {message}\n    at TCP.onStreamRead (node:internal/stream_base_commons:218:20)\n    at async send (/app/dist/smtp.js:71:9)\n",
            },
            Failure {
                weight: 1,
                exception: "PayloadTooLargeError",
                cause: None,
                message: "request entity too large: {ms} bytes, limit 102400",
                trace: "{exception}: {message}\n    at readStream (/app/node_modules/raw-body/index.js:163:17)\n    at attach (/app/dist/attachments.js:22:11)\n",
            },
        ],
    },
    Pipeline {
        topic: "inventory-sink-dlq",
        dialect: Dialect::KafkaConnect,
        origin: "inventory.changes",
        group: "connect-inventory-sink",
        owner: "warehouse",
        business_key: "{key}",
        mask: &[],
        kept_days: 0,
        per_day: 0.0,
        backlog: 14,
        trickle_weight: 1,
        payload: payloads::stock_change,
        failures: &[
            Failure {
                weight: 3,
                exception: "org.apache.kafka.connect.errors.DataException",
                cause: None,
                message: "Failed to deserialize data for topic inventory.changes to Avro: schema id 42 not found (404)",
                trace: concat!(
                    "org.apache.kafka.connect.errors.DataException: {message}\n",
                    "\tat io.confluent.connect.avro.AvroConverter.toConnectData(AvroConverter.java:150)\n",
                    "\tat org.apache.kafka.connect.runtime.WorkerSinkTask.convertValue(WorkerSinkTask.java:540)\n",
                ),
            },
            Failure {
                weight: 1,
                exception: "java.sql.BatchUpdateException",
                cause: None,
                message: "Batch entry {n} INSERT INTO stock was aborted: ERROR: value too long for type character varying(32)",
                trace: concat!(
                    "java.sql.BatchUpdateException: {message}\n",
                    "\tat org.postgresql.jdbc.BatchResultHandler.handleError(BatchResultHandler.java:165)\n",
                    "\tat io.confluent.connect.jdbc.sink.BufferedRecords.executeUpdates(BufferedRecords.java:196)\n",
                ),
            },
        ],
    },
    Pipeline {
        topic: "clicks.app.dlq",
        dialect: Dialect::KafkaStreams,
        origin: "clicks.raw",
        group: "clicks-sessions",
        owner: "analytics",
        business_key: "{value:/session}",
        mask: &["/ip"],
        kept_days: 0,
        per_day: 0.0,
        backlog: 20,
        trickle_weight: 2,
        payload: payloads::click,
        failures: &[
            Failure {
                weight: 3,
                exception: "org.apache.kafka.common.errors.SerializationException",
                cause: None,
                message: "Error deserializing JSON message at line 1 column {n}",
                trace: concat!(
                    "{exception}: {message}\n",
                    "\tat org.apache.kafka.streams.processor.internals.RecordDeserializer.deserialize(RecordDeserializer.java:67)\n",
                    "\tat com.northquay.clicks.Sessions.main(Sessions.java:38)\n",
                ),
            },
            Failure {
                weight: 1,
                exception: "org.apache.kafka.common.errors.RecordTooLargeException",
                cause: None,
                message: "The message is {ms} bytes when serialized which is larger than 1048576",
                trace: "{exception}: {message}\n\tat org.apache.kafka.streams.processor.internals.RecordCollectorImpl.send(RecordCollectorImpl.java:201)\n",
            },
            Failure {
                weight: 1,
                exception: "java.lang.ClassCastException",
                cause: None,
                message: "class java.lang.Integer cannot be cast to class java.lang.Long",
                trace: "{exception}: {message}\n\tat com.northquay.clicks.SessionWindow.merge(SessionWindow.java:57)\n",
            },
        ],
    },
];

/// All topics with their partitions: the DLQs, and the topics their dead letters came from, each once.
pub(super) fn topics() -> impl Iterator<Item = (&'static str, i32)> {
    let names: BTreeSet<&str> = PIPELINES.iter().flat_map(|pipeline| [pipeline.topic, pipeline.origin]).collect();
    names.into_iter().map(|topic| (topic, PARTITIONS))
}

/// What an operator of the shop would configure: one entry a DLQ.
pub(super) fn settings(cluster: &str) -> Vec<DlqSettings> {
    PIPELINES.iter().map(|pipeline| settings_of(cluster, pipeline)).collect()
}

fn settings_of(cluster: &str, pipeline: &Pipeline) -> DlqSettings {
    let dialect = match pipeline.dialect {
        Dialect::Custom => DialectChoice::Custom(house_convention()),
        _ => DialectChoice::Auto,
    };
    DlqSettings {
        owner: Some(pipeline.owner.to_owned()),
        consumer_group: Some(pipeline.group.to_owned()),
        dialect,
        business_key: KeyTemplate::parse(pipeline.business_key).ok(),
        mask: pipeline.mask.iter().map(|&pointer| pointer.to_owned()).collect(),
        ..DlqSettings::for_topics(cluster, TopicMatch::Names(vec![pipeline.topic.to_owned()]))
    }
}

/// How `headers::house_convention` is to be read.
fn house_convention() -> CustomDialect {
    let field = |header: &str| Some(CustomField { header: header.to_owned(), encoding: Encoding::Text });
    CustomDialect {
        origin_topic: field("shop-source-topic"),
        origin_partition: field("shop-source-partition"),
        origin_offset: field("shop-source-offset"),
        origin_timestamp: field("shop-source-timestamp"),
        consumer_group: field("shop-consumer-group"),
        exception_class: field("shop-error-type"),
        exception_message: field("shop-error-message"),
        stacktrace: field("shop-error-trace"),
        attempts: field("shop-attempts"),
        dead_lettered_at: field("shop-failed-at"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pipeline_is_configured_and_can_fail() {
        let settings = settings("demo");
        assert_eq!(settings.len(), PIPELINES.len());
        for (pipeline, configured) in PIPELINES.iter().zip(&settings) {
            assert!(configured.business_key.is_some(), "{}: {} is no template", pipeline.topic, pipeline.business_key);
            assert!(pipeline.failures.iter().any(|failure| failure.weight > 0), "{}", pipeline.topic);
            assert!((pipeline.per_day > 0.0) != (pipeline.backlog > 0), "{}: a history or a backlog", pipeline.topic);
        }
        for incident in INCIDENTS {
            let reaches = |pipeline: &&Pipeline| pipeline.topic == incident.topic && pipeline.kept_days * 24 > incident.hours_ago;
            let pipeline = PIPELINES.iter().find(reaches);
            assert!(pipeline.is_some_and(|pipeline| incident.failure < pipeline.failures.len()), "{}", incident.topic);
        }
    }
}
