//! Flow of an object between this member and a peer: tokens, and blocks that the peer holds.

use onepipe_reliability::BitSet;
use onepipe_wire::BulkHaveView;

use crate::OBJECTS_MAX;

/// Progress of an object between this member and a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ObjectFlow {
    object: u32,
    /// Number of blocks that the peer has granted tokens for.
    pub granted: u32,
    /// Number of blocks queued for the peer.
    pub queued: u32,
    /// Number of blocks that the peer has sent by the schedule.
    pub consumed: u32,
    pub has_offered: bool,
    /// Blocks that the peer holds.
    holds: BitSet,
    /// Words of `holds` that were received in the present view.
    words_received: BitSet,
    words_view: Option<(u16, u64)>,
}

impl ObjectFlow {
    /// Returns whether the peer has granted no token and must be offered the object, once.
    pub fn must_offer(&mut self) -> bool {
        self.granted == 0 && !core::mem::replace(&mut self.has_offered, true)
    }

    /// Returns the blocks that the peer holds, as far as reported.
    pub fn holds(&self) -> &BitSet {
        &self.holds
    }

    /// Handles a report of held blocks of an object of `blocks` blocks, 0 if its shape is unknown.
    /// `failed` is the number of failures that the peer had learned of.
    pub fn on_have(&mut self, failed: u16, blocks: u32, view: &BulkHaveView<'_>) {
        let have = view.have;
        if self.words_view.is_none_or(|(count, known)| failed >= count && known != have.view) {
            // The previous report may predate the shape. Blocks held then are still held.
            let known = core::mem::replace(&mut self.holds, BitSet::new(blocks));
            for (word, bits) in known.words().iter().enumerate() {
                self.holds.merge(word, *bits);
            }
            self.words_received = BitSet::new(blocks.div_ceil(64));
            self.words_view = Some((failed, have.view));
        }
        if self.words_view == Some((failed, have.view)) {
            for (ahead, bits) in (0..).zip(view.words()) {
                let Some(word) = have.first.checked_add(ahead) else { break };
                self.holds.merge(word as usize, bits);
                self.words_received.set(word);
            }
        }
    }

    /// Returns whether the peer has reported all its blocks in this view.
    pub fn is_reported_in(&self, view: u64) -> bool {
        let words = self.holds.words().len() as u32;
        self.words_view.is_some_and(|(_, words_view)| words_view == view)
            && (0..words).all(|word| self.words_received.has(word))
    }
}

/// Flows of the active objects, which never share a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ObjectFlows {
    slots: [ObjectFlow; OBJECTS_MAX as usize],
}

impl ObjectFlows {
    /// Returns the flow of an object, which may be a new one.
    #[inline]
    pub fn get_mut(&mut self, object: u32) -> &mut ObjectFlow {
        let flow = &mut self.slots[(object % OBJECTS_MAX) as usize];
        if flow.object != object {
            *flow = ObjectFlow { object, ..ObjectFlow::default() };
        }
        flow
    }

    /// Returns the flow of an object if there is one.
    #[inline]
    pub fn get(&self, object: u32) -> Option<&ObjectFlow> {
        Some(&self.slots[(object % OBJECTS_MAX) as usize]).filter(|flow| flow.object == object)
    }

    /// Panics if a flow is in the slot of another object, or has received more than there is.
    pub fn check_invariants(&self) {
        for (at, flow) in (0..).zip(&self.slots) {
            let is_its = flow.object == 0 || flow.object % OBJECTS_MAX == at;
            assert!(is_its, "active objects share no slot");
            let words = flow.holds.words().len() as u32;
            assert!(flow.words_received.count_ones() <= words, "no word lies beyond the blocks");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onepipe_wire::{BulkHave, Extent};

    //= spec/bulk.md#R27
    #[test]
    fn report_of_a_later_view_begins_again_and_retains_blocks() {
        let mut flows = ObjectFlows::default();
        let mut report = |failed, view, first, words: &[u64]| {
            let mut bytes = [0; 128];
            let extent = Some(Extent { bytes: 70, block_len: 1, has_digests: false });
            let have = BulkHave { object: 3, extent, view, first };
            let written = have.write(&mut bytes, words.iter().copied()).expect("few words");
            let view = BulkHaveView::parse(&bytes[..written]).expect("a report");
            flows.get_mut(3).on_have(failed, 70, &view);
            let flow = flows.get(3).expect("the flow of the object");
            (flow.holds().count_ones(), flow.is_reported_in(7), flow.is_reported_in(8))
        };
        assert_eq!(report(1, 7, 0, &[0b11]), (2, false, false), "a word is missing");
        assert_eq!(report(1, 7, 1, &[0b100]), (3, true, false));
        assert_eq!(report(2, 8, 0, &[0]), (3, false, false), "blocks held then are still held");
        assert_eq!(report(1, 7, 0, &[0b100]), (3, false, false), "the report is stale");
        assert_eq!(report(2, 8, 1, &[0b1000]), (4, false, true));
        flows.check_invariants();
        assert!(flows.get_mut(11).must_offer() && flows.get(3).is_none(), "a slot is used again");
    }
}
