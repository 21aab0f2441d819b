//! What daemon, launcher and child say to each other.
//!
//! Frames on the daemon's socket are a kind byte, a length (u32, little endian) and JSON. The daemon sends [`Prepare`], then
//! a [`Job`]. After a [`Job::Launch`] raw bytes for the guest follow and the daemon closes its writing side; after a
//! [`Job::Dump`] a [`DumpTarget`] follows. During a [`Job::Restore`] with a server of pages it sends whether that one listens,
//! and always [`Frame::PLUGGED`](roost_engine_group::Frame) once the network of what was born is there. The answers are [`Report`]s
//! and, from a guest that was launched, the single byte [`Frame::READY`](roost_engine_group::Frame).

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What a launcher does before it knows which sandbox it will be.
#[derive(Debug, Serialize, Deserialize)]
pub struct Prepare {
    /// Files of control groups to join.
    pub join: Vec<PathBuf>,
}

/// What a launcher is for.
#[derive(Debug, Serialize, Deserialize)]
pub enum Job {
    /// Start a sandbox.
    Launch(LaunchSpec),
    /// Save the memory of a frozen one.
    Dump(DumpSpec),
    /// Bring one back from its saved memory.
    Restore(RestoreSpec),
    /// Serve the memory of one that is being brought back.
    Pages(PagesSpec),
    /// Try whether CRIU works on this kernel.
    Probe(Criu),
}

/// The root of a sandbox, and who owns what in it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Layers {
    /// Where the template is mounted.
    pub lower: PathBuf,
    /// The sandbox's subvolume with `root` and `work`.
    pub subvolume: PathBuf,
    /// The host uid that root inside is mapped to.
    pub uid_base: u32,
    /// Whether what is written has to survive the machine.
    pub lasting: bool,
}

/// How to start CRIU.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Criu {
    /// The program and what stands before CRIU's own arguments.
    pub command: Vec<PathBuf>,
    /// What an earlier CRIU found out about this kernel; empty if none did yet.
    pub kernel_cache: Vec<u8>,
}

/// Something that a process watches with inotify, and its path inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchedPath {
    /// Its device, with 20 bits of minor number.
    pub device: u32,
    /// Its inode.
    pub inode: u64,
    /// Where it is.
    pub path: String,
}

/// A TCP connection that leaves the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// The kernel's number of the address family.
    pub family: u8,
    /// Its own address, in network order.
    pub local: Vec<u8>,
    /// Its peer's address, likewise.
    pub peer: Vec<u8>,
    /// Its own port.
    pub local_port: u16,
    /// Its peer's port.
    pub peer_port: u16,
}

/// Where a sandbox is saved. What of it follows: CRIU is started while that is still looked at.
#[derive(Debug, Serialize, Deserialize)]
pub struct DumpSpec {
    /// How to start CRIU.
    pub criu: Criu,
    /// The folder for the image.
    pub image: PathBuf,
    /// An abstract socket's name, taken as long as CRIU is at work.
    pub lock: String,
    /// The bytes that the image may take.
    pub room: u64,
}

/// What is saved.
#[derive(Debug, Serialize, Deserialize)]
pub struct DumpTarget {
    /// The sandbox's first process.
    pub pid: u32,
    /// The control group in which the sandbox is frozen.
    pub freezer: PathBuf,
    /// What is watched on the root.
    pub watched: Vec<WatchedPath>,
    /// Whether files of the template are open that have no name in the sandbox any more.
    pub nameless: bool,
}

/// Memory that a sandbox gets while it runs already.
#[derive(Debug, Serialize, Deserialize)]
pub struct PagesSpec {
    /// How to start CRIU.
    pub criu: Criu,
    /// A folder of its own, with links to the image's files; the socket at which the restore asks for pages comes there too.
    pub folder: PathBuf,
    /// The file that lists the sandbox's processes.
    pub members: PathBuf,
    /// An abstract socket's name, taken until all pages are where they belong.
    pub lock: String,
}

impl PagesSpec {
    /// The name that CRIU gives its socket in the folder.
    pub const SOCKET: &str = "lazy-pages.socket";
    /// The folder with the links in the folder.
    pub const IMAGE: &str = "image";
}

/// What is brought back.
#[derive(Debug, Serialize, Deserialize)]
pub struct RestoreSpec {
    /// How to start CRIU.
    pub criu: Criu,
    /// Its root, as it was when the memory was saved.
    pub layers: Layers,
    /// The guest's program on the host, the very one that was saved.
    pub guest: PathBuf,
    /// The folder with the image.
    pub image: PathBuf,
    /// Connections in it that lead outside.
    pub lost: Vec<Connection>,
    /// The v2 control group to join.
    pub unified: Option<PathBuf>,
    /// The host's user who owns the user namespace.
    pub owner: u32,
    /// The sandbox's control groups, as its processes may see them.
    pub groups: Vec<ShownGroup>,
    /// Host name inside, which a copy of a sandbox has of its own.
    pub hostname: String,
    /// The folder of a server of its pages, which may still be about to start: [`RestoreSpec::SERVED`] follows, or
    /// [`RestoreSpec::ALONE`]. Without one they are all read before it runs.
    pub pages: Option<PathBuf>,
}

impl RestoreSpec {
    /// Sent by the daemon: its pages are served.
    pub const SERVED: u8 = b'S';
    /// Sent by the daemon: nobody serves its pages.
    pub const ALONE: u8 = b'A';
}

/// A control group's folder on the host, and its place below `/sys/fs/cgroup` inside.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ShownGroup {
    /// The folder.
    pub folder: PathBuf,
    /// The place; an empty one is the whole view.
    pub place: String,
}

/// What a launcher makes.
#[derive(Debug, Serialize, Deserialize)]
pub struct LaunchSpec {
    /// Host name inside.
    pub hostname: String,
    /// Its root.
    pub layers: Layers,
    /// The guest's program on the host.
    pub guest: PathBuf,
    /// The v2 control group to be born in.
    pub unified: Option<PathBuf>,
    /// The host's user who owns the user namespace.
    pub owner: u32,
    /// The sandbox's control groups, as its processes may see them.
    pub groups: Vec<ShownGroup>,
    /// The processors it runs on.
    pub processors: Vec<usize>,
    /// Size of the sandbox's /dev/shm in bytes.
    pub shared_memory: u64,
    /// Seccomp programs, in the order of their installation.
    pub filters: Vec<Vec<u64>>,
    /// Capabilities beyond the usual ones, by the kernel's numbers.
    pub capabilities: Vec<u32>,
}

/// What launcher and child tell the daemon.
#[derive(Debug, Serialize, Deserialize)]
pub enum Report {
    /// The control groups are joined; the launcher can wait here for its spec.
    Prepared,
    /// The sandbox's first process exists; its pidfd and its network namespace come along.
    Born {
        /// Its pid on the host.
        pid: u32,
    },
    /// Pages are served from now on.
    Serving,
    /// The guest is about to be executed; how long each step took, in microseconds.
    Timings(Vec<(Step, u64)>),
    /// The memory is saved, or the sandbox runs again from what was saved.
    Done {
        /// What CRIU found out about this kernel, if it had to.
        kernel_cache: Option<Vec<u8>>,
        /// How long each step took, in microseconds.
        timings: Vec<(Step, u64)>,
    },
    /// The image became larger than its room, and the sandbox is as before.
    OverRoom,
    /// CRIU gave up; what it said of its errors, the last ones at the end.
    CriuFailed {
        /// Lines of its log.
        log: String,
        /// The signal that ended it, if one did.
        signal: Option<i32>,
    },
    /// A step failed, and with it the launch.
    Failed(Failure),
}

roost_engine_group::steps! {
    Talk "talk to the daemon",
    Join "join control groups",
    Shape "set scheduling and resource limits",
    Isolate "leave the host's mount namespace",
    Clone "clone into new namespaces",
    Map "map users and groups",
    Devices "put device nodes right",
    Layers "map the owners of the layers",
    Overlay "mount the root",
    Inside "become root inside",
    System "make system mounts",
    Wait "wait for the root",
    Pivot "change the root",
    Attach "attach system mounts",
    Mask "mask parts of proc and sys",
    Restrict "drop capabilities and filter system calls",
    Execute "execute the guest",
    Criu "start criu",
    Serve "wait for who serves its memory",
    Save "save memory and processes",
    Namespaces "restore namespaces",
    Network "wait for the network",
    Load "restore memory and processes",
    Resume "let the processes go on",
}
