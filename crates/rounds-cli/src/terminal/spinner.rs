//! A spinner that is shown while the program waits for the server.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::{task::AbortHandle, time::interval};

use crate::duration;

const TURN: Duration = Duration::from_millis(120);
const FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/// Spins on stderr until it is dropped, and then erases itself.
#[derive(Debug)]
pub(crate) struct Spinner {
    turning: AbortHandle,
    /// Whether a frame has been drawn; `None` once it has stopped.
    drawn: Arc<Mutex<Option<bool>>>,
}

impl Spinner {
    pub(crate) fn start() -> Self {
        let drawn = Arc::new(Mutex::new(Some(false)));
        let turning = tokio::spawn(turn(drawn.clone())).abort_handle();
        Self { turning, drawn }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.turning.abort();
        let drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner).take();
        if drawn == Some(true) {
            // If stderr is closed, nothing needs to be erased.
            let _ = write!(io::stderr(), "\r\x1b[2K");
        }
    }
}

async fn turn(drawn: Arc<Mutex<Option<bool>>>) {
    let began = Instant::now();
    let mut turns = interval(TURN);
    // The first tick is immediate, and most servers answer before the second.
    turns.tick().await;
    for frame in FRAMES.into_iter().cycle() {
        turns.tick().await;
        let mut drawn = drawn.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(drawn) = drawn.as_mut() else { return };
        *drawn = true;
        let waited = duration::rough(began.elapsed());
        let _ = write!(io::stderr(), "\r\x1b[2K{frame} waiting for the server, {waited}");
    }
}
