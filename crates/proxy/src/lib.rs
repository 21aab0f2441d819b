//! Ports of sandboxes on the outside: HTTP/1.1, WebSockets and anything else that upgrades, and plain TCP.
//!
//! A request's way is `access -> wake -> dial -> forward`. Who may pass is decided before anything is woken; a request to
//! a sleeping sandbox is held until it is awake and its port accepts; bodies pass through piece by piece. What is Roost's
//! own (tokens, cookies, links) stays here, and never reaches the sandbox.
#![forbid(unsafe_code)]

mod access;
mod answer;
mod cookies;
mod exchange;
mod guard;
mod headers;
mod kept;
mod origin;
mod proxy;
mod refusal;
mod secrets;
mod standing;
mod target;

pub use cookies::{SECURE_SESSION_COOKIE, SESSION_COOKIE, cookie_of};
pub use headers::came_by_tls;
pub use proxy::{Peer, Proxy};
pub use refusal::Refusal;
pub use standing::Standing;
pub use target::{Target, Trust};
