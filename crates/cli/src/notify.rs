//! What the daemon tells the service manager that started it: that it is ready, alive, stopping.
//!
//! The words are those of systemd's `sd_notify`: lines in one datagram to the socket that `NOTIFY_SOCKET` names. Without
//! that variable nothing is said and nothing is watched.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::time::Duration;

/// So often within the time after which the manager takes the daemon for dead: one late word does no harm.
const WORDS_IN_TIME: u32 = 3;
/// How long a word waits for a manager that has not heard those before.
const PATIENCE: Duration = Duration::from_secs(1);

/// The way to the service manager, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Notifier {
    manager: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// What the environment says; `variable` looks it up.
    pub(crate) fn new(variable: impl Fn(&str) -> Option<OsString>) -> io::Result<Self> {
        let Some(place) = variable("NOTIFY_SOCKET").filter(|place| !place.is_empty()) else {
            return Ok(Self::default());
        };
        let address = match place.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(Path::new(&place))?,
        };
        let number = |name: &str| variable(name)?.to_str()?.parse::<u64>().ok();
        // The time may be meant for a process that started us, not for us.
        let for_us = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|time| for_us && *time > 0).map(Duration::from_micros);
        let socket = UnixDatagram::unbound()?;
        // A manager that does not listen does not hold the daemon up.
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { manager: Some((socket, address)), watchdog })
    }

    /// Says that requests are answered from now on.
    pub(crate) fn ready(&self, sandboxes: usize) {
        self.tell(&format!("READY=1\nSTATUS=serving, {sandboxes} sandboxes at the start"));
    }

    /// Says that the daemon is about to end.
    pub(crate) fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=stopping, sandboxes go on");
    }

    /// Says again and again that the daemon is alive, as long as `alive` finds it so in time; never returns.
    ///
    /// A daemon that runs but does not answer is silent, and the manager starts another.
    pub(crate) async fn watch(&self, alive: impl AsyncFn() -> bool) {
        let Some(pause) = self.watchdog.map(|time| time / WORDS_IN_TIME) else {
            return std::future::pending().await;
        };
        let mut tick = tokio::time::interval(pause);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            match tokio::time::timeout(pause, alive()).await {
                Ok(true) => self.tell("WATCHDOG=1"),
                _ => tracing::error!("the daemon does not answer itself; the service manager is told nothing"),
            }
        }
    }

    fn tell(&self, words: &str) {
        let Some((socket, address)) = &self.manager else { return };
        if let Err(error) = socket.send_to_addr(words.as_bytes(), address) {
            tracing::warn!(%error, "could not tell the service manager `{}`", words.lines().next().unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn notifier(place: &Path, watchdog_us: u64, pid: u32) -> Notifier {
        let variable = |name: &str| match name {
            "NOTIFY_SOCKET" => Some(place.into()),
            "WATCHDOG_USEC" => Some(watchdog_us.to_string().into()),
            "WATCHDOG_PID" => Some(pid.to_string().into()),
            _ => None,
        };
        Notifier::new(variable).unwrap()
    }

    struct Manager {
        _folder: tempfile::TempDir,
        socket: tokio::net::UnixDatagram,
        notifier: Notifier,
    }

    impl Manager {
        fn new(watchdog_us: u64, pid: u32) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("notify");
            let socket = tokio::net::UnixDatagram::bind(&path).unwrap();
            let notifier = notifier(&path, watchdog_us, pid);
            Self { _folder: folder, socket, notifier }
        }

        async fn hears(&self) -> String {
            let mut buffer = [0; 1024];
            let count = self.socket.recv(&mut buffer).await.unwrap();
            String::from_utf8_lossy(&buffer[..count]).into_owned()
        }
    }

    #[tokio::test]
    async fn what_is_told_arrives_in_order() {
        let manager = Manager::new(0, std::process::id());
        manager.notifier.ready(3);
        manager.notifier.stopping();
        assert!(manager.hears().await.starts_with("READY=1\n"));
        assert!(manager.hears().await.starts_with("STOPPING=1\n"));
        assert_eq!(manager.notifier.watchdog, None);
    }

    #[tokio::test]
    async fn an_abstract_socket_is_found() {
        let name = format!("roost-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        let notifier = Notifier::new(|wanted| (wanted == "NOTIFY_SOCKET").then(|| format!("@{name}").into())).unwrap();
        notifier.ready(0);
        let mut buffer = [0; 64];
        assert!(socket.recv(&mut buffer).unwrap() > 0);
    }

    #[test]
    fn a_watchdog_for_another_process_is_none_of_ours() {
        let nowhere = Path::new("/nowhere");
        assert_eq!(notifier(nowhere, 30_000, 1).watchdog, None);
        assert_eq!(notifier(nowhere, 30_000, std::process::id()).watchdog, Some(Duration::from_millis(30)));
    }

    #[tokio::test]
    async fn the_dead_are_silent() {
        let manager = Manager::new(3_000, std::process::id());
        let asked = Cell::new(0);
        // Well, then it fails, then it hangs; well again from then on.
        let alive = async || {
            asked.set(asked.get() + 1);
            match asked.get() {
                2 => false,
                3 => std::future::pending().await,
                _ => true,
            }
        };
        let heard_twice = async {
            let first = manager.hears().await;
            let asked_before = asked.get();
            (first, manager.hears().await, asked_before, asked.get())
        };
        tokio::select! {
            () = manager.notifier.watch(alive) => unreachable!("a watch has no end"),
            (first, second, before, after) = heard_twice => {
                assert_eq!((first.as_str(), second.as_str()), ("WATCHDOG=1", "WATCHDOG=1"));
                assert!(before < 4 && after >= 4, "asked {before} times, then {after} times");
            }
        }
    }

    #[tokio::test]
    async fn without_a_manager_nothing_is_said() {
        let notifier = Notifier::new(|_| None).unwrap();
        notifier.ready(1);
        assert!(notifier.manager.is_none());
    }
}
