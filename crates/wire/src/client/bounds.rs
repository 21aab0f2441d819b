//! Bounds on what one call, and all calls together, collect from guests.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::{ExecInfo, FileStat, ProcessInfo, WatchEvent};

use super::CallError;

/// Memory that an allocation takes besides its content.
const ALLOCATION: usize = 16;
/// Memory that a pair of short texts takes in a map besides its content.
const PAIR: usize = 64;
/// A reply of this many bytes leaves memory behind that is worth giving back.
const LARGE: usize = 4 << 20;
/// Bytes of each call that count for no [`Room`], so that small lists are had whatever else goes on.
const FREE: usize = 256 << 10;

/// The most that one call collects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The collected things, for people.
    pub what: &'static str,
    /// Most of them.
    pub count: usize,
    /// Most bytes of memory that they take.
    pub bytes: usize,
    /// Longest time from the first to the last of them.
    pub time: Duration,
}

impl Limits {
    /// Execs that a guest remembers: it has at most 1 024 running and forgets ended ones after some thousand.
    pub const EXECS: Self = Self::collected("execs", 65_536);
    /// Processes: a sandbox has 4 096 by default.
    pub const PROCESSES: Self = Self::collected("processes", 65_536);
    /// Entries of folders that are answered in one piece; with names of usual length the bytes are reached first.
    pub const ENTRIES: Self = Self::collected("entries", 100_000);
    /// Entries of folders that are passed on as they come: they take no memory here, and a client wants an end.
    pub const PASSED_ENTRIES: Self =
        Self { what: "entries", count: 1_000_000, bytes: 256 << 20, time: Duration::from_secs(3600) };
    /// Changes that a watch has kept: a guest keeps 16 384.
    pub const CHANGES: Self = Self::collected("changes", 65_536);

    const fn collected(what: &'static str, count: usize) -> Self {
        Self { what, count, bytes: 32 << 20, time: Duration::from_secs(600) }
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, count, bytes, .. } = self;
        write!(f, "{count} {what} or {} MiB of them", bytes >> 20)
    }
}

/// Memory for the replies that calls collect; all calls together take no more than there is.
#[derive(Debug)]
pub struct Room {
    most: usize,
    taken: AtomicUsize,
    large: Notify,
    /// The larger room of which this is a part.
    whole: Option<Arc<Room>>,
}

impl Room {
    /// A room of so many bytes.
    pub fn new(most: usize) -> Self {
        Self { most, taken: AtomicUsize::new(0), large: Notify::new(), whole: None }
    }

    /// At most so many bytes of a room.
    pub fn part_of(whole: Arc<Room>, most: usize) -> Self {
        Self { whole: Some(whole), ..Self::new(most) }
    }

    /// Notes that a reply of so many bytes was collected and dropped again.
    pub fn note(&self, bytes: usize) {
        match &self.whole {
            Some(whole) => whole.note(bytes),
            None if bytes >= LARGE => self.large.notify_one(),
            None => {}
        }
    }

    /// Resolves when a large reply was noted since the last time.
    pub async fn large_reply(&self) {
        self.large.notified().await;
    }

    fn take(&self, bytes: usize) -> Result<(), CallError> {
        let more = |taken: usize| taken.checked_add(bytes).filter(|sum| *sum <= self.most);
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.map_err(|_| CallError::NoRoom(self.most))?;
        match self.whole.as_ref().map_or(Ok(()), |whole| whole.take(bytes)) {
            Ok(()) => Ok(()),
            Err(full) => {
                self.taken.fetch_sub(bytes, Ordering::Relaxed);
                Err(full)
            }
        }
    }

    fn give_back(&self, bytes: usize) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(whole) = &self.whole {
            whole.give_back(bytes);
        }
    }
}

/// Counts what one call collects and ends the call above its limits.
#[derive(Debug)]
pub struct Bounded {
    limits: Limits,
    room: Option<Arc<Room>>,
    count: usize,
    bytes: usize,
    /// Bytes that were taken of the room.
    taken: usize,
    began: Instant,
}

impl Bounded {
    /// A count from nothing.
    pub fn new(limits: Limits) -> Self {
        Self { limits, room: None, count: 0, bytes: 0, taken: 0, began: Instant::now() }
    }

    /// The same, in a room that other calls use too. Its part of the room is free again when this is dropped.
    pub fn within(limits: Limits, room: Arc<Room>) -> Self {
        Self { room: Some(room), ..Self::new(limits) }
    }

    /// Bytes of memory that have been collected.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes items in. A frame without any brings the call no further, and there may be no end of such.
    pub fn take<T: Held>(&mut self, items: &[T]) -> Result<(), CallError> {
        if items.is_empty() {
            return Err(CallError::Backwards(self.limits.what));
        }
        self.count = self.count.saturating_add(items.len());
        self.bytes = items.iter().map(Held::held).fold(self.bytes, usize::saturating_add);
        if self.count > self.limits.count || self.bytes > self.limits.bytes {
            return Err(CallError::TooLarge(self.limits));
        }
        if self.began.elapsed() > self.limits.time {
            return Err(CallError::Slow(self.limits.time));
        }
        let due = self.bytes.saturating_sub(FREE);
        if let Some(room) = &self.room
            && due > self.taken
        {
            room.take(due - self.taken)?;
            self.taken = due;
        }
        Ok(())
    }

    /// Takes a page of a sorted list in and returns the key of its last item. Each item must come after the one before.
    pub fn page<T: Held, K: Ord>(
        &mut self,
        page: &[T],
        after: Option<K>,
        key: impl Fn(&T) -> K,
    ) -> Result<Option<K>, CallError> {
        self.take(page)?;
        let mut last = after;
        for item in page {
            let next = Some(key(item));
            if next <= last {
                return Err(CallError::Backwards(self.limits.what));
            }
            last = next;
        }
        Ok(last)
    }
}

impl Drop for Bounded {
    fn drop(&mut self) {
        if let Some(room) = &self.room {
            room.give_back(self.taken);
            room.note(self.bytes);
        }
    }
}

/// Something that takes memory while it is held.
pub trait Held: Sized {
    /// Bytes that it takes besides its own size.
    fn inner(&self) -> usize;

    /// Bytes that it takes.
    fn held(&self) -> usize {
        size_of::<Self>().saturating_add(self.inner())
    }
}

impl Held for String {
    fn inner(&self) -> usize {
        if self.is_empty() { 0 } else { self.len() + ALLOCATION }
    }
}

impl<T: Held> Held for Option<T> {
    fn inner(&self) -> usize {
        self.as_ref().map_or(0, Held::inner)
    }
}

impl<T: Held> Held for Vec<T> {
    fn inner(&self) -> usize {
        self.iter().map(Held::held).sum()
    }
}

impl Held for BTreeMap<String, String> {
    fn inner(&self) -> usize {
        self.iter().map(|(name, value)| PAIR + name.held() + value.held()).sum()
    }
}

impl Held for FileStat {
    fn inner(&self) -> usize {
        let names = self.path.inner() + self.user.inner() + self.group.inner() + self.target.inner();
        let end = self.leads_to.as_ref().map_or(0, |end| end.path.inner());
        names + end + self.attributes.inner()
    }
}

impl Held for ExecInfo {
    fn inner(&self) -> usize {
        let texts = self.id.inner() + self.user.inner() + self.cwd.inner() + self.tag.inner();
        texts + self.argv.inner() + self.env.inner()
    }
}

impl Held for ProcessInfo {
    fn inner(&self) -> usize {
        let texts = self.name.inner() + self.user.inner() + self.state.inner() + self.argv.inner();
        texts + self.exec.inner() + self.service.inner()
    }
}

impl Held for WatchEvent {
    fn inner(&self) -> usize {
        let stat = self.stat.as_ref().map_or(0, |stat| stat.held());
        self.path.inner() + self.moved_from.inner() + stat
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEW: Limits = Limits { what: "processes", count: 10, bytes: 8 << 20, time: Duration::from_secs(60) };

    fn process(pid: i32) -> ProcessInfo {
        ProcessInfo { pid, ..ProcessInfo::default() }
    }

    fn large(bytes: usize) -> ProcessInfo {
        ProcessInfo { name: "x".repeat(bytes), ..ProcessInfo::default() }
    }

    #[test]
    fn pages_end_the_call_unless_they_go_forward() {
        let page = |after, pids: &[i32]| {
            let page: Vec<_> = pids.iter().copied().map(process).collect();
            Bounded::new(FEW).page(&page, after, |process| process.pid)
        };
        assert_eq!(page(Some(3), &[4, 9]).unwrap(), Some(9));
        for (after, pids) in [(Some(3), &[3, 4][..]), (Some(3), &[1]), (None, &[5, 5]), (None, &[5, 4]), (None, &[])] {
            assert!(matches!(page(after, pids), Err(CallError::Backwards("processes"))), "{pids:?}");
        }
    }

    #[test]
    fn count_and_bytes_have_limits() {
        let mut bounded = Bounded::new(FEW);
        let ten: Vec<_> = (0..10).map(process).collect();
        assert!(bounded.take(&ten).is_ok());
        assert!(matches!(bounded.take(&ten[..1]), Err(CallError::TooLarge(_))));
        let error = Bounded::new(FEW).take(&[large(9 << 20)]).unwrap_err();
        assert_eq!(error.to_string(), "guest sent more than 10 processes or 8 MiB of them");
    }

    #[tokio::test(start_paused = true)]
    async fn slow_items_end_the_call() {
        let mut bounded = Bounded::new(FEW);
        bounded.take(&[process(1)]).unwrap();
        tokio::time::advance(FEW.time + Duration::from_secs(1)).await;
        assert!(matches!(bounded.take(&[process(2)]), Err(CallError::Slow(_))));
    }

    #[test]
    fn room_is_shared_and_given_back() {
        let whole = Arc::new(Room::new(8 << 20));
        let part = |most| Arc::new(Room::part_of(whole.clone(), most));
        let (one, other) = (part(6 << 20), part(6 << 20));
        let mut first = Bounded::within(FEW, one.clone());
        first.take(&[large(6 << 20)]).unwrap();
        let mut second = Bounded::within(FEW, other.clone());
        assert!(matches!(second.take(&[large(6 << 20)]), Err(CallError::NoRoom(most)) if most == 8 << 20));
        // A small call needs none of it.
        assert!(Bounded::within(FEW, one.clone()).take(&[process(1)]).is_ok());
        let mut third = Bounded::within(FEW, one);
        assert!(matches!(third.take(&[large(4 << 20)]), Err(CallError::NoRoom(most)) if most == 6 << 20));
        drop((first, second, third));
        assert_eq!((whole.taken.load(Ordering::Relaxed), other.taken.load(Ordering::Relaxed)), (0, 0));
        assert!(Bounded::within(FEW, other).take(&[large(6 << 20)]).is_ok());
    }

    #[tokio::test]
    async fn only_large_replies_are_noted() {
        let whole = Arc::new(Room::new(32 << 20));
        let part = Arc::new(Room::part_of(whole.clone(), 32 << 20));
        let collect = |bytes| drop(Bounded::within(FEW, part.clone()).take(&[large(bytes)]));
        collect(1 << 20);
        assert!(tokio::time::timeout(Duration::from_millis(1), whole.large_reply()).await.is_err());
        collect(5 << 20);
        whole.large_reply().await;
    }

    #[test]
    fn short_texts_count_as_much_as_they_take() {
        let stat = |attributes| FileStat { attributes, ..serde_json::from_str(SMALL).unwrap() };
        let few = stat(BTreeMap::new()).held();
        let many = stat((0..1000).map(|number| (number.to_string(), String::new())).collect()).held();
        assert!(many - few > 1000 * (2 * size_of::<String>() + ALLOCATION), "{few} {many}");
    }

    const SMALL: &str = r#"{"path":"/","kind":"directory","size":0,"mode":0,"uid":0,"gid":0}"#;
}
