//! Paths and queries, with every part encoded.

use std::fmt::Write;

/// A path below the API's root, built part by part.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    text: String,
    has_query: bool,
}

impl Route {
    /// Starts at a fixed path.
    pub(crate) fn new(path: &'static str) -> Self {
        Self { text: path.to_owned(), has_query: false }
    }

    /// Starts at a sandbox.
    pub(crate) fn sandbox(sandbox: &str) -> Self {
        Self::new("/v1/sandboxes").part(sandbox)
    }

    /// Adds one part of a path, whatever characters it has.
    pub(crate) fn part(mut self, part: &str) -> Self {
        self.text.push('/');
        encode(&mut self.text, part);
        self
    }

    /// Adds a parameter.
    pub(crate) fn query(mut self, key: &'static str, value: impl ToString) -> Self {
        self.text.push(if self.has_query { '&' } else { '?' });
        self.has_query = true;
        self.text.push_str(key);
        self.text.push('=');
        encode(&mut self.text, &value.to_string());
        self
    }

    /// Adds a parameter if it has a value.
    pub(crate) fn query_some(self, key: &'static str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.query(key, value),
            None => self,
        }
    }

    /// Path and query.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }
}

fn encode(out: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            // Writing to a String cannot fail.
            _ => write!(out, "%{byte:02X}").unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_encoded() {
        let route = Route::sandbox("a/../b").part("files").query("path", "/x y&z=é").query_some("mode", None::<u8>);
        assert_eq!(route.as_str(), "/v1/sandboxes/a%2F..%2Fb/files?path=%2Fx%20y%26z%3D%C3%A9");
    }
}
