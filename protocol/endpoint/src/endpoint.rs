//! The composer: hands frames, time and commands to the stages in the order of a message's way.

use alloc::collections::VecDeque;

use onepipe_base::{
    Incarnation, Machine, Mono, Now, Port, ProcessId, Promises, Psn, ScatteringId, Timestamp,
    Transmit, Verdict,
};
use onepipe_wire::{
    AckView, Connect, Frame, HEADER_OCTETS, Header, Opcode, Probe, peek, seal, seal_with_hops,
};

use crate::link::Link;
use crate::receive::{Receiver, Taken};
use crate::send::Sender;
use crate::stamp::Stamp;
use crate::{
    Config, ConfigError, Delivery, Event, Links, Message, Outcome, SendError, SendFailed, Stats,
};

/// One process's end of the pipe. See the crate's first page.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    config: Config,
    stamp: Stamp,
    link: Link,
    sender: Sender,
    receiver: Receiver,
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
        let receiver = Receiver::new(&config);
        let sender = Sender::new(&config, receiver.window_octets());
        Ok(Self {
            stamp: Stamp::new(),
            link: Link::new(&config),
            sender,
            receiver,
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
        let id = self.sender.submit(&self.config, messages)?;
        self.stats.scatterings_submitted += 1;
        Ok(id)
    }

    /// The payload of a delivered message, until it is released.
    #[inline]
    pub fn payload(&self, delivery: &Delivery) -> &[u8] {
        self.receiver.payload(delivery)
    }

    /// The application is through with a message: its room in the receive buffer is free again and
    /// the sender's window opens.
    #[inline]
    pub fn release(&mut self, delivery: Delivery) {
        let (charge, was_in_room) = self.receiver.release(&self.config, &delivery);
        if delivery.from == self.config.process {
            self.sender.on_local_consumed(&self.config, charge, was_in_room);
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
            self.sender.on_gone(process, &mut self.stats);
            self.receiver.on_gone(process);
        }
    }

    /// Whether a transmit poll may yield something before the next timeout. A hint: it may say yes
    /// when there is nothing, never no when there is something.
    #[inline]
    pub fn wants_transmit(&self) -> bool {
        self.sender.wants_transmit()
            || self.receiver.wants_transmit()
            || self.receiver.has_local_room()
            || (self.leave == Leave::Asked && self.sender.is_settled())
    }

    /// What this endpoint promises right now: nothing that leaves later is stamped below it.
    /// `None` before it has seen a clock.
    #[inline]
    pub fn promises(&self) -> Option<Promises> {
        self.sender.unfinished().or(self.stamp.promise()).map(Promises::both)
    }

    /// Every message below this has been or can be delivered; `None` before anything was heard.
    #[inline]
    pub fn barrier(&self) -> Option<Timestamp> {
        self.link.barrier()
    }

    /// Messages received that wait for the barrier, for missing fragments or for `poll_event`.
    #[inline]
    pub fn pending(&self) -> usize {
        self.receiver.pending()
    }

    /// Octets in the send buffer, charges included.
    pub fn send_buffer_octets(&self) -> usize {
        self.sender.buffered_octets()
    }

    /// Octets in the receive buffer, charges included.
    pub fn receive_buffer_octets(&self) -> u64 {
        self.receiver.held_octets()
    }

    /// Whether the fate of everything submitted is known.
    pub fn is_settled(&self) -> bool {
        self.sender.is_settled()
    }

    /// Fetches into the cache what [`Machine::handle_frame`] will need for `frame`, and changes
    /// nothing. A driver that has several frames at hand may call it for each of them before it
    /// hands over the first: then the misses overlap. The answer means nothing, but must be used.
    #[inline]
    pub fn fetch(&self, frame: &[u8]) -> u64 {
        let Ok((header, opcode)) = peek(frame) else { return 0 };
        match opcode {
            Opcode::Ack | Opcode::Nak | Opcode::Grant => self.sender.fetch(header.src()),
            _ => self.receiver.fetch(header.src()),
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
    fn on_barrier(&mut self, risen: Option<Timestamp>) {
        if let Some(barrier) = risen {
            self.stamp.lift(barrier);
            self.receiver.on_barrier(barrier);
        }
    }

    fn on_frame(&mut self, now: Now, clock: Timestamp, frame: &Frame<'_>) -> Verdict {
        let from = (frame.header.src(), frame.header.incarnation());
        let psn = frame.header.psn();
        let is_taken = match frame.opcode {
            Opcode::Data | Opcode::Fragment => {
                let times = (clock, self.link.barrier());
                let (config, stats) = (&self.config, &mut self.stats);
                self.receiver.on_data(config, now.mono, frame, times, stats) == Taken::Yes
            }
            Opcode::Ack | Opcode::Nak | Opcode::Grant => self.on_ack(now.mono, from, frame),
            Opcode::Probe => match Probe::parse(frame.payload) {
                Ok(probe) => self.receiver.on_probe(now.mono, from, probe),
                Err(_) => self.count_malformed(),
            },
            Opcode::Connect => match Connect::parse(frame.payload) {
                Ok(connect) => {
                    self.sender.on_back(from.0);
                    self.receiver.on_connect(&self.config, now.mono, from, psn, connect)
                }
                Err(_) => self.count_malformed(),
            },
            Opcode::Reset => {
                let (config, stats) = (&self.config, &mut self.stats);
                self.sender.on_reset(config, now.mono, from, psn, stats);
                true
            }
            Opcode::Beacon | Opcode::Join | Opcode::Leave => true,
            _ => self.count_malformed(),
        };
        if is_taken { Verdict::Consumed } else { Verdict::Dropped }
    }

    fn on_ack(&mut self, now: Mono, from: (ProcessId, Incarnation), frame: &Frame<'_>) -> bool {
        let Ok(view) = AckView::parse(frame.payload) else { return self.count_malformed() };
        let is_ours = self.sender.on_ack(&self.config, now, from, frame.opcode, &view);
        self.stats.frames_stale += u64::from(!is_ours);
        is_ours
    }

    fn count_malformed(&mut self) -> bool {
        self.stats.frames_malformed += 1;
        false
    }

    /// The next data frame of the burst, or of a new one.
    #[inline]
    fn poll_data(&mut self, now: Mono, slot: &mut [u8]) -> Option<Transmit> {
        if self.sender.unfinished().is_none() {
            if !self.stamp.is_placed() {
                return None;
            }
            let (config, receiver) = (&self.config, &mut self.receiver);
            if let Some(octets) = receiver.take_local_room() {
                self.sender.on_local_room(config, octets);
            }
            let stamped = self.sender.start_burst(config, now, &mut self.stamp, |local| {
                receiver.on_local(config, local);
            });
            self.stats.messages_sent += stamped;
            if let Some(octets) = self.sender.take_local_room_wanted()
                && !self.receiver.ask_local_room(octets)
            {
                self.sender.on_local_room_refused(&self.config);
            }
        }
        let written = self.sender.write_data(&self.config, now, slot)?;
        let to = written.to;
        let header = Header::new(written.opcode, self.config.process, to, self.config.incarnation)
            .flagged(written.flags);
        Some(self.finish(slot, header, (written.timestamp, written.psn), written.octets))
    }

    /// The next answer, connect or probe.
    fn poll_control(&mut self, slot: &mut [u8]) -> Option<Transmit> {
        let payload = &mut slot[HEADER_OCTETS..self.config.frame_octets_max];
        let (to, opcode, psn, octets) = if let Some(answer) = self.receiver.write_answer(payload) {
            self.stats.acks_sent += 1;
            (answer.to, answer.opcode, answer.psn, answer.octets)
        } else {
            let control = self.sender.write_control(payload)?;
            self.stats.probes_sent += u64::from(control.opcode == Opcode::Probe);
            (control.to, control.opcode, control.psn, control.octets)
        };
        let header = Header::new(opcode, self.config.process, to, self.config.incarnation);
        let promise = self.promise();
        Some(self.finish(slot, header, (promise, psn), octets))
    }

    fn poll_hop(&mut self, slot: &mut [u8], opcode: Opcode) -> Transmit {
        let process = self.config.process;
        let header = Header::new(opcode, process, process, self.config.incarnation);
        let promise = self.promise();
        let header = header.stamped(promise, Promises::both(promise), Psn::FIRST);
        let octets = seal_with_hops(slot, header, 0, 1);
        self.stats.frames_sent += 1;
        self.link.on_sent();
        Transmit { port: Port(0), octets }
    }

    /// Seals a frame. The promises are those of this moment: the frame that closes a burst already
    /// promises what follows the burst, because a receiver takes in the messages of a frame before
    /// its promises.
    #[inline]
    fn finish(
        &mut self,
        slot: &mut [u8],
        header: Header,
        (timestamp, psn): (Timestamp, Psn),
        payload_octets: usize,
    ) -> Transmit {
        let promises = Promises::both(self.promise());
        let port = match self.config.links {
            Links::Uplink => Port(0),
            Links::Mesh => Port(header.dst().0 as u16),
        };
        let octets = seal(slot, header.stamped(timestamp, promises, psn), payload_octets);
        self.stats.frames_sent += 1;
        self.link.on_sent();
        Transmit { port, octets }
    }

    #[inline]
    fn promise(&self) -> Timestamp {
        let promise = self.sender.unfinished().or(self.stamp.promise());
        promise.expect("polled with a clock, so there is a promise")
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
        self.sender.on_timeout(&self.config, now.mono, &mut self.stats);
        self.receiver.on_timeout(&self.config, now.mono);
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
            self.receiver.answer_delayed();
        }
        // A burst under way goes first: everybody waits for its last packet.
        if self.sender.unfinished().is_none()
            && let Some(transmit) = self.poll_control(slot)
        {
            return Some(transmit);
        }
        if let Some(transmit) = self.poll_data(now.mono, slot) {
            return Some(transmit);
        }
        if self.leave == Leave::Asked && self.sender.is_settled() {
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
        let risen = self.link.hear_nobody(&self.config, self.stamp.promise());
        self.on_barrier(risen);
        None
    }

    #[inline]
    fn poll_event(&mut self) -> Option<Event> {
        if let Some(failed) = self.sender.failures.pop_front() {
            return Some(self.count_failure(failed));
        }
        if let Some(port) = self.lost_links.pop_front() {
            return Some(Event::LinkLost(port));
        }
        let delivery = self.receiver.next(self.link.barrier()?)?;
        self.stats.messages_delivered += 1;
        Some(Event::Delivered(delivery))
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Mono> {
        if self.leave == Leave::Done {
            return None;
        }
        let ends = Mono::earlier(self.sender.deadline(), self.receiver.deadline());
        Mono::earlier(self.link.deadline(), ends)
    }
}
