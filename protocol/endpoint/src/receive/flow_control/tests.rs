//! Windows and reservations, rule by rule.

use super::*;
use alloc::vec::Vec;
use onepipe_base::{Promises, Timestamp};
use onepipe_wire::{Ack, AckView, Flags, Frame, HEADER_LEN, Header, Message, seal, write_message};

use super::super::{Arrival, Disposition};

/// Half of the receive buffer: 64 KiB for reservations, and windows of 16 KiB for four processes.
const HALF: u64 = 64 << 10;

struct ReceiverHarness {
    config: Config,
    receiver: Receiver,
    stats: Stats,
    now: Mono,
}

/// An acknowledgement as sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SentAck {
    to: u32,
    opcode: Opcode,
    reservation: u8,
    consumed: u64,
}

impl ReceiverHarness {
    fn new(service: Service) -> Self {
        let config = Config {
            receive_buffer_bytes_max: 2 * HALF as usize,
            processes_max: 4,
            frame_len_max: 8_192,
            ..Config::new(ProcessId(0), Incarnation(1))
        };
        let receiver = Receiver::new(&config, service);
        Self { config, receiver, stats: Stats::default(), now: Mono::from_ns(1_000) }
    }

    /// Process `from` opens its connection or requests a reservation.
    fn connect(
        &mut self,
        from: u32,
        incarnation: u32,
        (reservation_id, reservation_bytes): (u32, u64),
    ) {
        let (process, incarnation) = (ProcessId(from), Incarnation(incarnation));
        let from = ProcessInstance { process, incarnation };
        let ack_delay_ns = self.config.ack_delay_ns as u32;
        let connect = Connect { reservation_id, reservation_bytes, ack_delay_ns };
        self.receiver.on_connect(&self.config, self.now, from, Psn::FIRST, connect);
    }

    /// Receives a packet with one message from process 1.
    fn data(&mut self, psn: u32, len: usize, flags: u8) -> Disposition {
        let mut frame = [0; 8_192];
        let message = Message { delta_ns: 0, index: 0, payload: &[7; 8_000][..len] };
        let len = write_message(&mut frame[HEADER_LEN..], message).expect("fits");
        let timestamp = Timestamp::from_ns(1_000_000 + u64::from(psn));
        let (from, to) = (ProcessId(1), ProcessId(0));
        let header = Header::new(Opcode::Data, from, to, Incarnation(1)).flagged(flags).stamped(
            timestamp,
            Promises::both(timestamp),
            Psn(psn),
        );
        let len = seal(&mut frame, header, len);
        let frame = Frame::parse(&frame[..len]).expect("sealed above");
        let arrival = Arrival { now: self.now, clock: timestamp, barrier: None };
        self.receiver.on_data(&self.config, arrival, &frame, &mut self.stats)
    }

    /// Delivers and releases the message of packet `psn`, the next in order.
    fn consume(&mut self, psn: u32) {
        let barrier = Timestamp::from_ns(1_000_001 + u64::from(psn));
        let delivery = self.receiver.next(barrier).expect("the message was received");
        self.receiver.release(&self.config, &delivery);
    }

    /// Takes all acknowledgements that are due.
    fn take_acks(&mut self) -> Vec<SentAck> {
        let mut payload = [0; 512];
        let mut all = Vec::new();
        while let Some(response) = self.receiver.write_response(self.now, &mut payload) {
            let ack = AckView::parse(&payload[..response.payload_len]).expect("written above").ack;
            let (opcode, to) = (response.opcode, response.to.0);
            all.push(SentAck {
                to,
                opcode,
                reservation: ack.reservation,
                consumed: ack.consumed_bytes,
            });
        }
        all
    }

    /// Takes all acknowledgements that are due: destination and reservation state.
    fn take_reservations(&mut self) -> Vec<(u32, u8)> {
        self.take_acks().iter().map(|ack| (ack.to, ack.reservation)).collect()
    }

    /// Process `from` reports that it has finished with this reservation.
    fn probe_done(&mut self, from: u32, reservation_done: u32) {
        let probe = Probe { resolved: Psn::FIRST, until: Psn::FIRST, reservation_done };
        let from = ProcessInstance { process: ProcessId(from), incarnation: Incarnation(1) };
        self.receiver.on_probe(self.now, from, probe);
    }
}

const GRANTED: u8 = Ack::RESERVATION_GRANTED;
const WAITING: u8 = Ack::RESERVATION_PENDING;

//= spec/ordering.md#R25
#[test]
fn window_limits_a_sender_until_data_is_consumed() {
    let mut harness = ReceiverHarness::new(Service::BestEffort);
    harness.connect(1, 1, (0, 0));
    // Each message takes 4,096 of 16 KiB.
    for psn in 0..4 {
        assert_eq!(harness.data(psn, 4_032, 0), Disposition::Accepted);
    }
    harness.take_acks();
    assert_eq!(harness.data(4, 0, 0), Disposition::Dropped);
    assert_eq!(
        (harness.stats.window_violations, harness.receiver.buffered_bytes()),
        (1, 4 * 4_096)
    );
    assert_eq!(harness.take_acks()[0].opcode, Opcode::Nak, "rejected permanently");
    harness.consume(0);
    assert_eq!(harness.data(5, 4_032, 0), Disposition::Accepted);
    assert_eq!(harness.take_acks()[0].consumed, 4_096);
}

//= spec/ordering.md#R25
#[test]
fn reservation_is_single_use_and_bounded() {
    let mut harness = ReceiverHarness::new(Service::BestEffort);
    harness.connect(1, 1, (1, 1_064));
    assert_eq!(harness.take_reservations(), [(1, GRANTED)]);
    assert_eq!(harness.data(0, 1_001, Flags::RESERVED), Disposition::Dropped, "one byte too many");
    assert_eq!(harness.data(1, 1_000, Flags::RESERVED), Disposition::Accepted);
    assert_eq!(
        harness.data(2, 0, Flags::RESERVED),
        Disposition::Dropped,
        "the reservation is used up"
    );
    assert_eq!(harness.take_reservations(), [(1, WAITING)]);
    assert_eq!(harness.stats.window_violations, 2);
    assert_eq!(harness.data(3, 0, 0), Disposition::Accepted, "the window is independent");
    let used = harness.receiver.reserved_bytes;
    harness.consume(1);
    assert_eq!((used, harness.receiver.reserved_bytes), (1_064, 0));
}

#[test]
fn reservations_are_granted_in_fifo_order() {
    let mut harness = ReceiverHarness::new(Service::BestEffort);
    harness.connect(1, 1, (1, 40_000));
    harness.connect(2, 1, (1, 40_000));
    harness.connect(3, 1, (1, 10_000));
    // The request of 3 would fit, but 2 was first.
    assert_eq!(harness.take_reservations(), [(1, GRANTED), (2, WAITING), (3, WAITING)]);
    harness.probe_done(1, 1);
    assert_eq!(harness.take_reservations(), [(2, GRANTED), (3, GRANTED), (1, WAITING)]);
    assert_eq!(harness.receiver.reserved_bytes, 50_000);
}

#[test]
fn oversized_reservation_is_refused_without_blocking() {
    let mut harness = ReceiverHarness::new(Service::BestEffort);
    harness.connect(1, 1, (1, HALF + 1));
    harness.connect(2, 1, (1, HALF));
    assert_eq!(harness.take_reservations(), [(1, Ack::RESERVATION_REFUSED), (2, GRANTED)]);
}

#[test]
fn newer_request_releases_the_previous_reservation() {
    let mut harness = ReceiverHarness::new(Service::BestEffort);
    harness.connect(1, 1, (1, HALF));
    harness.connect(2, 1, (1, 100));
    harness.take_acks();
    harness.connect(1, 1, (1, HALF));
    assert_eq!(harness.take_reservations(), [(1, GRANTED)], "a repeated request changes nothing");
    harness.connect(1, 1, (2, HALF));
    assert_eq!(
        harness.take_reservations(),
        [(2, GRANTED), (1, WAITING)],
        "behind the waiting request"
    );
}

#[test]
fn idle_reservations_are_reclaimed_only_in_best_effort() {
    for (service, reservation) in [(Service::BestEffort, GRANTED), (Service::Reliable, WAITING)] {
        let mut harness = ReceiverHarness::new(service);
        harness.connect(1, 1, (1, HALF));
        harness.now = harness.now.after_ns(harness.config.reservation_timeout_ns);
        let now = harness.now;
        harness.receiver.reclaim_reservations(&harness.config, now);
        assert_eq!(harness.receiver.reserved_bytes, HALF, "no other request waits");
        harness.take_acks();
        harness.connect(2, 1, (1, 100));
        assert_eq!(harness.take_reservations(), [(2, reservation)], "{service:?}");
    }
}

#[test]
fn restarted_sender_loses_its_reservation() {
    let mut harness = ReceiverHarness::new(Service::BestEffort);
    harness.connect(1, 1, (1, HALF));
    harness.connect(2, 1, (1, 100));
    harness.take_acks();
    harness.connect(1, 2, (0, 0));
    assert_eq!(harness.take_reservations(), [(2, GRANTED), (1, WAITING)]);
    assert_eq!(harness.receiver.reserved_bytes, 100);
}

#[test]
fn local_requests_queue_with_remote_ones() {
    let mut harness = ReceiverHarness::new(Service::BestEffort);
    harness.connect(1, 1, (1, 40_000));
    assert!(!harness.receiver.request_local_reservation(HALF + 1), "larger than the limit");
    assert!(harness.receiver.request_local_reservation(40_000));
    harness.connect(2, 1, (1, 10_000));
    assert_eq!(harness.take_reservations(), [(1, GRANTED), (2, WAITING)]);
    assert_eq!(harness.receiver.take_local_grant(), None);
    harness.probe_done(1, 1);
    assert_eq!(harness.receiver.take_local_grant(), Some(40_000));
    assert_eq!(harness.receiver.take_local_grant(), None, "taken already");
    assert_eq!(harness.take_reservations(), [(2, GRANTED), (1, WAITING)]);
    harness.receiver.release_local_reservation(40_000);
    assert_eq!(harness.receiver.reserved_bytes, 10_000);
}
