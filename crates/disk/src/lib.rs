//! Disks: the btrfs pool with one subvolume per sandbox, and templates as EROFS images.
//!
//! All functions block; callers run them where blocking is allowed. Nothing on the way of a sandbox's birth or
//! death starts a process: [`Pool::create_disk`], [`Pool::delete_disk`] and [`Templates::mount`] are system calls.
//! Tools (`mkfs.btrfs`, `mkfs.erofs`, `mmdebstrap`) run when a pool or a template is made.

#![forbid(unsafe_code)]

mod pool;
mod template;

pub use pool::{DiskError, DiskPaths, DiskUsage, HostFull, OpenError, Pool, PoolConfig, Space, UnmountError};
pub use template::{
    Existing, ImportError, ImportSource, MountError, Progress, Stage, Template, TemplateError, Templates, build_base,
    build_mini,
};
