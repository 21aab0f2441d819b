//! podman as a peer: containers on the same root, saved and brought back by its checkpoints.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::peers::{installed, output_of, timed};
use crate::scene::holding;

const PATIENCE: Duration = Duration::from_secs(120);

/// podman, with limits that it may set, a CRIU that it finds and a runtime that uses it.
#[derive(Debug, Clone)]
pub(crate) struct Podman {
    root: PathBuf,
    options: Vec<String>,
    path: std::ffi::OsString,
}

impl Podman {
    /// `criu` is the folder of a daemon's own, for a host without one.
    pub(crate) fn new(root: &Path, criu: &Path) -> Result<Self> {
        let mut places = vec![criu.to_owned()];
        places.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        let limits = std::fs::read_to_string("/proc/self/limits").context("failed to read the limits")?;
        let most = std::fs::read_to_string("/proc/sys/kernel/pid_max").context("failed to read the most processes")?;
        let mut options = own_limits(&limits, most.trim().parse().context("the most processes are no number")?);
        // The other one, crun, saves nothing as Debian builds it.
        if installed("runc") {
            options.push("--runtime=runc".to_owned());
        }
        Ok(Self { root: root.to_owned(), options, path: std::env::join_paths(places)? })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("podman");
        command.env("PATH", &self.path).args(arguments);
        command
    }

    fn run(&self, arguments: &[&str], program: &[&str]) -> Command {
        let mut command = self.command(&["run", "--network=none"]);
        command.args(&self.options).args(arguments).arg("--rootfs").arg(format!("{}:O", self.root.display()));
        command.args(program);
        command
    }

    /// From nothing to the end of `/bin/true`, without a network.
    pub(crate) fn once(&self) -> Result<Duration> {
        timed(&mut self.run(&["--rm"], &["/bin/true"]))
    }

    /// Saves a container and brings it back.
    pub(crate) fn saves_and_restores(&self) -> Result<Duration> {
        let saved = self.hold_memory(1)?;
        Ok(saved.checkpoint()? + saved.restore()?)
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

/// The limits of this process: by itself podman asks for more, which not every host allows. Of processes it leaves itself as many as
/// the kernel has numbers for, and cannot give more than that.
fn own_limits(limits: &str, numbers: u64) -> Vec<String> {
    let limit = |name: &str, title: &str, most: u64| {
        let line = limits.lines().find_map(|line| line.strip_prefix(title))?;
        let value = |text: &str| match text.parse::<u64>().unwrap_or(u64::MAX).min(most) {
            u64::MAX => "-1".to_owned(),
            value => value.to_string(),
        };
        let mut values = line.split_whitespace().map(value);
        Some(format!("--ulimit={name}={}:{}", values.next()?, values.next()?))
    };
    let limits = [limit("nofile", "Max open files", u64::MAX), limit("nproc", "Max processes", numbers)];
    limits.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::own_limits;

    #[test]
    fn limits_are_those_of_this_process_and_no_more_than_podman_has() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
            Max processes             96412                unlimited            processes \n\
            Max open files            1024                 unlimited            files     \n";
        assert_eq!(own_limits(limits, 4_194_304), ["--ulimit=nofile=1024:-1", "--ulimit=nproc=96412:4194304"]);
        assert_eq!(own_limits(limits, 32768), ["--ulimit=nofile=1024:-1", "--ulimit=nproc=32768:32768"]);
        assert!(own_limits("", 1).is_empty());
    }
}
