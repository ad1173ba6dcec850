//! Fault isolation over UDP: a link between a rack and a path loses packets, the arbiter locates it
//! by the reports of endpoints, avoids it, and uses it again after its repair.
//!
//! One thread drives all parts in turn, so that a busy machine only makes the test slow; conditions
//! are numbers of frames on links, not times.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use onepipe::{EmbeddedTransfer, ProcessId, TransferEvent};
use onepipe_arbiter::{ArbiterEvent, Core, Fabric, Fault};
use onepipe_daemon_arbiter::{ArbiterDaemon, Avoided, Config as ArbiterConfig};
use onepipe_daemon_switch::{Config, Direction, Link, LossyLink, Racks, SoftwareSwitch};

/// Everything here takes seconds at most; this bound only fails hanging tests.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Long, because turns on a busy machine are far apart.
const SLOT: Duration = Duration::from_millis(1);
const ARBITER: u32 = 60;
/// Three racks of two nodes. With two racks all traffic up from one comes down to the other, and a
/// fault of either link explains the same losses.
const NODES: u32 = 6;
const RACK_NODES: u32 = 2;
const PATHS: u32 = 4;
/// Frames on a rack's other links and none on the faulty one, before the link counts as avoided:
/// with four paths in use by chance this has a probability of (3/4)^400.
const ELSEWHERE: u64 = 400;
const OBJECT_LEN: usize = 60_000;

struct Fixture {
    switch: SoftwareSwitch,
    arbiter: ArbiterDaemon,
    ends: Vec<EmbeddedTransfer>,
    /// Links found faulty, and links retried.
    found: BTreeSet<Fault>,
    tried: BTreeSet<Fault>,
    /// Number of objects sent by each endpoint to each other.
    sent: Vec<u32>,
    /// Number of objects received.
    came: u32,
    is_sending: bool,
}

/// Returns a unique object.
fn object(from: u32, to: u32, number: u32) -> Vec<u8> {
    let salt = from.wrapping_mul(31) ^ to.wrapping_mul(57) ^ number.wrapping_mul(101);
    (0..OBJECT_LEN as u32).map(|at| (at ^ at >> 7 ^ salt) as u8).collect()
}

impl Fixture {
    fn new(cores: usize) -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut config = Config::new(any);
        config.racks =
            Some(Racks { nodes: NODES, rack_nodes: RACK_NODES, paths: PATHS, lossy: vec![] });
        let switch = SoftwareSwitch::new(&config).expect("the switch opens");
        let at = switch.local_addr();
        let slot_ns = SLOT.as_nanos() as u64;
        let mut config = ArbiterConfig::new(at, ProcessId(ARBITER), NODES, slot_ns);
        let there = onepipe_transport_clock::cores().expect("the kernel reports the affinity mask");
        config.cores = there.into_iter().cycle().take(cores).collect();
        config.machine.allocator.batch_slots = 4;
        config.machine.core = Core::Racks(Fabric {
            nodes: NODES,
            rack_nodes: RACK_NODES,
            paths: PATHS,
            is_strict: false,
        });
        let arbiter = ArbiterDaemon::new(&config).expect("the arbiter opens");
        let end = |process| {
            let end = EmbeddedTransfer::builder().switch(at).process(process).endpoints(NODES);
            end.arbiters(&[ARBITER]).slot(SLOT).embedded().expect("the endpoint opens")
        };
        Self {
            switch,
            arbiter,
            ends: (0..NODES).map(end).collect(),
            found: BTreeSet::new(),
            tried: BTreeSet::new(),
            sent: vec![0; (NODES * NODES) as usize],
            came: 0,
            is_sending: true,
        }
    }

    /// Keeps an object in flight between each pair, and drives all parts, until a condition holds.
    fn until(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !is_so(self) {
            assert!(Instant::now() < deadline, "condition not reached: {what}: {}", self.state());
            self.turn();
        }
    }

    fn turn(&mut self) {
        self.switch.turn(|_| {});
        let (found, tried) = (&mut self.found, &mut self.tried);
        self.arbiter.turn(|event| match event {
            ArbiterEvent::Avoided(fault) => drop(found.insert(fault)),
            ArbiterEvent::Retried(fault) => drop(tried.insert(fault)),
            _ => {}
        });
        for (own, end) in (0..NODES).zip(&mut self.ends) {
            let mut through = Vec::new();
            end.poll(|event| match event {
                TransferEvent::Received(from, number, bytes) => {
                    assert!(bytes == object(from.0, own, number), "{number} of {from:?}");
                    self.came += 1;
                }
                TransferEvent::Sent(id, _) => through.push(id.dst),
                TransferEvent::Refused(id, _) => panic!("{id:?} was refused"),
                _ => {}
            });
            let sent = &mut self.sent[(own * NODES) as usize..][..NODES as usize];
            for to in (0..NODES).filter(|to| *to != own) {
                let number = &mut sent[to as usize];
                if self.is_sending && (*number == 0 || through.contains(&ProcessId(to))) {
                    end.send(ProcessId(to), object(own, to, *number)).expect("there is capacity");
                    *number += 1;
                }
            }
        }
    }

    /// Number of frames on a link.
    fn on(&self, link: Link) -> u64 {
        let report = self.switch.links().find(|report| report.link == link);
        report.expect("the link exists").frames
    }

    /// Number of frames on the rack's other links of the same direction.
    fn elsewhere(&self, Link { rack, path, direction }: Link) -> u64 {
        let others = (0..PATHS).filter(|other| *other != path);
        others.map(|path| self.on(Link { rack, path, direction })).sum()
    }

    fn state(&self) -> String {
        let links: Vec<_> = self.switch.links().collect();
        let ends: Vec<_> = self.ends.iter().map(|end| *end.endpoint_stats()).collect();
        format!("{links:?} {:#?} {ends:#?} {:?}", self.arbiter.report(), self.switch.stats())
    }
}

fn check_link_is_avoided_then_used(cores: usize) {
    let mut fixture = Fixture::new(cores);
    fixture.until("every link carries frames", |fixture| {
        fixture.switch.links().all(|report| report.frames >= 20)
    });
    assert_eq!(fixture.found, BTreeSet::new(), "nothing was lost");
    for (link, loss) in [
        (Link { rack: 1, path: 2, direction: Direction::Up }, 1.0),
        (Link { rack: 2, path: 0, direction: Direction::Down }, 0.5),
    ] {
        let fault = Fault::Link { rack: link.rack, path: link.path };
        let avoided = Avoided::from(fault);
        fixture.found.clear();
        fixture.switch.set_lossy_links(&[LossyLink { link, loss }]).expect("the link exists");
        fixture.until("the fault is found", |fixture| fixture.found.contains(&fault));
        // The link is retried, at first often, then every second.
        let mut last = (fixture.on(link), fixture.elsewhere(link));
        fixture.until("the link is avoided while others are used", |fixture| {
            let (on, elsewhere) = (fixture.on(link), fixture.elsewhere(link));
            if on != last.0 {
                last = (on, elsewhere);
            }
            let is_reported = fixture.arbiter.report().avoided.contains(&avoided);
            is_reported && elsewhere - last.1 >= ELSEWHERE
        });

        fixture.tried.clear();
        fixture.switch.set_lossy_links(&[]).expect("the switch has racks");
        let healed = fixture.on(link);
        fixture.until("the link is retried", |fixture| fixture.tried.contains(&fault));
        fixture
            .until("the link is used again", |fixture| fixture.on(link) - healed >= ELSEWHERE / 4);
        fixture.until("nothing is avoided", |fixture| fixture.arbiter.report().avoided.is_empty());
    }
    fixture.is_sending = false;
    let sent = fixture.sent.iter().sum::<u32>();
    fixture.until("all objects have been received", |fixture| fixture.came == sent);
    let report = fixture.arbiter.report();
    assert!(report.faults_found >= 2 && report.faults_retried >= 2, "{report:?}");
    assert!(report.packets_lost >= 12, "{report:?}");
    assert_eq!(fixture.switch.stats().frames_without_path, 0);
}

#[test]
fn lossy_link_is_avoided_until_repaired() {
    check_link_is_avoided_then_used(0);
}

#[test]
fn lossy_link_is_avoided_by_a_multicore_arbiter() {
    check_link_is_avoided_then_used(3);
}

/// A pair that has the network to itself: on a single path nothing would arrive.
#[test]
fn lone_pair_gets_past_a_dead_link() {
    let mut fixture = Fixture::new(0);
    fixture.is_sending = false;
    let link = Link { rack: 0, path: 0, direction: Direction::Up };
    let lossy = [LossyLink { link, loss: 1.0 }];
    fixture.switch.set_lossy_links(&lossy).expect("the link exists");
    let all = 10;
    for number in 0..all {
        fixture.ends[0].send(ProcessId(2), object(0, 2, number)).expect("there is capacity");
    }
    fixture.until("all objects have been received", |fixture| fixture.came == all);
    // The losses can also be explained by the link down to the other rack.
    let either = [Fault::Link { rack: 0, path: 0 }, Fault::Link { rack: 1, path: 0 }];
    assert!(fixture.found.iter().any(|fault| either.contains(fault)), "{}", fixture.state());
}

#[test]
fn unknown_links_are_refused() {
    let mut fixture = Fixture::new(0);
    let link = |rack, path| Link { rack, path, direction: Direction::Up };
    let mut set = |link, loss| fixture.switch.set_lossy_links(&[LossyLink { link, loss }]).is_err();
    assert!(set(link(3, 0), 1.0) && set(link(0, 4), 1.0) && set(link(0, 0), 1.5));
    let mut plain = SoftwareSwitch::new(&Config::new(fixture.switch.local_addr()));
    assert!(plain.is_err(), "the address is taken");
    plain = SoftwareSwitch::new(&Config::new(SocketAddr::from(([127, 0, 0, 1], 0))));
    let mut plain = plain.expect("the switch opens");
    assert!(plain.set_lossy_links(&[]).is_err(), "the switch has no racks");
    assert_eq!(plain.links().count(), 0);
}
