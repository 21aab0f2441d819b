//! The agent that is PID 1 of every sandbox: it starts every process, keeps its output, and does file work for the host.
//! The same program is a command inside, by which processes ask their host for something.
//!
//! Blocking threads with small stacks instead of an async runtime: an idle guest is two threads, one that accepts
//! connections and one that waits for signals and reaps; services bring a third. Nothing here may panic on what a peer sends.
#![forbid(unsafe_code)]

mod activity;
mod boot_id;
mod calls;
mod command;
mod conn;
mod connections;
mod crontabs;
mod df;
mod exec;
mod failure;
mod files;
mod forward;
mod guest;
mod hooks;
mod identity;
mod init;
mod machine;
mod name;
mod paths;
mod ports;
mod processes;
mod relay;
mod resume;
mod serve;
mod services;
mod sftp;
mod shutdown;
mod talks;
mod users;
mod wake;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    match arguments.first().map(String::as_str) {
        Some("init") => match init::run(arguments.get(1..).unwrap_or_default()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("roost-guest: {error}");
                ExitCode::FAILURE
            }
        },
        Some("sftp-server") => sftp::run(),
        Some("df") => print_free_space(arguments.get(1..).unwrap_or_default()),
        Some("hostname") => set_hostname(arguments.get(1)),
        _ => command::run(arguments),
    }
}

/// The `df` of a template runs the distribution's own when it gets this code.
const NOT_KNOWN_HERE: u8 = 3;

fn print_free_space(arguments: &[String]) -> ExitCode {
    match df::run(arguments) {
        Some(Ok(table)) => command::print(&table, ExitCode::SUCCESS),
        Some(Err(reason)) => {
            eprintln!("df: {reason}");
            ExitCode::FAILURE
        }
        None => ExitCode::from(NOT_KNOWN_HERE),
    }
}

/// For engines that can only change it from inside, by this program with a privilege that nobody else there has.
fn set_hostname(wanted: Option<&String>) -> ExitCode {
    let changed = wanted.map(|name| rustix::system::sethostname(name.as_bytes()));
    if matches!(changed, Some(Ok(()))) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
