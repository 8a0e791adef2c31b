//! The command line as a person or a script meets it: the built binary, its words and its exit codes.

use std::io::{BufRead as _, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use lazaret::config::{Config, ConfigError, Purpose};
use lazaret::domain::access::{OwnerScope, Principal, Role};
use lazaret::domain::clock::Clock;
use lazaret::domain::dialect::Dialect;
use lazaret::domain::settings::{DialectChoice, Partitioner, Secret, Start, TokenSource, TopicMatch};
use lazaret::domain::terms::{SchemaKind, Tier};
use lazaret::services::access::Access;
use lazaret::store::Store;
use lazaret::store::audit::EventFilter;

use crate::on_both_stores;
use crate::support::producer::{NewRecord, TestProducer, Topics};
use crate::support::{Server, unique, variable};

/// The binary in a folder of its own, with no `LAZARET_*` variable but those given.
fn lazaret(folder: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    lazaret_with_input(folder, variables, arguments, "")
}

fn lazaret_with_input(folder: &Path, variables: &[(&str, &str)], arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lazaret"));
    command.args(arguments).current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("LAZARET_")) {
        command.env_remove(name);
    }
    let mut child = command.envs(variables.iter().copied()).spawn().expect("the binary starts");
    // A command that refuses at once may close its end first.
    let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
    child.wait_with_output().expect("the binary ends")
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const GOOD: &str = r#"
[clusters.main]
bootstrap_servers = "kafka:9092"
[[dlq]]
cluster = "main"
topics = ["payments.DLQ"]
"#;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::from_text(text, "test.toml", "".into(), Vec::new(), Purpose::Serve)
}

fn faults(text: &str) -> String {
    parse(text).expect_err("the configuration is refused").to_string()
}

/// Each wrong line, and what must be said: the key, the fault, the remedy.
const WRONG: &[(&str, &[&str])] = &[
    ("[server]\nlisen = 'x'", &["server.lisen: is not a known setting. Did you mean listen?"]),
    ("[serverr]\n", &["serverr: is not a known setting. Did you mean server?"]),
    ("[server]\nlisten = '8080'", &["server.listen: \"8080\" has no port. Give address and port"]),
    ("[server]\nlisten = '127.0.0.1:99999'", &["server.listen:", "0 to 65535"]),
    ("[server]\nlisten = 8080", &["server.listen: is an integer. Give a text in quotes."]),
    ("[server]\npublic_url = 'lazaret.example.com'", &["server.public_url: is not an absolute http or https URL", "https://"]),
    ("[server]\npublic_url = 'https://example.com/lazaret'", &["server.public_url: holds more than scheme, host and port"]),
    ("[server]\nread_only = 'yes'", &["server.read_only: is neither true nor false"]),
    ("[database]\nurl = 'mysql://u:hunter2@h/d'", &["database.url: is neither a SQLite nor a PostgreSQL URL", "postgres://"]),
    ("[database]\nurl_file = 'nowhere'", &["database.url_file: nowhere cannot be read", "Name a file"]),
    ("[database]\nurl = 'sqlite://a'\nurl_file = 'b'", &["database.url: is given beside url_file. Keep one"]),
    ("[instance]\nlease_s = 0", &["instance.lease_s: 0 is out of range. Give a whole number from 3 to 3600."]),
    ("[instance]\nlease_s = 1.5", &["instance.lease_s: is not a whole number"]),
    ("[auth]\nsession_hours = -1", &["auth.session_hours: -1 is out of range"]),
    ("[approval]\nquorum = 3", &["approval.large_quorum: 2 is smaller than quorum, 3"]),
    ("[retention]\nwarn_before_days = 14", &["retention.warn_before_days: 14 is not before archive_after_days, 14"]),
    ("[audit]\nkey_file = 'nowhere'", &["audit.key_file: nowhere cannot be read", "`openssl rand -hex 32 > FILE`"]),
    ("[database]\nurl = 'postgres://h/d'", &["audit.key_file: is missing: on PostgreSQL", "`openssl rand -hex 32 > FILE`"]),
    ("[clusters.two]\n", &["clusters.two.bootstrap_servers: is missing. Add it, for example"]),
    ("[clusters.two]\nbootstrap_servers = 'kafka:nine'", &["clusters.two.bootstrap_servers: holds something that is no broker address"]),
    (
        "[clusters.two]\nbootstrap_servers = 'k:1'\nproperties = { \"allow.auto.create.topics\" = true }",
        &["clusters.two.properties.\"allow.auto.create.topics\": is set by Lazaret itself", "Remove it"],
    ),
    (
        "[clusters.two]\nbootstrap_servers = 'k:1'\nproperties_file = { \"sasl.password\" = 'nowhere' }",
        &["clusters.two.properties_file.\"sasl.password\": nowhere cannot be read"],
    ),
    (
        "[clusters.two]\nbootstrap_servers = 'k:1'\nproperties = { security.protocol = 'SSL' }",
        &["clusters.two.properties.security: is no single value", "need quotes"],
    ),
    (
        "[clusters.two]\nbootstrap_servers = 'k:1'\nproperties = { \"sasl.mechanism\" = 'OAUTHBEARER' }",
        &["clusters.two.oauth_token_file: is missing. OAUTHBEARER needs"],
    ),
    (
        "[clusters.two]\nbootstrap_servers = 'k:1'\noauth_token_file = 't'",
        &["clusters.two.oauth_token_file: is given, but the SASL mechanism"],
    ),
    ("[clusters.two]\nbootstrap_servers = 'k:1'\nsample_interval_s = 0", &["clusters.two.sample_interval_s: 0 is out of range"]),
    ("[ledgers.w]\nexpired_claim = 'hold'", &["ledgers.w: says nowhere to look. Add [ledgers.w.hot]"]),
    ("[ledgers.w]\nexpired_claim = 'maybe'\n[ledgers.w.durable]\nkind = 'http'\nurl = 'http://h/'", &["Use hold or retry"]),
    ("[ledgers.w.hot]\nkind = 'sql'", &["ledgers.w.hot.kind: \"sql\" cannot be the hot tier. Use redis"]),
    ("[ledgers.w.hot]\nkind = 'redis'\nkey = 'a:{id}'", &["ledgers.w.hot.url: is missing. Add url = \"redis://"]),
    ("[ledgers.w.hot]\nkind = 'redis'\nurl = 'redis://h'\nkey = 'a'", &["ledgers.w.hot.key: does not hold {id}"]),
    (
        "[ledgers.w.hot]\nkind = 'redis'\nurl = 'redis://h'\nkey = '{id}'\nmargin_s = 86400",
        &["ledgers.w.hot.margin_s: 86400 is not smaller"],
    ),
    (
        "[ledgers.w.hot]\nkind = 'redis'\nurl = 'redis://h'\nkey = '{id}'\ndone = ['1']\nfailed = ['1']",
        &["ledgers.w.hot.failed: \"1\" stands under done too"],
    ),
    ("[ledgers.w.durable]\nkind = 'sql'\nurl = 'postgres://h/d'\nquery = 'SELECT 1'", &["ledgers.w.durable.query: does not use $1"]),
    (
        "[ledgers.w.durable]\nkind = 'sql'\nurl = 'redis://h/d'\nquery = '$1'",
        &["ledgers.w.durable.url: is not a URL that begins with postgres://"],
    ),
    ("[schemas.p]\nkind = 'avro'", &["schemas.p.kind: \"avro\" is not known. Use json_schema or registry."]),
    ("[schemas.p]\nkind = 'json_schema'", &["schemas.p.path: is missing"]),
    ("[schemas.p]\nkind = 'json_schema'\npath = 'nowhere.json'", &["schemas.p.path: nowhere.json cannot be read"]),
    ("[schemas.p]\nkind = 'registry'\nurl = 'registry:8081'\nsubject = 's'", &["schemas.p.url: is not an absolute http"]),
    ("[[class_rules]]\nclass = 'transient'", &["class_rules[0]: has no condition. Add at least one of exception"]),
    ("[[class_rules]]\nexception = '('\nclass = 'bug'", &["class_rules[0].exception: \"(\" is not a regular expression: unclosed group"]),
    (
        "[[class_rules]]\nexception = 'x'\nclass = 'boring'",
        &["class_rules[0].class: \"boring\" is not known. Use transient, deserialization"],
    ),
    ("[[class_rules]]\nmessage = 'x'", &["class_rules[0].class: is missing"]),
    ("[[class_rules]]\nheader = { name = 'h' }\nclass = 'bug'", &["class_rules[0].header.value: is missing"]),
    ("[[dlq]]\ncluster = 'mian'\ntopics = ['a']", &["dlq[1].cluster: there is no [clusters.mian]. Did you mean \"main\"?"]),
    ("[[dlq]]\ncluster = 'main'", &["dlq[1].topics: is missing. Add topics ="]),
    ("[[dlq]]\ncluster = 'main'\ntopics = ['a']\npattern = 'b'", &["dlq[1].pattern: is given beside topics"]),
    ("[[dlq]]\ncluster = 'main'\ntopics = ['a*']", &["dlq[1].topics: \"a*\" cannot be the name of a topic", "use pattern ="]),
    ("[[dlq]]\ncluster = 'main'\npattern = '['", &["dlq[1].pattern: \"[\" is not a regular expression: unclosed character class"]),
    (
        "[[dlq]]\ncluster = 'main'\ntopics = ['a']\nstart = 'soon'",
        &["dlq[1].start: \"soon\" is no starting point. Use earliest, latest, or an age"],
    ),
    (
        "[[dlq]]\ncluster = 'main'\ntopics = ['a']\ndialect = 'spring'",
        &["dlq[1].dialect: \"spring\" is not known. Use auto, custom, spring_dlt"],
    ),
    ("[[dlq]]\ncluster = 'main'\ntopics = ['a']\ndialect = 'spring_dtl'", &["Did you mean \"spring_dlt\"?"]),
    ("[[dlq]]\ncluster = 'main'\ntopics = ['a']\ndialect = 'custom'", &["dlq[1].custom: is missing"]),
    (
        "[[dlq]]\ncluster = 'main'\ntopics = ['a']\n[dlq.custom]\norigin_topic = { header = 't' }",
        &["dlq[1].custom: is given, but dialect is \"auto\""],
    ),
    (
        "[[dlq]]\ncluster = 'main'\ntopics = ['a']\ndialect = 'custom'\n[dlq.custom]\norigin_offset = { header = 't', encoding = 'i64' }",
        &["dlq[1].custom.origin_offset.encoding: \"i64\" is not known. Use text, i32be or i64be."],
    ),
    ("[[dlq]]\ncluster = 'main'\ntopics = ['a']\nbusiness_key = '{value:payment_id}'", &["dlq[1].business_key:", "is not a key template"]),
    (
        "[[dlq]]\ncluster = 'main'\ntopics = ['a']\nmask = ['/card', '/email']\nbusiness_key = '{key}-{value:/email}'",
        &["dlq[1].business_key: reads \"/email\", which mask hides"],
    ),
    (
        "[[dlq]]\ncluster = 'main'\ntopics = ['a']\nmask = ['/card', '/email']\ntenant = '{value:/card/bank}'",
        &["dlq[1].tenant: reads \"/card\", which mask hides"],
    ),
    ("[[dlq]]\ncluster = 'main'\ntopics = ['a']\nmask = ['card']", &["dlq[1].mask: \"card\" is not a JSON pointer. Begin with /"]),
    (
        "[[dlq]]\ncluster = 'main'\ntopics = ['a']\nmask = ['/email', '/card']\nbusiness_key = '{value:/card/number}'",
        &["dlq[1].business_key: reads \"/card\", which mask hides"],
    ),
    ("[[dlq]]\ncluster = 'main'\ntopics = ['a']\nmask = ['/email']\ntenant = '{value:/email}'", &["dlq[1].tenant: reads \"/email\""]),
    ("[[dlq]]\ncluster = 'main'\ntopics = ['a']\npartitioner = 'murmur2'", &["Use murmur2_random or consistent_random"]),
    ("[[dlq]]\ncluster = 'main'\ntopics = ['a']\nmax_laps = 0", &["dlq[1].max_laps: 0 is out of range"]),
    ("[[dlq]]\ncluster = 'main'\ntopics = ['a']\nmax_per_second = 0", &["dlq[1].max_per_second: 0 is out of range"]),
    ("[[dlq]]\ncluster = 'main'\ntopics = ['a']\nstop_on_returned_pct = 101", &["dlq[1].stop_on_returned_pct: 101 is out of range"]),
    ("[[dlq]]\ncluster = 'main'\ntopics = ['a']\ntarget_groups = { b = 'g' }", &["dlq[1].target_groups: \"b\" is not among targets"]),
    (
        "[[dlq]]\ncluster = 'main'\ntopics = ['a']\n[dlq.schema]\nuse = 'p'",
        &["dlq[1].schema.use: there is no [schemas.p]. Add [schemas.p]."],
    ),
    (
        "[[dlq]]\ncluster = 'main'\ntopics = ['a']\n[dlq.idempotency]\nledger = 'w'\nkey = '{key}'",
        &["dlq[1].idempotency.ledger: there is no [ledgers.w]"],
    ),
    ("[[dlq]]\ncluster = 'main'\ntopics = ['a']\n[[dlq.also_read_by]]\n", &["dlq[1].also_read_by[0].group: is missing"]),
    (
        "[schemas.p]\nkind = 'registry'\nurl = 'http://r'\nsubject = 's'\n[[dlq]]\ncluster = 'main'\ntopics = ['a']\n[dlq.schema]\nuse = 'p'\n\
         [[dlq.schema.fence]]\nbefore = 'November'\nreason = 'r'",
        &["dlq[1].schema.fence[0].before: \"November\" is not a point in time"],
    ),
];

#[test]
fn each_wrong_setting_is_named_with_fault_and_remedy() {
    parse(GOOD).expect("the base of the table is right");
    for (wrong, expected) in WRONG {
        let said = faults(&format!("{GOOD}\n{wrong}"));
        for part in *expected {
            assert!(said.contains(part), "{wrong}\n  should say: {part}\n  said: {said}");
        }
        assert!(said.starts_with("test.toml: 1 setting is wrong\n"), "one fault, one line: {wrong}\n{said}");
    }
}

#[test]
fn all_faults_are_told_at_once() {
    let said = faults("[server]\nlisten = 'x'\n[instance]\nlease_s = 0\n[[dlq]]\ncluster = 'main'\ntopics = []\nstrat = '7d'");
    for part in [
        "test.toml: 6 settings are wrong",
        "server.listen",
        "instance.lease_s",
        "dlq[0].cluster",
        "dlq[0].topics",
        "dlq[0].strat",
        "Did you mean start?",
        "clusters: is missing",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn a_file_that_is_not_toml_is_named_by_line_without_repeating_it() {
    let said = faults("[database]\nurl = \"postgres://u:hunter2@h/d\n");
    assert!(said.starts_with("test.toml: line 2, column"), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
}

#[test]
fn the_binary_refuses_a_bad_file_with_code_2_before_doing_anything() {
    let folder = folder();
    std::fs::write(folder.path().join("bad.toml"), format!("{GOOD}\n[database]\nurl = 'mysql://u:hunter2@h/d'\nlisten = 1")).unwrap();
    for command in [["migrate", "--config", "bad.toml"], ["serve", "--config", "bad.toml"], ["check", "--config", "bad.toml"]] {
        let output = lazaret(folder.path(), &[], &command);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{command:?}: {said}");
        assert!(
            said.contains("bad.toml: 2 settings are wrong") && said.contains("database.url:") && said.contains("database.listen:"),
            "{said}"
        );
        assert!(!said.contains("hunter2"), "{said}");
    }
    let output = lazaret(folder.path(), &[], &["migrate", "--config", "nowhere.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("nowhere.toml: cannot be read"), "{}", stderr(&output));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no database was made");
}

#[test]
fn variables_override_single_values_and_unknown_ones_are_refused() {
    let variables =
        |pairs: &[(&str, &str)]| pairs.iter().map(|(name, value)| (String::from(*name), String::from(*value))).collect::<Vec<_>>();
    let read = |pairs: &[(&str, &str)]| {
        let file = format!("{GOOD}\n[database]\nurl_file = '/nowhere'\n[clusters.EU-west]\nbootstrap_servers = 'a:1'");
        Config::from_text(&file, "test.toml", "".into(), variables(pairs), Purpose::Check)
    };
    let config = read(&[
        ("LAZARET_SERVER__LISTEN", "0.0.0.0:80"),
        ("LAZARET_SERVER__READ_ONLY", "true"),
        ("LAZARET_INSTANCE__LEASE_S", "30"),
        ("LAZARET_DATABASE__URL", "postgres://h/d"),
        ("LAZARET_CLUSTERS__MAIN__BOOTSTRAP_SERVERS", "other:9092"),
        ("LAZARET_CLUSTERS__EU_WEST__SAMPLE_INTERVAL_S", "60"),
        ("LAZARET_TEST_KAFKA", "ignored"),
        ("LAZARET_LOG", "debug"),
    ])
    .expect("all are known, and the variable takes the place of url_file");
    assert_eq!((config.server.listen.as_str(), config.server.read_only, config.instance.lease_s), ("0.0.0.0:80", true, 30));
    let cluster = |name: &str| config.clusters.iter().find(|cluster| cluster.name == name).expect("the cluster");
    assert_eq!(cluster("main").bootstrap_servers, "other:9092");
    assert_eq!(cluster("EU-west").sample_interval_s, 60);

    let refused = [
        ("LAZARET_SERVER__LISEN", "x", "LAZARET_SERVER__LISEN (server.lisen): is not a known setting. Did you mean listen?"),
        ("LAZARET_SERVER__LISTEN", "x", "LAZARET_SERVER__LISTEN (server.listen): \"x\" has no port"),
        ("LAZARET_SERVER__READ_ONLY", "1", "LAZARET_SERVER__READ_ONLY (server.read_only): is neither true nor false"),
        ("LAZARET_INSTANCE__LEASE_S", "x", "LAZARET_INSTANCE__LEASE_S (instance.lease_s): is not a whole number"),
        ("LAZARET_LISTEN", "x", "LAZARET_LISTEN: is not a known setting. Use LAZARET_SECTION__KEY"),
        ("LAZARET_DLQ__0__START", "7d", "LAZARET_DLQ__0__START: is not a known setting"),
        ("LAZARET_LEDGERS__W__HOT__URL", "redis://h", "from the file only"),
    ];
    for (name, value, expected) in refused {
        let said = read(&[("LAZARET_DATABASE__URL", "postgres://h/d"), (name, value)]).expect_err(name).to_string();
        assert!(said.contains(expected), "{name}: {said}");
    }
    let folder = folder();
    let output = lazaret(folder.path(), &[("LAZARET_DATABSE__URL", "postgres://u:hunter2@h/d")], &["migrate"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("LAZARET_DATABSE__URL: is not a known setting") && !stderr(&output).contains("hunter2"));
}

#[test]
fn secrets_come_from_files_and_never_show() {
    let folder = folder();
    std::fs::write(folder.path().join("url"), "postgres://u:hunter2@h/d\n").unwrap();
    std::fs::write(folder.path().join("password"), "swordfish\r\n").unwrap();
    let text = "[database]\nurl_file = 'url'\n[clusters.main]\nbootstrap_servers = 'k:9092'\nproperties = { \"sasl.username\" = 'u' }\n\
                properties_file = { \"sasl.password\" = 'password' }";
    let config = Config::from_text(text, "test.toml", folder.path().to_owned(), Vec::new(), Purpose::Check).expect("is right");
    assert_eq!(config.database.url.expose(), "postgres://u:hunter2@h/d");
    assert_eq!(config.clusters[0].properties["sasl.password"].expose(), "swordfish");
    let shown = format!("{config:?} {}", config.database.shown());
    assert!(!shown.contains("hunter2") && !shown.contains("swordfish"), "{shown}");
}

#[test]
fn the_example_file_holds_every_setting_as_documented() {
    let folder = folder();
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/lazaret.example.toml")).expect("the example");
    // Secrets and schemas that the example names lie in this test's folder.
    let text = text.replace("\"/run/secrets/", "\"").replace("key_file = \"\"", "key_file = \"audit.key\"");
    let key = "ab".repeat(32);
    for (name, content) in
        [("audit.key", key.as_str()), ("kafka", "swordfish"), ("wallet-redis", "redis://h/0"), ("wallet-db", "postgres://h/d")]
    {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    std::fs::create_dir(folder.path().join("schemas")).unwrap();
    std::fs::create_dir(folder.path().join("transforms")).unwrap();
    std::fs::write(folder.path().join("schemas/payment.json"), "{}").unwrap();
    std::fs::write(folder.path().join("transforms/payment-v1-to-v2.jq"), ".").unwrap();
    // What the example shows as comments holds too.
    let mut text = text.replace("dialect = \"auto\"  ", "dialect = \"custom\"");
    for commented in ["[dlq.custom]", "origin_topic", "origin_partition", "exception_class"] {
        text = text.replace(&format!("\n# {commented}"), &format!("\n{commented}"));
    }
    let config = Config::from_text(&text, "example", folder.path().to_owned(), Vec::new(), Purpose::Serve).expect("the example is right");

    let main = &config.clusters[0];
    assert_eq!((main.name.as_str(), main.discovery_interval_s, main.sample_interval_s), ("main", 30, 15));
    assert_eq!(main.properties["sasl.username"].expose(), "lazaret");
    let wallet = &config.ledgers["wallet"];
    assert_eq!(wallet.hot.as_ref().map(|hot| (hot.key.as_str(), hot.ttl_s, hot.done.len())), Some(("wallet:processed:{id}", 86_400, 2)));
    assert!(matches!(wallet.durable, Some(Tier::Sql { .. })) && matches!(config.ledgers["fraud"].durable, Some(Tier::Http { .. })));
    assert!(matches!(config.schemas["order"].kind, SchemaKind::Registry { ref message, .. } if message.is_none()));
    let dlq = &config.dlqs[0];
    assert!(matches!(&dlq.settings.topics, TopicMatch::Names(names) if names == &["payments.wallet.DLQ"]));
    assert_eq!((dlq.settings.start, dlq.settings.partitioner, dlq.settings.max_laps), (Start::Earliest, Partitioner::Murmur2Random, 3));
    let DialectChoice::Custom(custom) = &dlq.settings.dialect else { panic!("custom, not {:?}", dlq.settings.dialect) };
    assert!(custom.origin_topic.is_some() && custom.origin_partition.is_some() && custom.exception_class.is_some());
    let terms = &dlq.replay;
    assert_eq!((terms.max_per_second, terms.pause_at_lag, terms.canary, terms.waiver_max_items), (50, 10_000, 10, 500));
    assert_eq!(
        terms.schema.as_ref().map(|schema| (schema.schema.as_str(), schema.fences[0].before_ms)),
        Some(("payment", 1_794_787_200_000))
    );
    assert_eq!(terms.also_read_by[0].ledger.as_deref(), Some("fraud"));

    // What the file calls a default is the default.
    let defaults = parse(GOOD).expect("is right");
    assert_eq!(
        format!("{:?}", (&defaults.approval, &defaults.retention, &defaults.auth)),
        format!("{:?}", (&config.approval, &config.retention, &config.auth))
    );
    assert_eq!(defaults.server.listen, config.server.listen);
    assert_eq!(defaults.instance.lease_s, config.instance.lease_s);
}

#[test]
fn single_settings_become_the_domains_own_types() {
    let config = parse(
        "[clusters.main]\nbootstrap_servers = 'k:9092'\nproperties = { \"sasl.mechanism\" = 'OAUTHBEARER' }\ngroup_id = 'mine'\n\
         oauth_token_command = ['print-token', '--now']\n[[dlq]]\ncluster = 'main'\npattern = '\\.DLT$'\ndialect = 'kafka_connect'\nstart = '7d'\n\
         [[dlq]]\ncluster = 'main'\ntopics = ['b']\npartitioner = 'consistent_random'\nstart = 'latest'\nowner = ''",
    )
    .expect("is right");
    assert_eq!(config.clusters[0].oauth_token, Some(TokenSource::Command(vec!["print-token".into(), "--now".into()])));
    assert_eq!(config.clusters[0].group_id, "mine");
    let [first, second] = config.dlqs.as_slice() else { panic!("two entries") };
    assert_eq!(first.settings.start, Start::Age { ms: 604_800_000 });
    assert_eq!(first.settings.dialect, DialectChoice::Named(Dialect::KafkaConnect));
    assert!(first.settings.topics.covers("orders.DLT") && !first.settings.topics.covers("orders.DLT.x"));
    assert_eq!(
        (second.settings.partitioner, second.settings.start, second.settings.owner.clone()),
        (Partitioner::ConsistentRandom, Start::Latest, None)
    );
}

#[test]
fn partition_explain_agrees_with_the_fixtures() {
    let folder = folder();
    for line in include_str!("../fixtures/partitions.jsonl").lines() {
        let case: serde_json::Value = serde_json::from_str(line).expect("a fixture");
        let Some(partitions) = case["partitions"].as_i64() else { continue };
        let key = case["key"].as_str().expect("a key");
        let output = lazaret(folder.path(), &[], &["partition", "explain", "--key", key, "--partitions", &partitions.to_string()]);
        let crc32 = case["crc32"].as_i64().map_or_else(|| "any".to_owned(), |number| number.to_string());
        let expected = format!("key {key:?}, {partitions} partitions: murmur2 {}, crc32 {crc32}\n", case["murmur2"]);
        assert!(stdout(&output).starts_with(&expected), "expected {expected}got {}", stdout(&output));
    }
    let output = lazaret(folder.path(), &[], &["partition", "explain", "--key", "user-1042", "--partitions", "6"]);
    insta::assert_snapshot!(stdout(&output), @r#"
    key "user-1042", 6 partitions: murmur2 4, crc32 3
      murmur2: Java producers (murmur2_random). crc32: librdkafka producers by default (consistent_random).
    at 8 partitions: murmur2 0, crc32 1 (murmur2 moves 4 -> 0, crc32 moves 3 -> 1); 75 % of all keys change partition

    with -0 to -11 appended to the key, to spread it over 6 partitions:
      user-1042-0              murmur2 2, crc32 3
      user-1042-1              murmur2 4, crc32 1
      user-1042-2              murmur2 2, crc32 1
      user-1042-3              murmur2 0, crc32 5
      user-1042-4              murmur2 2, crc32 4
      user-1042-5              murmur2 2, crc32 4
      user-1042-6              murmur2 0, crc32 2
      user-1042-7              murmur2 4, crc32 4
      user-1042-8              murmur2 2, crc32 1
      user-1042-9              murmur2 5, crc32 1
      user-1042-10             murmur2 4, crc32 1
      user-1042-11             murmur2 1, crc32 3
      reach 5 of 6 partitions by murmur2, 5 of 6 by crc32
    "#);
    let output = lazaret(folder.path(), &[], &["partition", "explain", "--key", "user-1042", "--partitions", "12"]);
    assert!(stdout(&output).contains("\nat 24 partitions: "), "growth, not shrinking: {}", stdout(&output));
    let fewer = ["partition", "explain", "--key", "user-1042", "--partitions", "12", "--new-partitions", "8"];
    let fewer = lazaret(folder.path(), &[], &fewer);
    assert_eq!(fewer.status.code(), Some(2));
    assert!(stderr(&fewer).contains("--new-partitions: 8 is fewer than the 12 there are"), "{}", stderr(&fewer));
    for wrong in [["--partitions", "0"], ["--partitions", "six"]] {
        let output = lazaret(folder.path(), &[], &["partition", "explain", "--key", "k", wrong[0], wrong[1]]);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    }
}

#[tokio::test]
async fn users_and_tokens_on_a_new_sqlite_file() {
    let folder = folder();
    let run = |arguments: &[&str], input: &str| lazaret_with_input(folder.path(), &[], arguments, input);
    for command in [["user", "list"], ["token", "list"]] {
        let elsewhere = run(&command, "");
        assert_eq!(elsewhere.status.code(), Some(2));
        assert!(stderr(&elsewhere).contains("no database at lazaret-data/lazaret.db: run this where serve runs"), "{}", stderr(&elsewhere));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was made");
    }
    assert!(run(&["migrate"], "").status.success());
    let added = run(&["user", "add", "ana", "--role", "operator", "--owners", "payments,risk"], "correct horse battery\n");
    assert_eq!(
        (added.status.code(), stdout(&added).as_str()),
        (Some(0), "user ana added: operator for payments, risk\n"),
        "{}",
        stderr(&added)
    );

    let again = run(&["user", "add", "ANA"], "correct horse battery\n");
    assert_eq!(again.status.code(), Some(1));
    assert!(stderr(&again).contains("there is a user \"ana\" already"), "{}", stderr(&again));
    let short = run(&["user", "add", "ben"], "short\n");
    assert_eq!(short.status.code(), Some(1));
    assert!(stderr(&short).contains("12 characters or more"), "{}", stderr(&short));
    let none = run(&["user", "add", "ben"], "");
    assert_eq!(none.status.code(), Some(2));
    let role = run(&["user", "add", "ben", "--role", "root"], "correct horse battery\n");
    assert_eq!(role.status.code(), Some(2));
    assert!(stderr(&role).contains("viewer, operator, approver or admin"), "{}", stderr(&role));

    std::fs::write(folder.path().join("password"), "another long password\n").unwrap();
    assert!(run(&["user", "passwd", "ana", "--password-file", "password"], "").status.success());
    let nobody = run(&["user", "passwd", "nobody", "--password-file", "password"], "");
    assert!(stderr(&nobody).contains("there is no user \"nobody\": `lazaret user list` shows them"), "{}", stderr(&nobody));
    assert!(run(&["user", "disable", "ana"], "").status.success());
    let list = stdout(&run(&["user", "list"], ""));
    assert!(list.contains("ana   operator  payments,risk  disabled"), "{list}");
    let enabled = run(&["user", "enable", "ana"], "");
    assert_eq!(stdout(&enabled), "user ana enabled; its password is the one from before\n", "{}", stderr(&enabled));
    assert!(stdout(&run(&["user", "list"], "")).contains("ana   operator  payments,risk  active"));
    assert!(stderr(&run(&["user", "enable", "nobody"], "")).contains("there is no user \"nobody\""));
    assert!(run(&["user", "add", "root", "--role", "admin"], "correct horse battery\n").status.success());
    let last = run(&["user", "disable", "root"], "");
    assert_eq!(last.status.code(), Some(1));
    assert!(stderr(&last).contains("root is the only active admin: make another first"), "{}", stderr(&last));

    let made = run(&["token", "create", "grafana", "--expires", "90d"], "");
    let secret = stdout(&made);
    assert!(secret.starts_with("lzr_") && secret.trim().len() == 47, "the secret alone, for scripts: {secret}");
    assert!(stderr(&made).contains("viewer for all owners, expires"), "{}", stderr(&made));
    let list = stdout(&run(&["token", "list"], ""));
    assert!(list.contains("grafana  viewer  *       until"), "{list}");
    assert!(!list.contains(secret.trim()));
    assert!(run(&["token", "revoke", "grafana"], "").status.success());
    assert!(stdout(&run(&["token", "list"], "")).contains("revoked"));
    assert_eq!(run(&["token", "revoke", "grafana"], "").status.code(), Some(1));
    let expires = run(&["token", "create", "x", "--expires", "soon"], "");
    assert_eq!(expires.status.code(), Some(2));
    assert!(stderr(&expires).contains("for example 90d"), "{}", stderr(&expires));

    // Each change, and nothing that was refused, is in the trail.
    let store = Store::connect(&format!("sqlite://{}", folder.path().join("lazaret-data/lazaret.db").display())).await.unwrap();
    let told: Vec<String> = trail(&store).await.into_iter().map(|(who, what, subject)| format!("{who}: {what} {subject}")).collect();
    assert_eq!(
        told,
        [
            "command line: user_added user ana",
            "command line: password_changed user ana",
            "command line: user_disabled user ana",
            "command line: user_enabled user ana",
            "command line: user_added user root",
            "command line: token_created token grafana",
            "command line: token_revoked token grafana",
        ]
    );
    let events = store.events(&EventFilter::default(), None, 100).await.unwrap();
    assert!(events.iter().all(|event| !event.event.contains(secret.trim()) && !event.event.contains("horse")), "no secret in the trail");
}

#[test]
fn migrate_says_what_it_did_and_does_it_once() {
    let folder = folder();
    let first = lazaret(folder.path(), &[], &["migrate"]);
    assert!(first.status.success(), "{}", stderr(&first));
    assert!(
        stdout(&first).starts_with("SQLite file lazaret-data/lazaret.db (SQLite 3.") && stdout(&first).contains("applied"),
        "{}",
        stdout(&first)
    );
    assert!(stdout(&lazaret(folder.path(), &[], &["migrate"])).contains("up to date, nothing to do"));
    let unreachable = lazaret(folder.path(), &[("LAZARET_DATABASE__URL", "postgres://u:hunter2@127.0.0.1:1/d")], &["migrate"]);
    assert_eq!(unreachable.status.code(), Some(1));
    let said = stderr(&unreachable);
    assert!(said.contains("lazaret: PostgreSQL 127.0.0.1:1/d: ") && said.contains("`lazaret check` says what is missing"), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
}

#[test]
fn without_a_file_the_flags_are_held_to_the_same_rules() {
    let folder = folder();
    let table: [(&[&str], &str); 8] = [
        (&["serve"], "no configuration: name one, `lazaret serve --config lazaret.toml`, or a cluster"),
        (&["serve", "--bootstrap", "kafka:9092"], "--dlq is missing"),
        (&["serve", "--bootstrap", "kafka:9092", "--dlq", "("], "--dlq (dlq[0].pattern): \"(\" is not a regular expression"),
        (&["serve", "--bootstrap", "kafka:9092", "--dlq", "x", "--start", "soon"], "--start (dlq[0].start): \"soon\" is no starting point"),
        (
            &["serve", "--bootstrap", "kafka:port", "--dlq", "x"],
            "--bootstrap (clusters.main.bootstrap_servers): holds something that is no broker",
        ),
        (&["serve", "--bootstrap", "k:1", "--dlq", "x", "--property-file", "sasl.password=nowhere"], "--property-file (clusters.main"),
        (&["serve", "--bootstrap", "k:1", "--dlq", "x", "--listen", "8080"], "has no port. Give address and port"),
        (&["serve", "--dlq", "x"], "--bootstrap"),
    ];
    for (arguments, expected) in table {
        let output = lazaret(folder.path(), &[], arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(expected), "{arguments:?}\n  should say: {expected}\n  said: {}", stderr(&output));
    }
    let wrong_place = lazaret(folder.path(), &[], &["serve", "--bootstrap", "k:1", "--dlq", "x", "--property", "hunter2"]);
    assert_eq!(wrong_place.status.code(), Some(2));
    assert!(stderr(&wrong_place).contains("--property") && !stderr(&wrong_place).contains("hunter2"), "{}", stderr(&wrong_place));
}

/// `lazaret serve` in a folder of its own; ended when dropped.
struct Serving {
    child: std::process::Child,
    lines: std::io::Lines<std::io::BufReader<std::process::ChildStdout>>,
}

impl Serving {
    fn start(folder: &Path, arguments: &[&str]) -> Serving {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lazaret"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("LAZARET_")) {
            command.env_remove(name);
        }
        // What it logs is nobody's business here; a pipe that nobody reads would fill up.
        command.args(arguments).current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the binary starts");
        let lines = std::io::BufReader::new(child.stdout.take().expect("piped")).lines();
        Serving { child, lines }
    }

    fn line(&mut self) -> String {
        self.lines.next().expect("another line").expect("text")
    }

    /// Sends SIGTERM and waits for the end.
    fn terminate(mut self) -> std::process::ExitStatus {
        let told = Command::new("kill").arg(self.child.id().to_string()).status().expect("kill runs");
        assert!(told.success());
        self.child.wait().expect("it ends")
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn serve_is_up_without_a_broker_lets_the_first_admin_in_and_ends_on_sigterm() {
    lazaret::app::use_ring();
    let folder = folder();
    let mut serving =
        Serving::start(folder.path(), &["serve", "--listen", "127.0.0.1:0", "--bootstrap", "127.0.0.1:1", "--dlq", "\\.DLQ$"]);
    let first = serving.line();
    let url = first.strip_prefix("Lazaret at ").and_then(|rest| rest.strip_suffix("/ (read-only)"));
    let url = url.unwrap_or_else(|| panic!("{first}")).to_owned();
    assert!(serving.line().contains("There is no user yet"));
    let link = serving.line().trim().to_owned();
    assert!(link.starts_with(&format!("{url}/setup?token=")), "{link}");

    let client = reqwest::Client::builder().cookie_store(true).redirect(reqwest::redirect::Policy::none()).build().expect("a client");
    let status = async |url: &str| client.get(url).send().await.expect("an answer").status().as_u16();
    assert_eq!(status(&format!("{url}/healthz")).await, 200);
    assert_eq!(status(&format!("{url}/readyz")).await, 200);
    assert_eq!(status(&link).await, 200);
    assert_eq!(status(&format!("{url}/setup?token=guessed")).await, 403);
    let token = link.split_once("token=").expect("a token").1;
    let form = format!("token={token}&name=ana&password=correct+horse+battery&again=correct+horse+battery");
    let post = async || {
        let request = client.post(format!("{url}/setup")).header("content-type", "application/x-www-form-urlencoded");
        request.header("origin", &url).body(form.clone()).send().await.expect("an answer").status().as_u16()
    };
    assert_eq!(post().await, 303, "the admin is made and signed in");
    assert_eq!(status(&format!("{url}/")).await, 200, "the overview is there although no broker is");
    assert_eq!(post().await, 403, "the link works once");

    let second = lazaret(folder.path(), &[], &["serve", "--listen", "127.0.0.1:0", "--bootstrap", "127.0.0.1:1", "--dlq", "x"]);
    assert_eq!(second.status.code(), Some(1), "one SQLite file, one process");
    assert!(stderr(&second).contains("another `lazaret serve` is using"), "{}", stderr(&second));
    let address = url.strip_prefix("http://").expect("http");
    let elsewhere = self::folder();
    let taken = lazaret(elsewhere.path(), &[], &["serve", "--listen", address, "--bootstrap", "127.0.0.1:1", "--dlq", "x"]);
    assert_eq!(taken.status.code(), Some(1));
    assert!(stderr(&taken).contains("server.listen = ") && stderr(&taken).contains("with --listen"), "{}", stderr(&taken));
    let healthy = || lazaret(folder.path(), &[("LAZARET_SERVER__LISTEN", address)], &["healthcheck"]).status.code();
    assert_eq!(healthy(), Some(0));
    assert_eq!(lazaret(folder.path(), &[], &["healthcheck", "--listen", address]).status.code(), Some(0));
    let elsewhere_asked = lazaret(folder.path(), &[], &["healthcheck", "--listen", "127.0.0.1:1"]);
    assert_eq!(elsewhere_asked.status.code(), Some(1));
    assert!(stderr(&elsewhere_asked).contains("where serve was started with another --listen"), "{}", stderr(&elsewhere_asked));

    let key = folder.path().join("lazaret-data/lazaret.db.audit-key");
    let made = std::fs::read_to_string(&key).expect("the first start makes the key of the trail");
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&key).unwrap().permissions()) & 0o777, 0o600);

    let clock = Clock::system();
    assert!(serving.terminate().success(), "an orderly end");
    assert!(clock.monotonic().as_secs() < 10, "within seconds");
    assert_eq!(healthy(), Some(1));
    let users = lazaret(folder.path(), &[], &["user", "list"]);
    assert!(stdout(&users).contains("ana   admin"), "{}", stdout(&users));

    // The key stays what it was; without it, or with another, nothing starts.
    let again = ["serve", "--listen", "127.0.0.1:0", "--bootstrap", "127.0.0.1:1", "--dlq", "x"];
    let mut serving = Serving::start(folder.path(), &again);
    assert!(serving.line().starts_with("Lazaret at "));
    assert!(serving.terminate().success());
    assert_eq!(std::fs::read_to_string(&key).unwrap(), made);
    for (content, said) in [
        (None, "lazaret.db.audit-key is gone, and the trail in the database was made with it"),
        (Some("short"), "lazaret.db.audit-key is too short for a key"),
        (Some("a text that is long enough for a key"), "was not made with this key"),
    ] {
        match content {
            None => std::fs::remove_file(&key).unwrap(),
            Some(content) => std::fs::write(&key, content).unwrap(),
        }
        for command in [&again[..], &["token", "create", "ci"]] {
            let refused = lazaret(folder.path(), &[], command);
            assert_eq!(refused.status.code(), Some(2), "{command:?}: {}", stderr(&refused));
            assert!(stderr(&refused).contains(said), "{command:?} should say: {said}\n{}", stderr(&refused));
        }
        let checked = stdout(&lazaret(folder.path(), &[], &["check", "--bootstrap", "127.0.0.1:1", "--dlq", "x"]));
        let line = checked.lines().find(|line| line.starts_with("✗ audit key: ")).unwrap_or_else(|| panic!("{checked}"));
        assert!(line.contains(said), "check should say: {said}\n{line}");
    }
    assert!(stdout(&lazaret(folder.path(), &[], &["user", "list"])).contains("ana   admin"), "looking needs no key");
}

/// What the trail of a database says: actor, action, subject.
async fn trail(store: &Store) -> Vec<(String, String, String)> {
    let events = store.events(&EventFilter::default(), None, 100).await.expect("the trail");
    events.into_iter().rev().map(|event| (event.actor, event.action, event.subject)).collect()
}

#[tokio::test]
#[ignore = "needs a real PostgreSQL: run tests/run"]
async fn on_postgresql_the_trail_needs_a_configured_key() {
    let folder = folder();
    std::fs::write(folder.path().join("url"), crate::support::postgres_url().await).unwrap();
    let configure = |audit: &str| {
        let text = format!("{GOOD}\n[database]\nurl_file = 'url'\n{audit}").replace("kafka:9092", "127.0.0.1:1");
        std::fs::write(folder.path().join("lazaret.toml"), text).unwrap();
    };
    configure("");
    assert!(lazaret(folder.path(), &[], &["migrate"]).status.success(), "needs no key");
    for command in [&["serve"][..], &["user", "add", "ana"], &["user", "disable", "ana"], &["token", "create", "ci"]] {
        let refused = lazaret_with_input(folder.path(), &[], command, "correct horse battery\n");
        assert_eq!(refused.status.code(), Some(2), "{command:?}");
        assert!(
            stderr(&refused).contains("audit.key_file: is missing") && stderr(&refused).contains("openssl rand -hex 32"),
            "{command:?}"
        );
    }
    let checked = lazaret(folder.path(), &[], &["check"]);
    assert!(stdout(&checked).contains("✗ audit key: audit.key_file is missing"), "{}", stdout(&checked));
    assert!(lazaret(folder.path(), &[], &["user", "list"]).status.success(), "looking needs no key");

    std::fs::write(folder.path().join("audit.key"), "ab".repeat(32)).unwrap();
    configure("[audit]\nkey_file = 'audit.key'\n");
    let added = lazaret_with_input(folder.path(), &[], &["user", "add", "ana", "--owners", "risk"], "correct horse battery\n");
    assert!(added.status.success(), "{}", stderr(&added));
    assert!(stdout(&lazaret(folder.path(), &[], &["check"])).contains("✓ audit key: read from audit.key_file"));
    let store = Store::connect(&std::fs::read_to_string(folder.path().join("url")).unwrap()).await.unwrap();
    assert_eq!(trail(&store).await, [("command line".into(), "user_added".into(), "user ana".into())]);
}

on_both_stores! {
    async fn passwords_sessions_and_tokens_open_what_they_should(store: Store) {
        let clock = Clock::fake(1_800_000_000_000);
        let access = Access::new(store, clock.clone(), 12);
        access.add_user("ana", "correct horse battery", Role::Operator, OwnerScope::from_text("payments")).await.expect("is new");
        for (alike, said) in [("ANA", "there is a user \"ana\" already"), ("\u{ff41}na", "looks like the user \"ana\"")] {
            let refused = access.add_user(alike, "correct horse battery", Role::Approver, OwnerScope::All).await.expect_err(alike);
            assert!(refused.to_string().contains(said), "{refused}");
        }
        for reserved in ["command line", "Not signed in"] {
            assert!(access.add_user(reserved, "correct horse battery", Role::Viewer, OwnerScope::All).await.is_err(), "{reserved}");
        }
        assert_eq!(access.sign_in("ana", "wrong horse battery", None).await.expect("answers"), None);
        assert_eq!(access.sign_in("nobody", "correct horse battery", None).await.expect("answers"), None);
        assert_eq!(access.sign_in("ana", &"x".repeat(1 << 20), None).await.expect("answers"), None);
        let cookie = access.sign_in(" Ana ", "correct horse battery", None).await.expect("answers").expect("is right");
        let ana = Principal { name: "ana".into(), role: Role::Operator, owners: OwnerScope::Listed(vec!["payments".into()]) };
        assert_eq!(access.session(&cookie).await.expect("answers"), Some(ana.clone()));
        assert_eq!(access.session("guessed").await.expect("answers"), None);

        clock.step(Duration::from_secs(12 * 3_600));
        assert_eq!(access.session(&cookie).await.expect("answers"), None, "ended by time");
        let cookie = access.sign_in("ana", "correct horse battery", None).await.expect("answers").expect("is right");
        access.sign_out(&cookie, None).await.expect("answers");
        assert_eq!(access.session(&cookie).await.expect("answers"), None, "ended by hand");
        let cookie = access.sign_in("ana", "correct horse battery", None).await.expect("answers").expect("is right");
        access.set_password("ANA", "another long password").await.expect("ana is there");
        assert_eq!(access.session(&cookie).await.expect("answers"), None, "ended by the new password");
        assert_eq!(access.sign_in("ana", "correct horse battery", None).await.expect("answers"), None);
        access.disable_user("ana").await.expect("ana is there");
        assert_eq!(access.sign_in("ana", "another long password", None).await.expect("answers"), None, "disabled");
        access.enable_user("ana").await.expect("ana is there");
        assert!(access.sign_in("ana", "another long password", None).await.expect("answers").is_some(), "enabled");

        let secret = access.create_token("ci", Role::Viewer, OwnerScope::All, Some(clock.now_ms() + 1_000), None).await.expect("is new");
        assert_eq!(access.token(&secret).await.expect("answers").map(|who| who.name), Some("token ci".to_owned()));
        assert!(access.create_token("ci", Role::Viewer, OwnerScope::All, None, None).await.is_err(), "one name, one live token");
        assert_eq!(access.token("lzr_guessed").await.expect("answers"), None);
        clock.step(Duration::from_secs(1));
        assert_eq!(access.token(&secret).await.expect("answers"), None, "expired");
        let secret = access.create_token("chosen", Role::Admin, OwnerScope::All, None, Some("T-admin")).await.expect("is new");
        assert_eq!(access.token(&secret).await.expect("answers").map(|who| who.role), Some(Role::Admin));
        access.revoke_token("chosen").await.expect("is live");
        assert_eq!(access.token(&secret).await.expect("answers"), None, "revoked");

        let told: Vec<String> = trail(&access.store).await.into_iter().map(|(who, what, subject)| format!("{who}: {what} {subject}")).collect();
        let count = |line: &str| told.iter().filter(|told| *told == line).count();
        assert_eq!((count("ana: signed_in user ana"), count("ana: signed_out user ana")), (4, 1), "{told:?}");
        assert_eq!(count("not signed in: sign_in_failed user ana"), 4, "{told:?}");
        assert_eq!(count("not signed in: sign_in_failed user nobody"), 1, "{told:?}");
    }

    async fn the_setup_link_makes_one_admin(store: Store) {
        let access = Access::new(store, Clock::system(), 12);
        let old = access.setup_token().await.expect("answers").expect("there is no user");
        let token = access.setup_token().await.expect("answers").expect("there is no user");
        let holds = async |token: &str| access.setup_token_holds(token).await.expect("answers");
        assert!(!holds(&old).await && holds(&token).await);
        assert_eq!(access.set_up(&old, "ana", "correct horse battery", None).await.expect("answers"), None);
        assert!(access.set_up(&token, "ana", "short", None).await.is_err(), "refused, and the link still holds");
        let (first, second) =
            tokio::join!(access.set_up(&token, "ana", "correct horse battery", None), access.set_up(&token, "ben", "correct horse battery", None));
        let cookies: Vec<String> = [first, second].into_iter().filter_map(|made| made.expect("answers")).collect();
        let [cookie] = cookies.as_slice() else { panic!("one admin, not {}", cookies.len()) };
        assert_eq!(access.session(cookie).await.expect("answers").map(|who| who.role), Some(Role::Admin));
        assert_eq!(access.setup_token().await.expect("answers"), None, "there is a user now");
    }
}

#[tokio::test]
#[ignore = "needs a real Kafka: run tests/run"]
async fn check_tells_a_restricted_user_what_is_missing_with_acl_lines() {
    let topics = Topics::real();
    let (allowed, forbidden) = (unique("allowed.check"), unique("forbidden.check"));
    topics.create_many(&[&allowed, &forbidden], 1, &[]).await;
    let folder = folder();
    let password = variable("LAZARET_TEST_KAFKA_RESTRICTED_PASSWORD");
    std::fs::write(folder.path().join("password"), &password).unwrap();
    let broker = Server::KafkaSasl.address();
    let file = |topics: &str, group: &str| {
        format!(
            "[clusters.main]\nbootstrap_servers = \"{broker}\"\ngroup_id = \"{group}\"\nproperties_file = {{ \"sasl.password\" = \"password\" }}\n\
             properties = {{ \"security.protocol\" = \"SASL_PLAINTEXT\", \"sasl.mechanism\" = \"SCRAM-SHA-512\", \"sasl.username\" = \"restricted\" }}\n\
             [[dlq]]\ncluster = \"main\"\ntopics = [{topics}]\n"
        )
    };
    let check = |text: String| {
        std::fs::write(folder.path().join("lazaret.toml"), text).unwrap();
        let output = lazaret(folder.path(), &[], &["check"]);
        assert!(!stdout(&output).contains(&password) && !stderr(&output).contains(&password));
        (output.status.code(), stdout(&output))
    };
    let (code, said) = check(file(&format!("\"{allowed}\", \"{forbidden}\""), "lazaret"));
    assert_eq!(code, Some(1), "{said}");
    for expected in [
        "✓ cluster main: sign in",
        "✓ cluster main: read a record",
        "✓ cluster main: use the group",
        &format!("✗ cluster main: topic {forbidden}: does not exist, or this user may not see it"),
        "! cluster main: read retention",
        &format!("--allow-principal User:restricted --operation Describe --operation Read --topic {forbidden}"),
        "--allow-principal User:restricted --operation Read --group lazaret",
    ] {
        assert!(said.contains(expected), "should say: {expected}\nsaid: {said}");
    }

    let (code, said) = check(file(&format!("\"{allowed}\""), "elsewhere"));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("✗ cluster main: use the group") && said.contains("--operation Read --group elsewhere"), "{said}");

    let (code, said) = check(file(&format!("\"{allowed}\""), "lazaret"));
    assert_eq!(code, Some(0), "DescribeConfigs is optional: {said}");
    topics.delete(&[&allowed, &forbidden]).await;
}

#[tokio::test]
#[ignore = "needs a real Kafka: run tests/run"]
async fn check_of_a_wrong_password_blames_the_sign_in_and_prints_no_acl() {
    let folder = folder();
    let properties = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", "sasl.username=admin", "sasl.password=hunter2"];
    let broker = Server::KafkaSasl.address();
    let mut arguments = vec!["check", "--bootstrap", &broker, "--dlq", "x"];
    arguments.extend(properties.iter().flat_map(|property| ["--property", property]));
    let output = lazaret(folder.path(), &[], &arguments);
    let said = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("✗ cluster main: sign in") && said.contains("Check sasl.mechanism"), "{said}");
    assert!(!said.contains("kafka-acls") && !said.contains("hunter2"), "{said}");
}

#[tokio::test]
#[ignore = "needs a real Kafka: run tests/run"]
async fn suggest_writes_a_file_that_we_read_ourselves() {
    let topics = Topics::real();
    let (spring, empty, other) = (unique("suggest.spring.DLT"), unique("suggest-empty-dlq"), unique("suggest.live"));
    // `unique` adds to the end; the convention is read from the name's middle as well as from its end.
    topics.create_many(&[&spring, &empty, &other], 2, &[]).await;
    let record = NewRecord::value("{}")
        .header("kafka_dlt-original-topic", Some(b"payments"))
        .header("kafka_dlt-original-consumer-group", Some(b"wallet"))
        .header("kafka_dlt-exception-fqcn", Some(b"java.lang.IllegalStateException"));
    TestProducer::at(topics.bootstrap()).send_all(&spring, [record]);
    let folder = folder();
    let output = lazaret(folder.path(), &[], &["check", "--suggest", "--bootstrap", topics.bootstrap()]);
    let written = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    let config = Config::from_text(&written, "suggested", "".into(), Vec::new(), Purpose::Serve).expect(&written);
    let entry = |topic: &str| config.dlqs.iter().find(|dlq| dlq.settings.topics.covers(topic)).map(|dlq| dlq.settings.dialect.clone());
    assert_eq!(entry(&spring), Some(DialectChoice::Named(Dialect::SpringDlt)));
    assert_eq!(entry(&empty), Some(DialectChoice::Auto));
    assert_eq!(entry(&other), None);
    assert!(written.contains("consumer group \"wallet\""), "{written}");

    // With a file, only what it does not cover yet: all names but those that begin as ours do.
    let covered = format!(
        "[clusters.main]\nbootstrap_servers = \"{}\"\n[[dlq]]\ncluster = \"main\"\ntopics = [\"{spring}\"]\n\
         [[dlq]]\ncluster = \"main\"\npattern = '^([^s]|s[^u])'\n",
        topics.bootstrap()
    );
    std::fs::write(folder.path().join("lazaret.toml"), &covered).unwrap();
    let added = stdout(&lazaret(folder.path(), &[], &["check", "--suggest"]));
    assert!(added.contains(&empty) && !added.contains(&spring), "{added}");
    Config::from_text(&(covered + &added), "both", "".into(), Vec::new(), Purpose::Serve).expect("the two together are right");
    topics.delete(&[&spring, &empty, &other]).await;
}

/// As `lazaret .. | head` does once head has seen enough.
#[test]
fn a_reader_that_goes_away_is_no_fault() {
    let folder = folder();
    assert!(lazaret(folder.path(), &[], &["migrate"]).status.success());
    for (arguments, code) in [
        (&["partition", "explain", "--key", "k", "--partitions", "6"][..], 0),
        (&["user", "list"], 0),
        (&["migrate"], 0),
        (&["check", "--bootstrap", "127.0.0.1:1", "--dlq", "x"], 1),
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_lazaret"));
        let output = command.args(arguments).current_dir(folder.path()).stdin(Stdio::null()).stdout(writer).output().expect("it ends");
        assert_eq!((output.status.code(), stderr(&output).contains("panicked")), (Some(code), false), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn what_stops_a_start_names_the_place_and_the_remedy() {
    let folder = folder();
    std::fs::write(folder.path().join("audit.key"), "ab".repeat(32)).unwrap();
    std::fs::write(folder.path().join("url"), "postgres://u:hunter2@127.0.0.1:1/lazaret?colour=red").unwrap();
    std::fs::write(folder.path().join("a-file"), "").unwrap();
    let serve = |database: &str, variables: &[(&str, &str)]| {
        let text = format!("[server]\nlisten = '127.0.0.1:0'\n[database]\n{database}\n[audit]\nkey_file = 'audit.key'\n{GOOD}");
        std::fs::write(folder.path().join("lazaret.toml"), text).unwrap();
        let output = lazaret(folder.path(), variables, &["serve"]);
        let said = stderr(&output);
        assert!(!said.contains("hunter2"), "{said}");
        (output.status.code(), said)
    };
    let (code, said) = serve("url = 'postgres://u:hunter2@127.0.0.1:1/lazaret'", &[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("lazaret: PostgreSQL 127.0.0.1:1/lazaret: ") && said.contains("`lazaret check` says what is missing."), "{said}");
    let (code, said) = serve("url_file = 'url'", &[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("lazaret: database.url_file: the parameter \"colour\" is not known"), "{said}");
    let (code, said) = serve("url = 'sqlite://a-file/lazaret.db'", &[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("a-file: ") && said.contains("Let this user write there, or name another place for the database."), "{said}");
    let (code, said) = serve("url = 'sqlite://a/lazaret.db'", &[("LAZARET_LOG", "lazaret=loud")]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("LAZARET_LOG: ") && said.contains("error, warn, info, debug, trace"), "{said}");
    let demo = lazaret(folder.path(), &[], &["demo", "--listen", "127.0.0.1:0", "--data-dir", "a-file/demo"]);
    assert!(
        stderr(&demo).contains("demo folder a-file/demo: ") && stderr(&demo).contains("name another folder by --data-dir"),
        "{}",
        stderr(&demo)
    );
}

#[tokio::test]
#[ignore = "needs a real PostgreSQL: run tests/run"]
async fn a_database_that_is_not_there_is_told_without_the_servers_own_line_numbers() {
    let folder = folder();
    let url = crate::support::postgres_url().await;
    let (server, _) = url.rsplit_once('/').expect("a database");
    std::fs::write(folder.path().join("url"), format!("{server}/nowhere_to_be_found")).unwrap();
    std::fs::write(folder.path().join("lazaret.toml"), format!("{GOOD}\n[database]\nurl_file = 'url'")).unwrap();
    let said = stderr(&lazaret(folder.path(), &[], &["migrate"]));
    assert!(said.contains("/nowhere_to_be_found: database \"nowhere_to_be_found\" does not exist. `lazaret check`"), "{said}");
}

#[tokio::test]
#[ignore = "needs a real Kafka: run tests/run"]
async fn a_port_that_asks_for_more_than_plaintext_says_so() {
    let folder = folder();
    for server in [Server::KafkaSasl, Server::KafkaSaslSsl] {
        let output = lazaret(folder.path(), &[], &["check", "--bootstrap", &server.address(), "--dlq", "x"]);
        let said = stdout(&output);
        assert!(said.contains("✗ cluster main: list topics: the port took the connection and closed it"), "{said}");
        assert!(said.contains("Set the property security.protocol to SASL_SSL, SASL_PLAINTEXT or SSL"), "{said}");
    }
}

#[tokio::test]
#[ignore = "needs a real Kafka: run tests/run"]
async fn check_asks_where_replays_may_go_and_who_else_is_in_the_group() {
    let topics = Topics::real();
    let (dlq, target) = (unique("allowed.replay"), unique("allowed.target"));
    topics.create_many(&[&dlq, &target], 1, &[]).await;
    let folder = folder();
    let check = |user: &str, password: &str, group: &str| {
        std::fs::write(folder.path().join("password"), password).unwrap();
        let text = format!(
            "[clusters.main]\nbootstrap_servers = \"{}\"\ngroup_id = \"{group}\"\nproperties_file = {{ \"sasl.password\" = \"password\" }}\n\
             properties = {{ \"security.protocol\" = \"SASL_PLAINTEXT\", \"sasl.mechanism\" = \"SCRAM-SHA-512\", \"sasl.username\" = \"{user}\" }}\n\
             [[dlq]]\ncluster = \"main\"\ntopics = [\"{dlq}\"]\ntargets = [\"origin\", \"{target}\", \"{target}.absent\"]\nconsumer_group = \"wallet-of-others\"\n",
            Server::KafkaSasl.address()
        );
        std::fs::write(folder.path().join("lazaret.toml"), text).unwrap();
        stdout(&lazaret(folder.path(), &[], &["check"]))
    };
    let said = check("restricted", &variable("LAZARET_TEST_KAFKA_RESTRICTED_PASSWORD"), "lazaret");
    for expected in [
        &format!("✗ cluster main: replay target {target}: exists, and this user may not write there"),
        &format!("✗ cluster main: replay target {target}.absent: does not exist, or this user may not see it"),
        "✗ cluster main: group wallet-of-others, which reads replays: ",
        "– cluster main: replay to origin: not tried",
        &format!("--operation Describe --operation Write --operation DescribeConfigs --topic {target}\n"),
        "--operation Describe --group wallet-of-others\n",
        "--topic '<topic>'  # untested: for each topic that dead letters came from",
    ] {
        assert!(said.contains(expected), "should say: {expected}\nsaid: {said}");
    }
    let admin = (variable("LAZARET_TEST_KAFKA_USER"), variable("LAZARET_TEST_KAFKA_PASSWORD"));
    let group = unique("two-installations");
    let said = check(&admin.0, &admin.1, &group);
    assert!(said.contains(&format!("✓ cluster main: replay target {target}: exists, and this user may write there")), "{said}");
    assert!(said.contains(&format!("✓ cluster main: group {group}: nobody is in it")), "{said}");

    // Another installation, on a database of its own, in the same group.
    let elsewhere = self::folder();
    let file = std::fs::read_to_string(folder.path().join("lazaret.toml")).unwrap();
    std::fs::write(elsewhere.path().join("lazaret.toml"), file).unwrap();
    std::fs::write(elsewhere.path().join("password"), &admin.1).unwrap();
    let mut serving = Serving::start(elsewhere.path(), &["serve", "--listen", "127.0.0.1:0"]);
    assert!(serving.line().starts_with("Lazaret at "));
    let clock = Clock::system();
    loop {
        let said = check(&admin.0, &admin.1, &group);
        if said.contains(&format!("! cluster main: group {group} is in use, by lazaret at ")) {
            assert!(said.contains("Give this installation a group_id of its own under clusters.main"), "{said}");
            break;
        }
        assert!(clock.monotonic() < Duration::from_secs(60), "its member is not seen: {said}");
    }
    assert!(serving.terminate().success());
    topics.delete(&[&dlq, &target]).await;
}

#[test]
fn what_the_checks_use_and_what_is_none_stops_the_start() {
    let folder = folder();
    let text = "[clusters.main]\nbootstrap_servers = '127.0.0.1:1'\n[schemas.payment]\nkind = 'json_schema'\npath = 'payment.json'\n\
                [[dlq]]\ncluster = 'main'\ntopics = ['a']\n[[dlq]]\ncluster = 'main'\ntopics = ['b']\n[dlq.schema]\nuse = 'payment'\ntransform = 'cents.jq'\n";
    std::fs::write(folder.path().join("lazaret.toml"), text).unwrap();
    std::fs::write(folder.path().join("payment.json"), r#"{"type":"objekt"}"#).unwrap();
    std::fs::write(folder.path().join("cents.jq"), ".amount\n| nothing").unwrap();
    for command in [&["serve", "--config", "lazaret.toml"][..], &["check"]] {
        let output = lazaret(folder.path(), &[], command);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("schemas.payment.path: ") && said.contains("payment.json is no JSON Schema: at /type"), "{said}");
        assert!(
            said.contains("dlq[1].schema.transform: ") && said.contains("cents.jq: line 2, column 3: there is no filter nothing"),
            "{said}"
        );
        assert!(said.contains("Put a JSON Schema") && said.contains("Correct the jq filter"), "{said}");
    }
    std::fs::write(folder.path().join("payment.json"), "{}").unwrap();
    std::fs::write(folder.path().join("cents.jq"), ".amount").unwrap();
    let said = stdout(&lazaret(folder.path(), &[], &["check"]));
    assert!(said.contains("✓ schema payment: JSON Schema in "), "{said}");
}

#[tokio::test]
#[ignore = "needs a real Redis: run tests/run"]
async fn a_redis_ledger_is_asked_what_its_silence_would_prove() {
    let url = Server::Redis.address();
    let facts = lazaret::ledger::redis::probe(&Secret::new(url.clone()), Duration::from_secs(5)).await.expect("answers");
    assert!(facts.version.is_some() && facts.uptime_s.is_some() && facts.eviction_policy.is_some(), "{facts:?}");

    let folder = folder();
    let ledger = |url: &str| {
        let text = format!(
            "[clusters.main]\nbootstrap_servers = '127.0.0.1:1'\n[ledgers.wallet.hot]\nkind = 'redis'\nurl = '{url}'\nkey = 'a:{{id}}'\n\
             [ledgers.fraud.durable]\nkind = 'http'\nurl = 'http://127.0.0.1:1/applied'\n"
        );
        std::fs::write(folder.path().join("lazaret.toml"), text).unwrap();
        stdout(&lazaret(folder.path(), &[], &["check"]))
    };
    let said = ledger(&url);
    assert!(said.contains("✓ ledger wallet: Redis ") && said.contains("connected"), "{said}");
    assert!(said.contains("ledger wallet: Redis: keeps all keys") || said.contains("! ledger wallet: Redis: throws keys away"), "{said}");
    assert!(said.contains("✗ ledger fraud: HTTP endpoint: the endpoint refuses the connection"), "{said}");
    let said = ledger("redis://:hunter2@127.0.0.1:1/0");
    assert!(said.contains("✗ ledger wallet: Redis: 127.0.0.1:1: ") && !said.contains("hunter2"), "{said}");
}

#[tokio::test]
#[ignore = "needs a real PostgreSQL: run tests/run"]
async fn check_says_whether_postgresql_is_up_to_date() {
    let folder = folder();
    let url = crate::support::postgres_url().await;
    std::fs::write(folder.path().join("url"), format!("{url}\n")).unwrap();
    let ledger = "[ledgers.wallet.durable]\nkind = 'sql'\nurl_file = 'url'\nquery = 'SELECT id FROM applied WHERE id = ANY($1)'\n";
    let text = format!("[database]\nurl_file = 'url'\n[clusters.main]\nbootstrap_servers = '127.0.0.1:1'\n{ledger}");
    std::fs::write(folder.path().join("lazaret.toml"), &text).unwrap();
    let said = stdout(&lazaret(folder.path(), &[], &["check"]));
    assert!(
        said.contains("✗ ledger wallet: SQL: relation \"applied\" does not exist, at \"applied WHERE id = ANY($1)\" of the query"),
        "{said}"
    );
    let pool = sqlx::PgPool::connect(&url).await.unwrap();
    sqlx::query("CREATE TABLE applied (id text)").execute(&pool).await.unwrap();
    let said = stdout(&lazaret(folder.path(), &[], &["check"]));
    assert!(said.contains("✓ database: connected: PostgreSQL ") && said.contains("! database: ") && said.contains(" missing\n"), "{said}");
    assert!(said.contains("✓ ledger wallet: SQL: connected read-only; its query runs"), "{said}");
    let more = "ALTER TABLE applied ADD COLUMN a_uuid uuid, ADD COLUMN a_number int, ADD COLUMN a_char char(9)";
    sqlx::query(more).execute(&pool).await.unwrap();
    for (columns, expected) in [
        ("a_uuid", "✗ ledger wallet: SQL: the query's first column is no text but uuid: cast it"),
        ("id, a_number", "! ledger wallet: SQL: connected read-only; its query runs and returns 2 columns"),
        ("a_char", "✓ ledger wallet: SQL: "),
    ] {
        let file = text.replace("SELECT id FROM", &format!("SELECT {columns} FROM"));
        std::fs::write(folder.path().join("lazaret.toml"), file).unwrap();
        let said = stdout(&lazaret(folder.path(), &[], &["check"]));
        assert!(said.contains(expected), "should say: {expected}\nsaid: {said}");
    }
    std::fs::write(folder.path().join("lazaret.toml"), &text).unwrap();
    let migrated = lazaret(folder.path(), &[], &["migrate"]);
    assert!(stdout(&migrated).starts_with("PostgreSQL ") && stdout(&migrated).contains(" (PostgreSQL "), "{}", stdout(&migrated));
    let said = stdout(&lazaret(folder.path(), &[], &["check"]));
    assert!(said.contains("✓ database: up to date"), "{said}");
}

#[tokio::test]
#[ignore = "needs a real Kafka: run tests/run"]
async fn serve_takes_in_a_real_backlog_and_leaves_in_seconds() {
    lazaret::app::use_ring();
    let topics = Topics::real();
    let topic = unique("serve.DLQ");
    topics.create(&topic, 2, &[]).await;
    TestProducer::at(topics.bootstrap()).send_all(&topic, (0..20).map(|n| NewRecord::value(format!("{{\"n\":{n}}}"))));
    let folder = folder();
    assert!(lazaret(folder.path(), &[], &["migrate"]).status.success());
    let token = stdout(&lazaret(folder.path(), &[], &["token", "create", "test"])).trim().to_owned();
    let pattern = format!("^{}$", topic.replace('.', "\\."));
    let mut serving = Serving::start(
        folder.path(),
        &["serve", "--read-only", "--listen", "127.0.0.1:0", "--bootstrap", topics.bootstrap(), "--dlq", &pattern],
    );
    let first = serving.line();
    let url = first.strip_prefix("Lazaret at ").and_then(|rest| rest.strip_suffix("/ (read-only)")).expect("the address").to_owned();
    let client = reqwest::Client::new();
    let clock = Clock::system();
    loop {
        let answer = client.get(format!("{url}/api/v1/dlqs")).bearer_auth(&token).send().await.expect("an answer");
        let list: serde_json::Value = answer.json().await.expect("JSON");
        if list["items"][0]["depth"] == 20 {
            assert_eq!(list["items"][0]["topic"], topic.as_str());
            break;
        }
        assert!(clock.monotonic() < Duration::from_secs(60), "not taken in: {list}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let clock = Clock::system();
    assert!(serving.terminate().success());
    assert!(clock.monotonic() < Duration::from_secs(5), "took {:?}", clock.monotonic());
    topics.delete(&[&topic]).await;
}

/// What a `[[dlq]]` without a word about replays means, and what the rest of the program takes for it.
#[test]
fn the_defaults_of_a_replays_terms_are_those_of_the_configuration() {
    let text = "[clusters.main]\nbootstrap_servers = \"kafka:9092\"\n[[dlq]]\ncluster = \"main\"\ntopics = [\"a.DLQ\"]\n";
    let config = Config::from_text(text, "test", "".into(), Vec::new(), Purpose::Serve).expect("a configuration");
    let usual = lazaret::domain::terms::ReplayTerms::default();
    assert_eq!(format!("{:?}", config.dlqs[0].replay), format!("{usual:?}"));
}
