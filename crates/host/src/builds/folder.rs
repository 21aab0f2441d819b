//! Builds on the disk.
//!
//! ```text
//! builds/<id>/build.json   what the build is and what became of it
//!             log.jsonl    what it said, one line of JSON each
//! builds/files/<hash>      archives that steps copy from
//! builds/layers/<key>      the checkpoint of a state that steps led to
//! ```
//!
//! A description is replaced by a rename, so that it is whole whatever happens. The log is not synced: it is of use to
//! whoever watches, and says less after a crash.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use roost_model::{LimitsRequest, Name, Tag, TemplateId};
use serde::{Deserialize, Serialize};

use crate::HostError;

const META: &str = "build.json";
const LOG: &str = "log.jsonl";

/// How far a build has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum BuildState {
    /// Nobody has said yet what it is to do, or others go first.
    Waiting,
    /// It is at work.
    Building,
    /// The template is there.
    Ready,
    /// It failed, and nothing of it is left.
    Failed {
        /// Why.
        message: String,
        /// In which part.
        part: BuildPart,
    },
}

impl BuildState {
    /// Whether nothing more comes.
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Ready | Self::Failed { .. })
    }
}

/// A part of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BuildPart {
    /// Getting the template to start from.
    Base,
    /// A step, counted from 1.
    Step(u32),
    /// Starting what is to run in its sandboxes, and taking the template.
    Finish,
}

/// What is remembered of a build. Fields added later must have a default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BuildView {
    /// Its id, which becomes the template's.
    pub id: TemplateId,
    /// The template's name.
    pub name: Name,
    /// The tags that mean it when it is done.
    pub tags: Vec<Tag>,
    /// Limits of the template's sandboxes.
    pub limits: LimitsRequest,
    /// How far it has come.
    pub state: BuildState,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When it last came further.
    pub changed_at: Timestamp,
}

/// How much a line of a log matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BuildLevel {
    /// It goes on.
    Info,
    /// What a command wrote to its standard error.
    Warn,
    /// It failed.
    Error,
}

/// A line of a build's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildLine {
    /// When.
    pub at: Timestamp,
    /// How much it matters.
    pub level: BuildLevel,
    /// What.
    pub message: String,
    /// In which part.
    pub part: BuildPart,
}

/// The folder of one build.
#[derive(Debug, Clone)]
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    pub(super) fn of(home: &Path, id: &TemplateId) -> Self {
        Self { path: home.join(id.as_str()) }
    }

    /// The folders of all builds.
    pub(super) fn all(home: &Path) -> io::Result<Vec<Self>> {
        let entries = match fs::read_dir(home) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry?.path();
            let is_build = path.file_name().is_some_and(|name| name.to_string_lossy().parse::<TemplateId>().is_ok());
            found.extend(is_build.then_some(Self { path }));
        }
        Ok(found)
    }

    pub(super) fn write(&self, build: &BuildView) -> io::Result<()> {
        fs::create_dir_all(&self.path)?;
        let staged = self.path.join(format!(".{META}"));
        let mut file = File::create(&staged)?;
        serde_json::to_writer(&mut file, build)?;
        file.sync_all()?;
        fs::rename(&staged, self.path.join(META))?;
        File::open(&self.path)?.sync_all()
    }

    pub(super) fn read(&self) -> io::Result<BuildView> {
        Ok(serde_json::from_slice(&fs::read(self.path.join(META))?)?)
    }

    pub(super) fn append(&self, line: &BuildLine) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        File::options().create(true).append(true).open(self.path.join(LOG))?.write_all(&text)
    }

    /// Every whole line of the log.
    pub(super) fn log(&self) -> io::Result<Vec<BuildLine>> {
        let bytes = match fs::read(self.path.join(LOG)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            bytes => bytes?,
        };
        Ok(bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        roost_sys::tree::remove(&self.path)
    }
}

/// A failure of the folders that builds are kept in.
pub(super) fn failed(attempt: &str, error: &io::Error) -> HostError {
    let text = format!("failed to {attempt}: {error}");
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => HostError::HostFull(text),
        _ => HostError::Internal(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_is_found_again_with_what_it_said() {
        let home = tempfile::tempdir().unwrap();
        assert!(Folder::all(&home.path().join("none")).unwrap().is_empty());
        let build = BuildView {
            id: TemplateId::generate(),
            name: "web".parse().unwrap(),
            tags: vec![Tag::default()],
            limits: LimitsRequest::default(),
            state: BuildState::Failed { message: "no".into(), part: BuildPart::Step(2) },
            created_at: Timestamp::UNIX_EPOCH,
            changed_at: Timestamp::UNIX_EPOCH,
        };
        let folder = Folder::of(home.path(), &build.id);
        folder.write(&build).unwrap();
        let line = BuildLine {
            at: Timestamp::UNIX_EPOCH,
            level: BuildLevel::Warn,
            message: "two\nlines".into(),
            part: BuildPart::Base,
        };
        folder.append(&line).unwrap();
        folder.append(&line).unwrap();
        let log = home.path().join(build.id.as_str()).join(LOG);
        let length = fs::metadata(&log).unwrap().len();
        File::options().write(true).open(&log).unwrap().set_len(length - 3).unwrap();
        fs::create_dir(home.path().join("files")).unwrap();
        let found = Folder::all(home.path()).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].read().unwrap(), found[0].log().unwrap()), (build, vec![line]));
        folder.remove().unwrap();
        assert!(Folder::all(home.path()).unwrap().is_empty());
    }
}
