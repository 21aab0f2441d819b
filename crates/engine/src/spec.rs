//! Plain data that goes into and comes out of an engine.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use roost_model::{Capability, EngineKind, Limits, NotKept, SandboxId, SavedProcess};
use serde::{Deserialize, Serialize};

use crate::EngineError;

/// What an engine can do on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// Freeze and thaw with memory kept in RAM.
    pub freeze: bool,
    /// Save memory and processes to an image and bring them back.
    pub save_memory: bool,
    /// Limits can be changed while it runs.
    pub live_limits: bool,
    /// The daemon can be killed and a new one goes on with the running sandbox.
    pub survives_daemon: bool,
    /// What runs inside meets a kernel of its own, so a fault in the host's is out of its reach.
    pub own_kernel: bool,
    /// What is written to `/tmp` and `/var/tmp` is on its disk; else in its memory.
    pub tmp_on_disk: bool,
    /// Reaching a limit of memory or processes may end all of a sandbox, not only the process that does.
    pub limits_end_all: bool,
    /// The limit of processes is a number inside, and one more is refused; else it bounds what the sandbox has on the host.
    pub counts_processes: bool,
    /// A program with the set-user-id bit becomes another user, `sudo` among them.
    pub setuid: bool,
}

/// Where a sandbox's root comes from.
#[derive(Debug, Clone)]
pub enum DiskSource {
    /// A read-only template mount below and the sandbox's own folders above.
    Layers {
        /// Where the template's image is mounted.
        lower: PathBuf,
        /// The sandbox's subvolume, which holds `root` (upper) and `work`.
        subvolume: PathBuf,
    },
}

/// Connects a sandbox that is being born to the network; implemented by the host over its slots.
///
/// The engine calls it as soon as the sandbox's network exists, while it goes on with its own work.
#[async_trait]
pub trait NetworkPlug: Send + Sync + std::fmt::Debug {
    /// Plugs the network namespace behind `netns` in.
    async fn plug(&self, netns: std::os::fd::OwnedFd) -> Result<(), EngineError>;
}

/// Ranges of host uids for sandboxes, twice as many as sandboxes that a host is promised to hold.
pub const UID_RANGES: u32 = 16_384;

/// Everything an engine needs to start a sandbox.
#[derive(Debug, Clone)]
pub struct StartSpec {
    /// Names every kernel object of the sandbox.
    pub id: SandboxId,
    /// Host name inside.
    pub hostname: String,
    /// Its root.
    pub disk: DiskSource,
    /// Whether what is written to its disk has to survive the machine. Of a run's nothing is kept, so what its programs
    /// ask to be synced need not be.
    pub lasting: bool,
    /// Limits in force from the first instruction on.
    pub limits: Limits,
    /// Capabilities that root inside gets beyond the usual ones; an engine with a kernel of its own needs none of them.
    pub capabilities: BTreeSet<Capability>,
    /// Which range of 65536 host uids the sandbox's users are mapped to (`0..UID_RANGES`).
    pub uid_range: u32,
    /// Configuration handed to the guest at birth, already encoded for the wire.
    pub guest_config: Vec<u8>,
    /// Connects the network; a sandbox without internet access still has one, towards the daemon.
    pub network: Arc<dyn NetworkPlug>,
}

/// A sandbox that has just been started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// How the guest is reached.
    pub link: GuestLink,
    /// How long each part took, in the order in which they ended, in microseconds.
    pub parts_us: Vec<(&'static str, u64)>,
}

/// Memory and processes of a sandbox, saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dumped {
    /// Size of the image.
    pub bytes: u64,
    /// What will not be there after a restore.
    pub not_kept: Vec<NotKept>,
    /// What ran.
    pub processes: Vec<SavedProcess>,
    /// How long each part took, in microseconds.
    pub parts_us: Vec<(&'static str, u64)>,
}

/// How the host reaches a sandbox's guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GuestLink {
    /// TCP on [`roost_wire::GUEST_PORT`] of the sandbox's own address, through its network slot.
    Slot,
    /// TCP on an address of the host's (fakes and tests).
    Tcp(std::net::SocketAddr),
}

/// What the world says about a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// No process of it exists.
    Absent,
    /// It runs.
    Running,
    /// Its processes are stopped with their memory in RAM.
    Frozen,
}

/// What a running sandbox uses now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time used since its start, in microseconds.
    pub cpu_us: u64,
    /// Memory charged to it, in bytes, page cache included.
    pub memory: u64,
    /// The part of `memory` that is not page cache.
    pub memory_anon: u64,
    /// Processes and threads.
    pub pids: u64,
    /// Processes that were killed because the memory limit was reached.
    pub oom_kills: u64,
    /// Processes that were not made because their limit was reached.
    pub pids_refused: u64,
    /// Bytes that its sockets hold in the host's kernel.
    pub sockets: u64,
}

/// What a running sandbox has used since its start; read every few seconds, so it must be cheap to find out.
///
/// A counter that the engine cannot tell stays 0; one that falls is read as standing still.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// CPU time, in microseconds.
    pub cpu_us: u64,
    /// Bytes read from and written to disk.
    pub disk: u64,
    /// Bytes received from and sent to the network.
    pub network: u64,
}

/// One prerequisite of an engine, checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What was checked, in a few words.
    pub what: String,
    /// Whether it holds.
    pub ok: bool,
    /// Whether the engine cannot run without it.
    pub required: bool,
    /// What was found, or what to do about it.
    pub detail: String,
}

/// What an engine found out about this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineReport {
    /// Which engine.
    pub engine: EngineKind,
    /// Every check, in order.
    pub checks: Vec<Check>,
}

impl EngineReport {
    /// Whether everything that is required holds.
    pub fn fit(&self) -> bool {
        self.checks.iter().all(|check| check.ok || !check.required)
    }
}
