//! The only crate with `unsafe`: thin, safe wrappers over the kernel interfaces that Roost needs.
//!
//! Each module wraps one kernel facility and nothing else; policy lives in the crates above.

pub mod btrfs;
pub mod cgroup;
pub mod doors;
pub mod file_size;
pub mod heap;
pub mod loopdev;
pub mod mount;
pub mod netns;
pub mod process;
pub mod remote;
pub mod scarce;
pub mod seccomp;
pub mod spawn;
pub mod tree;
pub mod writeback;
