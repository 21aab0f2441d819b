//! What it does: everything a user can.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail, ensure};
use roost_client::{Upload, WriteOptions};
use roost_model::{
    CreateBatch, CreateSandbox, ErrorCode, IdleRequest, Level, PatchSandbox, PutHold, Span, StartExec, State, Task,
    TaskCommand,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::TortureClient;
use crate::blame::{Need, away};
use crate::fire::kill;
use crate::inside::{FILL, START};
use crate::model::{Content, Inside, Modelled};

/// So many of its own a client has at most.
const MOST: u64 = 4;
const LEVELS: [Level; 3] = [Level::Ram, Level::Disk, Level::Files];

impl TortureClient {
    /// One operation, chosen by a number below a hundred.
    pub(super) async fn step(&mut self, choice: u64) -> Result<()> {
        if self.sandboxes.is_empty() {
            return self.create().await;
        }
        let place = usize::try_from(self.random.below(self.sandboxes.len() as u64))?;
        self.note_the_shaken();
        match choice {
            0..5 => self.create().await,
            5..20 => self.write(place).await,
            20..27 => self.read(place).await,
            27..34 => self.echo(place).await,
            34..44 => self.remember(place).await,
            44..62 => self.suspend(place, LEVELS[usize::try_from((choice - 44) / 7)?]).await,
            62..66 => self.wake(place).await,
            66..72 => self.keep(place).await,
            72..77 => self.go_back(place).await,
            77..81 => self.fork(place).await,
            81..86 => self.change_policy(place).await,
            86..89 => self.hold(place).await,
            89..92 => self.visit(place).await,
            92..94 => self.batch().await,
            94..96 => self.kill_inside(place).await,
            96 => self.fill(place).await,
            _ => self.delete(place).await,
        }
    }

    async fn create(&mut self) -> Result<()> {
        if self.sandboxes.len() as u64 >= MOST {
            return Ok(());
        }
        let (name, key) = (self.name("box"), self.key());
        let gvisor = self.gvisor && self.random.below(5) == 0;
        let engine = if gvisor { "gvisor" } else { "native" };
        let wanted =
            CreateSandbox { name: Some(name.clone()), engine: Some(engine.to_owned()), ..CreateSandbox::default() };
        let create = async |again| match self.api.create_sandbox_once(&wanted, &key).await {
            // The next daemon went on with it, and could not.
            Err(error) if again && error.code() == Some(ErrorCode::SandboxTerminated) => Ok(None),
            made => made.map(Some),
        };
        let Some(view) = self.attempt("create", Need::Room, create).await?.flatten() else { return Ok(()) };
        let inside = Inside::default();
        let id = view.id.to_string();
        self.sandboxes.push(Modelled { name, id, gvisor, inside, kept: Vec::new(), held: false, unsure: false });
        self.remember(self.sandboxes.len() - 1).await
    }

    async fn write(&mut self, place: usize) -> Result<()> {
        let path = format!("/root/file-{}", self.random.below(6));
        let content = Content { number: self.next() ^ self.seed, length: usize::try_from(self.random.below(300_000))? };
        let name = &self.sandboxes[place].name;
        let options = WriteOptions::default();
        let cut_off = AtomicBool::new(false);
        let write = |again| {
            cut_off.fetch_or(again, Ordering::Relaxed);
            self.api.write_file(name, &path, Upload::bytes(content.bytes()), &options)
        };
        let written = self.attempt("write", Need::Guest(name), write).await?.is_some();
        let files = &mut self.sandboxes[place].inside.files;
        if written {
            files.insert(path, vec![content]);
        } else if cut_off.into_inner()
            && let Some(file) = files.get_mut(&path)
        {
            file.push(content);
        }
        Ok(())
    }

    async fn echo(&mut self, place: usize) -> Result<()> {
        let (number, code) = (self.next(), i32::try_from(self.random.below(100))?);
        let line = format!("echo out {number}; echo err {number} >&2; exit {code}");
        let Some(said) = self.shell("exec", place, &line).await? else { return Ok(()) };
        ensure!(said == (code, format!("out {number}\n"), format!("err {number}\n")), "`{line}` gave {said:?}");
        Ok(())
    }

    /// Sees that it remembers what it must; gives it something to remember if it has nothing.
    async fn remember(&mut self, place: usize) -> Result<()> {
        if !self.memory_is_right(place).await? || self.sandboxes[place].inside.memory.is_some() {
            return Ok(());
        }
        let key = self.key();
        let start = StartExec { shell: Some(START.to_owned()), ..StartExec::default() };
        let name = &self.sandboxes[place].name;
        if self.attempt("start", Need::Guest(name), |_| self.api.start_exec_once(name, &start, &key)).await?.is_some() {
            self.sandboxes[place].inside.memory = self.ask_memory(place).await?;
        }
        Ok(())
    }

    async fn suspend(&mut self, place: usize, to: Level) -> Result<()> {
        let name = self.sandboxes[place].name.clone();
        let suspend = |_| self.api.suspend_sandbox(&name, to);
        let slept = self.attempt(&format!("suspend to {to}"), Need::Sandbox(&name), suspend).await?;
        if to == Level::Files {
            // Refused or not, nobody relies on it any more; whether it is gone is asked when it matters.
            self.sandboxes[place].unsure |= slept.is_none();
            if slept.is_some() {
                self.sandboxes[place].inside.memory = None;
            }
        }
        if slept.is_some() {
            let view = self.attempt("look", Need::Nothing, |_| self.api.sandbox(&name)).await?.context("no view")?;
            let asleep = view.state == State::Suspended && view.level >= Some(to);
            // Its own policy may be taking it deeper.
            ensure!(
                asleep || view.state == State::Suspending,
                "after {to} `{name}` is {:?} {:?}",
                view.state,
                view.level
            );
        }
        Ok(())
    }

    async fn wake(&mut self, place: usize) -> Result<()> {
        let name = &self.sandboxes[place].name;
        self.attempt("wake", Need::Sandbox(name), |_| self.api.wake_sandbox(name)).await.map(drop)
    }

    async fn change_policy(&mut self, place: usize) -> Result<()> {
        let spans = [Span::seconds(1), Span::seconds(4), Span::NEVER];
        let mut span = || Some(spans[usize::try_from(self.random.below(3)).unwrap_or(0)]);
        let (after, deepen_after) = (span(), span());
        let to = Some(LEVELS[usize::try_from(self.random.below(2))?]);
        let idle = Some(IdleRequest { after, to, deepen_after, ..IdleRequest::default() });
        let patch = PatchSandbox { idle, ..PatchSandbox::default() };
        let name = &self.sandboxes[place].name;
        self.attempt("policy", Need::Nothing, |_| self.api.patch_sandbox(name, &patch)).await.map(drop)
    }

    async fn hold(&mut self, place: usize) -> Result<()> {
        let name = self.sandboxes[place].name.clone();
        if self.sandboxes[place].held {
            self.remove("release", ErrorCode::HoldNotFound, || self.api.release_hold(&name, "grip")).await?;
        } else {
            let wanted = PutHold { length: Span::seconds(3600), reason: None };
            self.attempt("hold", Need::Nothing, |_| self.api.put_hold(&name, Some("grip"), &wanted)).await?;
        }
        let held = !self.sandboxes[place].held;
        self.sandboxes[place].held = held;
        let holds = self.attempt("holds", Need::Nothing, |_| self.api.list_holds(&name)).await?.context("no holds")?;
        ensure!(holds.is_empty() != held, "`{name}` has {holds:?}, and held is {held}");
        Ok(())
    }

    /// Asks its web server something, through a port.
    async fn visit(&mut self, place: usize) -> Result<()> {
        if self.sandboxes[place].inside.memory.is_none() || !self.memory_is_right(place).await? {
            return Ok(());
        }
        if self.sandboxes[place].inside.memory.is_none() {
            return Ok(());
        }
        let name = self.sandboxes[place].name.clone();
        for _ in 0..20 {
            let tunnel = self.attempt("visit", Need::Sandbox(&name), |_| self.api.connect_port(&name, 8080)).await?;
            let Some(mut tunnel) = tunnel else { return Ok(()) };
            let mut answer = Vec::new();
            let asked = tunnel.write_all(b"GET / HTTP/1.0\r\n\r\n").await;
            let read = tunnel.read_to_end(&mut answer).await;
            let text = String::from_utf8_lossy(&answer);
            if asked.is_ok() && read.is_ok() && text.ends_with("served\n") {
                return Ok(());
            }
            // A tunnel ends with the daemon that it goes through; that one is away now, or was.
            ensure!(answer.is_empty(), "`{name}` answers {text}");
            self.wait_for_daemon().await?;
        }
        bail!("the server in `{name}` does not answer")
    }

    async fn batch(&mut self) -> Result<()> {
        let key = self.key();
        let task = |number: u32| Task {
            id: Some(number.to_string()),
            command: TaskCommand::Shell(format!("echo {}", number * 7)),
            env: Default::default(),
            stdin: None,
            files: Vec::new(),
            timeout: None,
        };
        let wanted = CreateBatch { tasks: (1..4).map(task).collect(), parallel: Some(2), ..CreateBatch::default() };
        let made = self.attempt("batch", Need::Room, |_| self.api.create_batch(&wanted, Some(&key))).await?;
        let Some(batch) = made else { return Ok(()) };
        let id = batch.id.to_string();
        let results = loop {
            let mut results = Vec::new();
            let read = async {
                let mut stream = self.api.batch_results(&id, 0, true).await?;
                while let Some(result) = stream.next().await? {
                    results.push(result);
                }
                Ok(())
            };
            match read.await {
                Ok(()) if results.len() == 3 => break results,
                Ok(()) => {}
                Err(error) if away(&error) => {}
                Err(error) => return Err(error).context("results of a batch"),
            }
            self.wait_for_daemon().await?;
        };
        for result in results {
            let refused = result.error.as_ref().map(|error| error.code);
            if matches!(refused, Some(ErrorCode::LimitExceeded | ErrorCode::HostFull)) {
                continue;
            }
            let expected = format!("{}\n", result.id.parse::<u32>()? * 7);
            ensure!(result.exit_code == Some(0) && result.stdout == expected, "{result:?}");
        }
        self.remove("batch removed", ErrorCode::BatchNotFound, || self.api.delete_batch(&id)).await
    }

    /// Kills its first process from the host: its guest, or gVisor's kernel.
    async fn kill_inside(&mut self, place: usize) -> Result<()> {
        let sandbox = &mut self.sandboxes[place];
        if let Some(pid) = first_process(&self.instance, &sandbox.id, sandbox.gvisor) {
            kill(pid);
            self.tally.count(if sandbox.gvisor { "runsc killed" } else { "guest killed" });
            // It may have been on its way to its image.
            sandbox.unsure = true;
            let name = sandbox.name.clone();
            self.killed().insert(name);
        }
        Ok(())
    }

    async fn fill(&mut self, place: usize) -> Result<()> {
        let said = self.shell("fill", place, FILL).await?;
        ensure!(said.is_none_or(|(_, out, _)| out.ends_with("emptied\n")), "the disk was not filled");
        Ok(())
    }

    pub(super) async fn delete(&mut self, place: usize) -> Result<()> {
        let name = self.sandboxes[place].name.clone();
        self.remove("delete", ErrorCode::SandboxTerminated, || self.api.delete_sandbox(&name)).await?;
        let gone = self.sandboxes.swap_remove(place);
        self.deleted().push(gone.id);
        Ok(())
    }
}

/// The process that a sandbox hangs on.
fn first_process(instance: &str, id: &str, gvisor: bool) -> Option<u32> {
    let group = if gvisor { format!("/roost-{instance}-gvisor/{id}") } else { format!("/roost-{instance}/{id}") };
    let is_it = |pid: &u32| {
        let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        if !read("cgroup").contains(&group) {
            return false;
        }
        let status = read("status");
        let inner = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
        if gvisor { read("cmdline").contains("\0boot\0") } else { inner.split_whitespace().nth(1) == Some("1") }
    };
    let pids =
        fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().to_string_lossy().parse().ok());
    pids.into_iter().find(is_it)
}
