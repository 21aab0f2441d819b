//! The walls between a sandbox and its host, one for each engine, behind which the same attacks are tried.

use anyhow::Result;
use roost_model::EngineKind;

use crate::{Daemon, Options, Sandbox};

/// The wall of one engine, and the answers that it gives to an attack.
#[derive(Debug, Clone, Copy)]
pub struct Wall {
    /// The engine of the sandboxes.
    pub engine: EngineKind,
    /// The sandbox has a kernel of its own: a call that reaches the host's kernel elsewhere may work there, on that kernel alone.
    pub own_kernel: bool,
    /// A sandbox at a limit of memory or processes may end as a whole, and nothing beside it.
    pub limits_end_all: bool,
}

/// The wall of namespaces.
pub const NATIVE: Wall = Wall { engine: EngineKind::Native, own_kernel: false, limits_end_all: false };
/// The wall of a kernel in user space.
pub const GVISOR: Wall = Wall { engine: EngineKind::Gvisor, own_kernel: true, limits_end_all: true };

impl Wall {
    /// Returns the options of a daemon whose sandboxes have this engine.
    #[must_use]
    pub fn options(self) -> Options {
        Options { engine: Some(self.engine), ..Options::default() }
    }

    /// Starts a daemon whose sandboxes have this engine, with the template `base` if `base` is set.
    pub async fn daemon(self, base: bool) -> Result<Daemon> {
        Daemon::with(Options { base, ..self.options() }).await
    }

    /// Expects an error from each line; the lines that are also in `own` run only where they reach the host's kernel.
    pub async fn refuses(self, sandbox: &Sandbox, lines: &[&str], own: &[&str]) -> Result<()> {
        for line in lines.iter().filter(|line| !(self.own_kernel && own.contains(line))) {
            sandbox.refuses(line).await?;
        }
        Ok(())
    }
}

/// Declares one test per attack and wall: the attacks are async functions that take a [`Wall`].
#[macro_export]
macro_rules! behind_each_wall {
    ($($attack:ident),+ $(,)?) => {
        mod native {
            $(#[tokio::test]
            async fn $attack() -> anyhow::Result<()> {
                super::$attack($crate::wall::NATIVE).await
            })+
        }
        mod gvisor {
            $(#[tokio::test]
            async fn $attack() -> anyhow::Result<()> {
                super::$attack($crate::wall::GVISOR).await
            })+
        }
    };
}
