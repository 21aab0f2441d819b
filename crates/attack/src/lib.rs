//! Attacks this host from sandboxes of its own, and reports what holds.
//!
//! `roost doctor --attack` and the hostile tests are made of this. For each engine a *neighbour* is made, which must go on
//! undisturbed. Each attack has an *attacker* of its own: a sandbox after a start, after a restore from disk, or a fork.
//! The attacker takes all that it gets of one thing and keeps it. Meanwhile the neighbour and the host ask for a little of the
//! same thing, and commands run in the neighbour. An attack is held if both get what they got before it.
#![forbid(unsafe_code)]

mod crowd;
mod measure;
mod report;
mod scene;
mod single;

use anyhow::{Context, Result, ensure};
use roost_client::Client;
use roost_intruder::Thing;
use roost_model::{Doctoring, EngineDoctor, EngineKind, Level};

pub use crowd::CrowdReport;
pub use report::{AttackReport, EngineAttacks, Finding, Life};
use scene::Scene;

/// The attacks to make, and the program that makes them.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The attacking program, built without a need for libraries.
    pub program: Vec<u8>,
    /// The template of the sandboxes; the daemon's default if absent.
    pub template: Option<String>,
    /// The engines; every engine that works here if empty.
    pub engines: Vec<EngineKind>,
    /// How the attackers came to life.
    pub lives: Vec<Life>,
    /// The things that attackers take.
    pub things: Vec<Thing>,
    /// All attackers at once for so many seconds, in the place of one after the other.
    pub crowd: Option<u64>,
}

impl Plan {
    /// Every attack in every life on every engine, without a crowd.
    #[must_use]
    pub fn full(program: Vec<u8>) -> Self {
        Self {
            program,
            template: None,
            engines: Vec::new(),
            lives: vec![Life::Start, Life::Restore, Life::Fork],
            things: Thing::ALL.iter().map(|(thing, _)| *thing).collect(),
            crowd: None,
        }
    }
}

/// Runs the attacks of `plan` and removes every sandbox that it made. Returns nothing if `stopped` ends first.
pub async fn attack(
    client: &Client,
    plan: &Plan,
    tell: &(dyn Fn(&str) + Sync),
    stopped: impl Future<Output = ()>,
) -> Result<Option<AttackReport>> {
    ensure!(client.is_local(), "the attacks measure this host, so the daemon must be on it: {}", client.place());
    let scene = Scene::new(client, plan, tell)?;
    let attacked = tokio::select! {
        attacked = all(&scene, plan) => Some(attacked),
        () = stopped => None,
    };
    let removed = scene.remove_all().await.context("failed to remove the sandboxes of the attacks");
    let Some(attacked) = attacked else { return removed.map(|()| None) };
    let engines = attacked?;
    removed?;
    Ok(Some(AttackReport { version: client.info().await?.version, engines }))
}

async fn all(scene: &Scene<'_>, plan: &Plan) -> Result<Vec<EngineAttacks>> {
    let report = scene.client.doctor(Doctoring::Look).await?;
    let wanted = |engine: &EngineDoctor| {
        if plan.engines.is_empty() { engine.fit } else { plan.engines.contains(&engine.engine) }
    };
    let mut attacks = Vec::new();
    for engine in report.engines.iter().filter(|engine| wanted(engine)) {
        ensure!(engine.fit, "engine {} does not work on this host; `roost doctor` says why", engine.engine);
        attacks.push(on_engine(scene, plan, engine).await?);
    }
    ensure!(!attacks.is_empty(), "no engine works on this host; `roost doctor` says why");
    Ok(attacks)
}

async fn on_engine(scene: &Scene<'_>, plan: &Plan, engine: &EngineDoctor) -> Result<EngineAttacks> {
    let field = single::Field::prepare(scene, engine).await?;
    let quiet_ms = field.quiet_ms();
    let (findings, crowd) = match plan.crowd {
        Some(seconds) => (Vec::new(), Some(crowd::attack(scene, &field, &plan.things, seconds).await?)),
        None => (one_by_one(plan, &field, engine).await?, None),
    };
    field.leave().await?;
    Ok(EngineAttacks { engine: engine.engine, quiet_ms, findings, crowd })
}

async fn one_by_one(plan: &Plan, field: &single::Field<'_>, engine: &EngineDoctor) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for life in &plan.lives {
        if *life == Life::Restore && !engine.abilities.levels.contains(&Level::Disk) {
            continue;
        }
        findings.extend(field.doors(*life).await?);
        for thing in &plan.things {
            findings.push(field.taking(*thing, *life).await?);
        }
    }
    Ok(findings)
}
