//! The composer: hands frames, time and commands to the stages in the order of a message's way.

use alloc::collections::VecDeque;

use onepipe_base::{
    Machine, Mono, Now, Port, ProcessId, Promises, Psn, ScatteringId, Timestamp, Transmit, Verdict,
};
use onepipe_wire::{Frame, HEADER_OCTETS, Header, Opcode, Service, peek, seal, seal_with_hops};

use crate::lane::{Draft, Lane};
use crate::link::Link;
use crate::stamp::Stamp;
use crate::{
    Config, ConfigError, Delivery, Event, Links, Message, Outcome, ReceiveMode, SendError,
    SendFailed, Stats,
};

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
        if self.leave != Leave::Staying {
            return Err(SendError::Left);
        }
        let id = self.best_effort.sender.submit(&self.config, messages)?;
        self.stats.scatterings_submitted += 1;
        Ok(id)
    }

    /// Submits a reliable scattering: all its correct receivers deliver it, or none does (design:
    /// ordering.md section 1). As [`Endpoint::scatter`] otherwise; its ids are a count of their own.
    ///
    /// # Errors
    /// [`SendError`]; then nothing of the scattering was accepted.
    #[inline]
    pub fn scatter_reliably(
        &mut self,
        messages: &[Message<'_>],
    ) -> Result<ScatteringId, SendError> {
        if self.leave != Leave::Staying {
            return Err(SendError::Left);
        }
        let id = self.reliable.sender.submit(&self.config, messages)?;
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
    #[inline]
    pub fn release(&mut self, delivery: Delivery) {
        match delivery.service {
            Service::BestEffort => self.best_effort.release(&self.config, &delivery),
            Service::Reliable => self.reliable.release(&self.config, &delivery),
        }
    }

    /// Notes what the other end of `port` promises: a beacon without octets, for worlds where
    /// promises lie in memory (ordering.md section 6).
    #[inline]
    pub fn hear(&mut self, now: Now, port: Port, promises: Promises) {
        self.stamp.read(now);
        let risen = self.link.hear(&self.config, now.mono, port, promises);
        self.on_barrier(risen);
    }

    /// The world knows that nothing more comes from `port`: the barrier goes on without it.
    pub fn unlink(&mut self, port: Port) {
        let risen = self.link.remove(port);
        self.on_barrier(risen);
        if self.config.links == Links::Mesh {
            let process = ProcessId(u32::from(port.0));
            self.best_effort.sender.on_gone(process, &mut self.stats);
            self.best_effort.receiver.on_gone(process);
        }
    }

    /// Whether a transmit poll may yield something before the next timeout. A hint: it may say yes
    /// when there is nothing, never no when there is something.
    #[inline]
    pub fn wants_transmit(&self) -> bool {
        self.best_effort.wants_transmit()
            || self.reliable.wants_transmit()
            || (self.leave == Leave::Asked && self.is_settled())
    }

    /// What this endpoint promises right now: nothing that leaves later is stamped below it.
    /// `None` before it has seen a clock.
    #[inline]
    pub fn promises(&self) -> Option<Promises> {
        let next = self.stamp.promise()?;
        // Reliable messages never constrain the barrier, and best-effort ones no commit.
        Some(Promises {
            barrier: self.best_effort.sender.unfinished().unwrap_or(next),
            commit: self.reliable.sender.oldest_open().unwrap_or(next),
        })
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
        let commit = self.link.commit()?;
        // What it is told leaves its own promise out, but a message to itself waits for siblings.
        Some(self.reliable.sender.oldest_open().map_or(commit, |oldest| commit.min(oldest)))
    }

    /// Messages received that wait for the barrier, for missing fragments or for `poll_event`.
    #[inline]
    pub fn pending(&self) -> usize {
        self.best_effort.receiver.pending() + self.reliable.receiver.pending()
    }

    /// Octets in the send buffers of both services, charges included.
    pub fn send_buffer_octets(&self) -> usize {
        self.best_effort.sender.buffered_octets() + self.reliable.sender.buffered_octets()
    }

    /// Octets in the receive buffers of both services, charges included.
    pub fn receive_buffer_octets(&self) -> u64 {
        self.best_effort.receiver.held_octets() + self.reliable.receiver.held_octets()
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
        let Ok((header, opcode)) = peek(frame) else { return 0 };
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
        if let Some(commit) = self.commit_barrier() {
            self.reliable.receiver.on_barrier(commit);
        }
    }

    #[inline]
    fn on_frame(&mut self, now: Now, clock: Timestamp, frame: &Frame<'_>) -> Verdict {
        let times = (now.mono, clock);
        let is_taken = match frame.opcode.service() {
            Some(Service::BestEffort) => {
                let (barrier, stats) = (self.link.barrier(), &mut self.stats);
                self.best_effort.on_frame(&self.config, times, frame, barrier, stats)
            }
            Some(Service::Reliable) => {
                let (barrier, stats) = (self.commit_barrier(), &mut self.stats);
                self.reliable.on_frame(&self.config, times, frame, barrier, stats)
            }
            None => true,
        };
        if is_taken { Verdict::Consumed } else { Verdict::Dropped }
    }

    /// The next answer, connect, probe or recall of either service.
    #[inline]
    fn poll_control(&mut self, slot: &mut [u8]) -> Option<Transmit> {
        for service in self.turns() {
            let end = self.config.frame_octets_max_of(service);
            let (config, stats) = (&self.config, &mut self.stats);
            let lane = match service {
                Service::BestEffort => &mut self.best_effort,
                Service::Reliable => &mut self.reliable,
            };
            if let Some(draft) = lane.poll_control(config, &mut slot[HEADER_OCTETS..end], stats) {
                return Some(self.finish(slot, draft));
            }
        }
        None
    }

    /// The next data frame of either service.
    #[inline]
    fn poll_data(&mut self, now: Mono, slot: &mut [u8]) -> Option<Transmit> {
        for service in self.turns() {
            let (config, stats) = (&self.config, &mut self.stats);
            let lane = match service {
                Service::BestEffort => &mut self.best_effort,
                Service::Reliable => &mut self.reliable,
            };
            if let Some(draft) = lane.poll_data(config, now, &mut self.stamp, slot, stats) {
                self.turn = match (service, lane.sender.unfinished()) {
                    (Service::BestEffort, Some(_)) | (Service::Reliable, None) => {
                        Service::BestEffort
                    }
                    _ => Service::Reliable,
                };
                return Some(self.finish(slot, draft));
            }
        }
        None
    }

    /// Both services, in the order in which they are asked. A best-effort burst under way goes
    /// first, because everybody's barrier waits for its last packet.
    #[inline]
    fn turns(&self) -> [Service; 2] {
        let is_busy = self.best_effort.sender.unfinished().is_some();
        match self.turn {
            Service::Reliable if !is_busy => [Service::Reliable, Service::BestEffort],
            _ => [Service::BestEffort, Service::Reliable],
        }
    }

    fn poll_hop(&mut self, slot: &mut [u8], opcode: Opcode) -> Transmit {
        let process = self.config.process;
        let header = Header::new(opcode, process, process, self.config.incarnation);
        let promises = self.current();
        let header = header.stamped(promises.barrier, promises, Psn::FIRST);
        let octets = seal_with_hops(slot, header, 0, 1);
        self.stats.frames_sent += 1;
        self.link.on_sent();
        Transmit { port: Port(0), octets }
    }

    /// Seals a frame. The promises are those of this moment: the frame that closes a burst already
    /// promises what follows the burst, because a receiver takes in the messages of a frame before
    /// its promises.
    #[inline]
    fn finish(&mut self, slot: &mut [u8], draft: Draft) -> Transmit {
        let promises = self.current();
        let timestamp = draft.timestamp.unwrap_or(promises.barrier);
        let to = draft.header.dst();
        let header = draft.header.stamped(timestamp, promises, draft.psn);
        let octets = seal(slot, header, draft.octets);
        self.stats.frames_sent += 1;
        self.link.on_sent();
        Transmit { port: self.port_to(to), octets }
    }

    #[inline]
    fn port_to(&self, to: ProcessId) -> Port {
        match self.config.links {
            Links::Uplink => Port(0),
            Links::Mesh => Port(to.0 as u16),
        }
    }

    #[inline]
    fn current(&self) -> Promises {
        self.promises().expect("polled with a clock, so there is a promise")
    }

    /// The next message of either service.
    #[inline]
    fn next_separate(&mut self) -> Option<Delivery> {
        let barrier = self.link.barrier()?;
        if let Some(delivery) = self.best_effort.next(&self.config, barrier, &mut self.stats) {
            return Some(delivery);
        }
        let commit = self.commit_barrier()?;
        self.reliable.next(&self.config, commit, &mut self.stats)
    }

    /// The next message of both services in one order.
    fn next_merged(&mut self) -> Option<Delivery> {
        let barrier = self.link.barrier()?.min(self.commit_barrier()?);
        let (config, stats) = (&self.config, &mut self.stats);
        // No two scatterings of a process have one timestamp, so these keys never tie.
        let one = self.best_effort.stage(config, barrier, stats);
        let other = self.reliable.stage(config, barrier, stats);
        let is_first = other.is_none() || one.is_some_and(|one| Some(one) < other);
        let lane = if is_first { &mut self.best_effort } else { &mut self.reliable };
        lane.next(config, barrier, stats)
    }

    fn count_failure(&mut self, failed: SendFailed) -> Event {
        match failed.outcome {
            Outcome::Lost => self.stats.messages_lost += 1,
            Outcome::Unknown => self.stats.messages_unknown += 1,
        }
        Event::SendFailed(failed)
    }
}

impl Machine for Endpoint {
    type Event = Event;

    #[inline]
    fn handle_frame(&mut self, now: Now, port: Port, octets: &mut [u8]) -> Verdict {
        let clock = self.stamp.read(now);
        let Ok(frame) = Frame::parse(octets) else {
            self.stats.frames_malformed += 1;
            return Verdict::Dropped;
        };
        let (src, dst) = (frame.header.src(), frame.header.dst());
        let is_from_link = match self.config.links {
            Links::Uplink => port == Port(0),
            Links::Mesh => src.0 == u32::from(port.0),
        };
        let is_ours = dst == self.config.process || frame.opcode.is_hop_only();
        // It never writes to itself over the network.
        let is_other = src.0 < self.config.processes_max && src != self.config.process;
        let is_known = is_other || frame.opcode.is_hop_only();
        if !is_from_link || !is_ours || !is_known {
            self.stats.frames_misrouted += 1;
            return Verdict::Dropped;
        }
        self.stats.frames_received += 1;
        // Messages before promises: the promise speaks of what follows this frame.
        let verdict = self.on_frame(now, clock, &frame);
        let risen = self.link.hear(&self.config, now.mono, port, frame.header.promises(clock));
        self.on_barrier(risen);
        verdict
    }

    fn handle_timeout(&mut self, now: Now) {
        self.stamp.read(now);
        for lane in [&mut self.best_effort, &mut self.reliable] {
            lane.sender.on_timeout(&self.config, now.mono, &mut self.stats);
            lane.receiver.on_timeout(&self.config, now.mono);
        }
        let (lost_links, stats) = (&mut self.lost_links, &mut self.stats);
        let risen = self.link.expire(&self.config, now.mono, |port| {
            lost_links.push_back(port);
            stats.links_lost += 1;
        });
        self.on_barrier(risen);
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        debug_assert!(slot.len() >= self.config.frame_octets_max, "the slot holds any frame");
        if self.leave == Leave::Done || slot.len() < self.config.frame_octets_max {
            return None;
        }
        let clock = self.stamp.read(now);
        if self.link.take_join(&self.config, now.mono) {
            return Some(self.poll_hop(slot, Opcode::Join));
        }
        if self.leave == Leave::Asked {
            // Who leaves does not keep others waiting for what it has received.
            self.best_effort.receiver.answer_delayed();
        }
        // A burst under way goes first: everybody waits for its last packet.
        if self.best_effort.sender.unfinished().is_none()
            && let Some(transmit) = self.poll_control(slot)
        {
            return Some(transmit);
        }
        if let Some(transmit) = self.poll_data(now.mono, slot) {
            return Some(transmit);
        }
        if self.leave == Leave::Asked && self.is_settled() {
            self.leave = Leave::Done;
            if self.config.links == Links::Uplink {
                return Some(self.poll_hop(slot, Opcode::Leave));
            }
            return None;
        }
        if self.link.is_beacon_due(now.mono) {
            self.stats.beacons_sent += 1;
            return Some(self.poll_hop(slot, Opcode::Beacon));
        }
        self.link.on_drained(&self.config, now, clock);
        let risen = self.link.hear_nobody(&self.config, self.promises());
        self.on_barrier(risen);
        None
    }

    #[inline]
    fn poll_event(&mut self) -> Option<Event> {
        let failures = &mut self.best_effort.sender.failures;
        if let Some(failed) =
            failures.pop_front().or_else(|| self.reliable.sender.failures.pop_front())
        {
            return Some(self.count_failure(failed));
        }
        if let Some(port) = self.lost_links.pop_front() {
            return Some(Event::LinkLost(port));
        }
        let delivery = match self.config.receive_mode {
            ReceiveMode::Separate => self.next_separate()?,
            ReceiveMode::Merged => self.next_merged()?,
        };
        self.stats.messages_delivered += 1;
        Some(Event::Delivered(delivery))
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Mono> {
        if self.leave == Leave::Done {
            return None;
        }
        let (one, other) = (&self.best_effort, &self.reliable);
        let ends = Mono::earlier(one.sender.deadline(), one.receiver.deadline());
        let others = Mono::earlier(other.sender.deadline(), other.receiver.deadline());
        Mono::earlier(self.link.deadline(), Mono::earlier(ends, others))
    }
}
