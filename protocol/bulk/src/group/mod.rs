//! Member of a group.

mod control;
mod failure;
mod input;
mod invariants;
mod placement;
mod progress;
mod queue;
mod receive;
mod repair;
mod send;
mod transmit;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Transmit, Verdict};
use onepipe_reliability::{BitSet, BoundedQueue};
use onepipe_wire::{BulkPieceHeader, BulkRefused};

use crate::config::PIECE_FRONT_LEN;
use crate::event::{Event, Failure, Outcome, Reason, SendError, Unsent};
use crate::object::{Object, Shape};
use crate::peer::Peer;
use crate::schedule::Schedule;
use crate::session::{Item, LinkSession};
use crate::stats::Stats;
use crate::{Config, ConfigError, Memory};

pub use placement::{Gathered, Placement};

/// Capacity of the queue of refusals. A refused process asks again.
const REFUSALS_MAX: usize = 16;

/// State of an active object, known or expected.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ActiveObject<M> {
    shape: Option<Shape>,
    object: Option<Object<M>>,
    is_delivered: bool,
    is_lost: bool,
    /// View in which the survivors together were found to hold all blocks.
    covered_in_view: Option<u64>,
    /// Digest of this object and all earlier ones, once computed.
    digest: Option<u64>,
    /// Next own step of the schedule, and the number of steps.
    step: u64,
    steps: u64,
    /// Blocks, with their senders, whose pieces were dropped before there was memory.
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

/// Refusal of a process that is not a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Refusal {
    port: Port,
    to: ProcessId,
    reason: BulkRefused,
}

/// Piece received before its object had memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Staged {
    from: u32,
    header: BulkPieceHeader,
}

//= spec/bulk.md#R30
/// Member of a group; see the crate documentation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group<M = Vec<u8>> {
    config: Config,
    config_digest: u32,
    schedule: Schedule,
    /// Peers by rank; the own entry is unused.
    peers: Vec<Peer>,
    /// Buffer for the content of lost frames; empty between inputs.
    lost: Vec<Item>,
    /// Ranks that may send the first block of an object to this member.
    first_senders: Vec<u32>,
    /// Ranks that may send any block to this member.
    sources: BitSet,
    /// Ranks with something to send.
    ready: BitSet,
    /// All objects before this one are complete at every survivor and have been released.
    stable: u32,
    /// Objects from `stable` on: always `objects_max` entries.
    active: VecDeque<ActiveObject<M>>,
    /// Digest of all objects before `stable`.
    digest: u64,
    /// All objects before this one are complete; complete or lost; known, respectively.
    complete: u32,
    resolved: u32,
    known: u32,
    total: Option<u32>,
    /// Object whose transfers are being queued.
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
    refusals: BoundedQueue<Refusal>,
    events: VecDeque<Event<M>>,
    is_started: bool,
    now: Mono,
    keepalive_at: Option<Mono>,
    /// Lower bound of all deadlines.
    due_at: Option<Mono>,
    stats: Stats,
}

impl Group {
    /// Creates a member that has not sent or received anything, with objects in `Vec<u8>`.
    ///
    /// # Errors
    /// [`ConfigError`] if the configuration is invalid.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        Self::with_memory(config)
    }
}

impl<M: Memory> Group<M> {
    /// Creates a member with objects in another kind of memory.
    ///
    /// # Errors
    /// [`ConfigError`] if the configuration is invalid.
    pub fn with_memory(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let members = config.members.len() as u32;
        let schedule = Schedule::new(&config.algorithm, members)?;
        let sessions = config.members.iter().map(|member| LinkSession::new(member.link, &config));
        let mut group = Self {
            config_digest: config.config_digest(),
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
            staged_bytes: Vec::with_capacity(config.frame_data_max()),
            spare: VecDeque::new(),
            refusals: BoundedQueue::new(REFUSALS_MAX),
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

    //= spec/bulk.md#R31
    /// Sets the maximum length of frames in bytes, and the length of pieces to what such a frame
    /// carries. All members must set the same length.
    ///
    /// # Errors
    /// [`ConfigError`] if the length is out of range, or the group has begun.
    pub fn set_frame_len(&mut self, frame_len: usize) -> Result<(), ConfigError> {
        if self.has_begun() {
            return Err(ConfigError::Begun);
        }
        let piece_len = frame_len.saturating_sub(PIECE_FRONT_LEN) as u32;
        let config = Config { piece_len, frame_len_max: frame_len, ..self.config.clone() };
        config.check()?;
        for (peer, member) in self.peers.iter_mut().zip(&config.members) {
            peer.session = LinkSession::new(member.link, &config);
        }
        // No piece is staged before the group begins.
        debug_assert!(self.staged.is_none() && self.staged_bytes.is_empty());
        self.staged_bytes.reserve(config.frame_data_max());
        self.config_digest = config.config_digest();
        self.config = config;
        Ok(())
    }

    /// Returns whether the group has been driven or has an object: then its frames and pieces have
    /// a length.
    pub fn has_begun(&self) -> bool {
        self.is_started || self.known > 0
    }

    /// Provides memory for an object that was [`Event::Announced`].
    ///
    /// # Errors
    /// [`Unsent`] with the memory if the object does not wait for memory, or does not fit.
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
                self.check_after_command();
                return Ok(());
            }
        };
        Err(Unsent { error, memory })
    }

    //= spec/bulk.md#R14
    /// Declines an object that was [`Event::Announced`]. This member leaves the group, and the
    /// others are notified of the reason.
    pub fn decline(&mut self, object: u32) {
        if self.get(object).is_some_and(|active| active.shape.is_some() && active.object.is_none())
        {
            self.leave_with(Reason::Memory);
        }
    }

    /// Provides memory in advance, for the next object that fits: then no [`Event::Announced`] is
    /// reported for it. [`Group::take_spare`] returns unused memory.
    pub fn offer_memory(&mut self, memory: M) {
        self.spare.push_back(memory);
    }

    /// Returns memory that was provided in advance and is unused.
    pub fn take_spare(&mut self) -> Option<M> {
        self.spare.pop_front()
    }

    /// Closes the group: no more objects will be sent. [`Event::Closed`] reports the outcome at
    /// every member.
    ///
    /// # Errors
    /// [`SendError::NotRoot`] if this member is not the root.
    pub fn close(&mut self) -> Result<(), SendError> {
        if self.config.own != 0 {
            return Err(SendError::NotRoot);
        }
        if self.total.is_none() {
            self.total = Some(self.known);
            self.queue_state_to_all();
            self.advance();
            self.check_after_command();
        }
        Ok(())
    }

    /// Leaves the group before its end. The other members are notified and continue.
    pub fn leave(&mut self) {
        self.leave_with(Reason::Left);
        self.check_after_command();
    }

    /// Handles the loss of the link to a member.
    pub fn handle_link_down(&mut self, rank: u32) {
        self.fail(rank, self.config.own, Reason::Link);
        self.check_after_command();
    }

    /// Sets whether the link to a member accepts frames. Other links are not affected.
    pub fn set_blocked(&mut self, rank: u32, is_blocked: bool) {
        if let Some(peer) = self.peers.get_mut(rank as usize) {
            peer.is_blocked = is_blocked;
            self.ready.set(rank);
            self.update_deadline(rank);
        }
    }

    /// Returns whether [`Machine::poll_event`] has an event.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Returns the content of a complete object that is not stable yet.
    pub fn bytes(&self, object: u32) -> Option<&[u8]> {
        let object = self.get(object)?.object.as_ref().filter(|object| object.missing == 0)?;
        Some(object.memory.bytes())
    }

    /// Returns the memory of an active object, which may be incomplete.
    pub fn memory(&self, object: u32) -> Option<&M> {
        Some(&self.get(object)?.object.as_ref()?.memory)
    }

    /// Returns the number of complete blocks of an active object, and the number of all its blocks.
    /// A group that has ended has no active objects.
    pub fn progress(&self, object: u32) -> Option<(u32, u32)> {
        let active = self.get(object).filter(|_| self.outcome.is_none())?;
        let blocks = active.shape?.blocks;
        Some((blocks - active.object.as_ref().map_or(blocks, |object| object.missing), blocks))
    }

    /// Returns the number of objects that are complete at a member, as far as reported.
    pub fn completed_by(&self, rank: u32) -> Option<u32> {
        match rank {
            own if own == self.config.own => Some(self.complete),
            _ => Some(self.peers.get(rank as usize)?.complete.max(self.stable)),
        }
    }

    /// Returns all failures in the order in which this member learned of them.
    pub fn failures(&self) -> &[Failure] {
        &self.failures
    }

    /// Returns the outcome once the group has ended.
    pub fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// Returns whether the group has ended and all members have been notified. Then the machine may
    /// be dropped.
    pub fn is_done(&self) -> bool {
        self.outcome.is_some()
            && self.live_peers().all(|peer| {
                let has_failures = peer.failures_sent as usize == self.failures.len();
                peer.has_failed || peer.session.is_idle() && !peer.is_state_due && has_failures
            })
    }

    /// Returns the counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the rank of the leader: the first live member. Initially this is the root.
    fn leader(&self) -> u32 {
        self.ranks().find(|rank| !self.has_failed.has(*rank)).unwrap_or(0)
    }

    fn ranks(&self) -> Range<u32> {
        0..self.peers.len() as u32
    }

    /// Returns whether `rank` is another member that has not failed.
    fn is_live_peer(&self, rank: u32) -> bool {
        rank != self.config.own && !self.has_failed.has(rank)
    }

    /// Returns all other members that have not failed.
    fn live_peers(&self) -> impl Iterator<Item = &Peer> {
        self.ranks().filter(|rank| self.is_live_peer(*rank)).map(|rank| &self.peers[rank as usize])
    }

    fn get(&self, object: u32) -> Option<&ActiveObject<M>> {
        self.active.get(object.checked_sub(self.stable)? as usize)
    }

    /// Returns an active object.
    fn active_mut(&mut self, object: u32) -> &mut ActiveObject<M> {
        debug_assert!(object >= self.stable, "a stable object is not active");
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
        let verdict = self.on_frame(now.mono, port, frame);
        self.check_after_frame();
        verdict
    }

    fn handle_timeout(&mut self, now: Now) {
        self.start(now.mono);
        if self.on_timeout(now.mono) {
            self.check_after_frame();
        }
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        self.start(now.mono);
        self.transmit(now, slot, false).map(|sent| sent.header)
    }

    fn poll_event(&mut self) -> Option<Event<M>> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        // The time is unknown before the first call: request one immediately.
        if self.is_started { self.due_at } else { Some(Mono::from_ns(0)) }
    }
}
