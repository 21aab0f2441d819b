//! Resources: files and events of sandboxes.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures_util::TryStreamExt;
use rmcp::model::{ErrorData, ReadResourceResult, Resource, ResourceContents, ResourceTemplate};
use roost_host::{Handle, HostError, ReadRange, Visitor};
use roost_model::{ErrorCode, Event, FileKind};

use crate::answer::Failure;

const SCHEME: &str = "roost://sandbox/";
/// Sandboxes on a page of the list.
const PAGE: usize = 100;
const LARGEST_FILE: u64 = 1 << 20;
const EVENTS: usize = 100;

/// What an address names.
#[derive(Debug, PartialEq, Eq)]
enum Address {
    File { sandbox: String, path: String },
    Events { sandbox: String },
}

impl Address {
    fn parse(uri: &str) -> Option<Self> {
        let (sandbox, rest) = uri.strip_prefix(SCHEME)?.split_once('/')?;
        let sandbox = sandbox.to_owned();
        if rest == "events" {
            return Some(Self::Events { sandbox });
        }
        let path = rest.strip_prefix("files")?;
        if !path.is_empty() && !path.starts_with('/') {
            return None;
        }
        let path = decoded(path)?;
        Some(Self::File { sandbox, path: if path.is_empty() { "/".to_owned() } else { path } })
    }
}

/// A text with `%20` and the like read.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, others @ ..] = rest {
        if *first == b'%' {
            let hex = std::str::from_utf8(others.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(hex, 16).ok()?);
            rest = &others[2..];
        } else {
            bytes.push(*first);
            rest = others;
        }
    }
    String::from_utf8(bytes).ok()
}

/// The files and the events of sandboxes within reach, by name, and the name after which the list goes on.
pub(crate) fn page(visitor: &Visitor, after: Option<&str>) -> (Vec<Resource>, Option<String>) {
    let mut names: Vec<String> = visitor.handles().iter().map(|handle| handle.view().name.to_string()).collect();
    names.sort();
    let (shown, next) = page_of(&names, after);
    let of = |name: &String| {
        [
            Resource::new(format!("{SCHEME}{name}/files/"), format!("{name} files"))
                .with_description(format!("The root folder of sandbox {name}; add a path for a file or folder"))
                .with_mime_type("text/plain"),
            Resource::new(format!("{SCHEME}{name}/events"), format!("{name} events"))
                .with_description(format!("What happened to sandbox {name} last: sleeps, wakes, checkpoints, and why"))
                .with_mime_type("text/plain"),
        ]
    };
    (shown.iter().flat_map(of).collect(), next)
}

/// Those of some sorted names that come after one, and the last of them if there are more.
fn page_of<'a>(names: &'a [String], after: Option<&str>) -> (&'a [String], Option<String>) {
    let rest = &names[names.partition_point(|name| after.is_some_and(|after| name.as_str() <= after))..];
    let shown = &rest[..rest.len().min(PAGE)];
    (shown, if rest.len() > PAGE { shown.last().cloned() } else { None })
}

/// How addresses are made.
pub(crate) fn templates() -> Vec<ResourceTemplate> {
    vec![
        ResourceTemplate::new(format!("{SCHEME}{{name}}/files/{{+path}}"), "sandbox file")
            .with_description("A file of a sandbox, or the list of a folder; reading wakes the sandbox"),
        ResourceTemplate::new(format!("{SCHEME}{{name}}/events"), "sandbox events")
            .with_description("What happened to a sandbox last; does not wake it"),
    ]
}

/// Reads what an address names.
pub(crate) async fn read(visitor: &Visitor, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let Some(address) = Address::parse(uri) else {
        let forms = format!("`{uri}` is no address here: write {SCHEME}NAME/files/PATH or {SCHEME}NAME/events");
        return Err(ErrorData::resource_not_found(forms, None));
    };
    let contents = match address {
        Address::Events { sandbox } => ResourceContents::text(events(visitor, &sandbox).await?, uri),
        Address::File { sandbox, path } => file(visitor, &sandbox, &path, uri).await?,
    };
    Ok(ReadResourceResult::new(vec![contents]))
}

async fn events(visitor: &Visitor, sandbox: &str) -> Result<String, Failure> {
    let last = visitor.recent_events(sandbox, EVENTS).await?;
    let line = |event: &Event| {
        let reason = event.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
        format!("{:.0} {}{reason}\n", event.at, event.kind.as_str())
    };
    Ok(last.iter().map(line).collect())
}

async fn file(visitor: &Visitor, sandbox: &str, path: &str, uri: &str) -> Result<ResourceContents, Failure> {
    let handle = visitor.living(sandbox)?;
    let download = match handle.read_file(path, ReadRange { offset: 0, length: Some(LARGEST_FILE + 1) }).await {
        Err(HostError::Guest { code: ErrorCode::IsADirectory, .. }) => {
            return Ok(ResourceContents::text(names_in(&handle, path).await?, uri));
        }
        read => read?,
    };
    if download.stat.size > LARGEST_FILE {
        let message = format!("`{path}` has {} bytes, and a resource at most {LARGEST_FILE}", download.stat.size);
        return Err(Failure::bad_request(message).with_hint("the tool file_read reads it piece by piece"));
    }
    let pieces: Vec<bytes::Bytes> = download.content.try_collect().await?;
    let bytes = pieces.concat();
    Ok(match String::from_utf8(bytes) {
        Ok(text) => ResourceContents::text(text, uri),
        Err(error) => ResourceContents::blob(BASE64_STANDARD.encode(error.as_bytes()), uri),
    })
}

/// The names in a folder, a line each.
async fn names_in(handle: &Handle, path: &str) -> Result<String, Failure> {
    let (mut list, mut names) = (handle.list_files(path).await?, String::new());
    while let Some(batch) = list.batches.try_next().await? {
        for entry in batch {
            let slash = if entry.kind == FileKind::Folder { "/" } else { "" };
            names.extend([&entry.name, slash, "\n"]);
        }
        if names.len() as u64 > LARGEST_FILE {
            let message = format!("the names in `{path}` take more than the {LARGEST_FILE} bytes of a resource");
            return Err(Failure::bad_request(message).with_hint("the tool file_list shows a part of them"));
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_goes_on_where_it_ended() {
        let names: Vec<String> = (0..PAGE + 1).map(|number| format!("box-{number:04}")).collect();
        let (first, next) = page_of(&names, None);
        assert_eq!((first.len(), next.as_ref()), (PAGE, Some(&names[PAGE - 1])));
        assert_eq!(page_of(&names, next.as_deref()), (&names[PAGE..], None));
        assert_eq!(page_of(&names[..PAGE], None), (&names[..PAGE], None));
        assert_eq!(page_of(&[], Some("gone")), (&[][..], None));
    }

    #[test]
    fn addresses_are_read() {
        let file = |path: &str| Some(Address::File { sandbox: "web".to_owned(), path: path.to_owned() });
        assert_eq!(Address::parse("roost://sandbox/web/files/etc/hosts"), file("/etc/hosts"));
        assert_eq!(Address::parse("roost://sandbox/web/files/a%20b/%E2%82%AC"), file("/a b/€"));
        assert_eq!(Address::parse("roost://sandbox/web/files"), file("/"));
        assert_eq!(Address::parse("roost://sandbox/web/files/"), file("/"));
        assert_eq!(Address::parse("roost://sandbox/web/events"), Some(Address::Events { sandbox: "web".to_owned() }));
        for bad in [
            "file:///etc/hosts",
            "roost://sandbox/web",
            "roost://sandbox/web/filesystem",
            "roost://sandbox/web/files/%zz",
        ] {
            assert_eq!(Address::parse(bad), None, "{bad}");
        }
    }
}
