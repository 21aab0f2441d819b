//! Access tokens: random secrets of which only a hash is kept.

use jiff::Timestamp;
use roost_model::{MintToken, NewToken, TokenId, TokenView};

use crate::caller::Caller;
use crate::create::random_key;
use crate::host::Host;
use crate::{HostError, blocking};

const PREFIX: &str = "rst_";
const LONGEST_NAME: usize = 100;

impl Host {
    /// Makes a token; its secret is shown this once.
    pub async fn mint_token(&self, wanted: MintToken) -> Result<NewToken, HostError> {
        let name = wanted.name.trim().to_owned();
        if name.is_empty() || name.len() > LONGEST_NAME || name.chars().any(char::is_control) {
            return Err(HostError::BadRequest(format!("a token's name has 1 to {LONGEST_NAME} characters")));
        }
        wanted.access.check().map_err(|error| HostError::BadRequest(error.to_string()))?;
        let secret = format!("{PREFIX}{}", random_key());
        let token = TokenView { id: TokenId::generate(), name, created_at: Timestamp::now(), access: wanted.access };
        let (store, view, hash) = (self.store(), token.clone(), hash(&secret));
        blocking(move || store.insert_token(&view, &hash)).await?;
        Ok(NewToken { token, secret })
    }

    /// All tokens, without their secrets.
    pub async fn tokens(&self) -> Result<Vec<TokenView>, HostError> {
        let store = self.store();
        Ok(blocking(move || store.tokens()).await?)
    }

    /// Takes a token back.
    pub async fn delete_token(&self, id: &str) -> Result<(), HostError> {
        let unknown = || HostError::TokenNotFound(id.to_owned());
        let token: TokenId = id.parse().map_err(|_| unknown())?;
        let store = self.store();
        if blocking(move || store.delete_token(&token)).await? { Ok(()) } else { Err(unknown()) }
    }

    /// Whether a caller may still ask: its token may have been taken back since it came.
    pub async fn still_knows(&self, caller: &Caller) -> Result<bool, HostError> {
        match caller.token() {
            Some(id) => Ok(self.token(&id).await?.is_some()),
            None => Ok(true),
        }
    }

    /// A token by its id.
    pub(crate) async fn token(&self, id: &TokenId) -> Result<Option<TokenView>, HostError> {
        let store = self.store();
        let tokens = blocking(move || store.tokens()).await?;
        Ok(tokens.into_iter().find(|token| token.id == *id))
    }

    /// The token behind a secret, if there is one.
    pub async fn token_of(&self, secret: &str) -> Result<Option<TokenView>, HostError> {
        if !secret.starts_with(PREFIX) {
            return Ok(None);
        }
        let (store, hash) = (self.store(), hash(secret));
        Ok(blocking(move || store.token_by_hash(&hash)).await?)
    }
}

/// The secret has 256 random bits, so a plain hash is as good as a slow one.
pub(crate) fn hash(secret: &str) -> [u8; 32] {
    *blake3::hash(secret.as_bytes()).as_bytes()
}
