//! The CRIU that saves memory, brought once and linked into the data folder of each test.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Puts CRIU into `data_dir`, from `ROOST_CRIU` or `criu` in the target folder; without one, memory cannot be saved.
pub(crate) fn link_into(data_dir: &Path) -> Result<()> {
    let from = match std::env::var_os("ROOST_CRIU") {
        Some(path) => PathBuf::from(path),
        None => {
            let test = std::env::current_exe().context("failed to find the test's own binary")?;
            test.ancestors().nth(3).context("the test's binary is in no target folder")?.join("criu")
        }
    };
    if from.exists() {
        symlink(&from, data_dir.join("criu")).with_context(|| format!("failed to link `{}`", from.display()))?;
    }
    Ok(())
}
