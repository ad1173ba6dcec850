//! Pieces that go from one object into another, and are copied by nobody between.
//!
//! A world that gathers what it sends ([`Group::poll_gather`]) writes the bytes of a piece from
//! the object in which they lie. One that scatters what it takes ([`Group::place`]) reads them into
//! the object to which they belong.

use core::ops::Range;

use onepipe_base::{Now, Port, Transmit, Verdict};
use onepipe_wire::{
    BULK_HEADER_LEN, BulkHeader, BulkPiece, DETACHED_FRONT_LEN, Frame, Opcode, open_detached,
};

use super::Group;
use crate::Memory;

/// A frame of which perhaps only the front was written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gathered {
    /// Where it goes, and how many bytes stand in the slot.
    pub header: Transmit,
    /// In which object those behind lie, and where.
    pub(super) payload: Option<(u32, Range<usize>)>,
}

impl From<Transmit> for Gathered {
    fn from(header: Transmit) -> Self {
        Self { header, payload: None }
    }
}

/// A piece whose bytes are being written into the object to which they belong.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Placement {
    front: [u8; DETACHED_FRONT_LEN],
    object: u32,
    block: u32,
    piece: u32,
    offset: usize,
    bytes: usize,
}

impl Gathered {
    /// How many bytes the piece has; none if it is something else.
    pub fn bytes(&self) -> usize {
        self.payload.as_ref().map_or(0, |(_, range)| range.len())
    }
}

impl Placement {
    /// The object that the piece is of.
    pub fn object(&self) -> u32 {
        self.object
    }

    /// Where in the object it begins.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Where the bytes of a piece are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Payload<'a> {
    /// In the frame.
    InFrame(&'a [u8]),
    /// Where they belong, so many.
    Placed(usize),
}

impl Payload<'_> {
    pub fn len(&self) -> usize {
        match self {
            Self::InFrame(bytes) => bytes.len(),
            Self::Placed(bytes) => *bytes,
        }
    }
}

impl<M: Memory> Group<M> {
    /// As [`onepipe_base::Machine::poll_transmit`], but the bytes of a piece stay where they are:
    /// [`Group::behind`] shows them, until the group is told or commanded anything. `slot` holds at
    /// least [`crate::Config::frame_len_max`].
    pub fn poll_gather(&mut self, now: Now, slot: &mut [u8]) -> Option<Gathered> {
        self.start(now.mono);
        self.transmit(now, slot, true)
    }

    /// What follows the front of a frame; nothing, if all of it stands in the slot.
    pub fn payload(&self, gathered: &Gathered) -> &[u8] {
        let bytes = gathered.payload.as_ref().and_then(|(object, range)| {
            self.get(*object)?.object.as_ref()?.memory.bytes().get(range.clone())
        });
        bytes.unwrap_or_default()
    }

    /// Whether the bytes that follow this front, [`onepipe_wire::DETACHED_FRONT_LEN`] of a frame, may be
    /// read into their object. If not, the frame is taken as others are.
    ///
    /// If so, they go into [`Group::room`], and [`Group::handle_placed`] says that they are all
    /// there, or [`Group::abandon`] that they never will be.
    pub fn begin_placement(&mut self, front: &[u8]) -> Option<Placement> {
        let front: [u8; DETACHED_FRONT_LEN] = front.get(..DETACHED_FRONT_LEN)?.try_into().ok()?;
        let (header, payload, bytes) = open_detached(&front).ok()?;
        let (from, rest) = BulkHeader::parse(payload).ok()?;
        let rank = usize::from(from.from);
        let member = self.config.members.get(rank).map(|member| member.process);
        let is_ours = from.group == self.config.group.0 && from.plan == self.plan;
        let is_theirs = member == Some(header.src()) && from.from != self.config.own as u16;
        // Where memory is shared no bytes follow, and the shape says how many there are.
        let may_be = self.config.is_shared == (bytes == 0);
        if !is_ours || !is_theirs || self.outcome.is_some() || !may_be {
            return None;
        }
        let peer = &self.peers[rank];
        if peer.has_failed || peer.incarnation != Some(header.incarnation()) {
            return None;
        }
        let piece = BulkPiece::parse(rest).ok()?.header;
        if piece.offers {
            return None;
        }
        if self.config.is_shared {
            // There is no other occasion: it must be known before it can be placed.
            self.on_extent(piece.object, piece.extent)?;
        }
        let is_shared = self.config.is_shared;
        let body = self.object_mut(piece.object)?;
        if body.shape.extent != piece.extent {
            return None;
        }
        let bytes = match is_shared {
            true => body.shape.piece_len_at(piece.block, piece.offset)?,
            false => bytes,
        };
        let at = body.shape.piece_at(piece.block, piece.offset, bytes)?;
        let begin = body.shape.piece(piece.block, at).start;
        body.begin_placement(piece.block, at, piece.digest).then_some(Placement {
            front,
            object: piece.object,
            block: piece.block,
            piece: at,
            offset: begin,
            bytes,
        })
    }

    /// Where the bytes of a piece belong; `None` when its object is gone, and nobody needs them.
    pub fn placement_mut(&mut self, placement: &Placement) -> Option<&mut [u8]> {
        self.object_mut(placement.object)?.placement_mut(placement.block, placement.piece)
    }

    /// All bytes of a piece are where they belong.
    pub fn handle_placed(&mut self, now: Now, port: Port, placement: &Placement) -> Verdict {
        self.start(now.mono);
        let result = open_detached(&placement.front).and_then(|(header, payload, _)| {
            debug_assert!(payload.len() > BULK_HEADER_LEN, "the header of a piece follows");
            let frame = Frame { header, opcode: Opcode::BulkPiece, payload };
            self.process_frame(now.mono, port, &frame, Some(placement.bytes))
        });
        if let Some(body) = self.object_mut(placement.object) {
            // Whoever was no member any more has filled nothing.
            body.end_placement(placement.block, placement.piece);
        }
        self.count_frame(result)
    }

    /// The bytes of a piece will never all be there.
    pub fn abandon_placement(&mut self, placement: &Placement) {
        if let Some(body) = self.object_mut(placement.object) {
            body.end_placement(placement.block, placement.piece);
        }
    }
}
