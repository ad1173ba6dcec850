//! Pieces that go from one object into another, and are copied by nobody between.
//!
//! A world that gathers what it sends ([`Group::poll_gather`]) writes the octets of a piece from
//! the object in which they lie. One that scatters what it takes ([`Group::place`]) reads them into
//! the object to which they belong.

use core::ops::Range;

use onepipe_base::{Now, Port, Transmit, Verdict};
use onepipe_wire::{
    APART_OCTETS, BULK_FRONT_OCTETS, BulkFront, BulkPiece, Frame, Opcode, open_apart,
};

use super::Group;
use crate::Memory;

/// A frame of which perhaps only the front was written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gathered {
    /// Where it goes, and how many octets stand in the slot.
    pub front: Transmit,
    /// In which object those behind lie, and where.
    pub(super) behind: Option<(u32, Range<usize>)>,
}

impl From<Transmit> for Gathered {
    fn from(front: Transmit) -> Self {
        Self { front, behind: None }
    }
}

/// A piece whose octets are being written into the object to which they belong.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Placing {
    front: [u8; APART_OCTETS],
    object: u32,
    block: u32,
    piece: u32,
    at: usize,
    octets: usize,
}

impl Gathered {
    /// How many octets the piece has; none if it is something else.
    pub fn octets(&self) -> usize {
        self.behind.as_ref().map_or(0, |(_, range)| range.len())
    }
}

impl Placing {
    /// The object that the piece is of.
    pub fn object(&self) -> u32 {
        self.object
    }

    /// Where in the object it begins.
    pub fn at(&self) -> usize {
        self.at
    }

    /// How many octets it has.
    pub fn octets(&self) -> usize {
        self.octets
    }
}

/// Where the octets of a piece are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Octets<'a> {
    /// In the frame.
    Here(&'a [u8]),
    /// Where they belong, so many.
    Placed(usize),
}

impl Octets<'_> {
    pub fn len(&self) -> usize {
        match self {
            Self::Here(octets) => octets.len(),
            Self::Placed(octets) => *octets,
        }
    }
}

impl<M: Memory> Group<M> {
    /// As [`onepipe_base::Machine::poll_transmit`], but the octets of a piece stay where they are:
    /// [`Group::behind`] shows them, until the group is told or commanded anything. `slot` holds at
    /// least [`crate::Config::frame_octets_max`].
    pub fn poll_gather(&mut self, now: Now, slot: &mut [u8]) -> Option<Gathered> {
        self.begin(now.mono);
        self.transmit(now, slot, true)
    }

    /// What follows the front of a frame; nothing, if all of it stands in the slot.
    pub fn behind(&self, gathered: &Gathered) -> &[u8] {
        let octets = gathered.behind.as_ref().and_then(|(object, range)| {
            self.get(*object)?.object.as_ref()?.memory.octets().get(range.clone())
        });
        octets.unwrap_or_default()
    }

    /// Whether the octets that follow this front, [`onepipe_wire::APART_OCTETS`] of a frame, may be
    /// read into their object. If not, the frame is taken as others are.
    ///
    /// If so, they go into [`Group::room`], and [`Group::handle_placed`] says that they are all
    /// there, or [`Group::abandon`] that they never will be.
    pub fn place(&mut self, front: &[u8]) -> Option<Placing> {
        let front: [u8; APART_OCTETS] = front.get(..APART_OCTETS)?.try_into().ok()?;
        let (header, payload, octets) = open_apart(&front).ok()?;
        let (from, rest) = BulkFront::parse(payload).ok()?;
        let rank = usize::from(from.from);
        let member = self.config.members.get(rank).map(|member| member.process);
        let is_ours = from.group == self.config.group.0 && from.plan == self.plan;
        let is_theirs = member == Some(header.src()) && from.from != self.config.own as u16;
        // Where memory is shared no octets follow, and the shape says how many there are.
        let may_be = self.config.is_shared == (octets == 0);
        if !is_ours || !is_theirs || self.outcome.is_some() || !may_be {
            return None;
        }
        let peer = &self.peers[rank];
        if peer.has_failed || peer.life != Some(header.incarnation()) {
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
        let octets = match is_shared {
            true => body.shape.octets_at(piece.block, piece.offset)?,
            false => octets,
        };
        let at = body.shape.piece_at(piece.block, piece.offset, octets)?;
        let begin = body.shape.piece(piece.block, at).start;
        body.place(piece.block, at, piece.digest).then_some(Placing {
            front,
            object: piece.object,
            block: piece.block,
            piece: at,
            at: begin,
            octets,
        })
    }

    /// Where the octets of a piece belong; `None` when its object is gone, and nobody needs them.
    pub fn room(&mut self, placing: &Placing) -> Option<&mut [u8]> {
        self.object_mut(placing.object)?.room(placing.block, placing.piece)
    }

    /// All octets of a piece are where they belong.
    pub fn handle_placed(&mut self, now: Now, port: Port, placing: &Placing) -> Verdict {
        self.begin(now.mono);
        let read = open_apart(&placing.front).and_then(|(header, payload, _)| {
            debug_assert!(payload.len() > BULK_FRONT_OCTETS, "the header of a piece is behind");
            let frame = Frame { header, opcode: Opcode::BulkPiece, payload };
            self.read(now.mono, port, &frame, Some(placing.octets))
        });
        if let Some(body) = self.object_mut(placing.object) {
            // Whoever was no member any more has filled nothing.
            body.placed(placing.block, placing.piece);
        }
        self.conclude(read)
    }

    /// The octets of a piece will never all be there.
    pub fn abandon(&mut self, placing: &Placing) {
        if let Some(body) = self.object_mut(placing.object) {
            body.placed(placing.block, placing.piece);
        }
    }
}
