//! Paths as clients write them.

/// The path as a guest understands it: nothing is the folder that relative paths start from. Homes are the caller's own:
/// those of others are not looked up.
pub(crate) fn meant(path: &str) -> Result<&str, String> {
    match path {
        "" => Ok("."),
        path if path.contains('\0') => Err("a path cannot hold a zero byte".to_owned()),
        path if path.starts_with('~') && !matches!(path.as_bytes().get(1), None | Some(b'/')) => {
            Err(format!("cannot expand the home of another user in `{path}`"))
        }
        path => Ok(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_here_and_only_the_own_home_is_known() {
        for (path, expected) in [("", "."), ("~", "~"), ("~/x", "~/x"), ("a~b", "a~b"), ("/x", "/x")] {
            assert_eq!(meant(path), Ok(expected));
        }
        assert!(meant("~root/x").is_err());
        assert!(meant("a\0b").is_err());
    }
}
