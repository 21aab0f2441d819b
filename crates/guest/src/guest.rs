//! What all threads of the guest share.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread;
use std::time::Instant;

use roost_wire::{DefaultPlace, Failure, GuestConfig, GuestInfo, PROTOCOL};

use crate::calls::Calls;
use crate::connections::Connections;
use crate::exec::table::ExecTable;
use crate::files::watch::KeptWatches;
use crate::forward::Listeners;
use crate::hooks::Hooks;
use crate::identity::Identity;
use crate::name::Namer;
use crate::paths::resolve;
use crate::services::Services;
use crate::users::{User, Users};

/// Stacks of all threads but the first. Only touched pages count, so this is room, not use.
const STACK: usize = 256 * 1024;

/// The guest.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) config: GuestConfig,
    pub(crate) identity: RwLock<Identity>,
    pub(crate) execs: ExecTable,
    pub(crate) connections: Arc<Connections>,
    pub(crate) hooks: Hooks,
    pub(crate) services: Services,
    /// Listeners for somebody outside.
    pub(crate) listeners: Listeners,
    /// What processes inside ask of the host.
    pub(crate) calls: Calls,
    /// Watches that go on without a connection.
    pub(crate) watches: KeptWatches,
    pub(crate) attached: AtomicU32,
    /// Only one shutdown at a time.
    pub(crate) stopping: Mutex<()>,
    pub(crate) namer: Namer,
    started: Instant,
    /// How readily the kernel takes processes that the guest starts when memory runs out.
    pub(crate) child_oom_score: i32,
    /// Whether the whole sandbox is ours, or this is a test beside other processes.
    pub(crate) is_init: bool,
}

/// A user's place in the file system.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) user: User,
    base: PathBuf,
}

impl Place {
    /// What `path` means to this user.
    pub(crate) fn resolve(&self, path: &str) -> Result<PathBuf, Failure> {
        resolve(path, &self.base, Path::new(&self.user.home))
    }
}

impl Guest {
    pub(crate) fn new(config: GuestConfig, namer: Namer, child_oom_score: i32) -> Self {
        Self {
            identity: RwLock::new(Identity::of(&config)),
            execs: ExecTable::new(config.spool),
            connections: Arc::default(),
            hooks: Hooks::default(),
            services: Services::new(config.service_limits),
            listeners: Listeners::default(),
            calls: Calls::default(),
            watches: KeptWatches::default(),
            attached: AtomicU32::new(0),
            stopping: Mutex::default(),
            namer,
            started: Instant::now(),
            child_oom_score,
            is_init: std::process::id() == 1,
            config,
        }
    }

    pub(crate) fn info(&self) -> GuestInfo {
        let uptime = self.started.elapsed().as_millis();
        GuestInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: PROTOCOL,
            uptime_ms: u64::try_from(uptime).unwrap_or(u64::MAX),
            generation: self.identity.read().map(|identity| identity.generation).unwrap_or_default(),
        }
    }

    /// Who runs what names nobody, and where.
    pub(crate) fn default_place(&self) -> DefaultPlace {
        self.identity.read().unwrap_or_else(PoisonError::into_inner).place.clone()
    }

    /// Where relative paths start: the sandbox's working folder for its default user, the home of another.
    pub(crate) fn base_folder(&self, user: &User, asked_for: Option<&str>) -> PathBuf {
        let place = self.default_place();
        let is_default = asked_for.is_none_or(|name| name == place.user);
        match &place.workdir {
            Some(workdir) if is_default => Path::new("/").join(workdir),
            _ => PathBuf::from(&user.home),
        }
    }

    /// The place of `user`, or of the default user.
    pub(crate) fn place(&self, users: &Users, user: Option<&str>) -> Result<Place, Failure> {
        let found = users.find(user.unwrap_or(&self.default_place().user))?;
        Ok(Place { base: self.base_folder(&found, user), user: found })
    }
}

/// Counts something for as long as it lives.
#[derive(Debug)]
pub(crate) struct Counted<'a>(&'a AtomicU32);

impl<'a> Counted<'a> {
    pub(crate) fn new(counter: &'a AtomicU32) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        Self(counter)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A thread with a small stack.
pub(crate) fn small_thread(name: &str) -> thread::Builder {
    thread::Builder::new().name(name.to_owned()).stack_size(STACK)
}
