//! The thread of an exec that carries its output into its spools and its input into its pipe, watches its time and
//! publishes its end.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use roost_wire::SignalTarget;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::awake::Awake;
use super::{Exec, Hold, State};
use crate::guest::Guest;

/// First size of the buffer; a process that fills it gets [`LARGE_BUFFER`].
const SMALL_BUFFER: usize = 4 * 1024;
const LARGE_BUFFER: usize = 64 * 1024;
/// At most this much is taken in between the end of a process and the news of it. A pipe holds less unless it was
/// enlarged; without a bound a child that outlives the process and writes on would keep its end a secret.
const DRAIN_LIMIT: usize = 1024 * 1024;
/// How long a reader that wants everything may stand still while others wait for more.
const CROWDED_STALL: Duration = Duration::from_secs(2);

/// One stream on its way from a pipe to a spool.
#[derive(Debug)]
struct Source {
    index: usize,
    /// Closed at its end.
    fd: Option<Arc<OwnedFd>>,
    /// Read and not yet taken by the spool.
    buffer: Vec<u8>,
    taken: usize,
    /// Read since the process ended.
    drained: usize,
}

/// What one step of a source came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Moved,
    /// Nothing to read now, or ever.
    Empty,
    /// A reader is not to lose what the spool would have to drop.
    Held,
}

/// Everything the pump works on.
#[derive(Debug)]
pub(crate) struct Pump {
    guest: Arc<Guest>,
    exec: Arc<Exec>,
    sources: Vec<Source>,
    awake: Awake,
    /// Time awake, as are all moments here.
    now: Duration,
    deadline: Option<Duration>,
    held_since: Option<Duration>,
    stall: Duration,
}

impl Pump {
    /// A pump for the read ends of an exec's output, which must not block.
    pub(crate) fn new(
        guest: Arc<Guest>,
        exec: Arc<Exec>,
        outputs: Vec<Arc<OwnedFd>>,
        timeout: Option<Duration>,
    ) -> Self {
        let source = |(index, fd)| Source { index, fd: Some(fd), buffer: Vec::new(), taken: 0, drained: 0 };
        Self {
            stall: Duration::from_millis(guest.config.spool.stall_ms),
            guest,
            exec,
            sources: outputs.into_iter().enumerate().map(source).collect(),
            awake: Awake::new(Instant::now()),
            now: Duration::ZERO,
            deadline: timeout,
            held_since: None,
        }
    }

    /// Runs until the process has ended and nobody has its pipes open any more.
    pub(crate) fn run(mut self) {
        loop {
            self.look();
            let mut held = false;
            for source in &mut self.sources {
                held |= source.step(&self.exec) == Step::Held;
            }
            self.note_held(held);
            self.enforce_deadline();
            let published = self.publish_end();
            if published && self.sources.iter().all(Source::is_done) {
                return;
            }
            self.wait();
        }
    }

    /// Notes the time and passes input on.
    fn look(&mut self) {
        self.now = self.awake.look(Instant::now());
        let mut state = self.exec.lock();
        state.awake = self.now;
        state.write_input();
    }

    /// Lets go of readers that hold the process back and stand still themselves.
    fn note_held(&mut self, held: bool) {
        let mut state = self.exec.lock();
        state.held = held;
        if !held {
            self.held_since = None;
            return;
        }
        let now = self.now;
        let since = *self.held_since.get_or_insert(now);
        let stall = self.stall(&state);
        let ends = state.ends();
        let mut let_go = false;
        for listener in &mut state.listeners {
            // One that has read all there is waits itself.
            let stands_still = |hold: Hold| hold.is_behind(ends) && now >= hold.progress.max(since) + stall;
            if listener.hold.is_some_and(stands_still) {
                listener.hold = None;
                let_go = true;
            }
        }
        if let_go {
            self.exec.pump.ring();
        }
    }

    fn enforce_deadline(&mut self) {
        if self.deadline.is_none_or(|deadline| self.now < deadline) {
            return;
        }
        self.deadline = None;
        const KILL: i32 = 9;
        let mut state = self.exec.lock();
        if state.ended.is_none() {
            state.timed_out = true;
            drop(state);
            // It may end by itself in this very moment; then there is nobody left to signal.
            self.guest.execs.signal(&self.exec, KILL, SignalTarget::Session).ok();
        }
    }

    /// Publishes the end of the process once its output is in; says whether that has happened.
    fn publish_end(&mut self) -> bool {
        let ended = {
            let state = self.exec.lock();
            if state.exit.is_some() {
                return true;
            }
            state.ended
        };
        let Some((ended, at_ms)) = ended else { return false };
        let mut drained = true;
        for source in &mut self.sources {
            drained &= source.drain(&self.exec);
        }
        if !drained {
            self.note_held(true);
            return false;
        }
        self.guest.execs.finish(&self.exec, || self.exec.publish_end(ended, at_ms));
        true
    }

    /// Waits for output, for room for input, for the reaper or a reader, or for a time that is up.
    fn wait(&mut self) {
        let input = self.exec.lock().input.blocked_on();
        let stall = self.held_since.map(|since| self.stall_deadline(since));
        let until = self.deadline.into_iter().chain(stall).min();
        let timeout = until.map(|until| timespec(self.awake.slice(until.saturating_sub(self.now))));
        let mut waiting: Vec<PollFd<'_>> = vec![PollFd::new(&self.exec.pump, PollFlags::IN)];
        let readable = self.sources.iter().filter(|source| source.is_drained()).filter_map(|source| source.fd.as_ref());
        waiting.extend(readable.map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)));
        waiting.extend(input.iter().map(|fd| PollFd::new(fd, PollFlags::OUT)));
        // Interrupted or not, the caller looks at everything again.
        poll(&mut waiting, timeout.as_ref()).ok();
        self.exec.pump.clear();
    }

    fn stall_deadline(&self, since: Duration) -> Duration {
        let state = self.exec.lock();
        let ends = state.ends();
        let behind = state.listeners.iter().filter_map(|listener| listener.hold).filter(|hold| hold.is_behind(ends));
        let oldest = behind.map(|hold| hold.progress).min();
        oldest.map_or(since, |progress| progress.max(since)) + self.stall(&state)
    }

    /// How long a reader may stand still: one that holds up others beside the process, not for long.
    fn stall(&self, state: &State) -> Duration {
        let readers = state.listeners.iter().filter(|listener| listener.hold.is_some()).count();
        if readers > 1 { self.stall.min(CROWDED_STALL) } else { self.stall }
    }
}

impl Source {
    fn is_drained(&self) -> bool {
        self.taken == self.buffer.len()
    }

    fn is_done(&self) -> bool {
        self.fd.is_none() && self.is_drained()
    }

    /// Moves one buffer from the pipe to the spool.
    fn step(&mut self, exec: &Exec) -> Step {
        if self.is_drained() && !self.read() {
            return Step::Empty;
        }
        let mut state = exec.sink().lock();
        if self.offer(&mut state) {
            state.ring_listeners();
        }
        if self.is_drained() {
            return Step::Moved;
        }
        // Under the lock that the reader takes: it either has made room already or will ring.
        state.held = true;
        Step::Held
    }

    /// Moves what the pipe holds; false if a reader has to read first.
    fn drain(&mut self, exec: &Exec) -> bool {
        while self.drained < DRAIN_LIMIT {
            match self.step(exec) {
                Step::Moved => self.drained += self.taken,
                Step::Empty => break,
                Step::Held => return false,
            }
        }
        self.is_drained()
    }

    fn offer(&mut self, state: &mut State) -> bool {
        let keep_from = state.keep_from(self.index);
        let rest = self.buffer.get(self.taken..).unwrap_or_default();
        let accepted = state.spools.get_mut(self.index).map_or(rest.len(), |spool| spool.append(rest, keep_from));
        self.taken += accepted;
        accepted > 0
    }

    /// Refills the buffer without waiting; false if there is nothing.
    fn read(&mut self) -> bool {
        let Some(fd) = &self.fd else { return false };
        let filled_up = self.buffer.len() >= SMALL_BUFFER;
        self.buffer.clear();
        self.taken = 0;
        let wanted = if filled_up { LARGE_BUFFER } else { SMALL_BUFFER };
        if self.buffer.capacity() < wanted {
            self.buffer.reserve_exact(wanted);
        }
        loop {
            match rustix::io::read(fd, rustix::buffer::spare_capacity(&mut self.buffer)) {
                Ok(0) => break,
                Ok(_) => return true,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return false,
                // A terminal whose other side is closed says so with an error.
                Err(_) => break,
            }
        }
        self.fd = None;
        self.buffer = Vec::new();
        false
    }
}

/// A wait of this length, for `poll`.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    // Rounded up, so that the time is really up afterwards.
    let duration = duration + Duration::from_micros(1);
    Timespec { tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX), tv_nsec: duration.subsec_nanos().into() }
}

/// Starts the pump's thread.
pub(crate) fn launch(pump: Pump) -> io::Result<()> {
    crate::guest::small_thread("pump").spawn(move || pump.run()).map(drop)
}
