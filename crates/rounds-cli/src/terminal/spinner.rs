//! A spinner that is shown while the program waits for the server.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::{task::AbortHandle, time::interval};

use super::{clean, columns};
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

/// What the server last said about its progress, for the spinner to show.
pub(crate) type Told = Arc<Mutex<Option<String>>>;

impl Spinner {
    pub(crate) fn start(told: Told) -> Self {
        let drawn = Arc::new(Mutex::new(Some(false)));
        let turning = tokio::spawn(turn(drawn.clone(), told)).abort_handle();
        Self { turning, drawn }
    }

    /// Prints a line above the spinner.
    pub(crate) fn above(&self, line: &str) {
        let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        let erase = if *drawn == Some(true) { ERASE } else { "" };
        let _ = writeln!(io::stderr(), "{erase}{line}");
        *drawn = drawn.map(|_| false);
    }
}

const ERASE: &str = "\r\x1b[2K";

impl Drop for Spinner {
    fn drop(&mut self) {
        self.turning.abort();
        let drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner).take();
        if drawn == Some(true) {
            // If stderr is closed, nothing needs to be erased.
            let _ = write!(io::stderr(), "{ERASE}");
        }
    }
}

async fn turn(drawn: Arc<Mutex<Option<bool>>>, told: Told) {
    let began = Instant::now();
    let mut turns = interval(TURN);
    // The first tick is immediate, and most servers answer before the second.
    turns.tick().await;
    for frame in FRAMES.into_iter().cycle() {
        turns.tick().await;
        let mut drawn = drawn.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(drawn) = drawn.as_mut() else { return };
        *drawn = true;
        let told = told.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let told = told.map(|told| format!(" ({told})")).unwrap_or_default();
        let line = format!("{frame} waiting for the server, {}{told}", duration::rough(began.elapsed()));
        // A line that wraps could not be erased.
        let line = clean::wrapped(&line, columns() - 1).into_iter().next().unwrap_or_default();
        let _ = write!(io::stderr(), "{ERASE}{line}");
    }
}
