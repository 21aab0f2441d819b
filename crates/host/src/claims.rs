//! How many sandboxes each holder of a token or key has, those under way included.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use roost_model::Name;

use crate::HostError;
use crate::caller::Caller;
use crate::host::Host;

/// Names of sandboxes that are being made, and by whom.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    coming: Mutex<Vec<(String, Name)>>,
}

/// Room for sandboxes that are being made. By the time it is dropped they are there, or will not be.
#[derive(Debug)]
pub(crate) struct Claim {
    claims: Arc<Claims>,
    held: Vec<(String, Name)>,
}

impl Host {
    /// Takes room for sandboxes of these names, if their maker may have so many.
    pub(crate) fn claim(&self, caller: &Caller, names: &[Name]) -> Result<Option<Claim>, HostError> {
        let (Some(id), Some(_)) = (caller.id(), caller.access().at_most) else { return Ok(None) };
        // Under the lock from the count to the claim, so that two at a time do not both find the last place.
        let mut coming = self.claims.coming.lock().unwrap_or_else(PoisonError::into_inner);
        let mut theirs: HashSet<Name> =
            coming.iter().filter(|(maker, _)| maker == id).map(|(_, name)| name.clone()).collect();
        theirs.extend(self.handles().iter().map(|handle| handle.record()).filter_map(|record| {
            let counts = record.made_by.as_deref() == Some(id) && !record.phase.is_ending();
            counts.then(|| record.name.clone())
        }));
        // A name that is theirs already makes no further sandbox: it is refused, or the same request sent again.
        let more = names.iter().filter(|name| !theirs.contains(*name)).count();
        caller.allow(caller.access().may_make(more, theirs.len()))?;
        let held: Vec<(String, Name)> = names.iter().map(|name| (id.to_owned(), name.clone())).collect();
        coming.extend(held.iter().cloned());
        Ok(Some(Claim { claims: self.claims.clone(), held }))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut coming = self.claims.coming.lock().unwrap_or_else(PoisonError::into_inner);
        for one in &self.held {
            if let Some(place) = coming.iter().position(|other| other == one) {
                coming.swap_remove(place);
            }
        }
    }
}
