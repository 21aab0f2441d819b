//! Header values with parameters: `multipart/form-data; boundary=…`, `form-data; name="file"; filename="/a/b"`.

/// A value and its parameters.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Disposition {
    /// In lower case.
    pub(super) kind: String,
    /// Names in lower case.
    parameters: Vec<(String, String)>,
}

impl Disposition {
    /// Reads a value as far as it makes sense.
    pub(super) fn parse(text: &str) -> Self {
        let (kind, mut rest) = text.split_once(';').unwrap_or((text, ""));
        let mut parameters = Vec::new();
        while let Some((name, after)) = rest.split_once('=') {
            let name = name.trim_matches(|letter: char| letter == ';' || letter.is_whitespace()).to_ascii_lowercase();
            let (value, after) = value(after.trim_start());
            parameters.push((name, value));
            rest = after;
        }
        Self { kind: kind.trim().to_ascii_lowercase(), parameters }
    }

    /// A parameter; one that is written with its character set goes before a plain one.
    pub(super) fn get(&self, name: &str) -> Option<String> {
        let find =
            |name: &str| self.parameters.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str());
        find(&format!("{name}*")).and_then(extended).or_else(|| find(name).map(str::to_owned))
    }
}

/// The value at the start of a text, and what follows it.
fn value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(';').unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        return (value.trim().to_owned(), rest);
    };
    let mut value = String::new();
    let mut letters = quoted.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, quoted.get(at + 1..).unwrap_or_default()),
            // Only these two: others write paths with plain backslashes.
            '\\' if letters.peek().is_some_and(|(_, next)| matches!(next, '"' | '\\')) => {
                value.extend(letters.next().map(|(_, next)| next));
            }
            letter => value.push(letter),
        }
    }
    (value, "")
}

/// `UTF-8''%e2%82%ac`; no other character set is known.
fn extended(text: &str) -> Option<String> {
    let (charset, rest) = text.split_once('\'')?;
    let (_language, escaped) = rest.split_once('\'')?;
    if !charset.eq_ignore_ascii_case("utf-8") {
        return None;
    }
    let mut bytes = Vec::new();
    let mut left = escaped.bytes();
    while let Some(byte) = left.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(left.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                u8::try_from(high * 16 + low).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filename(text: &str) -> Option<String> {
        Disposition::parse(text).get("filename")
    }

    #[test]
    fn names_come_quoted_plain_or_extended() {
        let read = Disposition::parse(r#"Form-Data; Name="file"; filename="/home/user/a b;c.txt""#);
        assert_eq!(read.kind, "form-data");
        assert_eq!(read.get("name").as_deref(), Some("file"));
        assert_eq!(read.get("filename").as_deref(), Some("/home/user/a b;c.txt"));
        assert_eq!(filename("form-data; filename=plain.txt ; name=file").as_deref(), Some("plain.txt"));
        assert_eq!(filename(r#"x; filename="a\"b\\c""#).as_deref(), Some(r#"a"b\c"#));
        assert_eq!(filename(r#"x; filename="C:\new\file""#).as_deref(), Some(r"C:\new\file"));
        assert_eq!(filename("x; filename=\"日本.txt\"").as_deref(), Some("日本.txt"));
        assert_eq!(filename("x; filename=\"no\"; filename*=utf-8'en'%e2%82%ac%20r").as_deref(), Some("€ r"));
        assert_eq!(filename("x; filename=\"yes\"; filename*=utf-8''%zz").as_deref(), Some("yes"));
        assert_eq!(filename("x; filename=\"open").as_deref(), Some("open"));
        assert_eq!(filename("x"), None);
        assert_eq!(
            Disposition::parse("multipart/form-data; boundary=--ab12").get("boundary").as_deref(),
            Some("--ab12")
        );
    }

    proptest! {
        #[test]
        fn no_text_is_too_odd(text in ".*") {
            drop(Disposition::parse(&text).get("filename"));
        }

        #[test]
        fn every_name_survives_quoting(name in "[^\r\n\u{0}]{0,40}") {
            let quoted = name.replace('\\', "\\\\").replace('"', "\\\"");
            prop_assert_eq!(filename(&format!("form-data; name=\"file\"; filename=\"{quoted}\"; x=y")), Some(name));
        }
    }
}
