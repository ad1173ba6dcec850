//! Pieces of bulk multicast whose bytes stay where they are.
//!
//! Between the ends of a link that gathers and scatters (a TCP socket), the bytes of a piece go
//! from the sender's object into the receiver's, and are touched by nobody on the way: the
//! end-to-end check covers what stands before them, and the block's digest covers them.

use crate::bulk::{BULK_HEADER_LEN, BULK_PIECE_HEADER_LEN};
use crate::header::begin;
use crate::integrity::{complete, end_to_end};
use crate::{DecodeError, Flags, HEADER_LEN, Header, Opcode};

/// Bytes of the payload that the check of a piece with [`Flags::APART`] covers.
const COVERED: usize = BULK_HEADER_LEN + BULK_PIECE_HEADER_LEN;
/// Bytes of a frame before those of a piece.
pub const DETACHED_FRONT_LEN: usize = HEADER_LEN + COVERED;

/// The part of a piece's payload that its end-to-end check covers.
pub(crate) fn covered<'a>(header: &Header, payload: &'a [u8]) -> &'a [u8] {
    let covers = if header.has(Flags::DETACHED) { COVERED } else { payload.len() };
    &payload[..payload.len().min(covers)]
}

/// Completes the front of a piece, [`DETACHED_FRONT_LEN`] that stand at the front of `bytes`; as many as
/// `behind` follow it on the link, and are somewhere else now.
///
/// # Panics
/// When `bytes` cannot hold the front or the payload exceeds 65,535 bytes: the caller has
/// measured its own frame wrongly.
pub fn seal_detached(bytes: &mut [u8], header: Header, behind: usize) -> usize {
    let header = header.flagged(Flags::DETACHED);
    complete(bytes, header, (COVERED, COVERED + behind), crate::HOPS_MAX)
}

/// Reads the front of a piece that [`seal_detached`] has made, of which no more need be here yet.
/// Answers the header, what of the payload is covered, and how many bytes follow.
///
/// # Errors
/// A [`DecodeError`] for anything else.
pub fn open_detached(bytes: &[u8]) -> Result<(&Header, &[u8], usize), DecodeError> {
    let (header, opcode, rest) = begin(bytes)?;
    if opcode != Opcode::BulkPiece || !header.has(Flags::DETACHED) {
        return Err(DecodeError::Opcode(opcode as u8));
    }
    let (need, got) = (COVERED, rest.len().min(header.length()));
    let truncated = DecodeError::Truncated { part: "front of a piece", need, got };
    let covered = rest.get(..COVERED).filter(|_| got == need).ok_or(truncated)?;
    if end_to_end(header, covered) != header.integrity.get() {
        return Err(DecodeError::Integrity);
    }
    Ok((header, covered, header.length() - COVERED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Frame;
    use onepipe_base::{Incarnation, ProcessId};

    #[test]
    fn a_front_is_checked_and_what_follows_is_not() {
        let header = Header::new(Opcode::BulkPiece, ProcessId(1), ProcessId(2), Incarnation(3));
        let mut frame = [7u8; DETACHED_FRONT_LEN + 9];
        assert_eq!(seal_detached(&mut frame, header, 9), DETACHED_FRONT_LEN);
        let (read, covered, behind) =
            open_detached(&frame[..DETACHED_FRONT_LEN]).expect("all is here");
        assert_eq!((read.length(), covered, behind), (COVERED + 9, &[7; COVERED][..], 9));
        frame[DETACHED_FRONT_LEN] ^= 1;
        assert_eq!(Frame::parse(&frame).expect("the front is whole").payload[COVERED], 6);
        assert!(open_detached(&frame[..DETACHED_FRONT_LEN - 1]).is_err());
        frame[HEADER_LEN + 5] ^= 1;
        assert!(Frame::parse(&frame).is_err() && open_detached(&frame).is_err());
    }

    #[test]
    fn only_pieces_may_say_so() {
        let header = Header::new(Opcode::BulkAck, ProcessId(1), ProcessId(2), Incarnation(3));
        let mut frame = [7u8; DETACHED_FRONT_LEN + 9];
        seal_detached(&mut frame, header, 9);
        assert!(Frame::parse(&frame).is_err() && open_detached(&frame).is_err());
    }
}
