//! From here into a sandbox.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, bail};
use futures_util::StreamExt;
use indicatif::ProgressBar;
use roost_client::{Client, ClientError, Upload, WriteOptions};
use roost_model::{ErrorCode, FileKind};
use tokio_util::io::ReaderStream;

use crate::copy::pack::{self, Owners, Packing};
use crate::copy::{channel, spec};
use crate::failure::hinted;
use crate::{pipes, progress};

const PIECE: usize = 128 * 1024;

/// What is at a path in a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    Folder,
    Other,
}

/// Looks at a path in a sandbox, through links.
pub(crate) async fn look(client: &Client, sandbox: &str, path: &str) -> Result<Found, ClientError> {
    let gone = |error: &ClientError| matches!(error.code(), Some(ErrorCode::PathNotFound | ErrorCode::NotADirectory));
    let seen = match client.stat_file(sandbox, path).await {
        Ok(stat) => stat.kind,
        Err(error) if gone(&error) => return Ok(Found::Nothing),
        Err(error) => return Err(error),
    };
    Ok(match seen {
        FileKind::Folder => Found::Folder,
        FileKind::File | FileKind::Other => Found::Other,
        // What a link leads to is a folder if it has an entry `.`.
        FileKind::Symlink => match client.stat_file(sandbox, &spec::join(path, ".")).await {
            Ok(_) => Found::Folder,
            Err(error) if gone(&error) => Found::Other,
            Err(error) => return Err(error),
        },
    })
}

/// A sandbox and a path in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) client: &'a Client,
    pub(crate) sandbox: &'a str,
    pub(crate) path: &'a str,
    pub(crate) owner: Option<&'a str>,
    /// Several things go there, so it must be a folder.
    pub(crate) must_be_folder: bool,
}

impl Target<'_> {
    /// Copies a file or folder.
    pub(crate) async fn take(&self, source: &Path) -> anyhow::Result<()> {
        let found = std::fs::metadata(source).with_context(|| format!("failed to find `{}`", source.display()))?;
        if found.is_dir() { self.take_folder(source).await } else { self.take_file(source, &found).await }
    }

    async fn take_file(&self, source: &Path, found: &std::fs::Metadata) -> anyhow::Result<()> {
        let name = source.file_name().and_then(|name| name.to_str());
        let name = name.with_context(|| format!("`{}` has no name that can be used inside", source.display()))?;
        let path = self.file_path(name).await?;
        let file =
            tokio::fs::File::open(source).await.with_context(|| format!("failed to open `{}`", source.display()))?;
        let size = found.is_file().then_some(found.len());
        let bar = progress::bytes(size, name);
        let counted = bar.clone();
        let pieces = ReaderStream::with_capacity(file, PIECE).inspect(move |piece| {
            counted.inc(piece.as_ref().map_or(0, |piece| piece.len() as u64));
        });
        let mode = found.is_file().then_some(found.mode() & 0o7777);
        self.write(&path, Upload::stream(pieces, size), mode).await?;
        bar.finish_and_clear();
        Ok(())
    }

    /// Copies standard input into a file.
    pub(crate) async fn take_stream(&self) -> anyhow::Result<()> {
        if self.path.ends_with('/') || look(self.client, self.sandbox, self.path).await? == Found::Folder {
            return Err(hinted(format!("`{}` is a folder", self.path), "name the file that standard input goes into"));
        }
        let pieces = pipes::read_stdin().context("failed to read standard input")?;
        self.write(self.path, Upload::stream(channel::stream(pieces), None), None).await
    }

    async fn write(&self, path: &str, content: Upload, mode: Option<u32>) -> anyhow::Result<()> {
        let options = WriteOptions { mode, owner: self.owner.map(str::to_owned), append: false };
        self.client.write_file(self.sandbox, path, content, &options).await?;
        Ok(())
    }

    /// Where a file of that name goes.
    async fn file_path(&self, name: &str) -> anyhow::Result<String> {
        let into = self.must_be_folder || self.path.ends_with('/') || spec::means_content(self.path);
        match look(self.client, self.sandbox, self.path).await? {
            Found::Folder => Ok(spec::join(self.path, name)),
            Found::Nothing if into && !self.must_be_folder => Ok(spec::join(self.path, name)),
            _ if self.must_be_folder => bail!("`{}` is not a folder", self.path),
            Found::Other if into => bail!("`{}` is not a folder", self.path),
            Found::Nothing | Found::Other => Ok(self.path.to_owned()),
        }
    }

    async fn take_folder(&self, source: &Path) -> anyhow::Result<()> {
        let path = match look(self.client, self.sandbox, self.path).await? {
            Found::Other => bail!("`{}` is not a folder", self.path),
            Found::Nothing if self.must_be_folder => bail!("`{}` is not a folder", self.path),
            Found::Nothing => self.path.to_owned(),
            Found::Folder => match folder_name(source) {
                Some(name) => spec::join(self.path, &name),
                None => self.path.to_owned(),
            },
        };
        let walked = source.to_owned();
        let total = tokio::task::spawn_blocking(move || pack::size_of(&walked)).await?;
        let bar = progress::bytes(Some(total), &source.display().to_string());
        self.send_folder(source, &path, bar).await
    }

    async fn send_folder(&self, source: &Path, path: &str, bar: ProgressBar) -> anyhow::Result<()> {
        let (upload, outcome) = Packing::start(source.to_owned(), Owners::Dropped, bar.clone())?.into_parts();
        let sent = self.client.write_archive(self.sandbox, path, upload, self.owner).await;
        outcome.check().await?;
        sent?;
        bar.finish_and_clear();
        Ok(())
    }
}

/// The name a folder keeps at its destination; nothing if its content alone is meant, as by `src/.`
fn folder_name(source: &Path) -> Option<String> {
    let text = source.to_str()?;
    if spec::means_content(text) {
        return None;
    }
    // `..` and `/` have names too, found by looking where they are.
    let whole = source.canonicalize().ok()?;
    source.file_name().or(whole.file_name()).map(|name| name.to_string_lossy().into_owned())
}
