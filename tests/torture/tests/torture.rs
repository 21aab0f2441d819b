//! A minute of what `make torture` does for as long as one likes.
#![forbid(unsafe_code)]

use std::time::Duration;

use anyhow::Result;
use roost_torture::{Plan, torture};

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_under_fire() -> Result<()> {
    // Always the same operations; the moments of the kills differ all the same.
    let plan = Plan::from_env(Duration::from_secs(60), Some(1))?;
    eprintln!("TORTURE_SEED={}", plan.seed);
    eprintln!("{}", torture(plan).await?);
    Ok(())
}
