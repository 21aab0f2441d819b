//! Kernel settings under `/proc/sys`, as the calling thread's namespace sees them.

use std::io;
use std::path::PathBuf;

/// A setting could not be made.
#[derive(Debug, thiserror::Error)]
#[error("failed to set `{}` to {value}", path.display())]
pub struct SysctlError {
    /// The setting.
    pub path: PathBuf,
    /// The wanted value.
    pub value: String,
    /// Why not.
    pub source: io::Error,
}

/// Writes a value unless it is there already; says whether it had to.
///
/// Reading first lets a read-only `/proc/sys` pass when it holds the right values.
pub(crate) fn set(name: &str, value: &str) -> Result<bool, SysctlError> {
    let path = path(name);
    if std::fs::read_to_string(&path).is_ok_and(|now| now.trim() == value) {
        return Ok(false);
    }
    match std::fs::write(&path, value) {
        Ok(()) => Ok(true),
        Err(source) => Err(SysctlError { path, value: value.to_owned(), source }),
    }
}

/// Raises a number below `/proc/sys` to at least `value`; a refusal is left at that.
pub fn raise_setting(name: &str, value: u64) {
    let path = PathBuf::from("/proc/sys").join(name);
    let now = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse::<u64>().ok());
    if now.is_some_and(|now| now < value)
        && let Err(error) = std::fs::write(&path, value.to_string())
    {
        tracing::debug!(path = %path.display(), %error, "could not raise a limit");
    }
}

fn path(name: &str) -> PathBuf {
    PathBuf::from("/proc/sys/net").join(name)
}
