//! A service that plays one of the six, over real HTTP or TLS: it says what its contract says, unless the test has it say something else first.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, Uri};
use lazaret::domain::delivery::ChannelKind;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::contracts;

/// The secret part of every URL that leads here.
pub const SECRET_PATH: &str = "/services/T00000000/B00000000/swordfishswordfish";

/// What it does with the next request instead of what its contract says.
#[derive(Debug, Clone)]
pub enum Next {
    Say(u16, &'static str),
    SayWith(u16, &'static str, Vec<(&'static str, String)>),
    /// Takes it, and says so only after this time.
    Sleep(Duration),
}

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Seen {
    pub method: Method,
    pub uri: Uri,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Seen {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("text"))
    }
}

#[derive(Clone)]
struct Desk {
    kind: ChannelKind,
    next: Arc<Mutex<VecDeque<Next>>>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

/// The service. Gone when dropped.
pub struct Receiver {
    pub kind: ChannelKind,
    pub address: SocketAddr,
    desk: Desk,
    scheme: &'static str,
    host: String,
    _task: JoinSet<()>,
}

impl Receiver {
    pub async fn open(kind: ChannelKind) -> Receiver {
        Receiver::open_at(kind, "127.0.0.1:0").await
    }

    pub async fn open_at(kind: ChannelKind, address: &str) -> Receiver {
        let listener = TcpListener::bind(address).await.expect("an address");
        let address = listener.local_addr().expect("its address");
        Receiver::serve(kind, address, "http", address.ip().to_string(), listener)
    }

    /// With TLS, as `host`.
    pub async fn open_tls(kind: ChannelKind, host: &str, acceptor: TlsAcceptor) -> Receiver {
        let tcp = TcpListener::bind("127.0.0.1:0").await.expect("an address");
        let address = tcp.local_addr().expect("its address");
        Receiver::serve(kind, address, "https", host.to_owned(), Tls { tcp, acceptor })
    }

    fn serve<L>(kind: ChannelKind, address: SocketAddr, scheme: &'static str, host: String, listener: L) -> Receiver
    where
        L: axum::serve::Listener<Addr = SocketAddr>,
    {
        let desk = Desk { kind, next: Arc::default(), seen: Arc::default() };
        let router = Router::new().fallback(take).with_state(desk.clone());
        let mut task = JoinSet::new();
        task.spawn(async move { axum::serve(listener, router).await.expect("serves") });
        Receiver { kind, address, desk, scheme, host, _task: task }
    }

    pub fn url(&self) -> String {
        format!("{}://{}:{}{SECRET_PATH}", self.scheme, self.host, self.address.port())
    }

    pub fn next(&self, next: Next) {
        self.desk.next.lock().unwrap().push_back(next);
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.desk.seen.lock().unwrap().clone()
    }
}

async fn take(State(desk): State<Desk>, method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> Response<String> {
    let next = desk.next.lock().unwrap().pop_front();
    let (mut status, mut said) = contracts::answer(desk.kind, &headers, &body);
    desk.seen.lock().unwrap().push(Seen { method, uri, headers, body });
    let mut more = Vec::new();
    match next {
        None => {}
        Some(Next::Say(other, body)) => (status, said) = (other, body.to_owned()),
        Some(Next::SayWith(other, body, headers)) => (status, said, more) = (other, body.to_owned(), headers),
        Some(Next::Sleep(time)) => tokio::time::sleep(time).await,
    }
    let mut response = Response::new(said);
    *response.status_mut() = status.try_into().expect("a status");
    for (name, value) in more {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_str(&value).expect("a value"));
    }
    response
}

struct Tls {
    tcp: TcpListener,
    acceptor: TlsAcceptor,
}

impl axum::serve::Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            // Who does not trust us breaks the handshake off; the next one may.
            if let Ok((tcp, from)) = self.tcp.accept().await
                && let Ok(io) = self.acceptor.accept(tcp).await
            {
                return (io, from);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.tcp.local_addr()
    }
}
