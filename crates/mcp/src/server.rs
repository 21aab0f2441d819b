//! The server: what it says of itself, and the way from a message to a tool or a resource.

use std::fmt;
use std::sync::LazyLock;

use axum::http::request::Parts;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ErrorData, Extensions, Implementation, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse,
    ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use roost_host::{Caller, Host, Visitor};
use roost_model::ErrorCode;

use crate::answer::{Answer, Failure};
use crate::call::Call;
use crate::resources;
use crate::tools::{self, Entry};

/// What a model should know before it begins.
const INSTRUCTIONS: &str = "\
Roost gives you Linux computers of your own (sandboxes). A sandbox keeps its files, memory and processes; when nobody uses it \
it sleeps, and every tool that needs it awake wakes it. Make one with sandbox_create, run commands with run (or exec_start for \
servers and other long work), change files with the file_ tools. Take a checkpoint before anything risky: restore takes the \
sandbox back, fork makes copies that go on from the same moment, so that several ways can be tried side by side and compared with \
diff. Long output is cut to its tail: each result says how to get the rest.";

static TOOLS: LazyLock<Vec<Entry>> = LazyLock::new(tools::all);

/// The server of one session or line; cheap to make.
#[derive(Clone)]
pub(crate) struct Server {
    host: Host,
    /// Who is at the other end, where that is one and the same for all messages.
    caller: Option<Caller>,
}

impl Server {
    /// One whose requests each say who asks.
    pub(crate) fn for_requests(host: Host) -> Self {
        Self { host, caller: None }
    }

    /// One for somebody who is known.
    pub(crate) fn for_caller(host: Host, caller: Caller) -> Self {
        Self { host, caller: Some(caller) }
    }

    /// The host for whoever sent a message. One that nobody vouches for gets nothing.
    async fn visitor(&self, extensions: &Extensions) -> Result<Visitor, ErrorData> {
        let of_request = || extensions.get::<Parts>().and_then(|head| head.extensions.get::<Caller>());
        let caller = self.caller.as_ref().or_else(of_request);
        let caller = caller.ok_or_else(|| ErrorData::invalid_request("nobody has said who asks", None))?;
        // A request has just shown its token; a line did so when it began, which may be days ago.
        if self.caller.is_some() && !self.host.still_knows(caller).await.map_err(Failure::from)? {
            return Err(Failure::new(ErrorCode::Unauthorized, "this token has been taken back").into());
        }
        Ok(self.host.visit(caller.clone()))
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("caller", &self.caller).finish_non_exhaustive()
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_resources().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("roost", env!("CARGO_PKG_VERSION")).with_title("Roost"))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(TOOLS.iter().map(|entry| entry.tool.clone()).collect()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        TOOLS.iter().find(|entry| entry.tool.name == name).map(|entry| entry.tool.clone())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(entry) = TOOLS.iter().find(|entry| entry.tool.name == request.name) else {
            return Err(ErrorData::invalid_params(format!("there is no tool `{}`", request.name), None));
        };
        let call = Call::new(self.visitor(&context.extensions).await?, &context);
        let done = (entry.run)(call, request.arguments.unwrap_or_default()).await;
        Ok(done.map_or_else(Failure::into_result, Answer::into_result).into())
    }

    async fn list_resources(
        &self,
        page: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let visitor = self.visitor(&context.extensions).await?;
        let (resources, next) = resources::page(&visitor, page.and_then(|page| page.cursor).as_deref());
        let mut listed = ListResourcesResult::with_all_items(resources);
        listed.next_cursor = next;
        Ok(listed)
    }

    async fn list_resource_templates(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        Ok(resources::read(&self.visitor(&context.extensions).await?, &request.uri).await?.into())
    }
}
