//! podman as a peer: containers on the same root, saved and brought back by its checkpoints.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::peers::{output_of, timed};
use crate::scene::holding;

const PATIENCE: Duration = Duration::from_secs(120);

/// podman, with limits that it may set and a CRIU that it finds.
#[derive(Debug, Clone)]
pub(crate) struct Podman {
    root: PathBuf,
    limits: Vec<String>,
    path: std::ffi::OsString,
}

impl Podman {
    /// `criu` is the folder of a daemon's own, for a host without one.
    pub(crate) fn new(root: &Path, criu: &Path) -> Result<Self> {
        let mut places = vec![criu.to_owned()];
        places.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        let limits = std::fs::read_to_string("/proc/self/limits").context("failed to read the limits")?;
        Ok(Self { root: root.to_owned(), limits: own_limits(&limits), path: std::env::join_paths(places)? })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("podman");
        command.env("PATH", &self.path).args(arguments);
        command
    }

    fn run(&self, arguments: &[&str], program: &[&str]) -> Command {
        let mut command = self.command(&["run", "--network=none"]);
        command.args(&self.limits).args(arguments).arg("--rootfs").arg(format!("{}:O", self.root.display()));
        command.args(program);
        command
    }

    /// From nothing to the end of `/bin/true`, without a network.
    pub(crate) fn once(&self) -> Result<Duration> {
        timed(&mut self.run(&["--rm"], &["/bin/true"]))
    }

    /// A container whose process holds so many megabytes of random bytes.
    pub(crate) fn hold_memory(&self, megabytes: u64) -> Result<Saved> {
        let saved = Saved { podman: self.clone(), container: format!("roost-bench-{}", std::process::id()) };
        timed(&mut self.run(&["--detach", "--name", &saved.container], &["/bin/sh", "-c", &holding(megabytes)]))?;
        let began = Instant::now();
        let look = ["exec", &saved.container, "/bin/sh", "-c", "[ -e /tmp/full ] && echo full"];
        while output_of(&mut self.command(&look))? != "full\n" {
            ensure!(began.elapsed() < PATIENCE, "podman's container does not fill its memory");
        }
        Ok(saved)
    }
}

/// A container that is saved and comes back.
#[derive(Debug)]
pub(crate) struct Saved {
    podman: Podman,
    container: String,
}

impl Saved {
    /// Until it is saved and has ended.
    pub(crate) fn checkpoint(&self) -> Result<Duration> {
        timed(&mut self.podman.command(&["container", "checkpoint", &self.container]))
    }

    /// Until it runs again.
    pub(crate) fn restore(&self) -> Result<Duration> {
        timed(&mut self.podman.command(&["container", "restore", &self.container]))
    }
}

impl Drop for Saved {
    fn drop(&mut self) {
        let removed = timed(&mut self.podman.command(&["rm", "--force", "--time=0", &self.container]));
        if let Err(error) = removed {
            eprintln!("failed to remove podman's container {}: {error:#}", self.container);
        }
    }
}

/// The limits of this process: by itself podman asks for more, which not every host allows.
fn own_limits(limits: &str) -> Vec<String> {
    let number = |text: &str| if text == "unlimited" { "-1".to_owned() } else { text.to_owned() };
    let limit = |name: &str, title: &str| {
        let line = limits.lines().find_map(|line| line.strip_prefix(title))?;
        let mut values = line.split_whitespace().map(number);
        Some(format!("--ulimit={name}={}:{}", values.next()?, values.next()?))
    };
    [limit("nofile", "Max open files"), limit("nproc", "Max processes")].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::own_limits;

    #[test]
    fn limits_are_those_of_this_process() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
            Max processes             96412                unlimited            processes \n\
            Max open files            1024                 524288               files     \n";
        assert_eq!(own_limits(limits), ["--ulimit=nofile=1024:524288", "--ulimit=nproc=96412:-1"]);
        assert!(own_limits("").is_empty());
    }
}
