//! Browsers that have logged in.
//!
//! ```text
//!   roost open --code (once, five minutes)--+
//!                                           +--> session (a cookie, a week) --log out, end, token taken back--> over
//!   the secret of a token ------------------+
//! ```
//!
//! A session has the rights of whom it came from, for as long as that has them. Codes are remembered by this process
//! alone: they are worth less than the start of a daemon. Sessions are in the store, by the hashes of their secrets.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use roost_model::{LoginLink, TokenId, TokenView};
use roost_store::SessionRecord;

use crate::create::random_key;
use crate::host::Host;
use crate::tokens::hash;
use crate::{HostError, blocking};

/// What stands before the code in a link. It is a fragment, so that the code is in no log, and nothing that looks at
/// links ahead of people uses it up.
pub const LOGIN_FRAGMENT: &str = "login=";

const CODE_TIME: SignedDuration = SignedDuration::from_mins(5);
const SESSION_TIME: SignedDuration = SignedDuration::from_hours(7 * 24);
/// More than anybody has open; older ones make room.
const MOST_CODES: usize = 100;
const PREFIX: &str = "rss_";

/// A browser that has logged in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// The token that it came with; nothing if it came from the owner of the socket.
    pub token: Option<TokenView>,
    /// When it is over.
    pub expires_at: Timestamp,
}

impl Session {
    /// How long it is still good for.
    pub fn left(&self) -> Duration {
        self.expires_at.duration_since(Timestamp::now()).try_into().unwrap_or_default()
    }
}

/// Codes that were not used yet, by their hashes.
#[derive(Debug, Default)]
pub(crate) struct Logins {
    codes: Mutex<HashMap<[u8; 32], SessionRecord>>,
}

impl Logins {
    fn add(&self, code: &str, whose: SessionRecord, now: Timestamp) {
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        codes.retain(|_, code| code.expires_at > now);
        if codes.len() >= MOST_CODES
            && let Some(oldest) = codes.iter().min_by_key(|(_, code)| code.expires_at).map(|(hash, _)| *hash)
        {
            codes.remove(&oldest);
        }
        codes.insert(hash(code), whose);
    }

    /// Uses a code up.
    fn take(&self, code: &str, now: Timestamp) -> Option<SessionRecord> {
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        codes.remove(&hash(code)).filter(|code| code.expires_at > now)
    }
}

impl Host {
    /// Makes a link that logs one browser in, once, with the rights of a token or of the owner.
    pub fn make_login(&self, token: Option<&TokenId>) -> LoginLink {
        let code = random_key();
        let now = Timestamp::now();
        let expires_at = now + CODE_TIME;
        self.shared.logins.add(&code, SessionRecord { token: token.cloned(), expires_at }, now);
        let path = format!("/#{LOGIN_FRAGMENT}{code}");
        let url = self.config().domain.as_ref().map(|domain| format!("{}{path}", domain.own_url()));
        LoginLink { url, path, expires_at }
    }

    /// Logs in with the code of a link, which is used up by it.
    pub async fn log_in_by_code(&self, code: &str) -> Result<(Session, String), HostError> {
        let refused = || HostError::Forbidden("this link was used, has expired, or is not of this daemon".to_owned());
        let code = self.shared.logins.take(code, Timestamp::now()).ok_or_else(refused)?;
        let token = match &code.token {
            Some(id) => Some(self.token(id).await?.ok_or_else(refused)?),
            None => None,
        };
        self.begin_session(token).await
    }

    /// Logs in with the secret of a token.
    pub async fn log_in_by_token(&self, secret: &str) -> Result<(Session, String), HostError> {
        let token = self.token_of(secret.trim()).await?;
        let token = token.ok_or_else(|| HostError::Forbidden("this token is not valid".to_owned()))?;
        self.begin_session(Some(token)).await
    }

    async fn begin_session(&self, token: Option<TokenView>) -> Result<(Session, String), HostError> {
        let secret = format!("{PREFIX}{}", random_key());
        let now = Timestamp::now();
        let session = Session { token, expires_at: now + SESSION_TIME };
        let record = SessionRecord {
            token: session.token.as_ref().map(|token| token.id.clone()),
            expires_at: session.expires_at,
        };
        let (store, hash) = (self.store(), hash(&secret));
        blocking(move || store.insert_session(&record, &hash, now)).await?;
        Ok((session, secret))
    }

    /// The session behind a secret, if there is one that is not over.
    pub async fn session_of(&self, secret: &str) -> Result<Option<Session>, HostError> {
        if !secret.starts_with(PREFIX) {
            return Ok(None);
        }
        let (store, hash) = (self.store(), hash(secret));
        let record = blocking(move || store.session_by_hash(&hash)).await?;
        let Some(record) = record.filter(|record| record.expires_at > Timestamp::now()) else { return Ok(None) };
        let token = match &record.token {
            // One that was taken back took its sessions with it.
            Some(id) => match self.token(id).await? {
                Some(token) => Some(token),
                None => return Ok(None),
            },
            None => None,
        };
        Ok(Some(Session { token, expires_at: record.expires_at }))
    }

    /// Ends a session; one that is over already is no error.
    pub async fn log_out(&self, secret: &str) -> Result<(), HostError> {
        let (store, hash) = (self.store(), hash(secret));
        blocking(move || store.delete_session(&hash)).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn until(second: i64) -> SessionRecord {
        SessionRecord { token: None, expires_at: at(second) }
    }

    #[test]
    fn a_code_is_good_once_and_for_its_time() {
        let logins = Logins::default();
        logins.add("one", until(300), at(0));
        logins.add("late", until(300), at(0));
        assert_eq!(logins.take("other", at(1)), None);
        assert_eq!(logins.take("one", at(1)), Some(until(300)));
        assert_eq!(logins.take("one", at(1)), None);
        assert_eq!(logins.take("late", at(300)), None);
    }

    #[test]
    fn codes_do_not_pile_up() {
        let logins = Logins::default();
        for number in 0..i64::try_from(MOST_CODES).unwrap() + 5 {
            logins.add(&number.to_string(), until(1000 + number), at(0));
        }
        assert_eq!(logins.codes.lock().unwrap().len(), MOST_CODES);
        assert_eq!(logins.take("0", at(1)), None, "the oldest made room");
        assert!(logins.take("104", at(1)).is_some());
        logins.add("new", until(9000), at(5000));
        assert_eq!(logins.codes.lock().unwrap().len(), 1, "those that are over are forgotten");
    }
}
