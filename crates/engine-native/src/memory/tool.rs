//! CRIU on this host: which one, whether it works, and what it knows about the kernel.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use roost_engine_group::Heard;
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use super::image::FORMAT;
use super::pages;
use super::refusal::Refusal;
use crate::engine::NativeConfig;
use crate::launch::{Criu, Job, Report};
use crate::launcher::Launcher;
use crate::mother::Mother;

/// What a program takes to say its version, or to be tried, unless it hangs.
const TRIAL_TIME: Duration = Duration::from_secs(30);
/// Where a host keeps programs of its administrator.
const SYSTEM_PLACES: [&str; 3] = ["/usr/local/sbin/criu", "/usr/sbin/criu", "/usr/bin/criu"];
/// The file with what was found out.
const FINDINGS: &str = "criu.json";

/// What an engine knows of CRIU.
#[derive(Debug)]
pub(crate) struct Memory {
    tool: Option<Tool>,
    /// Why there is none, or which one there is.
    pub(crate) finding: String,
    kernel_cache: Mutex<Vec<u8>>,
    /// Whether a sandbox may run before all its memory is there.
    pub(crate) lazy_pages: bool,
}

/// A CRIU that works here.
#[derive(Debug, Clone)]
struct Tool {
    command: Vec<PathBuf>,
    version: String,
}

/// A trial that went well, valid for one program until the host is booted again. One that failed is not remembered: it may
/// have met a host in trouble.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Finding {
    program: String,
    boot: String,
    version: String,
    kernel_cache: Vec<u8>,
}

impl Memory {
    /// Finds a CRIU that works: the configured one, else one of the host's own.
    pub(crate) async fn open(config: &NativeConfig, mother: &Mother) -> Self {
        let mut findings = read_findings(&config.cache);
        let mut faults = Vec::new();
        for path in config.criu.iter().map(PathBuf::as_path).chain(SYSTEM_PLACES.map(Path::new)) {
            let command = command_of(path);
            let Some(program) = identity(&command) else { continue };
            let boot = boot();
            let known = findings.iter().find(|known| known.program == program && known.boot == boot).cloned();
            let is_new = known.is_none();
            let outcome = match known {
                Some(finding) => Ok(finding),
                None => tried(mother, &command, program, boot).await,
            };
            match outcome {
                Ok(Finding { program, boot, version, kernel_cache }) => {
                    if is_new {
                        findings.retain(|other| other.boot == boot && other.program != program);
                        let (version, kernel_cache) = (version.clone(), kernel_cache.clone());
                        findings.push(Finding { program, boot, version, kernel_cache });
                        write_findings(&config.cache, &findings);
                    }
                    let finding = format!("criu {version} at `{}`", path.display());
                    let tool = Tool { command, version };
                    let lazy_pages = pages::allow(config.lazy_pages);
                    return Self { tool: Some(tool), finding, kernel_cache: Mutex::new(kernel_cache), lazy_pages };
                }
                Err(fault) => faults.push(format!("`{}`: {fault}", path.display())),
            }
        }
        let finding = if faults.is_empty() {
            "no criu was found; `make up` brings one, or `lib/roost/criu DATA_DIR/criu` of an installed Roost and a restart of the \
             daemon"
                .to_owned()
        } else {
            faults.join("; ")
        };
        Self { tool: None, finding, kernel_cache: Mutex::default(), lazy_pages: false }
    }

    /// How to start CRIU.
    pub(crate) fn criu(&self) -> Option<Criu> {
        let kernel_cache = self.kernel_cache.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.tool.as_ref().map(|tool| Criu { command: tool.command.clone(), kernel_cache })
    }

    /// Remembers what CRIU found out about the kernel.
    pub(crate) fn learn(&self, kernel_cache: Vec<u8>) {
        *self.kernel_cache.lock().unwrap_or_else(PoisonError::into_inner) = kernel_cache;
    }

    /// What an image must have been made with to be restored here.
    pub(crate) fn image_version(&self) -> Option<String> {
        let tool = self.tool.as_ref()?;
        Some(format!("native {FORMAT}, criu {}, {}", tool.version, *PROCESSOR))
    }
}

fn command_of(path: &Path) -> Vec<PathBuf> {
    if path.is_dir() {
        vec![path.join("loader"), "--library-path".into(), path.join("lib"), path.join("criu.bin")]
    } else {
        vec![path.to_owned()]
    }
}

/// Tells this very program from another at the same place; `None` if it is not there.
fn identity(command: &[PathBuf]) -> Option<String> {
    let program = command.last()?;
    let file = fs::metadata(program).ok()?;
    Some(format!("{} {} {}", program.display(), file.len(), file.mtime_nsec() + file.mtime() * 1_000_000_000))
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

async fn tried(mother: &Mother, command: &[PathBuf], program: String, boot: String) -> io::Result<Finding> {
    let trial = async {
        let version = ask_version(command).await?;
        let kernel_cache = run_trial(mother, command).await?;
        Ok(Finding { program, boot, version, kernel_cache })
    };
    match tokio::time::timeout(TRIAL_TIME, trial).await {
        Ok(outcome) => outcome,
        Err(_) => Err(io::Error::other(format!("it did not finish within {} s", TRIAL_TIME.as_secs()))),
    }
}

async fn ask_version(command: &[PathBuf]) -> io::Result<String> {
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::NotFound)?;
    let said = Command::new(program).args(arguments).arg("--version").kill_on_drop(true).output().await?.stdout;
    version(&String::from_utf8_lossy(&said)).ok_or_else(|| io::Error::other("it does not say its version"))
}

fn version(said: &str) -> Option<String> {
    said.lines().find_map(|line| line.strip_prefix("Version:")).map(|version| version.trim().to_owned())
}

/// Lets it save and restore something small; returns what it found out about the kernel.
async fn run_trial(mother: &Mother, command: &[PathBuf]) -> io::Result<Vec<u8>> {
    let mut launcher = Launcher::spawn(mother, Vec::new()).await?;
    launcher.begin(&Job::Probe(Criu { command: command.to_vec(), kernel_cache: Vec::new() }), &[]).await?;
    loop {
        match launcher.next().await? {
            Some(Heard::Report(Report::Done { kernel_cache, .. })) => {
                launcher.finish().await?;
                return Ok(kernel_cache.unwrap_or_default());
            }
            Some(Heard::Report(Report::CriuFailed { log, .. })) => {
                return Err(io::Error::other(Refusal::read(&log).why));
            }
            Some(Heard::Report(Report::Failed(failure))) => return Err(io::Error::other(failure)),
            Some(_) => {}
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

fn read_findings(cache: &Path) -> Vec<Finding> {
    let bytes = fs::read(cache.join(FINDINGS)).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

/// Put in place as a whole: several engines may share the folder.
fn write_findings(cache: &Path, findings: &[Finding]) {
    let staged = cache.join(format!(".{FINDINGS}.{}", std::process::id()));
    let write = || -> io::Result<()> {
        fs::create_dir_all(cache)?;
        fs::write(&staged, serde_json::to_vec(findings)?)?;
        fs::rename(&staged, cache.join(FINDINGS))
    };
    if let Err(error) = write() {
        tracing::warn!(%error, "failed to remember what was found out about criu");
    }
}

/// The architecture and those features of the processor that running programs have made use of and will again. Every start
/// asks for it.
static PROCESSOR: LazyLock<String> = LazyLock::new(|| {
    const MATTER: [&str; 14] = [
        "sse4_2", "popcnt", "aes", "xsave", "avx", "f16c", "fma", "bmi2", "avx2", "erms", "sha_ni", "avx512f",
        "avx512bw", "amx_tile",
    ];
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = info.lines().find(|line| line.starts_with("flags") || line.starts_with("Features"));
    let flags: Vec<&str> = flags.unwrap_or_default().split_whitespace().collect();
    let mut text = std::env::consts::ARCH.to_owned();
    for feature in MATTER.iter().filter(|feature| flags.contains(feature)) {
        text.push(' ');
        text.push_str(feature);
    }
    text
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found() {
        assert_eq!(version("Version: 4.2.1\n").as_deref(), Some("4.2.1"));
        assert_eq!(version("usage"), None);
    }

    #[test]
    fn a_program_is_known_by_more_than_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("criu");
        assert_eq!(identity(&command_of(&program)), None);
        fs::write(&program, "a").unwrap();
        let before = identity(&command_of(&program)).unwrap();
        fs::write(&program, "ab").unwrap();
        assert_ne!(identity(&command_of(&program)).unwrap(), before);
        assert_eq!(command_of(folder.path()).len(), 4);
    }
}
