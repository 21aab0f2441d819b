//! Loop devices: files that are block devices, attached in one step and gone with their last user.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::ioctl::{Getter, Ioctl, IoctlOutput, NoArg, Opcode, Setter, ioctl};

const LOOP_GET_STATUS64: Opcode = 0x4c05;
const LOOP_SET_CAPACITY: Opcode = 0x4c07;
const LOOP_CONFIGURE: Opcode = 0x4c0a;
const LOOP_CTL_GET_FREE: Opcode = 0x4c82;

const FLAG_READ_ONLY: u32 = 1;
const FLAG_AUTOCLEAR: u32 = 4;
/// The kernel drops it quietly where the file's filesystem cannot do it.
const FLAG_DIRECT_IO: u32 = 16;

/// How often another process may snatch the free device we were told of.
const ATTEMPTS: u32 = 64;

/// A loop device failed to be attached, found or changed.
#[derive(Debug, thiserror::Error)]
#[error("failed to {attempt}")]
pub struct LoopError {
    attempt: String,
    source: io::Error,
}

impl LoopError {
    fn new(attempt: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self { attempt: attempt.into(), source: source.into() }
    }
}

/// `struct loop_info64`.
#[repr(C)]
#[derive(Clone, Copy)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopInfo>() == 232 && size_of::<LoopConfig>() == 304);

/// Asks the control device for a free number; the answer is the call's return value.
struct GetFree;

// SAFETY: `LOOP_CTL_GET_FREE` takes no argument and returns the number, so there is nothing to write to.
unsafe impl Ioctl for GetFree {
    type Output = u32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        LOOP_CTL_GET_FREE
    }

    fn as_ptr(&mut self) -> *mut libc::c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut libc::c_void) -> rustix::io::Result<u32> {
        u32::try_from(out).map_err(|_| Errno::NODEV)
    }
}

/// Whether the device may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The device refuses writes.
    ReadOnly,
    /// The device passes writes on to the file.
    ReadWrite,
}

/// An open loop device; it detaches by itself once nobody has it open or mounted.
#[derive(Debug)]
pub struct LoopDevice {
    file: File,
    path: PathBuf,
}

impl LoopDevice {
    /// Attaches `backing` to a free device, with direct I/O where the file's filesystem takes it: its
    /// content would be in the page cache a second time otherwise.
    ///
    /// Keep the value until the device is mounted: it is detached with its last user.
    pub fn attach(backing: &Path, access: Access) -> Result<Self, LoopError> {
        let attempt = || format!("attach `{}` to a loop device", backing.display());
        let writable = access == Access::ReadWrite;
        let file =
            OpenOptions::new().read(true).write(writable).open(backing).map_err(|e| LoopError::new(attempt(), e))?;
        let control = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/loop-control")
            .map_err(|e| LoopError::new("open `/dev/loop-control`", e))?;
        for _ in 0..ATTEMPTS {
            // SAFETY: `GetFree` states truly what the call does.
            let number =
                unsafe { ioctl(&control, GetFree) }.map_err(|e| LoopError::new("find a free loop device", e))?;
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let device = OpenOptions::new()
                .read(true)
                .write(writable)
                .open(&path)
                .map_err(|e| LoopError::new(format!("open `{}`", path.display()), e))?;
            match configure(device.as_fd(), file.as_fd(), access) {
                Ok(()) => {
                    return Ok(Self { file: device, path });
                }
                Err(Errno::BUSY) => {}
                Err(e) => return Err(LoopError::new(attempt(), e)),
            }
        }
        Err(LoopError::new(attempt(), Errno::BUSY))
    }

    /// Finds the device that `backing` is attached to.
    pub fn find(backing: &Path) -> Result<Option<Self>, LoopError> {
        let attempt = || format!("find the loop device of `{}`", backing.display());
        let wanted = std::fs::metadata(backing).map_err(|e| LoopError::new(attempt(), e))?;
        let entries = std::fs::read_dir("/sys/block").map_err(|e| LoopError::new(attempt(), e))?;
        for entry in entries.flatten() {
            // Only attached devices have this folder: the others are not even opened.
            if !entry.path().join("loop/backing_file").exists() {
                continue;
            }
            let path = Path::new("/dev").join(entry.file_name());
            let Ok(file) = OpenOptions::new().read(true).write(true).open(&path) else {
                continue;
            };
            // SAFETY: the kernel writes one `loop_info64`, which `LoopInfo` mirrors.
            let info = unsafe { ioctl(&file, Getter::<LOOP_GET_STATUS64, LoopInfo>::new()) };
            if info.is_ok_and(|i| i.inode == wanted.ino() && i.device == kernel_device(wanted.dev())) {
                return Ok(Some(Self { file, path }));
            }
        }
        Ok(None)
    }

    /// The device's path, to be mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for LoopDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Makes the attached device `path` as large as its file now is.
pub fn update_capacity(path: &Path) -> Result<(), LoopError> {
    let attempt = || format!("grow `{}`", path.display());
    let device = OpenOptions::new().read(true).write(true).open(path).map_err(|e| LoopError::new(attempt(), e))?;
    // SAFETY: `LOOP_SET_CAPACITY` takes no argument.
    unsafe { ioctl(&device, NoArg::<LOOP_SET_CAPACITY>::new()) }.map_err(|e| LoopError::new(attempt(), e))
}

fn configure(device: BorrowedFd<'_>, file: BorrowedFd<'_>, access: Access) -> Result<(), Errno> {
    let read_only = if access == Access::ReadOnly { FLAG_READ_ONLY } else { 0 };
    let config = LoopConfig {
        fd: file.as_raw_fd().unsigned_abs(),
        block_size: 0,
        info: LoopInfo {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            size_limit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags: FLAG_AUTOCLEAR | FLAG_DIRECT_IO | read_only,
            file_name: [0; 64],
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
        },
        reserved: [0; 8],
    };
    // SAFETY: the kernel reads one `loop_config`, which `LoopConfig` mirrors; `file` outlives the call and the
    // kernel takes its own reference.
    unsafe { ioctl(device, Setter::<LOOP_CONFIGURE, LoopConfig>::new(config)) }
}

/// The status ioctl shows a device number in the kernel's "huge" encoding, as `stat` does: both agree for the
/// numbers in use, but go through the parts so that a large minor cannot differ.
fn kernel_device(dev: u64) -> u64 {
    let (major, minor) = (u64::from(rustix::fs::major(dev)), u64::from(rustix::fs::minor(dev)));
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}
