//! The `roost` command: the daemon and everything a person types.
#![forbid(unsafe_code)]

mod args;
mod assemble;
mod attach;
mod batch;
mod code_interpreter;
mod commands;
mod complete;
mod config;
mod config_file;
mod connection;
mod copy;
mod data_folder;
mod down;
mod failure;
mod logging;
mod memory;
mod notify;
mod output;
mod pipes;
mod progress;
mod receipt;
mod serve;
mod supervise;
mod terminal;
mod tree;
mod units;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::args::Cli;

fn main() -> ExitCode {
    // Answers the shell and ends the process if it is the shell that asks.
    clap_complete::CompleteEnv::with_factory(Cli::command).complete();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(refused) => {
            // Help and version are not failures; a wrong command line is one of ours, not of a command inside.
            let code = if refused.use_stderr() { failure::ROOST_FAILED } else { 0 };
            refused.print().unwrap_or_default();
            return ExitCode::from(code);
        }
    };
    terminal::restore_on_panic();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return ExitCode::from(failure::report(&error.into())),
    };
    let code = runtime.block_on(commands::dispatch(cli)).unwrap_or_else(|error| failure::report(&error));
    // A thread may still wait for a key or a slow pipe; the process does not wait for it.
    runtime.shutdown_background();
    ExitCode::from(code)
}
