//! A client that does random things with sandboxes of its own, and knows what must come of them.

mod checks;
mod moments;
mod work;

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use roost_client::{Client, ClientError, EventsFilter};
use roost_e2e::Seed;
use roost_model::{ErrorCode, Level, StartExec};
use tokio::sync::watch;

use crate::blame::{Need, away, died, explained};
use crate::kernel;
use crate::model::Modelled;
use crate::tally::Tally;

/// A daemon that has not come back by then does not.
const BACK: Duration = Duration::from_secs(90);
/// An operation that has not ended by then hangs.
const LONGEST: Duration = Duration::from_secs(120);
/// How many events of a sandbox are told.
const LATEST: usize = 12;

/// A client with its sandboxes.
#[derive(Debug)]
pub(crate) struct TortureClient {
    seed: u64,
    number: u64,
    random: Seed,
    api: Client,
    instance: String,
    gvisor: bool,
    tally: Arc<Tally>,
    sandboxes: Vec<Modelled>,
    /// Those it has deleted, whose checkpoints outlive them until room is short.
    deleted: Mutex<Vec<String>>,
    /// How many names, questions and keys it has used.
    used: u64,
    /// Sandboxes whose guest it has killed: of each, one request may meet that, and none once a guest has answered again.
    killed: Mutex<BTreeSet<String>>,
    /// What it has asked for last, in case that it is never answered.
    doing: Mutex<String>,
}

impl TortureClient {
    pub(crate) fn new(seed: u64, number: u64, api: Client, instance: String, gvisor: bool, tally: Arc<Tally>) -> Self {
        let random = Seed::new(seed.wrapping_mul(31).wrapping_add(number));
        Self {
            seed,
            number,
            random,
            api,
            instance,
            gvisor,
            tally,
            sandboxes: Vec::new(),
            deleted: Mutex::default(),
            used: 0,
            killed: Mutex::default(),
            doing: Mutex::default(),
        }
    }

    /// Does random things until it is stopped, or something is not as it must be.
    pub(crate) async fn work(&mut self, stopped: watch::Receiver<bool>) -> Result<()> {
        let mut count = 0u64;
        while !*stopped.borrow() {
            count += 1;
            let choice = self.random.below(100);
            let step = tokio::time::timeout(LONGEST, self.step(choice)).await;
            let step = step.unwrap_or_else(|_| {
                let doing = self.doing.lock().unwrap_or_else(PoisonError::into_inner);
                Err(anyhow!("nothing came of it in {LONGEST:?}: {doing}"))
            });
            if let Err(error) = step {
                let about =
                    format!("client {}, its operation {count} ({choice}), of\n{}", self.number, self.story().await);
                return Err(error.context(about));
            }
        }
        Ok(())
    }

    /// What its sandboxes have been through lately, for whoever has to find out why.
    pub(crate) async fn story(&self) -> String {
        let mut lines = Vec::new();
        for sandbox in &self.sandboxes {
            let filter = EventsFilter { sandbox: Some(sandbox.name.clone()), ..EventsFilter::default() };
            let events = self.api.list_events(&filter).await.unwrap_or_default();
            let latest = events.iter().rev().take(LATEST).rev();
            let told =
                latest.map(|event| format!("{} {:?} {}", event.at, event.kind, event.reason.as_deref().unwrap_or("")));
            let told = told.collect::<Vec<_>>().join("; ");
            let state = self.api.sandbox(&sandbox.name).await.map(|view| (view.state, view.level)).ok();
            let inside = kernel::inside(&self.instance, &sandbox.id);
            lines.push(format!("`{}` ({}): {told}; it is {state:?} with {inside}", sandbox.name, sandbox.id));
        }
        lines.join("\n")
    }

    fn killed(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.killed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deleted(&self) -> MutexGuard<'_, Vec<String>> {
        self.deleted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn does(&self, what: String) {
        *self.doing.lock().unwrap_or_else(PoisonError::into_inner) = what;
    }

    /// What does not always survive a CRIU that was killed under its save has to be looked at before anybody relies on it.
    fn note_the_shaken(&mut self) {
        for place in 0..self.sandboxes.len() {
            if self.tally.settle_shaken(&self.sandboxes[place].id) {
                self.sandboxes[place].unsure = true;
                let name = self.sandboxes[place].name.clone();
                self.killed().insert(name);
            }
        }
    }

    /// A number that was not used before.
    fn next(&mut self) -> u64 {
        self.used += 1;
        self.used
    }

    /// Something that nobody else calls so.
    fn name(&mut self, what: &str) -> String {
        let number = self.next();
        format!("{what}-{}-{number}", self.number)
    }

    /// Tries until the daemon gives an answer; nothing if it refuses for a reason that the fire explains.
    async fn attempt<T, F>(&self, what: &str, need: Need<'_>, call: impl Fn(bool) -> F) -> Result<Option<T>>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let mut again = false;
        self.does(format!("{what}, {need:?}"));
        loop {
            let error = match call(again).await {
                Ok(answer) => {
                    if let Need::Guest(name) = need {
                        self.killed().remove(name);
                    }
                    self.tally.count(what);
                    return Ok(Some(answer));
                }
                Err(error) => error,
            };
            self.does(format!("{what}, {need:?}, again after: {error}"));
            if self.met_the_dead(&error, need) {
                again = true;
            } else if away(&error) {
                self.wait_for_daemon().await.with_context(|| format!("during {what}"))?;
                again = true;
            } else {
                return self.excuse(what, need, error).await.map(|()| None);
            }
        }
    }

    /// Whether this is the one request that may meet a guest which it has killed itself, or CRIU's end has.
    fn met_the_dead(&self, error: &ClientError, need: Need<'_>) -> bool {
        let (Need::Sandbox(name) | Need::Guest(name)) = need else { return false };
        let id = self.sandboxes.iter().find(|sandbox| sandbox.name == name).map(|sandbox| sandbox.id.as_str());
        let met = died(error) && (self.killed().remove(name) || id.is_some_and(|id| self.tally.is_shaken(id)));
        if met {
            self.tally.count("refused as guest_lost");
        }
        met
    }

    /// Lets a refusal pass that the fire explains.
    async fn excuse(&self, what: &str, need: Need<'_>, error: ClientError) -> Result<()> {
        let code = error.code();
        if !explained(&error, need, self.tally.criu_died_lately()) {
            return Err(anyhow::Error::new(error).context(format!("{what} was refused as {code:?}")));
        }
        self.tally.count(format!("refused as {}", code.map_or_else(String::new, |code| code.to_string())));
        match code {
            Some(ErrorCode::LimitExceeded) => self.make_place().await,
            Some(ErrorCode::HostFull) => self.make_room().await.with_context(|| format!("after {what}"))?,
            _ => {}
        }
        // Nothing is waited for: there is just no point in asking a thousand times a second.
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok(())
    }

    /// Removes something; that an earlier try has removed it is fine.
    async fn remove<F>(&self, what: &str, gone: ErrorCode, call: impl Fn() -> F) -> Result<()>
    where
        F: Future<Output = Result<(), ClientError>>,
    {
        let removed = |again| {
            let call = call();
            async move {
                match call.await {
                    Err(error) if again && error.code() == Some(gone) => Ok(()),
                    other => other,
                }
            }
        };
        self.attempt(what, Need::Nothing, removed).await.map(drop)
    }

    /// A key that no other run, client or request uses.
    fn key(&mut self) -> String {
        let name = self.name("key");
        format!("{}-{name}", self.seed)
    }

    /// Too many are awake: lets those of its own sleep. Whether that works is looked at elsewhere.
    pub(crate) async fn make_place(&self) {
        for sandbox in &self.sandboxes {
            let _receipt = self.api.suspend_sandbox(&sandbox.name, Level::Ram).await;
        }
    }

    /// Room is short: removes what is left of those that it has deleted, as far as the daemon lives.
    async fn make_room(&self) -> Result<()> {
        while let Some(id) = { self.deleted().pop() } {
            let remove = async {
                for checkpoint in self.api.list_checkpoints(&id).await? {
                    match self.api.delete_checkpoint(&id, checkpoint.id.as_str()).await {
                        // That of a fork goes by itself.
                        Err(error) if error.code() == Some(ErrorCode::CheckpointNotFound) => {}
                        removed => removed?,
                    }
                    self.tally.count("checkpoint removed");
                }
                Ok(())
            };
            match remove.await {
                Ok(()) => {}
                Err(error) if away(&error) => {
                    self.deleted().push(id);
                    return Ok(());
                }
                Err(error) => return Err(error).context("removing what outlived its sandbox"),
            }
        }
        Ok(())
    }

    async fn wait_for_daemon(&self) -> Result<()> {
        let deadline = Instant::now() + BACK;
        while self.api.health().await.is_err() {
            ensure!(Instant::now() < deadline, "the daemon does not come back");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Runs a line of shell in one of its sandboxes; nothing if that was refused with reason.
    async fn shell(&self, what: &str, place: usize, line: &str) -> Result<Option<(i32, String, String)>> {
        let start = StartExec { shell: Some(line.to_owned()), ..StartExec::default() };
        let name = &self.sandboxes[place].name;
        let ran = self.attempt(what, Need::Guest(name), |_| self.api.run_exec(name, &start)).await?;
        Ok(ran.map(|output| (output.exit_code, output.stdout, output.stderr)))
    }
}
