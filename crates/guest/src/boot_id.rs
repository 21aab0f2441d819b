//! What identifies this life of the sandbox: a file of ours that `/proc/sys/kernel/random/boot_id` shows.
//!
//! It stays over every sleep in which processes stay, and is renewed in a fork. An engine on the host's kernel puts the file
//! there, since that kernel's own is the same for all; on a kernel of the sandbox's own the guest does.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::mount::mount_bind;

const FILE: &str = "boot_id";
const SHOWN: &str = "/proc/sys/kernel/random/boot_id";

/// Makes the file and shows it in the place of the kernel's own; takes the privilege to mount.
pub(crate) fn show(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let file = folder.join(FILE);
    fs::write(&file, random_id()?)?;
    Ok(mount_bind(&file, SHOWN)?)
}

/// Gives a fork one of its own, where there is such a file; in place, because that very file is shown.
pub(crate) fn renew(folder: &Path) -> io::Result<()> {
    let file = match OpenOptions::new().write(true).open(folder.join(FILE)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    file.write_all_at(random_id()?.as_bytes(), 0)
}

/// A random UUID and a line break, as kernels show it; not every kernel has a file that makes them.
fn random_id() -> io::Result<String> {
    let mut bytes = [0; 16];
    io::Read::read_exact(&mut fs::File::open("/dev/urandom")?, &mut bytes)?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut text = String::with_capacity(37);
    for (place, byte) in bytes.iter().enumerate() {
        if matches!(place, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        // Writing to a string cannot fail.
        write!(text, "{byte:02x}").ok();
    }
    text.push('\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn it_is_renewed_in_place_and_never_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        renew(folder.path()).unwrap();
        assert!(!path.exists());
        let old = fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap();
        fs::write(&path, &old).unwrap();
        let inode = fs::metadata(&path).unwrap().ino();
        renew(folder.path()).unwrap();
        let new = fs::read_to_string(&path).unwrap();
        assert_eq!((new.len(), fs::metadata(&path).unwrap().ino()), (old.len(), inode));
        assert_ne!(new, old);
    }

    #[test]
    fn it_looks_as_a_kernel_makes_it() {
        let (ours, kernels) = (random_id().unwrap(), fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap());
        let shape = |id: &str| id.chars().map(|c| if c.is_ascii_hexdigit() { 'x' } else { c }).collect::<String>();
        assert_eq!(shape(&ours), shape(&kernels));
        assert_eq!(ours.chars().nth(14), Some('4'));
    }
}
