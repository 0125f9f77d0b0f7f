//! Principals: the owner of a flow.

use std::fmt;

use rmcp::{RoleServer, service::RequestContext};

use crate::server::seal::Digest;

/// The authenticated caller, by a name that stays the same when its credentials change: a subject, not a bearer token.
///
/// A flow belongs to the principal that began it. A token that another principal presents is refused. Put the principal
/// into the request where you authenticate it, as an HTTP extension or an rmcp extension, and it is found there:
///
/// ```
/// use rounds::Principal;
///
/// // In an axum or tower middleware, after the credentials were verified:
/// # let mut request = http::Request::new(());
/// request.extensions_mut().insert(Principal::new("user-4711"));
/// ```
///
/// or name it yourself with [`RoundsBuilder::principal`](crate::RoundsBuilder::principal). What a client says about
/// itself (`clientInfo`) is not a principal.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Principal(String);

impl Principal {
    /// A principal with this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// The name of the principal.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The principal that middleware put into the request: in its extensions, or else in the extensions of its HTTP
    /// parts.
    pub fn from_request(context: &RequestContext<RoleServer>) -> Option<Self> {
        let direct = context.extensions.get::<Self>();
        #[cfg(feature = "http")]
        let direct = direct.or_else(|| {
            let parts = context.extensions.get::<http::request::Parts>()?;
            parts.extensions.get::<Self>()
        });
        direct.cloned()
    }

    /// Identifies principals with `identify`, and rejects questions for unauthenticated callers.
    ///
    /// ```
    /// use rounds::{Principal, Rounds};
    /// # struct Shop;
    /// # impl rmcp::ServerHandler for Shop {}
    /// let server = Rounds::builder(Shop).principal(Principal::required(Principal::from_request)).build()?;
    /// # Ok::<(), rounds::BuildError>(())
    /// ```
    pub fn required<F: Identify>(identify: F) -> Required<F> {
        Required(identify)
    }

    pub(crate) fn digest(&self) -> Digest {
        Digest::of_principal(&self.0)
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Principal({:?})", self.0)
    }
}

/// Identifies the caller of a request. Implemented by every `Fn(&RequestContext<RoleServer>) -> Option<Principal>`.
pub trait Identify: Send + Sync + 'static {
    /// The principal of the request, or none if the caller is not authenticated.
    fn identify(&self, context: &RequestContext<RoleServer>) -> Option<Principal>;

    /// Whether a principal is required before a question may be asked.
    fn is_required(&self) -> bool {
        false
    }
}

impl<F> Identify for F
where
    F: Fn(&RequestContext<RoleServer>) -> Option<Principal> + Send + Sync + 'static,
{
    fn identify(&self, context: &RequestContext<RoleServer>) -> Option<Principal> {
        self(context)
    }
}

/// The [`Identify`] that [`Principal::required`] returns.
#[derive(Debug, Clone, Copy)]
pub struct Required<F>(F);

impl<F: Identify> Identify for Required<F> {
    fn identify(&self, context: &RequestContext<RoleServer>) -> Option<Principal> {
        self.0.identify(context)
    }

    fn is_required(&self) -> bool {
        true
    }
}
