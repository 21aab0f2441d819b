//! Processes as `/proc/PID/stat` tells of them, on Linux and on gVisor's kernel alike.

use std::fs::{self, File};
use std::io::{self, Read};

/// As much as is read of a file about a process; all that is wanted of it is there.
const LONGEST: usize = 4096;

/// One line of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) pid: i32,
    pub(crate) name: String,
    /// The kernel's letter for what it does.
    pub(crate) state: String,
    pub(crate) parent: i32,
    pub(crate) session: i32,
    /// CPU time in clock ticks.
    pub(crate) ticks: u64,
    pub(crate) threads: u32,
    /// When it started, in clock ticks since the machine did.
    pub(crate) started: u64,
    /// Pages of its memory that are in RAM.
    pub(crate) pages: u64,
}

/// Every process there is.
pub(crate) fn all() -> io::Result<Vec<Stat>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        // It may be gone by now.
        let Ok(stat) = about(pid, "stat") else { continue };
        found.extend(parse(pid, &String::from_utf8_lossy(&stat)));
    }
    Ok(found)
}

/// The beginning of a file about a process, by one read: where every system call is dear this is half of them.
pub(super) fn about(pid: i32, what: &str) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; LONGEST];
    let count = File::open(format!("/proc/{pid}/{what}"))?.read(&mut bytes)?;
    bytes.truncate(count);
    Ok(bytes)
}

fn parse(pid: i32, stat: &str) -> Option<Stat> {
    // The name in parentheses can hold anything, parentheses and blanks included.
    let (front, fields) = stat.rsplit_once(')')?;
    let (_, name) = front.split_once('(')?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok());
    let id = |index: usize| number(index).and_then(|id| i32::try_from(id).ok());
    Some(Stat {
        pid,
        name: name.to_owned(),
        state: (*fields.first()?).to_owned(),
        parent: id(1)?,
        session: id(3)?,
        ticks: number(11)? + number(12)?,
        threads: number(17).and_then(|threads| u32::try_from(threads).ok()).unwrap_or(1),
        started: number(19).unwrap_or(0),
        pages: number(21).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_confuse_the_parser() {
        let stat = "42 (a) b (c)) S 1 42 7 0 -1 4194560 1 2 3 4 10 32 6 7 20 0 3 0 900 8192 5 0";
        let found = Stat {
            pid: 42,
            name: "a) b (c)".to_owned(),
            state: "S".to_owned(),
            parent: 1,
            session: 7,
            ticks: 42,
            threads: 3,
            started: 900,
            pages: 5,
        };
        assert_eq!(parse(42, stat), Some(found));
        assert_eq!(parse(42, "42 (a"), None);
        assert_eq!(parse(42, ""), None);
    }

    #[test]
    fn this_process_is_among_them() {
        let own = i32::try_from(std::process::id()).unwrap();
        let all = all().unwrap();
        let own = all.iter().find(|process| process.pid == own).unwrap();
        assert!(own.pages > 0 && own.started > 0 && own.threads > 0, "{own:?}");
    }
}
