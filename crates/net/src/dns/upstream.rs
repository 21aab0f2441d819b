//! The resolvers that are asked, from the host's network, one after the other.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use tokio::net::{TcpStream, UdpSocket};

use super::packet::{self, MAX_MESSAGE};
use super::{PORT, read_message, write_message};
use crate::config::Resolvers;

const RESOLV_CONF: &str = "/etc/resolv.conf";
/// How often to look whether the file changed.
const RECHECK: Duration = Duration::from_secs(1);
/// How long one resolver may take; a client's own patience is about five seconds.
const PATIENCE: Duration = Duration::from_secs(2);
/// What the C library assumes when the file names none.
const DEFAULT: Resolver = Resolver { address: IpAddr::V4(Ipv4Addr::LOCALHOST), zone: None };

#[derive(Debug)]
pub(super) struct Upstream {
    source: Source,
}

#[derive(Debug)]
enum Source {
    Fixed(Vec<SocketAddr>),
    File(Mutex<Cached>),
}

#[derive(Debug, Default)]
struct Cached {
    checked: Option<Instant>,
    modified: Option<SystemTime>,
    resolvers: Vec<Resolver>,
}

/// A resolver as the file names it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Resolver {
    address: IpAddr,
    /// The link of a link-local address: its name, or its index.
    zone: Option<String>,
}

impl Resolver {
    fn parse(word: &str) -> Option<Self> {
        let (address, zone) = match word.split_once('%') {
            Some((address, zone)) => (IpAddr::V6(address.parse().ok()?), Some(zone.to_owned())),
            None => (word.parse().ok()?, None),
        };
        Some(Self { address, zone })
    }

    /// Where to ask now: a link that is made anew gets another index. `None` if the link is missing.
    fn socket_address(&self) -> Option<SocketAddr> {
        let (IpAddr::V6(address), Some(zone)) = (self.address, &self.zone) else {
            return Some(SocketAddr::new(self.address, PORT));
        };
        let index = zone.parse().ok().or_else(|| link_index(zone))?;
        Some(SocketAddrV6::new(address, PORT, 0, index).into())
    }
}

fn link_index(name: &str) -> Option<u32> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None).ok()?;
    rustix::net::netdevice::name_to_index(socket, name).ok()
}

impl Upstream {
    pub(super) fn new(resolvers: Resolvers) -> Self {
        let source = match resolvers {
            Resolvers::System => Source::File(Mutex::default()),
            Resolvers::Fixed(list) => Source::Fixed(list),
        };
        Self { source }
    }

    /// The first answer of any resolver; `None` if none answers.
    pub(super) async fn ask_udp(&self, query: &[u8]) -> Option<Vec<u8>> {
        for resolver in self.resolvers() {
            if let Ok(Ok(answer)) = tokio::time::timeout(PATIENCE, by_udp(resolver, query)).await {
                return Some(answer);
            }
            tracing::debug!(%resolver, "no DNS answer");
        }
        None
    }

    /// The same for a client that came by TCP and so can take a long answer.
    pub(super) async fn ask_tcp(&self, query: &[u8]) -> Option<Vec<u8>> {
        for resolver in self.resolvers() {
            if let Ok(Ok(answer)) = tokio::time::timeout(PATIENCE, by_tcp(resolver, query)).await {
                return Some(answer);
            }
            tracing::debug!(%resolver, "no DNS answer by TCP");
        }
        None
    }

    fn resolvers(&self) -> Vec<SocketAddr> {
        match &self.source {
            Source::Fixed(list) => list.clone(),
            Source::File(cached) => {
                let mut cached = cached.lock().unwrap_or_else(PoisonError::into_inner);
                cached.refresh(Path::new(RESOLV_CONF), Instant::now());
                cached.resolvers.iter().filter_map(Resolver::socket_address).collect()
            }
        }
    }
}

impl Cached {
    fn refresh(&mut self, path: &Path, now: Instant) {
        if self.checked.is_some_and(|checked| now.duration_since(checked) < RECHECK) {
            return;
        }
        let modified = std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
        if self.checked.is_none() || modified != self.modified {
            self.resolvers = parse(&std::fs::read_to_string(path).unwrap_or_default());
        }
        self.modified = modified;
        self.checked = Some(now);
    }
}

/// The `nameserver` lines; lines without an address are passed over.
fn parse(text: &str) -> Vec<Resolver> {
    let mut resolvers: Vec<_> = text
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            (words.next() == Some("nameserver")).then(|| words.next()).flatten()
        })
        .filter_map(Resolver::parse)
        .collect();
    if resolvers.is_empty() {
        resolvers.push(DEFAULT);
    }
    resolvers
}

/// Asks on a socket of its own, so that the port is one that nobody can foresee.
async fn by_udp(resolver: SocketAddr, query: &[u8]) -> io::Result<Vec<u8>> {
    let any = match resolver {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(resolver).await?;
    socket.send(query).await?;
    let mut answer = Vec::with_capacity(MAX_MESSAGE);
    loop {
        answer.clear();
        socket.recv_buf(&mut answer).await?;
        if packet::answers(&answer, query) {
            return Ok(answer);
        }
    }
}

async fn by_tcp(resolver: SocketAddr, query: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(resolver).await?;
    write_message(&mut stream, query).await?;
    let answer = read_message(&mut stream).await?;
    if packet::answers(&answer, query) {
        return Ok(answer);
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "an answer to something else"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nameserver_lines_are_read() {
        let text = "# nameserver 1.1.1.1\nsearch lan\nnameserver 127.0.0.53\n\
                    nameserver\tfd00::1 # second\nnameserver fe80::1%eth0\nnameserver\nnameserver 1.1.1.1%lo\n";
        let found = parse(text);
        assert_eq!(found[..2], ["127.0.0.53", "fd00::1"].map(resolver));
        assert_eq!(found[2], Resolver { address: "fe80::1".parse().unwrap(), zone: Some("eth0".to_owned()) });
        assert_eq!(found.len(), 3);
        assert_eq!(parse("search lan"), [DEFAULT]);
    }

    fn resolver(address: &str) -> Resolver {
        Resolver { address: address.parse().unwrap(), zone: None }
    }

    #[test]
    fn zone_of_a_link_local_resolver_becomes_the_index_of_the_link() {
        let at = |word| Resolver::parse(word).unwrap().socket_address();
        // The loopback is the first link of each namespace.
        assert_eq!(at("fe80::1%lo"), Some(SocketAddrV6::new("fe80::1".parse().unwrap(), PORT, 0, 1).into()));
        assert_eq!(at("fe80::1%7"), Some(SocketAddrV6::new("fe80::1".parse().unwrap(), PORT, 0, 7).into()));
        assert_eq!(at("fe80::1%no-such-link"), None);
        assert_eq!(at("192.0.2.1"), Some("192.0.2.1:53".parse().unwrap()));
    }

    #[test]
    fn a_changed_file_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("resolv.conf");
        let write = |text: &str, second: u64| {
            std::fs::write(&path, text).unwrap();
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(second)).unwrap();
        };
        let mut cached = Cached::default();
        let start = Instant::now();

        write("nameserver 192.0.2.1", 1);
        cached.refresh(&path, start);
        assert_eq!(cached.resolvers, [resolver("192.0.2.1")]);

        write("nameserver 192.0.2.2", 2);
        cached.refresh(&path, start + RECHECK / 2);
        assert_eq!(cached.resolvers, [resolver("192.0.2.1")]);
        cached.refresh(&path, start + RECHECK);
        assert_eq!(cached.resolvers, [resolver("192.0.2.2")]);

        std::fs::remove_file(&path).unwrap();
        cached.refresh(&path, start + RECHECK * 2);
        assert_eq!(cached.resolvers, [DEFAULT]);
    }
}
