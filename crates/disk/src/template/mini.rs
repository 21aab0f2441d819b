//! The `mini` template: the host's static busybox and just enough around it to be a system.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use roost_model::{Name, TemplateDefaults};

use super::import::{Existing, ImportError, Progress, Stage};
use super::manifest::Template;
use super::store::Templates;

const PLACES: [&str; 2] = ["/bin/busybox", "/usr/bin/busybox"];
pub(super) const TOOL: &str = "busybox";
pub(super) const PACKAGE: &str = "busybox-static";
const USER: u32 = 1000;

const FOLDERS: [&str; 9] = ["usr/bin", "usr/lib", "usr/share", "etc", "root", "home/user", "var/log", "var/tmp", "mnt"];

const FILES: [(&str, u32, &str); 8] = [
    (
        "etc/passwd",
        0o644,
        "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    ),
    ("etc/group", 0o644, "root:x:0:\ntty:x:5:\nuser:x:1000:\nnogroup:x:65534:\n"),
    ("etc/shadow", 0o600, "root:*:20000:0:99999:7:::\nuser:*:20000:0:99999:7:::\nnobody:*:20000:0:99999:7:::\n"),
    ("etc/hosts", 0o644, "127.0.0.1 localhost\n::1 localhost\n"),
    ("etc/profile", 0o644, "export PATH=/usr/bin\nexport PS1='\\u@\\h:\\w\\$ '\n"),
    ("etc/shells", 0o644, "/bin/sh\n/bin/ash\n"),
    ("etc/os-release", 0o644, "NAME=\"Roost mini\"\nPRETTY_NAME=\"Roost mini (busybox)\"\nID=roost-mini\n"),
    ("etc/nsswitch.conf", 0o644, "passwd: files\ngroup: files\nhosts: files dns\n"),
];

/// Builds the template that people call `mini`, in about a second.
pub fn build_mini(
    templates: &Templates,
    name: &Name,
    existing: Existing,
    progress: &dyn Fn(Progress<'_>),
) -> Result<Template, ImportError> {
    let defaults = TemplateDefaults {
        user: Some("root".to_owned()),
        workdir: Some("/root".to_owned()),
        env: [("PATH".to_owned(), "/usr/bin".to_owned())].into(),
        ..TemplateDefaults::default()
    };
    templates.build(name, defaults, "busybox".to_owned(), existing, progress, |root| {
        progress(Progress::Begin(Stage::Copy));
        let Some(busybox) = busybox() else {
            let source = io::ErrorKind::NotFound.into();
            return Err(ImportError::StartTool { tool: TOOL, package: PACKAGE, source });
        };
        let applets = applets(busybox)?;
        lay_out(root, busybox, &applets).map_err(ImportError::store("lay out the mini template"))?;
        prove(root)
    })
}

/// The host's busybox.
pub(super) fn busybox() -> Option<&'static Path> {
    PLACES.into_iter().map(Path::new).find(|path| path.is_file())
}

/// The commands that this busybox has.
fn applets(busybox: &Path) -> Result<Vec<String>, ImportError> {
    let start = |source| ImportError::StartTool { tool: TOOL, package: PACKAGE, source };
    let output = Command::new(busybox).arg("--list").stdin(Stdio::null()).output().map_err(start)?;
    let list = String::from_utf8_lossy(&output.stdout);
    let plain = |name: &&str| !name.is_empty() && !name.contains('/') && *name != "busybox";
    Ok(list.lines().filter(plain).map(str::to_owned).collect())
}

fn lay_out(root: &Path, busybox: &Path, applets: &[String]) -> io::Result<()> {
    for folder in FOLDERS {
        fs::create_dir_all(root.join(folder))?;
    }
    for (name, target) in
        [("bin", "usr/bin"), ("sbin", "usr/bin"), ("lib", "usr/lib"), ("usr/sbin", "bin"), ("var/run", "/run")]
    {
        symlink(target, root.join(name))?;
    }
    let installed = root.join("usr/bin/busybox");
    fs::copy(busybox, &installed)?;
    set_mode(&installed, 0o755)?;
    for applet in applets {
        symlink("busybox", root.join("usr/bin").join(applet))?;
    }
    for (name, mode, text) in FILES {
        fs::write(root.join(name), text)?;
        set_mode(&root.join(name), mode)?;
    }
    set_mode(&root.join("root"), 0o700)?;
    set_mode(&root.join("var/tmp"), 0o1777)?;
    chown(root.join("home/user"), Some(USER), Some(USER))
}

fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Runs it where it will have to run: a dynamic busybox does not start without its libraries.
fn prove(root: &Path) -> Result<(), ImportError> {
    let start = |source| ImportError::StartTool { tool: "chroot", package: "coreutils", source };
    let status = Command::new("chroot")
        .arg(root)
        .args(["/bin/busybox", "true"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .map_err(start)?;
    if status.success() {
        return Ok(());
    }
    let output = format!("it is not a static one (package {PACKAGE}): {status}");
    Err(ImportError::Tool { tool: TOOL, output })
}
