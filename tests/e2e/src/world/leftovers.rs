//! What an instance left on the host: everything it makes outside its data folder carries its tag.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Everything on the host that belongs to the instance with this tag and data folder, one line each.
pub fn leftovers(instance: &str, data_dir: &Path) -> Vec<String> {
    let data = data_dir.display().to_string();
    let mut found = Vec::new();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let below = format!("{data}/");
    found.extend(mounts.lines().filter(|line| line.contains(&below)).map(|line| format!("mount {line}")));
    for device in entries("/sys/block") {
        let file = fs::read_to_string(device.join("loop/backing_file")).unwrap_or_default();
        if file.starts_with(&below) {
            found.push(format!("loop device {} of {}", device.display(), file.trim()));
        }
    }
    for hierarchy in entries("/sys/fs/cgroup").into_iter().chain([PathBuf::from("/sys/fs/cgroup")]) {
        let group = hierarchy.join(format!("roost-{instance}"));
        if group.exists() {
            found.push(format!("cgroup {}", group.display()));
        }
    }
    let tagged = [("nft", vec!["list", "tables"]), ("ip", vec!["-o", "link", "show"]), ("ip", vec!["netns", "list"])];
    for (program, arguments) in tagged {
        let output = Command::new(program).args(&arguments).output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        found.extend(text.lines().filter(|line| line.contains(instance)).map(|line| format!("{program} {line}")));
    }
    for process in entries("/proc") {
        let groups = fs::read_to_string(process.join("cgroup")).unwrap_or_default();
        let words = fs::read_to_string(process.join("cmdline")).unwrap_or_default();
        if groups.contains(&format!("/roost-{instance}/")) || words.split('\0').any(|word| word == data) {
            found.push(format!("process {} {}", process.display(), words.replace('\0', " ")));
        }
    }
    found
}

fn entries(folder: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.flatten().map(|entry| entry.path()).collect()
}
