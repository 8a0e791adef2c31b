//! The arrows between the rooms of `src/`, and what may appear only in one of them. `lib.rs` says which way they run and why.
//!
//! Every path in the code is looked at, not only `use` lines: comments and texts are blanked out, the rest is cut into tokens, and
//! `crate::`, `lazaret::`, `self::` and `super::super::` are resolved against the module in which they stand.

use std::collections::BTreeSet;
use std::path::Path;

/// Which rooms a room may name, itself aside. A room that is not in this table fails the test: it has to be placed first.
const ROOMS: &[(&str, &[&str])] = &[
    ("domain", &[]),
    ("telemetry", &[]),
    ("config", &["domain"]),
    ("store", &["domain"]),
    ("kafka", &["domain"]),
    ("ledger", &["domain"]),
    ("schema", &["domain"]),
    ("channels", &["domain"]),
    ("services", &["domain", "telemetry", "store", "kafka", "ledger", "schema", "channels"]),
    ("jobs", &["domain", "telemetry", "store", "kafka", "services"]),
    // `web/routes.rs` is the one table of everything that is served, so it names the API's handlers. The API knows nothing of `web`.
    ("web", &["domain", "telemetry", "store", "services", "api"]),
    ("api", &["domain", "telemetry", "store", "services"]),
    ("demo", &["domain"]),
    ("app", &["domain", "telemetry", "config", "store", "kafka", "ledger", "schema", "channels", "services", "jobs", "web", "api", "demo"]),
    ("cli", &["domain", "telemetry", "config", "store", "services", "app"]),
    ("main", &["cli", "app", "config"]),
];

/// Where a crate (or a part of one) may be named at all: paths below `src/`.
const ONLY_IN: &[(&str, &[&str])] = &[
    ("sqlx", &["store/", "ledger/sql.rs", "dedup/", "demo/"]),
    // A ledger's query is the operator's own.
    ("sqlx::AssertSqlSafe", &["store/filter.rs", "ledger/sql.rs"]),
    ("sqlx::QueryBuilder", &["store/filter.rs"]),
    ("rdkafka", &["kafka/", "demo/"]),
    // One file sends to anybody's Kafka; the demo's producer fills its own broker.
    ("rdkafka::producer", &["kafka/producer.rs", "demo/"]),
    ("rdkafka::mocking", &["demo/"]),
    ("rdkafka_sys", &["kafka/", "demo/"]),
    ("reqwest", &["schema/", "ledger/", "channels/"]),
    ("redis", &["ledger/", "dedup/", "demo/"]),
    ("axum", &["web/", "api/", "app"]),
    ("axum_extra", &["web/", "api/", "app"]),
    ("axum_htmx", &["web/"]),
    ("askama", &["web/"]),
    ("askama_web", &["web/"]),
];

/// What a pure room never names. Time enters by `domain/clock.rs` alone.
const NOT_IN_DOMAIN: &[&str] = &[
    "tokio",
    "tokio_util",
    "sqlx",
    "rdkafka",
    "rdkafka_sys",
    "redis",
    "axum",
    "axum_extra",
    "reqwest",
    "getrandom",
    "tracing",
    "metrics",
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
    "std::thread",
    "std::time::SystemTime",
    "std::time::Instant",
];

/// The one file with unsafe code: it wraps what rdkafka's safe half does not offer, topic ids first of all.
const UNSAFE: &str = "kafka/ffi.rs";

#[test]
fn arrows_run_one_way_and_what_has_one_place_stays_there() {
    let sources = sources();
    let found: Vec<String> = sources.iter().flat_map(|source| violations(source, &services(&sources))).collect();
    assert!(found.is_empty(), "{} forbidden:\n  {}", found.len(), found.join("\n  "));
}

/// A scanner that sees nothing would find nothing forbidden.
#[test]
fn the_scan_sees_the_arrows_that_are_there() {
    let sources = sources();
    let names: Vec<&str> = sources.iter().map(|source| source.path.as_str()).collect();
    assert!(names.contains(&"lib.rs") && names.contains(&"domain/record.rs") && names.contains(&"store/mod.rs"), "{names:?}");
    let sees = |path: &str, wanted: &[&str]| {
        let source = sources.iter().find(|source| source.path == path).unwrap_or_else(|| panic!("{path} is gone: name another"));
        paths(source).iter().any(|found| found.segments.starts_with(&wanted.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>()))
    };
    assert!(sees("store/messages.rs", &["crate", "domain", "message"]));
    assert!(sees("store/mod.rs", &["sqlx"]));
    assert!(sees("services/access.rs", &["crate", "store"]));
}

/// Each rule catches what it forbids, in the forms in which it could hide.
#[test]
fn each_planted_arrow_is_caught() {
    let planted = [
        ("domain/health.rs", "use crate::store::Store;", "domain names store"),
        ("domain/health.rs", "fn f() { crate::config::load(); }", "domain names config"),
        ("domain/dialect/mod.rs", "use super::super::kafka::client;", "domain names kafka"),
        ("domain/health.rs", "use sqlx::Row;", "sqlx"),
        ("domain/health.rs", "async fn f() { tokio::time::sleep(d).await }", "domain is pure: tokio"),
        ("domain/health.rs", "use std::{fmt, time::{Duration, SystemTime}};", "domain is pure: std::time::SystemTime"),
        ("domain/health.rs", "fn f() { std::fs::read(\"x\"); }", "domain is pure: std::fs"),
        ("domain/health.rs", "fn f(r: rdkafka::Message) {}", "rdkafka"),
        ("domain/health.rs", "use axum::Router;", "axum"),
        ("store/messages.rs", "use crate::kafka::intake::Batch;", "store names kafka"),
        ("store/messages.rs", "use crate::{domain::record::Record, services};", "store names services"),
        ("store/messages.rs", "mod inner { use super::super::super::ledger::Ledger; }", "store names ledger"),
        ("kafka/inspect.rs", "fn f(s: &lazaret::store::Store) {}", "kafka names store"),
        ("kafka/client.rs", "use rdkafka::producer::FutureProducer;", "rdkafka::producer"),
        ("kafka/client.rs", "use rdkafka::{consumer::Consumer, mocking::MockCluster};", "rdkafka::mocking"),
        ("store/messages.rs", "sqlx::query(sqlx::AssertSqlSafe(text))", "sqlx::AssertSqlSafe"),
        ("kafka/inspect.rs", "pub use super::super::web::routes;", "kafka names web"),
        ("ledger/mod.rs", "type S = super::store::Store;", "ledger names store"),
        ("services/intake/mod.rs", "use crate::services::health::Health;", "service intake names service health"),
        ("services/intake/tick.rs", "use super::super::health::Health;", "service intake names service health"),
        ("services/health.rs", "fn f() { super::access::sign_in() }", "service health names service access"),
        ("services/health.rs", "use crate::jobs::Supervisor;", "services names jobs"),
        ("services/health.rs", "use crate::{config::Settings};", "services names config"),
        ("services/health.rs", "use rdkafka::Offset;", "rdkafka"),
        ("services/health.rs", "fn f(pool: ::sqlx::PgPool) {}", "sqlx"),
        ("jobs/mod.rs", "use crate::web::Pages;", "jobs names web"),
        ("jobs/mod.rs", "use crate::app;", "jobs names app"),
        ("jobs/mod.rs", "use crate::ledger::Ledger;", "jobs names ledger"),
        ("channels/http.rs", "use crate::store::Store;", "channels names store"),
        ("services/notify/mod.rs", "fn f(c: reqwest::Client) {}", "reqwest"),
        ("web/mod.rs", "fn f(e: crate::kafka::client::KafkaError) {}", "web names kafka"),
        ("api/mod.rs", "use super::super::kafka::inspect;", "api names kafka"),
        ("cli/mod.rs", "use crate::demo::Demo;", "cli names demo"),
        ("app.rs", "use crate::cli::Failure;", "app names cli"),
        ("web/mod.rs", "use crate::jobs as loops;", "web names jobs"),
        ("api/mod.rs", "use crate::web::extract::SignedIn;", "api names web"),
        ("api/mod.rs", "#[derive(sqlx::FromRow)] struct Row;", "sqlx"),
        ("config/mod.rs", "use crate::store::Store;", "config names store"),
        ("telemetry.rs", "use crate::services;", "telemetry names services"),
        ("telemetry.rs", "use crate::domain::clock::Clock;", "telemetry names domain"),
        ("web/mod.rs", "use crate::demo::Demo;", "web names demo"),
        ("demo/mod.rs", "use crate::services::intake;", "demo names services"),
        ("main.rs", "use lazaret::store::Store;", "main names store"),
        ("app.rs", "use sqlx as database;", "sqlx"),
        ("kafka/client.rs", "fn f() { unsafe { g() } }", "unsafe"),
        ("web/mod.rs", "use crate::*;", "a glob over all rooms"),
        ("services/health.rs", "use super::*;", "a glob over all services"),
        ("lib.rs", "pub use store::Store;", "lib.rs declares the rooms and nothing else"),
        ("channel/mod.rs", "", "room channel is not placed"),
    ];
    let services = ["intake", "health", "access"].map(str::to_owned).into();
    for (path, code, expected) in planted {
        let found = violations(&Source::new(path, code), &services);
        assert!(found.iter().any(|text| text.contains(expected)), "{code:?} in {path}: wanted {expected:?}, found {found:?}");
    }
}

/// What only looks like an arrow is none.
#[test]
fn comments_texts_and_own_modules_are_no_arrows() {
    let innocent = [
        ("domain/health.rs", "// crate::store::Store\n/* sqlx::query /* nested */ tokio::spawn */\n/// unsafe { crate::kafka }\nfn f() {}"),
        (
            "domain/health.rs",
            r###"const A: &str = "crate::store \" unsafe"; const B: &str = r#"sqlx:: " tokio::"#; const C: &[u8] = br"axum::";"###,
        ),
        ("domain/health.rs", "fn f<'a>(x: &'a str) -> char { let _ = '\"'; let _ = '\\''; let r#type = x; 'b' }"),
        ("domain/health.rs", "use super::record::Record; use std::time::Duration; mod tests { use super::*; }"),
        ("domain/clock.rs", "use std::time::{Instant, SystemTime};"),
        ("services/intake/tick.rs", "use super::batch::Batch; use crate::services::intake::Intake; use crate::store::Store;"),
        ("services/health.rs", "mod tests { use super::*; }"),
        ("services/mod.rs", "pub mod access; pub use access::Access;"),
        ("store/bulk.rs", "use sqlx::Row; struct S { tokio: u8 } fn f(s: S) -> u8 { s.tokio }"),
        ("kafka/ffi.rs", "#![allow(unsafe_code)] fn f() { unsafe { g() } }"),
        ("kafka/client.rs", "#![deny(unsafe_code)]"),
        ("app.rs", "use crate::{demo, web, api, jobs, services::access::Access}; use axum::Router;"),
    ];
    let services = ["intake", "health", "access"].map(str::to_owned).into();
    for (path, code) in innocent {
        assert_eq!(violations(&Source::new(path, code), &services), Vec::<String>::new(), "{code:?} in {path}");
    }
}

/// One file below `src/`.
struct Source {
    /// With forward slashes, relative to `src/`.
    path: String,
    tokens: Vec<Token>,
}

struct Token {
    text: String,
    line: usize,
}

/// A path in the code, its beginning resolved: `crate::room::..` or the name of another crate.
struct Found {
    segments: Vec<String>,
    line: usize,
}

impl Source {
    fn new(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), tokens: tokens(&blank(text)) }
    }

    /// The modules that lead to this file: `store/messages.rs` is `store::messages`.
    fn module(&self) -> Vec<String> {
        let parts = self.path.trim_end_matches(".rs").split('/').map(str::to_owned);
        parts.filter(|part| part != "mod" && part != "lib" && part != "main").collect()
    }

    fn room(&self) -> String {
        self.path.split('/').next().unwrap_or_default().trim_end_matches(".rs").to_owned()
    }
}

fn sources() -> Vec<Source> {
    fn walk(root: &Path, folder: &Path, out: &mut Vec<Source>) {
        for entry in std::fs::read_dir(folder).expect("src is readable") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                walk(root, &path, out);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root).expect("below src").to_string_lossy().replace('\\', "/");
                out.push(Source::new(&name, &std::fs::read_to_string(&path).expect("a source file is text")));
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut out = Vec::new();
    walk(&root, &root, &mut out);
    out
}

/// The names of all services: files and folders of `services/`.
fn services(sources: &[Source]) -> BTreeSet<String> {
    let below = sources.iter().filter_map(|source| source.path.strip_prefix("services/"));
    below.map(|rest| rest.split('/').next().unwrap_or_default().trim_end_matches(".rs").to_owned()).filter(|name| name != "mod").collect()
}

fn violations(source: &Source, services: &BTreeSet<String>) -> Vec<String> {
    let room = source.room();
    let mut found = Vec::new();
    let mut report = |line: usize, what: String| found.push(format!("src/{}:{line}: {what}", source.path));
    for token in source.tokens.iter().filter(|token| token.text == "unsafe" && source.path != UNSAFE) {
        report(token.line, format!("unsafe code outside {UNSAFE}"));
    }
    if room == "lib" {
        for token in source.tokens.iter().filter(|token| token.text == "use") {
            report(token.line, "lib.rs declares the rooms and nothing else: a re-export would hide an arrow".to_owned());
        }
        return found;
    }
    let Some((_, allowed)) = ROOMS.iter().find(|(name, _)| *name == room) else {
        report(1, format!("room {room} is not placed: add it to ROOMS with what it may name"));
        return found;
    };
    for path in paths(source) {
        let Found { segments, line } = &path;
        let external = segments.first().is_some_and(|first| first != "crate");
        let judged =
            if external { judge_external(source, &room, segments) } else { judge_internal(source, &room, allowed, services, segments) };
        if let Some(what) = judged {
            report(*line, format!("{what} ({})", segments.join("::")));
        }
    }
    found
}

fn judge_external(source: &Source, room: &str, segments: &[String]) -> Option<String> {
    let written = segments.join("::");
    let names = |name: &str| written == name || written.starts_with(&format!("{name}::"));
    let pure = room == "domain" && source.path != "domain/clock.rs";
    if let Some(name) = NOT_IN_DOMAIN.iter().find(|name| pure && names(name)) {
        return Some(format!("domain is pure: {name} has no place in it"));
    }
    let away = |places: &[&str]| !places.iter().any(|place| source.path.starts_with(place));
    let (name, places) = ONLY_IN.iter().find(|(name, places)| names(name) && away(places))?;
    Some(format!("{name} belongs only in {}", places.join(", ")))
}

fn judge_internal(source: &Source, room: &str, allowed: &[&str], services: &BTreeSet<String>, segments: &[String]) -> Option<String> {
    let target = segments.get(1)?;
    if target == "*" {
        return Some("a glob over all rooms hides which are meant".to_owned());
    }
    if target == room {
        return judge_service(source, room, services, segments);
    }
    let known = ROOMS.iter().any(|(name, _)| name == target);
    (known && !allowed.contains(&target.as_str())).then(|| format!("{room} names {target}"))
}

/// Inside `services`, one service never names another.
fn judge_service(source: &Source, room: &str, services: &BTreeSet<String>, segments: &[String]) -> Option<String> {
    let mine = source.module().get(1).cloned().filter(|_| room == "services")?;
    let target = segments.get(2)?;
    if target == "*" {
        return Some("a glob over all services hides which are meant".to_owned());
    }
    (*target != mine && services.contains(target)).then(|| format!("service {mine} names service {target}"))
}

/// Every path of a file, `use` trees spread out, with its beginning resolved.
fn paths(source: &Source) -> Vec<Found> {
    let tokens = &source.tokens;
    let mut found = Vec::new();
    let mut module = source.module();
    // Inline modules that are open: the brace depth at which each ends.
    let mut inline: Vec<usize> = Vec::new();
    let (mut depth, mut at, mut in_use) = (0usize, 0, false);
    while at < tokens.len() {
        let text = tokens[at].text.as_str();
        match text {
            "{" => depth += 1,
            "}" => {
                depth = depth.saturating_sub(1);
                if inline.last() == Some(&depth) {
                    inline.pop();
                    module.pop();
                }
            }
            "mod" if tokens.get(at + 2).is_some_and(|token| token.text == "{") => {
                module.push(tokens[at + 1].text.clone());
                inline.push(depth);
                at += 2;
                continue;
            }
            "use" => in_use = true,
            ";" => in_use = false,
            _ => {}
        }
        let line = tokens[at].line;
        if (is_word(text) || text == "::") && !follows_a_path(tokens, at) {
            let (trees, next) = path_at(tokens, at);
            for segments in trees {
                if in_use || segments.len() > 1 {
                    found.push(Found { segments: resolve(&module, segments), line });
                }
            }
            at = next.max(at + 1);
        } else {
            at += 1;
        }
    }
    found
}

/// Whether the token continues something: a field or method, or the rest of a path behind a generic argument.
fn follows_a_path(tokens: &[Token], at: usize) -> bool {
    at > 0 && (tokens[at - 1].text == "." || (tokens[at].text == "::" && [">", "]", ")"].contains(&tokens[at - 1].text.as_str())))
}

/// The paths of the tree that begins here, and the token behind it.
fn path_at(tokens: &[Token], mut at: usize) -> (Vec<Vec<String>>, usize) {
    let text = |at: usize| tokens.get(at).map_or("", |token: &Token| token.text.as_str());
    let mut segments = Vec::new();
    if text(at) == "::" {
        at += 1;
    }
    loop {
        match text(at) {
            "{" => {
                let (branches, next) = branches_at(tokens, at + 1);
                let joined = branches.into_iter().map(|branch| segments.iter().cloned().chain(branch).collect());
                return (joined.collect(), next);
            }
            "*" => {
                segments.push("*".to_owned());
                return (vec![segments], at + 1);
            }
            word if is_word(word) => segments.push(word.to_owned()),
            _ => return (vec![segments], at),
        }
        if text(at + 1) != "::" {
            return (vec![segments], at + 1);
        }
        at += 2;
    }
}

/// The branches of a `use` group up to its closing brace.
fn branches_at(tokens: &[Token], mut at: usize) -> (Vec<Vec<String>>, usize) {
    let mut branches = Vec::new();
    while at < tokens.len() && tokens[at].text != "}" {
        if is_word(&tokens[at].text) || tokens[at].text == "*" {
            let (trees, next) = path_at(tokens, at);
            branches.extend(trees);
            at = next.max(at + 1);
            // Past `as name`.
            if tokens.get(at).is_some_and(|token| token.text == "as") {
                at += 2;
            }
        } else {
            at += 1;
        }
    }
    (branches, at + 1)
}

/// Makes the beginning absolute: `super::x` in `crate::a::b` is `crate::a::x`.
fn resolve(module: &[String], segments: Vec<String>) -> Vec<String> {
    let mut base = module.to_vec();
    let mut rest = segments.into_iter().peekable();
    match rest.peek().map(String::as_str) {
        Some("crate" | "lazaret") => {
            rest.next();
            base.clear();
        }
        Some("self") => {
            rest.next();
        }
        Some("super") => {}
        _ => return rest.collect(),
    }
    while rest.next_if(|segment| segment == "super").is_some() {
        base.pop();
    }
    std::iter::once("crate".to_owned()).chain(base).chain(rest.filter(|segment| segment != "self")).collect()
}

fn is_word(text: &str) -> bool {
    text.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// Words, `::`, and single other characters.
fn tokens(code: &str) -> Vec<Token> {
    let mut out = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let mut rest = line;
        while let Some(first) = rest.chars().next() {
            let length = match first {
                _ if rest.starts_with("::") => 2,
                _ if rest.starts_with("r#") => 2,
                first if first.is_alphanumeric() || first == '_' => {
                    rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
                }
                first => first.len_utf8(),
            };
            let text = &rest[..length];
            if !text.trim().is_empty() && text != "r#" {
                out.push(Token { text: text.to_owned(), line: index + 1 });
            }
            rest = &rest[length..];
        }
    }
    out
}

/// The code with comments, texts and characters blanked out, line breaks kept.
fn blank(code: &str) -> String {
    let mut out = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let word_before = out.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let length = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => block_comment(rest),
            '"' => text_literal(rest),
            'r' | 'b' | 'c' if !word_before => prefixed_literal(rest),
            '\'' => character(rest),
            _ => 0,
        };
        if length == 0 {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            out.extend(rest[..length].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            rest = &rest[length..];
        }
    }
    out
}

/// Bytes of a block comment; they nest.
fn block_comment(rest: &str) -> usize {
    let (mut at, mut depth) = (0, 0);
    while at < rest.len() {
        match &rest.as_bytes()[at..] {
            [b'/', b'*', ..] => (at, depth) = (at + 2, depth + 1),
            [b'*', b'/', ..] => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// Bytes of `"..."` with its escapes.
fn text_literal(rest: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in rest.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Bytes of `r"..."`, `r#"..."#`, `b"..."`, `b'..'`, `br#"..."#`, `c"..."`; 0 for a word or a raw identifier.
fn prefixed_literal(rest: &str) -> usize {
    let prefix = rest.bytes().take_while(u8::is_ascii_lowercase).count();
    let hashes = rest[prefix..].bytes().take_while(|byte| *byte == b'#').count();
    let body = &rest[prefix + hashes..];
    match (&rest[..prefix], body.as_bytes().first()) {
        ("r" | "br" | "cr", Some(b'"')) => {
            let end = format!("\"{}", "#".repeat(hashes));
            body[1..].find(&end).map_or(rest.len(), |at| prefix + hashes + 1 + at + end.len())
        }
        ("b" | "c", Some(b'"')) if hashes == 0 => prefix + text_literal(body),
        ("b", Some(b'\'')) if hashes == 0 => prefix + character(body),
        _ => 0,
    }
}

/// Bytes of `'x'` or `'\n'`; 0 for a lifetime.
fn character(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => {
            chars.next();
            rest[2..].char_indices().skip(1).find(|(_, c)| *c == '\'').map_or(0, |(at, _)| at + 3)
        }
        Some((at, c)) if rest[at + c.len_utf8()..].starts_with('\'') => at + c.len_utf8() + 1,
        _ => 0,
    }
}
