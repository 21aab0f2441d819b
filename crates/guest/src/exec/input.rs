//! Standard input on its way to a process.
//!
//! What a connection brought belongs to the exec from then on: it is written at once as far as the pipe takes it, the
//! rest by the pump, whether the connection is still there or not.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;

use super::{Exec, State};

/// Input that waits for the process. Beyond it no connection is read, and its client feels that.
const ROOM: usize = 256 * 1024;
/// What is taken of a client that has hung up. All it sent is here already, and nobody would send it again.
const LAST_ROOM: usize = 16 * 1024 * 1024;
/// Ends the input of a terminal, which stays open itself.
const END_OF_TRANSMISSION: u8 = 0x04;

/// The way to a process's standard input.
#[derive(Debug, Default)]
pub(super) struct Input {
    /// The write end of its pipe, or the terminal; does not block.
    target: Option<Arc<OwnedFd>>,
    unwritten: Vec<u8>,
    /// To be closed when all is written.
    closing: bool,
}

/// What came of an attempt to write without keeping anything.
#[derive(Debug)]
pub(super) enum Offered {
    Taken(usize),
    /// Others come first; the bell rings when they are through.
    AfterOthers,
    /// The pipe is full.
    WhenWritable(Arc<OwnedFd>),
    Closed,
    Failed(Errno),
}

impl Input {
    pub(super) fn new(target: Option<Arc<OwnedFd>>) -> Self {
        Self { target, ..Self::default() }
    }

    pub(super) fn is_open(&self) -> bool {
        self.target.is_some() && !self.closing
    }

    pub(super) fn target(&self) -> Option<Arc<OwnedFd>> {
        self.target.clone()
    }

    /// What to wait for before more can be written.
    pub(super) fn blocked_on(&self) -> Option<Arc<OwnedFd>> {
        self.target.clone().filter(|_| !self.unwritten.is_empty())
    }

    /// Writes what the process takes now.
    fn write_now(&mut self) {
        let Some(target) = &self.target else { return };
        let mut written = 0;
        let outcome = loop {
            let rest = self.unwritten.get(written..).unwrap_or_default();
            if rest.is_empty() {
                break Ok(());
            }
            match rustix::io::write(target, rest) {
                Ok(count) => written += count,
                Err(Errno::INTR) => {}
                Err(error) => break Err(error),
            }
        };
        self.unwritten.drain(..written);
        match outcome {
            Ok(()) if self.closing => *self = Self::default(),
            Ok(()) => self.unwritten = Vec::new(),
            Err(Errno::AGAIN) => {}
            // Nobody will ever read it.
            Err(_) => *self = Self::default(),
        }
    }
}

impl State {
    /// Writes what waits, and tells whoever waits for that.
    pub(super) fn write_input(&mut self) {
        let before = (self.input.unwritten.len() >= ROOM, self.input.unwritten.is_empty(), self.input.is_open());
        self.input.write_now();
        let after = (self.input.unwritten.len() >= ROOM, self.input.unwritten.is_empty(), self.input.is_open());
        if before != after {
            self.ring_listeners();
        }
    }
}

impl Exec {
    /// Whether a connection may bring more.
    pub(super) fn has_input_room(&self) -> bool {
        self.lock().input.unwritten.len() < ROOM
    }

    /// Whether a connection that has hung up may leave more behind.
    pub(super) fn has_last_room(&self) -> bool {
        self.lock().input.unwritten.len() < LAST_ROOM
    }

    /// Takes input over from a connection. What comes after the end of the input goes nowhere.
    pub(super) fn take_input(&self, bytes: &[u8]) {
        let mut state = self.lock();
        if state.input.is_open() {
            state.input.unwritten.extend_from_slice(bytes);
            self.pass_on(&mut state);
        }
    }

    /// Writes input, unless others' still waits.
    pub(super) fn offer_input(&self, bytes: &[u8]) -> Offered {
        let mut state = self.lock();
        let target = match &state.input.target {
            Some(target) if !state.input.closing => target,
            _ => return Offered::Closed,
        };
        if !state.input.unwritten.is_empty() {
            return Offered::AfterOthers;
        }
        match rustix::io::write(target, bytes) {
            Ok(count) => Offered::Taken(count),
            Err(Errno::INTR) => Offered::Taken(0),
            Err(Errno::AGAIN) => Offered::WhenWritable(target.clone()),
            Err(Errno::PIPE | Errno::IO) => {
                state.input = Input::default();
                state.ring_listeners();
                Offered::Closed
            }
            Err(error) => Offered::Failed(error),
        }
    }

    /// Ends standard input after what was taken before. A terminal stays open, as it is one: its end is a character.
    pub(super) fn close_input(&self) {
        let mut state = self.lock();
        if !state.input.is_open() {
            return;
        }
        if self.pty {
            state.input.unwritten.push(END_OF_TRANSMISSION);
        } else {
            state.input.closing = true;
        }
        self.pass_on(&mut state);
    }

    /// Writes what can be written and leaves the rest to the pump.
    fn pass_on(&self, state: &mut State) {
        state.write_input();
        if state.input.blocked_on().is_some() {
            self.pump.ring();
        }
    }
}
