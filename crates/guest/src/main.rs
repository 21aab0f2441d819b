//! The agent that is PID 1 of every sandbox: it starts every process, keeps its output, and does file work for the host.
//!
//! Blocking threads with small stacks instead of an async runtime: an idle guest is two threads, one that accepts
//! connections and one that waits for signals and reaps. Nothing here may panic on what a peer sends.
#![forbid(unsafe_code)]

mod activity;
mod conn;
mod connections;
mod exec;
mod failure;
mod files;
mod guest;
mod hooks;
mod identity;
mod init;
mod paths;
mod ports;
mod resume;
mod serve;
mod shutdown;
mod users;
mod wake;

use std::process::ExitCode;

fn main() -> ExitCode {
    let command = std::env::args().nth(1);
    match command.as_deref() {
        Some("init") => match init::run() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("roost-guest: {error}");
                ExitCode::FAILURE
            }
        },
        _ => {
            eprintln!("usage: roost-guest init\n\nRuns as PID 1 of a sandbox, with its configuration on descriptor 3.");
            ExitCode::from(2)
        }
    }
}
