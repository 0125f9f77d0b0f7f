//! Lines that a person types.

use std::{io, sync::OnceLock, thread};

use tokio::sync::{
    Mutex,
    mpsc::{UnboundedReceiver, unbounded_channel},
};

/// Reads stdin line by line, in a thread of its own: a read cannot be called off, and a question can.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    typed: OnceLock<Mutex<UnboundedReceiver<io::Result<String>>>>,
}

impl Lines {
    /// Starts to read. From here on, what is typed before a question is shown is not taken for its answer.
    pub(crate) fn listen(&self) {
        self.typed();
    }

    /// Forgets what was typed so far.
    pub(crate) async fn forget(&self) {
        let mut typed = self.typed().lock().await;
        while typed.try_recv().is_ok() {}
    }

    /// The next line, without its end; nothing once there is no more.
    pub(crate) async fn next(&self) -> io::Result<Option<String>> {
        self.typed().lock().await.recv().await.transpose()
    }

    fn typed(&self) -> &Mutex<UnboundedReceiver<io::Result<String>>> {
        self.typed.get_or_init(|| {
            let (typing, typed) = unbounded_channel();
            thread::spawn(move || {
                for line in io::stdin().lines() {
                    let failed = line.is_err();
                    if typing.send(line).is_err() || failed {
                        break;
                    }
                }
            });
            Mutex::new(typed)
        })
    }
}
