//! The network of a sandbox while it comes back from its image. Everything here acts on the network namespace that the
//! calling thread is in.
//!
//! ```text
//! hold(true)       -> CRIU makes the sockets anew, one after the other; what they send meanwhile is dropped
//! hold(false)      -> both ends of every connection inside are there; what was dropped is sent again
//! end_connections  -> those to the outside end
//! ```

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use roost_sys::process::{Cloned, Namespaces, clone_process};
use rustix::io::retry_on_intr;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use rustix::process::{WaitId, WaitIdOptions, waitid};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::protocol::Connection;
use super::root::ID_RANGE;

const PING_GROUPS: &str = "/proc/sys/net/ipv4/ping_group_range";

const REQUEST: u16 = 0x1;
const REQUEST_AND_ACKNOWLEDGE: u16 = REQUEST | 0x4;
const CREATE_OR_REPLACE: u16 = 0x400 | 0x100;
const HEADER: usize = 16;
const ERROR: u16 = 2;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const SOCK_DESTROY: u16 = 21;
/// The kernel's number for a socket that listens.
const LISTENS: u8 = 10;
const IPPROTO_TCP: u8 = 6;
const ANY: u32 = u32::MAX;

const NEW_QDISC: u16 = 36;
const DELETE_QDISC: u16 = 37;
const ROOT: u32 = u32::MAX;
/// In a new namespace the loopback is always the first device.
const LOOPBACK: i32 = 1;
const KIND: u16 = 1;
const OPTIONS: u16 = 2;

/// Everybody inside may ping, as on an ordinary system. Where the kernel has no such setting, root still can.
///
/// The kernel takes groups above its largest signed number only by their numbers in the user namespace `users`.
#[expect(clippy::exit, reason = "the copy has nothing to go back to")]
pub(super) fn allow_pings(first_group: u32, users: BorrowedFd<'_>) -> io::Result<()> {
    let write = |first: u32| fs::write(PING_GROUPS, format!("{first} {}", first + (ID_RANGE - 1))).ok();
    if i32::try_from(first_group).is_ok() {
        write(first_group);
        return Ok(());
    }
    // In a process of its own, because there is no way back to the host's users.
    match clone_process(Namespaces::NONE, None)? {
        Cloned::Child => {
            if move_into_link_name_space(users, Some(LinkNameSpaceType::User)).is_ok() {
                write(0);
            }
            std::process::exit(0)
        }
        Cloned::Parent { pidfd, .. } => {
            retry_on_intr(|| waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED))?;
            Ok(())
        }
    }
}

/// Keeps what half-restored sockets say from being answered: the other end may not be there yet, and the kernel would
/// say so with a reset. Meanwhile sockets may be bound to addresses that somebody had added and that are no more.
pub(super) fn hold(on: bool) -> io::Result<()> {
    for family in ["ipv4", "ipv6"] {
        // A kernel without one of them has no such sockets.
        fs::write(format!("/proc/sys/net/{family}/ip_nonlocal_bind"), if on { "1" } else { "0" }).ok();
    }
    // Without a protocol it is routing.
    let socket = open(None)?;
    request(&socket, &queue_message(on))
}

/// Ends TCP connections that came back although their other ends are outside; those that are not there are no failure.
///
/// The peer has long given up, or talks to the sandbox that this one is a copy of. The programs shall hear of it at once,
/// as of any broken connection, and not wait for an answer.
pub(super) fn end_connections(connections: &[Connection]) -> io::Result<()> {
    if connections.is_empty() {
        return Ok(());
    }
    let socket = open(Some(netlink::SOCK_DIAG))?;
    for connection in connections {
        // For a connection that is not there the kernel takes the socket that would accept it. That one must not end:
        // connections that nobody had accepted are not in the image.
        if state_of(&socket, connection)?.is_some_and(|state| state != LISTENS) {
            // Or it has just ended by itself.
            request(&socket, &diag_message(SOCK_DESTROY, REQUEST_AND_ACKNOWLEDGE, connection)).ok();
        }
    }
    Ok(())
}

fn open(protocol: Option<Protocol>) -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?)
}

/// The state of the socket that the kernel takes a connection for, if there is one.
fn state_of(socket: &OwnedFd, connection: &Connection) -> io::Result<Option<u8>> {
    send(socket, &diag_message(SOCK_DIAG_BY_FAMILY, REQUEST, connection), SendFlags::empty())?;
    // `nlmsghdr`, then `inet_diag_msg`, which begins with the family and the state, then attributes.
    let mut answer = [0; 4096];
    let (count, _) = recv(socket, &mut answer[..], RecvFlags::empty())?;
    let answer = answer.get(..count.min(answer.len())).unwrap_or_default();
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    Ok(answer.get(HEADER + 1).copied().filter(|_| kind == Some(SOCK_DIAG_BY_FAMILY)))
}

fn request(socket: &OwnedFd, message: &[u8]) -> io::Result<()> {
    send(socket, message, SendFlags::empty())?;
    let mut answer = [0; 256];
    let (count, _) = recv(socket, &mut answer[..], RecvFlags::empty())?;
    let answer = answer.get(..count.min(answer.len())).unwrap_or_default();
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    let code = answer.get(HEADER..HEADER + 4).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
    match (kind, code) {
        (Some(ERROR), Some(0)) => Ok(()),
        (Some(ERROR), Some(code)) => Err(io::Error::from_raw_os_error(-code)),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// `nlmsghdr` and a body.
fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    bytes.extend(u32::try_from(HEADER + body.len()).unwrap_or_default().to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend(body);
    bytes
}

/// A queue for the loopback that holds nothing, or its end: the loopback has none by itself.
fn queue_message(on: bool) -> Vec<u8> {
    // tcmsg: family and padding, device, handle, parent, info.
    let mut body = vec![0; 4];
    body.extend(LOOPBACK.to_ne_bytes());
    body.extend([0; 4]);
    body.extend(ROOT.to_ne_bytes());
    body.extend([0; 4]);
    if !on {
        return message(DELETE_QDISC, REQUEST_AND_ACKNOWLEDGE, &body);
    }
    let kind = *b"pfifo\0";
    body.extend((4 + u16::try_from(kind.len()).unwrap_or_default()).to_ne_bytes());
    body.extend(KIND.to_ne_bytes());
    body.extend(kind);
    // Padding to four bytes.
    body.extend([0; 2]);
    body.extend(8_u16.to_ne_bytes());
    body.extend(OPTIONS.to_ne_bytes());
    // The number of packets it may hold.
    body.extend(0_u32.to_ne_bytes());
    message(NEW_QDISC, REQUEST_AND_ACKNOWLEDGE | CREATE_OR_REPLACE, &body)
}

/// `inet_diag_req_v2`; addresses and ports in network order, all else in the machine's.
fn diag_message(kind: u16, flags: u16, connection: &Connection) -> Vec<u8> {
    let Connection { family, local, peer, local_port, peer_port } = connection;
    let mut body = vec![*family, IPPROTO_TCP, 0, 0];
    // Any state.
    body.extend(ANY.to_ne_bytes());
    body.extend(local_port.to_be_bytes());
    body.extend(peer_port.to_be_bytes());
    for address in [local, peer] {
        let mut padded = address.clone();
        padded.resize(16, 0);
        body.extend(padded);
    }
    body.extend([0; 4]);
    // Any cookie.
    body.extend(ANY.to_ne_bytes());
    body.extend(ANY.to_ne_bytes());
    message(kind, flags, &body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    fn alone<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        let thread = std::thread::spawn(|| {
            roost_sys::process::unshare(roost_sys::process::Namespaces::NET).unwrap();
            std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap();
            work()
        });
        thread.join().unwrap()
    }

    #[test]
    fn the_named_connection_ends_and_no_other() {
        alone(|| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let pair = || (TcpStream::connect(listener.local_addr().unwrap()).unwrap(), listener.accept().unwrap().0);
            let ((mut doomed, _far), (spared, _other)) = (pair(), pair());
            let connection = Connection {
                family: 2,
                local: vec![127, 0, 0, 1],
                peer: vec![127, 0, 0, 1],
                local_port: doomed.local_addr().unwrap().port(),
                peer_port: doomed.peer_addr().unwrap().port(),
            };
            let absent = Connection { peer_port: 1, ..connection.clone() };
            end_connections(&[absent, connection]).unwrap();
            assert_eq!(doomed.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
            assert!(spared.take_error().unwrap().is_none());
        });
    }

    #[test]
    fn a_listener_outlives_a_connection_that_nobody_had_accepted() {
        alone(|| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let gone = |family, ip: &[u8]| Connection {
                family,
                local: ip.to_vec(),
                peer: ip.to_vec(),
                local_port: address.port(),
                peer_port: 1,
            };
            let mapped = [&[0; 10][..], &[0xff, 0xff, 127, 0, 0, 1]].concat();
            end_connections(&[gone(2, &[127, 0, 0, 1]), gone(10, &mapped)]).unwrap();
            let _near = TcpStream::connect(address).unwrap();
            listener.accept().unwrap();
        });
    }

    #[test]
    fn what_is_sent_while_held_arrives_later() {
        alone(|| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let mut far = listener.accept().unwrap().0;
            hold(true).unwrap();
            near.write_all(b"x").unwrap();
            far.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            assert_eq!(far.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
            hold(false).unwrap();
            far.set_read_timeout(None).unwrap();
            assert_eq!(far.read(&mut [0]).unwrap(), 1);
        });
    }
}
