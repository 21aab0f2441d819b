//! Before and after a sleep.
//!
//! A guest needs little for either. Its memory, threads, pipes, terminals and spool files are saved as they are: spools
//! are written without a buffer of our own, and what a pump has read is memory like any other. Only the host's
//! connections lead outside, so they are closed before and dropped after.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use roost_wire::{Resumed, SetIdentity, Why};

use crate::connections::Place;
use crate::guest::Guest;
use crate::hooks::Occasion;

/// How long connections may take to close. One that is in the middle of a slow disk is left to close by itself.
const CLOSING_TIME: Duration = Duration::from_millis(100);
/// The kernel's own maker of random identifiers.
const NEW_UUID: &str = "/proc/sys/kernel/random/uuid";

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
        && let Err(error) = renew_boot_id(Path::new(&guest.config.run_dir))
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

/// Gives a fork a boot id of its own, where the engine keeps one in a file.
///
/// In place, because that very file is what `/proc/sys/kernel/random/boot_id` shows inside.
fn renew_boot_id(folder: &Path) -> io::Result<()> {
    let file = match OpenOptions::new().write(true).open(folder.join("boot_id")) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    file.write_all_at(&fs::read(NEW_UUID)?, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_boot_id_is_renewed_in_place_and_never_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("boot_id");
        renew_boot_id(folder.path()).unwrap();
        assert!(!path.exists());
        let old = fs::read_to_string(NEW_UUID).unwrap();
        fs::write(&path, &old).unwrap();
        let inode = fs::metadata(&path).unwrap().ino();
        renew_boot_id(folder.path()).unwrap();
        let new = fs::read_to_string(&path).unwrap();
        assert_eq!((new.len(), fs::metadata(&path).unwrap().ino()), (old.len(), inode));
        assert_ne!(new, old);
    }
}
