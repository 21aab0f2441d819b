//! Connections to elsewhere and when they were last talked on, from the kernel's own table of sockets.
//!
//! The kernel is asked over a netlink socket (`sock_diag`), because `/proc` does not tell how long ago something was sent or
//! received. Where it does not answer there are no talks to tell of.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use roost_wire::{Activity, Talk};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const REQUEST_DUMP: u16 = 0x301;
const NETLINK_HEADER: usize = 16;
/// `struct inet_diag_msg` and `struct inet_diag_req_v2`.
const MESSAGE: usize = 72;
const QUESTION: usize = 56;
const IPPROTO_TCP: u8 = 6;
const INET_DIAG_INFO: u16 = 2;
/// Where `struct tcp_info` has the milliseconds since data was last sent, received and acknowledged, and the bytes received.
const LAST_DATA_SENT: usize = 44;
const LAST_DATA_RECEIVED: usize = 52;
const LAST_ACK_RECEIVED: usize = 56;
const BYTES_RECEIVED: usize = 128;

const ESTABLISHED: u8 = 1;
const SYN_SENT: u8 = 2;
const LISTEN: u8 = 10;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// A socket as the kernel tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Socket {
    state: u8,
    port: u16,
    peer: SocketAddr,
    said_ms: u32,
    heard_ms: u32,
    acked_ms: u32,
    received: bool,
}

impl Socket {
    /// Whether the last word was ours.
    ///
    /// The kernel's clock ticks every few milliseconds, and a question often follows what was heard within one tick: the
    /// handshake, mostly. Then nothing has come since if nothing ever came, or if the question was acknowledged later.
    fn owed(&self) -> bool {
        match self.said_ms.cmp(&self.heard_ms) {
            Ordering::Less => true,
            Ordering::Equal => !self.received || self.acked_ms < self.heard_ms,
            Ordering::Greater => false,
        }
    }
}

/// The connections to elsewhere that were talked on last.
pub(crate) fn talks() -> Vec<Talk> {
    let mut sockets = Vec::new();
    for family in [AF_INET, AF_INET6] {
        // A kernel without this table has nothing to tell.
        sockets.extend(ask(family).unwrap_or_default());
    }
    outbound(&sockets)
}

fn outbound(sockets: &[Socket]) -> Vec<Talk> {
    let listening: BTreeSet<u16> = sockets.iter().filter(|one| one.state == LISTEN).map(|one| one.port).collect();
    let mut leading_away: Vec<&Socket> = sockets
        .iter()
        // A connection of a port that is listened on came from outside.
        .filter(|one| one.state != LISTEN && !listening.contains(&one.port))
        .filter(|one| !one.peer.ip().to_canonical().is_loopback())
        .collect();
    leading_away.sort_by_key(|one| one.said_ms.min(one.heard_ms));
    let talk = |one: &Socket| Talk {
        peer: SocketAddr::new(one.peer.ip().to_canonical(), one.peer.port()).to_string(),
        said_ms: one.said_ms.into(),
        heard_ms: one.heard_ms.into(),
        connecting: one.state == SYN_SENT,
        owed: one.owed(),
    };
    leading_away.into_iter().take(Activity::MOST_TALKS).map(talk).collect()
}

fn ask(family: u8) -> Result<Vec<Socket>, Errno> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(netlink::SOCK_DIAG))?;
    rustix::net::send(&socket, &question(family), SendFlags::empty())?;
    let mut sockets = Vec::new();
    let mut buffer = vec![0; 32 * 1024];
    loop {
        let length = match rustix::net::recv(&socket, &mut buffer[..], RecvFlags::empty()) {
            Ok((length, _)) => length,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error),
        };
        if !read_messages(buffer.get(..length).unwrap_or_default(), &mut sockets) {
            return Ok(sockets);
        }
    }
}

fn question(family: u8) -> Vec<u8> {
    let states: u32 = 1 << ESTABLISHED | 1 << SYN_SENT | 1 << LISTEN;
    let mut message = Vec::with_capacity(NETLINK_HEADER + QUESTION);
    message.extend(u32::try_from(NETLINK_HEADER + QUESTION).unwrap_or_default().to_ne_bytes());
    message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend(REQUEST_DUMP.to_ne_bytes());
    // Sequence number and sender: one question, one answer.
    message.extend([0; 8]);
    message.extend([family, IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), 0]);
    message.extend(states.to_ne_bytes());
    message.resize(NETLINK_HEADER + QUESTION, 0);
    message
}

/// Reads what came in one piece; says whether more is to come.
fn read_messages(mut bytes: &[u8], sockets: &mut Vec<Socket>) -> bool {
    while let (Some(length), Some(kind)) = (word(bytes, 0), half(bytes, 4)) {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if kind == NLMSG_DONE || kind == NLMSG_ERROR || length < NETLINK_HEADER {
            return false;
        }
        sockets.extend(bytes.get(NETLINK_HEADER..length).and_then(read_socket));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    true
}

fn read_socket(bytes: &[u8]) -> Option<Socket> {
    let (family, state) = (*bytes.first()?, *bytes.get(1)?);
    let port = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    let peer: IpAddr = match family {
        AF_INET => <[u8; 4]>::try_from(bytes.get(24..28)?).ok().map(Ipv4Addr::from)?.into(),
        AF_INET6 => <[u8; 16]>::try_from(bytes.get(24..40)?).ok().map(Ipv6Addr::from)?.into(),
        _ => return None,
    };
    let info = attribute(bytes.get(MESSAGE..)?, INET_DIAG_INFO);
    let age = |at: usize| info.and_then(|info| word(info, at)).unwrap_or(u32::MAX);
    Some(Socket {
        state,
        port: port(4)?,
        peer: SocketAddr::new(peer, port(6)?),
        said_ms: age(LAST_DATA_SENT),
        heard_ms: age(LAST_DATA_RECEIVED),
        acked_ms: age(LAST_ACK_RECEIVED),
        // Kernels before 4.1 do not count; they are taken to have heard something.
        received: info
            .and_then(|info| info.get(BYTES_RECEIVED..BYTES_RECEIVED + 8))
            .is_none_or(|bytes| bytes != [0; 8]),
    })
}

fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    while let (Some(length), Some(kind)) = (half(bytes, 0), half(bytes, 2)) {
        let length = usize::from(length);
        if length < 4 {
            return None;
        }
        if kind == wanted {
            return bytes.get(4..length);
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    None
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;

    fn socket(state: u8, port: u16, peer: &str, said_ms: u32, heard_ms: u32) -> Socket {
        Socket { state, port, peer: peer.parse().unwrap(), said_ms, heard_ms, acked_ms: said_ms, received: true }
    }

    #[test]
    fn only_what_leads_away_is_told_newest_first() {
        let sockets = [
            socket(LISTEN, 80, "0.0.0.0:0", 0, 0),
            socket(ESTABLISHED, 80, "192.0.2.1:5000", 1, 1),
            socket(ESTABLISHED, 40_000, "127.0.0.1:80", 1, 1),
            socket(ESTABLISHED, 40_001, "[::ffff:127.0.0.1]:80", 1, 1),
            socket(ESTABLISHED, 40_002, "[::ffff:192.0.2.7]:443", 900, 800),
            socket(SYN_SENT, 40_003, "192.0.2.8:443", 20, u32::MAX),
        ];
        let found = outbound(&sockets);
        assert_eq!(found.iter().map(|talk| talk.peer.as_str()).collect::<Vec<_>>(), ["192.0.2.8:443", "192.0.2.7:443"]);
        assert!(found[0].connecting && !found[1].connecting);
        assert_eq!((found[1].said_ms, found[1].heard_ms), (900, 800));
    }

    #[test]
    fn within_a_tick_the_acknowledgement_tells() {
        let same =
            |acked_ms, received| Socket { acked_ms, received, ..socket(ESTABLISHED, 1, "192.0.2.7:443", 40, 40) };
        assert!(same(40, false).owed(), "nothing ever came");
        assert!(same(20, true).owed(), "the question was acknowledged after the last answer came");
        assert!(!same(40, true).owed(), "the answer came at once");
        assert!(socket(ESTABLISHED, 1, "192.0.2.7:443", 39, 40).owed());
        assert!(!socket(ESTABLISHED, 1, "192.0.2.7:443", 41, 40).owed());
    }

    #[test]
    fn the_kernel_tells_who_had_the_last_word() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let (port, peer) = (client.local_addr().unwrap().port(), listener.local_addr().unwrap());
        let mine = || ask(AF_INET).unwrap().into_iter().find(|one| one.port == port && one.peer == peer).unwrap();
        // Farther apart than the kernel's own clock ticks.
        let tick = || std::thread::sleep(Duration::from_millis(30));
        tick();
        client.write_all(b"question").unwrap();
        server.read_exact(&mut [0; 8]).unwrap();
        tick();
        let asked = mine();
        assert!(asked.owed() && !asked.received, "{asked:?}");
        server.write_all(b"answer").unwrap();
        client.read_exact(&mut [0; 6]).unwrap();
        let answered = mine();
        assert!(!answered.owed() && answered.received, "{answered:?}");
        assert_eq!(answered.state, ESTABLISHED);
        tick();
        client.write_all(b"question").unwrap();
        let again = mine();
        assert!(again.owed(), "{again:?}");
    }

    #[test]
    fn nonsense_ends_the_reading() {
        let mut sockets = Vec::new();
        assert!(!read_messages(&[0; 32], &mut sockets));
        assert!(read_messages(&[1, 2], &mut sockets));
        assert!(sockets.is_empty());
        assert_eq!(read_socket(&[AF_INET, ESTABLISHED]), None);
        assert_eq!(attribute(&[2, 0, 2, 0], 2), None);
    }
}
