//! Reliable transfer of objects in granted timeslots.
//!
//! An object is cut into pieces of one timeslot each, which the [`Client`] sends when they are
//! granted. The receiver reports the received pieces in timeslots of its own, and lost pieces are
//! retransmitted. There is no order between objects.

mod config;
mod incoming;
mod outgoing;
mod receiver;
mod remote_sender;
mod send_queue;
mod send_queues;

use alloc::vec::Vec;

use onepipe_base::{Incarnation, Machine, Mono, Now, Port, ProcessId, Transmit, Verdict};
use onepipe_reliability::BoundedQueue;
use onepipe_wire::{
    Frame, Opcode, PIECE_ACK_HEADER_LEN, PIECE_ACK_WORDS_MAX, PIECE_HEADER_LEN, Slot,
    TransferPacket,
};

use crate::ConfigError;
use crate::client::{Client, LENGTH_BYTES};
use outgoing::Outgoing;
use receiver::Receiving;
use remote_sender::OBJECTS_PER_PAIR_MAX;
use send_queue::Rto;
use send_queues::SendQueues;

pub use config::{
    OBJECT_LEN_MIN, ObjectId, TransferConfig, TransferError, TransferEvent, TransferStats,
};

/// Reliable transfer of objects over scheduled transfer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Transfer {
    config: TransferConfig,
    client: Client,
    sending: SendQueues,
    receiving: Receiving,
    /// The latest incarnation known of each other endpoint.
    incarnations: Vec<Option<Incarnation>>,
    events: BoundedQueue<TransferEvent>,
    packet: Vec<u8>,
    stats: TransferStats,
}

impl Transfer {
    /// Creates an endpoint without objects.
    ///
    /// # Errors
    /// When a setting is out of range.
    pub fn new(config: TransferConfig) -> Result<Self, ConfigError> {
        let right = (1..=4096).contains(&config.objects_max);
        let wrong = ConfigError { name: "objects_max", value: config.objects_max.into() };
        right.then_some(()).ok_or(wrong)?;
        let client = Client::new(config.client.clone())?;
        let buffer = config.client.slot_payload_max() - LENGTH_BYTES;
        let short =
            ConfigError { name: "frame_len_max", value: config.client.frame_len_max as u64 };
        let report = PIECE_ACK_HEADER_LEN + 8 * PIECE_ACK_WORDS_MAX;
        (buffer >= report).then_some(()).ok_or(short)?;
        let nodes = config.client.nodes as usize;
        Ok(Self {
            client,
            sending: SendQueues::new(
                config.client.nodes,
                Rto { initial_ns: config.rto_ns, max_ns: config.rto_ns_max.max(config.rto_ns) },
            ),
            receiving: Receiving::new(&config),
            incarnations: alloc::vec![None; nodes],
            // Each object ends with one event, and no more objects are in flight.
            events: BoundedQueue::new(
                config.objects_max as usize + (OBJECTS_PER_PAIR_MAX as usize + 1) * nodes + 16,
            ),
            packet: alloc::vec![0; buffer],
            stats: TransferStats::default(),
            config,
        })
    }

    /// Sends an object to `dst`.
    ///
    /// # Errors
    /// See [`TransferError`].
    pub fn send(&mut self, dst: ProcessId, bytes: Vec<u8>) -> Result<ObjectId, TransferError> {
        let nodes = self.config.client.nodes;
        if dst.0 >= nodes || dst == self.config.client.process {
            return Err(TransferError::Unknown(dst));
        }
        let Some(number) = self.sending.next_number(dst, self.config.objects_max) else {
            return Err(TransferError::Full(bytes));
        };
        let piece_len = (self.packet.len() - PIECE_HEADER_LEN).min(usize::from(u16::MAX));
        let serial = self.sending.serial(dst);
        let outgoing = Outgoing::new(dst, serial, number, bytes, piece_len as u16)
            .ok_or(TransferError::TooLarge)?;
        self.sending.push(outgoing);
        self.feed();
        Ok(ObjectId { dst, number })
    }

    /// Asserts what no input can break. For drivers of debug builds, tests and fuzzers.
    ///
    /// # Panics
    /// When an invariant is broken.
    pub fn check_invariants(&self) {
        self.client.check_invariants();
        self.sending.check_invariants();
        self.receiving.check_invariants();
        let stats = &self.stats;
        assert!(stats.pieces_retransmitted <= stats.pieces_sent, "a retransmission is sent");
    }

    /// Cancels an outgoing object and returns its contents; `None` if it does not exist. Pieces
    /// already sent may still complete it at the receiver. Otherwise the receiver keeps its memory
    /// until [`TransferConfig::reassembly_timeout_ns`] has passed.
    pub fn cancel(&mut self, id: ObjectId) -> Option<Vec<u8>> {
        self.sending.remove(id)
    }

    /// Replaces [`TransferConfig::receive_bytes_max`] from now on. Objects that were accepted stay.
    pub fn set_receive_bytes_max(&mut self, bytes: u64) {
        self.receiving.bytes_max = bytes;
    }

    /// Returns the number of outgoing objects.
    pub fn sending(&self) -> usize {
        self.sending.object_count() as usize
    }

    /// Returns the endpoint.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the counters.
    pub fn stats(&self) -> &TransferStats {
        &self.stats
    }

    /// Queues pieces at the endpoint while it has space.
    fn feed(&mut self) {
        let (sent, retransmit) = self.sending.feed(&mut self.client, &mut self.packet);
        self.stats.pieces_sent += sent;
        self.stats.pieces_retransmitted += retransmit;
    }

    fn on_packet(&mut self, now: Mono, src: ProcessId, incarnation: Incarnation, packet: &[u8]) {
        let packet = TransferPacket::parse(packet).ok();
        let Some(packet) = packet.filter(|_| self.on_incarnation(src, incarnation)) else {
            self.stats.dropped += 1;
            return;
        };
        let event = match packet {
            TransferPacket::Piece(piece, bytes) => {
                let whole = self.receiving.on_piece(now, src, &piece, bytes, &mut self.stats);
                whole.map(|whole| TransferEvent::Received(src, piece.object, whole))
            }
            // A report to another incarnation, which numbers its objects in the same way.
            TransferPacket::PieceAck(report, _)
                if report.incarnation != self.config.client.incarnation =>
            {
                self.stats.dropped += 1;
                None
            }
            TransferPacket::PieceAck(report, words) => {
                self.stats.reports_received += 1;
                self.sending.on_report(now, src, &report, words)
            }
        };
        if let Some(event) = event {
            self.events.push(event);
        }
    }

    //= spec/arbiter.md#R37
    /// Records the incarnation of `src`, and returns whether it is the latest; packets of previous
    /// ones are dropped. A restarted endpoint has lost its state, so transfers restart.
    fn on_incarnation(&mut self, src: ProcessId, incarnation: Incarnation) -> bool {
        let known = &mut self.incarnations[src.index()];
        if known.is_some_and(|known| incarnation < known) {
            return false;
        }
        let previous = known.replace(incarnation);
        if previous != Some(incarnation) {
            self.receiving.restart(src, incarnation);
        }
        if previous.is_some_and(|previous| incarnation > previous) {
            self.sending.restart(src);
        }
        true
    }

    fn advance(&mut self, now: Mono) {
        self.receiving.expire(now, &mut self.stats);
        self.receiving.report(now, &mut self.client, &mut self.packet, &mut self.stats);
        self.sending.on_retransmit_timeout(now, &self.client);
        self.feed();
    }
}

impl Machine for Transfer {
    type Event = TransferEvent;

    fn handle_frame(&mut self, now: Now, port: Port, bytes: &mut [u8]) -> Verdict {
        let Ok(frame) = Frame::parse(bytes) else {
            return self.client.handle_frame(now, port, bytes);
        };
        let verdict = self.client.on_frame(now, &frame);
        if verdict == Verdict::Consumed
            && frame.opcode == Opcode::Slot
            && let Ok((_, packets)) = Slot::parse(frame.payload)
        {
            let (src, incarnation) = (frame.header.src(), frame.header.incarnation());
            packets.for_each(|packet| self.on_packet(now.mono, src, incarnation, packet));
        }
        self.advance(now.mono);
        if cfg!(debug_assertions) {
            self.check_invariants();
        }
        verdict
    }

    fn handle_timeout(&mut self, now: Now) {
        self.client.handle_timeout(now);
        self.advance(now.mono);
        if cfg!(debug_assertions) {
            self.check_invariants();
        }
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        let transmit = self.client.poll_transmit(now, slot);
        if transmit.is_none() {
            // The packets sent have freed queue space.
            self.advance(now.mono);
        }
        transmit.or_else(|| self.client.poll_transmit(now, slot))
    }

    fn poll_event(&mut self) -> Option<TransferEvent> {
        self.events.pop().or_else(|| self.client.poll_event().map(TransferEvent::Client))
    }

    fn poll_timeout(&self) -> Option<Mono> {
        let own = Mono::earlier(self.receiving.due(), self.sending.due());
        Mono::earlier(self.client.poll_timeout(), own)
    }
}
