//! Attackers take all that they get of each resource; the neighbour and the host must still get theirs.
//!
//! The attacks are those of `roost doctor --attack`. `ROOST_CROWD_SECONDS` makes the crowd stay longer.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, ensure};
use roost_e2e::behind_each_wall;
use roost_e2e::wall::Wall;
use serde_json::Value;

behind_each_wall!(every_attack_is_held_in_every_life, crowd_of_attackers_harms_no_neighbour);

/// Runs `roost doctor --attack` with more arguments; returns the attacks on the engine.
async fn attacks(wall: Wall, more: &[&str]) -> Result<Value> {
    let daemon = wall.daemon(false).await?;
    let engine = wall.engine.to_string();
    let mut words = vec!["doctor", "--attack", "--json", "--engine", &engine];
    words.extend(more);
    let output = daemon.roost(&words).output().await?;
    let report: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("no report: {}", String::from_utf8_lossy(&output.stderr)))?;
    ensure!(
        daemon.client().all_sandboxes(&roost_client::SandboxFilter::default()).await?.is_empty(),
        "sandboxes were left"
    );
    Ok(report["engines"][0].clone())
}

async fn every_attack_is_held_in_every_life(wall: Wall) -> Result<()> {
    let attacks = attacks(wall, &[]).await?;
    let findings = attacks["findings"].as_array().context("no findings")?;
    let open: Vec<String> = findings.iter().filter(|finding| finding["holds"] != true).map(Value::to_string).collect();
    ensure!(open.is_empty(), "not held:\n{}", open.join("\n"));
    for life in ["start", "restore", "fork"] {
        let tried = findings.iter().filter(|finding| finding["life"] == life).count();
        ensure!(tried >= 18, "only {tried} attacks in life {life}");
    }
    Ok(())
}

async fn crowd_of_attackers_harms_no_neighbour(wall: Wall) -> Result<()> {
    let time = std::env::var("ROOST_CROWD_SECONDS").unwrap_or_else(|_| "10".to_owned());
    let attacks = attacks(wall, &["--crowd", &format!("{time}s")]).await?;
    let faults = &attacks["crowd"]["faults"];
    ensure!(faults.as_array().is_some_and(Vec::is_empty), "{faults}");
    Ok(())
}
