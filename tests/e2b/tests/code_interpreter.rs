//! The code interpreter.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

/// The server's own tests need nothing but Python.
#[test]
fn the_server_speaks_the_wire() -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/cli/assets/code_interpreter");
    let status = Command::new("python3").args(["-B", "-m", "unittest", "discover"]).current_dir(folder).status()?;
    ensure!(status.success(), "the server's tests ended with {status}");
    Ok(())
}
