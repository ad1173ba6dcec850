//! Fault isolation over UDP: a link between a rack and a path loses packets, the arbiter finds out
//! which by what endpoints report, gives it to nobody, and uses it again after its repair.
//!
//! One thread gives everybody turns, so that a busy machine makes it slow and nothing else; what
//! is waited for are frames on links, not times.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use onepipe::{EmbeddedTransfer, ProcessId, TransferEvent};
use onepipe_arbiter::{ArbiterEvent, Core, Fabric, Fault};
use onepipe_daemon_arbiter::{ArbiterDaemon, Avoided, Config as ArbiterConfig};
use onepipe_daemon_switch::{Config, Direction, Link, LossyLink, Racks, SoftwareSwitch};

/// What takes seconds at most; what takes this long never comes.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Long, as turns of a busy machine are far apart.
const SLOT: Duration = Duration::from_millis(1);
const ARBITER: u32 = 60;
/// Three racks of two. With two all that goes up from one comes down to the other, and either link
/// explains as much.
const NODES: u32 = 6;
const RACK_NODES: u32 = 2;
const PATHS: u32 = 4;
/// Frames that cross other links of a rack and not the faulty one, before it counts as avoided: of
/// four paths that are all used so many would be one in (4/3)^400.
const ELSEWHERE: u64 = 400;
const OBJECT_LEN: usize = 60_000;

struct Fixture {
    switch: SoftwareSwitch,
    arbiter: ArbiterDaemon,
    ends: Vec<EmbeddedTransfer>,
    /// Links that were found, and those that were tried again.
    found: BTreeSet<Fault>,
    tried: BTreeSet<Fault>,
    /// Objects sent by each for each.
    sent: Vec<u32>,
    /// Objects that have come whole.
    came: u32,
    is_sending: bool,
}

/// An object that is like no other.
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
        let switch = SoftwareSwitch::new(&config).expect("a switch");
        let at = switch.local_addr();
        let slot_ns = SLOT.as_nanos() as u64;
        let mut config = ArbiterConfig::new(at, ProcessId(ARBITER), NODES, slot_ns);
        let there = onepipe_transport_clock::cores().expect("the kernel says");
        config.cores = there.into_iter().cycle().take(cores).collect();
        config.machine.allocator.batch_slots = 4;
        config.machine.core = Core::Racks(Fabric {
            nodes: NODES,
            rack_nodes: RACK_NODES,
            paths: PATHS,
            is_strict: false,
        });
        let arbiter = ArbiterDaemon::new(&config).expect("an arbiter");
        let end = |process| {
            let end = EmbeddedTransfer::builder().switch(at).process(process).endpoints(NODES);
            end.arbiters(&[ARBITER]).slot(SLOT).embedded().expect("an end")
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

    /// Everybody has an object under way to everybody else, and gets turns, until it is so.
    fn until(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !is_so(self) {
            assert!(Instant::now() < deadline, "waited in vain: {what}: {}", self.state());
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
                    end.send(ProcessId(to), object(own, to, *number)).expect("there is room");
                    *number += 1;
                }
            }
        }
    }

    /// Frames that came to a link.
    fn on(&self, link: Link) -> u64 {
        let report = self.switch.links().find(|report| report.link == link);
        report.expect("there is such a link").frames
    }

    /// Those that came to the rack's other links of the same direction.
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
    fixture.until("every link bears something", |fixture| {
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
        fixture.switch.set_lossy_links(&[LossyLink { link, loss }]).expect("there is such a link");
        fixture.until("it is found", |fixture| fixture.found.contains(&fault));
        // It is tried again, first often, then every second.
        let mut last = (fixture.on(link), fixture.elsewhere(link));
        fixture.until("nobody is given it while others are", |fixture| {
            let (on, elsewhere) = (fixture.on(link), fixture.elsewhere(link));
            if on != last.0 {
                last = (on, elsewhere);
            }
            let is_told = fixture.arbiter.report().avoided.contains(&avoided);
            is_told && elsewhere - last.1 >= ELSEWHERE
        });

        fixture.tried.clear();
        fixture.switch.set_lossy_links(&[]).expect("there are racks");
        let healed = fixture.on(link);
        fixture.until("it is tried again", |fixture| fixture.tried.contains(&fault));
        fixture.until("it is used again", |fixture| fixture.on(link) - healed >= ELSEWHERE / 4);
        fixture.until("nothing is avoided", |fixture| fixture.arbiter.report().avoided.is_empty());
    }
    fixture.is_sending = false;
    let sent = fixture.sent.iter().sum::<u32>();
    fixture.until("all objects have come whole", |fixture| fixture.came == sent);
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

/// A pair that has the network to itself: if it took one path all the time nothing would come.
#[test]
fn lone_pair_gets_past_a_dead_link() {
    let mut fixture = Fixture::new(0);
    fixture.is_sending = false;
    let link = Link { rack: 0, path: 0, direction: Direction::Up };
    let lossy = [LossyLink { link, loss: 1.0 }];
    fixture.switch.set_lossy_links(&lossy).expect("there is such a link");
    let all = 10;
    for number in 0..all {
        fixture.ends[0].send(ProcessId(2), object(0, 2, number)).expect("there is room");
    }
    fixture.until("all has come", |fixture| fixture.came == all);
    // What it loses can as well be lost on the way down to the other rack.
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
    let mut plain = plain.expect("a switch");
    assert!(plain.set_lossy_links(&[]).is_err(), "it has no racks");
    assert_eq!(plain.links().count(), 0);
}
