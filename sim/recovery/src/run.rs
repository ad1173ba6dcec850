//! One run: a fabric starts, one component fails, and every commit barrier passes the time of the
//! failure.

use std::collections::BTreeSet;

use onepipe_base::{HostId, Port, SwitchId};
use onepipe_controller::Recovery;
use onepipe_sim_engine::{Instant, MICROSECOND, Random};
use onepipe_sim_network::{Config, Fault, LinkConfig, Network, NodeId, Stats};
use onepipe_topology::{End, Node as Vertex, Shape, ShapeError, Topology};
use onepipe_wire::{Opcode, parse_header};

use crate::Calibration;
use crate::node::Node;
use crate::observer::{ControllerWork, Observer, true_timestamp};

/// The component that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Component {
    /// A process; its host keeps running.
    Process,
    /// A host with its process.
    Host,
    /// A top-of-rack switch, and with it all processes of the rack.
    Rack,
    /// A link between the two highest tiers. All processes stay connected.
    CoreLink,
    /// A switch of the highest tier. All processes stay connected.
    CoreSwitch,
}

impl Component {
    /// All components.
    pub const ALL: [Self; 5] =
        [Self::Process, Self::Host, Self::Rack, Self::CoreLink, Self::CoreSwitch];

    /// Returns the name used in reports.
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

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Switches and hosts. The last host belongs to the controller.
    pub shape: Shape,
    /// Number of hosts with a process, spread evenly over the racks that are used.
    pub processes: u32,
    /// The component that fails.
    pub component: Component,
    /// How failure notifications are distributed.
    pub recovery: Recovery,
    /// Seed of the clocks, of the phase of the failure among the beacons, and of the traffic.
    pub seed: u64,
    /// Number of processes that scatter reliably to two others every 10 us. Default 0: figure 10
    /// shows barriers only, and retransmissions of lost messages would add to their stalls.
    pub senders: u32,
    /// Costs and settings.
    pub calibration: Calibration,
    /// Minimum time before the failure, in us.
    pub warm_up_us: u64,
    /// Whether the controller has just taken over and loads the members from the store. In a large
    /// fabric that has just started, the announcements of all nodes at once would take it
    /// milliseconds.
    pub starts_from_store: bool,
}

impl Options {
    /// Returns the options for `hosts` of the paper's 32 hosts; if all 32 are used, the
    /// controller's host runs no process.
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
            warm_up_us: 2_000,
            starts_from_store: false,
        }
    }

    /// Returns the options for every host of `shape` except the controller's.
    pub fn full(shape: Shape, component: Component, recovery: Recovery, seed: u64) -> Self {
        // By then the announcements of all starting nodes have crossed the network.
        let (processes, warm_up_us) = (shape.host_count() - 1, 100);
        Self {
            shape,
            processes,
            warm_up_us,
            starts_from_store: true,
            ..Self::testbed(2, component, recovery, seed)
        }
    }
}

/// Why a run has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The topology is invalid.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// No process would be left, or the component does not exist.
    #[error(
        "cannot fail a {1} with {0} hosts: no process would be left, or the fabric has none to fail"
    )]
    Component(u32, &'static str),
    /// The fabric did not become ready.
    #[error(
        "the fabric did not become ready: {connected} of {nodes} nodes connected after {us} us"
    )]
    Start {
        /// Nodes that had a path to the controller.
        connected: usize,
        /// Total number of nodes.
        nodes: usize,
        /// Virtual time in us.
        us: u64,
    },
    /// Barriers did not recover in time.
    #[error("{waiting} barriers were still stalled {us} us after the failure")]
    Stuck {
        /// Number of stalled barriers.
        waiting: usize,
        /// Virtual time since the failure in us.
        us: u64,
    },
}

/// Results of a run. Times in us. The four phases `detection_us`, `determination_us`,
/// `broadcast_us` and `resume_us` follow each other.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Number of failed processes.
    pub failed: usize,
    /// Number of correct processes.
    pub correct: usize,
    /// Stall of the barrier of each correct process, ascending.
    pub stalls_us: Vec<f64>,
    /// Time from the failure until the last barrier had passed the time of the failure.
    pub last_us: f64,
    /// Time from the failure until a neighbour detected it.
    pub detection_us: f64,
    /// Time from the detection until the failure was decided and recorded; the first one, if one
    /// failure causes another.
    pub determination_us: f64,
    /// Time from the decision until every correct process was notified of all failures and had
    /// completed its callbacks.
    pub broadcast_us: f64,
    /// Time from the last completion until the last barrier had passed the time of the failure.
    pub resume_us: f64,
    /// Frames with new information, sent or received by the controller since the failure. Each
    /// costs half of [`Calibration::contact_ns`].
    pub contacts: u64,
    /// Work of the controller since the failure.
    pub controller_work: ControllerWork,
    /// Duration of the run in virtual time.
    pub simulated_us: f64,
    /// Counters of the network.
    pub network: Stats,
}

impl Measured {
    /// Returns the mean stall, as in figure 10 of the paper.
    pub fn stall_us(&self) -> f64 {
        self.stalls_us.iter().sum::<f64>() / self.stalls_us.len().max(1) as f64
    }
}

/// Time without announcements before the failure, in us.
const QUIET_US: u64 = 50;
/// Limit on the time until the fabric is ready, in us.
const START_US_MAX: u64 = 20_000;
/// With `starts_from_store` the controller starts this long after all other nodes, in us, and the
/// announcements of all nodes until then are dropped, as if the fabric had been running for long.
/// Otherwise they would wait in the queues before the controller's host for 0.3 ms (8,192 hosts) to
/// 1 ms (35,152 hosts), and a full queue could drop the last report of a link or the location of
/// the controller.
const TAKES_OVER_US: u64 = 60;
/// Step of the simulation, in us.
const STEP_US: u64 = 5;

/// Simulates one failure. Calls `progress` with the virtual time in us now and then.
///
/// # Errors
/// If the component cannot fail, or the barriers do not recover.
pub fn run(options: &Options, mut progress: impl FnMut(u64)) -> Result<Measured, Failure> {
    let topology = Topology::new(options.shape, 1)?;
    let (members, victims) = choose_members(&topology, options)?;
    let calibration = options.calibration.clone();
    // Announcements get the lower class: those of 70,000 starting nodes would delay beacons until
    // links time out.
    let classes = if options.starts_from_store { 2 } else { 1 };
    let config = Config {
        host_link: LinkConfig { classes, ..calibration.host_link },
        switch_link: LinkConfig { classes, ..calibration.switch_link },
        clocks: calibration.clocks,
        clock_tail: calibration.clock_tail,
        class: |frame| {
            u8::from(parse_header(frame).is_ok_and(|(_, opcode)| opcode == Opcode::Announce))
        },
        ..Config::default()
    };
    let origin = config.sync_origin;
    let participants = count_participants(&topology, &members);
    let mut observer = Observer::new(
        topology.clone(),
        calibration.clone(),
        options.recovery,
        members.clone(),
        options.senders,
        options.seed,
    );
    observer.starts_from_store = options.starts_from_store;
    let mut network = Network::new(topology.clone(), config, options.seed, observer);
    if options.starts_from_store {
        // The controller takes over a fabric that has started without it.
        let controller = network.application.controller;
        network.inject(Fault::Crash(controller));
        network.run_for(TAKES_OVER_US * MICROSECOND);
        for switch in topology.hosts()..topology.hosts() + topology.switches() {
            network.command(NodeId(switch), |_, machine, _| {
                if let Node::Switch(filtered) = machine {
                    filtered.drops_announcements = false;
                }
            });
        }
        network.inject(Fault::Restart(controller));
    }
    wait_until_up(&mut network, options.warm_up_us, participants, &mut progress)?;
    // The failure happens at a random phase of the beacon interval.
    let mut random = Random::named(options.seed, "failure", 0);
    network.run_for(random.below(calibration.beacon_interval_ns * 1_000));

    let failed_at = network.now();
    let is_correct = |host: &usize| members[*host] && !victims.contains(host);
    let correct: Vec<usize> = (0..members.len()).filter(is_correct).collect();
    let observer = &mut network.application;
    for host in &correct {
        observer.stalls[*host].begin(failed_at, true_timestamp(origin, failed_at));
    }
    (observer.waiting, observer.has_failed) = (correct.len(), true);
    inject(&mut network, &topology, options.component, &victims);
    // Generous: 1Pipe reports at most 15 us per host (section 7.2).
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

/// Returns which hosts run a process, and which of them fail.
///
/// Every rack that is used gets the same number of processes, if possible. The last host belongs to
/// the controller and runs no process. A rack without a live process does not take part, so
///
/// - the controller's rack is used first;
/// - where a single host or process fails, only as many racks are used that each has two processes.
fn choose_members(
    topology: &Topology,
    options: &Options,
) -> Result<(Vec<bool>, Vec<usize>), Failure> {
    let hosts = topology.hosts();
    let is_rack = |id: &u32| topology.tier(Vertex::Switch(SwitchId(*id))) == 2;
    let racks = (0..topology.switches()).filter(is_rack).count() as u32;
    let per_rack = hosts / racks;
    let fails_one = matches!(options.component, Component::Process | Component::Host);
    let racks_max = if fails_one { options.processes / 2 } else { options.processes };
    let used = racks_max.clamp(1, racks);
    let used_racks: Vec<u32> =
        std::iter::once(racks - 1).chain(0..racks - 1).take(used as usize).collect();
    let candidates =
        (0..per_rack).flat_map(|slot| used_racks.iter().map(move |rack| rack * per_rack + slot));
    let mut members = vec![false; hosts as usize];
    for host in candidates.filter(|host| *host + 1 < hosts).take(options.processes as usize) {
        members[host as usize] = true;
    }
    // The victims are in the second rack, if there is one: the first holds the controller.
    let first_host = used_racks[used_racks.len().min(2) - 1] * per_rack;
    let in_rack =
        (first_host..first_host + per_rack).map(|host| host as usize).filter(|host| members[*host]);
    let victims: Vec<usize> = match options.component {
        Component::Process | Component::Host => in_rack.take(1).collect(),
        Component::Rack => in_rack.collect(),
        Component::CoreLink | Component::CoreSwitch => Vec::new(),
    };
    let survivors = members.iter().filter(|is_member| **is_member).count() - victims.len();
    let can_fail = match options.component {
        Component::Process | Component::Host => survivors > 0,
        Component::Rack => survivors > 0 && used > 1,
        Component::CoreLink | Component::CoreSwitch => core(topology).is_some(),
    };
    match can_fail {
        true => Ok((members, victims)),
        false => Err(Failure::Component(hosts, options.component.name())),
    }
}

/// Returns the number of participating nodes in the controller's graph: the processes, the virtual
/// switches of their hosts, and all switches above these.
fn count_participants(topology: &Topology, members: &[bool]) -> usize {
    let hosts = (0u32..).zip(members).filter(|(_, is_member)| **is_member);
    let mut frontier: Vec<Vertex> = hosts.map(|(host, _)| Vertex::Host(HostId(host))).collect();
    let mut reached: BTreeSet<Vertex> = frontier.iter().copied().collect();
    let processes = frontier.len();
    while let Some(node) = frontier.pop() {
        let ports = topology.ports(node);
        let upper = (ports.lower..ports.total()).map(Port);
        for end in upper.filter_map(|port| topology.peer(End { node, port })) {
            if reached.insert(end.node) {
                frontier.push(end.node);
            }
        }
    }
    processes + reached.len()
}

/// Returns the first switch of the highest tier, if that tier has several.
fn core(topology: &Topology) -> Option<SwitchId> {
    let tier = |id: u32| topology.tier(Vertex::Switch(SwitchId(id)));
    let highest = (0..topology.switches()).map(tier).max()?;
    let mut cores = (0..topology.switches()).filter(|id| tier(*id) == highest);
    let first = cores.next()?;
    cores.next().map(|_| SwitchId(first))
}

/// Runs until all participants are connected, all barriers move, and no announcements arrive.
fn wait_until_up(
    network: &mut Network<Node, Observer>,
    warm_up_us: u64,
    participants: usize,
    progress: &mut impl FnMut(u64),
) -> Result<(), Failure> {
    let (mut announcements, mut quiet_since) = (0, 0);
    loop {
        network.run_for(STEP_US * MICROSECOND);
        let us = network.now().as_ps() / MICROSECOND;
        let observer = &network.application;
        if observer.announcements.get() != announcements {
            (announcements, quiet_since) = (observer.announcements.get(), us);
        }
        let mut members =
            observer.stalls.iter().zip(&observer.members).filter(|(_, is_member)| **is_member);
        if us >= warm_up_us
            && observer.connected >= participants
            && us - quiet_since >= QUIET_US
            && members.all(|(stall, _)| stall.has_barrier())
        {
            return Ok(());
        }
        if us > START_US_MAX {
            return Err(Failure::Start { connected: observer.connected, nodes: participants, us });
        }
        progress(us);
    }
}

/// Lets the component fail.
fn inject(
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
        Component::Host => network.inject(Fault::Crash(victim)),
        Component::Rack => {
            let nic = End { node: Vertex::Host(HostId(victim.0)), port: topology.network_card() };
            if let Some(End { node, .. }) = topology.peer(nic) {
                network.inject(Fault::Crash(network.node(node)));
            }
        }
        Component::CoreSwitch | Component::CoreLink => {
            let Some(core) = core(topology) else { return };
            if component == Component::CoreSwitch {
                return network.inject(Fault::Crash(NodeId(hosts + core.0)));
            }
            let upper = End { node: Vertex::Switch(core), port: Port(0) };
            let ends = [Some(upper), topology.peer(upper)];
            for end in ends.into_iter().flatten() {
                let node = network.node(end.node);
                if let Some(link) = network.link(node, end.port) {
                    network.inject(Fault::Cut(link));
                }
            }
        }
    }
}

/// Computes the results of a run in which all barriers have recovered.
fn measure(
    network: &Network<Node, Observer>,
    failed_at: Instant,
    correct: &[usize],
    failed: usize,
) -> Measured {
    let us = |ps: u64| ps as f64 / MICROSECOND as f64;
    let observer = &network.application;
    let all: Vec<(u64, u64)> =
        correct.iter().filter_map(|host| observer.stalls[*host].measured()).collect();
    let mut stalls_us: Vec<f64> = all.iter().map(|(stall, _)| us(*stall)).collect();
    stalls_us.sort_by(f64::total_cmp);
    let last = all.iter().map(|(_, passed)| *passed).max().unwrap_or(0);
    let milestones = &observer.milestones;
    let detected = milestones.detected.unwrap_or(failed_at);
    let decided = milestones.decided.or(milestones.resuming).unwrap_or(detected);
    let noticed = milestones.noticed.unwrap_or(decided).max(decided);
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
        controller_work: observer.controller_work,
        simulated_us: us(network.now().as_ps()),
        network: *network.stats(),
    }
}
