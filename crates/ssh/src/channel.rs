//! The side of a channel that writes.

use bytes::Bytes;
use roost_host::{Exit, signal_name};
use russh::server::{Handle as Line, Msg};
use russh::{ChannelWriteHalf, Sig};

/// The kind of data that is standard error.
const STDERR: u32 = 1;
/// What `ssh` itself ends with when something is wrong that no command has to do with.
pub(crate) const FAILED: u32 = 255;

/// Where a session's output goes. Errors mean that the client is gone, and are noticed by whoever reads.
pub(crate) struct Out {
    half: ChannelWriteHalf<Msg>,
    line: Line,
    /// Lines end as terminals want it.
    is_terminal: bool,
}

impl std::fmt::Debug for Out {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Out").field("is_terminal", &self.is_terminal).finish_non_exhaustive()
    }
}

impl Out {
    pub(crate) fn new(half: ChannelWriteHalf<Msg>, line: Line) -> Self {
        Self { half, line, is_terminal: false }
    }

    pub(crate) fn on_terminal(&mut self) {
        self.is_terminal = true;
    }

    pub(crate) async fn stdout(&self, data: impl Into<Bytes>) -> Result<(), russh::Error> {
        self.half.data_bytes(data).await
    }

    pub(crate) async fn stderr(&self, data: impl Into<Bytes>) -> Result<(), russh::Error> {
        self.half.extended_data_bytes(STDERR, data).await
    }

    fn text(&self, text: &str) -> String {
        let ended = if text.is_empty() || text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") };
        if self.is_terminal { ended.replace('\n', "\r\n") } else { ended }
    }

    /// Prints lines.
    pub(crate) async fn print(&self, text: &str) {
        drop(self.stdout(self.text(text)).await);
    }

    /// Says something beside the output.
    pub(crate) async fn say(&self, text: &str) {
        drop(self.stderr(self.text(text)).await);
    }

    /// Says what is wrong and hangs up.
    pub(crate) async fn fail(self, text: &str) {
        self.say(&format!("roost: {text}")).await;
        self.end(FAILED).await;
    }

    /// Hangs up with an exit code.
    pub(crate) async fn end(self, code: u32) {
        let end = async {
            self.half.eof().await?;
            self.half.exit_status(code).await?;
            self.half.close().await
        };
        drop(end.await);
    }

    /// Hangs up as a process ended.
    pub(crate) async fn end_as(self, exit: Exit) {
        if exit.timed_out {
            self.say("roost: its time was up").await;
        }
        let Some(signal) = exit.signal else {
            let code = exit.code.and_then(|code| u32::try_from(code).ok()).unwrap_or(FAILED);
            return self.end(code).await;
        };
        drop(self.half.eof().await);
        let told = self.line.exit_signal_request(self.half.id(), named(signal), false, String::new(), String::new());
        told.await.ok();
        drop(self.half.close().await);
    }
}

/// A signal as the protocol names it, without `SIG`.
fn named(signal: i32) -> Sig {
    let name = signal_name(signal).map_or_else(|| signal.to_string(), |name| name.trim_start_matches("SIG").to_owned());
    match name.as_str() {
        "ABRT" => Sig::ABRT,
        "ALRM" => Sig::ALRM,
        "FPE" => Sig::FPE,
        "HUP" => Sig::HUP,
        "ILL" => Sig::ILL,
        "INT" => Sig::INT,
        "KILL" => Sig::KILL,
        "PIPE" => Sig::PIPE,
        "QUIT" => Sig::QUIT,
        "SEGV" => Sig::SEGV,
        "TERM" => Sig::TERM,
        "USR1" => Sig::USR1,
        _ => Sig::Custom(name),
    }
}

/// The number of a signal that a client asks for.
pub(crate) fn number(signal: &Sig) -> Option<i32> {
    let name = match signal {
        Sig::Custom(name) => name.as_str(),
        Sig::ABRT => "ABRT",
        Sig::ALRM => "ALRM",
        Sig::FPE => "FPE",
        Sig::HUP => "HUP",
        Sig::ILL => "ILL",
        Sig::INT => "INT",
        Sig::KILL => "KILL",
        Sig::PIPE => "PIPE",
        Sig::QUIT => "QUIT",
        Sig::SEGV => "SEGV",
        Sig::TERM => "TERM",
        Sig::USR1 => "USR1",
    };
    roost_host::parse_signal(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_come_back() {
        for signal in [1, 2, 3, 6, 9, 11, 13, 14, 15, 10, 12, 28] {
            assert_eq!(number(&named(signal)), Some(signal), "{:?}", named(signal));
        }
        assert_eq!(number(&Sig::Custom("NOPE".to_owned())), None);
    }
}
