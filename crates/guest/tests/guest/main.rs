//! Drives the built guest, as an ordinary process, with the host's own client.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test like the test itself")]

mod calls;
mod exec;
mod files;
mod output;
mod processes;
mod protocol;
mod relay;
mod resume;
mod services;
mod support;
mod watches;
