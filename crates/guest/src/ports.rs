//! TCP ports that something inside listens on, and connections to elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use roost_wire::ListeningPort;

/// States of a socket in the kernel's tables.
const ESTABLISHED: &str = "01";
const LISTEN: &str = "0A";

/// A row of the kernel's table.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    address: IpAddr,
    port: u16,
    remote: IpAddr,
    listens: bool,
    inode: u64,
}

/// Listening and connected sockets.
fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for table in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
        let text = fs::read_to_string(table).unwrap_or_default();
        rows.extend(text.lines().skip(1).filter_map(parse_row));
    }
    rows
}

/// How many ports are listened on, and how many connections lead elsewhere, without those of port `own`.
pub(crate) fn count(own: u16) -> (usize, usize) {
    count_rows(&rows(), own)
}

fn count_rows(rows: &[Row], own: u16) -> (usize, usize) {
    let listening: BTreeSet<u16> = rows.iter().filter(|row| row.listens).map(|row| row.port).collect();
    // A connection of a port that is listened on came from outside.
    let leads_away =
        |row: &&Row| !row.listens && !row.remote.to_canonical().is_loopback() && !listening.contains(&row.port);
    (listening.iter().filter(|port| **port != own).count(), rows.iter().filter(leads_away).count())
}

/// Listening ports in order, without `own`; with their processes if asked for, which means a walk through `/proc`.
pub(crate) fn listening(own: u16, processes: bool) -> Vec<ListeningPort> {
    let mut rows = rows();
    rows.retain(|row| row.listens && row.port != own);
    let owners = if processes && !rows.is_empty() { socket_owners() } else { BTreeMap::new() };
    let mut ports: Vec<ListeningPort> = rows
        .into_iter()
        .map(|row| {
            let pid = owners.get(&row.inode).copied();
            let process = pid.and_then(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).ok());
            ListeningPort {
                port: row.port,
                address: row.address.to_string(),
                pid,
                process: process.map(|name| name.trim_end().to_owned()),
            }
        })
        .collect();
    ports.sort_by(|a, b| (a.port, &a.address).cmp(&(b.port, &b.address)));
    ports.dedup();
    ports
}

fn parse_row(line: &str) -> Option<Row> {
    let mut fields = line.split_ascii_whitespace();
    let (_slot, local, remote, state) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    if state != LISTEN && state != ESTABLISHED {
        return None;
    }
    let (address, port) = local.split_once(':')?;
    let (remote, _) = remote.split_once(':')?;
    Some(Row {
        address: parse_address(address)?,
        port: u16::from_str_radix(port, 16).ok()?,
        remote: parse_address(remote)?,
        listens: state == LISTEN,
        inode: fields.nth(5)?.parse().ok()?,
    })
}

/// Addresses are printed as words of the machine's own byte order.
fn parse_address(text: &str) -> Option<IpAddr> {
    let word = |at: usize| u32::from_str_radix(text.get(at * 8..at * 8 + 8)?, 16).ok().map(u32::to_ne_bytes);
    match text.len() {
        8 => Some(IpAddr::V4(Ipv4Addr::from(word(0)?))),
        32 => {
            let mut bytes = [0; 16];
            for (index, place) in bytes.chunks_exact_mut(4).enumerate() {
                place.copy_from_slice(&word(index)?);
            }
            Some(IpAddr::V6(Ipv6Addr::from(bytes)))
        }
        _ => None,
    }
}

/// Which process has which socket, by its inode.
fn socket_owners() -> BTreeMap<u64, i32> {
    let mut owners = BTreeMap::new();
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
        for fd in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            let Ok(target) = fs::read_link(fd.path()) else { continue };
            let inode = target.to_str().and_then(|name| name.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
            if let Some(inode) = inode {
                owners.entry(inode).or_insert(pid);
            }
        }
    }
    owners
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_both_tables() {
        let v4 = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4242 1 0 100 0 0 10 0";
        assert_eq!(
            parse_row(v4),
            Some(Row { address: [127, 0, 0, 1].into(), port: 8080, remote: [0; 4].into(), listens: true, inode: 4242 })
        );
        let v6 =
            "   1: 00000000000000000000000001000000:0016 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 7 1";
        assert_eq!(
            parse_row(v6),
            Some(Row {
                address: Ipv6Addr::LOCALHOST.into(),
                port: 22,
                remote: [0; 16].into(),
                listens: true,
                inode: 7
            })
        );
        let established = parse_row(&v4.replace(" 0A ", " 01 ")).unwrap();
        assert!(!established.listens);
        assert_eq!(parse_row(&v4.replace(" 0A ", " 06 ")), None);
        assert_eq!(parse_row("nonsense"), None);
        assert_eq!(parse_row("0: zz:1 x 0A a b c d e f"), None);
    }

    #[test]
    fn connections_to_elsewhere_are_told_from_others() {
        let row = |port, remote: &str, listens| Row {
            address: Ipv4Addr::LOCALHOST.into(),
            port,
            remote: remote.parse().unwrap(),
            listens,
            inode: 1,
        };
        let rows = [
            row(14, "0.0.0.0", true),
            row(80, "0.0.0.0", true),
            row(80, "::", true),
            // From the host, from a client, to itself twice, and two to elsewhere.
            row(14, "10.0.0.1", false),
            row(80, "10.0.0.1", false),
            row(40_000, "127.0.0.1", false),
            row(40_001, "::ffff:127.0.0.1", false),
            row(40_002, "192.0.2.7", false),
            row(40_003, "2001:db8::7", false),
        ];
        assert_eq!(count_rows(&rows, 14), (1, 2));
    }
}
