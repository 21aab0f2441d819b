//! `roost-guest df`: free space as `df` prints it, with the limit of the sandbox's disk in the row of `/`.
//!
//! The kernel answers for the whole pool in which the disks of all sandboxes lie, because its file system knows no quota in that
//! call. The template `base` therefore has a `df` that asks here first. It prints the usual formats; for any other
//! option the caller runs the distribution's own `df`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use roost_wire::{Call, Outcome};
use rustix::fs::statvfs;

use crate::command::ask_host;

/// What the options ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Wanted {
    unit: Unit,
    types: bool,
    all: bool,
    paths: Vec<PathBuf>,
}

/// How sizes are printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Unit {
    /// In blocks of so many KiB.
    Blocks(u64),
    /// Short, with powers of this number.
    Human(u64),
    #[default]
    Default,
}

/// One file system.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    source: String,
    kind: String,
    place: PathBuf,
    size: u64,
    used: u64,
    free: u64,
}

/// Returns the table, or nothing if an option is not known here.
pub(crate) fn run(arguments: &[String]) -> Option<Result<String, String>> {
    Some(rows(&parse(arguments)?).map(|(wanted, rows)| table(&wanted, &rows)))
}

fn parse(arguments: &[String]) -> Option<Wanted> {
    let mut wanted = Wanted::default();
    for argument in arguments {
        let letters = match argument.as_str() {
            "--human-readable" => "h",
            "--si" => "H",
            "--print-type" => "T",
            "--portability" => "P",
            "--all" => "a",
            other => match other.strip_prefix('-') {
                Some(letters) if !letters.is_empty() && !letters.starts_with('-') => letters,
                Some(_) => return None,
                None => {
                    wanted.paths.push(PathBuf::from(other));
                    continue;
                }
            },
        };
        for letter in letters.chars() {
            match letter {
                'h' => wanted.unit = Unit::Human(1024),
                'H' => wanted.unit = Unit::Human(1000),
                'k' => wanted.unit = Unit::Blocks(1),
                'm' => wanted.unit = Unit::Blocks(1024),
                'T' => wanted.types = true,
                'a' => wanted.all = true,
                'P' => {}
                _ => return None,
            }
        }
    }
    Some(wanted)
}

fn rows(wanted: &Wanted) -> Result<(Wanted, Vec<Row>), String> {
    let mounts =
        fs::read_to_string("/proc/self/mounts").map_err(|error| format!("failed to read the mounts: {error}"))?;
    let mounts: Vec<[String; 3]> = mounts.lines().filter_map(mount).collect();
    let disk = disk_of_the_sandbox();
    let mut rows = Vec::new();
    if wanted.paths.is_empty() {
        let mut seen = BTreeSet::new();
        for mount in &mounts {
            let Ok(found) = fs::metadata(&mount[1]) else { continue };
            // A bound file is no file system of its own.
            if found.is_dir() && (wanted.all || seen.insert(found.dev())) {
                rows.extend(row(mount, disk).filter(|row| wanted.all || row.size > 0));
            }
        }
    }
    for path in &wanted.paths {
        let place = fs::canonicalize(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let below = mounts.iter().filter(|mount| place.starts_with(&mount[1]));
        // The longest one, and of two on one place the one that was mounted last.
        let nearest = below.max_by_key(|mount| mount[1].len());
        rows.extend(nearest.and_then(|mount| row(mount, disk)));
    }
    Ok((wanted.clone(), rows))
}

/// Source, place and type of a line of the table of mounts.
fn mount(line: &str) -> Option<[String; 3]> {
    let mut words =
        line.split(' ').map(|word| word.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\"));
    Some([words.next()?, words.next()?, words.next()?])
}

fn row([source, place, kind]: &[String; 3], disk: Option<(u64, u64)>) -> Option<Row> {
    let found = statvfs(place.as_str()).ok()?;
    let (size, free) = (found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize);
    let used = (found.f_blocks - found.f_bfree) * found.f_frsize;
    let (size, used, free) = match disk.filter(|_| place == "/") {
        Some((limit, used)) => (limit, used, limit.saturating_sub(used).min(free)),
        None => (size, used, free),
    };
    Some(Row { source: source.clone(), kind: kind.clone(), place: PathBuf::from(place), size, used, free })
}

/// The limit of the sandbox's disk and its use, if the host says so.
fn disk_of_the_sandbox() -> Option<(u64, u64)> {
    let Ok((_, Outcome::Ok(answer))) = ask_host(&Call::Info) else { return None };
    let number = |of: &str| answer.data.get(of)?.get("disk")?.as_u64();
    Some((number("limits")?, number("usage")?))
}

fn table(wanted: &Wanted, rows: &[Row]) -> String {
    let size = match wanted.unit {
        Unit::Human(_) => "Size",
        Unit::Blocks(1024) => "1M-blocks",
        Unit::Blocks(_) | Unit::Default => "1K-blocks",
    };
    let available = if matches!(wanted.unit, Unit::Human(_)) { "Avail" } else { "Available" };
    let show = |bytes: u64| match wanted.unit {
        Unit::Human(base) => human(bytes, base),
        Unit::Blocks(kib) => bytes.div_ceil(kib << 10).to_string(),
        Unit::Default => bytes.div_ceil(1024).to_string(),
    };
    let mut cells = vec![["Filesystem", "Type", size, "Used", available, "Use%", "Mounted on"].map(str::to_owned)];
    cells.extend(rows.iter().map(|row| {
        let share = (row.used * 100).checked_div(row.used + row.free);
        // Rounded up, as everywhere.
        let share = share.map(|share| share + u64::from(share * (row.used + row.free) < row.used * 100));
        [
            row.source.clone(),
            row.kind.clone(),
            show(row.size),
            show(row.used),
            show(row.free),
            share.map_or("-".to_owned(), |share| format!("{share}%")),
            row.place.display().to_string(),
        ]
    }));
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..6).map(width).collect();
    let mut text = String::new();
    for row in &cells {
        let line: Vec<String> = (0..6)
            .filter(|column| *column != 1 || wanted.types)
            .map(|column| {
                if column < 2 {
                    format!("{:<1$}", row[column], widths[column])
                } else {
                    format!("{:>1$}", row[column], widths[column])
                }
            })
            .collect();
        text.push_str(&line.join(" "));
        text.push(' ');
        text.push_str(&row[6]);
        text.push('\n');
    }
    text
}

/// A size in few letters, rounded up: `512M`, `1.5G`.
fn human(bytes: u64, base: u64) -> String {
    let units = (1_u32..).zip("KMGTPE".chars()).filter_map(|(power, letter)| Some((base.checked_pow(power)?, letter)));
    let Some((unit, letter)) = units.take_while(|(unit, _)| bytes >= *unit).last() else { return bytes.to_string() };
    let letter = if (base, letter) == (1000, 'K') { 'k' } else { letter };
    let tenths = (bytes.saturating_mul(10)).div_ceil(unit);
    if tenths < 100 {
        format!("{}.{}{letter}", tenths / 10, tenths % 10)
    } else {
        format!("{}{letter}", bytes.div_ceil(unit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn usual_options_are_known_and_others_are_not() {
        let wanted = parse(&words("-hT / /tmp")).unwrap();
        assert_eq!((wanted.unit, wanted.types, wanted.paths.len()), (Unit::Human(1024), true, 2));
        assert_eq!(parse(&words("-k")).unwrap().unit, Unit::Blocks(1));
        for unknown in ["-i", "--output=size", "-B1", "--help", "-"] {
            assert_eq!(parse(&words(unknown)), None, "{unknown}");
        }
    }

    #[test]
    fn sizes_are_short_and_rounded_up() {
        let shown = [0, 999, 1024, 1536, 10 << 10, (512 << 20) + 1, 20 << 30].map(|bytes| human(bytes, 1024));
        assert_eq!(shown, ["0", "999", "1.0K", "1.5K", "10K", "513M", "20G"]);
        assert_eq!(human(1500, 1000), "1.5k");
        assert!(!human(u64::MAX, 1024).is_empty());
    }

    #[test]
    fn table_has_the_columns_of_df() {
        let row = Row {
            source: "overlay".to_owned(),
            kind: "overlay".to_owned(),
            place: PathBuf::from("/"),
            size: 1 << 30,
            used: 1 << 28,
            free: 3 << 28,
        };
        let text = table(&parse(&words("-h")).unwrap(), std::slice::from_ref(&row));
        assert_eq!(text, "Filesystem Size Used Avail Use% Mounted on\noverlay    1.0G 256M  768M  25% /\n");
        let text = table(&parse(&words("-PT")).unwrap(), &[row]);
        assert!(text.ends_with("overlay    overlay   1048576 262144    786432  25% /\n"), "{text}");
    }

    #[test]
    fn rows_of_this_machine_are_found() {
        let (_, rows) = rows(&parse(&words("/")).unwrap()).unwrap();
        assert!(rows.len() == 1 && rows[0].size > 0, "{rows:?}");
    }
}
