//! The claims of a ledger in memory: small records of one size, in pages of claims that expire in the same second.
//!
//! A claim that was answered takes [`CLAIM_BYTES`] in all: 52 in its page, and up to 12 in the index that finds it by
//! its name. The expiry is stored once for the page and not with each claim. Pages and the parts of the index are
//! small, so no leg is delayed while a large allocation is copied to a larger one.

use std::collections::BTreeMap;

use hashbrown::HashTable;

use super::{
    super::{ClaimId, ClaimKind, Fence},
    replies::Spot,
    shares::ShareId,
};
use crate::{server::seal::digest::Fingerprint, shared::clock::Timestamp};

/// What a claim counts.
pub(super) const CLAIM_BYTES: usize = 64;

/// Claims by name and by expiry.
pub(super) struct ClaimTable {
    index: Index,
    pages: Vec<ClaimPage>,
    /// The numbers of the pages without a claim.
    free: Vec<u32>,
    /// The pages of each second. All but the last of them are full.
    due: BTreeMap<Second, Vec<u32>>,
    count: usize,
}

/// A second since 1970, rounded up: claims that are due in it may be removed once it has begun.
pub(super) type Second = u64;

struct ClaimPage {
    due: Second,
    slots: Vec<ClaimSlot>,
}

/// How many claims fit on a page.
const PAGE: usize = 64;

/// One claim.
pub(super) struct ClaimSlot {
    name: ClaimName,
    pub(super) share: ShareId,
    pub(super) state: SlotState,
}

/// The state of a claim, in as few bytes as possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotState {
    /// A leg runs it, or it has a spilled state: the details are at this place.
    Held(u32),
    /// It was released, and was last run with this fence.
    Free(Fence),
    Done {
        /// Half of the digest of its answers. Other answers with the same half would get the reply to these, and
        /// nothing more.
        answers: Fingerprint,
        reply: Option<Spot>,
    },
    Dead,
}

/// The key of a claim.
///
/// A round has the id of its flow and its number. An effect has the flow's id combined with half of its own digest.
/// Only the server knows the inputs of both, so two names are equal by chance once in 2^128.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClaimName {
    flow: [u8; 16],
    what: u32,
}

impl ClaimName {
    pub(super) fn of(id: ClaimId) -> Self {
        let flow = *id.flow.as_bytes();
        match id.what {
            ClaimKind::Round(number) => Self { flow, what: number },
            ClaimKind::Once(name) => {
                let combined = u128::from_le_bytes(flow) ^ u128::from_le_bytes(name.half());
                Self { flow: combined.to_le_bytes(), what: u32::MAX }
            }
        }
    }

    /// A part of a digest is as good as a hash.
    fn hash(&self) -> u64 {
        let [first, ..] = [u128::from_le_bytes(self.flow) as u64];
        first ^ u64::from(self.what).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// The position of a claim until it is moved or removed: the number of its page, and its slot there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotPlace(u32);

impl SlotPlace {
    fn new(page: u32, slot: usize) -> Self {
        Self(page * PAGE as u32 + slot as u32)
    }

    fn page(self) -> u32 {
        self.0 / PAGE as u32
    }

    fn slot(self) -> usize {
        self.0 as usize % PAGE
    }
}

impl ClaimTable {
    /// The most claims that can be addressed: 2^31, which is 128 GiB of them.
    pub(super) const MOST_BYTES: usize = CLAIM_BYTES << 31;

    pub(super) fn new() -> Self {
        Self { index: Index::new(), pages: Vec::new(), free: Vec::new(), due: BTreeMap::new(), count: 0 }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn find(&self, name: ClaimName) -> Option<SlotPlace> {
        self.index.find(name.hash(), |place| self[place].name == name)
    }

    /// Inserts a claim that is not in the table yet, and keeps it until this second.
    pub(super) fn insert(&mut self, name: ClaimName, share: ShareId, state: SlotState, due: Second) -> SlotPlace {
        self.put(ClaimSlot { name, share, state }, due)
    }

    /// When the claim may be removed.
    pub(super) fn due(&self, place: SlotPlace) -> Second {
        self.pages[place.page() as usize].due
    }

    /// Keeps a claim until another second.
    pub(super) fn move_to(&mut self, place: SlotPlace, due: Second) {
        let slot = self.remove(place);
        self.put(slot, due);
    }

    /// A claim that may be removed now.
    pub(super) fn next_due(&self, now: Timestamp) -> Option<SlotPlace> {
        let (due, pages) = self.due.first_key_value()?;
        if now.as_millis() / 1000 < *due {
            return None;
        }
        let page = *pages.last()?;
        Some(SlotPlace::new(page, self.pages[page as usize].slots.len().checked_sub(1)?))
    }

    /// The memory of the whole table.
    #[cfg(test)]
    pub(super) fn allocated(&self) -> usize {
        let slots: usize = self.pages.iter().map(|page| page.slots.capacity() * size_of::<ClaimSlot>()).sum();
        let pages = self.pages.capacity() * size_of::<ClaimPage>() + self.free.capacity() * size_of::<u32>();
        let due: usize = self.due.values().map(|pages| pages.capacity() * size_of::<u32>() + 48).sum();
        let index: usize = self.index.parts.iter().map(|part| part.allocation_size() + size_of_val(part)).sum();
        slots + pages + due + index
    }

    fn put(&mut self, slot: ClaimSlot, due: Second) -> SlotPlace {
        let pages = self.due.entry(due).or_default();
        let page = match pages.last().filter(|page| self.pages[**page as usize].slots.len() < PAGE) {
            Some(page) => *page,
            None => {
                let page = self.free.pop().unwrap_or_else(|| {
                    self.pages.push(ClaimPage { due, slots: Vec::new() });
                    self.pages.len() as u32 - 1
                });
                self.pages[page as usize].due = due;
                pages.push(page);
                page
            }
        };
        let slots = &mut self.pages[page as usize].slots;
        let (place, hash) = (SlotPlace::new(page, slots.len()), slot.name.hash());
        slots.push(slot);
        self.count += 1;
        self.index.insert(hash, place, |place| self.pages[place.page() as usize].slots[place.slot()].name.hash());
        place
    }

    /// Removes a claim. The last claim of its second takes its place.
    pub(super) fn remove(&mut self, place: SlotPlace) -> ClaimSlot {
        self.index.remove(self[place].name.hash(), place);
        self.count -= 1;
        let page = place.page() as usize;
        let due = self.pages[page].due;
        let pages = self.due.get_mut(&due).expect("a page is listed under its second");
        let last_page = *pages.last().expect("a second without a page is not kept");
        let slots = &mut self.pages[last_page as usize].slots;
        let last = slots.pop().expect("a page without a claim is not kept");
        let last_place = SlotPlace::new(last_page, slots.len());
        if slots.is_empty() {
            *slots = Vec::new();
            pages.pop();
            self.free.push(last_page);
            if pages.is_empty() {
                self.due.remove(&due);
            }
        }
        if last_place == place {
            return last;
        }
        self.index.replace(last.name.hash(), last_place, place);
        std::mem::replace(&mut self.pages[page].slots[place.slot()], last)
    }
}

impl std::ops::Index<SlotPlace> for ClaimTable {
    type Output = ClaimSlot;

    fn index(&self, place: SlotPlace) -> &ClaimSlot {
        &self.pages[place.page() as usize].slots[place.slot()]
    }
}

impl std::ops::IndexMut<SlotPlace> for ClaimTable {
    fn index_mut(&mut self, place: SlotPlace) -> &mut ClaimSlot {
        &mut self.pages[place.page() as usize].slots[place.slot()]
    }
}

/// The second in which a claim that is kept until then is due. It is never earlier, and later by at most a 512th of the
/// time that the claim is kept. That bounds the number of seconds with pages of their own, even if claims are kept for
/// days.
pub(super) fn due(now: Timestamp, until: Timestamp) -> Second {
    let until_second = until.as_millis().div_ceil(1000);
    let step = (until.since(now).as_secs() / 512).next_power_of_two();
    until_second.div_ceil(step) * step
}

/// The place of each claim, by the hash of its name. A place takes four bytes, plus one in the hash table; to grow, a
/// part reads the names again.
struct Index {
    parts: Vec<HashTable<SlotPlace>>,
}

/// The number of parts. One part grows at a time, so that growing is quick.
const PARTS: usize = 1024;

impl Index {
    fn new() -> Self {
        Self { parts: (0..PARTS).map(|_| HashTable::new()).collect() }
    }

    fn part(&mut self, hash: u64) -> &mut HashTable<SlotPlace> {
        &mut self.parts[part(hash)]
    }

    fn find(&self, hash: u64, is_it: impl Fn(SlotPlace) -> bool) -> Option<SlotPlace> {
        self.parts[part(hash)].find(hash, |place| is_it(*place)).copied()
    }

    fn insert(&mut self, hash: u64, place: SlotPlace, rehash: impl Fn(SlotPlace) -> u64) {
        self.part(hash).insert_unique(hash, place, |place| rehash(*place));
    }

    fn remove(&mut self, hash: u64, place: SlotPlace) {
        if let Ok(found) = self.part(hash).find_entry(hash, |known| *known == place) {
            found.remove();
        }
    }

    fn replace(&mut self, hash: u64, place: SlotPlace, with: SlotPlace) {
        if let Some(found) = self.part(hash).find_mut(hash, |known| *known == place) {
            *found = with;
        }
    }
}

/// Uses other bits than those that a hash table uses.
fn part(hash: u64) -> usize {
    (hash >> 40) as usize % PARTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::seal::{Digest, FlowId};

    fn at(second: u64) -> Timestamp {
        Timestamp::from_millis(second * 1000)
    }

    fn round(flow: u128, number: u32) -> ClaimName {
        ClaimName::of(ClaimId { flow: FlowId::from_bytes(flow.to_le_bytes()), what: ClaimKind::Round(number) })
    }

    fn effect(flow: u128, name: &str) -> ClaimName {
        let flow = FlowId::from_bytes(flow.to_le_bytes());
        ClaimName::of(ClaimId { flow, what: ClaimKind::Once(Digest::of_once(flow, name)) })
    }

    fn share() -> ShareId {
        super::super::shares::MemoryShares::new(0).charge(crate::server::ledger::PrincipalShare::Common, 0)
    }

    #[test]
    fn a_slot_has_the_size_that_it_counts_without_its_part_of_the_index() {
        assert_eq!(size_of::<ClaimSlot>(), 52);
        assert_eq!(size_of::<SlotPlace>(), 4);
    }

    #[test]
    fn nothing_is_due_early_nor_much_later() {
        for (now, until) in [(0, 0), (0, 1), (0, 999), (0, 1000), (5, 690_005), (7, 3_690_007), (1, 30 * 86_400_000)] {
            let due = due(Timestamp::from_millis(now), Timestamp::from_millis(until)) * 1000;
            let late = due.checked_sub(until).expect("not early");
            assert!(late <= 1000 + until / 256, "{now} to {until}: {late} late");
        }
        assert!(due(at(0), Timestamp::from_millis(u64::MAX)) >= u64::MAX / 1000);
    }

    #[test]
    fn claims_that_are_kept_for_days_share_seconds() {
        let day = 86_400;
        let seconds: std::collections::BTreeSet<_> =
            (0..30 * day).step_by(60).map(|now| due(at(now), at(now + 30 * day))).collect();
        assert!(seconds.len() < 1100, "{}", seconds.len());
    }

    #[test]
    fn names_whose_hashes_are_equal_are_two() {
        let one = round(0, 1);
        let two = round(u128::from(one.hash() ^ round(0, 2).hash()), 2);
        assert!(one.hash() == two.hash() && one != two);
        let mut table = ClaimTable::new();
        let places = [one, two].map(|name| table.insert(name, share(), SlotState::Dead, 1));
        assert_eq!([one, two].map(|name| table.find(name)), places.map(Some));
        table.remove(places[0]);
        assert_eq!(table.find(one), None);
        assert_eq!(table.find(two).map(|place| table[place].name), Some(two), "it has moved");
    }

    #[test]
    fn rounds_and_effects_have_names_of_their_own() {
        let names =
            [round(1, 1), round(1, 2), round(2, 1), effect(1, "a"), effect(1, "b"), effect(2, "a"), round(1, u32::MAX)];
        for (i, one) in names.iter().enumerate() {
            assert!(names[..i].iter().all(|other| other != one), "{one:?}");
        }
    }

    /// Compares the table with a map, at random.
    #[test]
    fn whatever_is_kept_moved_and_forgotten_is_found_where_it_is() {
        let mut table = ClaimTable::new();
        let mut known = std::collections::HashMap::new();
        let mut seed = 1_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for step in 0..50_000_u32 {
            let name = round(u128::from(random(3000)).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835), 1);
            let due = random(40) + 1;
            match (table.find(name), random(3)) {
                (None, _) => {
                    table.insert(name, share(), SlotState::Free(step), due);
                    known.insert(name.flow, (step, due));
                }
                (Some(place), 0) => {
                    table.remove(place);
                    known.remove(&name.flow);
                }
                (Some(place), 1) => {
                    table.move_to(place, due);
                    known.get_mut(&name.flow).unwrap().1 = due;
                }
                (Some(place), _) => {
                    let (step, due) = known[&name.flow];
                    assert_eq!((table[place].state, table.due(place)), (SlotState::Free(step), due));
                }
            }
            assert_eq!(table.count(), known.len());
        }
        let partly: usize = table.due.values().map(|pages| pages.len() - 1).sum();
        assert!(partly * PAGE <= known.len(), "all pages but the last of a second are full");
        while let Some(place) = table.next_due(at(20)) {
            assert!(table.due(place) <= 20);
            let slot = table.remove(place);
            assert!(known.remove(&slot.name.flow).is_some_and(|(_, due)| due <= 20));
        }
        assert!(known.values().all(|(_, due)| *due > 20));
        assert_eq!(table.count(), known.len());
        while let Some(place) = table.next_due(at(40)) {
            table.remove(place);
        }
        assert!(table.due.is_empty() && table.free.len() == table.pages.len());
        assert!(table.index.parts.iter().all(HashTable::is_empty));
    }
}
