//! The daemon itself: health, doctor, tokens.

use hyper::Method;
use roost_model::{Access, DoctorReport, Doctoring, LoginLink, MintToken, NewToken, Page, SshView, TokenView};
use serde::{Deserialize, Serialize};

use crate::route::Route;
use crate::{Client, ClientError, Download};

/// What the daemon says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonInfo {
    /// Its version.
    pub version: String,
    /// Its data folder.
    pub data_dir: String,
    /// The tag that tells it from other daemons on the host.
    pub instance: String,
    /// How many sandboxes live.
    pub sandboxes: u64,
    /// Where it is reached over SSH, if it is.
    #[serde(default)]
    pub ssh: Option<SshView>,
}

/// That the daemon answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// `ok`.
    pub status: String,
    /// Its version.
    pub version: String,
}

impl Client {
    /// Whether the daemon answers; needs no token.
    pub async fn health(&self) -> Result<Health, ClientError> {
        self.get_json(Route::new("/healthz")).await
    }

    /// What the daemon says of itself.
    pub async fn info(&self) -> Result<DaemonInfo, ClientError> {
        self.get_json(Route::new("/v1/info")).await
    }

    /// What the host can do, tried as far as it shall be.
    pub async fn doctor(&self, how: Doctoring) -> Result<DoctorReport, ClientError> {
        let route = Route::new("/v1/doctor").query("prove", how != Doctoring::Look);
        self.get_json(route.query_some("measure", (how == Doctoring::Measure).then_some(true))).await
    }

    /// Metrics in the text format of Prometheus.
    pub async fn metrics(&self) -> Result<String, ClientError> {
        let text = Download::new(self.get(Route::new("/metrics")).await?).bytes().await?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Makes a token; the secret is in this answer and nowhere else.
    pub async fn mint_token(&self, name: &str) -> Result<NewToken, ClientError> {
        self.mint_limited_token(name, Access::default()).await
    }

    /// Makes a token that is good for less than everything.
    pub async fn mint_limited_token(&self, name: &str, access: Access) -> Result<NewToken, ClientError> {
        let body = MintToken { name: name.to_owned(), access };
        self.send_json(Method::POST, Route::new("/v1/tokens"), &body, None).await?.json().await
    }

    /// The tokens there are, without secrets.
    pub async fn list_tokens(&self) -> Result<Vec<TokenView>, ClientError> {
        let page: Page<TokenView> = self.get_json(Route::new("/v1/tokens")).await?;
        Ok(page.items)
    }

    /// Makes a link that logs one browser in to the page, once.
    pub async fn make_login(&self) -> Result<LoginLink, ClientError> {
        let none = serde_json::json!({});
        self.send_json(Method::POST, Route::new("/v1/logins"), &none, None).await?.json().await
    }

    /// Makes a token worthless.
    pub async fn revoke_token(&self, id: &str) -> Result<(), ClientError> {
        self.delete(Route::new("/v1/tokens").part(id)).await
    }
}
