//! Endpoints over real sockets through real switches: order, faults, trees, restarts.
//!
//! One thread gives everybody turns, so that a busy machine makes it slow and nothing else.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use onepipe_base::{Incarnation, Port, ProcessId, ScatteringId};
use onepipe_daemon_switch::{Config, Controllers, Faults, LinkRate, SoftwareSwitch};
use onepipe_endpoint::{Config as EndpointConfig, Endpoint, Event, Message, Outcome};
use onepipe_switch::SwitchEvent;
use onepipe_transport_clock::SystemClock;
use onepipe_transport_driver::{Config as DriverConfig, Driver, Idle};
use onepipe_transport_udp::{Config as UdpConfig, Offload, UdpLink};

/// Everything here takes milliseconds; what takes this long never comes.
const PATIENCE: Duration = Duration::from_secs(30);
/// Nobody is taken for dead because the machine is busy.
const LINK_TIMEOUT_NS: u64 = 20_000_000_000;

/// A beacon on an Ethernet: the frame of 52 bytes, and 66 around it.
const BEACON_ON_LINE_BYTES: u64 = 52 + 66;

/// What is said when everybody meets; logs are about what comes after.
const HELLO: &[u8] = b"hello";

/// A message where it was delivered: timestamp, sender, index.
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
        let driver =
            Driver::new(endpoint, link.expect("the loopback is there"), clock, driver_config);
        Self { driver, log: Vec::new(), failed: BTreeMap::new() }
    }

    fn turn(&mut self) {
        let (log, failed) = (&mut self.log, &mut self.failed);
        self.driver.turn(|endpoint, event| match event {
            Event::Delivered(delivery) => {
                let key = (delivery.timestamp.as_ns(), delivery.from.0, delivery.index);
                if endpoint.payload(&delivery) != HELLO {
                    log.push((key, endpoint.payload(&delivery).to_vec()));
                }
                endpoint.release(delivery);
            }
            Event::SendFailed(report) => {
                let former = failed.insert((report.scattering, report.index), report.outcome);
                assert!(former.is_none(), "one verdict a message");
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

struct World {
    switches: Vec<SoftwareSwitch>,
    stations: Vec<MeshDriver>,
    events: Vec<SwitchEvent>,
}

impl std::fmt::Display for World {
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
        for MeshDriver { driver, log, failed } in &self.stations {
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

impl World {
    fn new(faults: Faults, offload: Offload, processes: u32) -> Self {
        let mut world = Self { switches: vec![], stations: vec![], events: vec![] };
        let at = world.add_switch(None, faults, offload);
        for process in 0..processes {
            world.stations.push(MeshDriver::new(process, 1, at, offload));
        }
        world
    }

    /// Three stations at a switch whose links are slow.
    fn slow(rate: LinkRate) -> Self {
        let mut world = Self { switches: vec![], stations: vec![], events: vec![] };
        let mut config = Config::new(SocketAddr::from(([127, 0, 0, 1], 0)));
        (config.processes_max, config.link_timeout_ns) = (16, LINK_TIMEOUT_NS);
        (config.link_rate, config.beacon_interval_ns) = (Some(rate), 2_000_000);
        let switch = SoftwareSwitch::new(&config).expect("the loopback is there");
        let at = switch.local_addr();
        world.switches.push(switch);
        for process in 0..3 {
            world.stations.push(MeshDriver::new(process, 1, at, Offload::Segment));
        }
        world
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
        self.stations.iter_mut().for_each(MeshDriver::turn);
    }

    fn run_until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let started = Instant::now();
        while !done(self) {
            assert!(started.elapsed() < PATIENCE, "{what}: {self}");
            self.turn();
        }
    }

    /// Until everybody can be heard by everybody.
    fn meet(&mut self) {
        let count = self.stations.len() as u32;
        for me in 0..count {
            let others: Vec<u32> = (0..count).filter(|other| *other != me).collect();
            self.stations[me as usize].scatter(&others, HELLO);
        }
        self.run_until("nobody is settled", |world| world.is_drained());
        for station in &mut self.stations {
            station.failed.clear();
        }
    }

    fn is_drained(&self) -> bool {
        self.stations.iter().all(|station| station.driver.machine().is_drained())
    }

    /// Everybody scatters to everybody, a number each, in bursts between turns.
    fn chatter(&mut self, rounds: u32) {
        let everybody: Vec<u32> = (0..self.stations.len() as u32).collect();
        for round in 0..rounds {
            for station in &mut self.stations {
                station.scatter(&everybody, &round.to_be_bytes());
            }
            if round % 8 == 0 {
                self.turn();
            }
        }
    }

    /// All logs ascend and agree on the order of what they share.
    fn check_order(&self) {
        for station in &self.stations {
            assert!(station.log.windows(2).all(|pair| pair[0].0 < pair[1].0), "ascending");
        }
        let mut payloads = BTreeMap::new();
        for ((ts, from, _), payload) in self.stations.iter().flat_map(|station| &station.log) {
            let known = payloads.entry((*ts, *from)).or_insert(payload);
            assert_eq!(*known, payload, "one timestamp of one sender is one scattering");
        }
    }
}

#[test]
fn slow_links_have_queues_and_keep_the_order() {
    let mut world = World::slow(LinkRate {
        bits_per_s: 20_000_000,
        queue_bytes_max: 1 << 20,
        mark_bytes: Some(4_096),
    });
    world.meet();
    world.chatter(300);
    let all = |world: &World| world.stations.iter().all(|station| station.log.len() == 900);
    world.run_until("not all is delivered", all);
    world.check_order();
    let queues = world.switches[0].queues().expect("its links are slow");
    assert!(queues.bytes[4] > 4_096 && queues.marked > 0, "{queues:?}");
    assert_eq!(queues.dropped, 0, "{queues:?}");
    // Barriers come faster than these links carry them, so that a beacon leaves all the time and
    // another, which says the newest, waits behind it.
    world.run_until("a queue stays", |world| {
        let queues = world.switches[0].queues();
        queues.is_some_and(|queues| queues.present_bytes <= 2 * BEACON_ON_LINE_BYTES)
    });
}

#[test]
fn everybody_delivers_everything_in_one_order_over_every_offload() {
    for offload in [Offload::Plain, Offload::Batch, Offload::Segment] {
        let mut world = World::new(Faults::default(), offload, 3);
        world.meet();
        world.chatter(300);
        let all = |world: &World| world.stations.iter().all(|station| station.log.len() == 900);
        world.run_until("not all is delivered", all);
        world.check_order();
        let key = |log: &[(Key, Vec<u8>)]| {
            log.iter().map(|((ts, from, _), _)| (*ts, *from)).collect::<Vec<_>>()
        };
        assert_eq!(key(&world.stations[0].log), key(&world.stations[1].log));
        assert_eq!(key(&world.stations[0].log), key(&world.stations[2].log));
        assert_eq!(world.switches[0].stats().ports_given, 3);
    }
}

#[test]
fn on_a_bad_network_order_holds_and_every_message_has_one_verdict() {
    let faults = Faults {
        seed: 11,
        loss: 0.1,
        duplication: 0.05,
        corruption: 0.05,
        reordering: 0.05,
        ..Faults::default()
    };
    let mut world = World::new(faults, Offload::Segment, 3);
    world.meet();
    world.chatter(200);
    world.run_until("not all is settled", World::is_drained);
    world.switches[0].set_faults(Faults::default()).expect("no faults are fine");
    let sent = 3 * 3 * 200;
    let count = |world: &World| {
        let delivered: usize = world.stations.iter().map(|station| station.log.len()).sum();
        let failed: usize = world.stations.iter().map(|station| station.failed.len()).sum();
        (delivered, failed)
    };
    world.run_until("some messages have no verdict", |world| {
        let (delivered, failed) = count(world);
        delivered + failed >= sent
    });
    world.check_order();
    let (delivered, failed) = count(&world);
    let is_unknown = |outcome: &&Outcome| **outcome == Outcome::Unknown;
    let reports = world.stations.iter().flat_map(|station| station.failed.values());
    let unknown = reports.filter(is_unknown).count();
    assert!(delivered + failed - sent <= unknown, "{delivered} + {failed} of {sent}");
    let stats = world.switches[0].stats();
    assert!(failed > 0 && stats.faults_lost > 0 && stats.faults_corrupted > 0, "{stats:?}");
    assert!(stats.faults_duplicated > 0 && stats.faults_reordered > 0, "{stats:?}");
}

#[test]
fn switches_make_a_tree() {
    let mut world = World { switches: vec![], stations: vec![], events: vec![] };
    let root = world.add_switch(None, Faults::default(), Offload::Segment);
    for pair in 0..2 {
        let leaf = world.add_switch(Some(root), Faults::default(), Offload::Segment);
        for process in 0..2 {
            world.stations.push(MeshDriver::new(2 * pair + process, 1, leaf, Offload::Segment));
        }
    }
    world.meet();
    world.chatter(100);
    let all = |world: &World| world.stations.iter().all(|station| station.log.len() == 400);
    world.run_until("not all is delivered across the tree", all);
    world.check_order();
    assert!(world.switches[0].machine_stats().forwarded > 0, "the root passes frames");
}

#[test]
fn a_process_that_starts_anew_takes_its_place_over() {
    let mut world = World::new(Faults::default(), Offload::Segment, 3);
    world.meet();
    let at = world.switches[0].local_addr();
    // Killed: it says no goodbye, and comes back from another address.
    world.stations[2] = MeshDriver::new(2, 2, at, Offload::Segment);
    world.run_until("the old port is not taken back", |world| {
        world.switches[0].stats().ports_taken == 1
    });
    world.stations[0].scatter(&[2], b"again");
    world.run_until("the new life is not reached", |world| {
        world.stations[2].log.iter().any(|(_, payload)| payload == b"again")
            || !world.stations[0].failed.is_empty()
    });
    // The first message may have been for the former life; then it was reported, and the next is
    // not.
    world.stations[0].scatter(&[2], b"once more");
    world.run_until("the new life is not reached", |world| {
        world.stations[2].log.iter().any(|(_, payload)| payload == b"once more")
    });
    assert_eq!(world.switches[0].stats().ports_given, 4);
}

/// With and without controllers: the others go on at once, long before the link times out.
#[test]
fn who_is_killed_is_missed_at_once() {
    for controllers in [None, Some(Controllers { first: ProcessId(15), count: 1 })] {
        let mut world = World { switches: vec![], stations: vec![], events: vec![] };
        let mut config = Config::new(SocketAddr::from(([127, 0, 0, 1], 0)));
        (config.processes_max, config.link_timeout_ns) = (16, LINK_TIMEOUT_NS);
        config.controllers = controllers;
        world.switches.push(SoftwareSwitch::new(&config).expect("the loopback is there"));
        let at = world.switches[0].local_addr();
        world
            .stations
            .extend((0..3).map(|process| MeshDriver::new(process, 1, at, Offload::Segment)));
        world.meet();
        world.stations.truncate(2);
        let killed = Instant::now();
        world.run_until("nobody is missed", |world| world.switches[0].stats().ports_taken == 1);
        world.stations[0].scatter(&[0, 1], b"without it");
        world.stations[1].scatter(&[0, 1], b"too");
        world.run_until("the others are held up", |world| {
            world.stations.iter().all(|station| station.log.len() == 2)
        });
        assert!(killed.elapsed() < Duration::from_nanos(LINK_TIMEOUT_NS) / 2);
        world.check_order();
        assert!(world.switches[0].stats().neighbours_refused > 0);
        let is_frozen = world.events.contains(&SwitchEvent::LinkFrozen(Port(2)));
        assert_eq!(is_frozen, controllers.is_some(), "{:?}", world.events);
    }
}

#[test]
fn a_goodbye_frees_the_port_at_once() {
    let mut world = World::new(Faults::default(), Offload::Segment, 2);
    world.meet();
    world.stations[1].driver.machine_mut().leave();
    world.run_until("nobody left", |world| world.switches[0].stats().ports_taken == 1);
    assert!(world.events.iter().any(|event| matches!(event, SwitchEvent::LinkLeft(_))));
    world.stations[0].scatter(&[0], b"alone");
    world.run_until("who stays is held up", |world| !world.stations[0].log.is_empty());
}

#[test]
fn a_dead_port_is_lost_and_the_others_go_on() {
    let mut world = World { switches: vec![], stations: vec![], events: vec![] };
    let mut config = Config::new(SocketAddr::from(([127, 0, 0, 1], 0)));
    // Long, as turns of a busy machine are far apart: the living are not to be missed.
    (config.processes_max, config.link_timeout_ns) = (16, 1_000_000_000);
    world.switches.push(SoftwareSwitch::new(&config).expect("the loopback is there"));
    let at = world.switches[0].local_addr();
    world.stations.extend((0..3).map(|process| MeshDriver::new(process, 1, at, Offload::Segment)));
    world.meet();
    let faults = Faults { dead_ports: vec![Port(1)], ..Faults::default() };
    world.switches[0].set_faults(faults).expect("a dead port is fine");
    world.run_until("nobody is missed", |world| {
        world.events.contains(&SwitchEvent::LinkLost(Port(1)))
    });
    world.stations[0].scatter(&[0, 2], b"without it");
    world.stations[2].scatter(&[0, 2], b"too");
    world.run_until("the others are held up", |world| {
        [0, 2].iter().all(|process: &usize| world.stations[*process].log.len() == 2)
    });
    world.check_order();
}

#[test]
fn strangers_get_no_port() {
    let mut world = World::new(Faults::default(), Offload::Segment, 2);
    let at = world.switches[0].local_addr();
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("the loopback is there");
    let mut noise = vec![0x1b; 4000];
    for bytes in [0, 1, 51, 52, 53, 1472, 4000] {
        noise.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * bytes) as u8);
        stranger.send_to(&noise[..bytes], at).expect("the loopback is there");
    }
    world.meet();
    let stats = world.switches[0].stats();
    assert_eq!(stats.ports_given, 2);
    assert_eq!(stats.trains_foreign, 6, "an empty datagram is no frame at all");
}
