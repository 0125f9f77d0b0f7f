//! The server at the other end: the connection to it, and its identity.

use std::{fmt, sync::Arc};

use rmcp::{
    ClientHandler, RoleClient,
    service::{Peer, RunningService},
};
use serde::{Deserialize, Serialize};

use super::{Host, Responder, push::Thinking};
use crate::shared::{
    clock::{Clock, SystemClock},
    kind::Era,
};

/// A connection to a server, and the server's address if it is known.
///
/// Every method that sends takes `impl Into<Server>`: a `&Peer` of rmcp (`client.peer()`), a `&RunningService` whose
/// handler is a [`Host`], or one of these with an address:
///
/// ```
/// # use rmcp::{RoleClient, service::Peer};
/// # async fn example(peer: &Peer<RoleClient>, call: rounds::client::Call) -> Result<(), rounds::client::SendError> {
/// use rounds::client::Server;
///
/// let sent = call.send(Server::from(peer).at("https://mcp.example.com/mcp")).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Server<'a> {
    pub(super) peer: &'a Peer<RoleClient>,
    pub(super) address: Option<String>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) thinking: Option<Thinking>,
}

impl<'a> Server<'a> {
    /// Sets the address of this server: a URL, a command line, or any other text that distinguishes it from every other
    /// server.
    ///
    /// A server chooses its own name, and another server can choose the same name. A question of a server with an
    /// address is answered only to a server with the same address.
    pub fn at(mut self, address: impl Into<String>) -> Self {
        self.address = Some(address.into());
        self
    }

    /// Measures time by this clock: when a question came, and the limits of [`drive`](super::drive).
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// The identity of this server.
    pub fn origin(&self) -> Origin {
        let info = self.peer.peer_info();
        let info = info.as_deref().and_then(|info| info.server_info.as_ref());
        Origin {
            name: info.map(|info| info.name.clone()),
            version: info.map(|info| info.version.clone()),
            address: self.address.clone(),
        }
    }

    /// The protocol era that was agreed on with this server. If none was, the server counts as modern.
    pub fn era(&self) -> Era {
        self.peer.peer_info().map_or(Era::Modern, |info| Era::of_version(info.protocol_version.as_str()))
    }

    pub(super) fn is_legacy(&self) -> bool {
        self.era() == Era::Legacy
    }
}

impl<'a> From<&'a Peer<RoleClient>> for Server<'a> {
    fn from(peer: &'a Peer<RoleClient>) -> Self {
        Self { peer, address: None, clock: Arc::new(SystemClock), thinking: None }
    }
}

impl<'a, R: Responder + 'static, H: ClientHandler> From<&'a RunningService<RoleClient, Host<R, H>>> for Server<'a> {
    /// Takes the address and the clock of the [`Host`]. While the host has a pushed question of a legacy server
    /// answered, the server's time in [`drive`](super::drive) does not count.
    fn from(client: &'a RunningService<RoleClient, Host<R, H>>) -> Self {
        client.service().server(client.peer())
    }
}

impl fmt::Debug for Server<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("origin", &self.origin()).field("era", &self.era()).finish_non_exhaustive()
    }
}

/// The identity of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Origin {
    /// The name it gave itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The version it gave itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Its address, if the host has set one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

impl Origin {
    /// Whether this is the same server: by name and by address. Its version may differ from one leg to the next,
    /// because it may be deployed while a user thinks.
    pub fn is_same(&self, other: &Self) -> bool {
        self.name == other.name && self.address == other.address
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{:?}", super::error::short(name))?,
            None => f.write_str("a server without a name")?,
        }
        match &self.address {
            Some(address) => write!(f, " at {}", super::error::short(address)),
            None => Ok(()),
        }
    }
}
