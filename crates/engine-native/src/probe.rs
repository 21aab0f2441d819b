//! What the native engine needs of a host, checked one by one.

use std::fs;
use std::path::Path;

use roost_engine::{Check, EngineReport};
use roost_engine_group::tracing_allowed;
use roost_model::EngineKind;
use roost_sys::cgroup::Layout;
use roost_sys::mount::FsContext;

use crate::engine::NativeConfig;
use crate::memory::Memory;

/// Idmapped layers under overlayfs came with this kernel.
const KERNEL: (u32, u32) = (5, 19);
/// CAP_SYS_RESOURCE.
const SYS_RESOURCE: u32 = 24;

pub(crate) fn report(config: &NativeConfig, layout: &Layout, memory: &Memory) -> EngineReport {
    let checks = vec![
        root(),
        kernel(),
        user_namespaces(),
        namespace("time", false, "monotonic clocks go on over a suspend"),
        filesystem("overlay"),
        filesystem("erofs"),
        filesystem("btrfs"),
        control_groups(layout),
        seccomp(),
        oom_protection(),
        program("launcher", &config.launcher),
        program("guest", &config.guest),
        tracing(),
        check("saving memory", memory.criu().is_some(), false, memory.finding.clone()),
    ];
    EngineReport { engine: EngineKind::Native, checks }
}

fn check(what: &str, ok: bool, required: bool, detail: impl Into<String>) -> Check {
    Check { what: what.to_owned(), ok, required, detail: detail.into() }
}

fn root() -> Check {
    let ok = rustix::process::geteuid().is_root();
    check("root", ok, true, if ok { "the daemon runs as root" } else { "start the daemon as root" })
}

fn kernel() -> Check {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let ok = version(&release).is_some_and(|found| found >= KERNEL);
    let detail = if ok { release } else { format!("{release}; {}.{} or later is needed", KERNEL.0, KERNEL.1) };
    check("kernel", ok, true, detail)
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn user_namespaces() -> Check {
    let limit = "/proc/sys/user/max_user_namespaces";
    let allowed = fs::read_to_string(limit).ok().and_then(|text| text.trim().parse::<u64>().ok());
    match allowed {
        Some(0) => check("user namespaces", false, true, format!("switched off; raise {limit}")),
        Some(count) => check("user namespaces", true, true, format!("up to {count}")),
        None => check("user namespaces", false, true, "the kernel has none"),
    }
}

fn namespace(name: &str, required: bool, gain: &str) -> Check {
    let ok = Path::new("/proc/self/ns").join(name).exists();
    let detail = if ok { gain.to_owned() } else { format!("the kernel has none; without it not: {gain}") };
    check(&format!("{name} namespaces"), ok, required, detail)
}

/// Opening a context loads the kernel module if there is one.
fn filesystem(kind: &str) -> Check {
    match FsContext::open(kind) {
        Ok(_) => check(kind, true, true, "the kernel has it"),
        Err(e) => check(kind, false, true, format!("{e}; load the module `{kind}`")),
    }
}

fn control_groups(layout: &Layout) -> Check {
    let missing = layout.missing();
    let version = layout.describe();
    if missing.is_empty() {
        return check("control groups", true, true, format!("{version}, all controllers"));
    }
    check("control groups", false, true, format!("{version}, without {}", missing.join(", ")))
}

fn seccomp() -> Check {
    let actions = fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default();
    let ok = actions.split_whitespace().any(|action| action == "errno");
    check("seccomp", ok, true, if ok { "filters available" } else { "the kernel has no seccomp filters" })
}

fn oom_protection() -> Check {
    use rustix::thread::{CapabilitySet, capabilities};
    let held = capabilities(None).is_ok_and(|sets| sets.effective.bits() & (1 << SYS_RESOURCE) != 0);
    debug_assert_eq!(CapabilitySet::SYS_RESOURCE.bits(), 1 << SYS_RESOURCE);
    let detail = if held {
        "the kernel is told to spare PID 1 of a sandbox"
    } else {
        "without CAP_SYS_RESOURCE PID 1 of a sandbox is spared only because it is small"
    };
    check("protection of PID 1", held, false, detail)
}

fn tracing() -> Check {
    let allowed = tracing_allowed();
    let detail = allowed.clone().err().unwrap_or_else(|| "a privileged process may attach to others".to_owned());
    check("tracing", allowed.is_ok(), false, detail)
}

fn program(what: &str, path: &Path) -> Check {
    use std::os::unix::fs::PermissionsExt;
    let ok = fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    let found = path.display();
    let detail = if ok { format!("{found}") } else { format!("`{found}` is missing or not executable") };
    check(what, ok, true, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_versions_compare_as_numbers() {
        assert_eq!(version("6.18.0-foo"), Some((6, 18)));
        assert!(version("5.9.1") < Some(KERNEL));
        assert_eq!(version("x"), None);
    }
}
