//! The `base` template: current Debian stable (on an Ubuntu host its own release) by mmdebstrap.

mod mirror;

use std::collections::VecDeque;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use roost_model::{Name, TemplateDefaults};

use super::import::{Existing, ImportError, Progress, Stage};
use super::manifest::Template;
use super::store::Templates;
use mirror::Mirror;

pub(super) const TOOL: &str = "mmdebstrap";

const PACKAGES: [&str; 27] = [
    "bash",
    "bash-completion",
    "ca-certificates",
    "curl",
    "g++",
    "gcc",
    "git",
    "iproute2",
    "iputils-ping",
    "less",
    "libc6-dev",
    // Resolves the sandbox's own host name, which sudo looks up.
    "libnss-myhostname",
    "make",
    "ncurses-base",
    "ncurses-bin",
    "netbase",
    "nodejs",
    "npm",
    "openssh-client",
    "procps",
    "python-is-python3",
    "python3",
    "python3-pip",
    "python3-venv",
    "sudo",
    "tmux",
    "vim-tiny",
];

/// Documentation and translations are a tenth of the tree and a good part of the time.
const DPKG_OPTIONS: [&str; 6] = [
    "force-unsafe-io",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
];

const PATH: &str = "/home/user/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What login shells read first; the distribution's own starts four processes and forgets the path that the sandbox
/// was given. Agents run every command in a login shell.
const PROFILE: &str = r#"# Read by login shells. Starts no process, and leaves PATH as it was given.
if [ -z "${PATH-}" ]; then
  PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
fi
export PATH

if [ "${PS1-}" ] && [ "${BASH-}" ] && [ "$BASH" != "/bin/sh" ] && [ -f /etc/bash.bashrc ]; then
  . /etc/bash.bashrc
fi

for i in /etc/profile.d/*.sh; do
  if [ -r "$i" ]; then
    . "$i"
  fi
done
unset i
"#;

/// Free space with the limit of the sandbox's disk, which the kernel does not know.
const DF: &str = "\
#!/bin/sh
# Shows the limit of this sandbox's disk in the row of `/`. The kernel would show the pool of all sandboxes.
if [ -x /run/roost/bin/roost-guest ]; then
  /run/roost/bin/roost-guest df \"$@\"
  code=$?
  [ $code = 3 ] || exit $code
fi
exec /usr/bin/df \"$@\"
";

const FILES: [(&str, u32, &str); 8] = [
    ("usr/local/bin/df", 0o755, DF),
    ("etc/profile", 0o644, PROFILE),
    ("etc/sudoers.d/user", 0o440, "user ALL=(ALL:ALL) NOPASSWD:ALL\n"),
    ("etc/hosts", 0o644, "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"),
    ("etc/hostname", 0o644, "sandbox\n"),
    ("etc/default/locale", 0o644, "LANG=C.UTF-8\n"),
    // The whole system is the user's to break.
    ("etc/pip.conf", 0o644, "[global]\nbreak-system-packages = true\n"),
    // Installing a service must not try to start it: PID 1 is not an init that packages know.
    ("usr/sbin/policy-rc.d", 0o755, "#!/bin/sh\nexit 101\n"),
];

/// What is worth telling of a tool that failed.
const LAST_LINES: usize = 20;

/// Builds the template that people call `base`, which takes a minute or two and the network.
///
/// Everything the tools say comes out of `progress`, line by line.
pub fn build_base(
    templates: &Templates,
    name: &Name,
    existing: Existing,
    progress: &dyn Fn(Progress<'_>),
) -> Result<Template, ImportError> {
    templates.check_free(name, existing)?;
    let mut mirror = Mirror::of_host()?;
    mirror.keep_fresh(&|pocket| {
        progress(Progress::Line(&format!("leaving out {pocket}: the mirror has it not, or only stale")));
    });
    let defaults = TemplateDefaults {
        user: Some("user".to_owned()),
        workdir: Some("/home/user".to_owned()),
        env: [("LANG", "C.UTF-8"), ("PATH", PATH)].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        ..TemplateDefaults::default()
    };
    let built_from = format!("mmdebstrap {}", mirror.suite());
    templates.build(name, defaults, built_from, existing, progress, |root| {
        progress(Progress::Begin(Stage::Bootstrap));
        bootstrap(root, &mirror, progress)?;
        configure(root, &mirror).map_err(ImportError::store("configure the base template"))
    })
}

/// Runs mmdebstrap in mount and pid namespaces that end with it and with us: no mount and no process of an
/// interrupted build stays behind.
fn bootstrap(root: &Path, mirror: &Mirror, progress: &dyn Fn(Progress<'_>)) -> Result<(), ImportError> {
    let start = |source| ImportError::StartTool { tool: TOOL, package: TOOL, source };
    let (reader, writer) = io::pipe().map_err(start)?;
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private"])
        .args(["--pid", "--fork", "--kill-child", "--mount-proc", TOOL])
        .args(["--mode=root", "--variant=minbase", "--format=directory", "--verbose"])
        .args(["--aptopt=APT::Install-Recommends \"false\"", "--aptopt=APT::Sandbox::User \"root\""])
        .args(DPKG_OPTIONS.map(|option| format!("--dpkgopt={option}")))
        .arg(format!("--include={}", PACKAGES.join(",")))
        .arg("--customize-hook=chroot \"$1\" useradd --create-home --uid 1000 --shell /bin/bash --groups sudo user")
        .arg(mirror.suite())
        .arg(root)
        .args(mirror.lines())
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null())
        .stdout(writer.try_clone().map_err(start)?)
        .stderr(writer);
    if let Some(proxy) = mirror::apt_proxy() {
        command.env("http_proxy", proxy);
    }
    let mut child = command.spawn().map_err(start)?;
    // The command holds the pipe's writing ends: without them gone, the end of the output would never come.
    drop(command);
    let mut last = VecDeque::new();
    for line in BufReader::new(reader).split(b'\n') {
        let line = line.map_err(start)?;
        let text = String::from_utf8_lossy(&line);
        // Progress bars rewrite their line; what they wrote last is what counts.
        let text = text.trim_end().rsplit('\r').next().unwrap_or_default();
        if text.is_empty() {
            continue;
        }
        progress(Progress::Line(text));
        if last.len() == LAST_LINES {
            last.pop_front();
        }
        last.push_back(text.to_owned());
    }
    let status = child.wait().map_err(start)?;
    if status.success() {
        return Ok(());
    }
    let output = format!("{status}\n{}", Vec::from(last).join("\n"));
    Err(ImportError::Tool { tool: TOOL, output })
}

/// Writes what makes the tree a sandbox's; its folders come from packages just installed and lead nowhere else.
fn configure(root: &Path, mirror: &Mirror) -> io::Result<()> {
    for (name, mode, text) in FILES {
        write(root, name, mode, text)?;
    }
    let codename = codename(root)?.unwrap_or_else(|| mirror.suite().to_owned());
    write(root, "etc/apt/sources.list.d/roost.sources", 0o644, &mirror.sources(&codename))?;
    // How the tree was made is no setting of the system in it.
    for name in ["etc/apt/sources.list", "etc/apt/apt.conf.d/99mmdebstrap"] {
        match fs::remove_file(root.join(name)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

fn write(root: &Path, name: &str, mode: u32, text: &str) -> io::Result<()> {
    let path = root.join(name);
    fs::write(&path, text)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(mode))
}

/// The release's own name: `stable` would turn into another release one day.
fn codename(root: &Path) -> io::Result<Option<String>> {
    let text = fs::read_to_string(root.join("usr/lib/os-release"))?;
    Ok(text
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
        .map(|name| name.trim_matches('"').to_owned()))
}
