//! The ordering header and its envelope.

use onepipe_base::{Incarnation, Instance, ProcessId, Promises, Psn, Timestamp, WireTimestamp};
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{DecodeError, Opcode, integrity};

/// Bytes of the ordering header proper (1Pipe section 6.1: three 48-bit timestamps, PSN, opcode,
/// flags).
pub const ORDERING_HEADER_LEN: usize = 24;
/// Bytes before the payload: the ordering header and the envelope.
pub const HEADER_LEN: usize = 52;
/// The version byte. Foreign packets hardly ever bear it.
pub const VERSION: u8 = 0x1b;
/// How many switches a frame may pass: no loop lives longer.
pub const HOPS_MAX: u8 = 32;

/// Bits of the flags byte.
pub struct Flags;

impl Flags {
    /// This packet ends a message (set on whole messages and on last fragments).
    pub const END_OF_MESSAGE: u8 = 1 << 0;
    /// A queue on the way was above its threshold (the ECN bit; rewritten by hops).
    pub const CONGESTION: u8 = 1 << 1;
    /// The receiver is asked to acknowledge at once.
    pub const ACK_NOW: u8 = 1 << 2;
    /// Its messages go into the room that was granted for them, not into the window.
    pub const RESERVED: u8 = 1 << 3;
    /// In a beacon: nothing feeds this link. It is up, and the barrier promise is only a mark,
    /// above all promises before it (design: failure.md, "What does a switch say that nothing
    /// feeds?").
    pub const UNFED: u8 = 1 << 4;
    /// With [`Flags::UNFED`]: dead links behind it hold commits at the commit promise. Else that is
    /// none.
    pub const HOLDS: u8 = 1 << 5;
    /// In a beacon or a join: a former life of who hears this holds commits at the end of the link
    /// from which it comes. No commit that is told there counts yet (design: failure.md, "What is
    /// told where a former life holds commits?").
    pub const PREVIOUS_HOLDS: u8 = 1 << 6;
    /// Of a piece of bulk multicast: `integrity` covers its front alone (see
    /// [`crate::seal_detached`]).
    pub const DETACHED: u8 = 1 << 7;
}

/// The 52 bytes at the front of every frame, as they travel.
///
/// Mutable on the way: both barriers, [`Flags::CONGESTION`], `hops` and `hop_check`. Everything
/// else is covered by `integrity`, end to end.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
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
    /// A header with addresses and no timestamps yet: see [`Header::stamped`].
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

    /// The header of a frame that speaks of its link: from `own`, to whoever is at the other end,
    /// with `peer` as who is heard there (design: failure.md, "Who is on a link?").
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

    /// The header of a switch's beacon that also says that the promises of the other end, up
    /// to `counted` so far, count here and hold all commits that this switch tells anybody.
    #[must_use]
    pub fn with_counted(mut self, counted: Timestamp) -> Self {
        self.message_ts = six(counted);
        self
    }

    /// Who sent a frame that speaks of its link, or any frame of a process.
    #[inline]
    pub fn sender(&self) -> Option<Instance> {
        Instance::from_words((self.src.get(), self.incarnation.get()))
    }

    /// Whom the sender of a frame that speaks of its link hears at this end.
    pub fn peer(&self) -> Option<Instance> {
        Instance::from_words((self.dst.get(), self.psn.get()))
    }

    /// The same header with its three timestamps and PSN.
    #[must_use]
    pub fn stamped(mut self, message: Timestamp, promises: Promises, psn: Psn) -> Self {
        self.message_ts = six(message);
        self.psn = U32::new(psn.0);
        self.set_promises(promises);
        self
    }

    /// The same header with `flags` set.
    #[must_use]
    pub fn flagged(mut self, flags: u8) -> Self {
        self.flags |= flags;
        self
    }

    /// Who sent it; of a switch the bits of its address: see [`Header::sender`].
    pub fn src(&self) -> ProcessId {
        ProcessId(self.src.get())
    }

    /// Whom it is for; of no meaning in a frame that speaks of its link: see [`Header::peer`].
    pub fn dst(&self) -> ProcessId {
        ProcessId(self.dst.get())
    }

    /// Which life of the sender it comes from.
    pub fn incarnation(&self) -> Incarnation {
        Incarnation(self.incarnation.get())
    }

    /// Its number on the connection.
    pub fn psn(&self) -> Psn {
        Psn(self.psn.get())
    }

    /// What it is for.
    pub fn opcode(&self) -> Result<Opcode, DecodeError> {
        Opcode::try_from(self.opcode)
    }

    /// Whether all of `flags` are set.
    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// Bytes of payload behind the header. A frame may be longer (padding), never shorter.
    pub fn length(&self) -> usize {
        usize::from(self.length.get())
    }

    /// How many more switches it may pass.
    pub fn hops(&self) -> u8 {
        self.hops
    }

    /// The timestamp of its first message, expanded against `near`.
    pub fn message_ts(&self, near: Timestamp) -> Timestamp {
        Timestamp::from_wire(from_six(self.message_ts), near)
    }

    /// Both promises, expanded against `near`.
    pub fn promises(&self, near: Timestamp) -> Promises {
        Promises {
            barrier: Timestamp::from_wire(from_six(self.barrier), near),
            commit: Timestamp::from_wire(from_six(self.commit), near),
        }
    }

    pub(crate) fn set_promises(&mut self, promises: Promises) {
        self.barrier = six(promises.barrier);
        self.commit = six(promises.commit);
    }
}

/// A frame whose checks hold, borrowed from its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The front of the frame.
    pub header: &'a Header,
    /// What it is for.
    pub opcode: Opcode,
    /// Exactly the bytes that the header announces.
    pub payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Checks version, opcode, length, hop check and end-to-end check, in this order.
    ///
    /// # Errors
    /// A [`DecodeError`] for anything that a peer of this version would not have sent.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (header, opcode) = parse_header(bytes)?;
        let payload = &bytes[HEADER_LEN..HEADER_LEN + header.length()];
        if integrity::end_to_end(header, payload) != header.integrity.get() {
            return Err(DecodeError::Integrity);
        }
        Ok(Self { header, opcode, payload })
    }
}

/// What a hop needs of a frame: everything of [`Frame::parse`] but the end-to-end check, which is
/// the receiver's affair.
///
/// # Errors
/// As [`Frame::parse`].
#[inline]
pub fn parse_header(bytes: &[u8]) -> Result<(&Header, Opcode), DecodeError> {
    let (header, opcode, rest) = begin(bytes)?;
    if rest.len() < header.length() {
        let (need, got) = (header.length(), rest.len());
        return Err(DecodeError::Truncated { part: "payload", need, got });
    }
    Ok((header, opcode))
}

/// As [`parse_header`], where the payload need not be there yet; what there is of it stands behind.
#[inline]
pub(crate) fn begin(bytes: &[u8]) -> Result<(&Header, Opcode, &[u8]), DecodeError> {
    let truncated = DecodeError::Truncated { part: "header", need: HEADER_LEN, got: bytes.len() };
    let (header, rest) = Header::ref_from_prefix(bytes).map_err(|_| truncated)?;
    if header.version != VERSION {
        return Err(DecodeError::Version(header.version));
    }
    if integrity::hop(header) != header.hop_check.get() {
        return Err(DecodeError::HopCheck);
    }
    Ok((header, header.opcode()?, rest))
}

/// The front of a frame, with nothing checked but its length: for hints, which cost time when they
/// are wrong and nothing else. Never to act on; see [`parse_header`].
#[inline]
pub fn header_unchecked(bytes: &[u8]) -> Option<&Header> {
    Header::ref_from_prefix(bytes).ok().map(|(header, _)| header)
}

#[inline]
fn six(ts: Timestamp) -> [u8; 6] {
    let [_, _, six @ ..] = ts.to_wire().bits().to_be_bytes();
    six
}

#[inline]
fn from_six(six: [u8; 6]) -> WireTimestamp {
    let [a, b, c, d, e, f] = six;
    WireTimestamp::from_bits(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use onepipe_base::{Address, SwitchId};

    #[test]
    fn both_ends_of_a_link_survive_the_wire() {
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
