//! What a path in a request means.

use std::path::{Component, Path, PathBuf};

use roost_wire::Failure;

use crate::failure::bad_request;

/// Takes `path` from `base` if it is relative, and from `home` if it starts with `~`. Links and `..` are the kernel's
/// business: the sandbox's own root is the only place they can lead to.
pub(crate) fn resolve(path: &str, base: &Path, home: &Path) -> Result<PathBuf, Failure> {
    if path.is_empty() {
        return Err(bad_request("path is empty"));
    }
    if path.contains('\0') {
        return Err(bad_request("path contains a NUL byte"));
    }
    let joined = match path.strip_prefix('~') {
        Some("") => home.to_owned(),
        Some(rest) if rest.starts_with('/') => home.join(rest.trim_start_matches('/')),
        _ => base.join(path),
    };
    // Only for the eye: `/a/./b/` and `/a/b` are the same file.
    Ok(joined.components().filter(|part| !matches!(part, Component::CurDir)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_absolute_and_home() {
        let resolve =
            |path| resolve(path, Path::new("/work"), Path::new("/home/user")).map(|path| path.display().to_string());
        for (path, expected) in [
            ("a", "/work/a"),
            ("./a//b/", "/work/a/b"),
            (".", "/work"),
            ("/etc/hosts", "/etc/hosts"),
            ("~", "/home/user"),
            ("~/x", "/home/user/x"),
            ("~//x", "/home/user/x"),
            ("~other/x", "/work/~other/x"),
            ("../x", "/work/../x"),
            ("/", "/"),
        ] {
            assert_eq!(resolve(path).unwrap(), expected, "{path}");
        }
        assert!(resolve("").is_err());
        assert!(resolve("a\0b").is_err());
    }
}
