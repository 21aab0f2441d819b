//! The programs that save memory and isolate, brought once and linked into the data folder of each test.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Puts CRIU and runsc into `data_dir`, from `ROOST_CRIU` and `ROOST_RUNSC` or the target folder. Without the one, memory of
/// native sandboxes cannot be saved; without the other, there are none on gVisor.
pub(crate) fn link_into(data_dir: &Path) -> Result<()> {
    for (variable, name) in [("ROOST_CRIU", "criu"), ("ROOST_RUNSC", "runsc")] {
        let from = match std::env::var_os(variable) {
            Some(path) => PathBuf::from(path),
            None => {
                let test = std::env::current_exe().context("failed to find the test's own binary")?;
                test.ancestors().nth(3).context("the test's binary is in no target folder")?.join(name)
            }
        };
        if from.exists() {
            symlink(&from, data_dir.join(name)).with_context(|| format!("failed to link `{}`", from.display()))?;
        }
    }
    Ok(())
}
