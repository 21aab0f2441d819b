//! Making a fresh veth pair carry packets at once.
//!
//! When the far end of a pair comes up, the near one has carrier but sends nothing until a kernel worker
//! has switched its queue on. A SYN that is dropped in between costs a second, so we do not leave it
//! to the worker.

use super::message::{Batch, Tolerate};
use super::route::link_header;

/// Any length but the default of 1000; a veth has no queue to speak of.
const OTHER_QUEUE_LENGTH: u32 = 999;

/// How to have a pending change of carrier applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settle {
    /// By asking for the link's state: since 6.8 the kernel applies what is pending before it answers.
    Query,
    /// By changing the length of the queue, which switches it off and on again: dearer by 0.1 ms, but
    /// any kernel does it.
    Requeue,
}

impl Settle {
    /// The cheapest way on the running kernel.
    pub(crate) fn on_this_kernel() -> Self {
        Self::on(&rustix::system::uname().release().to_string_lossy())
    }

    fn on(release: &str) -> Self {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= (6, 8) => Self::Query,
            _ => Self::Requeue,
        }
    }

    /// Asks for it, to be sent after both ends are up.
    pub(crate) fn request(self, batch: &mut Batch, index: u32) {
        let attempt = "settle the carrier of a link";
        match self {
            Self::Query => {
                batch.message(attempt, Tolerate::Nothing, libc::RTM_GETLINK, 0).raw(&link_header(index, false));
            }
            Self::Requeue => {
                batch
                    .message(attempt, Tolerate::Nothing, libc::RTM_SETLINK, 0)
                    .raw(&link_header(index, false))
                    .number(libc::IFLA_TXQLEN, OTHER_QUEUE_LENGTH);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_release_decides() {
        assert_eq!(Settle::on("6.18.3"), Settle::Query);
        assert_eq!(Settle::on("6.8.0-45-generic"), Settle::Query);
        assert_eq!(Settle::on("7.0"), Settle::Query);
        assert_eq!(Settle::on("6.1.0-25-amd64"), Settle::Requeue);
        assert_eq!(Settle::on("5.19"), Settle::Requeue);
        assert_eq!(Settle::on("unknown"), Settle::Requeue);
    }
}
