//! From a sandbox to here.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use bytes::Bytes;
use indicatif::ProgressBar;
use roost_client::{Client, Download, OutputStream};
use tempfile::NamedTempFile;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use crate::copy::channel::{ChannelReader, PIECES};
use crate::copy::spec;
use crate::copy::unpack::unpack;
use crate::copy::upload::{Found, look};
use crate::output::printable;
use crate::pipes::Output;
use crate::progress;

/// Permission bits that are taken over; no set-user-id bit of a sandbox's reaches this side.
const MODE: u32 = 0o777;

/// A path in a sandbox to copy from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin<'a> {
    pub(crate) client: &'a Client,
    pub(crate) sandbox: &'a str,
    pub(crate) path: &'a str,
}

impl Origin<'_> {
    /// Copies to a path here.
    pub(crate) async fn put(&self, target: &Path, must_be_folder: bool) -> anyhow::Result<()> {
        let folder_there = target.is_dir();
        if must_be_folder && !folder_there {
            bail!("`{}` is not a folder", target.display());
        }
        if self.is_folder().await? {
            return self.put_folder(target).await;
        }
        let ends_in_slash = target.as_os_str().as_encoded_bytes().ends_with(b"/");
        if ends_in_slash && !folder_there {
            bail!("`{}` is not a folder", target.display());
        }
        if folder_there {
            let name = spec::base_name(self.path).with_context(|| format!("`{}` names no file", self.path))?;
            return self.put_file(&target.join(name)).await;
        }
        self.put_file(target).await
    }

    /// Copies to standard output: a file as it is, a folder as a tar stream.
    pub(crate) async fn put_stream(&self) -> anyhow::Result<()> {
        let mut content = if self.is_folder().await? {
            self.client.read_archive(self.sandbox, self.path).await?
        } else {
            self.client.read_file(self.sandbox, self.path).await?
        };
        let mut output = Output::start()?;
        while let Some(piece) = content.chunk().await? {
            output.write(OutputStream::Stdout, piece).await?;
        }
        Ok(output.finish().await?)
    }

    async fn is_folder(&self) -> anyhow::Result<bool> {
        Ok(match look(self.client, self.sandbox, self.path).await? {
            Found::Folder => true,
            Found::Other => false,
            // Let the daemon say what is wrong with it.
            Found::Nothing => self.client.stat_file(self.sandbox, self.path).await.map(|_| false)?,
        })
    }

    async fn put_file(&self, target: &Path) -> anyhow::Result<()> {
        let failed = || format!("failed to write `{}`", target.display());
        let mode = self.client.stat_file(self.sandbox, self.path).await?.mode;
        let content = self.client.read_file(self.sandbox, self.path).await?;
        let bar = progress::bytes(content.size(), self.path);
        let in_place = std::fs::metadata(target).is_ok_and(|found| !found.is_file()) || target.is_symlink();
        if in_place {
            // A device, a pipe or a link: it stays what it is.
            let mut file =
                tokio::fs::OpenOptions::new().write(true).truncate(true).open(target).await.with_context(failed)?;
            return receive(content, &mut file, &bar).await.with_context(failed);
        }
        let folder = match target.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        // Beside its destination, so that it is whole or not there at all, and gone if we are interrupted.
        let staged = NamedTempFile::with_prefix_in(".roost-", folder).with_context(failed)?;
        let mut file = tokio::fs::File::from_std(staged.reopen().with_context(failed)?);
        receive(content, &mut file, &bar).await.with_context(failed)?;
        let mode = u32::from_str_radix(&mode, 8).unwrap_or(0o644) & MODE;
        staged.as_file().set_permissions(std::fs::Permissions::from_mode(mode)).with_context(failed)?;
        staged.persist(target).map_err(|error| error.error).with_context(failed)?;
        bar.finish_and_clear();
        Ok(())
    }

    async fn put_folder(&self, target: &Path) -> anyhow::Result<()> {
        let root = self.folder_target(target)?;
        match std::fs::create_dir(&root) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && root.is_dir() => {}
            made => made.with_context(|| format!("failed to make the folder `{}`", root.display()))?,
        }
        let mut archive = self.client.read_archive(self.sandbox, self.path).await?;
        let bar = progress::bytes(None, self.path);
        let (pieces, incoming) = mpsc::channel::<io::Result<Bytes>>(PIECES);
        let unpacking = tokio::task::spawn_blocking(move || unpack(ChannelReader::new(incoming), &root));
        let received = loop {
            match archive.chunk().await {
                Ok(Some(piece)) => {
                    bar.inc(piece.len() as u64);
                    if pieces.send(Ok(piece)).await.is_err() {
                        // Unpacking failed and says why.
                        break Ok(());
                    }
                }
                Ok(None) => break Ok(()),
                Err(error) => {
                    // Without this an archive that was cut could pass for a whole one.
                    pieces.send(Err(io::Error::other("the connection broke"))).await.unwrap_or_default();
                    break Err(error);
                }
            }
        };
        drop(pieces);
        let unpacked = unpacking.await?;
        received?;
        bar.finish_and_clear();
        for left_out in unpacked?.left_out {
            eprintln!("roost: {}", left_out_line(&left_out));
        }
        Ok(())
    }

    /// Where a folder's content goes: into a folder of its name if the target is there, else it becomes the target.
    fn folder_target(&self, target: &Path) -> anyhow::Result<PathBuf> {
        if !target.exists() {
            return Ok(target.to_owned());
        }
        if !target.is_dir() {
            bail!("`{}` is not a folder", target.display());
        }
        if spec::means_content(self.path) {
            return Ok(target.to_owned());
        }
        Ok(spec::base_name(self.path).map_or_else(|| target.to_owned(), |name| target.join(name)))
    }
}

/// The note about an entry that is not copied. A process in the sandbox chose its name.
fn left_out_line(path: &Path) -> String {
    format!("left out `{}`: neither file, folder nor link", printable(&path.to_string_lossy()))
}

async fn receive(mut content: Download, file: &mut tokio::fs::File, bar: &ProgressBar) -> anyhow::Result<()> {
    while let Some(piece) = content.chunk().await? {
        file.write_all(&piece).await?;
        bar.inc(piece.len() as u64);
    }
    Ok(file.flush().await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_a_left_out_entry_is_printed_without_control_characters() {
        let line = left_out_line(Path::new("f\x1b]0;owned\x07"));
        assert_eq!(line, "left out `f\u{fffd}]0;owned\u{fffd}`: neither file, folder nor link");
    }
}
