//! Sealing, checking and rewriting frames.
//!
//! There are two checks, because switches rewrite barriers: `integrity` (64 bits) covers what stays
//! the same from sender to receiver; `hop_tag` (64 bits) covers the whole header and is renewed by
//! every hop that rewrites it. Without keys the tag is a CRC-32C, which switching chips compute in
//! hardware. Neither check protects from an attacker.

use onepipe_base::Promises;
use xxhash_rust::xxh3::xxh3_64;
use zerocopy::byteorder::big_endian::{U16, U64};

use crate::bulk::{BULK_HEADER_LEN, BULK_PIECE_HEADER_LEN};
use crate::words::{TAG_AT, Words};
use crate::{Flags, HEADER_LEN, Header, OPCODE_AT, Opcode, header_len};

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
    (header.integrity, header.hop_tag) = (U64::ZERO, U64::ZERO);
    let bytes = &mut bytes[..header_len(header.opcode) + payload_len];
    header.put(bytes);
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
    let (front, rest) = bytes.split_at_mut(header_len(header.opcode));
    header.length = U16::new(u16::try_from(payload_len).expect("payload exceeds 65,535 bytes"));
    debug_assert!(hops <= crate::header::HOPS_MASK, "{hops} hops");
    header.hops = hops & crate::header::HOPS_MASK;
    let mut words = Words::of(&header);
    let integrity = compute_integrity(words, &header, &rest[..present_len]);
    words.set_integrity(integrity);
    (header.integrity, header.hop_tag) = (U64::new(integrity), U64::new(words.tag()));
    header.put(front);
    front.len() + present_len
}

/// Rewrites the promises of a frame in place, if it has any, and renews its hop tag without
/// verifying the old one: the caller has done so with [`crate::parse_header`]. Leaves bytes shorter
/// than a header alone.
#[inline]
pub fn rewrite_promises(bytes: &mut [u8], promises: Promises) {
    if let Some(mut words) = Words::load(bytes) {
        if has_timestamps(bytes) {
            words.set_promises(promises);
        }
        words.store(bytes);
    }
}

/// Sets the congestion flag of a frame in place. Leaves bytes shorter than a header alone; a frame
/// with a corrupt header stays corrupt.
#[inline]
pub fn mark_congestion(bytes: &mut [u8]) {
    if let Some((mut header, _)) = Header::split(bytes) {
        let was_intact = is_hop_intact(bytes);
        header.flags |= Flags::CONGESTION;
        if was_intact {
            header.hop_tag = U64::new(compute_hop_tag(&header));
        }
        header.put(bytes);
    }
}

/// Lets a frame pass a switch, in place: decrements its hop limit, rewrites its promises, if it has
/// any and `promises` are given, and renews its hop tag, which the caller has verified with
/// [`crate::parse_header`]. Returns false if the limit is exhausted: drop the frame.
#[inline]
pub fn pass_hop(bytes: &mut [u8], promises: Option<Promises>) -> bool {
    let Some(mut words) = Words::load(bytes) else { return false };
    if !words.take_hop() {
        return false;
    }
    if let (true, Some(promises)) = (has_timestamps(bytes), promises) {
        words.set_promises(promises);
    }
    words.store(bytes);
    true
}

/// Returns whether the bytes start with a header whose hop tag is right.
#[inline]
pub fn is_hop_intact(bytes: &[u8]) -> bool {
    let tag = bytes.get(TAG_AT..).and_then(<[u8]>::first_chunk);
    let words = Words::load(bytes);
    words.zip(tag).is_some_and(|(words, tag)| words.tag() == u64::from_be_bytes(*tag))
}

/// Returns whether the frame, which is not shorter than a header, has timestamps.
#[inline]
fn has_timestamps(frame: &[u8]) -> bool {
    header_len(frame[OPCODE_AT]) == HEADER_LEN
}

/// Computes the hop tag of a link without a key.
#[inline]
pub(crate) fn compute_hop_tag(header: &Header) -> u64 {
    Words::of(header).tag()
}

/// Returns the part of a piece's payload that its end-to-end check covers.
fn covered_payload<'a>(header: &Header, payload: &'a [u8]) -> &'a [u8] {
    let covers = if header.has(Flags::DETACHED) { DETACHED_COVERED_LEN } else { payload.len() };
    &payload[..payload.len().min(covers)]
}

/// Computes the end-to-end check of a header, whose words are given too. Fields and payload are
/// hashed separately, so that the payload need not be copied.
#[inline]
pub(crate) fn compute_integrity(words: Words, header: &Header, payload: &[u8]) -> u64 {
    let covered = match header.opcode == Opcode::BulkPiece as u8 {
        true => covered_payload(header, payload),
        false => payload,
    };
    let of_header = words.hash_fixed(header.is_shared(), !header.has_timestamps());
    of_header.rotate_left(17) ^ xxh3_64(covered)
}
