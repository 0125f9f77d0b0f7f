//! Which handler serves a request: one for all of them, or one that a factory made.

use std::{
    borrow::Cow,
    sync::{Arc, OnceLock},
};

use rmcp::{RoleServer, service::RequestContext};

use crate::server::policy::gate::Era;

/// The handlers behind one [`Rounds`](crate::Rounds). A clone serves another session.
pub(crate) struct Handlers<H> {
    shared: Arc<H>,
    factory: Option<Factory<H>>,
}

impl<H> Handlers<H> {
    pub(crate) fn shared(handler: H) -> Self {
        Self { shared: Arc::new(handler), factory: None }
    }

    pub(crate) fn made_by(self, make: impl Fn() -> H + Send + Sync + 'static, per_flow: bool) -> Self {
        Self { factory: Some(Factory { make: Arc::new(make), per_flow, session: OnceLock::new() }), ..self }
    }

    /// The handler for a request of this era: the session's, or in the modern era the one for all or a new one.
    pub(crate) fn of(&self, era: Era) -> Cow<'_, Arc<H>> {
        match (&self.factory, era) {
            (None, _) => Cow::Borrowed(&self.shared),
            (Some(factory), era) => factory.of(era, &self.shared),
        }
    }

    /// The handler for a request with this context.
    pub(crate) fn serve(&self, context: &RequestContext<RoleServer>) -> Cow<'_, Arc<H>> {
        match &self.factory {
            None => Cow::Borrowed(&self.shared),
            Some(factory) => factory.of(Era::of(context), &self.shared),
        }
    }

    /// The handler for what comes without a request: that of the legacy session, once there is one.
    pub(crate) fn here(&self) -> &Arc<H> {
        self.factory.as_ref().and_then(|factory| factory.session.get()).unwrap_or(&self.shared)
    }

    /// The handler that the server was built with.
    pub(crate) fn first(&self) -> &Arc<H> {
        &self.shared
    }
}

impl<H> Clone for Handlers<H> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), factory: self.factory.clone() }
    }
}

struct Factory<H> {
    make: Arc<dyn Fn() -> H + Send + Sync>,
    /// Whether flows of modern clients get a handler each.
    per_flow: bool,
    /// The handler of the legacy session that is served, made by its first request.
    session: OnceLock<Arc<H>>,
}

impl<H> Factory<H> {
    // Most servers have no factory: this is not to be in the way of theirs.
    #[cold]
    fn of<'a>(&'a self, era: Era, shared: &'a Arc<H>) -> Cow<'a, Arc<H>> {
        match era {
            Era::Legacy => Cow::Borrowed(self.session.get_or_init(|| self.make())),
            Era::Modern if self.per_flow => Cow::Owned(self.make()),
            Era::Modern => Cow::Borrowed(shared),
        }
    }

    fn make(&self) -> Arc<H> {
        Arc::new((self.make)())
    }
}

impl<H> Clone for Factory<H> {
    fn clone(&self) -> Self {
        Self { make: self.make.clone(), per_flow: self.per_flow, session: OnceLock::new() }
    }
}
