//! Making a sandbox: every check before anything is promised, then one record, then its actor.

use jiff::Timestamp;
use roost_lifecycle::Phase;
use roost_model::{CreateSandbox, EventKind, Limits, Name, SandboxId, SandboxView, Span, Spent, TemplateId};
use roost_store::{IdempotencyKey, InsertOutcome, NewEvent, SandboxRecord, ServiceRecords, Source};
use tokio::sync::oneshot;

use crate::actor::{self, Beginning, expiry};
use crate::caller::Caller;
use crate::effects::Effects;
use crate::failpoint::fail_point;
use crate::handle::Handle;
use crate::host::Host;
use crate::room::Place;
use crate::services::first_services;
use crate::{HostError, blocking};

const LONGEST_KEY: usize = 255;
const MOST_LABELS: usize = 64;
const LONGEST_LABEL: usize = 256;
/// Some keep more than a word there.
const LONGEST_VALUE: usize = 4096;

/// A key under which a request may be sent twice and is carried out once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateKey(String);

impl CreateKey {
    /// Checks a key that a client sent.
    pub fn new(text: &str) -> Result<Self, HostError> {
        let fits = !text.is_empty() && text.len() <= LONGEST_KEY && text.bytes().all(|byte| byte.is_ascii_graphic());
        if !fits {
            return Err(HostError::BadRequest(format!(
                "an idempotency key has 1 to {LONGEST_KEY} visible ASCII characters"
            )));
        }
        Ok(Self(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Host {
    /// Makes a sandbox and returns when it is active; the flag says whether an earlier request had made it already.
    pub async fn create(
        &self,
        wanted: CreateSandbox,
        key: Option<&CreateKey>,
    ) -> Result<(SandboxView, bool), HostError> {
        let warnings = self.shared.unkept(wanted.limits.as_ref());
        let (handle, replayed) = self.create_handle(wanted, key, false, &Caller::owner()).await?;
        Ok((SandboxView { warnings, ..handle.view() }, replayed))
    }

    pub(crate) async fn create_handle(
        &self,
        wanted: CreateSandbox,
        key: Option<&CreateKey>,
        bound_to_run: bool,
        caller: &Caller,
    ) -> Result<(Handle, bool), HostError> {
        let key = key.map(|key| {
            let body = serde_json::to_vec(&wanted).unwrap_or_default();
            IdempotencyKey { key: key.0.clone(), fingerprint: blake3::hash(&body).to_hex().to_string() }
        });
        if let Some(made) = self.made_before(key.as_ref()).await? {
            return Ok((made, true));
        }
        // After the fingerprint: the same request gets another made-up name each time.
        let mut wanted = caller.shaped(wanted, || self.free_name())?;
        caller.may_give(wanted.capabilities.as_ref(), &self.shared.config.capabilities)?;
        let (record, template) = match wanted.from_checkpoint.take() {
            Some(id) if wanted.template.is_none() => {
                let moment = self.visit(caller.clone()).checkpoint_record(id.as_str())?;
                (self.record_from(&moment, Source::Checkpoint(moment.id.clone()), wanted).await?, None)
            }
            Some(_) => return Err(HostError::BadRequest("give either a template or a checkpoint".to_owned())),
            None => self.record_for(wanted).await.map(|(record, template)| (record, Some(template)))?,
        };
        let record = SandboxRecord {
            bound_to_run,
            ephemeral: record.ephemeral || bound_to_run,
            made_by: caller.id().map(str::to_owned),
            ..record
        };
        let _claim = self.claim(caller, std::slice::from_ref(&record.name))?;
        if let Some(template) = template
            && let Some(taken) = self.take_waiting(&record, &template, key.as_ref()).await?
        {
            return Ok(taken);
        }
        self.bring_up(record, key).await
    }

    /// Remembers a sandbox, gives it its actor and waits until it is active.
    pub(crate) async fn bring_up(
        &self,
        record: SandboxRecord,
        key: Option<IdempotencyKey>,
    ) -> Result<(Handle, bool), HostError> {
        let _waited_for = self.pools.creating();
        self.shared.engine(record.engine)?;
        self.shared.pool.check_room().map_err(|error| HostError::HostFull(error.to_string()))?;
        let place = self.shared.room.admit(true)?;
        let event = NewEvent { at: record.created_at, kind: EventKind::Creating, reason: None, receipt: None };
        let (store, stored) = (self.shared.store.clone(), record.clone());
        match blocking(move || store.insert_sandbox(&stored, event, key.as_ref())).await? {
            // By the same request, sent twice at the same time.
            InsertOutcome::Replayed(id) => Ok((self.made(&id).await?, true)),
            InsertOutcome::Inserted(event) => {
                fail_point("create-stored");
                self.shared.events.announce(event.id);
                Ok((self.give_birth(record, Some(place)).await?, false))
            }
        }
    }

    /// Gives a sandbox that is stored its actor and waits until it is active.
    pub(crate) async fn give_birth(&self, record: SandboxRecord, place: Option<Place>) -> Result<Handle, HostError> {
        let effects = Effects::new(self.shared.clone(), self.shared.engine(record.engine)?);
        let (reply, born) = oneshot::channel();
        let id = record.id.clone();
        let ends = actor::spawn(record, effects, Beginning::Birth(reply), place);
        let handle = Handle::new(self.shared.clone(), id, ends);
        self.register(handle.clone());
        born.await.map_err(|_| HostError::Internal("its actor ended early".to_owned()))??;
        Ok(handle)
    }

    /// Checks a request and fills in what it leaves open; names the template that it means.
    pub(crate) async fn record_for(&self, wanted: CreateSandbox) -> Result<(SandboxRecord, TemplateId), HostError> {
        let config = &self.shared.config;
        let name: Name = match &wanted.name {
            Some(name) => name.parse()?,
            None => self.free_name(),
        };
        let (named, template) = match &wanted.template {
            Some(name) => self.shared.templates.find(name)?,
            None => self.shared.templates.find_default(&config.default_template)?,
        };
        let engine = self.engine_of(wanted.engine.as_deref(), &template).await?;
        if template.changes.is_some() {
            let moment = self.shared.templates.moment(&template.id)?;
            let plain = CreateSandbox { template: None, engine: Some(engine.to_string()), ..wanted };
            let record = self.record_from(&moment, Source::Template(template.id.clone()), plain).await?;
            return Ok((SandboxRecord { template: named.to_string(), parent: None, ..record }, template.id));
        }
        let defaults = match &template.defaults.limits {
            Some(limits) => config.default_limits.with(limits),
            None => config.default_limits.clone(),
        };
        let limits = limits_for(&defaults, &wanted, &config.host_limits)?;
        check_env(&wanted.env)?;
        check_labels(wanted.labels.iter().map(|(key, value)| (key, Some(value.as_str()))))?;
        let carried = template.defaults.capabilities.clone();
        let capabilities = config.capabilities.for_files(wanted.capabilities, carried)?;
        let services = first_services(&ServiceRecords::default(), wanted.services)?;
        let now = Timestamp::now();
        let ttl = wanted.ttl.filter(|ttl| *ttl != Span::NEVER);
        let mut env = template.defaults.env.clone();
        env.extend(wanted.env);
        let record = SandboxRecord {
            id: SandboxId::generate(),
            name,
            phase: Phase::Creating,
            state_since: now,
            created_at: now,
            engine,
            template: named.to_string(),
            template_digest: template.digest.clone(),
            ephemeral: wanted.ephemeral,
            bound_to_run: false,
            made_by: None,
            pool: None,
            generation: 1,
            parent: None,
            limits,
            idle: config.default_idle.with(&wanted.idle.unwrap_or_default()),
            ttl,
            expires_at: expiry(now, ttl)?,
            on_ttl: wanted.on_ttl.unwrap_or_default(),
            stays: false,
            auto_resume: wanted.auto_resume.unwrap_or_default(),
            port_access: wanted.port_access.unwrap_or_default(),
            labels: wanted.labels,
            env,
            services,
            network: wanted.network.unwrap_or_default(),
            capabilities: Some(capabilities),
            key: random_key(),
            slot: None,
            image: None,
            checkpoint: None,
            source: None,
            asleep_since: None,
            quiet_since: None,
            not_saved: None,
            spent: Spent::default(),
            boot: 0,
            booted_at: None,
            ports: Vec::new(),
            uid_range: self.free_uid_range().await?,
            user: template.defaults.user.clone().unwrap_or_else(|| "root".to_owned()),
            workdir: template.defaults.workdir.clone(),
            reason: None,
            tombstone: None,
        };
        Ok((record, template.id))
    }
}

/// Defaults shrink to fit a small host; what was asked for by name does not.
fn limits_for(defaults: &Limits, wanted: &CreateSandbox, host: &Limits) -> Result<Limits, HostError> {
    let limits = defaults.at_most(host);
    let limits = match &wanted.limits {
        Some(wanted) => limits.with(wanted),
        None => limits,
    };
    limits.check(host)?;
    Ok(limits)
}

/// The kernel's own limit for one string of an environment, with the `=` and the zero at its end.
const LONGEST_VARIABLE: usize = 128 * 1024;
/// All of them together leave room for arguments, and for another environment of one exec.
const LARGEST_ENVIRONMENT: usize = 256 * 1024;

pub(crate) fn check_env(env: &std::collections::BTreeMap<String, String>) -> Result<(), HostError> {
    for (key, value) in env {
        if key.is_empty() || key.contains('=') || key.contains('\0') || value.contains('\0') {
            return Err(HostError::BadRequest(format!("`{key}` is not a valid environment variable")));
        }
        // No program could ever be started with it.
        if key.len() + value.len() + 2 > LONGEST_VARIABLE {
            let message =
                format!("environment variable `{key}` has {} bytes, more than {LONGEST_VARIABLE}", value.len());
            return Err(HostError::BadRequest(message));
        }
    }
    let whole: usize = env.iter().map(|(key, value)| key.len() + value.len() + 2).sum();
    if whole > LARGEST_ENVIRONMENT {
        let message = format!("the environment has {whole} bytes, more than {LARGEST_ENVIRONMENT}");
        return Err(HostError::BadRequest(message));
    }
    Ok(())
}

pub(crate) fn check_labels<'a>(labels: impl Iterator<Item = (&'a String, Option<&'a str>)>) -> Result<(), HostError> {
    let mut count = 0;
    for (key, value) in labels {
        count += 1;
        let plain = |text: &str| text.chars().all(|c| !c.is_control() && c != ',');
        let fits = !key.is_empty()
            && key.len() <= LONGEST_LABEL
            && !key.contains('=')
            && plain(key)
            && value.is_none_or(|value| value.len() <= LONGEST_VALUE && plain(value));
        if !fits {
            return Err(HostError::BadRequest(format!("`{key}` is not a valid label")));
        }
    }
    if count > MOST_LABELS {
        return Err(HostError::BadRequest(format!("at most {MOST_LABELS} labels")));
    }
    Ok(())
}

/// 32 random bytes in hex.
pub(crate) fn random_key() -> String {
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes).expect("the kernel's random generator answers");
    roost_wire::Key::from_bytes(bytes).to_hex()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_that_no_program_can_have_is_refused() {
        let refused = |pairs: &[(&str, usize)]| {
            let env = pairs.iter().map(|(key, length)| ((*key).to_owned(), "v".repeat(*length))).collect();
            check_env(&env).err().map(|error| error.to_string())
        };
        assert_eq!(refused(&[("A", LONGEST_VARIABLE - 3), ("B", 1)]), None);
        assert!(refused(&[("A", LONGEST_VARIABLE - 2)]).unwrap().contains("`A`"));
        let large = LONGEST_VARIABLE - 3;
        assert!(refused(&[("A", large), ("B", large), ("C", 1)]).unwrap().contains("the environment"));
        assert!(refused(&[("A=", 1)]).unwrap().contains("not a valid"));
    }
}
