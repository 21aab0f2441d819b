//! The two ends of a copy, as they are typed.

use std::path::PathBuf;

/// One end of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// Standard input or output.
    Stream,
    /// A path here.
    Here(PathBuf),
    /// A path in a sandbox.
    Inside {
        /// Name or id.
        sandbox: String,
        /// The path; relative ones start in the sandbox's working folder.
        path: String,
    },
}

impl Place {
    /// Reads `-`, `SANDBOX:PATH` or a path. What has a slash before its first colon is a path, so `./a:b` is one.
    pub(crate) fn parse(text: &str) -> Self {
        if text == "-" {
            return Self::Stream;
        }
        match text.split_once(':') {
            Some((sandbox, path))
                if !sandbox.is_empty() && !sandbox.contains(['/', '\\']) && !sandbox.starts_with('.') =>
            {
                let path = if path.is_empty() { "." } else { path };
                Self::Inside { sandbox: sandbox.to_owned(), path: path.to_owned() }
            }
            _ => Self::Here(PathBuf::from(text)),
        }
    }
}

/// The last part of a path in a sandbox; nothing for `/`, `.` and `..`, which name no entry.
pub(crate) fn base_name(path: &str) -> Option<&str> {
    let last = path.trim_end_matches('/').rsplit('/').next()?;
    (!matches!(last, "" | "." | ".." | "~")).then_some(last)
}

/// A path in a sandbox below another.
pub(crate) fn join(folder: &str, name: &str) -> String {
    format!("{}/{name}", folder.trim_end_matches('/'))
}

/// Whether a path says by its end that the content of a folder is meant, not the folder: `src/.`
pub(crate) fn means_content(path: &str) -> bool {
    path == "." || path.ends_with("/.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside(sandbox: &str, path: &str) -> Place {
        Place::Inside { sandbox: sandbox.to_owned(), path: path.to_owned() }
    }

    #[test]
    fn places_are_told_apart() {
        assert_eq!(Place::parse("-"), Place::Stream);
        assert_eq!(Place::parse("box:/etc/hosts"), inside("box", "/etc/hosts"));
        assert_eq!(Place::parse("box:"), inside("box", "."));
        assert_eq!(Place::parse("box:a:b"), inside("box", "a:b"));
        assert_eq!(Place::parse("sbx_01j:~/x"), inside("sbx_01j", "~/x"));
        for here in ["./a:b", "/a:b", "a/b:c", "plain", ":x", "..", "-x"] {
            assert_eq!(Place::parse(here), Place::Here(PathBuf::from(here)), "{here}");
        }
    }

    #[test]
    fn names_and_joins() {
        assert_eq!(base_name("/a/b/"), Some("b"));
        assert_eq!(base_name("b"), Some("b"));
        for nothing in ["/", ".", "..", "a/..", "a/.", "", "~"] {
            assert_eq!(base_name(nothing), None, "{nothing}");
        }
        assert_eq!(join("/", "a"), "/a");
        assert_eq!(join("/x/", "a"), "/x/a");
        assert!(means_content("a/.") && means_content(".") && !means_content("a."));
    }
}
