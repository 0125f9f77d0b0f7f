//! SIGHUP: reads the key file again and replaces the server's keys.

use std::{
    io::{self, Write as _},
    path::PathBuf,
};

use gallery::Gallery;
use rounds::{KeyRing, Rounds};

use crate::Failure;

/// The signal, caught as long as this value exists.
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

    /// Reads the file at every signal, as long as the process lives.
    pub(crate) fn start(mut self, server: Rounds<Gallery>) {
        tokio::spawn(async move {
            while self.hangup.recv().await.is_some() {
                self.read(&server).await;
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
    #[cfg_attr(not(unix), expect(dead_code, reason = "only Unix has this signal"))]
    async fn read(&self, server: &Rounds<Gallery>) {
        let read = KeyRing::from_file(&self.file).map_err(Failure::from);
        let changed = match read {
            Ok(keys) => server.change_keys(&keys).await.map_err(Failure::from),
            Err(failure) => Err(failure),
        };
        let said = match changed {
            Ok(()) => "read the keys again".to_owned(),
            Err(failure) => format!("the keys were not changed: {}", crate::Sentence(&failure)),
        };
        // If stderr is closed, the message is lost.
        let _ = writeln!(io::stderr(), "{said}");
    }
}
