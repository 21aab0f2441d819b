//! Device nodes of a root that its owner may have damaged.
//!
//! The nodes are part of the template. Root inside can delete or replace them but not make them anew, so a sandbox that
//! lost `/dev/null` to a slip of the hand would never start again. What hides a node is taken away before each start.

use std::io;
use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Dev, FileType, Mode, OFlags, major, makedev, minor};
use rustix::io::Errno;

const NODES: [(&str, u32, u32); 6] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];
const OPAQUE: &str = "trusted.overlay.opaque";

/// Puts the nodes right in `upper`, the folder of what the sandbox changed.
pub(super) fn mend(upper: &Path) -> io::Result<()> {
    let folder = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let upper = match rustix::fs::openat(CWD, upper, folder, Mode::empty()) {
        Ok(upper) => upper,
        // A missing disk is reported by the step that needs it.
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let dev = match rustix::fs::openat(&upper, "dev", folder, Mode::empty()) {
        Ok(dev) => dev,
        // Untouched: the template's own shows.
        Err(Errno::NOENT) => return Ok(()),
        // Deleted, or something else in its place: without that, the template's own shows again.
        Err(Errno::NOTDIR | Errno::LOOP) => return Ok(rustix::fs::unlinkat(&upper, "dev", AtFlags::empty())?),
        Err(error) => return Err(error.into()),
    };
    let opaque = hides_the_template(&dev);
    for (name, major, minor) in NODES {
        let device = makedev(major, minor);
        let right = match rustix::fs::statat(&dev, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if is_device(found.st_mode, found.st_rdev, device) => true,
            Ok(found) => {
                let kind = FileType::from_raw_mode(found.st_mode);
                let how = if kind == FileType::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
                match rustix::fs::unlinkat(&dev, name, how) {
                    Err(Errno::NOTEMPTY) => put_aside(&dev, name)?,
                    removed => removed?,
                }
                false
            }
            Err(Errno::NOENT) => false,
            Err(error) => return Err(error.into()),
        };
        if opaque && !right {
            rustix::fs::mknodat(&dev, name, FileType::CharacterDevice, Mode::from_raw_mode(0o666), device)?;
            rustix::fs::chmodat(&dev, name, Mode::from_raw_mode(0o666), AtFlags::empty())?;
        }
    }
    Ok(())
}

/// Renames a folder that has something in it, to a name that its owner could not foresee and take.
fn put_aside(dev: &OwnedFd, name: &str) -> io::Result<()> {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let aside = format!("{name}.replaced-{}-{:09}", now.tv_sec, now.tv_nsec);
    Ok(rustix::fs::renameat(dev, name, dev, aside)?)
}

fn is_device(mode: u32, found: Dev, wanted: Dev) -> bool {
    FileType::from_raw_mode(mode) == FileType::CharacterDevice
        && (major(found), minor(found)) == (major(wanted), minor(wanted))
}

/// A folder that was deleted and made again hides all of the template's.
fn hides_the_template(folder: &OwnedFd) -> bool {
    let mut value = [0_u8; 1];
    matches!(rustix::fs::fgetxattr(folder, OPAQUE, &mut value), Ok(1)) && value == *b"y"
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};

    use super::*;

    fn upper() -> tempfile::TempDir {
        tempfile::tempdir_in("/var/tmp").unwrap()
    }

    #[test]
    fn what_hides_the_template_goes() {
        let upper = upper();
        mend(upper.path()).unwrap();
        let dev = upper.path().join("dev");
        symlink("/etc", &dev).unwrap();
        mend(upper.path()).unwrap();
        assert!(fs::symlink_metadata(&dev).is_err());

        fs::create_dir(&dev).unwrap();
        fs::write(dev.join("null"), "no device").unwrap();
        fs::create_dir(dev.join("zero")).unwrap();
        fs::write(dev.join("mine"), "stays").unwrap();
        mend(upper.path()).unwrap();
        assert!(!dev.join("null").exists() && !dev.join("zero").exists() && dev.join("mine").exists());
    }

    #[test]
    fn full_folder_in_place_of_a_device_is_put_aside() {
        let upper = upper();
        let dev = upper.path().join("dev");
        fs::create_dir_all(dev.join("null/x")).unwrap();
        mend(upper.path()).unwrap();
        assert!(!dev.join("null").exists());
        let left: Vec<_> = fs::read_dir(&dev).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(left.len() == 1 && left[0].join("x").is_dir(), "{left:?}");
    }

    #[test]
    fn a_folder_made_anew_gets_nodes_of_its_own() {
        let upper = upper();
        let dev = upper.path().join("dev");
        fs::create_dir(&dev).unwrap();
        rustix::fs::setxattr(&dev, OPAQUE, b"y", rustix::fs::XattrFlags::empty()).unwrap();
        mend(upper.path()).unwrap();
        let null = fs::metadata(dev.join("null")).unwrap();
        assert!(null.file_type().is_char_device());
        assert_eq!((null.rdev(), null.mode() & 0o777), (makedev(1, 3), 0o666));
    }
}
