//! Starting a process.

use std::time::Duration;

use futures_util::Stream;
use roost_host::HostError;
use roost_model::{ErrorCode, SandboxView, Span, StartExec, TerminalSize};

use super::follow;
use super::message::{Start, Told};
use crate::e2b::wire_id;
use crate::envd::Call;
use crate::envd::connect::{Broken, Code, ConnectError};

/// Starts what is wanted and follows it. The time of the call is the time of the process; a client that leaves takes
/// nothing from it.
pub(super) async fn start(
    call: &Call,
    timeout: Option<Duration>,
    wanted: Start,
) -> Result<impl Stream<Item = Result<Told, Broken>> + Send + use<>, ConnectError> {
    let mut start = start_exec(wanted, call.user.clone(), timeout)?;
    for (name, value) in own_env(&call.handle.view()) {
        start.env.entry(name).or_insert(value);
    }
    let (cwd, user) = (start.cwd.clone(), start.user.clone());
    let attached = call.handle.start_attached(start, None).await;
    let attachment = attached.map_err(|error| refusal(error, cwd.as_deref(), user.as_deref()))?;
    Ok(follow::follow(call.handle.clone(), attachment))
}

/// What every process finds in its environment beside what the sandbox and the call give it. By the call, because a fork
/// has an id of its own.
pub(super) fn own_env(sandbox: &SandboxView) -> impl Iterator<Item = (String, String)> {
    let own = [
        ("E2B_SANDBOX", "true".to_owned()),
        ("E2B_SANDBOX_ID", wire_id(&sandbox.id).to_owned()),
        ("E2B_TEMPLATE_ID", sandbox.template.clone()),
    ];
    own.into_iter().filter(|(name, _)| !sandbox.env.contains_key(*name)).map(|(name, value)| (name.to_owned(), value))
}

fn start_exec(wanted: Start, user: Option<String>, timeout: Option<Duration>) -> Result<StartExec, ConnectError> {
    let process = wanted.process;
    if process.cmd.is_empty() {
        return Err(ConnectError::invalid("there is nothing to run: `process.cmd` is empty"));
    }
    let mut argv = vec![process.cmd];
    argv.extend(process.args);
    Ok(StartExec {
        argv,
        env: process.envs,
        cwd: process.cwd.filter(|cwd| !cwd.is_empty()),
        user,
        stdin: wanted.stdin.unwrap_or(true),
        pty: wanted.pty.map(TerminalSize::try_from).transpose()?,
        timeout: timeout.map(Span::from),
        tag: wanted.tag,
        ..StartExec::default()
    })
}

/// A refusal in the words that clients know.
fn refusal(error: HostError, cwd: Option<&str>, user: Option<&str>) -> ConnectError {
    match (error.code(), cwd, user) {
        (ErrorCode::CwdNotFound, Some(cwd), _) => ConnectError::invalid(format!("cwd '{cwd}' does not exist")),
        // It is there, and not for this user.
        (ErrorCode::PermissionDenied, ..) => ConnectError::invalid(error.to_string()),
        (ErrorCode::UserNotFound, _, Some(user)) => {
            ConnectError::new(Code::Unauthenticated, format!("invalid username: '{user}'"))
        }
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(value: serde_json::Value) -> Start {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn what_is_asked_for_is_what_is_started() {
        let process = serde_json::json!({"cmd": "/bin/bash", "args": ["-l", "-c", "true"], "cwd": ""});
        let start = wanted(serde_json::json!({"process": process, "tag": "t"}));
        let start = start_exec(start, Some("root".to_owned()), Some(Duration::from_millis(1500))).unwrap();
        assert_eq!(start.argv, ["/bin/bash", "-l", "-c", "true"]);
        assert_eq!((start.stdin, start.cwd, start.user.as_deref()), (true, None, Some("root")));
        assert_eq!(start.timeout.and_then(Span::get), Some(Duration::from_millis(1500)));
        let nothing = start_exec(wanted(serde_json::json!({})), None, None).unwrap_err();
        assert_eq!(nothing.code, Code::InvalidArgument);
        let huge = wanted(serde_json::json!({"process": {"cmd": "sh"}, "pty": {"size": {"cols": 70000, "rows": 1}}}));
        assert_eq!(start_exec(huge, None, None).unwrap_err().code, Code::InvalidArgument);
    }

    #[test]
    fn refusals_have_the_words_that_clients_know() {
        let guest = |code| HostError::Guest { code, message: "m".to_owned() };
        let cwd = refusal(guest(ErrorCode::CwdNotFound), Some("/nowhere"), None);
        assert_eq!((cwd.code, cwd.message.as_str()), (Code::InvalidArgument, "cwd '/nowhere' does not exist"));
        let user = refusal(guest(ErrorCode::UserNotFound), None, Some("x"));
        assert_eq!((user.code, user.message.as_str()), (Code::Unauthenticated, "invalid username: 'x'"));
        assert_eq!(refusal(guest(ErrorCode::CommandNotFound), None, None).message, "m");
    }
}
