//! Checkpoints: make, list, read, compare, remove, go back to.

use hyper::Method;
use roost_model::{CheckpointDiff, CheckpointView, CreateCheckpoint, Page, Receipt, Restore};
use serde::{Deserialize, Serialize};

use crate::route::Route;
use crate::{Client, ClientError};

/// A checkpoint that has just been made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewCheckpoint {
    /// The checkpoint.
    pub checkpoint: CheckpointView,
    /// What it kept and what it took.
    pub receipt: Receipt,
}

fn checkpoints(sandbox: &str) -> Route {
    Route::sandbox(sandbox).part("checkpoints")
}

impl Client {
    /// Keeps the moment a sandbox is in; the sandbox goes on.
    pub async fn create_checkpoint(
        &self,
        sandbox: &str,
        wanted: &CreateCheckpoint,
    ) -> Result<NewCheckpoint, ClientError> {
        self.send_json(Method::POST, checkpoints(sandbox), wanted, None).await?.json().await
    }

    /// The checkpoints of a sandbox, oldest first, also of one that is gone.
    pub async fn list_checkpoints(&self, sandbox: &str) -> Result<Vec<CheckpointView>, ClientError> {
        let page: Page<CheckpointView> = self.get_json(checkpoints(sandbox)).await?;
        Ok(page.items)
    }

    /// One checkpoint, by id or unique start of an id, whichever sandbox it is of.
    pub async fn checkpoint(&self, checkpoint: &str) -> Result<CheckpointView, ClientError> {
        self.get_json(Route::new("/v1/checkpoints").part(checkpoint)).await
    }

    /// One checkpoint of a sandbox, by id or unique start of an id.
    pub async fn checkpoint_of(&self, sandbox: &str, checkpoint: &str) -> Result<CheckpointView, ClientError> {
        self.get_json(checkpoints(sandbox).part(checkpoint)).await
    }

    /// Removes a checkpoint of a sandbox; nothing that started from it is harmed.
    pub async fn delete_checkpoint(&self, sandbox: &str, checkpoint: &str) -> Result<(), ClientError> {
        self.delete(checkpoints(sandbox).part(checkpoint)).await
    }

    /// What changed from a checkpoint of a sandbox to another one, which may be of another sandbox.
    pub async fn diff_checkpoints(&self, sandbox: &str, from: &str, to: &str) -> Result<CheckpointDiff, ClientError> {
        self.get_json(checkpoints(sandbox).part(from).part("diff").part(to)).await
    }

    /// Takes a sandbox back to a checkpoint; what that replaces is kept as an automatic checkpoint.
    pub async fn restore_sandbox(&self, sandbox: &str, wanted: &Restore) -> Result<Receipt, ClientError> {
        self.send_json(Method::POST, Route::sandbox(sandbox).part("restore"), wanted, None).await?.json().await
    }
}
