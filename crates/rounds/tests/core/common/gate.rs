//! A gate in a handler: the test sees when the handler has reached it, and lets it continue.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::Semaphore;

use super::{Desk, sell};

#[derive(Clone)]
pub struct Gate {
    reached: Arc<Semaphore>,
    open: Arc<Semaphore>,
}

impl Gate {
    pub fn new() -> Self {
        Self { reached: Arc::new(Semaphore::new(0)), open: Arc::new(Semaphore::new(0)) }
    }

    /// A shop that waits here when it has a size, before it sells.
    pub fn shop(&self) -> Desk {
        let gate = self.clone();
        Desk::new(move |turn| {
            let gate = gate.clone();
            async move {
                if turn.round()?.number() > 0 {
                    gate.pass().await;
                }
                sell(&turn)
            }
        })
    }

    /// In the handler: reports its arrival, and waits until it is let through.
    pub async fn pass(&self) {
        self.reached.add_permits(1);
        take(&self.open).await;
    }

    /// In the test: waits until a handler has arrived.
    pub async fn reached(&self) {
        take(&self.reached).await;
    }

    /// In the test: lets one handler through.
    pub fn open(&self) {
        self.open.add_permits(1);
    }
}

async fn take(permits: &Semaphore) {
    permits.acquire().await.expect("the semaphore is never closed").forget();
}

/// Reports whether a handler's future was dropped.
#[derive(Clone, Default)]
pub struct Gone(Arc<AtomicBool>);

impl Gone {
    pub fn is_gone(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// The guard that the future holds.
    pub fn guard(&self) -> impl Drop + Send + 'static {
        struct Guard(Gone);
        impl Drop for Guard {
            fn drop(&mut self) {
                self.0.0.store(true, Ordering::SeqCst);
            }
        }
        Guard(self.clone())
    }
}
