//! Deterministic generators of application traffic.

use onepipe_base::ProcessId;
use onepipe_sim_engine::Random;

/// A message to submit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutgoingMessage {
    /// The receiver.
    pub to: ProcessId,
    /// Length of the payload in bytes.
    pub bytes: u32,
}

/// When a process submits its next scattering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendPattern {
    /// Closed loop: as soon as fewer than `messages_max` messages of the process are outstanding
    /// (neither delivered nor failed).
    ClosedLoop {
        /// Limit on outstanding messages.
        messages_max: u32,
    },
    /// Open loop: at a fixed interval, whatever the outcome of earlier messages. The first
    /// submission is delayed by a random part of the interval.
    OpenLoop {
        /// Interval in ns.
        interval_ns: u64,
    },
}

/// Destinations and sizes of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Every process sends to all others in turn.
    AllToAll {
        /// Messages per scattering.
        fan_out: u32,
        /// Bytes per message.
        bytes: u32,
    },
    /// Scatterings of random width and size to random processes, the sender included.
    Random {
        /// Limit on the messages per scattering; at least 1 is sent.
        fan_out_max: u32,
        /// Limit on the bytes per message; most messages are small.
        bytes_max: u32,
    },
    /// One message to the process half-way around the ring of process ids.
    Ping {
        /// Bytes per message.
        bytes: u32,
    },
}

impl Workload {
    /// Returns the largest total payload of one scattering, in bytes.
    pub fn scattering_bytes_max(self) -> u64 {
        let (messages, bytes) = match self {
            Self::AllToAll { fan_out, bytes } => (fan_out, bytes),
            Self::Random { fan_out_max, bytes_max } => (fan_out_max, bytes_max),
            Self::Ping { bytes } => (1, bytes),
        };
        u64::from(messages) * u64::from(bytes)
    }
}

/// Application traffic: what is sent, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Destinations and sizes.
    pub workload: Workload,
    /// Submission times.
    pub pattern: SendPattern,
}

/// Generates the scatterings of one process.
#[derive(Clone, Debug)]
pub struct WorkloadGenerator {
    workload: Workload,
    from: ProcessId,
    processes: u32,
    /// Distance on the ring of process ids to the last receiver of the all-to-all pattern.
    distance: u32,
    random: Random,
}

impl WorkloadGenerator {
    /// Creates the generator of process `from`, one of `processes`.
    pub fn new(workload: Workload, from: ProcessId, processes: u32, seed: u64) -> Self {
        let random = Random::named(seed, "scatterings", from.0.into());
        Self { workload, from, processes, distance: 0, random }
    }

    /// Writes the next scattering to `scattering`, replacing its content.
    pub fn next(&mut self, scattering: &mut Vec<OutgoingMessage>) {
        scattering.clear();
        match self.workload {
            Workload::AllToAll { fan_out, bytes } => {
                let others = self.processes.saturating_sub(1).max(1);
                for _ in 0..fan_out.min(others) {
                    self.distance = self.distance % others + 1;
                    let to = self.peer_at(self.distance);
                    scattering.push(OutgoingMessage { to, bytes });
                }
            }
            Workload::Random { fan_out_max, bytes_max } => {
                for _ in 0..self.random.between(1, fan_out_max.max(1).into()) {
                    let to = ProcessId(self.random.below(self.processes.into()) as u32);
                    scattering.push(OutgoingMessage { to, bytes: self.draw_bytes(bytes_max) });
                }
            }
            Workload::Ping { bytes } => {
                scattering.push(OutgoingMessage { to: self.peer_at(self.processes / 2), bytes });
            }
        }
    }

    fn peer_at(&self, distance: u32) -> ProcessId {
        ProcessId((self.from.0 + distance) % self.processes)
    }

    /// Draws the length of a payload: 1 in 256 is up to `bytes_max`, 15 in 256 are up to four
    /// packets, and all others are small.
    fn draw_bytes(&mut self, bytes_max: u32) -> u32 {
        let max = match self.random.below(256) {
            0 => bytes_max,
            1..16 => bytes_max.min(6_000),
            _ => bytes_max.min(200),
        };
        self.random.between(0, max.into()) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_to_all_visits_every_peer_equally() {
        let workload = Workload::AllToAll { fan_out: 4, bytes: 64 };
        let mut generator = WorkloadGenerator::new(workload, ProcessId(3), 9, 1);
        let (mut scattering, mut seen) = (Vec::new(), [0; 9]);
        for _ in 0..10 {
            generator.next(&mut scattering);
            assert_eq!(scattering.len(), 4);
            scattering.iter().for_each(|message| seen[message.to.index()] += 1);
        }
        assert_eq!(seen, [5, 5, 5, 0, 5, 5, 5, 5, 5]);
    }

    #[test]
    fn random_scatterings_span_their_limits() {
        let workload = Workload::Random { fan_out_max: 3, bytes_max: 100_000 };
        let mut generator = WorkloadGenerator::new(workload, ProcessId(0), 4, 1);
        let (mut scattering, mut longest, mut widest) = (Vec::new(), 0, 0);
        for _ in 0..5_000 {
            generator.next(&mut scattering);
            widest = widest.max(scattering.len());
            longest = scattering.iter().map(|message| message.bytes).fold(longest, u32::max);
        }
        assert_eq!(widest, 3);
        assert!((50_000..=100_000).contains(&longest), "{longest}");
    }
}
