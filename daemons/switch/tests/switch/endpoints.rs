//! Endpoints over real sockets through real switches: order, faults, trees, restarts.
//!
//! One thread gives all nodes their turns, so that a busy machine makes the test slow and nothing
//! else.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use onepipe_base::{
    Address, Incarnation, Instance, Port, ProcessId, Promises, ScatteringId, SwitchId, Timestamp,
};
use onepipe_daemon_switch::{Config, Controllers, Faults, LinkRate, SoftwareSwitch};
use onepipe_endpoint::{Config as EndpointConfig, Endpoint, Event, Message, Outcome};
use onepipe_switch::SwitchEvent;
use onepipe_transport_clock::SystemClock;
use onepipe_transport_driver::{Config as DriverConfig, Driver, Idle};
use onepipe_transport_udp::{Config as UdpConfig, JoinerConfig, Offload, UdpLink};
use onepipe_wire::{HEADER_LEN, Header, Opcode, seal};

/// Everything here takes milliseconds; what takes this long never happens.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Long enough that no node times out because the machine is busy.
const LINK_TIMEOUT_NS: u64 = 20_000_000_000;

/// A beacon on an Ethernet: the frame, and 66 bytes of overhead.
const BEACON_ON_WIRE_BYTES: u64 = HEADER_LEN as u64 + 66;

/// The first message of each node; logs are about what follows.
const WARM_UP: &[u8] = b"hello";

/// A delivered message: timestamp, sender, index.
type Key = (u64, u32, u16);

struct MeshDriver {
    driver: Driver<Endpoint, UdpLink, SystemClock>,
    log: Vec<(Key, Vec<u8>)>,
    failed: BTreeMap<(ScatteringId, u16), Outcome>,
}

impl MeshDriver {
    fn new(process: u32, incarnation: u32, switch: SocketAddr, offload: Offload) -> Self {
        let mut config = EndpointConfig::new(ProcessId(process), Incarnation(incarnation));
        config.processes_max = 16;
        config.beacon_interval_ns = 20_000;
        config.link_timeout_ns = LINK_TIMEOUT_NS;
        config.probe_timeout_min_ns = 2_000_000;
        config.reorder_packets = 0;
        let endpoint = Endpoint::new(config).expect("the numbers are in range");
        let link = UdpLink::connect(switch, &UdpConfig { offload, ..UdpConfig::default() });
        let clock = SystemClock::calibrated().following_system(10_000_000);
        let driver_config = DriverConfig { idle: Idle::Spin, ..DriverConfig::default() };
        let own = JoinerConfig::process(ProcessId(process), Incarnation(incarnation));
        let link = link.expect("the loopback is there").joining(own);
        let driver = Driver::new(endpoint, link, clock, driver_config);
        Self { driver, log: Vec::new(), failed: BTreeMap::new() }
    }

    fn turn(&mut self) {
        let (log, failed) = (&mut self.log, &mut self.failed);
        self.driver.turn(|endpoint, event| match event {
            Event::Delivered(delivery) => {
                let key = (delivery.timestamp.as_ns(), delivery.from.0, delivery.index);
                if endpoint.payload(&delivery) != WARM_UP {
                    log.push((key, endpoint.payload(&delivery).to_vec()));
                }
                endpoint.release(delivery);
            }
            Event::SendFailed(report) => {
                let previous = failed.insert((report.scattering, report.index), report.outcome);
                assert!(previous.is_none(), "one outcome per message");
            }
            _ => {}
        });
    }

    fn scatter(&mut self, to: &[u32], payload: &[u8]) -> ScatteringId {
        let message = |process: &u32| Message { to: ProcessId(*process), payload };
        let messages: Vec<Message<'_>> = to.iter().map(message).collect();
        self.driver.machine_mut().scatter(&messages).expect("there is room")
    }
}

/// Returns a frame for the next node.
fn hop_only(opcode: Opcode, address: Address) -> [u8; HEADER_LEN] {
    let sender = Instance { address, incarnation: Incarnation(1) };
    let promises = Promises::both(Timestamp::from_ns(1 << 50));
    let mut frame = [0; HEADER_LEN];
    seal(&mut frame, Header::hop_only(opcode, sender, None, promises), 0);
    frame
}

struct Network {
    switches: Vec<SoftwareSwitch>,
    nodes: Vec<MeshDriver>,
    events: Vec<SwitchEvent>,
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for switch in &self.switches {
            writeln!(
                f,
                "{:?} {:?} {:?}",
                switch.stats(),
                switch.machine_stats(),
                switch.socket_stats()
            )?;
        }
        for MeshDriver { driver, log, failed } in &self.nodes {
            let (machine, link) = (driver.machine(), driver.transport());
            let (delivered, failed) = (log.len(), failed.len());
            writeln!(
                f,
                "{delivered} delivered, {failed} failed, {:?} {:?}",
                machine.stats(),
                link.stats()
            )?;
        }
        Ok(())
    }
}

impl Network {
    fn new(faults: Faults, offload: Offload, processes: u32) -> Self {
        let mut network = Self { switches: vec![], nodes: vec![], events: vec![] };
        let at = network.add_switch(None, faults, offload);
        for process in 0..processes {
            network.nodes.push(MeshDriver::new(process, 1, at, offload));
        }
        network
    }

    /// Three nodes at a switch whose links are slow.
    fn slow(rate: LinkRate) -> Self {
        let mut network = Self { switches: vec![], nodes: vec![], events: vec![] };
        let mut config = Config::new(SocketAddr::from(([127, 0, 0, 1], 0)));
        (config.processes_max, config.link_timeout_ns) = (16, LINK_TIMEOUT_NS);
        (config.link_rate, config.beacon_interval_ns) = (Some(rate), 2_000_000);
        let switch = SoftwareSwitch::new(&config).expect("the loopback is there");
        let at = switch.local_addr();
        network.switches.push(switch);
        for process in 0..3 {
            network.nodes.push(MeshDriver::new(process, 1, at, Offload::Segment));
        }
        network
    }

    fn add_switch(
        &mut self,
        up: Option<SocketAddr>,
        faults: Faults,
        offload: Offload,
    ) -> SocketAddr {
        let mut config = Config::new(SocketAddr::from(([127, 0, 0, 1], 0)));
        (config.up, config.faults, config.offload) = (up, faults, offload);
        (config.processes_max, config.link_timeout_ns) = (16, LINK_TIMEOUT_NS);
        config.ports_max = 6;
        let switch = SoftwareSwitch::new(&config).expect("the loopback is there");
        let at = switch.local_addr();
        self.switches.push(switch);
        at
    }

    fn turn(&mut self) {
        for switch in &mut self.switches {
            switch.turn(|event| self.events.push(event));
        }
        self.nodes.iter_mut().for_each(MeshDriver::turn);
    }

    fn run_until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let started = Instant::now();
        while !done(self) {
            assert!(started.elapsed() < TIMEOUT, "{what}: {self}");
            self.turn();
        }
    }

    /// Runs until each node has reached all others.
    fn exchange_hellos(&mut self) {
        let count = self.nodes.len() as u32;
        for me in 0..count {
            let others: Vec<u32> = (0..count).filter(|other| *other != me).collect();
            self.nodes[me as usize].scatter(&others, WARM_UP);
        }
        self.run_until("the first messages are not resolved", |network| network.is_drained());
        for node in &mut self.nodes {
            node.failed.clear();
        }
    }

    fn is_drained(&self) -> bool {
        self.nodes.iter().all(|node| node.driver.machine().is_drained())
    }

    /// All nodes scatter to all nodes, one number each, in bursts between turns.
    fn scatter_rounds(&mut self, rounds: u32) {
        let all_processes: Vec<u32> = (0..self.nodes.len() as u32).collect();
        for round in 0..rounds {
            for node in &mut self.nodes {
                node.scatter(&all_processes, &round.to_be_bytes());
            }
            if round % 8 == 0 {
                self.turn();
            }
        }
    }

    /// Checks that payloads were sent once for several receivers.
    fn assert_shared(&self) {
        for node in &self.nodes {
            let stats = node.driver.machine().stats();
            assert!(stats.frames_shared > 0, "{stats:?}");
        }
    }

    /// Checks that all logs ascend and agree on the order of what they share.
    fn check_order(&self) {
        for node in &self.nodes {
            assert!(node.log.windows(2).all(|pair| pair[0].0 < pair[1].0), "ascending");
        }
        let mut payloads = BTreeMap::new();
        for ((ts, from, _), payload) in self.nodes.iter().flat_map(|node| &node.log) {
            let known = payloads.entry((*ts, *from)).or_insert(payload);
            assert_eq!(*known, payload, "one timestamp of one sender is one scattering");
        }
    }
}

#[test]
fn slow_links_queue_frames_in_order() {
    let mut network = Network::slow(LinkRate {
        bits_per_s: 20_000_000,
        queue_bytes_max: 1 << 20,
        mark_bytes: Some(4_096),
    });
    network.exchange_hellos();
    network.scatter_rounds(300);
    let all = |network: &Network| network.nodes.iter().all(|node| node.log.len() == 900);
    network.run_until("not all is delivered", all);
    network.check_order();
    let queues = network.switches[0].queues().expect("its links are slow");
    assert!(queues.bytes[4] > 4_096 && queues.marked > 0, "{queues:?}");
    assert_eq!(queues.dropped, 0, "{queues:?}");
    // Barriers rise faster than these links can carry, so that a beacon leaves all the time and a
    // newer one waits behind it.
    network.run_until("a queue does not drain", |network| {
        let queues = network.switches[0].queues();
        queues.is_some_and(|queues| queues.present_bytes <= 2 * BEACON_ON_WIRE_BYTES)
    });
}

#[test]
fn total_order_over_every_offload() {
    for offload in [Offload::Plain, Offload::Batch, Offload::Segment] {
        let mut network = Network::new(Faults::default(), offload, 3);
        network.exchange_hellos();
        network.scatter_rounds(300);
        let all = |network: &Network| network.nodes.iter().all(|node| node.log.len() == 900);
        network.run_until("not all is delivered", all);
        network.check_order();
        let key = |log: &[(Key, Vec<u8>)]| {
            log.iter().map(|((ts, from, _), _)| (*ts, *from)).collect::<Vec<_>>()
        };
        assert_eq!(key(&network.nodes[0].log), key(&network.nodes[1].log));
        assert_eq!(key(&network.nodes[0].log), key(&network.nodes[2].log));
        assert_eq!(network.switches[0].stats().ports_assigned, 3);
        network.assert_shared();
    }
}

#[test]
fn order_holds_and_every_message_resolves_under_faults() {
    let faults = Faults {
        seed: 11,
        loss: 0.1,
        duplication: 0.05,
        corruption: 0.05,
        reordering: 0.05,
        ..Faults::default()
    };
    let mut network = Network::new(faults, Offload::Segment, 3);
    network.exchange_hellos();
    network.scatter_rounds(200);
    network.run_until("not all messages are resolved", Network::is_drained);
    network.switches[0].set_faults(Faults::default()).expect("no faults are fine");
    network.assert_shared();
    let sent = 3 * 3 * 200;
    let count = |network: &Network| {
        let delivered: usize = network.nodes.iter().map(|node| node.log.len()).sum();
        let failed: usize = network.nodes.iter().map(|node| node.failed.len()).sum();
        (delivered, failed)
    };
    network.run_until("some messages have no outcome", |network| {
        let (delivered, failed) = count(network);
        delivered + failed >= sent
    });
    network.check_order();
    let (delivered, failed) = count(&network);
    let is_unknown = |outcome: &&Outcome| **outcome == Outcome::Unknown;
    let reports = network.nodes.iter().flat_map(|node| node.failed.values());
    let unknown = reports.filter(is_unknown).count();
    assert!(delivered + failed - sent <= unknown, "{delivered} + {failed} of {sent}");
    let stats = network.switches[0].stats();
    assert!(failed > 0 && stats.faults_lost > 0 && stats.faults_corrupted > 0, "{stats:?}");
    assert!(stats.faults_duplicated > 0 && stats.faults_reordered > 0, "{stats:?}");
}

#[test]
fn switches_form_a_tree() {
    let mut network = Network { switches: vec![], nodes: vec![], events: vec![] };
    let root = network.add_switch(None, Faults::default(), Offload::Segment);
    for pair in 0..2 {
        let leaf = network.add_switch(Some(root), Faults::default(), Offload::Segment);
        for process in 0..2 {
            network.nodes.push(MeshDriver::new(2 * pair + process, 1, leaf, Offload::Segment));
        }
    }
    network.exchange_hellos();
    network.scatter_rounds(100);
    let all = |network: &Network| network.nodes.iter().all(|node| node.log.len() == 400);
    network.run_until("not all is delivered across the tree", all);
    network.assert_shared();
    network.check_order();
    assert!(network.switches[0].machine_stats().forwarded > 0, "the root passes frames");
}

#[test]
fn restarted_process_replaces_its_previous_incarnation() {
    let mut network = Network::new(Faults::default(), Offload::Segment, 3);
    network.exchange_hellos();
    let at = network.switches[0].local_addr();
    // Killed: it sends no Leave, and comes back from another address.
    network.nodes[2] = MeshDriver::new(2, 2, at, Offload::Segment);
    network.run_until("the old port is not taken back", |network| {
        network.switches[0].stats().ports_reclaimed == 1
    });
    network.nodes[0].scatter(&[2], b"again");
    network.run_until("the new incarnation is not reached", |network| {
        network.nodes[2].log.iter().any(|(_, payload)| payload == b"again")
            || !network.nodes[0].failed.is_empty()
    });
    // The first message may have been for the previous incarnation; then it was reported as failed,
    // and the next one is not.
    network.nodes[0].scatter(&[2], b"once more");
    network.run_until("the new incarnation is not reached", |network| {
        network.nodes[2].log.iter().any(|(_, payload)| payload == b"once more")
    });
    assert_eq!(network.switches[0].stats().ports_assigned, 4);
}

/// With and without controllers: the others continue at once, long before the link times out.
#[test]
fn killed_process_is_detected_at_once() {
    for controllers in [None, Some(Controllers { first: ProcessId(15), count: 1 })] {
        let mut network = Network { switches: vec![], nodes: vec![], events: vec![] };
        let mut config = Config::new(SocketAddr::from(([127, 0, 0, 1], 0)));
        (config.processes_max, config.link_timeout_ns) = (16, LINK_TIMEOUT_NS);
        config.controllers = controllers;
        network.switches.push(SoftwareSwitch::new(&config).expect("the loopback is there"));
        let at = network.switches[0].local_addr();
        network
            .nodes
            .extend((0..3).map(|process| MeshDriver::new(process, 1, at, Offload::Segment)));
        network.exchange_hellos();
        let address = network.nodes[2].driver.transport().local_addr().expect("a socket");
        network.nodes.truncate(2);
        let killed = Instant::now();
        network.run_until("the loss is not detected", |network| {
            network.switches[0].stats().ports_reclaimed == 1
        });
        network.nodes[0].scatter(&[0, 1], b"without it");
        network.nodes[1].scatter(&[0, 1], b"too");
        network.run_until("the others are held up", |network| {
            network.nodes.iter().all(|node| node.log.len() == 2)
        });
        assert!(killed.elapsed() < Duration::from_nanos(LINK_TIMEOUT_NS) / 2);
        network.check_order();
        assert!(network.switches[0].stats().neighbours_refused > 0);
        // A frame of the dead process that was still queued.
        let answers = network.switches[0].stats().join_answers;
        let previous = UdpSocket::bind(address).expect("its port is free");
        let process = Address::Process(ProcessId(2));
        let beacon = hop_only(Opcode::Beacon, process);
        previous.send_to(&beacon, at).expect("the loopback is there");
        drop(previous);
        network.run_until("the frame does not arrive", |network| {
            let stats = network.switches[0].stats();
            stats.join_answers > answers || stats.ports_assigned > 3
        });
        let stats = network.switches[0].stats();
        assert_eq!((stats.ports_assigned, stats.ports_reclaimed), (3, 1), "one death: {stats:?}");
        let is_frozen = network.events.contains(&SwitchEvent::LinkFrozen(Port(2)));
        assert_eq!(is_frozen, controllers.is_some(), "{:?}", network.events);
    }
}

#[test]
fn leave_frees_the_port_at_once() {
    let mut network = Network::new(Faults::default(), Offload::Segment, 2);
    network.exchange_hellos();
    network.nodes[1].driver.machine_mut().leave();
    network.run_until("the leave has no effect", |network| {
        network.switches[0].stats().ports_reclaimed == 1
    });
    assert!(network.events.iter().any(|event| matches!(event, SwitchEvent::LinkLeft(_))));
    network.nodes[0].scatter(&[0], b"alone");
    network
        .run_until("the remaining process is held up", |network| !network.nodes[0].log.is_empty());
}

#[test]
fn dead_port_times_out_and_others_continue() {
    let mut network = Network { switches: vec![], nodes: vec![], events: vec![] };
    let mut config = Config::new(SocketAddr::from(([127, 0, 0, 1], 0)));
    // Long, as turns of a busy machine are far apart: nodes that are alive must not time out.
    (config.processes_max, config.link_timeout_ns) = (16, 1_000_000_000);
    network.switches.push(SoftwareSwitch::new(&config).expect("the loopback is there"));
    let at = network.switches[0].local_addr();
    network.nodes.extend((0..3).map(|process| MeshDriver::new(process, 1, at, Offload::Segment)));
    network.exchange_hellos();
    let faults = Faults { dead_ports: vec![Port(1)], ..Faults::default() };
    network.switches[0].set_faults(faults).expect("a dead port is fine");
    network.run_until("the loss is not detected", |network| {
        network.events.contains(&SwitchEvent::LinkLost(Port(1)))
    });
    network.nodes[0].scatter(&[0, 2], b"without it");
    network.nodes[2].scatter(&[0, 2], b"too");
    network.run_until("the others are held up", |network| {
        [0, 2].iter().all(|process: &usize| network.nodes[*process].log.len() == 2)
    });
    network.check_order();
}

#[test]
fn foreign_senders_get_no_port() {
    let mut network = Network::new(Faults::default(), Offload::Segment, 2);
    let at = network.switches[0].local_addr();
    let foreign_sender = UdpSocket::bind("127.0.0.1:0").expect("the loopback is there");
    let mut noise = vec![0x1b; 4000];
    for bytes in [0, 1, 51, 52, 53, 1472, 4000] {
        noise.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * bytes) as u8);
        foreign_sender.send_to(&noise[..bytes], at).expect("the loopback is there");
    }
    network.exchange_hellos();
    let stats = network.switches[0].stats();
    assert_eq!(stats.ports_assigned, 2);
    assert_eq!(stats.frames_foreign, 6, "an empty datagram is not counted");
}

#[test]
fn frame_of_a_switch_names_no_process() {
    let mut network = Network::new(Faults::default(), Offload::Segment, 1);
    let sender = UdpSocket::bind("127.0.0.1:0").expect("the loopback is there");
    network.run_until("the process does not join", |network| {
        network.switches[0].machine_stats().beacons_received > 0
    });
    // This sender has not been admitted.
    let flood = hop_only(Opcode::Flood, Address::Switch(SwitchId(7)));
    let answers = network.switches[0].stats().join_answers;
    sender.send_to(&flood, network.switches[0].local_addr()).expect("the loopback is there");
    network.run_until("the frame is not answered", |network| {
        network.switches[0].stats().join_answers > answers
    });
    assert_eq!(network.switches[0].stats().process_out_of_range, None);
}
