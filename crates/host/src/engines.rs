//! Which engine a sandbox gets, and what is known of each on this host.
//!
//! The word of whoever makes a sandbox counts first, then its template's, then the daemon's. `auto` takes the strongest that
//! has proven itself here: one with a kernel of its own before one without. The proof is a sandbox that was run, once in the
//! life of a daemon and only when it is needed; the weakest needs none, because nothing would be left to fall back on.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use roost_disk::Template;
use roost_engine::Engine;
use roost_model::{
    CreateSandbox, EngineChoice, EngineFigures, EngineKind, IdleRequest, Level, NetworkPolicy, RunRequest, Span,
    StartExec, chain,
};
use roost_store::CheckpointRecord;

use crate::caller::Caller;
use crate::host::Host;
use crate::run::Run;
use crate::{HostError, blocking};

const FILE: &str = "engines.json";
/// Rounds of a measurement; the middle one counts.
const ROUNDS: usize = 5;

/// What was found out about engines by running sandboxes on them.
#[derive(Debug)]
pub(crate) struct Proofs {
    file: PathBuf,
    /// Held while one is proven, so that many who ask at once wait for one proof.
    known: tokio::sync::Mutex<HashMap<EngineKind, Result<(), String>>>,
}

impl Proofs {
    pub(crate) fn open(data_dir: &Path) -> Self {
        Self { file: data_dir.join(FILE), known: tokio::sync::Mutex::default() }
    }

    /// Remembers what a proof said.
    pub(crate) async fn note(&self, engine: EngineKind, proof: &Result<f64, HostError>) {
        let outcome = proof.as_ref().map(drop).map_err(|error| chain(error));
        self.known.lock().await.insert(engine, outcome);
    }

    /// Figures of the last measurement on this host; nothing where there was none.
    pub(crate) async fn figures(&self) -> BTreeMap<String, EngineFigures> {
        let file = self.file.clone();
        let read = blocking(move || match std::fs::read(&file) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(error) => Err(error),
        });
        read.await.unwrap_or_else(|error: io::Error| {
            tracing::warn!(%error, "could not read the figures of engines");
            BTreeMap::new()
        })
    }

    /// Keeps figures for those who ask later.
    async fn keep(&self, engine: EngineKind, figures: EngineFigures) {
        let mut all = self.figures().await;
        all.insert(engine.to_string(), figures);
        let file = self.file.clone();
        let kept = blocking(move || {
            let next = file.with_extension("json.next");
            std::fs::write(&next, serde_json::to_vec_pretty(&all)?)?;
            std::fs::rename(next, file)
        });
        if let Err(error) = kept.await {
            tracing::warn!(%error, "could not keep the figures of an engine");
        }
    }
}

impl Host {
    /// The engine of a new sandbox of a template.
    pub(crate) async fn engine_of(&self, wanted: Option<&str>, template: &Template) -> Result<EngineKind, HostError> {
        let choice = parse(wanted)?.or(template.defaults.engine);
        if template.memory {
            return belonging(choice, self.shared.templates.moment(&template.id)?.origin.engine);
        }
        self.choose(choice.unwrap_or(self.shared.config.default_engine), template.name.as_str()).await
    }

    /// The engine of a sandbox that starts from a moment of another; memory belongs to the engine that saved it.
    pub(crate) async fn engine_from(
        &self,
        wanted: Option<&str>,
        moment: &CheckpointRecord,
    ) -> Result<EngineKind, HostError> {
        let choice = parse(wanted)?;
        match choice {
            Some(choice) if !moment.memory => self.choose(choice, &moment.origin.template).await,
            choice => belonging(choice, moment.origin.engine),
        }
    }

    /// The engine that a choice means here; refused if it cannot be used.
    pub(crate) async fn choose(&self, choice: EngineChoice, template: &str) -> Result<EngineKind, HostError> {
        match choice {
            EngineChoice::Named(kind) => self.shared.usable_engine(kind).map(|engine| engine.kind()),
            EngineChoice::Auto => self.strongest(template).await,
        }
    }

    async fn strongest(&self, template: &str) -> Result<EngineKind, HostError> {
        let mut fit: Vec<&Arc<dyn Engine>> =
            self.shared.engines.iter().filter(|engine| engine.unfit().is_none()).collect();
        // Where none is stronger than another, the first is preferred.
        fit.sort_by_key(|engine| !engine.capabilities().own_kernel);
        let Some((last, stronger)) = fit.split_last() else {
            return Err(HostError::EngineUnfit("no engine is available on this host".to_owned()));
        };
        for engine in stronger {
            if self.is_proven(engine.kind(), template).await {
                return Ok(engine.kind());
            }
        }
        Ok(last.kind())
    }

    async fn is_proven(&self, engine: EngineKind, template: &str) -> bool {
        let mut known = self.shared.proofs.known.lock().await;
        if let Some(outcome) = known.get(&engine) {
            return outcome.is_ok();
        }
        // It makes a sandbox as everybody does, who may be waiting for this.
        let proof = Box::pin(self.prove(engine, template)).await;
        if let Err(error) = &proof {
            tracing::warn!(%engine, error = %chain(error), "it did not prove itself; `auto` does without");
        }
        let proven = proof.is_ok();
        known.insert(engine, proof.map(drop).map_err(|error| chain(&error)));
        proven
    }

    /// Runs a command in a fresh sandbox and returns the milliseconds to its output.
    pub(crate) async fn prove(&self, engine: EngineKind, template: &str) -> Result<f64, HostError> {
        let request = RunRequest { sandbox: trial(engine, template), exec: say_well() };
        let began = Instant::now();
        let (run, attachment) = self.start_run(request).await?;
        let output = attachment.collect().await;
        let time = ms(began);
        run.end().await;
        let output = output?;
        if output.stdout == "well\n" {
            Ok(time)
        } else {
            Err(HostError::Internal(format!("a command said {:?} and {:?}", output.stdout, output.stderr)))
        }
    }

    /// What an engine takes on this host, measured and kept.
    pub(crate) async fn measure(&self, engine: &dyn Engine, template: &str) -> Result<EngineFigures, HostError> {
        let abilities = engine.capabilities();
        let (mut create, mut ram, mut disk, mut memory) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let began = Instant::now();
            let run = self.open_run(trial(engine.kind(), template), &Caller::owner()).await?;
            let measured = async {
                run.start(say_well()).await?.collect().await?;
                create.push(ms(began));
                memory.push(run.handle().stats().await?.memory_anon);
                if abilities.freeze {
                    ram.push(wake_time(&run, Level::Ram).await?);
                }
                if abilities.save_memory {
                    disk.push(wake_time(&run, Level::Disk).await?);
                }
                Ok::<_, HostError>(())
            };
            let measured = measured.await;
            run.end().await;
            measured?;
        }
        let figures = EngineFigures {
            at: Timestamp::now(),
            create_ms: middle(create).unwrap_or_default(),
            ram_wake_ms: middle(ram),
            disk_wake_ms: middle(disk),
            memory: middle(memory).unwrap_or_default(),
        };
        self.shared.proofs.keep(engine.kind(), figures.clone()).await;
        Ok(figures)
    }

    /// A template for trials: the smallest there is.
    pub(crate) fn trial_template(&self) -> Result<&str, HostError> {
        let usual = ["mini", self.shared.config.default_template.as_str()];
        let found = usual.into_iter().find(|name| self.shared.templates.get(name).is_ok());
        found.ok_or_else(|| HostError::TemplateNotFound { name: "mini".to_owned(), known: Vec::new() })
    }
}

fn trial(engine: EngineKind, template: &str) -> CreateSandbox {
    CreateSandbox {
        template: Some(template.to_owned()),
        engine: Some(engine.to_string()),
        network: Some(NetworkPolicy { enabled: false }),
        idle: Some(IdleRequest { after: Some(Span::NEVER), ..IdleRequest::default() }),
        ..CreateSandbox::default()
    }
}

fn say_well() -> StartExec {
    StartExec { argv: vec!["echo".to_owned(), "well".to_owned()], ..StartExec::default() }
}

/// Milliseconds from a request to the guest's answer, in a sandbox that slept.
async fn wake_time(run: &Run, level: Level) -> Result<f64, HostError> {
    run.handle().suspend(level).await?;
    let began = Instant::now();
    run.handle().execs().await?;
    Ok(ms(began))
}

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}

fn middle<T: PartialOrd + Copy>(mut values: Vec<T>) -> Option<T> {
    values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    values.get(values.len() / 2).copied()
}

fn parse(wanted: Option<&str>) -> Result<Option<EngineChoice>, HostError> {
    wanted.map(|word| word.parse().map_err(HostError::EngineUnfit)).transpose()
}

/// The engine that memory belongs to, unless another is asked for.
fn belonging(choice: Option<EngineChoice>, owner: EngineKind) -> Result<EngineKind, HostError> {
    match choice {
        None | Some(EngineChoice::Auto) => Ok(owner),
        Some(EngineChoice::Named(kind)) if kind == owner => Ok(owner),
        Some(EngineChoice::Named(_)) => {
            Err(HostError::BadRequest(format!("that moment has memory, which belongs to engine `{owner}`")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_belongs_to_the_engine_that_saved_it() {
        let owner = EngineKind::Native;
        for choice in [None, Some(EngineChoice::Auto), Some(EngineChoice::Named(EngineKind::Native))] {
            assert_eq!(belonging(choice, owner).unwrap(), owner);
        }
        let refused = belonging(Some(EngineChoice::Named(EngineKind::Gvisor)), owner).unwrap_err();
        assert!(refused.to_string().contains("belongs to engine `native`"), "{refused}");
    }

    #[test]
    fn the_middle_counts() {
        assert_eq!(middle(vec![9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(middle::<u64>(Vec::new()), None);
    }
}
