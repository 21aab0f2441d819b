//! Which `roost` is under test.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The binary under test: `ROOST_BIN`, or the one in the target folder that this test was built into.
pub fn roost_binary() -> Result<PathBuf> {
    let path = match std::env::var_os("ROOST_BIN") {
        Some(path) => PathBuf::from(path),
        None => {
            let test = std::env::current_exe().context("failed to find the test's own binary")?;
            // target/debug/deps/life-0123456789abcdef -> target/debug/roost
            test.ancestors().nth(2).context("the test's binary is in no target folder")?.join("roost")
        }
    };
    ensure!(path.exists(), "`{}` is not there: run `make test`, or `cargo build` first", path.display());
    Ok(path)
}

/// A command that runs the binary under test without the settings of whoever runs the tests.
pub(crate) fn command(binary: &Path) -> Command {
    let mut command = Command::new(binary);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ROOST_") {
            command.env_remove(name);
        }
    }
    command
}
