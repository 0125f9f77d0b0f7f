//! Stands in for the metrics in a build without the feature `metrics`, which has none.

use gallery::Gallery;
use rounds::RoundsBuilder;
use rounds_http::Port;

use crate::{Failure, features};

/// There are none.
pub(crate) enum MetricParts {}

impl MetricParts {
    pub(crate) async fn new(_: &str, _: &[String], _: bool) -> Result<Self, Failure> {
        Err(features::missing("--metrics", "metrics"))
    }

    pub(crate) fn prepare(&self, _: RoundsBuilder<Gallery>) -> RoundsBuilder<Gallery> {
        match *self {}
    }

    pub(crate) fn announce(&self) {
        match *self {}
    }

    pub(crate) fn set_up(self, _: Port) -> Port {
        match self {}
    }
}
