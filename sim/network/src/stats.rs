//! Counters of a network.

use onepipe_wire::{OPCODE_AT, Opcode};

/// Purpose of a frame on a hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HopKind {
    /// Carries messages.
    Data,
    /// Acknowledges or probes.
    Ack,
    /// Opens, grants or resets a connection.
    Handshake,
    /// Carries promises only.
    Beacon,
    /// Any other frame.
    Other,
}

impl HopKind {
    /// All kinds, in the order of [`Stats::hops_by_kind`].
    pub const ALL: [Self; 5] = [Self::Data, Self::Ack, Self::Handshake, Self::Beacon, Self::Other];

    /// Returns the kind of a frame with this opcode.
    const fn of(opcode: Opcode) -> Self {
        match opcode.in_best_effort() {
            Opcode::Data | Opcode::Fragment | Opcode::SharedData => Self::Data,
            Opcode::Ack | Opcode::Nak | Opcode::Probe | Opcode::ReliableAckBundle => Self::Ack,
            Opcode::Connect | Opcode::Grant | Opcode::Reset => Self::Handshake,
            Opcode::Beacon | Opcode::Solicit => Self::Beacon,
            _ => Self::Other,
        }
    }

    /// Returns the kind of a frame. A table lookup, because a branch on the opcode would often be
    /// mispredicted.
    #[inline]
    pub fn of_frame(frame: &[u8]) -> Self {
        let opcode = frame.get(OPCODE_AT).copied().unwrap_or(0);
        Self::ALL[usize::from(KINDS[usize::from(opcode)])]
    }

    /// Returns the name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Ack => "acks",
            Self::Handshake => "handshakes",
            Self::Beacon => "beacons",
            Self::Other => "others",
        }
    }
}

/// The index of the [`HopKind`] for each opcode byte.
const KINDS: [u8; 256] = {
    let mut kinds = [HopKind::Other as u8; 256];
    let mut index = 0;
    while index < Opcode::ALL.len() {
        let opcode = Opcode::ALL[index];
        kinds[opcode as usize] = HopKind::of(opcode) as u8;
        index += 1;
    }
    kinds
};

/// Dropped frames by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// The egress queue was full.
    pub queue_full: u64,
    /// Dropped by a loss fault of a link.
    pub lost: u64,
    /// The link was down, or was cut while the frame was on it.
    pub link_down: u64,
    /// The receiving node was down.
    pub node_down: u64,
    /// The receive ring of a host or the backlog of an off-chip CPU was full.
    pub ring_full: u64,
    /// Rejected by a machine (`Verdict::Dropped`): corrupt, stale or misrouted.
    pub rejected: u64,
}

/// Counters of a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Events taken from the event queues.
    pub events: u64,
    /// Packet-hop events: frames that arrived at a node over a link.
    pub hops: u64,
    /// Packet-hop events by [`HopKind`].
    pub hops_by_kind: [u64; HopKind::ALL.len()],
    /// Frames written by machines, beacons included.
    pub polled: u64,
    /// Dropped frames.
    pub drops: Drops,
    /// Frames marked because of a long queue.
    pub marked: u64,
    /// Frames corrupted by a link fault.
    pub corrupted: u64,
    /// Frames duplicated by a link fault.
    pub duplicated: u64,
    /// Frames delayed by a link fault.
    pub delayed: u64,
}

impl Stats {
    /// Adds the counters of another part of the network.
    pub(crate) fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.hops += other.hops;
        for (hops, others) in self.hops_by_kind.iter_mut().zip(other.hops_by_kind) {
            *hops += others;
        }
        self.polled += other.polled;
        let Drops { queue_full, lost, link_down, node_down, ring_full, rejected } = other.drops;
        self.drops.queue_full += queue_full;
        self.drops.lost += lost;
        self.drops.link_down += link_down;
        self.drops.node_down += node_down;
        self.drops.ring_full += ring_full;
        self.drops.rejected += rejected;
        self.marked += other.marked;
        self.corrupted += other.corrupted;
        self.duplicated += other.duplicated;
        self.delayed += other.delayed;
    }

    /// Counts the arrival of a frame of this kind.
    #[inline]
    pub(crate) fn on_hop(&mut self, kind: HopKind) {
        self.hops += 1;
        self.hops_by_kind[kind as usize] += 1;
    }
}
