//! Packing and mounting EROFS images.

use std::fs::DirBuilder;
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use roost_sys::loopdev::{Access, LoopDevice, LoopError};
use roost_sys::mount::{self, FsContext, MountAttrFlags};

use super::import::{ImportError, Progress, Stage};

const TOOL: &str = "mkfs.erofs";
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// `statfs` type of an EROFS filesystem.
const FS_MAGIC: u64 = 0xe0f5_e1e2;

/// Why an image could not be mounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The mount point could not be made or looked at.
    #[error("failed to prepare `{}` for a template", path.display())]
    Prepare { path: PathBuf, source: io::Error },
    /// The kernel takes no image from a file and it could not become a device either.
    #[error("failed to attach a template's image")]
    Attach { source: LoopError },
    /// The kernel refused the image.
    #[error("failed to mount `{}`", image.display())]
    Mount { image: PathBuf, source: mount::MountError },
}

/// Packs the tree at `root` into a compressed image, whose path is absolute.
pub(super) fn pack(root: &Path, image: &Path, progress: &dyn Fn(Progress<'_>)) -> Result<(), ImportError> {
    let start = |source| ImportError::StartTool { tool: TOOL, package: "erofs-utils", source };
    let mut child = Command::new(TOOL)
        .args(["-zlz4hc", "--quiet"])
        .arg(image)
        .arg(".")
        // The paths of the tool are relative, so their length does not depend on the place of the data folder.
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(start)?;
    let mut errors = child.stderr.take();
    // It says little, but a full pipe would stop it; and it is the only sign of its end, with the loop's own clock.
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        if let Some(pipe) = errors.as_mut()
            && let Err(error) = pipe.read_to_string(&mut text)
        {
            text.push_str(&error.to_string());
        }
        text
    });
    let status = loop {
        match child.try_wait().map_err(start)? {
            Some(status) => break status,
            None => {
                let done = image.metadata().map_or(0, |m| m.len());
                progress(Progress::Bytes { stage: Stage::Pack, done });
                std::thread::sleep(LOOK_EVERY);
            }
        }
    };
    let output = reader.join().unwrap_or_default();
    if status.success() {
        return Ok(());
    }
    Err(ImportError::Tool { tool: TOOL, output: format!("{status}: {}", output.trim()) })
}

/// Mounts an image read-only at `target`, unless it is there already.
pub(super) fn mount(image: &Path, target: &Path) -> Result<(), MountError> {
    let prepare = |source: io::Error| MountError::Prepare { path: target.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(target).map_err(prepare)?;
    if is_mounted(target).map_err(prepare)? {
        return Ok(());
    }
    let failed = |source| MountError::Mount { image: image.to_owned(), source };
    // From kernel 6.12 on the image needs no device; one that cannot say so does not understand the question.
    match mount_source(image, target) {
        Ok(()) => return Ok(()),
        Err(error) => tracing::debug!(%error, "no file-backed mount, using a loop device"),
    }
    let device = LoopDevice::attach(image, Access::ReadOnly).map_err(|source| MountError::Attach { source })?;
    mount_source(device.path(), target).map_err(failed)
}

/// Whether an EROFS filesystem is mounted right at `target`.
pub(super) fn is_mounted(target: &Path) -> io::Result<bool> {
    Ok(rustix::fs::statfs(target)?.f_type as u64 == FS_MAGIC)
}

fn mount_source(source: &Path, target: &Path) -> Result<(), mount::MountError> {
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOATIME;
    FsContext::open("erofs")?.option("source", source)?.flag("ro")?.create(attributes)?.attach(target)
}
