//! Slots: the numbers that give each sandbox a place of its own in the router.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// The address that every sandbox has.
pub const INSIDE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// The address every sandbox sends to: the router, which also answers DNS there.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

/// The highest slot number.
///
/// Far above [`MOST_SLOTS`], because numbers go round: connection tracking remembers an address for
/// a while after its slot is gone, and a successor must not get its predecessor's answers.
const LAST: u32 = 65_534;
/// How many slots may be in use at once; the packet filter's map has this size.
pub const MOST_SLOTS: usize = 8190;

/// The number of a slot is counted from here.
const FIRST_ADDRESS: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 0);

/// Link indexes of slots in the router start here, so that they need not be asked for.
const INDEX_BASE: u32 = 1000;

/// What a sandbox may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// The internet and DNS.
    Internet,
    /// Nothing; it can only answer the daemon.
    DaemonOnly,
}

/// A place in the router: one device, one unique address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slot(pub u32);

impl Slot {
    /// The address by which the router and the daemon know the sandbox (100.64.0.0/11).
    pub fn address(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(FIRST_ADDRESS.to_bits() + self.0)
    }

    /// The slot with this address, if one has it.
    pub(crate) fn from_address(address: Ipv4Addr) -> Option<Self> {
        let number = address.to_bits().checked_sub(FIRST_ADDRESS.to_bits())?;
        Some(Self(number)).filter(|slot| slot.is_valid())
    }

    /// The name of the router's end of the sandbox's link.
    pub fn device(self) -> String {
        format!("s{}", self.0)
    }

    /// Whether the number is one that [`Pool`] gives out.
    pub(crate) fn is_valid(self) -> bool {
        (1..=LAST).contains(&self.0)
    }

    /// The link index of that device.
    pub(crate) fn index(self) -> u32 {
        INDEX_BASE + self.0
    }

    /// The slot of a link index, if it is one.
    pub(crate) fn from_index(index: u32) -> Option<Self> {
        index.checked_sub(INDEX_BASE).map(Self).filter(|slot| slot.is_valid())
    }
}

/// All slots are taken.
#[derive(Debug, thiserror::Error)]
#[error("all {most} network slots are in use")]
pub struct NoSlot {
    most: usize,
}

/// Gives out slot numbers, round and round.
#[derive(Debug)]
pub(crate) struct Pool {
    taken: HashSet<Slot>,
    most: usize,
    last: u32,
}

impl Pool {
    /// Starts at a random place, so that a new daemon does not repeat the numbers of the last one.
    pub(crate) fn new(taken: impl IntoIterator<Item = Slot>, most: usize) -> Self {
        let random = RandomState::new().hash_one(std::process::id());
        Self { taken: taken.into_iter().collect(), most: most.min(MOST_SLOTS), last: random as u32 % LAST }
    }

    /// Whether there is one to give out.
    pub(crate) fn check(&self) -> Result<(), NoSlot> {
        // What an earlier daemon gave out stays, also where that was more.
        if self.taken.len() < self.most { Ok(()) } else { Err(NoSlot { most: self.most }) }
    }

    pub(crate) fn allocate(&mut self) -> Result<Slot, NoSlot> {
        self.check()?;
        loop {
            self.last = self.last % LAST + 1;
            if self.taken.insert(Slot(self.last)) {
                return Ok(Slot(self.last));
            }
        }
    }

    pub(crate) fn release(&mut self, slot: Slot) {
        self.taken.remove(&slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_unique_and_inside_the_range() {
        assert_eq!(Slot(1).address(), Ipv4Addr::new(100, 64, 0, 1));
        assert_eq!(Slot(257).address(), Ipv4Addr::new(100, 64, 1, 1));
        assert_eq!(Slot(LAST).address(), Ipv4Addr::new(100, 64, 255, 254));
        assert_eq!(Slot::from_address(Slot(257).address()), Some(Slot(257)));
        assert_eq!(Slot::from_address(Slot(LAST + 1).address()), None);
        assert_eq!(Slot::from_address(FIRST_ADDRESS), None);
        assert_eq!(Slot::from_address(GATEWAY), None);
        assert!(Slot(LAST).device().len() < libc::IFNAMSIZ);
        assert_eq!(Slot::from_index(Slot(17).index()), Some(Slot(17)));
        assert_eq!(Slot::from_index(2), None);
        assert_eq!(Slot::from_index(INDEX_BASE), None);
    }

    #[test]
    fn a_released_slot_comes_back_last() {
        let mut pool = Pool::new([], MOST_SLOTS);
        let first = pool.allocate().unwrap();
        pool.release(first);
        let seen: HashSet<_> = (1..LAST)
            .map(|_| {
                let slot = pool.allocate().unwrap();
                pool.release(slot);
                slot
            })
            .collect();
        assert_eq!(seen.len() as u32, LAST - 1);
        assert!(!seen.contains(&first));
        assert_eq!(pool.allocate().unwrap(), first);
    }

    #[test]
    fn a_full_pool_says_so_and_recovers() {
        let mut pool = Pool::new([Slot(5)], usize::MAX);
        let mut slots: Vec<_> = std::iter::from_fn(|| pool.allocate().ok()).collect();
        assert_eq!(slots.len(), MOST_SLOTS - 1);
        assert!(!slots.contains(&Slot(5)));
        pool.release(slots.pop().unwrap());
        assert!(pool.allocate().is_ok());
        assert!(pool.allocate().is_err());
    }

    #[test]
    fn there_may_be_fewer_than_were_given_out_before() {
        let mut pool = Pool::new([Slot(5), Slot(6), Slot(7)], 2);
        assert_eq!(pool.allocate().unwrap_err().to_string(), "all 2 network slots are in use");
        pool.release(Slot(5));
        assert!(pool.allocate().is_err());
        pool.release(Slot(6));
        assert!(pool.allocate().is_ok());
        assert!(pool.allocate().is_err());
    }
}
