//! When cron has work to do, for a host that is about to let the sandbox sleep.
//!
//! Only the times leave, and only if a cron daemon runs: a crontab that nobody reads wakes nobody. What looks like a
//! schedule and is none is the host's to skip.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use roost_wire::CronJob;

/// More schedules than any honest system has.
const MOST: usize = 512;
/// Larger files are no crontabs.
const LARGEST: u64 = 256 * 1024;

/// Every time at which a cron daemon inside has work to do.
pub(crate) fn jobs(etc: &Path) -> Vec<CronJob> {
    let daemons: Vec<Daemon> = processes().filter_map(|process| Daemon::of(&process)).collect();
    if daemons.is_empty() {
        return Vec::new();
    }
    let mut found = Found::default();
    for daemon in daemons {
        found.zone = daemon.zone.or_else(|| local_zone(etc));
        found.file(&etc.join("crontab"), true);
        for file in files(&etc.join("cron.d")) {
            found.file(&file, true);
        }
        let spools = [Path::new("/var/spool/cron/crontabs"), Path::new("/var/spool/cron")];
        for file in spools.into_iter().chain(daemon.folder.as_deref()).flat_map(files) {
            found.file(&file, false);
        }
    }
    found.jobs.into_iter().take(MOST).collect()
}

/// A cron daemon that runs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Daemon {
    zone: Option<String>,
    /// Where it was told to look for crontabs of users.
    folder: Option<PathBuf>,
}

impl Daemon {
    fn of(process: &Path) -> Option<Self> {
        let name = fs::read_to_string(process.join("comm")).ok()?;
        if !["cron", "crond", "busybox"].contains(&name.trim_end()) {
            return None;
        }
        let command = fs::read(process.join("cmdline")).ok()?;
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        Self::from(&words(&command), &words(&environment))
    }

    fn from(command: &[String], environment: &[String]) -> Option<Self> {
        let base = |word: &String| word.rsplit('/').next().unwrap_or_default().to_owned();
        let names = command.iter().take(2).map(base);
        if !names.into_iter().any(|name| name == "cron" || name == "crond") {
            return None;
        }
        let zone = environment.iter().find_map(|word| word.strip_prefix("TZ=")).and_then(zone_name);
        let after = command.iter().position(|word| word == "-c").and_then(|place| command.get(place + 1));
        let joined = command.iter().find_map(|word| word.strip_prefix("-c").filter(|folder| !folder.is_empty()));
        Some(Self { zone, folder: after.map(String::as_str).or(joined).map(PathBuf::from) })
    }
}

fn processes() -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit))
        .map(|entry| entry.path())
}

/// Words that end in NUL, as `/proc` shows them.
fn words(bytes: &[u8]) -> Vec<String> {
    bytes.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// Files of a folder, without those that editors and package managers leave beside them.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let wanted = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        path.is_file() && !name.contains('.') && !name.ends_with('~')
    };
    entries.map(|entry| entry.path()).filter(wanted).collect()
}

/// The zone that clocks inside show, by its name.
fn local_zone(etc: &Path) -> Option<String> {
    let target = fs::read_link(etc.join("localtime")).ok();
    let linked = target.and_then(|target| {
        let text = target.to_string_lossy().into_owned();
        text.split_once("zoneinfo/").map(|(_, name)| name.to_owned())
    });
    linked.or_else(|| fs::read_to_string(etc.join("timezone")).ok()).as_deref().and_then(zone_name)
}

fn zone_name(text: &str) -> Option<String> {
    let name = text.trim().trim_start_matches(':');
    let plain = !name.is_empty() && name.len() < 100 && name.chars().all(|c| c.is_ascii_graphic());
    plain.then(|| name.to_owned())
}

#[derive(Debug, Default)]
struct Found {
    zone: Option<String>,
    jobs: BTreeSet<CronJob>,
}

impl Found {
    fn file(&mut self, path: &Path, with_user: bool) {
        if fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() <= LARGEST)
            && let Ok(bytes) = fs::read(path)
        {
            self.text(&String::from_utf8_lossy(&bytes), with_user);
        }
    }

    /// Takes the schedules of a crontab; one of the system names a user after it.
    fn text(&mut self, text: &str, with_user: bool) {
        // Some crons heed this line and some do not: the sandbox is woken for both readings.
        let mut other_zone = None;
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some((name, value)) = line.split_once('=')
                && name.trim().bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            {
                if name.trim() == "CRON_TZ" {
                    other_zone = zone_name(value.trim().trim_matches(['"', '\'']));
                }
                continue;
            }
            // A leading dash is busybox's and Debian's way to say that the job is not to be logged.
            let line = line.trim_start_matches('-');
            let count = if line.starts_with('@') { 1 } else { 5 };
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let command_at = count + usize::from(with_user);
            let Some(schedule) = fields.get(..count).filter(|_| fields.len() > command_at) else { continue };
            let schedule = schedule.join(" ");
            if schedule == "@reboot" {
                continue;
            }
            self.jobs.insert(CronJob { schedule: schedule.clone(), tz: self.zone.clone() });
            if other_zone.is_some() {
                self.jobs.insert(CronJob { schedule, tz: other_zone.clone() });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn daemons_are_told_from_others() {
        let daemon = |command: &[&str], environment: &[&str]| Daemon::from(&strings(command), &strings(environment));
        assert_eq!(daemon(&["/usr/sbin/cron", "-f"], &[]), Some(Daemon::default()));
        let berlin = Daemon { zone: Some("Europe/Berlin".into()), folder: Some("/tmp/tabs".into()) };
        assert_eq!(daemon(&["busybox", "crond", "-c", "/tmp/tabs"], &["A=1", "TZ=:Europe/Berlin"]), Some(berlin));
        assert_eq!(daemon(&["crond", "-c/x"], &[]).unwrap().folder, Some("/x".into()));
        assert_eq!(daemon(&["busybox", "sh"], &[]), None);
    }

    #[test]
    fn schedules_are_found_among_the_rest() {
        let mut found = Found { zone: Some("Europe/Rome".into()), ..Found::default() };
        let system =
            "SHELL=/bin/sh\n# */1 * * * * root no\n17 *\t* * *\troot cd / && run-parts\n@daily root x\n1 2 3 4\n";
        found.text(system, true);
        found.text("*/5 * * * * echo a=b\n@reboot x\n-0 3 * * 1 quiet\nCRON_TZ=\"Asia/Tokyo\"\n0 9 * * * tea\n", false);
        let job = |schedule: &str, tz: &str| CronJob { schedule: schedule.into(), tz: Some(tz.into()) };
        let expected = [
            job("*/5 * * * *", "Europe/Rome"),
            job("0 3 * * 1", "Europe/Rome"),
            job("0 9 * * *", "Asia/Tokyo"),
            job("0 9 * * *", "Europe/Rome"),
            job("17 * * * *", "Europe/Rome"),
            job("@daily", "Europe/Rome"),
        ];
        assert!(found.jobs.iter().eq(&expected), "{:?}", found.jobs);
    }

    #[test]
    fn the_zone_inside_is_found() {
        let etc = tempfile::tempdir().unwrap();
        assert_eq!(local_zone(etc.path()), None);
        fs::write(etc.path().join("timezone"), "Etc/UTC\n").unwrap();
        assert_eq!(local_zone(etc.path()).as_deref(), Some("Etc/UTC"));
        std::os::unix::fs::symlink("/usr/share/zoneinfo/Europe/Rome", etc.path().join("localtime")).unwrap();
        assert_eq!(local_zone(etc.path()).as_deref(), Some("Europe/Rome"));
    }
}
