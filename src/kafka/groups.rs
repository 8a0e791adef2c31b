//! Consumer groups, looked at from outside: who is in them and how far they have come. Nothing here joins one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rdkafka::error::RDKafkaErrorCode as Code;
use rdkafka::topic_partition_list::TopicPartitionList;

use super::client::KafkaError;
use super::ffi::{self, Failure, Membership};
use super::inspect::{Inspector, TopicPartition, is_unsupported};
use crate::domain::settings::ClusterSettings;

/// A consumer group as its coordinator describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupLook {
    /// Ids of the members that were in it both before and after the offsets were read. Empty: nobody reads, or all changed meanwhile.
    pub members: Vec<String>,
    /// The committed offset of each partition asked for; None: it has none.
    pub committed: BTreeMap<TopicPartition, Option<i64>>,
}

/// Between two questions to a group's coordinator that is on its way.
const MOVING_PAUSE: Duration = Duration::from_millis(200);
/// Groups described in one request.
const CHUNK: usize = 100;

/// Members and committed offsets of a group. Blocks up to `timeout`: call it from `spawn_blocking`.
///
/// # Errors
/// No broker answers, or the group may not be described.
pub fn look(cluster: &ClusterSettings, group: &str, partitions: &[TopicPartition], timeout: Duration) -> Result<GroupLook, KafkaError> {
    Inspector::connect(cluster)?.group(group, partitions, timeout)
}

/// Groups that have members assigned to, or committed offsets in, this topic, by name. Blocks up to `timeout`.
///
/// # Errors
/// No broker answers, or groups may not be listed: then nobody knows.
pub fn readers_of(cluster: &ClusterSettings, topic: &str, timeout: Duration) -> Result<Vec<String>, KafkaError> {
    Inspector::connect(cluster)?.readers_of(topic, timeout)
}

/// A member of a consumer group, as the broker sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The program's `client.id`.
    pub client: String,
    /// The address that it connected from.
    pub host: String,
}

impl Inspector {
    /// Who is in a group now. A group that does not exist has no members. Blocks up to `timeout`.
    ///
    /// # Errors
    /// No broker answers, or the group may not be described.
    pub fn members(&self, group: &str, timeout: Duration) -> Result<Vec<Member>, KafkaError> {
        let membership = self.ask_coordinators(timeout, |left| self.membership(group, left))?;
        Ok(membership.members.into_values().collect())
    }

    /// As [`look`], on a client that is connected already.
    ///
    /// # Errors
    /// As [`look`].
    pub fn group(&self, group: &str, partitions: &[TopicPartition], timeout: Duration) -> Result<GroupLook, KafkaError> {
        self.ask_coordinators(timeout, |left| {
            // Members, offsets, members: between two looks with a member in common that member was in the group when the earlier offsets were
            // read, when the later ones were, and all the time in between.
            let before = self.membership(group, left)?;
            let committed = self.committed(group, partitions, left)?;
            let after = self.membership(group, left)?;
            let stayed = before.members.into_keys().filter(|member| after.members.contains_key(member));
            Ok(GroupLook { members: stayed.collect(), committed })
        })
    }

    /// As [`readers_of`], on a client that is connected already.
    ///
    /// # Errors
    /// As [`readers_of`].
    pub fn readers_of(&self, topic: &str, timeout: Duration) -> Result<Vec<String>, KafkaError> {
        let deadline = self.deadline(timeout);
        let names = self.ask_coordinators(timeout, |left| ffi::group_names(self.client(), left))?;
        let mut readers = BTreeSet::new();
        for chunk in names.chunks(CHUNK) {
            let described = self.ask_coordinators(self.left(deadline), |left| ffi::memberships(self.client(), chunk, left))?;
            for (name, membership) in described {
                let assigned = match membership {
                    Ok(membership) => membership.topics.contains(topic),
                    Err(failure) if is_no_consumer_group(failure.code) => continue,
                    Err(failure) => return Err(self.error(&failure)),
                };
                if assigned || self.has_committed(&name, topic, self.left(deadline))? {
                    readers.insert(name);
                }
            }
        }
        Ok(readers.into_iter().collect())
    }

    fn has_committed(&self, group: &str, topic: &str, timeout: Duration) -> Result<bool, KafkaError> {
        let committed = self.ask_coordinators(timeout, |left| ffi::group_offsets(self.client(), group, None, left))?;
        Ok(committed.iter().any(|((of, _), offset)| of == topic && offset.is_some()))
    }

    fn membership(&self, group: &str, timeout: Duration) -> Result<Membership, Failure> {
        let mut described = ffi::memberships(self.client(), &[group.to_owned()], timeout)?;
        match described.remove(group) {
            Some(Err(failure)) if failure.code == Code::GroupIdNotFound => Ok(Membership::default()),
            Some(described) => described,
            None => Err(Failure { code: Code::InvalidGroupId, reason: format!("{group:?} is no name of a consumer group") }),
        }
    }

    fn committed(
        &self,
        group: &str,
        partitions: &[TopicPartition],
        timeout: Duration,
    ) -> Result<BTreeMap<TopicPartition, Option<i64>>, Failure> {
        let mut list = TopicPartitionList::with_capacity(partitions.len());
        for (topic, partition) in partitions.iter().filter(|(topic, _)| !topic.contains('\0')) {
            list.add_partition(topic, *partition);
        }
        if list.count() == 0 {
            return Ok(partitions.iter().map(|partition| (partition.clone(), None)).collect());
        }
        let mut answered = ffi::group_offsets(self.client(), group, Some(&list), timeout)?;
        Ok(partitions.iter().map(|partition| (partition.clone(), answered.remove(partition).flatten())).collect())
    }

    /// Asks again while a coordinator is being chosen, loaded or moved, which says nothing of the group: it answers in a moment.
    fn ask_coordinators<T>(&self, timeout: Duration, ask: impl Fn(Duration) -> Result<T, Failure>) -> Result<T, KafkaError> {
        let deadline = self.deadline(timeout);
        loop {
            match self.answered(ask(self.left(deadline))) {
                Ok(answer) => return Ok(answer),
                Err(failure) if is_moving(failure.code) && self.left(deadline) > MOVING_PAUSE => std::thread::sleep(MOVING_PAUSE),
                Err(failure) if is_unsupported(failure.code) => {
                    let reason = "this broker cannot tell about consumer groups".to_owned();
                    return Err(self.error(&Failure { reason, ..failure }));
                }
                Err(failure) => {
                    self.wait_for_explanation();
                    return Err(self.error(&failure));
                }
            }
        }
    }
}

fn is_moving(code: Code) -> bool {
    matches!(code, Code::NotCoordinator | Code::CoordinatorNotAvailable | Code::CoordinatorLoadInProgress)
}

/// It is a group of something else (Kafka Connect's workers, say), or it went away since it was listed.
fn is_no_consumer_group(code: Code) -> bool {
    matches!(code, Code::InvalidArgument | Code::GroupIdNotFound)
}
