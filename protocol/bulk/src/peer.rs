//! State of another member.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use onepipe_base::{Incarnation, Mono};
use onepipe_wire::{BulkHaveView, BulkPieceHeader, BulkState};

use crate::OBJECTS_MAX;
use crate::config::SHARED_BLOCKS_MAX;
use crate::object::{BlockId, HaveWord};
use crate::session::{Item, LinkSession};
use onepipe_reliability::BitSet;

/// Maximum number of scheduled blocks queued for a peer. A slow peer may lag by this many blocks
/// before it delays the others.
pub(crate) const QUEUE_BLOCKS: usize = 64;
/// Maximum number of blocks requested from a peer at a time, once the schedule is abandoned.
pub(crate) const REQUESTED_BLOCKS_MAX: usize = 4;
/// Maximum number of blocks that a peer may request at a time. More violates the protocol.
const PEER_REQUESTS_MAX: usize = 64;
/// Maximum number of changed words of held blocks that are queued one by one; beyond it, the whole
/// list is sent again.
const HAVES_MAX: usize = 64;

/// Transfer of a block to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BlockTransfer {
    /// Object and step: the order of all transfers.
    pub step: (u32, u64),
    pub object: u32,
    pub block: u32,
    pub ordinal: u32,
    /// Next piece to be sent.
    pub piece: u32,
}

impl BlockTransfer {
    pub fn requested(BlockId { object, block }: BlockId) -> Self {
        Self { step: (0, 0), object, block, ordinal: BulkPieceHeader::REQUESTED, piece: 0 }
    }

    pub fn block_id(&self) -> BlockId {
        BlockId { object: self.object, block: self.block }
    }
}

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

/// Another member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Peer {
    pub session: LinkSession,
    pub incarnation: Option<Incarnation>,
    pub has_failed: bool,
    /// Whether the link accepts no frames now.
    pub is_blocked: bool,
    pub last_received: Mono,
    pub state_sent_at: Mono,
    /// Scheduled transfers.
    pub queue: VecDeque<BlockTransfer>,
    /// Transfer in progress.
    pub current: Option<BlockTransfer>,
    /// Content of lost frames.
    pub retransmits: VecDeque<Item>,
    /// Blocks requested by the peer.
    pub wanted: VecDeque<BlockId>,
    /// Blocks requested from the peer.
    pub requested: Vec<BlockId>,
    /// Requests that are to be sent.
    pub requests_due: VecDeque<BlockId>,
    pub is_state_due: bool,
    /// Object that the peer needs tokens for, as long as this member lacks blocks of it.
    pub tokens_due: Option<u32>,
    pub failures_sent: u32,
    /// Word from which on all held blocks are to be reported.
    pub have_cursor: Option<HaveWord>,
    /// Changed words of held blocks that are to be reported.
    pub haves_due: VecDeque<HaveWord>,
    /// Counts in the header of the last frame received.
    pub advertised_stable: u32,
    pub advertised_failed: u16,
    /// Counts in the last state received.
    pub complete: u32,
    pub known: u32,
    pub resolved: u32,
    pub view: (u16, u64),
    pub is_closed: bool,
    flows: [ObjectFlow; OBJECTS_MAX as usize],
}

impl Peer {
    pub fn new(session: LinkSession) -> Self {
        Self {
            session,
            incarnation: None,
            has_failed: false,
            is_blocked: false,
            last_received: Mono::from_ns(0),
            state_sent_at: Mono::from_ns(0),
            queue: VecDeque::new(),
            current: None,
            retransmits: VecDeque::new(),
            wanted: VecDeque::new(),
            requested: Vec::new(),
            requests_due: VecDeque::new(),
            is_state_due: false,
            tokens_due: None,
            failures_sent: 0,
            have_cursor: None,
            haves_due: VecDeque::new(),
            advertised_stable: 0,
            advertised_failed: 0,
            complete: 0,
            known: 0,
            resolved: 0,
            view: (0, 0),
            is_closed: false,
            flows: Default::default(),
        }
    }

    /// Returns the flow of an object. Active objects never share a slot.
    pub fn flow(&mut self, object: u32) -> &mut ObjectFlow {
        let flow = &mut self.flows[(object % OBJECTS_MAX) as usize];
        if flow.object != object {
            *flow = ObjectFlow { object, ..ObjectFlow::default() };
        }
        flow
    }

    /// Returns the flow of an object if there is one.
    pub fn get_flow(&self, object: u32) -> Option<&ObjectFlow> {
        Some(&self.flows[(object % OBJECTS_MAX) as usize]).filter(|flow| flow.object == object)
    }

    /// Queues a scheduled block. Returns its ordinal among the blocks of the object for this peer.
    pub fn queue_block(&mut self, BlockId { object, block }: BlockId, step: u64) -> u32 {
        if self.queue.capacity() == 0 {
            self.queue.reserve(QUEUE_BLOCKS);
        }
        let flow = self.flow(object);
        let ordinal = flow.queued;
        flow.queued += 1;
        let step = (object, step);
        self.queue.push_back(BlockTransfer { step, object, block, ordinal, piece: 0 });
        ordinal
    }

    /// Handles the progress that the peer has reported.
    pub fn on_state(&mut self, state: &BulkState) {
        self.complete = self.complete.max(state.complete);
        self.known = self.known.max(state.known);
        self.resolved = self.resolved.max(state.resolved);
        if self.advertised_failed >= self.view.0 {
            self.view = (self.advertised_failed, state.view);
        }
        self.is_closed |= state.is_closed;
    }

    /// Handles a request for a block.
    pub fn on_request(&mut self, wanted: BlockId) {
        if self.wanted.len() < PEER_REQUESTS_MAX && !self.wanted.contains(&wanted) {
            self.wanted.push_back(wanted);
        }
    }

    /// Requests a block from the peer.
    pub fn request(&mut self, wanted: BlockId) {
        debug_assert!(!self.has_failed, "a failed member answers nothing");
        if !self.requested.contains(&wanted) {
            self.requested.push(wanted);
            self.requests_due.push_back(wanted);
        }
    }

    /// Handles the completion of a block at this member.
    pub fn on_block_complete(&mut self, complete: BlockId) {
        self.requested.retain(|requested| *requested != complete);
    }

    /// Queues a changed word of held blocks. `stable` is the first active object.
    pub fn queue_have(&mut self, changed: HaveWord, stable: u32) {
        if self.haves_due.back() == Some(&changed) {
            return;
        }
        if self.haves_due.len() < HAVES_MAX {
            self.haves_due.push_back(changed);
        } else {
            self.haves_due.clear();
            self.have_cursor = Some(HaveWord::first_of(stable));
        }
    }

    /// Reports all held blocks from a word on, unless an earlier word comes first.
    pub fn report_from(&mut self, from: HaveWord) {
        self.have_cursor = Some(self.have_cursor.map_or(from, |next| next.min(from)));
    }

    //= spec/bulk.md#R21
    /// Schedules the retransmission of the content of a lost frame.
    pub fn on_lost(&mut self, item: Item) {
        debug_assert!(!self.has_failed, "nothing is in flight to a failed member");
        match item {
            Item::Piece { .. } => self.retransmits.push_back(item),
            Item::Offer { object } => self.flow(object).has_offered = false,
            Item::State => self.is_state_due = true,
            Item::Failures { first } => self.failures_sent = self.failures_sent.min(first),
            Item::Have(from) => self.report_from(from),
            Item::Want(wanted) if self.requested.contains(&wanted) => {
                self.requests_due.push_back(wanted);
            }
            Item::Want(_) => {}
        }
    }

    /// Returns whether the peer has acknowledged the state of this member and all its `failures`.
    pub fn is_notified(&self, failures: usize) -> bool {
        let has_failures = self.failures_sent as usize == failures;
        self.session.is_idle() && !self.is_state_due && has_failures
    }

    /// Returns the next deadline of the link.
    pub fn due_at(&self) -> Option<Mono> {
        match self.is_blocked {
            _ if self.has_failed => None,
            // Acknowledgements cannot be sent over a blocked link, so they are not due.
            true => self.session.probe_at(),
            false => self.session.due_at(),
        }
    }

    /// Panics if the queues of the peer contradict its state. `is_shared`: blocks are queued in
    /// their own order, not in that of the schedule.
    pub fn check_invariants(&self, failures: usize, is_shared: bool) {
        let blocks_max = if is_shared { SHARED_BLOCKS_MAX } else { QUEUE_BLOCKS };
        assert!(self.queue.len() <= blocks_max, "a full queue stops the schedule");
        let is_before = |pair: (&BlockTransfer, &BlockTransfer)| pair.0.step < pair.1.step;
        let has_order = self.queue.iter().zip(self.queue.iter().skip(1)).all(is_before);
        assert!(is_shared || has_order, "scheduled blocks leave in the order of their steps");
        assert!(self.wanted.len() <= PEER_REQUESTS_MAX, "a peer's requests are bounded");
        assert!(self.haves_due.len() <= HAVES_MAX, "changed words are bounded");
        let is_piece = |item: &Item| matches!(item, Item::Piece { .. });
        assert!(self.retransmits.iter().all(is_piece), "only pieces are queued again");
        assert!(self.failures_sent as usize <= failures, "a failure is sent after it is known");
        for (at, flow) in (0..).zip(&self.flows) {
            let is_its = flow.object == 0 || flow.object % OBJECTS_MAX == at;
            assert!(is_its, "active objects share no slot");
            let words = flow.holds.words().len() as u32;
            assert!(flow.words_received.count_ones() <= words, "no word lies beyond the blocks");
        }
        if self.has_failed {
            let is_empty = self.queue.is_empty() && self.current.is_none();
            assert!(is_empty && self.session.is_idle(), "nothing is sent to a failed member");
            assert!(self.requested.is_empty(), "nothing is requested from a failed member");
        }
        self.session.check_invariants();
    }

    /// Drops scheduled transfers; requested ones go on.
    pub fn drop_schedule(&mut self) {
        self.queue.clear();
        self.current = self.current.filter(|due| due.ordinal == BulkPieceHeader::REQUESTED);
    }

    /// Drops all pending work after the peer has failed.
    pub fn close(&mut self) {
        self.session.close();
        self.has_failed = true;
        self.queue.clear();
        self.current = None;
        self.retransmits.clear();
        self.wanted.clear();
        self.requested.clear();
        self.requests_due.clear();
        self.haves_due.clear();
        (self.have_cursor, self.is_state_due, self.tokens_due) = (None, false, None);
        debug_assert!(self.session.is_idle(), "a closed session has nothing in flight");
    }
}
