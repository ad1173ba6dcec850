//! The application in parts, one for each node, which run on several threads.

use std::borrow::{Borrow, BorrowMut};
use std::sync::Arc;

use hdrhistogram::Histogram;
use onepipe_base::ProcessId;
use onepipe_sim_check::{Received, Tag};
use onepipe_sim_engine::NANOSECOND;
use onepipe_sim_network::{Divide, DividedApplication, NodeId};

use super::FabricApp;
use crate::Node;
use crate::control_plane::ControlPlane;

/// The control plane that the application of one node does not have.
#[derive(Debug)]
pub enum NoControlPlane {}

impl Borrow<ControlPlane> for NoControlPlane {
    fn borrow(&self) -> &ControlPlane {
        match *self {}
    }
}

impl BorrowMut<ControlPlane> for NoControlPlane {
    fn borrow_mut(&mut self) -> &mut ControlPlane {
        match *self {}
    }
}

/// A delivery as the sender's node is notified of it.
#[derive(Clone, Copy, Debug)]
pub struct DeliveryObserved {
    pub received: Received,
    pub from: ProcessId,
    pub tag: Option<Tag>,
    pub at_ps: u64,
}

impl<C: BorrowMut<ControlPlane>> FabricApp<C> {
    /// Checks a delivery against what its sender submitted: now, or, if this is the application of
    /// another node than the sender's, later there.
    pub(super) fn observe(&mut self, delivery: DeliveryObserved) {
        let from = delivery.from;
        let is_elsewhere = self.is_part && self.states.get(from.index()).is_none();
        if is_elsewhere && from.0 < self.members {
            let node = NodeId(self.topology.host_of(from).0);
            return self.observed.push((node, delivery));
        }
        self.resolve(delivery);
    }

    fn resolve(&mut self, delivery: DeliveryObserved) {
        let DeliveryObserved { received, from, tag, at_ps } = delivery;
        if let Some(submitted_ps) = self.checker.resolved(received) {
            let latency_ns = ((at_ps - submitted_ps) / NANOSECOND).max(1);
            match self.is_part {
                true => self.latencies_ns.push(latency_ns),
                false => self.latency.saturating_record(latency_ns),
            }
        }
        if let (Some(tag), Some(state)) = (tag, self.states.get_mut(from.index()))
            && tag.incarnation + 1 == state.incarnations
        {
            state.outstanding = state.outstanding.saturating_sub(1);
        }
    }
}

impl<C: BorrowMut<ControlPlane>> Divide<Node> for FabricApp<C> {
    type Part = FabricApp<NoControlPlane>;

    /// Returns one part for each node. Text, controllers and reliable scatterings are not divided:
    /// they are observed in the order of time.
    fn divide(&mut self) -> Option<Vec<Self::Part>> {
        let plan = &self.plan;
        let is_divisible = self.control_plane.is_none()
            && plan.reliable_percent == 0
            && plan.absent == 0
            && plan.network.trace_lines_max == 0;
        if !is_divisible {
            return None;
        }
        let (hosts, switches) = (self.topology.hosts() as usize, self.topology.switches() as usize);
        let per_host = |count: usize| {
            std::iter::repeat_n(count, hosts).chain(std::iter::repeat_n(0, switches))
        };
        let processes = usize::from(self.topology.processes_per_host());
        let mut links = vec![0; hosts + switches];
        for link in self.topology.links() {
            let vertex = link.from.node;
            links[match vertex {
                onepipe_topology::Node::Host(host) => host.0 as usize,
                onepipe_topology::Node::Switch(switch) => hosts + switch.0 as usize,
                onepipe_topology::Node::Process(process) => {
                    self.topology.host_of(process).0 as usize
                }
            }] += 1;
        }
        let checkers = self.checker.divide(per_host(processes)).into_iter();
        let mut states = self.states.divide(per_host(processes)).into_iter();
        let mut next_ports = self.next_ports.divide(per_host(1)).into_iter();
        let mut links = self.links.divide(links).into_iter();
        let parts = checkers.map(|checker| FabricApp {
            plan: Arc::clone(&self.plan),
            topology: Arc::clone(&self.topology),
            checker,
            links: links.next().expect("each node has a section"),
            send_levels: self.send_levels.part(),
            receive_levels: self.receive_levels.part(),
            states: states.next().expect("each node has a section"),
            is_loading: self.is_loading,
            latency: Histogram::new_with_bounds(1, 2, 1).expect("sound bounds"),
            control_plane: None,
            log: Default::default(),
            members: self.members,
            active_ports: Vec::new(),
            next_ports: next_ports.next().expect("each node has a section"),
            scattering: Vec::new(),
            payloads: Vec::new(),
            expected: Vec::new(),
            observed: Vec::new(),
            latencies_ns: Vec::new(),
            is_part: true,
        });
        Some(parts.collect())
    }

    fn unite(&mut self, parts: Vec<Self::Part>) {
        for part in parts {
            self.checker.unite(part.checker);
            self.states.append(part.states);
            self.next_ports.append(part.next_ports);
            self.links.unite(part.links);
            self.send_levels.merge(&part.send_levels);
            self.receive_levels.merge(&part.receive_levels);
            part.latencies_ns.iter().for_each(|ns| self.latency.saturating_record(*ns));
        }
        self.checker.check_failed();
    }
}

impl DividedApplication<Node> for FabricApp<NoControlPlane> {
    type Observation = DeliveryObserved;

    fn take_observations(&mut self) -> impl Iterator<Item = (NodeId, DeliveryObserved)> {
        self.observed.drain(..)
    }

    fn handle_observation(&mut self, delivery: DeliveryObserved) {
        self.resolve(delivery);
    }
}
