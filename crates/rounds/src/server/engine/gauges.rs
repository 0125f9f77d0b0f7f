//! The gauges of a server.

use std::sync::Arc;

use super::core::Core;
use crate::server::policy::measure::{Gauges, Reading};

/// Reads the gauges of this server as long as it exists.
pub(crate) fn gauges(core: &Arc<Core>) -> Gauges {
    let core = Arc::downgrade(core);
    Gauges::new(move || core.upgrade().map(|core| read(&core)))
}

fn read(core: &Core) -> Reading {
    #[cfg(feature = "http")]
    let (sessions, sessions_limit) = (core.sessions.count(), core.limits.sessions);
    #[cfg(not(feature = "http"))]
    let (sessions, sessions_limit) = (0, 0);
    Reading {
        waiting_handlers: core.frames.count(),
        waiting_bytes: core.frames.bytes(),
        oldest_wait: core.frames.oldest_wait().map(|since| core.now().since(since)),
        sessions,
        is_draining: core.draining.has_begun(),
        waiting_handlers_limit: core.limits.frames,
        waiting_bytes_limit: core.limits.frame_bytes,
        sessions_limit,
    }
}
