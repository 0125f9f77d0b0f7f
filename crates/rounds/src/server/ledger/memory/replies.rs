//! Replies within a budget of bytes, the oldest dropped first.
//!
//! They are written one after the other into large segments. In an allocation of its own, each reply would stay for
//! minutes among the many short-lived allocations of a leg, and fragment the heap.

use std::{collections::VecDeque, num::NonZeroU32};

pub(super) struct Replies {
    segments: VecDeque<Segment>,
    /// The number of the first segment that was not dropped.
    first: u64,
    bytes: usize,
    budget: usize,
}

#[derive(Default)]
struct Segment {
    bytes: Vec<u8>,
    /// How many replies in it may still be asked for.
    wanted: usize,
}

/// The position of a reply, in eight bytes, because every claim that was answered has one.
///
/// The segment number is cut to 32 bits. It would refer to a wrong segment after four billion segments were filled in
/// the lifetime of one claim: hundreds of terabytes with the default budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spot {
    segment: u32,
    /// Where the reply begins, after its length.
    start: NonZeroU32,
}

/// The length of a reply, which is stored before it.
const LENGTH_BYTES: usize = size_of::<u32>();

impl Replies {
    /// The size of a segment, if the budget has space for many.
    const SEGMENT_BYTES: usize = 64 << 10;

    pub(super) fn new(budget: usize) -> Self {
        Self { segments: VecDeque::new(), first: 0, bytes: 0, budget }
    }

    /// How many bytes the replies take now.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn set_budget(&mut self, budget: usize) {
        self.budget = budget;
        self.keep_within_budget();
    }

    pub(super) fn get(&self, spot: Spot) -> Option<Vec<u8>> {
        let bytes = &self.segments.get(self.place(spot)?)?.bytes;
        let start = spot.start.get() as usize;
        let length = bytes.get(..start)?.last_chunk().map(|length| u32::from_le_bytes(*length) as usize)?;
        Some(bytes.get(start..start + length)?.to_vec())
    }

    /// Stores a reply. None if it is too large to be kept.
    pub(super) fn insert(&mut self, reply: &[u8]) -> Option<Spot> {
        let length = u32::try_from(reply.len()).ok()?;
        let needed = LENGTH_BYTES + reply.len();
        if needed > self.budget {
            return None;
        }
        let room = Self::SEGMENT_BYTES.min(self.budget / 64).max(needed);
        let fits = |segment: &&mut Segment| segment.bytes.len() + needed <= segment.bytes.capacity();
        if self.segments.back_mut().filter(fits).is_none() {
            if let Some(full) = self.segments.back_mut() {
                // The unused rest of the segment does not count against the budget.
                full.bytes.shrink_to_fit();
            }
            self.segments.push_back(Segment { bytes: Vec::with_capacity(room), wanted: 0 });
        }
        let number = self.first + self.segments.len() as u64 - 1;
        let segment = self.segments.back_mut()?;
        let start = NonZeroU32::new(u32::try_from(segment.bytes.len() + LENGTH_BYTES).ok()?)?;
        segment.bytes.extend_from_slice(&length.to_le_bytes());
        segment.bytes.extend_from_slice(reply);
        segment.wanted += 1;
        self.bytes += needed;
        self.keep_within_budget();
        Some(Spot { segment: number as u32, start })
    }

    /// Removes a reply that no leg will ask for.
    pub(super) fn remove(&mut self, spot: Spot) {
        if let Some(segment) = self.place(spot).and_then(|place| self.segments.get_mut(place)) {
            segment.wanted -= 1;
            if segment.wanted == 0 {
                // Earlier segments may be needed for longer.
                self.bytes -= segment.bytes.len();
                segment.bytes = Vec::new();
            }
        }
        while self.segments.front().is_some_and(|segment| segment.wanted == 0) {
            self.drop_first();
        }
    }

    /// The index in `segments`, or none if the segment was dropped.
    fn place(&self, spot: Spot) -> Option<usize> {
        let place = spot.segment.wrapping_sub(self.first as u32) as usize;
        (place < self.segments.len()).then_some(place)
    }

    fn keep_within_budget(&mut self) {
        while self.bytes > self.budget {
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        if let Some(segment) = self.segments.pop_front() {
            self.bytes -= segment.bytes.len();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_that_share_memory_come_back_as_they_were_and_go_by_age() {
        let mut replies = Replies::new(7200);
        let reply = |number: u32| number.to_be_bytes().repeat(8);
        let spots: Vec<_> = (1..=300).map(|number| replies.insert(&reply(number)).unwrap()).collect();
        let kept: Vec<_> =
            (1..=300).zip(&spots).filter_map(|(number, spot)| Some((number, replies.get(*spot)?))).collect();
        assert_eq!(kept.first().map(|(number, _)| *number), Some(301 - kept.len() as u32), "the latest are kept");
        for (number, again) in &kept {
            assert_eq!(*again, reply(*number));
        }
        assert_eq!(replies.bytes(), kept.len() * 36);
        assert!((7200 - 120..=7200).contains(&replies.bytes()), "{} of 7200 bytes", replies.bytes());
        assert!(replies.segments.len() < kept.len());
    }

    #[test]
    fn replies_of_any_size_take_the_memory_that_they_may() {
        let budget = 4 << 20;
        for bytes in [0, 100, (33 << 10) + 1, 65 << 10] {
            let mut replies = Replies::new(budget);
            for _ in 0..2 * budget / (bytes + LENGTH_BYTES) {
                assert!(replies.insert(&vec![0; bytes]).is_some());
            }
            let held: usize = replies.segments.iter().map(|segment| segment.bytes.capacity()).sum();
            assert!(held <= budget + Replies::SEGMENT_BYTES, "{held} bytes for replies of {bytes}");
        }
        assert_eq!(Replies::new(9).insert(&[0; 6]), None, "too large for all of it");
    }

    #[test]
    fn a_segment_is_found_when_more_were_filled_than_its_number_can_count() {
        let mut replies = Replies::new(100);
        replies.first = u64::from(u32::MAX) - 1;
        let spots: Vec<_> = (0..4).map(|number| replies.insert(&[number; 20]).unwrap()).collect();
        let found = spots.iter().map(|spot| replies.get(*spot).map(|reply| reply[0]));
        assert_eq!(found.collect::<Vec<_>>(), [Some(0), Some(1), Some(2), Some(3)]);
        for spot in spots {
            replies.remove(spot);
        }
        assert_eq!((replies.bytes(), replies.segments.len()), (0, 0));
    }

    #[test]
    fn a_smaller_budget_holds_at_once() {
        let mut replies = Replies::new(1000);
        let spots: Vec<_> = (0..10).map(|number| replies.insert(&[number; 96]).unwrap()).collect();
        replies.set_budget(200);
        assert_eq!(replies.bytes(), 200);
        assert_eq!((replies.get(spots[7]), replies.get(spots[9])), (None, Some(vec![9; 96])));
    }
}
