//! Bytes survive exactly, whatever their codec and oddity.

use std::process::{Command, Stdio};

use lazaret::domain::record::{Header, Record};

use super::{Reading, cluster};
use crate::support::producer::{NewRecord, TestProducer, Topics};
use crate::support::{unique, variable};

/// One record of each oddity that the field has shown.
fn odd_records() -> Vec<NewRecord> {
    let long_ago = 946_684_799_000;
    vec![
        NewRecord::default(),
        NewRecord::value("").key(""),
        NewRecord::value("value without a key"),
        NewRecord { value: None, ..NewRecord::value("").key("tombstone") },
        NewRecord::value([0, 0xff, 0xfe, b'\n', 0]).key([0x80, 0]),
        NewRecord::value("h").header("none", None).header("empty", Some(b"")).header("zero", Some(&[0])).header("", Some(b"no name")),
        NewRecord::value("h").header("same", Some(b"1")).header("other", Some(b"2")).header("same", Some(b"3")).header("same", None),
        NewRecord::value("h").header("Größe", Some(&[0xc3, 0x28])),
        NewRecord::value("old").at(long_ago),
        NewRecord::value("from the future").at(4_102_444_800_000),
        NewRecord::value("no timestamp").at(-1),
        NewRecord::value(vec![b'x'; 200_000]),
    ]
}

fn same(sent: &NewRecord, read: &Record) {
    assert_eq!((&read.key, &read.value), (&sent.key, &sent.value));
    let headers: Vec<Header> =
        sent.headers.iter().map(|(name, value)| Header { name: name.clone().into_bytes(), value: value.clone() }).collect();
    assert_eq!(read.headers, headers);
    match sent.timestamp_ms {
        Some(-1) => assert_eq!(read.timestamp_ms, None),
        Some(ms) => assert_eq!(read.timestamp_ms, Some(ms)),
        None => assert!(read.timestamp_ms.is_some_and(|ms| ms > 1_700_000_000_000), "{:?}", read.timestamp_ms),
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn every_oddity_survives_every_codec() {
    let topics = Topics::real();
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let topic = unique(codec);
        topics.create(&topic, 1, &[("compression.type", "producer")]).await;
        let producer = TestProducer::with(topics.bootstrap(), &[("compression.type", codec)]);
        let sent = odd_records();
        producer.send_all(&topic, sent.clone());
        let mut reading = Reading::of(&cluster(topics.bootstrap()), &[&topic]);
        reading.read(sent.len()).await;
        reading.assert_complete(&(topic.clone(), 0), 0, sent.len());
        for (sent, read) in sent.iter().zip(&reading.records) {
            same(sent, read);
        }
        reading.stop().await;
        topics.delete(&[&topic]).await;
    }
}

/// rdkafka's own header reader panics on this one. librdkafka's names are C strings, and so are kcat's.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn a_header_name_that_is_no_utf8_survives() {
    use std::io::Write as _;
    use std::os::unix::ffi::OsStrExt as _;
    let topics = Topics::real();
    let topic = unique("names");
    topics.create(&topic, 1, &[]).await;
    let mut kcat = Command::new(variable("LAZARET_TEST_KCAT"))
        .args(["-P", "-b", topics.bootstrap(), "-t", &topic, "-p", "0", "-H"])
        .arg(std::ffi::OsStr::from_bytes(b"\xff\xfename=\xc3\x28"))
        .stdin(Stdio::piped())
        .spawn()
        .expect("kcat runs");
    kcat.stdin.take().unwrap().write_all(b"value").unwrap();
    assert!(kcat.wait().unwrap().success());
    let mut reading = Reading::of(&cluster(topics.bootstrap()), &[&topic]);
    reading.read(1).await;
    assert_eq!(reading.records[0].headers, [Header { name: b"\xff\xfename".to_vec(), value: Some(b"\xc3\x28".to_vec()) }]);
    reading.stop().await;
    topics.delete(&[&topic]).await;
}

/// Case S4's size and the broker's own limit.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn a_record_of_32_megabytes_comes_through() {
    let topics = Topics::real();
    let topic = unique("large");
    topics.create(&topic, 1, &[("max.message.bytes", "33554432")]).await;
    let producer = TestProducer::with(topics.bootstrap(), &[("message.max.bytes", "33554432")]);
    // The wire adds some bytes to each batch.
    let large: Vec<u8> = (0..33_554_432 - 1000).map(|n: u32| (n % 251) as u8).collect();
    producer.send_all(&topic, [NewRecord::value("before"), NewRecord::value(large.clone()), NewRecord::value("after")]);
    let mut reading = Reading::of(&cluster(topics.bootstrap()), &[&topic]);
    reading.read(3).await;
    assert!(reading.records[1].value.as_ref() == Some(&large));
    reading.stop().await;
    topics.delete(&[&topic]).await;
}
