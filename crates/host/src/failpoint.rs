//! Named points at which a test ends the daemon without a warning, as a crash would.
//!
//! With the cargo feature `fail-points`, `ROOST_FAIL_POINT=name` or `name:n` kills the process when it passes the point
//! of that name for the first or the n-th time. Without the feature a point is nothing at all.
//!
//! `ROOST_TEST_IMAGE_ROOM=bytes` lowers the room of every memory image after its admission: what a save writes beyond the
//! estimate is the same as a room that is smaller than the estimate.

/// Ends the process here if a test asked for it.
#[cfg(feature = "fail-points")]
pub(crate) fn fail_point(name: &str) {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    static WANTED: LazyLock<Option<(String, u32)>> = LazyLock::new(|| {
        let text = std::env::var("ROOST_FAIL_POINT").ok()?;
        let (point, pass) = text.split_once(':').unwrap_or((&text, "1"));
        Some((point.to_owned(), pass.parse().unwrap_or(1)))
    });
    static PASSED: AtomicU32 = AtomicU32::new(0);

    let Some((point, pass)) = &*WANTED else { return };
    if point == name && PASSED.fetch_add(1, Ordering::Relaxed) + 1 == *pass {
        tracing::warn!(point = name, "ends here because a test asked for it");
        // Nothing can fail here that would not leave the process running, which the test then notices.
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).ok();
    }
}

/// Nothing: only builds for tests have points to fail at.
#[cfg(not(feature = "fail-points"))]
#[inline(always)]
pub(crate) fn fail_point(_name: &str) {}

/// Returns the room for a memory image, or less if a test asked for that.
#[cfg(feature = "fail-points")]
pub(crate) fn image_room(room: u64) -> u64 {
    let wanted = std::env::var("ROOST_TEST_IMAGE_ROOM").ok().and_then(|bytes| bytes.parse().ok());
    wanted.map_or(room, |wanted| room.min(wanted))
}

/// Returns the room for a memory image as it is.
#[cfg(not(feature = "fail-points"))]
#[inline(always)]
pub(crate) fn image_room(room: u64) -> u64 {
    room
}
