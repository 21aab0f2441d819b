//! Random lives of sandboxes and their checkpoints against a model: files and memory are always what the model says, and
//! everything can be deleted in any order.
#![forbid(unsafe_code)]

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use roost_e2e::{Daemon, Sandbox, Seed, no_orphans};
use roost_model::{CheckpointId, CreateCheckpoint, CreateSandbox, Fork, Level, Restore};

const STEPS: u64 = 60;
const MOST_SANDBOXES: usize = 5;
const MOST_CHECKPOINTS: usize = 12;
const PATIENCE: Duration = Duration::from_secs(30);

/// Holds a number in its memory: takes another one at `USR1`, says it at `USR2`.
const HOLDER: &str = r#"
    held=none
    trap 'held=$(cat /root/next); echo $held > /root/taken' USR1
    trap 'echo $held > /root/told' USR2
    echo $$ > /root/pid
    while :; do sleep 1000 & nap=$!; wait $nap; kill $nap; done
"#;

/// What a moment holds: the number in its file, and the one in its memory if it has processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Moment {
    file: u64,
    memory: Option<u64>,
}

/// A checkpoint, the sandbox it is of and what it holds.
#[derive(Debug)]
struct Kept {
    id: CheckpointId,
    of: String,
    moment: Moment,
}

struct Graph {
    daemon: Daemon,
    random: Seed,
    next: u64,
    sandboxes: Vec<(Sandbox, Moment)>,
    checkpoints: Vec<Kept>,
}

impl Graph {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn pick(&mut self, length: usize) -> usize {
        usize::try_from(self.random.below(length as u64)).unwrap_or(0)
    }

    /// Takes one random step and says which.
    async fn step(&mut self) -> Result<String> {
        if self.sandboxes.is_empty() {
            return self.create().await;
        }
        let (sandbox, choice) = (self.pick(self.sandboxes.len()), self.random.below(20));
        let room = self.sandboxes.len() < MOST_SANDBOXES;
        match choice {
            0 | 1 if room => self.create().await,
            2..=4 if room => self.fork(sandbox).await,
            5 | 6 if room && !self.checkpoints.is_empty() => self.create_from().await,
            7..=9 if self.checkpoints.len() < MOST_CHECKPOINTS => self.checkpoint(sandbox).await,
            10..=12 => self.restore(sandbox).await,
            13 => self.delete_sandbox(sandbox).await,
            14 | 15 if !self.checkpoints.is_empty() => self.delete_checkpoint().await,
            16 | 17 => self.suspend(sandbox).await,
            18 => {
                self.daemon.crash_and_restart().await?;
                Ok("crash".to_owned())
            }
            _ => self.change(sandbox).await,
        }
    }

    async fn create(&mut self) -> Result<String> {
        let name = format!("box-{}", self.number());
        let sandbox = self.daemon.sandbox(&name).await?;
        self.sandboxes.push((sandbox, Moment { file: 0, memory: None }));
        self.change(self.sandboxes.len() - 1).await?;
        Ok(format!("create {name}"))
    }

    /// Puts another number into its file and its memory.
    async fn change(&mut self, at: usize) -> Result<String> {
        let number = self.number();
        let (sandbox, moment) = &mut self.sandboxes[at];
        if moment.memory.is_none() {
            sandbox.sh_ok("rm -f /root/pid").await?;
            sandbox.spawn(HOLDER).await?;
        }
        let line = format!(
            "until [ -s /root/pid ]; do sleep 0.01; done; rm -f /root/taken; echo {number} > /root/next
            kill -USR1 $(cat /root/pid) && until [ -s /root/taken ]; do sleep 0.01; done; echo {number} > /root/file"
        );
        tokio::time::timeout(PATIENCE, sandbox.sh_ok(&line)).await.context("its memory does not change")??;
        *moment = Moment { file: number, memory: Some(number) };
        Ok(format!("change {} to {number}", sandbox.name()))
    }

    async fn checkpoint(&mut self, at: usize) -> Result<String> {
        let files_only = self.random.below(4) == 0;
        let (sandbox, moment) = &self.sandboxes[at];
        let wanted = CreateCheckpoint { files_only, comment: None };
        let made = self.daemon.client().create_checkpoint(sandbox.name(), &wanted).await?.checkpoint;
        let memory = moment.memory.filter(|_| made.memory);
        ensure!(!files_only || !made.memory, "{made:?} holds memory");
        ensure!(files_only || memory == moment.memory, "{made:?} lost memory");
        let done = format!("checkpoint {} as {}", sandbox.name(), made.id);
        self.checkpoints.push(Kept {
            id: made.id,
            of: sandbox.id().to_owned(),
            moment: Moment { file: moment.file, memory },
        });
        Ok(done)
    }

    async fn restore(&mut self, at: usize) -> Result<String> {
        let id = self.sandboxes[at].0.id().to_owned();
        let own: Vec<usize> = (0..self.checkpoints.len()).filter(|index| self.checkpoints[*index].of == id).collect();
        if own.is_empty() {
            return self.checkpoint(at).await;
        }
        let target = own[self.pick(own.len())];
        let (sandbox, moment) = &mut self.sandboxes[at];
        let wanted = Restore { checkpoint: self.checkpoints[target].id.clone() };
        let receipt = self.daemon.client().restore_sandbox(sandbox.name(), &wanted).await?;
        let automatic = receipt.checkpoint.context("nothing was kept of what it replaced")?;
        let replaced = std::mem::replace(moment, self.checkpoints[target].moment);
        let done = format!("restore {} to {}, kept as {automatic}", sandbox.name(), wanted.checkpoint);
        self.checkpoints.push(Kept { id: automatic, of: id, moment: replaced });
        Ok(done)
    }

    async fn fork(&mut self, at: usize) -> Result<String> {
        let names: Vec<String> =
            (0..=self.pick(MOST_SANDBOXES - self.sandboxes.len())).map(|_| format!("fork-{}", self.number())).collect();
        let (parent, moment) = self.sandboxes[at].clone();
        let wanted = Fork { names: Some(names.clone()), ..Fork::default() };
        for born in self.daemon.client().fork_sandbox(parent.name(), &wanted).await? {
            ensure!(born.error.is_none(), "{:?}", born.error);
        }
        for name in &names {
            self.sandboxes.push((Sandbox::find(self.daemon.client(), name).await?, moment));
        }
        Ok(format!("fork {} into {names:?}", parent.name()))
    }

    async fn create_from(&mut self) -> Result<String> {
        let (name, from) = (format!("from-{}", self.number()), self.pick(self.checkpoints.len()));
        let (checkpoint, moment) = (self.checkpoints[from].id.clone(), self.checkpoints[from].moment);
        let done = format!("create {name} from {checkpoint}");
        let request = CreateSandbox { name: Some(name), from_checkpoint: Some(checkpoint), ..CreateSandbox::default() };
        self.sandboxes.push((self.daemon.sandbox_with(request).await?, moment));
        Ok(done)
    }

    async fn suspend(&mut self, at: usize) -> Result<String> {
        let level = [Level::Ram, Level::Disk, Level::Disk, Level::Files][self.pick(4)];
        let (sandbox, moment) = &mut self.sandboxes[at];
        self.daemon.client().suspend_sandbox(sandbox.name(), level).await?;
        if level == Level::Files {
            moment.memory = None;
        }
        Ok(format!("suspend {} to {level}", sandbox.name()))
    }

    async fn delete_sandbox(&mut self, at: usize) -> Result<String> {
        let (sandbox, _) = self.sandboxes.swap_remove(at);
        sandbox.delete().await?;
        Ok(format!("delete {}", sandbox.name()))
    }

    async fn delete_checkpoint(&mut self) -> Result<String> {
        let at = self.pick(self.checkpoints.len());
        let Kept { id, of, .. } = self.checkpoints.swap_remove(at);
        self.daemon.client().delete_checkpoint(&of, id.as_str()).await?;
        Ok(format!("delete {id}"))
    }

    /// Compares a sandbox with the model; one that sleeps wakes for it.
    async fn check(&self, at: usize) -> Result<()> {
        let (sandbox, moment) = &self.sandboxes[at];
        let file = sandbox.sh_ok("cat /root/file").await?;
        ensure!(file == moment.file.to_string(), "the file of {} holds {file}, not {moment:?}", sandbox.name());
        let Some(memory) = moment.memory else { return Ok(()) };
        let ask = "rm -f /root/told; kill -USR2 $(cat /root/pid) && until [ -s /root/told ]; do sleep 0.01; done; cat /root/told";
        let told = tokio::time::timeout(PATIENCE, sandbox.sh_ok(ask)).await;
        let told = told.with_context(|| format!("the memory of {} is silent", sandbox.name()))??;
        ensure!(told == memory.to_string(), "the memory of {} holds {told}, not {moment:?}", sandbox.name());
        Ok(())
    }

    async fn check_all(&self) -> Result<()> {
        for at in 0..self.sandboxes.len() {
            self.check(at).await?;
        }
        no_orphans(&self.daemon).await
    }

    /// Deletes everything in a random order; what is left stays what it is.
    async fn delete_everything(&mut self) -> Result<()> {
        while !self.sandboxes.is_empty() || !self.checkpoints.is_empty() {
            if self.sandboxes.is_empty() || (!self.checkpoints.is_empty() && self.random.below(2) == 0) {
                self.delete_checkpoint().await?;
            } else {
                let at = self.pick(self.sandboxes.len());
                self.delete_sandbox(at).await?;
            }
            self.check_all().await?;
        }
        Ok(())
    }
}

#[tokio::test]
async fn moments_are_what_the_model_says() -> Result<()> {
    let seed = std::env::var("ROOST_E2E_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    let daemon = Daemon::start().await?;
    let mut graph = Graph { daemon, random: Seed::new(seed), next: 0, sandboxes: Vec::new(), checkpoints: Vec::new() };
    let mut done = Vec::new();
    for step in 0..STEPS {
        let taken = graph.step().await.with_context(|| format!("seed {seed}, after {done:#?}"))?;
        done.push(taken);
        let check = async {
            if step % 10 == 9 {
                return graph.check_all().await;
            }
            // Not all of them: a check wakes what sleeps, and sleepers shall be forked and restored too.
            match graph.sandboxes.len() {
                0 => Ok(()),
                length => graph.check(usize::try_from(step).unwrap_or(0) % length).await,
            }
        };
        check.await.with_context(|| format!("seed {seed}, after {done:#?}"))?;
    }
    graph.delete_everything().await.with_context(|| format!("seed {seed}, after {done:#?}"))
}
