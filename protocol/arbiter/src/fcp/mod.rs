//! One end of the control protocol between an endpoint and an arbiter: both ends are alike.
//!
//! What is said are totals, so whatever is lost, comes twice or late costs time and nothing else.
//! The windows here find out what was lost, so that it is said again soon (design: arbiter.md
//! section 4).

mod session;
mod window;

use onepipe_base::{Incarnation, Now, ProcessId, Promises, Psn, Timestamp};
use onepipe_wire::{HEADER_LEN, Header, Opcode, seal};

pub(crate) use session::{PacketVerdict, RTO_MIN_NS, Session};
pub(crate) use window::{DESTINATIONS_MAX, DestinationSet, WINDOW};

/// Who sends a frame, and to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FrameAddress {
    pub src: ProcessId,
    pub incarnation: Incarnation,
    pub dst: ProcessId,
}

/// How far back the promises lie of frames that promise nothing: a quarter of the wire's range, as
/// those of a switch that has nothing to say.
const NO_PROMISE_NS: u64 = 1 << 46;

/// Completes a frame whose payload stands behind the place of its header already. Answers its
/// length.
pub(crate) fn seal_frame(
    slot: &mut [u8],
    (opcode, address, psn): (Opcode, FrameAddress, u32),
    now: Now,
    payload_len: usize,
) -> usize {
    let nothing = Promises::both(Timestamp::from_ns(now.sync.as_ns().wrapping_sub(NO_PROMISE_NS)));
    let header = Header::new(opcode, address.src, address.dst, address.incarnation);
    let bytes = seal(slot, header.stamped(now.sync, nothing, Psn(psn)), payload_len);
    debug_assert_eq!(bytes, HEADER_LEN + payload_len);
    bytes
}
