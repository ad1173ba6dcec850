//! The composer: passes frames, time and commands to the stages in the order of the data path.

mod check;
mod demand;
mod failure;
mod frame;
mod leave;
mod poll;
mod route;
mod status;

use alloc::collections::VecDeque;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{
    Cause, Machine, Mono, Now, Port, Promises, ScatteringId, Timestamp, Transmit, Verdict,
};
use onepipe_wire::{Flags, Frame, Opcode, Service, header_unchecked};

use crate::channel::Channel;
use crate::control::ControlPlane;
use crate::link::LinkLayer;
use crate::receive::Arrival;
use crate::timestamp::TimestampSource;
use crate::{
    Config, ConfigError, Delivery, Event, Message, ProcessFailed, ProcessLeft, SendError, Stats,
};
use failure::Exclusion;
use leave::Leave;

/// The endpoint of one process. See the crate documentation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    config: Config,
    timestamps: TimestampSource,
    link: LinkLayer,
    best_effort: Channel,
    reliable: Channel,
    /// The service that is asked first for a frame; the services alternate.
    next_service: Service,
    /// Whether a burst may precede due acknowledgements.
    is_burst_first: bool,
    control: ControlPlane,
    exclusion: Exclusion,
    /// Failures of which the application has yet to be notified.
    failed: VecDeque<ProcessFailed>,
    /// Graceful leaves to be reported.
    departed: VecDeque<ProcessLeft>,
    /// Number of failures whose callbacks have not returned.
    callbacks_open: u32,
    lost_links: VecDeque<Port>,
    /// The timestamp that the application waits for the commit barrier to pass.
    awaited_commit: Option<Timestamp>,
    leave: Leave,
    stats: Stats,
}

impl Endpoint {
    /// Creates an endpoint that has neither sent nor received a frame.
    ///
    /// # Errors
    /// When a value of `config` is out of its range.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            timestamps: TimestampSource::new(),
            link: LinkLayer::new(&config),
            best_effort: Channel::new(&config, Service::BestEffort),
            reliable: Channel::new(&config, Service::Reliable),
            next_service: Service::BestEffort,
            is_burst_first: true,
            control: ControlPlane::new(&config, config.controllers, config.announce_interval_ns),
            exclusion: Exclusion::Member,
            failed: VecDeque::new(),
            departed: VecDeque::new(),
            callbacks_open: 0,
            lost_links: VecDeque::new(),
            awaited_commit: None,
            leave: Leave::Active,
            stats: Stats::default(),
            config,
        })
    }

    /// Submits a best-effort scattering, whose messages share one timestamp. Copies the payloads.
    /// Never blocks and never drops silently.
    ///
    /// # Errors
    /// [`SendError`]; then no message of the scattering was accepted.
    #[inline]
    pub fn scatter(&mut self, messages: &[Message<'_>]) -> Result<ScatteringId, SendError> {
        self.check_member()?;
        self.best_effort.mark_used();
        let id = self.best_effort.sender.submit(&self.config, messages, |_| None)?;
        self.stats.scatterings_submitted += 1;
        Ok(id)
    }

    //= spec/ordering.md#R85
    /// Submits a best-effort message that is delivered as soon as it has arrived, before and after
    /// any others: it waits for no barrier. Otherwise as [`Endpoint::scatter`], with which it
    /// shares the ids. It suits a reply, whose receiver waits for it and for nothing else.
    ///
    /// # Errors
    /// [`SendError`]; then the message was not accepted.
    #[inline]
    pub fn send_unordered(&mut self, message: Message<'_>) -> Result<ScatteringId, SendError> {
        self.check_member()?;
        self.best_effort.mark_used();
        let id = self.best_effort.sender.submit_unordered(&self.config, message)?;
        self.stats.scatterings_submitted += 1;
        Ok(id)
    }

    /// Submits a reliable scattering: all its correct receivers deliver it, or none does
    /// (docs/design/failure.md, "What is the reliable service made of?"). Otherwise as
    /// [`Endpoint::scatter`]; reliable scatterings have ids of their own.
    ///
    /// # Errors
    /// [`SendError`]; then no message of the scattering was accepted.
    #[inline]
    pub fn scatter_reliably(
        &mut self,
        messages: &[Message<'_>],
    ) -> Result<ScatteringId, SendError> {
        self.check_member()?;
        self.reliable.mark_used();
        let (Channel { sender, receiver, .. }, control) = (&mut self.reliable, &self.control);
        let last_failed = |process| {
            // Unless a later incarnation has opened a connection.
            control
                .last_failed(process)
                .filter(|(incarnation, _)| receiver.incarnation_of(process) <= Some(*incarnation))
        };
        let id = sender.submit(&self.config, messages, last_failed)?;
        self.stats.scatterings_submitted += 1;
        Ok(id)
    }

    /// Returns the payload of a delivered message, valid until the message is released.
    #[inline]
    pub fn payload(&self, delivery: &Delivery) -> &[u8] {
        self.channel(delivery.service).receiver.payload(delivery)
    }

    /// Releases a delivered message: frees its receive buffer and opens the sender's window.
    // Inlined for the same reason as `poll_event`.
    #[inline(always)]
    pub fn release(&mut self, delivery: Delivery) {
        let channel = match delivery.service {
            Service::BestEffort => &mut self.best_effort,
            Service::Reliable => &mut self.reliable,
        };
        channel.release(&self.config, &delivery);
    }

    /// Handles promises of the peer on `port` that arrive without a frame, as on shared memory
    /// (docs/design/ordering.md, "Why are there no beacons on shared memory?").
    #[inline]
    pub fn handle_promises(&mut self, now: Now, port: Port, promises: Promises) {
        let clock = self.timestamps.read(now);
        if !self.control.accepts_promises(port) || self.is_too_far_ahead(clock, promises) {
            return;
        }
        let new_barrier = self.link.on_promises(&self.config, now.mono, port, promises);
        self.on_barrier(new_barrier);
    }

    /// Handles the loss of the link at `port` for `cause`: the barrier advances without it. The
    /// commit barrier follows once a controller has resolved the failure, or at once without
    /// controllers.
    pub fn handle_link_down(&mut self, port: Port, cause: Cause) {
        self.on_link_down(port, cause);
    }

    /// Returns whether `poll_transmit` may return a frame before the next timeout. A hint: may be
    /// true without a frame, but is never false with one.
    #[inline]
    pub fn wants_transmit(&self) -> bool {
        self.best_effort.wants_transmit(true)
            || (self.reliable.is_used() && self.reliable.wants_transmit(self.may_commit()))
            || self.control.wants_transmit(self.link.registers())
            || self.has_failure_step()
            || self.reliable.sender.has_cancelled()
            || self.link.demand().wants_beacon(|| self.promises())
            || self.has_wait_changed()
            || (self.leave != Leave::Active && self.has_final_frame())
    }

    //= spec/failure.md#R1
    //= spec/failure.md#R3
    //= spec/ordering.md#R8
    /// Returns what this endpoint promises now: no message sent later has a lower timestamp. `None`
    /// before the first clock reading.
    #[inline]
    pub fn promises(&self) -> Option<Promises> {
        let next = self.timestamps.promise()?;
        // Reliable messages never constrain the barrier, and best-effort ones no commit.
        Some(Promises {
            barrier: self.best_effort.sender.unfinished_burst().unwrap_or(next),
            commit: match makes(Mistake::CommitWhileOpen) {
                true => next,
                false => self.reliable.sender.oldest_open().unwrap_or(next),
            },
        })
    }

    /// Prefetches the state that [`Machine::handle_frame`] will need for `frame`; changes nothing.
    /// A driver with several received frames may call it for each before it handles the first, so
    /// that the cache misses overlap. The result is meaningless but must be used, or the loads are
    /// optimised away.
    #[inline]
    pub fn prefetch(&self, frame: &[u8]) -> u64 {
        let Some(header) = header_unchecked(frame) else { return 0 };
        let Ok(opcode) = header.opcode() else { return 0 };
        let channel = self.channel(opcode.service().unwrap_or(Service::BestEffort));
        match opcode.in_best_effort() {
            Opcode::Ack | Opcode::Nak | Opcode::Grant => channel.sender.prefetch(header.src()),
            _ if header.has(Flags::PIGGYBACK) => {
                channel.receiver.prefetch(header.src()) ^ channel.sender.prefetch(header.src())
            }
            _ => channel.receiver.prefetch(header.src()),
        }
    }

    /// Returns the counters since the start.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns the configuration that the endpoint was created with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    #[inline]
    fn check_member(&self) -> Result<(), SendError> {
        match (&self.leave, self.exclusion) {
            (Leave::Active, Exclusion::Member) => Ok(()),
            (Leave::Active, _) => Err(SendError::Excluded),
            _ => Err(SendError::Left),
        }
    }

    fn channel(&self, service: Service) -> &Channel {
        match service {
            Service::BestEffort => &self.best_effort,
            Service::Reliable => &self.reliable,
        }
    }

    //= spec/ordering.md#R81
    /// Returns whether promises are further ahead than any clock can be, and counts them. A joiner
    /// has no time to compare with before its first barrier (R5).
    #[inline]
    fn is_too_far_ahead(&mut self, clock: Timestamp, promises: Promises) -> bool {
        let ahead_ns = promises.barrier.max(promises.commit).since_ns(clock);
        let is_ahead = ahead_ns > self.config.ahead_ns_max && self.timestamps.is_started();
        self.stats.promises_ahead += u64::from(is_ahead);
        is_ahead
    }

    //= spec/ordering.md#R4
    #[inline]
    fn on_barrier(&mut self, new_barrier: Option<Timestamp>) {
        let Some(barrier) = new_barrier else { return };
        self.timestamps.raise_to(self.link.commit().map_or(barrier, |commit| barrier.max(commit)));
        self.best_effort.receiver.on_barrier(barrier);
        if self.reliable.is_used()
            && let Some(commit) = self.commit_barrier()
        {
            self.reliable.receiver.on_barrier(commit);
        }
    }

    /// Handles a frame of one of the services. Returns whether it was accepted.
    #[inline]
    fn on_message_frame(&mut self, now: Now, clock: Timestamp, frame: &Frame<'_>) -> bool {
        if !self.is_member() {
            // An excluded process sends no acknowledgements any more; recovery decides what it
            // delivers.
            return false;
        }
        let (channel, barrier) = match frame.opcode.service() {
            Some(Service::BestEffort) => (&mut self.best_effort, self.link.barrier()),
            // The controllers do not know this incarnation yet: if it died now, they would not
            // report it to the peers that wait for its acknowledgements.
            Some(Service::Reliable) if !self.control.is_registered() => return false,
            Some(Service::Reliable) => {
                //= spec/failure.md#R5
                // The commit promise of the frame also bounds the frame itself: its sender has not
                // committed what the frame carries, so no receiver may have delivered above it.
                // Otherwise a joiner whose timestamps lag behind the fabric could have a message
                // delivered that it has not committed.
                let promised = frame.header.promises(clock).commit;
                let barrier = self.commit_barrier().max(Some(promised));
                (&mut self.reliable, barrier)
            }
            None => return true,
        };
        let arrival = Arrival { now: now.mono, clock, barrier };
        channel.on_frame(&self.config, arrival, frame, &mut self.stats)
    }

    #[inline]
    pub(super) fn current_promises(&self) -> Promises {
        self.promises().expect("the clock was read before this poll")
    }
}

impl Machine for Endpoint {
    type Event = Event;

    #[inline]
    fn handle_frame(&mut self, now: Now, port: Port, bytes: &mut [u8]) -> Verdict {
        let verdict = self.on_frame(now, port, bytes);
        self.check_frame(bytes);
        verdict
    }

    fn handle_timeout(&mut self, now: Now) {
        self.timestamps.read(now);
        self.link.on_timeout(&self.config, now.mono, self.poll_timeout());
        let is_controlled = self.is_controlled(now.mono);
        for channel in [&mut self.best_effort, &mut self.reliable] {
            channel.sender.on_timeout(&self.config, now.mono, is_controlled, &mut self.stats);
            channel.receiver.on_timeout(&self.config, now.mono);
        }
        let (lost_links, stats) = (&mut self.lost_links, &mut self.stats);
        let control = &mut self.control;
        let new_barrier = self.link.expire(&self.config, now.mono, |registers, port| {
            control.on_link_down(registers, port, Cause::TimedOut);
            lost_links.push_back(port);
            stats.links_lost += 1;
        });
        self.on_barrier(new_barrier);
        self.link.demand_mut().on_timeout(now.mono);
        self.control.on_timeout(now.mono);
        self.relay_unreachable(now);
        self.probe_uplink(now);
        self.check_blocked(now.mono);
        self.check_input();
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        debug_assert!(
            slot.len() >= self.config.frame_len_max,
            "the slot is shorter than frame_len_max"
        );
        if self.has_left() || slot.len() < self.config.frame_len_max {
            return None;
        }
        let clock = self.timestamps.read(now);
        self.handle_failures(now);
        if self.exclusion != Exclusion::Member {
            let transmit = self.poll_control(now, slot);
            if transmit.is_none() && self.leave != Leave::Active {
                // An excluded process holds no barrier, so it leaves without a Leave frame.
                self.leave = Leave::Left { is_acknowledged: true };
            }
            return transmit;
        }
        if self.reliable.sender.has_cancelled() {
            self.reliable.sender.apply_cancelled(&self.config, now.mono);
        }
        if self.is_announcing_leave() {
            return self.poll_leave(now, slot);
        }
        if self.link.take_join(&self.config, now.mono) {
            return Some(self.poll_link_frame(now, slot, Opcode::Join));
        }
        if self.leave == Leave::Resolving {
            // Peers must not wait for delayed acknowledgements of a leaving process.
            self.best_effort.receiver.flush_delayed_acks();
        }
        if self.link.demand_mut().take_response(now.mono) {
            // The acknowledgement carries the promise.
            self.best_effort.receiver.flush_oldest_ack(now.mono);
        }
        // An unfinished burst goes first: every receiver's barrier waits for its last packet.
        if self.best_effort.sender.unfinished_burst().is_none() {
            if self.has_control_frame(now.mono)
                && let Some(transmit) = self.poll_control(now, slot)
            {
                return Some(transmit);
            }
            if (self.best_effort.wants_signal() || self.reliable.wants_signal())
                && let Some(transmit) = self.poll_burst_or_signal(now, slot)
            {
                return Some(transmit);
            }
            self.is_burst_first = true;
        }
        if let Some(transmit) = self.poll_data(now, slot) {
            self.check_input();
            return Some(transmit);
        }
        if self.leave == Leave::Resolving && self.is_resolved() {
            return self.announce_leave(now, slot);
        }
        if let Some(opcode) = self.due_beacon(now) {
            return Some(self.poll_link_frame(now, slot, opcode));
        }
        let is_joining = self.is_joining(clock);
        self.link.on_drained(&self.config, now, clock, is_joining);
        if self.link.has_no_peers(&self.config) {
            let new_barrier = self.link.on_no_peers(self.promises());
            self.on_barrier(new_barrier);
        }
        self.check_blocked(now.mono);
        self.link.set_promised_timeout(self.poll_timeout());
        self.check_drained();
        None
    }

    #[inline]
    fn poll_event(&mut self) -> Option<Event> {
        match self.poll_delivery() {
            Some(delivery) => Some(Event::Delivered(delivery)),
            None => self.poll_other_event(),
        }
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Mono> {
        if self.has_left() {
            return None;
        }
        if self.exclusion != Exclusion::Member {
            // An excluded process sends only to the controllers.
            return self.control.deadline();
        }
        if self.is_announcing_leave() {
            return self.leave_deadline();
        }
        let channels = Mono::earlier(self.best_effort.deadline(), self.reliable.deadline());
        let links = Mono::earlier(self.link.deadline(&self.config), self.control.deadline());
        Mono::earlier(links, channels)
    }
}
