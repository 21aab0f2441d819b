//! A line taken apart as a shell does, quotes and all; nothing is expanded.

/// A quote that is not closed, or a backslash at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unfinished {
    #[error("a quote is not closed")]
    Quote,
    #[error("nothing comes after the backslash")]
    Backslash,
}

/// The words of a line.
pub(super) fn words(line: &str) -> Result<Vec<String>, Unfinished> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ' ' | '\t' | '\r' | '\n' => words.extend(word.take()),
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next().ok_or(Unfinished::Quote)? {
                        end if end == letter => break,
                        '\\' if letter == '"' => word.push(letters.next().ok_or(Unfinished::Quote)?),
                        inside => word.push(inside),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(letters.next().ok_or(Unfinished::Backslash)?),
            plain => word.get_or_insert_default().push(plain),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_hold_words_together() {
        let split = |line: &str| words(line).unwrap();
        assert_eq!(split("  fork web  -n 3 "), ["fork", "web", "-n", "3"]);
        assert_eq!(
            split(r#"checkpoint web --comment 'before it' "a \"b\"" c\ d"#)[3..],
            ["before it", "a \"b\"", "c d"]
        );
        assert_eq!(split("a ''"), ["a", ""]);
        assert_eq!(words("a 'b"), Err(Unfinished::Quote));
        assert_eq!(words("a\\"), Err(Unfinished::Backslash));
    }
}
