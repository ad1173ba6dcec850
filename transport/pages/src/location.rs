//! The location of an object in a frame.

use onepipe_transport_shm::PageLocation;
use onepipe_wire::{BulkHeader, BulkPiece, DETACHED_FRONT_LEN, Frame, Opcode, open_detached};

/// Parses the object number and the page location of a frame: the header part of a piece, or an
/// offer, followed by the location. `None` for any other frame or malformed bytes.
pub fn page_location(frame: &[u8]) -> Option<(u32, PageLocation)> {
    let (front, location) = frame.split_at_checked(DETACHED_FRONT_LEN)?;
    Some((object_of(front)?, PageLocation::parse(location)?))
}

/// Parses the object number of the header part of a piece or of an offer.
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
