//! Puts files of the sandbox's own in the place of the kernel's files that speak of the whole host.
//!
//! The files are in /run, so a save takes them along like any other file. The guest keeps them true.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use super::child::put_in_place_of;

/// The folder of the files; the guest looks for them there.
const FOLDER: &str = "/run/roost/proc";
/// The name of each file, and whose place it takes.
const SHOWN: [(&str, &str); 6] = [
    (PROCESSORS, "/proc/cpuinfo"),
    ("loadavg", "/proc/loadavg"),
    ("meminfo", "/proc/meminfo"),
    ("online", "/sys/devices/system/cpu/online"),
    ("stat", "/proc/stat"),
    ("uptime", "/proc/uptime"),
];
/// This file begins as the kernel's description of one processor, which the guest cannot read any more.
const PROCESSORS: &str = "cpuinfo";
/// The length of a description is less than this, in bytes.
const ONE_PROCESSOR: u64 = 16 * 1024;

/// Makes the files and shows them; the guest fills them before it listens.
pub(super) fn show() -> io::Result<()> {
    fs::create_dir(FOLDER)?;
    for (name, shown) in SHOWN.iter().filter(|(_, shown)| Path::new(shown).exists()) {
        let file = format!("{FOLDER}/{name}");
        let first = if *name == PROCESSORS { first_processor(shown)? } else { String::new() };
        fs::write(&file, first)?;
        put_in_place_of(&file, shown).map_err(io::Error::other)?;
    }
    Ok(())
}

/// Returns the first paragraph of the kernel's text: all processors have nearly the same.
fn first_processor(path: &str) -> io::Result<String> {
    let mut text = Vec::new();
    // A host may have hundreds of processors, and the first one is enough.
    fs::File::open(path)?.take(ONE_PROCESSOR).read_to_end(&mut text)?;
    Ok(first_paragraph(&String::from_utf8_lossy(&text)).to_owned())
}

fn first_paragraph(text: &str) -> &str {
    text.find("\n\n").map_or(text, |end| &text[..end + 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_paragraph_ends_with_its_line() {
        assert_eq!(first_paragraph("a: 1\nb: 2\n\na: 2\n"), "a: 1\nb: 2\n");
        assert_eq!(first_paragraph("a: 1\n"), "a: 1\n");
        assert_eq!(first_paragraph(""), "");
    }

    #[test]
    fn this_kernel_describes_its_first_processor() {
        assert!(first_processor("/proc/cpuinfo").unwrap().contains(':'));
    }
}
