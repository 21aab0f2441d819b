//! runsc on this host: which one, its version, and whether it works.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

/// Changes whenever images made before cannot be restored any more by the same runsc.
const FORMAT: u32 = 1;
/// What a program takes to say its version, unless it hangs.
const TRIAL_TIME: Duration = Duration::from_secs(30);
/// The first one whose control calls are those that we make; older ones know neither systrap nor separate files of pages.
const OLDEST: u32 = 20_240_729;
const SYSTEM_PLACES: [&str; 3] = ["/usr/local/bin/runsc", "/usr/bin/runsc", "/usr/sbin/runsc"];

/// A runsc that can be used.
#[derive(Debug, Clone)]
pub(crate) struct Tool {
    pub(crate) program: PathBuf,
    version: String,
}

impl Tool {
    /// The one that was brought, or the host's own; or why none can be used.
    pub(crate) async fn find(brought: Option<&Path>) -> Result<Self, String> {
        let brought = brought.map(|path| if path.is_dir() { path.join("runsc") } else { path.to_owned() });
        let places = brought.into_iter().chain(SYSTEM_PLACES.map(PathBuf::from));
        let mut why = "there is no runsc on this host; `make up` brings one, or `lib/roost/runsc DATA_DIR/runsc` of an installed \
             Roost and a restart of the daemon"
                .to_owned();
        for program in places.filter(|path| path.exists()) {
            match Self::trial(&program).await {
                Ok(tool) => return Ok(tool),
                Err(error) => why = format!("`{}` cannot be used: {error}", program.display()),
            }
        }
        Err(why)
    }

    async fn trial(program: &Path) -> io::Result<Self> {
        let said = Command::new(program).arg("--version").stdin(Stdio::null()).kill_on_drop(true).output();
        let said = tokio::time::timeout(TRIAL_TIME, said).await??;
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let Some(version) = version_in(&said) else {
            return Err(io::Error::other(format!("it does not say its version: {said:?}")));
        };
        if day_of(version).is_none_or(|day| day < OLDEST) {
            return Err(io::Error::other(format!("version {version} is older than {OLDEST}")));
        }
        // The build, where we brought it, says more than the release.
        let build = program.parent().and_then(|folder| std::fs::read_to_string(folder.join("version")).ok());
        let version = build.map_or_else(|| version.to_owned(), |build| build.trim().to_owned());
        Ok(Self { program: program.canonicalize()?, version })
    }

    /// What an image must have been made with to be restored by this one.
    pub(crate) fn image_version(&self) -> String {
        format!("runsc {} format {FORMAT}", self.version)
    }
}

fn version_in(said: &str) -> Option<&str> {
    said.lines().next()?.strip_prefix("runsc version ").map(str::trim)
}

/// The day in `0.0~20240729.0` or `release-20240729.0`.
fn day_of(version: &str) -> Option<u32> {
    version.split(|c: char| !c.is_ascii_digit()).find(|digits| digits.len() == 8)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(version_in("runsc version 0.0~20240729.0\nspec: 1.2.0\n"), Some("0.0~20240729.0"));
        assert_eq!(day_of("0.0~20240729.0"), Some(20_240_729));
        assert_eq!(day_of("release-20221102.1"), Some(20_221_102));
        assert_eq!(day_of("VERSION_MISSING"), None);
    }
}
