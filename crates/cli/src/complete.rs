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

/// Words for an engine that start with what is typed.
pub(crate) fn engines(current: &OsStr) -> Vec<CompletionCandidate> {
    let words = [
        ("native", "namespaces on the host's kernel"),
        ("gvisor", "a kernel of its own"),
        ("auto", "the strongest that works here"),
    ];
    let words = words.into_iter().map(|(word, help)| (word.to_owned(), help.to_owned()));
    candidates(words.collect(), &current.to_string_lossy())
}

/// Capabilities that start with what is typed.
pub(crate) fn capabilities(current: &OsStr) -> Vec<CompletionCandidate> {
    let words = [
        ("net-admin", "configure the sandbox's network"),
        ("net-raw", "open raw and packet sockets"),
        ("net-admin,net-raw", "both"),
        ("none", "no capability beyond the usual ones"),
    ];
    let words = words.into_iter().map(|(word, help)| (word.to_owned(), help.to_owned()));
    candidates(words.collect(), &current.to_string_lossy())
}

/// Names of the services of the sandbox that was typed before.
pub(crate) fn services(current: &OsStr) -> Vec<CompletionCandidate> {
    let typed = current.to_string_lossy().into_owned();
    let Some(sandbox) = sandbox_before(std::env::args()) else { return Vec::new() };
    let names = ask(async move |client| {
        let all = client.list_services(&sandbox).await.ok()?;
        Some(all.into_iter().map(|service| (service.name.to_string(), service.state.to_string())).collect())
    });
    candidates(names, &typed)
}

/// The sandbox in `roost service VERB SANDBOX …`.
fn sandbox_before(words: impl Iterator<Item = String>) -> Option<String> {
    words.skip_while(|word| word != "service").filter(|word| !word.starts_with('-')).nth(2)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sandbox_of_a_service_is_found_on_the_line() {
        let found = |line: &str| sandbox_before(line.split(' ').map(str::to_owned));
        assert_eq!(found("roost -- roost service logs -f box w").as_deref(), Some("box"));
        assert_eq!(found("roost -- roost service logs"), None);
        assert_eq!(found("roost -- roost info box"), None);
    }
}
