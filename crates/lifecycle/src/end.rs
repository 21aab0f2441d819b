//! What is done about a sandbox whose processes all ended without anybody asking for it.

use std::time::Duration;

/// How long one that went back by itself must have been up until it does so again: what leads to the same end at once would
/// lead to it for ever.
pub const BREATHER: Duration = Duration::from_secs(600);

/// How it ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct End {
    /// A limit was reached, and that was the end of all processes.
    pub at_a_limit: bool,
    /// It was not meant to outlive its processes.
    pub ephemeral: bool,
    /// There is a checkpoint of it with memory that it stands on.
    pub has_moment: bool,
    /// How long ago it went back by itself.
    pub went_back: Option<Duration>,
}

/// What is done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aftermath {
    /// It ends for good.
    Terminate,
    /// It sleeps with its files until somebody needs it.
    Sleep,
    /// It goes back to its last checkpoint with memory, and goes on from there.
    GoBack,
}

/// Decides what is done about it.
///
/// Processes that ended of themselves may have meant to. Those that ended because another one was greedy did not, and go on
/// from where they were kept last.
pub fn after_end(end: End) -> Aftermath {
    let rested = end.went_back.is_none_or(|ago| ago >= BREATHER);
    match end {
        End { ephemeral: true, .. } => Aftermath::Terminate,
        End { at_a_limit: true, has_moment: true, .. } if rested => Aftermath::GoBack,
        _ => Aftermath::Sleep,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_reached_a_limit_goes_back_and_not_again_and_again() {
        let end = End { at_a_limit: true, has_moment: true, ..End::default() };
        assert_eq!(after_end(end), Aftermath::GoBack);
        assert_eq!(after_end(End { went_back: Some(BREATHER), ..end }), Aftermath::GoBack);
        assert_eq!(after_end(End { went_back: Some(BREATHER / 2), ..end }), Aftermath::Sleep);
        assert_eq!(after_end(End { has_moment: false, ..end }), Aftermath::Sleep);
        assert_eq!(after_end(End { at_a_limit: false, ..end }), Aftermath::Sleep);
        assert_eq!(after_end(End { ephemeral: true, ..end }), Aftermath::Terminate);
    }
}
