//! Measures a host as its user sees it: through the API, with the peers that are installed, turn by turn.
//!
//! `roost bench` is made of this, and `tools/bench` measures the promises of the specification with the same clockwork.
#![forbid(unsafe_code)]

pub mod figures;
pub mod peers;

mod basics;
mod bulk;
mod growth;
mod podman;
mod report;
mod scene;
mod sizes;
mod svg;

use anyhow::{Context, Result};
use roost_client::Client;

pub use basics::template_root;
pub use report::{Curve, HostReport, Line};
use scene::Scene;

/// What is measured, and how often.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The template of the sandboxes that are made.
    pub template: String,
    /// Rounds of what is measured turn by turn.
    pub rounds: usize,
    /// How often each size is measured.
    pub repeats: usize,
    /// Megabytes of memory.
    pub memory: Vec<u64>,
    /// Megabytes of files that were just written.
    pub dirty: Vec<u64>,
    /// Sandboxes that are there.
    pub sandboxes: Vec<usize>,
    /// Files in a sandbox.
    pub files: Vec<u64>,
    /// How many are made at once.
    pub burst: usize,
}

impl Plan {
    /// Everything, in ten minutes or so.
    pub fn full(template: impl Into<String>) -> Self {
        Self {
            template: template.into(),
            rounds: 40,
            repeats: 5,
            memory: vec![16, 64, 256, 512, 1024, 2048],
            dirty: vec![16, 64, 200],
            sandboxes: vec![1, 10, 100, 1000],
            files: vec![1_000, 10_000, 50_000, 200_000],
            burst: 100,
        }
    }

    /// The same with less of everything, in half a minute or so.
    pub fn quick(template: impl Into<String>) -> Self {
        Self {
            rounds: 8,
            repeats: 2,
            memory: vec![16, 64],
            dirty: vec![16, 64],
            sandboxes: vec![1, 10],
            files: vec![1_000, 5_000],
            burst: 16,
            ..Self::full(template)
        }
    }
}

/// Measures everything, telling what it is at, unless it is `stopped` before. The sandboxes made for it are gone afterwards, and
/// the pool is as it was.
pub async fn measure(
    client: &Client,
    plan: &Plan,
    tell: &(dyn Fn(&str) + Sync),
    stopped: impl Future<Output = ()>,
) -> Result<Option<HostReport>> {
    let scene = Scene::new(client, &plan.template, tell);
    let load = report::load();
    let pool = client.pool(&plan.template).await?;
    let measured = tokio::select! {
        measured = all(&scene, plan) => Some(measured),
        () = stopped => None,
    };
    let removed = scene.remove_all().await.context("failed to remove the sandboxes of the benchmark");
    let Some(measured) = measured else {
        scene.set_pool(pool.min, pool.max).await?;
        return removed.map(|()| None);
    };
    let (series, curves) = measured?;
    removed?;
    Ok(Some(HostReport::new(client.info().await?.version, plan, load, series, curves)))
}

async fn all(scene: &Scene<'_>, plan: &Plan) -> Result<(Vec<figures::Series>, Vec<Curve>)> {
    let mut series = basics::measure(scene, plan.rounds).await?;
    series.extend(sizes::forks(scene, plan.repeats).await?);
    series.extend(bulk::transfer(scene, plan.repeats).await?);
    series.extend(bulk::burst(scene, plan.burst).await?);
    let curves = vec![
        sizes::by_memory(scene, &plan.memory, plan.repeats).await?,
        sizes::by_dirty_files(scene, &plan.dirty, plan.repeats).await?,
        growth::by_files(scene, &plan.files, plan.repeats).await?,
    ];
    let (growth, density) = growth::by_sandboxes(scene, &plan.sandboxes, plan.repeats).await?;
    series.push(density);
    Ok((series, curves.into_iter().chain([growth]).collect()))
}
