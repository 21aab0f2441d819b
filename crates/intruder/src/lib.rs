//! A program that attacks the host of its sandbox from inside, for `roost doctor --attack` and the tests.
//!
//! [`Thing`] names each resource that sandboxes could take from one another. The program takes as much of one as it gets and
//! keeps it, or checks that a little of it is still there. [`Door`](roost_sys::doors::Door)s are calls that a sandbox has no
//! use for. All of it acts on the process and its sandbox only; nothing is written outside.
#![forbid(unsafe_code)]

mod doors;
mod need;
mod neighbours;
mod queues;
mod take;

pub use doors::{Tried, try_doors};
pub use take::Taken;

/// A resource that sandboxes could take from one another or from the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thing {
    /// Instances of inotify.
    Watches,
    /// Timers of processes.
    Timers,
    /// POSIX message queues.
    Queues,
    /// Signals that wait for a process.
    Signals,
    /// Shared memory that is locked.
    LockedMemory,
    /// Buffers of pipes.
    Pipes,
    /// Contexts of asynchronous I/O.
    AsyncContexts,
    /// Terminals.
    Terminals,
    /// Memory of TCP connections.
    TcpMemory,
    /// Unread answers at netlink sockets.
    NetlinkQueues,
    /// Unread echoes at ping sockets.
    PingQueues,
    /// Unread datagrams.
    Datagrams,
    /// Entries of the neighbour table.
    Neighbours,
    /// Rings of packet sockets.
    PacketRings,
    /// Rings of express data paths.
    ExpressRings,
    /// Processes and threads.
    Processes,
    /// Memory.
    Memory,
    /// Files in memory.
    SharedMemory,
    /// Room on the disk.
    Disk,
    /// Files and folders, which cost the kernel memory.
    Files,
    /// Processor time.
    Cpu,
}

impl Thing {
    /// Every thing with the word for it, in the order in which they are tried.
    pub const ALL: [(Self, &'static str); 21] = [
        (Self::Watches, "watches"),
        (Self::Timers, "timers"),
        (Self::Queues, "queues"),
        (Self::Signals, "signals"),
        (Self::LockedMemory, "locked-memory"),
        (Self::Pipes, "pipes"),
        (Self::AsyncContexts, "async-contexts"),
        (Self::Terminals, "terminals"),
        (Self::TcpMemory, "tcp-memory"),
        (Self::NetlinkQueues, "netlink-queues"),
        (Self::PingQueues, "ping-queues"),
        (Self::Datagrams, "datagrams"),
        (Self::Neighbours, "neighbours"),
        (Self::PacketRings, "packet-rings"),
        (Self::ExpressRings, "express-rings"),
        (Self::Processes, "processes"),
        (Self::Memory, "memory"),
        (Self::SharedMemory, "shared-memory"),
        (Self::Disk, "disk"),
        (Self::Files, "files"),
        (Self::Cpu, "cpu"),
    ];

    /// Returns the word for this thing on the command line and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(thing, _)| *thing == self).map_or("", |(_, name)| name)
    }

    /// Returns the thing with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(thing, _)| *thing)
    }

    /// A sandbox that takes this thing may end as a whole: the host ends it for what it holds in the kernel.
    #[must_use]
    pub fn may_be_ended_for(self) -> bool {
        matches!(self, Self::NetlinkQueues | Self::PingQueues | Self::Datagrams | Self::TcpMemory)
    }

    /// A sandbox whose engine ends it at a limit of memory or processes may end when it takes this thing.
    #[must_use]
    pub fn may_end_the_sandbox(self) -> bool {
        matches!(
            self,
            Self::Processes | Self::Memory | Self::SharedMemory | Self::TcpMemory | Self::Files | Self::Pipes
        )
    }

    /// Getting any of this thing is a fault where the sandbox shares the host's kernel: no control group pays for it.
    #[must_use]
    pub fn must_be_refused(self) -> bool {
        matches!(self, Self::PacketRings | Self::ExpressRings | Self::AsyncContexts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for (thing, name) in Thing::ALL {
            assert_eq!(Thing::named(name), Some(thing));
            assert_eq!(thing.name(), name);
        }
        assert_eq!(Thing::named("gold"), None);
    }
}
