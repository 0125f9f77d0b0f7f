//! The timeline of a flow: what its claims came to, and when.

use crate::shared::clock::Timestamp;

/// What happened to a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FlowStation {
    /// It asked.
    Asked,
    /// A leg took the round to run it.
    Claimed,
    /// A leg gave the round up, and it can be run again.
    Released,
    /// It ended with a result.
    Completed,
    /// It ended with an error of the protocol, or its handler is lost.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// A leg was refused: the round is run or was answered with other answers.
    RefusedOtherAnswers,
    /// A leg was refused: the round has ended without a reply.
    RefusedDead,
}

impl FlowStation {
    const ALL: [Self; 8] = [
        Self::Asked,
        Self::Claimed,
        Self::Released,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::RefusedOtherAnswers,
        Self::RefusedDead,
    ];

    /// The number of this station where it is stored.
    pub fn code(self) -> u8 {
        self as u8
    }

    fn of(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Whether a leg was refused.
    pub const fn is_refusal(self) -> bool {
        matches!(self, Self::RefusedOtherAnswers | Self::RefusedDead)
    }

    /// The name of the station, in words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Claimed => "claimed",
            Self::Released => "released",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::RefusedOtherAnswers => "refused: other answers",
            Self::RefusedDead => "refused: the round has ended",
        }
    }
}

/// One entry of a timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimelineEntry {
    /// The leg: the number of the round that it answered, zero for the first leg.
    pub leg: u32,
    /// What happened.
    pub station: FlowStation,
    /// When it happened.
    pub at: Timestamp,
}

impl TimelineEntry {
    /// The size of an entry in [bytes](Self::to_bytes).
    pub const BYTES: usize = 13;

    /// The entry as a store may keep it: leg, station and time in milliseconds, each in big-endian order.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.leg.to_be_bytes());
        bytes[4] = self.station.code();
        bytes[5..].copy_from_slice(&self.at.as_millis().to_be_bytes());
        bytes
    }

    fn of(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let [a, b, c, d, station, at @ ..] = *bytes;
        Some(Self {
            leg: u32::from_be_bytes([a, b, c, d]),
            station: FlowStation::of(station)?,
            at: Timestamp::from_millis(u64::from_be_bytes(at)),
        })
    }
}

/// The timeline of a flow, bounded: the oldest entries are dropped first.
///
/// A client can have a leg refused as often as it likes. Refusals are therefore only entered while there are fewer than
/// [`REFUSALS_UP_TO`](Self::REFUSALS_UP_TO) entries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Timeline {
    entries: Vec<TimelineEntry>,
}

impl Timeline {
    /// The largest number of entries.
    pub const MOST: usize = 64;
    /// From this number of entries on, refusals are not entered.
    pub const REFUSALS_UP_TO: usize = 32;

    /// The entries, oldest first.
    pub fn entries(&self) -> &[TimelineEntry] {
        &self.entries
    }

    /// Enters what happened.
    pub fn push(&mut self, entry: TimelineEntry) {
        if self.entries.len() >= Self::MOST {
            self.entries.remove(0);
        }
        self.entries.push(entry);
    }

    /// Enters that a leg was refused, if the timeline is short enough. Returns whether it was entered.
    pub fn refuse(&mut self, entry: TimelineEntry) -> bool {
        let short = self.entries.len() < Self::REFUSALS_UP_TO;
        if short {
            self.entries.push(entry);
        }
        short
    }

    /// The timeline as a store may keep it: the [bytes](TimelineEntry::to_bytes) of its entries, one after the other. A
    /// store may append an entry to these bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.entries.iter().flat_map(|entry| entry.to_bytes()).collect()
    }

    /// Reads such bytes. Entries of a kind that this version does not know are left out.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let (entries, _) = bytes.as_chunks();
        Self { entries: entries.iter().filter_map(TimelineEntry::of).collect() }
    }
}

impl From<TimelineEntry> for Timeline {
    fn from(entry: TimelineEntry) -> Self {
        Self { entries: vec![entry] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(leg: u32, station: FlowStation) -> TimelineEntry {
        TimelineEntry { leg, station, at: Timestamp::from_millis(1_800_000_000_000 + u64::from(leg)) }
    }

    #[test]
    fn it_comes_back_from_bytes_as_it_was() {
        let mut timeline = Timeline::default();
        FlowStation::ALL.into_iter().zip(0..).for_each(|(station, leg)| timeline.push(entry(leg, station)));
        let mut bytes = timeline.to_bytes();
        assert_eq!(Timeline::from_bytes(&bytes), timeline);
        bytes[4] = 200;
        assert_eq!(Timeline::from_bytes(&bytes).entries(), &timeline.entries()[1..], "an unknown kind is left out");
    }

    #[test]
    fn it_is_bounded_and_refusals_drop_nothing() {
        let mut timeline = Timeline::default();
        for leg in 0..1000 {
            timeline.refuse(entry(leg, FlowStation::RefusedOtherAnswers));
        }
        assert_eq!(timeline.entries().len(), Timeline::REFUSALS_UP_TO);
        for leg in 0..1000 {
            timeline.push(entry(leg, FlowStation::Claimed));
        }
        assert_eq!(timeline.entries().len(), Timeline::MOST);
        assert_eq!(timeline.entries()[0].leg, 1000 - Timeline::MOST as u32, "the oldest are dropped");
        assert!(!timeline.refuse(entry(0, FlowStation::RefusedDead)));
    }
}
