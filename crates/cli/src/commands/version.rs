//! `roost version`

use std::time::Duration;

use roost_client::Client;

use crate::output;

/// Nobody waits long for a version.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) async fn version(client: &Client) -> anyhow::Result<()> {
    output::line(format!("roost  {}", env!("CARGO_PKG_VERSION")))?;
    let daemon = match tokio::time::timeout(PATIENCE, client.health()).await {
        Ok(Ok(health)) => health.version,
        _ => format!("does not answer at {}", client.place()),
    };
    Ok(output::line(format!("daemon {daemon}"))?)
}
