//! `roost serve`: the daemon.

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use roost_api::{Access, Beside, Tls};
use roost_api_e2b::{E2b, in_front_of};
use roost_client::Client;
use roost_disk::put_aside;
use roost_host::Host;
use roost_model::{EventKind, ImportTemplate, SshView};
use roost_proxy::Trust;
use roost_ssh::{Door, PrivateKey};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};

use crate::assemble::{Assembled, assemble};
use crate::config::ServeConfig;
use crate::data_folder::DataFolder;
use crate::notify::Notifier;

/// What the kernel lets a process have at most, unless it is told otherwise.
const DESCRIPTORS: u64 = 1 << 20;
const MAINTENANCE: Duration = Duration::from_secs(3600);
/// How soon a certificate that was renewed is noticed without a signal.
const CERTIFICATE_CHECK: Duration = Duration::from_secs(60);

/// Runs the daemon until it is told to stop; sandboxes go on without it unless `stop_all` is set.
pub(crate) async fn serve(config: ServeConfig) -> anyhow::Result<()> {
    raise_descriptor_limit();
    let notifier = Notifier::new(|name| env::var_os(name)).context("failed to reach the service manager")?;
    let folder = DataFolder::take(&config)?;
    // Before anything is opened: a port that is taken should not cost the start of a host.
    let tcp = bind(config.listen, "--listen").await?;
    let ssh = match bind(config.ssh_listen, "--ssh-listen").await? {
        Some(listener) => Some(Ssh::open(listener, &folder)?),
        None => None,
    };
    let tls = config.tls.as_ref().map(|files| Tls::load(&files.cert, &files.key)).transpose()?;
    let Assembled { host, engines, .. } = assemble(&config, &folder, ssh.as_ref().map(|ssh| ssh.view.clone())).await?;
    if let Some(end) = &folder.cut_off {
        tracing::warn!("{end}");
        host.events().log_host(EventKind::DaemonRestarted, end.clone()).await;
    }
    make_first_template(&host).await?;
    // Before anybody asks: a batch of the last daemon is still there.
    host.resume_batches().await;
    let unix = listen_on(&config.socket)?;
    let by_ssh = ssh.as_ref().map(|ssh| ssh.view.address.as_str());
    tracing::info!(socket = %config.socket.display(), listen = ?config.listen, ssh = by_ssh, sandboxes = host.count(), "ready");

    let (stop, stopping) = watch::channel(false);
    let mut servers = tokio::task::JoinSet::new();
    let api = roost_api::Api::new(host.clone());
    let routes = Routes::new(&host, &api);
    servers.spawn(roost_api::serve_unix(unix, api.clone(), routes.for_owner(), stopped(stopping.clone())));
    if let Some(tcp) = tcp {
        let routes = routes.for_anybody();
        let serving = roost_api::serve_tcp(tcp, tls.clone(), connections(), api, routes, stopped(stopping.clone()));
        servers.spawn(serving);
    }
    if let Some(ssh) = ssh {
        let door = Door::new(host.clone());
        servers.spawn(roost_ssh::serve(ssh.listener, door, ssh.key, stopped(stopping)));
    }
    let mut background = tokio::task::JoinSet::new();
    background.spawn(maintain(host.clone()));
    background.spawn(renew(tls, signal(SignalKind::hangup()).context("failed to listen for signals")?));

    let mut terminate = signal(SignalKind::terminate()).context("failed to listen for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("failed to listen for signals")?;
    notifier.ready(host.count());
    let itself = Client::unix(&config.socket);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        // The way that every client comes: listener, routes, host and store.
        () = notifier.watch(async || itself.list_tokens().await.is_ok()) => {}
        ended = servers.join_next() => {
            if let Some(ended) = ended {
                ended.context("a server ended unexpectedly")?.context("a server failed")?;
            }
        }
    }
    tracing::info!("stopping");
    notifier.stopping();
    stop.send_replace(true);
    while servers.join_next().await.is_some() {}
    background.shutdown().await;
    if config.stop_all {
        host.stop_all().await;
    }
    host.leave().await;
    engines.close().await;
    folder.stopped();
    // Nobody serves it any more; a client should be told so at once.
    if let Err(error) = fs::remove_file(&config.socket) {
        tracing::debug!(%error, "the socket was gone already");
    }
    Ok(())
}

async fn bind(address: Option<SocketAddr>, flag: &str) -> anyhow::Result<Option<TcpListener>> {
    let Some(address) = address else { return Ok(None) };
    let bound = TcpListener::bind(address).await;
    bound.map(Some).with_context(|| format!("failed to listen on {address}; choose another with {flag}, or `none`"))
}

/// What the SSH door needs, before there is a host behind it.
struct Ssh {
    listener: TcpListener,
    key: PrivateKey,
    view: SshView,
}

impl Ssh {
    fn open(listener: TcpListener, folder: &DataFolder) -> anyhow::Result<Self> {
        let file = folder.path.join("ssh_host_key");
        let key = match roost_ssh::load_host_key(&file) {
            Ok(key) => key,
            Err(error) => {
                tracing::warn!("the host key of SSH is damaged: a new one is made, which clients have to accept");
                put_aside(&folder.path, &file, &error);
                roost_ssh::load_host_key(&file)?
            }
        };
        let address = listener.local_addr().context("failed to find the port for SSH")?.to_string();
        let host_key = roost_ssh::fingerprint(&key);
        Ok(Self { listener, key, view: SshView { address, host_key } })
    }
}

/// What listeners answer: `/v1` and `/mcp`, the page beside them, and E2B's wire in front of all.
struct Routes {
    api: roost_api::Api,
    e2b: E2b,
    mcp: Router,
}

impl Routes {
    fn new(host: &Host, api: &roost_api::Api) -> Self {
        let e2b = E2b::new(host.clone(), api.proxy().clone(), api.closing().clone());
        let mcp = roost_mcp::routes(host.clone(), api.closing().clone(), api.conversations().clone());
        Self { api: api.clone(), e2b, mcp }
    }

    fn for_owner(&self) -> Router {
        let beside = Beside { guarded: self.mcp.clone(), ..Beside::default() };
        let routes = roost_api::router(self.api.clone(), Access::Owner, beside);
        in_front_of(routes, self.e2b.clone(), Trust::Owner)
    }

    fn for_anybody(&self) -> Router {
        let beside = Beside { guarded: self.mcp.clone(), open: roost_page::routes() };
        let routes = roost_api::router(self.api.clone(), Access::Token, beside);
        in_front_of(routes, self.e2b.clone(), Trust::Nobody)
    }
}

/// Every client, and every connection to a port, is a descriptor. Sandboxes get a limit of their own.
fn raise_descriptor_limit() {
    let hard = getrlimit(Resource::Nofile).maximum;
    let up_to = |most: Option<u64>| setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most });
    let wish = hard.map(|hard| hard.max(DESCRIPTORS));
    // Beyond the hard limit only who has the privilege.
    if let Err(error) = up_to(wish).or_else(|_| up_to(hard)) {
        tracing::warn!(%error, "could not raise the limit of open descriptors");
    }
}

/// How many may be connected over TCP: half of all descriptors, because each may need another to reach a sandbox.
fn connections() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(DESCRIPTORS);
    usize::try_from(descriptors / 2).unwrap_or(usize::MAX)
}

async fn stopped(mut stopping: watch::Receiver<bool>) {
    // An error means that the daemon is ending, too.
    drop(stopping.wait_for(|stop| *stop).await);
}

/// The socket's owner needs no token, so nobody else may open it.
fn listen_on(socket: &Path) -> anyhow::Result<UnixListener> {
    if let Some(folder) = socket.parent() {
        fs::create_dir_all(folder).with_context(|| format!("failed to make the folder `{}`", folder.display()))?;
    }
    // We hold the data folder's lock: what lies there is of a daemon that was killed.
    let staged = socket.with_extension("new");
    drop(fs::remove_file(&staged));
    let listener =
        UnixListener::bind(&staged).with_context(|| format!("failed to listen on `{}`", socket.display()))?;
    fs::set_permissions(&staged, fs::Permissions::from_mode(0o600)).context("failed to protect the socket")?;
    // In place only once it is protected.
    fs::rename(&staged, socket).with_context(|| format!("failed to put the socket at `{}`", socket.display()))?;
    Ok(listener)
}

/// A daemon without any template makes `mini`, which takes a second, so that there is something to start from.
async fn make_first_template(host: &Host) -> anyhow::Result<()> {
    if !host.templates()?.is_empty() {
        return Ok(());
    }
    tracing::info!("building the template `mini`");
    let (progress, _ignored) = mpsc::channel(1);
    let wanted =
        ImportTemplate { name: "mini".to_owned(), build: Some("mini".to_owned()), ..ImportTemplate::default() };
    if let Err(error) = host.make_template(wanted, progress).await {
        tracing::warn!(%error, "could not build the template `mini`");
    }
    Ok(())
}

async fn maintain(host: Host) {
    let mut tick = tokio::time::interval(MAINTENANCE);
    loop {
        tick.tick().await;
        host.maintain().await;
    }
}

/// Takes a renewed certificate up, on `SIGHUP` and when its files have changed. One that makes no sense changes nothing.
async fn renew(tls: Option<Tls>, mut hangup: Signal) {
    let mut tick = tokio::time::interval(CERTIFICATE_CHECK);
    loop {
        let asked = tokio::select! {
            _ = hangup.recv() => true,
            _ = tick.tick() => false,
        };
        let Some(tls) = tls.as_ref().filter(|tls| asked || tls.has_changed()) else { continue };
        match tls.reload() {
            Ok(()) => tracing::info!("new connections get the certificate as it is now"),
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "kept the certificate as it was");
            }
        }
    }
}
