//! Arbiters and endpoints over real sockets through a real switch.
//!
//! One thread runs all daemons and endpoints in turn, so a busy machine only slows the tests down.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use onepipe_arbiter::{ArbiterEvent, Client, ClientConfig, ClientEvent, Role};
use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Psn, Timestamp, Transmit, Verdict};
use onepipe_daemon_arbiter::{ArbiterDaemon, Config, StartError};
use onepipe_daemon_switch::{Config as SwitchConfig, SoftwareSwitch};
use onepipe_transport_clock::{SystemClock, start_incarnation};
use onepipe_transport_driver::{Config as DriverConfig, DrivenMachine, Driver, Idle};
use onepipe_transport_udp::{Config as UdpConfig, JoinerConfig, UdpLink};
use onepipe_wire::{Header, Opcode, SHORT_HEADER_LEN, Watchdog, seal};

/// Everything here takes milliseconds; a condition that takes this long never holds.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Longer than a thread is preempted.
const TAKEOVER: Duration = Duration::from_millis(600);
const NODES: u32 = 4;
const ARBITERS: [ProcessId; 2] = [ProcessId(60), ProcessId(61)];
/// Long, as a busy machine delays turns.
const SLOT_NS: u64 = 100_000;

/// An endpoint, and the packets received.
struct Host {
    client: Client,
    received: Vec<Vec<u8>>,
    /// Frames to send beside those of the endpoint.
    forged: Vec<Vec<u8>>,
}

impl Machine for Host {
    type Event = ClientEvent;

    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        let verdict = self.client.handle_frame(now, port, frame);
        if let (Verdict::Consumed, Some(packets)) = (verdict, Client::packets(frame)) {
            self.received.extend(packets.map(<[u8]>::to_vec));
        }
        verdict
    }

    fn handle_timeout(&mut self, now: Now) {
        self.client.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        if let Some(frame) = self.forged.pop() {
            slot[..frame.len()].copy_from_slice(&frame);
            return Some(Transmit { port: Port(0), bytes: frame.len() });
        }
        self.client.poll_transmit(now, slot)
    }

    fn poll_event(&mut self) -> Option<ClientEvent> {
        self.client.poll_event()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.client.poll_timeout()
    }
}

impl DrivenMachine for Host {}

type HostDriver = Driver<Host, UdpLink, SystemClock>;

struct TestNet {
    switch: SoftwareSwitch,
    arbiters: Vec<ArbiterDaemon>,
    hosts: Vec<HostDriver>,
    /// Indices of the arbiters that became the primary, in order.
    primaries: Vec<usize>,
    /// Indices of the arbiters that learned of a later one with the same id.
    replaced: Vec<usize>,
}

impl TestNet {
    /// Creates two arbiters with `cores` cores each, which they share.
    fn new(cores: usize) -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let switch = SoftwareSwitch::new(&SwitchConfig::new(any)).expect("a switch");
        let at = switch.local_addr();
        let arbiter = |nth: usize| {
            let mut config = Config::new(at, ARBITERS[nth], NODES, SLOT_NS);
            config.cores = first_cores(cores);
            config.status_listen = Some(any);
            config.machine.failover.peers = vec![ARBITERS[1 - nth]];
            config.machine.failover.role = [Role::Primary, Role::Secondary][nth];
            config.machine.failover.takeover_ns = TAKEOVER.as_nanos() as u64;
            ArbiterDaemon::new(&config).expect("an arbiter")
        };
        let arbiters = vec![arbiter(0), arbiter(1)];
        let hosts = (0..NODES).map(|process| host(process, at)).collect();
        Self { switch, arbiters, hosts, primaries: Vec::new(), replaced: Vec::new() }
    }

    /// Runs all parties until a condition holds.
    fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !is_so(self) {
            assert!(Instant::now() < deadline, "timed out waiting: {what}: {}", self.state());
            for (nth, arbiter) in self.arbiters.iter_mut().enumerate() {
                // The switch runs after each arbiter, so that a watchdog of the primary arrives
                // before the secondary looks at its clock, however long a turn takes.
                arbiter.turn(|event| match event {
                    ArbiterEvent::Primary(_) => self.primaries.push(nth),
                    ArbiterEvent::Replaced { .. } => self.replaced.push(nth),
                    _ => {}
                });
                self.switch.turn(|_| {});
            }
            for host in &mut self.hosts {
                host.turn(|_, _| {});
            }
        }
    }

    fn state(&self) -> String {
        let arbiters: Vec<_> = self.arbiters.iter().map(ArbiterDaemon::report).collect();
        let hosts: Vec<_> = self.hosts.iter().map(|host| *host.machine().client.stats()).collect();
        format!("{arbiters:#?} {hosts:#?} {:?}", self.switch.machine_stats())
    }

    /// Sends `count` packets from every endpoint to every other one, and waits until all arrive.
    fn exchange(&mut self, count: u32) {
        for host in &mut self.hosts {
            host.machine_mut().received.clear();
        }
        for src in 0..NODES {
            for dst in (0..NODES).filter(|dst| *dst != src) {
                for number in 0..count {
                    let host = self.hosts[src as usize].machine_mut();
                    let packet = [vec![src as u8, number as u8], vec![0; 1_000]].concat();
                    host.client.enqueue(ProcessId(dst), &packet).expect("the queue has space");
                }
            }
        }
        let wanted = (count * (NODES - 1)) as usize;
        self.until("all packets have arrived", |net| {
            net.hosts.iter().all(|host| host.machine().received.len() >= wanted)
        });
        for host in &self.hosts {
            let mut received = host.machine().received.clone();
            received.sort();
            received.dedup();
            assert_eq!(received.len(), wanted, "each once");
            assert_eq!(host.machine().client.stats().duplicate, 0);
        }
    }
}

/// Requests a page of the status server.
fn http_get(at: SocketAddr, what: &str) -> std::thread::JoinHandle<String> {
    let question = format!("GET {what} HTTP/1.0\r\n\r\n");
    std::thread::spawn(move || {
        let mut stream = TcpStream::connect(at).expect("the status server listens");
        stream.write_all(question.as_bytes()).expect("the request is sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("the response is complete");
        text
    })
}

/// Returns the first cores, repeated if there are fewer.
fn first_cores(count: usize) -> Vec<usize> {
    let there = onepipe_transport_clock::cores().expect("the kernel lists the cores");
    there.into_iter().cycle().take(count).collect()
}

fn host(process: u32, switch: SocketAddr) -> HostDriver {
    let mut config = ClientConfig::new(ProcessId(process), NODES, ARBITERS[0], SLOT_NS);
    config.incarnation = start_incarnation(process);
    let joiner = JoinerConfig::process(ProcessId(process), config.incarnation);
    config.arbiters = ARBITERS.to_vec();
    config.late_slots_max = 4_096;
    let client = Client::new(config).expect("the numbers are in range");
    let link = UdpLink::connect(switch, &UdpConfig::default()).expect("loopback works");
    let link = link.joining(joiner);
    let clock = SystemClock::calibrated().following_system(10_000_000);
    let driver_config = DriverConfig { idle: Idle::Spin, ..DriverConfig::default() };
    Driver::new(
        Host { client, received: Vec::new(), forged: Vec::new() },
        link,
        clock,
        driver_config,
    )
}

fn check_failover(cores: usize) {
    let mut net = TestNet::new(cores);
    net.until("an arbiter is the primary", |net| !net.primaries.is_empty());
    assert_eq!(net.primaries, [0]);
    // Switches learn attachments from packets, so packets to a new endpoint are lost; every
    // endpoint sends to the arbiter first.
    net.exchange(5);
    let granted = net.arbiters[0].report().slots_granted;
    assert!(granted >= 5 * 12, "{granted}");
    assert_eq!(net.arbiters[1].report().slots_granted, 0);

    let at = net.arbiters[0].status_addr().expect("the status server listens");
    for (what, answer) in
        [("/status", "\"is_primary\":true"), ("/metrics", "onepipe_arbiter_endpoints_known 4\n")]
    {
        let asked = http_get(at, what);
        net.until("the status server has answered", |_| asked.is_finished());
        let text = asked.join().expect("the status server has answered");
        assert!(text.starts_with("HTTP/1.0 200 OK") && text.contains(answer), "{text}");
    }

    net.arbiters.remove(0);
    net.until("the other takes over", |net| net.primaries.len() == 2);
    net.exchange(5);
    let report = net.arbiters[0].report();
    assert!(report.is_primary && report.slots_granted >= 5 * 12, "{report:?}");
    assert_eq!(report.takeovers, 1);
}

/// Only its watchdogs show the switch where a secondary is attached.
#[test]
fn idle_secondary_does_not_depose_the_primary() {
    let mut net = TestNet::new(0);
    net.hosts.clear();
    net.until("an arbiter is the primary", |net| !net.primaries.is_empty());
    let until = Instant::now() + 3 * TAKEOVER;
    net.until("three takeover times have passed", |_| Instant::now() > until);
    assert_eq!(net.primaries, [0]);
}

#[test]
fn failover_keeps_traffic_flowing() {
    check_failover(0);
}

#[test]
fn failover_keeps_traffic_flowing_on_several_cores() {
    check_failover(2);
    check_failover(4);
}

//= spec/arbiter.md#R30
/// Two arbiters have the same id: the one that started first is notified, and stops.
#[test]
fn of_two_arbiters_with_one_id_the_later_stays() {
    let mut net = TestNet::new(0);
    net.arbiters.truncate(1);
    net.until("the arbiter is the primary", |net| !net.primaries.is_empty());
    net.exchange(5);
    let second = Config::new(net.switch.local_addr(), ARBITERS[0], NODES, SLOT_NS);
    net.arbiters.push(ArbiterDaemon::new(&second).expect("an arbiter"));
    net.until("the second one is primary as well", |net| net.primaries.len() == 2);
    // Until then the switch delivers to whichever sent last.
    let deadline = Instant::now() + TIMEOUT;
    while net.replaced.is_empty() {
        assert!(Instant::now() < deadline, "no arbiter is notified: {}", net.state());
        net.exchange(1);
    }
    assert_eq!((&net.replaced[..], &net.primaries[..]), (&[0][..], &[0, 1][..]));
    let [first, second] = [0, 1].map(|nth| net.arbiters[nth].report());
    assert!(!first.is_primary && second.is_primary);
    assert_eq!((first.process, second.process), (60, 60));
    net.exchange(5);
    assert_eq!(net.replaced, [0]);
}

/// Returns a watchdog of endpoint 1, which names an incarnation of the first arbiter.
fn watchdog(net: &TestNet, named: u32, claim: Watchdog) -> Vec<u8> {
    let mut bytes = vec![0; 512];
    let len = claim.write(&mut bytes[SHORT_HEADER_LEN..]).expect("there is space");
    let own = net.hosts[1].machine().client.config().incarnation;
    let header = Header::new(Opcode::Watchdog, ProcessId(1), ARBITERS[0], own);
    let at = Timestamp::from_ns(0);
    let header = header.stamped(at, header.promises(at), Psn(named));
    let len = seal(&mut bytes, header, len);
    bytes.truncate(len);
    bytes
}

/// One watchdog with the last incarnation once made the arbiter exit, and one with the last epoch
/// ended elections.
//= spec/arbiter.md#R39
#[test]
fn watchdogs_that_cannot_be_do_not_stop_an_arbiter() {
    let mut net = TestNet::new(0);
    net.until("an arbiter is the primary", |net| !net.primaries.is_empty());
    net.exchange(1);
    let [own, peer] = ARBITERS;
    let stranger = ProcessId(9);
    let forged = [
        (u32::MAX, Watchdog { epoch: 1, primary: own }),
        (0, Watchdog { epoch: u32::MAX, primary: peer }),
        (0, Watchdog { epoch: u32::MAX, primary: own }),
        (0, Watchdog { epoch: 2, primary: stranger }),
    ];
    let frames = forged.map(|(named, claim)| watchdog(&net, named, claim));
    net.hosts[1].machine_mut().forged = frames.into();
    net.until("the arbiter refuses them", |net| net.arbiters[0].report().claims_refused == 4);
    net.exchange(5);
    assert_eq!((&net.replaced[..], &net.primaries[..]), (&[][..], &[0][..]));
    assert!(net.arbiters[0].report().is_primary);
    // Another one still takes over.
    net.arbiters.remove(0);
    net.until("the other takes over", |net| net.primaries.len() == 2);
    net.exchange(5);
}

#[test]
fn rejects_invalid_configurations() {
    let at = SocketAddr::from(([127, 0, 0, 1], 9));
    let inside = Config::new(at, ProcessId(3), NODES, SLOT_NS);
    assert!(matches!(ArbiterDaemon::new(&inside), Err(StartError::Machine(_))));
    let nowhere = Config { cores: vec![0, 999], ..Config::new(at, ARBITERS[0], NODES, SLOT_NS) };
    assert!(matches!(ArbiterDaemon::new(&nowhere), Err(StartError::Core { core: 999, .. })));
    let endless = Config::new(at, ARBITERS[0], NODES, 0);
    assert!(matches!(ArbiterDaemon::new(&endless), Err(StartError::Machine(_))));
}
