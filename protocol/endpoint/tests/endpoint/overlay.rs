//! An endpoint whose messages bypass the aggregators (docs/design/overlay.md).

use crate::harness;

use harness::{ORIGIN_NS, TestFrame, connect, data};
use onepipe_base::{
    Incarnation, Machine, Mono, Now, Port, ProcessId, Promises, Psn, Timestamp, Verdict,
};
use onepipe_endpoint::{Config, Endpoint, Links, Message};
use onepipe_wire::{Frame, HEADER_LEN, Header, Opcode, seal};

const TREE: Port = Port(0);
const DIRECT: Port = Port(1);

struct Overlay {
    end: Endpoint,
    ns: u64,
}

impl Overlay {
    fn new() -> Self {
        let config = Config {
            links: Links::Overlay,
            processes_max: 4,
            ..Config::new(ProcessId(0), Incarnation(1))
        };
        let mut overlay =
            Self { end: Endpoint::new(config).expect("a valid configuration"), ns: 999_000 };
        overlay.sent();
        overlay
    }

    fn now(&self) -> Now {
        Now { mono: Mono::from_ns(self.ns), sync: Timestamp::from_ns(ORIGIN_NS + self.ns) }
    }

    /// Receives a frame of process 1 on `port` with the given promises.
    fn receive(&mut self, port: Port, frame: &TestFrame, at: u64, promises: u64) -> Verdict {
        let stamp = |ns| Timestamp::from_ns(ORIGIN_NS + ns);
        let mut bytes = vec![0; 1_000];
        bytes[HEADER_LEN..][..frame.body.len()].copy_from_slice(&frame.body);
        let header = Header::new(frame.opcode, ProcessId(1), ProcessId(0), Incarnation(1)).stamped(
            stamp(at),
            Promises::both(stamp(promises)),
            Psn(frame.psn),
        );
        let length = seal(&mut bytes, header, frame.body.len());
        self.end.handle_frame(self.now(), port, &mut bytes[..length])
    }

    fn beacon(&mut self, port: Port, promises: u64) -> Verdict {
        let beacon = TestFrame { opcode: Opcode::Beacon, psn: 0, flags: 0, body: vec![] };
        self.receive(port, &beacon, promises, promises)
    }

    /// Takes all frames that are sent now, with their ports.
    fn sent(&mut self) -> Vec<(Port, Opcode)> {
        let now = self.now();
        if self.end.poll_timeout().is_some_and(|due| due <= now.mono) {
            self.end.handle_timeout(now);
        }
        let mut slot = vec![0; 1_472];
        let mut all = Vec::new();
        // A scattering considered in one pass sends its Connect in the next.
        for _ in 0..2 {
            while let Some(transmit) = self.end.poll_transmit(now, &mut slot) {
                let frame =
                    Frame::parse(&slot[..transmit.bytes]).expect("the endpoint seals its frames");
                all.push((transmit.port, frame.opcode));
            }
        }
        all
    }

    fn sent_after(&mut self, ns: u64) -> Vec<(Port, Opcode)> {
        self.ns += ns;
        self.sent()
    }
}

fn to(process: u32) -> [Message<'static>; 1] {
    [Message { to: ProcessId(process), payload: b"hello" }]
}

fn barrier(overlay: &Overlay) -> Option<u64> {
    Some(overlay.end.barrier()?.as_ns() - ORIGIN_NS)
}

#[test]
fn link_frames_use_the_tree_and_messages_go_directly() {
    let mut overlay = Overlay::new();
    let links = overlay.sent_after(30_000);
    assert!(links.contains(&(TREE, Opcode::Join)), "{links:?}");
    assert!(links.iter().all(|(port, _)| *port == TREE));
    overlay.beacon(TREE, 1_000_000);
    overlay.end.scatter(&to(1)).expect("the send buffer is large enough");
    assert!(overlay.sent().contains(&(DIRECT, Opcode::Connect)));
    overlay.receive(DIRECT, &connect(0, 0, 0), 1_029_000, 1_029_000);
    assert_eq!(overlay.sent(), [(DIRECT, Opcode::Grant)]);
    // The promise in the direct frame reached no aggregator, so the beacon is still due.
    overlay.ns = 1_030_000;
    let links = overlay.sent_after(3_000);
    assert!(links.contains(&(TREE, Opcode::Beacon)), "{links:?}");
    overlay.end.leave();
    overlay.ns += 10_000_000_000;
    let goodbyes: Vec<_> = (0..1_000).flat_map(|_| overlay.sent_after(10_000_000)).collect();
    assert!(goodbyes.contains(&(TREE, Opcode::Leave)), "{goodbyes:?}");
}

#[test]
fn promises_on_the_direct_port_do_not_count() {
    let mut overlay = Overlay::new();
    overlay.receive(DIRECT, &connect(0, 0, 0), 1_000_000, 1_000_000);
    assert_eq!(barrier(&overlay), None);
    overlay.beacon(TREE, 1_000_000);
    assert_eq!(barrier(&overlay), Some(1_000_000));
    overlay.receive(DIRECT, &data(0, b"early"), 1_000_500, 1_000_900);
    assert_eq!((barrier(&overlay), overlay.end.pending()), (Some(1_000_000), 1));
    // The tree was faster than the direct path.
    overlay.beacon(TREE, 1_002_000);
    overlay.sent();
    overlay.receive(DIRECT, &data(1, b"late"), 1_001_000, 1_001_900);
    assert_eq!((overlay.end.stats().packets_late, overlay.end.pending()), (1, 1));
    assert!(overlay.sent().contains(&(DIRECT, Opcode::Nak)));
}

#[test]
fn drops_link_frames_from_other_ports() {
    let mut overlay = Overlay::new();
    assert_eq!(overlay.beacon(DIRECT, 1_000_000), Verdict::Dropped);
    let ping = TestFrame { opcode: Opcode::Ping, psn: 0, flags: 0, body: vec![] };
    assert_eq!(overlay.receive(DIRECT, &ping, 1_000_000, 1_000_000), Verdict::Dropped);
    assert_eq!(overlay.receive(Port(2), &connect(0, 0, 0), 1_000, 1_000), Verdict::Dropped);
    assert_eq!((overlay.end.stats().frames_misrouted, barrier(&overlay)), (3, None));
}

//= spec/failure.md#R6
/// No aggregator would see the message pass, so only a commit barrier shows that the joiner counts.
#[test]
fn joiner_sends_nothing_reliable_before_a_commit() {
    let mut overlay = Overlay::new();
    overlay.end.scatter_reliably(&to(1)).expect("the send buffer is large enough");
    let long_ago = Timestamp::from_ns(ORIGIN_NS - (1 << 46));
    let reported = |commit| Promises { barrier: Timestamp::from_ns(ORIGIN_NS + 1_000_000), commit };
    let (now, connects) = (overlay.now(), (DIRECT, Opcode::ReliableConnect));
    overlay.end.handle_promises(now, TREE, reported(long_ago));
    assert!(!overlay.sent_after(1_000).contains(&connects));
    let now = overlay.now();
    overlay.end.handle_promises(now, TREE, reported(Timestamp::from_ns(ORIGIN_NS + 900_000)));
    assert!(overlay.sent_after(1_000).contains(&connects));
}
