//! Paths as they are asked for, and entries as `ls -l` shows them.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::users::Users;

/// A path of a client; the empty one is the folder that it starts in.
pub(super) fn path(bytes: &[u8]) -> PathBuf {
    if bytes.is_empty() { PathBuf::from(".") } else { PathBuf::from(OsStr::from_bytes(bytes)) }
}

/// The path without links, `.` and `..`; of one whose last part is missing, the rest so.
pub(super) fn real(path: &Path) -> std::io::Result<PathBuf> {
    match path.canonicalize() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let absolute = std::path::absolute(path)?;
            match (absolute.parent(), absolute.components().next_back()) {
                (Some(parent), Some(Component::Normal(name))) => Ok(parent.canonicalize()?.join(name)),
                _ => Err(error),
            }
        }
        other => other,
    }
}

/// `~` and `~/…` with the home of whoever runs this.
pub(super) fn expand(bytes: &[u8]) -> PathBuf {
    match bytes.strip_prefix(b"~") {
        Some(rest) if rest.is_empty() || rest.starts_with(b"/") => {
            let home = std::env::var_os("HOME").unwrap_or_else(|| "/".into());
            Path::new(&home).join(OsStr::from_bytes(rest.strip_prefix(b"/").unwrap_or(rest)))
        }
        _ => path(bytes),
    }
}

/// A line of `ls -l`.
pub(super) fn long_name(users: &Users, name: &OsStr, metadata: &Metadata) -> Vec<u8> {
    let owner = users.user_name(metadata.uid()).unwrap_or_else(|| metadata.uid().to_string());
    let group = users.group_name(metadata.gid()).unwrap_or_else(|| metadata.gid().to_string());
    let line = format!(
        "{} {:>3} {owner:<8} {group:<8} {:>8} {} ",
        mode_text(metadata.mode()),
        metadata.nlink(),
        metadata.size(),
        time_text(metadata.mtime()),
    );
    [line.as_bytes(), name.as_bytes()].concat()
}

fn mode_text(mode: u32) -> String {
    let kind = match mode & 0o170_000 {
        0o040_000 => 'd',
        0o120_000 => 'l',
        0o060_000 => 'b',
        0o020_000 => 'c',
        0o010_000 => 'p',
        0o140_000 => 's',
        _ => '-',
    };
    let bit = |mask: u32, letter: char| if mode & mask != 0 { letter } else { '-' };
    let special = |execute: u32, mask: u32, both: char, alone: char| match (mode & mask != 0, mode & execute != 0) {
        (true, true) => both,
        (true, false) => alone,
        (false, true) => 'x',
        (false, false) => '-',
    };
    [
        kind,
        bit(0o400, 'r'),
        bit(0o200, 'w'),
        special(0o100, 0o4000, 's', 'S'),
        bit(0o040, 'r'),
        bit(0o020, 'w'),
        special(0o010, 0o2000, 's', 'S'),
        bit(0o004, 'r'),
        bit(0o002, 'w'),
        special(0o001, 0o1000, 't', 'T'),
    ]
    .into_iter()
    .collect()
}

/// `Nov 15 12:30` for what is recent, `Nov 15  2024` for the rest; in UTC.
fn time_text(seconds: i64) -> String {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    const RECENT: Duration = Duration::from_secs(180 * 86_400);
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let name = usize::try_from(month - 1).ok().and_then(|month| MONTHS.get(month)).unwrap_or(&"???");
    let then = u64::try_from(seconds).map(|seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
    let recent = then.is_ok_and(|then| then.elapsed().is_ok_and(|age| age < RECENT));
    if recent {
        format!("{name} {day:>2} {:02}:{:02}", rest / 3600, rest / 60 % 60)
    } else {
        format!("{name} {day:>2}  {year}")
    }
}

/// Year, month and day of a day since 1970, in the Gregorian calendar; counted in years that begin in March.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_their_dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(19_782), (2024, 2, 29));
        assert_eq!(civil(-1), (1969, 12, 31));
        assert_eq!(time_text(951_782_400), "Feb 29  2000");
    }

    #[test]
    fn modes_read_as_people_know_them() {
        assert_eq!(mode_text(0o100_644), "-rw-r--r--");
        assert_eq!(mode_text(0o041_777), "drwxrwxrwt");
        assert_eq!(mode_text(0o104_755), "-rwsr-xr-x");
        assert_eq!(mode_text(0o120_777), "lrwxrwxrwx");
    }
}
