//! Reassembly of fragmented messages.

use alloc::vec::Vec;

use onepipe_base::Timestamp;
use onepipe_wire::Fragment;

use crate::MESSAGE_CHARGE_BYTES;
use crate::arena::{PayloadArena, PayloadRef};

/// A message under reassembly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Partial {
    /// Index of the sender in the peer table.
    pub from: u32,
    /// Generation of the sender.
    pub generation: u16,
    pub index: u16,
    pub timestamp: Timestamp,
    pub payload_ref: PayloadRef,
    pub len: u32,
    /// Bytes received, and their charge. Duplicates are filtered by PSN, so pieces overlap only if
    /// the sender misbehaves.
    pub arrived: u32,
    pub charge: u64,
    pub is_reserved: bool,
}

impl Partial {
    /// Returns the charge of the whole message.
    pub fn full_charge(&self) -> u64 {
        u64::from(self.len) + u64::from(MESSAGE_CHARGE_BYTES)
    }

    /// Checks that the message is incomplete, and that its pieces fit it.
    pub fn check_invariants(&self) {
        assert!(self.arrived < self.len || self.len == 0, "a complete message leaves");
        assert!(self.charge >= u64::from(self.arrived), "each piece is charged");
        assert!(self.payload_ref != PayloadRef::NONE, "its memory is allocated");
    }
}

/// All messages under reassembly; few at any time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reassembly {
    partials: Vec<Partial>,
}

impl Reassembly {
    pub fn new() -> Self {
        Self { partials: Vec::new() }
    }

    /// Returns the index of the message that `wanted` belongs to.
    pub fn find(&self, wanted: &Partial) -> Option<usize> {
        self.partials.iter().position(|partial| {
            let (a, b) = (partial, wanted);
            (a.from, a.generation, a.timestamp, a.index)
                == (b.from, b.generation, b.timestamp, b.index)
        })
    }

    /// Allocates memory for a message without pieces so far. Returns its index.
    pub fn start(&mut self, arena: &mut PayloadArena, partial: Partial) -> usize {
        let payload_ref = arena.alloc(partial.len as usize, 1);
        self.partials.push(Partial { payload_ref, ..partial });
        self.partials.len() - 1
    }

    /// Adds a piece to the message at `position`. Returns the message if that completes it. Fails
    /// if the piece contradicts earlier ones, with the message if it was removed because it can no
    /// longer be correct.
    pub fn add(
        &mut self,
        arena: &mut PayloadArena,
        position: usize,
        fragment: &Fragment<'_>,
        charge: u64,
    ) -> Result<Option<Partial>, Option<Partial>> {
        let partial = &mut self.partials[position];
        let piece = fragment.piece;
        let overflows = partial.len - partial.arrived < piece.len() as u32;
        if partial.len != fragment.header.message_len || overflows {
            return Err(None);
        }
        let payload_ref = partial.payload_ref.plus(fragment.header.offset as usize);
        arena.get_mut(payload_ref, piece.len()).copy_from_slice(piece);
        partial.arrived += piece.len() as u32;
        partial.charge += charge;
        if partial.arrived < partial.len {
            return Ok(None);
        }
        let partial = self.partials.swap_remove(position);
        // Complete by length but not by charge, so some piece arrived twice under different PSNs.
        if partial.charge == partial.full_charge() { Ok(Some(partial)) } else { Err(Some(partial)) }
    }

    /// Removes a message that was incomplete when the barrier passed it.
    pub fn take_overdue(&mut self, barrier: Timestamp) -> Option<Partial> {
        let position = self.partials.iter().position(|partial| partial.timestamp < barrier)?;
        Some(self.partials.swap_remove(position))
    }

    /// Returns the messages under reassembly.
    pub fn iter(&self) -> impl Iterator<Item = &Partial> {
        self.partials.iter()
    }

    /// Returns the number of messages under reassembly.
    pub fn len(&self) -> usize {
        self.partials.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onepipe_wire::FragmentHeader;

    fn first(len: u32) -> Partial {
        let timestamp = Timestamp::from_ns(50);
        Partial {
            from: 0,
            generation: 0,
            index: 0,
            timestamp,
            payload_ref: PayloadRef::NONE,
            len,
            arrived: 0,
            charge: 0,
            is_reserved: false,
        }
    }

    fn piece(offset: u32, piece: &[u8]) -> Fragment<'_> {
        Fragment { header: FragmentHeader { index: 0, message_len: 6, offset }, piece }
    }

    #[test]
    fn reassembles_pieces_in_any_order() {
        let (mut arena, mut reassembly) = (PayloadArena::new(), Reassembly::new());
        assert_eq!(reassembly.find(&first(6)), None);
        let position = reassembly.start(&mut arena, first(6));
        assert_eq!(reassembly.find(&first(6)), Some(position));
        assert_eq!(reassembly.add(&mut arena, position, &piece(4, b"ef"), 2), Ok(None));
        assert_eq!(reassembly.add(&mut arena, position, &piece(0, b"ab"), 66), Ok(None));
        let whole = reassembly.add(&mut arena, position, &piece(2, b"cd"), 2);
        let whole = whole.expect("consistent").expect("complete");
        assert_eq!((arena.get(whole.payload_ref, 6), whole.charge), (&b"abcdef"[..], 70));
        assert_eq!(reassembly.len(), 0);
    }

    #[test]
    fn rejects_contradicting_pieces() {
        let (mut arena, mut reassembly) = (PayloadArena::new(), Reassembly::new());
        let position = reassembly.start(&mut arena, first(6));
        assert_eq!(reassembly.add(&mut arena, position, &piece(0, b"abcd"), 68), Ok(None));
        assert_eq!(reassembly.add(&mut arena, position, &piece(3, b"def"), 3), Err(None));
        let broken = reassembly.add(&mut arena, position, &piece(0, b"ab"), 66);
        assert!(matches!(broken, Err(Some(_))), "two first pieces");
        assert_eq!(reassembly.len(), 0);
    }

    #[test]
    fn barrier_drops_incomplete_messages() {
        let (mut arena, mut reassembly) = (PayloadArena::new(), Reassembly::new());
        let position = reassembly.start(&mut arena, first(6));
        assert_eq!(reassembly.add(&mut arena, position, &piece(0, b"abcd"), 68), Ok(None));
        assert_eq!(reassembly.take_overdue(Timestamp::from_ns(50)), None);
        let overdue = reassembly.take_overdue(Timestamp::from_ns(51)).expect("below the barrier");
        assert_eq!((overdue.charge, overdue.full_charge()), (68, 70));
    }
}
