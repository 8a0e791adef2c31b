//! What happened in the made-up shop: 28 days of ordinary failures, a few past incidents, and an outage that has just ended. Pure: the same seed
//! and the same now give the same records, byte for byte.

use std::collections::BTreeMap;
use std::time::Duration;

use super::headers::{self, Failed};
use super::payloads::{self, Facts, Payload};
use super::pipelines::{self, Failure, PARTITIONS, PIPELINES, Pipeline, WALLET};
use super::random::Random;
use super::wallet::{self, Database};
use crate::domain::dialect::Dialect;
use crate::domain::partition::partition_for;
use crate::domain::record::{Header, Record};
use crate::domain::settings::Partitioner;

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// How far back the history reaches, in the DLQ that keeps its records longest: the wallet's.
pub const HISTORY_DAYS: i64 = 28;
/// Dead letters of the outage, all of distinct keys.
pub const OUTAGE_MESSAGES: usize = 200;
/// Those of them that the wallet applied after all, on a retry that came through late.
pub const OUTAGE_APPLIED_LATE: usize = 12;
/// Those of them whose payload is older than the schema's migration to cents.
pub const OUTAGE_OLD_SCHEMA: usize = 3;
/// How long the outage lasted.
const OUTAGE_MS: i64 = 40 * MINUTE;
/// Usual time between two new failures once the demo runs, over all DLQs.
const TRICKLE_MEAN_MS: f64 = 12_000.0;

/// Share of a day's failures in each hour (UTC): a shop that sells in the daytime and most in the evening. Sums to 1.
const HOURS: [f64; 24] = [
    0.012, 0.008, 0.006, 0.006, 0.008, 0.014, 0.025, 0.038, 0.048, 0.054, 0.056, 0.058, 0.060, 0.056, 0.052, 0.050, 0.054, 0.064, 0.074,
    0.078, 0.070, 0.052, 0.034, 0.023,
];
/// From Monday: weekends are quieter.
const WEEKDAYS: [f64; 7] = [1.0, 0.95, 0.95, 1.0, 1.15, 0.6, 0.5];

/// One record to produce.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducedRecord {
    pub topic: &'static str,
    pub partition: i32,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<Header>,
    /// Kafka's timestamp, ms since the epoch.
    pub timestamp_ms: i64,
}

impl ProducedRecord {
    /// The record as a consumer reads it at this offset.
    pub fn as_read(&self, offset: i64) -> Record {
        Record {
            topic: self.topic.to_owned(),
            partition: self.partition,
            offset,
            timestamp_ms: Some(self.timestamp_ms),
            key: self.key.clone(),
            value: self.value.clone(),
            headers: self.headers.clone(),
        }
    }
}

/// A payment that came while the wallet's database was down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutagePayment {
    /// As the shop produced it, to [`wallet::TOPIC`].
    pub record: ProducedRecord,
    /// What the database did when the wallet tried for the last time.
    pub database: Database,
    /// When the wallet gave up on it, ms.
    pub given_up_at_ms: i64,
}

/// Tells the story: first [`Story::until_now`], then one new failure after another.
#[derive(Debug, Clone)]
pub struct Story {
    random: Random,
    /// Offsets already given in each origin partition: no two dead letters come from the same place.
    last_offset: BTreeMap<(&'static str, i32), i64>,
}

impl Story {
    /// The same seed tells the same story.
    pub fn new(seed: u64) -> Story {
        Story { random: Random::new(seed), last_offset: BTreeMap::new() }
    }

    /// All that was dead-lettered up to now but the outage, in the order of the records' timestamps.
    pub fn until_now(&mut self, now_ms: i64) -> Vec<ProducedRecord> {
        let mut records = Vec::new();
        for pipeline in PIPELINES {
            records.extend(self.history(pipeline, now_ms));
            records.extend(self.backlog(pipeline, now_ms));
        }
        records.extend(self.hostile(now_ms));
        records.sort_by_key(|record| record.timestamp_ms);
        records
    }

    /// A new failure, and how long to wait before the next.
    pub fn next_failure(&mut self, now_ms: i64) -> (ProducedRecord, Duration) {
        let pipeline = &PIPELINES[self.random.weighted(PIPELINES.iter().map(|pipeline| pipeline.trickle_weight))];
        let failure = self.failure(pipeline);
        let record = self.dead_letter(pipeline, failure, now_ms, None);
        (record, Duration::from_millis(self.random.wait_ms(TRICKLE_MEAN_MS)))
    }

    /// Ordinary failures by the hour, and the past incidents of this DLQ.
    fn history(&mut self, pipeline: &'static Pipeline, now_ms: i64) -> Vec<ProducedRecord> {
        let mut moments = self.ordinary_moments(pipeline, now_ms);
        for incident in pipelines::INCIDENTS.iter().filter(|incident| incident.topic == pipeline.topic) {
            let start = now_ms - incident.hours_ago * HOUR;
            for _ in 0..incident.count {
                moments.push((start + self.random.between(0, incident.minutes * MINUTE), Some(incident.failure)));
            }
        }
        moments.sort_unstable();
        let pick = |story: &mut Story, chosen: Option<usize>| match chosen {
            Some(index) => &pipeline.failures[index],
            None => story.failure(pipeline),
        };
        moments
            .into_iter()
            .map(|(at_ms, chosen)| {
                let failure = pick(self, chosen);
                self.dead_letter(pipeline, failure, at_ms, None)
            })
            .collect()
    }

    fn ordinary_moments(&mut self, pipeline: &Pipeline, now_ms: i64) -> Vec<(i64, Option<usize>)> {
        let first = now_ms - pipeline.kept_days * DAY;
        // From shortly before the outage on the wallet's failures are those of the outage.
        let last = if pipeline.topic == WALLET { now_ms - OUTAGE_MS - 10 * MINUTE } else { now_ms - 5_000 };
        let mut moments = Vec::new();
        if pipeline.per_day > 0.0 {
            moments.push((first, None));
        }
        let mut hour = first;
        while hour < last && pipeline.per_day > 0.0 {
            for _ in 0..self.random.poisson(pipeline.per_day * share_of_hour(hour)) {
                moments.push((self.random.between(hour, hour + HOUR - 1), None));
            }
            hour += HOUR;
        }
        moments.retain(|(at_ms, _)| (first..last).contains(at_ms));
        moments
    }

    /// What lies in the topic of a dialect that copies the original's timestamp, from the last hour and a half.
    fn backlog(&mut self, pipeline: &'static Pipeline, now_ms: i64) -> Vec<ProducedRecord> {
        (0..pipeline.backlog)
            .map(|_| {
                let at_ms = now_ms - self.random.between(MINUTE, 90 * MINUTE);
                let failure = self.failure(pipeline);
                self.dead_letter(pipeline, failure, at_ms, None)
            })
            .collect()
    }

    /// The wallet's database was down for the last 40 minutes: 200 payments of 200 users. Of 12 the last try was committed, and the answer came too late; 3 were
    /// written before the schema's migration.
    pub fn outage(&mut self, now_ms: i64) -> Vec<OutagePayment> {
        let spacing = OUTAGE_MS / OUTAGE_MESSAGES as i64;
        let one = |n: usize| {
            let given_up_at_ms = now_ms - OUTAGE_MS + n as i64 * spacing + self.random.between(0, spacing - 1);
            // Users that ordinary failures never name, so that the 200 keys are theirs alone.
            let facts = Facts::of_user(&mut self.random, 6000 + n as i64);
            let value = match n % 60 == 30 && n / 60 < OUTAGE_OLD_SCHEMA {
                true => payloads::old_payment_value(&facts, &mut self.random),
                false => payloads::payment_value(&facts, &mut self.random),
            };
            let Payload { key, value, headers } = payloads::json_payload(&facts.user, value);
            let timestamp_ms = given_up_at_ms - self.random.between(2_000, 40_000);
            let record =
                ProducedRecord { topic: wallet::TOPIC, partition: partition_of(key.as_deref()), key, value, headers, timestamp_ms };
            let late = n % 16 == 7 && n / 16 < OUTAGE_APPLIED_LATE;
            OutagePayment { record, database: if late { Database::AnswersTooLate } else { Database::Down }, given_up_at_ms }
        };
        (0..OUTAGE_MESSAGES).map(one).collect()
    }

    /// Dead letters that are harmful to look at, over the last two days.
    fn hostile(&mut self, now_ms: i64) -> Vec<ProducedRecord> {
        let Some(pipeline) = PIPELINES.iter().find(|pipeline| pipeline.topic == pipelines::NOTIFY) else {
            return Vec::new();
        };
        let mut records = Vec::new();
        for (n, hostile) in payloads::hostile().into_iter().enumerate() {
            let failure = Failure { message: hostile.message, ..template_failure(pipeline) };
            let payload = Payload { key: hostile.key.map(<[u8]>::to_vec), value: hostile.value, headers: Vec::new() };
            let facts = Facts::new(&mut self.random);
            let at_ms = now_ms - (n as i64 + 1) * 6 * HOUR;
            let mut record = self.dead_letter(pipeline, &failure, at_ms, Some((facts, payload)));
            if !hostile.failure_headers {
                record.headers.clear();
            }
            records.push(record);
        }
        records
    }

    fn failure(&mut self, pipeline: &'static Pipeline) -> &'static Failure {
        &pipeline.failures[self.random.weighted(pipeline.failures.iter().map(|failure| failure.weight))]
    }

    /// One dead letter as the pipeline's framework writes it.
    fn dead_letter(&mut self, pipeline: &Pipeline, failure: &Failure, at_ms: i64, given: Option<(Facts, Payload)>) -> ProducedRecord {
        let (facts, payload) = given.unwrap_or_else(|| {
            let facts = Facts::new(&mut self.random);
            let payload = (pipeline.payload)(&facts, &mut self.random);
            (facts, payload)
        });
        // Retries and their pauses lie between a record and its dead letter.
        let produced_ms = at_ms - self.random.between(2_000, 40_000);
        let partition = partition_of(payload.key.as_deref());
        let message = facts.fill(failure.message);
        let trace = failure.trace.replace("{exception}", failure.exception).replace("{cause}", failure.cause.unwrap_or_default());
        let failed = Failed {
            topic: pipeline.origin,
            partition,
            offset: self.origin_offset(pipeline.origin, partition, produced_ms),
            at_ms: produced_ms,
            dead_lettered_at_ms: at_ms,
            group: pipeline.group,
            exception: failure.exception,
            cause: failure.cause,
            trace: trace.replace("{message}", &message),
            message,
            attempts: 4,
        };
        let mut all = payload.headers;
        all.extend(headers::write(pipeline.dialect, &failed));
        let timestamp_ms = if pipeline.backlog > 0 { produced_ms } else { at_ms };
        ProducedRecord { topic: pipeline.topic, partition, key: payload.key, value: payload.value, headers: all, timestamp_ms }
    }

    /// A place in the origin topic that grows with time and is never given twice.
    fn origin_offset(&mut self, topic: &'static str, partition: i32, at_ms: i64) -> i64 {
        let by_time = (at_ms - 1_700_000_000_000) / 400;
        let last = self.last_offset.entry((topic, partition)).or_insert(0);
        *last = by_time.max(*last + 1);
        *last
    }
}

/// The dead letter that the wallet's framework writes of a record it read. The record's own headers stay, as Spring leaves them.
pub(super) fn dead_letter_of(record: &Record, failure: &Failure, at_ms: i64) -> ProducedRecord {
    let message = failure.message.to_owned();
    let trace = failure.trace.replace("{exception}", failure.exception).replace("{cause}", failure.cause.unwrap_or_default());
    let failed = Failed {
        topic: &record.topic,
        partition: record.partition,
        offset: record.offset,
        at_ms: record.timestamp_ms.unwrap_or(at_ms),
        dead_lettered_at_ms: at_ms,
        group: wallet::GROUP,
        exception: failure.exception,
        cause: failure.cause,
        trace: trace.replace("{message}", &message),
        message,
        attempts: 4,
    };
    let mut headers = record.headers.clone();
    headers.extend(headers::write(Dialect::SpringDlt, &failed));
    let (key, value) = (record.key.clone(), record.value.clone());
    ProducedRecord { topic: WALLET, partition: partition_of(key.as_deref()), key, value, headers, timestamp_ms: at_ms }
}

fn template_failure(pipeline: &'static Pipeline) -> Failure {
    let Failure { exception, cause, trace, message, weight } = &pipeline.failures[1];
    Failure { exception, cause: *cause, trace, message, weight: *weight }
}

/// Which part of a usual weekday's failures falls into the hour that begins here.
fn share_of_hour(hour_ms: i64) -> f64 {
    let hour = (hour_ms / HOUR).rem_euclid(24);
    // 1970-01-01 was a Thursday: three days after a Monday.
    let weekday = (hour_ms / DAY + 3).rem_euclid(7);
    HOURS[hour as usize] * WEEKDAYS[weekday as usize]
}

/// The partition that the shop's Java producers choose.
fn partition_of(key: Option<&[u8]>) -> i32 {
    partition_for(Partitioner::Murmur2Random, key, PARTITIONS).unwrap_or(0)
}
