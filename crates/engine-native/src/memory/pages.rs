//! Memory that a sandbox gets while it runs already; the daemon's half.
//!
//! A sandbox with much memory would wait for all of it to be read. A server of pages (see `launch::pages`) lets it run at
//! once. CRIU needs `userfaultfd` for that inside of the sandbox's user namespace, which the kernel gives only where
//! `vm.unprivileged_userfaultfd` is 1. Programs inside cannot call it in any case: the system call filter refuses it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use roost_engine::EngineError;
use roost_engine_group::{Heard, blocking, step_failed};
use roost_model::SandboxId;
use roost_sys::tree;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sendto, socket_with};

use super::dump::{is_taken, until_free};
use super::refusal::Refusal;
use crate::engine::Inner;
use crate::launch::{Criu, Failure, Job, PagesSpec, Report};
use crate::launcher::Launcher;
use crate::start::failed;

/// From so much memory on a server is worth its own start; so much is read before, of what is needed first.
pub(super) const LAZY_FROM: u64 = 24 << 20;
/// How long all pages may take; longer means that the server hangs.
const PATIENCE: Duration = Duration::from_secs(120);
/// What the name of a server's folder begins with; the engine's tag, the sandbox's id and the moment of its start follow.
const FOLDERS: &str = "pages-";
const SETTING: &str = "/proc/sys/vm/unprivileged_userfaultfd";

/// A server that listens.
#[derive(Debug)]
pub(crate) struct Pages {
    launcher: Launcher,
    folder: PathBuf,
}

/// Sees to it that the kernel lets a sandbox's memory be served; whether it does.
pub(crate) fn allow(wanted: bool) -> bool {
    let is_set = || fs::read_to_string(SETTING).is_ok_and(|text| text.trim() == "1");
    if wanted && !is_set() && fs::write(SETTING, "1").is_ok() {
        tracing::info!(
            "set vm.unprivileged_userfaultfd to 1, so that large sandboxes wake before all their memory is read"
        );
    }
    wanted && is_set()
}

impl Pages {
    /// Follows it to its end, without anybody waiting for it.
    pub(crate) fn follow(mut self, id: &SandboxId) {
        let id = id.clone();
        tokio::spawn(async move {
            match self.launcher.next().await {
                Ok(Some(Heard::Report(Report::Done { .. }))) => {}
                Ok(Some(Heard::Report(Report::CriuFailed { log, .. }))) => {
                    let why = Refusal::read(&log).why;
                    tracing::error!(sandbox = %id, why, "its memory could not be brought back whole: it was ended");
                }
                other => tracing::error!(sandbox = %id, outcome = ?other, "lost sight of who serves its memory"),
            }
            if let Err(error) = self.launcher.finish().await {
                tracing::warn!(sandbox = %id, %error, "failed to wait for who served its memory");
            }
            remove(&self.folder);
        });
    }
}

/// Tells the server behind this lock to end.
fn dismiss(lock: &str) -> io::Result<()> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let address = SocketAddrUnix::new_abstract_name(lock.as_bytes())?;
    sendto(&socket, b"end", SendFlags::empty(), &address)?;
    Ok(())
}

/// Gives an image's files a second name each; nothing is copied.
fn link_all(image: &Path, into: &Path) -> io::Result<()> {
    fs::create_dir_all(into)?;
    for entry in fs::read_dir(image)? {
        let entry = entry?;
        fs::hard_link(entry.path(), into.join(entry.file_name()))?;
    }
    Ok(())
}

fn folders_of(tag: &str) -> String {
    format!("{FOLDERS}{tag}-")
}

/// Whom the server with this folder serves, if it is one of this engine's.
fn served(folder: &str, tag: &str) -> Option<SandboxId> {
    folder.strip_prefix(&folders_of(tag))?.split('-').next()?.parse().ok()
}

fn remove(folder: &Path) {
    if let Err(error) = tree::remove(folder) {
        tracing::debug!(%error, "failed to remove the folder of a server of pages");
    }
}

impl Inner {
    /// Makes the folder of a server for an image, if it is large enough for one and the kernel allows it.
    pub(crate) async fn place_for_pages(&self, id: &SandboxId, bytes: u64) -> Result<Option<PathBuf>, EngineError> {
        if bytes < LAZY_FROM || !self.memory.lazy_pages || self.members(id).is_none() {
            return Ok(None);
        }
        // One for a restore that an earlier daemon began.
        self.end_pages(id).await?;
        // One for each server: that of an earlier one is removed when it is through, whenever that is.
        let moment = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let folder = self.config.cache.join(format!("{}{id}-{moment}", folders_of(&self.config.tag)));
        let made = folder.clone();
        blocking(move || fs::create_dir(made)).await.map_err(failed("make a folder for its pages", id))?;
        Ok(Some(folder))
    }

    /// Starts a server for the image in its folder, if the image can be linked there; else the folder is gone.
    pub(crate) async fn serve_pages(&self, id: &SandboxId, criu: &Criu, image: &Path, folder: &Path) -> Option<Pages> {
        let served = self.attempt_to_serve(id, criu, image, folder).await.unwrap_or_else(|error| {
            tracing::warn!(sandbox = %id, %error, "nobody serves its memory: all of it is read first");
            None
        });
        if served.is_none() {
            remove(folder);
        }
        served
    }

    async fn attempt_to_serve(
        &self,
        id: &SandboxId,
        criu: &Criu,
        image: &Path,
        folder: &Path,
    ) -> Result<Option<Pages>, EngineError> {
        let Some(members) = self.members(id) else { return Ok(None) };
        let (folder, linked) = (folder.to_owned(), image.to_owned());
        let made = folder.join(PagesSpec::IMAGE);
        match blocking(move || link_all(&linked, &made)).await {
            // Images on another filesystem than the cache: without links of its own, all memory is read first.
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => return Ok(None),
            made => made.map_err(failed("link the image for its pages", id))?,
        }
        let spec = PagesSpec { criu: criu.clone(), folder: folder.clone(), members, lock: self.pages_lock(id) };
        let talk = failed("talk to the launcher", id);
        let mut launcher = Launcher::spawn_lasting(&self.mother).await.map_err(&talk)?;
        launcher.begin(&Job::Pages(spec), &[]).await.map_err(&talk)?;
        loop {
            match launcher.next().await.map_err(&talk)? {
                Some(Heard::Report(Report::Serving)) => return Ok(Some(Pages { launcher, folder })),
                Some(Heard::Report(Report::CriuFailed { log, .. })) => {
                    let detail = Refusal::read(&log).why;
                    return Err(EngineError::Failed { step: "serve its memory", id: id.clone(), detail });
                }
                Some(Heard::Report(Report::Failed(Failure { step, detail, full }))) => {
                    return Err(step_failed(step.name(), detail, full, id));
                }
                Some(_) => {}
                None => return Err(talk(io::ErrorKind::UnexpectedEof.into())),
            }
        }
    }

    /// The file that lists its processes.
    fn members(&self, id: &SandboxId) -> Option<PathBuf> {
        self.group(id).freezer_folder().map(|folder| folder.join("cgroup.procs"))
    }

    /// Waits until all memory of a sandbox is where it belongs; before that it cannot be saved again.
    pub(crate) async fn await_pages(&self, id: &SandboxId) -> Result<(), EngineError> {
        let timed_out = |_| failed("wait for its memory", id)(io::ErrorKind::TimedOut.into());
        until_free(&self.pages_lock(id), PATIENCE).await.map_err(timed_out)
    }

    /// Ends the server of a restore that failed.
    pub(crate) async fn dismiss_pages(&self, id: &SandboxId, pages: Pages) {
        remove(&pages.folder);
        if let Err(error) = self.end_pages(id).await {
            tracing::warn!(sandbox = %id, %error, "failed to end who served its memory");
        }
    }

    /// Ends a server that serves nobody, if there is one.
    async fn end_pages(&self, id: &SandboxId) -> Result<(), EngineError> {
        let lock = self.pages_lock(id);
        if is_taken(&lock) {
            // It may end by itself just now.
            dismiss(&lock).ok();
            self.await_pages(id).await?;
        }
        Ok(())
    }

    /// Removes what servers left that ended without a daemon.
    pub(crate) fn sweep_pages(&self) -> io::Result<()> {
        let entries = match fs::read_dir(&self.config.cache) {
            // The first start: nothing was kept yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let of = name.to_str().and_then(|name| served(name, &self.config.tag));
            if of.is_some_and(|id| !is_taken(&self.pages_lock(&id))) {
                remove(&entry.path());
            }
        }
        Ok(())
    }

    fn pages_lock(&self, id: &SandboxId) -> String {
        format!("roost-{}-pages-{id}", self.config.tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_another_engine_are_not_ours_to_sweep() {
        let id = SandboxId::generate();
        let name = format!("{}{id}-17", folders_of("a1"));
        assert_eq!(served(&name, "a1"), Some(id));
        assert_eq!(served(&name, "a"), None);
        assert_eq!(served(&name, "b2"), None);
        assert_eq!(served("templates", "a1"), None);
    }

    #[test]
    fn a_server_can_read_an_image_that_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let (image, own) = (folder.path().join("image"), folder.path().join("pages-x").join(PagesSpec::IMAGE));
        fs::create_dir(&image).unwrap();
        fs::write(image.join("pages-1.img"), "pages").unwrap();
        link_all(&image, &own).unwrap();
        tree::remove(&image).unwrap();
        assert_eq!(fs::read_to_string(own.join("pages-1.img")).unwrap(), "pages");
    }
}
