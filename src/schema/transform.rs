//! jq filters that make older payloads fit.
//!
//! A filter is the work of whoever may propose a replay, and it is run over payloads of strangers, so it gets no clock, no environment, no output
//! and no exit, and it may take only so many steps, so much stack and so large a value. What jq's own definitions and the filter's loops pass through
//! is [`STEP`], which counts; what makes or enlarges a value is followed by [`WEIGH`], which looks through it, since a few steps of `[., .]` make a value
//! that takes no memory and has more parts than could ever be written out. The count is the same on every machine, so what the preflight saw is what is sent.
//!
//! What is not promised: a single built-in may still be slow on a large value (comparing two of them, say), which the caller's deadline covers.

use std::cell::Cell;

use jaq_core::compile::Undefined;
use jaq_core::load::lex::StrPart;
use jaq_core::load::parse::{BinaryOp, Def, Pattern, Term};
use jaq_core::load::{Arena, File, Loader};
use jaq_core::path::{Part, Path};
use jaq_core::{Ctx, Cv, Error, Exn, Native, Vars, data, native, ops, unwrap_valr};
use jaq_json::{Val, read, write};
use sha2::{Digest as _, Sha256};

use crate::domain::record::clip;

/// Longer filters are refused.
pub const TEXT_LIMIT: usize = 32 * 1024;
/// Larger outputs are refused: Kafka's own limit for a record is 1 MiB unless somebody raised it.
pub const OUTPUT_LIMIT: usize = 8 * 1024 * 1024;
/// Passes through [`STEP`] that one message may take.
const STEPS: u64 = 200_000;
/// Bytes of one text, and members or elements of one object or array, that a step may see.
const TEXT: usize = 8 * 1024 * 1024;
const ELEMENTS: usize = 1_000_000;
/// Bytes of a whole value: all its texts, and [`PART`] for each of its parts. What is shared counts as often as it stands in it.
const WHOLE: usize = 32 * 1024 * 1024;
const PART: usize = 16;
/// Parts that may be looked through for one message.
const LOOKED_AT: u64 = 20_000_000;
/// Bytes of a filter's own error that are kept.
const SAID: usize = 2_000;
/// Stack that filters run on (address space, not memory), and how much of it may be used.
const STACK: usize = 256 * 1024 * 1024;
const STACK_LIMIT: usize = 64 * 1024 * 1024;

/// The native identity that counts.
const STEP: &str = "lazaret_step";
/// The same, and it looks through the value.
const WEIGH: &str = "lazaret_weigh";
const TIMES: &str = "lazaret_times";
const RANGE: &str = "lazaret_range";
const FILTER: &str = "lazaret_filter";
const COUNTED_RANGE: &str = "def range(from; to; by): lazaret_range(from; to; by);";

/// What a filter must not reach: the process, its environment, its log, its clock and its zone.
const FORBIDDEN: [&str; 11] =
    ["halt", "halt_error", "env", "now", "stderr", "stderr_empty", "debug", "debug_empty", "localtime", "strflocaltime", "input"];

type D = data::JustLut<Val>;

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(0) };
    static UNSEEN: Cell<u64> = const { Cell::new(0) };
    static BASE: Cell<usize> = const { Cell::new(0) };
}

/// A compiled filter.
pub struct Transform {
    filter: jaq_core::Filter<D>,
    hash: String,
}

impl std::fmt::Debug for Transform {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transform").field("hash", &self.hash).finish_non_exhaustive()
    }
}

/// Why a filter cannot be used: where and what.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {problem}")]
pub struct FilterFault {
    /// 1-based.
    pub line: usize,
    /// 1-based, in characters.
    pub column: usize,
    pub problem: String,
}

/// Why a filter gave nothing for one message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The filter's own error. `text` may quote the payload.
    #[error("the filter fails on it")]
    Failed { text: String },
    #[error("the filter gives {0} values instead of one")]
    Count(&'static str),
    #[error("the filter takes too long, nests too deep, or makes too large a value")]
    Limit,
    #[error("the filter's output is no JSON")]
    NotJson,
    /// The value is of this kind.
    #[error("a filter reads JSON, and this is {0}")]
    Kind(String),
}

impl Transform {
    /// Compiles a filter.
    ///
    /// # Errors
    /// It is no jq, it names what is not there, or what it must not reach.
    pub fn compile(text: &str) -> Result<Transform, FilterFault> {
        if text.len() > TEXT_LIMIT {
            let problem = format!("the filter is longer than {TEXT_LIMIT} bytes");
            return Err(FilterFault { line: 1, column: 1, problem });
        }
        let no_thread = || Err(FilterFault { line: 1, column: 1, problem: "no thread to compile it on".to_owned() });
        let filter = deep(|| compiled(text)).unwrap_or_else(no_thread)?;
        Ok(Transform { filter, hash: hash(text) })
    }

    /// SHA-256 of its text, hexadecimal.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// What it makes of a JSON document: exactly one value, written compactly. Integers of any size and decimals that it only passes on keep their digits.
    /// Call it on a [`deep`] stack.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn apply(&self, document: &[u8]) -> Result<Vec<u8>, Refusal> {
        let input = read::parse_single(document).map_err(|_| Refusal::NotJson)?;
        let here = 0_u8;
        BASE.set(std::ptr::from_ref(&here).addr());
        LEFT.set(STEPS);
        UNSEEN.set(LOOKED_AT);
        let result = self.one(input);
        // A limit that the filter caught with `try` is a limit all the same.
        if LEFT.get() == 0 { Err(Refusal::Limit) } else { result }
    }

    fn one(&self, input: Val) -> Result<Vec<u8>, Refusal> {
        let context = Ctx::<D>::new(&self.filter.lut, Vars::new([]));
        let mut outputs = self.filter.id.run((context, input)).map(unwrap_valr);
        let output = match outputs.next() {
            None => return Err(Refusal::Count("no")),
            Some(Err(error)) => return Err(Refusal::Failed { text: clip(&error.to_string(), SAID).to_owned() }),
            Some(Ok(output)) => output,
        };
        if outputs.next().is_some() {
            return Err(Refusal::Count("several"));
        }
        let mut written = Limited(Vec::new());
        let compact = write::Pp { sep_space: false, ..write::Pp::default() };
        write::write(&mut written, &compact, 0, &output).map_err(|_| Refusal::Limit)?;
        // jq knows numbers and names that JSON does not.
        serde_json::from_slice::<serde::de::IgnoredAny>(&written.0).map_err(|_| Refusal::NotJson)?;
        Ok(written.0)
    }
}

/// SHA-256 of a filter's text, hexadecimal.
pub fn hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Runs something on a stack that deep documents and filters cannot fill. None: it panicked, or there is no thread to be had.
pub fn deep<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work).ok()?.join().ok())
}

/// A writer that ends at [`OUTPUT_LIMIT`].
struct Limited(Vec<u8>);

impl std::io::Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > OUTPUT_LIMIT {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// First the text as it is, for faults with their places; then once more with steps in it.
fn compiled(text: &str) -> Result<jaq_core::Filter<D>, FilterFault> {
    let arena = Arena::default();
    let modules = Loader::new(definitions()).load(&arena, File { code: text, path: () }).map_err(|errors| load_fault(text, &errors))?;
    let compiler = || jaq_core::Compiler::default().with_funs(functions());
    compiler().compile(modules).map_err(|errors| compile_fault(text, &errors))?;
    let nowhere = || FilterFault { line: 1, column: 1, problem: "is not a filter alone: modules cannot be used".to_owned() };
    let term = jaq_core::load::parse(text, |parser| parser.term()).ok_or_else(nowhere)?;
    let range = jaq_core::load::parse(COUNTED_RANGE, |parser| parser.defs()).unwrap_or_default();
    let filter = Def { name: FILTER, args: Vec::new(), body: term };
    let stepped = range.into_iter().chain(definitions().map(shorter)).chain([filter]).map(stepped_def);
    let modules = Loader::new(stepped).load(&arena, File { code: FILTER, path: () });
    let modules = modules.map_err(|_| nowhere())?;
    compiler().compile(modules).map_err(|_| nowhere())
}

fn shorter<'s>(definition: Def<&'static str>) -> Def<&'s str> {
    definition
}

fn definitions() -> impl Iterator<Item = Def<&'static str>> {
    let all = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
    all.filter(|definition| !FORBIDDEN.contains(&definition.name))
}

fn functions() -> impl Iterator<Item = native::Fun<D>> {
    // An identity that lets only what it has looked at through.
    macro_rules! identity {
        ($look:ident) => {
            Native::new(|cv: Cv<'_, D>| native::bome($look(cv.1)))
                .with_paths(|(_, (value, path))| Box::new(std::iter::once($look(value).map(|value| (value, path)).map_err(Exn::from))))
                .with_update(|(_, value), update| match $look(value) {
                    Ok(value) => update(value),
                    Err(error) => native::bome(Err(error)),
                })
        };
    }
    let (step, weigh) = (identity!(stepped), identity!(weighed));
    let times = native::run::<D>((TIMES, native::v(2), |mut cv| {
        let (right, left) = (cv.0.pop_var(), cv.0.pop_var());
        native::bome(times(left, right))
    }));
    let built_in = jaq_core::funs::<D>().chain(jaq_std::funs::<D>()).chain(jaq_json::funs::<D>());
    let allowed = built_in.filter(|(name, ..)| !FORBIDDEN.contains(name)).collect::<Vec<_>>();
    // Under a second name too: `range` itself becomes a definition around it, whose outputs are counted.
    let ranges = jaq_core::funs::<D>().filter(|(name, ..)| *name == "range").map(|(_, args, range)| (RANGE, args, range));
    allowed.into_iter().chain(ranges).chain([(STEP, native::v(0), step), (WEIGH, native::v(0), weigh), times])
}

/// Counts, and looks at how deep the stack and how large the value is.
fn stepped(value: Val) -> Result<Val, Error<Val>> {
    let here = 0_u8;
    let depth = BASE.get().abs_diff(std::ptr::from_ref(&here).addr());
    let left = LEFT.get();
    if left == 0 || depth > STACK_LIMIT || is_too_large(&value) {
        LEFT.set(0);
        return Err(Error::str("limit"));
    }
    LEFT.set(left - 1);
    Ok(value)
}

/// As [`stepped`], and looks at how large it is with all its parts.
fn weighed(value: Val) -> Result<Val, Error<Val>> {
    let value = stepped(value)?;
    if is_too_heavy(&value) {
        LEFT.set(0);
        return Err(Error::str("limit"));
    }
    Ok(value)
}

fn is_too_heavy(value: &Val) -> bool {
    if !matches!(value, Val::Arr(_) | Val::Obj(_)) {
        return false;
    }
    let (mut open, mut weight, mut unseen) = (vec![value], 0_usize, UNSEEN.get());
    while let Some(value) = open.pop() {
        weight += PART;
        match value {
            Val::TStr(text) | Val::BStr(text) => weight += text.len(),
            Val::Arr(elements) => open.extend(elements.iter()),
            Val::Obj(members) => members.iter().for_each(|(name, member)| open.extend([name, member])),
            Val::Null | Val::Bool(_) | Val::Num(_) => {}
        }
        if unseen == 0 || weight > WHOLE {
            return true;
        }
        unseen -= 1;
    }
    UNSEEN.set(unseen);
    false
}

fn is_too_large(value: &Val) -> bool {
    match value {
        Val::TStr(text) | Val::BStr(text) => text.len() > TEXT,
        Val::Arr(elements) => elements.len() > ELEMENTS,
        Val::Obj(members) => members.len() > ELEMENTS,
        Val::Num(jaq_json::Num::BigInt(number)) => number.bits() > 100_000,
        Val::Null | Val::Bool(_) | Val::Num(_) => false,
    }
}

/// `left * right`, which for a text and a number repeats the text.
fn times(left: Val, right: Val) -> Result<Val, Error<Val>> {
    let large = |text: &Val, count: &Val| match (text, count) {
        (Val::TStr(text) | Val::BStr(text), Val::Num(count)) => {
            count.as_isize().is_none_or(|count| usize::try_from(count).is_ok_and(|count| text.len().saturating_mul(count) > TEXT))
        }
        _ => false,
    };
    if large(&left, &right) || large(&right, &left) {
        LEFT.set(0);
        return Err(Error::str("limit"));
    }
    left * right
}

type Filter<'s> = Term<&'s str>;

fn step<'s>() -> Filter<'s> {
    Term::Call(STEP, Vec::new())
}

fn weigh<'s>() -> Filter<'s> {
    Term::Call(WEIGH, Vec::new())
}

fn then<'s>(first: Filter<'s>, next: Filter<'s>) -> Filter<'s> {
    Term::BinOp(Box::new(first), BinaryOp::Pipe(None), Box::new(next))
}

/// Entering a definition is a step, so no recursion goes on for ever.
fn stepped_def(definition: Def<&str>) -> Def<&str> {
    Def { name: definition.name, args: definition.args, body: then(step(), stepped_term(definition.body)) }
}

/// The same filter with a step wherever values are made or passed on.
fn stepped_term(term: Filter<'_>) -> Filter<'_> {
    fn boxed(term: Filter<'_>) -> Box<Filter<'_>> {
        Box::new(stepped_term(term))
    }
    match term {
        Term::Id | Term::Num(_) | Term::Break(_) | Term::Var(_) => term,
        Term::Recurse => then(term, step()),
        Term::Str(format, parts) => {
            let part = |part| match part {
                StrPart::Term(term) => StrPart::Term(stepped_term(term)),
                other => other,
            };
            then(Term::Str(format, parts.into_iter().map(part).collect()), weigh())
        }
        Term::Arr(None) => term,
        Term::Arr(Some(elements)) => then(Term::Arr(Some(Box::new(then(stepped_term(*elements), step())))), weigh()),
        Term::Obj(members) => {
            let members = members.into_iter().map(|(name, value)| (stepped_term(name), value.map(stepped_term)));
            then(Term::Obj(members.collect()), weigh())
        }
        Term::Neg(term) => Term::Neg(boxed(*term)),
        Term::BinOp(left, op, right) => stepped_op(stepped_term(*left), op, stepped_term(*right)),
        Term::Label(name, term) => Term::Label(name, boxed(*term)),
        Term::Fold(name, over, pattern, terms) => {
            let terms = terms.into_iter().map(|term| then(stepped_term(term), step())).collect();
            Term::Fold(name, boxed(*over), stepped_pattern(pattern), terms)
        }
        Term::TryCatch(attempt, catch) => Term::TryCatch(boxed(*attempt), catch.map(|term| boxed(*term))),
        Term::IfThenElse(cases, otherwise) => {
            let cases = cases.into_iter().map(|(condition, then)| (stepped_term(condition), stepped_term(then)));
            Term::IfThenElse(cases.collect(), otherwise.map(|term| boxed(*term)))
        }
        Term::Def(definitions, term) => Term::Def(definitions.into_iter().map(stepped_def).collect(), boxed(*term)),
        Term::Call(name, args) => match (name, args.len()) {
            (RANGE, 3) => then(Term::Call(name, args.into_iter().map(stepped_term).collect()), step()),
            _ => Term::Call(name, args.into_iter().map(stepped_term).collect()),
        },
        Term::Path(term, Path(parts)) => {
            let part = |part| match part {
                Part::Index(at) => Part::Index(stepped_term(at)),
                Part::Range(from, to) => Part::Range(from.map(stepped_term), to.map(stepped_term)),
            };
            Term::Path(boxed(*term), Path(parts.into_iter().map(|(at, optional)| (part(at), optional)).collect()))
        }
    }
}

fn stepped_op<'s>(left: Filter<'s>, op: BinaryOp<&'s str>, right: Filter<'s>) -> Filter<'s> {
    let binary = |left, op, right| Term::BinOp(Box::new(left), op, Box::new(right));
    match op {
        BinaryOp::Pipe(pattern) => binary(left, BinaryOp::Pipe(pattern.map(stepped_pattern)), then(step(), right)),
        BinaryOp::Math(ops::Math::Mul) => then(Term::Call(TIMES, vec![left, right]), weigh()),
        BinaryOp::Math(op) => then(binary(left, BinaryOp::Math(op), right), weigh()),
        // As jq defines it: `right as $x | left |= . * $x`.
        BinaryOp::UpdateMath(ops::Math::Mul) => {
            const FACTOR: &str = "$lazaret_factor";
            let update = binary(left, BinaryOp::Update, then(Term::Call(TIMES, vec![Term::Id, Term::Var(FACTOR)]), step()));
            then(binary(right, BinaryOp::Pipe(Some(Pattern::Var(FACTOR))), update), weigh())
        }
        BinaryOp::Update => then(binary(left, BinaryOp::Update, then(right, step())), weigh()),
        op @ (BinaryOp::UpdateMath(_) | BinaryOp::Assign | BinaryOp::UpdateAlt) => then(binary(left, op, right), weigh()),
        op => binary(left, op, right),
    }
}

fn stepped_pattern(pattern: Pattern<&str>) -> Pattern<&str> {
    match pattern {
        Pattern::Var(name) => Pattern::Var(name),
        Pattern::Arr(parts) => Pattern::Arr(parts.into_iter().map(stepped_pattern).collect()),
        Pattern::Obj(parts) => Pattern::Obj(parts.into_iter().map(|(name, part)| (stepped_term(name), stepped_pattern(part))).collect()),
    }
}

fn load_fault(text: &str, errors: &jaq_core::load::Errors<&str, ()>) -> FilterFault {
    use jaq_core::load::Error;
    let first = errors.first().map(|(_, error)| error);
    let (at, problem) = match first {
        Some(Error::Lex(errors)) => errors.first().map(|(expected, at)| (*at, format!("expected {}", expected.as_str()))),
        Some(Error::Parse(errors)) => errors.first().map(|(expected, at)| (*at, format!("expected {}", expected.as_str()))),
        Some(Error::Io(errors)) => errors.first().map(|(at, _)| (*at, "modules cannot be used".to_owned())),
        None => None,
    }
    .unwrap_or((text, "is no jq filter".to_owned()));
    fault_at(text, at, problem)
}

fn compile_fault(text: &str, errors: &jaq_core::compile::Errors<&str, ()>) -> FilterFault {
    let (at, undefined) = match errors.first().and_then(|(_, errors)| errors.first()) {
        Some((at, undefined)) => (*at, undefined),
        None => return fault_at(text, text, "is no jq filter".to_owned()),
    };
    let arity = match undefined {
        Undefined::Filter(arity) => format!("/{arity}"),
        _ => String::new(),
    };
    let problem = if FORBIDDEN.contains(&at) {
        format!("{at} cannot be used in a transform")
    } else {
        format!("there is no {} {at}{arity}", undefined.as_str())
    };
    fault_at(text, at, problem)
}

/// `part` is a slice of `text`, as jaq's faults are; of anything else the place is the end.
fn fault_at(text: &str, part: &str, problem: String) -> FilterFault {
    let offset = part.as_ptr().addr().checked_sub(text.as_ptr().addr()).filter(|at| *at <= text.len()).unwrap_or(text.len());
    let before = &text[..text.floor_char_boundary(offset)];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
    FilterFault { line, column, problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(filter: &str, document: &str) -> Result<String, Refusal> {
        let transform = Transform::compile(filter).expect("compiles");
        deep(|| transform.apply(document.as_bytes())).expect("does not panic").map(|bytes| String::from_utf8(bytes).expect("UTF-8"))
    }

    #[test]
    fn filters_do_what_jq_does() {
        for (filter, document, output) in [
            (".", r#"{"a":1}"#, r#"{"a":1}"#),
            (".amount_cents = (.amount * 100) | del(.amount)", r#"{"id":"p","amount":12}"#, r#"{"id":"p","amount_cents":1200}"#),
            (".amount *= 100", r#"{"amount":12}"#, r#"{"amount":1200}"#),
            (r#".currency //= "EUR""#, r#"{"a":1}"#, r#"{"a":1,"currency":"EUR"}"#),
            ("def up: ascii_upcase; .c |= up", r#"{"c":"eur"}"#, r#"{"c":"EUR"}"#),
            ("[range(3)]", "null", "[0,1,2]"),
            ("[range(0; 10; 4)]", "null", "[0,4,8]"),
            ("map_values(. + 1)", r#"{"a":1,"b":2}"#, r#"{"a":2,"b":3}"#),
            ("with_entries(.key |= \"x\" + .)", r#"{"a":1}"#, r#"{"xa":1}"#),
            ("(.. | select(type == \"number\")) |= . + 1", r#"{"a":[1,{"b":2}]}"#, r#"{"a":[2,{"b":3}]}"#),
            ("walk(if type == \"string\" then ascii_downcase else . end)", r#"["A",{"b":"B"}]"#, r#"["a",{"b":"b"}]"#),
            ("reduce .[] as $x (0; . + $x)", "[1,2,3]", "6"),
            (". as {a: $x, b: [$y]} | [$x, $y]", r#"{"a":1,"b":[2]}"#, "[1,2]"),
            ("if .v == 1 then .v = 2 else . end", r#"{"v":1}"#, r#"{"v":2}"#),
            ("[.[] | try error(\"x\") catch .]", "[1]", r#"["x"]"#),
            ("\"\\(.a)-\\(.b)\"", r#"{"a":1,"b":"c"}"#, r#""1-c""#),
            ("paths(type == \"number\")", r#"{"a":1}"#, r#"["a"]"#),
            ("\"ab\" * 3", "null", r#""ababab""#),
            ("first(.[] | select(. > 1))", "[1,2,3]", "2"),
            ("until(. > 100; . * 2)", "3", "192"),
            ("[limit(3; repeat(1))]", "null", "[1,1,1]"),
            ("group_by(.k) | map({(.[0].k): length}) | add", r#"[{"k":"a"},{"k":"b"},{"k":"a"}]"#, r#"{"a":2,"b":1}"#),
            (".d | split(\"-\") | .[0] | tonumber", r#"{"d":"2026-11"}"#, "2026"),
            ("sub(\"(?<y>\\\\d+)\"; \"<\\(.y)>\")", "\"a12\"", r#""a<12>""#),
        ] {
            assert_eq!(apply(filter, document).as_deref(), Ok(output), "{filter}");
        }
    }

    #[test]
    fn digits_that_are_passed_on_stay_exact() {
        for number in
            ["9007199254740993", "123456789012345678901234567890", "-0.10", "1.000000000000000000001", "1e400", "9007199254740993.5"]
        {
            let document = format!(r#"{{"id":{number},"v":1}}"#);
            assert_eq!(apply(".v = 2", &document), Ok(format!(r#"{{"id":{number},"v":2}}"#)));
        }
        assert_eq!(apply(".id + 1", r#"{"id":9007199254740992}"#).as_deref(), Ok("9007199254740993"));
    }

    #[test]
    fn exactly_one_json_value_comes_out() {
        assert_eq!(apply("empty", "1"), Err(Refusal::Count("no")));
        assert_eq!(apply("1, 2", "1"), Err(Refusal::Count("several")));
        assert_eq!(apply("{(1|tostring|tobytes): 2}", "1"), Err(Refusal::NotJson));
        assert_eq!(apply("{(.): 1}", "1"), Err(Refusal::NotJson));
        assert!(matches!(apply(".a", "[1]"), Err(Refusal::Failed { .. })));
        assert!(!apply(".a.b", r#"{"a":"4111111111111111"}"#).unwrap_err().to_string().contains("4111"));
    }

    #[test]
    fn hostile_filters_end() {
        let mut other = Vec::new();
        for filter in [
            "def f: f; f",
            "def f: 1 + f; f",
            "def f: [f]; f",
            "def f: try f catch f; f",
            "def f(g): f(g | g); f(.)",
            "[range(1e9)]",
            "[range(infinite)] | length",
            "last(range(1e12))",
            "[repeat(.)]",
            "[repeat(1)]",
            "[recurse(.)]",
            "0 | last(recurse(. + 1))",
            "until(false; .)",
            "[while(true; .)]",
            "\"x\" * 1e12",
            "1e12 * \"x\"",
            "\"x\" * 1000000000",
            "{a: \"x\"} | .a *= 1000000000",
            "reduce range(64) as $i (\"x\"; . + .)",
            "reduce range(64) as $i ([1]; . + .)",
            "reduce range(64) as $i (\"x\"; \"\\(.)\\(.)\")",
            "reduce range(64) as $i (2; . * .)",
            "reduce range(64) as $i (1; [., .])",
            "reduce range(1e6) as $i (1; [.])",
            "[range(100)] | [..|..|..|..|..|..|..|..] | [.[]|..|..|..|..|.. as $x | .[]?, $x | .[]?] | [.[] | range(1000)] | length",
            "[try repeat(.) catch 1]",
            "[limit(1e9; repeat(1))]",
            "[combinations(64)]",
            "first(range(1e12) | select(. < 0))",
            "label $out | foreach repeat(1) as $x (0; . + $x; empty)",
            // Values that take no memory, until somebody looks through them.
            "reduce range(64) as $i (1; [., .]) | last(..)",
            "reduce range(64) as $i (1; [., .]) | tojson | length",
            "reduce range(64) as $i (1; [., .]) | \"\\(.)\" | length",
            "reduce range(64) as $i (1; [., .]) | try .a catch length",
            "reduce range(64) as $i (1; [., .]) | {(.): 1} | length",
            "reduce range(64) as $i (1; {a: ., b: .}) as $a | reduce range(64) as $i (1; {a: ., b: .}) as $b | $a == $b",
            "reduce range(64) as $i ({}; . as $v | .a = $v | .b = $v) | tojson",
            "reduce range(64) as $i ({}; . as $v | .a |= $v | .b |= $v) | tojson",
            "reduce range(64) as $i ({}; . as $v | .a += $v | .b += {a: $v}) | tojson",
            "def f: [., .]; f|f|f|f|f|f|f|f|f|f|f|f|f|f|f|f|f|f|f|f|f|f|f|f|f|f|f|f|f|f|f|f|tojson",
            "[range(1000)] | [.[] as $i | $i] as $a | [range(1000) | $a] as $b | [range(1000) | $b] | tojson",
        ] {
            let said = apply(filter, "[0,1]");
            if said != Err(Refusal::Limit) {
                other.push((filter, said));
            }
        }
        assert_eq!(other, []);
    }

    #[test]
    fn the_process_is_out_of_reach() {
        for filter in [
            "halt",
            "halt_error",
            "halt(3)",
            "env",
            "env.PATH",
            "now",
            "debug",
            "stderr",
            "input",
            "$ENV",
            "localtime",
            "strflocaltime(\"%Z\")",
        ] {
            let fault = Transform::compile(filter).expect_err(filter);
            assert_eq!(fault.line, 1, "{fault}");
        }
    }

    #[test]
    fn faults_have_their_places() {
        for (filter, line, column, said) in [
            (".a |", 1, 5, "expected"),
            (".a\n| nothing(1)", 2, 3, "there is no filter nothing/1"),
            ("{\n  a: $x\n}", 2, 6, "there is no variable $x"),
            (".a | @", 1, 7, "expected"),
            ("(", 1, 2, "expected"),
            ("", 1, 1, "expected"),
            ("include \"x\"; .", 1, 10, "modules"),
            (".a | now", 1, 6, "now cannot be used"),
        ] {
            let fault = Transform::compile(filter).expect_err(filter);
            assert_eq!((fault.line, fault.column), (line, column), "{filter:?}: {fault}");
            assert!(fault.problem.contains(said), "{filter:?}: {fault}");
        }
        assert!(Transform::compile(&"(".repeat(TEXT_LIMIT)).is_err());
        assert!(Transform::compile(&".".repeat(TEXT_LIMIT + 1)).is_err());
    }
}
