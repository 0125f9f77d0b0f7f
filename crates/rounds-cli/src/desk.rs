//! The desk of `rounds serve`: a page at the root of the server, on loopback addresses.

use std::{
    io::{self, Write},
    net::SocketAddr,
};

use gallery::Gallery;
use rounds::{Rounds, RoundsBuilder};
pub(crate) use rounds_desk::DeskService;
use rounds_desk::{Desk, Recorder};

/// What a server has to be built with to have a desk.
#[derive(Default)]
pub(crate) struct DeskParts {
    recorder: Recorder,
}

impl DeskParts {
    pub(crate) fn prepare(&self, builder: RoundsBuilder<Gallery>) -> RoundsBuilder<Gallery> {
        builder.register().observe(self.recorder.clone())
    }

    /// The desk, if the server is at a loopback address. Elsewhere it would need a sign-in, which this command has not.
    pub(crate) fn open(self, server: &Rounds<Gallery>, local: SocketAddr) -> Option<DeskService> {
        Desk::new(server).recorder(&self.recorder).try_it().service(local).ok()
    }
}

pub(crate) fn announce(local: SocketAddr) {
    // If stderr is closed, the message is lost.
    let _ = writeln!(io::stderr(), "open http://{local}/ in a browser to see what waits, and to try the tools");
}
