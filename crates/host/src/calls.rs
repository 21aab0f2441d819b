//! Calls of processes inside: the host keeps a connection to the guest of every sandbox that is awake and answers.
//!
//! The sandbox can open no way to the daemon by itself; it is asked. Frozen, it keeps its connection. Before its memory is
//! saved or its processes end, the connection is given up ([`crate::guest::Guests::forget`]), and made anew when it is awake
//! again. Where it breaks under a sandbox that goes on, as a checkpoint breaks it on some engines, the last answer is
//! brought on the next one, if it is still of the same processes. One call is answered at a time, and no faster than
//! [`pace::Pace`] allows, so that a sandbox keeps nobody busy but itself.

mod answer;
mod pace;

use std::time::{Duration, Instant};

use roost_lifecycle::Phase;
use roost_model::chain;
use roost_wire::Request;
use roost_wire::client::Calls;
use tokio_util::sync::CancellationToken;

use crate::HostError;
use crate::guest::{Guest, GuestSocket};
use crate::handle::Handle;
use answer::Desk;

/// One that is awake for less makes no calls worth a connection; most runs are over by then.
const SETTLE: Duration = Duration::from_millis(200);
/// A guest may not answer, or hang up on us, as often as it likes.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Listens to a sandbox for as long as it lives and the daemon is here.
pub(crate) async fn attend(handle: Handle) {
    let leaving = handle.shared.leaving.clone();
    tokio::select! {
        () = leaving.cancelled() => {}
        () = listen(handle) => {}
    }
}

async fn listen(handle: Handle) {
    let mut seen = handle.seen.clone();
    let mut desk = Desk::new(handle.clone());
    let mut pause = FIRST_PAUSE;
    loop {
        let awake = seen.wait_for(|record| record.phase == Phase::Active || record.phase.is_ending()).await;
        if awake.map_or(true, |record| record.phase.is_ending()) {
            return;
        }
        tokio::time::sleep(SETTLE).await;
        if handle.record().phase != Phase::Active {
            continue;
        }
        let line = handle.shared.guests.open_line(handle.id());
        let since = Instant::now();
        if let Err(error) = hear(&handle, &line, &mut desk).await {
            tracing::debug!(sandbox = %handle.id(), error = %chain(&error), "its calls are not heard for a while");
        }
        if line.is_cancelled() || desk.has_answered_since(since) {
            // It sleeps, ends, or was saved; that says nothing about its guest.
            pause = FIRST_PAUSE;
            continue;
        }
        pause = if since.elapsed() > LONGEST_PAUSE { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
        tokio::time::sleep(pause).await;
    }
}

/// Answers calls until the connection ends.
async fn hear(handle: &Handle, line: &CancellationToken, desk: &mut Desk) -> Result<(), HostError> {
    let guest = Guest::of(handle.shared.clone(), &handle.record())?;
    let life = handle.life();
    let connect = async {
        let mut connection = guest.connect().await?;
        if let Some(answer) = desk.last_answer(&life)
            && let Err(error) = connection.call_done(&Request::Answered(answer)).await
        {
            // A guest of an earlier make does not take it; its caller is told to try again.
            tracing::debug!(sandbox = %handle.id(), error = %chain(&error), "an answer was not taken");
            connection = guest.connect().await?;
        }
        connection.calls().await.map_err(|error| guest.failed(error))
    };
    let mut calls = tokio::select! {
        () = line.cancelled() => return Ok(()),
        calls = connect => calls?,
    };
    tokio::select! {
        () = line.cancelled() => Ok(()),
        ended = answer_all(&guest, &mut calls, desk, &life) => ended,
    }
}

async fn answer_all(
    guest: &Guest,
    calls: &mut Calls<GuestSocket>,
    desk: &mut Desk,
    life: &CancellationToken,
) -> Result<(), HostError> {
    loop {
        desk.pace().await;
        let call = calls.next().await.map_err(|error| guest.failed(error))?;
        let answer = desk.answer(call, life).await;
        calls.answer(&answer).await.map_err(|error| guest.failed(error))?;
    }
}
