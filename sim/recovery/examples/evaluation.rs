//! Measures the cost of a controller's graph evaluations in a fat tree: `cargo run --release -p
//! onepipe-sim-recovery --example evaluation [PORTS...]`.
//!
//! Prints the processor time of a controller that has taken over a fabric of switches with `PORTS`
//! ports (the number of hosts is a quarter of its cube): for the announcements that report a
//! failure, for the evaluation that decides it, for its record, and for the next evaluation.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use onepipe_base::{
    Address, Cause, Controllers, Incarnation, Instance, Machine, Mono, Now, Port, ProcessId,
    Promises, Psn, SwitchId, Timestamp,
};
use onepipe_controller::{Config, Controller, Epoch, Member, MemberLink, Record};
use onepipe_wire::{Announce, HEADER_LEN, Header, Link, LinkState, Opcode, Side, seal};

/// The links of each node: side and neighbour.
type Fabric = BTreeMap<Instance, Vec<(Side, Instance)>>;

const RUNS: u32 = 7;
const FRAME_LEN: usize = 1_472;

fn main() {
    let ports = std::env::args()
        .skip(1)
        .map(|ports| ports.parse().expect("PORTS must be a number of switch ports"));
    let ports: Vec<u32> = ports.collect();
    for ports in if ports.is_empty() { vec![16, 32, 52] } else { ports } {
        measure(ports);
    }
}

/// Measures a fat tree of switches with `ports` ports.
fn measure(ports: u32) {
    let half = ports / 2;
    let hosts = ports * half * half;
    let fabric = fat_tree(ports);
    let process = ProcessId(hosts - 1);
    let controllers = Controllers { first: process, count: 1 };
    let config = Config { incarnation: Incarnation(1), ..Config::new(process, controllers) };
    let mut bench = Bench {
        controller: Controller::new(config).expect("the configuration is valid"),
        controller_id: process,
        ns: 1_000_000,
        generations: BTreeMap::new(),
        removed: BTreeSet::new(),
    };
    let member = |(instance, links): (&Instance, &Vec<(Side, Instance)>)| {
        let link =
            |(side, instance): &(Side, Instance)| MemberLink { side: *side, instance: *instance };
        Member { instance: *instance, links: links.iter().map(link).collect() }
    };
    let begun = Instant::now();
    let members = Record::Members(fabric.iter().map(member).collect());
    bench.controller.activate(bench.now(), Epoch(1), &[members]);
    let rack_switch = rack(hosts, half, hosts - 1);
    let own = Instance { address: Address::Process(process), incarnation: Incarnation(1) };
    let mut links = all_up(&fabric[&rack_switch]);
    links.push(Link {
        port: Port(0),
        side: Side::Lower,
        instance: Some(own),
        state: LinkState::Up,
    });
    bench.announce(rack_switch, &links);
    bench.wait();
    bench.persist();
    // Every node has announced itself before the first failure.
    for (instance, links) in fabric.iter().filter(|(instance, _)| **instance != rack_switch) {
        bench.announce(*instance, &all_up(links));
    }
    bench.wait();
    bench.persist();
    let nodes = fabric.len();
    println!("{ports} ports, {hosts} hosts, {nodes} nodes: taken over in {:?}", begun.elapsed());
    let host = |run: u32| switch(run * half * 3);
    let last = hosts + ports * half * 5 / 2 - 1;
    let cases: [(&str, &dyn Fn(u32) -> Instance); 2] =
        [("host", &host), ("core switch", &|run| switch(last - run * half))];
    for (name, victim) in cases {
        let (mut times, mut visits) = (Vec::new(), 0);
        for run in 0..RUNS {
            let victim = victim(run);
            let announced = bench.fail(&fabric, victim);
            let before = bench.controller.stats().visits;
            let decided = bench.wait();
            visits = bench.controller.stats().visits - before;
            times.push([announced, decided, bench.persist(), bench.wait()]);
            bench.resume(&fabric, victim);
        }
        let median = |part: usize| {
            let mut sorted: Vec<Duration> = times.iter().map(|spent| spent[part]).collect();
            sorted.sort_unstable();
            sorted[sorted.len() / 2]
        };
        let [announced, decided, written, next] = [0, 1, 2, 3].map(median);
        println!(
            "  {name}: announced in {announced:?}, decided in {decided:?} ({visits} visits), \
             written in {written:?}, next evaluation in {next:?}"
        );
    }
}

/// A controller that has taken over the fabric, with the time and the announcements of its nodes.
struct Bench {
    controller: Controller,
    controller_id: ProcessId,
    /// The current time.
    ns: u64,
    /// Last generation of each node's announcements.
    generations: BTreeMap<Instance, u32>,
    /// Instances that have failed and were removed from the graph.
    removed: BTreeSet<Instance>,
}

impl Bench {
    fn now(&self) -> Now {
        Now { mono: Mono::from_ns(self.ns), sync: Timestamp::from_ns(self.ns) }
    }

    /// Lets all neighbours of `victim` freeze their links to it and announce that. Returns the
    /// controller's processing time.
    fn fail(&mut self, fabric: &Fabric, victim: Instance) -> Duration {
        let mut spent = Duration::ZERO;
        for (_, owner) in &fabric[&victim] {
            // A process behind a failed virtual switch has failed, too.
            if matches!(owner.address, Address::Process(_)) {
                continue;
            }
            let mut links = self.links(fabric, *owner);
            for link in links.iter_mut().filter(|link| link.instance == Some(victim)) {
                let commit = Timestamp::from_ns(self.ns);
                link.state = LinkState::Frozen { number: 1, commit, cause: Cause::TimedOut };
            }
            spent += self.announce(*owner, &links);
        }
        self.removed.insert(victim);
        spent
    }

    /// Lets the neighbours of `victim` announce that the frozen links are resolved.
    fn resume(&mut self, fabric: &Fabric, victim: Instance) {
        for (_, owner) in &fabric[&victim] {
            let links = self.links(fabric, *owner);
            self.announce(*owner, &links);
        }
        self.wait();
        self.persist();
        self.wait();
    }

    /// Returns the live links of an instance, without links to removed instances.
    fn links(&self, fabric: &Fabric, instance: Instance) -> Vec<Link> {
        let mut links = all_up(&fabric[&instance]);
        links.retain(|link| link.instance.is_none_or(|instance| !self.removed.contains(&instance)));
        if instance == rack_of(fabric, self.controller_id) {
            let address = Address::Process(self.controller_id);
            let own = Instance { address, incarnation: Incarnation(1) };
            let (port, side, state) = (Port(0), Side::Lower, LinkState::Up);
            links.push(Link { port, side, instance: Some(own), state });
        }
        links
    }

    /// Passes an announcement of a node to the controller. Returns the processing time.
    fn announce(&mut self, instance: Instance, links: &[Link]) -> Duration {
        let generation = self.generations.entry(instance).or_insert(0);
        *generation += 1;
        let (generation, total) = (*generation, links.len() as u16);
        let (mut first, mut spent) = (0, Duration::ZERO);
        while first < total {
            let mut slot = vec![0; FRAME_LEN];
            let announce = Announce { generation, first, total, tip: None };
            let rest = links[usize::from(first)..].iter().copied();
            let (count, bytes) =
                announce.write(&mut slot[HEADER_LEN..], rest).expect("a link fits into a frame");
            let src = ProcessId(instance.address.to_bits());
            let header =
                Header::new(Opcode::Announce, src, self.controller_id, instance.incarnation);
            let stamp = self.now().sync;
            let header = header.stamped(stamp, Promises::both(stamp), Psn::FIRST);
            let length = seal(&mut slot, header, bytes);
            let begun = Instant::now();
            self.controller.handle_frame(self.now(), Port(0), &mut slot[..length]);
            spent += begun.elapsed();
            first += count;
        }
        spent
    }

    /// Advances the time until the controller evaluates the reports. Returns the processing time.
    fn wait(&mut self) -> Duration {
        self.ns += self.controller.config().quiet_ns;
        let (now, begun) = (self.now(), Instant::now());
        self.controller.handle_timeout(now);
        begun.elapsed()
    }

    /// Lets the store write all pending records. Returns the processing time.
    fn persist(&mut self) -> Duration {
        let begun = Instant::now();
        while let Some((id, _)) = self.controller.poll_persist() {
            self.controller.handle_persisted(self.now(), id, Ok(()));
        }
        begun.elapsed()
    }
}

/// Returns the links of a node, all of them up.
fn all_up(links: &[(Side, Instance)]) -> Vec<Link> {
    let link = |(port, (side, instance)): (usize, &(Side, Instance))| Link {
        port: Port(port as u16 + 1),
        side: *side,
        instance: Some(*instance),
        state: LinkState::Up,
    };
    links.iter().enumerate().map(link).collect()
}

fn switch(number: u32) -> Instance {
    Instance { address: Address::Switch(SwitchId(number)), incarnation: Incarnation(0) }
}

/// Returns the rack switch above a host.
fn rack(hosts: u32, half: u32, host: u32) -> Instance {
    switch(hosts + host / half)
}

/// Returns the rack switch above the controller's host: that of the host beside it.
fn rack_of(fabric: &Fabric, controller: ProcessId) -> Instance {
    let beside = Instance { address: Address::Switch(SwitchId(controller.0 - 1)), ..switch(0) };
    let upper = fabric[&beside].iter().find(|(side, _)| *side == Side::Upper);
    upper.expect("every host has a rack switch").1
}

/// Builds a fat tree: processes behind virtual switches, rack switches, aggregation switches and
/// cores, in this order of switch numbers. The last host belongs to the controller.
fn fat_tree(ports: u32) -> Fabric {
    let half = ports / 2;
    let hosts = ports * half * half;
    let (racks, aggregates) = (hosts, hosts + ports * half);
    let cores = aggregates + ports * half;
    let mut fabric = Fabric::new();
    let mut link = |lower: Instance, upper: Instance| {
        fabric.entry(lower).or_default().push((Side::Upper, upper));
        fabric.entry(upper).or_default().push((Side::Lower, lower));
    };
    for host in 0..hosts - 1 {
        let process = Address::Process(ProcessId(host));
        link(Instance { address: process, incarnation: Incarnation(1) }, switch(host));
        link(switch(host), switch(racks + host / half));
    }
    for pod in 0..ports {
        for (rack, aggregate) in (0..half).flat_map(|rack| (0..half).map(move |at| (rack, at))) {
            link(switch(racks + pod * half + rack), switch(aggregates + pod * half + aggregate));
        }
        for (aggregate, core) in (0..half).flat_map(|at| (0..half).map(move |core| (at, core))) {
            let upper = switch(cores + aggregate * half + core);
            link(switch(aggregates + pod * half + aggregate), upper);
        }
    }
    fabric
}
