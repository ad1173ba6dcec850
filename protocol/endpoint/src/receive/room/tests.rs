//! Windows and room: what may be put into the receive buffer, rule by rule.

use super::*;
use alloc::vec::Vec;
use onepipe_base::{Promises, Timestamp};
use onepipe_wire::{Ack, AckView, Flags, Frame, HEADER_LEN, Header, Message, seal, write_message};

use super::super::Taken;

/// Half of the receive buffer: 64 KiB of room, and windows of 16 KiB for four processes.
const HALF: u64 = 64 << 10;

struct Alone {
    config: Config,
    receiver: Receiver,
    stats: Stats,
    now: Mono,
}

/// What a sender is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    to: u32,
    opcode: Opcode,
    room: u8,
    consumed: u64,
}

impl Alone {
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

    /// `from` opens its connection, or asks for room.
    fn connect(
        &mut self,
        from: u32,
        incarnation: u32,
        (reservation_id, reservation_bytes): (u32, u64),
    ) {
        let from = (ProcessId(from), Incarnation(incarnation));
        let connect = Connect { reservation_id, reservation_bytes };
        self.receiver.on_connect(&self.config, self.now, from, Psn::FIRST, connect);
    }

    /// A packet with one message comes from process 1.
    fn data(&mut self, psn: u32, bytes: usize, flags: u8) -> Taken {
        let mut frame = [0; 8_192];
        let message = Message { delta_ns: 0, index: 0, payload: &[7; 8_000][..bytes] };
        let length = write_message(&mut frame[HEADER_LEN..], message).expect("fits");
        let timestamp = Timestamp::from_ns(1_000_000 + u64::from(psn));
        let (from, to) = (ProcessId(1), ProcessId(0));
        let header = Header::new(Opcode::Data, from, to, Incarnation(1)).flagged(flags).stamped(
            timestamp,
            Promises::both(timestamp),
            Psn(psn),
        );
        let length = seal(&mut frame, header, length);
        let frame = Frame::parse(&frame[..length]).expect("just sealed");
        let times = (timestamp, None);
        self.receiver.on_data(&self.config, self.now, &frame, times, &mut self.stats)
    }

    /// Delivers and releases the message of packet `psn`, the next of all.
    fn consume(&mut self, psn: u32) {
        let barrier = Timestamp::from_ns(1_000_001 + u64::from(psn));
        let delivery = self.receiver.next(barrier).expect("it is here");
        self.receiver.release(&self.config, &delivery);
    }

    /// All answers that are due.
    fn told(&mut self) -> Vec<Told> {
        let mut payload = [0; 512];
        let mut all = Vec::new();
        while let Some(answer) = self.receiver.write_answer(&mut payload) {
            let ack = AckView::parse(&payload[..answer.bytes]).expect("just written").ack;
            let (opcode, to) = (answer.opcode, answer.to.0);
            all.push(Told { to, opcode, room: ack.reservation, consumed: ack.consumed_bytes });
        }
        all
    }

    /// What each sender that is answered now is told of its room.
    fn rooms(&mut self) -> Vec<(u32, u8)> {
        self.told().iter().map(|told| (told.to, told.room)).collect()
    }

    /// `from` is through with the room of this number.
    fn done(&mut self, from: u32, reservation_done: u32) {
        let probe = Probe { resolved: Psn::FIRST, until: Psn::FIRST, reservation_done };
        self.receiver.on_probe(self.now, (ProcessId(from), Incarnation(1)), probe);
    }
}

const GRANTED: u8 = Ack::RESERVATION_GRANTED;
const WAITING: u8 = Ack::RESERVATION_PENDING;

#[test]
fn a_sender_fills_its_window_and_no_more_until_some_is_consumed() {
    let mut alone = Alone::new(Service::BestEffort);
    alone.connect(1, 1, (0, 0));
    // Each takes 4,096 bytes of 16 KiB.
    for psn in 0..4 {
        assert_eq!(alone.data(psn, 4_032, 0), Taken::Yes);
    }
    alone.told();
    assert_eq!(alone.data(4, 0, 0), Taken::No);
    assert_eq!((alone.stats.window_violations, alone.receiver.held_bytes()), (1, 4 * 4_096));
    assert_eq!(alone.told()[0].opcode, Opcode::Nak, "refused for good, and said so");
    alone.consume(0);
    assert_eq!(alone.data(5, 4_032, 0), Taken::Yes);
    assert_eq!(alone.told()[0].consumed, 4_096);
}

#[test]
fn room_is_used_once_and_not_beyond_what_was_granted() {
    let mut alone = Alone::new(Service::BestEffort);
    alone.connect(1, 1, (1, 1_064));
    assert_eq!(alone.rooms(), [(1, GRANTED)]);
    assert_eq!(alone.data(0, 1_001, Flags::RESERVED), Taken::No, "a byte too many");
    assert_eq!(alone.data(1, 1_000, Flags::RESERVED), Taken::Yes);
    assert_eq!(alone.data(2, 0, Flags::RESERVED), Taken::No, "it is full, and so closed");
    assert_eq!(alone.rooms(), [(1, WAITING)]);
    assert_eq!(alone.stats.window_violations, 2);
    assert_eq!(alone.data(3, 0, 0), Taken::Yes, "the window is another matter");
    let used = alone.receiver.room_used;
    alone.consume(1);
    assert_eq!((used, alone.receiver.room_used), (1_064, 0));
}

#[test]
fn room_is_given_first_come_first_served() {
    let mut alone = Alone::new(Service::BestEffort);
    alone.connect(1, 1, (1, 40_000));
    alone.connect(2, 1, (1, 40_000));
    alone.connect(3, 1, (1, 10_000));
    // What 3 asks for is free, but 2 was first.
    assert_eq!(alone.rooms(), [(1, GRANTED), (2, WAITING), (3, WAITING)]);
    alone.done(1, 1);
    assert_eq!(alone.rooms(), [(2, GRANTED), (3, GRANTED), (1, WAITING)]);
    assert_eq!(alone.receiver.room_used, 50_000);
}

#[test]
fn room_that_does_not_exist_is_refused_and_keeps_nobody_waiting() {
    let mut alone = Alone::new(Service::BestEffort);
    alone.connect(1, 1, (1, HALF + 1));
    alone.connect(2, 1, (1, HALF));
    assert_eq!(alone.rooms(), [(1, Ack::RESERVATION_REFUSED), (2, GRANTED)]);
}

#[test]
fn a_newer_request_says_that_its_sender_is_through_with_the_former() {
    let mut alone = Alone::new(Service::BestEffort);
    alone.connect(1, 1, (1, HALF));
    alone.connect(2, 1, (1, 100));
    alone.told();
    alone.connect(1, 1, (1, HALF));
    assert_eq!(alone.rooms(), [(1, GRANTED)], "the same again changes nothing");
    alone.connect(1, 1, (2, HALF));
    assert_eq!(alone.rooms(), [(2, GRANTED), (1, WAITING)], "behind who has waited");
}

#[test]
fn room_of_the_silent_is_taken_back_when_others_wait_but_never_reliable_room() {
    for (service, room) in [(Service::BestEffort, GRANTED), (Service::Reliable, WAITING)] {
        let mut alone = Alone::new(service);
        alone.connect(1, 1, (1, HALF));
        alone.now = alone.now.after_ns(alone.config.room_timeout_ns);
        let now = alone.now;
        alone.receiver.reclaim_room(&alone.config, now);
        assert_eq!(alone.receiver.room_used, HALF, "nobody else wants it");
        alone.told();
        alone.connect(2, 1, (1, 100));
        assert_eq!(alone.rooms(), [(2, room)], "{service:?}");
    }
}

#[test]
fn a_new_life_has_no_room_and_keeps_nobody_waiting() {
    let mut alone = Alone::new(Service::BestEffort);
    alone.connect(1, 1, (1, HALF));
    alone.connect(2, 1, (1, 100));
    alone.told();
    alone.connect(1, 2, (0, 0));
    assert_eq!(alone.rooms(), [(2, GRANTED), (1, WAITING)]);
    assert_eq!(alone.receiver.room_used, 100);
}

#[test]
fn the_process_itself_waits_in_line_with_the_others() {
    let mut alone = Alone::new(Service::BestEffort);
    alone.connect(1, 1, (1, 40_000));
    assert!(!alone.receiver.ask_local_room(HALF + 1), "there is no such room");
    assert!(alone.receiver.ask_local_room(40_000));
    alone.connect(2, 1, (1, 10_000));
    assert_eq!(alone.rooms(), [(1, GRANTED), (2, WAITING)]);
    assert_eq!(alone.receiver.take_local_room(), None);
    alone.done(1, 1);
    assert_eq!(alone.receiver.take_local_room(), Some(40_000));
    assert_eq!(alone.receiver.take_local_room(), None, "told once");
    assert_eq!(alone.rooms(), [(2, GRANTED), (1, WAITING)]);
    alone.receiver.take_back_local_room(40_000);
    assert_eq!(alone.receiver.room_used, 10_000);
}
