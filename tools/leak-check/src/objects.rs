//! Everything on the host that a daemon or a test may have made.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::owners;

/// Folders in which tests work.
const WORK_FOLDERS: [&str; 2] = ["/var/tmp", "/tmp"];
/// Programs of ours, by the end of their path.
const PROGRAMS: [&str; 4] = ["/roost", "/roost-guest", "/roost-launch", "/run/roost/guest"];

/// One thing on the host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Object {
    /// How the object is called in reports. Equal texts are the same object; numbers that change are left out.
    pub(crate) text: String,
    /// The instance in its name.
    pub(crate) tag: Option<String>,
    /// Where the object is; the data folder or the socket that a process works with.
    pub(crate) path: Option<PathBuf>,
    /// The program of a process.
    pub(crate) program: Option<PathBuf>,
}

impl Object {
    fn new(text: String) -> Self {
        Self { text, tag: None, path: None, program: None }
    }
}

/// Lists all objects, each once.
pub(crate) fn all() -> BTreeSet<Object> {
    let mut found = BTreeSet::new();
    found.extend(fs::read_to_string("/proc/self/mountinfo").unwrap_or_default().lines().filter_map(mount));
    found.extend(loops());
    for (what, program, arguments) in [
        ("link", "ip", &["-o", "link", "show"][..]),
        ("netns", "ip", &["netns", "list"]),
        ("nft", "nft", &["list", "tables"]),
    ] {
        let output = Command::new(program).args(arguments).output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        found.extend(text.lines().filter_map(|line| network(what, line)));
    }
    groups(Path::new("/sys/fs/cgroup"), &mut found);
    found.extend(numbers("/proc").filter_map(process));
    for folder in WORK_FOLDERS {
        let names = entries(Path::new(folder)).filter(|path| name_of(path).starts_with("roost-"));
        found.extend(
            names.map(|path| Object { path: Some(path.clone()), ..Object::new(format!("folder {}", path.display())) }),
        );
    }
    found
}

/// Mount point, filesystem and source of a mount. podman, a peer of the benchmark, keeps its store mounted.
fn mount(line: &str) -> Option<Object> {
    let (left, right) = line.split_once(" - ")?;
    let target = left.split(' ').nth(4)?;
    let mut right = right.split(' ');
    let (kind, source) = (right.next()?, right.next()?);
    if target.starts_with("/var/lib/containers/") {
        return None;
    }
    let object = Object::new(format!("mount {target} {kind} {source}"));
    Some(Object { path: Some(PathBuf::from(target)), ..object })
}

fn loops() -> impl Iterator<Item = Object> {
    entries(Path::new("/sys/block")).filter_map(|device| {
        let file = fs::read_to_string(device.join("loop/backing_file")).ok()?;
        let file = file.trim_end().trim_end_matches(" (deleted)");
        Some(Object { path: Some(PathBuf::from(file)), ..Object::new(format!("loop {file}")) })
    })
}

/// A device (`7: ro12ab34u@if2: <…`), a namespace (`name …`) or a table (`table ip roost_12ab34`).
fn network(what: &str, line: &str) -> Option<Object> {
    let (name, tag) = match what {
        "link" => {
            let name = line.split(": ").nth(1)?.split('@').next()?;
            (name, name.strip_prefix("ro").and_then(|rest| rest.strip_suffix('u')))
        }
        "nft" => (line.strip_prefix("table ")?, line.rsplit_once("roost_").map(|(_, tag)| tag)),
        _ => {
            let name = line.split(' ').next()?;
            (name, name.strip_prefix("roost-"))
        }
    };
    Some(Object { tag: tag.map(str::to_owned), ..Object::new(format!("{what} {name}")) })
}

/// Control groups of ours; a daemon keeps a few launchers in reserve whose number and names change as it works.
fn groups(folder: &Path, found: &mut BTreeSet<Object>) {
    let mut waiting = vec![folder.to_owned()];
    while let Some(folder) = waiting.pop() {
        for path in entries(&folder).filter(|path| path.is_dir() && !path.is_symlink()) {
            let text = path.display().to_string();
            if let Some(tag) = tag_of_group(&text) {
                let text = without_numbers_of_spares(&text);
                found.insert(Object { tag: Some(tag), ..Object::new(format!("cgroup {text}")) });
            }
            waiting.push(path);
        }
    }
}

fn process(pid: u32) -> Option<Object> {
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let program = fs::read_link(folder.join("exe")).ok()?;
    let program = program.display().to_string();
    let program = program.trim_end_matches(" (deleted)");
    if !PROGRAMS.iter().any(|ending| program.ends_with(ending)) {
        return None;
    }
    let groups = fs::read_to_string(folder.join("cgroup")).unwrap_or_default();
    let group = groups.lines().find_map(|line| Some(&line[line.find("/roost-")?..])).unwrap_or_default();
    // Not by pid: a daemon may be restarted meanwhile. A guest is told from others by its control group.
    let text = format!("process {program} {}", without_numbers_of_spares(group));
    let (tag, path, program) = (tag_of_group(group), owners::place_of(pid), Some(PathBuf::from(program)));
    Some(Object { tag, path, program, ..Object::new(text) })
}

/// The tag in a path with a folder `roost-TAG` or `roost-TAG-gvisor`.
fn tag_of_group(path: &str) -> Option<String> {
    let folder = path.split('/').find_map(|folder| folder.strip_prefix("roost-"))?;
    Some(folder.strip_suffix("-gvisor").unwrap_or(folder).to_owned())
}

/// `…/spare-12-3/…` without the numbers.
fn without_numbers_of_spares(path: &str) -> String {
    let folders = path.split('/').map(|folder| if folder.starts_with("spare-") { "spare" } else { folder });
    folders.collect::<Vec<_>>().join("/")
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// The entries of a folder whose names are numbers.
pub(crate) fn numbers(folder: &str) -> impl Iterator<Item = u32> + use<> {
    entries(Path::new(folder)).filter_map(|path| name_of(&path).parse().ok())
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_objects_hold_their_instance() {
        let tag = |what, line| network(what, line).unwrap().tag;
        assert_eq!(tag("link", "7: ro033f3eu@if2: <BROADCAST> mtu 1400"), Some("033f3e".to_owned()));
        assert_eq!(tag("link", "4: eth0: <BROADCAST> mtu 1400"), None);
        assert_eq!(tag("nft", "table ip roost_033f3e"), Some("033f3e".to_owned()));
        assert_eq!(tag_of_group("/sys/fs/cgroup/pids/roost-t12-3-gvisor/sbx_1"), Some("t12-3".to_owned()));
        assert_eq!(tag_of_group("/roost-033f3e/spare-1-2"), Some("033f3e".to_owned()));
        assert_eq!(tag_of_group("/user.slice"), None);
    }

    #[test]
    fn mount_line_gives_its_target() {
        let line = "36 35 98:0 / /data/pool rw,noatime shared:1 - btrfs /dev/loop0 rw";
        let object = mount(line).unwrap();
        assert_eq!(
            (object.text.as_str(), object.path),
            ("mount /data/pool btrfs /dev/loop0", Some("/data/pool".into()))
        );
        assert_eq!(mount("36 35 98:0 / /var/lib/containers/x rw - overlay overlay rw"), None);
    }
}
