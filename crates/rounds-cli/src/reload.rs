//! SIGHUP: the key file is read again, and the server goes on with what is in it.

use std::{
    io::{self, Write as _},
    path::PathBuf,
};

use gallery::Gallery;
use rounds::{KeyRing, Rounds};

use crate::Failure;

/// The signal, caught from the moment that this exists.
pub(crate) struct Reload {
    file: PathBuf,
    #[cfg(unix)]
    hangup: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Reload {
    pub(crate) fn listen(file: PathBuf) -> Result<Self, Failure> {
        use tokio::signal::unix::{SignalKind, signal};
        let hangup = signal(SignalKind::hangup()).map_err(Failure::io("catch signals"))?;
        Ok(Self { file, hangup })
    }

    /// Reads the file at every signal, for as long as the process lives.
    pub(crate) fn start(mut self, server: Rounds<Gallery>) {
        tokio::spawn(async move {
            while self.hangup.recv().await.is_some() {
                self.read(&server);
            }
        });
    }
}

#[cfg(not(unix))]
impl Reload {
    pub(crate) fn listen(file: PathBuf) -> Result<Self, Failure> {
        Ok(Self { file })
    }

    pub(crate) fn start(self, _server: Rounds<Gallery>) {}
}

impl Reload {
    #[cfg_attr(not(unix), expect(dead_code, reason = "there is no such signal"))]
    fn read(&self, server: &Rounds<Gallery>) {
        let read = KeyRing::from_file(&self.file).map_err(Failure::from);
        let said = match read.and_then(|keys| Ok(server.set_keys(&keys)?)) {
            Ok(()) => "read the keys again".to_owned(),
            Err(failure) => format!("the keys stay as they are: {}", crate::Sentence(&failure)),
        };
        // Where stderr is closed there is nobody to tell.
        let _ = writeln!(io::stderr(), "{said}");
    }
}
