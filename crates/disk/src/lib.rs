//! Disks: the btrfs pool with one subvolume per sandbox, and templates as EROFS images.
//!
//! Checkpoints lie in the pool too, memory images beside it; [`Staged`] and [`StagedImage`] are how they get there whole
//! or not at all.
//!
//! All functions block; callers run them where blocking is allowed. Nothing on the way of a sandbox's birth or
//! death starts a process: [`Pool::create_disk`], [`Pool::delete_disk`] and [`Templates::mount`] are system calls.
//! Tools (`mkfs.btrfs`, `mkfs.erofs`, `mmdebstrap`) run when a pool or a template is made.

#![forbid(unsafe_code)]

mod aside;
mod diff;
mod image;
mod pool;
mod template;

pub use aside::{aside_of, count_aside, provide_folder, put_aside};
pub use diff::{Diff, DiffError, DiffSide};
pub use image::{Depth, Image, ImageError, Maker, StagedImage};
pub use pool::{
    Checkpoint, DiskError, DiskLimits, DiskOf, DiskPaths, DiskSizes, DiskUsage, FullQuotas, HostFull, OpenError, Pool,
    PoolConfig, Replacement, Retaining, Space, Staged, UnmountError,
};
pub use template::{
    Existing, ImportError, ImportSource, MissingTool, MountError, Progress, Promotion, Stage, Template, TemplateError,
    Templates, TreeLimit, build_base, build_mini, missing_tools,
};
