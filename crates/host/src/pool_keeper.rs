//! Keeps pools as full as they should be, one sandbox at a time, behind everybody who waits for one.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use roost_model::{CreateSandbox, IdlePolicy, Level, Name, Span, TemplateId, chain};
use roost_store::SandboxRecord;

use crate::HostError;
use crate::blocking;
use crate::failpoint::fail_point;
use crate::handle::Handle;
use crate::host::Host;
use crate::pools::{Next, PoolKey, end, waits};

/// How long pools stand back while others make sandboxes.
const PATIENCE: Duration = Duration::from_millis(500);
/// How soon a pool tries again that could not make one.
const RETRY: Duration = Duration::from_secs(5);
/// How often targets are looked at while nobody asks: they fall by one in this time at most.
const LOOK: Duration = Duration::from_secs(2);

impl Host {
    /// Fills and empties pools until the daemon leaves.
    pub(crate) async fn keep_pools(self) {
        let leaving = self.shared.leaving.clone();
        self.find_members().await;
        while !leaving.is_cancelled() {
            let pools = &self.pools;
            let changed = pools.changed.notified();
            match pools.next(&self.template_ids()) {
                Next::Make(key) => {
                    pools.quiet(&key, PATIENCE).await;
                    let making = pools.making.lock().await;
                    let began = Instant::now();
                    // Closed meanwhile: whoever closed it relies on it that no more come.
                    let failed = if pools.is_closed() { None } else { self.make_member(&key).await.err() };
                    drop(making);
                    if let Some(error) = &failed {
                        tracing::warn!(template = key.0, error = %chain(error), "could not make one for a pool");
                    }
                    pools.made(&key, began.elapsed(), failed.map(|_| Instant::now() + RETRY));
                }
                Next::End(member) => end(&member).await,
                Next::LookAgain => tokio::select! {
                    () = leaving.cancelled() => {}
                    () = changed => {}
                    () = tokio::time::sleep(LOOK) => {}
                },
                Next::Nothing => tokio::select! {
                    () = leaving.cancelled() => {}
                    () = changed => {}
                },
            }
        }
    }

    /// The template that each name means now.
    fn template_ids(&self) -> HashMap<String, TemplateId> {
        self.shared.templates.ids()
    }

    /// Takes those over that an earlier daemon made; those that are too many or too old are ended by and by.
    async fn find_members(&self) {
        for member in self.everyone().into_iter().filter(|handle| handle.record().pool.is_some()) {
            tokio::select! {
                () = self.shared.leaving.cancelled() => return,
                () = self.adopt_member(member) => {}
            }
        }
    }

    /// Keeps a member of an earlier daemon if creates could take it; another version or configuration may have given it
    /// other capabilities.
    async fn adopt_member(&self, member: Handle) {
        let record = member.record();
        match self.record_for(member_of(&(record.template.clone(), record.engine))).await {
            Ok((now, _)) if now.capabilities != record.capabilities => end(&member).await,
            _ => self.settle_member(member).await,
        }
    }

    async fn make_member(&self, key: &PoolKey) -> Result<(), HostError> {
        let (record, template) = self.record_for(member_of(key)).await?;
        let name: Name = format!("pool-{}", record.id.as_str().trim_start_matches("sbx_")).parse()?;
        // Whoever takes it says when it sleeps and for how long it lives.
        let idle = IdlePolicy { after: Span::NEVER, to: Level::Ram, deepen_after: Span::NEVER, ignore: Vec::new() };
        let record = SandboxRecord { name, idle, ttl: None, expires_at: None, pool: Some(template), ..record };
        self.shared.pool.check_room().map_err(|error| HostError::HostFull(error.to_string()))?;
        let (store, stored) = (self.store(), record.clone());
        blocking(move || store.insert_waiting(&stored)).await?;
        fail_point("pool-stored");
        let member = self.give_birth(record, None).await?;
        fail_point("pool-born");
        self.settle_member(member).await;
        Ok(())
    }

    /// Lets one wait; ends it if that is not possible or not wanted.
    async fn settle_member(&self, member: Handle) {
        let record = member.record();
        let can_freeze = self.shared.engine(record.engine).is_ok_and(|engine| engine.capabilities().freeze);
        // Either is answered only after what an earlier daemon left has been seen to.
        let settled = if can_freeze { member.suspend(Level::Ram).await } else { member.wake().await };
        if let Err(error) = settled {
            tracing::warn!(sandbox = %member.id(), %error, "one that should wait in a pool cannot");
        }
        // One that has to be started is worth nothing.
        if !waits(member.record().phase) {
            return end(&member).await;
        }
        let key = (record.template.clone(), record.engine);
        if let Some(unwanted) = self.pools.add(&key, member) {
            end(&unwanted).await;
        }
    }
}

/// The request by which members of a pool are made.
fn member_of(key: &PoolKey) -> CreateSandbox {
    CreateSandbox { template: Some(key.0.clone()), engine: Some(key.1.as_str().to_owned()), ..CreateSandbox::default() }
}
