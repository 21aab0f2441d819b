//! A data folder for one test, from which nothing stays mounted or attached, whatever happens.

use std::path::{Path, PathBuf};

use roost_disk::{Pool, PoolConfig, Templates};
use roost_sys::mount::{UnmountFlags, mounts_below, unmount};

pub(crate) struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::Builder::new().prefix("roost-disk-").tempdir().expect("a temporary folder") }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    pub(crate) fn run(&self) -> PathBuf {
        self.path().join("run")
    }

    pub(crate) fn pool_config(&self) -> PoolConfig {
        PoolConfig { data_dir: self.data(), size: Some(256 << 20), reserve: 1 << 20 }
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
