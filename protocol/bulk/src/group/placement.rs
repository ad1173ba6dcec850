//! Zero-copy transfer of pieces (direct data placement).
//!
//! A transport with gathering output ([`Group::poll_gather`]) writes the data of a piece directly
//! from its object. A transport with scattering input ([`Group::begin_placement`]) reads the data
//! directly into its object.

use core::ops::Range;

use onepipe_base::{Now, Port, Transmit, Verdict};
use onepipe_wire::{
    BULK_HEADER_LEN, BulkHeader, BulkPiece, DETACHED_FRONT_LEN, Frame, Opcode, open_detached,
};

use super::Group;
use crate::Memory;

/// Frame whose payload may be detached: only its header is in the slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gathered {
    /// Destination, and number of bytes in the slot.
    pub header: Transmit,
    /// Object that the detached payload is in, and its range there.
    pub(super) payload: Option<(u32, Range<usize>)>,
}

impl From<Transmit> for Gathered {
    fn from(header: Transmit) -> Self {
        Self { header, payload: None }
    }
}

/// Piece whose data is being written into its object.
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
    /// Returns the length of the detached payload.
    pub fn payload_len(&self) -> usize {
        self.payload.as_ref().map_or(0, |(_, range)| range.len())
    }
}

impl Placement {
    /// Returns the object of the piece.
    pub fn object(&self) -> u32 {
        self.object
    }

    /// Returns the offset of the piece in its object.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the length of the piece.
    pub fn piece_len(&self) -> usize {
        self.bytes
    }
}

/// Data of a received piece.
#[derive(Clone, Copy, Debug)]
pub(super) enum Payload<'a> {
    /// In the frame.
    InFrame(&'a [u8]),
    /// Already in its object: the number of bytes.
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
    /// Like [`onepipe_base::Machine::poll_transmit`], but leaves the data of a piece in its object.
    /// [`Group::payload`] returns the data until the group is modified. `slot` must hold at least
    /// [`crate::Config::frame_len_max`] bytes.
    pub fn poll_gather(&mut self, now: Now, slot: &mut [u8]) -> Option<Gathered> {
        self.start(now.mono);
        self.transmit(now, slot, true)
    }

    /// Returns the detached payload of a frame; empty if the whole frame is in the slot.
    pub fn payload(&self, gathered: &Gathered) -> &[u8] {
        let bytes = gathered.payload.as_ref().and_then(|(object, range)| {
            self.window.body(*object)?.memory.bytes().get(range.clone())
        });
        bytes.unwrap_or_default()
    }

    /// Starts the placement of a piece, given the first [`onepipe_wire::DETACHED_FRONT_LEN`] bytes
    /// of its frame. Returns `None` if the frame must be received as a whole.
    ///
    /// The caller writes the rest of the frame to [`Group::placement_mut`], and then calls
    /// [`Group::handle_placed`], or [`Group::abandon_placement`] if the data cannot be completed.
    pub fn begin_placement(&mut self, front: &[u8]) -> Option<Placement> {
        let front: [u8; DETACHED_FRONT_LEN] = front.get(..DETACHED_FRONT_LEN)?.try_into().ok()?;
        let (header, payload, bytes) = open_detached(&front).ok()?;
        let (bulk_header, rest) = BulkHeader::parse(payload).ok()?;
        let rank = u32::from(bulk_header.from);
        let member = self.config.members.get(rank as usize).map(|member| member.process);
        let is_ours = bulk_header.group == self.config.group.0
            && bulk_header.config_digest == self.config_digest;
        let is_theirs = member == Some(header.src()) && bulk_header.from != self.config.own as u16;
        // In shared memory no data follows; its length is that of the piece.
        let has_expected_data = self.config.is_shared == (bytes == 0);
        if !is_ours || !is_theirs || self.membership.is_over() || !has_expected_data {
            return None;
        }
        let peer = &self.peers[rank];
        if peer.has_failed || peer.incarnation != Some(header.incarnation()) {
            return None;
        }
        let piece = BulkPiece::parse(rest).ok()?.header;
        if piece.is_offer {
            return None;
        }
        if self.config.is_shared {
            // The object must be announced before its first block can be placed.
            self.on_extent(piece.object, piece.extent)?;
        }
        let is_shared = self.config.is_shared;
        let body = self.window.body_mut(piece.object)?;
        if body.shape.extent != piece.extent {
            return None;
        }
        let bytes = match is_shared {
            true => body.shape.piece_len_at(piece.block, piece.offset)?,
            false => bytes,
        };
        let at = body.shape.piece_at(piece.block, piece.offset, bytes)?;
        let begin = body.shape.piece(piece.block, at).start;
        debug_assert!(begin + bytes <= body.memory.bytes().len(), "a piece is in its object");
        body.begin_placement(piece.block, at, piece.digest).then_some(Placement {
            front,
            object: piece.object,
            block: piece.block,
            piece: at,
            offset: begin,
            bytes,
        })
    }

    /// Returns the memory of a piece, or `None` if its object has been released.
    pub fn placement_mut(&mut self, placement: &Placement) -> Option<&mut [u8]> {
        self.window.body_mut(placement.object)?.placement_mut(placement.block, placement.piece)
    }

    /// Handles a piece whose data is complete in its object.
    pub fn handle_placed(&mut self, now: Now, port: Port, placement: &Placement) -> Verdict {
        self.start(now.mono);
        let result = open_detached(&placement.front).and_then(|(header, payload, _)| {
            debug_assert!(payload.len() > BULK_HEADER_LEN, "the header of a piece follows");
            let frame = Frame { header, opcode: Opcode::BulkPiece, payload };
            self.process_frame(now.mono, port, &frame, Some(placement.bytes))
        });
        if let Some(body) = self.window.body_mut(placement.object) {
            // The frame may have been ignored, for example because its sender was excluded.
            body.end_placement(placement.block, placement.piece);
        }
        self.check_after_frame();
        self.count_frame(result)
    }

    /// Ends the placement of a piece whose data is incomplete.
    pub fn abandon_placement(&mut self, placement: &Placement) {
        if let Some(body) = self.window.body_mut(placement.object) {
            body.end_placement(placement.block, placement.piece);
        }
    }
}
