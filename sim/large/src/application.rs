//! The application: builds the nodes, submits scatterings, and records what is reported.

use std::collections::{BTreeMap, VecDeque};

use onepipe_base::{Controllers, HostId, Incarnation, Machine, ProcessId, ScatteringId, SwitchId};
use onepipe_controller::{Controller, Epoch, RecordId};
use onepipe_endpoint::{Message, SendFailed, Service};
use onepipe_large::{Config, Event, LargeEndpoint, SendError};
use onepipe_node::{Host, HostEvent};
use onepipe_sim_engine::{Instant, NANOSECOND};
use onepipe_sim_network::{Application, FabricEvent, LinkId, NodeContext, NodeId};
use onepipe_switch::Switch;
use onepipe_topology::{Node as Vertex, Topology};

use crate::node::{Node, process, process_mut};
use crate::setup::Setup;

/// Alarm tokens: a probe, the store, or (from `ALARM_FIRST` on) a scattering.
const ALARM_PROBE: u32 = 0;
const ALARM_STORE: u32 = 1;
const ALARM_FIRST: u32 = 2;
/// Latency of the store, in ns.
const STORE_LATENCY_NS: u64 = 1_000;
/// Retry interval of a scattering that does not fit the send buffer, in ns.
const RETRY_NS: u64 = 10_000;
/// Tags of probes start here; tags of scatterings lie below.
const PROBES: u64 = 1 << 32;

/// A message as delivered at a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The service that carried it.
    pub service: Service,
    /// The timestamp of its scattering, in ns.
    pub timestamp: u64,
    /// The sender.
    pub from: u32,
    /// Index in its scattering.
    pub index: u16,
    /// Index of the scattering in the setup; `None` for a probe.
    pub scattering: Option<usize>,
    /// Time of delivery, in ns.
    pub at_ns: u64,
    /// Latency since submission, in ns.
    pub after_ns: u64,
}

/// Results of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// By process: deliveries, in order.
    pub delivered: Vec<Vec<Received>>,
    /// By process: failures reported to it, with the index of the scattering.
    pub failed: Vec<Vec<(usize, SendFailed)>>,
    /// By scattering: whether it was accepted.
    pub is_accepted: Vec<bool>,
    /// By process: maximum bytes of received large payloads.
    pub bytes_held_max: Vec<u64>,
    /// By process that is alive: bytes of received large payloads at the end.
    pub bytes_held: Vec<Option<u64>>,
    /// By process that is alive: whether the outcome of all its messages is known.
    pub is_drained: Vec<Option<bool>>,
    /// By process that is alive: the counters of its endpoint.
    pub stats: Vec<Option<onepipe_large::Stats>>,
    /// Trace hash of the run.
    pub trace_hash: u64,
}

impl Report {
    /// Returns the latencies, in ns, ascending, of the probes sent within a time range.
    pub fn probes_ns(&self, within: std::ops::Range<u64>) -> Vec<u64> {
        let probes =
            self.delivered.iter().flatten().filter(|received| received.scattering.is_none());
        let sent = |received: &&Received| within.contains(&(received.at_ns - received.after_ns));
        let mut all: Vec<u64> = probes.filter(sent).map(|received| received.after_ns).collect();
        all.sort_unstable();
        all
    }
}

#[derive(Debug)]
pub(crate) struct Workload {
    setup: Setup,
    topology: Topology,
    pub report: Report,
    /// Index of the scattering, by sender, whether it is reliable, and id.
    submitted: BTreeMap<(u32, bool, ScatteringId), usize>,
    probe_at: BTreeMap<u64, Instant>,
    probes: u64,
    writing: VecDeque<RecordId>,
}

impl Workload {
    pub fn new(setup: Setup, topology: Topology) -> Self {
        let processes = setup.processes as usize;
        let report = Report {
            delivered: vec![vec![]; processes],
            failed: vec![vec![]; processes],
            is_accepted: vec![false; setup.scatterings.len()],
            bytes_held_max: vec![0; processes],
            ..Report::default()
        };
        let (submitted, probe_at) = (BTreeMap::new(), BTreeMap::new());
        Self { setup, topology, report, submitted, probe_at, probes: 0, writing: VecDeque::new() }
    }

    fn controllers(&self) -> Option<Controllers> {
        let first = ProcessId(self.topology.processes() - 1);
        self.setup.has_controller.then_some(Controllers { first, count: 1 })
    }

    fn switch(&self, vertex: Vertex, id: u32) -> Switch {
        let ports = self.topology.ports(vertex);
        let config = onepipe_switch::Config {
            switch: SwitchId(id),
            controllers: self.controllers(),
            announce_interval_ns: 100_000,
            ..onepipe_switch::Config::new(ports.lower, ports.upper, self.topology.route(vertex))
        };
        Switch::new(config).expect("the settings are in range")
    }

    fn process(&self, process: ProcessId) -> LargeEndpoint {
        let endpoint = onepipe_endpoint::Config {
            processes_max: self.topology.processes(),
            controllers: self.controllers(),
            announce_interval_ns: 100_000,
            frame_len_max: self.setup.frame_len_max,
            ..onepipe_endpoint::Config::new(process, Incarnation(1))
        };
        let config = Config {
            large_threshold_bytes: self.setup.large_threshold_bytes,
            received_bytes_max: self.setup.received_bytes_max,
            object_len_max: Config::new(endpoint.clone())
                .object_len_max
                .min(self.setup.received_bytes_max),
            dead_after_ns: self.setup.dead_after_ns,
            ..Config::new(endpoint)
        };
        LargeEndpoint::new(config).expect("the settings are in range")
    }

    fn controller_machine(&self, controllers: Controllers) -> Controller {
        let config = onepipe_controller::Config {
            incarnation: Incarnation(1),
            frame_len_max: self.setup.frame_len_max,
            processes_max: self.topology.processes(),
            ..onepipe_controller::Config::new(controllers.first, controllers)
        };
        Controller::new(config).expect("the settings are in range")
    }

    fn poll_store(&mut self, at: &mut NodeContext<'_>, controller: &mut Controller) {
        while let Some((id, _)) = controller.poll_persist() {
            self.writing.push_back(id);
            at.alarm(STORE_LATENCY_NS * NANOSECOND, ALARM_STORE);
        }
    }

    fn probe(&mut self, mut at: NodeContext<'_>, process: &mut LargeEndpoint) {
        let Some(probes) = self.setup.probes else { return };
        if at.instant.as_ns() >= probes.until_ns {
            return;
        }
        at.alarm(probes.every_ns * NANOSECOND, ALARM_PROBE);
        let (own, n) = (u64::from(at.node.0), u64::from(self.setup.processes));
        self.probes += 1;
        let to = (own + 1 + self.probes % (n - 1)) % n;
        let tag = PROBES + self.probes;
        let payload = payload(tag, 64);
        let messages = [Message { to: ProcessId(to as u32), payload: &payload }];
        // Probes that do not fit the send buffer are not measured.
        if submit(process, probes.service, &messages).is_ok() {
            self.probe_at.insert(tag, at.instant);
        }
    }

    fn scatter(&mut self, mut at: NodeContext<'_>, process: &mut LargeEndpoint, number: usize) {
        let scattering = &self.setup.scatterings[number];
        let (large, small) = (payload(number as u64, scattering.bytes), payload(number as u64, 8));
        let part = |to: &u32, payload| Message { to: ProcessId(*to), payload };
        let messages: Vec<Message<'_>> = (scattering.to.iter().map(|to| part(to, &large[..])))
            .chain(scattering.small_to.iter().map(|to| part(to, &small[..])))
            .collect();
        let service = scattering.service;
        match submit(process, service, &messages) {
            Ok(id) => {
                let key = (at.node.0, service == Service::Reliable, id);
                assert!(self.submitted.insert(key, number).is_none(), "two with one number");
                self.report.is_accepted[number] = true;
            }
            Err(SendError::Full { .. }) => {
                at.alarm(RETRY_NS * NANOSECOND, ALARM_FIRST + number as u32);
            }
            // A receiver, or the sender itself, has failed.
            Err(_) => {}
        }
    }

    fn on_delivered(
        &mut self,
        at: &NodeContext<'_>,
        process: &mut LargeEndpoint,
        delivery: onepipe_large::Delivery,
    ) {
        let bytes = process.payload(&delivery);
        let tag = u64::from_be_bytes(bytes[..8].try_into().expect("eight bytes"));
        assert_eq!(bytes.len() as u64, delivery.bytes);
        assert!(bytes == payload(tag, bytes.len()), "K: {delivery:?}");
        let scattering = (tag < PROBES).then_some(tag as usize);
        let sent_ns = match scattering {
            Some(number) => self.setup.scatterings[number].at_ns,
            None => self.probe_at.get(&tag).map_or(0, |at| at.as_ns()),
        };
        let at_ns = at.instant.as_ns();
        self.report.delivered[at.node.index()].push(Received {
            service: delivery.service,
            timestamp: delivery.timestamp.as_ns(),
            from: delivery.from.0,
            index: delivery.index,
            scattering,
            at_ns,
            after_ns: at_ns - sent_ns,
        });
        process.release(delivery);
    }
}

fn submit(
    process: &mut LargeEndpoint,
    service: Service,
    messages: &[Message<'_>],
) -> Result<ScatteringId, SendError> {
    match service {
        Service::BestEffort => process.scatter(messages),
        Service::Reliable => process.scatter_reliably(messages),
    }
}

/// Returns a payload: its tag, followed by words derived from it.
fn payload(tag: u64, bytes: usize) -> Vec<u8> {
    let mut payload = Vec::with_capacity(bytes + 8);
    let mut word = tag;
    while payload.len() < bytes {
        payload.extend_from_slice(&word.to_be_bytes());
        word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
    }
    payload.truncate(bytes);
    payload
}

impl Application<Node> for Workload {
    fn build(&mut self, node: NodeId, _incarnation: u32) -> Node {
        let hosts = self.topology.hosts();
        if node.0 >= hosts {
            let vertex = Vertex::Switch(SwitchId(node.0 - hosts));
            return Node::Switch(self.switch(vertex, node.0));
        }
        if let Some(controllers) = self.controllers().filter(|all| all.first.0 == node.0) {
            let controller = Box::new(self.controller_machine(controllers));
            return Node::Controller(controller, self.topology.network_card());
        }
        if node.0 >= self.setup.processes {
            return Node::Idle;
        }
        let switch = self.switch(Vertex::Host(HostId(node.0)), node.0);
        Node::Host(Host::new(switch, vec![self.process(ProcessId(node.0))]))
    }

    fn on_start(&mut self, mut at: NodeContext<'_>, machine: &mut Node) {
        if let Node::Controller(controller, _) = machine {
            controller.activate(at.now, Epoch(1), &[]);
            return self.poll_store(&mut at, controller);
        }
        if process(machine).is_none() {
            return;
        }
        for (number, scattering) in self.setup.scatterings.iter().enumerate() {
            if scattering.from == at.node.0 {
                at.alarm(scattering.at_ns * NANOSECOND, ALARM_FIRST + number as u32);
            }
        }
        if let Some(probes) = self.setup.probes {
            // Not all at once.
            let phase = probes.every_ns * u64::from(at.node.0) / u64::from(self.setup.processes);
            at.alarm((probes.from_ns + phase) * NANOSECOND, ALARM_PROBE);
        }
    }

    fn on_event(
        &mut self,
        at: NodeContext<'_>,
        machine: &mut Node,
        event: <Node as Machine>::Event,
    ) {
        let FabricEvent::Host(HostEvent::Process(_, event)) = event else { return };
        let Some(process) = process_mut(machine) else { return };
        match event {
            Event::Delivered(delivery) => self.on_delivered(&at, process, delivery),
            Event::ProcessFailed(_) => process.endpoint_mut().on_failure_handled(),
            Event::SendFailed(failed) => {
                let key = (at.node.0, failed.service == Service::Reliable, failed.scattering);
                // Failures of probes are ignored.
                if let Some(number) = self.submitted.get(&key) {
                    self.report.failed[at.node.index()].push((*number, failed));
                }
            }
            _ => {}
        }
    }

    fn on_drained(&mut self, mut at: NodeContext<'_>, machine: &mut Node) {
        if let Node::Controller(controller, _) = machine {
            return self.poll_store(&mut at, controller);
        }
        if let Some(process) = process(machine) {
            let held = &mut self.report.bytes_held_max[at.node.index()];
            *held = (*held).max(process.buffered_bytes().1);
        }
    }

    fn on_alarm(&mut self, mut at: NodeContext<'_>, machine: &mut Node, token: u32) {
        if let Node::Controller(controller, _) = machine {
            if let Some(id) = self.writing.pop_front() {
                controller.handle_persisted(at.now, id, Ok(()));
            }
            return self.poll_store(&mut at, controller);
        }
        let Some(process) = process_mut(machine) else { return };
        match token {
            ALARM_PROBE => self.probe(at, process),
            number => self.scatter(at, process, (number - ALARM_FIRST) as usize),
        }
    }

    fn on_crash(&mut self, _instant: Instant, _node: NodeId) {}

    fn on_departure(&mut self, _instant: Instant, _link: LinkId, _frame: &[u8]) {}
}
