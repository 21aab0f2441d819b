//! The one function that decides what happens next.

use roost_model::{EngineKind, Level};

use crate::Phase;

/// What happened, or what is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// Somebody needs it awake.
    WakeRequested,
    /// It shall sleep at this level, or deeper than it does.
    SuspendRequested(Level),
    /// Another moment of it, named in its record, shall take its place.
    RestoreRequested,
    /// It shall go on, from its files, on another engine.
    MoveRequested(EngineKind),
    /// It waits in a pool, and somebody takes it as what its record now says.
    TakeRequested,
    /// It shall be no more.
    TerminateRequested,
    /// It was started, restored or thawed, and its guest answers.
    Started,
    /// It could not be started; no process of it is left, or it is still frozen.
    StartFailed,
    /// What waited in a pool could not be made what was asked for.
    NotConfigured,
    /// Its processes stand still.
    Frozen,
    /// Its memory is in an image that is whole; its processes stand still.
    Saved,
    /// It could not be frozen or saved; its processes are there.
    NotSaved,
    /// Its processes ended by themselves.
    Gone,
    /// The engine says that no process of it is left.
    Killed,
    /// Its disk and network have been given back.
    Released,
}

/// Work that follows from a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Make its disk, unless it has one.
    MakeDisk,
    /// Put the disk of the moment that is being restored in the place of its own.
    ReplaceDisk,
    /// Start it, from its image if it has one, and wait for its guest; answers [`Event::Started`] or
    /// [`Event::StartFailed`].
    Start,
    /// Find out whether what is there is whole and answers; answers [`Event::Started`] or [`Event::StartFailed`].
    Adopt,
    /// Stop its processes where they are; answers [`Event::Frozen`] or [`Event::NotSaved`].
    Freeze,
    /// Freeze it and write its memory to an image; answers [`Event::Saved`] or [`Event::NotSaved`].
    Save,
    /// Let its processes go on; answers [`Event::Started`] or [`Event::StartFailed`].
    Thaw,
    /// Make what waited in a pool what its record says and let it go on; answers [`Event::Started`] or
    /// [`Event::NotConfigured`].
    Configure,
    /// Forget the image it slept in; answers nothing.
    DropImage,
    /// Ask its guest to end everything in good order; failure does not matter, a kill follows.
    Shutdown,
    /// End every process of it and unplug its network; answers [`Event::Killed`].
    Kill,
    /// Give its disk, image and network slot back; answers [`Event::Released`].
    Release,
}

/// An event that makes no sense in a phase; nothing changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// The phase it is in.
    pub phase: Phase,
    /// What was asked.
    pub event: Event,
}

/// The next phase and the work it calls for.
pub type Step = (Phase, &'static [Effect]);

/// Decides the next phase and the work it calls for. Does no I/O.
pub fn step(phase: Phase, event: Event) -> Result<Step, Refused> {
    use {Effect as X, Event as E, Level as L, Phase as P};
    let down = |level, wake_after| P::Suspending { level, wake_after };
    Ok(match (phase, event) {
        // The end comes first: it is possible from everywhere and nothing leads back.
        (P::Terminating | P::Releasing | P::Terminated, E::TerminateRequested) => (phase, &[]),
        (_, E::TerminateRequested) => (P::Terminating, &[X::Kill]),
        (P::Terminating, E::Killed) => (P::Releasing, &[X::Release]),
        (P::Releasing, E::Released) => (P::Terminated, &[]),
        // What still arrives about a sandbox that is ending changes nothing.
        (
            P::Terminating | P::Releasing,
            E::Started | E::StartFailed | E::NotConfigured | E::Frozen | E::Saved | E::NotSaved | E::Gone | E::Killed,
        ) => (phase, &[]),

        (P::Creating | P::Resuming(L::Ram | L::Files), E::Started) => (P::Active, &[]),
        // Awake for good only now; the image has served.
        (P::Resuming(L::Disk) | P::Restoring, E::Started) => (P::Active, &[X::DropImage]),
        (P::Creating, E::StartFailed) => (P::Terminating, &[X::Kill]),
        // A birth again, and nothing of its taker's is in it yet.
        (P::Active | P::Suspended(L::Ram), E::TakeRequested) => (P::Creating, &[X::Configure]),
        (P::Creating, E::NotConfigured) => (P::Creating, &[X::Kill, X::MakeDisk, X::Start]),
        (P::Creating | P::Resuming(_) | P::Restoring, E::WakeRequested) => (phase, &[]),
        (P::Resuming(L::Ram), E::StartFailed) => (P::Suspended(L::Ram), &[]),
        // They ended while they stood still. Its files are there, and somebody waits for it.
        (P::Resuming(L::Ram), E::Gone) => (down(L::Files, true), &[X::Kill]),
        // As asleep as it was, and stored as that before anything else: a crash must not take it for one that had not
        // got there yet and give its image up.
        (P::Resuming(level), E::StartFailed) => (P::Suspended(level), &[X::Kill]),
        // Its disk is the restored moment's already; only its memory did not come back. That of the moment before, if it slept in
        // an image of it, must not come back on this disk either.
        (P::Restoring, E::StartFailed) => (down(L::Files, false), &[X::DropImage, X::Kill]),

        (P::Active, E::WakeRequested) => (phase, &[]),
        (P::Active, E::SuspendRequested(L::Ram)) => (down(L::Ram, false), &[X::Freeze]),
        (P::Active, E::SuspendRequested(L::Disk)) => (down(L::Disk, false), &[X::Save]),
        (P::Active, E::SuspendRequested(L::Files)) => (down(L::Files, false), &[X::Shutdown, X::Kill]),
        (P::Active, E::Gone) => (down(L::Files, false), &[X::Kill]),

        (P::Suspending { level, .. }, E::WakeRequested) => (down(level, true), &[]),
        (P::Suspending { .. }, E::SuspendRequested(_)) => (phase, &[]),
        (P::Suspending { level: L::Ram, wake_after: false }, E::Frozen) => (P::Suspended(L::Ram), &[]),
        (P::Suspending { level: L::Ram, wake_after: true }, E::Frozen) => (P::Resuming(L::Ram), &[X::Thaw]),
        (P::Suspending { level: L::Ram | L::Disk, .. }, E::NotSaved) => (P::Resuming(L::Ram), &[X::Thaw]),
        (P::Suspending { level: L::Ram | L::Disk, .. }, E::Gone) => (down(L::Files, false), &[X::Kill]),
        // The commit point of a suspend to disk.
        (P::Suspending { level: L::Disk, wake_after: false }, E::Saved) => (P::Suspended(L::Disk), &[X::Kill]),
        (P::Suspending { level: L::Disk, wake_after: true }, E::Saved) => {
            (P::Resuming(L::Ram), &[X::DropImage, X::Thaw])
        }
        (P::Suspending { level: L::Files, .. }, E::Gone) => (phase, &[]),
        (P::Suspending { level: L::Ram, .. }, E::Killed) => (P::Suspended(L::Files), &[]),
        (P::Suspending { level, wake_after: true }, E::Killed) => (P::Resuming(level), &[X::Start]),
        (P::Suspending { level, wake_after: false }, E::Killed) => (P::Suspended(level), &[]),

        (P::Suspended(L::Ram), E::WakeRequested) => (P::Resuming(L::Ram), &[X::Thaw]),
        (P::Suspended(level), E::WakeRequested) => (P::Resuming(level), &[X::Start]),
        (P::Suspended(L::Ram), E::SuspendRequested(L::Disk)) => (P::Deepening { wake_after: false }, &[X::Save]),
        (P::Suspended(L::Ram | L::Disk), E::SuspendRequested(L::Files)) => {
            (down(L::Files, false), &[X::DropImage, X::Kill])
        }
        (P::Suspended(L::Ram), E::Gone) => (down(L::Files, false), &[X::Kill]),
        // It sleeps as deep already; or this is the end of its processes after the commit point.
        (P::Suspended(_), E::SuspendRequested(_) | E::Gone | E::Killed) => (phase, &[]),

        (P::Deepening { .. }, E::WakeRequested) => (P::Deepening { wake_after: true }, &[]),
        (P::Deepening { .. }, E::SuspendRequested(_)) => (phase, &[]),
        (P::Deepening { wake_after: false }, E::Saved) => (P::Suspended(L::Disk), &[X::Kill]),
        (P::Deepening { wake_after: true }, E::Saved) => (P::Resuming(L::Ram), &[X::DropImage, X::Thaw]),
        // Never quietly reduced: what cannot be saved stays in RAM.
        (P::Deepening { wake_after: false }, E::NotSaved) => {
            (P::Suspending { level: L::Ram, wake_after: false }, &[X::Freeze])
        }
        (P::Deepening { wake_after: true }, E::NotSaved) => (P::Resuming(L::Ram), &[X::Thaw]),
        (P::Deepening { .. }, E::Gone) => (down(L::Files, false), &[X::Kill]),

        (P::Active | P::Suspended(_), E::RestoreRequested) => (P::Restoring, &[X::Kill]),
        (P::Restoring, E::Killed) => (P::Restoring, &[X::ReplaceDisk, X::Start]),
        (P::Restoring, E::Gone) => (phase, &[]),

        // Its engine changes with the phase after this one, when the old engine has nothing of it left.
        (P::Active, E::MoveRequested(to)) => (P::Moving { to, wake_after: true }, &[X::Shutdown, X::Kill]),
        (P::Suspended(_), E::MoveRequested(to)) => (P::Moving { to, wake_after: false }, &[X::DropImage, X::Kill]),
        (P::Moving { to, .. }, E::WakeRequested) => (P::Moving { to, wake_after: true }, &[]),
        (P::Moving { wake_after: true, .. }, E::Killed) => (P::Resuming(L::Files), &[X::Start]),
        (P::Moving { wake_after: false, .. }, E::Killed) => (P::Suspended(L::Files), &[]),
        (P::Moving { .. }, E::Gone) => (phase, &[]),

        _ => return Err(Refused { phase, event }),
    })
}

#[cfg(test)]
#[path = "step_tests.rs"]
pub(crate) mod tests;
