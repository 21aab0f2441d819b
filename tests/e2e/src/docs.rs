//! The documentation as tests see it: pages, their blocks, the commands in them and what a page says they print.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

/// Stands for whatever differs from run to run; alone on a line, for any number of lines.
const ANYTHING: char = '…';
/// How ids of Roost's start.
const IDS: [&str; 6] = ["sbx_", "ckp_", "exe_", "tok_", "bat_", "rst_"];
const UNITS: [&str; 14] = ["ns", "µs", "ms", "s", "min", "h", "d", "B", "KB", "MB", "GB", "KiB", "MiB", "GiB"];

/// The folder that README.md is in.
pub fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Reads a page by its path below [`root`].
pub fn read(path: &str) -> Result<String> {
    fs::read_to_string(root().join(path)).with_context(|| format!("failed to read the page `{path}`"))
}

/// A fenced block of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// What stands behind the fence: a language, or `console` for commands with what they print.
    pub info: String,
    /// Its lines.
    pub text: String,
    /// The line of its fence, from one.
    pub line: usize,
}

impl Block {
    /// All blocks of a page in their order. A comment `<!-- $ command -->` is one, too: it is run and not shown.
    pub fn all(page: &str) -> Vec<Self> {
        let mut blocks = Vec::new();
        let mut open: Option<Self> = None;
        for (number, line) in page.lines().enumerate() {
            let fence = line.trim_start().strip_prefix("```");
            match (&mut open, fence) {
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(block), None) => {
                    block.text.push_str(line);
                    block.text.push('\n');
                }
                (None, Some(info)) => {
                    open = Some(Self { info: info.trim().to_owned(), text: String::new(), line: number + 1 });
                }
                (None, None) => {
                    let hidden = line.strip_prefix("<!-- $ ").and_then(|rest| rest.strip_suffix(" -->"));
                    blocks.extend(hidden.map(|command| Self {
                        info: "console".to_owned(),
                        text: format!("$ {command}\n{ANYTHING}\n"),
                        line: number + 1,
                    }));
                }
            }
        }
        blocks
    }

    /// The commands of a `console` block.
    pub fn steps(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        for (number, line) in self.text.lines().enumerate() {
            if let Some(command) = line.strip_prefix("$ ") {
                let line = self.line + number + 1;
                steps.push(Step { command: command.to_owned(), shown: Vec::new(), line });
            } else if let Some(step) = steps.last_mut() {
                match line.strip_prefix("> ") {
                    Some(more) if step.shown.is_empty() => {
                        step.command.push('\n');
                        step.command.push_str(more);
                    }
                    _ => step.shown.push(line.to_owned()),
                }
            }
        }
        steps
    }
}

/// A command, and what the page says it prints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// A line for the shell, with those that go on behind `> `.
    pub command: String,
    /// What is shown below it; nothing if the page does not say.
    pub shown: Vec<String>,
    /// Where it stands, from one.
    pub line: usize,
}

impl Step {
    /// The exit code it should end with: 0, unless a comment at its end says `# exit N`.
    pub fn exit(&self) -> i32 {
        self.command.rsplit_once("# exit ").and_then(|(_, code)| code.trim().parse().ok()).unwrap_or(0)
    }

    /// Whether what was printed is what the page shows; a page that shows nothing says nothing.
    pub fn fits(&self, printed: &str) -> bool {
        let shown: Vec<String> = self.shown.iter().map(|line| steady(line)).filter(|line| !line.is_empty()).collect();
        let printed: Vec<String> = printed.lines().map(steady).filter(|line| !line.is_empty()).collect();
        shown.is_empty() || lines_fit(&shown, &printed)
    }
}

fn lines_fit(shown: &[String], printed: &[String]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((line, rest)) if line.chars().eq([ANYTHING]) => {
            (0..=printed.len()).any(|skipped| lines_fit(rest, &printed[skipped..]))
        }
        Some((line, rest)) => match printed.split_first() {
            Some((first, after)) => line_fits(line, first) && lines_fit(rest, after),
            None => false,
        },
    }
}

/// Whether a line fits, with anything in the places of `…`.
fn line_fits(shown: &str, printed: &str) -> bool {
    let mut parts = shown.split(ANYTHING);
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = printed.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// A line without what is another each time: times, durations, sizes, ids, and how wide columns are.
fn steady(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut steady: Vec<String> = Vec::new();
    let mut index = 0;
    while let Some(word) = words.get(index) {
        let bare = word.trim_matches(|c: char| ",;:()\"".contains(c));
        let unit = words.get(index + 1).map(|next| next.trim_matches(|c: char| ",;:()".contains(c)));
        if bare.parse::<f64>().is_ok() && unit.is_some_and(|unit| UNITS.contains(&unit)) {
            steady.push("<amount>".to_owned());
            index += 1;
        } else if bare.len() > 15 && bare.contains('T') && bare.ends_with('Z') {
            steady.push("<time>".to_owned());
        } else if let Some(kind) = IDS.iter().find(|kind| bare.starts_with(**kind)) {
            steady.push(format!("<{kind}>"));
        } else {
            steady.push((*word).to_owned());
        }
        index += 1;
    }
    steady.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_with_what_they_print() {
        let page = "# A\n<!-- $ hidden -->\n```console\n$ one \\\n> more\nout\n$ two # exit 3\n```\n\n```sh\nrm\n```\n";
        let blocks = Block::all(page);
        assert_eq!(blocks.iter().map(|block| block.info.as_str()).collect::<Vec<_>>(), ["console", "console", "sh"]);
        assert_eq!(blocks[0].steps()[0].command, "hidden");
        let steps = blocks[1].steps();
        assert_eq!(
            (steps[0].command.as_str(), steps[0].shown.as_slice()),
            ("one \\\nmore", ["out".to_owned()].as_slice())
        );
        assert_eq!((steps[1].exit(), steps[0].exit(), steps[1].line), (3, 0, 7));
    }

    #[test]
    fn what_differs_each_time_is_forgiven_and_nothing_else() {
        let step =
            |shown: &str| Step { command: String::new(), shown: shown.lines().map(str::to_owned).collect(), line: 1 };
        for (shown, printed) in [
            ("took 104 ms", "took 9.5 s"),
            ("made sbx_01J… now", "made sbx_01KABC now"),
            ("a  b", "a b\n\n"),
            ("2026-11-15T07:31:53Z  created", "2027-01-01T00:00:00.5Z created"),
            ("first\n…\nlast", "first\nlast"),
            ("first\n…", "first\nsecond\nthird"),
            ("x=…&y=…!", "x=1&y=2!"),
            ("", "anything"),
        ] {
            assert!(step(shown).fits(printed), "{shown} / {printed}");
        }
        for (shown, printed) in
            [("took 104 ms", "took long"), ("a b", "a c"), ("a", "a\nb"), ("…x", "xy"), ("a…b…a", "aba!")]
        {
            assert!(!step(shown).fits(printed), "{shown} / {printed}");
        }
    }
}
