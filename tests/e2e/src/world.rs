//! The host as a test looks at it from outside.

mod leftovers;
mod memory;
mod orphans;
mod reboot;

use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

pub use leftovers::leftovers;
pub use memory::{available_memory, own_memory, peak_memory, reset_peak_memory, resident_memory};
pub use orphans::{criu_at_work, no_orphans, page_servers};
pub(crate) use reboot::lose_what_runs;

/// Random numbers that a seed makes again (splitmix64).
#[derive(Debug)]
pub struct Seed(u64);

impl Seed {
    /// Starts from a number.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }
}

/// A file on the host with a secret in it, which nothing inside a sandbox may read or change.
#[derive(Debug)]
pub struct Canary {
    folder: tempfile::TempDir,
}

impl Canary {
    /// What the file holds.
    pub const SECRET: &str = "only the host may read this";

    /// Puts the file on the host's disk, readable for everybody.
    pub fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("roost-e2e-canary-").tempdir_in("/var/tmp")?;
        let canary = Self { folder };
        fs::write(canary.path(), Self::SECRET).context("failed to write the canary")?;
        Ok(canary)
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("secret")
    }

    /// A path beside it at which nothing is, for attempts to write.
    pub fn absent(&self) -> PathBuf {
        self.folder.path().join("absent")
    }

    /// Whether it is as it was, with nothing beside it.
    pub fn untouched(&self) -> bool {
        let secret = fs::read_to_string(self.path()).is_ok_and(|text| text == Self::SECRET);
        let alone = fs::read_dir(self.folder.path()).is_ok_and(|entries| entries.count() == 1);
        secret && alone
    }
}

/// The host's pid of the first process of a sandbox, with which all of it ends, whatever the engine: its guest, or the keeper
/// where the guest is no process of the host's.
pub fn first_pid(instance: &str, sandbox: &str) -> Result<u32> {
    let is_first = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let inner = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
        inner.split_whitespace().nth(1) == Some("1")
    };
    let mut members = members_of(&format!("/roost-{instance}/{sandbox}"))?;
    members.extend(members_of(&format!("/roost-{instance}-gvisor/{sandbox}"))?);
    members.into_iter().find(is_first).with_context(|| format!("no first process found for sandbox {sandbox}"))
}

/// The processes of the host's that a sandbox on gVisor is made of and whose command begins with `name`.
pub fn parts_on_gvisor(instance: &str, sandbox: &str, name: &str) -> Result<Vec<u32>> {
    let mut members = members_of(&format!("/roost-{instance}-gvisor/{sandbox}"))?;
    members.retain(|pid| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let program = command.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(program).rsplit('/').next().is_some_and(|program| program == name)
    });
    Ok(members)
}

/// The processes in a control group whose path, in one hierarchy or the other, contains `folder`.
fn members_of(folder: &str) -> Result<Vec<u32>> {
    let mut members = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        // A process may go away while it is looked at; then it is not the one.
        let Ok(cgroups) = fs::read_to_string(entry.path().join("cgroup")) else { continue };
        if cgroups.contains(folder) {
            members.push(pid);
        }
    }
    Ok(members)
}

/// Every IPv4 address of the host, loopback included.
pub fn host_addresses() -> Result<Vec<Ipv4Addr>> {
    let output = Command::new("ip").args(["-4", "-o", "addr", "show"]).output().context("failed to run `ip`")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let addresses = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip_while(|word| *word != "inet");
        words.nth(1)?.split('/').next()?.parse().ok()
    });
    Ok(addresses.collect())
}

/// Whether the host itself can fetch from the mirror it is set up with.
pub fn host_reaches_its_mirror() -> bool {
    let lists = tempfile::tempdir();
    let Ok(lists) = lists else { return false };
    // Into a folder of our own: a test does not change the host's package lists.
    let status = Command::new("apt-get")
        .arg("-o")
        .arg(format!("Dir::State::Lists={}", lists.path().display()))
        .args(["-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=10", "-o", "APT::Update::Error-Mode=any"])
        .args(["-qq", "update"])
        .status();
    status.is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_again() {
        let draw = |seed| {
            let mut seed = Seed::new(seed);
            [seed.below(1000), seed.below(1000), seed.below(1000)]
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn the_host_has_a_loopback_address() {
        assert!(host_addresses().unwrap().contains(&Ipv4Addr::LOCALHOST));
    }
}
