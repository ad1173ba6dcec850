//! Re-encoding of frames of bulk multicast.

use onepipe_wire::{
    BULK_HEADER_LEN, BulkAckView, BulkFailures, BulkHaveView, BulkHeader, BulkPiece, BulkRefused,
    BulkStateView, BulkWant, Opcode,
};

/// Re-encodes a parsed payload; `None` if it is refused or the opcode is none of bulk multicast.
pub fn rewritten(opcode: Opcode, payload: &[u8]) -> Option<Vec<u8>> {
    if opcode as u8 & 0xf0 != Opcode::BulkPiece as u8 {
        return None;
    }
    let (front, rest) = BulkHeader::parse(payload).ok()?;
    let mut written = vec![0xff; payload.len()];
    let fits = "as long as before";
    let buf = front.write(&mut written).expect(fits);
    let bytes = match opcode {
        Opcode::BulkPiece => {
            let piece = BulkPiece::parse(rest).ok()?;
            let behind = piece.header.write(buf).expect(fits);
            behind.copy_from_slice(piece.bytes);
            let (header, extent) = (piece.header, piece.header.extent);
            let before = u64::from(header.block) * u64::from(extent.block_len);
            let end = before + u64::from(header.offset) + piece.bytes.len() as u64;
            assert!(end <= extent.bytes && extent.block_len > 0);
            rest.len()
        }
        Opcode::BulkState => {
            let view = BulkStateView::parse(rest).ok()?;
            view.state.write(buf, view.tokens()).expect(fits)
        }
        Opcode::BulkAck => {
            let view = BulkAckView::parse(rest).ok()?;
            view.ack.write(buf, view.words()).expect(fits)
        }
        Opcode::BulkFailures => BulkFailures::write(buf, BulkFailures::parse(rest).ok()?.entries()),
        Opcode::BulkHave => {
            let view = BulkHaveView::parse(rest).ok()?;
            assert!(view.have.extent.is_some() || view.words().len() == 0);
            view.have.write(buf, view.words()).expect(fits)
        }
        Opcode::BulkWant => BulkWant::parse(rest).ok()?.write(buf).expect(fits),
        _ => BulkRefused::parse(rest).ok()?.write(buf).expect(fits),
    };
    written.truncate(BULK_HEADER_LEN + bytes);
    Some(written)
}
