//! Which exec a client means by a pid or a tag.

use roost_host::{ExecFilter, ExecInfo, Handle};
use roost_model::ExecId;

use super::message::Selector;
use crate::envd::connect::{Code, ConnectError};

/// A process that was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) id: ExecId,
    pub(super) info: ExecInfo,
}

/// The process that is meant, running or ended.
pub(super) async fn find(handle: &Handle, selector: &Selector) -> Result<Found, ConnectError> {
    find_with(handle, selector, false).await
}

/// The process that is meant, if it runs.
pub(super) async fn find_running(handle: &Handle, selector: &Selector) -> Result<Found, ConnectError> {
    find_with(handle, selector, true).await
}

async fn find_with(handle: &Handle, selector: &Selector, running: bool) -> Result<Found, ConnectError> {
    let execs = handle.find_execs(ExecFilter { running, ..filter(selector)? }).await?;
    let info = latest(execs).ok_or_else(|| not_found(selector))?;
    let id = info.id.parse().map_err(|_| ConnectError::new(Code::Internal, "the process has no id"))?;
    Ok(Found { id, info })
}

fn filter(selector: &Selector) -> Result<ExecFilter, ConnectError> {
    match (selector.pid, &selector.tag) {
        (Some(pid), None) => {
            let pid = i32::try_from(pid.0).map_err(|_| not_found(selector))?;
            Ok(ExecFilter { pid: Some(pid), ..ExecFilter::default() })
        }
        (None, Some(tag)) => Ok(ExecFilter { tag: Some(tag.clone()), ..ExecFilter::default() }),
        _ => Err(ConnectError::invalid("name a process by its `pid` or by its `tag`")),
    }
}

/// Of several that had the same pid or tag, the one that runs, else the one that started last.
fn latest(execs: Vec<ExecInfo>) -> Option<ExecInfo> {
    execs.into_iter().max_by_key(|exec| (exec.exit().is_none(), exec.started_at_ms))
}

/// What is answered when nobody is meant.
pub(super) fn not_found(selector: &Selector) -> ConnectError {
    let message = match (selector.pid, &selector.tag) {
        (Some(pid), _) => format!("process with pid {} not found", pid.0),
        (None, Some(tag)) => format!("process with tag '{tag}' not found"),
        (None, None) => "process not found".to_owned(),
    };
    ConnectError::new(Code::NotFound, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envd::connect::json::Uint32;

    fn exec(id: &str, started_at_ms: u64, ended: bool) -> ExecInfo {
        let state = if ended { serde_json::json!({"exited": {"code": 0}}) } else { "running".into() };
        let range = serde_json::json!({"start": 0, "end": 0});
        serde_json::from_value(serde_json::json!({
            "id": id, "pid": 7, "argv": [], "started_at_ms": started_at_ms, "state": state,
            "stdout": range, "stderr": range,
        }))
        .unwrap()
    }

    #[test]
    fn the_one_that_runs_goes_before_those_that_had_its_pid() {
        let id = |execs: Vec<ExecInfo>| latest(execs).map(|exec| exec.id);
        assert_eq!(id(vec![exec("a", 5, false), exec("b", 9, true)]).as_deref(), Some("a"));
        assert_eq!(id(vec![exec("a", 9, true), exec("b", 5, true)]).as_deref(), Some("a"));
        assert_eq!(id(vec![]), None);
    }

    #[test]
    fn a_process_is_named_in_one_way() {
        let selector =
            |pid: Option<u32>, tag: Option<&str>| Selector { pid: pid.map(Uint32), tag: tag.map(str::to_owned) };
        assert_eq!(filter(&selector(Some(7), None)).unwrap().pid, Some(7));
        assert_eq!(filter(&selector(None, Some("a"))).unwrap().tag.as_deref(), Some("a"));
        assert_eq!(filter(&selector(Some(u32::MAX), None)).unwrap_err().code, Code::NotFound);
        for odd in [selector(None, None), selector(Some(1), Some("a"))] {
            assert_eq!(filter(&odd).unwrap_err().code, Code::InvalidArgument);
        }
    }
}
