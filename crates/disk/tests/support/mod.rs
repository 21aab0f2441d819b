//! A data folder for one test, from which nothing stays mounted or attached, whatever happens.

pub(crate) mod archive;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use roost_disk::{Pool, PoolConfig, Templates};
use roost_sys::loopdev::{Access, LoopDevice};
use roost_sys::mount::{FsContext, MountAttrFlags, UnmountFlags, isolate, mounts_below, unmount};

pub(crate) struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    /// Makes the folder. Mounts below it are in a namespace of this thread's: a sandbox that starts meanwhile copies the
    /// host's mounts for a moment, and a mount in that copy would keep the test from unmounting its file system.
    pub(crate) fn new() -> Self {
        isolate().expect("a mount namespace");
        Self { folder: tempfile::Builder::new().prefix("roost-disk-").tempdir().expect("a temporary folder") }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    pub(crate) fn images(&self) -> PathBuf {
        self.data().join("images")
    }

    pub(crate) fn run(&self) -> PathBuf {
        self.path().join("run")
    }

    pub(crate) fn pool_config(&self) -> PoolConfig {
        PoolConfig { size: Some(256 << 20), reserve: 1 << 20, ..PoolConfig::new(self.data()) }
    }

    pub(crate) fn pool(&self) -> Pool {
        Pool::open(&self.pool_config()).expect("the pool opens")
    }

    pub(crate) fn templates(&self) -> Templates {
        Templates::open(&self.data(), &self.run()).expect("the templates open").with_reserve(1 << 20)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let path = self.path().canonicalize().expect("the folder is there");
        for entry in mounts_below(&path).expect("the mount table").iter().rev() {
            unmount(&entry.target, UnmountFlags::DETACH).expect("unmounted");
        }
    }
}

/// A filesystem in a file, mounted for a data folder to lie on; the home takes the mount down if nobody else did.
pub(crate) struct Machine {
    mount_point: PathBuf,
}

impl Machine {
    /// Makes a filesystem of this kind and size in a new file.
    pub(crate) fn format(device: &Path, kind: &str, size: u64) {
        File::create_new(device).and_then(|file| file.set_len(size)).expect("a new file");
        let made = Command::new(format!("mkfs.{kind}")).arg("-q").arg(device).output().expect("mkfs starts");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }

    pub(crate) fn start(home: &Home, device: &Path, kind: &str) -> Self {
        let mount_point = home.path().join("machine");
        std::fs::create_dir_all(&mount_point).expect("a mount point");
        let device = LoopDevice::attach(device, Access::ReadWrite).expect("a loop device");
        let context = FsContext::open(kind).and_then(|context| context.option("source", device.path()));
        let mounted = context.and_then(|context| context.create(MountAttrFlags::empty()));
        mounted.and_then(|mounted| mounted.attach(&mount_point)).expect("mounted");
        Self { mount_point }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.mount_point.join("data")
    }

    pub(crate) fn pool(&self) -> Pool {
        let config = PoolConfig { size: Some(160 << 20), reserve: 1 << 20, ..PoolConfig::new(self.data()) };
        Pool::open(&config).expect("the pool opens")
    }

    /// Unmounts everything in good order.
    pub(crate) fn stop(self, pool: Pool) {
        pool.close().expect("the pool closes");
        unmount(&self.mount_point, UnmountFlags::empty()).expect("unmounted");
    }
}
