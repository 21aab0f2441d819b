//! Public keys that are let in over SSH.

use hyper::Method;
use roost_model::{AddKey, KeyView, Page};

use crate::route::Route;
use crate::{Client, ClientError};

impl Client {
    /// Lets a key in.
    pub async fn add_key(&self, key: &AddKey) -> Result<KeyView, ClientError> {
        self.send_json(Method::POST, Route::new("/v1/keys"), key, None).await?.json().await
    }

    /// The keys that are let in.
    pub async fn list_keys(&self) -> Result<Vec<KeyView>, ClientError> {
        let page: Page<KeyView> = self.get_json(Route::new("/v1/keys")).await?;
        Ok(page.items)
    }

    /// Lets a key in no more: by its id, fingerprint or name.
    pub async fn remove_key(&self, key: &str) -> Result<(), ClientError> {
        self.delete(Route::new("/v1/keys").part(key)).await
    }
}
