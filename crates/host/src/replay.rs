//! The same request once more: who has not heard the answer gets it again.

use roost_model::{SandboxId, State};
use roost_store::IdempotencyKey;

use crate::handle::Handle;
use crate::host::Host;
use crate::{HostError, blocking};

impl Host {
    /// The sandbox that an earlier request of this key has made.
    ///
    /// Looked for before anything is asked of the host: what is there needs no room, and who lost the answer has no other
    /// way to find it.
    pub(crate) async fn made_before(&self, key: Option<&IdempotencyKey>) -> Result<Option<Handle>, HostError> {
        let Some(key) = key.cloned() else { return Ok(None) };
        let store = self.store();
        match blocking(move || store.made_before(&key)).await? {
            Some(id) => self.made(&id).await.map(Some),
            None => Ok(None),
        }
    }

    /// The sandbox that another request makes or has made, once it is there.
    pub(crate) async fn made(&self, id: &SandboxId) -> Result<Handle, HostError> {
        let handle = loop {
            let next = self.arrivals.notified();
            match self.by_id(id) {
                // It is stored and has no actor yet, or no longer because the daemon leaves.
                Err(HostError::Terminated(found)) if found.state != State::Terminated => tokio::select! {
                    () = next => {}
                    () = self.shared.leaving.cancelled() => return Err(HostError::Terminated(found)),
                },
                found => break found?,
            }
        };
        handle.born().await;
        handle.living()?;
        Ok(handle)
    }
}
