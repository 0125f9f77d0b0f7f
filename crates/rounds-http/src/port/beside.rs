//! What a port answers beside its service: probes and scrapes.

use bytes::Bytes;
use http::{Request, Response};

use crate::probes::{Probe, Probes};
#[cfg(feature = "metrics")]
use crate::scrape::Scrape;

/// What a port answers beside its service, if it was asked to.
#[derive(Debug, Clone, Default)]
pub(super) struct Beside {
    pub(super) probes: Option<Probes>,
    #[cfg(feature = "metrics")]
    pub(super) scrape: Option<Scrape>,
}

/// A request that is not for the service.
pub(super) enum Aside {
    Probe(Probes, Probe),
    #[cfg(feature = "metrics")]
    Scrape(Box<Response<Bytes>>),
}

impl Beside {
    /// The request, if it is not for the service.
    pub(super) fn takes<B>(&self, request: &Request<B>) -> Option<Aside> {
        let path = request.uri().path();
        #[cfg(feature = "metrics")]
        if let Some(scrape) = self.scrape.as_ref().filter(|_| Scrape::is_at(path)) {
            return Some(Aside::Scrape(Box::new(scrape.answer(request))));
        }
        let probes = self.probes.as_ref()?;
        Some(Aside::Probe(probes.clone(), Probes::at(request.method(), path)?))
    }
}

impl Aside {
    pub(super) async fn answer(self) -> Response<Bytes> {
        match self {
            Self::Probe(probes, probe) => probes.answer(probe).await,
            #[cfg(feature = "metrics")]
            Self::Scrape(response) => *response,
        }
    }
}
