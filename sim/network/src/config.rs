//! The numbers of a network.

use onepipe_base::Timestamp;

use crate::{Aside, LinkConfig};

/// A host or a switch: hosts count from 0 as in the topology, switches follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The number as an index into a flat array.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A directed link, numbered as `Topology::links` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

impl LinkId {
    /// The number as an index into a flat array.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a host's CPU costs. All zero: infinitely fast, and it sees a frame as it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuConfig {
    /// For each frame taken from the network card, in ns.
    pub receive_ns: u64,
    /// For each frame handed to the network card, in ns.
    pub send_ns: u64,
    /// Frames are looked for at multiples of this, in ns. 0: at once.
    pub poll_ns: u64,
    /// Frames that wait for the CPU; further ones are dropped.
    pub ring_frames_max: usize,
}

impl Default for CpuConfig {
    fn default() -> Self {
        Self { receive_ns: 0, send_ns: 0, poll_ns: 0, ring_frames_max: 4_096 }
    }
}

/// How wrong clocks are at the start: each node draws its error from these ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockConfig {
    /// Offsets lie between minus this and this, in ns.
    pub offset_ns_max: u64,
    /// Drifts lie between minus this and this, in parts per billion.
    pub drift_ppb_max: u32,
}

/// The numbers of a network.
#[derive(Clone, Debug)]
pub struct Config {
    /// Between hosts and their switch.
    pub host_link: LinkConfig,
    /// Between switches.
    pub switch_link: LinkConfig,
    /// Every host's CPU.
    pub cpu: CpuConfig,
    /// Every node's clocks.
    pub clocks: ClockConfig,
    /// What a clock without error shows at the start. See [`crate::origin_of`].
    pub sync_origin: Timestamp,
    /// The longest frame that any machine writes, in bytes.
    pub frame_len_max: usize,
    /// A host is polled for frames until this much waits in its network card, in ns of sending; and
    /// again when a quarter of it is left. Messages are stamped at most this long before they
    /// leave.
    pub card_backlog_ns: u64,
    /// What it costs that the switches' machines run beside their chips. `None`: they are the
    /// chips.
    pub aside: Option<Aside>,
    /// The priority class of a frame, on links that have several.
    pub class: fn(&[u8]) -> u8,
    /// Whether the nodes take turns: each runs on alone for as long as nothing that happens at its
    /// neighbours can reach it, which is as long as its links are. That is faster, because its
    /// memory stays in the cache, and each node lives through the same. But the application is
    /// called out of the order of time, by two such lengths at most: with what it learns at one
    /// node it must not change what happens at another. Simultaneous frames of one node may come
    /// in another order. Without effect where a link takes no time.
    pub takes_turns: bool,
    /// How many of the last events to keep as text.
    pub trace_lines_max: usize,
    /// A run has a bound, whatever its machines and its application do: after so many steps
    /// (events, frames that machines wrote, and what they said) time stands still for good.
    pub steps_max: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            host_link: LinkConfig::default(),
            switch_link: LinkConfig::default(),
            cpu: CpuConfig::default(),
            clocks: ClockConfig::default(),
            sync_origin: Timestamp::from_ns(1 << 50),
            frame_len_max: 1_472,
            card_backlog_ns: 1_000,
            aside: None,
            class: |_| 0,
            takes_turns: false,
            trace_lines_max: 0,
            steps_max: u64::MAX,
        }
    }
}
