//! Wakes sandboxes at the times of their alarms.
//!
//! One task waits for the earliest of all. It waits on the wall clock itself, so it costs nothing until then, goes off in
//! time although the clock is set meanwhile, and hears of that to count anew what comes again and again. What was missed
//! while no daemon ran is in the store with its time, and goes off once as soon as one does.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use jiff::Timestamp;
use roost_model::chain;
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Semaphore;

use crate::blocking;
use crate::host::Host;
use crate::leases::Due;

/// Alarms like full minutes; more wakes at once than this would only slow each other down.
const WAKES_AT_ONCE: usize = 8;

impl Host {
    /// Waits for alarms until the daemon leaves.
    pub(crate) async fn ring_alarms(self) {
        let clock = match WallClock::new() {
            Ok(clock) => clock,
            Err(error) => return tracing::error!(%error, "there is no clock to wait for alarms with: none will go off"),
        };
        let (leases, wakes) = (self.shared.leases.clone(), Arc::new(Semaphore::new(WAKES_AT_ONCE)));
        loop {
            // A change after this look is remembered and ends the wait.
            let next = leases.next_due();
            tokio::select! {
                () = self.shared.leaving.cancelled() => return,
                () = leases.rescheduled.notified() => continue,
                waited = clock.until(next) => match waited {
                    Ok(Waited::Due) => {}
                    Ok(Waited::ClockSet) => leases.clock_was_set(Timestamp::now()),
                    Err(error) => return tracing::error!(%error, "could not wait for alarms: none will go off"),
                },
            }
            for due in leases.take_due(Timestamp::now()) {
                let (host, wakes) = (self.clone(), wakes.clone());
                self.shared.actors.spawn(async move { host.ring(due, &wakes).await });
            }
        }
    }

    /// Wakes the sandbox of one alarm, and gives it a moment before anybody lets it sleep again.
    async fn ring(&self, due: Due, wakes: &Semaphore) {
        let Some(handle) = self.handle_of(&due.owner) else { return };
        let Ok(_turn) = wakes.acquire().await else { return };
        let leases = &self.shared.leases;
        leases.grace(&due, false);
        let woken = handle.wake_because(&format!("alarm {}", due.alarm.id)).await;
        leases.grace(&due, true);
        let outcome = woken.map(drop).map_err(|error| chain(&error));
        if let Err(why) = &outcome {
            tracing::warn!(sandbox = %due.owner, alarm = %due.alarm.id, why, "an alarm could not wake it");
        }
        let leases = leases.clone();
        if let Err(error) = blocking(move || leases.went_off(&due, outcome)).await {
            tracing::error!(error = %chain(&error), "could not note that an alarm went off; it may do so again");
        }
    }
}

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waited {
    Due,
    ClockSet,
}

/// A timer on the wall clock.
#[derive(Debug)]
struct WallClock(AsyncFd<OwnedFd>);

impl WallClock {
    fn new() -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Realtime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        #[expect(
            deprecated,
            reason = "its replacement is unsafe to call; an owned descriptor stays the same while registered"
        )]
        let timer = AsyncFd::with_interest(timer, Interest::READABLE)?;
        Ok(Self(timer))
    }

    /// Waits until it is that late, or the clock is set; for ever without a time.
    async fn until(&self, moment: Option<Timestamp>) -> io::Result<Waited> {
        let Some(moment) = moment else { return std::future::pending().await };
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A timer of zero would be none; whatever lies before the first second is over anyway.
        let since_epoch = moment.as_duration();
        let (seconds, nanoseconds) = (since_epoch.as_secs().max(1), since_epoch.subsec_nanos().max(0));
        let value = Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() };
        let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
        match timerfd_settime(self.0.get_ref(), flags, &Itimerspec { it_interval: zero, it_value: value }) {
            Ok(_) => {}
            // Set since the last time that somebody waited.
            Err(Errno::CANCELED) => return Ok(Waited::ClockSet),
            Err(error) => return Err(error.into()),
        }
        loop {
            let mut ready = self.0.readable().await?;
            match rustix::io::read(self.0.get_ref(), &mut [0u8; 8]) {
                Ok(_) => return Ok(Waited::Due),
                Err(Errno::CANCELED) => return Ok(Waited::ClockSet),
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[tokio::test]
    async fn it_waits_for_the_moment_and_no_longer() {
        let clock = WallClock::new().unwrap();
        let begun = Instant::now();
        let moment = Timestamp::now() + Duration::from_millis(50);
        assert_eq!(clock.until(Some(moment)).await.unwrap(), Waited::Due);
        assert!(Timestamp::now() >= moment && begun.elapsed() < Duration::from_secs(5));
        // What is over is over at once, and an earlier wait that was given up leaves nothing behind.
        for past in [moment, Timestamp::UNIX_EPOCH, Timestamp::MIN] {
            assert_eq!(clock.until(Some(past)).await.unwrap(), Waited::Due);
        }
        let given_up = tokio::time::timeout(Duration::from_millis(20), clock.until(Some(Timestamp::MAX)));
        assert!(given_up.await.is_err());
        assert!(tokio::time::timeout(Duration::from_millis(20), clock.until(None)).await.is_err());
        let soon = Timestamp::now() + Duration::from_millis(20);
        assert_eq!(clock.until(Some(soon)).await.unwrap(), Waited::Due);
    }
}
