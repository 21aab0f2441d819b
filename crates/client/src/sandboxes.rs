//! Sandboxes: make, list, read, change, suspend, wake, fork, end.

use hyper::Method;
use roost_model::{
    CreateSandbox, Fork, ForkResult, Level, MoveSandbox, Page, PatchSandbox, PortView, Receipt, SandboxView, Span,
    State, Stats, Suspend, UsageHistory, UsageReport, UsageView, WhyView,
};

use crate::route::Route;
use crate::{Client, ClientError};

/// Which sandboxes to list; the default is every living one.
#[derive(Debug, Clone, Default)]
pub struct SandboxFilter {
    /// Only those in this state.
    pub state: Option<State>,
    /// Only those with all of these labels.
    pub labels: Vec<(String, String)>,
    /// Only those whose name has this in it.
    pub name: Option<String>,
    /// Terminated ones too.
    pub terminated: bool,
    /// How many at once.
    pub limit: Option<u32>,
    /// Where the page starts, from the page before.
    pub cursor: Option<String>,
}

impl Client {
    /// Makes a sandbox.
    pub async fn create_sandbox(&self, wanted: &CreateSandbox) -> Result<SandboxView, ClientError> {
        self.create(wanted, None).await
    }

    /// Makes a sandbox, or returns the one that a call with the same key made.
    pub async fn create_sandbox_once(&self, wanted: &CreateSandbox, key: &str) -> Result<SandboxView, ClientError> {
        self.create(wanted, Some(key)).await
    }

    async fn create(&self, wanted: &CreateSandbox, key: Option<&str>) -> Result<SandboxView, ClientError> {
        self.send_json(Method::POST, Route::new("/v1/sandboxes"), wanted, key).await?.json().await
    }

    /// One page of the sandboxes that a filter lets through.
    pub async fn list_sandboxes(&self, filter: &SandboxFilter) -> Result<Page<SandboxView>, ClientError> {
        let mut route = Route::new("/v1/sandboxes")
            .query_some("state", filter.state)
            .query_some("name", filter.name.as_ref())
            .query_some("terminated", filter.terminated.then_some(true))
            .query_some("limit", filter.limit)
            .query_some("cursor", filter.cursor.as_ref());
        for (key, value) in &filter.labels {
            route = route.query("label", format!("{key}={value}"));
        }
        self.get_json(route).await
    }

    /// Every sandbox that a filter lets through, page after page.
    pub async fn all_sandboxes(&self, filter: &SandboxFilter) -> Result<Vec<SandboxView>, ClientError> {
        let mut filter = SandboxFilter { limit: Some(filter.limit.unwrap_or(1000)), ..filter.clone() };
        let mut all = Vec::new();
        loop {
            let page = self.list_sandboxes(&filter).await?;
            all.extend(page.items);
            match page.next_cursor {
                Some(cursor) => filter.cursor = Some(cursor),
                None => return Ok(all),
            }
        }
    }

    /// One sandbox, by name, id or unique start of an id.
    pub async fn sandbox(&self, sandbox: &str) -> Result<SandboxView, ClientError> {
        self.get_json(Route::sandbox(sandbox)).await
    }

    /// Changes labels, limits, time to live or when it sleeps by itself.
    pub async fn patch_sandbox(&self, sandbox: &str, patch: &PatchSandbox) -> Result<SandboxView, ClientError> {
        self.send_json(Method::PATCH, Route::sandbox(sandbox), patch, None).await?.json().await
    }

    /// Ends a sandbox and frees what it had.
    pub async fn delete_sandbox(&self, sandbox: &str) -> Result<(), ClientError> {
        self.delete(Route::sandbox(sandbox)).await
    }

    /// Puts a sandbox to sleep, or to a deeper sleep.
    pub async fn suspend_sandbox(&self, sandbox: &str, to: Level) -> Result<Receipt, ClientError> {
        self.put_to_sleep(sandbox, to, false).await
    }

    /// The same, and it stays asleep until somebody wakes it expressly.
    pub async fn suspend_to_stay(&self, sandbox: &str, to: Level) -> Result<Receipt, ClientError> {
        self.put_to_sleep(sandbox, to, true).await
    }

    async fn put_to_sleep(&self, sandbox: &str, to: Level, stay: bool) -> Result<Receipt, ClientError> {
        let route = Route::sandbox(sandbox).part("suspend");
        self.send_json(Method::POST, route, &Suspend { to, stay }, None).await?.json().await
    }

    /// Wakes a sandbox.
    pub async fn wake_sandbox(&self, sandbox: &str) -> Result<Receipt, ClientError> {
        self.plain(Method::POST, Route::sandbox(sandbox).part("wake")).await?.json().await
    }

    /// Lets a sandbox go on, from its files, with another engine.
    pub async fn move_sandbox(&self, sandbox: &str, engine: &str) -> Result<Receipt, ClientError> {
        let wanted = MoveSandbox { engine: engine.to_owned() };
        self.send_json(Method::POST, Route::sandbox(sandbox).part("move"), &wanted, None).await?.json().await
    }

    /// Makes new sandboxes that start from a moment of this one; one result for each, in the order of their names.
    pub async fn fork_sandbox(&self, sandbox: &str, wanted: &Fork) -> Result<Vec<ForkResult>, ClientError> {
        self.send_json(Method::POST, Route::sandbox(sandbox).part("fork"), wanted, None).await?.json().await
    }

    /// What keeps a sandbox awake or why it sleeps, what comes next, and its last sleeps and wakes.
    pub async fn why(&self, sandbox: &str) -> Result<WhyView, ClientError> {
        self.get_json(Route::sandbox(sandbox).part("why")).await
    }

    /// How long a sandbox was awake and asleep, and the disk that is its own.
    pub async fn usage(&self, sandbox: &str) -> Result<UsageView, ClientError> {
        self.get_json(Route::sandbox(sandbox).part("usage")).await
    }

    /// What a sandbox has used over time, from now back.
    pub async fn usage_history(&self, sandbox: &str, over: Span) -> Result<UsageHistory, ClientError> {
        self.get_json(Route::sandbox(sandbox).part("usage").part("history").query("over", over)).await
    }

    /// What every living sandbox has cost, and all of them together.
    pub async fn usage_of_all(&self) -> Result<UsageReport, ClientError> {
        self.get_json(Route::new("/v1/usage")).await
    }

    /// What a sandbox uses now.
    pub async fn stats(&self, sandbox: &str) -> Result<Stats, ClientError> {
        self.get_json(Route::sandbox(sandbox).part("stats")).await
    }

    /// The ports that listen inside a sandbox.
    pub async fn ports(&self, sandbox: &str) -> Result<Vec<PortView>, ClientError> {
        let page: Page<PortView> = self.get_json(Route::sandbox(sandbox).part("ports")).await?;
        Ok(page.items)
    }
}
