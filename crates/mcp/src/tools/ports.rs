//! Ports on the outside.

use roost_host::to_the_end;
use roost_model::{MakeLink, PortAccess, PortView, Span};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::sandboxes::One;
use super::{Effect, Entry, tool};
use crate::answer::{Answer, Failure};
use crate::call::Call;

const AN_HOUR: u64 = 3600;

pub(super) fn tools() -> Vec<Entry> {
    vec![
        tool(
            "ports",
            "List ports",
            Effect::Reads,
            "List the TCP ports on which programs in a sandbox listen, with the address of each from outside and who may reach it.",
            ports,
        ),
        tool(
            "port_link",
            "Make a link to a port",
            Effect::Changes,
            "Make a link that opens a port of a sandbox in a browser for whoever has it, for a time. With access, make the port public \
             or private first; private takes back all its links.",
            link,
        ),
    ]
}

async fn ports(call: Call, wanted: One) -> Result<Answer, Failure> {
    let all = call.living(&wanted.sandbox)?.ports().await?;
    let line = |port: &PortView| {
        let process = port.process.as_ref().map_or_else(String::new, |process| format!(" {process}"));
        let listens = if port.address.is_some() { "" } else { " (does not listen now)" };
        let url = port.url.as_deref().unwrap_or("no address outside");
        format!("{}{process}{listens}: {url} ({})\n", port.port, port.access)
    };
    let text: String = all.iter().map(line).collect();
    Ok(Answer::new(if all.is_empty() { "nothing listens".to_owned() } else { text }, json!({"ports": all})))
}

/// Who may reach a port.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Open {
    Private,
    Public,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Link {
    /// The sandbox's name or id
    sandbox: String,
    /// The port
    port: u16,
    /// Seconds for which the link is good; 3600 if absent
    expires_seconds: Option<u64>,
    /// `public` opens the port to everybody, `private` closes it; left as it is if absent
    access: Option<Open>,
}

async fn link(call: Call, wanted: Link) -> Result<Answer, Failure> {
    let handle = call.living(&wanted.sandbox)?;
    if wanted.port == 0 {
        return Err(Failure::bad_request("a port is a number from 1 to 65535"));
    }
    if let Some(open) = wanted.access {
        let (handle, port) = (handle.clone(), wanted.port);
        let access = match open {
            Open::Private => PortAccess::Private,
            Open::Public => PortAccess::Public,
        };
        to_the_end(async move { handle.set_port(port, access).await }).await?;
    }
    let expires = Span::seconds(wanted.expires_seconds.unwrap_or(AN_HOUR));
    let link = handle.make_link(wanted.port, MakeLink { expires })?;
    let view = handle.port_view(wanted.port);
    let address = link.url.as_deref().unwrap_or(&link.path);
    let text = format!("{address} (until {:.0}; the port is {})", link.expires_at, view.access);
    Ok(Answer::new(text, json!({"link": link, "port": view})))
}
