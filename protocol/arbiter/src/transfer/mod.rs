//! Reliable objects in granted timeslots.
//!
//! An object is cut into pieces of a timeslot each, which the [`Client`] sends when the arbiter
//! says so. The receiver reports which pieces have come, in timeslots of its own; what was lost is
//! asked for again as anything else is. It knows nothing of order between objects.

mod incoming;
mod outgoing;
mod sender;

use alloc::vec::Vec;

use onepipe_base::{Incarnation, Machine, Mono, Now, Port, ProcessId, Transmit, Verdict};
use onepipe_wire::{
    Frame, Opcode, PIECE_HEADER_OCTETS, PIECES_HEADER_OCTETS, PIECES_WORDS_MAX, Piece, Pieces,
    PiecesState, PiecesWords, Slot, TransferPacket,
};

use crate::ConfigError;
use crate::client::{Client, ClientConfig, ClientEvent, LENGTH_OCTETS};
use crate::ring::Ring;
use incoming::Incoming;
use outgoing::Outgoing;
use sender::{Known, OPEN_MAX, Sender};

/// Pieces that come between two reports, and how long a report waits for so many, in ns.
const PIECES_A_REPORT: u32 = 32;
const REPORT_NS: u64 = 100_000;
/// Nothing was heard of an object for so long since its pieces left: the first is sent again. In
/// ns; twice as much each time, up to the second.
const SILENCE_FIRST_NS: u64 = 2_000_000;
const SILENCE_LAST_NS: u64 = 256_000_000;
/// Slots' worth of room that pieces leave to reports, of one receiver and in all.
const HEADROOM: u32 = 8;
const HEADROOM_ALL: u32 = 32;

/// How a [`Transfer`] is set up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TransferConfig {
    /// The endpoint.
    pub client: ClientConfig,
    /// Octets of all objects that are on their way in at a time; a sender of more is refused.
    /// Default 256 MiB.
    pub receive_octets_max: u64,
    /// Objects that may be on their way out at a time, 1 to 4096. Default 64.
    pub objects_max: u32,
}

impl TransferConfig {
    /// The defaults.
    pub const fn new(client: ClientConfig) -> Self {
        Self { client, receive_octets_max: 1 << 28, objects_max: 64 }
    }
}

/// An object that is sent: its receiver, and its number among those for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// Who receives it.
    pub dst: ProcessId,
    /// Its number, from 0.
    pub number: u32,
}

/// Why an object was not taken; it is handed back.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// As many are under way as may.
    #[error("as many objects are under way as may")]
    Full(Vec<u8>),
    /// It has more pieces than can be numbered.
    #[error("the object is too large")]
    TooLarge,
    /// There is no such endpoint, or it is this one.
    #[error("{} is no other endpoint", .0.0)]
    Unknown(ProcessId),
}

/// What a transfer tells.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TransferEvent {
    /// All of an object has come to its receiver. Its memory is handed back.
    Sent(ObjectId, Vec<u8>),
    /// The receiver has no room for it.
    Refused(ObjectId, Vec<u8>),
    /// An object has come: from whom, its number among those of its sender for this endpoint, and
    /// itself.
    Received(ProcessId, u32, Vec<u8>),
    /// Of the endpoint.
    Client(ClientEvent),
}

/// What a transfer has done since its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TransferStats {
    /// Pieces sent, the ones sent again with them.
    pub pieces_sent: u64,
    /// Pieces received for the first time.
    pub pieces_received: u64,
    /// Pieces received again.
    pub pieces_again: u64,
    /// Reports sent.
    pub reports_sent: u64,
    /// Packets that are none of a transfer, or of no object that there is.
    pub dropped: u64,
    /// Objects refused for want of room.
    pub refused: u64,
}

/// One that is on its way out, and when it is thought forgotten.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Sending {
    outgoing: Outgoing,
    silent_at: Option<Mono>,
    wait_ns: u64,
}

/// Reliable objects over scheduled transfer, cut into pieces of a timeslot each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Transfer {
    config: TransferConfig,
    client: Client,
    sending: Vec<Sending>,
    /// Objects ever sent to each receiver.
    numbers: Vec<u32>,
    senders: Vec<Sender>,
    /// Those that are to be reported to.
    waiting: Ring<u16>,
    /// The latest life of each other endpoint that was met.
    lives: Vec<Option<Incarnation>>,
    received_octets: u64,
    events: Ring<TransferEvent>,
    packet: Vec<u8>,
    stats: TransferStats,
}

impl Transfer {
    /// With nothing to send.
    ///
    /// # Errors
    /// When a setting makes no sense.
    pub fn new(config: TransferConfig) -> Result<Self, ConfigError> {
        let right = (1..=4096).contains(&config.objects_max);
        let wrong = ConfigError { name: "objects_max", value: config.objects_max };
        right.then_some(()).ok_or(wrong)?;
        let client = Client::new(config.client.clone())?;
        let room = config.client.room_octets() - LENGTH_OCTETS;
        let short =
            ConfigError { name: "frame_octets_max", value: config.client.frame_octets_max as u32 };
        let report = PIECES_HEADER_OCTETS + 8 * PIECES_WORDS_MAX;
        (room >= report).then_some(()).ok_or(short)?;
        let nodes = config.client.nodes as usize;
        Ok(Self {
            client,
            sending: Vec::with_capacity(config.objects_max as usize),
            numbers: alloc::vec![0; nodes],
            senders: (0..nodes).map(|_| Sender::new()).collect(),
            waiting: Ring::new(nodes),
            lives: alloc::vec![None; nodes],
            received_octets: 0,
            // Each object that ends says so once; more are not under way.
            events: Ring::new(config.objects_max as usize + 64 * nodes + 16),
            packet: alloc::vec![0; room],
            stats: TransferStats::default(),
            config,
        })
    }

    /// Takes an object to be sent to `dst`.
    ///
    /// # Errors
    /// See [`TransferError`].
    pub fn send(&mut self, dst: ProcessId, octets: Vec<u8>) -> Result<ObjectId, TransferError> {
        let nodes = self.config.client.nodes;
        if dst.0 >= nodes || dst == self.config.client.process {
            return Err(TransferError::Unknown(dst));
        }
        let to_it = self.sending.iter().filter(|sending| sending.outgoing.dst == dst);
        let number = self.numbers[dst.index()];
        // The receiver tells those apart that lie this close together.
        let is_close = |oldest: u32| number.wrapping_sub(oldest) < OPEN_MAX;
        let has_room = to_it.map(|sending| sending.outgoing.object).all(is_close);
        if !has_room || self.sending.len() >= self.config.objects_max as usize {
            return Err(TransferError::Full(octets));
        }
        let piece_octets = (self.packet.len() - PIECE_HEADER_OCTETS).min(usize::from(u16::MAX));
        let outgoing = Outgoing::new(dst, number, octets, piece_octets as u16)
            .ok_or(TransferError::TooLarge)?;
        let wait_ns = SILENCE_FIRST_NS;
        self.sending.push(Sending { outgoing, silent_at: None, wait_ns });
        self.numbers[dst.index()] = number.wrapping_add(1);
        self.feed();
        Ok(ObjectId { dst, number })
    }

    /// Octets of all objects that may be on their way in from now on, instead of
    /// [`TransferConfig::receive_octets_max`]. What is on its way already stays.
    pub fn set_receive_octets_max(&mut self, octets: u64) {
        self.config.receive_octets_max = octets;
    }

    /// Objects that are on their way out.
    pub fn sending(&self) -> usize {
        self.sending.len()
    }

    /// The endpoint.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// What it has done.
    pub fn stats(&self) -> &TransferStats {
        &self.stats
    }

    /// Hands pieces to the endpoint, as long as it has room.
    fn feed(&mut self) {
        let config = &self.config.client;
        let most = config.queue_slots_max.saturating_sub(HEADROOM).max(1);
        let most_all = config.slots_max.saturating_sub(HEADROOM_ALL).max(1);
        for sending in &mut self.sending {
            let outgoing = &mut sending.outgoing;
            while self.client.queued(outgoing.dst) < most
                && self.client.backlog() < most_all
                && let Some((index, octets)) = outgoing.write(&mut self.packet)
                && self.client.enqueue(outgoing.dst, &self.packet[..octets]).is_ok()
            {
                outgoing.on_sent(index);
                self.stats.pieces_sent += 1;
                sending.silent_at = None;
            }
        }
    }

    fn on_packet(&mut self, now: Now, (src, life): (ProcessId, Incarnation), packet: &[u8]) {
        let packet = TransferPacket::parse(packet).ok();
        let Some(packet) = packet.filter(|_| self.meet(src, life)) else {
            self.stats.dropped += 1;
            return;
        };
        match packet {
            TransferPacket::Piece(piece, octets) => {
                self.on_piece(now, src, &piece, octets);
                self.wait(src);
            }
            TransferPacket::Pieces(report, words) => self.on_report(src, &report, words),
        }
    }

    /// Whether this is the latest life of `src`: what was somewhere on its way from a former one is
    /// none of its any more. Who has begun anew knows nothing of what there was.
    fn meet(&mut self, src: ProcessId, life: Incarnation) -> bool {
        let known = &mut self.lives[src.index()];
        if known.is_some_and(|known| life < known) {
            return false;
        }
        if known.replace(life).is_some_and(|known| life > known) {
            for open in self.senders[src.index()].begin_anew() {
                self.received_octets -= open.octets();
            }
            let to_it = self.sending.iter_mut().map(|sending| &mut sending.outgoing);
            to_it.filter(|to| to.dst == src).for_each(Outgoing::restart);
        }
        true
    }

    /// There is, or may be, something to report to a sender.
    fn wait(&mut self, src: ProcessId) {
        let sender = &mut self.senders[src.index()];
        if !sender.is_waiting {
            sender.is_waiting = self.waiting.push(src.0 as u16);
        }
    }

    fn on_piece(&mut self, now: Now, src: ProcessId, piece: &Piece, octets: &[u8]) {
        let sender = &mut self.senders[src.index()];
        let received = &mut self.received_octets;
        let place = match sender.know(piece, |open| *received -= open.octets()) {
            Known::Open(place) => place,
            Known::New => {
                let all = received.saturating_add(piece.octets);
                let has_room = all <= self.config.receive_octets_max;
                let Some(open) = has_room.then(|| Incoming::new(piece)).flatten() else {
                    self.stats.refused += 1;
                    sender.end(piece.object, PiecesState::Refused);
                    return;
                };
                *received = all;
                sender.open.push(open);
                sender.open.len() - 1
            }
            Known::Ended => {
                self.stats.pieces_again += 1;
                return;
            }
            Known::Stale => {
                self.stats.dropped += 1;
                return;
            }
        };
        match sender.open[place].on_piece(piece, octets) {
            Some(true) => self.stats.pieces_received += 1,
            Some(false) => self.stats.pieces_again += 1,
            None => {
                self.stats.dropped += 1;
                return;
            }
        }
        sender.unreported += 1;
        if sender.report_at.is_none() {
            sender.report_at = Some(now.mono.after_ns(REPORT_NS));
        }
        if sender.open[place].is_whole() {
            let whole = sender.open.swap_remove(place);
            sender.end(piece.object, PiecesState::Whole);
            *received -= whole.octets();
            self.events.push(TransferEvent::Received(src, piece.object, whole.into_octets()));
        }
    }

    fn on_report(&mut self, src: ProcessId, report: &Pieces, words: PiecesWords<'_>) {
        let is_it = |sending: &Sending| {
            (sending.outgoing.dst, sending.outgoing.object) == (src, report.object)
        };
        let Some(place) = self.sending.iter().position(is_it) else {
            // Said again of one that is done.
            return;
        };
        let id = ObjectId { dst: src, number: report.object };
        match report.state {
            PiecesState::Partial => {
                let sending = &mut self.sending[place];
                if sending.outgoing.on_report(report, words) {
                    (sending.silent_at, sending.wait_ns) = (None, SILENCE_FIRST_NS);
                }
            }
            PiecesState::Whole => {
                let octets = self.sending.remove(place).outgoing.into_octets();
                self.events.push(TransferEvent::Sent(id, octets));
            }
            PiecesState::Refused => {
                let octets = self.sending.remove(place).outgoing.into_octets();
                self.events.push(TransferEvent::Refused(id, octets));
            }
        }
    }

    /// Hands reports to the endpoint that are due.
    fn report(&mut self, now: Mono) {
        for _ in 0..self.waiting.len() {
            let Some(src) = self.waiting.pop() else { return };
            let (dst, sender) = (ProcessId(src.into()), &mut self.senders[usize::from(src)]);
            while let Some((object, state)) = sender.finals.front().copied() {
                let report = Pieces { object, state, serial: 0, cumulative: 0 };
                let octets = report.write(&mut self.packet, core::iter::empty());
                let octets = octets.expect("checked when it was set up");
                if self.client.enqueue(dst, &self.packet[..octets]).is_err() {
                    break;
                }
                sender.finals.pop();
                self.stats.reports_sent += 1;
            }
            let is_due = sender.report_at.is_some_and(|at| at <= now);
            if is_due || sender.unreported >= PIECES_A_REPORT {
                (sender.report_at, sender.unreported) = (None, 0);
                for open in &sender.open {
                    let (report, words) = open.report();
                    let octets = report.write(&mut self.packet, words);
                    let octets = octets.expect("checked when it was set up");
                    // If there is no room, the sender asks by sending something again.
                    if self.client.enqueue(dst, &self.packet[..octets]).is_ok() {
                        self.stats.reports_sent += 1;
                    }
                }
            }
            sender.is_waiting = sender.report_at.is_some() || !sender.finals.is_empty();
            if sender.is_waiting {
                self.waiting.push(src);
            }
        }
    }

    /// What was sent, and nothing was heard of for long, is sent again in part.
    fn on_silence(&mut self, now: Mono) {
        for sending in &mut self.sending {
            let waits = self.client.queued(sending.outgoing.dst) > 0;
            match sending.silent_at {
                // It lies with the arbiter yet, or is under way.
                _ if waits => sending.silent_at = None,
                None => sending.silent_at = Some(now.after_ns(sending.wait_ns)),
                Some(at) if at <= now => {
                    sending.outgoing.on_silence();
                    sending.wait_ns = (2 * sending.wait_ns).min(SILENCE_LAST_NS);
                    sending.silent_at = None;
                }
                Some(_) => {}
            }
        }
    }

    fn settle(&mut self, now: Now) {
        self.report(now.mono);
        self.on_silence(now.mono);
        self.feed();
    }
}

impl Machine for Transfer {
    type Event = TransferEvent;

    fn handle_frame(&mut self, now: Now, port: Port, octets: &mut [u8]) -> Verdict {
        let Ok(frame) = Frame::parse(octets) else {
            return self.client.handle_frame(now, port, octets);
        };
        let verdict = self.client.on_frame(now, &frame);
        if verdict == Verdict::Consumed
            && frame.opcode == Opcode::Slot
            && let Ok((_, packets)) = Slot::parse(frame.payload)
        {
            let from = (frame.header.src(), frame.header.incarnation());
            packets.for_each(|packet| self.on_packet(now, from, packet));
        }
        self.settle(now);
        verdict
    }

    fn handle_timeout(&mut self, now: Now) {
        self.client.handle_timeout(now);
        self.settle(now);
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        let transmit = self.client.poll_transmit(now, slot);
        if transmit.is_none() {
            // There is room where packets have left.
            self.settle(now);
        }
        transmit.or_else(|| self.client.poll_transmit(now, slot))
    }

    fn poll_event(&mut self) -> Option<TransferEvent> {
        self.events.pop().or_else(|| self.client.poll_event().map(TransferEvent::Client))
    }

    fn poll_timeout(&self) -> Option<Mono> {
        let waiting = self.waiting.iter().map(|src| &self.senders[usize::from(*src)]);
        let reports = waiting.filter_map(|sender| sender.report_at).min();
        let silence = self.sending.iter().filter_map(|sending| sending.silent_at).min();
        Mono::earlier(self.client.poll_timeout(), Mono::earlier(reports, silence))
    }
}
