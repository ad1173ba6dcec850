//! The application of the testbed: generates the traffic and measures it.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;
use onepipe_base::{HostId, Incarnation, Port, ProcessId, SwitchId};
use onepipe_endpoint::{Endpoint, Event, Message};
use onepipe_node::Host;
use onepipe_rivals::{Method, Rival, To};
use onepipe_sim_engine::{Instant, NANOSECOND, Random};
use onepipe_sim_network::{Application, LinkId, NodeContext, NodeId};
use onepipe_sim_traffic::{CpuTimes, FlowSpec, Forwarder, RateLimited, SharedNic};
use onepipe_switch::Switch;
use onepipe_topology::{Node as Vertex, Topology};

use super::background::{Background, BackgroundTraffic};
use super::node::{Node, NodeEvent};
use super::plain::PlainSwitch;
use super::sequencer_route::SequencerRoute;
use super::{Form, Setup, System, Traffic};

/// Payload of every message in bytes (1Pipe section 7.2).
const PAYLOAD_LEN: usize = 64;
/// Alarm tokens from this one on start flows; lower ones are ports of processes.
const FIRST_FLOW_TOKEN: u32 = 1 << 16;
/// What a message takes of the send buffer, in bytes (`Config::send_buffer_bytes_max`).
const BUFFERED_BYTES: usize = 128;

/// The application of all processes.
#[derive(Debug)]
pub(super) struct TestbedApp {
    setup: Setup,
    background: Option<Background>,
    /// The flows of `background`. An alarm starts each; its token is [`FIRST_FLOW_TOKEN`] plus the
    /// index of the flow.
    specs: Vec<FlowSpec>,
    topology: Topology,
    route: Option<SequencerRoute>,
    random: Random,
    /// Receiver of each process's last message, in the all-to-all round.
    next_receivers: Vec<u32>,
    /// Number of messages of each process of a rival that are not delivered yet.
    backlogs: Vec<u32>,
    /// Position in the total order of each process's last delivery.
    last: Vec<(u64, u32)>,
    /// Whether deliveries are measured.
    is_measuring: bool,
    latency_ns: Histogram<u64>,
    delivered: u64,
    out_of_order: u64,
    failed: u64,
}

impl TestbedApp {
    pub fn new(setup: Setup, topology: Topology, background: Option<Background>) -> Result<Self> {
        let members = setup.processes;
        let hosts = topology.hosts();
        let specs = background.map_or_else(Vec::new, |flows| flows.specs(hosts, setup.seed));
        let route = match setup.system {
            System::SwitchSequencer => Some(SequencerRoute::new(&topology, members, true)),
            System::HostSequencer => Some(SequencerRoute::new(&topology, members, false)),
            _ => None,
        };
        Ok(Self {
            route,
            random: Random::named(setup.seed, "figures", 0),
            next_receivers: (0..members).collect(),
            backlogs: vec![0; members as usize],
            last: vec![(0, 0); members as usize],
            is_measuring: false,
            latency_ns: Histogram::new_with_bounds(1, 10_000_000_000, 3)?,
            delivered: 0,
            out_of_order: 0,
            failed: 0,
            background,
            specs,
            topology,
            setup,
        })
    }

    /// Starts the measurement.
    pub fn begin(&mut self) {
        self.is_measuring = true;
    }

    /// Returns the measured values.
    pub fn finish(&self, virtual_ns: u64, hops: u64) -> Result<BTreeMap<String, f64>> {
        ensure!(
            self.out_of_order == 0,
            "{} messages were delivered out of order",
            self.out_of_order
        );
        ensure!(self.delivered > 0, "no message was delivered");
        ensure!(
            self.setup.loss_ppb > 0 || self.background.is_some() || self.failed == 0,
            "{} messages were lost on a lossless network",
            self.failed
        );
        let us = |ns: f64| ns / 1_000.0;
        let quantile = |q| us(self.latency_ns.value_at_quantile(q) as f64);
        let seconds = self.setup.measure_us as f64 / 1e6;
        let rate = self.delivered as f64 / seconds / f64::from(self.setup.processes);
        let values = [
            ("latency_mean_us", us(self.latency_ns.mean())),
            ("latency_p5_us", quantile(0.05)),
            ("latency_p50_us", quantile(0.50)),
            ("latency_p95_us", quantile(0.95)),
            ("throughput_mps", rate / 1e6),
            ("failed_share", self.failed as f64 / (self.failed + self.delivered) as f64),
            ("hops", hops as f64),
            ("virtual_us", us(virtual_ns as f64)),
        ];
        Ok(values.map(|(name, value)| (name.to_owned(), value)).into())
    }

    fn every_ns(&self) -> u64 {
        match self.setup.traffic {
            Traffic::Idle { every_ns }
            | Traffic::AllToAll { every_ns }
            | Traffic::Broadcast { every_ns } => every_ns,
        }
    }

    /// Returns the receiver of the next message of `process`.
    fn next_receiver(&mut self, process: u32) -> ProcessId {
        let members = self.setup.processes;
        match self.setup.traffic {
            Traffic::Idle { .. } => ProcessId((process + members / 2) % members),
            Traffic::AllToAll { .. } | Traffic::Broadcast { .. } => {
                let receiver = &mut self.next_receivers[process as usize];
                *receiver = (*receiver + 1) % members;
                if *receiver == process {
                    *receiver = (*receiver + 1) % members;
                }
                ProcessId(*receiver)
            }
        }
    }

    /// Returns a payload that begins with the time of its submission.
    fn payload(now: Instant) -> [u8; PAYLOAD_LEN] {
        let mut payload = [0; PAYLOAD_LEN];
        payload[..8].copy_from_slice(&now.as_ps().to_le_bytes());
        payload
    }

    fn on_delivery(&mut self, now: Instant, to: u32, position: Option<(u64, u32)>, payload: &[u8]) {
        if let Some(position) = position {
            let last = &mut self.last[to as usize];
            self.out_of_order += u64::from(position < *last);
            *last = position;
        }
        if !self.is_measuring {
            return;
        }
        // Messages sent before the measurement count, too: otherwise slow ones would be missing.
        self.delivered += 1;
        let sent = payload.first_chunk().map_or(0, |sent| u64::from_le_bytes(*sent));
        self.latency_ns.saturating_record(now.as_ps().saturating_sub(sent) / NANOSECOND);
    }

    fn detour_ns(&self) -> u64 {
        if self.setup.form == Form::Host { self.setup.calibration.detour_ns } else { 0 }
    }

    fn is_member(&self, host: u32) -> bool {
        self.topology.processes_of(HostId(host)).start < self.setup.processes
    }

    fn switch(&self, vertex: Vertex, id: u32) -> Switch {
        let ports = self.topology.ports(vertex);
        let beacon_interval_ns = self.setup.calibration.beacon_ns;
        let form = match (self.setup.form, vertex) {
            (Form::Chip, _) => onepipe_switch::Form::Chip,
            (Form::Host, Vertex::Host(_)) => onepipe_switch::Form::Edge,
            (Form::Host, _) => onepipe_switch::Form::OffChip,
        };
        let config = onepipe_switch::Config {
            form,
            switch: SwitchId(id),
            eager_beacons: onepipe_switch::Eager::ByRound,
            beacon_interval_ns,
            link_timeout_ns: 10 * beacon_interval_ns,
            start_wait_ns: 3 * beacon_interval_ns + 2 * self.detour_ns(),
            ack_bundle_ns: match (self.setup.form, vertex) {
                (Form::Chip, Vertex::Host(_)) => self.setup.ack_bundle_ns,
                _ => 0,
            },
            ..onepipe_switch::Config::new(ports.lower, ports.upper, self.topology.route(vertex))
        };
        Switch::new(config).expect("a calibration is in range")
    }

    fn endpoint(&self, process: u32) -> RateLimited<Endpoint> {
        let beacon_interval_ns = self.setup.calibration.beacon_ns;
        let defaults = onepipe_endpoint::Config::new(ProcessId(process), Incarnation(1));
        let probe_timeout_min_ns = self.setup.probe_timeout_ns;
        let config = onepipe_endpoint::Config {
            processes_max: self.topology.processes(),
            awaits_commits: self.setup.form == Form::Host,
            beacon_interval_ns,
            link_timeout_ns: 10 * beacon_interval_ns,
            probe_timeout_min_ns,
            // A short timeout leaves no time to delay acknowledgements.
            ack_delay_ns: match probe_timeout_min_ns < defaults.probe_timeout_min_ns {
                true => probe_timeout_min_ns,
                false => defaults.ack_delay_ns,
            },
            ..defaults
        };
        let endpoint = Endpoint::new(config).expect("a calibration is in range");
        RateLimited::new(endpoint, self.setup.cpu())
    }

    /// Whether a process of a rival with `backlog` undelivered messages may submit another.
    fn may_submit(&self, backlog: u32) -> bool {
        let total = self.setup.rival_backlog;
        total.is_none_or(|total| backlog < (total / self.setup.processes).max(1))
    }

    fn rival(&self, process: u32, cpu: CpuTimes) -> RateLimited<Rival> {
        let Setup { system, processes, calibration, .. } = &self.setup;
        let method = system.method(*processes, calibration).expect("it is a rival");
        let method = match (method, self.setup.clock_interval_ns) {
            (Method::Lamport { .. }, Some(interval_ns)) => Method::Lamport { interval_ns },
            (method, _) => method,
        };
        let is_switch = *system == System::SwitchSequencer && process == *processes;
        let has_single_entries = is_switch || self.setup.has_clock_frames;
        let config = onepipe_rivals::Config {
            entries_per_frame_max: if has_single_entries { 1 } else { usize::MAX },
            tick_ns: 20_000,
            // With a backlog for all together the application bounds it, not each queue.
            pending_max: self.setup.rival_backlog.map_or(64, |_| usize::MAX),
            ..onepipe_rivals::Config::new(method, ProcessId(process), *processes)
        };
        RateLimited::new(Rival::new(config).expect("a calibration is in range"), cpu)
    }

    fn plain_switch(&self, vertex: Vertex, index: u32) -> PlainSwitch {
        let Setup { system, processes, .. } = &self.setup;
        let sequencer = self.route.as_ref();
        let local_sequencer = sequencer.filter(|route| route.vertex == vertex).map(|_| {
            let is_host = *system == System::HostSequencer;
            let cpu = if is_host { self.setup.host_cpu() } else { CpuTimes::NONE };
            Box::new(self.rival(*processes, cpu))
        });
        PlainSwitch {
            forwarder: Forwarder::new(
                self.topology.route(vertex),
                self.topology.ports(vertex),
                self.topology.tier(vertex),
                index,
            ),
            sequencer: sequencer.map(|route| route.ports_of(index as usize)),
            local_sequencer,
        }
    }
}

impl Application<Node> for TestbedApp {
    fn build(&mut self, node: NodeId, _incarnation: u32) -> Node {
        let hosts = self.topology.hosts();
        let is_host = node.0 < hosts;
        let vertex = match is_host {
            true => Vertex::Host(HostId(node.0)),
            false => Vertex::Switch(SwitchId(node.0 - hosts)),
        };
        if is_host && !self.is_member(node.0) {
            return Node::Idle;
        }
        let processes = || self.topology.processes_of(HostId(node.0));
        match (self.setup.system, is_host) {
            (System::BestEffort | System::Reliable, true) => {
                let switch = self.switch(vertex, node.0);
                let host = Host::new(switch, processes().map(|id| self.endpoint(id)).collect());
                match self.background {
                    None => Node::Host(host),
                    Some(background) => {
                        let card = Port(self.topology.ports(vertex).total() - 1);
                        match background.traffic_of(&self.topology, node.0, card) {
                            BackgroundTraffic::Stack(stack) => {
                                Node::Shared(Box::new(SharedNic::new(host, stack)))
                            }
                            BackgroundTraffic::Gated(gated) => {
                                Node::Gated(Box::new(SharedNic::new(host, *gated)))
                            }
                            BackgroundTraffic::Arbiter(arbiter) => {
                                Node::Arbiter(Box::new(SharedNic::new(host, *arbiter)))
                            }
                        }
                    }
                }
            }
            (System::BestEffort | System::Reliable, false) => {
                Node::Switch(self.switch(vertex, node.0))
            }
            (_, true) => {
                let rivals = processes().map(|id| self.rival(id, self.setup.cpu())).collect();
                Node::RivalHost(Host::new(self.plain_switch(vertex, node.0), rivals))
            }
            (_, false) => Node::PlainSwitch(self.plain_switch(vertex, node.0)),
        }
    }

    fn on_start(&mut self, mut at: NodeContext<'_>, machine: &mut Node) {
        for (token, spec) in (FIRST_FLOW_TOKEN..).zip(&self.specs) {
            if spec.from == at.node.0 {
                at.alarm(spec.at_ns * NANOSECOND, token);
            }
        }
        if matches!(machine, Node::RivalHost(_)) || machine.onepipe_mut().is_some() {
            // Messages start after all processes have joined, each process at a random phase.
            let start_ps = (50_000 + 30 * self.detour_ns()) * NANOSECOND;
            for port in 0..self.topology.processes_per_host() {
                let phase_ps = self.random.below(self.every_ns() * NANOSECOND);
                at.alarm(start_ps + phase_ps, port.into());
            }
        }
    }

    fn on_event(&mut self, at: NodeContext<'_>, machine: &mut Node, event: NodeEvent) {
        let first_process = || self.topology.processes_of(HostId(at.node.0)).start;
        match (machine, event) {
            (node, NodeEvent::Onepipe(port, Event::Delivered(delivery))) => {
                let to = first_process() + u32::from(port.0);
                let process = node.onepipe_mut().and_then(|host| host.process_mut(port));
                let Some(process) = process else { return };
                let position = Some((delivery.timestamp.as_ns(), delivery.from.0));
                self.on_delivery(at.instant, to, position, process.machine.payload(&delivery));
                process.machine.release(delivery);
            }
            (_, NodeEvent::Onepipe(_, Event::SendFailed(_))) => self.failed += 1,
            (_, NodeEvent::Rival(port, delivery)) => {
                let to = first_process() + u32::from(port.0);
                if let Some(backlog) = self.backlogs.get_mut(delivery.from.index()) {
                    *backlog = backlog.saturating_sub(1);
                }
                let is_ordered = self.setup.system != System::Unordered;
                let position = is_ordered.then_some((delivery.number, delivery.from.0));
                self.on_delivery(at.instant, to, position, &delivery.payload);
            }
            _ => {}
        }
    }

    fn on_drained(&mut self, _at: NodeContext<'_>, _machine: &mut Node) {}

    fn on_alarm(&mut self, mut at: NodeContext<'_>, machine: &mut Node, token: u32) {
        if let Some(spec) =
            token.checked_sub(FIRST_FLOW_TOKEN).map(|index| self.specs[index as usize])
        {
            let to = ProcessId(self.topology.processes_of(HostId(spec.to)).start);
            if let Some(stack) = machine.stack_mut() {
                stack.open(at.now, to, spec.bytes);
            }
            return;
        }
        at.alarm(self.every_ns() * NANOSECOND, token);
        let from = self.topology.processes_of(HostId(at.node.0)).start + token;
        let (port, payload) = (Port(token as u16), Self::payload(at.instant));
        if let Node::RivalHost(host) = machine {
            let Some(process) = host.process_mut(port) else { return };
            if process.machine.has_space() && self.may_submit(self.backlogs[from as usize]) {
                let to = To::One(self.next_receiver(from));
                let sent = process.machine.send(at.now, to, &payload);
                self.failed += u64::from(sent.is_err());
                self.backlogs[from as usize] += u32::from(sent.is_ok());
            }
            return;
        }
        let process = machine.onepipe_mut().and_then(|host| host.process_mut(port));
        let Some(process) = process else { return };
        let buffered_max = self.setup.buffered_messages as usize * BUFFERED_BYTES;
        if process.machine.send_buffer_bytes() >= buffered_max {
            return;
        }
        let receivers: Vec<u32> = match self.setup.traffic {
            Traffic::Broadcast { .. } => {
                (0..self.setup.processes).filter(|to| *to != from).collect()
            }
            Traffic::Idle { .. } | Traffic::AllToAll { .. } => vec![self.next_receiver(from).0],
        };
        let message = |to: &u32| Message { to: ProcessId(*to), payload: &payload };
        let messages: Vec<Message<'_>> = receivers.iter().map(message).collect();
        let sent = match self.setup.system {
            System::Reliable => process.machine.scatter_reliably(&messages),
            _ => process.machine.scatter(&messages),
        };
        // Cannot fail: every message has a receiver, and the send buffer has space.
        self.failed += u64::from(sent.is_err());
    }

    fn on_crash(&mut self, _instant: Instant, _node: NodeId) {}

    fn on_departure(&mut self, _instant: Instant, _link: LinkId, _frame: &[u8]) {}
}
