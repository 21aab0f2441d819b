//! What a guest is told at birth.
//!
//! The engine passes one end of a stream socket as file descriptor 3. It sends one [`crate::frame::Kind::Config`] frame;
//! the guest reads it, listens, answers with the one byte [`READY`] and closes it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::frame::{self, FrameError, HEADER_LEN, Header, Kind};
use crate::{GUEST_PORT, Key, ServiceLimits, ServiceSet};

/// The byte that says that the guest listens.
pub const READY: u8 = b'R';

/// Configuration of a guest.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GuestConfig {
    /// Id of the sandbox.
    pub id: String,
    /// Name of the sandbox.
    pub name: String,
    /// Key that connections must bring.
    pub key: Key,
    /// Host name inside.
    pub hostname: String,
    /// Whether it waits for an owner, who gives it another name before anything is started in it.
    #[serde(default)]
    pub waits: bool,
    /// Whether what is started may use the guest's memory until it runs its program, which is quicker than a copy. Not where a
    /// save goes by processes: it would find two with one memory.
    #[serde(default)]
    pub lends_memory: bool,
    /// Generation of the sandbox.
    #[serde(default)]
    pub generation: u64,
    /// Who runs processes and owns files unless a call says otherwise: a name or `uid[:gid]`.
    #[serde(default = "root")]
    pub default_user: String,
    /// Where processes of the default user start; its home when absent.
    #[serde(default)]
    pub workdir: Option<String>,
    /// Environment of every process.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// How much output is kept.
    #[serde(default)]
    pub spool: SpoolLimits,
    /// What it keeps up from the first moment on.
    #[serde(default)]
    pub services: ServiceSet,
    /// How it does that.
    #[serde(default)]
    pub service_limits: ServiceLimits,
    /// Where to listen; port [`GUEST_PORT`] on every address unless a test wants another.
    #[serde(default = "everywhere")]
    pub listen: SocketAddr,
    /// Folder of the files that tell processes who they are.
    #[serde(default = "run_dir")]
    pub run_dir: String,
    /// Folder of `hostname` and `hosts`, and of `roost/on-wake.d` and `roost/on-fork.d`.
    #[serde(default = "etc_dir")]
    pub etc_dir: String,
    /// Folder of the spool files; emptied at start.
    #[serde(default = "spool_dir")]
    pub spool_dir: String,
    /// Folder of the log of hooks, and of `roost/<service>/`.
    #[serde(default = "log_dir")]
    pub log_dir: String,
}

/// How much output the guest keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SpoolLimits {
    /// Bytes of each stream in memory; beyond it a file is used.
    pub memory: u64,
    /// Bytes of each stream in its file, where the oldest are overwritten.
    pub file: u64,
    /// Bytes of all finished execs together; the oldest are forgotten.
    pub finished_total: u64,
    /// How many finished execs are remembered.
    pub finished_count: u32,
    /// How long a reader that wants everything may stand still before it stops holding its process back.
    pub stall_ms: u64,
}

impl Default for SpoolLimits {
    fn default() -> Self {
        Self {
            memory: 64 * 1024,
            file: 16 * 1024 * 1024,
            finished_total: 256 * 1024 * 1024,
            finished_count: 256,
            // Long enough for somebody who reads page by page; one who left is noticed by the connection.
            stall_ms: 3_600_000,
        }
    }
}

/// The start-up stream did not carry a configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The bytes are not a frame or the body is not a configuration.
    #[error("failed to decode the guest's configuration")]
    Frame(#[from] FrameError),
    /// The stream carries another frame.
    #[error("expected a configuration frame, found {0:?}")]
    OtherFrame(Kind),
}

impl GuestConfig {
    /// A configuration with everything else at its default.
    pub fn new(id: impl Into<String>, name: impl Into<String>, key: Key) -> Self {
        let name = name.into();
        Self {
            id: id.into(),
            hostname: name.clone(),
            name,
            key,
            waits: false,
            lends_memory: false,
            generation: 0,
            default_user: root(),
            workdir: None,
            env: BTreeMap::new(),
            spool: SpoolLimits::default(),
            services: ServiceSet::default(),
            service_limits: ServiceLimits::default(),
            listen: everywhere(),
            run_dir: run_dir(),
            etc_dir: etc_dir(),
            spool_dir: spool_dir(),
            log_dir: log_dir(),
        }
    }

    /// The frame to send on the start-up stream.
    pub fn encode(&self) -> Result<Vec<u8>, FrameError> {
        let mut out = Vec::new();
        frame::put_json(&mut out, Kind::Config, self)?;
        Ok(out)
    }

    /// Reads the configuration from the bytes received so far; `None` while more are needed.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, ConfigError> {
        let Some(header) = Header::parse(bytes)? else {
            return Ok(None);
        };
        if header.kind != Kind::Config {
            return Err(ConfigError::OtherFrame(header.kind));
        }
        let Some(body) = bytes.get(HEADER_LEN..HEADER_LEN + header.len) else {
            return Ok(None);
        };
        Ok(Some(frame::json_body(Kind::Config, body)?))
    }
}

fn root() -> String {
    "root".to_owned()
}

fn everywhere() -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], GUEST_PORT))
}

fn run_dir() -> String {
    "/run/roost".to_owned()
}

fn etc_dir() -> String {
    "/etc".to_owned()
}

fn spool_dir() -> String {
    "/var/lib/roost-guest/spool".to_owned()
}

fn log_dir() -> String {
    "/var/log".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_arrives_in_pieces() {
        let mut config = GuestConfig::new("sbx_1", "web", Key::from_bytes([7; 32]));
        config.env.insert("A".into(), "b".into());
        let bytes = config.encode().unwrap();
        for cut in 0..bytes.len() {
            assert!(GuestConfig::decode(&bytes[..cut]).unwrap().is_none());
        }
        let back = GuestConfig::decode(&bytes).unwrap().unwrap();
        assert_eq!((back.id, back.env, back.listen.port()), ("sbx_1".into(), config.env, GUEST_PORT));
    }

    #[test]
    fn another_frame_is_refused() {
        let mut bytes = Vec::new();
        frame::put_json(&mut bytes, Kind::Request, &crate::Request::Ping).unwrap();
        assert!(matches!(GuestConfig::decode(&bytes), Err(ConfigError::OtherFrame(Kind::Request))));
        assert!(GuestConfig::decode(b"{}").is_err());
    }
}
