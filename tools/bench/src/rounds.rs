//! The measuring itself: every operation once per round, so that a busy moment of the machine hits all alike.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use roost_client::Client;
pub(crate) use roost_measure::template_root;
use roost_model::{CreateSandbox, StartExec};
use tokio::task::JoinSet;

use crate::figures::{Figures, Series};
use crate::memory::Rounds;
use crate::peers::{self, Runc};

pub(crate) const CREATE: &str = "roost: create and first output";
pub(crate) const BURST: &str = "roost: create and first output, 16 at once";
pub(crate) const EXEC: &str = "roost: exec round trip";
pub(crate) const DELETE: &str = "roost: delete";
pub(crate) const RUNC_RUN: &str = "runc run /bin/true";
pub(crate) const RUNC_EXEC: &str = "runc exec /bin/true";
pub(crate) const BUBBLEWRAP: &str = "bwrap /bin/true";

const AT_ONCE: u32 = 16;

/// Measures everything; the sandboxes made for it are gone afterwards.
pub(crate) async fn measure(client: &Client, template: &str, rounds: Rounds) -> Result<Figures> {
    let lasting = format!("bench-{}", std::process::id());
    create(client, template, &lasting).await?;
    let measured = measure_beside(client, template, &lasting, rounds).await;
    client.delete_sandbox(&lasting).await.context("failed to remove the benchmark's own sandbox")?;
    measured
}

async fn measure_beside(
    client: &Client,
    template: &str,
    lasting: &str,
    Rounds { warmup, count }: Rounds,
) -> Result<Figures> {
    let root = template_root(client, template).await?;
    let mut runc = Runc::new(&root)?;
    let bubblewrap = peers::installed("bwrap");
    let mut series = [CREATE, RUNC_RUN, EXEC, RUNC_EXEC, DELETE, BURST, BUBBLEWRAP].map(Series::new);
    for round in 0..warmup + count {
        let name = format!("{lasting}-{round}");
        let began = Instant::now();
        create(client, template, &name).await?;
        echo(client, &name).await?;
        let created = began.elapsed();
        let ran = runc.run()?;
        let began = Instant::now();
        echo(client, lasting).await?;
        let executed = began.elapsed();
        let runc_executed = runc.exec()?;
        let began = Instant::now();
        client.delete_sandbox(&name).await?;
        let deleted = began.elapsed();
        let together = burst(client, template, &name).await?;
        let wrapped = if bubblewrap { Some(peers::bubblewrap(&root)?) } else { None };
        if round < warmup {
            continue;
        }
        let durations =
            [Some(created), Some(ran), Some(executed), Some(runc_executed), Some(deleted), Some(together), wrapped];
        for (series, duration) in series.iter_mut().zip(durations) {
            duration.into_iter().for_each(|duration| series.add(duration));
        }
    }
    Ok(Figures { series: series.into(), parts: Vec::new() })
}

pub(crate) async fn create(client: &Client, template: &str, name: &str) -> Result<()> {
    let request =
        CreateSandbox { name: Some(name.to_owned()), template: Some(template.to_owned()), ..CreateSandbox::default() };
    client.create_sandbox(&request).await.context("failed to create a sandbox")?;
    Ok(())
}

/// Runs a command and looks at what it printed: the clock stops at output, not at a promise of it.
pub(crate) async fn echo(client: &Client, name: &str) -> Result<()> {
    let argv = ["/bin/echo", "here"].map(str::to_owned).into();
    let output = client.run_exec(name, &StartExec { argv, ..StartExec::default() }).await?;
    ensure!(output.stdout == "here\n", "the sandbox printed {:?}", output.stdout);
    Ok(())
}

/// Makes several at once, more than anything kept ready can serve; returns the time for each.
async fn burst(client: &Client, template: &str, name: &str) -> Result<Duration> {
    let names: Vec<String> = (0..AT_ONCE).map(|number| format!("{name}-{number}")).collect();
    let began = Instant::now();
    let mut births = JoinSet::new();
    for name in &names {
        let (client, template, name) = (client.clone(), template.to_owned(), name.clone());
        births.spawn(async move {
            create(&client, &template, &name).await?;
            echo(&client, &name).await
        });
    }
    while let Some(born) = births.join_next().await {
        born??;
    }
    let took = began.elapsed() / AT_ONCE;
    for name in &names {
        client.delete_sandbox(name).await?;
    }
    Ok(took)
}
