//! Endpoints over shared memory: one order, no loss, and no timeout needed when one dies.

use onepipe_base::ProcessId;
use onepipe_endpoint::{Config as EndpointConfig, Endpoint, Event, Links, Message};
use onepipe_transport_clock::SystemClock;
use onepipe_transport_driver::{Config as DriverConfig, Driver, Idle};
use onepipe_wire::{HEADER_LEN, PIGGYBACK_LEN};

use super::*;

/// Deliveries take milliseconds; this bound only fails hanging tests.
const TIMEOUT: Duration = Duration::from_secs(30);

struct MeshDriver {
    driver: Driver<Endpoint, Shm, SystemClock>,
    log: Vec<(u64, u32, Vec<u8>)>,
    failed: usize,
    lost: usize,
}

impl MeshDriver {
    fn new(name: &str, process: u32) -> Self {
        Self::over(attach(name, process))
    }

    fn over(shm: Shm) -> Self {
        let mut config = EndpointConfig::new(shm.process(), shm.incarnation());
        config.processes_max = 4;
        config.links = Links::Mesh;
        config.frame_len_max = shm.config().frame_len_max;
        config.has_checksums = shm.config().has_checksums;
        (config.beacon_interval_ns, config.link_timeout_ns) = (0, 0);
        // No probe may expire because this machine is busy.
        config.probe_timeout_min_ns = 1_000_000_000;
        let endpoint = Endpoint::new(config).expect("the numbers are in range");
        let clock = shm.clock();
        let config = DriverConfig { idle: Idle::Spin, ..DriverConfig::default() };
        let driver = Driver::new(endpoint, shm, clock, config);
        Self { driver, log: Vec::new(), failed: 0, lost: 0 }
    }

    fn turn(&mut self) {
        self.driver.turn(|endpoint, event| match event {
            Event::Delivered(delivery) => {
                let payload = endpoint.payload(&delivery).to_vec();
                self.log.push((delivery.timestamp.as_ns(), delivery.from.0, payload));
                endpoint.release(delivery);
            }
            Event::SendFailed(_) => self.failed += 1,
            Event::LinkLost(_) => self.lost += 1,
            _ => {}
        });
    }

    fn scatter(&mut self, to: &[u32], payload: &[u8]) {
        let message = |to: &u32| Message { to: ProcessId(*to), payload };
        let messages: Vec<Message<'_>> = to.iter().map(message).collect();
        self.driver.machine_mut().scatter(&messages).expect("there is capacity");
    }
}

fn run_until(nodes: &mut [MeshDriver], what: &str, done: impl Fn(&[MeshDriver]) -> bool) {
    let started = Instant::now();
    while !done(nodes) {
        assert!(started.elapsed() < TIMEOUT, "{what}");
        nodes.iter_mut().for_each(MeshDriver::turn);
    }
}

//= spec/ordering.md#R20
#[test]
fn all_endpoints_deliver_in_one_order() {
    let name = name("endpoints");
    let mut nodes: Vec<MeshDriver> =
        (0..4).map(|process| MeshDriver::new(&name, process)).collect();
    for round in 0..500u32 {
        for node in &mut nodes {
            // Some payloads are longer than a frame.
            let bytes = if round % 50 == 0 { 20_000 } else { 64 };
            let mut payload = vec![round as u8; bytes];
            payload[..4].copy_from_slice(&round.to_be_bytes());
            node.scatter(&[0, 1, 2, 3], &payload);
        }
        if round % 7 == 0 {
            nodes.iter_mut().for_each(MeshDriver::turn);
        }
    }
    let is_done = |nodes: &[MeshDriver]| nodes.iter().all(|node| node.log.len() >= 2000);
    run_until(&mut nodes, "not all messages are delivered", is_done);
    for node in &nodes {
        assert_eq!((node.failed, node.lost, node.log.len()), (0, 0, 2000));
        assert!(node.log == nodes[0].log, "all nodes deliver the same order");
        assert!(node.log.windows(2).all(|pair| (pair[0].0, pair[0].1) < (pair[1].0, pair[1].1)));
    }
}

#[test]
fn process_killed_mid_burst_stalls_no_other() {
    let name = name("killed");
    let mut nodes: Vec<MeshDriver> =
        (0..3).map(|process| MeshDriver::new(&name, process)).collect();
    nodes[0].scatter(&[0, 1, 2], b"all here");
    let all_here = |nodes: &[MeshDriver]| nodes.iter().all(|node| node.log.len() == 1);
    run_until(&mut nodes, "the three nodes do not exchange messages", all_here);

    let mut killed = nodes.pop().expect("there are three");
    let promises = killed.driver.machine().promises();
    let now = killed.driver.transport().clock().read();
    killed.driver.transport_mut().begin_burst(now, promises);
    killed.driver.transport().segment().release_process_lock();
    std::mem::forget(killed);

    nodes[0].scatter(&[0, 1], b"without it");
    nodes[1].scatter(&[0, 1], b"too");
    let go_on = |nodes: &[MeshDriver]| nodes.iter().all(|node| node.log.len() == 3);
    run_until(&mut nodes, "a dead process delays the live ones", go_on);
    assert!(nodes[0].log == nodes[1].log);

    nodes.push(MeshDriver::new(&name, 2));
    nodes[2].scatter(&[0, 1, 2], b"back");
    nodes[0].scatter(&[0, 1, 2], b"welcome");
    let is_back = |nodes: &[MeshDriver]| {
        let has = |node: &MeshDriver, text: &[u8]| {
            node.log.iter().any(|(.., delivered)| delivered == text)
        };
        nodes.iter().all(|node| has(node, b"back"))
            && (has(&nodes[2], b"welcome") || nodes[0].failed > 0)
    };
    run_until(&mut nodes, "the restarted process does not rejoin", is_back);
}

/// Makes two nodes that have exchanged messages, in a segment with or without checksums.
fn meet(name: &str, has_checksums: bool) -> [MeshDriver; 2] {
    let creator = Config { has_checksums, ..small() };
    let mut nodes = [creator, small()].into_iter().zip(0..).map(|(config, process)| {
        let shm = Shm::attach(name, Some(ProcessId(process)), &config).expect("the id is free");
        assert_eq!(shm.config().has_checksums, has_checksums, "the creator decides");
        MeshDriver::over(shm)
    });
    let mut nodes = [(); 2].map(|()| nodes.next().expect("there are two"));
    nodes[0].scatter(&[1], b"hello");
    nodes[1].scatter(&[0], b"hello");
    let has_met = |nodes: &[MeshDriver]| nodes.iter().all(|node| node.log.len() == 1);
    run_until(&mut nodes, "the nodes do not exchange messages", has_met);
    nodes
}

/// Sends a message from the first node, and inverts a byte of the inline cells to the second one
/// before that receives it: the byte at `offset`, or the first one of the payload.
fn send_corrupted(nodes: &mut [MeshDriver; 2], payload: &[u8], offset: Option<usize>) {
    nodes[0].scatter(&[1], payload);
    nodes[0].turn();
    let segment = nodes[0].driver.transport().segment();
    for cell in 0..crate::config::INLINE_CELLS {
        let start = segment.config().inline_cell_at(0, 1, cell);
        let words = (start / 8..start / 8 + 16).map(|word| segment.mapping().word(8 * word));
        let bytes: Vec<u8> =
            words.flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
        let payload_at = bytes.windows(payload.len()).position(|window| window == payload);
        let Some(offset) = offset.or(payload_at) else { continue };
        let at = start + offset;
        let byte = 0xff_u64 << (8 * (at % 8));
        segment.mapping().word(at - at % 8).fetch_xor(byte, Ordering::Relaxed);
    }
    nodes[1].turn();
}

//= spec/ordering.md#R35
#[test]
fn corrupt_frame_is_dropped_with_checksums() {
    let mut nodes = meet(&name("summed"), true);
    send_corrupted(&mut nodes, b"corrupt", None);
    nodes[0].scatter(&[1], b"intact");
    run_until(&mut nodes, "nothing is delivered", |nodes| nodes[1].log.len() == 2);
    assert_eq!(nodes[1].log[1].2, b"intact");
    assert!(nodes[1].driver.machine().stats().frames_malformed > 0);
}

//= spec/ordering.md#R54
#[test]
fn corrupt_payload_is_delivered_without_checksums() {
    let mut nodes = meet(&name("unsummed"), false);
    send_corrupted(&mut nodes, b"corrupt", None);
    run_until(&mut nodes, "nothing is delivered", |nodes| nodes[1].log.len() == 2);
    assert_eq!(nodes[1].log[1].2, [&[!b'c'][..], b"orrupt"].concat());
    assert_eq!(nodes[1].driver.machine().stats().frames_malformed, 0);
}

//= spec/ordering.md#R54
#[test]
fn corrupt_headers_panic_nobody_without_checksums() {
    let test = name("headers");
    for offset in 0..HEADER_LEN + PIGGYBACK_LEN {
        let mut nodes = meet(&test, false);
        for round in 0..4 {
            send_corrupted(&mut nodes, &[round; 20], Some(offset));
            (0..20).for_each(|_| nodes.iter_mut().for_each(MeshDriver::turn));
        }
        let foreign = nodes[1].log.iter().any(|(_, from, _)| *from != 0);
        assert!(!foreign, "a message is delivered as that of the sender of its ring only");
    }
}
