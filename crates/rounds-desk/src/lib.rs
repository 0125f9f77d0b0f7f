//! The desk: a page that shows what waits for people, the timeline of a call, and what happens on the wire.
//!
//! ```no_run
//! use axum::Router;
//! use rounds::Rounds;
//! use rounds_desk::Desk;
//! # struct Weather;
//! # impl rmcp::ServerHandler for Weather {}
//!
//! # async fn main_() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Rounds::builder(Weather).register().build()?;
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8000").await?;
//! let desk = Desk::new(&server).base("/desk").service(listener.local_addr()?)?;
//! axum::serve(listener, Router::new().nest_service("/desk", desk)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! It rests on [the register](rounds::register), so the server has to keep one. Pages are HTML that the server renders.
//! Everything that changes something is a form that works without scripts. A small script of this crate reloads a page
//! when a flow on it changes.
//!
//! # Who may see it
//!
//! On a loopback address the desk needs no sign-in: it serves requests for a loopback host and rejects all others. On
//! any other address it needs a [`Check`], and [`Desk::service`] fails without one. The check decides for each visitor
//! about two permissions: [reading](Permission::Read), which opens what the register has sealed, and
//! [acting](Permission::Act). Who the visitor is, your sign-in says: it puts a [`Principal`](rounds::Principal) into the
//! request, as for the endpoint.
//!
//! ```
//! # use rmcp::ServerHandler;
//! # struct Weather;
//! # impl ServerHandler for Weather {}
//! use rounds::Rounds;
//! use rounds_desk::{Desk, Permission, Visitor};
//!
//! let server = Rounds::builder(Weather).register().build()?;
//! let desk = Desk::new(&server).check(|visitor: &Visitor<'_>, permission| match permission {
//!     Permission::Read => visitor.principal().is_some(),
//!     _ => visitor.principal().is_some_and(|principal| principal.as_str() == "operator"),
//! });
//! let service = desk.service("10.0.0.7:443".parse()?)?;
//! # let _ = service;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Every action is logged with its actor, and [`Desk::record`] gets it for a log of your own.
//!
//! # What it costs
//!
//! When no browser is open, a leg costs nothing beyond the register. An open page holds one stream of events with a
//! bounded buffer. If its browser stalls, changes are dropped and the page is reloaded as a whole later.

mod action;
mod check;
mod content;
mod counts;
mod fields;
mod forms;
mod live;
mod moment;
mod pages;
mod problem;
mod recorder;
mod response;
mod served;
mod service;
mod tried;

use std::{fmt, net::SocketAddr, sync::Arc};

use rmcp::ServerHandler;
use rounds::{Rounds, register::Flows};

use crate::{
    action::Record, check::Everyone, counts::Counting, forms::FormKey, live::Live, served::Served, service::Shared,
    tried::Calls,
};
pub use crate::{
    action::{Action, ActionKind},
    check::{Check, Permission, Visitor},
    recorder::Recorder,
    service::DeskService,
};

/// The settings of a desk, which [`service`](Self::service) makes a service of.
#[must_use = "a desk serves nothing until `service` is called"]
pub struct Desk {
    flows: Flows,
    served: Arc<dyn Served>,
    check: Option<Box<dyn Check>>,
    base: String,
    recorder: Option<Recorder>,
    tries: bool,
    form_key: FormKey,
    record: Vec<Record>,
}

impl Desk {
    /// A desk for the flows of this server.
    pub fn new<H: ServerHandler>(server: &Rounds<H>) -> Self {
        Self {
            flows: server.flows(),
            served: served::of(server),
            check: None,
            base: String::new(),
            recorder: None,
            tries: false,
            form_key: FormKey::random(),
            record: Vec::new(),
        }
    }

    /// Sets the check that decides who may read and who may act.
    pub fn check(mut self, check: impl Check) -> Self {
        self.check = Some(Box::new(check));
        self
    }

    /// Sets the path under which the desk is mounted, such as `/desk`, for its links. Requests are served with and
    /// without this prefix, because some routers remove it.
    pub fn base(mut self, path: &str) -> Self {
        self.base = path.trim_end_matches('/').to_owned();
        self
    }

    /// Shows what this recorder has seen: why legs were refused, and how often handlers ran. It observes the same
    /// server: see [`Recorder`].
    pub fn recorder(mut self, recorder: &Recorder) -> Self {
        self.recorder = Some(recorder.clone());
        self
    }

    /// Adds the page "Try it", where a visitor who may act calls the tools of the server. Calls are made in the name of
    /// the visitor, as if they had come in through the endpoint.
    pub fn try_it(mut self) -> Self {
        self.tries = true;
        self
    }

    /// Sets the key of the tokens that protect forms against forgery: at least 32 random bytes. Instances behind one
    /// address need the same key, because a form may be rendered by one and received by another. Without this setting,
    /// the key is random and lasts as long as the process.
    ///
    /// # Panics
    ///
    /// If the key is shorter than 32 bytes.
    pub fn form_key(mut self, key: &[u8]) -> Self {
        self.form_key = FormKey::new(key);
        self
    }

    /// Adds a function that gets every action, with its actor, after it was done. Actions are logged in any case. It
    /// must return quickly.
    pub fn record(mut self, record: impl Fn(&Action) + Send + Sync + 'static) -> Self {
        self.record.push(Box::new(record));
        self
    }

    /// The service, to be mounted at this address.
    ///
    /// # Errors
    ///
    /// [`DeskError::NoCheck`] if the address is not a loopback address and there is no check.
    /// [`DeskError::NoRegister`] if the server keeps no register.
    pub fn service(self, address: SocketAddr) -> Result<DeskService, DeskError> {
        if self.check.is_none() && !address.ip().is_loopback() {
            return Err(DeskError::NoCheck { address });
        }
        if !self.flows.is_on() {
            return Err(DeskError::NoRegister);
        }
        Ok(DeskService::new(Shared {
            loopback_only: self.check.is_none(),
            check: self.check.unwrap_or_else(|| Box::new(Everyone)),
            live: Live::new(self.flows.clone()),
            counting: Counting::new(self.flows.clone()),
            flows: self.flows,
            served: self.served,
            base: self.base,
            recorder: self.recorder,
            calls: self.tries.then(Calls::default),
            form_key: self.form_key,
            record: self.record,
        }))
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").field("base", &self.base).field("tries", &self.tries).finish_non_exhaustive()
    }
}

/// Why a desk cannot be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeskError {
    /// There is no check, and the address can be reached from other machines.
    #[error(
        "{address} is not a loopback address, so other machines reach the desk: add `.check(..)`, which decides who may \
         read and who may act"
    )]
    NoCheck {
        /// The address.
        address: SocketAddr,
    },
    /// The server keeps no register, so there is nothing to show.
    #[error("this server keeps no register: add `.register()` where it is built")]
    NoRegister,
}
