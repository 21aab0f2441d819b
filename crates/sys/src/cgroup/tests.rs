//! Groups on the real kernel; needs root.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Cgroups, GroupLimits, Home, Layout, own_processors, write_value};

const PATIENCE: Duration = Duration::from_secs(5);

struct Guard {
    cgroups: Cgroups,
    child: Child,
}

impl Drop for Guard {
    fn drop(&mut self) {
        for name in self.cgroups.names().unwrap_or_default() {
            self.cgroups.group(&name).thaw().ok();
        }
        self.child.kill().ok();
        self.child.wait().ok();
        for name in self.cgroups.names().unwrap_or_default() {
            self.cgroups.group(&name).remove().ok();
        }
        self.cgroups.remove().ok();
    }
}

#[test]
fn a_group_lives_on_this_host() {
    a_group_lives_in(Layout::detect().unwrap(), "host");
}

#[test]
fn a_group_lives_in_the_unified_hierarchy() {
    if let Some(layout) = bare_unified() {
        a_group_lives_in(layout, "unified");
    }
}

/// What v2 does without any controller can be tried wherever it is mounted, whatever the host uses otherwise.
fn bare_unified() -> Option<Layout> {
    let unified = crate::mount::mount_table().unwrap().into_iter().find(|mount| mount.kind == "cgroup2")?;
    let home = Some(Home::V2(unified.target));
    Some(Layout { accounting: home.clone(), freezer: home, ..Layout::default() })
}

#[test]
fn a_group_takes_another_over_on_this_host() {
    a_group_takes_another_over_in(Layout::detect().unwrap(), "host");
}

/// Where groups keep their names: on hosts that have nothing but v2 every sandbox that was made ahead goes this way.
#[test]
fn a_group_takes_another_over_in_the_unified_hierarchy() {
    if let Some(layout) = bare_unified() {
        a_group_takes_another_over_in(layout, "unified");
    }
}

fn a_group_takes_another_over_in(layout: Layout, label: &str) {
    let cgroups = Cgroups::new(layout, &format!("roost-systest-takeover-{label}-{}", std::process::id()));
    cgroups.prepare().unwrap();
    // The child is in the group before it makes one of its own, which is born there.
    let mut child = Command::new("sh");
    child.args(["-c", "read go; sleep 60 & echo $!; wait"]);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut go, said) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let pid = child.id();
    let guard = Guard { cgroups: cgroups.clone(), child };

    let spare = cgroups.group("spare");
    spare.create().unwrap();
    for file in spare.join_files().into_iter().chain(spare.unified_folder().map(|folder| folder.join("cgroup.procs"))) {
        write_value(&file, &pid.to_string()).unwrap();
    }
    go.write_all(b"go\n").unwrap();
    let mut grandchild = String::new();
    BufReader::new(said).read_line(&mut grandchild).unwrap();
    let mut members = [pid, grandchild.trim().parse().unwrap()];
    members.sort_unstable();
    assert_eq!(spare.pids().unwrap(), members);

    let group = cgroups.group("one");
    group.take_over(&spare).unwrap();
    assert_eq!(cgroups.names().unwrap(), ["one"]);
    assert_eq!(group.pids().unwrap(), members);
    // It is a whole one: all that is in it stands still, and goes on.
    group.create().unwrap();
    group.freeze().unwrap();
    assert!(group.is_frozen().unwrap());
    group.thaw().unwrap();

    Command::new("kill").args(["-KILL", grandchild.trim()]).status().unwrap();
    drop(guard);
    assert!(!group.exists() && !spare.exists());
}

fn a_group_lives_in(layout: Layout, label: &str) {
    let counts_pids = layout.pids.is_some();
    let cgroups = Cgroups::new(layout, &format!("roost-systest-{label}-{}", std::process::id()));
    cgroups.prepare().unwrap();
    let child = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = child.id();
    let guard = Guard { cgroups: cgroups.clone(), child };

    let spare = cgroups.group("spare");
    spare.create_v1().unwrap();
    for file in spare.join_files() {
        write_value(&file, &pid.to_string()).unwrap();
    }
    let group = cgroups.group("one");
    // As a daemon leaves it that is killed while it removes one.
    group.create_v1().unwrap();
    spare.rename_v1(&group).unwrap();
    group.create().unwrap();
    if let Some(unified) = group.unified_folder() {
        write_value(&unified.join("cgroup.procs"), &pid.to_string()).unwrap();
    }
    assert_eq!(cgroups.names().unwrap(), ["one"]);
    assert_eq!(group.pids().unwrap(), [pid]);

    for memory in [64 << 20, 128 << 20, 32 << 20] {
        group.set_limits(&GroupLimits { memory, milli_cpus: 500, pids: 10 }).unwrap();
    }
    assert_eq!(group.usage().unwrap().pids, u64::from(counts_pids));

    assert!(!group.is_frozen().unwrap());
    group.freeze().unwrap();
    group.freeze().unwrap();
    assert!(group.is_frozen().unwrap());
    group.thaw().unwrap();
    let thawed = Instant::now() + PATIENCE;
    while group.is_frozen().unwrap() {
        assert!(Instant::now() < thawed, "still frozen");
    }

    drop(guard);
    assert!(!group.exists());
    assert!(cgroups.names().unwrap().is_empty());
    group.remove().unwrap();
}

#[test]
fn a_confined_group_runs_where_it_may_with_all_its_threads() {
    let cgroups = Cgroups::new(Layout::detect().unwrap(), &format!("roost-systest-confine-{}", std::process::id()));
    cgroups.prepare().unwrap();
    let child = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = child.id();
    let _guard = Guard { cgroups: cgroups.clone(), child };
    let group = cgroups.group("one");
    group.create().unwrap();
    for file in group.join_files().into_iter().chain(group.unified_folder().map(|folder| folder.join("cgroup.procs"))) {
        write_value(&file, &pid.to_string()).unwrap();
    }

    let last = *own_processors().unwrap().last().unwrap();
    group.confine(&[last]).unwrap();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    assert_eq!(allowed.trim(), last.to_string());
}
