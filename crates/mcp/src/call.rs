//! One call of a tool: for whom, and how to tell how far it has come.

use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RequestContext};
use roost_host::{Handle, Visitor};
use tokio_util::sync::CancellationToken;

use crate::answer::Failure;

/// A call under way.
pub(crate) struct Call {
    pub(crate) visitor: Visitor,
    peer: Peer<RoleServer>,
    token: Option<ProgressToken>,
    cancelled: CancellationToken,
}

impl Call {
    pub(crate) fn new(visitor: Visitor, context: &RequestContext<RoleServer>) -> Self {
        let token = context.meta.get_progress_token();
        Self { visitor, peer: context.peer.clone(), token, cancelled: context.ct.clone() }
    }

    /// A sandbox that is not gone.
    pub(crate) fn living(&self, name: &str) -> Result<Handle, Failure> {
        Ok(self.visitor.living(name)?)
    }

    /// Resolves when nobody waits for the answer any more.
    pub(crate) async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }

    /// Tells how far it has come, if somebody wants to know.
    pub(crate) async fn progress(&self, done: u64, message: String) {
        let Some(token) = &self.token else { return };
        let told = ProgressNotificationParam::new(token.clone(), done as f64).with_message(message);
        if let Err(error) = self.peer.notify_progress(told).await {
            tracing::debug!(%error, "nobody hears how far a tool has come");
        }
    }
}
