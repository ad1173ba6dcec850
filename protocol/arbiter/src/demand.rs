//! Which pairs want timeslots, and how many.

use alloc::vec::Vec;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::config::NODES_MAX;

/// A pair that wants timeslots, in one word: who, to whom, how many timeslots it wants, and beside
/// these, shortest first, since which batch it waits, max–min fair, how often it has given way.
/// Stages hand it on to each other; nobody else need look into it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable)]
#[repr(transparent)]
pub struct Flow(u64);

/// An endpoint's number has 12 bits; masked so, it needs no check against a table of all of them.
const NODE: usize = NODES_MAX as usize - 1;
const SRC: u32 = 52;
const DST: u32 = 40;
const STAMP: u32 = 32;
/// Below 2^24.
const BACKLOG: u64 = 0xffff_ffff;

impl Flow {
    /// Not a flow, but the end of those that one batch hands on to the next: nobody sends to
    /// themselves.
    pub(crate) const END: Self = Self(0);

    /// In place of a stamp: it has given way so often, 64 times, that it does so no more.
    pub(crate) const STAYS: u64 = 1 << (STAMP + 6);

    /// In place of a stamp: one time.
    pub(crate) const WAY: u64 = 1 << STAMP;

    /// `stamp`: the batch that it comes in, modulo 256, or how often it has given way.
    pub(crate) const fn new(src: u16, dst: u16, backlog: u32, stamp: u8) -> Self {
        let pair = (src as u64) << SRC | (dst as u64) << DST;
        Self(pair | (stamp as u64) << STAMP | backlog as u64)
    }

    #[inline]
    pub(crate) fn src(self) -> usize {
        (self.0 >> SRC) as usize & NODE
    }

    #[inline]
    pub(crate) fn dst(self) -> usize {
        (self.0 >> DST) as usize & NODE
    }

    /// Timeslots that it wants.
    #[inline]
    pub(crate) fn backlog(self) -> u32 {
        (self.0 & BACKLOG) as u32
    }

    /// Batches that have given it nothing since it was served or came: right up to 255.
    #[inline]
    pub(crate) fn age(self, now: u8) -> u8 {
        now.wrapping_sub((self.0 >> STAMP) as u8)
    }

    /// As if it had come `age` batches ago.
    #[inline]
    pub(crate) fn with_age(self, age: u8, now: u8) -> Self {
        let stamp = u64::from(now.wrapping_sub(age)) << STAMP;
        Self(self.0 & !(0xff << STAMP) | stamp)
    }

    /// One that has run dry, with a number below 2^24 in the place of its backlog. Of one that has
    /// not nothing that is of any account.
    #[inline]
    pub(crate) fn dry_at(self, place: usize) -> Self {
        Self(self.0 | place as u64)
    }

    /// With `slots` fewer, as it has been given them.
    #[inline]
    pub(crate) fn served(self, slots: u32) -> Self {
        Self(self.0 - u64::from(slots))
    }

    /// That of a pair which has run dry, and wants so many more.
    #[inline]
    pub(crate) fn renewed(self, backlog: u32) -> Self {
        Self(self.0 & !BACKLOG | u64::from(backlog))
    }

    /// Zero if it still gives way.
    #[inline]
    pub(crate) fn stays(self) -> u64 {
        self.0 & Self::STAYS
    }

    /// Once more: only who does not [`Flow::stays`].
    #[inline]
    pub(crate) fn gave_way(self) -> Self {
        Self(self.0 + Self::WAY)
    }

    /// They as words.
    #[inline]
    pub(crate) fn words(flows: &[Self]) -> &[u64] {
        zerocopy::transmute_ref!(flows)
    }

    /// They as words.
    #[inline]
    pub(crate) fn words_mut(flows: &mut [Self]) -> &mut [u64] {
        zerocopy::transmute_mut!(flows)
    }
}

/// Flows that may be written behind those that there are.
const SPARE: usize = 8;

/// Flows in a row, in memory that is taken once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Flows {
    places: Vec<Flow>,
    /// What is behind is of no account.
    len: usize,
}

impl Flows {
    /// Room for so many.
    pub fn new(flows_max: u32) -> Self {
        // Some places more: who sorts flows without a branch writes where none may come to be.
        Self { places: alloc::vec![Flow::default(); flows_max as usize + SPARE], len: 0 }
    }

    /// Those that are here.
    pub fn as_slice(&self) -> &[Flow] {
        &self.places[..self.len]
    }

    /// How many are here.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none is here.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// None is here any more.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// One more.
    ///
    /// # Panics
    /// When there is no room.
    #[inline]
    pub fn push(&mut self, flow: Flow) {
        self.places[self.len] = flow;
        self.len += 1;
    }

    /// Some more.
    ///
    /// # Panics
    /// When there is no room.
    pub fn extend(&mut self, flows: &[Flow]) {
        self.room()[..flows.len()].copy_from_slice(flows);
        self.len += flows.len();
    }

    /// Puts each flow of `of` before the one at `places[n].backlog()`; these ascend.
    pub(crate) fn insert(&mut self, places: &[Flow], of: &[Flow]) {
        let (mut end, mut to) = (self.len, self.len + of.len());
        self.len = to;
        for (place, flow) in places.iter().zip(of).rev() {
            let begin = place.backlog() as usize;
            to -= end - begin;
            self.places.copy_within(begin..end, to);
            to -= 1;
            self.places[to] = *flow;
            end = begin;
        }
    }

    /// Throws out the first so many.
    pub(crate) fn remove_first(&mut self, count: usize) {
        self.places.copy_within(count..self.len, 0);
        self.len -= count;
    }

    /// All are served in batch `now`, modulo 256.
    pub(crate) fn restamp(&mut self, now: u8) {
        for flow in &mut self.places[..self.len] {
            *flow = flow.with_age(0, now);
        }
    }

    /// Throws out who `is_kept` does not want.
    pub(crate) fn retain(&mut self, mut is_kept: impl FnMut(Flow) -> bool) {
        let mut kept = 0;
        for at in 0..self.len {
            let flow = self.places[at];
            self.places[kept] = flow;
            kept += usize::from(is_kept(flow));
        }
        self.len = kept;
    }

    /// As [`Flows::retain`], for when few are kept.
    #[inline]
    pub(crate) fn retain_rare(&mut self, mut is_kept: impl FnMut(Flow) -> bool) {
        let mut kept = 0;
        for at in 0..self.len {
            let flow = self.places[at];
            if is_kept(flow) {
                self.places[kept] = flow;
                kept += 1;
            }
        }
        self.len = kept;
    }

    /// All places from the first free one on; [`Flows::grow`] says how many were filled.
    #[inline]
    pub(crate) fn room(&mut self) -> &mut [Flow] {
        &mut self.places[self.len..]
    }

    #[inline]
    pub(crate) fn grow(&mut self, by: usize) {
        self.len += by;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_one_word_and_loses_nothing() {
        let flow = Flow::new(4095, 17, 0x00ff_ffff, 250);
        assert_eq!((flow.src(), flow.dst(), flow.backlog()), (4095, 17, 0xff_ffff));
        assert_eq!((flow.age(250), flow.age(3)), (0, 9), "batches are counted modulo 256");
        let served = flow.served(0xff_fffe);
        assert_eq!((served.src(), served.dst(), served.backlog()), (4095, 17, 1));
        assert_eq!((served.age(250), served.with_age(128, 6).age(6)), (0, 128));
        let renewed = served.dry_at(77).renewed(5);
        assert_eq!((renewed.src(), renewed.dst(), renewed.backlog()), (4095, 17, 5));
        assert_eq!(renewed.age(250), 0);
    }

    #[test]
    fn a_flow_gives_way_64_times() {
        let mut flow = Flow::new(4095, 4094, 0xff_ffff, 0);
        for _ in 0..64 {
            assert_eq!(flow.stays(), 0);
            flow = flow.gave_way();
        }
        assert_ne!(flow.stays(), 0);
        assert_ne!(flow.served(9).renewed(3).stays(), 0, "neither served nor renewed it forgets");
        assert_eq!((flow.src(), flow.dst(), flow.backlog()), (4095, 4094, 0xff_ffff));
    }

    #[test]
    fn a_list_is_what_was_pushed_and_not_thrown_out() {
        let flows: Vec<Flow> = (0..6).map(|src| Flow::new(src, 9, 1, 0)).collect();
        let mut list = Flows::new(6);
        list.push(flows[0]);
        list.extend(&flows[1..4]);
        list.room()[..2].copy_from_slice(&flows[4..]);
        list.grow(2);
        assert_eq!(list.as_slice(), &flows);
        list.retain(|flow| flow.src() % 2 == 1);
        assert_eq!(list.as_slice(), [flows[1], flows[3], flows[5]]);
        let places = [0, 2, 3].map(|place| Flow::new(0, 9, 0, 0).dry_at(place));
        list.insert(&places, &[flows[0], flows[4], flows[2]]);
        assert_eq!(list.as_slice(), [0, 1, 3, 4, 5, 2].map(|src| flows[src]));
    }
}
