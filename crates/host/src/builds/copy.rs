//! Copying handed-in files into a sandbox.
//!
//! The archive is unpacked by the guest into a folder of its own, and a script moves what is meant to its place: as in a
//! Dockerfile, a folder stands for its content, and several files or a slash at the end make the target a folder. A mode is
//! that of files; whoever may read a folder may enter it too.

use std::io::Read;
use std::process::Stdio;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use roost_model::StartExec;
use tokio_util::io::ReaderStream;

use super::plan::Standing;
use crate::handle::Handle;
use crate::{HostError, blocking};

const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Bytes of an archive that are sent at once.
const PIECE: usize = 256 << 10;

/// `$1` the folder of the archive, `$2` what is meant of it, `$3` where to, `$4` the owner, `$5` the mode.
const SCRIPT: &str = r#"
set -eu
stage=$1 source=$2 target=$3 owner=$4 mode=$5
cd "$stage"
set --
IFS=
for entry in $source; do
  if [ -e "$entry" ] || [ -L "$entry" ]; then set -- "$@" "$entry"; fi
done
if [ "$#" = 0 ]; then echo "nothing in the archive fits \`$source\`" >&2; exit 1; fi
own() { # own PATH: gives what was put there its owner and mode
  chown -hR "$owner" "$1"
  if [ -z "$mode" ] || [ -L "$1" ]; then return; fi
  find "$1" -type f -exec chmod "$mode" {} +
  find "$1" -depth -type d -exec chmod "$(printf %o $((0$mode | (0$mode & 0444) >> 2)))" {} +
}
folder() { # folder PATH: makes it where it is missing, with its parents; those that are made are the owner's
  if [ -d "$1" ]; then return; fi
  (folder "$(dirname "$1")")
  mkdir "$1"
  chown "$owner" "$1"
}
merge() { # merge FOLDER INTO: puts the content of a folder into another, which may have some of it
  folder "$2"
  for inner in "$1"/* "$1"/.[!.]* "$1"/..?*; do
    if [ ! -e "$inner" ] && [ ! -L "$inner" ]; then continue; fi
    place="$2/${inner##*/}"
    if [ -d "$inner" ] && [ ! -L "$inner" ] && [ -d "$place" ]; then
      (merge "$inner" "$place")
    else
      rm -rf "$place"
      own "$inner"
      mv "$inner" "$place"
    fi
  done
}
case $owner in *:*) ;; *) owner=$owner:$(id -g "$owner" 2>/dev/null || echo "$owner") ;; esac
into=
case $target in */) into=yes ;; esac
if [ "$#" -gt 1 ] || [ -d "$target" ]; then into=yes; fi
if [ "$target" != / ]; then target=${target%/}; fi
for entry in "$@"; do
  if [ -d "$entry" ] && [ ! -L "$entry" ]; then
    merge "$entry" "$target"
  elif [ -n "$into" ]; then
    folder "$target"
    own "$entry"
    rm -rf "$target/${entry##*/}"
    mv "$entry" "$target/${entry##*/}"
  else
    folder "$(dirname "$target")"
    own "$entry"
    mv -f "$entry" "$target"
  fi
done
"#;

/// What to copy and where to.
#[derive(Debug)]
pub(super) struct Copying<'a> {
    pub(super) source: &'a str,
    pub(super) to: &'a str,
    pub(super) owner: Option<&'a str>,
    pub(super) mode: Option<&'a str>,
}

/// Unpacks an archive in a sandbox; returns the folder and the command that puts its files in their place.
pub(super) async fn unpack(
    handle: &Handle,
    archive: std::fs::File,
    copying: &Copying<'_>,
    standing: &Standing,
) -> Result<StartExec, HostError> {
    let stage = format!("/var/tmp/.roost-copy-{}", crate::create::random_key());
    let pieces = plain(archive).await?;
    handle.archive_in(&stage, Some("root".to_owned()), pieces).await?;
    let owner = copying.owner.unwrap_or(&standing.user);
    let source = copying.source.trim_start_matches("./").trim_end_matches('/');
    let source = if source.is_empty() { "." } else { source };
    let words = [&stage, source, &standing.place(copying.to), owner, copying.mode.unwrap_or_default()];
    let script = format!("({SCRIPT}\n); code=$?; rm -rf \"$1\"; exit $code");
    let argv = ["/bin/sh", "-c", script.as_str(), "copy"].into_iter().chain(words);
    Ok(StartExec {
        argv: argv.map(str::to_owned).collect(),
        user: Some("root".to_owned()),
        cwd: Some("/".to_owned()),
        ..StartExec::default()
    })
}

/// The archive, unpacked if it is packed with gzip.
async fn plain(archive: std::fs::File) -> Result<impl Stream<Item = Result<Bytes, HostError>> + Send, HostError> {
    let unreadable = |error: std::io::Error| HostError::Internal(format!("failed to read an archive: {error}"));
    let (archive, packed) = blocking(move || {
        let mut archive = archive;
        let mut magic = Vec::new();
        archive.by_ref().take(GZIP.len() as u64).read_to_end(&mut magic)?;
        std::io::Seek::rewind(&mut archive)?;
        Ok::<_, std::io::Error>((archive, magic == GZIP))
    })
    .await
    .map_err(unreadable)?;
    if !packed {
        let pieces = ReaderStream::with_capacity(tokio::fs::File::from_std(archive), PIECE);
        return Ok(pieces.map_err(unreadable).left_stream());
    }
    let mut tool = tokio::process::Command::new("gzip")
        .arg("-dc")
        .stdin(archive)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| HostError::Internal(format!("failed to start `gzip`: {error}")))?;
    let Some(output) = tool.stdout.take() else { return Err(HostError::Internal("`gzip` has no output".to_owned())) };
    let end = stream::once(async move {
        match tool.wait().await {
            Ok(status) if status.success() => Ok(Bytes::new()),
            Ok(status) => Err(HostError::BadRequest(format!("the archive cannot be unpacked: gzip: {status}"))),
            Err(error) => Err(unreadable(error)),
        }
    });
    Ok(ReaderStream::with_capacity(output, PIECE).map_err(unreadable).chain(end).right_stream())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::path::Path;
    use std::process::Command;

    use super::SCRIPT;

    /// What is at `target` after copying `source` out of an archive with some files, folders and links.
    fn copied(root: &Path, source: &str, target: &str, mode: &str) -> (bool, Vec<String>) {
        let stage = root.join("stage");
        for folder in ["app/sub", "app/.hid", "a b"] {
            fs::create_dir_all(stage.join(folder)).unwrap();
        }
        for file in ["one.txt", "two.txt", "app/main", "app/.env", "app/sub/deep", "a b/c d"] {
            fs::write(stage.join(file), file).unwrap();
        }
        drop(symlink("main", stage.join("app/link")));
        let to = format!("{}/{target}", root.join("out").display());
        let done = Command::new("sh")
            .args(["-c", SCRIPT, "copy"])
            .arg(&stage)
            .args([source, &to, "7:8", mode])
            .status()
            .unwrap();
        let mut found = Vec::new();
        walk(&root.join("out"), &root.join("out"), &mut found);
        found.sort();
        (done.success(), found)
    }

    fn walk(top: &Path, folder: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            let data = path.symlink_metadata().unwrap();
            if data.is_dir() {
                walk(top, &path, found);
            } else {
                assert_eq!((data.uid(), data.gid()), (7, 8), "{}", path.display());
                found.push(path.strip_prefix(top).unwrap().to_str().unwrap().to_owned());
            }
        }
    }

    #[test]
    fn files_and_folders_land_where_a_dockerfile_would_put_them() {
        let app = ["x/.env", "x/link", "x/main", "x/sub/deep"];
        for (source, target, expected) in [
            ("one.txt", "x", vec!["x"]),
            ("one.txt", "x/", vec!["x/one.txt"]),
            ("one.txt", "deep/er/x", vec!["deep/er/x"]),
            ("app", "x", app.to_vec()),
            ("app", "x/", app.to_vec()),
            ("*.txt", "x/", vec!["x/one.txt", "x/two.txt"]),
            ("*.txt", "x", vec!["x/one.txt", "x/two.txt"]),
            ("a b/c d", "x y/", vec!["x y/c d"]),
            ("app/sub/deep", "x/", vec!["x/deep"]),
        ] {
            let root = tempfile::tempdir().unwrap();
            assert_eq!(copied(root.path(), source, target, ""), (true, expected.iter().map(|s| (*s).into()).collect()));
        }
    }

    #[test]
    fn a_folder_is_merged_into_what_is_there() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("out/x/sub")).unwrap();
        copied(root.path(), "one.txt", "x/sub/other", "");
        copied(root.path(), "one.txt", "x/main", "");
        let (done, found) = copied(root.path(), "app", "x", "0640");
        assert!(done);
        assert_eq!(found, ["x/.env", "x/link", "x/main", "x/sub/deep", "x/sub/other"]);
        let main = root.path().join("out/x/main");
        assert_eq!(fs::read_to_string(&main).unwrap(), "app/main");
        let mode = |path: &str| fs::metadata(root.path().join("out/x").join(path)).unwrap().mode() & 0o7777;
        assert_eq!(mode("main"), 0o640);
        // What was there before stays as it was.
        assert_eq!((mode("sub"), mode("sub/deep")), (0o755, 0o640));
        assert_eq!(mode(".hid"), 0o750);
    }

    #[test]
    fn what_is_not_in_the_archive_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        assert!(!copied(root.path(), "none*", "x", "").0);
        assert!(!root.path().join("out").exists());
    }
}
