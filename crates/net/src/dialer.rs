//! Sockets of the router's namespace, made ahead of need.
//!
//! A thread parked in the router keeps a few sockets ready, so that a connect costs neither a change of
//! namespace nor a hop between threads. A socket stays where it was made, whoever connects it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::time::Duration;

use roost_sys::netns;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Mutex, mpsc};

use crate::gates::{Gates, NoConnects};

/// How many sockets wait for use.
const STOCK: usize = 8;

/// Connects from the router; its thread ends with it.
#[derive(Debug)]
pub(crate) struct Dialer {
    stock: Mutex<mpsc::Receiver<io::Result<OwnedFd>>>,
    gates: Gates,
}

impl Dialer {
    pub(crate) fn start(router: OwnedFd) -> io::Result<Self> {
        let (fill, stock) = mpsc::channel(STOCK);
        std::thread::Builder::new().name("roost-dial".to_owned()).spawn(move || {
            if let Err(error) = netns::enter(router) {
                drop(fill.blocking_send(Err(error)));
                return;
            }
            while fill.blocking_send(tcp_socket()).is_ok() {}
        })?;
        Ok(Self { stock: Mutex::new(stock), gates: Gates::default() })
    }

    /// Lets no connect to an address begin, and those that have begun come to their end.
    pub(crate) async fn hold_back(&self, address: Ipv4Addr) -> Option<NoConnects> {
        self.gates.close(address).await
    }

    pub(crate) async fn connect(&self, to: SocketAddrV4, timeout: Duration) -> io::Result<TcpStream> {
        let _open = self.gates.pass(*to.ip()).await;
        let connected = tokio::time::timeout(timeout, async {
            let socket = self.stock.lock().await.recv().await;
            let socket = socket.ok_or_else(|| io::Error::other("no thread in the router"))??;
            let socket = TcpSocket::from_std_stream(socket.into());
            socket.connect(SocketAddr::V4(to)).await
        });
        connected.await.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer from {to}"))))
    }
}

fn tcp_socket() -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?)
}
