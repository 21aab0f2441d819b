//! `roost down`: ends the daemon and everything that runs, keeps all data.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use roost_disk::{Pool, Templates};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::assemble::{Assembled, assemble};
use crate::config::ServeConfig;
use crate::data_folder::{DataFolder, holder};

const PATIENCE: Duration = Duration::from_secs(30);

/// Stops a running daemon, then every sandbox, and removes mounts, network and control groups.
pub(crate) async fn down(config: ServeConfig) -> anyhow::Result<()> {
    if !config.data_dir.exists() {
        return Ok(());
    }
    stop_daemon(&config.data_dir)?;
    let folder = DataFolder::take(&config)?;
    let Assembled { host, engines, network } = assemble(&config, &folder, None).await?;
    host.stop_all().await;
    host.leave().await;
    engines.close().await;
    // Each is tried: a part that cannot be taken down must not keep up the others.
    let network = roost_net::destroy(&network).context("failed to remove the network");
    let templates = Templates::unmount_all(&folder.runtime).context("failed to unmount the templates");
    let pool = Pool::unmount(&folder.path).context("failed to unmount the pool");
    folder.stopped();
    network.and(templates).and(pool)
}

/// Asks the daemon that holds the folder to stop and waits until it has.
fn stop_daemon(data_dir: &Path) -> anyhow::Result<()> {
    let Some(pid) = holder(data_dir).and_then(Pid::from_raw) else { return Ok(()) };
    let Ok(daemon) = pidfd_open(pid, PidfdFlags::empty()) else { return Ok(()) };
    // The pid may have ended and been given to another before the descriptor was opened: look once more.
    if holder(data_dir).and_then(Pid::from_raw) != Some(pid) {
        return Ok(());
    }
    pidfd_send_signal(&daemon, Signal::TERM).context("failed to stop the daemon")?;
    let timeout = Timespec::try_from(PATIENCE).context("failed to count the seconds")?;
    let ended =
        poll(&mut [PollFd::new(&daemon, PollFlags::IN)], Some(&timeout)).context("failed to wait for the daemon")?;
    if ended == 0 {
        bail!("the daemon (process {}) did not stop within {} s", pid.as_raw_nonzero(), PATIENCE.as_secs());
    }
    Ok(())
}
