//! Signing in: SCRAM, PLAIN, TLS with an authority of our own, OAUTHBEARER; what a user without rights is told.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lazaret::domain::clock::Clock;
use lazaret::domain::health::Retention;
use lazaret::domain::settings::{ClusterSettings, TokenSource};
use lazaret::kafka::check::{Outcome, Progress, Step, probe};
use lazaret::kafka::client::KafkaError;
use lazaret::kafka::inspect::Inspector;

use super::{PATIENCE, Reading, cluster, with};
use crate::support::producer::{NewRecord, TestProducer, Topics};
use crate::support::{Server, unique, variable};

const MECHANISMS: [&str; 3] = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"];

fn admin() -> (String, String) {
    (variable("LAZARET_TEST_KAFKA_USER"), variable("LAZARET_TEST_KAFKA_PASSWORD"))
}

fn restricted() -> (String, String) {
    (variable("LAZARET_TEST_KAFKA_RESTRICTED_USER"), variable("LAZARET_TEST_KAFKA_RESTRICTED_PASSWORD"))
}

fn sasl(mechanism: &str, (user, password): &(String, String)) -> ClusterSettings {
    let properties =
        [("security.protocol", "SASL_PLAINTEXT"), ("sasl.mechanism", mechanism), ("sasl.username", user), ("sasl.password", password)];
    with(cluster(&Server::KafkaSasl.address()), &properties)
}

fn sasl_ssl(mechanism: &str, (user, password): &(String, String), trust: (&str, &str)) -> ClusterSettings {
    let properties =
        [("security.protocol", "SASL_SSL"), ("sasl.mechanism", mechanism), ("sasl.username", user), ("sasl.password", password), trust];
    with(cluster(&Server::KafkaSaslSsl.address()), &properties)
}

fn oauth(source: TokenSource) -> ClusterSettings {
    let mut settings =
        with(cluster(&Server::KafkaOauth.address()), &[("security.protocol", "SASL_PLAINTEXT"), ("sasl.mechanism", "OAUTHBEARER")]);
    settings.oauth_token = Some(source);
    settings
}

/// An unsecured token (RFC 7519, 6), which the test broker accepts.
fn token(user: &str, seconds: i64) -> String {
    let now = Clock::system().now_ms() / 1000;
    let claims = format!(r#"{{"sub":"{user}","iat":{now},"exp":{}}}"#, now + seconds);
    format!("{}.{}.", URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#), URL_SAFE_NO_PAD.encode(claims))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("no panic")
}

/// Lists and reads as that user.
async fn assert_works(settings: ClusterSettings, topic: &str, count: usize) {
    let (asked, name) = (settings.clone(), topic.to_owned());
    blocking(move || {
        let topics = Inspector::connect(&asked).expect("the settings are fine").topics(PATIENCE).expect("it may list");
        assert!(topics.iter().any(|info| info.name == name));
    })
    .await;
    let mut reading = Reading::of(&settings, &[topic]);
    reading.read(count).await;
    reading.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn every_mechanism_works_with_and_without_tls() {
    let topics = Topics::real();
    let topic = unique("allowed.sasl");
    topics.create(&topic, 1, &[]).await;
    TestProducer::at(topics.bootstrap()).send_all(&topic, [NewRecord::value("v")]);
    let authority = variable("LAZARET_TEST_KAFKA_CA");
    let pem = std::fs::read_to_string(&authority).expect("the authority's certificate");
    for mechanism in MECHANISMS {
        assert_works(sasl(mechanism, &admin()), &topic, 1).await;
        assert_works(sasl(mechanism, &restricted()), &topic, 1).await;
        assert_works(sasl_ssl(mechanism, &admin(), ("ssl.ca.location", &authority)), &topic, 1).await;
    }
    assert_works(sasl_ssl("SCRAM-SHA-512", &restricted(), ("ssl.ca.pem", &pem)), &topic, 1).await;
    topics.delete(&[&topic]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn a_wrong_password_is_not_permitted_and_not_shown() {
    for mechanism in MECHANISMS {
        let wrong = sasl(mechanism, &(admin().0, "hunter2-is-wrong".to_owned()));
        let asked = wrong.clone();
        let error = blocking(move || Inspector::connect(&asked).unwrap().topics(Duration::from_secs(5)).unwrap_err()).await;
        assert!(matches!(error, KafkaError::NotPermitted { .. }), "{error:?}");
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");

        let mut reading = Reading::of(&wrong, &["any"]);
        reading.until("the refusal", |reading| !reading.errors.is_empty() && reading.link == [false]).await;
        assert!(matches!(&reading.errors[0], KafkaError::NotPermitted { .. }), "{:?}", reading.errors);
        assert!(!format!("{:?}", reading.errors).contains("hunter2"));
        reading.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn an_unknown_authority_is_named_as_the_reason() {
    let settings = with(
        cluster(&Server::KafkaSaslSsl.address()),
        &[("security.protocol", "SASL_SSL"), ("sasl.mechanism", "PLAIN"), ("sasl.username", "u"), ("sasl.password", "hunter2-secret")],
    );
    let steps = blocking(move || {
        let error = Inspector::connect(&settings).unwrap().topics(Duration::from_secs(5)).unwrap_err();
        assert!(matches!(&error, KafkaError::Unreachable { reason, .. } if reason.contains("certificate")), "{error}");
        probed(&settings, &[])
    })
    .await;
    assert!(matches!(outcome(&steps, "TLS"), Outcome::Failed(reason) if reason.contains("certificate")), "{steps:?}");
    assert!(matches!(outcome(&steps, "sign in"), Outcome::Skipped(_)), "{steps:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn a_token_comes_from_a_file_or_a_command() {
    let topics = Topics::real();
    let topic = unique("allowed.oauth");
    topics.create(&topic, 1, &[]).await;
    TestProducer::at(topics.bootstrap()).send_all(&topic, [NewRecord::value("v")]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, token("restricted", 3600)).unwrap();
    assert_works(oauth(TokenSource::File(file)), &topic, 1).await;
    assert_works(oauth(TokenSource::Command(vec!["printf".into(), "%s".into(), token("restricted", 3600)])), &topic, 1).await;

    // Whose token it is decides what it may see.
    let nobody = oauth(TokenSource::Command(vec!["printf".into(), "%s".into(), token("nobody", 3600)]));
    let seen = blocking(move || Inspector::connect(&nobody).unwrap().topics(PATIENCE).unwrap()).await;
    assert!(seen.is_empty(), "{seen:?}");
    topics.delete(&[&topic]).await;
}

/// The file is renewed beside us, as Kubernetes does; the old token runs out.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn a_token_is_read_again_before_it_expires() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, token("admin", 4)).unwrap();
    let settings = oauth(TokenSource::File(file.clone()));
    blocking(move || {
        let inspector = Inspector::connect(&settings).unwrap();
        inspector.topics(PATIENCE).expect("the first token is good");
        std::fs::write(&file, token("admin", 3600)).unwrap();
        // Not synchronisation: until the first token is out of date, whatever happens.
        std::thread::sleep(Duration::from_secs(6));
        inspector.topics(PATIENCE).expect("the second token is in use");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn a_token_that_cannot_be_had_is_explained() {
    let settings = oauth(TokenSource::File("/nonexistent/token".into()));
    let error = blocking(move || Inspector::connect(&settings).unwrap().topics(Duration::from_secs(3)).unwrap_err()).await;
    assert!(matches!(&error, KafkaError::NotPermitted { reason, .. } if reason.contains("/nonexistent/token")), "{error}");
}

/// `restricted` may find and read `allowed.*` and may not ask for configuration.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn a_restricted_user_sees_what_it_may_and_is_told_the_rest() {
    let topics = Topics::real();
    let (allowed, hidden) = (unique("allowed.seen"), unique("hidden"));
    topics.create(&allowed, 1, &[]).await;
    topics.create(&hidden, 1, &[]).await;
    TestProducer::at(topics.bootstrap()).send_all(&allowed, [NewRecord::value("v")]);
    TestProducer::at(topics.bootstrap()).send_all(&hidden, [NewRecord::value("v")]);
    let settings = sasl("SCRAM-SHA-512", &restricted());
    let (seen, unseen) = (allowed.clone(), hidden.clone());
    blocking(move || {
        let inspector = Inspector::connect(&settings).unwrap();
        let listed = inspector.topics(PATIENCE).unwrap();
        assert!(listed.iter().any(|info| info.name == seen) && !listed.iter().any(|info| info.name == unseen));
        assert_eq!(inspector.retention(std::slice::from_ref(&seen), PATIENCE)[&seen], Retention::NotPermitted);
        assert!(matches!(inspector.topic_ids(std::slice::from_ref(&unseen), PATIENCE), Err(KafkaError::NotPermitted { .. })));
        assert!(inspector.record_at(&(seen.clone(), 0), 0, PATIENCE).unwrap().is_some());
        let ends = inspector.log_ends(&[(seen.clone(), 0), (unseen.clone(), 0)], PATIENCE);
        assert!(ends[&(seen.clone(), 0)].is_ok() && ends[&(unseen, 0)].is_err(), "{ends:?}");
    })
    .await;

    // A group that the user may not use.
    let mut other_group = sasl("SCRAM-SHA-512", &restricted());
    other_group.group_id = unique("foreign");
    let mut reading = Reading::of(&other_group, &[&allowed]);
    reading.until("the refusal", |reading| !reading.errors.is_empty()).await;
    assert!(matches!(&reading.errors[0], KafkaError::NotPermitted { reason, .. } if reason.contains("roup")), "{:?}", reading.errors);
    reading.stop().await;
    topics.delete(&[&allowed, &hidden]).await;
}

fn probed(settings: &ClusterSettings, names: &[String]) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut trying = Vec::new();
    probe(settings, &|topic| names.iter().any(|name| name == topic), Duration::from_secs(5), &mut |progress| match progress {
        Progress::Trying(name) => trying.push(name),
        Progress::Done(step) => steps.push(step),
    });
    assert!(trying.iter().all(|name| steps.iter().any(|step| step.name == *name)), "what is begun is answered: {trying:?}");
    steps
}

fn outcome<'a>(steps: &'a [Step], name: &str) -> &'a Outcome {
    &steps.iter().find(|step| step.name == name).expect("every step is answered").outcome
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn a_check_goes_step_by_step() {
    let topics = Topics::real();
    let topic = unique("allowed.check");
    topics.create(&topic, 2, &[]).await;
    TestProducer::at(topics.bootstrap()).send_all(&topic, [NewRecord::value("v").on_partition(1)]);
    let check = async |settings: ClusterSettings| {
        let names = vec![topic.clone(), "absent-for-ever".to_owned()];
        blocking(move || probed(&settings, &names)).await
    };
    let ok = |steps: &[Step], names: &[&str]| names.iter().all(|name| outcome(steps, name) == &Outcome::Ok);

    let steps = check(sasl_ssl("PLAIN", &admin(), ("ssl.ca.location", &variable("LAZARET_TEST_KAFKA_CA")))).await;
    assert!(steps.len() == 9 && steps.iter().all(|step| step.outcome == Outcome::Ok), "{steps:?}");

    let steps = check(cluster(&Server::Kafka.address())).await;
    assert!(
        matches!(outcome(&steps, "TLS"), Outcome::Skipped(_)) && matches!(outcome(&steps, "sign in"), Outcome::Skipped(_)),
        "{steps:?}"
    );
    assert!(ok(&steps, &["list topics", "describe topics", "read a record", "use the group", "read retention"]), "{steps:?}");

    let steps = check(sasl("SCRAM-SHA-512", &restricted())).await;
    assert!(ok(&steps, &["sign in", "list topics", "describe topics", "read a record", "use the group"]), "{steps:?}");
    assert!(matches!(outcome(&steps, "read retention"), Outcome::Failed(reason) if reason.contains("DescribeConfigs")), "{steps:?}");

    let mut foreign = sasl("SCRAM-SHA-512", &restricted());
    foreign.group_id = unique("foreign");
    let steps = check(foreign).await;
    assert!(matches!(outcome(&steps, "use the group"), Outcome::Failed(reason) if reason.contains("roup")), "{steps:?}");

    let steps = check(sasl("PLAIN", &(admin().0, "hunter2-is-wrong".to_owned()))).await;
    assert!(matches!(outcome(&steps, "sign in"), Outcome::Failed(_)), "{steps:?}");
    assert!(matches!(outcome(&steps, "list topics"), Outcome::Skipped(why) if why.contains("sign in")), "{steps:?}");
    assert!(!format!("{steps:?}").contains("hunter2"), "{steps:?}");

    let steps = check(with(cluster(&Server::Kafka.address()), &[("sasl.jaas", "hunter2")])).await;
    assert!(matches!(outcome(&steps, "client settings"), Outcome::Failed(reason) if reason.contains("sasl.jaas")), "{steps:?}");
    assert_eq!(steps.len(), 9);
    assert!(!topics.names().contains(&"absent-for-ever".to_owned()), "asking for a topic must not make it");
    topics.delete(&[&topic]).await;
}
