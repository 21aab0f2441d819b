//! Copying between here and a sandbox.

pub(crate) mod channel;
pub(crate) mod download;
pub(crate) mod pack;
pub(crate) mod spec;
pub(crate) mod unpack;
pub(crate) mod upload;
