//! Connections to ports inside, from the daemon.
//!
//! A port is dialled from the router first, which costs the sandbox nothing; a server that listens on its own loopback
//! alone is reached through the guest.

use std::io;
use std::net::SocketAddrV4;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use jiff::Timestamp;
use roost_lifecycle::Phase;
use roost_model::{ErrorCode, EventKind, Level, PortAccess, PortRule, PortView};
use roost_net::Slot;
use roost_store::{Durability, NewEvent, SandboxRecord};
use roost_wire::GUEST_PORT;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::HostError;
use crate::actor::{Actor, Message};
use crate::guest::Guest;
use crate::handle::Handle;
use crate::view::view;

/// How long after a start from files a port may take to open.
const BOOT_TIME: Duration = Duration::from_secs(10);
/// How often is looked whether it has.
const BOOT_PAUSE: Duration = Duration::from_millis(25);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a sandbox may fall asleep under a connection that is being made.
const TRIES: usize = 16;
/// How long the list of open ports may hold up the news that one is closed.
const LIST_TIME: Duration = Duration::from_secs(1);
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// A connection to a port inside.
#[derive(Debug)]
pub struct PortStream {
    stream: TcpStream,
    /// What came before the stream was ours alone.
    ahead: Bytes,
}

/// The way that a connection took: good for as long as the sandbox's processes and network are.
#[derive(Debug, Clone)]
pub struct Line {
    handle: Handle,
    slot: u32,
    /// Since when it was awake when the way was told.
    since: Timestamp,
    seen: watch::Receiver<Arc<SandboxRecord>>,
}

/// Why a port could not be dialled.
enum Unreached {
    /// Nobody listens.
    Closed,
    /// The sandbox fell asleep or ended meanwhile.
    Lost,
    /// Something else.
    Failed(HostError),
}

impl Handle {
    /// Has it awake for a connection to a port and tells the way to it.
    pub async fn line(&self, port: u16) -> Result<Line, HostError> {
        self.line_for(&format!("port {port}")).await
    }

    /// Has it awake and tells the way to it; `what` for is the cause of a wake.
    pub(crate) async fn line_for(&self, what: &str) -> Result<Line, HostError> {
        let mut tries = 0;
        loop {
            self.awake(&self.request(what)).await?;
            let record = self.record();
            if let Some(slot) = record.slot.filter(|_| record.phase == Phase::Active) {
                let since = record.state_since;
                return Ok(Line { handle: self.clone(), slot, since, seen: self.seen.clone() });
            }
            tries = self.one_more(tries)?;
        }
    }

    /// Connects to a port inside; wakes it if need be. One that has just started may take its time to listen.
    pub async fn open_port(&self, port: u16) -> Result<(PortStream, Line), HostError> {
        if port == GUEST_PORT {
            return Err(HostError::BadRequest(format!("port {GUEST_PORT} is Roost's own")));
        }
        let (mut tries, mut asked) = (0, false);
        loop {
            let mut line = self.line(port).await?;
            let record = self.record();
            let dialled = tokio::select! {
                dialled = self.dial(&record, line.slot, port) => dialled,
                () = line.lost(|| true) => Err(Unreached::Lost),
            };
            match dialled {
                Ok(stream) => return Ok((stream, line)),
                Err(Unreached::Failed(error)) => return Err(error),
                Err(Unreached::Lost) => tries = self.one_more(tries)?,
                Err(Unreached::Closed) if !asked && self.start_service_on(port).await? => asked = true,
                Err(Unreached::Closed) if has_just_booted(&record) => tokio::time::sleep(BOOT_PAUSE).await,
                Err(Unreached::Closed) => return Err(self.closed(port).await),
            }
        }
    }

    fn one_more(&self, tries: usize) -> Result<usize, HostError> {
        if tries < TRIES {
            return Ok(tries + 1);
        }
        let sandbox = self.record().name.to_string();
        Err(HostError::GuestLost { sandbox, detail: "it falls asleep again and again".to_owned() })
    }

    async fn dial(&self, record: &SandboxRecord, slot: u32, port: u16) -> Result<PortStream, Unreached> {
        let address = SocketAddrV4::new(Slot(slot).address(), port);
        match self.shared.network.connect(address, CONNECT_TIMEOUT).await {
            Ok(stream) => Ok(PortStream::new(stream, Bytes::new())),
            // A server on the loopback refuses whoever comes from elsewhere; a firewall inside may say nothing.
            Err(error) if refused(&error) => self.dial_through_guest(record, port).await,
            Err(error) => {
                let detail = format!("port {port} cannot be reached: {error}");
                Err(Unreached::Failed(HostError::GuestLost { sandbox: record.name.to_string(), detail }))
            }
        }
    }

    async fn dial_through_guest(&self, record: &SandboxRecord, port: u16) -> Result<PortStream, Unreached> {
        let guest = Guest::of(self.shared.clone(), record).map_err(Unreached::Failed)?;
        let connection = guest.connect().await.map_err(|_| Unreached::Lost)?;
        match connection.tunnel(port).await {
            Ok((socket, ahead)) => Ok(PortStream::new(socket.into_stream(), ahead)),
            Err(error) => match guest.failed(error) {
                // The second is a guest of an earlier version, asleep since before there were tunnels.
                HostError::Guest { code: ErrorCode::PortClosed | ErrorCode::BadRequest, .. } => Err(Unreached::Closed),
                HostError::GuestLost { .. } => Err(Unreached::Lost),
                other => Err(Unreached::Failed(other)),
            },
        }
    }

    async fn closed(&self, port: u16) -> HostError {
        let listed = tokio::time::timeout(LIST_TIME, self.ports()).await;
        let mut listening: Vec<u16> = listed
            .ok()
            .and_then(Result::ok)
            .into_iter()
            .flatten()
            .filter(|port| port.address.is_some())
            .map(|port| port.port)
            .collect();
        listening.dedup();
        HostError::PortClosed { sandbox: self.record().name.to_string(), port, listening }
    }

    /// What was decided about a port.
    pub(crate) fn port_rule(&self, port: u16) -> PortRule {
        let record = self.record();
        let usual = PortRule { port, access: record.port_access, links: 0 };
        record.ports.iter().find(|rule| rule.port == port).copied().unwrap_or(usual)
    }

    /// Who may reach a port from outside.
    pub fn port_access(&self, port: u16) -> PortAccess {
        self.port_rule(port).access
    }

    /// Decides who may reach a port from outside.
    pub async fn set_port(&self, port: u16, access: PortAccess) -> Result<PortView, HostError> {
        self.living()?;
        if port == GUEST_PORT {
            return Err(HostError::BadRequest(format!("port {GUEST_PORT} is Roost's own")));
        }
        self.ask(|reply| Message::SetPort(port, access, reply)).await?;
        Ok(self.port_view(port))
    }

    /// A port as the outside sees it, whether or not it listens.
    pub fn port_view(&self, port: u16) -> PortView {
        self.dressed(PortView { port, address: None, process: None, url: None, access: PortAccess::default() })
    }

    /// Ports about which something was decided, as the outside sees them.
    pub(crate) fn decided_ports(&self) -> Vec<PortView> {
        let record = self.record();
        record.ports.iter().map(|rule| self.port_view(rule.port)).collect()
    }

    /// Adds what the outside sees of a port.
    pub(crate) fn dressed(&self, mut port: PortView) -> PortView {
        port.access = self.port_access(port.port);
        port.url = self.shared.config.domain.as_ref().map(|domain| domain.url(port.port, &self.record().name));
        port
    }
}

/// More than anybody means to open; a record is written at every change of state.
const MOST_PORTS: usize = 256;

impl Actor {
    /// Decides who may reach a port.
    pub(crate) async fn set_port(&mut self, port: u16, access: PortAccess) -> Result<(), HostError> {
        if self.record.phase.is_ending() {
            return Err(HostError::Terminated(Box::new(view(&self.record))));
        }
        let mut changed = self.record.clone();
        changed.ports = with_rule(&self.record.ports, port, access);
        if changed.ports.len() > MOST_PORTS {
            return Err(HostError::BadRequest(format!("at most {MOST_PORTS} ports can be opened or closed")));
        }
        let event = NewEvent { at: Timestamp::now(), kind: EventKind::Changed, reason: None, receipt: None };
        self.store(changed, Some(event), Durability::Process).await
    }
}

/// What the next record says of a port; `private` also makes worthless every link that was given before.
fn with_rule(rules: &[PortRule], port: u16, access: PortAccess) -> Vec<PortRule> {
    let before = rules.iter().find(|rule| rule.port == port).map_or(0, |rule| rule.links);
    let links = before + u64::from(access == PortAccess::Private);
    let others = rules.iter().filter(|rule| rule.port != port).copied();
    let mut rules: Vec<PortRule> = others.chain([PortRule { port, access, links }]).collect();
    rules.sort_by_key(|rule| rule.port);
    rules
}

impl Line {
    /// The way's number: another one leads to other processes.
    pub fn number(&self) -> u32 {
        self.slot
    }

    /// Whether what was sent now would wait for somebody to wake it.
    pub fn is_asleep(&self) -> bool {
        self.seen.borrow().phase != Phase::Active
    }

    /// Whether it fell asleep or ended since the way was told, also if it is awake again: connections may have been cut.
    pub fn was_left(&self) -> bool {
        self.seen.borrow().state_since != self.since
    }

    /// Has it awake, because something has been sent to it.
    pub async fn touched(&self) {
        if self.handle.record().phase != Phase::Active {
            // One that cannot be woken is noticed by whoever waits for it to be lost.
            drop(self.handle.wake_because("a connection to a port").await);
        }
    }

    /// Waits until what was reached is there no longer. When it falls asleep in RAM, where connections live on, it is woken
    /// if `wanted` says so.
    pub async fn lost(&mut self, wanted: impl Fn() -> bool) {
        loop {
            let record = self.seen.borrow_and_update().clone();
            let there = match record.phase {
                Phase::Suspended(Level::Disk | Level::Files) | Phase::Restoring | Phase::Moving { .. } => false,
                phase => !phase.is_ending() && record.slot == Some(self.slot),
            };
            if !there {
                return;
            }
            if record.phase == Phase::Suspended(Level::Ram) && wanted() {
                self.touched().await;
            }
            if self.seen.changed().await.is_err() {
                return;
            }
        }
    }
}

fn has_just_booted(record: &SandboxRecord) -> bool {
    let age = record.booted_at.map(|booted| Timestamp::now().duration_since(booted));
    age.and_then(|age| Duration::try_from(age).ok()).is_some_and(|age| age < BOOT_TIME)
}

fn refused(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::TimedOut)
}

/// Small writes go out at once, and a peer that vanished is noticed in the end; without either it works, too.
fn prepare(stream: &TcpStream) {
    let prepared = stream.set_nodelay(true).and_then(|()| {
        sockopt::set_socket_keepalive(stream, true)?;
        sockopt::set_tcp_keepidle(stream, KEEP_ALIVE)?;
        // A server may take as long as it likes to read.
        sockopt::set_tcp_user_timeout(stream, 0)?;
        Ok(())
    });
    if let Err(error) = prepared {
        tracing::debug!(%error, "a connection to a port goes on as it is");
    }
}

impl PortStream {
    /// A stream that leads inside, and what was read of it ahead.
    pub(crate) fn new(stream: TcpStream, ahead: Bytes) -> Self {
        prepare(&stream);
        Self { stream, ahead }
    }
}

impl AsyncRead for PortStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            let count = self.ahead.len().min(buf.remaining());
            buf.put_slice(&self.ahead[..count]);
            self.ahead.advance(count);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for PortStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn making_a_port_private_takes_its_links_back() {
        let rules = with_rule(&[], 3000, PortAccess::Public);
        assert_eq!(rules, [PortRule { port: 3000, access: PortAccess::Public, links: 0 }]);
        let rules = with_rule(&rules, 80, PortAccess::Private);
        let rules = with_rule(&rules, 3000, PortAccess::Private);
        assert_eq!(rules.iter().map(|rule| (rule.port, rule.links)).collect::<Vec<_>>(), [(80, 1), (3000, 1)]);
        assert_eq!(with_rule(&rules, 80, PortAccess::Public)[0].links, 1);
    }
}
