//! Batches: many commands, each in a sandbox of its own.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use jiff::Timestamp;
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use crate::{BatchId, ErrorDetail, LimitsRequest, NetworkPolicy, Span};

/// Most tasks of one batch.
pub const MOST_TASKS: usize = 100_000;
/// Most tasks of one batch that may run at once.
pub const MOST_PARALLEL: u32 = 1024;
/// Most times that a task is tried again.
pub const MOST_RETRIES: u32 = 100;
const LONGEST_ID: usize = 200;

/// What a task runs: program and arguments, or a line for `sh -c`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum TaskCommand {
    /// A line for `sh -c`.
    Shell(String),
    /// Program and arguments.
    Argv(Vec<String>),
}

impl<'de> Deserialize<'de> for TaskCommand {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = TaskCommand;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a line of shell, or a list of a program and its arguments")
            }

            fn visit_str<E: de::Error>(self, line: &str) -> Result<TaskCommand, E> {
                Ok(TaskCommand::Shell(line.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut words: A) -> Result<TaskCommand, A::Error> {
                let mut argv = Vec::new();
                while let Some(word) = words.next_element()? {
                    argv.push(word);
                }
                Ok(TaskCommand::Argv(argv))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// A small file that is there before a task's command starts: its content as `text` or as `base64`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskFile {
    /// Where; missing folders are made.
    pub path: String,
    /// Its content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Its content, for bytes that are not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// Permission bits, octal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
}

/// One command of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// What its result is found by; its place in the batch, from 1 on, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What it runs.
    pub command: TaskCommand,
    /// Environment over the sandbox's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// What the command reads from its standard input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// Files that are there when it starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<TaskFile>,
    /// Kill it after this time; the batch's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
}

/// A batch to run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateBatch {
    /// The template of its sandboxes; the daemon's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// What isolates them; the daemon's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// What to run.
    pub tasks: Vec<Task>,
    /// How many at once; twice the host's processors if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel: Option<u32>,
    /// How often a task is tried again that Roost could not run.
    #[serde(default)]
    pub retries: u32,
    /// Try a task again also if its command fails.
    #[serde(default)]
    pub retry_exit: bool,
    /// Kill a task after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// Limits that differ from the template's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitsRequest>,
    /// What its sandboxes may reach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkPolicy>,
    /// Environment of every task.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

/// Why a batch cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// Nothing to run.
    #[error("a batch needs at least one task")]
    Empty,
    /// Too much to run.
    #[error("{0} tasks: a batch has at most {MOST_TASKS}")]
    TooMany(usize),
    /// Nothing could run.
    #[error("{0} tasks at once: a batch runs between 1 and {MOST_PARALLEL}")]
    Parallel(u32),
    /// Tried for ever.
    #[error("{0} retries: a task is tried again at most {MOST_RETRIES} times")]
    Retries(u32),
    /// Two tasks with one id.
    #[error("tasks {first} and {second} have the same id `{id}`")]
    Twice {
        /// The id.
        id: String,
        /// Its first task, from 1 on.
        first: usize,
        /// Its second.
        second: usize,
    },
    /// Something about one task.
    #[error("task {place}: {problem}")]
    Task {
        /// Its place, from 1 on.
        place: usize,
        /// What is wrong with it.
        problem: String,
    },
}

impl Task {
    /// Its id, or the one that its place (from 1 on) gives it.
    pub fn id_at(&self, place: usize) -> String {
        self.id.clone().unwrap_or_else(|| place.to_string())
    }

    /// What is wrong with it, if anything is.
    pub fn problem(&self) -> Option<String> {
        let empty = match &self.command {
            TaskCommand::Shell(line) => line.trim().is_empty(),
            TaskCommand::Argv(argv) => argv.first().is_none_or(String::is_empty),
        };
        if empty {
            return Some("there is nothing to run".to_owned());
        }
        if let Some(id) = &self.id
            && (id.is_empty() || id.len() > LONGEST_ID || id.chars().any(char::is_control))
        {
            return Some(format!("an id has 1 to {LONGEST_ID} visible characters"));
        }
        let wrong = self.files.iter().find(|file| file.text.is_some() == file.base64.is_some())?;
        Some(format!("file `{}` needs either `text` or `base64`", wrong.path))
    }
}

impl CreateBatch {
    /// Whether it makes sense.
    pub fn check(&self) -> Result<(), BatchError> {
        match self.tasks.len() {
            0 => return Err(BatchError::Empty),
            count if count > MOST_TASKS => return Err(BatchError::TooMany(count)),
            _ => {}
        }
        if let Some(parallel) = self.parallel.filter(|parallel| !(1..=MOST_PARALLEL).contains(parallel)) {
            return Err(BatchError::Parallel(parallel));
        }
        if self.retries > MOST_RETRIES {
            return Err(BatchError::Retries(self.retries));
        }
        check_tasks(&self.tasks)
    }
}

/// Whether each task makes sense and no two have one id.
pub fn check_tasks(tasks: &[Task]) -> Result<(), BatchError> {
    let mut places = HashMap::with_capacity(tasks.len());
    for (place, task) in (1..).zip(tasks) {
        if let Some(problem) = task.problem() {
            return Err(BatchError::Task { place, problem });
        }
        let id = task.id_at(place);
        if let Some(first) = places.insert(id.clone(), place) {
            return Err(BatchError::Twice { id, first, second: place });
        }
    }
    Ok(())
}

/// What a batch does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BatchState {
    /// Tasks run.
    Running,
    /// Somebody ended it; it can be resumed.
    Cancelled,
    /// Every task has its result.
    Done,
}

impl fmt::Display for BatchState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Running => "running",
            Self::Cancelled => "cancelled",
            Self::Done => "done",
        })
    }
}

/// A batch as the API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BatchView {
    /// Its id.
    pub id: BatchId,
    /// What it does now.
    pub state: BatchState,
    /// The template of its sandboxes.
    pub template: String,
    /// How many run at once.
    pub parallel: u32,
    /// How many tasks it has.
    pub tasks: u64,
    /// How many have a result.
    pub done: u64,
    /// How many of those ended with exit code 0.
    pub succeeded: u64,
    /// How many of those ended otherwise.
    pub failed: u64,
    /// How many of those Roost could not run.
    pub errors: u64,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// The `Idempotency-Key` it was made with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// What came of one task: a line of a batch's results.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskResult {
    /// The task's id.
    pub id: String,
    /// Its exit code, 128 + signal if a signal ended it; nothing if it did not run.
    pub exit_code: Option<i32>,
    /// Standard output, bytes that are not UTF-8 replaced.
    pub stdout: String,
    /// Standard error, likewise.
    pub stderr: String,
    /// Whether output was longer than a result may be.
    #[serde(default)]
    pub truncated: bool,
    /// Whether its timeout ended it.
    #[serde(default)]
    pub timed_out: bool,
    /// When its last attempt began.
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    /// How long that took, its sandbox included.
    pub duration_ms: u64,
    /// How often it was tried.
    pub attempts: u32,
    /// Why Roost could not run it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorDetail>,
}

impl TaskResult {
    /// Whether its command ended with exit code 0.
    pub fn succeeded(&self) -> bool {
        self.exit_code == Some(0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tasks(values: serde_json::Value) -> Vec<Task> {
        serde_json::from_value(values).unwrap()
    }

    #[test]
    fn a_command_is_a_line_or_a_list() {
        let both = tasks(json!([{"command": "echo a"}, {"command": ["echo", "a"], "timeout": "5s"}]));
        assert_eq!(both[0].command, TaskCommand::Shell("echo a".to_owned()));
        assert_eq!(both[1].command, TaskCommand::Argv(vec!["echo".to_owned(), "a".to_owned()]));
        for task in both {
            assert_eq!(serde_json::from_value::<Task>(serde_json::to_value(&task).unwrap()).unwrap(), task);
        }
        let odd = serde_json::from_value::<Task>(json!({"command": 3})).unwrap_err().to_string();
        assert!(odd.contains("a line of shell, or a list"), "{odd}");
    }

    #[test]
    fn bad_batches_are_refused_with_their_reason() {
        let batch = |value| CreateBatch { tasks: tasks(value), ..CreateBatch::default() };
        let good = batch(json!([{"command": "true"}, {"command": "true", "id": "x"}]));
        assert_eq!(good.check(), Ok(()));
        assert_eq!(batch(json!([])).check(), Err(BatchError::Empty));
        let zero = CreateBatch { parallel: Some(0), ..good.clone() };
        assert_eq!(zero.check(), Err(BatchError::Parallel(0)));
        // The second task has no id of its own and is called by its place.
        let twice = batch(json!([{"command": "true", "id": "2"}, {"command": "true"}]));
        assert_eq!(twice.check().unwrap_err().to_string(), "tasks 1 and 2 have the same id `2`");
        for (task, part) in [
            (json!({"command": ""}), "task 1: there is nothing to run"),
            (json!({"command": []}), "nothing to run"),
            (json!({"command": "true", "id": ""}), "an id has"),
            (json!({"command": "true", "files": [{"path": "/a"}]}), "file `/a` needs either"),
        ] {
            let problem = batch(json!([task])).check().unwrap_err().to_string();
            assert!(problem.contains(part), "{problem}");
        }
    }
}
