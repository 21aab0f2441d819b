//! What is in a frozen sandbox: its processes, and what of them will not outlive a restore.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use roost_model::{NotKept, SavedProcess};
use roost_sys::cgroup::Group;
use roost_sys::process::innermost_pid;

use super::settle::{Nameless, leave_vfork, nameless_files};
use super::watches::watched_paths;
use crate::launch::{Connection, WatchedPath, is_ending};

/// The kernel's number for an established connection.
const ESTABLISHED: &str = "01";
/// The other side has said that it sends no more, and waits for as much from here.
const CLOSED_BY_PEER: &str = "08";
const LINKED: &str = "it keeps a file open whose name is gone while another name of it is left";
const REMOVED: &str = "a file in /run/roost that is shown in /proc was removed, which only a restart makes again";
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// What is in a frozen sandbox.
#[derive(Debug)]
pub(crate) struct Contents {
    /// The first process, as the host numbers it.
    pub(crate) first: u32,
    /// All of them: the host's number, and what is saved.
    pub(crate) processes: Vec<(u32, SavedProcess)>,
    /// What is watched on the root.
    pub(crate) watched: Vec<WatchedPath>,
    /// Whether files of the template are open that have no name in the sandbox any more.
    pub(crate) nameless: bool,
    /// Bytes of deleted files on the root that are open or mapped: an image gets a copy of each.
    pub(crate) deleted: u64,
    /// Bytes of memory of the processes' own. Memory that processes share since a fork counts for each, as CRIU writes it.
    pub(crate) private: u64,
}

/// What a look at a sandbox gives.
#[derive(Debug)]
pub(crate) enum Look {
    /// It is not there, or not frozen.
    Gone,
    /// A process that cannot be saved, and why.
    Obstacle(SavedProcess, &'static str),
    /// It can be saved, as far as can be seen from here.
    Ready(Contents),
}

impl Look {
    /// Looks at a frozen group and brings it to a point at which it can be saved.
    pub(crate) fn at(group: &Group) -> io::Result<Self> {
        if !group.exists() || !group.is_frozen().map_err(io::Error::other)? {
            return Ok(Self::Gone);
        }
        if let Some(process) = leave_vfork(group)? {
            return Ok(Self::Obstacle(process, "it keeps waiting for children that it started by vfork"));
        }
        let (mut processes, mut private) = (Vec::new(), 0_u64);
        for host in group.pids().map_err(io::Error::other)? {
            // Gone meanwhile: a frozen process can still be killed.
            let Some(process) = saved_process(host) else { continue };
            let status = fs::read_to_string(format!("/proc/{host}/status")).unwrap_or_default();
            if is_traced(&status) {
                return Ok(Self::Obstacle(process, "a debugger is attached to it"));
            }
            private = private.saturating_add(private_memory(&status));
            processes.push((host, process));
        }
        processes.sort_by_key(|(_, process)| process.pid);
        let Some(first) = processes.iter().find(|(_, process)| process.pid == 1).map(|(host, _)| *host) else {
            return Ok(Self::Gone);
        };
        if is_ending(first) {
            return Ok(Self::Gone);
        }
        if shows_removed_file(&fs::read_to_string(format!("/proc/{first}/mountinfo")).unwrap_or_default())
            && let Some(process) = saved_process(first)
        {
            return Ok(Self::Obstacle(process, REMOVED));
        }
        let (nameless, deleted) = nameless_files(first, processes.iter().map(|(host, _)| *host))?;
        if let Nameless::Linked(pid) = nameless
            && let Some(process) = saved_process(pid)
        {
            return Ok(Self::Obstacle(process, LINKED));
        }
        let watched = watched_paths(first, processes.iter().map(|(host, _)| *host))?;
        Ok(Self::Ready(Contents { first, processes, watched, nameless: nameless != Nameless::None, deleted, private }))
    }
}

/// The process with this number on the host, as the sandbox knows it.
pub(super) fn saved_process(host: u32) -> Option<SavedProcess> {
    let pid = innermost_pid(host).ok().flatten()?;
    let name = fs::read_to_string(format!("/proc/{host}/comm")).unwrap_or_default();
    Some(SavedProcess { pid, name: name.trim_end().to_owned() })
}

/// Whether a file of the sandbox's own memory is mounted somewhere and has no name any more. CRIU would save it, but a restore
/// finds no folder for it, or lets no process read it.
fn shows_removed_file(mounts: &str) -> bool {
    mounts.lines().any(|line| {
        let root = line.split(' ').nth(3);
        root.is_some_and(|root| root.ends_with("//deleted")) && line.contains(" - tmpfs ")
    })
}

/// Whether a debugger is attached to the process of which this is the `/proc/PID/status`.
fn is_traced(status: &str) -> bool {
    field(status, "TracerPid:").is_some_and(|tracer| tracer.trim() != "0")
}

/// The bytes of memory that a process has for itself or shares with processes that it forked, in RAM and in swap.
fn private_memory(status: &str) -> u64 {
    let kib = |name| field(status, name)?.split_whitespace().next()?.parse::<u64>().ok();
    ["RssAnon:", "VmSwap:"].into_iter().filter_map(kib).fold(0, u64::saturating_add).saturating_mul(1 << 10)
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name))
}

/// Connections of the sandbox with this first process to somebody outside, the daemon's among them.
///
/// The kernel goes through a table of the whole host for this, which takes milliseconds.
pub(crate) fn connections_lost(first: u32) -> Vec<Connection> {
    ["tcp", "tcp6"]
        .into_iter()
        .flat_map(|table| outside(&fs::read_to_string(format!("/proc/{first}/net/{table}")).unwrap_or_default()))
        .collect()
}

/// What a receipt says of a connection; nothing of the daemon's own, which are those to `own_port`.
pub(crate) fn not_kept(connection: &Connection, own_port: u16) -> Option<NotKept> {
    if connection.local_port == own_port {
        return None;
    }
    let peer = ip(&connection.peer).map_or_else(|| "an unknown address".to_owned(), |ip| ip.to_canonical().to_string());
    Some(NotKept {
        what: format!("connection from port {} to {peer} port {}", connection.local_port, connection.peer_port),
        why: "its other end is outside of the sandbox".to_owned(),
    })
}

/// Connections that leave the sandbox and are not closed from here, from the kernel's table of sockets.
fn outside(table: &str) -> Vec<Connection> {
    let lines = table.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let ((local, local_port), (peer, peer_port)) = (address(fields.next()?)?, address(fields.next()?)?);
        let leaves = local != peer && !ip(&peer)?.to_canonical().is_loopback();
        let family = if local.len() == 4 { AF_INET } else { AF_INET6 };
        ([ESTABLISHED, CLOSED_BY_PEER].contains(&fields.next()?) && leaves).then_some(Connection {
            family,
            local,
            peer,
            local_port,
            peer_port,
        })
    });
    lines.collect()
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    match <[u8; 4]>::try_from(bytes) {
        Ok(v4) => Some(IpAddr::V4(Ipv4Addr::from(v4))),
        Err(_) => Some(IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?))),
    }
}

/// An address as the kernel prints it: 32-bit words in the machine's byte order, a colon, the port.
fn address(text: &str) -> Option<(Vec<u8>, u16)> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    if !matches!(address.len(), 8 | 32) {
        return None;
    }
    let words = (0..address.len() / 8)
        .map(|word| u32::from_str_radix(address.get(word * 8..word * 8 + 8)?, 16).ok().map(u32::to_ne_bytes))
        .collect::<Option<Vec<_>>>()?;
    Some((words.concat(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_file_is_noticed_in_the_sandboxs_own_memory_alone() {
        let own = "146 225 0:130 /roost/proc/stat /proc/stat ro - tmpfs run rw\n";
        let guest = "147 225 254:0 /bin/roost-guest//deleted /run/roost/guest ro - ext4 /dev/vda rw\n";
        let removed = "148 225 0:130 /roost/proc/stat//deleted /proc/stat ro - tmpfs run rw\n";
        assert!(!shows_removed_file(&[own, guest].concat()));
        assert!(shows_removed_file(&[own, guest, removed].concat()));
    }

    #[test]
    fn memory_of_a_process_is_read_from_its_status() {
        let status = "Name:\tx\nTracerPid:\t0\nVmRSS:\t 99 kB\nRssAnon:\t    40 kB\nVmSwap:\t       2 kB\n";
        assert_eq!(private_memory(status), 42 << 10);
        assert_eq!(private_memory("Name:\tkthreadd\n"), 0);
        assert!(!is_traced(status) && is_traced("TracerPid:\t7\n"));
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn connections_that_leave_are_told() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n\
            0: 0200000A:0016 0108080A:C350 01 0:0\n\
            1: 0200000A:9C40 01010101:01BB 01 0:0\n\
            2: 0100007F:9C40 0100007F:1F90 01 0:0\n\
            3: 0200000A:9C41 0200000A:1F90 01 0:0\n\
            4: 0200000A:9C42 01010101:01BB 06 0:0\n\
            5: 00000000:1F90 00000000:0000 0A 0:0\n\
            6: 0200000A:0016 0108080A:C351 08 0:0\n";
        let lost = outside(table);
        assert_eq!(lost.iter().map(|lost| lost.peer_port).collect::<Vec<_>>(), [50000, 443, 50001]);
        let told: Vec<_> = lost.iter().filter_map(|lost| not_kept(lost, 22)).map(|told| told.what).collect();
        assert_eq!(told, ["connection from port 40000 to 1.1.1.1 port 443"]);
        assert_eq!((lost[0].family, lost[0].local.as_slice()), (2, &[10, 0, 0, 2][..]));
        let (mapped, port) = address("0000000000000000FFFF00000200000A:1F90").unwrap();
        assert_eq!((ip(&mapped).unwrap().to_canonical().to_string(), port), ("10.0.0.2".into(), 8080));
        assert!(address("zz:1").is_none());
    }
}
