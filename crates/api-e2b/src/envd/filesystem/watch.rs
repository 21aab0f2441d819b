//! Watches: as a stream, or by a name under which what happened is asked for.

use futures_util::{Stream, StreamExt, stream};
use roost_host::{Change, ChangeStream, EventKind, HostError, WatchOptions};
use roost_model::{ErrorCode, ExecId};

use super::entry::EntryInfo;
use super::message::{EventType, FilesystemEvent, Watch, WatchDirEvent};
use super::{known, meant};
use crate::envd::Call;
use crate::envd::connect::{Broken, Code, ConnectError};

impl Watch {
    fn options(&self) -> WatchOptions {
        let Watch { recursive, include_entry, allow_network_mounts, .. } = *self;
        WatchOptions { recursive, with_entries: include_entry, network: allow_network_mounts }
    }
}

/// A folder that is being watched.
struct Following {
    call: Call,
    wanted: Watch,
    root: String,
    changes: ChangeStream,
}

/// Tells of changes for as long as the client listens.
///
/// When the way to the guest breaks while the sandbox lives on, as it does when its memory is saved, the folder is watched
/// anew as soon as it is awake again; whoever only listens does not wake it.
pub(super) async fn follow(
    call: &Call,
    wanted: Watch,
) -> Result<impl Stream<Item = Result<WatchDirEvent, Broken>> + Send + use<>, ConnectError> {
    let (root, changes) = begin(call, &wanted).await.map_err(|error| super::refusal(call, error))?;
    let following = Following { call: call.clone(), wanted, root, changes };
    let events = stream::unfold(Some(following), |following| async { following?.next().await });
    let events = events.flat_map(|events| {
        let events = match events {
            Ok(events) => events.into_iter().map(|event| Ok(WatchDirEvent::Filesystem(Box::new(event)))).collect(),
            Err(broken) => vec![Err(broken)],
        };
        stream::iter(events)
    });
    Ok(stream::iter([Ok(WatchDirEvent::Start {})]).chain(events))
}

async fn begin(call: &Call, wanted: &Watch) -> Result<(String, ChangeStream), HostError> {
    let path = meant(&wanted.path).map_err(HostError::BadRequest)?;
    let (watched, changes) = call.handle.files_of(call.user.as_deref()).watch(path, wanted.options()).await?;
    Ok((watched.stat.path, changes))
}

impl Following {
    async fn next(mut self) -> Option<(Result<Vec<FilesystemEvent>, Broken>, Option<Self>)> {
        loop {
            match self.changes.next().await {
                Some(Ok(change)) => {
                    let events = told(&self.root, change).map_err(Broken::from);
                    let rest = events.is_ok().then_some(self);
                    return Some((events, rest));
                }
                Some(Err(error)) => {
                    tracing::debug!(sandbox = %self.call.handle.id(), %error, "the way to a watch broke");
                    if let Err(broken) = self.watch_again().await {
                        return Some((Err(broken), None));
                    }
                }
                None => return Some((Err(Broken::Off), None)),
            }
        }
    }

    async fn watch_again(&mut self) -> Result<(), Broken> {
        let begun = match self.call.handle.awake_for_others().await {
            Ok(()) => begin(&self.call, &self.wanted).await,
            Err(gone) => Err(gone),
        };
        match begun {
            Ok((_, changes)) => self.changes = changes,
            Err(error) if error.code() == ErrorCode::PathNotFound => return Err(error.into()),
            // With its guest the sandbox is gone.
            Err(_) => return Err(Broken::Off),
        }
        Ok(())
    }
}

/// Starts a watch that goes on by itself, and names it.
pub(super) async fn keep(call: &Call, wanted: &Watch) -> Result<String, ConnectError> {
    let id = format!("w{}", ExecId::generate().as_str().trim_start_matches(ExecId::PREFIX));
    let files = call.handle.files_of(call.user.as_deref());
    let kept = files.keep_watch(&id, known(&wanted.path)?, wanted.options()).await;
    kept.map_err(|error| super::refusal(call, error))?;
    Ok(id)
}

/// What such a watch has seen since it was last asked.
pub(super) async fn seen(call: &Call, id: &str) -> Result<Vec<FilesystemEvent>, ConnectError> {
    let seen = call.handle.watched_changes(id).await;
    let (root, changes) = seen.map_err(|error| refusal(call, id, error))?;
    let events: Vec<Vec<FilesystemEvent>> =
        changes.into_iter().map(|change| told(&root, change)).collect::<Result<_, _>>()?;
    Ok(events.into_iter().flatten().collect())
}

/// A refusal to look at a watch.
pub(super) fn refusal(call: &Call, id: &str, error: HostError) -> ConnectError {
    match error.code() {
        ErrorCode::NotFound => ConnectError::new(Code::NotFound, format!("watcher with id {id} not found")),
        _ => super::refusal(call, error),
    }
}

/// A change in the client's words: a move is the end of one name and the beginning of another.
fn told(root: &str, change: Change) -> Result<Vec<FilesystemEvent>, ConnectError> {
    let kind = match change.kind {
        EventKind::Created | EventKind::Moved => EventType::Create,
        EventKind::Modified => EventType::Write,
        EventKind::Attrib => EventType::Chmod,
        EventKind::Removed if change.moved_away => EventType::Rename,
        EventKind::Removed => EventType::Remove,
        EventKind::Overflow => {
            let message = "more happened than could be kept: some events of the watch are lost";
            return Err(ConnectError::new(Code::DataLoss, message));
        }
    };
    let from = change.moved_from.map(|from| FilesystemEvent {
        name: relative(root, &from),
        kind: EventType::Rename,
        entry: None,
    });
    let entry = change.entry.map(EntryInfo::from);
    Ok(from.into_iter().chain([FilesystemEvent { name: relative(root, &change.path), kind, entry }]).collect())
}

/// A path as it is called from the watched folder.
fn relative(root: &str, path: &str) -> String {
    let below = path.strip_prefix(root).map(|rest| rest.trim_start_matches('/'));
    match below {
        Some("") => ".".to_owned(),
        Some(below) => below.to_owned(),
        None => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(kind: EventKind, path: &str) -> Change {
        Change { kind, path: path.to_owned(), moved_from: None, moved_away: false, entry: None }
    }

    fn words(change: Change) -> Vec<(String, EventType)> {
        told("/w", change).unwrap().into_iter().map(|event| (event.name, event.kind)).collect()
    }

    #[test]
    fn a_move_is_two_events() {
        let moved = Change { moved_from: Some("/w/old".to_owned()), ..change(EventKind::Moved, "/w/a/new") };
        let expected = [("old".to_owned(), EventType::Rename), ("a/new".to_owned(), EventType::Create)];
        assert_eq!(words(moved), expected);
        let away = Change { moved_away: true, ..change(EventKind::Removed, "/w/x") };
        assert_eq!(words(away), [("x".to_owned(), EventType::Rename)]);
        assert_eq!(words(change(EventKind::Removed, "/w")), [(".".to_owned(), EventType::Remove)]);
        assert_eq!(told("/", change(EventKind::Modified, "/etc/x")).unwrap()[0].name, "etc/x");
    }

    #[test]
    fn what_was_lost_is_not_kept_quiet() {
        assert_eq!(told("/w", change(EventKind::Overflow, "")).unwrap_err().code, Code::DataLoss);
    }
}
