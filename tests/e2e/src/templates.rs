//! Templates that were built once and are linked into the data folder of each test.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Folder of prebuilt templates: `ROOST_TEMPLATE_CACHE`, or `templates` in the target folder.
fn cache() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("ROOST_TEMPLATE_CACHE") {
        return Ok(PathBuf::from(path));
    }
    let test = std::env::current_exe().context("failed to find the test's own binary")?;
    Ok(test.ancestors().nth(3).context("the test's binary is in no target folder")?.join("templates"))
}

/// Puts template `name` into `data_dir` from the cache; says whether the cache had it.
pub(crate) fn link_from_cache(name: &str, data_dir: &Path) -> Result<bool> {
    let from = cache()?.join(name);
    if !from.is_dir() {
        return Ok(false);
    }
    let to = data_dir.join("templates").join(name);
    link_tree(&from, &to).with_context(|| format!("failed to link template `{}`", from.display()))?;
    Ok(true)
}

/// Images are immutable, so a hard link is as good as a copy; another filesystem gets the copy.
fn link_tree(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            link_tree(&source, &target)?;
        } else if kind.is_symlink() {
            symlink(fs::read_link(&source)?, &target)?;
        } else if fs::hard_link(&source, &target).is_err() {
            fs::copy(&source, &target)?;
        }
    }
    Ok(())
}
