//! Counters of a network.

use onepipe_wire::Opcode;

/// What a frame that takes a hop is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HopKind {
    /// It carries messages.
    Data,
    /// It says what has arrived, or asks.
    Answer,
    /// It opens a connection, or grants that.
    Opening,
    /// It carries promises and nothing else.
    Beacon,
    /// Anything else.
    Other,
}

impl HopKind {
    /// All of them, in the order of [`Stats::hops_by_kind`].
    pub const ALL: [Self; 5] = [Self::Data, Self::Answer, Self::Opening, Self::Beacon, Self::Other];

    /// What a frame with this opcode is for.
    const fn of(opcode: Opcode) -> Self {
        match opcode.in_best_effort() {
            Opcode::Data | Opcode::Fragment => Self::Data,
            Opcode::Ack | Opcode::Nak | Opcode::Probe => Self::Answer,
            Opcode::Connect | Opcode::Grant | Opcode::Reset => Self::Opening,
            Opcode::Beacon => Self::Beacon,
            _ => Self::Other,
        }
    }

    /// What a frame is for whose byte for the opcode is this: without a branch, because of all
    /// that is done with a frame this is foreseeable the least.
    #[inline]
    pub(crate) fn of_byte(byte: u8) -> Self {
        Self::ALL[usize::from(KINDS[usize::from(byte)])]
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Answer => "answers",
            Self::Opening => "opening",
            Self::Beacon => "beacons",
            Self::Other => "others",
        }
    }
}

/// For each byte the place of its [`HopKind`].
const KINDS: [u8; 256] = {
    let mut kinds = [HopKind::Other as u8; 256];
    let mut at = 0;
    while at < Opcode::ALL.len() {
        let opcode = Opcode::ALL[at];
        kinds[opcode as usize] = HopKind::of(opcode) as u8;
        at += 1;
    }
    kinds
};

/// Frames that did not get through, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// An egress queue was full.
    pub queue_full: u64,
    /// Lost by a fault switch, alone or in a burst.
    pub lost: u64,
    /// The link was down, or was cut while they were on it.
    pub link_down: u64,
    /// They arrived at a node that had crashed.
    pub node_down: u64,
    /// They waited for a CPU and the ring was full.
    pub ring_full: u64,
    /// A machine would not have them (`Verdict::Dropped`): corrupt, stale or foreign.
    pub refused: u64,
}

/// What happened, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Everything that was taken from the event queue.
    pub events: u64,
    /// Frames that arrived at a node over a link: the packet-hop events.
    pub hops: u64,
    /// The same by what they are for: see [`HopKind`].
    pub hops_by_kind: [u64; HopKind::ALL.len()],
    /// Frames that machines wrote, beacons included.
    pub polled: u64,
    /// Frames that did not get through.
    pub drops: Drops,
    /// Frames that met a long queue.
    pub marked: u64,
    /// Frames changed by a fault switch.
    pub corrupted: u64,
    /// Second copies made by a fault switch.
    pub duplicated: u64,
    /// Frames held up by a fault switch.
    pub delayed: u64,
}

impl Stats {
    /// A frame whose byte for the opcode is this has arrived.
    #[inline]
    pub(crate) fn on_hop(&mut self, opcode: u8) {
        self.hops += 1;
        self.hops_by_kind[HopKind::of_byte(opcode) as usize] += 1;
    }
}
