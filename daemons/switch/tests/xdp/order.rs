//! Three processes on three hosts scatter to each other through the kernel.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use onepipe_base::{Incarnation, ProcessId};
use onepipe_daemon_switch::{Config, SoftwareSwitch};
use onepipe_endpoint::{Config as EndpointConfig, Endpoint, Event, Message};
use onepipe_transport_clock::SystemClock;
use onepipe_transport_driver::{Config as DriverConfig, Driver, Idle};
use onepipe_transport_udp::{Config as UdpConfig, JoinerConfig, UdpLink};

use crate::hosts::{Hosts, NODE, describe, device};

/// What takes this long never happens.
const TIMEOUT: Duration = Duration::from_secs(60);
const NODES: u32 = 3;
/// Scatterings of each process, to all.
const SCATTERINGS: u32 = 300;
const TEST: &str = "order::processes_on_hosts_deliver_one_order_through_the_kernel";

/// Returns a process that joins through the switch at `switch`.
fn driver(id: u32, switch: SocketAddr) -> Driver<Endpoint, UdpLink, SystemClock> {
    let mut config = EndpointConfig::new(ProcessId(id), Incarnation(1));
    config.processes_max = 16;
    config.beacon_interval_ns = 20_000;
    config.link_timeout_ns = 20_000_000_000;
    let endpoint = Endpoint::new(config).expect("the numbers are in range");
    let link = UdpLink::connect(switch, &UdpConfig::default()).expect("a network");
    let link = link.joining(JoinerConfig::process(ProcessId(id), Incarnation(1)));
    let clock = SystemClock::calibrated().following_system(10_000_000);
    let driver_config = DriverConfig { idle: Idle::ADAPTIVE, ..DriverConfig::default() };
    Driver::new(endpoint, link, clock, driver_config)
}

/// Runs a node: scatters to all, alternating one payload for all and one for each, and prints what
/// it delivers until everything has arrived.
fn node(id: u32) {
    let mut driver = driver(id, SocketAddr::from(([10, 78, id as u8, 1], 4410)));
    let start = Instant::now();
    let mut sent = 0;
    let mut arrived: BTreeMap<u32, u32> = BTreeMap::new();
    let mut failed = 0;
    // The others start at about the same time; what is lost meanwhile is reported.
    let is_complete = |arrived: &BTreeMap<u32, u32>| {
        arrived.len() == NODES as usize && arrived.values().all(|count| *count >= SCATTERINGS)
    };
    let mut end = None;
    while end.is_none_or(|end| Instant::now() < end) {
        assert!(start.elapsed() < TIMEOUT, "node {id}: {arrived:?}, {sent} sent, {failed} failed");
        let progress = driver.turn(|endpoint, event| match event {
            Event::Delivered(delivery) => {
                let text = String::from_utf8_lossy(endpoint.payload(&delivery)).into_owned();
                println!("node: {} {} {text}", delivery.timestamp.as_ns(), delivery.from.0);
                *arrived.entry(delivery.from.0).or_default() += 1;
                endpoint.release(delivery);
            }
            Event::SendFailed(_) => failed += 1,
            _ => {}
        });
        if sent < SCATTERINGS
            && start.elapsed() > Duration::from_millis(2_000 + 5 * u64::from(sent))
        {
            let shared = format!("{sent} for all");
            let own: Vec<String> = (0..NODES).map(|to| format!("{sent} for {to}")).collect();
            let message = |to: u32| {
                let text = if sent % 2 == 0 { &shared } else { &own[to as usize] };
                Message { to: ProcessId(to), payload: text.as_bytes() }
            };
            let messages: Vec<Message<'_>> = (0..NODES).map(message).collect();
            driver.machine_mut().scatter_reliably(&messages).expect("there is space");
            sent += 1;
        }
        if is_complete(&arrived) && end.is_none() {
            // The others may wait for promises of this one.
            end = Some(Instant::now() + Duration::from_secs(2));
        }
        driver.rest(progress);
    }
    assert_eq!(failed, 0, "node {id}");
}

#[test]
fn processes_on_hosts_deliver_one_order_through_the_kernel() {
    if let Ok(id) = std::env::var(NODE) {
        return node(id.parse().expect("a number"));
    }
    let Some(hosts) = Hosts::new(NODES) else { return };
    let mut config = Config::new(SocketAddr::from(([0, 0, 0, 0], 4410)));
    config.xdp = (0..NODES).map(device).collect();
    config.ports_max = 8;
    config.processes_max = 16;
    config.link_timeout_ns = 20_000_000_000;
    let mut switch = match SoftwareSwitch::new(&config) {
        Ok(switch) => switch,
        Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
    };
    let has_program = |host| {
        let text = describe(&device(host)).expect("the device of a host");
        text.contains("xdp")
    };
    assert!((0..NODES).all(has_program), "the program is at each device");
    let mut nodes: Vec<_> = (0..NODES).map(|host| hosts.start(host, TEST)).collect();
    while nodes.iter_mut().any(|node| node.is_running()) {
        let progress = switch.turn(|_| {});
        switch.rest(progress);
    }
    let kernel: BTreeMap<&str, u64> = switch.kernel_counters().into_iter().collect();
    println!("{kernel:?} {:?} {:?}", switch.stats(), switch.kernel_refusals());
    let logs: Vec<Vec<String>> = nodes.into_iter().map(|node| node.lines()).collect();
    let keys = |log: &[String]| -> Vec<(u64, u32)> {
        let key = |line: &String| {
            let mut words = line.split(' ').map(|word| word.parse::<u64>().expect("a number"));
            (words.next().expect("a timestamp"), words.next().expect("a sender") as u32)
        };
        log.iter().map(key).collect()
    };
    for log in &logs {
        assert_eq!(log.len(), (NODES * SCATTERINGS) as usize);
        assert!(keys(log).is_sorted(), "not in order");
        assert_eq!(keys(log), keys(&logs[0]), "not the same order");
    }
    // Nearly everything has passed in the kernel.
    assert!(kernel["forwarded"] > u64::from(SCATTERINGS), "{kernel:?}");
    // A process that is on none of the devices would receive what the program does not order.
    let mut stranger = driver(NODES, SocketAddr::from(([127, 0, 0, 1], 4410)));
    let start = Instant::now();
    while switch.kernel_refusals().0 == 0 {
        assert!(start.elapsed() < TIMEOUT, "{:?}", switch.stats());
        let _ = (stranger.turn(|_, _| {}), switch.turn(|_| {}));
    }
    let reason = switch.kernel_refusals().1.expect("a refusal has a reason");
    assert!(reason.contains("on none of the switch's devices"), "{reason}");
    assert_eq!(switch.stats().ports_assigned, u64::from(NODES), "it was not admitted");
    assert!(describe("op4410").is_some(), "the daemon's frames enter by a device of their own");
    drop(switch);
    assert!(!(0..NODES).any(has_program), "the devices are the host's again");
    assert_eq!(describe("op4410"), None);
}
