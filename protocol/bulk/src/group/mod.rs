//! Member of a group.

mod active_object;
mod control;
mod failure;
mod input;
mod invariants;
mod membership;
mod object_window;
mod peers;
mod placement;
mod progress;
mod queue;
mod receive;
mod repair;
mod send;
mod senders;
mod staging;
mod timers;
mod transmit;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Transmit, Verdict};
use onepipe_reliability::BoundedQueue;
use onepipe_wire::BulkRefused;

use crate::config::PIECE_FRONT_LEN;
use crate::event::{Event, Failure, Outcome, Reason, SendError, Unsent};
use crate::peer::Peer;
use crate::schedule::Schedule;
use crate::session::{Item, LinkSession};
use crate::stats::Stats;
use crate::{Config, ConfigError, Memory};

use active_object::ActiveObject;
use membership::Membership;
use object_window::ObjectWindow;
use peers::Peers;
pub use placement::{Gathered, Placement};
use senders::Senders;
use staging::Staging;
use timers::Timers;

/// Capacity of the queue of refusals. A refused process asks again.
const REFUSALS_MAX: usize = 16;

/// Refusal of a process that is not a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Refusal {
    port: Port,
    to: ProcessId,
    reason: BulkRefused,
}

//= spec/bulk.md#R30
/// Member of a group; see the crate documentation.
///
/// Each stage owns its state; the methods of the group pass frames, blocks and objects between the
/// stages, and report events.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group<M = Vec<u8>> {
    config: Config,
    config_digest: u32,
    schedule: Schedule,
    senders: Senders,
    peers: Peers,
    window: ObjectWindow<M>,
    membership: Membership,
    staging: Staging<M>,
    timers: Timers,
    /// Buffer for the content of lost frames; empty between inputs.
    lost: Vec<Item>,
    refusals: BoundedQueue<Refusal>,
    events: VecDeque<Event<M>>,
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
        Ok(Self {
            config_digest: config.config_digest(),
            senders: Senders::new(&schedule, config.own, members),
            peers: Peers::new(config.own, sessions.map(Peer::new).collect()),
            window: ObjectWindow::new(config.objects_max, config.own == 0),
            membership: Membership::new(config.own, members),
            staging: Staging::new(config.frame_data_max()),
            timers: Timers::new(),
            lost: Vec::new(),
            refusals: BoundedQueue::new(REFUSALS_MAX),
            events: VecDeque::new(),
            stats: Stats::default(),
            schedule,
            config,
        })
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
        self.staging.set_piece_len(config.frame_data_max());
        self.config_digest = config.config_digest();
        self.config = config;
        Ok(())
    }

    /// Returns whether the group has been driven or has an object: then its frames and pieces have
    /// a length.
    pub fn has_begun(&self) -> bool {
        self.timers.has_started() || self.window.known() > 0
    }

    /// Provides memory for an object that was [`Event::Announced`].
    ///
    /// # Errors
    /// [`Unsent`] with the memory if the object does not wait for memory, or does not fit, or the
    /// group has ended.
    pub fn provide(&mut self, object: u32, memory: M) -> Result<(), Unsent<M>> {
        if self.outcome().is_some() {
            return Err(Unsent { error: SendError::Closed, memory });
        }
        self.window.provide(object, memory)?;
        self.on_memory(object);
        self.check_after_command();
        Ok(())
    }

    //= spec/bulk.md#R14
    /// Declines an object that was [`Event::Announced`]. This member leaves the group, and the
    /// others are notified of the reason.
    pub fn decline(&mut self, object: u32) {
        if self.window.get(object).is_some_and(ActiveObject::awaits_memory) {
            self.leave_with(Reason::Memory);
        }
    }

    /// Provides memory in advance, for the next object that fits: then no [`Event::Announced`] is
    /// reported for it. [`Group::take_spare`] returns unused memory.
    pub fn offer_memory(&mut self, memory: M) {
        self.staging.offer_memory(memory);
    }

    /// Returns memory that was provided in advance and is unused.
    pub fn take_spare(&mut self) -> Option<M> {
        self.staging.take_spare()
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
        if self.window.close() {
            self.peers.queue_state_to_all();
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
        if self.peers.ranks().contains(&rank) {
            self.peers[rank].is_blocked = is_blocked;
            self.peers.set_ready(rank);
            self.update_deadline(rank);
        }
    }

    /// Returns whether [`Machine::poll_event`] has an event.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Returns the content of a complete object that is not stable yet.
    pub fn bytes(&self, object: u32) -> Option<&[u8]> {
        let body = self.window.body(object).filter(|body| body.missing == 0)?;
        Some(body.memory.bytes())
    }

    /// Returns the memory of an active object, which may be incomplete.
    pub fn memory(&self, object: u32) -> Option<&M> {
        Some(&self.window.body(object)?.memory)
    }

    /// Returns the number of complete blocks of an active object, and the number of all its blocks.
    /// A group that has ended has no active objects.
    pub fn progress(&self, object: u32) -> Option<(u32, u32)> {
        let active = self.window.get(object).filter(|_| !self.membership.is_over())?;
        let blocks = active.shape()?.blocks;
        Some((blocks - active.body().map_or(blocks, |body| body.missing), blocks))
    }

    /// Returns the number of objects that are complete at a member, as far as reported.
    pub fn completed_by(&self, rank: u32) -> Option<u32> {
        match rank {
            own if own == self.config.own => Some(self.window.complete()),
            _ => Some(self.peers.get(rank)?.complete.max(self.window.stable())),
        }
    }

    /// Returns all failures in the order in which this member learned of them.
    pub fn failures(&self) -> &[Failure] {
        self.membership.failures()
    }

    /// Returns the outcome once the group has ended.
    pub fn outcome(&self) -> Option<Outcome> {
        self.membership.outcome()
    }

    /// Returns whether the group has ended and all members have been notified. Then the machine may
    /// be dropped.
    pub fn is_done(&self) -> bool {
        self.membership.is_over()
            && self
                .peers
                .live(&self.membership)
                .all(|peer| peer.has_failed || peer.is_notified(self.membership.failures().len()))
    }

    /// Returns the counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.config
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
        self.timers.poll()
    }
}
