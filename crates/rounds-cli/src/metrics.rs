//! The metrics of `rounds serve --metrics`: at the port of the server, or at one of their own.

use std::{
    future::pending,
    io::{self, Write},
    net::SocketAddr,
};

use gallery::Gallery;
use rounds::{RoundsBuilder, metrics::Prometheus};
use rounds_http::{Port, Scrape};

use crate::{Failure, serve::bind};

/// What a server has to be built with to have metrics, and where they are served.
pub(crate) struct MetricParts {
    metrics: Prometheus,
    place: Place,
}

/// Where metrics are served.
enum Place {
    /// At the port of the server.
    Beside(Box<Scrape>),
    /// At a port of their own.
    Apart(SocketAddr),
}

impl MetricParts {
    /// Metrics at this address, which has a port of its own, or at the port of the server if the address is empty. They
    /// are served for these hosts beside addresses and localhost.
    pub(crate) async fn new(address: &str, hosts: &[String], any_host: bool) -> Result<Self, Failure> {
        let metrics = Prometheus::new();
        let scrape = hosts.iter().fold(Scrape::new(metrics.clone()), Scrape::with_host);
        let scrape = if any_host { scrape.with_any_host() } else { scrape };
        if address.is_empty() {
            return Ok(Self { metrics, place: Place::Beside(Box::new(scrape)) });
        }
        let (listener, local) = bind(address.to_owned()).await?;
        tokio::spawn(Port::at_every_path(listener).serve(scrape, pending()));
        Ok(Self { metrics, place: Place::Apart(local) })
    }

    /// Says where the metrics are, if they have a port of their own.
    pub(crate) fn announce(&self) {
        if let Place::Apart(local) = self.place {
            // If stderr is closed, the message is lost.
            let _ = writeln!(io::stderr(), "metrics at http://{local}/metrics");
        }
    }

    pub(crate) fn prepare(&self, builder: RoundsBuilder<Gallery>) -> RoundsBuilder<Gallery> {
        builder.observe(self.metrics.clone())
    }

    /// The port of the server, with the metrics if they are served there.
    pub(crate) fn set_up(self, port: Port) -> Port {
        match self.place {
            Place::Beside(scrape) => port.with_metrics(*scrape),
            Place::Apart(_) => port,
        }
    }
}
