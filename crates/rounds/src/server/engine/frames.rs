//! The frames of this process: which handlers wait, for whom, and how much memory they take.
//!
//! A handler that waits has a [`Slot`]. It counts against the limits of all, and against those of its principal or of all callers
//! without one, from when it is taken until it is dropped.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{core::Core, frame::Frame};
use crate::{
    server::{
        policy::{error::FlowError, limits::Limits},
        seal::{Digest, FlowId},
    },
    shared::clock::Timestamp,
};

/// The frames of this process, by their flow.
#[derive(Default)]
pub(crate) struct Frames {
    parked: Mutex<Parked>,
}

#[derive(Default)]
struct Parked {
    frames: HashMap<FlowId, Arc<Frame>>,
    all: FrameShare,
    /// Of callers without a principal.
    anonymous: FrameShare,
    per_principal: HashMap<Digest, FrameShare>,
}

impl Frames {
    fn parked(&self) -> MutexGuard<'_, Parked> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn find(&self, flow: FlowId) -> Option<Arc<Frame>> {
        self.parked().frames.get(&flow).cloned()
    }

    /// The frames of the flow that a register knows by this id.
    pub(crate) fn of_record(&self, id: FlowId) -> Vec<Arc<Frame>> {
        let parked = self.parked();
        parked.frames.iter().filter(|(flow, _)| flow.in_ledger() == id).map(|(_, frame)| frame.clone()).collect()
    }

    /// The ids by which a register knows the flows of all frames.
    pub(crate) fn in_records(&self) -> Vec<FlowId> {
        self.parked().frames.keys().map(|flow| flow.in_ledger()).collect()
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.parked().frames.len()
    }

    /// Ends all of them, and returns how many there were.
    pub(crate) fn abort_all(&self) -> usize {
        let frames: Vec<_> = self.parked().frames.values().cloned().collect();
        frames.iter().for_each(|frame| frame.abort());
        frames.len()
    }

    /// How many bytes are counted for all of them.
    pub(crate) fn bytes(&self) -> usize {
        self.parked().all.bytes
    }

    /// When the oldest wait began.
    pub(crate) fn oldest_wait(&self) -> Option<Timestamp> {
        let frames: Vec<_> = self.parked().frames.values().cloned().collect();
        frames.iter().filter_map(|frame| frame.waits_since()).min()
    }
}

/// A frame's place among those that may wait. Leaving it is dropping it.
pub(crate) struct Slot {
    frame: Arc<Frame>,
    /// What it counts for.
    bytes: usize,
}

impl Slot {
    /// Takes a place for this frame, if there is one left for it and for as many bytes.
    pub(super) fn take(frame: &Arc<Frame>, bytes: usize) -> Result<Self, FlowError> {
        let mut parked = frame.core.frames.parked();
        if let Err(error) = parked.admit(&frame.core, frame.principal, FrameShare { frames: 1, bytes }) {
            drop(parked);
            frame.core.note_limit(&error);
            return Err(error);
        }
        parked.frames.insert(frame.flow, frame.clone());
        drop(parked);
        Ok(Self { frame: frame.clone(), bytes })
    }

    /// Counts for this many bytes from here on, if there is room for them.
    pub(super) fn resize(&mut self, bytes: usize) -> Result<(), FlowError> {
        if bytes == self.bytes {
            return Ok(());
        }
        let Frame { core, principal, .. } = &*self.frame;
        let mut parked = core.frames.parked();
        let before = FrameShare { frames: 0, bytes: self.bytes };
        parked.leave(*principal, before);
        let admitted = parked.admit(core, *principal, FrameShare { frames: 0, bytes });
        match &admitted {
            Ok(()) => self.bytes = bytes,
            // It counts for what it did, until it is dropped.
            Err(_) => parked.add(*principal, before),
        }
        drop(parked);
        admitted.inspect_err(|error| core.note_limit(error))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let Self { frame, bytes } = self;
        let mut parked = frame.core.frames.parked();
        // A leg that was overtaken in this very process leaves the frame of the one that overtook it.
        if parked.frames.get(&frame.flow).is_some_and(|parked| Arc::ptr_eq(parked, frame)) {
            parked.frames.remove(&frame.flow);
        }
        parked.leave(frame.principal, FrameShare { frames: 1, bytes: *bytes });
        let is_last = parked.frames.is_empty();
        drop(parked);
        if is_last {
            frame.core.draining.may_be_done();
        }
    }
}

impl Parked {
    /// Counts one more, if it is within all limits.
    fn admit(&mut self, core: &Core, principal: Option<Digest>, more: FrameShare) -> Result<(), FlowError> {
        let Limits { frames, frame_bytes, frames_per_principal, frame_bytes_per_principal, .. } = core.limits;
        self.all.admits(more, frames, frame_bytes)?;
        match principal {
            Some(principal) => {
                let theirs = self.per_principal.get(&principal).copied().unwrap_or_default();
                theirs.admits(more, frames_per_principal, frame_bytes_per_principal)?;
            }
            // The other half is for callers with a principal.
            None if core.identifies_principals() => self.anonymous.admits(more, frames / 2, frame_bytes / 2)?,
            None => {}
        }
        self.add(principal, more);
        Ok(())
    }

    fn add(&mut self, principal: Option<Digest>, more: FrameShare) {
        self.all.add(more);
        match principal {
            Some(principal) => self.per_principal.entry(principal).or_default().add(more),
            None => self.anonymous.add(more),
        }
    }

    fn leave(&mut self, principal: Option<Digest>, less: FrameShare) {
        self.all.subtract(less);
        let Some(principal) = principal else { return self.anonymous.subtract(less) };
        if let Some(theirs) = self.per_principal.get_mut(&principal) {
            theirs.subtract(less);
            if theirs.frames == 0 {
                self.per_principal.remove(&principal);
            }
        }
    }
}

/// How many frames, and how many bytes of them.
#[derive(Clone, Copy, Default)]
struct FrameShare {
    frames: usize,
    bytes: usize,
}

impl FrameShare {
    fn admits(self, more: Self, frames: usize, bytes: usize) -> Result<(), FlowError> {
        if self.frames + more.frames > frames {
            return Err(FlowError::TooManyFrames { limit: frames });
        }
        if self.bytes.saturating_add(more.bytes) > bytes {
            return Err(FlowError::TooManyFrameBytes { limit: bytes });
        }
        Ok(())
    }

    fn add(&mut self, more: Self) {
        self.frames += more.frames;
        self.bytes += more.bytes;
    }

    fn subtract(&mut self, less: Self) {
        self.frames -= less.frames;
        self.bytes -= less.bytes;
    }
}
