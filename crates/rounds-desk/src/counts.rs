//! How many flows there are, by tool: counted by the store, and kept for a moment where that is not cheap.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use rounds::register::{FlowCounts, FlowStatus, Flows, FlowsError};
use tokio::sync::Mutex;

/// Up to how many flows are counted. Beyond that, a page says that there are more.
const COUNTED: usize = 250_000;

/// Counts of more flows than this are kept.
const KEPT_FROM: u64 = 10_000;

/// How long counts are kept. However many pages are open, many flows are counted once in this time.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// Counts, and until when they are shown.
type KnownCounts = (Instant, Arc<FlowCounts>);

/// The counts of a desk.
pub(crate) struct Counting {
    flows: Flows,
    /// Locked while one visitor counts, so that others get the same counts.
    known: Mutex<HashMap<Option<FlowStatus>, KnownCounts>>,
}

impl Counting {
    pub(crate) fn new(flows: Flows) -> Self {
        Self { flows, known: Mutex::default() }
    }

    /// The flows with this status, or all flows.
    pub(crate) async fn of(&self, status: Option<FlowStatus>) -> Result<Arc<FlowCounts>, FlowsError> {
        let mut known = self.known.lock().await;
        if let Some((until, counts)) = known.get(&status)
            && Instant::now() < *until
        {
            return Ok(counts.clone());
        }
        let counts = Arc::new(self.flows.count(status, COUNTED).await?);
        if counts.total() > KEPT_FROM {
            known.insert(status, (Instant::now() + KEPT_FOR, counts.clone()));
        }
        Ok(counts)
    }
}
