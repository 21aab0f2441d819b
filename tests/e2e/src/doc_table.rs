//! The table of errors in `docs/errors.md`, read so that a test can try every row of it.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

/// One row: a request that is refused, and how.
#[derive(Debug, PartialEq, Eq)]
pub struct ErrorRow {
    /// What is wrong with the request, for people.
    pub wrong: String,
    /// `METHOD /path` and, after a blank, the body.
    pub request: String,
    /// Status of the answer.
    pub status: u16,
    /// Code in the answer.
    pub code: String,
    /// Message in the answer; `…` stands for anything.
    pub message: String,
}

/// Every row of the table, in order.
pub fn error_rows() -> Result<Vec<ErrorRow>> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors.md");
    let text = std::fs::read_to_string(&path).with_context(|| format!("failed to read `{}`", path.display()))?;
    rows_of(&text)
}

fn rows_of(text: &str) -> Result<Vec<ErrorRow>> {
    let mut rows = Vec::new();
    let table = text.lines().skip_while(|line| !line.starts_with("| what is wrong")).skip(2);
    for line in table.take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        ensure!(cells.len() == 5, "a row needs 5 cells: {line}");
        rows.push(ErrorRow {
            wrong: cells[0].to_owned(),
            request: uncode(cells[1]),
            status: cells[2].parse().with_context(|| format!("no status in: {line}"))?,
            code: uncode(cells[3]),
            message: uncode(cells[4]),
        });
    }
    ensure!(!rows.is_empty(), "the table of errors was not found");
    Ok(rows)
}

/// Takes the backticks of Markdown's code off; two of them where the text has some of its own.
fn uncode(cell: &str) -> String {
    let inner = cell.strip_prefix("`` ").and_then(|cell| cell.strip_suffix(" ``"));
    inner.unwrap_or_else(|| cell.trim_matches('`')).to_owned()
}

/// Whether `message` is what `pattern` says, where `…` stands for anything.
pub fn message_fits(pattern: &str, message: &str) -> bool {
    let mut parts = pattern.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = message.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_whole_messages_only() {
        assert!(message_fits("no sandbox `x`", "no sandbox `x`"));
        assert!(!message_fits("no sandbox", "no sandbox `x`"));
        assert!(message_fits("limit … is not between … and …", "limit `cpus` is not between 1 and 2"));
        assert!(!message_fits("a…z", "abc"));
    }

    #[test]
    fn rows_keep_their_backticks() {
        let text = "x\n| what is wrong | request | status | code | message |\n|---|---|---|---|---|\n\
                    | taken | `POST /v1/sandboxes {\"name\": \"web\"}` | 409 | `name_taken` | `` name `web` is taken `` |\n\nend";
        let rows = rows_of(text).unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].request, "POST /v1/sandboxes {\"name\": \"web\"}");
        assert_eq!(rows[0].message, "name `web` is taken");
    }
}
