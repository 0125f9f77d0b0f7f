//! Principals: whose flow it is.

use std::fmt;

use rmcp::{RoleServer, service::RequestContext};

use crate::server::seal::Digest;

/// Whoever is calling, by a name that stays the same while their credentials change: a subject, not a bearer token.
///
/// A flow belongs to the principal who began it; a token that anybody else presents is refused. Put one into the
/// request where you authenticate it, as an HTTP extension or an rmcp extension, and it is found there:
///
/// ```
/// use rounds::Principal;
///
/// // In an axum or tower middleware, after the credentials were verified:
/// # let mut request = http::Request::new(());
/// request.extensions_mut().insert(Principal::new("user-4711"));
/// ```
///
/// or name it yourself with [`RoundsBuilder::principal`](crate::RoundsBuilder::principal). What a client says of itself
/// (`clientInfo`) is no principal.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Principal(String);

impl Principal {
    /// The principal of this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The principal that middleware left in the request: in its extensions, then in those of its HTTP parts.
    pub fn from_request(context: &RequestContext<RoleServer>) -> Option<Self> {
        let direct = context.extensions.get::<Self>();
        #[cfg(feature = "http")]
        let direct = direct.or_else(|| {
            let parts = context.extensions.get::<http::request::Parts>()?;
            parts.extensions.get::<Self>()
        });
        direct.cloned()
    }

    /// Names principals with `identify`, and refuses to ask anything on behalf of nobody.
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

/// Says whose request it is. Implemented by every `Fn(&RequestContext<RoleServer>) -> Option<Principal>`.
pub trait Identify: Send + Sync + 'static {
    /// Who is calling, if that is known.
    fn identify(&self, context: &RequestContext<RoleServer>) -> Option<Principal>;

    /// Whether nobody may be asked as long as it is not known who they are.
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

/// What [`Principal::required`] makes.
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
