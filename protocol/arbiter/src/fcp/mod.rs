//! One end of a session of the control protocol (FCP) between an endpoint and an arbiter. Both ends
//! use the same code.
//!
//! Packets carry running totals, so a packet that is lost, duplicated or reordered costs time and
//! nothing else. The windows here detect lost packets, so that their totals are retransmitted soon
//! (`docs/design/arbiter.md`, "Why totals, and no requests that must arrive?").

mod send_window;
mod session;
mod times;

use onepipe_base::{Incarnation, ProcessId, Psn};
use onepipe_wire::{Header, Opcode, SHORT_HEADER_LEN, seal};

pub(crate) use send_window::{DESTINATIONS_MAX, DestinationSet, WINDOW};
pub(crate) use session::{PacketVerdict, Session};
pub use times::SessionTimes;

/// The source and destination of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FrameAddress {
    pub src: ProcessId,
    pub incarnation: Incarnation,
    pub dst: ProcessId,
}

/// Completes a frame whose payload is already written behind its header. Returns its length.
pub(crate) fn seal_frame(
    slot: &mut [u8],
    opcode: Opcode,
    address: FrameAddress,
    psn: u32,
    payload_len: usize,
) -> usize {
    let header = Header::new(opcode, address.src, address.dst, address.incarnation);
    let bytes = seal(slot, header.with_psn(Psn(psn)), payload_len);
    debug_assert_eq!(bytes, SHORT_HEADER_LEN + payload_len);
    bytes
}
