//! One connection: who it is, and the channels it opens.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use roost_host::{Caller, Endpoint};
use russh::server::{Auth, ChannelOpenHandle, Handler, Msg, PublicKeyOffer, Response, Session, VerifiedPublicKey};
use russh::{Channel, ChannelId, ChannelOpenFailure, MethodKind, MethodSet, Pty, Sig};
use tokio_util::sync::CancellationToken;

use crate::door::Door;
use crate::forward::{self, Bound, Target};
use crate::place::{Place, Visit};
use crate::session;
use crate::words;

/// What russh asks when a client wants something.
#[derive(Debug)]
pub(crate) struct Connection {
    door: Arc<Door>,
    /// The client's end and ours.
    addresses: [SocketAddr; 2],
    /// Told when somebody was let in.
    admitted: CancellationToken,
    /// Told when the connection is over.
    gone: CancellationToken,
    /// Fingerprints of keys that were turned down.
    turned_down: Vec<String>,
    visit: Option<Arc<Visit>>,
    listeners: HashMap<Bound, CancellationToken>,
}

impl Connection {
    pub(crate) fn new(door: Arc<Door>, addresses: [SocketAddr; 2], admitted: CancellationToken) -> Self {
        Self {
            door,
            addresses,
            admitted,
            gone: CancellationToken::new(),
            turned_down: Vec::new(),
            visit: None,
            listeners: HashMap::new(),
        }
    }

    pub(crate) fn door(&self) -> &Arc<Door> {
        &self.door
    }

    pub(crate) fn gone(&self) -> CancellationToken {
        self.gone.clone()
    }

    /// Whoever was let in; nobody else can open a channel.
    fn visit(&self) -> Result<&Arc<Visit>, russh::Error> {
        self.visit.as_ref().ok_or(russh::Error::NotAuthenticated)
    }

    async fn listen(&mut self, bound: Bound, at: Endpoint, session: &mut Session) -> Result<Option<u16>, russh::Error> {
        let visit = self.visit()?.clone();
        match forward::listen(&visit, &bound, at, session.handle()).await {
            Ok((port, listener)) => {
                let bound = bound.with_port(port);
                if let Some(before) = self.listeners.insert(bound, listener) {
                    before.cancel();
                }
                Ok(Some(port))
            }
            Err(error) => {
                // A client shows no words of a refusal; whoever asks for more of them (`ssh -v`) sees these.
                session.debug(true, &words::of(&error), "en")?;
                tracing::debug!(%error, "could not listen inside");
                Ok(None)
            }
        }
    }

    fn unlisten(&mut self, bound: &Bound) -> bool {
        let listener = self.listeners.remove(bound);
        listener.map(|listener| listener.cancel()).is_some()
    }
}

fn rejected(methods: Option<MethodSet>) -> Auth {
    Auth::Reject { proceed_with_methods: methods, partial_success: false }
}

impl Handler for Connection {
    type Error = russh::Error;

    async fn auth_publickey_offered(&mut self, _user: &str, offer: PublicKeyOffer<'_>) -> Result<Auth, Self::Error> {
        let known = self.door.host.key_of(&offer.public_key.to_bytes()?).await;
        match known {
            Ok(Some(_)) => Ok(Auth::Accept),
            Ok(None) => {
                let fingerprint = offer.public_key.fingerprint(russh::keys::HashAlg::Sha256).to_string();
                if !self.turned_down.contains(&fingerprint) {
                    self.turned_down.push(fingerprint);
                }
                Ok(rejected(None))
            }
            Err(error) => {
                tracing::warn!(%error, "could not look for a public key");
                Ok(rejected(None))
            }
        }
    }

    async fn auth_publickey(&mut self, user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, Self::Error> {
        // Looked for again: it may have been taken back since it was offered.
        let Ok(Some(key)) = self.door.host.key_of(&key.public_key.to_bytes()?).await else {
            return Ok(rejected(None));
        };
        tracing::debug!(key = %key.id, name = key.name, user, "let in over SSH");
        let visitor = self.door.host.visit(Caller::from(&key));
        let visit = Visit::new(self.door.clone(), visitor, Place::of(user), self.addresses, self.gone.clone());
        self.visit = Some(Arc::new(visit));
        self.admitted.cancel();
        Ok(Auth::Accept)
    }

    async fn auth_keyboard_interactive<'a>(
        &'a mut self,
        _user: &str,
        _submethods: &str,
        response: Option<Response<'a>>,
    ) -> Result<Auth, Self::Error> {
        if response.is_some() {
            return Ok(rejected(Some(MethodSet::from([MethodKind::PublicKey].as_slice()))));
        }
        let instructions = words::nobody_knows(&self.turned_down).into();
        Ok(Auth::Partial { name: "".into(), instructions, prompts: Vec::new().into() })
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        let visit = self.visit()?.clone();
        reply.accept().await;
        tokio::spawn(session::serve(visit, channel, session.handle()));
        Ok(())
    }

    async fn channel_open_direct_tcpip(
        &mut self,
        channel: Channel<Msg>,
        host_to_connect: &str,
        port_to_connect: u32,
        _originator_address: &str,
        _originator_port: u32,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        let visit = self.visit()?.clone();
        let Ok(port) = u16::try_from(port_to_connect) else {
            reply.reject(ChannelOpenFailure::ConnectFailed).await;
            return Ok(());
        };
        let target = Target::Tcp { host: host_to_connect.to_owned(), port };
        tokio::spawn(forward::carry(visit, channel, target, reply));
        Ok(())
    }

    async fn channel_open_direct_streamlocal(
        &mut self,
        channel: Channel<Msg>,
        socket_path: &str,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        let visit = self.visit()?.clone();
        let target = Target::Unix { path: socket_path.to_owned() };
        tokio::spawn(forward::carry(visit, channel, target, reply));
        Ok(())
    }

    async fn tcpip_forward(
        &mut self,
        address: &str,
        port: &mut u32,
        session: &mut Session,
    ) -> Result<bool, Self::Error> {
        let (Some(ip), Ok(wanted)) = (forward::listening_address(address), u16::try_from(*port)) else {
            return Ok(false);
        };
        let bound = Bound::Tcp { address: address.to_owned(), port: wanted };
        let at = Endpoint::Tcp { address: ip, port: wanted };
        match self.listen(bound, at, session).await? {
            Some(listening) => {
                *port = u32::from(listening);
                Ok(true)
            }
            None => Ok(false),
        }
    }

    async fn cancel_tcpip_forward(&mut self, address: &str, port: u32, _: &mut Session) -> Result<bool, Self::Error> {
        let Ok(port) = u16::try_from(port) else { return Ok(false) };
        Ok(self.unlisten(&Bound::Tcp { address: address.to_owned(), port }))
    }

    async fn streamlocal_forward(&mut self, socket_path: &str, session: &mut Session) -> Result<bool, Self::Error> {
        let path = socket_path.to_owned();
        let bound = Bound::Unix { path: path.clone() };
        Ok(self.listen(bound, Endpoint::Unix { path }, session).await?.is_some())
    }

    async fn cancel_streamlocal_forward(&mut self, socket_path: &str, _: &mut Session) -> Result<bool, Self::Error> {
        Ok(self.unlisten(&Bound::Unix { path: socket_path.to_owned() }))
    }

    // What a session asks for is carried out by its own task, which hears of it too; here it is only confirmed.

    async fn pty_request(
        &mut self,
        channel: ChannelId,
        _term: &str,
        _columns: u32,
        _rows: u32,
        _width: u32,
        _height: u32,
        _modes: &[(Pty, u32)],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        session.channel_success(channel)
    }

    async fn env_request(
        &mut self,
        channel: ChannelId,
        _name: &str,
        _value: &str,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        session.channel_success(channel)
    }

    async fn shell_request(&mut self, channel: ChannelId, session: &mut Session) -> Result<(), Self::Error> {
        session.channel_success(channel)
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        _command: &[u8],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        session.channel_success(channel)
    }

    async fn subsystem_request(
        &mut self,
        channel: ChannelId,
        name: &str,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        if name == session::SFTP { session.channel_success(channel) } else { session.channel_failure(channel) }
    }

    async fn window_change_request(
        &mut self,
        channel: ChannelId,
        _columns: u32,
        _rows: u32,
        _width: u32,
        _height: u32,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        session.channel_success(channel)
    }

    async fn signal(&mut self, channel: ChannelId, _signal: Sig, session: &mut Session) -> Result<(), Self::Error> {
        session.channel_success(channel)
    }
}
