//! What a crash left in the pool and on the host that belongs to no sandbox and no checkpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use roost_client::SandboxFilter;
use roost_model::{Level, State};

use crate::Daemon;

/// What is removed in the background is gone by then.
const PATIENCE: Duration = Duration::from_secs(15);

/// Waits until nothing is left over and every sandbox is settled; says what is, if that takes too long.
pub async fn no_orphans(daemon: &Daemon) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = orphans(daemon).await?;
        if left.is_empty() {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "left over:\n{}", left.join("\n"));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn orphans(daemon: &Daemon) -> Result<Vec<String>> {
    let client = daemon.client();
    let everything = SandboxFilter { terminated: true, ..SandboxFilter::default() };
    let (mut living, mut awake, mut on_disk, mut left) =
        (BTreeSet::new(), BTreeSet::new(), BTreeSet::new(), Vec::new());
    let (mut checkpoints, mut with_memory) = (BTreeSet::new(), BTreeSet::new());
    for view in client.all_sandboxes(&everything).await? {
        let id = view.id.to_string();
        for checkpoint in client.list_checkpoints(&id).await? {
            with_memory.extend(checkpoint.memory.then(|| checkpoint.id.to_string()));
            checkpoints.insert(checkpoint.id.to_string());
        }
        match (view.state, view.level) {
            (State::Terminated, _) => continue,
            (State::Active, _) | (State::Suspended, Some(Level::Ram)) => drop(awake.insert(id.clone())),
            (State::Suspended, Some(Level::Disk)) => drop(on_disk.insert(id.clone())),
            (State::Suspended, _) => {}
            (state, _) => left.push(format!("sandbox {id} is {state}")),
        }
        living.insert(id);
    }
    let pool = daemon.data_dir().join("pool");
    let mut compare = |what: &str, found: BTreeSet<String>, expected: &BTreeSet<String>| {
        left.extend(found.difference(expected).map(|name| format!("{what} {name} is nobody's")));
        left.extend(expected.difference(&found).map(|name| format!("{what} {name} is missing")));
    };
    compare("staging folder", names(&pool.join("staging")), &BTreeSet::new());
    compare("checkpoint", names(&pool.join("checkpoints")), &checkpoints);
    compare("disk", names(&pool.join("sandboxes")), &living);
    // An image is called after its checkpoint, or after its sandbox and the moment.
    let folder = daemon.data_dir().join("images");
    compare("image being made", names(&folder.join(".staging")), &BTreeSet::new());
    let (of_checkpoints, images): (BTreeSet<_>, BTreeSet<_>) =
        names(&folder).into_iter().filter(|name| name != ".staging").partition(|name| name.starts_with("ckp_"));
    compare("image of", of_checkpoints, &with_memory);
    let owners: BTreeSet<String> = images.iter().filter_map(|name| Some(name.rsplit_once('-')?.0.to_owned())).collect();
    compare("image of", owners.clone(), &on_disk);
    let instance = daemon.instance().await?;
    let folders = [format!("roost-{instance}"), format!("roost-{instance}-gvisor")];
    let hierarchies = names(Path::new("/sys/fs/cgroup")).into_iter().chain([".".to_owned()]);
    let groups = hierarchies.flat_map(|name| {
        folders
            .iter()
            .flat_map(|folder| names(&Path::new("/sys/fs/cgroup").join(&name).join(folder)))
            .collect::<Vec<_>>()
    });
    let groups = groups.filter(|name| name.starts_with("sbx_")).collect();
    compare("cgroup", groups, &awake);
    for id in &living {
        compare(
            &format!("in the folder of {id}:"),
            names(&pool.join("sandboxes").join(id)),
            &BTreeSet::from(["disk".to_owned()]),
        );
    }
    if images.len() != owners.len() {
        left.push(format!("{} images of {} sandboxes", images.len(), owners.len()));
    }
    for (id, count) in folders.iter().flat_map(|folder| guests(folder)) {
        if count != 1 {
            left.push(format!("{count} guests run in {id}"));
        }
    }
    left.extend(criu_pids(daemon).into_iter().map(|pid| format!("criu {pid} still runs")));
    Ok(left)
}

/// How many processes are PID 1 inside, for each control group of an instance.
fn guests(group: &str) -> BTreeMap<String, usize> {
    let mut guests = BTreeMap::new();
    for pid in names(Path::new("/proc")) {
        let read = |file| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let status = read("status");
        let inner = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
        let groups = read("cgroup");
        let sandbox = groups.lines().find_map(|line| line.split_once(&format!("/{group}/sbx_")));
        if let Some((_, id)) = sandbox.filter(|_| inner.split_whitespace().skip(1).collect::<Vec<_>>() == ["1"]) {
            *guests.entry(id.to_owned()).or_default() += 1;
        }
    }
    guests
}

/// The processes in which CRIU works for this daemon right now; quick, to see short work too.
pub fn criu_at_work(daemon: &Daemon) -> Vec<u32> {
    let Ok(pid) = daemon.pid() else { return Vec::new() };
    children(pid).into_iter().flat_map(children).filter(|pid| is_criu(*pid)).collect()
}

/// The processes that serve memory to sandboxes of this daemon which run already.
pub fn page_servers(daemon: &Daemon) -> Vec<u32> {
    let Ok(pid) = daemon.pid() else { return Vec::new() };
    children(pid).into_iter().flat_map(children).filter(|pid| has_word(*pid, "lazy-pages")).collect()
}

/// The processes in which CRIU works for this daemon, or for one that ran in its folder before.
fn criu_pids(daemon: &Daemon) -> Vec<u32> {
    let pids = names(Path::new("/proc")).into_iter().filter_map(|name| name.parse().ok());
    pids.filter(|pid| is_criu(*pid) && is_child_of_program_in(daemon.data_dir(), *pid)).collect()
}

fn is_criu(pid: u32) -> bool {
    has_word(pid, "swrk")
}

fn has_word(pid: u32, wanted: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|words| words.split('\0').any(|word| word == wanted))
}

/// The launcher that starts CRIU is itself started from a program in the data folder.
fn is_child_of_program_in(data_dir: &Path, pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap_or_default().trim();
    fs::read_link(format!("/proc/{parent}/exe")).is_ok_and(|program| program.starts_with(data_dir))
}

fn children(pid: u32) -> Vec<u32> {
    let threads = names(Path::new(&format!("/proc/{pid}/task")));
    let lists = threads.iter().filter_map(|tid| fs::read_to_string(format!("/proc/{pid}/task/{tid}/children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}

fn names(folder: &Path) -> BTreeSet<String> {
    let Ok(entries) = fs::read_dir(folder) else { return BTreeSet::new() };
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
