//! The composer: hands frames, time and commands to the stages in the order of a message's way.

mod failure;
mod poll;
mod ways;

use alloc::collections::VecDeque;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{
    Machine, Mono, Now, Port, Promises, ScatteringId, Timestamp, Transmit, Verdict,
};
use onepipe_wire::{Frame, Opcode, Service, header_unchecked};

use crate::control::{Control, LinkNews};
use crate::lane::Lane;
use crate::link::Link;
use crate::stamp::Stamp;
use crate::{
    Config, ConfigError, Delivery, Event, Links, Message, ProcessFailed, ReceiveMode, SendError,
    Stats,
};
use failure::Exclusion;

/// One process's end of the pipe. See the crate's first page.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    config: Config,
    stamp: Stamp,
    link: Link,
    best_effort: Lane,
    reliable: Lane,
    /// Which service is asked first for a frame: they take turns.
    turn: Service,
    control: Control,
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
    Staying,
    /// As soon as the fate of everything submitted is known.
    Asked,
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
            stamp: Stamp::new(),
            link: Link::new(&config),
            best_effort: Lane::new(&config, Service::BestEffort),
            reliable: Lane::new(&config, Service::Reliable),
            turn: Service::BestEffort,
            control: Control::new(&config, config.controllers, config.announce_interval_ns),
            exclusion: Exclusion::Member,
            failed: VecDeque::new(),
            callbacks_open: 0,
            lost_links: VecDeque::new(),
            leave: Leave::Staying,
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
        self.check_taking_part()?;
        self.best_effort.note_use();
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
        self.check_taking_part()?;
        self.reliable.note_use();
        let (Lane { sender, receiver, .. }, control) = (&mut self.reliable, &self.control);
        let failed_life = |process| {
            // Unless it has been heard in a later life.
            control.failed_life(process).filter(|life| receiver.life_of(process) <= Some(*life))
        };
        let id = sender.submit(&self.config, messages, failed_life)?;
        self.stats.scatterings_submitted += 1;
        Ok(id)
    }

    /// The payload of a delivered message, until it is released.
    #[inline]
    pub fn payload(&self, delivery: &Delivery) -> &[u8] {
        self.lane(delivery.service).receiver.payload(delivery)
    }

    /// The application is through with a message: its room in the receive buffer is free again and
    /// the sender's window opens.
    // Inlined for the same reason as `poll_event`.
    #[inline(always)]
    pub fn release(&mut self, delivery: Delivery) {
        let lane = match delivery.service {
            Service::BestEffort => &mut self.best_effort,
            Service::Reliable => &mut self.reliable,
        };
        lane.release(&self.config, &delivery);
    }

    /// Notes what the other end of `port` promises: a beacon without bytes, for worlds where
    /// promises lie in memory (ordering.md section 6).
    #[inline]
    pub fn hear(&mut self, now: Now, port: Port, promises: Promises) {
        self.stamp.read(now);
        if !self.control.may_hear(port) {
            return;
        }
        let risen = self.link.hear(&self.config, now.mono, port, promises);
        self.on_barrier(risen);
    }

    /// The world knows that nothing more comes from `port`: the barrier goes on without it. Commits
    /// do when a controller has resolved it, or where there is none.
    pub fn unlink(&mut self, port: Port) {
        self.on_unlinked(port);
    }

    /// Whether a transmit poll may yield something before the next timeout. A hint: it may say yes
    /// when there is nothing, never no when there is something.
    #[inline]
    pub fn wants_transmit(&self) -> bool {
        self.best_effort.wants_transmit(true)
            || (self.reliable.is_used() && self.reliable.wants_transmit(self.may_commit()))
            || self.control.wants_transmit(self.link.seen())
            || self.has_failure_step()
            || (self.leave == Leave::Asked && self.has_last_words())
    }

    /// Whether a process that leaves has an answer to give at once, or its goodbye.
    #[cold]
    fn has_last_words(&self) -> bool {
        self.is_settled() || !self.is_member() || self.best_effort.receiver.has_delayed()
    }

    /// What this endpoint promises right now: nothing that leaves later is stamped below it.
    /// `None` before it has seen a clock.
    #[inline]
    pub fn promises(&self) -> Option<Promises> {
        let next = self.stamp.promise()?;
        // Reliable messages never constrain the barrier, and best-effort ones no commit.
        Some(Promises {
            barrier: self.best_effort.sender.unfinished().unwrap_or(next),
            commit: match makes(Mistake::CommitWhileOpen) {
                true => next,
                false => self.reliable.sender.oldest_open().unwrap_or(next),
            },
        })
    }

    /// The oldest reliable scattering whose fate is open: this process commits nothing above it.
    #[inline]
    pub fn open_since(&self) -> Option<Timestamp> {
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
            Exclusion::Recovered(complete) | Exclusion::Over(complete) => return Some(complete),
            Exclusion::Excluded(_, commit) | Exclusion::Told(commit) => return commit,
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
        self.best_effort.receiver.held_bytes() + self.reliable.receiver.held_bytes()
    }

    /// Whether the fate of everything submitted is known.
    pub fn is_settled(&self) -> bool {
        self.best_effort.sender.is_settled() && self.reliable.sender.is_settled()
    }

    /// Fetches into the cache what [`Machine::handle_frame`] will need for `frame`, and changes
    /// nothing. A driver that has several frames at hand may call it for each of them before it
    /// hands over the first: then the misses overlap. The answer means nothing, but must be used.
    #[inline]
    pub fn fetch(&self, frame: &[u8]) -> u64 {
        let Some(header) = header_unchecked(frame) else { return 0 };
        let Ok(opcode) = header.opcode() else { return 0 };
        let lane = self.lane(opcode.service().unwrap_or(Service::BestEffort));
        match opcode.in_best_effort() {
            Opcode::Ack | Opcode::Nak | Opcode::Grant => lane.sender.fetch(header.src()),
            _ => lane.receiver.fetch(header.src()),
        }
    }

    /// Leaves the fabric: refuses new scatterings, waits until the fate of the submitted ones is
    /// known, then says goodbye, so that no barrier waits for this process.
    pub fn leave(&mut self) {
        if self.leave == Leave::Staying {
            self.leave = Leave::Asked;
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
    fn check_taking_part(&self) -> Result<(), SendError> {
        match (self.leave, self.exclusion) {
            (Leave::Staying, Exclusion::Member) => Ok(()),
            (Leave::Staying, _) => Err(SendError::Excluded),
            _ => Err(SendError::Left),
        }
    }

    fn lane(&self, service: Service) -> &Lane {
        match service {
            Service::BestEffort => &self.best_effort,
            Service::Reliable => &self.reliable,
        }
    }

    #[inline]
    fn on_barrier(&mut self, risen: Option<Timestamp>) {
        let Some(barrier) = risen else { return };
        self.stamp.lift(self.link.commit().map_or(barrier, |commit| barrier.max(commit)));
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
        let (lane, barrier) = match frame.opcode.service() {
            Some(Service::BestEffort) => (&mut self.best_effort, self.link.barrier()),
            // Were it to die before the controllers know of this life, nobody would tell those who
            // wait for its answers.
            Some(Service::Reliable) if !self.control.is_welcome() => return false,
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
        lane.on_frame(&self.config, (now.mono, clock), frame, barrier, &mut self.stats)
    }

    #[inline]
    fn current(&self) -> Promises {
        self.promises().expect("polled with a clock, so there is a promise")
    }
}

impl Machine for Endpoint {
    type Event = Event;

    #[inline]
    fn handle_frame(&mut self, now: Now, port: Port, bytes: &mut [u8]) -> Verdict {
        let clock = self.stamp.read(now);
        let Ok(frame) = Frame::parse(bytes) else {
            self.stats.frames_malformed += 1;
            return Verdict::Dropped;
        };
        let (src, dst) = (frame.header.src(), frame.header.dst());
        let is_hop_only = frame.opcode.is_hop_only();
        // It never writes to itself over the network.
        let is_other = src.0 < self.config.processes_max && src != self.config.process;
        let is_ours = (dst == self.config.process && is_other) || is_hop_only;
        if !is_ours || !self.may_come_by(port, src, frame.opcode) {
            self.stats.frames_misrouted += 1;
            return Verdict::Dropped;
        }
        self.stats.frames_received += 1;
        if self.config.links == Links::Mesh && self.is_failed(&frame) {
            // Late: heard, it would bring the link up for a while.
            self.stats.frames_stale += 1;
            return Verdict::Dropped;
        }
        let news = match self.is_direct(port) {
            // It has passed nobody who aggregates, and shows nothing of the link.
            true => LinkNews::Unheard,
            false => self.on_link_frame(now, port, &frame),
        };
        if let LinkNews::Refused | LinkNews::Dead = news {
            return Verdict::Dropped;
        }
        if frame.opcode.is_control() {
            let is_taken = self.on_control(now, clock, port, &frame);
            return if is_taken { Verdict::Consumed } else { Verdict::Dropped };
        }
        // Messages before promises: the promise speaks of what follows this frame.
        let is_failed = !is_hop_only && self.is_failed(&frame);
        if frame.opcode.service() == Some(Service::Reliable) {
            self.control.on_direct(src);
        }
        let is_taken = !is_failed && self.on_message_frame(now, clock, &frame);
        self.stats.frames_stale += u64::from(is_failed);
        self.hear_frame(now, clock, port, (&frame, news));
        if is_taken { Verdict::Consumed } else { Verdict::Dropped }
    }

    fn handle_timeout(&mut self, now: Now) {
        self.stamp.read(now);
        for lane in [&mut self.best_effort, &mut self.reliable] {
            lane.sender.on_timeout(&self.config, now.mono, &mut self.stats);
            lane.receiver.on_timeout(&self.config, now.mono);
        }
        let (lost_links, stats) = (&mut self.lost_links, &mut self.stats);
        let control = &mut self.control;
        let risen = self.link.expire(&self.config, now.mono, |registers, port| {
            control.on_link_dead(registers, port);
            lost_links.push_back(port);
            stats.links_lost += 1;
        });
        self.on_barrier(risen);
        self.control.on_timeout(now.mono);
        self.note_unreachable(now);
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        debug_assert!(slot.len() >= self.config.frame_len_max, "the slot holds any frame");
        if self.leave == Leave::Done || slot.len() < self.config.frame_len_max {
            return None;
        }
        let clock = self.stamp.read(now);
        self.handle_failures(now);
        if self.exclusion != Exclusion::Member {
            let transmit = self.poll_fabric(now, slot);
            if transmit.is_none() && self.leave == Leave::Asked {
                // Nobody waits for it any more.
                self.leave = Leave::Done;
            }
            return transmit;
        }
        if self.link.take_join(&self.config, now.mono) {
            return Some(self.poll_hop(slot, Opcode::Join));
        }
        if self.leave == Leave::Asked {
            // Who leaves does not keep others waiting for what it has received.
            self.best_effort.receiver.answer_delayed();
        }
        // A burst under way goes first: everybody waits for its last packet.
        if self.best_effort.sender.unfinished().is_none() {
            if self.has_fabric_frame(now.mono)
                && let Some(transmit) = self.poll_fabric(now, slot)
            {
                return Some(transmit);
            }
            if (self.best_effort.wants_control() || self.reliable.wants_control())
                && let Some(transmit) = self.poll_control(now, slot)
            {
                return Some(transmit);
            }
        }
        if let Some(transmit) = self.poll_data(now, slot) {
            return Some(transmit);
        }
        if self.leave == Leave::Asked && self.is_settled() {
            self.leave = Leave::Done;
            if self.config.links != Links::Mesh {
                return Some(self.poll_hop(slot, Opcode::Leave));
            }
            return None;
        }
        if self.link.is_beacon_due(now.mono) {
            self.stats.beacons_sent += 1;
            return Some(self.poll_hop(slot, Opcode::Beacon));
        }
        self.link.on_drained(&self.config, now, clock);
        if self.link.is_alone(&self.config) {
            let risen = self.link.hear_nobody(self.promises());
            self.on_barrier(risen);
        }
        None
    }

    // Where it is called, an event need not be copied, which costs more than making it.
    #[inline(always)]
    fn poll_event(&mut self) -> Option<Event> {
        if self.has_bad_news()
            && let Some(event) = self.poll_bad_news()
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
            && self.reliable.is_plain()
            && let Some(commit) = self.deliverable()
            && let Some(delivery) = self.reliable.receiver.next(commit)
        {
            self.stats.messages_delivered += 1;
            return Some(Event::Delivered(delivery));
        }
        self.poll_rest()
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
        let lanes = Mono::earlier(self.best_effort.deadline(), self.reliable.deadline());
        let links = Mono::earlier(self.link.deadline(), self.control.deadline());
        Mono::earlier(links, lanes)
    }
}
