//! Sandboxes that start from a moment of another.

use jiff::Timestamp;
use roost_lifecycle::Phase;
use roost_model::{
    CheckpointId, CreateCheckpoint, CreateSandbox, ErrorDetail, Fork, ForkResult, Name, Operation, Parent, Receipt,
    SandboxId, SandboxView, Spent,
};
use roost_store::{CheckpointRecord, SandboxRecord, Source};

use crate::account::Account;
use crate::actor::expiry;
use crate::caller::Caller;
use crate::create::random_key;
use crate::failpoint::fail_point;
use crate::handle::Handle;
use crate::host::Host;
use crate::moments::Purpose;
use crate::services::first_services;
use crate::{HostError, blocking};

impl Handle {
    /// Makes new sandboxes from a moment of this one: its present one, or a checkpoint.
    ///
    /// One moment is taken, and all children start from it side by side; one that fails does not hold up the others.
    pub(crate) async fn fork(&self, host: &Host, wanted: Fork, caller: &Caller) -> Result<Vec<ForkResult>, HostError> {
        self.living()?;
        let names = wanted.children().map_err(|error| HostError::BadRequest(error.to_string()))?;
        let name = |name| caller.allow(caller.access().name_for(name, || host.free_name()));
        let names: Vec<Name> = names.into_iter().map(name).collect::<Result<_, _>>()?;
        let _claim = host.claim(caller, &names)?;
        let (moment, receipt) = match &wanted.from {
            Some(id) => (host.checkpoint_record(id.as_str())?, None),
            None => {
                let (moment, receipt) = self.take_checkpoint(CreateCheckpoint::default(), Purpose::Fork).await?;
                (moment, Some(receipt))
            }
        };
        fail_point("fork-moment");
        let mut births = tokio::task::JoinSet::new();
        for (place, name) in names.into_iter().enumerate() {
            let (host, moment, pause) = (host.clone(), moment.clone(), receipt.clone());
            let made_by = caller.id().map(str::to_owned);
            births.spawn(async move { (place, host.fork_one(&moment, name, made_by, pause).await) });
        }
        let mut born = births.join_all().await;
        born.sort_by_key(|(place, _)| *place);
        fail_point("fork-born");
        if wanted.from.is_none() {
            // Nobody asked for this checkpoint; the children have disks and memory of their own by now.
            if let Err(error) = host.delete_checkpoint(moment.id.as_str()).await {
                tracing::warn!(checkpoint = %moment.id, %error, "could not remove the checkpoint of a fork");
            }
        }
        Ok(born.into_iter().map(|(_, outcome)| ForkResult::from(outcome)).collect())
    }
}

impl Host {
    async fn fork_one(
        &self,
        moment: &CheckpointRecord,
        name: Name,
        made_by: Option<String>,
        taken: Option<Receipt>,
    ) -> Result<(SandboxView, Receipt), ErrorDetail> {
        let account = Account::open();
        let wanted = CreateSandbox { name: Some(name.to_string()), ..CreateSandbox::default() };
        let source = Source::Checkpoint(moment.id.clone());
        let record = self.record_from(moment, source, wanted).await.map_err(|error| detail(&error))?;
        let record = SandboxRecord { made_by, ..record };
        let (handle, _) = self.bring_up(record, None).await.map_err(|error| detail(&error))?;
        let view = handle.view();
        let mut receipt = account.receipt(Operation::Fork, None, view.generation);
        if let Some(taken) = taken {
            receipt.kept = taken.kept;
            receipt.not_kept = taken.not_kept;
            receipt.bytes = taken.bytes;
            receipt.paused_ms = taken.paused_ms;
            receipt.parts_ms = taken.parts_ms;
        }
        receipt.checkpoint = Some(moment.id.clone());
        Ok((view, receipt))
    }

    /// A new sandbox that starts from a checkpoint: like its origin in everything that is not asked for otherwise.
    pub(crate) async fn record_from(
        &self,
        moment: &CheckpointRecord,
        source: Source,
        wanted: CreateSandbox,
    ) -> Result<SandboxRecord, HostError> {
        let origin = &moment.origin;
        let engine = self.engine_from(wanted.engine.as_deref(), moment).await?;
        let name: Name = match &wanted.name {
            Some(name) => name.parse()?,
            None => self.free_name(),
        };
        let limits = match &wanted.limits {
            Some(limits) => origin.limits.with(limits),
            None => origin.limits.clone(),
        };
        limits.check(&self.shared.config.host_limits)?;
        crate::create::check_env(&wanted.env)?;
        crate::create::check_labels(wanted.labels.iter().map(|(key, value)| (key, Some(value.as_str()))))?;
        let policy = &self.shared.config.capabilities;
        let own_kernel = self.shared.engine(engine)?.capabilities().own_kernel;
        let capabilities = policy.for_moment(wanted.capabilities, moment, own_kernel)?;
        let services = first_services(&origin.services, wanted.services)?;
        // An image holds the ids of its processes.
        let uid_range = if moment.memory { origin.uid_range } else { self.free_uid_range().await? };
        let now = Timestamp::now();
        let ttl = wanted.ttl.or(origin.ttl);
        let (mut labels, mut env) = (origin.labels.clone(), origin.env.clone());
        labels.extend(wanted.labels);
        env.extend(wanted.env);
        Ok(SandboxRecord {
            id: SandboxId::generate(),
            name,
            phase: Phase::Creating,
            state_since: now,
            created_at: now,
            engine,
            ephemeral: wanted.ephemeral || origin.ephemeral,
            bound_to_run: false,
            made_by: None,
            pool: None,
            generation: origin.generation + 1,
            parent: Some(Parent { sandbox: origin.id.clone(), checkpoint: Some(moment.id.clone()) }),
            limits,
            idle: origin.idle.with(&wanted.idle.unwrap_or_default()),
            ttl,
            expires_at: expiry(now, ttl)?,
            on_ttl: wanted.on_ttl.unwrap_or(origin.on_ttl),
            stays: false,
            auto_resume: wanted.auto_resume.unwrap_or(origin.auto_resume),
            port_access: wanted.port_access.unwrap_or(origin.port_access),
            labels,
            env,
            services,
            network: wanted.network.unwrap_or_else(|| origin.network.clone()),
            capabilities,
            key: random_key(),
            slot: None,
            image: None,
            checkpoint: Some(moment.id.clone()),
            source: Some(source),
            asleep_since: Some(moment.created_at),
            quiet_since: None,
            not_saved: None,
            spent: Spent::default(),
            uid_range,
            reason: None,
            tombstone: None,
            ..origin.clone()
        })
    }

    /// The checkpoint of an id, or of the beginning of one.
    pub(crate) fn checkpoint_record(&self, text: &str) -> Result<CheckpointRecord, HostError> {
        let unknown = || HostError::CheckpointNotFound(text.to_owned());
        if let Ok(id) = text.parse::<CheckpointId>() {
            return self.shared.store.checkpoint(&id)?.ok_or_else(unknown);
        }
        let bare = text.strip_prefix(CheckpointId::PREFIX).unwrap_or(text);
        if bare.len() < crate::find::SHORTEST_PREFIX {
            return Err(unknown());
        }
        let prefix = format!("{}{bare}", CheckpointId::PREFIX);
        let mut fitting =
            self.shared.store.all_checkpoints()?.into_iter().filter(|record| record.id.as_str().starts_with(&prefix));
        let first = fitting.next().ok_or_else(unknown)?;
        match fitting.count() {
            0 => Ok(first),
            others => Err(HostError::Ambiguous { prefix: text.to_owned(), count: others + 1 }),
        }
    }

    /// Forgets a checkpoint and gives its room back; whatever was made from it goes on.
    pub async fn delete_checkpoint(&self, id: &str) -> Result<(), HostError> {
        let record = self.checkpoint_record(id)?;
        // A birth that failed needs it no longer, although its end may still be under way.
        let needs_it = |other: &SandboxRecord| {
            !other.phase.is_ending() && other.source == Some(Source::Checkpoint(record.id.clone()))
        };
        if self.handles().iter().any(|handle| needs_it(&handle.record())) {
            return Err(HostError::Conflict(format!("a sandbox is starting from checkpoint {}", record.id)));
        }
        let (store, pool, id) = (self.store(), self.shared.pool.clone(), record.id.clone());
        blocking(move || {
            store.delete_checkpoint(&id, None)?;
            fail_point("checkpoint-forgotten");
            // Forgotten first: files without a record are swept, a record without files would be a lie.
            pool.delete_checkpoint(id.as_str()).map_err(|error| HostError::Internal(roost_model::chain(&error)))
        })
        .await
    }
}

fn detail(error: &HostError) -> ErrorDetail {
    ErrorDetail { code: error.code(), message: error.to_string(), hint: error.hint() }
}
