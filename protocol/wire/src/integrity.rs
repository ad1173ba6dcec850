//! Sealing, checking and rewriting frames.
//!
//! There are two checks, because switches rewrite barriers: `integrity` (64 bits) covers what stays
//! the same from sender to receiver; `hop_check` (32 bits) covers the whole header and is renewed
//! by every hop that rewrites it. Neither protects from an attacker.

use onepipe_base::Promises;
use xxhash_rust::xxh3::xxh3_64;
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use crate::bulk::{BULK_HEADER_LEN, BULK_PIECE_HEADER_LEN};
use crate::{Flags, HEADER_LEN, Header, Opcode};

/// Bytes of the header that the hop check covers: all but the check itself.
const HOP_COVERED_LEN: usize = HEADER_LEN - 4;

/// Bytes of the payload that the check of a piece with [`Flags::DETACHED`] covers.
pub(crate) const DETACHED_COVERED_LEN: usize = BULK_HEADER_LEN + BULK_PIECE_HEADER_LEN;

/// Seals a frame: writes the header with length and both checks in front of the `payload_len` bytes
/// of payload that already follow it in `bytes`. Returns the length of the frame.
///
/// # Panics
/// If `bytes` cannot hold the frame or the payload exceeds 65,535 bytes: a bug of the caller.
#[inline]
pub fn seal(bytes: &mut [u8], header: Header, payload_len: usize) -> usize {
    seal_with_hops(bytes, header, payload_len, crate::HOPS_MAX)
}

/// As [`seal`], for a frame that may pass at most `hops` switches.
///
/// # Panics
/// As [`seal`].
#[inline]
pub fn seal_with_hops(bytes: &mut [u8], header: Header, payload_len: usize, hops: u8) -> usize {
    seal_prefix(bytes, header, payload_len, payload_len, hops)
}

//= spec/ordering.md#R54
/// Seals a frame without checksums: both checks are 0. For memory that only processes of one
/// machine share; the receiver uses [`crate::Frame::parse_unsummed`].
///
/// # Panics
/// As [`seal`].
#[inline]
pub fn seal_unsummed(bytes: &mut [u8], mut header: Header, payload_len: usize) -> usize {
    header.length = U16::new(u16::try_from(payload_len).expect("payload exceeds 65,535 bytes"));
    header.hops = crate::HOPS_MAX;
    (header.integrity, header.hop_check) = (U64::ZERO, U32::ZERO);
    let bytes = &mut bytes[..HEADER_LEN + payload_len];
    bytes[..HEADER_LEN].copy_from_slice(header.as_bytes());
    bytes.len()
}

/// Seals a frame of which only the header and the first `present_len` bytes of the payload are in
/// `bytes`. Returns the length of this part.
#[inline]
pub(crate) fn seal_prefix(
    bytes: &mut [u8],
    mut header: Header,
    present_len: usize,
    payload_len: usize,
    hops: u8,
) -> usize {
    debug_assert!(present_len <= payload_len, "a part of the payload is present");
    let (front, rest) = bytes.split_at_mut(HEADER_LEN);
    header.length = U16::new(u16::try_from(payload_len).expect("payload exceeds 65,535 bytes"));
    header.hops = hops;
    header.integrity = U64::new(compute_integrity(&header, &rest[..present_len]));
    header.hop_check = U32::new(compute_hop_check(&header));
    front.copy_from_slice(header.as_bytes());
    HEADER_LEN + present_len
}

/// Rewrites the promises of a frame in place and renews its hop check without verifying the old
/// one: the caller has done so with [`crate::parse_header`]. Leaves bytes shorter than a header
/// alone.
#[inline]
pub fn rewrite_promises(bytes: &mut [u8], promises: Promises) {
    if let Ok((header, _)) = Header::mut_from_prefix(bytes) {
        header.set_promises(promises);
        header.hop_check = U32::new(compute_hop_check(header));
    }
}

/// Sets the congestion flag of a frame in place. Leaves bytes shorter than a header alone; a frame
/// with a corrupt header stays corrupt.
#[inline]
pub fn mark_congestion(bytes: &mut [u8]) {
    if let Ok((header, _)) = Header::mut_from_prefix(bytes) {
        let was_intact = header.hop_check.get() == compute_hop_check(header);
        header.flags |= Flags::CONGESTION;
        if was_intact {
            header.hop_check = U32::new(compute_hop_check(header));
        }
    }
}

/// Decrements the hop limit of a frame in place, without renewing the hop check (the caller
/// rewrites promises next). Returns false if the limit is exhausted: drop the frame.
#[inline]
pub fn take_hop(bytes: &mut [u8]) -> bool {
    let Ok((header, _)) = Header::mut_from_prefix(bytes) else { return false };
    match header.hops.checked_sub(1) {
        Some(left) => {
            header.hops = left;
            true
        }
        None => false,
    }
}

/// Returns whether the bytes start with a header whose hop check holds.
pub fn is_hop_intact(bytes: &[u8]) -> bool {
    Header::ref_from_prefix(bytes)
        .is_ok_and(|(header, _)| header.hop_check.get() == compute_hop_check(header))
}

#[inline]
pub(crate) fn compute_hop_check(header: &Header) -> u32 {
    xxh3_64(&header.as_bytes()[..HOP_COVERED_LEN]) as u32
}

/// Returns the part of a piece's payload that its end-to-end check covers.
fn covered_payload<'a>(header: &Header, payload: &'a [u8]) -> &'a [u8] {
    let covers = if header.has(Flags::DETACHED) { DETACHED_COVERED_LEN } else { payload.len() };
    &payload[..payload.len().min(covers)]
}

/// Computes the end-to-end check. Fields and payload are hashed separately, so that the payload
/// need not be copied.
#[inline]
pub(crate) fn compute_integrity(header: &Header, payload: &[u8]) -> u64 {
    let mut fixed = *header;
    fixed.barrier = [0; 6];
    fixed.commit = [0; 6];
    fixed.flags &= !Flags::CONGESTION;
    fixed.hops = 0;
    fixed.integrity = U64::ZERO;
    fixed.hop_check = U32::ZERO;
    const SHARED: u8 = Opcode::SharedData as u8;
    const RELIABLE_SHARED: u8 = Opcode::ReliableSharedData as u8;
    const PIECE: u8 = Opcode::BulkPiece as u8;
    let covered = match header.opcode {
        PIECE => covered_payload(header, payload),
        SHARED | RELIABLE_SHARED => {
            // Both are in the list of receivers; switches write them into each copy.
            (fixed.dst, fixed.psn) = (U32::ZERO, U32::ZERO);
            payload
        }
        _ => payload,
    };
    xxh3_64(fixed.as_bytes()).rotate_left(17) ^ xxh3_64(covered)
}
