//! Pools: list, read, set.

use hyper::Method;
use roost_model::{Page, PoolView, SetPool};

use crate::route::Route;
use crate::{Client, ClientError};

impl Client {
    /// The pools there are.
    pub async fn list_pools(&self) -> Result<Vec<PoolView>, ClientError> {
        let page: Page<PoolView> = self.get_json(Route::new("/v1/pools")).await?;
        Ok(page.items)
    }

    /// The pool of a template with the daemon's default engine.
    pub async fn pool(&self, template: &str) -> Result<PoolView, ClientError> {
        self.get_json(Route::new("/v1/pools").part(template)).await
    }

    /// Says how many sandboxes of a template may wait.
    pub async fn set_pool(&self, template: &str, wanted: &SetPool) -> Result<PoolView, ClientError> {
        self.send_json(Method::PUT, Route::new("/v1/pools").part(template), wanted, None).await?.json().await
    }
}
