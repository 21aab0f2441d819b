//! Carrying a build out.

mod commands;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use roost_disk::Existing;
use roost_model::{CheckpointId, CreateCheckpoint, CreateSandbox, LimitsRequest, Span, StartExec, TemplateDefaults};
use roost_store::{CheckpointRecord, SandboxRecord, Source};
use tokio::time::Instant;

use super::copy::{Copying, unpack};
use super::folder::failed;
use super::image::{how_to_import, templates_for};
use super::plan::{BuildFrom, BuildPlan, BuildStep, Standing, base_key, keys, reusable};
use super::{Build, BuildLevel, BuildPart, BuildState};
use crate::handle::Handle;
use crate::host::Host;
use crate::moments::Purpose;
use crate::run::Run;
use crate::{HostError, blocking};

/// How long a whole build may take.
const LONGEST: Duration = Duration::from_secs(3 * 3600);
/// How long what was started may take until it is ready, and how often that is asked.
const READY_WITHIN: Duration = Duration::from_secs(300);
const ASK_EVERY: Duration = Duration::from_millis(250);
/// How long what was started runs before it is taken, if nothing says when it is ready.
const SETTLE: Duration = Duration::from_secs(20);

/// What went wrong, and where.
#[derive(Debug)]
struct Trouble {
    part: BuildPart,
    message: String,
}

fn trouble(part: BuildPart) -> impl Fn(HostError) -> Trouble {
    move |error| {
        let hint = error.hint().map(|hint| format!(": {hint}")).unwrap_or_default();
        Trouble { part, message: format!("{}{hint}", roost_model::chain(&error)) }
    }
}

impl Build {
    pub(super) async fn fail(self: &Arc<Self>, part: BuildPart, message: &str) {
        self.say(part, BuildLevel::Error, message);
        let state = BuildState::Failed { message: message.to_owned(), part };
        if let Err(error) = self.change(|_| true, state).await {
            tracing::error!(build = %self.view().id, %error, "could not write down that a build failed");
        }
    }
}

impl Host {
    /// Does what the plan says, to its end or its failure.
    pub(super) async fn carry_out(&self, build: &Arc<Build>, plan: &BuildPlan) {
        let Ok(_turn) = self.shared.builds.turns.clone().acquire_owned().await else { return };
        let work = Work { host: self, build, plan };
        let outcome = tokio::time::timeout(LONGEST, work.carry_out()).await.unwrap_or_else(|_| {
            let message = format!("the build took longer than {} hours", LONGEST.as_secs() / 3600);
            Err(Trouble { part: BuildPart::Finish, message })
        });
        match outcome {
            Ok(()) => {
                if let Err(error) = build.change(|_| true, BuildState::Ready).await {
                    tracing::error!(build = %build.view().id, %error, "could not write down that a build is done");
                }
            }
            Err(Trouble { part, message }) => build.fail(part, &message).await,
        }
        self.sweep_builds().await;
    }

    /// A sandbox for a build, from a moment; it ends when the build lets go of it.
    async fn build_sandbox(&self, record: SandboxRecord) -> Result<Run, HostError> {
        let record = SandboxRecord { bound_to_run: true, ephemeral: true, ..record };
        let (handle, _) = self.bring_up(record, None).await?;
        Ok(Run::of(handle))
    }
}

/// A build at work.
#[derive(Debug)]
struct Work<'a> {
    host: &'a Host,
    build: &'a Arc<Build>,
    plan: &'a BuildPlan,
}

impl Work<'_> {
    async fn carry_out(&self) -> Result<(), Trouble> {
        let base = trouble(BuildPart::Base);
        let limits = self.build.view().limits;
        let from = self.template().map_err(&base)?;
        let wanted = CreateSandbox { template: Some(from), limits: Some(limits.clone()), ..CreateSandbox::default() };
        let (record, template) = self.host.record_for(wanted).await.map_err(&base)?;
        self.info(BuildPart::Base, format!("starting from template `{}`", record.template));
        let mut standing =
            Standing { user: record.user.clone(), workdir: record.workdir.clone(), env: record.env.clone() };

        let base_key = base_key(template.as_str());
        let keys = keys(template.as_str(), &self.plan.steps);
        let (done, layer) = self.found(&base_key, &keys).await.map_err(&base)?;
        for (place, planned) in self.plan.steps.iter().enumerate().take(done) {
            self.info(step_at(place), format!("{} CACHED {}", self.count(place), planned.step));
            standing = standing.after(&planned.step);
        }
        let mut last = layer;
        if done < self.plan.steps.len() || last.is_none() {
            let record = match &last {
                Some(moment) => self.record_of(moment, None, &limits).await.map_err(&base)?,
                None => record,
            };
            let run = self.host.build_sandbox(record).await.map_err(&base)?;
            let mut outcome = self.steps(&run, done, &keys, &mut standing, &mut last).await;
            if outcome.is_ok() && last.is_none() {
                // No step left anything on the disk: the template is as it was.
                let kept = self.keep(run.handle(), &base_key).await.map_err(trouble(BuildPart::Finish));
                outcome = kept.map(|moment| last = Some(moment));
            }
            run.end().await;
            outcome?;
        }
        let finish = trouble(BuildPart::Finish);
        let Some(moment) = last else {
            return Err(finish(HostError::Internal("the build led to nothing".to_owned())));
        };
        self.finish(moment, &standing, &limits).await
    }

    /// The name of the template that it starts from.
    fn template(&self) -> Result<String, HostError> {
        match &self.plan.from {
            BuildFrom::Template(name) => Ok(name.clone()),
            BuildFrom::Image(image) => {
                let mut names = templates_for(image).into_iter().map(|named| named.to_string());
                let found = names.find(|name| self.host.shared.templates.get(name).is_ok());
                found.ok_or_else(|| HostError::BadRequest(how_to_import(image)))
            }
        }
    }

    /// The longest row of steps that was done before, and the state it led to.
    async fn found(&self, base_key: &str, keys: &[String]) -> Result<(usize, Option<CheckpointRecord>), HostError> {
        let steps = &self.plan.steps;
        let leaves_files = |place: &usize| steps[*place].step.changes_files();
        let usable = reusable(self.plan);
        // Nothing has to be done for steps that leave nothing.
        let quiet_from = |place: usize| place + steps[place..].iter().take_while(|s| !s.step.changes_files()).count();
        for place in (0..usable).rev().filter(leaves_files) {
            if let Some(moment) = self.layer(&keys[place]).await? {
                return Ok((quiet_from(place + 1), Some(moment)));
            }
        }
        match self.layer(base_key).await? {
            Some(moment) if !self.plan.force => Ok((quiet_from(0), Some(moment))),
            _ => Ok((0, None)),
        }
    }

    /// The state of a key, if it is still there.
    async fn layer(&self, key: &str) -> Result<Option<CheckpointRecord>, HostError> {
        let (layers, key) = (self.host.shared.builds.layers(), key.to_owned());
        let found = blocking(move || layers.layer(&key)).await;
        let Some(id) = found.map_err(|error| failed("look for what was done before", &error))? else {
            return Ok(None);
        };
        match self.host.checkpoint_record(id.as_str()) {
            Ok(moment) => Ok(Some(moment)),
            Err(HostError::CheckpointNotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Does the steps that are left and keeps what each of them led to.
    async fn steps(
        &self,
        run: &Run,
        done: usize,
        keys: &[String],
        standing: &mut Standing,
        last: &mut Option<CheckpointRecord>,
    ) -> Result<(), Trouble> {
        for (place, planned) in self.plan.steps.iter().enumerate().skip(done) {
            let (part, failing) = (step_at(place), trouble(step_at(place)));
            self.info(part, format!("{} {}", self.count(place), planned.step));
            self.step(run.handle(), part, &planned.step, standing).await?;
            *standing = standing.clone().after(&planned.step);
            if planned.step.changes_files() {
                let moment = self.keep(run.handle(), &keys[place]).await.map_err(failing)?;
                *last = Some(moment);
            }
        }
        Ok(())
    }

    async fn step(
        &self,
        handle: &Handle,
        part: BuildPart,
        step: &BuildStep,
        standing: &Standing,
    ) -> Result<(), Trouble> {
        let failing = trouble(part);
        match step {
            BuildStep::Env { .. } | BuildStep::User { .. } => Ok(()),
            BuildStep::Run { command, user } => {
                let user = user.as_ref().unwrap_or(&standing.user);
                let exec = self.shell(handle, command, user, standing).await.map_err(&failing)?;
                self.done(handle, part, exec, "the command").await
            }
            BuildStep::Workdir { path } => {
                let line = r#"[ -d "$1" ] || { mkdir -p "$1" && chown "$2" "$1"; }"#;
                let argv = ["/bin/sh", "-c", line, "workdir", &standing.place(path), &standing.user];
                let exec = StartExec {
                    argv: argv.map(str::to_owned).to_vec(),
                    user: Some("root".to_owned()),
                    cwd: Some("/".to_owned()),
                    ..StartExec::default()
                };
                self.done(handle, part, exec, "making the folder").await
            }
            BuildStep::Copy { files, source, to, owner, mode } => {
                let (kept, hash) = (self.host.shared.builds.files(), files.to_ascii_lowercase());
                let archive = blocking(move || kept.open(&hash)).await;
                let archive = archive.map_err(|error| failing(failed("open the files to copy", &error)))?;
                let absent = || HostError::BadRequest(format!("the files of `{source}` were not uploaded"));
                let archive = archive.ok_or_else(|| failing(absent()))?;
                let copying = Copying { source, to, owner: owner.as_deref(), mode: mode.as_deref() };
                let exec = unpack(handle, archive, &copying, standing).await.map_err(&failing)?;
                self.done(handle, part, exec, "copying").await
            }
        }
    }

    /// Keeps the state that a step led to, to be found again.
    async fn keep(&self, handle: &Handle, key: &str) -> Result<CheckpointRecord, HostError> {
        let (moment, id) = self.take(handle, true).await?;
        let (layers, key) = (self.host.shared.builds.layers(), key.to_owned());
        let kept = blocking(move || layers.put_layer(&key, &id)).await;
        kept.map_err(|error| failed("remember what was done", &error))?;
        Ok(moment)
    }

    async fn take(&self, handle: &Handle, files_only: bool) -> Result<(CheckpointRecord, CheckpointId), HostError> {
        let comment = Some(format!("build of template {}", self.build.view().name));
        let (moment, _) = handle.take_checkpoint(CreateCheckpoint { comment, files_only }, Purpose::Asked).await?;
        let id = moment.id.clone();
        Ok((moment, id))
    }

    /// A sandbox that goes on from a state: as it was, or as sandboxes of the template will be.
    async fn record_of(
        &self,
        moment: &CheckpointRecord,
        standing: Option<&Standing>,
        limits: &LimitsRequest,
    ) -> Result<SandboxRecord, HostError> {
        let wanted = CreateSandbox { limits: Some(limits.clone()), ..CreateSandbox::default() };
        let record = self.host.record_from(moment, Source::Checkpoint(moment.id.clone()), wanted).await?;
        Ok(match standing {
            None => record,
            Some(Standing { user, workdir, env }) => {
                SandboxRecord { user: user.clone(), workdir: workdir.clone(), env: env.clone(), ..record }
            }
        })
    }

    /// Starts what is to run in the template's sandboxes, waits until it is ready, and takes the template.
    async fn finish(
        &self,
        state: CheckpointRecord,
        standing: &Standing,
        limits: &LimitsRequest,
    ) -> Result<(), Trouble> {
        let part = BuildPart::Finish;
        let failing = trouble(part);
        if self.plan.start.is_none() && self.plan.ready.is_none() {
            return self.promote(state, standing, limits).await.map_err(failing);
        }
        // In a sandbox of its own: what steps may have left running is no part of the template.
        let record = self.record_of(&state, Some(standing), limits).await.map_err(&failing)?;
        let run = self.host.build_sandbox(record).await.map_err(&failing)?;
        let outcome = self.started(&run, standing).await;
        let outcome = match outcome {
            Ok(()) if self.plan.start.is_some() => self.take(run.handle(), false).await.map_err(&failing).map(Some),
            Ok(()) => Ok(None),
            Err(error) => Err(error),
        };
        run.end().await;
        match outcome? {
            None => self.promote(state, standing, limits).await.map_err(failing),
            Some((warm, id)) => {
                let promoted = self.promote(warm, standing, limits).await.map_err(failing);
                self.host.drop_layer(id.as_str()).await;
                promoted
            }
        }
    }

    /// Starts the template's command and waits until it is ready.
    async fn started(&self, run: &Run, standing: &Standing) -> Result<(), Trouble> {
        let part = BuildPart::Finish;
        let failing = trouble(part);
        let ready = self.ready(run.handle(), standing);
        let Some(line) = &self.plan.start else { return ready.await };
        self.info(part, format!("starting {line}"));
        let exec = self.shell(run.handle(), line, &standing.user, standing).await.map_err(&failing)?;
        let attachment = run.handle().start_attached(exec, None).await.map_err(&failing)?;
        let ended = async {
            let mut tail = Vec::new();
            match self.follow(part, attachment, &mut tail).await {
                // One that puts itself into the background has done its part.
                Ok(0) => std::future::pending().await,
                Ok(code) => {
                    let said = tail.join("\n");
                    let message = format!("the start command ended with exit code {code} before it was ready\n{said}");
                    Trouble { part, message: message.trim_end().to_owned() }
                }
                Err(error) => failing(error),
            }
        };
        tokio::select! {
            ready = ready => ready,
            trouble = ended => Err(trouble),
        }
    }

    async fn ready(&self, handle: &Handle, standing: &Standing) -> Result<(), Trouble> {
        let part = BuildPart::Finish;
        let failing = trouble(part);
        let Some(line) = &self.plan.ready else {
            tokio::time::sleep(SETTLE).await;
            return Ok(());
        };
        self.info(part, format!("waiting until it is ready: {line}"));
        let until = Instant::now() + READY_WITHIN;
        loop {
            let mut exec = self.shell(handle, line, &standing.user, standing).await.map_err(&failing)?;
            let left = until.saturating_duration_since(Instant::now());
            exec.timeout = Some(Span::seconds(left.as_secs().max(1)));
            let output = handle.run_exec(exec, None).await.map_err(&failing)?;
            if output.exit_code == 0 {
                self.info(part, "it is ready");
                return Ok(());
            }
            if Instant::now() >= until {
                let said = output.stderr.trim();
                let message = format!("it was not ready within {} s: {said}", READY_WITHIN.as_secs());
                return Err(Trouble { part, message });
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    /// Makes the template of a moment.
    async fn promote(
        &self,
        moment: CheckpointRecord,
        standing: &Standing,
        limits: &LimitsRequest,
    ) -> Result<(), HostError> {
        let view = self.build.view();
        let warm = moment.memory;
        // Nothing of the build's sandbox itself is passed on.
        let origin = SandboxRecord {
            ephemeral: false,
            bound_to_run: false,
            made_by: None,
            ttl: None,
            expires_at: None,
            labels: std::collections::BTreeMap::new(),
            ports: Vec::new(),
            ..moment.origin
        };
        let moment = CheckpointRecord { origin, created_at: Timestamp::now(), ..moment };
        let defaults = TemplateDefaults {
            user: Some(standing.user.clone()),
            workdir: standing.workdir.clone(),
            env: standing.env.clone(),
            limits: Some(limits.clone()),
            engine: None,
            capabilities: None,
        };
        let template =
            self.host.promote_as(view.id, view.name, view.tags, moment, &defaults, Existing::Replace).await?;
        let how = if warm { "with what runs in it" } else { "without memory" };
        self.info(BuildPart::Finish, format!("template `{}` is there, {how}", template.name));
        Ok(())
    }

    fn info(&self, part: BuildPart, message: impl Into<String>) {
        self.build.say(part, BuildLevel::Info, message);
    }

    fn count(&self, place: usize) -> String {
        format!("[{}/{}]", place + 1, self.plan.steps.len())
    }
}

fn step_at(place: usize) -> BuildPart {
    BuildPart::Step(u32::try_from(place + 1).unwrap_or(u32::MAX))
}
