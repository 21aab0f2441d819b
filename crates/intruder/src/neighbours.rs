//! The table of neighbours, which one host has for all of its network namespaces.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketType, netdevice, netlink};

use crate::take::{Taken, gather};

/// More than the table of any host holds.
const MOST: u32 = 70_000;
const NEW_NEIGHBOUR: u16 = 28;
/// A request that is answered, and that makes the entry.
const FLAGS: u16 = 0x1 | 0x4 | 0x400;
const STALE: u16 = 0x04;
const DESTINATION: u16 = 1;
const LINK_ADDRESS: u16 = 2;

/// Adds entries to the table until it is full or the kernel refuses.
pub(crate) fn fill() -> io::Result<Taken> {
    // Protocol 0 is that of routes and neighbours.
    let socket = rustix::net::socket(AddressFamily::NETLINK, SocketType::RAW, None)?;
    let device = device(&socket)?;
    Ok(gather(u64::from(MOST), |number| add(&socket, device, number as u32)))
}

/// The first device beside the loopback, or the loopback.
fn device(socket: &OwnedFd) -> io::Result<u32> {
    let table = std::fs::read_to_string("/proc/net/dev")?;
    let name =
        table.lines().skip(2).filter_map(|line| line.split(':').next()).map(str::trim).find(|name| *name != "lo");
    Ok(netdevice::name_to_index(socket, name.unwrap_or("lo"))?)
}

fn add(socket: &OwnedFd, device: u32, number: u32) -> io::Result<()> {
    let message = message(device, number);
    let kernel = netlink::SocketAddrNetlink::new(0, 0);
    rustix::net::sendto(socket, &message, rustix::net::SendFlags::empty(), &kernel)?;
    let mut answer = [0_u8; 256];
    let (length, _) = rustix::net::recv(socket, &mut answer, rustix::net::RecvFlags::empty())?;
    // An acknowledgement is an error of 0 behind the header.
    let code = answer.get(16..20).filter(|_| length >= 20).and_then(|bytes| bytes.try_into().ok());
    match code.map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(-code)),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn message(device: u32, number: u32) -> Vec<u8> {
    let address = Ipv4Addr::from(0x0a80_0000 + number);
    let mut bytes = Vec::with_capacity(48);
    bytes.extend(48_u32.to_ne_bytes());
    bytes.extend(NEW_NEIGHBOUR.to_ne_bytes());
    bytes.extend(FLAGS.to_ne_bytes());
    bytes.extend(number.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend([2, 0, 0, 0]);
    bytes.extend(device.to_ne_bytes());
    bytes.extend(STALE.to_ne_bytes());
    bytes.extend([0, 1]);
    bytes.extend(8_u16.to_ne_bytes());
    bytes.extend(DESTINATION.to_ne_bytes());
    bytes.extend(address.octets());
    bytes.extend(10_u16.to_ne_bytes());
    bytes.extend(LINK_ADDRESS.to_ne_bytes());
    bytes.extend([2, 0, 0, 0, 0, 1, 0, 0]);
    bytes
}

/// Sends a datagram to the gateway, for which the kernel needs an entry of the table.
pub(crate) fn reach_gateway() -> io::Result<()> {
    let routes = std::fs::read_to_string("/proc/net/route")?;
    let Some(gateway) = gateway(&routes) else { return Err(io::ErrorKind::NetworkUnreachable.into()) };
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.send_to(b"x", (gateway, 9)).map(drop)
}

/// The gateway of the default route, from the kernel's table.
fn gateway(routes: &str) -> Option<Ipv4Addr> {
    let fields = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let default = routes.lines().skip(1).map(fields).find(|row| row.get(1).is_some_and(|to| to == "00000000"))?;
    let number = u32::from_str_radix(default.get(2)?, 16).ok()?;
    Some(Ipv4Addr::from(number.to_ne_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_has_the_length_that_it_states() {
        let message = message(1, 7);
        assert_eq!(message.len(), 48);
        assert_eq!(&message[32..36], [10, 128, 0, 7]);
    }

    #[test]
    fn gateway_is_read_from_the_table_of_routes() {
        let table = "Iface\tDestination\tGateway\neth0\t00000000\t01FEA8C0\t0003\n";
        assert_eq!(gateway(table), Some(Ipv4Addr::new(192, 168, 254, 1)));
        assert_eq!(gateway("Iface\n"), None);
    }
}
