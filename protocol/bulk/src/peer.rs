//! What a member keeps of another one.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use onepipe_base::{Incarnation, Mono};
use onepipe_wire::BulkPieceHeader;

use crate::OBJECTS_MAX;
use crate::bits::Bits;
use crate::lane::{Item, Lane};

/// Blocks that are dealt to a peer ahead of what can be sent. A slow peer may fall back by so many
/// before the others wait for it.
pub(crate) const QUEUE_BLOCKS: usize = 64;
/// Blocks that a member asks a peer for at a time, once the schedule is void.
pub(crate) const ASKED_BLOCKS: usize = 4;
/// Blocks that a peer may have asked for and not got yet; more are nobody's who keeps the rules.
const WANTED_BLOCKS: usize = 64;
/// Words of held blocks that are told one by one; more begin the list anew.
const NEWS_WORDS: usize = 64;

/// A block on its way to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Due {
    /// Its step, over all objects in order.
    pub step: (u32, u64),
    pub object: u32,
    pub block: u32,
    pub ordinal: u32,
    /// The next piece of it.
    pub piece: u32,
}

impl Due {
    pub fn asked((object, block): (u32, u32)) -> Self {
        Self { step: (0, 0), object, block, ordinal: BulkPieceHeader::REQUESTED, piece: 0 }
    }
}

/// What goes back and forth between two members of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Flow {
    object: u32,
    /// Blocks that the peer is ready to take, and those dealt to it.
    pub granted: u32,
    pub dealt: u32,
    /// Blocks that it has sent us by the schedule.
    pub consumed: u32,
    pub has_offered: bool,
    /// Which blocks it holds, how many words of it were told, and in which view.
    pub holds: Bits,
    pub told: Bits,
    pub told_in: Option<(u16, u64)>,
}

impl Flow {
    /// Whether it was told wholly in this view.
    pub fn is_told(&self, view: u64) -> bool {
        let words = self.holds.words().len() as u32;
        self.told_in.is_some_and(|(_, told_in)| told_in == view)
            && (0..words).all(|word| self.told.has(word))
    }
}

/// Another member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Peer {
    pub lane: Lane,
    pub incarnation: Option<Incarnation>,
    pub has_failed: bool,
    /// Its link takes nothing now.
    pub is_blocked: bool,
    pub heard_at: Mono,
    pub told_at: Mono,
    /// By the schedule.
    pub queue: VecDeque<Due>,
    /// The block that is being cut into frames.
    pub cutting: Option<Due>,
    /// What was lost.
    pub again: VecDeque<Item>,
    /// What it has asked for, and what we have asked for.
    pub wanted: VecDeque<(u32, u32)>,
    pub asked: Vec<(u32, u32)>,
    /// What is to be told.
    pub wants: VecDeque<(u32, u32)>,
    pub is_state_due: bool,
    /// It lacks tokens for this object, as long as we lack some of it.
    pub tokens_due: Option<u32>,
    pub failures_told: u32,
    pub have_from: Option<(u32, u32)>,
    pub haves: VecDeque<(u32, u32)>,
    /// What the front of its last frame has told.
    pub said_stable: u32,
    pub said_failed: u16,
    /// What it has told.
    pub complete: u32,
    pub known: u32,
    pub settled: u32,
    pub view: (u16, u64),
    pub is_closed: bool,
    flows: [Flow; OBJECTS_MAX as usize],
}

impl Peer {
    pub fn new(lane: Lane) -> Self {
        Self {
            lane,
            incarnation: None,
            has_failed: false,
            is_blocked: false,
            heard_at: Mono::from_ns(0),
            told_at: Mono::from_ns(0),
            queue: VecDeque::new(),
            cutting: None,
            again: VecDeque::new(),
            wanted: VecDeque::new(),
            asked: Vec::new(),
            wants: VecDeque::new(),
            is_state_due: false,
            tokens_due: None,
            failures_told: 0,
            have_from: None,
            haves: VecDeque::new(),
            said_stable: 0,
            said_failed: 0,
            complete: 0,
            known: 0,
            settled: 0,
            view: (0, 0),
            is_closed: false,
            flows: Default::default(),
        }
    }

    /// What there is of an object; of those under way no two have the same place.
    pub fn flow(&mut self, object: u32) -> &mut Flow {
        let flow = &mut self.flows[(object % OBJECTS_MAX) as usize];
        if flow.object != object {
            *flow = Flow { object, ..Flow::default() };
        }
        flow
    }

    /// As [`Peer::flow`], if there is anything.
    pub fn flow_of(&self, object: u32) -> Option<&Flow> {
        Some(&self.flows[(object % OBJECTS_MAX) as usize]).filter(|flow| flow.object == object)
    }

    /// It asks for a block.
    pub fn on_want(&mut self, wanted: (u32, u32)) {
        if self.wanted.len() < WANTED_BLOCKS && !self.wanted.contains(&wanted) {
            self.wanted.push_back(wanted);
        }
    }

    /// We ask for a block.
    pub fn ask(&mut self, wanted: (u32, u32)) {
        if !self.asked.contains(&wanted) {
            self.asked.push(wanted);
            self.wants.push_back(wanted);
        }
    }

    /// A block is here.
    pub fn on_held(&mut self, object: u32, block: u32) {
        self.asked.retain(|asked| *asked != (object, block));
    }

    /// A word of what we hold is to be told.
    pub fn tell_word(&mut self, object: u32, word: u32, base: u32) {
        if self.haves.back() == Some(&(object, word)) {
            return;
        }
        if self.haves.len() < NEWS_WORDS {
            self.haves.push_back((object, word));
        } else {
            self.haves.clear();
            self.have_from = Some((base, 0));
        }
    }

    /// The schedule is void.
    pub fn unschedule(&mut self) {
        self.queue.clear();
        self.cutting = self.cutting.filter(|due| due.ordinal == BulkPieceHeader::REQUESTED);
    }

    /// It has failed.
    pub fn end(&mut self) {
        self.lane.end();
        self.has_failed = true;
        self.queue.clear();
        self.cutting = None;
        self.again.clear();
        self.wanted.clear();
        self.asked.clear();
        self.wants.clear();
        self.haves.clear();
        (self.have_from, self.is_state_due, self.tokens_due) = (None, false, None);
    }
}
