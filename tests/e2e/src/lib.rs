//! The harness of the end-to-end tests: a real daemon with a data folder of its own, gone when the test ends.
//!
//! Every test starts its own [`Daemon`], so tests run beside each other and beside the daemon of `make up`. They need
//! root, because sandboxes do. The binary is `ROOST_BIN`, or the `roost` that was built into the same target folder.
#![forbid(unsafe_code)]

mod binary;
mod daemon;
mod doc_table;
pub mod docs;
pub mod e2b;
mod nginx;
mod outside;
pub mod ports;
mod private_host;
mod raw;
mod sandbox;
mod scene;
pub mod ssh;
mod templates;
pub mod tls;
mod tools;
pub mod wall;
mod witness;
mod workload;
mod world;

pub use binary::roost_binary;
pub use daemon::{Daemon, Options};
pub use doc_table::{ErrorRow, error_rows, message_fits};
pub use nginx::Nginx;
pub use outside::Outside;
pub use private_host::{PrivateHost, Server};
pub use raw::{RawAnswer, raw_bytes_tcp, raw_bytes_unix, raw_tcp, raw_unix};
pub use sandbox::Sandbox;
pub use scene::Scene;
pub use witness::Witness;
pub use workload::{Kept, Workload};
pub use world::{
    Canary, Seed, available_memory, criu_at_work, first_pid, host_addresses, host_reaches_its_mirror, leftovers,
    no_orphans, own_memory, page_servers, parts_on_gvisor, peak_memory, reset_peak_memory, resident_memory,
};
