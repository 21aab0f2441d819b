//! What a reboot takes away: every process, mount, control group, link and rule of one instance.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// A killed process that is not gone by then never goes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Takes away all that an instance has outside its data folder; its daemon must be dead.
pub(crate) fn lose_what_runs(instance: &str, data_dir: &Path) -> Result<()> {
    let groups = groups(instance);
    kill_all(instance, &groups)?;
    remove_groups(instance)?;
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let below = format!("{}/", data_dir.display());
    let targets = mounts.lines().filter_map(|line| line.split(' ').nth(4)).filter(|target| target.starts_with(&below));
    let mut targets: Vec<&str> = targets.collect();
    targets.reverse();
    for target in targets {
        run("umount", &[target])?;
    }
    for table in lines_with("nft", &["list", "tables"], instance)? {
        let words: Vec<&str> = table.split_whitespace().collect();
        run("nft", &[&["delete"], words.as_slice()].concat())?;
    }
    for link in lines_with("ip", &["-o", "link", "show"], instance)? {
        let name = link.split_whitespace().nth(1).context("a link without a name")?;
        let name = name.split(['@', ':']).next().unwrap_or(name);
        let deleted = run("ip", &["link", "delete", name]);
        // The kernel removes those of sandboxes that were killed just now, in its own time.
        if Path::new("/sys/class/net").join(name).exists() {
            deleted?;
        }
    }
    // It is in memory on a host of its own.
    fs::remove_dir_all(data_dir.join("run")).context("failed to remove the runtime folder")
}

/// A group can be removed once its last process is gone for good, which is a moment after its death.
fn remove_groups(instance: &str) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = groups(instance);
        if left.is_empty() {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "control groups {left:?} cannot be removed");
        for group in left.iter().rev() {
            // Some vanish by themselves when they are empty.
            fs::remove_dir(group).ok();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The control groups of an instance in every hierarchy, parents before children.
fn groups(instance: &str) -> Vec<PathBuf> {
    let hierarchies = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found = Vec::new();
    let tops = hierarchies.chain([PathBuf::from("/sys/fs/cgroup")]).map(|path| path.join(format!("roost-{instance}")));
    let mut folders: Vec<PathBuf> = tops.filter(|top| top.is_dir()).collect();
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        folders.extend(entries.map(|entry| entry.path()).filter(|path| path.is_dir()));
        found.push(folder);
    }
    found.sort();
    found
}

fn kill_all(instance: &str, groups: &[PathBuf]) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let pids = processes_of(instance);
        if pids.is_empty() {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "processes {pids:?} do not end");
        for pid in pids {
            // It may have ended meanwhile.
            Command::new("kill").args(["-KILL", &pid]).output()?;
        }
        for group in groups {
            // Dead at once where it sleeps in v2; in v1 it has to wake up for that.
            fs::write(group.join("freezer.state"), "THAWED").ok();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn processes_of(instance: &str) -> Vec<String> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_of = |pid: &String| {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        groups.contains(&format!("/roost-{instance}/"))
    };
    let pids = processes.map(|entry| entry.file_name().to_string_lossy().into_owned());
    pids.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).filter(is_of).collect()
}

fn lines_with(program: &str, arguments: &[&str], text: &str) -> Result<Vec<String>> {
    let output =
        Command::new(program).args(arguments).output().with_context(|| format!("failed to run `{program}`"))?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(printed.lines().filter(|line| line.contains(text)).map(str::to_owned).collect())
}

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let output =
        Command::new(program).args(arguments).output().with_context(|| format!("failed to run `{program}`"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{program} {}` failed: {errors}", arguments.join(" "));
    Ok(())
}
