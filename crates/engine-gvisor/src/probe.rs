//! What the gVisor engine needs of a host, checked one by one.

use std::fs;
use std::path::Path;

use roost_engine::{Check, EngineReport};
use roost_engine_group::tracing_allowed;
use roost_model::EngineKind;
use roost_sys::cgroup::Layout;
use roost_sys::mount::FsContext;

use crate::engine::GvisorConfig;
use crate::tool::Tool;

pub(crate) fn report(config: &GvisorConfig, layout: &Layout, tool: Result<&Tool, &String>) -> EngineReport {
    let runsc = match tool {
        Ok(tool) => check("runsc", true, true, format!("{}, platform systrap", tool.image_version())),
        Err(why) => check("runsc", false, true, why.clone()),
    };
    let missing = layout.missing();
    let groups = if missing.is_empty() {
        check("control groups", true, true, format!("{}, all controllers", layout.describe()))
    } else {
        check("control groups", false, true, format!("{}, without {}", layout.describe(), missing.join(", ")))
    };
    let checks = vec![
        runsc,
        root(),
        filesystem("overlay"),
        groups,
        seccomp(),
        tracing(),
        program("keeper", &config.keeper),
        program("guest", &config.guest),
        check("saving memory", tool.is_ok(), false, "by runsc itself"),
    ];
    EngineReport { engine: EngineKind::Gvisor, checks }
}

fn check(what: &str, ok: bool, required: bool, detail: impl Into<String>) -> Check {
    Check { what: what.to_owned(), ok, required, detail: detail.into() }
}

fn root() -> Check {
    let ok = rustix::process::geteuid().is_root();
    check("root", ok, true, if ok { "the daemon runs as root" } else { "start the daemon as root" })
}

/// Opening a context loads the kernel module if there is one.
fn filesystem(kind: &str) -> Check {
    match FsContext::open(kind) {
        Ok(_) => check(kind, true, true, "the kernel has it"),
        Err(e) => check(kind, false, true, format!("{e}; load the module `{kind}`")),
    }
}

/// systrap attaches to the processes that it runs.
fn tracing() -> Check {
    let allowed = tracing_allowed();
    let detail = allowed.clone().err().unwrap_or_else(|| "a privileged process may attach to others".to_owned());
    check("tracing", allowed.is_ok(), true, detail)
}

/// systrap takes system calls by seccomp's trap.
fn seccomp() -> Check {
    let actions = fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default();
    let ok = actions.split_whitespace().any(|action| action == "trap");
    check("seccomp", ok, true, if ok { "filters available" } else { "the kernel has no seccomp filters" })
}

fn program(what: &str, path: &Path) -> Check {
    use std::os::unix::fs::PermissionsExt;
    let ok = fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    let found = path.display();
    let detail = if ok { format!("{found}") } else { format!("`{found}` is missing or not executable") };
    check(what, ok, true, detail)
}
