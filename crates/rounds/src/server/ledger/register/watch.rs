//! Watching a register: changes in a bounded buffer.

use tokio::sync::mpsc;

use super::FlowStatus;
use crate::server::seal::FlowId;

/// A flow that has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Changed {
    /// The flow.
    pub id: FlowId,
    /// Its status after the change.
    pub status: FlowStatus,
}

/// The changes of a register.
///
/// The buffer is bounded. A reader that falls behind by more than [`BUFFER`](Self::BUFFER) changes, or whose store
/// connection breaks, gets the end of the stream: it lists what it needs and watches again.
#[derive(Debug)]
pub struct Watch {
    changes: mpsc::Receiver<Changed>,
}

/// The other end of a [`Watch`], which a store keeps.
#[derive(Debug, Clone)]
pub struct Watcher {
    changes: mpsc::Sender<Changed>,
}

impl Watch {
    /// How many changes a reader can fall behind.
    pub const BUFFER: usize = 1024;

    /// A watch, and the end that the store keeps.
    pub fn new() -> (Watcher, Self) {
        let (sender, changes) = mpsc::channel(Self::BUFFER);
        (Watcher { changes: sender }, Self { changes })
    }

    /// The next change. None at the end of the stream: changes may be missing from then on.
    pub async fn next(&mut self) -> Option<Changed> {
        self.changes.recv().await
    }
}

impl Watcher {
    /// Passes a change on. False if the reader is gone or has fallen behind: then the store drops this watcher.
    pub fn tell(&self, changed: Changed) -> bool {
        self.changes.try_send(changed).is_ok()
    }

    /// Resolves when the reader is gone.
    pub async fn gone(&self) {
        self.changes.closed().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_watch_that_falls_behind_ends() {
        let (watcher, mut watch) = Watch::new();
        let changed = Changed { id: FlowId::from_bytes([1; 16]), status: FlowStatus::Waiting };
        for _ in 0..Watch::BUFFER {
            assert!(watcher.tell(changed));
        }
        assert!(!watcher.tell(changed), "the store drops the watcher then");
        drop(watcher);
        for _ in 0..Watch::BUFFER {
            assert_eq!(watch.next().await, Some(changed));
        }
        assert_eq!(watch.next().await, None);
    }
}
