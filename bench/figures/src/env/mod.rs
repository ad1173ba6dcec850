//! One run: a system on the testbed under load, in virtual time.

mod application;
mod background;
mod beacons;
mod disruption;
mod isolation;
mod large;
mod multicast;
mod node;
mod plain;
mod queue_sampler;
mod rack;
mod sequencer_route;
mod table;
mod takeover;
mod threads;
mod transactions;

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use onepipe_rivals::Method;
use onepipe_sim_engine::{Instant, NANOSECOND};
use onepipe_sim_network::{
    Config, Fault, LinkConfig, LinkFaults, LinkId, Network, NodeId, OffChipCpu,
};
use onepipe_sim_traffic::CpuTimes;
use onepipe_topology::{Shape, ShapeError, Topology};
use serde::{Deserialize, Serialize};

use self::application::TestbedApp;
pub use self::background::Background;
pub(crate) use self::background::QUEUE_BYTES;
pub(crate) use self::beacons::beacon_share;
pub use self::disruption::Disruption;
pub use self::isolation::Isolation;
pub use self::large::Large;
pub use self::multicast::{Condition, Multicast, Scheme};
use self::node::Node;
use self::queue_sampler::QueueSampler;
pub use self::rack::{Rack, RackTraffic, Scheduler};
pub use self::table::{Access, Table};
pub use self::takeover::{PrimaryFault, Takeover};
pub use self::threads::Threads;
pub use self::transactions::{Class, InFlight, KeyValue, ReplicaRemoval, Tpcc};
use crate::Calibration;

/// The system under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum System {
    /// 1Pipe, best effort.
    BestEffort,
    /// 1Pipe, reliable.
    Reliable,
    /// Unordered messages.
    Unordered,
    /// A circulating token.
    Token,
    /// Lamport clocks, exchanged at half of a process's message rate.
    Lamport,
    /// A sequencer in the switch with the shortest detour.
    SwitchSequencer,
    /// A sequencer on a host, with all its cores.
    HostSequencer,
}

impl System {
    /// Returns the method of the rival; `None` for 1Pipe.
    pub(crate) fn method(self, members: u32, calibration: &Calibration) -> Option<Method> {
        match self {
            Self::BestEffort | Self::Reliable => None,
            Self::Unordered => Some(Method::Unordered),
            Self::Token => Some(Method::Token),
            Self::Lamport => {
                // Sending the clock to all others takes half of each interval.
                let round_ns = u64::from(members.max(2) - 1) * calibration.message_ns;
                Some(Method::Lamport { interval_ns: 2 * round_ns })
            }
            Self::SwitchSequencer | Self::HostSequencer => Some(Method::Sequencer),
        }
    }
}

/// Where switches aggregate barriers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Form {
    /// In the chip.
    Chip,
    /// On a host that acts as the switch's delegate.
    Host,
}

impl Form {
    /// Returns the cost of running the switches' machines outside the chips.
    fn off_chip_cpu(self, calibration: &Calibration) -> Option<OffChipCpu> {
        let to_cpu_ns = calibration.detour_ns / 2;
        let to_chip_ns = calibration.detour_ns - to_cpu_ns;
        (self == Self::Host).then(|| OffChipCpu {
            to_cpu_ns,
            to_chip_ns,
            receive_ns: 0,
            send_ns: 0,
            backlog_ns_max: 100 * calibration.beacon_ns,
        })
    }
}

/// Traffic of the processes. Every message has 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Traffic {
    /// A message at a fixed interval to the process half-way around the ring of process ids.
    Idle {
        /// Interval between two messages of a process, in ns.
        every_ns: u64,
    },
    /// A message at a fixed interval to all other processes in turn.
    AllToAll {
        /// Interval between two messages of a process, in ns.
        every_ns: u64,
    },
    /// A scattering at a fixed interval: one message to all other processes. Of 1Pipe only.
    Broadcast {
        /// Interval between two scatterings of a process, in ns.
        every_ns: u64,
    },
}

/// Parameters of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// The system under test.
    pub system: System,
    /// Where switches aggregate barriers.
    pub form: Form,
    /// Number of processes: up to 8 in one rack, 16 in two, 32 on one host each, then equally many
    /// on all 32; above 512 one on each host of a fat tree of that size.
    pub processes: u32,
    /// Traffic of the processes.
    pub traffic: Traffic,
    /// Costs of the testbed.
    pub calibration: Calibration,
    /// Loss rate of the links, in parts per billion.
    pub loss_ppb: u32,
    /// Whether only the links that lead to a host lose frames.
    #[serde(default)]
    pub loses_at_hosts: bool,
    /// Minimum probe timeout of our endpoints, in ns.
    #[serde(default = "probe_timeout_ns")]
    pub probe_timeout_ns: u64,
    /// Number of messages in the send buffer of our endpoint above which a process submits none:
    /// those that wait and, of the reliable service, those that are not acknowledged.
    #[serde(default = "buffered_messages")]
    pub buffered_messages: u32,
    /// Number of messages that all processes of a rival together have submitted and not delivered,
    /// at most. `None`: each may have 64 in the queue to one receiver, to the sequencer or for the
    /// token.
    #[serde(default)]
    pub rival_backlog: Option<u32>,
    /// Whether the clocks of Lamport's method travel in frames of their own, each of which costs as
    /// much as a message; otherwise they share the frames of messages.
    #[serde(default)]
    pub has_clock_frames: bool,
    /// Time between two clocks of a process of Lamport's method, in ns. `None`: twice the time that
    /// sending one to each other process takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_interval_ns: Option<u64>,
    /// The threads of a process.
    #[serde(default)]
    pub threads: Threads,
    /// How long the switch of a host holds acknowledgements of the reliable service for others to
    /// the same host, in ns; 0: not at all. Only with [`Form::Chip`].
    #[serde(default = "ack_bundle_ns")]
    pub ack_bundle_ns: u64,
    /// Time before the measurement, in us.
    pub warm_up_us: u64,
    /// Duration of the measurement, in us.
    pub measure_us: u64,
    /// Seed of the run.
    pub seed: u64,
}

/// Returns the endpoint's default, for hosts whose processes may have to wait for a processor.
const fn probe_timeout_ns() -> u64 {
    200_000
}

/// Returns the number of messages that keep a process busy, and make little of its latency.
const fn buffered_messages() -> u32 {
    64
}

/// Returns the hold time of acknowledgements, a few of which then share a frame at full load: a
/// tenth of what a commit takes.
const fn ack_bundle_ns() -> u64 {
    2_000
}

impl Setup {
    /// Creates a run of `system` with `processes` on the paper's testbed, with aggregation in
    /// chips, 300 us of warm-up and 200 us of measurement.
    pub fn new(system: System, processes: u32, traffic: Traffic) -> Self {
        Self {
            system,
            form: Form::Chip,
            processes,
            traffic,
            calibration: Calibration::PAPER,
            loss_ppb: 0,
            loses_at_hosts: false,
            probe_timeout_ns: probe_timeout_ns(),
            buffered_messages: buffered_messages(),
            rival_backlog: None,
            has_clock_frames: false,
            clock_interval_ns: None,
            threads: Threads::Two,
            ack_bundle_ns: ack_bundle_ns(),
            warm_up_us: 300,
            measure_us: 200,
            seed: 1,
        }
    }

    /// Returns the setup with `message_ns` as the CPU time of a message in one thread: of sending,
    /// receiving and acknowledging it.
    pub(crate) fn on_this_machine(&self, message_ns: f64) -> Self {
        let message_ns = message_ns.round().max(1.0) as u64;
        let calibration = Calibration { message_ns, ..self.calibration };
        Self { calibration, threads: Threads::One, ..self.clone() }
    }

    /// Returns the CPU times of a process.
    pub(crate) fn cpu(&self) -> CpuTimes {
        let send_ns = self.calibration.message_ns;
        match self.threads {
            Threads::Two => CpuTimes { send_ns, ..CpuTimes::PAPER },
            Threads::One => CpuTimes { send_ns, send_ack_ns: send_ns, ..CpuTimes::ONE_THREAD },
        }
    }

    /// Returns the CPU times of the host of a sequencer, all of whose cores serve it: for each of
    /// its processes one thread that sends and one that receives.
    pub(crate) fn host_cpu(&self) -> CpuTimes {
        let CpuTimes { send_ns, send_ack_ns, receive_ns, receive_ack_ns } = self.cpu();
        let host_ns = |ns| ns * self.calibration.host_message_ns / send_ns.max(1);
        CpuTimes {
            send_ns: self.calibration.host_message_ns,
            send_ack_ns: host_ns(send_ack_ns),
            receive_ns: host_ns(receive_ns),
            receive_ack_ns: host_ns(receive_ack_ns),
        }
    }

    /// Returns the part of the testbed that is used: one rack, two racks of a pod, or all of it.
    fn shape(&self) -> Result<Shape, ShapeError> {
        match self.processes {
            ..=8 => Shape::star(8),
            9..=16 => Shape::leaf_spine(2, 2, 8),
            17..=512 => Ok(Shape::testbed()),
            processes => fat_tree(processes),
        }
    }

    /// Runs the setup. Returns `latency_mean_us`, `latency_p5_us`, `latency_p50_us` and
    /// `latency_p95_us` from submission to delivery, `throughput_mps` (million messages delivered
    /// per second and process), `failed_share` (of the messages with an outcome), `hops` (frames
    /// over links) and `virtual_us` (duration of the run).
    ///
    /// # Errors
    /// If the processes do not fit, nothing was delivered, or the order was violated.
    pub fn run(&self) -> Result<BTreeMap<String, f64>> {
        self.run_on(self.shape()?, self.calibration.network(), None)
    }

    /// Runs the setup with background flows on the whole testbed. Returns, in addition,
    /// `flows_gbps`, the throughput of the flows per host; `frames_overflowed`; and for each pair
    /// of tiers `queue_1_2_us` and so on, the mean of the longest queue of all such links, which is
    /// what a barrier waits for.
    ///
    /// # Errors
    /// As [`Setup::run`].
    pub fn run_beside(&self, background: Background) -> Result<BTreeMap<String, f64>> {
        let (links, bits_per_s) = background.bundle();
        let shape = Shape::testbed_in_bundles_of(links)?;
        let Background { queue_bytes, mark_packets, .. } = background;
        let network = self.calibration.shared_network(bits_per_s, queue_bytes, mark_packets);
        let (classes, class) = background.classes();
        let network = Config {
            host_link: LinkConfig { classes, ..network.host_link },
            switch_link: LinkConfig { classes, ..network.switch_link },
            class,
            ..network
        };
        self.run_on(shape, network, Some(background))
    }

    fn run_on(
        &self,
        shape: Shape,
        network: Config,
        background: Option<Background>,
    ) -> Result<BTreeMap<String, f64>> {
        let hosts = shape.host_count();
        let per_host = self.processes.div_ceil(hosts).max(1);
        ensure!(
            self.processes >= 2 && (per_host == 1 || self.processes == per_host * hosts),
            "{} processes do not fit evenly on {hosts} hosts",
            self.processes
        );
        let topology = Topology::new(shape, per_host as u16)?;
        let app = TestbedApp::new(self.clone(), topology.clone(), background)?;
        let rates_bits_per_s =
            (network.host_link.rate_bits_per_s, network.switch_link.rate_bits_per_s);
        let off_chip_cpu = self.form.off_chip_cpu(&self.calibration);
        // A large fabric exceeds the cache, and lookahead windows keep one node's state there. They
        // are allowed because the application sends the same traffic whatever happens elsewhere.
        let uses_lookahead = self.processes > 512;
        let network = Config { off_chip_cpu, uses_lookahead, ..network };
        let mut network = Network::new(topology, network, self.seed, app);
        if self.loss_ppb > 0 {
            let faults = LinkFaults { loss_ppb: self.loss_ppb, ..LinkFaults::default() };
            let loses = |to: NodeId| to.0 < hosts || !self.loses_at_hosts;
            let links = network.links().filter(|(.., to)| loses(*to)).map(|(id, ..)| id);
            let links: Vec<LinkId> = links.collect();
            links.into_iter().for_each(|link| network.inject(Fault::SetLinkFaults(link, faults)));
        }
        network.run_for(self.warm_up_us * 1_000 * NANOSECOND);
        network.application.begin();
        let before = flows_bytes(&network);
        let queue_sampler =
            background.is_some().then(|| QueueSampler::new(&network, rates_bits_per_s));
        let mut queue_sampler = queue_sampler.unwrap_or_default();
        let end = network.now().after(self.measure_us * 1_000 * NANOSECOND);
        while background.is_some() && network.now().after(QueueSampler::EVERY_PS) < end {
            network.run_for(QueueSampler::EVERY_PS);
            queue_sampler.sample(&network);
        }
        network.run_until(end);
        let (now, hops) = (network.now(), network.stats().hops);
        let virtual_ns = now.since(Instant::START) / NANOSECOND;
        let mut values = network.application.finish(virtual_ns, hops)?;
        if background.is_some() {
            let bytes = (flows_bytes(&network) - before) as f64 / f64::from(hosts);
            values.insert("flows_gbps".into(), bytes * 8.0 / (self.measure_us as f64 * 1e3));
            values.extend(queue_sampler.longest_us());
            values.insert("frames_overflowed".into(), network.stats().drops.queue_full as f64);
        }
        Ok(values)
    }
}

/// Returns the fat tree with the number of hosts nearest to `hosts`.
pub(crate) fn fat_tree(hosts: u32) -> Result<Shape, ShapeError> {
    Shape::fat_tree((4.0 * f64::from(hosts)).cbrt().round() as u32)
}

/// Returns the bytes that the flows of all hosts have received.
fn flows_bytes(network: &Network<Node, TestbedApp>) -> u64 {
    let hosts = (0..network.topology().hosts()).filter_map(|host| network.machine(NodeId(host)));
    hosts.map(Node::flows_bytes).sum()
}
