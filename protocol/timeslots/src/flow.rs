//! Flows: pairs of endpoints with unmet demand.

use alloc::vec::Vec;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::config::NODES_MAX;

/// A pair with unmet demand, packed into one word: source, destination, number of timeslots wanted,
/// and a stamp. Under shortest-first the stamp is the batch of the last service, modulo 256; under
/// max–min fairness it counts how often the flow has yielded. Stages pass flows to each other as
/// opaque values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable)]
#[repr(transparent)]
pub struct Flow(u64);

/// Mask of a 12-bit endpoint number. A masked number needs no bounds check.
const NODE: usize = NODES_MAX as usize - 1;
const SRC: u32 = 52;
const DST: u32 = 40;
const STAMP: u32 = 32;
/// Mask of the backlog, which is below 2^24.
const BACKLOG: u64 = 0xffff_ffff;

impl Flow {
    /// Marks the end of the flows that one batch passes to the next. It cannot be a flow, as its
    /// source and destination are equal.
    pub const END: Self = Self(0);

    //= spec/arbiter.md#R10
    /// Set in the stamp of a flow that has yielded 64 times and yields no more.
    pub(crate) const NO_YIELD: u64 = 1 << (STAMP + 6);

    /// One yield, in the place of the stamp.
    pub(crate) const YIELD: u64 = 1 << STAMP;

    /// Creates a flow. `stamp` is the current batch modulo 256, or the number of yields.
    pub(crate) const fn new(src: u16, dst: u16, backlog: u32, stamp: u8) -> Self {
        debug_assert!(src as usize <= NODE && dst as usize <= NODE, "12 bits for each endpoint");
        debug_assert!(backlog < 1 << 24, "24 bits for the backlog");
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

    /// Asserts that the flow is of a pair of endpoints, and wants something.
    pub(crate) fn check_invariants(self, nodes: u32) {
        let (src, dst, nodes) = (self.src(), self.dst(), nodes as usize);
        assert!(src < nodes && dst < nodes, "{src} and {dst} are endpoints");
        assert_ne!(src, dst, "no endpoint sends to itself");
        assert!(self.backlog() > 0, "a flow from {src} to {dst} wants a timeslot");
    }

    /// Returns the number of timeslots wanted.
    #[inline]
    pub(crate) fn backlog(self) -> u32 {
        (self.0 & BACKLOG) as u32
    }

    /// Returns the number of batches since the last service or the arrival; exact up to 255.
    #[inline]
    pub(crate) fn age(self, now: u8) -> u8 {
        now.wrapping_sub((self.0 >> STAMP) as u8)
    }

    /// Returns the flow as if it had arrived `age` batches ago.
    #[inline]
    pub(crate) fn with_age(self, age: u8, now: u8) -> Self {
        let stamp = u64::from(now.wrapping_sub(age)) << STAMP;
        Self(self.0 & !(0xff << STAMP) | stamp)
    }

    /// Returns a drained flow (backlog 0) with an index below 2^24 in place of its backlog. For a
    /// flow with a backlog the result is meaningless.
    #[inline]
    pub(crate) fn drained_at(self, index: usize) -> Self {
        debug_assert!(index < 1 << 24, "24 bits for the index");
        Self(self.0 | index as u64)
    }

    /// Returns the flow after a grant of `slots` timeslots.
    #[inline]
    pub(crate) fn served(self, slots: u32) -> Self {
        debug_assert!(slots <= self.backlog(), "no more is granted than wanted");
        Self(self.0 - u64::from(slots))
    }

    /// Returns a drained flow with a new backlog.
    #[inline]
    pub(crate) fn renewed(self, backlog: u32) -> Self {
        Self(self.0 & !BACKLOG | u64::from(backlog))
    }

    /// Returns zero if the flow still yields.
    #[inline]
    pub(crate) fn no_yield(self) -> u64 {
        self.0 & Self::NO_YIELD
    }

    /// Counts one yield. The flow must not have exhausted its yields.
    #[inline]
    pub(crate) fn yielded(self) -> Self {
        // Of the copies that a branch-free loop makes, those that would overflow are dropped.
        Self(self.0 + Self::YIELD)
    }

    /// Views flows as words.
    #[inline]
    pub(crate) fn words(flows: &[Self]) -> &[u64] {
        zerocopy::transmute_ref!(flows)
    }

    /// Views flows as mutable words.
    #[inline]
    pub(crate) fn words_mut(flows: &mut [Self]) -> &mut [u64] {
        zerocopy::transmute_mut!(flows)
    }
}

/// Extra entries behind a full list, for branch-free writes past its end.
const SPARE: usize = 8;

/// A list of flows with a fixed capacity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Flows {
    items: Vec<Flow>,
    /// Entries at or after `len` are undefined.
    len: usize,
}

impl Flows {
    /// Creates an empty list for `flows_max` flows.
    pub fn new(flows_max: u32) -> Self {
        // Branch-free partitioning writes one entry past the end of each output.
        Self { items: alloc::vec![Flow::default(); flows_max as usize + SPARE], len: 0 }
    }

    /// Returns the flows.
    pub fn as_slice(&self) -> &[Flow] {
        &self.items[..self.len]
    }

    /// Returns the number of flows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Removes all flows.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Appends a flow.
    ///
    /// # Panics
    /// When the list is full.
    #[inline]
    pub fn push(&mut self, flow: Flow) {
        self.items[self.len] = flow;
        self.len += 1;
    }

    /// Appends flows.
    ///
    /// # Panics
    /// When the list is full.
    pub fn extend(&mut self, flows: &[Flow]) {
        self.spare_mut()[..flows.len()].copy_from_slice(flows);
        self.len += flows.len();
    }

    /// Inserts flow `of[i]` before the entry at index `items[i].backlog()`, where
    /// [`Flow::drained_at`] has stored an index. The indices ascend.
    pub(crate) fn insert(&mut self, items: &[Flow], of: &[Flow]) {
        debug_assert_eq!(items.len(), of.len(), "an index for each flow");
        let (mut end, mut to) = (self.len, self.len + of.len());
        self.len = to;
        for (index, flow) in items.iter().zip(of).rev() {
            let begin = index.backlog() as usize;
            debug_assert!(begin <= end, "the indices ascend, within the list");
            to -= end - begin;
            self.items.copy_within(begin..end, to);
            to -= 1;
            self.items[to] = *flow;
            end = begin;
        }
    }

    /// Removes the first `count` flows.
    pub(crate) fn remove_first(&mut self, count: usize) {
        debug_assert!(count <= self.len, "no more than the list holds");
        self.items.copy_within(count..self.len, 0);
        self.len -= count;
    }

    /// Sets the age of all flows to zero in batch `now`, modulo 256.
    pub(crate) fn restamp(&mut self, now: u8) {
        for flow in &mut self.items[..self.len] {
            *flow = flow.with_age(0, now);
        }
    }

    /// Keeps the flows for which the predicate holds. Without branches.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(Flow) -> bool) {
        let mut retained = 0;
        for at in 0..self.len {
            let flow = self.items[at];
            self.items[retained] = flow;
            retained += usize::from(keep(flow));
        }
        self.len = retained;
    }

    /// As [`Flows::retain`], for a predicate that rarely holds.
    #[inline]
    pub(crate) fn retain_rare(&mut self, mut keep: impl FnMut(Flow) -> bool) {
        let mut retained = 0;
        for at in 0..self.len {
            let flow = self.items[at];
            if keep(flow) {
                self.items[retained] = flow;
                retained += 1;
            }
        }
        self.len = retained;
    }

    /// Returns the unused entries; [`Flows::grow`] sets how many were filled.
    #[inline]
    pub(crate) fn spare_mut(&mut self) -> &mut [Flow] {
        &mut self.items[self.len..]
    }

    #[inline]
    pub(crate) fn grow(&mut self, by: usize) {
        self.len += by;
        debug_assert!(self.len <= self.items.len(), "the list has its capacity");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_packs_its_fields_into_one_word() {
        let flow = Flow::new(4095, 17, 0x00ff_ffff, 250);
        assert_eq!((flow.src(), flow.dst(), flow.backlog()), (4095, 17, 0xff_ffff));
        assert_eq!((flow.age(250), flow.age(3)), (0, 9), "batches are counted modulo 256");
        let served = flow.served(0xff_fffe);
        assert_eq!((served.src(), served.dst(), served.backlog()), (4095, 17, 1));
        assert_eq!((served.age(250), served.with_age(128, 6).age(6)), (0, 128));
        let renewed = served.drained_at(77).renewed(5);
        assert_eq!((renewed.src(), renewed.dst(), renewed.backlog()), (4095, 17, 5));
        assert_eq!(renewed.age(250), 0);
    }

    //= spec/arbiter.md#R10
    #[test]
    fn flow_yields_at_most_64_times() {
        let mut flow = Flow::new(4095, 4094, 0xff_ffff, 0);
        for _ in 0..64 {
            assert_eq!(flow.no_yield(), 0);
            flow = flow.yielded();
        }
        assert_ne!(flow.no_yield(), 0);
        assert_ne!(
            flow.served(9).renewed(3).no_yield(),
            0,
            "neither served nor renewed it forgets"
        );
        assert_eq!((flow.src(), flow.dst(), flow.backlog()), (4095, 4094, 0xff_ffff));
    }

    #[test]
    fn flow_list_keeps_order_on_push_insert_and_retain() {
        let flows: Vec<Flow> = (0..6).map(|src| Flow::new(src, 9, 1, 0)).collect();
        let mut list = Flows::new(6);
        list.push(flows[0]);
        list.extend(&flows[1..4]);
        list.spare_mut()[..2].copy_from_slice(&flows[4..]);
        list.grow(2);
        assert_eq!(list.as_slice(), &flows);
        list.retain(|flow| flow.src() % 2 == 1);
        assert_eq!(list.as_slice(), [flows[1], flows[3], flows[5]]);
        let items = [0, 2, 3].map(|index| Flow::new(0, 9, 0, 0).drained_at(index));
        list.insert(&items, &[flows[0], flows[4], flows[2]]);
        assert_eq!(list.as_slice(), [0, 1, 3, 4, 5, 2].map(|src| flows[src]));
    }
}
