//! One attack at a time.

use anyhow::Result;
use roost_intruder::Thing;
use roost_model::{EngineDoctor, EngineKind};

use crate::measure::{kernel_memory, latency_ms};
use crate::report::{Finding, Life, Seen};
use crate::scene::{ATTACKERS_MEMORY, Scene};

/// Memory that the kernel may take meanwhile for the other programs of the host.
const OTHERS_MEMORY: u64 = 256 << 20;

/// What the attacks on one engine have in common.
#[derive(Debug)]
pub(crate) struct Field<'a> {
    scene: &'a Scene<'a>,
    pub(crate) engine: EngineKind,
    own_kernel: bool,
    limits_end_all: bool,
    pub(crate) neighbour: String,
    /// Attackers that are forks are made of it.
    parent: String,
    quiet_ms: f64,
}

impl<'a> Field<'a> {
    pub(crate) async fn prepare(scene: &'a Scene<'a>, engine: &EngineDoctor) -> Result<Self> {
        scene.tell(&format!("{}: preparing", engine.engine));
        let neighbour = scene.create(engine.engine, ATTACKERS_MEMORY).await?;
        let parent = scene.create(engine.engine, ATTACKERS_MEMORY).await?;
        // The first command pays for what the kernel has not read yet.
        latency_ms(scene, &neighbour).await?;
        let quiet_ms = latency_ms(scene, &neighbour).await?;
        let abilities = &engine.abilities;
        Ok(Self {
            scene,
            engine: engine.engine,
            own_kernel: abilities.own_kernel,
            limits_end_all: abilities.limits_end_all,
            neighbour,
            parent,
            quiet_ms,
        })
    }

    pub(crate) fn quiet_ms(&self) -> f64 {
        self.quiet_ms
    }

    pub(crate) async fn attacker(&self, life: Life) -> Result<String> {
        self.scene.attacker(self.engine, life, &self.parent).await
    }

    pub(crate) async fn leave(self) -> Result<()> {
        self.scene.remove(&self.neighbour).await?;
        self.scene.remove(&self.parent).await
    }

    /// Tries every door. On a kernel of the sandbox's own an open door leads into that kernel alone, so none is tried.
    pub(crate) async fn doors(&self, life: Life) -> Result<Vec<Finding>> {
        if self.own_kernel {
            return Ok(Vec::new());
        }
        self.scene.tell(&format!("{} {life}: doors", self.engine));
        let attacker = self.attacker(life).await?;
        let tried = self.scene.run(&attacker, &["doors"]).await?;
        let findings = tried.stdout.lines().filter_map(|line| {
            let mut words = line.splitn(3, '\t');
            let (state, name, reason) = (words.next()?, words.next()?, words.next()?);
            let holds = state == "shut";
            Some(Finding { attack: format!("door: {name}"), life, holds, slow: false, detail: reason.to_owned() })
        });
        let findings: Vec<Finding> = findings.collect();
        let holds = tried.exit_code == 0 && !findings.is_empty();
        let detail = if holds { format!("{} tried", findings.len()) } else { format!("{tried:?}") };
        let whole = Finding { attack: "doors".to_owned(), life, holds, slow: false, detail };
        self.scene.remove(&attacker).await?;
        // Shut doors are one line; each open one has its own.
        Ok(findings.into_iter().filter(|finding| !finding.holds).chain([whole]).collect())
    }

    /// An attacker takes one thing; neighbour and host must still get theirs.
    pub(crate) async fn taking(&self, thing: Thing, life: Life) -> Result<Finding> {
        self.scene.tell(&format!("{} {life}: {}", self.engine, thing.name()));
        let attacker = self.attacker(life).await?;
        let before = self.needs(thing).await;
        let memory = kernel_memory()?;
        let (count, until) = self.scene.take(&attacker, thing).await?;
        let during = self.needs(thing).await;
        let latency = latency_ms(self.scene, &self.neighbour).await;
        let lost = kernel_memory()?.saturating_sub(memory);
        self.scene.remove(&attacker).await?;
        let mut faults = Vec::new();
        for (whose, before, during) in [("the neighbour", before.0, during.0), ("the host", before.1, during.1)] {
            if let (Ok(()), Err(reason)) = (before, during) {
                faults.push(format!("{whose} no longer gets any: {reason}"));
            }
        }
        if !self.own_kernel && thing.must_be_refused() && count > 0 {
            faults.push("no control group pays for it".to_owned());
        }
        if lost > ATTACKERS_MEMORY + OTHERS_MEMORY {
            faults.push(format!("the kernel took {} MiB of the host's memory", lost >> 20));
        }
        let ended = (self.limits_end_all && thing.may_end_the_sandbox()) || thing.may_be_ended_for();
        Ok(Finding::of(
            thing,
            life,
            Seen {
                count,
                until,
                faults,
                latency: latency.map_err(|error| format!("{error:#}")),
                quiet_ms: self.quiet_ms,
                ended,
            },
        ))
    }

    async fn needs(&self, thing: Thing) -> (Result<(), String>, Result<(), String>) {
        tokio::join!(self.scene.need_of(&self.neighbour, thing), self.scene.need_of_host(thing))
    }
}
