//! Payload from which a receiver sees whether it is what the sender wrote.

/// Length of the header.
const HEADER_LEN: usize = 24;

/// Header of a message; the rest is filled with a byte that the header determines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// Number of the scattering, as counted by its sender.
    pub sequence: u64,
    /// Time of submission, in ns of the parent's clock.
    pub submitted_ns: u64,
    /// Highest timestamp delivered at the sender by then, in ns.
    pub seen_ns: u64,
}

impl Payload {
    /// Writes the message of `from`, of at least 24 bytes.
    pub fn write(self, from: u32, bytes: &mut [u8]) {
        let (header, rest) = bytes.split_at_mut(HEADER_LEN);
        header[..8].copy_from_slice(&self.sequence.to_be_bytes());
        header[8..16].copy_from_slice(&self.submitted_ns.to_be_bytes());
        header[16..].copy_from_slice(&self.seen_ns.to_be_bytes());
        rest.fill(fill_byte(from, self.sequence));
    }

    /// Reads a message of `from`. Returns `None` if it is corrupted.
    pub fn read(from: u32, bytes: &[u8]) -> Option<Self> {
        let (sequence, rest) = read_u64(bytes)?;
        let (submitted_ns, rest) = read_u64(rest)?;
        let (seen_ns, rest) = read_u64(rest)?;
        let fill_byte = fill_byte(from, sequence);
        // Compares all bytes without an early exit, so that the loop can be vectorised.
        let is_intact = rest.iter().fold(true, |is_same, byte| is_same & (*byte == fill_byte));
        is_intact.then_some(Self { sequence, submitted_ns, seen_ns })
    }
}

fn read_u64(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (word, rest) = bytes.split_first_chunk()?;
    Some((u64::from_be_bytes(*word), rest))
}

fn fill_byte(from: u32, sequence: u64) -> u8 {
    (sequence as u8).wrapping_mul(31) ^ from as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_and_detects_corruption() {
        let payload = Payload { sequence: 77, submitted_ns: 1 << 60, seen_ns: 5 };
        let mut bytes = [0; 64];
        payload.write(3, &mut bytes);
        assert_eq!(Payload::read(3, &bytes), Some(payload));
        assert_eq!(Payload::read(4, &bytes), None, "from another");
        bytes[40] ^= 1;
        assert_eq!(Payload::read(3, &bytes), None);
        assert_eq!(Payload::read(3, &bytes[..20]), None);
    }
}
