//! Settings of the daemon: defaults, then `roost.toml` in the data folder, then `ROOST_…` variables, then flags.
//!
//! Each setting remembers where it came from, for `roost config` and for errors.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use roost_host::CapabilityPolicy;
use roost_model::{Capability, Domain, DomainError, EngineChoice, Limits, LimitsRequest};
use roost_net::MOST_SLOTS;

use crate::args::SettingArgs;
use crate::config_file::{self, Entries};
use crate::memory::{MemorySettings, parse_amount, parse_most};
use crate::units::{parse_size, show_size};

const DEFAULT_DATA_DIR: &str = "/var/lib/roost";
const DEFAULT_RUNTIME_DIR: &str = "/run/roost";
const DEFAULT_PORT: u16 = 7077;
/// The word for a setting that is not there.
const NONE: &str = "none";
const DEFAULT_SSH_PORT: u16 = 2222;

/// What the daemon runs with.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ServeConfig {
    /// Where everything is kept.
    pub(crate) data_dir: PathBuf,
    /// Where things are that do not outlive a reboot.
    pub(crate) runtime_dir: PathBuf,
    /// The unix socket.
    pub(crate) socket: PathBuf,
    /// The address for HTTP, if any.
    pub(crate) listen: Option<SocketAddr>,
    /// Certificate and key for that address; plain HTTP without.
    pub(crate) tls: Option<TlsFiles>,
    /// The address for SSH, if any.
    pub(crate) ssh_listen: Option<SocketAddr>,
    /// Ports of sandboxes are served below it.
    pub(crate) domain: Domain,
    /// Template of sandboxes that ask for none.
    pub(crate) default_template: String,
    /// Folders of this host that templates may be made of by callers other than the owner of the socket.
    pub(crate) template_folders: Vec<PathBuf>,
    /// Engine of sandboxes that ask for none.
    pub(crate) default_engine: EngineChoice,
    /// Size of the pool's file.
    pub(crate) pool_size: Option<u64>,
    /// How many sandboxes may have a network at once.
    pub(crate) network_slots: usize,
    /// Whether large sandboxes may run before all their memory is read.
    pub(crate) lazy_pages: bool,
    /// Whether disks are limited by full qgroups on kernels without simple quotas.
    pub(crate) full_quotas: bool,
    /// Limits of sandboxes that ask for none; a limit of memory that is not set goes by the size of the host, and the image
    /// budget by the other limits.
    pub(crate) limits: LimitsRequest,
    /// Capabilities that sandboxes get beyond the usual ones, and those that they can be given.
    pub(crate) capabilities: CapabilityPolicy,
    /// When memory is short, and how many sandboxes may be awake.
    pub(crate) memory: MemorySettings,
    /// How the log is written.
    pub(crate) log: LogFormat,
    /// End every sandbox when the daemon stops.
    pub(crate) stop_all: bool,
}

/// Where a certificate and its key are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

/// How the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Where a setting came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    File(PathBuf),
    Variable(String),
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// One setting in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) key: &'static str,
    pub(crate) value: String,
    pub(crate) origin: Origin,
}

/// The configuration and the story of each setting.
#[derive(Debug, Clone)]
pub(crate) struct Loaded {
    pub(crate) config: ServeConfig,
    pub(crate) settings: Vec<Setting>,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("failed to read `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("failed to understand `{}`", path.display())]
    Syntax { path: PathBuf, source: Box<toml::de::Error> },
    #[error("setting `{key}` from {origin}: {problem}")]
    Value { key: &'static str, origin: Origin, problem: String },
}

/// Reads the configuration; `variable` looks up the environment.
pub(crate) fn load(
    flags: &SettingArgs,
    socket: Option<&Path>,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Loaded, ConfigError> {
    let text = |path: &Path| path.display().to_string();
    let mut sources = Sources { variable, file: Entries::default(), path: PathBuf::new(), settings: Vec::new() };

    let data_dir = sources.pick("data_dir", flags.data_dir.as_deref().map(text), || DEFAULT_DATA_DIR.to_owned());
    let data_dir = absolute(&data_dir);
    sources.path = data_dir.join("roost.toml");
    sources.file = config_file::read(&sources.path)?;

    let runtime_dir = PathBuf::from(sources.pick("runtime_dir", None, || match data_dir.as_os_str().to_str() {
        Some(DEFAULT_DATA_DIR) => DEFAULT_RUNTIME_DIR.to_owned(),
        _ => data_dir.join("run").display().to_string(),
    }));
    let socket = sources.pick("socket", socket.map(text), || runtime_dir.join("roost.sock").display().to_string());
    let listen = sources.pick("listen", flags.listen.clone(), || format!("127.0.0.1:{DEFAULT_PORT}"));
    let listen = sources.check("listen", parse_listen(&listen))?;
    let tls_cert = sources.pick("tls_cert", flags.tls_cert.as_deref().map(text), || NONE.to_owned());
    let tls_key = sources.pick("tls_key", flags.tls_key.as_deref().map(text), || NONE.to_owned());
    let tls = sources.check("tls_cert", parse_tls(&tls_cert, &tls_key))?;
    // One daemon of a host has the port; others must be told one.
    let ssh_listen = sources.pick("ssh_listen", flags.ssh_listen.clone(), || match data_dir.as_os_str().to_str() {
        Some(DEFAULT_DATA_DIR) => format!("127.0.0.1:{DEFAULT_SSH_PORT}"),
        _ => NONE.to_owned(),
    });
    let ssh_listen = sources.check("ssh_listen", parse_listen(&ssh_listen))?;
    let domain = sources.pick("domain", flags.domain.clone(), || {
        let scheme = if tls.is_some() { "https://" } else { "" };
        format!("{scheme}localhost:{}", listen.map_or(DEFAULT_PORT, |address| address.port()))
    });
    let domain = sources.check("domain", domain.parse().map_err(|error: DomainError| error.to_string()))?;
    let default_template = sources.pick("default_template", flags.default_template.clone(), || "base".to_owned());
    let template_folders = sources.pick("template_folders", None, || NONE.to_owned());
    let template_folders = sources.check("template_folders", parse_folders(&template_folders))?;
    let default_engine = sources.pick("default_engine", flags.default_engine.clone(), || "native".to_owned());
    let default_engine = sources.check("default_engine", default_engine.parse())?;
    let pool_size = sources.pick("pool_size", flags.pool_size.clone(), || "auto".to_owned());
    let pool_size = sources.check("pool_size", parse_size_or_auto(&pool_size))?;
    let network_slots = sources.pick("network_slots", None, || MOST_SLOTS.to_string());
    let network_slots = sources.check("network_slots", parse_slots(&network_slots))?;
    let lazy_pages = sources.pick("lazy_pages", flags.lazy_pages.clone(), || "on".to_owned());
    let lazy_pages = sources.check("lazy_pages", parse_switch(&lazy_pages))?;
    let full_quotas = sources.pick("full_quotas", None, || "on".to_owned());
    let full_quotas = sources.check("full_quotas", parse_switch(&full_quotas))?;
    let log = sources.pick("log", flags.log.clone(), || "text".to_owned());
    let log = sources.check("log", parse_log(&log))?;
    let limits = sources.limits()?;
    let capabilities = sources.capabilities()?;
    let memory = sources.memory()?;
    let config = ServeConfig {
        data_dir,
        runtime_dir: absolute(&runtime_dir.display().to_string()),
        socket: absolute(&socket),
        listen,
        tls,
        ssh_listen,
        domain,
        default_template,
        template_folders,
        default_engine,
        pool_size,
        network_slots,
        lazy_pages,
        full_quotas,
        limits,
        capabilities,
        memory,
        log,
        stop_all: false,
    };
    Ok(Loaded { config, settings: sources.settings })
}

/// Looks settings up and remembers where each was found.
struct Sources<'a> {
    variable: &'a dyn Fn(&str) -> Option<String>,
    file: Entries,
    path: PathBuf,
    settings: Vec<Setting>,
}

impl Sources<'_> {
    fn pick(&mut self, key: &'static str, flag: Option<String>, default: impl FnOnce() -> String) -> String {
        let name = format!("ROOST_{}", key.replace('.', "_").to_ascii_uppercase());
        let variable = (self.variable)(&name).filter(|value| !value.is_empty());
        let (value, origin) = if let Some(value) = flag {
            (value, Origin::Flag(format!("--{}", key.replace('_', "-"))))
        } else if let Some(value) = variable {
            (value, Origin::Variable(name))
        } else if let Some(value) = self.file.remove(key) {
            (value, Origin::File(self.path.clone()))
        } else {
            (default(), Origin::Default)
        };
        self.settings.push(Setting { key, value: value.clone(), origin });
        value
    }

    /// Names the setting and its origin in an error.
    fn check<T>(&self, key: &'static str, parsed: Result<T, String>) -> Result<T, ConfigError> {
        parsed.map_err(|problem| {
            let found = self.settings.iter().find(|setting| setting.key == key);
            let origin = found.map_or(Origin::Default, |setting| setting.origin.clone());
            ConfigError::Value { key, origin, problem }
        })
    }

    fn memory(&mut self) -> Result<MemorySettings, ConfigError> {
        let low = self.pick("memory.low", None, || "10%".to_owned());
        let critical = self.pick("memory.critical", None, || "5%".to_owned());
        let max_active = self.pick("memory.max_active", None, || "none".to_owned());
        Ok(MemorySettings {
            low: self.check("memory.low", parse_amount(&low))?,
            critical: self.check("memory.critical", parse_amount(&critical))?,
            max_active: self.check("memory.max_active", parse_most(&max_active))?,
        })
    }

    fn capabilities(&mut self) -> Result<CapabilityPolicy, ConfigError> {
        let allowed = self.pick("capabilities.allowed", None, || Capability::show_set(&Capability::ALL.into()));
        let allowed = self.check("capabilities.allowed", Capability::parse_set(&allowed))?;
        let default = self.pick("capabilities.default", None, || NONE.to_owned());
        let default = Capability::parse_set(&default).and_then(|default| {
            let beyond: BTreeSet<Capability> = default.difference(&allowed).copied().collect();
            let problem = || format!("{} is not in `capabilities.allowed`", Capability::show_set(&beyond));
            if beyond.is_empty() { Ok(default) } else { Err(problem()) }
        });
        let default = self.check("capabilities.default", default)?;
        Ok(CapabilityPolicy { default, allowed })
    }

    fn limits(&mut self) -> Result<LimitsRequest, ConfigError> {
        let usual = Limits::default();
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("`{text}` is not a number"));
        let fraction = |text: &str| text.parse::<f64>().map_err(|_| format!("`{text}` is not a number"));
        let cpus = self.pick("limits.cpus", None, || usual.cpus.to_string());
        let memory = self.pick("limits.memory", None, || "auto".to_owned());
        let disk = self.pick("limits.disk", None, || show_size(usual.disk));
        let pids = self.pick("limits.pids", None, || usual.pids.to_string());
        let images = self.pick("limits.images", None, || "auto".to_owned());
        Ok(LimitsRequest {
            cpus: Some(self.check("limits.cpus", fraction(&cpus))?),
            memory: self.check("limits.memory", parse_size_or_auto(&memory))?,
            disk: Some(self.check("limits.disk", parse_size(&disk))?),
            pids: Some(self.check("limits.pids", number(&pids))?),
            images: self.check("limits.images", parse_budget(&images))?,
        })
    }
}

/// A budget of bytes; `auto` follows the other limits.
fn parse_budget(text: &str) -> Result<Option<u64>, String> {
    if text == "auto" { Ok(None) } else { parse_size(text).map(Some) }
}

fn absolute(path: &str) -> PathBuf {
    // It fails for an empty path only, which then names nothing and is reported where it is opened.
    std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path))
}

fn parse_slots(text: &str) -> Result<usize, String> {
    let slots = text.parse().ok().filter(|slots| (1..=MOST_SLOTS).contains(slots));
    slots.ok_or_else(|| format!("`{text}` is not a number from 1 to {MOST_SLOTS}"))
}

fn parse_listen(text: &str) -> Result<Option<SocketAddr>, String> {
    if text == NONE {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| format!("`{text}` is not an address: write for example 127.0.0.1:7077 or none"))
}

fn parse_tls(cert: &str, key: &str) -> Result<Option<TlsFiles>, String> {
    match (cert, key) {
        (NONE, NONE) => Ok(None),
        (NONE, _) => Err("a key without its certificate; give `tls_cert` too".to_owned()),
        (_, NONE) => Err("a certificate without its key; give `tls_key` too".to_owned()),
        (cert, key) => Ok(Some(TlsFiles { cert: absolute(cert), key: absolute(key) })),
    }
}

/// Folders as in `PATH`; each must be absolute, as the paths that callers name are.
fn parse_folders(text: &str) -> Result<Vec<PathBuf>, String> {
    if text == NONE {
        return Ok(Vec::new());
    }
    let folder = |text: &str| match PathBuf::from(text) {
        path if path.is_absolute() => Ok(path),
        path => Err(format!("`{}` is not an absolute path", path.display())),
    };
    text.split(':').map(folder).collect()
}

fn parse_size_or_auto(text: &str) -> Result<Option<u64>, String> {
    if text == "auto" { Ok(None) } else { parse_size(text).map(Some) }
}

fn parse_switch(text: &str) -> Result<bool, String> {
    match text {
        "on" | "true" => Ok(true),
        "off" | "false" => Ok(false),
        other => Err(format!("`{other}` is neither `on` nor `off`")),
    }
}

fn parse_log(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        other => Err(format!("`{other}` is neither `text` nor `json`")),
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
