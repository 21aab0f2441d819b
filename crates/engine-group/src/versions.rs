//! Programs of earlier versions, which lie beside the present one: each in a folder of its own, all under the same name.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The program on the host that `running` leads to: the present one, or that of an earlier version.
///
/// A sandbox outlives the daemon that started it, and its memory makes sense only with the program that it is of.
pub fn version_of(running: &Path, present: &Path) -> io::Result<PathBuf> {
    let identity = |file: Metadata| (file.dev(), file.ino());
    let running = identity(fs::metadata(running)?);
    let is_it = |path: &Path| fs::metadata(path).is_ok_and(|file| identity(file) == running);
    if is_it(present) {
        return Ok(present.to_owned());
    }
    let (versions, name) = (present.ancestors().nth(2), present.file_name());
    let (Some(versions), Some(name)) = (versions, name) else { return Err(io::ErrorKind::NotFound.into()) };
    for version in fs::read_dir(versions)? {
        let path = version?.path().join(name);
        if is_it(&path) {
            return Ok(path);
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_version_is_found_and_a_stranger_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let made = |version: &str| {
            let path = folder.path().join(version).join("guest");
            fs::create_dir(path.parent().unwrap()).unwrap();
            fs::write(&path, version).unwrap();
            path
        };
        let (earlier, present) = (made("1"), made("2"));
        let running = folder.path().join("running");
        for program in [&earlier, &present] {
            fs::hard_link(program, &running).unwrap();
            assert_eq!(version_of(&running, &present).unwrap(), *program);
            fs::remove_file(&running).unwrap();
        }
        fs::write(&running, "2").unwrap();
        assert_eq!(version_of(&running, &present).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
