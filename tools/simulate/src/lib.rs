//! The pure core under a clock that costs nothing: years of life of thousands of sandboxes in seconds.
//!
//! Two questions are asked. **Does it hold?** Lives with a daemon that dies at every persist and effect, a host that is
//! rebooted and engines that fail must lose nothing that is promised ([`world`]). **Is it worth it?** Lives on modelled
//! traces under several settings tell what each costs: hours awake for nobody, memory held, waits ([`figures`]).
#![forbid(unsafe_code)]

pub mod crowd;
pub mod figures;
pub mod life;
pub mod plot;
pub mod pools;
pub mod random;
pub mod report;
pub mod trace;
pub mod world;
