//! The host's tools without which a template cannot be built.

use std::path::Path;

use super::{base, mini};

/// A tool that is not on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissingTool {
    /// The template that needs it.
    pub template: &'static str,
    /// Its name.
    pub tool: &'static str,
    /// The Debian package that has it.
    pub package: &'static str,
}

/// Returns the tools of our own templates that are not on this host.
pub fn missing_tools() -> Vec<MissingTool> {
    missing(mini::busybox().is_some(), has(base::TOOL))
}

fn missing(busybox: bool, mmdebstrap: bool) -> Vec<MissingTool> {
    let mini = MissingTool { template: "mini", tool: mini::TOOL, package: mini::PACKAGE };
    let base = MissingTool { template: "base", tool: base::TOOL, package: base::TOOL };
    [(busybox, mini), (mmdebstrap, base)].into_iter().filter_map(|(there, tool)| (!there).then_some(tool)).collect()
}

/// Whether a program of this name is in the search path.
fn has(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| Path::new(&folder).join(program).is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_tools_come_with_their_packages() {
        let packages: Vec<_> = missing(false, false).iter().map(|tool| (tool.template, tool.package)).collect();
        assert_eq!(packages, [("mini", "busybox-static"), ("base", "mmdebstrap")]);
        assert_eq!(missing(true, true), []);
        assert!(has("sh") && !has("no-such-program"));
    }
}
