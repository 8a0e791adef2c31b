//! The one place where SQL is built: the list of messages.
//!
//! A page must cost the same however deep it lies and however many messages there are, so the query never sorts or counts what it does
//! not show. It picks one index to walk from the newest id downwards (the driver), checks the other conditions on the way, and stops after `limit`
//! ids. Where the driver has several lists (the states of several DLQs, the groups of a class) the newest id of each tells which `limit` of them can
//! hold one of the newest; those are walked for `limit` ids each and the newest of all are kept.
//!
//! PostgreSQL would at times rather walk the primary key and filter, which reads the whole table for a rare state. So the leading column of
//! the index is pinned by a comparison of rows, `(state, id) < (s, after)` with `state >= s`, and the order names it: only that index
//! gives that order. SQLite can be told the index (`INDEXED BY`), and starts in the middle of its list only for a plain equality. `tests/it/store/plans.rs` holds both to it.

use super::counters::{ARRIVALS, ARRIVALS_COARSE, ARRIVALS_OF_EACH, COUNTS, OLDEST_OPEN, counted_kinds};
use super::groups::folded;
use super::messages::{MessageFilter, MessagePage, MessageRow, RawMessage, message_row};
use super::replay_pages::{self, ItemCursor, ItemList};
use super::samples::{DEPTHS_AT, NEWEST, SUCCEEDED};
use super::sql_pieces::{Dialect, rows, text};
use super::{Store, StoreError};
use crate::domain::lifecycle::FollowUp;
use crate::domain::message::{EARLIEST_PLAUSIBLE_MS, MessageState};
use crate::domain::record::short_hash;

/// A value to bind.
#[derive(Debug, Clone)]
enum Bind {
    Long(i64),
    Int(i32),
    Text(String),
    Bytes(Vec<u8>),
}

/// A query and its values, in the order of their placeholders.
#[derive(Debug, Default)]
struct Built {
    sql: String,
    binds: Vec<Bind>,
}

impl Built {
    /// The placeholder of a new value.
    fn bind(&mut self, bind: Bind) -> String {
        self.binds.push(bind);
        format!("${}", self.binds.len())
    }
}

/// The query with its values.
macro_rules! bound {
    ($query:expr, $binds:expr) => {
        $binds.into_iter().fold($query, |query, bind| match bind {
            Bind::Long(value) => query.bind(value),
            Bind::Int(value) => query.bind(value),
            Bind::Text(value) => query.bind(value),
            Bind::Bytes(value) => query.bind(value),
        })
    };
}

/// What a page query runs over, found out before it is built.
struct Scope {
    /// The DLQs that cluster, topic and partition leave.
    dlqs: Vec<i64>,
    /// Whether they are fewer than all.
    narrowed: bool,
    /// The time range is best walked by id (see [`Store::range_is_recent_and_large`]).
    walk_time_by_id: bool,
}

/// Which index is walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Driver {
    /// The primary key: nothing narrows the list.
    Id,
    /// `messages_state`, one list for each DLQ and state.
    State,
    /// `messages_follow_up`, one list for each DLQ.
    FollowUp,
    /// `messages_time`, all ids of the range, for each DLQ and state.
    Time,
    /// `messages_group`, for each group that class, id and scope leave.
    Group,
    /// `messages_key`.
    Key,
    /// `messages_business`, `messages_key` and `messages_group`, for each group that the prefix finds.
    Search,
}

impl Driver {
    /// The most selective condition that was given.
    fn of(filter: &MessageFilter, scope: &Scope) -> Driver {
        let by_time = filter.from_ms.is_some() || filter.to_ms.is_some();
        let choices = [
            (filter.key.is_some(), Driver::Key),
            (search(filter).is_some(), Driver::Search),
            (filter.follow_up.is_some(), Driver::FollowUp),
            (filter.group_id.is_some() || filter.class.is_some(), Driver::Group),
            (by_time && !scope.walk_time_by_id, Driver::Time),
            // A recent range with neither state nor DLQ: the newest ids are it, and one walk finds them.
            (filter.state.is_some() || scope.narrowed, Driver::State),
        ];
        choices.into_iter().find(|(given, _)| *given).map_or(Driver::Id, |(_, driver)| driver)
    }
}

/// The conditions that a walk sees to by itself. They must not stand beside it again: an equality on the pinned column would undo the pinning.
#[derive(Debug, Clone, Copy)]
struct Covers {
    dlq: bool,
    state: bool,
    follow_up: bool,
    /// Group and class.
    group: bool,
    key: bool,
    search: bool,
}

impl Covers {
    const NOTHING: Covers = Covers { dlq: false, state: false, follow_up: false, group: false, key: false, search: false };
    const STATE: Covers = Covers { dlq: true, state: true, ..Covers::NOTHING };
    const FOLLOW_UP: Covers = Covers { dlq: true, follow_up: true, ..Covers::NOTHING };
    const GROUP: Covers = Covers { dlq: true, group: true, ..Covers::NOTHING };
    const GROUP_AND_SEARCH: Covers = Covers { search: true, ..Covers::GROUP };
    const KEY: Covers = Covers { key: true, ..Covers::NOTHING };
    const SEARCH: Covers = Covers { search: true, ..Covers::NOTHING };
}

/// The search text, if there is one.
fn search(filter: &MessageFilter) -> Option<&str> {
    filter.q.as_deref().filter(|q| !q.is_empty())
}

/// Builds the page's query for one database.
struct PageQuery<'a, D> {
    filter: &'a MessageFilter,
    scope: &'a Scope,
    built: Built,
    /// Placeholders that every walk uses.
    after: String,
    limit: String,
    database: std::marker::PhantomData<D>,
}

impl<'a, D: Dialect> PageQuery<'a, D> {
    fn build(filter: &'a MessageFilter, scope: &'a Scope, after: Option<i64>, limit: i64) -> Built {
        PageQuery::<D>::select(filter, scope, after, limit, message_row!())
    }

    /// Some columns of `messages m` and `dlqs d`.
    fn select(filter: &'a MessageFilter, scope: &'a Scope, after: Option<i64>, limit: i64, row: &str) -> Built {
        let mut built = Built::default();
        let after = built.bind(Bind::Long(after.unwrap_or(i64::MAX)));
        let limit = built.bind(Bind::Long(limit));
        let mut query = PageQuery::<D> { filter, scope, built, after, limit, database: std::marker::PhantomData };
        let ids = query.ids(Driver::of(filter, scope));
        let limit = &query.limit;
        query.built.sql = format!(
            "WITH page AS (SELECT id FROM ({ids}) walked ORDER BY id DESC LIMIT {limit}) \
             SELECT {row} FROM page JOIN messages m ON m.id = page.id JOIN dlqs d ON d.id = m.dlq_id ORDER BY m.id DESC"
        );
        query.built
    }

    /// The ids that the driver's walks give, at most `limit` of each.
    fn ids(&mut self, driver: Driver) -> String {
        match driver {
            Driver::Id => self.by_id(),
            Driver::State => self.by_state(),
            Driver::FollowUp => self.by_follow_up(),
            Driver::Time => self.by_time(),
            Driver::Group => self.by_groups(None),
            Driver::Key => self.by_key(self.filter.key.as_deref().unwrap_or_default(), Covers::KEY),
            Driver::Search => self.by_search(search(self.filter).unwrap_or_default()),
        }
    }

    fn by_id(&mut self) -> String {
        let rest = self.rest(Covers::NOTHING);
        format!("SELECT m.id FROM messages m WHERE m.id < {}{rest} ORDER BY m.id DESC LIMIT {}", self.after, self.limit)
    }

    fn by_state(&mut self) -> String {
        let states = self.dlq_states();
        let rest = self.rest(Covers::STATE);
        let walk = format!(
            "SELECT m.id FROM {} WHERE m.dlq_id = s.dlq_id AND {}{rest} ORDER BY m.state DESC, m.id DESC LIMIT ",
            messages::<D>("messages_state"),
            pin::<D>("state", "s.state", &self.after)
        );
        self.newest_lists(&states, &walk)
    }

    fn by_follow_up(&mut self) -> String {
        let word = self.filter.follow_up.map_or("", FollowUp::as_str);
        let lists = self.lists(&[word]);
        let rest = self.rest(Covers::FOLLOW_UP);
        let walk = format!(
            "SELECT m.id FROM {} WHERE m.dlq_id = s.dlq_id AND {}{rest} ORDER BY m.follow_up DESC, m.id DESC LIMIT ",
            messages::<D>("messages_follow_up"),
            pin::<D>("follow_up", "s.state", &self.after)
        );
        self.newest_lists(&lists, &walk)
    }

    fn by_time(&mut self) -> String {
        let states = self.dlq_states();
        let rest = self.rest(Covers::STATE);
        let (after, limit) = (&self.after, &self.limit);
        // The `+ 0` keeps the planner from walking by id: this walk reads the range and keeps the newest ids of it.
        let walk = format!(
            "SELECT m.id FROM {} WHERE m.dlq_id = s.dlq_id AND m.state = s.state AND m.id < {after}{rest} ORDER BY m.id + 0 DESC LIMIT {limit}",
            messages::<D>("messages_time")
        );
        for_each::<D>(&states, &walk)
    }

    /// By the groups that `prefix`, class, id and scope leave. What a group decides for its messages (DLQ, class) is asked of the group.
    fn by_groups(&mut self, prefix: Option<&str>) -> String {
        let mut groups = match prefix {
            Some(q) => self.groups_by_prefix(q),
            None => "SELECT g.id FROM groups g WHERE true".to_owned(),
        };
        if let Some(id) = self.filter.group_id {
            groups.push_str(&format!(" AND g.id = {}", self.long(id)));
        }
        if let Some(class) = self.filter.class {
            groups.push_str(&format!(" AND g.class = {}", self.text(class.as_str())));
        }
        if self.scope.narrowed {
            groups.push_str(&format!(" AND g.dlq_id {}", self.in_dlqs()));
        }
        let rest = self.rest(if prefix.is_some() { Covers::GROUP_AND_SEARCH } else { Covers::GROUP });
        let walk = self.walk("messages_group", "group_id", "s.id", &rest);
        self.newest_lists(&format!("({groups}) AS s"), &walk)
    }

    /// The walk for those rows `s` of `outer` whose newest message is the newest: no other list can hold one of the newest `limit` of all. `walk` ends
    /// where its limit is to stand.
    fn newest_lists(&self, outer: &str, walk: &str) -> String {
        let limit = &self.limit;
        let newest = format!(
            "(SELECT h.* FROM (SELECT s.*, ({walk}1) AS head FROM {outer}) h WHERE h.head IS NOT NULL ORDER BY h.head DESC LIMIT {limit}) AS s"
        );
        for_each::<D>(&newest, &format!("{walk}{limit}"))
    }

    /// By the key's hash and then the key itself.
    fn by_key(&mut self, key: &[u8], covers: Covers) -> String {
        let hash = self.long(short_hash(key));
        let exact = same("record_key", &self.built.bind(Bind::Bytes(key.to_vec())));
        let rest = self.rest(covers);
        self.pinned("messages_key", "key_hash", &hash, &format!("{exact}{rest}"))
    }

    fn by_business_key(&mut self, key: &str) -> String {
        let hash = self.long(short_hash(text(key).as_bytes()));
        let exact = same("business_key", &self.text(key));
        let rest = self.rest(Covers::SEARCH);
        self.pinned("messages_business", "business_hash", &hash, &format!("{exact}{rest}"))
    }

    fn by_search(&mut self, q: &str) -> String {
        let walks = [self.by_key(q.as_bytes(), Covers::SEARCH), self.by_business_key(q), self.by_groups(Some(q))];
        walks.map(|walk| format!("SELECT id FROM ({walk}) w")).join(" UNION ")
    }

    /// A walk down one value of an index's leading column, for `limit` ids.
    fn pinned(&self, index: &str, column: &str, value: &str, rest: &str) -> String {
        format!("{}{}", self.walk(index, column, value, rest), self.limit)
    }

    /// The same up to its limit.
    fn walk(&self, index: &str, column: &str, value: &str, rest: &str) -> String {
        format!(
            "SELECT m.id FROM {} WHERE {}{rest} ORDER BY m.{column} DESC, m.id DESC LIMIT ",
            messages::<D>(index),
            pin::<D>(column, value, &self.after)
        )
    }

    /// The conditions that the walk does not see to by itself.
    fn rest(&mut self, covers: Covers) -> String {
        let filter = self.filter;
        let mut rest = String::new();
        let mut add = |condition: String| {
            rest.push_str(" AND ");
            rest.push_str(&condition);
        };
        if self.scope.narrowed && !covers.dlq {
            add(format!("m.dlq_id {}", self.in_dlqs()));
        }
        // A follow-up is of what is archived: to say so again would lead the planner astray.
        let implied = |state: MessageState| covers.follow_up && state == MessageState::Archived;
        if let Some(state) = filter.state.filter(|state| !covers.state && !implied(*state)) {
            add(format!("m.state = {}", self.text(state.as_str())));
        }
        if let Some(follow_up) = filter.follow_up.filter(|_| !covers.follow_up) {
            add(format!("m.follow_up = {}", self.text(follow_up.as_str())));
        }
        if let Some(class) = filter.class.filter(|_| !covers.group) {
            add(format!("m.class = {}", self.text(class.as_str())));
        }
        if let Some(group) = filter.group_id.filter(|_| !covers.group) {
            add(format!("m.group_id = {}", self.long(group)));
        }
        if let Some(partition) = filter.partition {
            add(format!("m.partition = {}", self.built.bind(Bind::Int(partition))));
        }
        if let Some(q) = search(filter).filter(|_| !covers.search) {
            let (key, business_key) = (self.built.bind(Bind::Bytes(q.as_bytes().to_vec())), self.text(q));
            let groups = self.groups_by_prefix(q);
            add(format!("(m.record_key = {key} OR m.business_key = {business_key} OR m.group_id IN ({groups}))"));
        }
        if let Some(key) = filter.key.as_deref().filter(|_| !covers.key) {
            add(format!("m.record_key = {}", self.built.bind(Bind::Bytes(key.to_vec()))));
        }
        if let Some(from) = filter.from_ms {
            add(format!("m.dead_lettered_at_ms >= {}", self.long(from)));
        }
        if let Some(to) = filter.to_ms {
            add(format!("m.dead_lettered_at_ms < {}", self.long(to)));
        }
        rest
    }

    /// Groups whose exception class or normalised text begins with `q`, letter case aside; compared in what the index holds of them.
    fn groups_by_prefix(&mut self, q: &str) -> String {
        let from = folded(&text(q));
        let end = self.text(&format!("{from}{}", char::MAX));
        let from = self.text(&from);
        format!(
            "SELECT g.id FROM groups g WHERE ((g.exception_folded >= {from} AND g.exception_folded < {end}) \
             OR (g.normalised_folded >= {from} AND g.normalised_folded < {end}))"
        )
    }

    /// The states to walk of each DLQ, as rows `s`.
    fn dlq_states(&mut self) -> String {
        match self.filter.state {
            Some(state) => self.lists(&[state.as_str()]),
            None => self.lists(&MessageState::ALL.map(MessageState::as_str)),
        }
    }

    /// A row `s` for each DLQ and word: which list of which DLQ to walk.
    fn lists(&mut self, words: &[&'static str]) -> String {
        #[derive(serde::Serialize)]
        struct DlqState {
            dlq_id: i64,
            state: &'static str,
        }
        let pairs = self.scope.dlqs.iter().flat_map(|&dlq_id| words.iter().map(move |state| DlqState { dlq_id, state }));
        let list = rows(&pairs.collect::<Vec<_>>());
        D::DLQ_STATES.replace("{}", &self.built.bind(Bind::Text(list)))
    }

    /// `= $n` for the one DLQ that is usual, else `IN` a list.
    fn in_dlqs(&mut self) -> String {
        if let [dlq_id] = self.scope.dlqs[..] {
            return format!("= {}", self.long(dlq_id));
        }
        let list = rows(&self.scope.dlqs);
        format!("IN {}", D::IN_LIST.replace("{}", &self.built.bind(Bind::Text(list))))
    }

    fn long(&mut self, value: i64) -> String {
        self.built.bind(Bind::Long(value))
    }

    fn text(&mut self, value: &str) -> String {
        self.built.bind(Bind::Text(text(value).into_owned()))
    }
}

/// The walk for each row `s` of `outer`.
fn for_each<D: Dialect>(outer: &str, walk: &str) -> String {
    D::FOR_EACH.replace("{outer}", outer).replace("{inner}", walk)
}

/// `messages m`, read by that index where the database can be told so.
fn messages<D: Dialect>(index: &str) -> String {
    D::MESSAGES_BY.replace("{index}", index)
}

/// One value of an index's column, and the ids of it before `after`.
fn pin<D: Dialect>(column: &str, value: &str, after: &str) -> String {
    D::PIN.replace("{column}", column).replace("{value}", value).replace("{after}", after)
}

/// The exact comparison beside a walk by hash, wrapped so that PostgreSQL does not guess from it that next to nothing will match, and so
/// read and sort all rows of a hot key instead of walking to the newest.
fn same(column: &str, value: &str) -> String {
    format!(" AND CASE WHEN m.{column} = {value} THEN true ELSE false END")
}

/// From how many arrivals on a time range counts as large.
const LARGE_RANGE: i64 = 5_000;

impl Store {
    /// The ids that a filter gives, newest first, each with its state, for work on all of them: the walk costs the same however many were
    /// walked before, whatever the filter. `after` is the last id of the chunk before; `limit` 1..=5,000.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn matching(&self, filter: &MessageFilter, after: Option<i64>, limit: i64) -> Result<Vec<(i64, MessageState)>, StoreError> {
        let Some(scope) = self.scope(filter).await? else { return Ok(Vec::new()) };
        // A walk by time reads all of its range for each chunk.
        let scope = Scope { walk_time_by_id: true, ..scope };
        let found: Vec<(i64, String)> = read!(self, |pool| {
            let built = PageQuery::<Db>::select(filter, &scope, after, limit.clamp(1, 5_000), "m.id, m.state");
            #[allow(clippy::disallowed_types, reason = "built above from our own words; every value is bound")]
            let sql = sqlx::AssertSqlSafe(built.sql);
            let query = bound!(sqlx::query_as::<Db, (i64, String)>(sql), built.binds);
            query.fetch_all(pool).await?
        })?;
        let typed = |(id, state): (i64, String)| Ok((id, state.parse().map_err(|_| StoreError::unreadable("state", &state))?));
        found.into_iter().map(typed).collect()
    }

    /// Newest first; `after` is the `next` of the previous page; `limit` 1..=500.
    pub async fn messages(&self, filter: &MessageFilter, after: Option<i64>, limit: i64) -> Result<MessagePage, StoreError> {
        let limit = limit.clamp(1, 500);
        let Some(scope) = self.scope(filter).await? else {
            return Ok(MessagePage { items: Vec::new(), next: None });
        };
        // One more than shown tells whether there is a next page.
        let raw = read!(self, |pool| {
            let built = PageQuery::<Db>::build(filter, &scope, after, limit + 1);
            #[allow(clippy::disallowed_types, reason = "built above from our own words; every value is bound")]
            let sql = sqlx::AssertSqlSafe(built.sql);
            let query = bound!(sqlx::query_as::<Db, RawMessage>(sql), built.binds);
            query.fetch_all(pool).await?
        })?;
        let mut items = raw.into_iter().map(MessageRow::try_from).collect::<Result<Vec<_>, _>>()?;
        let more = items.len() as i64 > limit;
        items.truncate(limit as usize);
        let next = items.last().map(|last| last.id).filter(|_| more);
        Ok(MessagePage { items, next })
    }

    /// The query that [`Store::messages`] would run, as the database plans it. For the tests that hold the lists to their indexes.
    pub async fn explain_messages(&self, filter: &MessageFilter, after: Option<i64>, limit: i64) -> Result<String, StoreError> {
        let Some(scope) = self.scope(filter).await? else { return Ok(String::new()) };
        let built = match self {
            Store::Postgres(_) => PageQuery::<sqlx::Postgres>::build(filter, &scope, after, limit + 1),
            Store::Sqlite(_) => PageQuery::<sqlx::Sqlite>::build(filter, &scope, after, limit + 1),
        };
        self.explain(built).await
    }

    /// What all DLQs together are asked for an overview, with the database's plan of each. For the same tests.
    pub async fn explain_overview(&self, now_ms: i64) -> Result<Vec<(&'static str, String)>, StoreError> {
        let (long, word) = (Bind::Long, |word: &str| Bind::Text(word.to_owned()));
        let kinds = counted_kinds().into_iter().map(word).chain([long(0)]).collect();
        let open = MessageState::ALL.into_iter().filter(|state| state.is_open()).map(|state| word(state.as_str()));
        let arrivals = |kind: &str, from_ms| vec![long(0), word(kind), long(from_ms), long(i64::MAX)];
        let queries = [
            ("counts", COUNTS, kinds),
            ("arrivals of a day", ARRIVALS_OF_EACH, arrivals(ARRIVALS_COARSE, now_ms - 86_400_000)),
            ("arrivals of 15 minutes", ARRIVALS_OF_EACH, arrivals(ARRIVALS, now_ms - 900_000)),
            ("oldest open", OLDEST_OPEN, open.chain([long(EARLIEST_PLAUSIBLE_MS), long(0), long(i64::MIN)]).collect()),
            ("newest samples", NEWEST, vec![long(0)]),
            ("newest successful samples", SUCCEEDED, vec![long(0)]),
            ("depths an hour ago", DEPTHS_AT, vec![long(now_ms - 3_600_000), long(now_ms - 3_000_000), long(0)]),
        ];
        let mut plans = Vec::new();
        for (name, sql, binds) in queries {
            plans.push((name, self.explain(Built { sql: sql.to_owned(), binds }).await?));
        }
        Ok(plans)
    }

    /// The query that [`Store::items_of_batch`] would run, as the database plans it. For the same tests.
    pub async fn explain_items(&self, batch_id: i64, list: ItemList, after: ItemCursor, limit: i64) -> Result<String, StoreError> {
        let (sql, word) = replay_pages::statement(list);
        let mut binds = vec![Bind::Long(batch_id), Bind::Long(after.message_id), Bind::Long(limit)];
        binds.extend(word.map(|word| Bind::Text(word.to_owned())));
        if let ItemList::State(_) = list {
            binds.extend([Bind::Int(after.stage), Bind::Long(after.place)]);
        }
        self.explain(Built { sql: sql.to_owned(), binds }).await
    }

    async fn explain(&self, built: Built) -> Result<String, StoreError> {
        let lines = read!(self, |pool| {
            #[allow(clippy::disallowed_types, reason = "built from our own words; every value is bound")]
            let sql = sqlx::AssertSqlSafe(format!("{} {}", Db::EXPLAIN, built.sql));
            let query = bound!(sqlx::query(sql), built.binds);
            let rows = query.fetch_all(pool).await?;
            rows.iter().map(|row| sqlx::Row::try_get::<String, _>(row, Db::EXPLAIN_COLUMN)).collect::<Result<Vec<_>, _>>()?
        })?;
        Ok(lines.join("\n"))
    }

    /// None: no message can match.
    async fn scope(&self, filter: &MessageFilter) -> Result<Option<Scope>, StoreError> {
        const ALL: &str =
            "SELECT id FROM dlqs WHERE ($1 IS NULL OR cluster = $1) AND ($2 IS NULL OR topic = $2) AND ($3 IS NULL OR owner = $3)";
        // A partition that holds nothing would be searched for in the whole DLQ.
        const WITH_PARTITION: &str = "SELECT d.id FROM dlqs d WHERE ($1 IS NULL OR d.cluster = $1) AND ($2 IS NULL OR d.topic = $2)
             AND ($3 IS NULL OR d.owner = $3) AND EXISTS (SELECT 1 FROM incarnations i JOIN messages m ON m.dlq_id = i.dlq_id AND m.incarnation = i.incarnation AND m.partition = $4
                 WHERE i.dlq_id = d.id)";
        let narrowed = filter.cluster.is_some() || filter.topic.is_some() || filter.owner.is_some() || filter.partition.is_some();
        let dlqs: Vec<i64> = read!(self, |pool| {
            let query = sqlx::query_scalar::<Db, i64>(if filter.partition.is_some() { WITH_PARTITION } else { ALL });
            let query = query.bind(filter.cluster.as_deref().map(text)).bind(filter.topic.as_deref().map(text));
            let query = query.bind(filter.owner.as_deref().map(text));
            match filter.partition {
                Some(partition) => query.bind(partition),
                None => query,
            }
            .fetch_all(pool)
            .await?
        })?;
        if dlqs.is_empty() {
            return Ok(None);
        }
        let walk_time_by_id = self.range_is_recent_and_large(filter, &dlqs).await?;
        Ok(Some(Scope { dlqs, narrowed, walk_time_by_id }))
    }

    /// Whether a time range holds many messages and few are newer. Then walking by id finds a page at once, where reading
    /// the whole range would not. Judged by the arrival counters.
    async fn range_is_recent_and_large(&self, filter: &MessageFilter, dlqs: &[i64]) -> Result<bool, StoreError> {
        if filter.from_ms.is_none() && filter.to_ms.is_none() {
            return Ok(false);
        }
        let newer = match filter.to_ms {
            Some(to) => self.some_arrivals(dlqs, to, i64::MAX).await?,
            None => 0,
        };
        let within = self.some_arrivals(dlqs, filter.from_ms.unwrap_or(i64::MIN), filter.to_ms.unwrap_or(i64::MAX)).await?;
        Ok(newer < LARGE_RANGE && within >= LARGE_RANGE)
    }

    /// Arrivals of a range, counted until there are enough for [`LARGE_RANGE`]: each counter holds one at least.
    async fn some_arrivals(&self, dlqs: &[i64], from_ms: i64, to_ms: i64) -> Result<i64, StoreError> {
        read!(self, |pool| {
            sqlx::query_scalar::<Db, i64>(Db::SOME_ARRIVALS)
                .bind(rows(dlqs))
                .bind(ARRIVALS)
                .bind(from_ms)
                .bind(to_ms)
                .bind(LARGE_RANGE)
                .fetch_one(pool)
                .await?
        })
    }
}
