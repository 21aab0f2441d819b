//! The socket inside: any user may write a call as a line of JSON and reads the outcome as another.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use roost_wire::{Call, Outcome};

use crate::guest::{Counted, Guest, small_thread};

/// Longest line that is read.
const LONGEST: u64 = 64 * 1024;
/// Callers at once; each has a thread.
const MOST: u32 = 64;
/// A caller that has connected and says nothing, or does not read, is not waited for without end.
const PATIENCE: Duration = Duration::from_secs(10);

static CALLERS: AtomicU32 = AtomicU32::new(0);

/// The socket's path below the folder of the files that tell processes who they are.
pub(crate) fn path(run_dir: &str) -> PathBuf {
    Path::new(run_dir).join("sock")
}

/// Listens, and puts the command that speaks to the socket where a search path can name it.
pub(crate) fn open(run_dir: &str) -> io::Result<UnixListener> {
    fs::create_dir_all(run_dir)?;
    let path = path(run_dir);
    fs::remove_file(&path).or_else(absent)?;
    let listener = UnixListener::bind(&path)?;
    listener.set_nonblocking(true)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
    let folder = Path::new(run_dir).join("bin");
    fs::create_dir_all(&folder)?;
    let command = folder.join("roost-guest");
    fs::remove_file(&command).or_else(absent)?;
    std::os::unix::fs::symlink("../guest", command)?;
    Ok(listener)
}

fn absent(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// Serves a caller in a thread of its own; one too many hears so.
pub(crate) fn take_on(guest: &Arc<Guest>, stream: UnixStream) {
    let full = CALLERS.load(Ordering::Relaxed) >= MOST;
    let guest = guest.clone();
    let turned_away = stream.try_clone();
    let work = move || {
        let _counted = Counted::new(&CALLERS);
        // Whoever hangs up in the middle does not mind.
        serve(&guest, &stream).ok();
    };
    if full || small_thread("call").spawn(work).is_err() {
        let refused = Outcome::refused("rate_limited", "too many callers at once");
        // In the thread that accepts, so it does not wait for the peer.
        if let Ok(stream) = turned_away
            && stream.set_nonblocking(true).is_ok()
        {
            say(&stream, &refused).ok();
        }
    }
}

fn serve(guest: &Guest, stream: &UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        reader.by_ref().take(LONGEST).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(());
        }
        if line.last() != Some(&b'\n') && line.len() as u64 == LONGEST {
            return say(stream, &Outcome::refused("bad_request", format!("a call has at most {LONGEST} bytes")));
        }
        let outcome = match serde_json::from_slice::<Call>(&line) {
            Ok(call) => guest.calls.ask(call),
            Err(error) => Outcome::refused("bad_request", format!("failed to read a call: {error}")),
        };
        say(stream, &outcome)?;
    }
}

fn say(mut stream: &UnixStream, outcome: &Outcome) -> io::Result<()> {
    let mut line = serde_json::to_vec(outcome)?;
    line.push(b'\n');
    stream.write_all(&line)
}
