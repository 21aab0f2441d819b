//! Searching files by name and by content, with what every sandbox has: `find` and `grep`.

use std::collections::BTreeMap;

use roost_model::{ErrorCode, Span, StartExec};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{Effect, Entry, tool};
use crate::answer::{Answer, Failure};
use crate::call::Call;

const MATCHES: usize = 100;
const MOST_MATCHES: usize = 1000;
const TIME: Span = Span::seconds(60);

/// What is asked for comes in variables, so that nothing of it is read as a part of the script.
const SCRIPT: &str = r#"
cd / && [ -e "$ROOT" ] || { echo "no such path: $ROOT" >&2; exit 3; }
found() { find "$ROOT" -xdev \( -name .git -o -name node_modules \) -prune -o -type f -name "$NAME" "$@"; }
{
  if [ -n "$TEXT" ]; then found -exec grep -nI "$KIND" -e "$TEXT" /dev/null {} +; else found -print; fi
} 2>/dev/null | cut -c1-400 | head -n "$MOST"
exit 0
"#;

pub(super) fn tools() -> Vec<Entry> {
    vec![tool(
        "file_search",
        "Search files",
        Effect::Reads,
        "Find files by name (a shell pattern such as *.py) and lines by content (a plain text, or a regular expression with \
         regex=true), below a folder. Leaves out .git and node_modules. Results are path:line:text.",
        search,
    )]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Search {
    /// The sandbox's name or id
    sandbox: String,
    /// Absolute path of the folder to search below
    path: String,
    /// Text that a line must hold; only names are searched if absent
    content: Option<String>,
    /// Whether `content` is an extended regular expression
    #[serde(default)]
    regex: bool,
    /// Pattern for the file's name, such as `*.py`; any if absent
    name: Option<String>,
    /// How many results at most; 100 if absent
    limit: Option<usize>,
}

async fn search(call: Call, wanted: Search) -> Result<Answer, Failure> {
    let handle = call.living(&wanted.sandbox)?;
    let limit = wanted.limit.unwrap_or(MATCHES).clamp(1, MOST_MATCHES);
    let pairs = [
        ("ROOT", wanted.path.clone()),
        ("NAME", wanted.name.unwrap_or_else(|| "*".to_owned())),
        ("TEXT", wanted.content.unwrap_or_default()),
        ("KIND", if wanted.regex { "-E" } else { "-F" }.to_owned()),
        // One more than wanted tells that there are more.
        ("MOST", (limit + 1).to_string()),
    ];
    let env: BTreeMap<String, String> = pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let start = StartExec { shell: Some(SCRIPT.to_owned()), env, timeout: Some(TIME), ..StartExec::default() };
    let ran = handle.run_exec(start, None).await?;
    match ran.exit_code {
        0 => {}
        3 => return Err(Failure::new(ErrorCode::PathNotFound, format!("no such file or folder: `{}`", wanted.path))),
        _ => return Err(Failure::bad_request(format!("the search failed or took too long: {}", ran.stderr.trim()))),
    }
    let lines: Vec<&str> = ran.stdout.lines().collect();
    let shown = &lines[..lines.len().min(limit)];
    let truncated = lines.len() > limit;
    let mut text = shown.join("\n");
    if shown.is_empty() {
        text.push_str("nothing was found");
    }
    if truncated {
        text.push_str("\nthere are more: search below a deeper folder, or give a limit");
    }
    Ok(Answer::new(text, json!({"matches": shown, "truncated": truncated})))
}
