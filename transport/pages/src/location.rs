//! What a frame says of where an object lies.

use onepipe_transport_shm::PageLocation;
use onepipe_wire::{BulkHeader, BulkPiece, DETACHED_FRONT_LEN, Frame, Opcode, open_detached};

/// Of which object a frame tells where it lies: the front of a piece, or an offer, and its place
/// behind that. `None` of any other frame, and of bytes that are none.
pub fn page_location(frame: &[u8]) -> Option<(u32, PageLocation)> {
    let (front, behind) = frame.split_at_checked(DETACHED_FRONT_LEN)?;
    Some((object_of(front)?, PageLocation::parse(behind)?))
}

/// The object that a front or an offer is of.
pub(crate) fn object_of(front: &[u8]) -> Option<u32> {
    let payload = match open_detached(front) {
        Ok((_, payload, _)) => payload,
        Err(_) => {
            let frame = Frame::parse(front).ok()?;
            (frame.opcode == Opcode::BulkPiece).then_some(frame.payload)?
        }
    };
    let (_, rest) = BulkHeader::parse(payload).ok()?;
    Some(BulkPiece::parse(rest).ok()?.header.object)
}
