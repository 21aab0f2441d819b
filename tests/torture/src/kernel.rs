//! What a daemon has on the host: everything that must be as before once its sandboxes are gone.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use roost_client::SandboxFilter;
use roost_e2e::Daemon;

/// What is given back in the background is by then.
const PATIENCE: Duration = Duration::from_secs(60);
/// Connections and spare launchers come and go.
const FEW_DESCRIPTORS: usize = 16;
/// A filesystem does not forget every block of its own trees.
const FEW_BYTES: u64 = 16 << 20;

/// Kernel objects and bytes that belong to one daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Objects {
    mounts: usize,
    loops: usize,
    groups: usize,
    processes: usize,
    descriptors: usize,
    /// Of the router to networks of sandboxes: such a network is there as long as its link is.
    links: usize,
    pool: u64,
    images: u64,
}

impl Objects {
    /// What is there now.
    pub async fn of(daemon: &Daemon) -> Result<Self> {
        let (instance, data) = (daemon.instance().await?, daemon.data_dir());
        let below = format!("{}/", data.display());
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let devices = names(Path::new("/sys/block")).into_iter().filter(|device| {
            let file = Path::new("/sys/block").join(device).join("loop/backing_file");
            fs::read_to_string(file).is_ok_and(|file| file.starts_with(&below))
        });
        let mut groups = 0;
        let hierarchies = names(Path::new("/sys/fs/cgroup"));
        for hierarchy in hierarchies.iter().map(String::as_str).chain(["."]) {
            for folder in [format!("roost-{instance}"), format!("roost-{instance}-gvisor")] {
                let folder = Path::new("/sys/fs/cgroup").join(hierarchy).join(folder);
                groups += names(&folder).iter().filter(|name| name.starts_with("sbx_")).count();
            }
        }
        let used = lines("df", &["--output=used", "-B1", &data.join("pool").display().to_string()]);
        Ok(Self {
            mounts: mounts.lines().filter(|line| line.contains(&below)).count(),
            loops: devices.count(),
            groups,
            processes: processes(&instance).len(),
            descriptors: descriptors(daemon.pid()?, &data.join("pool/spares")),
            links: links(&data.join("run/router"))?,
            pool: used.last().context("df says nothing")?.trim().parse()?,
            images: bytes_below(&data.join("images")),
        })
    }

    /// Waits until all is as it was.
    pub async fn is_reached_again(&self, daemon: &Daemon) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let now = Self::of(daemon).await?;
            let descriptors =
                if now.descriptors <= self.descriptors + FEW_DESCRIPTORS { self.descriptors } else { now.descriptors };
            let pool = if now.pool <= self.pool + FEW_BYTES { self.pool } else { now.pool };
            // At the start the kernel may still have been busy with the end of the first network.
            let links = now.links.max(self.links);
            if (Self { descriptors, links, pool, ..now.clone() }) == *self {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("at the start there was {self:?}, and now there is {now:?}: {}", running(daemon).await?);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// The processes of sandboxes, with the groups that they are in.
fn processes(instance: &str) -> Vec<(String, String)> {
    let ours = [format!("/roost-{instance}/sbx_"), format!("/roost-{instance}-gvisor/sbx_")];
    let all = names(Path::new("/proc")).into_iter();
    let with_groups = all.map(|pid| (fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default(), pid));
    let found = with_groups.filter(|(groups, _)| ours.iter().any(|group| groups.contains(group)));
    found.map(|(groups, pid)| (pid, groups)).collect()
}

/// What still runs, for whoever has to find out why.
async fn running(daemon: &Daemon) -> Result<String> {
    let mut found = told(processes(&daemon.instance().await?));
    let known = daemon.client().all_sandboxes(&SandboxFilter::default()).await?;
    found.extend(
        known.iter().map(|view| format!("`{}` ({}) is {:?}, {:?}", view.name, view.id, view.state, view.reason)),
    );
    Ok(found.join("; "))
}

/// What the kernel says of the processes of one sandbox.
pub(crate) fn inside(instance: &str, id: &str) -> String {
    let mut found = processes(instance);
    found.retain(|(_, groups)| groups.contains(id));
    told(found).join("; ")
}

fn told(processes: Vec<(String, String)>) -> Vec<String> {
    let about = |(pid, groups): (String, String)| {
        let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let status = read("status");
        let told = |line: &&str| ["Name:", "State:", "PPid:"].iter().any(|start| line.starts_with(start));
        let status: Vec<_> = status.lines().filter(told).collect();
        let group = groups.lines().find(|line| line.contains("sbx_")).unwrap_or_default();
        format!("{pid} {} at {} in {group}", status.join(" "), read("wchan"))
    };
    processes.into_iter().map(about).collect()
}

/// How many a process has, but for those of disks that wait for their next sandbox: of these it keeps a few dozen.
fn descriptors(process: u32, spares: &Path) -> usize {
    let folder = format!("/proc/{process}/fd");
    let of_spare = |name: &String| fs::read_link(format!("{folder}/{name}")).is_ok_and(|file| file.starts_with(spares));
    names(Path::new(&folder)).iter().filter(|name| !of_spare(name)).count()
}

/// How many network devices there are where the router is pinned.
fn links(router: &Path) -> Result<usize> {
    let found = lines("nsenter", &[&format!("--net={}", router.display()), "ip", "-oneline", "link"]).len();
    // The loopback is always there.
    ensure!(found > 0, "the router's devices cannot be listed at `{}`", router.display());
    Ok(found)
}

fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn lines(program: &str, arguments: &[&str]) -> Vec<String> {
    let output = Command::new(program).args(arguments).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn bytes_below(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(about) if about.is_dir() => bytes_below(&entry.path()),
        Ok(about) => about.len(),
        Err(_) => 0,
    };
    entries.flatten().map(size).sum()
}
