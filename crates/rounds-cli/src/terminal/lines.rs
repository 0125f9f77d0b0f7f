//! Lines that the user types.

use std::{
    io,
    sync::mpsc::{Sender, channel},
    thread,
};

use tokio::sync::{
    Mutex,
    mpsc::{UnboundedReceiver, unbounded_channel},
};

/// Reads stdin line by line in a separate thread: a question can be cancelled, but a read cannot.
#[derive(Debug)]
pub(crate) struct Lines(Mutex<Reader>);

#[derive(Debug)]
struct Reader {
    wanted: Sender<()>,
    typed: UnboundedReceiver<io::Result<Option<String>>>,
    /// Whether the thread is reading. Between questions it is not, so that input typed then stays in the terminal.
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

    /// Discards what was typed so far, because it was not meant for the next prompt.
    pub(crate) async fn forget(&self) {
        let mut reader = self.0.lock().await;
        discard();
        while reader.typed.try_recv().is_ok() {
            reader.reads = false;
        }
    }

    /// The next line without its line end; `None` at the end of the input.
    pub(crate) async fn next(&self) -> io::Result<Option<String>> {
        let mut reader = self.0.lock().await;
        if !reader.reads {
            reader.reads = reader.wanted.send(()).is_ok();
        }
        // If a question was cancelled, the thread may still be reading for it. Its line then answers the prompt that is
        // shown now.
        let line = reader.typed.recv().await;
        reader.reads = false;
        line.unwrap_or(Ok(None))
    }
}

#[cfg(unix)]
fn discard() {
    // If flushing fails, there is nothing to discard.
    let _ = rustix::termios::tcflush(io::stdin(), rustix::termios::QueueSelector::IFlush);
}

#[cfg(not(unix))]
fn discard() {}
