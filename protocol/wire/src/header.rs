//! The frame header: 1Pipe's ordering header and the envelope.

use onepipe_base::{Incarnation, Instance, ProcessId, Promises, Psn, Timestamp, WireTimestamp};
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{DecodeError, Opcode, VERSION};

/// Length of the ordering header (1Pipe section 6.1: three 48-bit timestamps, PSN, opcode, flags).
pub const ORDERING_HEADER_LEN: usize = 24;
/// Length of the header of a frame: the ordering header and the envelope.
pub const HEADER_LEN: usize = 52;
/// Maximum number of switches on the path of a frame; ends forwarding loops.
pub const HOPS_MAX: u8 = 32;

/// Bits of the flags byte.
pub struct Flags;

impl Flags {
    /// This packet ends a message (set on whole messages and on last fragments).
    pub const END_OF_MESSAGE: u8 = 1 << 0;
    /// In a beacon or a join: the sender sends beacons on demand, and answers solicits
    /// (docs/design/ordering.md, "When are beacons sent?").
    pub const ON_DEMAND: u8 = 1 << 0;
    /// A queue on the path was above its threshold (the ECN bit; set by hops).
    pub const CONGESTION: u8 = 1 << 1;
    /// The receiver should acknowledge at once.
    pub const ACK_NOW: u8 = 1 << 2;
    /// Its messages use a granted reservation instead of the window.
    pub const RESERVED: u8 = 1 << 3;
    /// In a data frame of the best-effort service: each of its messages is delivered when it has
    /// arrived, without its position in the total order (docs/design/ordering.md, "What is sent
    /// without an order?").
    pub const UNORDERED: u8 = 1 << 4;
    /// In a beacon: no live input feeds this link. The link is up, and its barrier is a mark above
    /// all earlier promises rather than a promise (docs/design/failure.md, "What does an unfed
    /// switch send?").
    pub const UNFED: u8 = 1 << 4;
    /// With [`Flags::UNFED`]: the commit promise is valid, because dead links behind the sender
    /// hold commits there. UNFED without this flag: the commit is no promise either.
    pub const HOLDS: u8 = 1 << 5;
    /// In a data frame: an acknowledgement of the opposite connection precedes the messages (see
    /// [`crate::PiggybackedAck`]).
    pub const PIGGYBACK: u8 = 1 << 5;
    /// In a data frame: the payload, behind an acknowledgement if there is one, is one message with
    /// index 0 and the frame's timestamp, without a header of its own.
    pub const SINGLE: u8 = 1 << 6;
    /// In a beacon or a join: the sender holds commits for a previous incarnation of the receiver.
    /// No commit promised on this link counts yet (docs/design/failure.md, "What is sent while a
    /// previous incarnation's commits are held?").
    pub const PREVIOUS_HOLDS: u8 = 1 << 6;
    /// In a bulk piece: `integrity` covers only the front of the payload (see
    /// [`crate::seal_detached`]).
    pub const DETACHED: u8 = 1 << 7;
}

/// The 52-byte header at the front of every frame, in wire layout.
///
/// Hops may change both barriers, [`Flags::CONGESTION`], `hops` and `hop_check`; `integrity` covers
/// everything else, end to end.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Header {
    pub(crate) message_ts: [u8; 6],
    pub(crate) barrier: [u8; 6],
    pub(crate) commit: [u8; 6],
    pub(crate) psn: U32,
    pub(crate) opcode: u8,
    pub(crate) flags: u8,
    pub(crate) src: U32,
    pub(crate) dst: U32,
    pub(crate) incarnation: U32,
    pub(crate) length: U16,
    pub(crate) hops: u8,
    pub(crate) version: u8,
    pub(crate) integrity: U64,
    pub(crate) hop_check: U32,
}

const _: () = assert!(size_of::<Header>() == HEADER_LEN);
const _: () = assert!(core::mem::offset_of!(Header, src) == ORDERING_HEADER_LEN);

impl Header {
    /// Returns a header with addresses and without timestamps: see [`Header::stamped`].
    pub fn new(opcode: Opcode, src: ProcessId, dst: ProcessId, incarnation: Incarnation) -> Self {
        Self {
            message_ts: [0; 6],
            barrier: [0; 6],
            commit: [0; 6],
            psn: U32::ZERO,
            opcode: opcode as u8,
            flags: 0,
            src: U32::new(src.0),
            dst: U32::new(dst.0),
            incarnation: U32::new(incarnation.0),
            length: U16::ZERO,
            hops: HOPS_MAX,
            version: VERSION,
            integrity: U64::ZERO,
            hop_check: U32::ZERO,
        }
    }

    //= spec/failure.md#R11
    /// Returns the header of a hop-only frame from `own`, which names `peer` as the instance at the
    /// other end of the link (docs/design/failure.md, "Who is on a link?").
    pub fn hop_only(
        opcode: Opcode,
        own: Instance,
        peer: Option<Instance>,
        promises: Promises,
    ) -> Self {
        let (src, incarnation) = Instance::to_words(Some(own));
        let (dst, psn) = Instance::to_words(peer);
        let header = Self::new(opcode, ProcessId(src), ProcessId(dst), Incarnation(incarnation));
        header.stamped(promises.barrier, promises, Psn(psn))
    }

    /// Returns the header of a switch's beacon with an acknowledgement for the other end: the
    /// promises of that end up to `counted` are counted, and bound every commit that this switch
    /// advertises.
    #[must_use]
    pub fn with_counted(mut self, counted: Timestamp) -> Self {
        self.message_ts = to_wire_bytes(counted);
        self
    }

    /// Returns the header of a solicit for promises above `wanted`.
    #[must_use]
    pub fn soliciting(self, wanted: Timestamp) -> Self {
        self.with_counted(wanted)
    }

    /// Returns the sender of a hop-only frame, or of any frame of a process.
    #[inline]
    pub fn sender(&self) -> Option<Instance> {
        Instance::from_words(self.src.get(), self.incarnation.get())
    }

    /// Returns the instance that the sender of a hop-only frame receives from on this link.
    pub fn peer(&self) -> Option<Instance> {
        Instance::from_words(self.dst.get(), self.psn.get())
    }

    /// Returns the header with its three timestamps and PSN.
    #[must_use]
    pub fn stamped(mut self, message: Timestamp, promises: Promises, psn: Psn) -> Self {
        self.message_ts = to_wire_bytes(message);
        self.psn = U32::new(psn.0);
        self.set_promises(promises);
        self
    }

    /// Returns the header with `flags` set.
    #[must_use]
    pub fn flagged(mut self, flags: u8) -> Self {
        self.flags |= flags;
        self
    }

    /// Returns the sender; for a switch the bits of its address: see [`Header::sender`].
    pub fn src(&self) -> ProcessId {
        ProcessId(self.src.get())
    }

    /// Returns the destination; not valid in a hop-only frame: see [`Header::peer`].
    pub fn dst(&self) -> ProcessId {
        ProcessId(self.dst.get())
    }

    /// Returns the incarnation of the sender.
    pub fn incarnation(&self) -> Incarnation {
        Incarnation(self.incarnation.get())
    }

    /// Returns the sequence number on the connection.
    pub fn psn(&self) -> Psn {
        Psn(self.psn.get())
    }

    /// Returns the opcode.
    pub fn opcode(&self) -> Result<Opcode, DecodeError> {
        Opcode::try_from(self.opcode)
    }

    /// Returns whether all of `flags` are set.
    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// Returns the length of the payload. A frame may be longer (padding), never shorter.
    pub fn length(&self) -> usize {
        usize::from(self.length.get())
    }

    /// Returns the number of switches that the frame may still pass.
    pub fn hops(&self) -> u8 {
        self.hops
    }

    /// Returns the timestamp of the first message, expanded against `near`.
    pub fn message_ts(&self, near: Timestamp) -> Timestamp {
        Timestamp::from_wire(from_wire_bytes(self.message_ts), near)
    }

    /// Returns both promises, expanded against `near`.
    pub fn promises(&self, near: Timestamp) -> Promises {
        Promises {
            barrier: Timestamp::from_wire(from_wire_bytes(self.barrier), near),
            commit: Timestamp::from_wire(from_wire_bytes(self.commit), near),
        }
    }

    pub(crate) fn set_promises(&mut self, promises: Promises) {
        self.barrier = to_wire_bytes(promises.barrier);
        self.commit = to_wire_bytes(promises.commit);
    }
}

/// Returns the header of a frame without any check but for its length. For hints that affect
/// performance only; to act on a header use [`crate::parse_header`].
#[inline]
pub fn header_unchecked(bytes: &[u8]) -> Option<&Header> {
    Header::ref_from_prefix(bytes).ok().map(|(header, _)| header)
}

#[inline]
fn to_wire_bytes(ts: Timestamp) -> [u8; 6] {
    let [_, _, bytes @ ..] = ts.to_wire().bits().to_be_bytes();
    bytes
}

#[inline]
fn from_wire_bytes(bytes: [u8; 6]) -> WireTimestamp {
    let [a, b, c, d, e, f] = bytes;
    WireTimestamp::from_bits(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use onepipe_base::{Address, SwitchId};

    #[test]
    fn hop_only_instances_round_trip() {
        let instance = |switch, incarnation| Instance {
            address: Address::Switch(SwitchId(switch)),
            incarnation: Incarnation(incarnation),
        };
        let promises = Promises::both(Timestamp::from_ns(5));
        for peer in [None, Some(instance(9, 0)), Some(instance(8, u32::MAX))] {
            let header = Header::hop_only(Opcode::Beacon, instance(3, 7), peer, promises);
            assert_eq!((header.sender(), header.peer()), (Some(instance(3, 7)), peer));
        }
    }
}
