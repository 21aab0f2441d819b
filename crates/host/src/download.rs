//! A file on its way out of a sandbox.

use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt, stream};
use roost_model::FileStat;

use crate::HostError;

/// Files up to this size are read before anything is said of them, so that their true length and every failure can be.
const SMALL: usize = 64 * 1024;

/// Bytes as they come.
pub type ByteStream = Pin<Box<dyn Stream<Item = Result<Bytes, HostError>> + Send>>;

/// A file on its way out.
pub struct FileDownload {
    /// The file.
    pub stat: FileStat,
    /// How many bytes follow, going by what the file says of itself.
    pub length: u64,
    /// The same, where that is certain.
    pub known: Option<u64>,
    /// Its content.
    pub content: ByteStream,
}

impl FileDownload {
    /// Reads the start of it, and all of it if it is small.
    ///
    /// Files of `/proc` and `/sys` have other sizes than they say. They are small, so that their length is certain now.
    pub async fn begun(mut self) -> Result<Self, HostError> {
        let mut start = BytesMut::new();
        while start.len() <= SMALL {
            match self.content.next().await {
                Some(piece) => start.extend_from_slice(&piece?),
                None => {
                    self.known = Some(start.len() as u64);
                    let whole = (!start.is_empty()).then(|| Ok(start.freeze()));
                    self.content = Box::pin(stream::iter(whole));
                    return Ok(self);
                }
            }
        }
        self.content = Box::pin(stream::iter([Ok(start.freeze())]).chain(self.content));
        Ok(self)
    }
}

impl std::fmt::Debug for FileDownload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileDownload").field("stat", &self.stat).field("length", &self.length).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use roost_model::FileKind;

    use super::*;

    fn download(
        content: impl Stream<Item = Result<Bytes, HostError>> + Send + 'static,
        known: Option<u64>,
    ) -> FileDownload {
        let stat = FileStat {
            name: "file".to_owned(),
            path: "/file".to_owned(),
            kind: FileKind::File,
            size: known.unwrap_or(0),
            mode: "0644".to_owned(),
            uid: 0,
            gid: 0,
            modified_at: Timestamp::UNIX_EPOCH,
            target: None,
        };
        FileDownload { stat, length: known.unwrap_or(0), known, content: Box::pin(content) }
    }

    async fn told(pieces: Vec<&'static [u8]>, known: Option<u64>) -> (usize, Option<u64>) {
        let content = stream::iter(pieces.into_iter().map(|piece| Ok(Bytes::from_static(piece))));
        let begun = download(content, known).begun().await.unwrap();
        let sizes: Vec<usize> = begun.content.map(|piece| piece.unwrap().len()).collect().await;
        (sizes.into_iter().sum(), begun.known)
    }

    #[tokio::test]
    async fn a_small_file_has_the_length_it_has() {
        assert_eq!(told(vec![b"0\n"], Some(4096)).await, (2, Some(2)));
        assert_eq!(told(vec![b"MemTotal"], None).await, (8, Some(8)));
        assert_eq!(told(vec![], None).await, (0, Some(0)));
    }

    #[tokio::test]
    async fn a_large_one_has_the_length_it_says() {
        static BLOCK: [u8; SMALL] = [0; SMALL];
        assert_eq!(told(vec![&BLOCK, &BLOCK], Some(2 * SMALL as u64)).await, (2 * SMALL, Some(2 * SMALL as u64)));
        assert_eq!(told(vec![&BLOCK, &BLOCK], None).await, (2 * SMALL, None));
    }

    #[tokio::test]
    async fn a_failure_at_the_start_is_a_refusal() {
        let content = stream::iter([Err(HostError::Conflict("no".to_owned()))]);
        assert!(matches!(download(content, None).begun().await, Err(HostError::Conflict(_))));
    }
}
