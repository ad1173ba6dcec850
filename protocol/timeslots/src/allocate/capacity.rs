//! Capacity limits of links that several endpoints share: the uplinks of an oversubscribed rack,
//! or the way out of the fabric.

use alloc::vec::Vec;

/// Timeslots of a batch.
const SLOTS: usize = 64;

//= spec/arbiter.md#R12
/// The number of packets that may leave and enter each rack per timeslot. Packets within a rack
/// are not limited.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Capacity {
    /// The rack of each endpoint.
    racks: Vec<u16>,
    /// Outgoing and incoming links, by rack.
    links: [Vec<RackLink>; 2],
}

/// The shared link of a rack in one direction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RackLink {
    packets_max: u8,
    /// Timeslots with capacity for one more packet.
    free: u64,
    packets: [u8; SLOTS],
}

impl RackLink {
    fn new(packets_max: u8) -> Self {
        Self { packets_max, free: 0, packets: [0; SLOTS] }
    }

    fn take(&mut self, mut slots: u64) {
        while slots != 0 {
            let slot = slots.trailing_zeros() as usize;
            debug_assert!(self.packets[slot] < self.packets_max, "the link has capacity");
            self.packets[slot] += 1;
            if self.packets[slot] >= self.packets_max {
                self.free &= !(1 << slot);
            }
            slots &= slots - 1;
        }
    }
}

impl Capacity {
    /// Creates limits for racks of `rack_nodes` (at least 1) consecutive endpoints: `packets_max`
    /// packets (1 to 255) may leave and enter each rack per timeslot.
    pub fn of_racks(nodes: u32, rack_nodes: u32, packets_max: u8) -> Self {
        let rack_nodes = rack_nodes.max(1);
        let racks: Vec<u16> = (0..nodes).map(|node| (node / rack_nodes) as u16).collect();
        let count = racks.last().map_or(0, |rack| usize::from(*rack) + 1);
        let link = RackLink::new(packets_max.max(1));
        Self { racks, links: [alloc::vec![link.clone(); count], alloc::vec![link; count]] }
    }

    pub(super) fn nodes(&self) -> u32 {
        self.racks.len() as u32
    }

    /// Starts a batch with all links unused.
    pub(super) fn begin(&mut self, all: u64) {
        for link in self.links.iter_mut().flatten() {
            link.free = all;
            link.packets = [0; SLOTS];
        }
    }
}

/// A limit beside that of the two ends of a packet.
pub(super) trait Limit {
    /// Returns the timeslots in which one more packet may go from `src` to `dst`.
    fn free(&self, src: usize, dst: usize) -> u64;
    /// Takes one packet from `src` to `dst` in each of `slots`.
    fn take(&mut self, src: usize, dst: usize, slots: u64);
}

/// No limit.
pub(super) struct Unlimited;

impl Limit for Unlimited {
    #[inline]
    fn free(&self, _: usize, _: usize) -> u64 {
        u64::MAX
    }

    #[inline]
    fn take(&mut self, _: usize, _: usize, _: u64) {}
}

impl Limit for Capacity {
    fn free(&self, src: usize, dst: usize) -> u64 {
        let (from, to) = (self.racks[src], self.racks[dst]);
        match from == to {
            true => u64::MAX,
            false => {
                let [leaving, entering] = &self.links;
                leaving[usize::from(from)].free & entering[usize::from(to)].free
            }
        }
    }

    fn take(&mut self, src: usize, dst: usize, slots: u64) {
        let (from, to) = (self.racks[src], self.racks[dst]);
        if from != to {
            let [leaving, entering] = &mut self.links;
            leaving[usize::from(from)].take(slots);
            entering[usize::from(to)].take(slots);
        }
    }
}

/// A capacity that was built for another number of endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("capacities of {actual} endpoints do not fit an arbiter of {expected}")]
pub struct CapacityError {
    /// Endpoints of the allocator.
    pub expected: u32,
    /// Endpoints of the capacity.
    pub actual: u32,
}
