//! The files that the build script found.

/// One file, as it is and packed with gzip.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: &'static str,
    pub(crate) kind: &'static str,
    /// For `ETag`, with its quotes.
    pub(crate) tag: &'static str,
    /// Whether its name changes with what is in it.
    pub(crate) forever: bool,
    pub(crate) content: &'static [u8],
    pub(crate) packed: &'static [u8],
}

pub(crate) const FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/files.rs"));
