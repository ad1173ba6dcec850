//! Faults of a link: loss, corruption, duplication and reordering.

use onepipe_sim_engine::Random;
use onepipe_wire::{Header, Opcode};
use zerocopy::FromBytes;

/// Loss probabilities in parts per million by kind of frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Frames that carry messages.
    pub data_ppm: u32,
    /// Frames that carry promises only (beacons).
    pub beacon_ppm: u32,
    /// All other frames (ACK, probe, connect, join, ...), malformed ones included.
    pub control_ppm: u32,
}

impl Loss {
    /// Returns the same probability for every kind of frame.
    pub fn uniform(ppm: u32) -> Self {
        Self { data_ppm: ppm, beacon_ppm: ppm, control_ppm: ppm }
    }

    fn of(&self, bytes: &[u8]) -> u32 {
        let opcode = Header::ref_from_prefix(bytes).ok().and_then(|(h, _)| h.opcode().ok());
        match opcode {
            Some(opcode) if opcode.has_messages() => self.data_ppm,
            Some(Opcode::Beacon | Opcode::Solicit) => self.beacon_ppm,
            _ => self.control_ppm,
        }
    }
}

/// The fault settings of one directed link. By default all are off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkFaults {
    /// Frames that are lost independently of each other.
    pub loss: Loss,
    /// Additional loss of frames of any kind, in parts per billion, for links that are nearly
    /// lossless.
    pub loss_ppb: u32,
    /// Probability that a frame starts a burst of losses, in parts per million.
    pub burst_ppm: u32,
    /// Length of a burst in frames.
    pub burst_frames: u32,
    /// Frames that are corrupted: from a single bit flip to random content or truncation.
    pub corrupt_ppm: u32,
    /// Frames that arrive twice. The second copy is delayed by up to `delay_ns_max`.
    pub duplicate_ppm: u32,
    /// Frames that are delayed by up to `delay_ns_max`, so that the link is not FIFO.
    pub reorder_ppm: u32,
    /// Largest delay for `duplicate_ppm` and `reorder_ppm`, in ns.
    pub delay_ns_max: u64,
}

impl LinkFaults {
    /// Whether frames arrive in the order in which they were sent.
    pub fn is_fifo(&self) -> bool {
        self.reorder_ppm == 0 && self.duplicate_ppm == 0
    }
}

/// The faults that were drawn for one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FrameOutcome {
    pub is_lost: bool,
    pub is_corrupted: bool,
    /// Additional delay of the frame.
    pub delay_ns: u64,
    /// Additional delay of a second copy, if there is one.
    pub duplicate_delay_ns: Option<u64>,
}

/// The fault settings of a link with their random stream and burst state.
#[derive(Clone, Debug)]
pub(crate) struct FaultState {
    pub faults: LinkFaults,
    random: Random,
    burst_left: u32,
}

impl FaultState {
    pub fn new(faults: LinkFaults, random: Random) -> Self {
        Self { faults, random, burst_left: 0 }
    }

    /// Draws the faults of one frame.
    pub fn draw_outcome(&mut self, bytes: &[u8]) -> FrameOutcome {
        let (faults, random) = (&self.faults, &mut self.random);
        if self.burst_left == 0 && random.happens(faults.burst_ppm) {
            self.burst_left = faults.burst_frames;
        }
        if self.burst_left > 0 {
            self.burst_left -= 1;
            return FrameOutcome { is_lost: true, ..FrameOutcome::default() };
        }
        if random.happens(faults.loss.of(bytes)) || random.happens_rarely(faults.loss_ppb) {
            return FrameOutcome { is_lost: true, ..FrameOutcome::default() };
        }
        let mut delay = |ppm| random.happens(ppm).then(|| random.between(0, faults.delay_ns_max));
        let delay_ns = delay(faults.reorder_ppm).unwrap_or(0);
        let duplicate_delay_ns = delay(faults.duplicate_ppm);
        let is_corrupted = random.happens(faults.corrupt_ppm);
        FrameOutcome { is_lost: false, is_corrupted, delay_ns, duplicate_delay_ns }
    }

    /// Corrupts a frame. Returns the remaining length in bytes.
    pub fn corrupt(&mut self, bytes: &mut [u8]) -> usize {
        let random = &mut self.random;
        let length = bytes.len();
        if length == 0 {
            return 0;
        }
        let position = |random: &mut Random| random.below(length as u64) as usize;
        match random.below(8) {
            // One bit flip, which a checksum must detect.
            0..3 => bytes[position(random)] ^= 1 << random.below(8),
            // A few bit flips.
            3..5 => (0..random.between(2, 8)).for_each(|_| {
                bytes[position(random)] ^= 1 << random.below(8);
            }),
            // A run of random bytes.
            5 => {
                let from = position(random);
                bytes[from..].iter_mut().take(16).for_each(|byte| *byte = random.bits() as u8);
            }
            // Random content.
            6 => bytes.iter_mut().for_each(|byte| *byte = random.bits() as u8),
            // Truncation.
            _ => return position(random),
        }
        length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(faults: LinkFaults) -> FaultState {
        FaultState::new(faults, Random::named(1, "faults", 0))
    }

    #[test]
    fn loss_rate_depends_on_frame_kind() {
        use onepipe_base::{Incarnation, ProcessId};
        let loss = Loss { beacon_ppm: 1_000_000, ..Loss::default() };
        let mut state = state(LinkFaults { loss, ..LinkFaults::default() });
        let mut bytes = [0; 64];
        for (opcode, lost) in [(Opcode::Beacon, true), (Opcode::Data, false), (Opcode::Ack, false)]
        {
            let header = Header::new(opcode, ProcessId(0), ProcessId(1), Incarnation(0));
            onepipe_wire::seal(&mut bytes, header, 0);
            assert_eq!(state.draw_outcome(&bytes).is_lost, lost, "{opcode:?}");
        }
    }

    #[test]
    fn burst_drops_consecutive_frames() {
        let faults = LinkFaults { burst_ppm: 10_000, burst_frames: 7, ..LinkFaults::default() };
        let mut state = state(faults);
        let lost: Vec<bool> = (0..10_000).map(|_| state.draw_outcome(&[]).is_lost).collect();
        let runs: Vec<usize> =
            lost.split(|lost| !lost).map(<[bool]>::len).filter(|len| *len > 0).collect();
        assert!(runs.len() > 50 && runs.iter().all(|run| run % 7 == 0), "{runs:?}");
    }

    #[test]
    fn corruption_flips_bytes_or_truncates() {
        let mut state = state(LinkFaults::default());
        let original = [0x55u8; 80];
        let changed = (0..1_000).filter(|_| {
            let mut bytes = original;
            let left = state.corrupt(&mut bytes);
            bytes[..left] != original
        });
        // Two flips of one bit cancel out, and a random byte may equal the original.
        assert!(changed.count() > 990);
    }
}
