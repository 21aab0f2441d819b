//! Before and after a sleep.
//!
//! A guest needs little for either. Its memory, threads, pipes, terminals and spool files are saved as they are: spools
//! are written without a buffer of our own, and what a pump has read is memory like any other. Only the host's
//! connections lead outside, so they are closed before and dropped after.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use roost_wire::{Resumed, SetIdentity, Why};

use crate::boot_id;
use crate::connections::Place;
use crate::guest::Guest;
use crate::hooks::Occasion;

/// How long connections may take to close. One that is in the middle of a slow disk is left to close by itself.
const CLOSING_TIME: Duration = Duration::from_millis(100);

/// Closes every connection but the caller's.
pub(crate) fn quiesce(guest: &Guest, own: &Place) {
    guest.connections.close_others(own, CLOSING_TIME);
}

/// Takes the new identity and has the hooks run.
pub(crate) fn resumed(guest: &Arc<Guest>, own: &Place, resumed: Resumed) {
    if resumed.from_image {
        guest.connections.close_others(own, CLOSING_TIME);
    }
    // Before the generation: whoever watches that finds the rest changed.
    if resumed.why == Why::Fork
        && let Err(error) = boot_id::renew(Path::new(&guest.config.run_dir))
    {
        eprintln!("roost-guest: failed to renew the boot id: {error}");
    }
    let occasion = Occasion {
        why: resumed.why,
        id: resumed.id.clone(),
        name: resumed.name.clone(),
        generation: resumed.generation,
        asleep_ms: resumed.asleep_ms,
    };
    guest.set_identity(SetIdentity {
        name: Some(resumed.name),
        hostname: Some(resumed.hostname),
        id: Some(resumed.id),
        generation: Some(resumed.generation),
        key: resumed.key,
        env: resumed.env,
        place: resumed.place,
    });
    if let Err(failure) = guest.services.set(guest, resumed.services) {
        eprintln!("roost-guest: failed to take the services: {}", failure.message);
    }
    // After the identity: whoever is answered now finds itself as it is.
    guest.calls.resumed(resumed.why, resumed.from_image);
    guest.hooks.run(guest, occasion);
}
