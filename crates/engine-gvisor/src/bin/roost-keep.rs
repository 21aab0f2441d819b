//! Brings one gVisor sandbox into being and stays as its first process; started by the daemon with its end of a socket as
//! standard input.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    match roost_engine_gvisor::keep::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
