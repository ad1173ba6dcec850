//! Writing control packets.

use zerocopy::IntoBytes;
use zerocopy::byteorder::big_endian::{U16, U32, U64};

use super::totals::{ENTRY_LEN, LIST_LEN, MAP_LEN};
use super::{
    ARRIVAL, ARRIVAL_UNIT_NS, ArrivalLayout, CHECK_LEN, FCP_HEADER_LEN, FcpArrival, FcpEncoding,
    FcpReset, FcpTotal, HOLES, HOLES_LEN, Layout, MAP, RESET, ResetLayout, SHORT_MAP, TOTALS,
    checksum, grants,
};

/// Writes a control packet, part by part. Reports parts that do not fit, and leaves them out.
#[derive(Debug)]
pub struct FcpWriter<'a> {
    buf: &'a mut [u8],
    bytes: usize,
    /// Missing packets, as bits; unless 0, space for the last part is reserved.
    holes: u64,
}

impl<'a> FcpWriter<'a> {
    /// Begins a packet in `buf`; `None` if not even the acknowledgement fits.
    pub fn new(buf: &'a mut [u8], received: u32, received_bits: u64) -> Option<Self> {
        let layout = Layout { check: U32::ZERO, received: U32::new(received) };
        let holes_len = if received_bits == u64::MAX { 0 } else { HOLES_LEN };
        buf.get(..FCP_HEADER_LEN + holes_len)?;
        buf[..FCP_HEADER_LEN].copy_from_slice(layout.as_bytes());
        Some(Self { buf, bytes: FCP_HEADER_LEN, holes: !received_bits })
    }

    /// Returns whether the packet contains no parts yet.
    pub fn is_empty(&self) -> bool {
        self.bytes == FCP_HEADER_LEN
    }

    /// Adds a reset, before all other parts. Returns false if it does not fit.
    pub fn reset(&mut self, reset: FcpReset) -> bool {
        debug_assert!(self.is_empty(), "a reset stands first");
        let (time, epoch) = (U64::new(reset.time.as_ns()), U32::new(reset.epoch));
        let (slot_ns, nodes) = (U32::new(reset.params.slot_ns), U16::new(reset.params.nodes));
        let layout = ResetLayout { kind: RESET, reserved: 0, time, epoch, slot_ns, nodes };
        self.put(&[layout.as_bytes()])
    }

    /// Adds the arrival time of a packet. Returns false if it does not fit or is out of range.
    pub fn arrival(&mut self, FcpArrival { early_ns, batch_slots }: FcpArrival) -> bool {
        let Ok(early) = u16::try_from(early_ns / ARRIVAL_UNIT_NS) else { return false };
        let layout = ArrivalLayout { kind: ARRIVAL, batch_slots, early: U16::new(early) };
        batch_slots > 0 && self.put(&[layout.as_bytes()])
    }

    /// Adds totals, for a map in ascending order, each destination once. Returns the number
    /// written: of a list as many as fit, otherwise all or none.
    pub fn totals(&mut self, encoding: FcpEncoding, totals: &[FcpTotal]) -> usize {
        let (Some(first), Some(last)) = (totals.first(), totals.last()) else { return 0 };
        if encoding == FcpEncoding::List {
            let capacity = self.free().saturating_sub(LIST_LEN) / ENTRY_LEN;
            let count = totals.len().min(capacity).min(u8::MAX.into());
            if count == 0 {
                return 0;
            }
            self.put(&[&[TOTALS, count as u8]]);
            for FcpTotal { dst, total } in &totals[..count] {
                self.put(&[&dst.to_be_bytes(), &total.to_be_bytes()]);
            }
            return count;
        }
        debug_assert!(totals.is_sorted_by(|one, next| one.dst < next.dst), "in ascending order");
        let map_len = FcpEncoding::map_len(first.dst, last.dst);
        let bytes = MAP_LEN + map_len + totals.len() * encoding.total_len();
        if bytes > self.free() || map_len > usize::from(u8::MAX) {
            return 0;
        }
        let kind = if encoding == FcpEncoding::Map { MAP } else { SHORT_MAP };
        self.put(&[&[kind, map_len as u8], &first.dst.to_be_bytes()]);
        let map = &mut self.buf[self.bytes..][..map_len];
        map.fill(0);
        for FcpTotal { dst, .. } in totals {
            let bit_index = usize::from(dst - first.dst);
            map[bit_index / 8] |= 1 << (bit_index % 8);
        }
        self.bytes += map_len;
        for FcpTotal { total, .. } in totals {
            self.put(&[&total.to_be_bytes()[2 - encoding.total_len()..]]);
        }
        totals.len()
    }

    /// Adds grants, at least one: bit `i` of `slots` is timeslot `base` + `i`, and `grant_at`
    /// returns its destination and path. Returns false if they do not fit.
    pub fn grants(&mut self, base: u64, slots: u64, grant_at: impl Fn(usize) -> (u16, u8)) -> bool {
        let end = self.bytes + self.free();
        let bytes = grants::write(&mut self.buf[self.bytes..end], base, slots, grant_at);
        self.bytes += bytes.unwrap_or_default();
        bytes.is_some()
    }

    /// Completes the packet. Returns its length.
    pub fn finish(mut self, seed: u64) -> usize {
        if self.holes != 0 {
            let holes = core::mem::take(&mut self.holes);
            let has_space = self.put(&[&[HOLES], &holes.to_be_bytes()]);
            debug_assert!(has_space, "the space of the holes is reserved");
        }
        let (check, covered) = self.buf[..self.bytes].split_at_mut(CHECK_LEN);
        check.copy_from_slice(&checksum(covered, seed));
        self.bytes
    }

    /// Returns the free space for parts.
    fn free(&self) -> usize {
        debug_assert!(self.bytes <= self.buf.len(), "what is written fits the buffer");
        self.buf.len() - self.bytes - if self.holes == 0 { 0 } else { HOLES_LEN }
    }

    fn put(&mut self, pieces: &[&[u8]]) -> bool {
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        if bytes > self.free() {
            return false;
        }
        for piece in pieces {
            self.buf[self.bytes..][..piece.len()].copy_from_slice(piece);
            self.bytes += piece.len();
        }
        true
    }
}
