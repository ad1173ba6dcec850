//! One direction of a cable and its egress queue.

use onepipe_sim_engine::{Instant, NANOSECOND, Random};

use crate::LinkFaults;
use crate::link_faults::FaultState;
use crate::priority::PriorityQueues;

/// Rate, delay and queue limits of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// Rate in bits/s, rounded to whole picoseconds per byte (100 Gbit/s: 80).
    pub rate_bits_per_s: u64,
    /// Delay from the end of transmission to the arrival, in ns, including the switch's own delay.
    pub propagation_ns: u64,
    /// Capacity of the egress queue in bytes; a frame that does not fit is dropped.
    pub queue_bytes_max: u64,
    /// A frame that finds more than this many bytes queued is marked (ECN).
    pub ecn_threshold_bytes: u64,
    /// Bytes that a frame occupies on the wire in addition to its own: Ethernet preamble, header,
    /// FCS and inter-frame gap (38), IPv4 (20) and UDP (8).
    pub overhead_bytes: u64,
    /// Number of strict-priority classes, at least 1; class 0 is served first. See
    /// [`crate::Config::class`].
    pub classes: u8,
}

impl Default for LinkConfig {
    /// 100 Gbit/s, 500 ns, a queue of 1 MiB, marks from 65 packets of 1,500 bytes on (the threshold
    /// of DCTCP for 10 Gbit/s).
    fn default() -> Self {
        Self {
            rate_bits_per_s: 100_000_000_000,
            propagation_ns: 500,
            queue_bytes_max: 1 << 20,
            ecn_threshold_bytes: 65 * 1_500,
            overhead_bytes: 66,
            classes: 1,
        }
    }
}

/// State of a link that its sending node changes.
#[derive(Debug)]
pub(crate) struct Link {
    ps_per_byte: u64,
    propagation_ps: u64,
    queue_bytes_max: u64,
    ecn_threshold_bytes: u64,
    overhead_bytes: u64,
    /// When all accepted frames will have left. The queue length follows from it.
    pub free_at: Instant,
    /// Whether the link is cut.
    pub is_down: bool,
    pub faults: Option<Box<FaultState>>,
    /// Queues of a link with more than one class.
    pub priority_queues: Option<Box<PriorityQueues>>,
}

/// Result of admitting a frame to the egress queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The frame was queued and will arrive at `arrival`.
    Accepted { arrival: Instant, is_marked: bool },
    /// The queue is full.
    Full,
}

impl Link {
    pub fn new(config: LinkConfig) -> Self {
        let bits = config.rate_bits_per_s.max(1);
        Self {
            ps_per_byte: (8_000_000_000_000 + bits / 2) / bits,
            propagation_ps: config.propagation_ns * NANOSECOND,
            queue_bytes_max: config.queue_bytes_max,
            ecn_threshold_bytes: config.ecn_threshold_bytes,
            overhead_bytes: config.overhead_bytes,
            free_at: Instant::START,
            is_down: false,
            faults: None,
            priority_queues: (config.classes > 1)
                .then(|| Box::new(PriorityQueues::new(config.classes))),
        }
    }

    /// Admits a frame of `bytes` to the single queue of a link without priorities, and computes its
    /// arrival.
    #[inline]
    pub fn admit(&mut self, now: Instant, bytes: usize) -> Admission {
        let queued_bytes = self.backlog_bytes(now);
        let wire_bytes = bytes as u64 + self.overhead_bytes;
        if queued_bytes + wire_bytes > self.queue_bytes_max {
            return Admission::Full;
        }
        self.free_at = self.free_at.max(now).after(wire_bytes * self.ps_per_byte);
        let arrival = self.free_at.after(self.propagation_ps);
        Admission::Accepted { arrival, is_marked: queued_bytes > self.ecn_threshold_bytes }
    }

    /// Returns the bytes that are queued or in transmission, including the overhead of each frame.
    /// On a link with several classes: the bytes of the queued frames only.
    #[inline]
    pub fn backlog_bytes(&self, now: Instant) -> u64 {
        match &self.priority_queues {
            None => {
                let ps = self.free_at.since(now);
                if ps == 0 { 0 } else { ps / self.ps_per_byte.max(1) }
            }
            Some(queues) => queues.total_bytes(),
        }
    }

    /// Returns the transmission time of a frame of `bytes`, in ps.
    pub fn transmission_ps(&self, bytes: usize) -> u64 {
        (bytes as u64 + self.overhead_bytes) * self.ps_per_byte
    }

    /// Returns the delay from the end of transmission to the arrival, in ps.
    pub fn propagation_ps(&self) -> u64 {
        self.propagation_ps
    }

    /// Whether `bytes` more fit into a queue that holds `queued_bytes`.
    pub fn has_space(&self, queued_bytes: u64, bytes: usize) -> bool {
        queued_bytes + bytes as u64 + self.overhead_bytes <= self.queue_bytes_max
    }

    /// Whether a frame that finds `queued_bytes` in its queue is to be marked.
    pub fn exceeds_ecn_threshold(&self, queued_bytes: u64) -> bool {
        queued_bytes > self.ecn_threshold_bytes
    }

    /// Replaces the fault settings. The default settings switch faults off.
    pub fn set_faults(&mut self, faults: LinkFaults, random: impl FnOnce() -> Random) {
        if faults == LinkFaults::default() {
            self.faults = None;
        } else if let Some(state) = &mut self.faults {
            state.faults = faults;
        } else {
            self.faults = Some(Box::new(FaultState::new(faults, random())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: LinkConfig = LinkConfig {
        rate_bits_per_s: 100_000_000_000,
        propagation_ns: 500,
        queue_bytes_max: 3_000,
        ecn_threshold_bytes: 1_500,
        overhead_bytes: 0,
        classes: 1,
    };

    fn link() -> Link {
        Link::new(FAST)
    }

    #[test]
    fn frames_serialize_and_the_queue_is_bounded() {
        let mut link = link();
        let now = Instant::from_ps(1_000_000);
        let at = |arrival: u64, is_marked| Admission::Accepted {
            arrival: Instant::from_ps(arrival),
            is_marked,
        };
        assert_eq!(link.admit(now, 1_000), at(1_000_000 + 80_000 + 500_000, false));
        assert_eq!(link.admit(now, 1_000), at(1_000_000 + 160_000 + 500_000, false));
        assert_eq!(link.admit(now, 1_000), at(1_000_000 + 240_000 + 500_000, true));
        assert_eq!(link.admit(now, 1), Admission::Full);
        // Half of the backlog has left 120 ns later.
        let later = now.after(120_000);
        assert_eq!(link.backlog_bytes(later), 1_500);
        assert_eq!(link.admit(later, 1_000), at(1_000_000 + 320_000 + 500_000, false));
    }

    #[test]
    fn idle_link_sends_immediately() {
        let mut link = link();
        link.admit(Instant::START, 1_000);
        let now = Instant::from_ps(9_000_000);
        assert_eq!(link.backlog_bytes(now), 0);
        let arrival = Instant::from_ps(9_000_000 + 8_000 + 500_000);
        assert_eq!(link.admit(now, 100), Admission::Accepted { arrival, is_marked: false });
    }
}
