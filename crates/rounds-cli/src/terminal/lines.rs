//! Lines that a person types.

use std::{
    io,
    sync::mpsc::{Sender, channel},
    thread,
};

use tokio::sync::{
    Mutex,
    mpsc::{UnboundedReceiver, unbounded_channel},
};

/// Reads stdin line by line, in a thread of its own: a read cannot be called off, and a question can.
#[derive(Debug)]
pub(crate) struct Lines(Mutex<Reader>);

#[derive(Debug)]
struct Reader {
    wanted: Sender<()>,
    typed: UnboundedReceiver<io::Result<Option<String>>>,
    /// Whether the thread reads. Between questions it does not, so that what is typed then waits in the terminal.
    reads: bool,
}

impl Lines {
    pub(crate) fn new() -> Self {
        let (wanted, wants) = channel();
        let (typing, typed) = unbounded_channel();
        thread::spawn(
            move || {
                while wants.recv().is_ok() && typing.send(io::stdin().lines().next().transpose()).is_ok() {}
            },
        );
        Self(Mutex::new(Reader { wanted, typed, reads: false }))
    }

    /// Forgets what was typed so far: it was not meant for what is about to be shown.
    pub(crate) async fn forget(&self) {
        let mut reader = self.0.lock().await;
        discard();
        while reader.typed.try_recv().is_ok() {
            reader.reads = false;
        }
    }

    /// The next line, without its end; nothing at the end of the input.
    pub(crate) async fn next(&self) -> io::Result<Option<String>> {
        let mut reader = self.0.lock().await;
        if !reader.reads {
            reader.reads = reader.wanted.send(()).is_ok();
        }
        // If a question was called off, the thread may still read for it. The line is taken for the one that is shown.
        let line = reader.typed.recv().await;
        reader.reads = false;
        line.unwrap_or(Ok(None))
    }
}

#[cfg(unix)]
fn discard() {
    // Where it cannot be done there is nothing to discard.
    let _ = rustix::termios::tcflush(io::stdin(), rustix::termios::QueueSelector::IFlush);
}

#[cfg(not(unix))]
fn discard() {}
