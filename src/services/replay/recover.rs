//! What was intended and of which nobody knows whether it was sent: looked for in the target before anything else of its batch goes.
//!
//! A record that is on its way arrives within the producer's time-out and a margin, or never. So whoever takes the lease over waits for that long,
//! asks where the target ends now, and reads from where the record can lie at the earliest to that end. Absent is only what was looked for to the end.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::executor::{Executor, Hindrance, Run, blocking, is_another, planted};
use super::send::{End, Known};
use crate::domain::replay::BatchState;
use crate::domain::returns::{REPLAY_ID, ReplayId};
use crate::kafka::inspect::LogEnds;
use crate::kafka::scan::Scanned;
use crate::store::notify::Hint;
use crate::store::replay_items::InDoubt;
use crate::store::replays::Batch;

/// What was found in one partition.
#[derive(Debug, Default)]
struct Found {
    /// Offsets of the records of each message of this batch.
    ours: HashMap<i64, Vec<i64>>,
    /// Of each key that is looked for: the offset and, if it is of this batch, the message of every record.
    of_key: HashMap<Vec<u8>, Vec<(i64, Option<i64>)>>,
    /// Messages that may lie where nobody can look any more, and why.
    out_of_reach: HashMap<i64, &'static str>,
}

/// More records of one key than this tell nothing new.
const KEPT_OF_KEY: usize = 1_000;

impl Executor {
    /// Resolves what is in doubt of a batch. False: something still is, and nothing else of the batch may go.
    pub(super) async fn recover(&self, run: &mut Run, batch: &Batch) -> Result<bool, Hindrance> {
        let doubts = self.replays.store.items_in_doubt(batch.id).await?;
        if doubts.is_empty() {
            run.doubts_over();
            return Ok(true);
        }
        let now = self.replays.clock.monotonic();
        // What this executor sent itself is in doubt since it was told so; what others sent, since it took over.
        let own = doubts.iter().any(|doubt| doubt.epoch == self.lease.epoch).then(|| *run.doubt_since.get_or_insert(now));
        let since = own.map_or(self.since, |own| own.max(self.since));
        if now < since + self.timing.settled_after() && !planted("replay::no_wait") {
            let why = run.doubt_reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"));
            let words = format!(
                "{} messages were maybe sent{why}: when everything on its way has arrived, {} is looked through for them",
                doubts.len(),
                batch.plan.target
            );
            self.says(run, Some(("doubt", words))).await?;
            return Ok(false);
        }
        let ends = match self.out_of_reach(run, batch).await? {
            Some(why) => doubts.iter().map(|doubt| known(doubt, maybe_sent(why))).collect(),
            None => {
                let found = self.look_through(run, batch, &doubts).await?;
                self.resolve(run, batch, &doubts, &found).await?
            }
        };
        self.store_resolved(run, batch, ends).await
    }

    /// Why the target itself cannot tell; None: it can be looked through.
    async fn out_of_reach(&self, run: &mut Run, batch: &Batch) -> Result<Option<&'static str>, Hindrance> {
        let Some(target) = self.look_up(&batch.plan.target, true).await? else {
            // A broker that has just started may not know all topics yet.
            let now = self.replays.clock.monotonic();
            let since = *run.missing_since.get_or_insert(now);
            if now < since + self.timing.settled_after() {
                let words = format!("messages were maybe sent, and {} is not there to be looked through", batch.plan.target);
                return Err(Hindrance::Waits("target", words));
            }
            return Ok(Some("the target is gone"));
        };
        run.missing_since = None;
        if is_another(&batch.plan, &target)? {
            return Ok(Some("the target was deleted and made again"));
        }
        Ok((target.compacted == Some(true)).then_some("the target is compacted: a record that is not there may have been"))
    }

    /// Reads each partition from where something can lie at the earliest to where it ends now.
    async fn look_through(&self, run: &mut Run, batch: &Batch, doubts: &[InDoubt]) -> Result<HashMap<i32, Found>, Hindrance> {
        let mut partitions: BTreeMap<i32, Vec<InDoubt>> = BTreeMap::new();
        for doubt in doubts {
            partitions.entry(doubt.target_partition).or_default().push(doubt.clone());
        }
        if planted("replay::no_scan") {
            return Ok(partitions.into_keys().map(|partition| (partition, Found::default())).collect());
        }
        if !run.says_of("kafka") {
            let words = format!("{} is looked through for {} messages that were maybe sent", batch.plan.target, doubts.len());
            self.says(run, Some(("doubt", words))).await?;
        }
        let (scanner, topic, ask) = (Arc::clone(&self.scanner), batch.plan.target.clone(), self.timing.ask);
        let asked: Vec<i32> = partitions.keys().copied().collect();
        let ends = blocking(move || scanner.ends(&topic, &asked, ask)).await?;
        let mut found = HashMap::new();
        for (partition, doubts) in partitions {
            let Some(ends) = ends.get(&partition).copied() else { continue };
            let (scanner, topic, uid, watch) =
                (Arc::clone(&self.scanner), batch.plan.target.clone(), batch.uid.clone(), self.watch.clone());
            let of_partition = blocking(move || {
                let mut found = Found::default();
                let reachable = found.set_aside(&doubts, ends);
                let Some(from) = reachable.iter().map(|doubt| doubt.lower_bound).min() else { return Ok(found) };
                let keys: HashSet<&[u8]> =
                    reachable.iter().filter(|doubt| doubt.key_hash.is_some()).filter_map(|doubt| doubt.record_key.as_deref()).collect();
                let scanned = scanner.scan(&topic, partition, from, ends.end, ask, |seen| {
                    let ours = seen.header(REPLAY_ID).and_then(|id| std::str::from_utf8(id).ok()?.parse::<ReplayId>().ok());
                    let ours = ours.filter(|id| id.uid == uid).map(|id| id.message_id);
                    if let Some(message_id) = ours {
                        found.ours.entry(message_id).or_default().push(seen.offset);
                    }
                    if let Some(key) = seen.key.filter(|key| keys.contains(key.as_slice())) {
                        let of_key = found.of_key.entry(key).or_default();
                        if of_key.len() < KEPT_OF_KEY {
                            of_key.push((seen.offset, ours));
                        }
                    }
                    watch.holds()
                })?;
                let why = match scanned {
                    Scanned::ToTheEnd => return Ok(found),
                    Scanned::StartIsGone => "the beginning of where it would lie was deleted",
                    Scanned::CutOff => "the target's log was cut off",
                    Scanned::Stopped => "it was not looked through to the end",
                };
                let unseen =
                    reachable.iter().filter(|doubt| !found.ours.contains_key(&doubt.message_id)).map(|doubt| (doubt.message_id, why));
                let unseen: Vec<_> = unseen.collect();
                found.out_of_reach.extend(unseen);
                Ok(found)
            });
            let of_partition = of_partition.await?;
            if !self.watch.holds() {
                return Err(Hindrance::Lost);
            }
            found.insert(partition, of_partition);
        }
        Ok(found)
    }

    /// What follows for each message, in the order of their origin.
    async fn resolve(&self, run: &Run, batch: &Batch, doubts: &[InDoubt], found: &HashMap<i32, Found>) -> Result<Vec<Known>, Hindrance> {
        let others: Vec<i64> = found.values().flat_map(|found| found.of_key.values().flatten().filter_map(|(_, ours)| *ours)).collect();
        let places: HashMap<i64, i64> = self.replays.store.places_of_items(batch.id, &others).await?.into_iter().collect();
        let goes_on = goes_on(batch.state);
        let nothing = Found::default();
        let resolved = doubts.iter().map(|doubt| {
            let found = found.get(&doubt.target_partition).unwrap_or(&nothing);
            let end = match found.ours.get(&doubt.message_id).map(Vec::as_slice) {
                Some([offset]) => End::Sent { offset: *offset, note: Some("maybe sent, and found in the target".to_owned()) },
                Some([offset, more @ ..]) => {
                    let note =
                        format!("found in the target more than once, at offsets {offset} and {more:?}: its consumer was given it again");
                    End::Sent { offset: *offset, note: Some(note) }
                }
                _ => self.absent(run, doubt, found, &places, goes_on),
            };
            known(doubt, end)
        });
        Ok(resolved.collect())
    }

    fn absent(&self, run: &Run, doubt: &InDoubt, found: &Found, places: &HashMap<i64, i64>, goes_on: bool) -> End {
        if let Some(why) = found.out_of_reach.get(&doubt.message_id) {
            return maybe_sent(why);
        }
        if let Some(reason) = run.lasting.get(&doubt.message_id) {
            return End::NotSent { why: format!("the broker refused it: {reason}") };
        }
        if let Some(offset) = later_of_key(doubt, found, places) {
            return End::Held {
                why: format!("it was not sent, and a later record of its key is in the target already, at offset {offset}"),
            };
        }
        if goes_on { End::Again } else { End::NotSent { why: "the replay was stopped; proven absent from the target".to_owned() } }
    }

    /// False: the batch is in another state by now, so that something else follows for what was not sent.
    async fn store_resolved(&self, run: &mut Run, batch: &Batch, ends: Vec<Known>) -> Result<bool, Hindrance> {
        for chunk in ends.chunks(2_000) {
            let now_ms = self.replays.clock.now_ms();
            let mut tx = self.begin().await?;
            let now = self.store_ends(&mut tx, batch.id, chunk, now_ms).await?;
            if now.is_none_or(|now| goes_on(now.state) != goes_on(batch.state)) {
                return Ok(false);
            }
            let count = |is: fn(&End) -> bool| chunk.iter().filter(|known| is(&known.end)).count();
            let entry = format!(
                "of {} messages that were maybe sent {} were found in the target, {} go once more, {} are held, {} were not sent",
                chunk.len(),
                count(|end| matches!(end, End::Sent { .. })),
                count(|end| matches!(end, End::Again)),
                count(|end| matches!(end, End::Held { .. })),
                count(|end| matches!(end, End::NotSent { .. })),
            );
            crate::store::replays::log(&mut tx, batch.id, now_ms, &self.actor(batch.id), &entry).await?;
            tx.commit().await?;
        }
        let hints: Vec<Hint> =
            std::iter::once(Hint::Dlq(batch.dlq_id)).chain(ends.iter().map(|known| Hint::Group(known.group_id))).collect();
        self.replays.store.changed(&hints);
        run.memory = None;
        run.doubts_over();
        self.says(run, None).await?;
        Ok(true)
    }
}

impl Run {
    /// Nothing is in doubt any more.
    fn doubts_over(&mut self) {
        (self.doubt_since, self.doubt_reason, self.missing_since) = (None, None, None);
        self.lasting.clear();
    }
}

/// Whether what was not sent may still be sent by this batch, now or when it is approved anew.
fn goes_on(state: BatchState) -> bool {
    use BatchState::{Approved, AwaitingApproval, Draft, Executing, Halted, Paused};
    matches!(state, Draft | AwaitingApproval | Approved | Executing | Paused | Halted)
}

impl Found {
    /// The messages that can be looked for; the others lay where the log does not reach.
    fn set_aside<'d>(&mut self, doubts: &'d [InDoubt], ends: LogEnds) -> Vec<&'d InDoubt> {
        let mut reachable = Vec::with_capacity(doubts.len());
        for doubt in doubts {
            if doubt.lower_bound < ends.start {
                self.out_of_reach.insert(doubt.message_id, "the beginning of where it would lie was deleted");
            } else if doubt.lower_bound > ends.end {
                self.out_of_reach.insert(doubt.message_id, "the target's log was cut off");
            } else {
                reachable.push(doubt);
            }
        }
        reachable
    }
}

/// The offset of a record of the same key that comes after the message: somebody else's, or a later one of the same batch.
fn later_of_key(doubt: &InDoubt, found: &Found, places: &HashMap<i64, i64>) -> Option<i64> {
    doubt.key_hash?;
    let of_key = found.of_key.get(doubt.record_key.as_deref()?)?;
    let is_later = |(offset, ours): &&(i64, Option<i64>)| {
        let after = match ours {
            Some(message_id) => places.get(message_id).is_none_or(|place| (*place, *message_id) > (doubt.place, doubt.message_id)),
            None => true,
        };
        *offset >= doubt.lower_bound && after
    };
    of_key.iter().find(is_later).map(|(offset, _)| *offset)
}

fn maybe_sent(why: &str) -> End {
    End::Held {
        why: format!("maybe sent, and it cannot be looked for: {why}. Find out whether its consumer has it before it is replayed again"),
    }
}

fn known(doubt: &InDoubt, end: End) -> Known {
    Known { message_id: doubt.message_id, group_id: doubt.group_id, unchecked: doubt.unchecked, end }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doubt(message_id: i64, key_hash: Option<i64>, lower_bound: i64) -> InDoubt {
        let record_key = Some(b"k".to_vec());
        InDoubt {
            message_id,
            place: message_id,
            key_hash,
            record_key,
            group_id: 1,
            target_partition: 0,
            lower_bound,
            epoch: 1,
            unchecked: false,
        }
    }

    fn of_key(records: &[(i64, Option<i64>)]) -> Found {
        Found { of_key: HashMap::from([(b"k".to_vec(), records.to_vec())]), ..Found::default() }
    }

    #[test]
    fn only_what_comes_after_it_under_its_key_is_later() {
        let places = HashMap::from([(3, 3), (5, 5), (9, 9)]);
        let later = |records: &[(i64, Option<i64>)], key| later_of_key(&doubt(5, key, 100), &of_key(records), &places);
        assert_eq!(later(&[(100, None)], Some(1)), Some(100), "a stranger's");
        assert_eq!(later(&[(100, Some(9))], Some(1)), Some(100), "a later one of its batch");
        assert_eq!(later(&[(100, Some(3)), (101, Some(5))], Some(1)), None, "an earlier one of its batch, and itself");
        assert_eq!(later(&[(99, None)], Some(1)), None, "it was there before");
        assert_eq!(later(&[(100, None)], None), None, "order does not matter to it");
        assert_eq!(later_of_key(&doubt(5, Some(1), 100), &Found::default(), &places), None);
    }

    #[test]
    fn where_the_log_does_not_reach_nobody_can_look() {
        let doubts = [doubt(1, None, 9), doubt(2, None, 10), doubt(3, None, 20), doubt(4, None, 21)];
        let mut found = Found::default();
        let reachable: Vec<i64> = found.set_aside(&doubts, LogEnds { start: 10, end: 20 }).iter().map(|doubt| doubt.message_id).collect();
        assert_eq!(reachable, [2, 3]);
        assert!(found.out_of_reach[&1].contains("deleted") && found.out_of_reach[&4].contains("cut off"));
    }
}
