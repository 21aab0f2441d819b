//! Clients beside OpenSSH's own: paramiko and asyncssh.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use roost_e2e::ssh::{SshDaemon, ended, ok};

/// Where scripts/ssh-packages has put them.
fn python() -> Result<PathBuf> {
    let folder = std::env::var_os("ROOST_SSH_PACKAGES").context("no ROOST_SSH_PACKAGES: run scripts/ssh-packages")?;
    Ok(PathBuf::from(folder).join("bin/python"))
}

#[tokio::test(flavor = "multi_thread")]
async fn paramiko_and_asyncssh_are_content() -> Result<()> {
    let python = python()?;
    let host = SshDaemon::start(true).await?;
    let _web = host.daemon.sandbox_of("base", "web").await?;
    let script = host.path("clients.py");
    std::fs::write(&script, include_str!("../workload/ssh_clients.py"))?;
    let mut clients = tokio::process::Command::new(python);
    clients.arg(&script).arg(host.port()).arg(host.path("key")).stdin(Stdio::null()).kill_on_drop(true);
    let said = ok(&ended(&mut clients).await?)?;
    ensure!(said == "both are content\n", "{said}");
    Ok(())
}
