//! One end of a session of the control protocol (FCP) between an endpoint and an arbiter. Both ends
//! use the same code.
//!
//! Packets carry running totals, so a packet that is lost, duplicated or reordered costs time and
//! nothing else. The windows here detect lost packets, so that their totals are retransmitted soon
//! (`docs/design/arbiter.md`, "Why totals, and no requests that must arrive?").

mod send_window;
mod session;
mod times;

use onepipe_base::{Incarnation, Now, ProcessId, Promises, Psn, Timestamp};
use onepipe_wire::{HEADER_LEN, Header, Opcode, seal};

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

/// How far back the promises of these frames lie, ns. Arbiters promise nothing; a quarter of the
/// range of timestamps is what switches without a promise send too.
const NO_PROMISE_NS: u64 = 1 << 46;

/// Completes a frame whose payload is already written behind its header. Returns its length.
pub(crate) fn seal_frame(
    slot: &mut [u8],
    opcode: Opcode,
    address: FrameAddress,
    psn: u32,
    now: Now,
    payload_len: usize,
) -> usize {
    let nothing = Promises::both(Timestamp::from_ns(now.sync.as_ns().wrapping_sub(NO_PROMISE_NS)));
    let header = Header::new(opcode, address.src, address.dst, address.incarnation);
    let bytes = seal(slot, header.stamped(now.sync, nothing, Psn(psn)), payload_len);
    debug_assert_eq!(bytes, HEADER_LEN + payload_len);
    bytes
}
