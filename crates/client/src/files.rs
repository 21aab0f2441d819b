//! Files inside a sandbox.

use hyper::Method;
use roost_model::{FileList, FileStat, MakeFolder, MoveFile, PatchFile};

use crate::events::WatchStream;
use crate::route::Route;
use crate::{Client, ClientError, Download, Upload};

/// How a file is written.
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    /// Permission bits; the daemon's choice if absent.
    pub mode: Option<u32>,
    /// Owner, `user` or `user:group`; the sandbox's default user if absent.
    pub owner: Option<String>,
    /// Add to the end of what is there.
    pub append: bool,
}

fn files(sandbox: &str) -> Route {
    Route::sandbox(sandbox).part("files")
}

impl Client {
    /// Reads a file.
    pub async fn read_file(&self, sandbox: &str, path: &str) -> Result<Download, ClientError> {
        Ok(Download::new(self.get(files(sandbox).query("path", path)).await?))
    }

    /// Reads a part of a file.
    pub async fn read_file_part(
        &self,
        sandbox: &str,
        path: &str,
        offset: u64,
        length: u64,
    ) -> Result<Download, ClientError> {
        let route = files(sandbox).query("path", path).query("offset", offset).query("length", length);
        Ok(Download::new(self.get(route).await?))
    }

    /// Writes a file, with the folders on its way.
    pub async fn write_file(
        &self,
        sandbox: &str,
        path: &str,
        content: Upload,
        options: &WriteOptions,
    ) -> Result<FileStat, ClientError> {
        let route = files(sandbox)
            .query("path", path)
            .query_some("mode", options.mode.map(|mode| format!("{mode:04o}")))
            .query_some("owner", options.owner.as_ref())
            .query_some("append", options.append.then_some(true));
        self.send_upload(Method::PUT, route, content, "application/octet-stream").await?.json().await
    }

    /// Changes mode or owner, or makes a symbolic link.
    pub async fn patch_file(&self, sandbox: &str, path: &str, patch: &PatchFile) -> Result<FileStat, ClientError> {
        self.send_json(Method::PATCH, files(sandbox).query("path", path), patch, None).await?.json().await
    }

    /// Removes a file, or a folder with everything in it.
    pub async fn remove_file(&self, sandbox: &str, path: &str, recursive: bool) -> Result<(), ClientError> {
        let route = files(sandbox).query("path", path).query_some("recursive", recursive.then_some(true));
        self.delete(route).await
    }

    /// The entries of a folder.
    pub async fn list_files(&self, sandbox: &str, path: &str) -> Result<FileList, ClientError> {
        let answer = self.get(files(sandbox).part("list").query("path", path)).await?;
        let status = answer.status();
        let mut list: FileList = answer.json().await?;
        match list.error.take() {
            Some(detail) => Err(ClientError::Api { status, detail, sandbox: None }),
            None => Ok(list),
        }
    }

    /// What is known of a path; a symbolic link is not followed.
    pub async fn stat_file(&self, sandbox: &str, path: &str) -> Result<FileStat, ClientError> {
        self.get_json(files(sandbox).part("stat").query("path", path)).await
    }

    /// Makes a folder.
    pub async fn make_folder(&self, sandbox: &str, folder: &MakeFolder) -> Result<FileStat, ClientError> {
        self.send_json(Method::POST, files(sandbox).part("mkdir"), folder, None).await?.json().await
    }

    /// Moves a path.
    pub async fn move_file(&self, sandbox: &str, from: &str, to: &str) -> Result<FileStat, ClientError> {
        let body = MoveFile { from: from.to_owned(), to: to.to_owned() };
        self.send_json(Method::POST, files(sandbox).part("move"), &body, None).await?.json().await
    }

    /// What changes below a path, as it happens.
    pub async fn watch_files(&self, sandbox: &str, path: &str, recursive: bool) -> Result<WatchStream, ClientError> {
        let route = files(sandbox).part("watch").query("path", path).query("recursive", recursive);
        Ok(WatchStream::new(self.get(route).await?))
    }

    /// A folder as a tar stream with paths relative to it.
    pub async fn read_archive(&self, sandbox: &str, path: &str) -> Result<Download, ClientError> {
        Ok(Download::new(self.get(files(sandbox).part("archive").query("path", path)).await?))
    }

    /// Unpacks a tar stream into a folder, which is made if missing.
    pub async fn write_archive(
        &self,
        sandbox: &str,
        path: &str,
        archive: Upload,
        owner: Option<&str>,
    ) -> Result<(), ClientError> {
        let route = files(sandbox).part("archive").query("path", path).query_some("owner", owner);
        self.send_upload(Method::PUT, route, archive, "application/x-tar").await?.drain().await
    }
}
