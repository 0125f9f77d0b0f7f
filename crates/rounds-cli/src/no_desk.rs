//! Stands in for the desk in a build without the feature `desk`, which serves none.

use std::net::SocketAddr;

use gallery::Gallery;
use http::Request;
use rounds::{Rounds, RoundsBuilder};
use rounds_http::Incoming;

use crate::serve::Responding;

#[derive(Default)]
pub(crate) struct DeskParts;

impl DeskParts {
    pub(crate) fn prepare(&self, builder: RoundsBuilder<Gallery>) -> RoundsBuilder<Gallery> {
        builder
    }

    pub(crate) fn open(self, _: &Rounds<Gallery>, _: SocketAddr) -> Option<DeskService> {
        None
    }
}

/// There is none.
#[derive(Clone)]
pub(crate) enum DeskService {}

impl DeskService {
    pub(crate) fn call(&mut self, _: Request<Incoming>) -> Responding {
        match *self {}
    }
}

pub(crate) fn announce(_: SocketAddr) {}
