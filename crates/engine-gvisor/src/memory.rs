//! Saves a sandbox's memory and processes, and brings them back.
//!
//! ```text
//! frozen -> the sentry runs, nothing inside does (paused) -> saved -> frozen, and still paused until it is thawed
//! ```
//!
//! Between the caller's freeze and the pause processes may run for a moment. What is saved is the moment after that, and the
//! disk does not change any more until the caller thaws.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use roost_engine::{Dumped, EngineError, Running, StartSpec};
use roost_engine_group::blocking;
use roost_model::{NotKept, SandboxId, SavedProcess};
use roost_sys::cgroup::Group;
use serde::{Deserialize, Serialize};

use crate::control::{CallError, Place};
use crate::engine::Inner;
use crate::limits::Raised;
use crate::room::{sizes, within};
use crate::start::{Laps, Origin};

/// runsc's names, in the order in which it takes them.
const FILES: [&str; 3] = ["checkpoint.img", "pages_meta.img", "pages.img"];
/// What we write beside them.
const INFO: &str = "engine.json";

/// Phrases of the sentry's and what they mean to somebody who waits for a save.
const MEANINGS: [(&str, &str); 3] = [
    (
        "deleted and invalidated dentries",
        "a file that was deleted is still open or mapped, outside of /tmp, /var/tmp, /run and /dev/shm",
    ),
    ("no space left on device", "there is no room for its memory on the disk"),
    // It dereferences what a connection has only when it is made; google/gvisor#12567.
    ("resetConnectionLocked", "somebody had just begun to connect to it; gVisor forgets that within two minutes"),
];

/// What has to be known before an image can be restored.
#[derive(Debug, Serialize, Deserialize)]
struct ImageInfo {
    version: String,
    guest: PathBuf,
    hostname: String,
}

enum Outcome {
    Saved(Dumped),
    Refused(String),
}

impl Inner {
    pub(crate) async fn dump(&self, id: &SandboxId, into: &Path, room: u64) -> Result<Dumped, EngineError> {
        let (group, into) = (self.groups.group(id), into.to_owned());
        let Some(first) = self.groups.first("save memory", id)? else {
            return Err(EngineError::NotRunning { id: id.clone() });
        };
        let version = self.tool("save memory")?.image_version();
        let present = self.config.guest.clone();
        let raised = self.narrowing.of(id);
        let ended_before = group.oom_kills().unwrap_or(0);
        let saved = blocking(move || {
            let Some(place) = Place::of(&first)? else { return Ok(None) };
            let info = ImageInfo { version, guest: place.guest(&present)?, hostname: place.hostname()? };
            let saved = save(&group, &place, &into, &info, room, &raised);
            let frozen = if group.exists() { group.freeze().map_err(io::Error::other) } else { Ok(()) };
            raised.end_save(&group);
            let saved = saved?;
            frozen.map(|()| Some(saved))
        });
        let saved = match saved.await {
            Ok(saved) => Ok(saved),
            Err(source) => Err(self.failed("save memory", id, source).await),
        };
        match saved {
            Ok(Some(Outcome::Saved(dumped))) => Ok(dumped),
            Ok(Some(Outcome::Refused(why))) => Err(EngineError::NotSaved { id: id.clone(), process: None, why }),
            Ok(None) => Err(EngineError::NotRunning { id: id.clone() }),
            Err(EngineError::NotRunning { id }) if self.groups.group(&id).oom_kills().unwrap_or(0) > ended_before => {
                let why = "a save needs memory of the engine's own, and the limit for saves was reached".to_owned();
                Err(EngineError::EndedInSave { id, why })
            }
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn restore(&self, spec: StartSpec, image: &Path) -> Result<Running, EngineError> {
        let unfit = |why: String| EngineError::ImageUnfit { id: spec.id.clone(), why };
        let folder = image.to_owned();
        let info = blocking(move || read(&folder)).await.map_err(|error| unfit(error.to_string()))?;
        let version = self.tool("restore memory")?.image_version();
        if info.version != version {
            return Err(unfit(format!("it was made by `{}`, this is `{version}`", info.version)));
        }
        if !info.guest.exists() {
            return Err(unfit(format!("its guest `{}` is gone", info.guest.display())));
        }
        let origin = Origin { image: image.to_owned(), guest: info.guest, hostname: info.hostname };
        self.start(spec, Some(origin)).await
    }
}

fn save(
    group: &Group,
    place: &Place,
    into: &Path,
    info: &ImageInfo,
    room: u64,
    raised: &Raised,
) -> io::Result<Outcome> {
    let mut laps = Laps::new();
    let mut control = place.connect()?;
    group.thaw().map_err(io::Error::other)?;
    control.pause()?;
    // Not before: a process inside would take what is for the sentry.
    raised.begin_save(group);
    laps.lap("paused");
    let processes = control.processes()?;
    let create = |name| File::options().write(true).read(true).create_new(true).open(into.join(name));
    let files = [create(FILES[0])?, create(FILES[1])?, create(FILES[2])?];
    let (saved, fits) = within(&files, room, || control.save(&files.each_ref().map(File::as_fd)))?;
    match saved {
        Ok(()) if fits => {}
        Ok(()) => return Ok(Outcome::Refused(over_room(room))),
        Err(CallError::Refused(_)) if !fits => return Ok(Outcome::Refused(over_room(room))),
        Err(CallError::Refused(why)) => return Ok(Outcome::Refused(meaning(why))),
        Err(CallError::Talk(error)) => return Err(error),
    }
    laps.lap("saved");
    fs::write(into.join(INFO), serde_json::to_vec_pretty(info)?)?;
    let bytes = sizes(&files)?;
    let processes = processes.into_iter().map(|inside| SavedProcess { pid: inside.pid, name: inside.cmd }).collect();
    // Which there are only the sentry knows; they end in the sandbox that goes on, too.
    let not_kept = vec![NotKept {
        what: "TCP connections to the outside, if there were any".to_owned(),
        why: "gVisor ends them with each save".to_owned(),
    }];
    Ok(Outcome::Saved(Dumped { bytes, not_kept, processes, parts_us: laps.parts }))
}

fn read(image: &Path) -> io::Result<ImageInfo> {
    for name in FILES {
        let found = fs::metadata(image.join(name));
        found.map_err(|error| io::Error::new(error.kind(), format!("`{name}` is missing: {error}")))?;
    }
    Ok(serde_json::from_slice(&fs::read(image.join(INFO))?)?)
}

fn over_room(room: u64) -> String {
    format!("its image would take more than the {} MiB that are left for it", room >> 20)
}

fn meaning(why: String) -> String {
    let known = MEANINGS.iter().find(|(piece, _)| why.contains(piece));
    known.map_or(why, |(_, meaning)| (*meaning).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_sentry_says_is_put_into_words() {
        let said = "checkpoint failed: deleted and invalidated dentries can't be restored".to_owned();
        assert!(meaning(said).starts_with("a file that was deleted is still open"));
        let said =
            "encoding error: runtime error: nil\ngoroutine 9:\ntcp.(*Endpoint).resetConnectionLocked(0xc0, {0x1})";
        assert!(meaning(said.to_owned()).starts_with("somebody had just begun to connect"));
        assert_eq!(meaning("something new".into()), "something new");
    }

    #[test]
    fn an_empty_folder_is_no_image() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read(folder.path()).unwrap_err().to_string().contains("checkpoint.img"));
    }
}
