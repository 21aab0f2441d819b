//! Which capabilities a new sandbox gets beyond the usual ones.
//!
//! A start from files gives the set that the caller asks for, else the set that the template or the origin carries, else the
//! daemon's default. A start from memory changes nothing: the processes in an image have the capabilities they were saved with.

use std::collections::BTreeSet;

use roost_model::{Capability, TemplateDefaults};
use roost_store::CheckpointRecord;

use crate::{CapabilityPolicy, HostError};

/// A set of capabilities; a record of a version that gave every sandbox all of them has none.
type Recorded = Option<BTreeSet<Capability>>;

impl CapabilityPolicy {
    /// Refuses capabilities that the configuration does not allow.
    pub(crate) fn check(&self, given: &BTreeSet<Capability>) -> Result<(), HostError> {
        let refused: BTreeSet<Capability> = given.difference(&self.allowed).copied().collect();
        if refused.is_empty() {
            return Ok(());
        }
        let words = Capability::show_set(&refused);
        Err(HostError::Forbidden(format!("the daemon's configuration does not allow the capabilities {words}")))
    }

    /// The capabilities of a sandbox that starts from files.
    pub(crate) fn for_files(&self, wanted: Recorded, carried: Recorded) -> Result<BTreeSet<Capability>, HostError> {
        let given = wanted.or(carried).unwrap_or_else(|| self.default.clone());
        self.check(&given)?;
        Ok(given)
    }

    /// The capabilities of a sandbox that starts from a moment; an engine with a kernel of its own can change them.
    pub(crate) fn for_moment(
        &self,
        wanted: Recorded,
        moment: &CheckpointRecord,
        own_kernel: bool,
    ) -> Result<Recorded, HostError> {
        let saved = moment.origin.capabilities.clone();
        if !moment.memory || own_kernel {
            return self.for_files(wanted, saved).map(Some);
        }
        if wanted.is_none() || wanted == saved {
            return Ok(saved);
        }
        let words = Capability::show_set(&saved.unwrap_or_else(|| Capability::ALL.into()));
        Err(HostError::BadRequest(format!(
            "that moment has memory, whose processes keep their capabilities ({words}): start from one without memory"
        )))
    }

    /// The capabilities that a template made of a moment carries. Files alone carry none: its sandboxes are new ones.
    pub(crate) fn for_template(
        &self,
        wanted: &TemplateDefaults,
        moment: &CheckpointRecord,
        own_kernel: bool,
    ) -> Result<Recorded, HostError> {
        let wanted = wanted.capabilities.clone();
        if moment.memory {
            return self.for_moment(wanted, moment, own_kernel);
        }
        wanted.iter().try_for_each(|wanted| self.check(wanted)).map(|()| wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> BTreeSet<Capability> {
        Capability::parse_set(text).unwrap()
    }

    fn policy(default: &str, allowed: &str) -> CapabilityPolicy {
        CapabilityPolicy { default: set(default), allowed: set(allowed) }
    }

    #[test]
    fn request_wins_over_template_and_template_over_default() {
        let policy = policy("net-raw", "net-admin,net-raw");
        let given = |wanted: Option<&str>, carried: Option<&str>| {
            Capability::show_set(&policy.for_files(wanted.map(set), carried.map(set)).unwrap())
        };
        assert_eq!(given(None, None), "net-raw");
        assert_eq!(given(None, Some("net-admin")), "net-admin");
        assert_eq!(given(Some("none"), Some("net-admin")), "none");
    }

    #[test]
    fn capability_outside_the_configuration_is_forbidden() {
        let policy = policy("none", "net-raw");
        assert!(policy.for_files(Some(set("net-raw")), None).is_ok());
        for (wanted, carried) in [(Some(set("net-admin,net-raw")), None), (None, Some(set("net-admin")))] {
            let refused = policy.for_files(wanted, carried).unwrap_err();
            assert_eq!(refused.code(), roost_model::ErrorCode::Forbidden);
            assert!(refused.to_string().ends_with("the capabilities net-admin"), "{refused}");
        }
    }
}
