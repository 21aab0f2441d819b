//! Where the host gets its packages from, so that a template is made from the same place and keeps to it.

use std::process::{Command, Stdio};

use crate::template::import::ImportError;

/// One line per index that apt knows: address, release, origin.
const FORMAT: &str = "$(REPO_URI)|$(RELEASE)|$(ORIGIN)";

const UPDATES: &str = "-updates";
const SECURITY: &str = "-security";
/// Fetches a file as apt would, through its proxies and other settings.
const APT_HELPER: &str = "/usr/lib/apt/apt-helper";

/// A distribution's mirror and suite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mirror {
    distribution: Distribution,
    suite: String,
    /// Addresses and what they append to the suite's name: nothing, `-updates`, `-security`.
    pockets: Vec<(String, &'static str)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Distribution {
    Debian,
    Ubuntu,
}

impl Distribution {
    /// Apt knows an origin only once it has fetched an index; the address is a good guess before.
    fn of(address: &str, origin: &str) -> Option<Self> {
        let folder = address.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        match (origin, folder) {
            ("Debian", _) | ("", "debian" | "debian-security") => Some(Self::Debian),
            ("Ubuntu", _) | ("", "ubuntu") => Some(Self::Ubuntu),
            _ => None,
        }
    }

    fn components(self) -> &'static str {
        match self {
            Self::Debian => "main",
            Self::Ubuntu => "main universe",
        }
    }

    fn keyring(self) -> &'static str {
        match self {
            Self::Debian => "/usr/share/keyrings/debian-archive-keyring.gpg",
            Self::Ubuntu => "/usr/share/keyrings/ubuntu-archive-keyring.gpg",
        }
    }
}

impl Mirror {
    /// Asks the host's apt.
    pub(super) fn of_host() -> Result<Self, ImportError> {
        let start = |source| ImportError::StartTool { tool: "apt-get", package: "apt", source };
        let output = Command::new("apt-get")
            .args(["indextargets", "--format", FORMAT, "Created-By: Packages"])
            .stdin(Stdio::null())
            .output()
            .map_err(start)?;
        Self::parse(&String::from_utf8_lossy(&output.stdout)).ok_or(ImportError::NoMirror)
    }

    fn parse(targets: &str) -> Option<Self> {
        let targets: Vec<(Distribution, &str, &str)> = targets
            .lines()
            .filter_map(|line| {
                let mut fields = line.split('|');
                let (address, release, origin) = (fields.next()?, fields.next()?, fields.next()?);
                Some((Distribution::of(address, origin)?, address.trim_end_matches('/'), release))
            })
            .collect();
        let is_main = |release: &str| !release.contains('-') && !release.contains('/');
        let &(distribution, address, release) = targets.iter().find(|(_, _, release)| is_main(release))?;
        let security = targets.iter().find(|(d, _, r)| *d == distribution && r.ends_with(SECURITY));
        let suite = match distribution {
            Distribution::Debian => "stable",
            Distribution::Ubuntu => release,
        };
        let mut pockets = vec![(address.to_owned(), ""), (address.to_owned(), UPDATES)];
        pockets.extend(security.map(|(_, address, _)| ((*address).to_owned(), SECURITY)));
        Some(Self { distribution, suite: suite.to_owned(), pockets })
    }

    /// Leaves out updates that the mirror does not have, or only stale: apt refuses the whole lot for one of them.
    pub(super) fn keep_fresh(&mut self, left_out: &dyn Fn(&str)) {
        let suite = self.suite.clone();
        self.pockets.retain(|(address, suffix)| {
            let pocket = format!("{suite}{suffix}");
            let fresh = suffix.is_empty() || is_fresh(address, &pocket);
            if !fresh {
                left_out(&pocket);
            }
            fresh
        });
    }

    /// The suite to bootstrap.
    pub(super) fn suite(&self) -> &str {
        &self.suite
    }

    /// Sources as mmdebstrap takes them.
    pub(super) fn lines(&self) -> Vec<String> {
        let (suite, components) = (&self.suite, self.distribution.components());
        let line = |(address, suffix): &(String, &str)| format!("deb {address} {suite}{suffix} {components}");
        self.pockets.iter().map(line).collect()
    }

    /// Sources as the system inside keeps them.
    pub(super) fn sources(&self, release: &str) -> String {
        let (components, keyring) = (self.distribution.components(), self.distribution.keyring());
        let stanza = |(address, suffix): &(String, &str)| {
            format!(
                "Types: deb\nURIs: {address}\nSuites: {release}{suffix}\nComponents: {components}\nSigned-By: {keyring}\n"
            )
        };
        self.pockets.iter().map(stanza).collect::<Vec<_>>().join("\n")
    }
}

/// Whether the mirror has the pocket and it has not expired; its signature is checked when it is used.
fn is_fresh(address: &str, pocket: &str) -> bool {
    let Ok(folder) = tempfile::tempdir() else { return false };
    let file = folder.path().join("InRelease");
    let fetched = Command::new(APT_HELPER)
        .args(["download-file", &format!("{address}/dists/{pocket}/InRelease")])
        .arg(&file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !fetched.is_ok_and(|status| status.success()) {
        return false;
    }
    let text = std::fs::read(&file).unwrap_or_default();
    !is_expired(&String::from_utf8_lossy(&text), jiff::Timestamp::now())
}

/// A release without an end, or with one we cannot read, is left for apt to judge.
fn is_expired(release: &str, now: jiff::Timestamp) -> bool {
    let stated = release.lines().find_map(|line| line.strip_prefix("Valid-Until:"));
    let Some(until) = stated.map(|s| s.trim().replace("UTC", "+0000")) else { return false };
    jiff::fmt::rfc2822::parse(&until).is_ok_and(|until| until.timestamp() < now)
}

/// The proxy that the host's apt uses, if any; mmdebstrap leaves the host's apt settings out.
pub(super) fn apt_proxy() -> Option<String> {
    let output = Command::new("apt-config")
        .args(["shell", "proxy", "Acquire::http::Proxy"])
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let value = text.trim().strip_prefix("proxy='")?.strip_suffix('\'')?;
    (value.starts_with("http://") || value.starts_with("https://")).then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debian_host_gives_stable_with_its_security_mirror() {
        let mirror = Mirror::parse(
            "https://other.example/apt/|nodistro|Other\n\
             http://mirror.example/debian-security/|bookworm-security|Debian\n\
             http://mirror.example/debian/|bookworm|Debian\n\
             http://mirror.example/debian/|bookworm-updates|Debian\n",
        )
        .unwrap();
        assert_eq!(
            mirror.lines(),
            [
                "deb http://mirror.example/debian stable main",
                "deb http://mirror.example/debian stable-updates main",
                "deb http://mirror.example/debian-security stable-security main",
            ]
        );
        assert!(
            mirror
                .sources("trixie")
                .contains("\n\nTypes: deb\nURIs: http://mirror.example/debian\nSuites: trixie-updates\n")
        );
    }

    #[test]
    fn ubuntu_host_gives_its_own_release_even_before_an_update() {
        let mirror = Mirror::parse("http://mirror.example/ubuntu/|noble|\n").unwrap();
        assert_eq!(mirror.suite(), "noble");
        assert_eq!(mirror.lines()[0], "deb http://mirror.example/ubuntu noble main universe");
    }

    #[test]
    fn expiry_is_read_from_the_release() {
        let release = "Origin: Debian\nValid-Until: Fri, 06 Nov 2026 08:08:01 UTC\n";
        let at = |text: &str| text.parse().unwrap();
        assert!(is_expired(release, at("2026-11-06T08:08:02Z")));
        assert!(!is_expired(release, at("2026-11-06T08:08:00Z")));
        assert!(!is_expired("Origin: Debian\n", at("2026-11-06T08:08:00Z")));
    }

    #[test]
    fn a_host_without_a_known_distribution_gives_none() {
        assert_eq!(Mirror::parse("https://other.example/apt/|nodistro|Other\n\n"), None);
    }
}
