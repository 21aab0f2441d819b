//! DNS for sandboxes: a forwarder at the gateway's address.
//!
//! It listens on sockets of the router's namespace and asks from the host's, so that a resolver on the
//! host's loopback or in a private range, where sandboxes cannot go, answers them all the same. It keeps
//! nothing: every ordinary question is passed on and its answer passed back as it is. Anything else is refused here,
//! because a resolver may trust the host with more (transfers, updates) than a sandbox shall have.

mod packet;
mod quota;
mod upstream;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::{AbortHandle, JoinSet};

use crate::config::Resolvers;
use crate::slot::GATEWAY;
use packet::{Failure, MAX_MESSAGE, Verdict};
use quota::Quota;
use upstream::Upstream;

const PORT: u16 = 53;
const BACKLOG: i32 = 128;
/// How long a TCP client may be silent.
const TCP_IDLE: Duration = Duration::from_secs(10);
/// Pause after a failure to receive, so that a lasting one does not spin.
const RECEIVE_PAUSE: Duration = Duration::from_millis(50);

/// The listening sockets, made inside the router's namespace.
#[derive(Debug)]
pub(crate) struct Sockets {
    udp: std::net::UdpSocket,
    tcp: std::net::TcpListener,
}

impl Sockets {
    /// Binds both in the network namespace of the calling thread.
    ///
    /// The port may be shared, so that a daemon can start while the last answers of its predecessor
    /// are still on their way.
    pub(crate) fn bind() -> io::Result<Self> {
        let address = SocketAddr::from((GATEWAY, PORT));
        let open = |kind| -> rustix::io::Result<std::os::fd::OwnedFd> {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = rustix::net::socket_with(AddressFamily::INET, kind, flags, None)?;
            sockopt::set_socket_reuseaddr(&socket, true)?;
            sockopt::set_socket_reuseport(&socket, true)?;
            rustix::net::bind(&socket, &address)?;
            Ok(socket)
        };
        let udp = open(SocketType::DGRAM)?;
        let tcp = open(SocketType::STREAM)?;
        rustix::net::listen(&tcp, BACKLOG)?;
        Ok(Self { udp: udp.into(), tcp: tcp.into() })
    }
}

/// The running forwarder; it ends when dropped.
#[derive(Debug)]
pub(crate) struct Forwarder {
    tasks: [AbortHandle; 2],
}

impl Forwarder {
    /// Starts serving; must be called inside a runtime.
    pub(crate) fn start(sockets: Sockets, resolvers: Resolvers) -> io::Result<Self> {
        let udp = UdpSocket::from_std(sockets.udp)?;
        let tcp = TcpListener::from_std(sockets.tcp)?;
        let upstream = Arc::new(Upstream::new(resolvers));
        let quota = Arc::new(Quota::default());
        let tasks = [
            tokio::spawn(serve_udp(udp, Arc::clone(&upstream), Arc::clone(&quota))).abort_handle(),
            tokio::spawn(serve_tcp(tcp, upstream, quota)).abort_handle(),
        ];
        Ok(Self { tasks })
    }

    pub(crate) fn stop(&self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn serve_udp(socket: UdpSocket, upstream: Arc<Upstream>, quota: Arc<Quota>) {
    let socket = Arc::new(socket);
    let mut answers = JoinSet::new();
    let mut buffer = vec![0; MAX_MESSAGE];
    loop {
        let (length, client) = tokio::select! {
            received = socket.recv_from(&mut buffer) => match received {
                Ok(received) => received,
                Err(error) => {
                    tracing::debug!(%error, "failed to receive a DNS question");
                    tokio::time::sleep(RECEIVE_PAUSE).await;
                    continue;
                }
            },
            Some(_) = answers.join_next() => continue,
        };
        let query = &buffer[..length];
        match packet::judge(query) {
            Verdict::Ask => {}
            Verdict::Fail(why) => {
                // As below: an answer that finds no room is lost, and the client asks again.
                drop(socket.try_send_to(&packet::failure(query, why), client));
                continue;
            }
            Verdict::Drop => continue,
        }
        // Without a permit the question is dropped, as a busy network would; the client asks again.
        let Some(permit) = quota.take(client.ip()) else {
            continue;
        };
        let (socket, upstream, query) = (Arc::clone(&socket), Arc::clone(&upstream), query.to_vec());
        answers.spawn(async move {
            let answer = upstream.ask_udp(&query).await;
            let answer = answer.unwrap_or_else(|| packet::failure(&query, Failure::Server));
            if let Err(error) = socket.send_to(&answer, client).await {
                tracing::debug!(%error, %client, "failed to send a DNS answer");
            }
            drop(permit);
        });
    }
}

async fn serve_tcp(listener: TcpListener, upstream: Arc<Upstream>, quota: Arc<Quota>) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, client) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::debug!(%error, "failed to accept a DNS connection");
                    tokio::time::sleep(RECEIVE_PAUSE).await;
                    continue;
                }
            },
            Some(_) = connections.join_next() => continue,
        };
        let Some(permit) = quota.take(client.ip()) else {
            continue;
        };
        let upstream = Arc::clone(&upstream);
        connections.spawn(async move {
            if let Err(error) = answer_connection(stream, &upstream).await {
                tracing::debug!(%error, %client, "a DNS connection broke");
            }
            drop(permit);
        });
    }
}

async fn answer_connection(mut stream: TcpStream, upstream: &Upstream) -> io::Result<()> {
    loop {
        let query = match tokio::time::timeout(TCP_IDLE, read_message(&mut stream)).await {
            Ok(Ok(query)) => query,
            // A silent client, or the usual end of a connection.
            Err(_) => return Ok(()),
            Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Ok(Err(error)) => return Err(error),
        };
        let answer = match packet::judge(&query) {
            Verdict::Ask => upstream.ask_tcp(&query).await.ok_or(Failure::Server),
            Verdict::Fail(why) => Err(why),
            Verdict::Drop => return Ok(()),
        };
        let answer = answer.unwrap_or_else(|why| packet::failure(&query, why));
        tokio::time::timeout(TCP_IDLE, write_message(&mut stream, &answer)).await??;
    }
}

/// Reads a message with the length in front that DNS has on TCP.
async fn read_message(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = stream.read_u16().await?;
    let mut message = vec![0; usize::from(length)];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

async fn write_message(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let length = u16::try_from(message.len()).map_err(io::Error::other)?;
    let mut framed = length.to_be_bytes().to_vec();
    framed.extend_from_slice(message);
    stream.write_all(&framed).await
}
