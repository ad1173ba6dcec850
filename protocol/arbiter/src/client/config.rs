//! How an endpoint of scheduled transfer is set up, and what it refuses.

use alloc::vec::Vec;

use onepipe_base::{Incarnation, ProcessId};
use onepipe_wire::{HEADER_OCTETS, NO_PATH, OWN_WAY, SLOT_HEADER_OCTETS};

use crate::ConfigError;

/// Octets that name the length of a packet in a slot frame.
pub(crate) const LENGTH_OCTETS: usize = 2;

/// How a path becomes a label: which switches on the way have a choice, and among how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Labels {
    /// How many switches a frame passes before the first that has a choice: 0, if the endpoint's
    /// link leads to it.
    pub first: u8,
    /// Upper links of that switch; 0 if nobody is to obey. Path `p` takes `p` modulo this there,
    /// and `p` divided by it at the next switch.
    pub ways: u8,
}

impl Labels {
    /// Switches choose as for other frames.
    pub const NONE: Self = Self { first: 0, ways: 0 };

    pub(crate) fn label(self, path: u8) -> [u8; 4] {
        let mut label = [OWN_WAY; 4];
        if path != NO_PATH && self.ways > 0 {
            let first = usize::from(self.first);
            let ways = [path % self.ways, path / self.ways];
            label.iter_mut().skip(first).zip(ways).for_each(|(octet, way)| *octet = way);
        }
        label
    }
}

/// How a [`crate::Client`] is set up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientConfig {
    /// Which endpoint it is: below `nodes`.
    pub process: ProcessId,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// Endpoints that the arbiter serves: the processes below this number.
    pub nodes: u32,
    /// The arbiters, the one that is asked first in front. When it does not answer the next is
    /// asked, round and round.
    pub arbiters: Vec<ProcessId>,
    /// Length of a timeslot, ns: what a frame of `frame_octets_max` takes on the endpoint's link.
    pub slot_ns: u64,
    /// Octets of a frame, its header with it. Default 1472: what fits a datagram on Ethernet.
    pub frame_octets_max: usize,
    /// Slots' worth of packets that may wait for one destination. Default 256.
    pub queue_slots_max: u32,
    /// Slots' worth of packets that may wait in all. Default 1024.
    pub slots_max: u32,
    /// A granted timeslot that began more than so many ago is refused. Default 16 (design:
    /// arbiter.md section 4).
    pub late_slots_max: u32,
    /// A granted timeslot that begins in more than so many is refused. Default 64, and what fits
    /// into 130 us: twice the 65 us that an arbiter works ahead.
    pub ahead_slots_max: u32,
    /// Control packets leave at intervals of so much on average, ns; up to four of them at once.
    /// Default the length of 64 timeslots.
    pub pace_ns: u64,
    /// How switches know the path. Default [`Labels::NONE`].
    pub labels: Labels,
}

/// Control packets that may leave at once.
pub(crate) const BURST: u64 = 4;

impl ClientConfig {
    /// The defaults.
    pub fn new(process: ProcessId, nodes: u32, arbiter: ProcessId, slot_ns: u64) -> Self {
        Self {
            process,
            incarnation: Incarnation(1),
            nodes,
            arbiters: alloc::vec![arbiter],
            slot_ns,
            frame_octets_max: 1_472,
            queue_slots_max: 256,
            slots_max: 1_024,
            late_slots_max: 16,
            ahead_slots_max: 64 + (130_000 / slot_ns.max(1)) as u32,
            pace_ns: 64 * slot_ns,
            labels: Labels::NONE,
        }
    }

    /// Octets of the packets of one timeslot, each with two octets for its length.
    pub const fn room_octets(&self) -> usize {
        self.frame_octets_max - HEADER_OCTETS - SLOT_HEADER_OCTETS
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let check = |is_right, name, value| match is_right {
            true => Ok(()),
            false => Err(ConfigError { name, value }),
        };
        let frame = self.frame_octets_max as u32;
        check((2..=1 << 15).contains(&self.nodes), "nodes", self.nodes)?;
        check(self.process.0 < self.nodes, "process", self.process.0)?;
        check((1..=8).contains(&self.arbiters.len()), "arbiters", self.arbiters.len() as u32)?;
        check((1..=1 << 30).contains(&self.slot_ns), "slot_ns", self.slot_ns as u32)?;
        check((256..=1 << 16).contains(&frame), "frame_octets_max", frame)?;
        check(
            (1..=1 << 14).contains(&self.queue_slots_max),
            "queue_slots_max",
            self.queue_slots_max,
        )?;
        check((1..=1 << 20).contains(&self.slots_max), "slots_max", self.slots_max)?;
        check(self.late_slots_max <= 1 << 12, "late_slots_max", self.late_slots_max)?;
        check(
            (1..=1 << 16).contains(&self.ahead_slots_max),
            "ahead_slots_max",
            self.ahead_slots_max,
        )
    }
}

/// Why a packet was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum EnqueueError {
    /// As much waits as may, for this destination or in all.
    #[error("as many packets wait as may")]
    Full,
    /// It does not fit a timeslot.
    #[error("{octets} octets do not fit into the {most} of a timeslot")]
    TooLong {
        /// Its length.
        octets: usize,
        /// [`ClientConfig::room_octets`], without the two of a length.
        most: usize,
    },
    /// There is no such endpoint, or it is this one.
    #[error("{} is no other endpoint", .0.0)]
    Unknown(ProcessId),
}
