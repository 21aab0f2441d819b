//! What `make torture` does for as long as one likes, where `TORTURE_TIME` says for how long.
#![forbid(unsafe_code)]

use std::time::Duration;

use anyhow::Result;
use roost_torture::{Plan, torture};

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_under_fire() -> Result<()> {
    // The moments of the kills are never the same: a single run proves little, and what it finds comes back in few others.
    if std::env::var_os("TORTURE_TIME").is_none() {
        eprintln!("left out: TORTURE_TIME=60 (seconds) asks for it");
        return Ok(());
    }
    let plan = Plan::from_env(Duration::from_secs(60), Some(1))?;
    eprintln!("TORTURE_SEED={}", plan.seed);
    eprintln!("{}", torture(plan).await?);
    Ok(())
}
