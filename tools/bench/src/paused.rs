//! A container of runc with the workload in it, paused and resumed by runc's command-line tool.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::peers::{Bundles, output_of, timed};
use crate::workload::{SERVER, ask_for_each, ask_once};

/// The container, with pipes straight to the process inside that asks: nothing of runc stands between.
#[derive(Debug)]
pub(crate) struct Paused {
    container: String,
    expected: String,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
    _bundles: Bundles,
}

impl Paused {
    /// Starts it and waits until its server answers.
    pub(crate) fn start(root: &Path, mebibytes: u32) -> Result<Self> {
        let bundles = Bundles::new()?;
        let script = format!("python3 -c \"$1\" {mebibytes} 3<&- & {}", ask_for_each());
        let bundle = bundles.make("memory", root, &["/bin/bash", "-c", &script, "bash", SERVER])?;
        let container = format!("roost-bench-memory-{}", std::process::id());
        let mut start = Command::new("runc");
        start.args(["run", "--detach", "--bundle"]).arg(bundle).arg(&container);
        let mut started = start.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let (questions, answers) = (started.stdin.take(), started.stdout.take());
        ensure!(started.wait()?.success(), "{start:?} failed");
        let mut paused = Self {
            container,
            expected: mebibytes.to_string(),
            questions: questions.context("no pipe to the container")?,
            answers: BufReader::new(answers.context("no pipe from the container")?),
            _bundles: bundles,
        };
        // The first requests come before the server listens, and get no answer.
        let began = Instant::now();
        while output_of(&mut paused.exec())?.trim_end() != paused.expected {
            ensure!(began.elapsed() < Duration::from_secs(60), "the server in runc's container does not come up");
        }
        paused.ask()?;
        Ok(paused)
    }

    /// From `runc resume` to the answer to a process that runs inside.
    pub(crate) fn resume_and_ask(&mut self) -> Result<Duration> {
        self.pause()?;
        let began = Instant::now();
        self.resume()?;
        self.ask()?;
        Ok(began.elapsed())
    }

    /// From `runc resume` to the answer to a process started by `runc exec`.
    pub(crate) fn resume_and_exec(&self) -> Result<Duration> {
        self.pause()?;
        let began = Instant::now();
        self.resume()?;
        let answer = output_of(&mut self.exec())?;
        ensure!(answer.trim_end() == self.expected, "the server in runc's container answered {answer:?}");
        Ok(began.elapsed())
    }

    fn pause(&self) -> Result<()> {
        timed(Command::new("runc").args(["pause", &self.container])).map(drop)
    }

    fn resume(&self) -> Result<()> {
        timed(Command::new("runc").args(["resume", &self.container])).map(drop)
    }

    fn exec(&self) -> Command {
        let mut exec = Command::new("runc");
        exec.args(["exec", &self.container]).args(ask_once("/"));
        exec
    }

    fn ask(&mut self) -> Result<()> {
        writeln!(self.questions, "/")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        ensure!(answer.trim_end() == self.expected, "the server in runc's container answered {answer:?}");
        Ok(())
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        // A frozen process cannot die; one that is not paused refuses, which is as well.
        let resumed = Command::new("runc").args(["resume", &self.container]).stderr(Stdio::null()).status();
        let removed = Command::new("runc").args(["delete", "--force", &self.container]).status();
        if resumed.is_err() || !removed.is_ok_and(|status| status.success()) {
            eprintln!("failed to remove runc's container {}", self.container);
        }
    }
}
