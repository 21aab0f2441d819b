//! A client that does random things with sandboxes of its own, and knows what must come of them.

mod checks;
mod moments;
mod work;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use roost_client::{Client, ClientError};
use roost_e2e::Seed;
use roost_model::{ErrorCode, Level, StartExec};
use tokio::sync::watch;

use crate::blame::{Need, away, died, explained};
use crate::model::Modelled;
use crate::tally::Tally;

/// A daemon that has not come back by then does not.
const BACK: Duration = Duration::from_secs(90);
/// An operation that has not ended by then hangs.
const LONGEST: Duration = Duration::from_secs(120);

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
    /// How many names, questions and keys it has used.
    used: u64,
    /// One request may meet a guest that it has killed.
    a_guest_was_killed: AtomicBool,
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
            used: 0,
            a_guest_was_killed: AtomicBool::new(false),
        }
    }

    /// Does random things until it is stopped, or something is not as it must be.
    pub(crate) async fn work(&mut self, stopped: watch::Receiver<bool>) -> Result<()> {
        let mut count = 0u64;
        while !*stopped.borrow() {
            count += 1;
            let choice = self.random.below(100);
            let step = tokio::time::timeout(LONGEST, self.step(choice)).await;
            let step = step.map_err(|_| anyhow!("nothing came of it in {LONGEST:?}")).and_then(|step| step);
            step.with_context(|| format!("client {}, its operation {count} ({choice})", self.number))?;
        }
        Ok(())
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
    async fn attempt<T, F>(&self, what: &str, need: Need, call: impl Fn(bool) -> F) -> Result<Option<T>>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let mut again = false;
        loop {
            let error = match call(again).await {
                Ok(answer) => {
                    self.tally.count(what);
                    return Ok(Some(answer));
                }
                Err(error) => error,
            };
            if self.met_the_dead(&error) {
                again = true;
            } else if away(&error) {
                self.wait_for_daemon().await.with_context(|| format!("during {what}"))?;
                again = true;
            } else {
                return self.excuse(what, need, error).await.map(|()| None);
            }
        }
    }

    /// Whether this is the one request that may meet a guest which it has killed itself.
    fn met_the_dead(&self, error: &ClientError) -> bool {
        let met = died(error) && self.a_guest_was_killed.swap(false, Ordering::Relaxed);
        if met {
            self.tally.count("refused as guest_lost");
        }
        met
    }

    /// Lets a refusal pass that the fire explains.
    async fn excuse(&self, what: &str, need: Need, error: ClientError) -> Result<()> {
        let code = error.code();
        if !explained(&error, need, self.tally.criu_died_lately()) {
            return Err(anyhow::Error::new(error).context(format!("{what} was refused as {code:?}")));
        }
        self.tally.count(format!("refused as {}", code.map_or_else(String::new, |code| code.to_string())));
        if code == Some(ErrorCode::LimitExceeded) {
            self.make_place().await;
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

    async fn wait_for_daemon(&self) -> Result<()> {
        let deadline = Instant::now() + BACK;
        while self.api.health().await.is_err() {
            ensure!(Instant::now() < deadline, "the daemon does not come back");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Runs a line of shell in one of its sandboxes; nothing if that was refused with reason.
    async fn shell(&self, what: &str, place: usize, need: Need, line: &str) -> Result<Option<(i32, String, String)>> {
        let start = StartExec { shell: Some(line.to_owned()), ..StartExec::default() };
        let name = &self.sandboxes[place].name;
        let ran = self.attempt(what, need, |_| self.api.run_exec(name, &start)).await?;
        Ok(ran.map(|output| (output.exit_code, output.stdout, output.stderr)))
    }
}
