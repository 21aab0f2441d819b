//! Brings one sandbox into being; started by the daemon with its end of a socket as standard input.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    match roost_engine_native::launch::run(rustix::stdio::stdin()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
