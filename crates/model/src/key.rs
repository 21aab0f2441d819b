//! Public keys that are let in over SSH.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Access, KeyId};

/// A key to let in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddKey {
    /// A line of a `.pub` file: `ssh-ed25519 AAAA… comment`.
    #[schema(
        example = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEPrZJaK3u5VTy2+pYn1NOcK36A0Obx/noocQ9Lq57Qk somebody@somewhere"
    )]
    pub public_key: String,
    /// What it is called; its comment if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it may; everything if absent.
    #[serde(default)]
    pub access: Access,
}

/// A key that is let in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyView {
    /// Its id.
    pub id: KeyId,
    /// What it is called.
    pub name: String,
    /// Its kind, as `ssh-ed25519`.
    pub algorithm: String,
    /// As `ssh-keygen -l` shows it: `SHA256:…`.
    pub fingerprint: String,
    /// Algorithm and key, as in a `.pub` file.
    pub public_key: String,
    /// What it may.
    pub access: Access,
    /// When it was let in first.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

/// Where the daemon is reached over SSH.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SshView {
    /// Address and port.
    pub address: String,
    /// The host key's fingerprint: `SHA256:…`.
    pub host_key: String,
}
