//! Which exec or service a process belongs to.
//!
//! Each of those starts a session of its own, and what they start stays in it or below them. What left both, as daemons
//! do, belongs to nobody.

use std::collections::BTreeMap;

use super::stat::Stat;
use crate::guest::Guest;

/// The most parents that are asked; nobody has so many.
const DEEPEST: usize = 1000;

/// An exec or a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) exec: Option<String>,
    pub(crate) service: Option<String>,
    /// The first process of its session.
    pub(crate) leader: i32,
    pub(crate) started_at_ms: u64,
    /// Whether that process has not been reaped.
    pub(crate) alive: bool,
}

/// Everybody's owner at one moment.
#[derive(Debug)]
pub(super) struct Owners {
    /// By session.
    owners: BTreeMap<i32, Owner>,
    /// Parent and session of every process.
    family: BTreeMap<i32, (i32, i32)>,
}

impl Owners {
    pub(super) fn of(guest: &Guest, all: &[Stat]) -> Self {
        let owners = guest.execs.owners().into_iter().chain(guest.services.owners());
        Self::new(owners, all)
    }

    fn new(candidates: impl Iterator<Item = Owner>, all: &[Stat]) -> Self {
        let family: BTreeMap<i32, (i32, i32)> =
            all.iter().map(|process| (process.pid, (process.parent, process.session))).collect();
        let mut owners: BTreeMap<i32, Owner> = BTreeMap::new();
        for candidate in candidates {
            // The number of a session that still has somebody is not given anew: who has it now is somebody else.
            let replaced = !candidate.alive && family.contains_key(&candidate.leader);
            let younger = owners
                .get(&candidate.leader)
                .is_none_or(|known| (known.alive, known.started_at_ms) < (candidate.alive, candidate.started_at_ms));
            if candidate.leader > 0 && !replaced && younger {
                owners.insert(candidate.leader, candidate);
            }
        }
        Self { owners, family }
    }

    pub(super) fn owner_of(&self, process: &Stat) -> Option<&Owner> {
        let (mut parent, mut session) = (process.parent, process.session);
        for _ in 0..DEEPEST {
            if let Some(owner) = self.owners.get(&session) {
                return Some(owner);
            }
            (parent, session) = *self.family.get(&parent)?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32, session: i32) -> Stat {
        let name = String::new();
        Stat { pid, name, state: "S".to_owned(), parent, session, ticks: 0, threads: 1, started: 0, pages: 0 }
    }

    fn exec(id: &str, leader: i32, started_at_ms: u64, alive: bool) -> Owner {
        Owner { exec: Some(id.to_owned()), service: None, leader, started_at_ms, alive }
    }

    #[test]
    fn a_process_belongs_to_its_session_or_to_its_parents() {
        let all = [
            process(1, 0, 0),
            process(10, 1, 10),
            process(11, 10, 10),
            // Left the session, not the family.
            process(12, 11, 12),
            process(13, 12, 12),
            // Orphans, one of a session that has lost its leader, one of a session of its own.
            process(21, 1, 20),
            process(30, 1, 30),
        ];
        let owners = Owners::new([exec("a", 10, 1, true), exec("b", 20, 1, false)].into_iter(), &all);
        let found: Vec<Option<&str>> =
            all.iter().map(|process| owners.owner_of(process).and_then(|owner| owner.exec.as_deref())).collect();
        assert_eq!(found, [None, Some("a"), Some("a"), Some("a"), Some("a"), Some("b"), None]);
    }

    #[test]
    fn a_number_that_was_given_anew_is_the_younger_ones() {
        let all = [process(10, 1, 10), process(11, 10, 10)];
        let both = || [exec("old", 10, 1, false), exec("new", 10, 2, true)];
        for owners in [Owners::new(both().into_iter(), &all), Owners::new(both().into_iter().rev(), &all)] {
            assert_eq!(owners.owner_of(&all[1]).and_then(|owner| owner.exec.as_deref()), Some("new"));
        }
        // Nobody knows who has it now.
        let owners = Owners::new([exec("old", 10, 1, false)].into_iter(), &all);
        assert_eq!(owners.owner_of(&all[1]), None);
        // A circle, which a list read piece by piece can have.
        let circle = [process(5, 6, 0), process(6, 5, 0)];
        assert_eq!(Owners::new([].into_iter(), &circle).owner_of(&circle[0]), None);
    }
}
