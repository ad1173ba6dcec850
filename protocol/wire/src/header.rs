//! The header of a frame.
//!
//! Everything that a switch rewrites is at a fixed offset in the first 56 bytes, so that a
//! programmable chip or a kernel program can do it. Frames of ordered scattering and of the
//! controller end their header with 1Pipe's three timestamps. In the others, whose timestamps would
//! mean nothing, the header ends before them: see [`header_len`].

use onepipe_base::{Incarnation, Instance, ProcessId, Promises, Psn, Timestamp, WireTimestamp};
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{DecodeError, Opcode, VERSION};

/// Length of a header with timestamps: of ordered scattering, and of the controller.
pub const HEADER_LEN: usize = 56;
/// Length of a header without timestamps: of agreed and bulk multicast, scheduled transfer, and
/// foreign traffic.
pub const SHORT_HEADER_LEN: usize = HEADER_LEN - 3 * TIMESTAMP_LEN;
/// Length of what 1Pipe itself needs in a header: three timestamps, PSN, opcode and flags (section
/// 6.1).
pub const ORDERING_HEADER_LEN: usize = 3 * TIMESTAMP_LEN + 4 + 1 + 1;
/// Length of a timestamp on the wire: 48 bits.
const TIMESTAMP_LEN: usize = 6;
/// The lowest opcode whose header has no timestamps.
const SHORT_FROM: u8 = 0x40;
/// Maximum number of switches on the path of a frame; ends forwarding loops.
pub const HOPS_MAX: u8 = 32;
/// The bits of the byte `hops` that count; the upper two are the epoch of the key of the hop tag.
pub(crate) const HOPS_MASK: u8 = 0x3f;

/// Returns the length of the header of frames with this opcode, which need not be known.
#[inline]
pub const fn header_len(opcode: u8) -> usize {
    if opcode < SHORT_FROM { HEADER_LEN } else { SHORT_HEADER_LEN }
}

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
    /// hold commits there. UNFED without this flag: the commit is no promise either. In another
    /// beacon: the commit does not rise, because the sender may be cut off from the controllers
    /// (docs/design/failure.md, "What may rise while a dead link holds commits?").
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

/// The header at the front of every frame, in wire layout. In a short header the timestamps are
/// absent from the frame, and 0 here.
///
/// Hops may change both promises, [`Flags::CONGESTION`], `hops` and `hop_tag`; `integrity` covers
/// everything else, end to end.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Header {
    pub(crate) version: u8,
    pub(crate) opcode: u8,
    pub(crate) flags: u8,
    pub(crate) hops: u8,
    pub(crate) src: U32,
    pub(crate) dst: U32,
    pub(crate) incarnation: U32,
    pub(crate) psn: U32,
    pub(crate) integrity: U64,
    pub(crate) hop_tag: U64,
    pub(crate) length: U16,
    pub(crate) message_ts: [u8; TIMESTAMP_LEN],
    pub(crate) barrier: [u8; TIMESTAMP_LEN],
    pub(crate) commit: [u8; TIMESTAMP_LEN],
}

const _: () = assert!(size_of::<Header>() == HEADER_LEN);
const _: () = assert!(core::mem::offset_of!(Header, message_ts) == SHORT_HEADER_LEN);

impl Header {
    /// Returns a header with addresses and without timestamps: see [`Header::stamped`].
    pub fn new(opcode: Opcode, src: ProcessId, dst: ProcessId, incarnation: Incarnation) -> Self {
        Self {
            version: VERSION,
            opcode: opcode as u8,
            flags: 0,
            hops: HOPS_MAX,
            src: U32::new(src.0),
            dst: U32::new(dst.0),
            incarnation: U32::new(incarnation.0),
            psn: U32::ZERO,
            integrity: U64::ZERO,
            hop_tag: U64::ZERO,
            length: U16::ZERO,
            message_ts: [0; TIMESTAMP_LEN],
            barrier: [0; TIMESTAMP_LEN],
            commit: [0; TIMESTAMP_LEN],
        }
    }

    /// Copies the header at the front of a frame, of any version. Returns it with what follows it,
    /// or `None` if the frame ends before it.
    #[inline]
    pub(crate) fn split(bytes: &[u8]) -> Option<(Self, &[u8])> {
        if *bytes.get(OPCODE_AT)? < SHORT_FROM {
            let (front, rest) = bytes.split_first_chunk::<HEADER_LEN>()?;
            return Some((zerocopy::transmute!(*front), rest));
        }
        let (front, rest) = bytes.split_first_chunk::<SHORT_HEADER_LEN>()?;
        let mut header = Self::new_zeroed();
        header.as_mut_bytes()[..SHORT_HEADER_LEN].copy_from_slice(front);
        Some((header, rest))
    }

    /// Writes the header to the front of `bytes`.
    ///
    /// # Panics
    /// If `bytes` is shorter.
    #[inline]
    pub(crate) fn put(&self, bytes: &mut [u8]) {
        match self.has_timestamps() {
            true => bytes[..HEADER_LEN].copy_from_slice(self.as_bytes()),
            false => {
                bytes[..SHORT_HEADER_LEN].copy_from_slice(&self.as_bytes()[..SHORT_HEADER_LEN]);
            }
        }
    }

    /// Returns whether the header has timestamps: see [`header_len`].
    #[inline]
    pub const fn has_timestamps(&self) -> bool {
        self.opcode < SHORT_FROM
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

    /// Returns the header with a sequence number.
    #[must_use]
    pub fn with_psn(mut self, psn: Psn) -> Self {
        self.psn = U32::new(psn.0);
        self
    }

    /// Returns the header with its three timestamps and PSN; a short header with the PSN only.
    #[must_use]
    pub fn stamped(mut self, message: Timestamp, promises: Promises, psn: Psn) -> Self {
        if self.has_timestamps() {
            self.message_ts = to_wire_bytes(message);
            self.set_promises(promises);
        }
        self.with_psn(psn)
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

    /// Returns the version of the wire format.
    pub fn version(&self) -> u8 {
        self.version
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
        self.hops & HOPS_MASK
    }

    /// Returns the epoch of the key of the hop tag, 1 to 3; 0: the tag is a checksum without a key.
    pub fn key_epoch(&self) -> u8 {
        self.hops >> HOPS_MASK.trailing_ones()
    }

    /// Returns the timestamp of the first message, expanded against `near`; of a short header an
    /// arbitrary time.
    pub fn message_ts(&self, near: Timestamp) -> Timestamp {
        Timestamp::from_wire(from_wire_bytes(self.message_ts), near)
    }

    /// Returns both promises, expanded against `near`; of a short header arbitrary times.
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

/// Offset of the opcode in a frame of any version.
pub const OPCODE_AT: usize = core::mem::offset_of!(Header, opcode);
/// Offsets of the two checks in a frame, which together cover all of it.
pub const CHECKS_AT: core::ops::Range<usize> =
    core::mem::offset_of!(Header, integrity)..core::mem::offset_of!(Header, length);

/// Returns the opcode at the front of a frame without any check but for its length. For hints that
/// affect performance only.
#[inline]
pub fn opcode_unchecked(bytes: &[u8]) -> Option<Opcode> {
    Opcode::try_from(*bytes.get(OPCODE_AT)?).ok()
}

/// Returns the header of a frame without any check but for its length. For hints that affect
/// performance only; to act on a header use [`crate::parse_header`].
#[inline]
pub fn header_unchecked(bytes: &[u8]) -> Option<Header> {
    Header::split(bytes).map(|(header, _)| header)
}

#[inline]
fn to_wire_bytes(ts: Timestamp) -> [u8; TIMESTAMP_LEN] {
    let [_, _, bytes @ ..] = ts.to_wire().bits().to_be_bytes();
    bytes
}

#[inline]
fn from_wire_bytes(bytes: [u8; TIMESTAMP_LEN]) -> WireTimestamp {
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
