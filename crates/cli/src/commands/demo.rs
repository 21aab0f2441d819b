//! `roost demo`: the life of a sandbox, with timings, by what every client can do.

mod memory;

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use futures_util::StreamExt;
use roost_client::{Client, Upload, WriteOptions};
use roost_model::{CreateSandbox, ExecOutput, SandboxView, StartExec};

use crate::commands::home::suggest;
use crate::failure::hinted;
use crate::output::{self, Palette, printable};
use crate::units::{show_size, show_time};

/// Sandboxes made at once.
const CROWD: usize = 10;
const WIDTH: usize = 20;

/// Show the life of a sandbox, with timings
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  roost demo
  roost demo -t mini")]
pub(crate) struct DemoArgs {
    /// Start from TEMPLATE; `base` if it is there, else `mini`
    #[arg(short, long, value_name = "TEMPLATE")]
    template: Option<String>,
}

/// Removes what the demo made, also if it fails half-way.
struct Stage<'a> {
    client: &'a Client,
    palette: Palette,
    made: Vec<String>,
}

pub(crate) async fn demo(client: &Client, wanted: DemoArgs) -> anyhow::Result<()> {
    let template = choose_template(client, wanted.template).await?;
    let mut stage = Stage { client, palette: Palette::stdout(), made: Vec::new() };
    let shown = tokio::select! {
        shown = stage.play(&template) => shown,
        interrupted = tokio::signal::ctrl_c() => Err(match interrupted {
            Ok(()) => crate::failure::Interrupted.into(),
            Err(error) => error.into(),
        }),
    };
    stage.clear().await;
    shown?;
    suggest(&[
        ("roost create box", "a computer that stays"),
        ("roost exec -it box", "a terminal in it"),
        ("roost cp ./file box:", "files in and out"),
        ("roost checkpoint box", "a moment to go back to"),
        ("roost fork box", "another one that goes on from here"),
        (&format!("roost run {template} -- uname -a"), "one command in a fresh one"),
        ("roost ls", "what is here"),
    ])
}

async fn choose_template(client: &Client, wanted: Option<String>) -> anyhow::Result<String> {
    let names: Vec<String> = client.list_templates().await?.into_iter().map(|template| template.name).collect();
    if let Some(wanted) = wanted {
        return Ok(wanted);
    }
    match ["base", "mini"].into_iter().find(|name| names.iter().any(|there| there == name)) {
        Some(name) => Ok(name.to_owned()),
        None => match names.into_iter().next() {
            Some(name) => Ok(name),
            None => Err(hinted("there is no template to start from", "`roost template build mini` makes one")),
        },
    }
}

impl Stage<'_> {
    async fn play(&mut self, template: &str) -> anyhow::Result<()> {
        self.title(&format!("A sandbox from `{template}`"))?;
        let (sandbox, took) = timed(self.create(template)).await?;
        self.step("create", took, &format!("{} ({})", sandbox.name, sandbox.id))?;
        let name = sandbox.name.as_str();

        let (first, took) = timed(self.sh(name, "echo hello from $(hostname), I am $(id -un)")).await?;
        self.step("first command", took, &first)?;
        let (kernel, took) = timed(self.sh(name, "uname -sr; ps 2>/dev/null | wc -l")).await?;
        self.step("its own processes", took, &kernel)?;

        let content = Upload::bytes("kept by the sandbox, not by the client\n");
        let options = WriteOptions::default();
        let write = self.client.write_file(name, "/tmp/note", content, &options);
        let (stat, took) = timed(async { Ok(write.await?) }).await?;
        self.step("write a file", took, &format!("{} of {}", stat.path, show_size(stat.size)))?;
        let (read, took) = timed(self.sh(name, "cat /tmp/note")).await?;
        self.step("read it inside", took, &read)?;

        for (what, line) in [("python", "python3 --version"), ("node", "node --version")] {
            let probe = format!("command -v {} >/dev/null && {line}", line.split(' ').next().unwrap_or_default());
            let (output, took) = timed(self.exec(name, &probe)).await?;
            if output.exit_code == 0 {
                self.step(what, took, &output.stdout)?;
            }
        }
        let (stats, took) = timed(async { Ok(self.client.stats(name).await?) }).await?;
        let used = format!(
            "{} of memory, {} of disk, {} processes",
            show_size(stats.memory),
            show_size(stats.disk_exclusive),
            stats.pids
        );
        self.step("what it uses", took, &used)?;

        self.remember(name).await?;

        self.title(&format!("{CROWD} more at once"))?;
        let (crowd, took) = timed(self.crowd(template)).await?;
        self.step(&format!("create {CROWD}"), took, &format!("{} each", show_time(took / CROWD as u32)))?;
        let (answers, took) = timed(self.all_answer(&crowd)).await?;
        self.step("a command in each", took, &format!("{answers} answered"))?;

        self.title("And gone")?;
        let count = self.made.len();
        let ((), took) = timed(async {
            self.clear().await;
            Ok(())
        })
        .await?;
        self.step(&format!("remove {count}"), took, "disks, networks and processes with them")
    }

    async fn create(&mut self, template: &str) -> anyhow::Result<SandboxView> {
        let request = CreateSandbox {
            template: Some(template.to_owned()),
            // Should this process be killed, they go by themselves.
            ttl: Some(roost_model::Span::seconds(600)),
            ..CreateSandbox::default()
        };
        let sandbox = self.client.create_sandbox(&request).await?;
        self.made.push(sandbox.id.to_string());
        Ok(sandbox)
    }

    async fn crowd(&mut self, template: &str) -> anyhow::Result<Vec<String>> {
        let client = self.client;
        let request = CreateSandbox {
            template: Some(template.to_owned()),
            ttl: Some(roost_model::Span::seconds(600)),
            ..CreateSandbox::default()
        };
        let create = async |_| client.create_sandbox(&request).await;
        let all: Vec<_> = futures_util::stream::iter(0..CROWD).map(create).buffer_unordered(CROWD).collect().await;
        let mut ids = Vec::new();
        let mut failed = None;
        for made in all {
            match made {
                Ok(sandbox) => ids.push(sandbox.id.to_string()),
                Err(error) => failed = Some(error),
            }
        }
        // All that were made are ours to remove, before a failure is told.
        self.made.extend(ids.iter().cloned());
        match failed {
            Some(error) => Err(error.into()),
            None => Ok(ids),
        }
    }

    async fn all_answer(&self, ids: &[String]) -> anyhow::Result<usize> {
        let ask = async |id: &String| self.sh(id, "echo here").await;
        let answers: Vec<_> = futures_util::stream::iter(ids).map(ask).buffer_unordered(CROWD).collect().await;
        let answers: Vec<String> = answers.into_iter().collect::<anyhow::Result<_>>()?;
        Ok(answers.iter().filter(|answer| answer.trim() == "here").count())
    }

    async fn exec(&self, sandbox: &str, line: &str) -> anyhow::Result<ExecOutput> {
        let start = StartExec { shell: Some(line.to_owned()), ..StartExec::default() };
        Ok(self.client.run_exec(sandbox, &start).await?)
    }

    async fn sh(&self, sandbox: &str, line: &str) -> anyhow::Result<String> {
        let output = self.exec(sandbox, line).await?;
        if output.exit_code != 0 {
            bail!("`{line}` ended with {}: {}", output.exit_code, output.stderr.trim());
        }
        Ok(output.stdout)
    }

    async fn clear(&mut self) {
        self.forget().await;
        let client = self.client;
        let remove = async |id: String| client.delete_sandbox(&id).await;
        let all = futures_util::stream::iter(std::mem::take(&mut self.made)).map(remove).buffer_unordered(CROWD);
        // What could not be removed has a time to live.
        drop(all.collect::<Vec<_>>().await);
    }

    fn title(&self, text: &str) -> anyhow::Result<()> {
        output::line("")?;
        Ok(output::line(self.palette.bold(text))?)
    }

    fn step(&self, what: &str, took: Duration, result: &str) -> anyhow::Result<()> {
        self.told(what, &show_time(took), result)
    }

    /// A step whose time says nothing.
    fn note(&self, what: &str, result: &str) -> anyhow::Result<()> {
        self.told(what, "", result)
    }

    fn told(&self, what: &str, time: &str, result: &str) -> anyhow::Result<()> {
        let lines: Vec<String> = result.trim().lines().map(printable).collect();
        let time = self.palette.green(&format!("{time:>9}"));
        Ok(output::line(format!("  {what:<WIDTH$} {time}  {}", self.palette.dim(&lines.join(" · "))))?)
    }
}

async fn timed<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<(T, Duration)> {
    let began = Instant::now();
    let done = work.await?;
    Ok((done, began.elapsed()))
}
