//! Names for the shell's completion, asked of the daemon.

use std::ffi::OsStr;
use std::time::Duration;

use clap_complete::engine::CompletionCandidate;
use roost_client::{Client, SandboxFilter};

use crate::args::ConnectionArgs;
use crate::connection::connect;

/// A person waits with the finger on the tab key.
const PATIENCE: Duration = Duration::from_millis(300);

/// Names of the sandboxes that start with what is typed.
pub(crate) fn sandboxes(current: &OsStr) -> Vec<CompletionCandidate> {
    let typed = current.to_string_lossy().into_owned();
    let names = ask(async move |client| {
        let all = client.all_sandboxes(&SandboxFilter::default()).await.ok()?;
        let shown = |sandbox: roost_model::SandboxView| (sandbox.name.to_string(), format!("{}", sandbox.state));
        Some(all.into_iter().map(shown).collect())
    });
    candidates(names, &typed)
}

/// Names of the templates that start with what is typed.
pub(crate) fn templates(current: &OsStr) -> Vec<CompletionCandidate> {
    let typed = current.to_string_lossy().into_owned();
    let names = ask(async |client| {
        let all = client.list_templates().await.ok()?;
        Some(all.into_iter().map(|template| (template.name, crate::units::show_size(template.size))).collect())
    });
    candidates(names, &typed)
}

fn candidates(names: Vec<(String, String)>, typed: &str) -> Vec<CompletionCandidate> {
    let fitting = names.into_iter().filter(|(name, _)| name.starts_with(typed));
    fitting.map(|(name, help)| CompletionCandidate::new(name).help(Some(help.into()))).collect()
}

/// Asks the daemon; silence, refusal and absence are all no names.
fn ask(question: impl AsyncFnOnce(Client) -> Option<Vec<(String, String)>>) -> Vec<(String, String)> {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return Vec::new() };
    let Ok(client) = connect(&ConnectionArgs::default()) else { return Vec::new() };
    let answer = runtime.block_on(async { tokio::time::timeout(PATIENCE, question(client)).await });
    answer.ok().flatten().unwrap_or_default()
}
