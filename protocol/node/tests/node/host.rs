//! A host of toy processes behind the real switch.

use std::collections::VecDeque;

use onepipe_base::{
    Incarnation, Machine, Mono, Now, Port, ProcessId, Promises, Psn, Timestamp, Transmit, Verdict,
};
use onepipe_node::{Host, HostEvent};
use onepipe_switch::{Config, Eager, Switch};
use onepipe_topology::{Node, Shape, Topology};
use onepipe_wire::{Frame, HEADER_LEN, Header, Opcode, SharedReceiver, SharedReceivers, seal};

/// Sends queued numbers, reports received ones, and has a timer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Toy {
    id: u32,
    outbox: VecDeque<(u32, u32)>,
    received: VecDeque<(u32, u32)>,
    /// Receivers of a shared frame to send.
    shared: Vec<u32>,
    timer: Option<Mono>,
}

impl Machine for Toy {
    type Event = (u32, u32);

    fn handle_frame(&mut self, _: Now, port: Port, frame: &mut [u8]) -> Verdict {
        assert_eq!(port, Port(0), "a process has one link");
        let Ok(frame) = Frame::parse_for(frame, ProcessId(self.id)) else {
            return Verdict::Dropped;
        };
        if frame.opcode == Opcode::Data {
            self.received.push_back((frame.header.src().0, frame.header.psn().0));
        }
        Verdict::Consumed
    }

    fn handle_timeout(&mut self, now: Now) {
        assert!(self.timer.take().expect("set") <= now.mono, "rule D5: never early");
        self.received.push_back((self.id, u32::MAX));
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        if !self.shared.is_empty() {
            return Some(self.send_shared(now, slot));
        }
        let (to, number) = self.outbox.pop_front()?;
        if to == self.id {
            // A message to itself becomes an event during the transmit poll.
            self.received.push_back((to, number));
            return None;
        }
        let header = Header::new(Opcode::Data, ProcessId(self.id), ProcessId(to), Incarnation(0))
            .stamped(now.sync, Promises::both(now.sync), Psn(number));
        Some(Transmit { port: Port(0), bytes: seal(slot, header, 8) })
    }

    fn poll_event(&mut self) -> Option<(u32, u32)> {
        self.received.pop_front()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.timer
    }
}

impl Toy {
    fn send_shared(&mut self, now: Now, slot: &mut [u8]) -> Transmit {
        let receivers = std::mem::take(&mut self.shared);
        let list = receivers.iter().map(|process| SharedReceiver {
            process: ProcessId(*process),
            psn: Psn(70 + process),
            index: 0,
            is_ack_wanted: false,
            has_ack: false,
        });
        let len = SharedReceivers::write(&mut slot[HEADER_LEN..], list).expect("it fits");
        let own = ProcessId(self.id);
        let header = Header::new(Opcode::SharedData, own, own, Incarnation(0))
            .stamped(now.sync, Promises::both(now.sync), Psn(0))
            .unaddressed();
        Transmit { port: Port(0), bytes: seal(slot, header, len) }
    }
}

const CARD: Port = Port(3);

fn toy(id: u32) -> Toy {
    Toy { id, outbox: VecDeque::new(), received: VecDeque::new(), shared: Vec::new(), timer: None }
}

/// The first of two hosts, with the processes 0 to 2.
fn host() -> Host<Switch, Toy> {
    let shape = Shape::star(2).expect("two hosts fit");
    let topology = Topology::new(shape, 3).expect("small");
    let node = Node::Host(onepipe_base::HostId(0));
    let mut switch = Config::new(3, 1, topology.route(node));
    (switch.beacon_interval_ns, switch.link_timeout_ns, switch.start_wait_ns) = (0, 0, 0);
    switch.eager_beacons = Eager::Never;
    let mut host = Host::new(Switch::new(switch).expect("in range"), (0..3).map(toy).collect());
    host.handle_timeout(now(0));
    drain(&mut host, 0);
    host
}

fn now(ns: u64) -> Now {
    Now { mono: Mono::from_ns(ns), sync: Timestamp::from_ns((1 << 50) + ns) }
}

/// `(from, number)`.
type Frames = Vec<(u32, u32)>;
/// `(port, from, number)`.
type Reports = Vec<(u16, u32, u32)>;

/// Returns the frames that leave through the network card, and the reports of the processes.
fn drain(host: &mut Host<Switch, Toy>, ns: u64) -> (Frames, Reports) {
    let (mut frames, mut reports, mut slot) = (Vec::new(), Vec::new(), [0; 256]);
    while let Some(transmit) = host.poll_transmit(now(ns), &mut slot) {
        assert_eq!(transmit.port, CARD);
        let frame = Frame::parse(&slot[..transmit.bytes]).expect("sealed");
        frames.push((frame.header.src().0, frame.header.psn().0));
    }
    while let Some(event) = host.poll_event() {
        if let HostEvent::Process(port, (from, number)) = event {
            reports.push((port.0, from, number));
        }
    }
    (frames, reports)
}

fn queue_messages(host: &mut Host<Switch, Toy>, from: u16, to: u32, numbers: std::ops::Range<u32>) {
    let process = host.process_mut(Port(from)).expect("runs");
    process.outbox.extend(numbers.map(|number| (to, number)));
}

#[test]
fn local_messages_bypass_network_card() {
    let mut host = host();
    queue_messages(&mut host, 0, 2, 0..3);
    let (frames, reports) = drain(&mut host, 10);
    assert_eq!((frames, reports), (vec![], vec![(2, 0, 0), (2, 0, 1), (2, 0, 2)]));
}

#[test]
fn events_during_transmit_poll_are_reported() {
    let mut host = host();
    queue_messages(&mut host, 1, 1, 7..8);
    assert_eq!(host.poll_event(), None, "nothing yet");
    assert_eq!(drain(&mut host, 10), (vec![], vec![(1, 1, 7)]));
}

#[test]
fn processes_share_network_card_fairly() {
    let mut host = host();
    queue_messages(&mut host, 0, 4, 0..100);
    queue_messages(&mut host, 1, 4, 0..2);
    let (frames, _) = drain(&mut host, 10);
    assert_eq!(frames.len(), 102);
    assert!(frames[..4].iter().filter(|(from, _)| *from == 1).count() == 2, "{:?}", &frames[..4]);
    let of_first: Vec<u32> =
        frames.iter().filter(|(from, _)| *from == 0).map(|(_, number)| *number).collect();
    assert_eq!(of_first, (0..100).collect::<Vec<_>>(), "in the order of polling");
}

#[test]
fn delivers_arriving_frame_to_its_process() {
    let mut host = host();
    let mut slot = [0; 128];
    let mut arrive = |host: &mut Host<Switch, Toy>, to, port| {
        let header = Header::new(Opcode::Data, ProcessId(5), ProcessId(to), Incarnation(0))
            .stamped(now(20).sync, Promises::both(now(20).sync), Psn(9));
        let bytes = seal(&mut slot, header, 8);
        host.handle_frame(now(20), port, &mut slot[..bytes])
    };
    assert_eq!(arrive(&mut host, 1, CARD), Verdict::Consumed);
    assert_eq!(arrive(&mut host, 1, Port(0)), Verdict::Dropped, "that port is inside");
    assert_eq!(arrive(&mut host, 77, CARD), Verdict::Dropped, "nobody of that id");
    assert_eq!(drain(&mut host, 20), (vec![], vec![(1, 5, 9)]));
}

#[test]
fn fires_only_due_timers() {
    let mut host = host();
    assert_eq!(host.poll_timeout(), None);
    host.process_mut(Port(1)).expect("runs").timer = Some(Mono::from_ns(70));
    host.process_mut(Port(2)).expect("runs").timer = Some(Mono::from_ns(50));
    assert_eq!(host.poll_timeout(), Some(Mono::from_ns(50)), "before it is drained");
    drain(&mut host, 10);
    assert_eq!(host.poll_timeout(), Some(Mono::from_ns(50)), "and afterwards");
    host.handle_timeout(now(60));
    assert_eq!(drain(&mut host, 60).1, [(2, 2, u32::MAX)]);
    assert_eq!(host.poll_timeout(), Some(Mono::from_ns(70)));
}

#[test]
fn stopped_process_receives_nothing_until_restart() {
    let mut host = host();
    let stopped = host.stop(Port(2)).expect("ran");
    queue_messages(&mut host, 0, 2, 0..3);
    assert_eq!(drain(&mut host, 10), (vec![], vec![]));
    assert_eq!((host.refused(), host.process(Port(2))), (3, None));
    host.start(Port(2), stopped);
    queue_messages(&mut host, 0, 2, 3..4);
    assert_eq!(drain(&mut host, 20).1, [(2, 0, 3)]);
}

//= spec/ordering.md#R52
#[test]
fn shared_frame_reaches_local_and_remote_receivers() {
    let mut host = host();
    host.process_mut(Port(0)).expect("runs").shared = vec![1, 4, 2, 5, 3];
    queue_messages(&mut host, 0, 2, 8..9);
    let mut slot = [0; 256];
    // The driver has no more space after the first copy, and a frame arrives meanwhile.
    let first = host.poll_transmit(now(10), &mut slot).expect("the copy for 4");
    let frame = Frame::parse(&slot[..first.bytes]).expect("sealed");
    assert_eq!((first.port, frame.header.psn().0), (CARD, 74));
    let header = Header::new(Opcode::Data, ProcessId(5), ProcessId(1), Incarnation(0)).stamped(
        now(20).sync,
        Promises::both(now(20).sync),
        Psn(9),
    );
    let bytes = seal(&mut slot, header, 8);
    assert_eq!(host.handle_frame(now(20), CARD, &mut slot[..bytes]), Verdict::Consumed);
    let (frames, reports) = drain(&mut host, 20);
    // One copy for positions 3 and 4 of the list.
    assert_eq!(frames, [(0, 0x0305)]);
    assert_eq!(reports, [(1, 0, 71), (1, 5, 9), (2, 0, 72), (2, 0, 8)]);
}

//= spec/ordering.md#R52
#[test]
fn shared_frames_of_both_directions_do_not_mix() {
    let mut host = host();
    host.process_mut(Port(0)).expect("runs").shared = vec![4, 1, 2];
    let mut slot = [0; 256];
    let first = host.poll_transmit(now(10), &mut slot).expect("the copy for 4");
    assert_eq!(first.port, CARD);
    // Before the copies for 1 and 2, a frame for several processes arrives.
    let mut other = toy(5);
    other.shared = vec![0, 1, 2];
    let arrived = other.poll_transmit(now(11), &mut slot).expect("it has a frame");
    let verdict = host.handle_frame(now(20), CARD, &mut slot[..arrived.bytes]);
    assert_eq!(verdict, Verdict::Consumed);
    let (frames, mut reports) = drain(&mut host, 20);
    reports.sort_unstable();
    assert_eq!(frames, []);
    assert_eq!(reports, [(0, 5, 70), (1, 0, 71), (1, 5, 71), (2, 0, 72), (2, 5, 72)]);
}
