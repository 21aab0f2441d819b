//! The way into a host for somebody whose access may be limited.
//!
//! Surfaces hold a [`Visitor`], not a [`Host`]: what it does not offer is reached by [`Visitor::host`] alone, which is
//! closed to everybody with limits. A route that nobody thought about is closed, too.

use roost_model::{
    CheckpointDiff, CheckpointView, CreateSandbox, Event, Fork, ForkResult, ImportTemplate, LoginLink, OverviewRow,
    Page, RunRequest, SandboxId, SandboxView, Subject, TemplateView, TokenId, UsageReport,
};
use roost_store::CheckpointRecord;
use tokio::sync::mpsc;

use crate::caller::Caller;
use crate::find::most_similar;
use crate::handle::Handle;
use crate::host::Host;
use crate::{
    BuildProgress, CreateKey, EventReader, ExecAttachment, HostError, ListFilter, OverviewReader, Run, blocking,
};

/// A host as somebody may see it; cheap to clone.
#[derive(Debug, Clone)]
pub struct Visitor {
    host: Host,
    caller: Caller,
}

impl Host {
    /// This host for somebody with an access of its own.
    pub fn visit(&self, caller: Caller) -> Visitor {
        Visitor { host: self.clone(), caller }
    }
}

impl Visitor {
    /// Who it is.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The whole host, for those without limits; `what` they want of it reads on after `this token is limited, and
    /// cannot`.
    pub fn host(&self, what: &str) -> Result<&Host, HostError> {
        self.caller.allow(self.caller.access().without_limits(what))?;
        Ok(&self.host)
    }

    /// The sandbox called `text`, see [`Host::find`]; what is done with it is done for this visitor.
    pub fn find(&self, text: &str) -> Result<Handle, HostError> {
        let access = self.caller.access();
        self.caller.allow(access.may_ask_for(text))?;
        let out_of_reach = || self.caller.allow(Err(access.out_of_reach(text)));
        match self.host.find(text) {
            Ok(handle) if self.caller.reaches(&handle.record()) => Ok(handle.asked_by(&self.caller)),
            Ok(_) => out_of_reach(),
            Err(HostError::Terminated(gone)) if !self.sees(&gone) => out_of_reach(),
            Err(HostError::SandboxNotFound { name, .. }) => {
                let known = self.handles().into_iter().map(|handle| handle.record().name.to_string());
                let similar = most_similar(text, known);
                Err(HostError::SandboxNotFound { name, similar })
            }
            Err(error) => Err(error),
        }
    }

    /// The same, if it is not gone.
    pub fn living(&self, text: &str) -> Result<Handle, HostError> {
        let handle = self.find(text)?;
        handle.living()?;
        Ok(handle)
    }

    fn sees(&self, view: &SandboxView) -> bool {
        self.caller.access().reaches(Subject { id: &view.id, name: &view.name, labels: &view.labels })
    }

    /// Every sandbox within reach.
    pub fn handles(&self) -> Vec<Handle> {
        let reached = self.host.handles().into_iter().filter(|handle| self.caller.reaches(&handle.record()));
        reached.map(|handle| handle.asked_by(&self.caller)).collect()
    }

    /// A page of sandboxes within reach, oldest first.
    pub async fn list(&self, filter: &ListFilter) -> Result<Page<SandboxView>, HostError> {
        self.host.list_seen(filter, &|view| self.sees(view)).await
    }

    /// Makes a sandbox, see [`Host::create`]; a name that is left out becomes one within reach.
    pub async fn create(
        &self,
        wanted: CreateSandbox,
        key: Option<&CreateKey>,
    ) -> Result<(SandboxView, bool), HostError> {
        let warnings = self.host.shared.unkept(wanted.limits.as_ref());
        let (handle, replayed) = self.host.create_handle(wanted, key, false, &self.caller).await?;
        let view = SandboxView { warnings, ..handle.view() };
        if self.sees(&view) {
            return Ok((view, replayed));
        }
        // The key was used by somebody else before.
        self.caller.allow(Err(self.caller.access().out_of_reach(view.id.as_str())))
    }

    /// Makes the sandbox of a run and starts its command.
    pub async fn start_run(&self, request: RunRequest) -> Result<(Run, ExecAttachment), HostError> {
        self.host.start_run_for(request, &self.caller).await
    }

    /// Makes new sandboxes from a moment of one: its present one, or a checkpoint.
    pub async fn fork(&self, handle: &Handle, wanted: Fork) -> Result<Vec<ForkResult>, HostError> {
        if let Some(from) = &wanted.from {
            self.checkpoint_record(from.as_str())?;
        }
        handle.fork(&self.host, wanted, &self.caller).await
    }

    /// The checkpoint of an id, if it is of a sandbox within reach.
    pub(crate) fn checkpoint_record(&self, id: &str) -> Result<CheckpointRecord, HostError> {
        let record = self.host.checkpoint_record(id)?;
        if self.caller.reaches(&record.origin) {
            return Ok(record);
        }
        self.caller.allow(Err(self.caller.access().out_of_reach(id)))
    }

    /// One checkpoint, by id or the beginning of one.
    pub fn checkpoint(&self, id: &str) -> Result<CheckpointView, HostError> {
        Ok(self.checkpoint_record(id)?.view())
    }

    /// The checkpoints of a sandbox, also of one that is gone.
    pub async fn checkpoints_of(&self, sandbox: &str) -> Result<Vec<CheckpointView>, HostError> {
        let id = self.id_of(sandbox)?;
        self.host.checkpoints_of(id.as_str()).await
    }

    /// Every checkpoint of sandboxes within reach, also of those that are gone.
    pub async fn all_checkpoints(&self) -> Result<Vec<CheckpointView>, HostError> {
        self.host.checkpoints_where(|record| self.caller.reaches(&record.origin)).await
    }

    /// Forgets a checkpoint, see [`Host::delete_checkpoint`].
    pub async fn delete_checkpoint(&self, id: &str) -> Result<(), HostError> {
        let record = self.checkpoint_record(id)?;
        self.caller.allow(self.caller.access().may_destroy("remove a checkpoint"))?;
        self.host.delete_checkpoint(record.id.as_str()).await
    }

    /// What differs between two checkpoints.
    pub async fn diff_checkpoints(&self, a: &str, b: &str) -> Result<CheckpointDiff, HostError> {
        let (from, to) = (self.checkpoint_record(a)?.id, self.checkpoint_record(b)?.id);
        self.host.diff_checkpoints(from.as_str(), to.as_str()).await
    }

    /// The id of a sandbox, also of one that is gone.
    pub fn id_of(&self, sandbox: &str) -> Result<SandboxId, HostError> {
        match self.find(sandbox) {
            Ok(handle) => Ok(handle.id().clone()),
            Err(HostError::Terminated(gone)) => Ok(gone.id),
            Err(error) => Err(error),
        }
    }

    /// Up to `limit` events after `after` of sandboxes within reach, or of one of them.
    pub fn events_after(&self, after: u64, limit: usize, sandbox: Option<&str>) -> Result<Vec<Event>, HostError> {
        let only = sandbox.map(|name| self.id_of(name)).transpose()?;
        let log = self.host.events();
        if only.is_some() || !self.caller.access().is_limited() {
            return log.after(after, limit, only.as_ref());
        }
        let (mut seen, mut after) = (Vec::new(), after);
        loop {
            let batch = log.after(after, limit, None)?;
            let Some(last) = batch.last() else { return Ok(seen) };
            after = last.id;
            for event in batch {
                if self.sees_event(&event)? {
                    seen.push(event);
                }
                if seen.len() == limit {
                    return Ok(seen);
                }
            }
        }
    }

    /// The last `limit` events of a sandbox, oldest first.
    pub async fn recent_events(&self, sandbox: &str, limit: usize) -> Result<Vec<Event>, HostError> {
        let (store, id) = (self.host.store(), self.id_of(sandbox)?);
        Ok(blocking(move || store.recent_events(&id, limit)).await?)
    }

    /// Reads events of sandboxes within reach, or of one of them, and waits for more.
    pub fn follow_events(&self, after: u64, sandbox: Option<&str>) -> Result<EventReader, HostError> {
        let only = sandbox.map(|name| self.id_of(name)).transpose()?;
        let reader = self.host.events().follow(after, only);
        Ok(if self.caller.access().is_limited() { reader.seen_by(self.clone()) } else { reader })
    }

    /// Returns whether an event is about a sandbox within reach, as that sandbox is now. Events about the host are for
    /// callers without limits.
    pub(crate) fn sees_event(&self, event: &Event) -> Result<bool, HostError> {
        let Some(sandbox) = &event.sandbox else { return Ok(!self.caller.access().is_limited()) };
        if let Some(handle) = self.host.handle_of(sandbox) {
            return Ok(self.caller.reaches(&handle.record()));
        }
        let record = self.host.shared.store.sandbox(sandbox)?;
        Ok(record.is_some_and(|record| self.caller.reaches(&record)))
    }

    /// Makes a template, see [`Host::make_template`]; what this visitor may name a path of is looked at first.
    pub async fn make_template(
        &self,
        wanted: ImportTemplate,
        progress: mpsc::Sender<BuildProgress>,
    ) -> Result<TemplateView, HostError> {
        self.host("change templates")?.make_template_for(wanted, progress, &self.caller).await
    }

    /// Makes a link that logs one browser in, once, with the rights of this visitor.
    pub fn make_login(&self) -> Result<LoginLink, HostError> {
        let token = self.caller.id().map(str::parse::<TokenId>).transpose();
        let token = token.map_err(|_| HostError::Forbidden("only tokens log browsers in".to_owned()))?;
        Ok(self.host.make_login(token.as_ref()))
    }

    /// Watches the sandboxes within reach: everything at once, then what changes.
    pub fn watch_overview(&self) -> OverviewReader {
        let reader = self.host.watch_overview();
        if self.caller.access().is_limited() { reader.seen_by(self.clone()) } else { reader }
    }

    pub(crate) fn sees_row(&self, row: &OverviewRow) -> bool {
        self.caller.access().reaches(Subject { id: &row.id, name: &row.name, labels: &row.labels })
    }

    /// All templates.
    pub fn templates(&self) -> Result<Vec<TemplateView>, HostError> {
        self.host.templates()
    }

    /// One template.
    pub fn template(&self, name: &str) -> Result<TemplateView, HostError> {
        self.host.template(name)
    }

    /// What every living sandbox within reach has cost so far, and all of them together.
    pub async fn usage(&self) -> Result<UsageReport, HostError> {
        self.host.usage_of(self.handles()).await
    }
}
