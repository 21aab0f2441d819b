//! E2B's official packages, as anybody installs them, against the real daemon.
//!
//! A test is a script that a package's user could have written; `scripts/e2b-packages` installs the versions that the lock
//! files beside the scripts name. Each script has a daemon of its own.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use roost_e2e::{Daemon, Options};
use tokio::process::Command;

/// A daemon, and the two lines that point E2B's packages to it.
#[derive(Debug)]
pub struct Suite {
    daemon: Daemon,
    key: String,
    packages: PathBuf,
}

impl Suite {
    /// Starts a daemon that has template `base`, which is where E2B's packages start from too.
    pub async fn start() -> Result<Self> {
        let packages = packages()?;
        ensure!(packages.is_dir(), "`{}` is not there: run scripts/e2b-packages", packages.display());
        let daemon = Daemon::with(Options { tcp: true, base: true, ..Options::default() }).await?;
        let key = daemon.client().mint_token("e2b").await?.secret;
        Ok(Self { daemon, key, packages })
    }

    /// The daemon.
    pub fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    /// Runs a module of `tests/e2b/python`, all of which must hold.
    pub async fn python(&self, module: &str) -> Result<()> {
        let mut command = Command::new(self.packages.join("python/bin/python"));
        command.args(["-X", "utf8", "-B", "run.py", module]);
        self.holds(&mut command, "python", module).await
    }

    /// Runs a file of `tests/e2b/javascript`, all of which must hold.
    pub async fn javascript(&self, file: &str) -> Result<()> {
        let mut command = Command::new("node");
        command.args(["--test", file]).env("NODE_PATH", self.packages.join("javascript/node_modules"));
        self.holds(&mut command, "javascript", file).await
    }

    async fn holds(&self, command: &mut Command, folder: &str, what: &str) -> Result<()> {
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("E2B_") {
                command.env_remove(name);
            }
        }
        let url = format!("http://{}", self.daemon.address().context("the daemon listens on no port")?);
        let status = command
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder))
            .env("E2B_API_URL", &url)
            .env("E2B_SANDBOX_URL", &url)
            .env("E2B_API_KEY", &self.key)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .status()
            .await
            .with_context(|| format!("failed to start {command:?}"))?;
        ensure!(status.success(), "{folder}/{what} does not hold: {status}");
        Ok(())
    }
}

/// Folder of the installed packages: `ROOST_E2B_PACKAGES`, or `e2b` in the target folder.
fn packages() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("ROOST_E2B_PACKAGES") {
        return Ok(PathBuf::from(path));
    }
    let test = std::env::current_exe().context("failed to find the test's own binary")?;
    Ok(test.ancestors().nth(3).context("the test's binary is in no target folder")?.join("e2b"))
}

/// Tests that each run one script in a daemon of its own.
#[macro_export]
macro_rules! scripts {
    ($run:ident: $($name:ident => $file:literal),+ $(,)?) => {
        $(
            #[tokio::test]
            async fn $name() -> anyhow::Result<()> {
                $crate::Suite::start().await?.$run($file).await
            }
        )+
    };
}
