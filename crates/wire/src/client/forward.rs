//! Output of a process goes forward, whatever its guest says.

use crate::Stream;

use super::{CallError, ExecFrame};

/// Frames in a row that bring no byte. A reader that is slower than the process meets a few of them.
const MOST_EMPTY: u32 = 1000;
/// No process writes more than this; offsets above it would overflow where readers add to them.
const LAST_OFFSET: u64 = 1 << 62;

/// How far both streams of an attachment have come.
#[derive(Debug, Default)]
pub(super) struct Forward {
    stdout: u64,
    stderr: u64,
    empty: u32,
}

impl Forward {
    /// Passes a frame on that continues its stream.
    pub(super) fn pass(&mut self, frame: ExecFrame) -> Result<ExecFrame, CallError> {
        let (stream, from, to, bytes) = match &frame {
            ExecFrame::Output { stream, offset, bytes } => {
                (*stream, *offset, offset.saturating_add(bytes.len() as u64), bytes.len())
            }
            ExecFrame::Gap(gap) => (gap.stream, gap.from, gap.to, 0),
            ExecFrame::End(_) => return Ok(frame),
        };
        let at = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        self.empty = if bytes == 0 { self.empty + 1 } else { 0 };
        if from < *at || to < from || to > LAST_OFFSET || self.empty > MOST_EMPTY {
            return Err(CallError::Backwards("bytes of output"));
        }
        *at = to;
        Ok(frame)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::Gap;

    fn output(offset: u64, text: &'static str) -> ExecFrame {
        ExecFrame::Output { stream: Stream::Stdout, offset, bytes: Bytes::from_static(text.as_bytes()) }
    }

    fn gap(from: u64, to: u64) -> ExecFrame {
        ExecFrame::Gap(Gap { stream: Stream::Stdout, from, to })
    }

    #[test]
    fn frames_that_continue_their_stream_pass() {
        let mut forward = Forward::default();
        for frame in [output(5, "abc"), gap(8, 20), output(20, "x")] {
            assert_eq!(forward.pass(frame.clone()).unwrap(), frame);
        }
        let stderr = ExecFrame::Output { stream: Stream::Stderr, offset: 0, bytes: Bytes::from_static(b"e") };
        assert!(forward.pass(stderr).is_ok(), "each stream has offsets of its own");
    }

    #[test]
    fn repeated_backward_and_overflowing_frames_are_errors() {
        let after = |frame| {
            let mut forward = Forward::default();
            forward.pass(output(5, "abc")).unwrap();
            forward.pass(frame)
        };
        for frame in [output(5, "abc"), output(0, "x"), gap(3, 9), gap(9, 8), output(u64::MAX - 1, "abc")] {
            assert!(matches!(after(frame), Err(CallError::Backwards(_))));
        }
    }

    #[test]
    fn endless_empty_frames_are_an_error() {
        let mut forward = Forward::default();
        assert!((0..=MOST_EMPTY).any(|at| forward.pass(gap(at.into(), (at + 1).into())).is_err()));
    }
}
