//! One failure, from a calm fabric to the last barrier that has passed it.

use std::collections::BTreeSet;

use onepipe_base::{HostId, Port, SwitchId};
use onepipe_controller::Recovery;
use onepipe_sim_engine::{Instant, MICROSECOND, Random};
use onepipe_sim_network::{Config, Fault, LinkConfig, Network, NodeId, Stats};
use onepipe_topology::{End, Node as Vertex, Shape, ShapeError, Topology};
use onepipe_wire::{Opcode, parse_header};

use crate::Calibration;
use crate::node::Node;
use crate::observer::{Observer, Thought, moment};

/// What fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Component {
    /// A process; its host goes on.
    Process,
    /// A host with its process.
    Host,
    /// A top-of-rack switch, and with it all processes of the rack.
    Rack,
    /// A link between the two highest tiers. Nobody is cut off.
    CoreLink,
    /// A switch of the highest tier. Nobody is cut off.
    CoreSwitch,
}

impl Component {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Process, Self::Host, Self::Rack, Self::CoreLink, Self::CoreSwitch];

    /// As reports name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Host => "host",
            Self::Rack => "tor",
            Self::CoreLink => "core-link",
            Self::CoreSwitch => "core-switch",
        }
    }
}

/// What to simulate.
#[derive(Clone, Debug)]
pub struct Options {
    /// The switches and hosts. The last host is the controller's.
    pub shape: Shape,
    /// How many hosts run a process, spread evenly over the racks.
    pub processes: u32,
    /// What fails.
    pub component: Component,
    /// How the news gets around.
    pub recovery: Recovery,
    /// Clocks, the phase of the failure among the beacons, and who sends to whom.
    pub seed: u64,
    /// So many of the processes scatter reliably to two others, every 10 us. Default 0: figure 10
    /// is about barriers, and what was lost on its way adds its retransmission time to them.
    pub senders: u32,
    /// What everything costs.
    pub calibration: Calibration,
    /// How long the fabric runs at least before something fails, in us.
    pub calm_us: u64,
    /// The controller has just taken over: it knows from the store who takes part. In a large
    /// fabric that has just started, the announcements of all at once would take it milliseconds.
    pub is_known: bool,
}

impl Options {
    /// So many of the 32 hosts of the paper's testbed; of all 32 the controller's runs no process.
    pub fn testbed(hosts: u32, component: Component, recovery: Recovery, seed: u64) -> Self {
        let shape = Shape::testbed();
        Self {
            shape,
            processes: hosts.min(shape.host_count() - 1),
            component,
            recovery,
            seed,
            senders: 0,
            calibration: Calibration::paper(),
            calm_us: 2_000,
            is_known: false,
        }
    }

    /// Every host of `shape`, but for the controller's.
    pub fn full(shape: Shape, component: Component, recovery: Recovery, seed: u64) -> Self {
        // What all have announced at their start is through the network then.
        let (processes, calm_us) = (shape.host_count() - 1, 100);
        Self {
            shape,
            processes,
            calm_us,
            is_known: true,
            ..Self::testbed(2, component, recovery, seed)
        }
    }
}

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The fabric cannot be laid out.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// Nothing would be left, or nothing is there that could fail.
    #[error("{0} hosts have no {1} that can fail")]
    Component(u32, &'static str),
    /// The fabric did not come up.
    #[error("{connected} of {nodes} nodes were connected after {us} us")]
    Start {
        /// Nodes that had a path to the controller.
        connected: usize,
        /// Nodes in all.
        nodes: usize,
        /// Virtual time.
        us: u64,
    },
    /// Barriers still stood after so long.
    #[error("{waiting} barriers still stood {us} us after the failure")]
    Stuck {
        /// How many.
        waiting: usize,
        /// Virtual time since the failure.
        us: u64,
    },
}

/// What was measured. Times in us.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Processes that have failed.
    pub failed: usize,
    /// Processes that have not.
    pub correct: usize,
    /// For how long the barrier of each correct process stood still, ascending.
    pub stalls_us: Vec<f64>,
    /// From the failure until the last barrier had passed it.
    pub last_us: f64,
    /// From the failure until a neighbour missed what had failed.
    pub detection_us: f64,
    /// From there until it was decided and recorded: the first, where one failure brings another.
    pub determination_us: f64,
    /// From there until every correct process had been told everything, and had come back from its
    /// callbacks.
    pub broadcast_us: f64,
    /// From there until the last barrier had passed.
    pub resume_us: f64,
    /// Frames that cost the controller time.
    pub contacts: u64,
    /// What the controller has thought since the failure.
    pub thought: Thought,
    /// Virtual time that was simulated, in us.
    pub simulated_us: f64,
    /// What the network has counted.
    pub network: Stats,
}

impl Measured {
    /// The mean stall: what the paper's figure 10 shows.
    pub fn stall_us(&self) -> f64 {
        self.stalls_us.iter().sum::<f64>() / self.stalls_us.len().max(1) as f64
    }
}

/// How long announcements must have been quiet before something fails, in us.
const QUIET_US: u64 = 50;
/// No fabric takes longer to come up, in us.
const START_US_MAX: u64 = 20_000;
/// A controller that knows from the store who takes part starts so long after everybody else, in
/// us, and what they have announced until then is lost: the fabric began long ago. On the way to
/// one host it would stand in queues for 0.3 ms (8,192 hosts) to 1 ms (35,152), and where these
/// overflow the last that is said of a link would be lost, or where the controller sits.
const TAKES_OVER_US: u64 = 60;
/// A step of the simulation, in us.
const STEP_US: u64 = 5;

/// Simulates one failure. `progress` hears the virtual time in us now and then.
///
/// # Errors
/// When there is nothing to fail, or barriers do not go on.
pub fn run(options: &Options, mut progress: impl FnMut(u64)) -> Result<Measured, Failure> {
    let topology = Topology::new(options.shape, 1)?;
    let (members, victims) = cast(&topology, options)?;
    let calibration = options.calibration.clone();
    // What 70,000 nodes announce when they all start would delay beacons until links count as dead.
    let classes = if options.is_known { 2 } else { 1 };
    let link = LinkConfig { classes, ..calibration.link };
    let config = Config {
        host_link: link,
        switch_link: link,
        clocks: calibration.clocks,
        class: |frame| {
            u8::from(parse_header(frame).is_ok_and(|(_, opcode)| opcode == Opcode::Announce))
        },
        ..Config::default()
    };
    let origin = config.sync_origin;
    let nodes = nodes(&topology, &members);
    let mut observer = Observer::new(
        topology.clone(),
        calibration.clone(),
        options.recovery,
        members.clone(),
        options.senders,
        options.seed,
    );
    observer.is_known = options.is_known;
    let mut network = Network::new(topology.clone(), config, options.seed, observer);
    if options.is_known {
        let controller = network.application.controller;
        network.inflict(Fault::Crash(controller));
        network.run_for(TAKES_OVER_US * MICROSECOND);
        for switch in topology.hosts()..topology.hosts() + topology.switches() {
            network.command(NodeId(switch), |_, machine, _| {
                if let Node::Switch(_, loses_announcements) = machine {
                    *loses_announcements = false;
                }
            });
        }
        network.inflict(Fault::Restart(controller));
    }
    come_up(&mut network, options.calm_us, nodes, &mut progress)?;
    let mut random = Random::named(options.seed, "failure", 0);
    network.run_for(random.below(calibration.beacon_interval_ns * 1_000));

    let failed_at = network.now();
    let is_correct = |host: &usize| members[*host] && !victims.contains(host);
    let correct: Vec<usize> = (0..members.len()).filter(is_correct).collect();
    let observer = &mut network.application;
    for host in &correct {
        observer.gauges[*host].begin(failed_at, moment(origin, failed_at));
    }
    (observer.waiting, observer.has_failed) = (correct.len(), true);
    inflict(&mut network, &topology, options.component, &victims);
    let limit_us = 20_000 + 50 * u64::from(topology.hosts());
    while network.application.waiting > 0 {
        network.run_for(STEP_US * MICROSECOND);
        let us = network.now().since(failed_at) / MICROSECOND;
        if us > limit_us {
            return Err(Failure::Stuck { waiting: network.application.waiting, us });
        }
        progress(network.now().as_ps() / MICROSECOND);
    }
    Ok(measure(&network, failed_at, &correct, victims.len()))
}

/// Which hosts run a process, and which of them fail.
///
/// As many in each rack, never the last host: it is the controller's. Its rack is the first to be
/// used, since a rack without a process takes no part; and where one host is to fail, two share a
/// rack if that can be, for the same reason.
fn cast(topology: &Topology, options: &Options) -> Result<(Vec<bool>, Vec<usize>), Failure> {
    let hosts = topology.hosts();
    let is_rack = |id: &u32| topology.tier(Vertex::Switch(SwitchId(*id))) == 2;
    let racks = (0..topology.switches()).filter(is_rack).count() as u32;
    let per_rack = hosts / racks;
    let is_lone = matches!(options.component, Component::Process | Component::Host);
    let wanted = if is_lone { options.processes / 2 } else { options.processes };
    let used = wanted.clamp(1, racks);
    let racks: Vec<u32> =
        std::iter::once(racks - 1).chain(0..racks - 1).take(used as usize).collect();
    let places =
        (0..per_rack).flat_map(|slot| racks.iter().map(move |rack| rack * per_rack + slot));
    let mut members = vec![false; hosts as usize];
    for host in places.filter(|host| *host + 1 < hosts).take(options.processes as usize) {
        members[host as usize] = true;
    }
    let rack = racks[racks.len().min(2) - 1] * per_rack;
    let in_rack = (rack..rack + per_rack).map(|host| host as usize).filter(|host| members[*host]);
    let victims: Vec<usize> = match options.component {
        Component::Process | Component::Host => in_rack.take(1).collect(),
        Component::Rack => in_rack.collect(),
        Component::CoreLink | Component::CoreSwitch => Vec::new(),
    };
    let left = members.iter().filter(|is_member| **is_member).count() - victims.len();
    let can_fail = match options.component {
        Component::Process | Component::Host => left > 0,
        Component::Rack => left > 0 && used > 1,
        Component::CoreLink | Component::CoreSwitch => core(topology).is_some(),
    };
    match can_fail {
        true => Ok((members, victims)),
        false => Err(Failure::Component(hosts, options.component.name())),
    }
}

/// How many nodes take part: hosts with their virtual switches, and switches with a process below.
fn nodes(topology: &Topology, members: &[bool]) -> usize {
    let hosts = (0u32..).zip(members).filter(|(_, is_member)| **is_member);
    let mut climbing: Vec<Vertex> = hosts.map(|(host, _)| Vertex::Host(HostId(host))).collect();
    let mut reached: BTreeSet<Vertex> = climbing.iter().copied().collect();
    let hosts = climbing.len();
    while let Some(node) = climbing.pop() {
        let ports = topology.ports(node);
        let upper = (ports.lower..ports.total()).map(Port);
        for end in upper.filter_map(|port| topology.peer(End { node, port })) {
            if reached.insert(end.node) {
                climbing.push(end.node);
            }
        }
    }
    hosts + reached.len()
}

/// The first switch of the highest tier, where there are several.
fn core(topology: &Topology) -> Option<SwitchId> {
    let tier = |id: u32| topology.tier(Vertex::Switch(SwitchId(id)));
    let highest = (0..topology.switches()).map(tier).max()?;
    let mut cores = (0..topology.switches()).filter(|id| tier(*id) == highest);
    let first = cores.next()?;
    cores.next().map(|_| SwitchId(first))
}

/// Until all are connected, all barriers move, and announcements are quiet.
fn come_up(
    network: &mut Network<Node, Observer>,
    calm_us: u64,
    nodes: usize,
    progress: &mut impl FnMut(u64),
) -> Result<(), Failure> {
    let (mut heard, mut quiet_since) = (0, 0);
    loop {
        network.run_for(STEP_US * MICROSECOND);
        let us = network.now().as_ps() / MICROSECOND;
        let observer = &network.application;
        if observer.announcements.get() != heard {
            (heard, quiet_since) = (observer.announcements.get(), us);
        }
        let mut members = observer.gauges.iter().zip(&observer.members).filter(|(_, is)| **is);
        if us >= calm_us
            && observer.connected >= nodes
            && us - quiet_since >= QUIET_US
            && members.all(|(gauge, _)| gauge.has_barrier())
        {
            return Ok(());
        }
        if us > START_US_MAX {
            return Err(Failure::Start { connected: observer.connected, nodes, us });
        }
        progress(us);
    }
}

fn inflict(
    network: &mut Network<Node, Observer>,
    topology: &Topology,
    component: Component,
    victims: &[usize],
) {
    let hosts = topology.hosts();
    let victim = NodeId(victims.first().map_or(0, |host| *host as u32));
    match component {
        Component::Process => network.command(victim, |_, machine, _| {
            if let Node::Host(host) = machine {
                host.stop(Port(0));
            }
        }),
        Component::Host => network.inflict(Fault::Crash(victim)),
        Component::Rack => {
            let card = End { node: Vertex::Host(HostId(victim.0)), port: topology.network_card() };
            if let Some(End { node, .. }) = topology.peer(card) {
                network.inflict(Fault::Crash(network.node(node)));
            }
        }
        Component::CoreSwitch | Component::CoreLink => {
            let Some(core) = core(topology) else { return };
            if component == Component::CoreSwitch {
                return network.inflict(Fault::Crash(NodeId(hosts + core.0)));
            }
            let upper = End { node: Vertex::Switch(core), port: Port(0) };
            let ends = [Some(upper), topology.peer(upper)];
            for end in ends.into_iter().flatten() {
                let node = network.node(end.node);
                if let Some(link) = network.link(node, end.port) {
                    network.inflict(Fault::Cut(link));
                }
            }
        }
    }
}

fn measure(
    network: &Network<Node, Observer>,
    failed_at: Instant,
    correct: &[usize],
    failed: usize,
) -> Measured {
    let us = |ps: u64| ps as f64 / MICROSECOND as f64;
    let observer = &network.application;
    let all: Vec<(u64, u64)> =
        correct.iter().filter_map(|host| observer.gauges[*host].measured()).collect();
    let mut stalls_us: Vec<f64> = all.iter().map(|(stall, _)| us(*stall)).collect();
    stalls_us.sort_by(f64::total_cmp);
    let last = all.iter().map(|(_, passed)| *passed).max().unwrap_or(0);
    let moments = &observer.moments;
    let detected = moments.detected.unwrap_or(failed_at);
    let decided = moments.decided.or(moments.resuming).unwrap_or(detected);
    let noticed = moments.noticed.unwrap_or(decided).max(decided);
    Measured {
        failed,
        correct: correct.len(),
        stalls_us,
        last_us: us(last),
        detection_us: us(detected.since(failed_at)),
        determination_us: us(decided.since(detected)),
        broadcast_us: us(noticed.since(decided)),
        resume_us: us(failed_at.after(last).since(noticed)),
        contacts: observer.contacts.get(),
        thought: observer.thought,
        simulated_us: us(network.now().as_ps()),
        network: *network.stats(),
    }
}
