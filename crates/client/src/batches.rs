//! Batches: run many commands, follow their results.

use hyper::Method;
use roost_model::{BatchView, CreateBatch, Page, TaskResult};

use crate::answer::parse;
use crate::route::Route;
use crate::sse::Lines;
use crate::{Client, ClientError};

/// Results of a batch as they come.
#[derive(Debug)]
pub struct BatchResults {
    lines: Lines,
}

impl BatchResults {
    /// The next result; nothing at the end. Safe to cancel.
    pub async fn next(&mut self) -> Result<Option<TaskResult>, ClientError> {
        while let Some(line) = self.lines.next().await? {
            if !line.is_empty() {
                return parse(self.lines.attempt(), &line).map(Some);
            }
        }
        Ok(None)
    }
}

fn batch(id: &str) -> Route {
    Route::new("/v1/batches").part(id)
}

impl Client {
    /// Runs a batch; with a key, one that was made with the same key is returned as it is.
    pub async fn create_batch(&self, wanted: &CreateBatch, key: Option<&str>) -> Result<BatchView, ClientError> {
        self.send_json(Method::POST, Route::new("/v1/batches"), wanted, key).await?.json().await
    }

    /// The batches there are.
    pub async fn list_batches(&self) -> Result<Vec<BatchView>, ClientError> {
        let page: Page<BatchView> = self.get_json(Route::new("/v1/batches")).await?;
        Ok(page.items)
    }

    /// One batch.
    pub async fn batch(&self, id: &str) -> Result<BatchView, ClientError> {
        self.get_json(batch(id)).await
    }

    /// Ends what runs of a batch; it can be resumed.
    pub async fn cancel_batch(&self, id: &str) -> Result<BatchView, ClientError> {
        self.plain(Method::POST, batch(id).part("cancel")).await?.json().await
    }

    /// Goes on with a batch that was cancelled.
    pub async fn resume_batch(&self, id: &str) -> Result<BatchView, ClientError> {
        self.plain(Method::POST, batch(id).part("resume")).await?.json().await
    }

    /// Ends a batch and forgets it with its results.
    pub async fn delete_batch(&self, id: &str) -> Result<(), ClientError> {
        self.delete(batch(id)).await
    }

    /// The results of a batch after the first `after`; with `follow`, until it has ended.
    pub async fn batch_results(&self, id: &str, after: u64, follow: bool) -> Result<BatchResults, ClientError> {
        let route = batch(id).part("results").query("after", after).query("follow", follow);
        Ok(BatchResults { lines: Lines::new(self.get(route).await?) })
    }
}
