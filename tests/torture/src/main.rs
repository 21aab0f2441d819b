//! `make torture`: `TORTURE_TIME` seconds (ten minutes if absent) of random life under fire, from `TORTURE_SEED`.
#![forbid(unsafe_code)]

use std::io::Write;
use std::time::Duration;

use anyhow::Result;
use roost_torture::{Plan, torture};

#[tokio::main]
async fn main() -> Result<()> {
    let plan = Plan::from_env(Duration::from_secs(600), None)?;
    writeln!(std::io::stdout(), "torture: seed {} for {} s", plan.seed, plan.time.as_secs())?;
    let told = torture(plan).await?;
    writeln!(std::io::stdout(), "{told}")?;
    Ok(())
}
