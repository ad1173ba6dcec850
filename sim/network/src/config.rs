//! Parameters of a network.

use std::num::NonZeroUsize;

use onepipe_base::Timestamp;
use onepipe_sim_engine::Span;

use crate::{LinkConfig, OffChipCpu};

/// Costs of a host's CPU. With all zeros the CPU is infinitely fast and polls continuously.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuConfig {
    /// CPU time for each frame received from the NIC, in ns.
    pub receive_ns: u64,
    /// CPU time for each frame passed to the NIC, in ns.
    pub send_ns: u64,
    /// Polling interval of the NIC, in ns. 0: frames are seen as they arrive.
    pub poll_ns: u64,
    /// Capacity of the receive ring in frames; frames beyond it are dropped.
    pub ring_frames_max: usize,
}

impl Default for CpuConfig {
    fn default() -> Self {
        Self { receive_ns: 0, send_ns: 0, poll_ns: 0, ring_frames_max: 4_096 }
    }
}

/// Ranges from which each node draws its clock error at the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockConfig {
    /// Offsets are drawn from plus or minus this value, in ns.
    pub offset_ns_max: u64,
    /// Drifts are drawn from plus or minus this value, in parts per billion.
    pub drift_ppb_max: u32,
}

/// Clocks that are worse than the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockTail {
    /// Share of the clocks, in thousandths.
    pub permille: u32,
    /// Their offsets are drawn from plus or minus this value, in ns.
    pub offset_ns_max: u64,
}

/// Parameters of a network.
#[derive(Clone, Debug)]
pub struct Config {
    /// Links between a host and its switch.
    pub host_link: LinkConfig,
    /// Links between switches.
    pub switch_link: LinkConfig,
    /// CPU of every host.
    pub cpu: CpuConfig,
    /// Clocks of every node.
    pub clocks: ClockConfig,
    /// Clocks with a larger offset than `clocks`. `None`: there are none.
    pub clock_tail: Option<ClockTail>,
    /// Reading of a clock without error at the start. See [`crate::clock_origin`].
    pub sync_origin: Timestamp,
    /// Length of the longest frame that any machine writes, in bytes.
    pub frame_len_max: usize,
    /// Largest backlog of a host's NIC, in ns of transmission time. A host is polled for frames
    /// until its NIC holds this much, and again when a quarter of it is left. Messages are stamped
    /// at most this long before they leave.
    pub nic_backlog_ns: u64,
    /// Cost of running the switches' machines outside their chips. `None`: they run in the chips.
    pub off_chip_cpu: Option<OffChipCpu>,
    /// Returns the priority class of a frame, on links that have several classes.
    pub class: fn(&[u8]) -> u8,
    /// Whether each node runs ahead alone for one lookahead window, the shortest time in which an
    /// event at a neighbour can affect it (its shortest incoming link). This is faster because the
    /// node's state stays in the cache, and each node sees the same events. But the application is
    /// called out of time order, by at most two windows: it must not use an observation at one node
    /// to change what happens at another. Simultaneous frames of one node may be reordered. Has no
    /// effect if any link has no delay.
    pub uses_lookahead: bool,
    /// Number of threads that run nodes in lookahead windows. With `Some`, even of one thread, the
    /// application is divided into one part for each node, and what happens at one node has an
    /// effect on the application at another one in the next round of windows only: so the history
    /// is the same for every number of threads. `None`: one thread, and an application that is not
    /// divided. Has an effect only with lookahead, in a fabric in which no node sends to one of its
    /// own colour, and with an application that can be divided
    /// ([`crate::Network::allow_threads`]).
    pub threads: Option<NonZeroUsize>,
    /// Resolution of the event queue without lookahead. Affects the speed only.
    pub queue_span: Span,
    /// Number of most recent events that are kept as text.
    pub trace_lines_max: usize,
    /// Limit on the steps of a run: events, frames written by machines, and machine events. It ends
    /// a run in which machines or the application never come to rest: nothing happens beyond it.
    pub steps_max: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            host_link: LinkConfig::default(),
            switch_link: LinkConfig::default(),
            cpu: CpuConfig::default(),
            clocks: ClockConfig::default(),
            clock_tail: None,
            sync_origin: Timestamp::from_ns(1 << 50),
            frame_len_max: 1_472,
            nic_backlog_ns: 1_000,
            off_chip_cpu: None,
            class: |_| 0,
            uses_lookahead: false,
            threads: None,
            queue_span: Span::FABRIC,
            trace_lines_max: 0,
            steps_max: u64::MAX,
        }
    }
}
