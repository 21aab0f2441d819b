//! Sockets whose queues are filled and never read. The kernel charges the data in them to no control group.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, netlink, sendto};

/// With the usual buffer of 208 KiB these hold some 800 MiB, more than an attacker's memory and less than most hosts have.
pub(crate) const SOCKETS: u64 = 4000;
/// No queue takes more messages of [`SIZE`] than this.
const MESSAGES: usize = 64;
const SIZE: usize = 32 << 10;
const PATIENCE: Duration = Duration::from_secs(10);

/// A socket of the family that configures networks, full of unread answers. Each answer to a wrong request contains it.
pub(crate) fn netlink() -> io::Result<OwnedFd> {
    let socket = rustix::net::socket(AddressFamily::NETLINK, SocketType::RAW, None)?;
    let mut request = vec![0_u8; SIZE];
    let header = [(SIZE as u32).to_ne_bytes(), 0x0001_ffff_u32.to_ne_bytes()].concat();
    request[..header.len()].copy_from_slice(&header);
    let kernel = netlink::SocketAddrNetlink::new(0, 0);
    for _ in 0..MESSAGES {
        match sendto(&socket, &request, SendFlags::DONTWAIT, &kernel) {
            Ok(_) => {}
            // The queue is full.
            Err(rustix::io::Errno::NOBUFS | rustix::io::Errno::AGAIN) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(socket)
}

/// A socket of the kind that `ping` uses, full of unread echoes of this machine.
pub(crate) fn ping() -> io::Result<OwnedFd> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, Some(ipproto::ICMP))?;
    let mut echo = vec![0_u8; SIZE];
    echo[0] = 8;
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    for _ in 0..MESSAGES {
        if sendto(&socket, &echo, SendFlags::DONTWAIT, &to).is_err() {
            break;
        }
    }
    Ok(socket)
}

/// A socket full of unread datagrams that it sent to itself.
pub(crate) fn datagrams() -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_nonblocking(true)?;
    let to = socket.local_addr()?;
    for _ in 0..MESSAGES {
        if socket.send_to(&[0; SIZE], to).is_err() {
            break;
        }
    }
    Ok(socket)
}

/// Sends a datagram to a socket of this process, and reads it.
pub(crate) fn exchange() -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.send_to(b"x", socket.local_addr()?)?;
    socket.recv(&mut [0; 1]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_filled() {
        let mut one = [0_u8; 64];
        let socket = netlink().unwrap();
        let mut receive = || rustix::net::recv(&socket, &mut one, rustix::net::RecvFlags::DONTWAIT);
        // The kernel first reports that the queue was full.
        let (length, _) = receive().or_else(|_| receive()).unwrap();
        assert_eq!(length, one.len());
        assert_eq!(datagrams().unwrap().recv(&mut one).unwrap_or(SIZE), SIZE.min(one.len()));
        exchange().unwrap();
    }
}
