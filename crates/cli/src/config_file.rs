//! `roost.toml`, read into plain `key = value` texts.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::Deserialize;

use crate::config::ConfigError;

/// Settings by dotted key.
pub(crate) type Entries = BTreeMap<String, String>;

/// A value that may be written with or without quotes, or a list of words.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Value {
    Text(String),
    Whole(i64),
    Fraction(f64),
    Switch(bool),
    List(Vec<String>),
}

impl Value {
    fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Whole(number) => number.to_string(),
            Self::Fraction(number) => number.to_string(),
            Self::Switch(on) => on.to_string(),
            Self::List(words) if words.is_empty() => "none".to_owned(),
            Self::List(words) => words.join(","),
        }
    }
}

/// The file's keys; anything else in it is a mistake that the person should hear of.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    runtime_dir: Option<Value>,
    socket: Option<Value>,
    listen: Option<Value>,
    tls_cert: Option<Value>,
    tls_key: Option<Value>,
    ssh_listen: Option<Value>,
    domain: Option<Value>,
    default_template: Option<Value>,
    template_folders: Option<Value>,
    default_engine: Option<Value>,
    pool_size: Option<Value>,
    network_slots: Option<Value>,
    lazy_pages: Option<Value>,
    full_quotas: Option<Value>,
    log: Option<Value>,
    #[serde(default)]
    limits: FileLimits,
    #[serde(default)]
    memory: FileMemory,
    #[serde(default)]
    capabilities: FileCapabilities,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileCapabilities {
    default: Option<Value>,
    allowed: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileMemory {
    low: Option<Value>,
    critical: Option<Value>,
    max_active: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileLimits {
    cpus: Option<Value>,
    memory: Option<Value>,
    disk: Option<Value>,
    pids: Option<Value>,
    images: Option<Value>,
}

/// Reads the file; a missing one has no entries.
pub(crate) fn read(path: &Path) -> Result<Entries, ConfigError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Entries::default()),
        Err(source) => return Err(ConfigError::Read { path: path.to_owned(), source }),
    };
    let file: File = toml::from_str(&text)
        .map_err(|source| ConfigError::Syntax { path: path.to_owned(), source: Box::new(source) })?;
    let (limits, memory, capabilities) = (file.limits, file.memory, file.capabilities);
    let entries = [
        ("runtime_dir", file.runtime_dir),
        ("socket", file.socket),
        ("listen", file.listen),
        ("tls_cert", file.tls_cert),
        ("tls_key", file.tls_key),
        ("ssh_listen", file.ssh_listen),
        ("domain", file.domain),
        ("default_template", file.default_template),
        ("template_folders", file.template_folders),
        ("default_engine", file.default_engine),
        ("pool_size", file.pool_size),
        ("network_slots", file.network_slots),
        ("lazy_pages", file.lazy_pages),
        ("full_quotas", file.full_quotas),
        ("log", file.log),
        ("limits.cpus", limits.cpus),
        ("limits.memory", limits.memory),
        ("limits.disk", limits.disk),
        ("limits.pids", limits.pids),
        ("limits.images", limits.images),
        ("capabilities.default", capabilities.default),
        ("capabilities.allowed", capabilities.allowed),
        ("memory.low", memory.low),
        ("memory.critical", memory.critical),
        ("memory.max_active", memory.max_active),
    ];
    Ok(entries.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.into_text()))).collect())
}
