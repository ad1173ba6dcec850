//! One member of a group.

mod control;
mod failure;
mod input;
mod placement;
mod progress;
mod queue;
mod receive;
mod repair;
mod transmit;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Transmit, Verdict};
use onepipe_wire::{BulkPieceHeader, BulkRefused, Extent};

use crate::bitset::BitSet;
use crate::event::{Event, Failure, Outcome, Reason, SendError, Unsent};
use crate::object::{Object, Shape};
use crate::peer::Peer;
use crate::schedule::Schedule;
use crate::session::{Item, LinkSession};
use crate::stats::Stats;
use crate::{Config, ConfigError, Memory};

pub use placement::{Gathered, Placement};

/// An object under way, or a place for one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ActiveObject<M> {
    shape: Option<Shape>,
    object: Option<Object<M>>,
    is_delivered: bool,
    is_lost: bool,
    /// In this view it is known that the survivors hold all of it.
    covered_in_view: Option<u64>,
    /// A digest of it and all objects before, once it was asked for.
    digest: Option<u64>,
    /// The next step of ours, and how many there are.
    step: u64,
    steps: u64,
    /// Blocks that came before there was memory, and from whom.
    missed: Vec<(u32, u32)>,
}

impl<M> Default for ActiveObject<M> {
    fn default() -> Self {
        Self {
            shape: None,
            object: None,
            is_delivered: false,
            is_lost: false,
            covered_in_view: None,
            digest: None,
            step: 0,
            steps: 0,
            missed: Vec::new(),
        }
    }
}

/// A piece that came before there was memory for its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Staged {
    from: u32,
    header: BulkPieceHeader,
}

/// One member of a group: see the crate's documentation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group<M = Vec<u8>> {
    config: Config,
    plan: u32,
    schedule: Schedule,
    /// By rank; our own entry is of no meaning.
    peers: Vec<Peer>,
    /// What was in lost frames, while it is looked at.
    lost: Vec<Item>,
    /// Who may send us the first block of an object, and who may send us any.
    first_senders: Vec<u32>,
    sources: BitSet,
    /// To whom there may be something to send.
    ready: BitSet,
    /// Every object before this one is whole at every survivor, and forgotten.
    stable: u32,
    /// The objects from `stable` on: always as many as may be under way.
    active: VecDeque<ActiveObject<M>>,
    /// A digest of all objects before `stable`.
    digest: u64,
    /// Every object before this one is whole here; whole here or lost; known here.
    complete: u32,
    resolved: u32,
    known: u32,
    total: Option<u32>,
    /// The object that is being dealt.
    queueing: u32,
    failures: Vec<Failure>,
    has_failed: BitSet,
    view: u64,
    outcome: Option<Outcome>,
    is_closed: bool,
    is_clean: bool,
    staged: Option<Staged>,
    staged_bytes: Vec<u8>,
    spare: VecDeque<M>,
    refusals: VecDeque<(Port, ProcessId, BulkRefused)>,
    events: VecDeque<Event<M>>,
    is_started: bool,
    now: Mono,
    keepalive_at: Option<Mono>,
    /// Nothing is due before this.
    due_at: Option<Mono>,
    stats: Stats,
}

impl Group {
    /// A member that has not met the others yet. Objects lie in plain memory.
    ///
    /// # Errors
    /// When there can be no such group.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        Self::with_memory(config)
    }
}

impl<M: Memory> Group<M> {
    /// As [`Group::new`], with objects in memory of another kind.
    ///
    /// # Errors
    /// When there can be no such group.
    pub fn with_memory(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let members = config.members.len() as u32;
        let schedule = Schedule::new(&config.algorithm, members)?;
        let sessions = config.members.iter().map(|member| LinkSession::new(member.link, &config));
        let mut group = Self {
            plan: config.plan(),
            peers: sessions.map(Peer::new).collect(),
            lost: Vec::new(),
            first_senders: Vec::new(),
            sources: BitSet::new(members),
            ready: BitSet::new(members),
            stable: 0,
            active: (0..config.objects_max).map(|_| ActiveObject::default()).collect(),
            digest: 0,
            complete: 0,
            resolved: 0,
            known: 0,
            total: None,
            queueing: 0,
            failures: Vec::new(),
            has_failed: BitSet::new(members),
            view: 0,
            outcome: None,
            is_closed: false,
            is_clean: false,
            staged: None,
            staged_bytes: Vec::with_capacity(config.staged_bytes()),
            spare: VecDeque::new(),
            refusals: VecDeque::new(),
            events: VecDeque::new(),
            is_started: false,
            now: Mono::from_ns(0),
            keepalive_at: None,
            due_at: None,
            stats: Stats::default(),
            schedule,
            config,
        };
        group.find_sources();
        Ok(group)
    }

    /// Sends an object to all other members, from the root. Answers its number.
    ///
    /// # Errors
    /// When the group takes none now; the memory comes back.
    pub fn send(&mut self, memory: M) -> Result<u32, Unsent<M>> {
        let object = self.known;
        let bytes = memory.bytes().len() as u64;
        let extent = Extent {
            bytes,
            block_len: self.config.block_len_of(bytes),
            has_digests: self.config.has_digests,
        };
        let shape = Shape::new(extent, self.config.piece_len());
        let error = match shape {
            _ if self.config.own != 0 => SendError::NotRoot,
            _ if self.outcome.is_some() || self.total.is_some() => SendError::Closed,
            _ if !self.failures.is_empty() => SendError::Failed,
            _ if object - self.stable >= self.config.objects_max => SendError::Full,
            None => SendError::TooLarge,
            Some(shape) => {
                self.add_object(object, shape);
                self.active_mut(object).object = Some(Object::complete(shape, memory));
                self.advance();
                return Ok(object);
            }
        };
        Err(Unsent { error, memory })
    }

    /// Gives memory for an object that is [`Event::Wanted`].
    ///
    /// # Errors
    /// When no such object waits, or it does not fit; the memory comes back.
    pub fn provide(&mut self, object: u32, mut memory: M) -> Result<(), Unsent<M>> {
        let found = self.get(object).filter(|active| active.object.is_none());
        let error = match found.and_then(|active| active.shape) {
            None => SendError::NotAnnounced,
            Some(shape) if (memory.bytes().len() as u64) < shape.extent.bytes => {
                SendError::TooSmall
            }
            Some(shape) => {
                memory.truncate(shape.extent.bytes as usize);
                self.active_mut(object).object = Some(Object::empty(shape, memory));
                self.on_memory(object);
                return Ok(());
            }
        };
        Err(Unsent { error, memory })
    }

    /// There is no memory for an object that is [`Event::Wanted`], and will be none: we leave the
    /// group, and everybody is told why.
    pub fn decline(&mut self, object: u32) {
        if self.get(object).is_some_and(|active| active.shape.is_some() && active.object.is_none())
        {
            self.leave_with(Reason::Memory);
        }
    }

    /// Gives memory ahead, for the next object that it is large enough for: nothing waits for an
    /// answer to [`Event::Wanted`] then. What was not used comes back by [`Group::take_spare`].
    pub fn offer_memory(&mut self, memory: M) {
        self.spare.push_back(memory);
    }

    /// Memory that was given ahead and is not used.
    pub fn take_spare(&mut self) -> Option<M> {
        self.spare.pop_front()
    }

    /// Nothing more will be sent. [`Event::Closed`] says how it has ended, at every member.
    ///
    /// # Errors
    /// When we are not the root.
    pub fn close(&mut self) -> Result<(), SendError> {
        if self.config.own != 0 {
            return Err(SendError::NotRoot);
        }
        if self.total.is_none() {
            self.total = Some(self.known);
            self.queue_state_to_all();
            self.advance();
        }
        Ok(())
    }

    /// Leaves before the end: the others are told, and go on without us.
    pub fn leave(&mut self) {
        self.leave_with(Reason::Left);
    }

    /// The world says that the link to a member is broken.
    pub fn handle_link_down(&mut self, rank: u32) {
        self.fail(rank, self.config.own, Reason::Link);
    }

    /// The link to a member takes nothing now, or does again. Others go on meanwhile.
    pub fn set_blocked(&mut self, rank: u32, is_blocked: bool) {
        if let Some(peer) = self.peers.get_mut(rank as usize) {
            peer.is_blocked = is_blocked;
            self.ready.set(rank);
            self.update_deadline(rank);
        }
    }

    /// Whether [`Machine::poll_event`] has something to tell.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// The bytes of an object that is whole here and not yet stable.
    pub fn bytes(&self, object: u32) -> Option<&[u8]> {
        let object = self.get(object)?.object.as_ref().filter(|object| object.missing == 0)?;
        Some(object.memory.bytes())
    }

    /// The memory of an object under way, of which not all need be here yet.
    pub fn memory(&self, object: u32) -> Option<&M> {
        Some(&self.get(object)?.object.as_ref()?.memory)
    }

    /// How many blocks of an object under way are here, and how many it has. When the group is over
    /// nothing is under way.
    pub fn progress(&self, object: u32) -> Option<(u32, u32)> {
        let active = self.get(object).filter(|_| self.outcome.is_none())?;
        let blocks = active.shape?.blocks;
        Some((blocks - active.object.as_ref().map_or(blocks, |object| object.missing), blocks))
    }

    /// How many objects are whole at a member, as far as it has told us.
    pub fn completed_by(&self, rank: u32) -> Option<u32> {
        match rank {
            own if own == self.config.own => Some(self.complete),
            _ => Some(self.peers.get(rank as usize)?.complete.max(self.stable)),
        }
    }

    /// Who has failed, in the order in which we were told.
    pub fn failures(&self) -> &[Failure] {
        &self.failures
    }

    /// How it has ended, once it has.
    pub fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// Whether the group is over and everybody has been told: the machine may be dropped.
    pub fn is_done(&self) -> bool {
        self.outcome.is_some()
            && self.live_peers().all(|peer| {
                let has_failures = peer.failures_sent as usize == self.failures.len();
                peer.has_failed || peer.session.is_idle() && !peer.is_state_due && has_failures
            })
    }

    /// What it has done.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// As it was set up.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Who leads: the root, or the first survivor in its place.
    fn leader(&self) -> u32 {
        self.ranks().find(|rank| !self.has_failed.has(*rank)).unwrap_or(0)
    }

    fn ranks(&self) -> Range<u32> {
        0..self.peers.len() as u32
    }

    /// Whether this is another member that has not failed.
    fn is_live_peer(&self, rank: u32) -> bool {
        rank != self.config.own && !self.has_failed.has(rank)
    }

    /// All others that have not failed.
    fn live_peers(&self) -> impl Iterator<Item = &Peer> {
        self.ranks().filter(|rank| self.is_live_peer(*rank)).map(|rank| &self.peers[rank as usize])
    }

    fn get(&self, object: u32) -> Option<&ActiveObject<M>> {
        self.active.get(object.checked_sub(self.stable)? as usize)
    }

    /// An object that is under way.
    fn active_mut(&mut self, object: u32) -> &mut ActiveObject<M> {
        &mut self.active[(object - self.stable) as usize]
    }

    fn object_mut(&mut self, object: u32) -> Option<&mut Object<M>> {
        let at = object.checked_sub(self.stable)? as usize;
        self.active.get_mut(at)?.object.as_mut()
    }

    fn peer(&mut self, rank: u32) -> &mut Peer {
        &mut self.peers[rank as usize]
    }
}

impl<M: Memory> Machine for Group<M> {
    type Event = Event<M>;

    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        self.start(now.mono);
        self.on_frame(now.mono, port, frame)
    }

    fn handle_timeout(&mut self, now: Now) {
        self.start(now.mono);
        self.on_timeout(now.mono);
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        self.start(now.mono);
        self.transmit(now, slot, false).map(|sent| sent.header)
    }

    fn poll_event(&mut self) -> Option<Event<M>> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        // Before the first call with a time there is no time to name.
        if self.is_started { self.due_at } else { Some(Mono::from_ns(0)) }
    }
}
