//! The launcher: a small single-threaded program that builds one sandbox around itself and becomes its PID 1.
//!
//! The daemon has threads and may not fork; a single-threaded [`mother`] does it for every sandbox, possibly ahead of time. Two
//! processes share the work, so that the layers are mounted while the inside is prepared:
//!
//! ```text
//! launcher (host's namespaces)                  child (PID 1 of the sandbox)
//! join control groups, shape the process
//! ... waits for the spec ...
//! private mounts, clones of the layers
//! clone3 ------------------------------------>  born: user, pid, mount, net, ipc, uts namespaces
//! born: pid, pidfd, netns to the daemon         waits
//! uid and gid maps ----------- 'M' ---------->  becomes root inside, makes proc, sys, devpts, tmpfs (detached)
//! idmaps layers, mounts overlay -- 'O' + fd -->  root is the overlay, old root gone; attaches, masks
//! exits                                         clocks at zero, capabilities, seccomp, execs the guest
//! ```
//!
//! Mounts are attached only when the sandbox's own root is the root, so no symlink planted in it can lead outside. A step
//! that fails is reported to the daemon by name; everything made so far belongs to the two processes and ends with them.

mod archive;
mod child;
mod clocks;
mod criu;
mod devices;
mod ending;
mod groups;
mod memory;
mod mother;
mod network;
mod numbers;
mod pages;
mod parent;
mod probe;
mod protocol;
mod room;
mod root;
mod rpc;
mod spoiled;

/// Under this name the launcher's program copies its input to its output.
pub const COPIER: &str = "gzip";

/// Under this name it packs and unpacks a folder, see [`archive`].
pub const ARCHIVER: &str = "tar";

/// Under this name it waits for its end.
pub const SLEEPER: &str = "sleeper";

pub use archive::pack_or_unpack;
pub use ending::is_ending;
pub use mother::{BIRTH, bear};
pub use protocol::{
    Connection, Criu, DumpSpec, DumpTarget, Failure, Job, LaunchSpec, Layers, PagesSpec, Prepare, Report, RestoreSpec,
    ShownGroup, Step, WatchedPath,
};
