//! Beacons on demand at a process: what it solicits, what it answers, and when it rests.

use crate::harness;

use harness::{ORIGIN_NS, connect, data};
use onepipe_base::{
    Address, Incarnation, Instance, Machine, Mono, Now, Port, ProcessId, Promises, Psn, SwitchId,
    Timestamp,
};
use onepipe_endpoint::{Config, Endpoint, Event, Links};
use onepipe_wire::{Flags, Frame, HEADER_LEN, Header, Opcode, seal, seal_with_hops};

const INTERVAL_NS: u64 = 10_000;
const HEARTBEAT_NS: u64 = 1_000_000;
const TIMEOUT_NS: u64 = 600_000;

/// Process 0 on the uplink of a switch with beacons on demand, which the test plays.
struct Uplink {
    end: Endpoint,
    ns: u64,
    delivered: usize,
    links_lost: usize,
    /// Flags of the switch's frames.
    flags: u8,
}

/// A frame that the process has sent, with its promises.
struct Sent {
    at: u64,
    opcode: Opcode,
    promise: u64,
    wanted: u64,
}

impl Uplink {
    /// Returns a process that has received nothing.
    fn new() -> Self {
        let config = Config {
            links: Links::Uplink,
            processes_max: 4,
            beacon_interval_ns: INTERVAL_NS,
            heartbeat_interval_ns: HEARTBEAT_NS,
            link_timeout_ns: TIMEOUT_NS,
            ack_delay_ns: 10 * HEARTBEAT_NS,
            ..Config::new(ProcessId(0), Incarnation(1))
        };
        let end = Endpoint::new(config).expect("a valid configuration");
        let (delivered, links_lost, flags) = (0, 0, Flags::ON_DEMAND);
        let mut uplink = Self { end, ns: 10_000_000, delivered, links_lost, flags };
        uplink.drain();
        uplink
    }

    /// Returns a process whose link is set up, at rest.
    fn at_rest() -> Self {
        let mut uplink = Self::new();
        uplink.beacon(uplink.ns);
        uplink.run(2 * HEARTBEAT_NS);
        uplink
    }

    fn now(&self) -> Now {
        Now { mono: Mono::from_ns(self.ns), sync: stamp(self.ns) }
    }

    fn link_frame(&mut self, opcode: Opcode, promise: u64, wanted: u64) {
        let incarnation = Incarnation(1);
        let switch = Instance { address: Address::Switch(SwitchId(0)), incarnation };
        let own = Instance { address: Address::Process(ProcessId(0)), incarnation };
        let promises = Promises::both(stamp(promise));
        let header = Header::hop_only(opcode, switch, Some(own), promises).flagged(self.flags);
        let header = match opcode {
            Opcode::Solicit => header.soliciting(stamp(wanted)),
            _ => header,
        };
        let mut bytes = [0; HEADER_LEN];
        seal_with_hops(&mut bytes, header, 0, 1);
        let now = self.now();
        self.end.handle_frame(now, Port(0), &mut bytes);
    }

    fn beacon(&mut self, promise: u64) {
        self.link_frame(Opcode::Beacon, promise, 0);
    }

    /// Delivers a message of process 1 that is stamped now, below what the switch has promised
    /// after it.
    fn message(&mut self, psn: u32) {
        self.flagged_message(psn, 0);
    }

    fn flagged_message(&mut self, psn: u32, flags: u8) {
        for frame in [connect(psn, 0, 0), data(psn, b"hello")].into_iter().skip(psn.min(1) as usize)
        {
            let mut bytes = vec![0; 1_000];
            bytes[HEADER_LEN..][..frame.body.len()].copy_from_slice(&frame.body);
            let header = Header::new(frame.opcode, ProcessId(1), ProcessId(0), Incarnation(1));
            let promise = Promises::both(stamp(self.ns - 5_000));
            let header = header.stamped(stamp(self.ns), promise, Psn(frame.psn)).flagged(flags);
            let length = seal(&mut bytes, header, frame.body.len());
            let now = self.now();
            self.end.handle_frame(now, Port(0), &mut bytes[..length]);
        }
    }

    /// Takes a turn. Returns what the process sends.
    fn drain(&mut self) -> Vec<Sent> {
        let now = self.now();
        if self.end.poll_timeout().is_some_and(|due| due <= now.mono) {
            self.end.handle_timeout(now);
        }
        while let Some(event) = self.end.poll_event() {
            match event {
                Event::Delivered(delivery) => {
                    self.delivered += 1;
                    self.end.release(delivery);
                }
                Event::LinkLost(_) => self.links_lost += 1,
                _ => {}
            }
        }
        let (mut slot, mut sent) = (vec![0; 1_472], Vec::new());
        while let Some(transmit) = self.end.poll_transmit(now, &mut slot) {
            let frame = Frame::parse(&slot[..transmit.bytes]).expect("the endpoint seals frames");
            let promise = frame.header.promises(now.sync).barrier;
            let wanted = frame.header.message_ts(now.sync);
            sent.push(Sent {
                at: self.ns,
                opcode: frame.opcode,
                promise: promise.as_ns().saturating_sub(ORIGIN_NS),
                wanted: wanted.as_ns().saturating_sub(ORIGIN_NS),
            });
        }
        sent
    }

    /// Lets time pass, turn by turn of 500 ns. Returns what the process sends.
    fn run(&mut self, ns: u64) -> Vec<Sent> {
        let (until, mut sent) = (self.ns + ns, Vec::new());
        while self.ns < until {
            self.ns += 500;
            sent.extend(self.drain());
        }
        sent
    }
}

fn stamp(ns: u64) -> Timestamp {
    Timestamp::from_ns(ORIGIN_NS + ns)
}

/// Returns when the frames of this kind left.
fn times(sent: &[Sent], opcode: Opcode) -> Vec<u64> {
    sent.iter().filter(|sent| sent.opcode == opcode).map(|sent| sent.at).collect()
}

//= spec/ordering.md#R45
#[test]
fn joins_back_off_until_the_switch_responds() {
    let mut uplink = Uplink::new();
    let start = uplink.ns;
    let sent = uplink.run(4 * HEARTBEAT_NS);
    let joins = times(&sent, Opcode::Join);
    let waits: Vec<u64> = joins.iter().map(|at| (at - start) / INTERVAL_NS).collect();
    assert_eq!(waits[..5], [10, 30, 70, 150, 250], "at most a heartbeat apart");
    let beacons = times(&sent, Opcode::Beacon).len();
    assert!(beacons <= 5, "{beacons} beacons: a Join promises as much");
    uplink.beacon(uplink.ns);
    assert!(times(&uplink.run(4 * HEARTBEAT_NS), Opcode::Join).is_empty());
}

//= spec/ordering.md#R40
#[test]
fn rest_carries_heartbeats_only() {
    let mut uplink = Uplink::at_rest();
    let sent = uplink.run(4 * HEARTBEAT_NS);
    assert!(sent.iter().all(|sent| sent.opcode == Opcode::Beacon));
    assert!((3..=5).contains(&sent.len()), "{} frames in four heartbeats", sent.len());
}

//= spec/ordering.md#R43
#[test]
fn solicit_is_repeated_with_backoff_while_undelivered() {
    let mut uplink = Uplink::at_rest();
    uplink.message(0);
    let (start, sent) = (uplink.ns, uplink.run(TIMEOUT_NS - INTERVAL_NS));
    let solicits = times(&sent, Opcode::Solicit);
    let waits: Vec<u64> = solicits.iter().map(|at| (at - start) / INTERVAL_NS).collect();
    // After 1 interval, then 1, 2, 4, and a tenth of the link timeout: 6 intervals.
    assert_eq!(waits[..6], [1, 2, 4, 8, 14, 20]);
    let all_name_it = sent.iter().filter(|sent| sent.opcode == Opcode::Solicit);
    assert!(all_name_it.clone().all(|sent| sent.wanted == start), "the message's timestamp");
    assert_eq!(uplink.delivered, 0);
}

//= spec/ordering.md#R85
#[test]
fn nothing_is_solicited_for_a_message_without_an_order() {
    let mut uplink = Uplink::at_rest();
    uplink.flagged_message(0, Flags::UNORDERED);
    let sent = uplink.run(8 * INTERVAL_NS);
    assert_eq!(uplink.delivered, 1);
    assert!(times(&sent, Opcode::Solicit).is_empty());
    uplink.message(1);
    assert!(!times(&uplink.run(8 * INTERVAL_NS), Opcode::Solicit).is_empty());
}

/// An application that waits for the commit barrier is a reason to solicit, as a message is.
#[test]
fn awaited_commit_is_solicited_until_it_has_passed() {
    let mut uplink = Uplink::at_rest();
    let start = uplink.ns;
    uplink.end.await_commit(Some(stamp(start)));
    let sent = uplink.run(8 * INTERVAL_NS);
    let solicits: Vec<_> = sent.iter().filter(|sent| sent.opcode == Opcode::Solicit).collect();
    assert!(solicits.len() >= 3, "{} solicits", solicits.len());
    assert!(solicits.iter().all(|sent| sent.wanted == start), "the timestamp that is awaited");
    uplink.beacon(uplink.ns);
    assert!(times(&uplink.run(HEARTBEAT_NS), Opcode::Solicit).is_empty(), "at rest");
    uplink.end.await_commit(Some(stamp(uplink.ns)));
    uplink.end.await_commit(None);
    assert!(times(&uplink.run(HEARTBEAT_NS), Opcode::Solicit).is_empty(), "no longer awaited");
}

//= spec/ordering.md#R43
#[test]
fn rest_begins_when_everything_is_delivered() {
    let mut uplink = Uplink::at_rest();
    uplink.message(0);
    let first = uplink.ns;
    uplink.run(2_000);
    uplink.message(1);
    uplink.run(3 * INTERVAL_NS);
    // The first message can be delivered now, the second one cannot.
    uplink.beacon(first + 1_000);
    // The first one took longer than an interval, so that the second one is given two (R50).
    let sent = uplink.run(20 * INTERVAL_NS);
    assert_eq!(uplink.delivered, 1);
    let solicits = times(&sent, Opcode::Solicit);
    assert!((3..=4).contains(&solicits.len()), "still waits for the second one: {solicits:?}");
    uplink.beacon(uplink.ns);
    let sent = uplink.run(HEARTBEAT_NS);
    assert_eq!(uplink.delivered, 2);
    assert!(times(&sent, Opcode::Solicit).is_empty(), "at rest");
    assert!(times(&sent, Opcode::Beacon).len() <= 2, "at rest");
}

//= spec/ordering.md#R42
#[test]
fn answer_follows_when_the_promise_has_risen() {
    let mut uplink = Uplink::at_rest();
    let (start, ahead) = (uplink.ns, 4 * INTERVAL_NS);
    uplink.link_frame(Opcode::Solicit, start, start + ahead);
    assert!(uplink.end.wants_transmit());
    let at_once = uplink.drain();
    assert_eq!(times(&at_once, Opcode::Beacon), [start]);
    assert!(at_once[0].promise <= start);
    let later = uplink.run(8 * INTERVAL_NS);
    assert_eq!(later.len(), 1, "one frame, when the request is satisfied");
    assert!(later[0].promise > start + ahead);
    assert!(later[0].at <= start + ahead + INTERVAL_NS, "without delay");
}

//= spec/ordering.md#R46
#[test]
fn endless_solicits_get_few_answers() {
    let mut uplink = Uplink::at_rest();
    let mut answers = 0;
    for _ in 0..1_000 {
        uplink.ns += INTERVAL_NS / 100;
        uplink.link_frame(Opcode::Solicit, uplink.ns, uplink.ns - INTERVAL_NS);
        answers += times(&uplink.drain(), Opcode::Beacon).len();
    }
    // 10 intervals.
    assert!((10..=41).contains(&answers), "{answers} answers to 1,000 solicits");
}

//= spec/ordering.md#R46
#[test]
fn request_far_ahead_is_forgotten() {
    let mut uplink = Uplink::at_rest();
    uplink.link_frame(Opcode::Solicit, uplink.ns, uplink.ns + 3_600_000_000_000);
    assert_eq!(times(&uplink.drain(), Opcode::Beacon).len(), 1, "the answer");
    assert!(uplink.end.poll_timeout().is_some_and(|due| due > uplink.now().mono));
    assert!(uplink.run(HEARTBEAT_NS).len() <= 2, "heartbeats");
}

//= spec/ordering.md#R42
#[test]
fn response_to_messages_is_offered_when_due() {
    let mut uplink = Uplink::at_rest();
    uplink.run(HEARTBEAT_NS / 2);
    uplink.message(0);
    assert!(uplink.end.wants_transmit(), "nothing was sent for long, so it is due at once");
    let sent = uplink.drain();
    assert!(sent.iter().any(|sent| sent.promise >= uplink.ns), "promises more than the message");
    let mut attempts = 0;
    for psn in 1..=100 {
        uplink.ns += INTERVAL_NS / 100;
        uplink.message(psn);
        if uplink.end.wants_transmit() {
            attempts += 1;
            uplink.drain();
        }
    }
    assert!(attempts <= 10, "{attempts} attempts in one interval");
}

//= spec/ordering.md#R44
#[test]
fn switch_that_never_answers_loses_its_link() {
    let mut uplink = Uplink::at_rest();
    uplink.message(0);
    uplink.run(TIMEOUT_NS);
    assert_eq!(uplink.links_lost, 0, "the first solicit left after an interval");
    uplink.run(2 * INTERVAL_NS);
    assert_eq!(uplink.links_lost, 1);
}

//= spec/ordering.md#R44
#[test]
fn silent_switch_keeps_its_link_for_ten_heartbeats() {
    let mut uplink = Uplink::at_rest();
    uplink.run(7 * HEARTBEAT_NS);
    assert_eq!(uplink.links_lost, 0);
    uplink.run(2 * HEARTBEAT_NS);
    assert_eq!(uplink.links_lost, 1);
}

//= spec/ordering.md#R49
#[test]
fn own_stall_does_not_count_as_idle_time_of_the_switch() {
    let mut uplink = Uplink::at_rest();
    uplink.message(0);
    uplink.run(2 * INTERVAL_NS);
    uplink.ns += 2 * TIMEOUT_NS;
    uplink.drain();
    assert_eq!(uplink.links_lost, 0, "its frames are yet to be read");
    uplink.run(TIMEOUT_NS / 2 - INTERVAL_NS);
    assert_eq!(uplink.links_lost, 0, "half a timeout to be received");
    uplink.run(2 * INTERVAL_NS);
    assert_eq!(uplink.links_lost, 1);
}

//= spec/ordering.md#R49
#[test]
fn endless_stalls_postpone_a_loss_three_timeouts() {
    let mut uplink = Uplink::at_rest();
    uplink.message(0);
    uplink.run(2 * INTERVAL_NS);
    let start = uplink.ns;
    while uplink.links_lost == 0 {
        uplink.ns += TIMEOUT_NS / 3;
        uplink.drain();
        assert!(uplink.ns - start < 5 * TIMEOUT_NS, "never lost");
    }
    assert!(uplink.ns - start > 3 * TIMEOUT_NS, "lost early");
}

//= spec/ordering.md#R48
#[test]
fn late_process_sends_beacons_less_often() {
    // The switch sends at the fixed interval, so that beacons leave at the fast interval.
    let beacons = |turn_ns: u64| {
        let mut uplink = Uplink::new();
        uplink.flags = 0;
        uplink.beacon(uplink.ns);
        let mut count = 0;
        for _ in 0..100 {
            uplink.ns += turn_ns;
            count += times(&uplink.drain(), Opcode::Beacon).len();
        }
        count
    };
    let (punctual, late) = (beacons(INTERVAL_NS / 2), beacons(4 * INTERVAL_NS));
    assert!((40..=60).contains(&punctual), "{punctual} beacons in 50 intervals");
    assert!((10..=60).contains(&late), "{late} beacons in 100 late turns, of 4 intervals each");
}
