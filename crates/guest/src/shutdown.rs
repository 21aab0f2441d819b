//! The end of a sandbox: ask, wait, kill, flush.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use roost_sys::spawn::{Receiver, send_signal};
use roost_wire::SignalTarget;

use crate::guest::Guest;
use crate::init::SIGNAL_FINISH;
use crate::wake::lock;

const SIGNAL_KILL: i32 = 9;
const SIGNAL_TERM: i32 = 15;
/// What SIGTERM to the guest allows processes.
const DEFAULT_GRACE: Duration = Duration::from_secs(5);
/// How often is looked whether all have gone.
const LOOK: Duration = Duration::from_millis(2);
/// After a kill processes are gone unless the kernel itself hangs.
const KILL_WAIT: Duration = Duration::from_secs(5);

static FINISHED: AtomicBool = AtomicBool::new(false);

/// Whether everything is stopped and the guest may return.
pub(crate) fn is_finished() -> bool {
    FINISHED.load(Ordering::Acquire)
}

/// Stops every process, politely first, and flushes the disk.
pub(crate) fn stop(guest: &Guest, grace: Duration) {
    let _one_at_a_time = lock(&guest.stopping);
    // They first, in their order; nothing starts them again meanwhile.
    guest.services.stop_all();
    signal_all(guest, SIGNAL_TERM);
    if !wait_until_alone(guest, grace) {
        signal_all(guest, SIGNAL_KILL);
        wait_until_alone(guest, KILL_WAIT);
    }
    if guest.is_init
        && let Ok(root) = std::fs::File::open("/")
    {
        rustix::fs::syncfs(root).ok();
    }
}

/// Lets the first thread return, which ends the guest.
pub(crate) fn finish() {
    FINISHED.store(true, Ordering::Release);
    if let Ok(pid) = i32::try_from(std::process::id()) {
        send_signal(Receiver::Process(pid), SIGNAL_FINISH).ok();
    }
}

pub(crate) fn stop_and_finish(guest: &Guest) {
    stop(guest, DEFAULT_GRACE);
    finish();
}

fn signal_all(guest: &Guest, signal: i32) {
    if guest.is_init {
        send_signal(Receiver::Everyone, signal).ok();
    } else {
        for exec in guest.execs.running() {
            guest.execs.signal(&exec, signal, SignalTarget::Session).ok();
        }
    }
}

fn wait_until_alone(guest: &Guest, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        let alone =
            if guest.is_init { send_signal(Receiver::Everyone, 0).is_err() } else { guest.execs.running().is_empty() };
        if alone || Instant::now() >= deadline {
            return alone;
        }
        thread::sleep(LOOK);
    }
}
