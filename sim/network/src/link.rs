//! One direction of a cable, with the queue before it.

use onepipe_base::Port;
use onepipe_sim_engine::{Instant, NANOSECOND, Random};

use crate::faults::FaultState;
use crate::priority::Classes;
use crate::{LinkFaults, NodeId};

/// What a link can carry, and how much may wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// Bits a second. Rounded to whole picoseconds a byte (100 Gbit/s: 80).
    pub rate_bits_per_s: u64,
    /// From the end of sending to the end of arriving, in ns; a switch's own delay is part of it.
    pub propagation_ns: u64,
    /// The egress queue, in bytes; a frame that would not fit is dropped.
    pub queue_bytes_max: u64,
    /// A frame that finds more than this waiting is marked (the ECN bit), in bytes.
    pub mark_bytes: u64,
    /// What a frame costs on the wire beside its own bytes: Ethernet's preamble, header, check and
    /// gap (38), IPv4 (20) and UDP (8).
    pub overhead_bytes: u64,
    /// Strict priorities: 1 or more classes, class 0 first. See [`crate::Config::class`].
    pub classes: u8,
}

impl Default for LinkConfig {
    /// 100 Gbit/s, 500 ns, 1 MiB of queue, marked from 65 packets of 1,500 bytes on (DCTCP's
    /// threshold for 10 Gbit/s).
    fn default() -> Self {
        Self {
            rate_bits_per_s: 100_000_000_000,
            propagation_ns: 500,
            queue_bytes_max: 1 << 20,
            mark_bytes: 65 * 1_500,
            overhead_bytes: 66,
            classes: 1,
        }
    }
}

/// A link's state.
#[derive(Debug)]
pub(crate) struct Link {
    pub from: NodeId,
    pub to: NodeId,
    pub to_port: Port,
    ps_per_byte: u64,
    propagation_ps: u64,
    queue_bytes_max: u64,
    mark_bytes: u64,
    overhead_bytes: u64,
    /// When everything accepted so far will have left: occupancy follows from it.
    pub free_at: Instant,
    /// Counts cuts: what was on the link at a cut is lost.
    pub epoch: u32,
    /// Reasons to be down: cut, partition, a dead end each count.
    pub is_down: bool,
    pub faults: Option<Box<FaultState>>,
    /// With more than one class frames wait in real queues.
    pub classes: Option<Box<Classes>>,
}

/// What the egress queue says to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It will arrive then; mark it if the queue was long.
    At { arrival: Instant, is_marked: bool },
    /// No room.
    Full,
}

impl Link {
    pub fn new(config: LinkConfig, from: NodeId, to: NodeId, to_port: Port) -> Self {
        let bits = config.rate_bits_per_s.max(1);
        Self {
            from,
            to,
            to_port,
            ps_per_byte: (8_000_000_000_000 + bits / 2) / bits,
            propagation_ps: config.propagation_ns * NANOSECOND,
            queue_bytes_max: config.queue_bytes_max,
            mark_bytes: config.mark_bytes,
            overhead_bytes: config.overhead_bytes,
            free_at: Instant::START,
            epoch: 0,
            is_down: false,
            faults: None,
            classes: (config.classes > 1).then(|| Box::new(Classes::new(config.classes))),
        }
    }

    /// Takes a frame of `bytes` into the one queue of a link without priorities: its departure and
    /// arrival are settled at once.
    #[inline]
    pub fn admit(&mut self, now: Instant, bytes: usize) -> Admission {
        let waiting = self.backlog_bytes(now);
        let size = bytes as u64 + self.overhead_bytes;
        if waiting + size > self.queue_bytes_max {
            return Admission::Full;
        }
        self.free_at = self.free_at.max(now).after(size * self.ps_per_byte);
        let arrival = self.free_at.after(self.propagation_ps);
        Admission::At { arrival, is_marked: waiting > self.mark_bytes }
    }

    /// Bytes that wait or are being sent.
    #[inline]
    pub fn backlog_bytes(&self, now: Instant) -> u64 {
        match &self.classes {
            None => {
                let ps = self.free_at.since(now);
                if ps == 0 { 0 } else { ps / self.ps_per_byte.max(1) }
            }
            Some(classes) => classes.bytes(),
        }
    }

    /// How long a frame of `bytes` occupies the link, in ps.
    pub fn sending_ps(&self, bytes: usize) -> u64 {
        (bytes as u64 + self.overhead_bytes) * self.ps_per_byte
    }

    /// From the end of sending to the arrival, in ps.
    pub fn propagation_ps(&self) -> u64 {
        self.propagation_ps
    }

    /// Whether `bytes` more fit a queue of one class that holds `waiting`.
    pub fn has_room(&self, waiting: u64, bytes: usize) -> bool {
        waiting + bytes as u64 + self.overhead_bytes <= self.queue_bytes_max
    }

    /// Whether a frame that finds `waiting` bytes is to be marked.
    pub fn is_long(&self, waiting: u64) -> bool {
        waiting > self.mark_bytes
    }

    /// Switches faults on or, with the default, off.
    pub fn set_faults(&mut self, faults: LinkFaults, random: impl FnOnce() -> Random) {
        if faults == LinkFaults::default() {
            self.faults = None;
        } else if let Some(state) = &mut self.faults {
            state.faults = faults;
        } else {
            self.faults = Some(Box::new(FaultState::new(faults, random())));
        }
    }

    /// Loses everything on the link.
    pub fn cut(&mut self, now: Instant) {
        self.epoch = self.epoch.wrapping_add(1);
        self.free_at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: LinkConfig = LinkConfig {
        rate_bits_per_s: 100_000_000_000,
        propagation_ns: 500,
        queue_bytes_max: 3_000,
        mark_bytes: 1_500,
        overhead_bytes: 0,
        classes: 1,
    };

    fn link() -> Link {
        Link::new(FAST, NodeId(0), NodeId(1), Port(0))
    }

    #[test]
    fn frames_leave_one_behind_the_other_and_the_queue_is_bounded() {
        let mut link = link();
        let now = Instant::from_ps(1_000_000);
        let at = |arrival: u64, is_marked| Admission::At {
            arrival: Instant::from_ps(arrival),
            is_marked,
        };
        assert_eq!(link.admit(now, 1_000), at(1_000_000 + 80_000 + 500_000, false));
        assert_eq!(link.admit(now, 1_000), at(1_000_000 + 160_000 + 500_000, false));
        assert_eq!(link.admit(now, 1_000), at(1_000_000 + 240_000 + 500_000, true));
        assert_eq!(link.admit(now, 1), Admission::Full);
        // Half of it has left 120 ns later.
        let later = now.after(120_000);
        assert_eq!(link.backlog_bytes(later), 1_500);
        assert_eq!(link.admit(later, 1_000), at(1_000_000 + 320_000 + 500_000, false));
    }

    #[test]
    fn an_idle_link_sends_at_once() {
        let mut link = link();
        link.admit(Instant::START, 1_000);
        let now = Instant::from_ps(9_000_000);
        assert_eq!(link.backlog_bytes(now), 0);
        let arrival = Instant::from_ps(9_000_000 + 8_000 + 500_000);
        assert_eq!(link.admit(now, 100), Admission::At { arrival, is_marked: false });
    }
}
