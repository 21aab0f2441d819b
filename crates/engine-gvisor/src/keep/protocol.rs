//! What daemon and keeper say to each other.
//!
//! The daemon sends a [`Job`]; the keeper answers with [`Report::Born`], and with it handles on the first process and its
//! network. Once the network is plugged in the daemon sends [`Frame::PLUGGED`](roost_engine_group::Frame). [`Report::Up`] says
//! that runsc is through. The guest of a sandbox that is started has a socket of its own, from which it reads its configuration
//! and on which it says [`Frame::READY`](roost_engine_group::Frame).
//!
//! A job without a sandbox is for one that will come some day: [`Report::Waiting`] says that all is done that can be done ahead.
//! The daemon then sends a [`Graft`], and all goes on as above.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What a keeper is told first.
#[derive(Debug, Serialize, Deserialize)]
pub struct Job {
    /// Files of control groups to join.
    pub join: Vec<PathBuf>,
    /// The folder of the v2 control group to be born in.
    pub unified: Option<PathBuf>,
    /// The program runsc.
    pub runsc: PathBuf,
    /// The guest's program.
    pub guest: PathBuf,
    /// What runsc is told about the sandbox: an OCI runtime configuration.
    pub bundle: String,
    /// The sandbox; without one the keeper gets ready for one that comes later.
    pub sandbox: Option<Sandbox>,
}

/// A sandbox to bring into being.
#[derive(Debug, Serialize, Deserialize)]
pub struct Sandbox {
    /// Where the template is mounted.
    pub lower: PathBuf,
    /// The sandbox's subvolume with `root` and `work`.
    pub subvolume: PathBuf,
    /// The name that its processes know, for whoever saves it.
    pub hostname: String,
    /// The folder of the memory to restore; a new sandbox is started without.
    pub image: Option<PathBuf>,
}

/// A sandbox to be started or restored in what was made ahead.
#[derive(Debug, Serialize, Deserialize)]
pub struct Graft {
    /// The guest's program; the one that was running, if it is restored.
    pub guest: PathBuf,
    /// The sandbox.
    pub sandbox: Sandbox,
}

/// What a keeper reports.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Report {
    /// The first process exists.
    Born,
    /// All is done that can be done before it is known for whom.
    Waiting,
    /// The sandbox runs.
    Up,
    /// A step failed; nothing is left.
    Failed(Failure),
}

roost_engine_group::steps! {
    Talk "talk to the daemon",
    Join "join control groups",
    Clone "clone into new namespaces",
    Overlay "mount the root",
    Place "prepare the place where runsc runs",
    Graft "put its disk in place",
    Network "wait for the network",
    Runsc "run it by runsc",
}
