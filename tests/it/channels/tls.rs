//! Every service over TLS, with a certificate of an authority of our own that the machine's store knows; and what is not trusted gets nothing.
//!
//! The store is read from the file that `SSL_CERT_FILE` names, so the test runs itself once more with that variable.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use lazaret::store::outbox::DeliveryState;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio_rustls::TlsAcceptor;

use super::*;

const HOST: &str = "hooks.example";
/// Where the certificates lie, for the second run.
const FOLDER: &str = "LAZARET_TEST_TLS_FOLDER";

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_with_an_authority_of_our_own() {
    lazaret::app::use_ring();
    if let Ok(folder) = std::env::var(FOLDER) {
        return every_service(Path::new(&folder)).await;
    }
    let folder = tempfile::tempdir().expect("a folder");
    make_certificates(folder.path());
    // This run does not know the authority.
    let receiver = Receiver::open_tls(ChannelKind::Slack, HOST, acceptor(folder.path())).await;
    let (store, _database) = crate::support::sqlite().await;
    let rig = rig(&store);
    let channel = rig.channel("stranger", &receiver).await;
    let tested = rig.notify.test(&ana(), channel).await.unwrap();
    assert!(!tested.delivered && tested.sentence.contains("its certificate is not trusted"), "{tested:?}");
    assert_eq!(receiver.seen().len(), 0);

    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "channels::tls::over_tls_with_an_authority_of_our_own", "--nocapture"])
        .env("SSL_CERT_FILE", folder.path().join("ca.pem"))
        .env(FOLDER, folder.path())
        .output()
        .expect("runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
}

fn rig(store: &Store) -> Rig {
    let names = names(&[(HOST, &["127.0.0.1"]), ("other.example", &["127.0.0.1"])]);
    Rig::with(store, Clock::system(), &["127.0.0.1"], names, SECOND * 10)
}

async fn every_service(folder: &Path) {
    let (store, _database) = crate::support::sqlite().await;
    let rig = rig(&store);
    for kind in ChannelKind::ALL {
        let receiver = Receiver::open_tls(kind, HOST, acceptor(folder)).await;
        let channel = rig.channel(kind.as_str(), &receiver).await;
        rig.tell(&notice(1, "a.DLQ", firing()), &[channel]).await;
        assert_eq!(rig.turn().await, 1);
        let last = rig.last(channel).await;
        assert_eq!((last.state, receiver.seen().len()), (DeliveryState::Delivered, 1), "{kind:?}: {last:?}");
        if kind == ChannelKind::Webhook {
            let seen = receiver.seen().remove(0);
            let key = standardwebhooks::Webhook::new(contracts::SIGNING_SECRET).unwrap();
            key.verify(&seen.body, &seen.headers).expect("the library's own check, its time included");
        }
        // The right certificate under another name is none.
        let url = receiver.url().replace(HOST, "other.example");
        let elsewhere = rig.channel_at(&format!("{} elsewhere", kind.as_str()), kind, &url).await;
        let tested = rig.notify.test(&ana(), elsewhere).await.unwrap();
        assert!(!tested.delivered && tested.sentence.contains("certificate"), "{tested:?}");
        assert_eq!(receiver.seen().len(), 1);
    }
}

fn make_certificates(folder: &Path) {
    let mut authority = CertificateParams::new(Vec::new()).expect("parameters");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().expect("a key");
    let authority_pem = authority.self_signed(&authority_key).expect("a certificate").pem();
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().expect("a key");
    let certificate = CertificateParams::new(vec![HOST.to_owned()]).expect("parameters").signed_by(&key, &issuer).expect("a certificate");
    std::fs::write(folder.join("ca.pem"), authority_pem).expect("written");
    std::fs::write(folder.join("server.der"), certificate.der()).expect("written");
    std::fs::write(folder.join("server.key"), key.serialize_der()).expect("written");
}

fn acceptor(folder: &Path) -> TlsAcceptor {
    let certificate = std::fs::read(folder.join("server.der")).expect("a certificate").into();
    let key = std::fs::read(folder.join("server.key")).expect("a key").try_into().expect("a key");
    let config = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key).expect("they fit");
    TlsAcceptor::from(Arc::new(config))
}
