//! Bulk pieces whose bytes are detached from the frame.
//!
//! On a link with scatter/gather (a TCP socket) the bytes of a piece go from the sender's object
//! directly into the receiver's without being touched: the end-to-end check covers only what
//! precedes them, and the digest of the block covers the bytes.

use crate::frame::{check_integrity, split_header};
use crate::integrity::{DETACHED_COVERED_LEN, seal_prefix};
use crate::{DecodeError, Flags, Header, Opcode, SHORT_HEADER_LEN};

/// Length of a frame up to the bytes of its piece.
pub const DETACHED_FRONT_LEN: usize = SHORT_HEADER_LEN + DETACHED_COVERED_LEN;

/// Seals a detached piece: completes its front, the [`DETACHED_FRONT_LEN`] bytes at the start of
/// `bytes`. The piece's own bytes, `detached_len` of them, are elsewhere in memory and follow the
/// front on the link. Returns the length of the front.
///
/// # Panics
/// If `bytes` cannot hold the front or the payload exceeds 65,535 bytes: a bug of the caller.
pub fn seal_detached(bytes: &mut [u8], header: Header, detached_len: usize) -> usize {
    let header = header.flagged(Flags::DETACHED);
    seal_prefix(
        bytes,
        header,
        DETACHED_COVERED_LEN,
        DETACHED_COVERED_LEN + detached_len,
        crate::HOPS_MAX,
    )
}

/// Parses the front of a piece sealed by [`seal_detached`]; the bytes of the piece need not have
/// arrived. Returns the header, the covered part of the payload, and the number of bytes that
/// follow.
///
/// # Errors
/// A [`DecodeError`] for any other frame.
pub fn open_detached(bytes: &[u8]) -> Result<(Header, &[u8], usize), DecodeError> {
    let (header, opcode, rest) = split_header(bytes)?;
    if opcode != Opcode::BulkPiece || !header.has(Flags::DETACHED) {
        return Err(DecodeError::Opcode(opcode as u8));
    }
    let (need, got) = (DETACHED_COVERED_LEN, rest.len().min(header.length()));
    let truncated = DecodeError::Truncated { part: "front of a bulk piece", need, got };
    let covered = rest.get(..DETACHED_COVERED_LEN).filter(|_| got == need).ok_or(truncated)?;
    check_integrity(&header, bytes, covered)?;
    Ok((header, covered, header.length() - DETACHED_COVERED_LEN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Frame;
    use onepipe_base::{Incarnation, ProcessId};

    #[test]
    fn checks_front_and_not_detached_bytes() {
        let header = Header::new(Opcode::BulkPiece, ProcessId(1), ProcessId(2), Incarnation(3));
        let mut frame = [7u8; DETACHED_FRONT_LEN + 9];
        assert_eq!(seal_detached(&mut frame, header, 9), DETACHED_FRONT_LEN);
        let (read, covered, detached_len) =
            open_detached(&frame[..DETACHED_FRONT_LEN]).expect("all is here");
        assert_eq!(
            (read.length(), covered, detached_len),
            (DETACHED_COVERED_LEN + 9, &[7; DETACHED_COVERED_LEN][..], 9)
        );
        frame[DETACHED_FRONT_LEN] ^= 1;
        assert_eq!(
            Frame::parse(&frame).expect("the front is whole").payload[DETACHED_COVERED_LEN],
            6
        );
        assert!(open_detached(&frame[..DETACHED_FRONT_LEN - 1]).is_err());
        frame[SHORT_HEADER_LEN + 5] ^= 1;
        assert!(Frame::parse(&frame).is_err() && open_detached(&frame).is_err());
    }

    #[test]
    fn only_pieces_may_be_detached() {
        let header = Header::new(Opcode::BulkAck, ProcessId(1), ProcessId(2), Incarnation(3));
        let mut frame = [7u8; DETACHED_FRONT_LEN + 9];
        seal_detached(&mut frame, header, 9);
        assert!(Frame::parse(&frame).is_err() && open_detached(&frame).is_err());
    }
}
