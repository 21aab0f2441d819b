//! Moments that are kept, gone back to and forked.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use roost_model::{CreateCheckpoint, ErrorCode, Fork, Restore, State};

use super::TortureClient;
use crate::blame::{Need, away};
use crate::model::{Inside, Modelled};

const MOST_KEPT: usize = 3;
const MOST: usize = 5;
/// A child that was not born by then will not be.
const BORN: Duration = Duration::from_secs(60);

impl TortureClient {
    pub(super) async fn keep(&mut self, place: usize) -> Result<()> {
        if self.sandboxes[place].unsure && !self.memory_is_right(place).await? {
            return Ok(());
        }
        if self.sandboxes[place].kept.len() >= MOST_KEPT {
            return self.drop_kept(place).await;
        }
        let wanted = CreateCheckpoint { comment: None, files_only: self.random.below(3) == 0 };
        let name = &self.sandboxes[place].name;
        let made =
            self.attempt("checkpoint", Need::Sandbox(name), |_| self.api.create_checkpoint(name, &wanted)).await?;
        if let Some(made) = made {
            let inside = self.sandboxes[place].inside.clone();
            let memory = inside.memory.filter(|_| made.checkpoint.memory);
            self.sandboxes[place].kept.push((made.checkpoint.id, Inside { memory, ..inside }));
        }
        Ok(())
    }

    async fn drop_kept(&mut self, place: usize) -> Result<()> {
        let sandbox = &mut self.sandboxes[place];
        let (id, _) = sandbox.kept.remove(0);
        let name = sandbox.name.clone();
        let gone = ErrorCode::CheckpointNotFound;
        self.remove("checkpoint removed", gone, || self.api.delete_checkpoint(&name, id.as_str())).await
    }

    pub(super) async fn go_back(&mut self, place: usize) -> Result<()> {
        if self.sandboxes[place].unsure && !self.memory_is_right(place).await? {
            return Ok(());
        }
        let count = self.sandboxes[place].kept.len() as u64;
        if count == 0 {
            return Ok(());
        }
        let which = usize::try_from(self.random.below(count))?;
        self.restore(place, which).await.map(drop)
    }

    /// Goes back to a kept moment; false if that was refused with reason.
    pub(super) async fn restore(&mut self, place: usize, which: usize) -> Result<bool> {
        let (checkpoint, inside) = self.sandboxes[place].kept[which].clone();
        let (name, wanted) = (self.sandboxes[place].name.clone(), Restore { checkpoint });
        let before = self.look(&name).await?.generation;
        let restored =
            self.attempt("restore", Need::Sandbox(&name), |_| self.api.restore_sandbox(&name, &wanted)).await?;
        if restored.is_some() {
            self.sandboxes[place].inside = inside;
            return Ok(true);
        }
        // Refused before anything was changed; or its files are the moment's and its memory could not be had.
        if self.look(&name).await?.generation != before {
            self.sandboxes[place].inside = Inside { memory: None, ..inside };
        }
        Ok(false)
    }

    async fn look(&self, name: &str) -> Result<roost_model::SandboxView> {
        self.attempt("look", Need::Nothing, |_| self.api.sandbox(name)).await?.context("no view")
    }

    pub(super) async fn fork(&mut self, place: usize) -> Result<()> {
        if self.sandboxes.len() >= MOST || (self.sandboxes[place].unsure && !self.memory_is_right(place).await?) {
            return Ok(());
        }
        let names = vec![self.name("child"), self.name("child")];
        let parent = self.sandboxes[place].clone();
        let wanted = Fork { names: Some(names.clone()), ..Fork::default() };
        let must = match self.api.fork_sandbox(&parent.name, &wanted).await {
            Ok(results) => {
                self.tally.count("fork");
                results.iter().map(|result| result.error.is_none()).collect()
            }
            Err(error) if away(&error) => {
                self.wait_for_daemon().await?;
                vec![false; names.len()]
            }
            Err(error) if self.met_the_dead(&error, Need::Sandbox(&parent.name)) => return Ok(()),
            Err(error) => return self.excuse("fork", Need::Sandbox(&parent.name), error).await,
        };
        for (name, must) in names.into_iter().zip(must) {
            if let Some(id) = self.born(&name).await? {
                let child = Modelled { name, id, kept: Vec::new(), held: false, ..parent.clone() };
                self.sandboxes.push(child);
            } else {
                ensure!(!must, "`{name}` was born and is not there");
            }
        }
        Ok(())
    }

    /// Whether a child has come to life, once that is decided.
    async fn born(&self, name: &str) -> Result<Option<String>> {
        let deadline = Instant::now() + BORN;
        loop {
            match self.api.sandbox(name).await {
                Ok(view) if view.state == State::Creating => {
                    ensure!(Instant::now() < deadline, "`{name}` is still being made");
                }
                Ok(view) if view.state == State::Terminated => return Ok(None),
                Ok(view) => return Ok(Some(view.id.to_string())),
                Err(error) if away(&error) => self.wait_for_daemon().await?,
                Err(error) => match error.code() {
                    Some(ErrorCode::SandboxNotFound | ErrorCode::SandboxTerminated) => return Ok(None),
                    _ => return Err(error).context("looking for a child"),
                },
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
