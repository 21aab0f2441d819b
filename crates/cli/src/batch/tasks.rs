//! Tasks, one line of JSON each.

use std::io::Read;
use std::path::Path;

use anyhow::Context;
use roost_model::{Task, check_tasks};

use crate::failure::hinted;

const HINT: &str = r#"a line is for example {"id": "a", "command": "echo hello"}"#;

/// Reads tasks from a file, or from standard input if it is `-`; returns them with all bytes that were read.
pub(crate) fn read_tasks(path: &Path) -> anyhow::Result<(Vec<Task>, Vec<u8>)> {
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        std::io::stdin().lock().read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut bytes))
    };
    read.with_context(|| format!("failed to read the tasks in `{}`", path.display()))?;
    let tasks = parse(&bytes, &path.display().to_string())?;
    Ok((tasks, bytes))
}

fn parse(bytes: &[u8], name: &str) -> anyhow::Result<Vec<Task>> {
    let mut tasks = Vec::new();
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let task: Task = serde_json::from_slice(line)
            .map_err(|error| hinted(format!("{name}, line {number}: {}", without_place(&error)), HINT))?;
        if let Some(problem) = task.problem() {
            return Err(hinted(format!("{name}, line {number}: {problem}"), HINT));
        }
        tasks.push(task);
        lines.push(number);
    }
    if tasks.is_empty() {
        return Err(hinted(format!("{name} has no tasks"), HINT));
    }
    match check_tasks(&tasks) {
        Ok(()) => Ok(tasks),
        Err(roost_model::BatchError::Twice { id, first, second }) => {
            let (first, second) = (lines[first - 1], lines[second - 1]);
            let message = format!("{name}, line {second}: the id `{id}` is already that of line {first}");
            Err(hinted(message, "a task without an id is called by its number"))
        }
        Err(other) => Err(other.into()),
    }
}

/// The message alone: every line is its own document, so `line 1` would mislead.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((message, _)) => format!("{message} (column {})", error.column()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_lines_do_not_count_but_have_numbers() {
        let tasks = parse(b"\n{\"command\": \"true\"}\n\n{\"command\": [\"true\"], \"id\": \"x\"}", "t").unwrap();
        assert_eq!((tasks.len(), tasks[1].id.as_deref()), (2, Some("x")));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (text, part) in [
            ("{\"command\": \"true\"}\n\n{\"command\": ", "t, line 3: EOF while parsing a value (column 12)"),
            ("{\"command\": \"true\"}\n{\"comand\": \"x\"}", "t, line 2: unknown field `comand`"),
            ("{\"command\": 3}", "line 1: invalid type: integer `3`, expected a line of shell, or a list"),
            ("{\"command\": \"\"}", "line 1: there is nothing to run"),
            (
                "{\"command\": \"a\", \"id\": \"2\"}\n\n{\"command\": \"b\"}",
                "line 3: the id `2` is already that of line 1",
            ),
            ("", "t has no tasks"),
        ] {
            let error = parse(text.as_bytes(), "t").unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
