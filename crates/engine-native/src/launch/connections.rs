//! Ends TCP connections that came back with a sandbox although their other ends are outside.
//!
//! The peer has long given up, or talks to the sandbox that this one is a copy of. The programs shall hear of it at once, as
//! of any broken connection, and not wait for an answer.

use std::io;
use std::os::fd::BorrowedFd;

use roost_sys::netns;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with};

use super::protocol::Connection;

const SOCK_DESTROY: u16 = 21;
const REQUEST_AND_ACKNOWLEDGE: u16 = 0x1 | 0x4;
const IPPROTO_TCP: u8 = 6;
const ANY_STATE: u32 = u32::MAX;
const ANY_COOKIE: u32 = u32::MAX;
const MESSAGE: usize = 72;

/// Ends them in the network namespace behind `target`; returns to `home`. Those that are not there are no failure.
pub(super) fn end(home: BorrowedFd<'_>, target: BorrowedFd<'_>, connections: &[Connection]) -> io::Result<()> {
    if connections.is_empty() {
        return Ok(());
    }
    netns::visit(home, target, || {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(netlink::SOCK_DIAG))?;
        for connection in connections {
            send(&socket, &message(connection), SendFlags::empty())?;
            // The acknowledgement, or that there is none of the kind.
            recv(&socket, &mut [0; 128][..], RecvFlags::empty())?;
        }
        Ok(())
    })?
}

/// `nlmsghdr` and `inet_diag_req_v2`; addresses and ports in network order, all else in the machine's.
fn message(connection: &Connection) -> Vec<u8> {
    let Connection { family, local, peer, local_port, peer_port } = connection;
    let mut bytes = Vec::with_capacity(MESSAGE);
    bytes.extend(u32::try_from(MESSAGE).unwrap_or_default().to_ne_bytes());
    bytes.extend(SOCK_DESTROY.to_ne_bytes());
    bytes.extend(REQUEST_AND_ACKNOWLEDGE.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([*family, IPPROTO_TCP, 0, 0]);
    bytes.extend(ANY_STATE.to_ne_bytes());
    bytes.extend(local_port.to_be_bytes());
    bytes.extend(peer_port.to_be_bytes());
    for address in [local, peer] {
        let mut padded = address.clone();
        padded.resize(16, 0);
        bytes.extend(padded);
    }
    bytes.extend([0; 4]);
    bytes.extend(ANY_COOKIE.to_ne_bytes());
    bytes.extend(ANY_COOKIE.to_ne_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    #[test]
    fn the_named_connection_ends_and_no_other() {
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
        // In a thread of its own: it changes its network namespace, if only to the same one.
        let ended = std::thread::spawn(move || {
            let here = std::fs::File::open("/proc/thread-self/ns/net").unwrap();
            end(here.as_fd(), here.as_fd(), &[absent, connection])
        });
        ended.join().unwrap().unwrap();
        assert_eq!(doomed.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
        assert!(spared.take_error().unwrap().is_none());
    }
}
