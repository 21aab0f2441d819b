//! Changes of a sandbox's services, as they are remembered. Decides only.

use std::collections::BTreeMap;

use roost_lifecycle::check_services;
use roost_model::{Name, ServiceSpec};
use roost_store::{ServiceRecord, ServiceRecords};
use roost_wire::GUEST_PORT;

use crate::HostError;

/// What can be changed about services.
#[derive(Debug)]
pub(crate) enum ServiceChange {
    /// Have this one, new or in the place of one of its name.
    Put(Name, Box<ServiceSpec>),
    /// Have it no more.
    Remove(Name),
    /// Somebody stopped it, or started it again.
    Stopped(Name, bool),
}

/// The services after a change; none if it changes nothing.
pub(super) fn changed(before: &ServiceRecords, change: ServiceChange) -> Result<Option<ServiceRecords>, HostError> {
    let mut after = before.clone();
    match change {
        ServiceChange::Put(name, spec) => {
            let stopped = before.by_name.get(&name).is_some_and(|service| service.stopped);
            after.by_name.insert(name, ServiceRecord { spec: *spec, stopped });
        }
        ServiceChange::Remove(name) => {
            let mut others = before.by_name.iter();
            if let Some((other, _)) =
                others.find(|(other, service)| **other != name && service.spec.needs.contains(&name))
            {
                return Err(HostError::Conflict(format!("service `{other}` needs `{name}`")));
            }
            after.by_name.remove(&name);
        }
        ServiceChange::Stopped(name, stopped) => {
            if let Some(service) = after.by_name.get_mut(&name) {
                service.stopped = stopped;
            }
        }
    }
    if after == *before {
        return Ok(None);
    }
    check_services(&after.specs(), GUEST_PORT)?;
    after.revision += 1;
    Ok(Some(after))
}

/// The services of a new sandbox: those it inherits and those it is given.
pub(crate) fn first_services(
    inherited: &ServiceRecords,
    given: BTreeMap<Name, ServiceSpec>,
) -> Result<ServiceRecords, HostError> {
    let mut services = inherited.clone();
    if given.is_empty() {
        return Ok(services);
    }
    let given = given.into_iter().map(|(name, spec)| (name, ServiceRecord { spec, stopped: false }));
    services.by_name.extend(given);
    services.revision += 1;
    check_services(&services.specs(), GUEST_PORT)?;
    Ok(services)
}

#[cfg(test)]
mod tests {
    use roost_model::ErrorCode;

    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn spec(needs: &[&str]) -> ServiceSpec {
        let needs = needs.iter().map(|need| name(need)).collect();
        ServiceSpec { shell: Some("serve".into()), needs, ..ServiceSpec::default() }
    }

    fn put(before: &ServiceRecords, text: &str, needs: &[&str]) -> Result<Option<ServiceRecords>, HostError> {
        changed(before, ServiceChange::Put(name(text), Box::new(spec(needs))))
    }

    #[test]
    fn changes_grow_the_revision_and_nothing_else_does() {
        let first = put(&ServiceRecords::default(), "db", &[]).unwrap().unwrap();
        let second = put(&first, "web", &["db"]).unwrap().unwrap();
        assert_eq!((first.revision, second.revision), (1, 2));
        assert!(put(&second, "web", &["db"]).unwrap().is_none());
        let stopped = changed(&second, ServiceChange::Stopped(name("web"), true)).unwrap().unwrap();
        // A new definition does not start what was stopped.
        let again = put(&stopped, "web", &[]).unwrap().unwrap();
        assert!(again.by_name[&name("web")].stopped);
        assert!(changed(&again, ServiceChange::Stopped(name("web"), true)).unwrap().is_none());
        assert!(changed(&again, ServiceChange::Stopped(name("nope"), true)).unwrap().is_none());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let both = put(&put(&ServiceRecords::default(), "db", &[]).unwrap().unwrap(), "web", &["db"]).unwrap().unwrap();
        let needed = changed(&both, ServiceChange::Remove(name("db"))).unwrap_err();
        assert_eq!((needed.code(), needed.to_string()), (ErrorCode::Conflict, "service `web` needs `db`".to_owned()));
        assert_eq!(put(&both, "db", &["web"]).unwrap_err().code(), ErrorCode::BadRequest);
        assert_eq!(put(&both, "x", &["nope"]).unwrap_err().code(), ErrorCode::BadRequest);
        let many = (0..64).map(|number| (name(&format!("s{number}")), spec(&[]))).collect();
        let full = first_services(&ServiceRecords::default(), many).unwrap();
        assert_eq!(put(&full, "one-more", &[]).unwrap_err().code(), ErrorCode::LimitExceeded);
    }
}
