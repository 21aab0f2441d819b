//! Public keys that are let in over SSH, and what each may reach.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use jiff::Timestamp;
use roost_model::{AddKey, KeyId, KeyView, Reach};
use sha2::{Digest, Sha256};

use crate::caller::Caller;
use crate::host::Host;
use crate::{HostError, blocking};

const LONGEST_NAME: usize = 100;
const KNOWN: [&str; 7] = [
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "ssh-rsa",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
];

impl From<&KeyView> for Caller {
    fn from(key: &KeyView) -> Self {
        Self::holder("key", key.id.as_str(), key.access.clone())
    }
}

impl Host {
    /// Lets a key in; one that is let in already keeps its id and gets the new name and access.
    pub async fn add_key(&self, wanted: AddKey) -> Result<KeyView, HostError> {
        let line = parse(&wanted.public_key)?;
        wanted.access.check().map_err(|error| HostError::BadRequest(error.to_string()))?;
        let mut access = wanted.access;
        if let Reach::Sandbox(one) = &access.reach {
            // By its id: whoever makes another of the same name later did not let this key in.
            access.reach = Reach::Sandbox(self.find(one)?.id().to_string());
        }
        let name = wanted.name.or(line.comment).unwrap_or_else(|| "key".to_owned()).trim().to_owned();
        if name.is_empty() || name.len() > LONGEST_NAME || name.chars().any(char::is_control) {
            return Err(HostError::BadRequest(format!("a key's name has 1 to {LONGEST_NAME} characters")));
        }
        let mut key = KeyView {
            id: KeyId::generate(),
            name,
            algorithm: line.algorithm,
            fingerprint: line.fingerprint,
            public_key: line.text,
            access,
            created_at: Timestamp::now(),
        };
        let store = self.store();
        blocking(move || {
            if let Some(before) = store.key_by_fingerprint(&key.fingerprint)? {
                (key.id, key.created_at) = (before.id, before.created_at);
            }
            store.put_key(&key)?;
            Ok(key)
        })
        .await
    }

    /// Every key that is let in, oldest first.
    pub async fn keys(&self) -> Result<Vec<KeyView>, HostError> {
        let store = self.store();
        Ok(blocking(move || store.keys()).await?)
    }

    /// Lets a key in no more: by its id, its fingerprint or its name.
    pub async fn delete_key(&self, text: &str) -> Result<KeyView, HostError> {
        let unknown = || HostError::KeyNotFound(text.to_owned());
        let keys = self.keys().await?;
        let exact = keys.iter().find(|key| key.id.as_str() == text || key.fingerprint == text);
        let found = match exact {
            Some(key) => key,
            None => {
                let mut named = keys.iter().filter(|key| key.name == text);
                let first = named.next().ok_or_else(unknown)?;
                if named.next().is_some() {
                    return Err(HostError::Conflict(format!("several keys are named `{text}`: give an id")));
                }
                first
            }
        };
        let (store, id) = (self.store(), found.id.clone());
        if blocking(move || store.delete_key(&id)).await? { Ok(found.clone()) } else { Err(unknown()) }
    }

    /// The key with these bytes, if it is let in.
    pub async fn key_of(&self, public_key: &[u8]) -> Result<Option<KeyView>, HostError> {
        let (store, fingerprint) = (self.store(), fingerprint(public_key));
        Ok(blocking(move || store.key_by_fingerprint(&fingerprint)).await?)
    }
}

fn fingerprint(bytes: &[u8]) -> String {
    format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(bytes)))
}

/// A line of a `.pub` file, understood.
#[derive(Debug, PartialEq, Eq)]
struct PublicKey {
    algorithm: String,
    fingerprint: String,
    /// Algorithm and key, without the comment.
    text: String,
    comment: Option<String>,
}

fn parse(line: &str) -> Result<PublicKey, HostError> {
    let bad = |problem: &str| HostError::BadRequest(problem.to_owned());
    let line = line.trim();
    if line.contains("PRIVATE KEY") {
        return Err(bad("this is a private key, which nobody else should see: give the file that ends in .pub"));
    }
    if line.lines().count() > 1 {
        return Err(bad("give one key at a time"));
    }
    let mut words = line.split_ascii_whitespace();
    let (Some(algorithm), Some(encoded)) = (words.next(), words.next()) else {
        return Err(bad("this is no public key: a line of a .pub file looks like `ssh-ed25519 AAAA… name`"));
    };
    if !KNOWN.contains(&algorithm) {
        return Err(HostError::BadRequest(format!("keys of kind `{algorithm}` are not known: {}", KNOWN.join(", "))));
    }
    let damaged = || bad("this public key is damaged: copy the whole line of the .pub file");
    let bytes = STANDARD.decode(encoded).map_err(|_| damaged())?;
    let (length, rest) = bytes.split_first_chunk::<4>().ok_or_else(damaged)?;
    let named = rest.get(..u32::from_be_bytes(*length) as usize).ok_or_else(damaged)?;
    if named != algorithm.as_bytes() {
        return Err(damaged());
    }
    let comment: String = words.collect::<Vec<_>>().join(" ");
    Ok(PublicKey {
        algorithm: algorithm.to_owned(),
        fingerprint: fingerprint(&bytes),
        text: format!("{algorithm} {encoded}"),
        comment: Some(comment).filter(|comment| !comment.is_empty()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB9dG4kjRhQTtWTVzd2t27+t0DEHBPW7iOD23TUiYLio";

    #[test]
    fn a_line_of_a_file_is_understood() {
        let key = parse(&format!("  {KEY} anna@laptop  work \n")).unwrap();
        assert_eq!((key.algorithm.as_str(), key.comment.as_deref()), ("ssh-ed25519", Some("anna@laptop work")));
        assert_eq!(key.text, KEY);
        assert!(key.fingerprint.starts_with("SHA256:") && key.fingerprint.len() == 50, "{}", key.fingerprint);
        assert_eq!(parse(KEY).unwrap().comment, None);
    }

    #[test]
    fn what_is_no_public_key_is_told_so() {
        let said = |line: &str| parse(line).unwrap_err().to_string();
        assert!(said("-----BEGIN OPENSSH PRIVATE KEY-----\nabc").contains("private key"));
        assert!(said("hello").contains("no public key"));
        assert!(said("ssh-dss AAAA").contains("not known"));
        assert!(said("ssh-ed25519 AAAAC3Nz").contains("damaged"));
        assert!(said(&KEY.replace("ssh-ed25519 ", "ssh-rsa ")).contains("damaged"));
        assert!(said(&format!("{KEY}\n{KEY}")).contains("one key"));
    }
}
