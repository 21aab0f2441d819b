//! The network for real: root, namespaces, a kernel. Nothing leaves the host; see [`support::World`].

mod dns;
mod isolation;
mod lifetime;
mod support;
mod traffic;
mod wall;
