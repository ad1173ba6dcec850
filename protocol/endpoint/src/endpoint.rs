//! The composer: hands frames, time and commands to the stages in the order of a message's way.

mod failure;
mod poll;
mod route;

use alloc::collections::VecDeque;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{
    Machine, Mono, Now, Port, Promises, ScatteringId, Timestamp, Transmit, Verdict,
};
use onepipe_wire::{Frame, Opcode, Service, header_unchecked};

use crate::channel::Channel;
use crate::control::{ControlPlane, LinkEvent};
use crate::link::LinkLayer;
use crate::timestamp::TimestampSource;
use crate::{
    Config, ConfigError, Delivery, Event, Links, Message, ProcessFailed, ReceiveMode, SendError,
    Stats,
};
use failure::Exclusion;

/// One process's end of the pipe. See the crate's first page.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    config: Config,
    timestamps: TimestampSource,
    link: LinkLayer,
    best_effort: Channel,
    reliable: Channel,
    /// Which service is asked first for a frame: they take turns.
    next_service: Service,
    control: ControlPlane,
    exclusion: Exclusion,
    /// Failures to tell the application of, and how many it is not through with.
    failed: VecDeque<ProcessFailed>,
    callbacks_open: u32,
    lost_links: VecDeque<Port>,
    leave: Leave,
    stats: Stats,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Leave {
    Active,
    /// As soon as the fate of everything submitted is known.
    Requested,
    Done,
}

impl Endpoint {
    /// An endpoint that has heard and said nothing yet.
    ///
    /// # Errors
    /// When a number of `config` is out of its range.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            timestamps: TimestampSource::new(),
            link: LinkLayer::new(&config),
            best_effort: Channel::new(&config, Service::BestEffort),
            reliable: Channel::new(&config, Service::Reliable),
            next_service: Service::BestEffort,
            control: ControlPlane::new(&config, config.controllers, config.announce_interval_ns),
            exclusion: Exclusion::Member,
            failed: VecDeque::new(),
            callbacks_open: 0,
            lost_links: VecDeque::new(),
            leave: Leave::Active,
            stats: Stats::default(),
            config,
        })
    }

    /// Submits a scattering: its messages will bear one timestamp. Payloads are copied. Never
    /// blocks, never drops silently.
    ///
    /// # Errors
    /// [`SendError`]; then nothing of the scattering was accepted.
    #[inline]
    pub fn scatter(&mut self, messages: &[Message<'_>]) -> Result<ScatteringId, SendError> {
        self.check_member()?;
        self.best_effort.mark_used();
        let id = self.best_effort.sender.submit(&self.config, messages, |_| None)?;
        self.stats.scatterings_submitted += 1;
        Ok(id)
    }

    /// Submits a reliable scattering: all its correct receivers deliver it, or none does (design:
    /// ordering.md section 1). As [`Endpoint::scatter`] otherwise; its ids are a count of their
    /// own.
    ///
    /// # Errors
    /// [`SendError`]; then nothing of the scattering was accepted.
    #[inline]
    pub fn scatter_reliably(
        &mut self,
        messages: &[Message<'_>],
    ) -> Result<ScatteringId, SendError> {
        self.check_member()?;
        self.reliable.mark_used();
        let (Channel { sender, receiver, .. }, control) = (&mut self.reliable, &self.control);
        let last_failed = |process| {
            // Unless it has been heard in a later life.
            control
                .last_failed(process)
                .filter(|incarnation| receiver.incarnation_of(process) <= Some(*incarnation))
        };
        let id = sender.submit(&self.config, messages, last_failed)?;
        self.stats.scatterings_submitted += 1;
        Ok(id)
    }

    /// The payload of a delivered message, until it is released.
    #[inline]
    pub fn payload(&self, delivery: &Delivery) -> &[u8] {
        self.channel(delivery.service).receiver.payload(delivery)
    }

    /// The application is through with a message: its room in the receive buffer is free again and
    /// the sender's window opens.
    // Inlined for the same reason as `poll_event`.
    #[inline(always)]
    pub fn release(&mut self, delivery: Delivery) {
        let channel = match delivery.service {
            Service::BestEffort => &mut self.best_effort,
            Service::Reliable => &mut self.reliable,
        };
        channel.release(&self.config, &delivery);
    }

    /// Notes what the other end of `port` promises: a beacon without bytes, for worlds where
    /// promises lie in memory (ordering.md section 6).
    #[inline]
    pub fn handle_promises(&mut self, now: Now, port: Port, promises: Promises) {
        self.timestamps.read(now);
        if !self.control.accepts_promises(port) {
            return;
        }
        let new_barrier = self.link.on_promises(&self.config, now.mono, port, promises);
        self.on_barrier(new_barrier);
    }

    /// The world knows that nothing more comes from `port`: the barrier goes on without it. Commits
    /// do when a controller has resolved it, or where there is none.
    pub fn handle_link_down(&mut self, port: Port) {
        self.on_link_down(port);
    }

    /// Whether a transmit poll may yield something before the next timeout. A hint: it may say yes
    /// when there is nothing, never no when there is something.
    #[inline]
    pub fn wants_transmit(&self) -> bool {
        self.best_effort.wants_transmit(true)
            || (self.reliable.is_used() && self.reliable.wants_transmit(self.may_commit()))
            || self.control.wants_transmit(self.link.registers())
            || self.has_failure_step()
            || (self.leave == Leave::Requested && self.has_final_frame())
    }

    /// Whether a process that leaves has an answer to give at once, or its goodbye.
    #[cold]
    fn has_final_frame(&self) -> bool {
        self.is_drained() || !self.is_member() || self.best_effort.receiver.has_delayed_acks()
    }

    /// What this endpoint promises right now: nothing that leaves later is stamped below it.
    /// `None` before it has seen a clock.
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

    /// The oldest reliable scattering whose fate is open: this process commits nothing above it.
    #[inline]
    pub fn oldest_open(&self) -> Option<Timestamp> {
        self.reliable.sender.oldest_open()
    }

    /// Every message below this has been or can be delivered; `None` before anything was heard.
    #[inline]
    pub fn barrier(&self) -> Option<Timestamp> {
        self.link.barrier()
    }

    /// Every reliable message below this has been or can be delivered; `None` before anything was
    /// heard.
    #[inline]
    pub fn commit_barrier(&self) -> Option<Timestamp> {
        let commit = match self.exclusion {
            Exclusion::Member => self.link.commit()?,
            Exclusion::Recovered(complete) | Exclusion::Finished(complete) => {
                return Some(complete);
            }
            Exclusion::Excluded(_, commit) | Exclusion::Notified(commit) => return commit,
        };
        // What it is told leaves its own promise out, but a message to itself waits for siblings.
        let oldest = self.reliable.sender.oldest_open();
        let oldest = oldest.filter(|_| !makes(Mistake::OwnCommitIgnored));
        Some(oldest.map_or(commit, |oldest| commit.min(oldest)))
    }

    /// Messages received that wait for the barrier, for missing fragments or for `poll_event`.
    #[inline]
    pub fn pending(&self) -> usize {
        self.best_effort.receiver.pending() + self.reliable.receiver.pending()
    }

    /// Bytes in the send buffers of both services, charges included.
    pub fn send_buffer_bytes(&self) -> usize {
        self.best_effort.sender.buffered_bytes() + self.reliable.sender.buffered_bytes()
    }

    /// Bytes in the receive buffers of both services, charges included.
    pub fn receive_buffer_bytes(&self) -> u64 {
        self.best_effort.receiver.buffered_bytes() + self.reliable.receiver.buffered_bytes()
    }

    /// Whether the fate of everything submitted is known.
    pub fn is_drained(&self) -> bool {
        self.best_effort.sender.is_drained() && self.reliable.sender.is_drained()
    }

    /// Fetches into the cache what [`Machine::handle_frame`] will need for `frame`, and changes
    /// nothing. A driver that has several frames at hand may call it for each of them before it
    /// hands over the first: then the misses overlap. The answer means nothing, but must be used.
    #[inline]
    pub fn prefetch(&self, frame: &[u8]) -> u64 {
        let Some(header) = header_unchecked(frame) else { return 0 };
        let Ok(opcode) = header.opcode() else { return 0 };
        let channel = self.channel(opcode.service().unwrap_or(Service::BestEffort));
        match opcode.in_best_effort() {
            Opcode::Ack | Opcode::Nak | Opcode::Grant => channel.sender.prefetch(header.src()),
            _ => channel.receiver.prefetch(header.src()),
        }
    }

    /// Leaves the fabric: refuses new scatterings, waits until the fate of the submitted ones is
    /// known, then says goodbye, so that no barrier waits for this process.
    pub fn leave(&mut self) {
        if self.leave == Leave::Active {
            self.leave = Leave::Requested;
        }
    }

    /// Whether the goodbye has been said.
    pub fn has_left(&self) -> bool {
        self.leave == Leave::Done
    }

    /// Counters since the start.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// What it was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    #[inline]
    fn check_member(&self) -> Result<(), SendError> {
        match (self.leave, self.exclusion) {
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

    /// Takes in a frame of one of the services. Answers whether it was of any use.
    #[inline]
    fn on_message_frame(&mut self, now: Now, clock: Timestamp, frame: &Frame<'_>) -> bool {
        if !self.is_member() {
            // It answers nobody any more, and what it may deliver is settled by what it has.
            return false;
        }
        let (channel, barrier) = match frame.opcode.service() {
            Some(Service::BestEffort) => (&mut self.best_effort, self.link.barrier()),
            // Were it to die before the controllers know of this life, nobody would tell those who
            // wait for its answers.
            Some(Service::Reliable) if !self.control.is_registered() => return false,
            Some(Service::Reliable) => {
                // Its commit promise counts for the frame itself: what it carries has not
                // committed, so below that nobody may deliver it. Else a newcomer that is behind
                // what others were told could have a message delivered that it has not committed.
                let promised = frame.header.promises(clock).commit;
                let barrier = self.commit_barrier().max(Some(promised));
                (&mut self.reliable, barrier)
            }
            None => return true,
        };
        channel.on_frame(&self.config, (now.mono, clock), frame, barrier, &mut self.stats)
    }

    #[inline]
    fn current_promises(&self) -> Promises {
        self.promises().expect("polled with a clock, so there is a promise")
    }
}

impl Machine for Endpoint {
    type Event = Event;

    #[inline]
    fn handle_frame(&mut self, now: Now, port: Port, bytes: &mut [u8]) -> Verdict {
        let clock = self.timestamps.read(now);
        let Ok(frame) = Frame::parse(bytes) else {
            self.stats.frames_malformed += 1;
            return Verdict::Dropped;
        };
        let (src, dst) = (frame.header.src(), frame.header.dst());
        let is_hop_only = frame.opcode.is_hop_only();
        // It never writes to itself over the network.
        let is_other = src.0 < self.config.processes_max && src != self.config.process;
        let is_ours = (dst == self.config.process && is_other) || is_hop_only;
        if !is_ours || !self.accepts_from(port, src, frame.opcode) {
            self.stats.frames_misrouted += 1;
            return Verdict::Dropped;
        }
        self.stats.frames_received += 1;
        if self.config.links == Links::Mesh && self.is_failed(&frame) {
            // Late: heard, it would bring the link up for a while.
            self.stats.frames_stale += 1;
            return Verdict::Dropped;
        }
        let event = match self.is_direct(port) {
            // It has passed nobody who aggregates, and shows nothing of the link.
            true => LinkEvent::NoPromise,
            false => self.on_link_frame(now, port, &frame),
        };
        if let LinkEvent::Refused | LinkEvent::Dead = event {
            return Verdict::Dropped;
        }
        if frame.opcode.is_control() {
            let is_accepted = self.on_control(now, clock, port, &frame);
            return if is_accepted { Verdict::Consumed } else { Verdict::Dropped };
        }
        // Messages before promises: the promise speaks of what follows this frame.
        let is_failed = !is_hop_only && self.is_failed(&frame);
        if frame.opcode.service() == Some(Service::Reliable) {
            self.control.on_direct(src);
        }
        let is_accepted = !is_failed && self.on_message_frame(now, clock, &frame);
        self.stats.frames_stale += u64::from(is_failed);
        self.on_frame_promises(now, clock, port, (&frame, event));
        if is_accepted { Verdict::Consumed } else { Verdict::Dropped }
    }

    fn handle_timeout(&mut self, now: Now) {
        self.timestamps.read(now);
        for channel in [&mut self.best_effort, &mut self.reliable] {
            channel.sender.on_timeout(&self.config, now.mono, &mut self.stats);
            channel.receiver.on_timeout(&self.config, now.mono);
        }
        let (lost_links, stats) = (&mut self.lost_links, &mut self.stats);
        let control = &mut self.control;
        let new_barrier = self.link.expire(&self.config, now.mono, |registers, port| {
            control.on_link_down(registers, port);
            lost_links.push_back(port);
            stats.links_lost += 1;
        });
        self.on_barrier(new_barrier);
        self.control.on_timeout(now.mono);
        self.relay_unreachable(now);
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        debug_assert!(slot.len() >= self.config.frame_len_max, "the slot holds any frame");
        if self.leave == Leave::Done || slot.len() < self.config.frame_len_max {
            return None;
        }
        let clock = self.timestamps.read(now);
        self.handle_failures(now);
        if self.exclusion != Exclusion::Member {
            let transmit = self.poll_control(now, slot);
            if transmit.is_none() && self.leave == Leave::Requested {
                // Nobody waits for it any more.
                self.leave = Leave::Done;
            }
            return transmit;
        }
        if self.link.take_join(&self.config, now.mono) {
            return Some(self.poll_link_frame(slot, Opcode::Join));
        }
        if self.leave == Leave::Requested {
            // Who leaves does not keep others waiting for what it has received.
            self.best_effort.receiver.flush_delayed_acks();
        }
        // A burst under way goes first: everybody waits for its last packet.
        if self.best_effort.sender.unfinished_burst().is_none() {
            if self.has_control_frame(now.mono)
                && let Some(transmit) = self.poll_control(now, slot)
            {
                return Some(transmit);
            }
            if (self.best_effort.wants_signal() || self.reliable.wants_signal())
                && let Some(transmit) = self.poll_signal(now, slot)
            {
                return Some(transmit);
            }
        }
        if let Some(transmit) = self.poll_data(now, slot) {
            return Some(transmit);
        }
        if self.leave == Leave::Requested && self.is_drained() {
            self.leave = Leave::Done;
            if self.config.links != Links::Mesh {
                return Some(self.poll_link_frame(slot, Opcode::Leave));
            }
            return None;
        }
        if self.link.is_beacon_due(now.mono) {
            self.stats.beacons_sent += 1;
            return Some(self.poll_link_frame(slot, Opcode::Beacon));
        }
        self.link.on_drained(&self.config, now, clock);
        if self.link.has_no_peers(&self.config) {
            let new_barrier = self.link.on_no_peers(self.promises());
            self.on_barrier(new_barrier);
        }
        None
    }

    // Where it is called, an event need not be copied, which costs more than making it.
    #[inline(always)]
    fn poll_event(&mut self) -> Option<Event> {
        if self.has_notification()
            && let Some(event) = self.poll_notification()
        {
            return Some(event);
        }
        // Of best effort nothing is taken back, and apart nothing is staged.
        if self.config.receive_mode == ReceiveMode::Separate
            && let Some(barrier) = self.link.barrier()
            && let Some(delivery) = self.best_effort.receiver.next(barrier)
        {
            self.stats.messages_delivered += 1;
            return Some(Event::Delivered(delivery));
        }
        if self.config.receive_mode == ReceiveMode::Separate
            && self.reliable.is_used()
            && self.reliable.is_unfiltered()
            && let Some(commit) = self.delivery_barrier()
            && let Some(delivery) = self.reliable.receiver.next(commit)
        {
            self.stats.messages_delivered += 1;
            return Some(Event::Delivered(delivery));
        }
        self.poll_filtered()
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Mono> {
        if self.leave == Leave::Done {
            return None;
        }
        if self.exclusion != Exclusion::Member {
            // Nothing leaves any more but for the controllers.
            return self.control.deadline();
        }
        let channels = Mono::earlier(self.best_effort.deadline(), self.reliable.deadline());
        let links = Mono::earlier(self.link.deadline(), self.control.deadline());
        Mono::earlier(links, channels)
    }
}
