//! A header as machine words, for the two checks.
//!
//! Fields that were just written one by one would have to reach memory before a check could load
//! them eight bytes at a time, which costs more than the check. So both are computed from
//! registers.

use onepipe_base::{Promises, Timestamp};
use onepipe_simd::crc32c;
use xxhash_rust::xxh3::xxh3_64;
use zerocopy::IntoBytes;
use zerocopy::byteorder::little_endian::U64;

use crate::header::HOPS_MASK;
use crate::{Flags, HEADER_LEN, Header, SHORT_HEADER_LEN, header_len};

/// Offset of the hop tag, which covers all bytes but its own.
pub(crate) const TAG_AT: usize = core::mem::offset_of!(Header, hop_tag);
/// Offsets of what a switch rewrites.
pub(crate) const HOPS_AT: usize = core::mem::offset_of!(Header, hops);
const TIMES_AT: usize = 40;

const _: () = assert!(core::mem::offset_of!(Header, integrity) == 20);
const _: () = assert!(TAG_AT == 28 && core::mem::offset_of!(Header, length) == 36);
const _: () = assert!(core::mem::offset_of!(Header, barrier) == TIMES_AT + 4);

/// The bytes 0 to 27 and 36 to 55 of a header, with the first one in the lowest bits. A short
/// header continues with zeros.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words([u64; 6]);

impl Words {
    /// Loads the header at the front of a frame; `None` if the frame ends before it.
    #[inline]
    pub fn load(frame: &[u8]) -> Option<Self> {
        let opcode = *frame.get(crate::OPCODE_AT)?;
        let front: &[u8; SHORT_HEADER_LEN] = frame.first_chunk()?;
        let [length, more] = [front[36], front[37]];
        let mut words = [
            word(front, 0),
            word(front, 8),
            word(front, 16),
            half(front, 24) | u64::from(u16::from_le_bytes([length, more])) << 32,
            0,
            0,
        ];
        if header_len(opcode) == HEADER_LEN {
            let whole: &[u8; HEADER_LEN] = frame.first_chunk()?;
            words[3] = half(whole, 24) | half(whole, 36) << 32;
            (words[4], words[5]) = (word(whole, TIMES_AT), word(whole, TIMES_AT + 8));
        }
        Some(Self(words))
    }

    /// Returns the words of a header.
    #[inline]
    pub fn of(header: &Header) -> Self {
        let four = |bytes: [u8; 4]| u64::from(u32::from_le_bytes(bytes));
        let [flags, hops] = [header.flags, header.hops];
        let [a, b, c, d, e, f, g, h] = header.integrity.to_bytes();
        let first = four([header.version, header.opcode, flags, hops]);
        let [length, more] = header.length.to_bytes();
        let [time, second, rest @ ..] = header.message_ts;
        let (barrier, commit) = (six(header.barrier), six(header.commit));
        Self([
            first | four(header.src.to_bytes()) << 32,
            four(header.dst.to_bytes()) | four(header.incarnation.to_bytes()) << 32,
            four(header.psn.to_bytes()) | four([a, b, c, d]) << 32,
            four([e, f, g, h]) | four([length, more, time, second]) << 32,
            four(rest) | barrier << 32,
            barrier >> 32 | commit << 16,
        ])
    }

    /// Returns the hop tag of a link without a key.
    #[inline]
    pub fn tag(&self) -> u64 {
        crc32c(self.0).into()
    }

    /// Returns the hash of the fields that stay the same from sender to receiver. `is_shared`: the
    /// frame lists its receivers, and a switch writes `dst` and `psn` into each copy.
    #[inline]
    pub fn hash_fixed(&self, is_shared: bool, is_short: bool) -> u64 {
        const LOW: u64 = 0xffff_ffff;
        const FIRST: u64 = !((Flags::CONGESTION as u64) << 16 | 0xff << 24);
        let [first, second, third, fourth, fifth, _] = self.0;
        let (dst, psn) = if is_shared { (0, 0) } else { (second & LOW, third & LOW) };
        // The integrity itself and the tag are 0, and so are both promises.
        let words = [first & FIRST, second & !LOW | dst, psn, 0, fourth & !LOW, fifth & LOW, 0];
        let bytes = words.map(U64::new);
        let bytes: &[u8; HEADER_LEN] = zerocopy::transmute_ref!(&bytes);
        match is_short {
            true => xxh3_64(&bytes[..SHORT_HEADER_LEN]),
            false => xxh3_64(bytes),
        }
    }

    /// Decrements the hop limit; false if it is exhausted.
    #[inline]
    pub fn take_hop(&mut self) -> bool {
        let has_left = (self.0[0] >> (8 * HOPS_AT)) & u64::from(HOPS_MASK) > 0;
        self.0[0] -= u64::from(has_left) << (8 * HOPS_AT);
        has_left
    }

    /// Replaces the end-to-end check.
    #[inline]
    pub fn set_integrity(&mut self, integrity: u64) {
        let bytes = integrity.swap_bytes();
        self.0[2] = self.0[2] & 0xffff_ffff | bytes << 32;
        self.0[3] = self.0[3] & !0xffff_ffff | bytes >> 32;
    }

    /// Replaces the promises of a header with timestamps.
    #[inline]
    pub fn set_promises(&mut self, promises: Promises) {
        let bytes = |time: Timestamp| (time.to_wire().bits() << 16).swap_bytes();
        let (barrier, commit) = (bytes(promises.barrier), bytes(promises.commit));
        self.0[4] = self.0[4] & 0xffff_ffff | barrier << 32;
        self.0[5] = barrier >> 32 | commit << 16;
    }

    /// Writes what a switch rewrites, and the tag, to the frame that the words were loaded from.
    #[inline]
    pub fn store(&self, frame: &mut [u8]) {
        frame[HOPS_AT] = (self.0[0] >> (8 * HOPS_AT)) as u8;
        frame[TAG_AT..TAG_AT + 8].copy_from_slice(&self.tag().to_be_bytes());
        if header_len(frame[crate::OPCODE_AT]) == HEADER_LEN {
            let times = [U64::new(self.0[4]), U64::new(self.0[5])];
            frame[TIMES_AT..HEADER_LEN].copy_from_slice(times.as_bytes());
        }
    }
}

#[inline]
fn word<const LEN: usize>(bytes: &[u8; LEN], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[inline]
fn half<const LEN: usize>(bytes: &[u8; LEN], at: usize) -> u64 {
    let mut half = [0; 4];
    half.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(half).into()
}

#[inline]
fn six([a, b, c, d, e, f]: [u8; 6]) -> u64 {
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

#[cfg(test)]
mod tests {
    use onepipe_base::{Incarnation, ProcessId, Psn};

    use super::*;
    use crate::{Opcode, seal};

    /// Both ways to get at the words of a header agree, with and without timestamps.
    #[test]
    fn words_of_frame_are_those_of_header() {
        for opcode in [Opcode::Data, Opcode::Slot] {
            let promises = Promises::both(Timestamp::from_ns(0x1122_3344_5566));
            let header =
                Header::new(opcode, ProcessId(0x0102_0304), ProcessId(5), Incarnation(0x0607));
            let header = header.stamped(Timestamp::from_ns(0x8877), promises, Psn(0x0a0b));
            let mut frame = [0xff; 64];
            let len = seal(&mut frame, header, 3);
            let (header, _) = Header::split(&frame[..len]).expect("it is whole");
            let words = Words::load(&frame[..len]).expect("it is whole");
            assert_eq!(words.0, Words::of(&header).0, "{opcode:?}");
            assert!(Words::load(&frame[..len - 4]).is_none(), "{opcode:?} is cut");
            let mut other = words;
            other.set_integrity(0x0102_0304_0506_0708);
            let changed = Header { integrity: 0x0102_0304_0506_0708.into(), ..header };
            assert_eq!(other.0, Words::of(&changed).0, "{opcode:?}");
        }
    }
}
