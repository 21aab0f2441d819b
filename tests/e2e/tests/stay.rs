//! Sleeps that stay, by the command line and Roost's own API.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use roost_e2e::{Daemon, Witness};
use roost_model::{Level, State};

#[tokio::test]
async fn what_shall_stay_asleep_is_woken_by_its_owner_alone() -> Result<()> {
    let mut daemon = Daemon::start().await?;
    daemon.roost_ok(&["create", "box", "--ttl", "1h", "--on-ttl", "disk"]).await?;
    let sandbox = roost_e2e::Sandbox::find(daemon.client(), "box").await?;
    let witness = Witness::start(&sandbox).await?;
    daemon.roost_ok(&["set", "box", "--ttl", "1s"]).await?;
    let deadline = Instant::now() + Duration::from_secs(60);
    let asleep = loop {
        let view = daemon.client().sandbox("box").await?;
        if view.state == State::Suspended && view.stays {
            break view;
        }
        ensure!(Instant::now() < deadline, "it never slept: {view:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!((asleep.level, asleep.expires_at), (Some(Level::Disk), None));
    daemon.roost_ok(&["set", "box", "--ttl", "1h"]).await?;
    daemon.crash_and_restart().await?;
    let refused = daemon.roost(&["exec", "box", "--", "true"]).output().await?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(!refused.status.success() && said.contains("roost wake box"), "{said}");
    ensure!(daemon.roost_ok(&["info", "box"]).await?.contains("asleep until `roost wake box`"));
    daemon.roost_ok(&["wake", "box"]).await?;
    witness.goes_on(&sandbox).await?;

    daemon.roost_ok(&["suspend", "box", "--to", "ram", "--stay"]).await?;
    ensure!(!daemon.roost(&["exec", "box", "--", "true"]).output().await?.status.success());
    daemon.roost_ok(&["set", "box", "--auto-resume"]).await?;
    daemon.roost_ok(&["exec", "box", "--", "true"]).await?;
    let awake = daemon.client().sandbox("box").await?;
    ensure!(!awake.stays && awake.auto_resume && awake.expires_at.is_some(), "{awake:?}");
    witness.goes_on(&sandbox).await
}
