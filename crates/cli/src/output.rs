//! Standard output for people and for programs: colours, tables, JSON.

use std::io::{self, IsTerminal, Write};

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use roost_model::SandboxView;
use serde::Serialize;

use crate::args::ShowArgs;

/// Colours, or none where nobody sees them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Palette {
    on: bool,
}

impl Palette {
    /// Colours for a stream that is, or is not, a terminal.
    pub(crate) fn of(terminal: bool) -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { on: terminal && wanted }
    }

    /// Colours for standard output.
    pub(crate) fn stdout() -> Self {
        Self::of(io::stdout().is_terminal())
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.paint("1;31", text)
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.paint("32", text)
    }

    pub(crate) fn yellow(self, text: &str) -> String {
        self.paint("33", text)
    }

    pub(crate) fn cyan(self, text: &str) -> String {
        self.paint("36", text)
    }
}

/// Prints a list as it was asked for: as JSON, ids alone, or a table; an empty one says how to get something into it.
pub(crate) fn list<T: Serialize>(
    all: &[T],
    show: ShowArgs,
    id: impl Fn(&T) -> &str,
    none: &str,
    table: impl FnOnce(&[T]) -> Columns,
) -> anyhow::Result<()> {
    if show.json {
        return json(&all);
    }
    if show.quiet {
        return Ok(all.iter().try_for_each(|item| line(id(item)))?);
    }
    if all.is_empty() {
        eprintln!("{none}");
        return Ok(());
    }
    Ok(table(all).print()?)
}

/// Prints what a request asked for and the host does not keep, to the standard error.
pub(crate) fn warnings(sandbox: &SandboxView) {
    let palette = Palette::of(io::stderr().is_terminal());
    for warning in &sandbox.warnings {
        eprintln!("{} {warning}", palette.yellow("warning:"));
    }
}

/// Prints one line.
pub(crate) fn line(text: impl AsRef<str>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_ref().as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Prints a value as JSON, readable on a terminal and on one line elsewhere.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    let text =
        if io::stdout().is_terminal() { serde_json::to_string_pretty(value)? } else { serde_json::to_string(value)? };
    Ok(line(text)?)
}

/// Prints a value as one line of JSON.
pub(crate) fn json_line(value: &impl Serialize) -> anyhow::Result<()> {
    Ok(line(serde_json::to_string(value)?)?)
}

/// A table in columns without lines; columns named here are flush right.
#[derive(Debug)]
pub(crate) struct Columns {
    table: Table,
}

impl Columns {
    pub(crate) fn new(titles: &[&str], right: &[&str]) -> Self {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).force_no_tty();
        table.set_header(titles.iter().copied());
        for (column, title) in table.column_iter_mut().zip(titles) {
            column.set_padding((0, 2));
            if right.contains(title) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        Self { table }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        // Text from inside a sandbox must not move the cursor of the person who looks at it.
        self.table.add_row(cells.into_iter().map(|cell| printable(&cell)));
    }

    /// The lines, the first of them the titles.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.table.lines().map(|line| line.trim_end().to_owned()).collect()
    }

    /// Prints the table.
    pub(crate) fn print(&self) -> io::Result<()> {
        let palette = Palette::stdout();
        for (number, text) in self.lines().iter().enumerate() {
            if number == 0 { line(palette.bold(text))? } else { line(text)? }
        }
        Ok(())
    }
}

/// The beginning of a text that is longer than so many characters.
pub(crate) fn shortened(text: &str, longest: usize) -> String {
    if text.chars().count() <= longest {
        return text.to_owned();
    }
    text.chars().take(longest.saturating_sub(1)).chain(['…']).collect()
}

/// The text with control characters made harmless.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_plain_columns() {
        let mut columns = Columns::new(&["NAME", "SIZE"], &["SIZE"]);
        columns.row(["a\x1b[31m".to_owned(), "10".to_owned()]);
        assert_eq!(columns.lines(), ["NAME    SIZE", "a\u{fffd}[31m    10"]);
    }

    #[test]
    fn long_texts_end_in_dots() {
        assert_eq!((shortened("äöü", 3), shortened("äöü!", 3)), ("äöü".to_owned(), "äö…".to_owned()));
    }

    #[test]
    fn colours_are_off_where_nobody_sees_them() {
        assert_eq!(Palette::of(false).red("x"), "x");
    }
}
