//! What a member keeps of another one.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use onepipe_base::{Incarnation, Mono};
use onepipe_wire::BulkPieceHeader;

use crate::OBJECTS_MAX;
use crate::bitset::BitSet;
use crate::session::{Item, LinkSession};

/// Blocks that are dealt to a peer ahead of what can be sent. A slow peer may fall back by so many
/// before the others wait for it.
pub(crate) const QUEUE_BLOCKS: usize = 64;
/// Blocks that a member asks a peer for at a time, once the schedule is void.
pub(crate) const REQUESTED_BLOCKS_MAX: usize = 4;
/// Blocks that a peer may have asked for and not got yet; more are nobody's who keeps the rules.
const PEER_REQUESTS_MAX: usize = 64;
/// Words of held blocks that are told one by one; more begin the list anew.
const HAVES_MAX: usize = 64;

/// A block on its way to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BlockTransfer {
    /// Its step, over all objects in order.
    pub step: (u32, u64),
    pub object: u32,
    pub block: u32,
    pub ordinal: u32,
    /// The next piece of it.
    pub piece: u32,
}

impl BlockTransfer {
    pub fn requested((object, block): (u32, u32)) -> Self {
        Self { step: (0, 0), object, block, ordinal: BulkPieceHeader::REQUESTED, piece: 0 }
    }
}

/// What goes back and forth between two members of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ObjectFlow {
    object: u32,
    /// Blocks that the peer is ready to take, and those dealt to it.
    pub granted: u32,
    pub queued: u32,
    /// Blocks that it has sent us by the schedule.
    pub consumed: u32,
    pub has_offered: bool,
    /// Which blocks it holds, how many words of it were told, and in which view.
    pub holds: BitSet,
    pub words_received: BitSet,
    pub words_view: Option<(u16, u64)>,
}

impl ObjectFlow {
    /// Whether it was told wholly in this view.
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
    /// Its link takes nothing now.
    pub is_blocked: bool,
    pub last_received: Mono,
    pub state_sent_at: Mono,
    /// By the schedule.
    pub queue: VecDeque<BlockTransfer>,
    /// The block that is being cut into frames.
    pub current: Option<BlockTransfer>,
    /// What was lost.
    pub retransmits: VecDeque<Item>,
    /// What it has asked for, and what we have asked for.
    pub wanted: VecDeque<(u32, u32)>,
    pub requested: Vec<(u32, u32)>,
    /// What is to be told.
    pub requests_due: VecDeque<(u32, u32)>,
    pub is_state_due: bool,
    /// It lacks tokens for this object, as long as we lack some of it.
    pub tokens_due: Option<u32>,
    pub failures_sent: u32,
    pub have_cursor: Option<(u32, u32)>,
    pub haves_due: VecDeque<(u32, u32)>,
    /// What the front of its last frame has told.
    pub front_stable: u32,
    pub front_failed: u16,
    /// What it has told.
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
            front_stable: 0,
            front_failed: 0,
            complete: 0,
            known: 0,
            resolved: 0,
            view: (0, 0),
            is_closed: false,
            flows: Default::default(),
        }
    }

    /// What there is of an object; of those under way no two have the same place.
    pub fn flow(&mut self, object: u32) -> &mut ObjectFlow {
        let flow = &mut self.flows[(object % OBJECTS_MAX) as usize];
        if flow.object != object {
            *flow = ObjectFlow { object, ..ObjectFlow::default() };
        }
        flow
    }

    /// As [`Peer::flow`], if there is anything.
    pub fn get_flow(&self, object: u32) -> Option<&ObjectFlow> {
        Some(&self.flows[(object % OBJECTS_MAX) as usize]).filter(|flow| flow.object == object)
    }

    /// It asks for a block.
    pub fn on_request(&mut self, wanted: (u32, u32)) {
        if self.wanted.len() < PEER_REQUESTS_MAX && !self.wanted.contains(&wanted) {
            self.wanted.push_back(wanted);
        }
    }

    /// We ask for a block.
    pub fn request(&mut self, wanted: (u32, u32)) {
        if !self.requested.contains(&wanted) {
            self.requested.push(wanted);
            self.requests_due.push_back(wanted);
        }
    }

    /// A block is here.
    pub fn on_block_complete(&mut self, object: u32, block: u32) {
        self.requested.retain(|requested| *requested != (object, block));
    }

    /// A word of what we hold is to be told.
    pub fn queue_have(&mut self, object: u32, word: u32, base: u32) {
        if self.haves_due.back() == Some(&(object, word)) {
            return;
        }
        if self.haves_due.len() < HAVES_MAX {
            self.haves_due.push_back((object, word));
        } else {
            self.haves_due.clear();
            self.have_cursor = Some((base, 0));
        }
    }

    /// The schedule is void.
    pub fn drop_schedule(&mut self) {
        self.queue.clear();
        self.current = self.current.filter(|due| due.ordinal == BulkPieceHeader::REQUESTED);
    }

    /// It has failed.
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
    }
}
