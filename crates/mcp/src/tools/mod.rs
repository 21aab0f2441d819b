//! The tools: each with its arguments, what it says to a model, and what it does.

mod execs;
mod files;
mod moments;
mod ports;
mod processes;
mod run;
mod sandboxes;
mod search;
mod sleep;

use std::any::Any;
use std::pin::Pin;

use rmcp::handler::server::tool::schema_for_type;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::answer::{Answer, Failure};
use crate::call::Call;

type Done = Pin<Box<dyn Future<Output = Result<Answer, Failure>> + Send>>;

/// One tool.
pub(crate) struct Entry {
    pub(crate) tool: Tool,
    pub(crate) run: Box<dyn Fn(Call, JsonObject) -> Done + Send + Sync>,
}

/// What a tool does to the world, told as hints to clients that ask people before they let it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// Looks.
    Reads,
    /// Makes or changes; done twice it is done twice.
    Changes,
    /// Changes; done twice it is as done once.
    Settles,
    /// Loses something for good.
    Destroys,
}

/// The last ones of a list that is as long as it is, and a line that says how to see the others.
fn youngest<T>(all: &[T], limit: Option<usize>) -> (&[T], String) {
    const USUAL: usize = 50;
    const MOST: usize = 1000;
    let shown = &all[all.len().saturating_sub(limit.unwrap_or(USUAL).clamp(1, MOST))..];
    let older = all.len() - shown.len();
    let note = if older > 0 { format!("{older} older ones are not shown: give a limit\n") } else { String::new() };
    (shown, note)
}

/// All tools, in the order in which they are listed.
pub(crate) fn all() -> Vec<Entry> {
    [
        sandboxes::tools(),
        run::tools(),
        execs::tools(),
        processes::tools(),
        files::tools(),
        search::tools(),
        moments::tools(),
        sleep::tools(),
        ports::tools(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn tool<A, F>(
    name: &'static str,
    title: &str,
    effect: Effect,
    description: &'static str,
    work: impl Fn(Call, A) -> F + Send + Sync + 'static,
) -> Entry
where
    A: JsonSchema + DeserializeOwned + Any,
    F: Future<Output = Result<Answer, Failure>> + Send + 'static,
{
    let hints = ToolAnnotations::from_raw(
        Some(title.to_owned()),
        Some(effect == Effect::Reads),
        Some(effect == Effect::Destroys),
        Some(matches!(effect, Effect::Reads | Effect::Settles)),
        // A sandbox is a world of its own; what commands in it reach is another matter.
        Some(false),
    );
    let tool = Tool::new(name, description, schema_for_type::<A>()).with_title(title).with_annotations(hints);
    let run = move |call: Call, arguments: JsonObject| -> Done {
        match serde_json::from_value::<A>(Value::Object(arguments)) {
            Ok(arguments) => Box::pin(work(call, arguments)),
            Err(error) => {
                let refused = Failure::bad_request(format!("the arguments of {name} do not fit: {error}"));
                Box::pin(std::future::ready(Err(refused)))
            }
        }
    };
    Entry { tool, run: Box::new(run) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_tool_says_what_it_takes_and_does() {
        let tools = all();
        let names: BTreeSet<&str> = tools.iter().map(|entry| entry.tool.name.as_ref()).collect();
        assert_eq!(names.len(), tools.len(), "two tools of one name");
        for entry in &tools {
            let name = &entry.tool.name;
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
            assert!(entry.tool.title.is_some() && entry.tool.description.as_ref().is_some_and(|text| text.len() > 30));
            let hints = entry.tool.annotations.as_ref().unwrap();
            assert!(
                hints.read_only_hint.is_some() && hints.destructive_hint.is_some() && hints.idempotent_hint.is_some()
            );
            assert_eq!(entry.tool.input_schema["type"], "object", "{name}");
            assert_eq!(entry.tool.input_schema["additionalProperties"], false, "{name} takes what it does not know");
            let properties = entry.tool.input_schema.get("properties").and_then(Value::as_object);
            for (property, about) in properties.into_iter().flatten() {
                assert!(about.get("description").is_some(), "{name}: `{property}` says nothing of itself");
            }
        }
    }

    #[test]
    fn a_long_list_shows_its_youngest_and_says_so() {
        let all: Vec<u32> = (0..60).collect();
        assert_eq!(youngest(&all, None), (&all[10..], "10 older ones are not shown: give a limit\n".to_owned()));
        assert_eq!(youngest(&all, Some(100)), (&all[..], String::new()));
        assert_eq!(youngest(&all[..0], Some(0)), (&all[..0], String::new()));
    }

    #[test]
    fn what_loses_something_says_so() {
        let destructive: Vec<String> = all()
            .iter()
            .filter(|entry| entry.tool.annotations.as_ref().is_some_and(|hints| hints.destructive_hint == Some(true)))
            .map(|entry| entry.tool.name.to_string())
            .collect();
        assert_eq!(
            destructive,
            [
                "sandbox_remove",
                "run",
                "exec_start",
                "exec_signal",
                "file_write",
                "file_edit",
                "checkpoint_remove",
                "restore"
            ]
        );
    }
}
