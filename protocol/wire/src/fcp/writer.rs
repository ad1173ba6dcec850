//! How a control packet is written.

use zerocopy::IntoBytes;
use zerocopy::byteorder::big_endian::{U16, U32, U64};

use super::totals::{ENTRY_OCTETS, LIST_OCTETS, MAP_OCTETS};
use super::{
    CHECK_OCTETS, EARLY, EARLY_NS, EarlyLayout, FCP_HEADER_OCTETS, FcpEarly, FcpForm, FcpReset,
    FcpTotal, HOLES, HOLES_OCTETS, Layout, MAP, RESET, ResetLayout, SHORT_MAP, TOTALS, checksum,
    grants,
};

/// Writes a control packet, part by part. What does not fit is not written, and said so.
#[derive(Debug)]
pub struct FcpWriter<'a> {
    room: &'a mut [u8],
    octets: usize,
    /// What has not been heard, for which there is room left.
    holes: u64,
}

impl<'a> FcpWriter<'a> {
    /// Begins a packet in `room`; `None` when not even what has been heard fits.
    pub fn new(room: &'a mut [u8], (heard, heard_bits): (u32, u64)) -> Option<Self> {
        let layout = Layout { check: U32::ZERO, heard: U32::new(heard) };
        let last = if heard_bits == u64::MAX { 0 } else { HOLES_OCTETS };
        room.get(..FCP_HEADER_OCTETS + last)?;
        room[..FCP_HEADER_OCTETS].copy_from_slice(layout.as_bytes());
        Some(Self { room, octets: FCP_HEADER_OCTETS, holes: !heard_bits })
    }

    /// Whether nothing but what was heard is written.
    pub fn is_empty(&self) -> bool {
        self.octets == FCP_HEADER_OCTETS
    }

    /// A reset, before all other parts. Answers false when it does not fit.
    pub fn reset(&mut self, reset: FcpReset) -> bool {
        debug_assert!(self.is_empty(), "a reset stands first");
        let (time, epoch) = (U64::new(reset.time.as_ns()), U32::new(reset.epoch));
        let (slot_ns, nodes) = (U32::new(reset.terms.slot_ns), U16::new(reset.terms.nodes));
        let layout = ResetLayout { kind: RESET, reserved: 0, time, epoch, slot_ns, nodes };
        self.put(&[layout.as_bytes()])
    }

    /// Adds how early a packet came. Answers false when it does not fit, or cannot be said.
    pub fn early(&mut self, FcpEarly { ns, batch_slots }: FcpEarly) -> bool {
        let Ok(early) = u16::try_from(ns / EARLY_NS) else { return false };
        let layout = EarlyLayout { kind: EARLY, batch_slots, early: U16::new(early) };
        batch_slots > 0 && self.put(&[layout.as_bytes()])
    }

    /// Adds totals, of a map in ascending order, each destination once. Answers how many are
    /// written: of a list as many as fit, else all or none.
    pub fn totals(&mut self, form: FcpForm, totals: &[FcpTotal]) -> usize {
        let (Some(first), Some(last)) = (totals.first(), totals.last()) else { return 0 };
        if form == FcpForm::List {
            let room = self.free().saturating_sub(LIST_OCTETS) / ENTRY_OCTETS;
            let count = totals.len().min(room).min(u8::MAX.into());
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
        let marks = FcpForm::map_octets(first.dst, last.dst);
        let octets = MAP_OCTETS + marks + totals.len() * form.total_octets();
        if octets > self.free() || marks > usize::from(u8::MAX) {
            return 0;
        }
        let kind = if form == FcpForm::Map { MAP } else { SHORT_MAP };
        self.put(&[&[kind, marks as u8], &first.dst.to_be_bytes()]);
        let map = &mut self.room[self.octets..][..marks];
        map.fill(0);
        for FcpTotal { dst, .. } in totals {
            let place = usize::from(dst - first.dst);
            map[place / 8] |= 1 << (place % 8);
        }
        self.octets += marks;
        for FcpTotal { total, .. } in totals {
            self.put(&[&total.to_be_bytes()[2 - form.total_octets()..]]);
        }
        totals.len()
    }

    /// Adds timeslots, at least one: bit `i` of `slots` is `i` after `base`, and `of` says to whom
    /// it is and by which path. Answers false when they do not fit.
    pub fn grants(&mut self, base: u64, slots: u64, of: impl Fn(usize) -> (u16, u8)) -> bool {
        let end = self.octets + self.free();
        let octets = grants::write(&mut self.room[self.octets..end], (base, slots), of);
        self.octets += octets.unwrap_or_default();
        octets.is_some()
    }

    /// Completes the packet. Answers the octets that it has.
    pub fn finish(mut self, seed: u64) -> usize {
        if self.holes != 0 {
            let holes = core::mem::take(&mut self.holes);
            self.put(&[&[HOLES], &holes.to_be_bytes()]);
        }
        let (check, covered) = self.room[..self.octets].split_at_mut(CHECK_OCTETS);
        check.copy_from_slice(&checksum(covered, seed));
        self.octets
    }

    /// Octets that are left for parts.
    fn free(&self) -> usize {
        self.room.len() - self.octets - if self.holes == 0 { 0 } else { HOLES_OCTETS }
    }

    fn put(&mut self, pieces: &[&[u8]]) -> bool {
        let octets: usize = pieces.iter().map(|piece| piece.len()).sum();
        if octets > self.free() {
            return false;
        }
        for piece in pieces {
            self.room[self.octets..][..piece.len()].copy_from_slice(piece);
            self.octets += piece.len();
        }
        true
    }
}
