//! An effect that is under way in a frame.

use std::sync::Arc;

use super::{Frame, wake};

/// An effect under way.
pub(crate) struct Effect {
    pub(super) frame: Arc<Frame>,
}

impl Drop for Effect {
    fn drop(&mut self) {
        let mut state = self.frame.state();
        state.effects -= 1;
        if state.effects == 0 && state.cancelled {
            wake(state);
        }
    }
}
