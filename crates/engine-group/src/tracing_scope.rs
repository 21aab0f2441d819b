//! Whether the host lets a privileged process attach to others.

use std::fs;

/// Yama's switch: 0 to 2 let a privileged process attach, 3 lets no process, until the next boot.
const SWITCH: &str = "/proc/sys/kernel/yama/ptrace_scope";

/// Returns why no process can be traced on this host, if that is so. CRIU saves memory by tracing, and gVisor runs by it.
pub fn tracing_allowed() -> Result<(), String> {
    verdict(&fs::read_to_string(SWITCH).unwrap_or_default())
}

fn verdict(switch: &str) -> Result<(), String> {
    match switch.trim() {
        "3" => {
            Err(format!("`{SWITCH}` is 3, which forbids all tracing until the next boot; set it to 2 or less at boot"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_strictest_scope_forbids_tracing() {
        for scope in ["", "0\n", "1\n", "2\n"] {
            assert_eq!(verdict(scope), Ok(()));
        }
        assert!(verdict("3\n").is_err());
    }
}
