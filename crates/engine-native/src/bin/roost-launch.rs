//! Brings one sandbox into being, or saves or restores one; started by the daemon with its end of a socket as standard input.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use roost_engine_native::launch;

fn main() -> ExitCode {
    let name = std::env::args_os().next();
    let name = name.as_deref().map(Path::new).and_then(Path::file_name).and_then(OsStr::to_str);
    let done = match name {
        Some(launch::COPIER) => copy(),
        Some(launch::ARCHIVER) => launch::pack_or_unpack(),
        Some(launch::SLEEPER) => loop {
            std::thread::park();
        },
        _ => launch::bear(rustix::stdio::stdin()).is_ok(),
    };
    if done { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A reader that has read enough is no failure.
fn copy() -> bool {
    match std::io::copy(&mut std::io::stdin().lock(), &mut std::io::stdout().lock()) {
        Err(e) => e.kind() == std::io::ErrorKind::BrokenPipe,
        Ok(_) => true,
    }
}
