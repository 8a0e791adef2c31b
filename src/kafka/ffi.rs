//! The only unsafe code of the program: what rdkafka's safe half does not offer.
//!
//! - Kafka's topic ids and a topic's configuration, asked on a client that exists (rdkafka's admin client opens connections of its own,
//!   and knows no topic ids);
//! - headers as bytes: rdkafka panics on a header name that is not UTF-8;
//! - positions of chosen partitions, without asking for the whole assignment;
//! - consumer groups: rdkafka's list of them leaves out what went wrong with each, and knows no group of the protocol of KIP-848;
//! - one record read without a consumer group;
//! - records sent with any header name.
//!
//! Every pointer here is made, used and freed within one function or one guard; nothing unsafe leaves this file.
#![allow(unsafe_code, reason = "this is the one place for it")]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::time::Duration;

use rdkafka::client::{Client, ClientContext};
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::BorrowedMessage;
use rdkafka::topic_partition_list::TopicPartitionList;
use rdkafka::util::IntoOpaque as _;
use rdkafka_sys as sys;
use rdkafka_sys::types::{RDKafka, RDKafkaRespErr};

use super::groups::Member;
use super::producer::{Outgoing, Ticket};
use super::scan::Seen;
use crate::domain::record::{Header, Record};

/// An error code of librdkafka or of the broker, with the text that came with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub code: RDKafkaErrorCode,
    pub reason: String,
}

impl Failure {
    fn of(error: RDKafkaRespErr) -> Failure {
        let code = RDKafkaErrorCode::from(error);
        Failure { code, reason: code.to_string() }
    }
}

fn check(error: RDKafkaRespErr) -> Result<(), Failure> {
    if error == RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR { Ok(()) } else { Err(Failure::of(error)) }
}

fn native<C: ConsumerContext>(consumer: &BaseConsumer<C>) -> *mut RDKafka {
    consumer.client().native_ptr()
}

fn milliseconds(timeout: Duration) -> c_int {
    c_int::try_from(timeout.as_millis()).unwrap_or(c_int::MAX)
}

/// Copies a C string of librdkafka's; null is empty.
///
/// # Safety
/// `text` is null or points to a NUL-terminated string that lives for the duration of the call.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() { String::new() } else { unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned() }
}

// ---------------------------------------------------------------------------------------------------------------- records

/// Copies a message, so that librdkafka can have its buffer back.
pub(super) fn record_of(message: &BorrowedMessage<'_>) -> Record {
    // SAFETY: a borrowed message points to a message without error that lives as long as the borrow.
    unsafe { copy_record(message.ptr()) }
}

/// Copies all of a message but its value.
///
/// # Safety
/// `message` points to a live consumed message without error.
unsafe fn outline(message: *const sys::rd_kafka_message_t) -> Seen {
    unsafe {
        let m = &*message;
        let timestamp = sys::rd_kafka_message_timestamp(message, null_mut());
        Seen {
            offset: m.offset,
            timestamp_ms: (timestamp != -1).then_some(timestamp),
            key: bytes(m.key.cast(), m.key_len),
            headers: headers(message),
        }
    }
}

/// # Safety
/// `message` points to a live consumed message without error.
unsafe fn copy_record(message: *const sys::rd_kafka_message_t) -> Record {
    unsafe {
        let m = &*message;
        let timestamp = sys::rd_kafka_message_timestamp(message, null_mut());
        Record {
            topic: text(sys::rd_kafka_topic_name(m.rkt)),
            partition: m.partition,
            offset: m.offset,
            // -1 is "none" on the wire.
            timestamp_ms: (timestamp != -1).then_some(timestamp),
            key: bytes(m.key.cast(), m.key_len),
            value: bytes(m.payload.cast(), m.len),
            headers: headers(message),
        }
    }
}

/// Null and empty differ: null has no pointer.
///
/// # Safety
/// `data` is null or points to `length` bytes.
unsafe fn bytes(data: *const u8, length: usize) -> Option<Vec<u8>> {
    if data.is_null() { None } else { Some(unsafe { std::slice::from_raw_parts(data, length) }.to_vec()) }
}

/// A name ends at its first NUL byte: librdkafka gives names as C strings only.
///
/// # Safety
/// `message` points to a live consumed message.
unsafe fn headers(message: *const sys::rd_kafka_message_t) -> Vec<Header> {
    unsafe {
        let mut list = null_mut();
        if check(sys::rd_kafka_message_headers(message, &mut list)).is_err() {
            return Vec::new(); // NOENT: it has none
        }
        let count = sys::rd_kafka_header_cnt(list);
        let mut headers = Vec::with_capacity(count);
        for index in 0..count {
            let (mut name, mut value, mut size) = (null(), null(), 0);
            if check(sys::rd_kafka_header_get_all(list, index, &mut name, &mut value, &mut size)).is_err() {
                break;
            }
            headers.push(Header { name: CStr::from_ptr(name).to_bytes().to_vec(), value: bytes(value.cast(), size) });
        }
        headers
    }
}

/// Hands a record to the client, which copies it. The ticket comes back with the delivery report; where the client refuses the record, it is dropped here.
pub(super) fn produce<C: ClientContext>(
    client: &Client<C>,
    topic: &str,
    record: &Outgoing,
    ticket: Box<Ticket>,
) -> Result<(), RDKafkaErrorCode> {
    use sys::rd_kafka_vtype_t as v;
    let topic = CString::new(topic).map_err(|_| RDKafkaErrorCode::InvalidTopic)?;
    let names: Vec<CString> = record.headers.iter().map(|header| c_name(&header.name)).collect();
    let (key, key_length) = parts(record.key.as_deref());
    let (value, value_length) = parts(record.value.as_deref());
    // SAFETY: everything pointed to lives until the call returns, and is copied in it (`MSG_F_COPY`; headers are copied as they are added). librdkafka owns
    // the headers once it has taken the message, and we free them where it has not. The ticket's pointer is made back into a box exactly once: by
    // rdkafka's delivery callback, or here.
    unsafe {
        let mut headers = Owned(sys::rd_kafka_headers_new(record.headers.len()), sys::rd_kafka_headers_destroy);
        for (name, header) in names.iter().zip(&record.headers) {
            let (bytes, length) = parts(header.value.as_deref());
            let name_length = isize::try_from(name.as_bytes().len()).unwrap_or(isize::MAX);
            let added =
                sys::rd_kafka_header_add(headers.0, name.as_ptr(), name_length, bytes, isize::try_from(length).unwrap_or(isize::MAX));
            check(added).map_err(|failure| failure.code)?;
        }
        let ticket = ticket.into_ptr();
        let taken = sys::rd_kafka_producev(
            client.native_ptr(),
            v::RD_KAFKA_VTYPE_TOPIC,
            topic.as_ptr(),
            v::RD_KAFKA_VTYPE_PARTITION,
            record.partition,
            v::RD_KAFKA_VTYPE_MSGFLAGS,
            sys::RD_KAFKA_MSG_F_COPY,
            v::RD_KAFKA_VTYPE_VALUE,
            value,
            value_length,
            v::RD_KAFKA_VTYPE_KEY,
            key,
            key_length,
            v::RD_KAFKA_VTYPE_OPAQUE,
            ticket,
            v::RD_KAFKA_VTYPE_HEADERS,
            headers.0,
            v::RD_KAFKA_VTYPE_END,
        );
        match check(taken) {
            Ok(()) => {
                headers.0 = null_mut();
                Ok(())
            }
            Err(failure) => {
                drop(Box::<Ticket>::from_ptr(ticket));
                Err(failure.code)
            }
        }
    }
}

/// A header's name as librdkafka takes it: up to the first NUL.
fn c_name(name: &[u8]) -> CString {
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    CString::new(&name[..end]).unwrap_or_default()
}

/// Pointer and length; null has no pointer.
fn parts(bytes: Option<&[u8]>) -> (*mut c_void, usize) {
    bytes.map_or((null_mut(), 0), |bytes| (bytes.as_ptr().cast_mut().cast(), bytes.len()))
}

// -------------------------------------------------------------------------------------------------------------- positions

/// Fills in the consumer's position of each partition of the list: one past the last record *or transaction marker* that went
/// through `poll`. `Offset::Invalid` where nothing has since the last seek.
pub(super) fn fill_positions<C: ConsumerContext>(consumer: &BaseConsumer<C>, partitions: &mut TopicPartitionList) -> Result<(), Failure> {
    // SAFETY: both pointers are owned by live objects; the list is borrowed mutably.
    check(unsafe { sys::rd_kafka_position(native(consumer), partitions.ptr()) })
}

/// Whether any broker answers within the time-out. Asks for the brokers and the topics that this client uses already, no others.
pub(super) fn any_broker_answers<C: ConsumerContext>(consumer: &BaseConsumer<C>, timeout: Duration) -> Result<(), Failure> {
    let mut metadata = null();
    // SAFETY: the client is live; a metadata pointer is set only on success and freed right here.
    unsafe {
        check(sys::rd_kafka_metadata(native(consumer), 0, null_mut(), &mut metadata, milliseconds(timeout)))?;
        sys::rd_kafka_metadata_destroy(metadata);
    }
    Ok(())
}

/// The broker that the cluster names as its controller, as of the last metadata; -1 if it names none.
pub(super) fn controller_id<C: ConsumerContext>(consumer: &BaseConsumer<C>) -> i32 {
    // SAFETY: the client is live; no time to wait means a look at what is cached.
    unsafe { sys::rd_kafka_controllerid(native(consumer), 0) }
}

// ----------------------------------------------------------------------------------------------------------- admin requests

/// A pointer and the function that frees it.
struct Owned<T>(*mut T, unsafe extern "C" fn(*mut T));

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: made by librdkafka, given to nobody else, freed once.
            unsafe { self.1(self.0) }
        }
    }
}

/// Sends one admin request with `submit` and waits for its result event. Such a request always ends in an event, with an error when
/// its time is over.
fn admin_request<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    operation: sys::rd_kafka_admin_op_t,
    timeout: Duration,
    submit: impl FnOnce(*mut RDKafka, *const sys::rd_kafka_AdminOptions_t, *mut sys::rd_kafka_queue_t),
) -> Result<Owned<sys::rd_kafka_event_t>, Failure> {
    let client = native(consumer);
    // SAFETY: options and queue live until this function ends; librdkafka copies the options and counts references to the queue.
    unsafe {
        let options = Owned(sys::rd_kafka_AdminOptions_new(client, operation), sys::rd_kafka_AdminOptions_destroy);
        let mut why: [c_char; 512] = [0; 512];
        check(sys::rd_kafka_AdminOptions_set_request_timeout(options.0, milliseconds(timeout), why.as_mut_ptr(), why.len()))?;
        let queue = Owned(sys::rd_kafka_queue_new(client), sys::rd_kafka_queue_destroy);
        submit(client, options.0, queue.0);
        // A second more: librdkafka's own timer is to end the request.
        let event = Owned(sys::rd_kafka_queue_poll(queue.0, milliseconds(timeout + Duration::from_secs(1))), sys::rd_kafka_event_destroy);
        if event.0.is_null() {
            return Err(Failure::of(RDKafkaRespErr::RD_KAFKA_RESP_ERR__TIMED_OUT));
        }
        match check(sys::rd_kafka_event_error(event.0)) {
            Ok(()) => Ok(event),
            Err(failure) => Err(Failure { reason: text(sys::rd_kafka_event_error_string(event.0)), ..failure }),
        }
    }
}

/// What the broker says of one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TopicId {
    Id(String),
    /// It exists, and this broker has no ids.
    None,
    Missing,
}

/// Kafka's id of each topic (base64, as Kafka's own tools print it). Names must not be empty.
pub(super) fn topic_ids<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    topics: &[String],
    timeout: Duration,
) -> Result<BTreeMap<String, TopicId>, Failure> {
    described(consumer, topics, timeout, false, describe_one)?.into_iter().map(|(name, id)| Ok((name, id?))).collect()
}

/// What this user may do with a topic, of what a replay needs there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rights {
    pub write: bool,
    pub describe_configs: bool,
}

/// What this user may do with each topic that is there (KIP-430). None: the broker does not tell.
pub(super) fn topic_rights<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    topics: &[String],
    timeout: Duration,
) -> Result<BTreeMap<String, Result<Option<Rights>, Failure>>, Failure> {
    described(consumer, topics, timeout, true, rights_in)
}

/// # Safety
/// `description` points to a live description.
unsafe fn rights_in(description: *const sys::rd_kafka_TopicDescription_t) -> Result<Option<Rights>, Failure> {
    unsafe {
        check_error(sys::rd_kafka_TopicDescription_error(description))?;
        let mut count = 0;
        let operations = sys::rd_kafka_TopicDescription_authorized_operations(description, &mut count);
        if operations.is_null() || count == 0 {
            return Ok(None);
        }
        // librdkafka lists operations that it knows, so each is one of the enum's.
        use sys::rd_kafka_AclOperation_t as Operation;
        let may = |wanted: Operation| (0..count).any(|index| *operations.add(index) == wanted);
        Ok(Some(Rights {
            write: may(Operation::RD_KAFKA_ACL_OPERATION_WRITE),
            describe_configs: may(Operation::RD_KAFKA_ACL_OPERATION_DESCRIBE_CONFIGS),
        }))
    }
}

/// Describes topics and reads each description with `read`, which is given a live one. `rights`: the broker is asked what this user may do.
fn described<C: ConsumerContext, T>(
    consumer: &BaseConsumer<C>,
    topics: &[String],
    timeout: Duration,
    rights: bool,
    read: unsafe fn(*const sys::rd_kafka_TopicDescription_t) -> Result<T, Failure>,
) -> Result<BTreeMap<String, Result<T, Failure>>, Failure> {
    // A name with NUL is no topic's; it stays out of the answer, like any other that does not exist.
    let names: Vec<CString> = topics.iter().filter_map(|name| CString::new(name.as_str()).ok()).collect();
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let mut pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
    // SAFETY: the collection copies the names; the description array and all it points to belong to the event, which outlives the loop.
    unsafe {
        let collection = Owned(
            sys::rd_kafka_TopicCollection_of_topic_names(pointers.as_mut_ptr(), pointers.len()),
            sys::rd_kafka_TopicCollection_destroy,
        );
        let event =
            admin_request(consumer, sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS, timeout, |client, options, queue| {
                if rights {
                    // It refuses the option for other operations alone; the answer is then one without rights.
                    let refused = sys::rd_kafka_AdminOptions_set_include_authorized_operations(options.cast_mut(), 1);
                    drop(Owned(refused, sys::rd_kafka_error_destroy));
                }
                sys::rd_kafka_DescribeTopics(client, collection.0, options, queue);
            })?;
        let result = sys::rd_kafka_event_DescribeTopics_result(event.0);
        let mut count = 0;
        let descriptions = sys::rd_kafka_DescribeTopics_result_topics(result, &mut count);
        let mut read_of = BTreeMap::new();
        for index in 0..count {
            let description = *descriptions.add(index);
            read_of.insert(text(sys::rd_kafka_TopicDescription_name(description)), read(description));
        }
        Ok(read_of)
    }
}

/// # Safety
/// `description` points to a live topic description.
unsafe fn describe_one(description: *const sys::rd_kafka_TopicDescription_t) -> Result<TopicId, Failure> {
    unsafe {
        let error = sys::rd_kafka_TopicDescription_error(description);
        if !error.is_null() {
            let failure = Failure::of(sys::rd_kafka_error_code(error));
            return match failure.code {
                RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic | RDKafkaErrorCode::InvalidTopic => {
                    Ok(TopicId::Missing)
                }
                RDKafkaErrorCode::NoError => id_of(description),
                _ => {
                    let topic = text(sys::rd_kafka_TopicDescription_name(description));
                    Err(Failure { reason: format!("{topic}: {}", text(sys::rd_kafka_error_string(error))), ..failure })
                }
            };
        }
        id_of(description)
    }
}

/// # Safety
/// `description` points to a live topic description.
unsafe fn id_of(description: *const sys::rd_kafka_TopicDescription_t) -> Result<TopicId, Failure> {
    unsafe {
        let id = sys::rd_kafka_TopicDescription_topic_id(description);
        let absent =
            id.is_null() || (sys::rd_kafka_Uuid_most_significant_bits(id) == 0 && sys::rd_kafka_Uuid_least_significant_bits(id) == 0);
        Ok(if absent { TopicId::None } else { TopicId::Id(text(sys::rd_kafka_Uuid_base64str(id))) })
    }
}

/// The configuration of each topic: name and value of every entry that has a value.
pub(super) type TopicConfigs = BTreeMap<String, Result<BTreeMap<String, String>, Failure>>;

/// Asks for the configuration of topics.
pub(super) fn topic_configs<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    topics: &[String],
    timeout: Duration,
) -> Result<TopicConfigs, Failure> {
    let names: Vec<CString> = topics.iter().filter(|name| !name.is_empty()).filter_map(|name| CString::new(name.as_str()).ok()).collect();
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    // SAFETY: librdkafka copies the resources before the request function returns; the result belongs to the event.
    unsafe {
        let resources: Vec<Owned<sys::rd_kafka_ConfigResource_t>> = names
            .iter()
            .map(|name| sys::rd_kafka_ConfigResource_new(sys::rd_kafka_ResourceType_t::RD_KAFKA_RESOURCE_TOPIC, name.as_ptr()))
            .map(|resource| Owned(resource, sys::rd_kafka_ConfigResource_destroy as unsafe extern "C" fn(_)))
            .collect();
        let mut pointers: Vec<_> = resources.iter().map(|resource| resource.0).collect();
        let event =
            admin_request(consumer, sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS, timeout, |client, options, queue| {
                sys::rd_kafka_DescribeConfigs(client, pointers.as_mut_ptr(), pointers.len(), options, queue);
            })?;
        let mut count = 0;
        let answers = sys::rd_kafka_DescribeConfigs_result_resources(sys::rd_kafka_event_DescribeConfigs_result(event.0), &mut count);
        Ok((0..count)
            .map(|index| *answers.add(index))
            .map(|answer| (text(sys::rd_kafka_ConfigResource_name(answer)), entries(answer)))
            .collect())
    }
}

/// # Safety
/// `resource` points to a live resource of a result.
unsafe fn entries(resource: *const sys::rd_kafka_ConfigResource_t) -> Result<BTreeMap<String, String>, Failure> {
    unsafe {
        if let Err(failure) = check(sys::rd_kafka_ConfigResource_error(resource)) {
            return Err(Failure { reason: text(sys::rd_kafka_ConfigResource_error_string(resource)), ..failure });
        }
        let mut count = 0;
        let entries = sys::rd_kafka_ConfigResource_configs(resource, &mut count);
        Ok((0..count)
            .map(|index| *entries.add(index))
            .filter(|entry| !sys::rd_kafka_ConfigEntry_value(*entry).is_null())
            .map(|entry| (text(sys::rd_kafka_ConfigEntry_name(entry)), text(sys::rd_kafka_ConfigEntry_value(entry))))
            .collect())
    }
}

// ---------------------------------------------------------------------------------------------------------- consumer groups

/// Who is in a consumer group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Membership {
    /// By member id.
    pub members: BTreeMap<String, Member>,
    /// Topics of which a member has a partition.
    pub topics: BTreeSet<String>,
}

/// # Safety
/// `error` is null or points to a live error.
unsafe fn check_error(error: *const sys::rd_kafka_error_t) -> Result<(), Failure> {
    unsafe {
        match check(sys::rd_kafka_error_code(error)) {
            Err(failure) => Err(Failure { reason: text(sys::rd_kafka_error_string(error)), ..failure }),
            Ok(()) => Ok(()),
        }
    }
}

/// # Safety
/// `list` is null or points to a live list.
unsafe fn partitions_in<'a>(list: *const sys::rd_kafka_topic_partition_list_t) -> &'a [sys::rd_kafka_topic_partition_t] {
    unsafe {
        match list.as_ref() {
            Some(list) if !list.elems.is_null() => std::slice::from_raw_parts(list.elems, usize::try_from(list.cnt).unwrap_or(0)),
            _ => &[],
        }
    }
}

/// The consumer groups that this user may see. A broker that does not answer makes it a failure: its groups would be missing.
pub(super) fn group_names<C: ConsumerContext>(consumer: &BaseConsumer<C>, timeout: Duration) -> Result<Vec<String>, Failure> {
    // SAFETY: the listings belong to the event, which outlives the loop.
    unsafe {
        let operation = sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPS;
        let event = admin_request(consumer, operation, timeout, |client, options, queue| {
            sys::rd_kafka_ListConsumerGroups(client, options, queue);
        })?;
        let result = sys::rd_kafka_event_ListConsumerGroups_result(event.0);
        let mut count = 0;
        let errors = sys::rd_kafka_ListConsumerGroups_result_errors(result, &mut count);
        for index in 0..count {
            check_error(*errors.add(index))?;
        }
        let listings = sys::rd_kafka_ListConsumerGroups_result_valid(result, &mut count);
        Ok((0..count).map(|index| text(sys::rd_kafka_ConsumerGroupListing_group_id(*listings.add(index)))).collect())
    }
}

/// Who is in each of these consumer groups, those of the older protocol and of KIP-848. A group that does not exist has no members.
pub(super) fn memberships<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    groups: &[String],
    timeout: Duration,
) -> Result<BTreeMap<String, Result<Membership, Failure>>, Failure> {
    let names: BTreeSet<CString> = groups.iter().filter_map(|name| CString::new(name.as_str()).ok()).collect();
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let mut pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
    // SAFETY: librdkafka copies the names before the request function returns; the descriptions belong to the event.
    unsafe {
        let operation = sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS;
        let event = admin_request(consumer, operation, timeout, |client, options, queue| {
            sys::rd_kafka_DescribeConsumerGroups(client, pointers.as_mut_ptr(), pointers.len(), options, queue);
        })?;
        let mut count = 0;
        let descriptions =
            sys::rd_kafka_DescribeConsumerGroups_result_groups(sys::rd_kafka_event_DescribeConsumerGroups_result(event.0), &mut count);
        Ok((0..count)
            .map(|index| *descriptions.add(index))
            .map(|group| (text(sys::rd_kafka_ConsumerGroupDescription_group_id(group)), membership(group)))
            .collect())
    }
}

/// # Safety
/// `group` points to a live description.
unsafe fn membership(group: *const sys::rd_kafka_ConsumerGroupDescription_t) -> Result<Membership, Failure> {
    unsafe {
        check_error(sys::rd_kafka_ConsumerGroupDescription_error(group))?;
        let mut found = Membership::default();
        for index in 0..sys::rd_kafka_ConsumerGroupDescription_member_count(group) {
            let member = sys::rd_kafka_ConsumerGroupDescription_member(group, index);
            // Brokers write the address as Java does: "/10.0.0.7".
            let host = text(sys::rd_kafka_MemberDescription_host(member)).trim_start_matches('/').to_owned();
            let who = Member { client: text(sys::rd_kafka_MemberDescription_client_id(member)), host };
            found.members.insert(text(sys::rd_kafka_MemberDescription_consumer_id(member)), who);
            let assignment = sys::rd_kafka_MemberDescription_assignment(member);
            if !assignment.is_null() {
                let partitions = partitions_in(sys::rd_kafka_MemberAssignment_partitions(assignment));
                found.topics.extend(partitions.iter().map(|partition| text(partition.topic)));
            }
        }
        Ok(found)
    }
}

/// What a group has committed: of these partitions, or of all where None is asked for. A partition without a commit is None, or absent.
pub(super) fn group_offsets<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    group: &str,
    partitions: Option<&TopicPartitionList>,
    timeout: Duration,
) -> Result<BTreeMap<(String, i32), Option<i64>>, Failure> {
    let name = CString::new(group).map_err(|_| Failure::of(RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_GROUP_ID))?;
    let asked = partitions.map_or(null(), |list| list.ptr().cast_const());
    // SAFETY: librdkafka copies name and list into the request, and the request before the function returns; the answer belongs to the event.
    unsafe {
        let request =
            Owned(sys::rd_kafka_ListConsumerGroupOffsets_new(name.as_ptr(), asked), sys::rd_kafka_ListConsumerGroupOffsets_destroy);
        let mut pointers = [request.0];
        let operation = sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPOFFSETS;
        let event = admin_request(consumer, operation, timeout, |client, options, queue| {
            sys::rd_kafka_ListConsumerGroupOffsets(client, pointers.as_mut_ptr(), pointers.len(), options, queue);
        })?;
        let mut count = 0;
        let results =
            sys::rd_kafka_ListConsumerGroupOffsets_result_groups(sys::rd_kafka_event_ListConsumerGroupOffsets_result(event.0), &mut count);
        let mut offsets = BTreeMap::new();
        for index in 0..count {
            let result = *results.add(index);
            check_error(sys::rd_kafka_group_result_error(result))?;
            for partition in partitions_in(sys::rd_kafka_group_result_partitions(result)) {
                check(partition.err)?;
                // Any negative offset means that there is none.
                offsets.insert((text(partition.topic), partition.partition), (partition.offset >= 0).then_some(partition.offset));
            }
        }
        Ok(offsets)
    }
}

// ------------------------------------------------------------------------------------------------ one record, without a group

/// What a read of one record came to.
#[derive(Debug)]
pub(super) enum Read {
    Record(Record),
    /// The end of the partition: nothing is there, or transaction markers only.
    End,
    TimedOut,
}

/// Reads the first record at or after `offset`. Two reads of one partition must not run at once on one client.
pub(super) fn read_one<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    topic: &str,
    partition: i32,
    offset: i64,
    timeout: Duration,
) -> Result<Read, Failure> {
    let name = CString::new(topic).map_err(|_| Failure::of(RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION))?;
    // SAFETY: the topic handle is counted; the partition is started and stopped here and the message freed here.
    unsafe {
        let handle = Owned(sys::rd_kafka_topic_new(native(consumer), name.as_ptr(), null_mut()), sys::rd_kafka_topic_destroy);
        if handle.0.is_null() || sys::rd_kafka_consume_start(handle.0, partition, offset) != 0 {
            return Err(Failure::of(sys::rd_kafka_last_error()));
        }
        let read = consume_one(handle.0, partition, timeout);
        sys::rd_kafka_consume_stop(handle.0, partition);
        read
    }
}

/// What one step of a [`stretch`] showed.
pub(super) enum Step {
    Seen(Seen),
    /// The end of the partition was reached.
    End,
    /// Nothing came within the step's time.
    Nothing,
    Failed(Failure),
}

/// Reads a partition from `offset` on, shown to `look` step by step until it says stop (false). As [`read_one`]: one reader of a partition on one client.
pub(super) fn stretch<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    topic: &str,
    partition: i32,
    offset: i64,
    step: Duration,
    mut look: impl FnMut(Step) -> bool,
) -> Result<(), Failure> {
    let name = CString::new(topic).map_err(|_| Failure::of(RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION))?;
    // SAFETY: as in `read_one`; each message is freed before the next is asked for.
    unsafe {
        let handle = Owned(sys::rd_kafka_topic_new(native(consumer), name.as_ptr(), null_mut()), sys::rd_kafka_topic_destroy);
        if handle.0.is_null() || sys::rd_kafka_consume_start(handle.0, partition, offset) != 0 {
            return Err(Failure::of(sys::rd_kafka_last_error()));
        }
        loop {
            let message = Owned(sys::rd_kafka_consume(handle.0, partition, milliseconds(step)), sys::rd_kafka_message_destroy);
            let shown = if message.0.is_null() {
                Step::Nothing
            } else {
                match (*message.0).err {
                    RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR => Step::Seen(outline(message.0)),
                    RDKafkaRespErr::RD_KAFKA_RESP_ERR__PARTITION_EOF => Step::End,
                    error => Step::Failed(Failure { reason: text(sys::rd_kafka_message_errstr(message.0)), ..Failure::of(error) }),
                }
            };
            if !look(shown) {
                break;
            }
        }
        sys::rd_kafka_consume_stop(handle.0, partition);
        Ok(())
    }
}

/// # Safety
/// `topic` is a live handle whose `partition` is started.
unsafe fn consume_one(topic: *mut sys::rd_kafka_topic_t, partition: i32, timeout: Duration) -> Result<Read, Failure> {
    unsafe {
        let message = Owned(sys::rd_kafka_consume(topic, partition, milliseconds(timeout)), sys::rd_kafka_message_destroy);
        if message.0.is_null() {
            return Ok(Read::TimedOut);
        }
        match (*message.0).err {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(Read::Record(copy_record(message.0))),
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__PARTITION_EOF => Ok(Read::End),
            error => Err(Failure { reason: text(sys::rd_kafka_message_errstr(message.0)), ..Failure::of(error) }),
        }
    }
}
