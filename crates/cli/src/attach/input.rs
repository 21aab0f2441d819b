//! Our standard input on its way to the process.

use std::future::pending;
use std::io;
use std::time::Duration;

use anyhow::Context;
use roost_client::ClientError;

use super::remote::Input;
use super::{End, Wishes};
use crate::failure::INTERRUPTED;
use crate::pipes;

/// What Ctrl-C is in a raw terminal.
const CTRL_C: u8 = 3;
/// Keys that wait for a daemon that is away.
const MOST_KEYS: usize = 64 * 1024;
/// After this time on a healthy connection the last bytes of input have long been handed to the process.
const DELIVERY: Duration = Duration::from_secs(2);

type Pieces = tokio::sync::mpsc::Receiver<io::Result<bytes::Bytes>>;

/// Bytes of standard input may not have arrived.
#[derive(Debug, thiserror::Error)]
#[error("the connection broke while standard input was being sent: a part of it may be lost")]
struct LostInput;

/// Passes standard input on; returns only if that fails or the person gives up on a daemon that is away.
pub(super) async fn pass_input(input: Input, wishes: Wishes, interactive: bool) -> anyhow::Result<End> {
    if !wishes.stdin {
        return pending().await;
    }
    let pieces = pipes::read_stdin().context("failed to start the input thread")?;
    if interactive { pass_keys(input, pieces).await } else { pass_bytes(input, pieces).await }
}

/// Passes keys on; those typed while the daemon is away wait for it, except Ctrl-C, which leaves.
async fn pass_keys(mut input: Input, mut pieces: Pieces) -> anyhow::Result<End> {
    let mut waiting = Vec::new();
    loop {
        let piece = if input.is_connected() {
            if !waiting.is_empty() {
                // A break in the middle may cost these keys; the person sees that on the screen.
                let keys = std::mem::take(&mut waiting);
                input
                    .send_stdin(&keys)
                    .await
                    .or_else(|error| if error.is_retryable() { Ok(()) } else { Err(error) })?;
            }
            tokio::select! {
                piece = pieces.recv() => piece,
                () = input.lost() => {
                    eprint!("\r\nroost: the daemon is away; waiting for it (Ctrl-C leaves)\r\n");
                    continue;
                }
            }
        } else {
            tokio::select! {
                piece = pieces.recv() => piece,
                () = input.back() => continue,
            }
        };
        let Some(piece) = piece else { return pending().await };
        let piece = piece.context("failed to read standard input")?;
        if !input.is_connected() && piece.contains(&CTRL_C) {
            return Ok(End::Left { code: INTERRUPTED, farewell: None });
        }
        if waiting.len() < MOST_KEYS {
            waiting.extend_from_slice(&piece);
        }
    }
}

/// Bytes of a pipe or file are data: a connection that breaks while they are under way is a failure, not a pause.
async fn pass_bytes(mut input: Input, mut pieces: Pieces) -> anyhow::Result<End> {
    let lost = |error: ClientError| anyhow::Error::from(error).context(LostInput);
    let mut sent = false;
    loop {
        let piece = tokio::select! {
            piece = pieces.recv() => piece,
            () = input.lost(), if sent => return Err(LostInput.into()),
        };
        let Some(piece) = piece else { break };
        let piece = piece.context("failed to read standard input")?;
        input.send_stdin(&piece).await.map_err(lost)?;
        sent = true;
    }
    input.close_stdin().await.map_err(lost)?;
    if sent {
        tokio::select! {
            () = input.lost() => return Err(LostInput.into()),
            () = tokio::time::sleep(DELIVERY) => {}
        }
    }
    pending().await
}
