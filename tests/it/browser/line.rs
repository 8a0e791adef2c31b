//! A line between browser and server that can be cut, or fall silent.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Open,
    /// What is connected is disconnected; new connections end at once.
    Cut,
    /// Connections stay and carry nothing, as when a router in between was restarted.
    Silent,
}

/// Works until dropped.
pub struct Line {
    mode: watch::Sender<Mode>,
    task: JoinHandle<()>,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Line {
    /// Carries what comes at `listener` to `server`.
    #[allow(clippy::disallowed_methods, reason = "a test's own proxy; it ends with the test's runtime")]
    pub fn new(listener: TcpListener, server: SocketAddr) -> Line {
        let (mode, seen) = watch::channel(Mode::Open);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, server, seen.clone()));
            }
        });
        Line { mode, task }
    }

    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

async fn carry(client: TcpStream, server: SocketAddr, mut mode: watch::Receiver<Mode>) {
    if *mode.borrow() == Mode::Cut {
        return;
    }
    let Ok(server) = TcpStream::connect(server).await else { return };
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::select! {
        () = pump(from_client, to_server, mode.clone()) => {}
        () = pump(from_server, to_client, mode.clone()) => {}
        _ = mode.wait_for(|mode| *mode == Mode::Cut) => {}
    }
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut mode: watch::Receiver<Mode>) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if mode.wait_for(|mode| *mode != Mode::Silent).await.is_err() || to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
