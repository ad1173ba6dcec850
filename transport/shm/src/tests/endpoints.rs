//! Endpoints that share memory: one order, nothing lost, and no timeout needed when one dies.

use onepipe_base::ProcessId;
use onepipe_endpoint::{Config as EndpointConfig, Endpoint, Event, Links, Message};
use onepipe_transport_clock::SystemClock;
use onepipe_transport_driver::{Config as DriverConfig, Driver, Idle};

use super::*;

/// What is delivered in milliseconds has arrived long before, or never will.
const PATIENCE: Duration = Duration::from_secs(30);

struct Station {
    driver: Driver<Endpoint, Shm, SystemClock>,
    log: Vec<(u64, u32, Vec<u8>)>,
    failed: usize,
    lost: usize,
}

impl Station {
    fn new(name: &str, process: u32) -> Self {
        let shm = attach(name, process);
        let mut config = EndpointConfig::new(shm.process(), shm.incarnation());
        config.processes_max = 4;
        config.links = Links::Mesh;
        config.frame_len_max = shm.config().frame_len_max;
        (config.beacon_interval_ns, config.link_timeout_ns) = (0, 0);
        // Nobody's answer is late because this machine is busy.
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
        self.driver.machine_mut().scatter(&messages).expect("there is room");
    }
}

fn run_until(stations: &mut [Station], what: &str, done: impl Fn(&[Station]) -> bool) {
    let started = Instant::now();
    while !done(stations) {
        assert!(started.elapsed() < PATIENCE, "{what}");
        stations.iter_mut().for_each(Station::turn);
    }
}

#[test]
fn everybody_delivers_everything_in_one_order() {
    let name = name("endpoints");
    let mut stations: Vec<Station> = (0..4).map(|process| Station::new(&name, process)).collect();
    for round in 0..500u32 {
        for station in &mut stations {
            // Some of them longer than a frame.
            let bytes = if round % 50 == 0 { 20_000 } else { 64 };
            let mut payload = vec![round as u8; bytes];
            payload[..4].copy_from_slice(&round.to_be_bytes());
            station.scatter(&[0, 1, 2, 3], &payload);
        }
        if round % 7 == 0 {
            stations.iter_mut().for_each(Station::turn);
        }
    }
    let is_done = |stations: &[Station]| stations.iter().all(|station| station.log.len() >= 2000);
    run_until(&mut stations, "not all is delivered", is_done);
    for station in &stations {
        assert_eq!((station.failed, station.lost, station.log.len()), (0, 0, 2000));
        assert!(station.log == stations[0].log, "all deliver the same in the same order");
        assert!(station.log.windows(2).all(|pair| (pair[0].0, pair[0].1) < (pair[1].0, pair[1].1)));
    }
}

#[test]
fn one_killed_in_the_middle_of_a_burst_holds_nobody_up() {
    let name = name("killed");
    let mut stations: Vec<Station> = (0..3).map(|process| Station::new(&name, process)).collect();
    stations[0].scatter(&[0, 1, 2], b"all here");
    let all_here = |stations: &[Station]| stations.iter().all(|station| station.log.len() == 1);
    run_until(&mut stations, "the three do not meet", all_here);

    let mut killed = stations.pop().expect("there are three");
    let promises = killed.driver.machine().promises();
    let now = killed.driver.transport().clock().read();
    killed.driver.transport_mut().begin_burst(now, promises);
    killed.driver.transport().segment().give_up_place();
    std::mem::forget(killed);

    stations[0].scatter(&[0, 1], b"without it");
    stations[1].scatter(&[0, 1], b"too");
    let go_on = |stations: &[Station]| stations.iter().all(|station| station.log.len() == 3);
    run_until(&mut stations, "the dead hold the living up", go_on);
    assert!(stations[0].log == stations[1].log);

    stations.push(Station::new(&name, 2));
    stations[2].scatter(&[0, 1, 2], b"back");
    stations[0].scatter(&[0, 1, 2], b"welcome");
    let is_back = |stations: &[Station]| {
        let has =
            |station: &Station, text: &[u8]| station.log.iter().any(|(.., heard)| heard == text);
        stations.iter().all(|station| has(station, b"back"))
            && (has(&stations[2], b"welcome") || stations[0].failed > 0)
    };
    run_until(&mut stations, "it does not come back", is_back);
}
