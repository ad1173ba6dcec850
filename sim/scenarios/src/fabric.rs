//! A simulated fabric for scripted scenarios.

use std::collections::BTreeSet;

use onepipe_base::{Port, ProcessId, Timestamp};
use onepipe_endpoint::{SendError, Service};
use onepipe_sim_check::{Liveness, Tag, Violations};
use onepipe_sim_engine::{Instant, NANOSECOND};
use onepipe_sim_network::{
    Drops, Fault, LinkFaults, LinkId, Network, NodeId, OutgoingMessage, Stats,
};
use onepipe_topology::{Node as Vertex, Topology};

use crate::app::FabricApp;
use crate::{Node, Plan, Process, Report};

mod faults;

/// A network of real endpoints, switches and controllers with a load and all checkers.
#[derive(Debug)]
pub struct Fabric {
    network: Network<Node, FabricApp>,
    liveness: Liveness,
    /// Liveness of the commit barriers.
    commit_liveness: Liveness,
    /// Bound on the difference between the clocks of two machines in ns: the configured offsets,
    /// and what clock steps have added.
    skew_ns: u64,
    /// What a healed fabric may take longer than otherwise, in ns.
    liveness_delay_ns: u64,
    /// Processes that were removed permanently.
    removed: BTreeSet<u32>,
    /// `None` while a fault may be active; otherwise the messages lost and the frames dropped until
    /// the fabric was declared fault-free.
    fault_free_since: Option<(u64, Drops)>,
}

impl Fabric {
    /// Builds the fabric and starts it.
    pub fn new(plan: Plan) -> Self {
        let topology = Topology::new(plan.shape, plan.processes_per_host)
            .expect("the plan's processes fit the shape");
        let (network, seed) = (plan.network.clone(), plan.seed);
        let skew_ns = 2 * plan.network.clocks.offset_ns_max;
        let app = FabricApp::new(plan, topology.clone());
        let mut network = Network::new(topology, network, seed, app);
        network.allow_threads();
        Self {
            network,
            liveness: Liveness::new(),
            commit_liveness: Liveness::new(),
            skew_ns,
            liveness_delay_ns: 0,
            removed: BTreeSet::new(),
            fault_free_since: None,
        }
    }

    /// Returns the network, to inspect it or to inject faults.
    pub fn network(&mut self) -> &mut Network<Node, FabricApp> {
        &mut self.network
    }

    /// Returns virtual time.
    pub fn now(&self) -> Instant {
        self.network.now()
    }

    /// Returns the topology.
    pub fn topology(&self) -> &Topology {
        self.network.topology()
    }

    /// Returns the counters of the network.
    pub fn stats(&self) -> &Stats {
        self.network.stats()
    }

    /// Whether the run cannot succeed any more: it has reached its step limit, or a process has not
    /// recovered in time.
    pub fn is_stuck(&self) -> bool {
        let stuck = self.liveness.violations().count() + self.commit_liveness.violations().count();
        self.network.is_out_of_steps() || stuck > 0
    }

    /// Runs the fabric for `us` microseconds.
    pub fn run_us(&mut self, us: u64) {
        self.network.run_for(us * 1_000 * NANOSECOND);
    }

    /// Submits a best-effort scattering of `(receiver, bytes)` messages. Returns `None` if the
    /// process does not run.
    pub fn scatter(
        &mut self,
        from: u32,
        messages: &[(u32, u32)],
    ) -> Option<Result<Tag, SendError>> {
        self.scatter_by(Service::BestEffort, from, messages)
    }

    /// Submits a reliable scattering, like [`Fabric::scatter`].
    pub fn scatter_reliably(
        &mut self,
        from: u32,
        messages: &[(u32, u32)],
    ) -> Option<Result<Tag, SendError>> {
        self.scatter_by(Service::Reliable, from, messages)
    }

    fn scatter_by(
        &mut self,
        service: Service,
        from: u32,
        messages: &[(u32, u32)],
    ) -> Option<Result<Tag, SendError>> {
        let messages: Vec<OutgoingMessage> = messages
            .iter()
            .map(|&(to, bytes)| OutgoingMessage { to: ProcessId(to), bytes })
            .collect();
        let (node, port) = self.location(from);
        let mut result = None;
        self.network.command(node, |at, machine, app| {
            if let Some(process) = machine.process_mut(port) {
                result = Some(app.submit(at.instant, process, service, &messages));
            }
        });
        result
    }

    /// Returns the process, if it runs.
    pub fn process(&self, id: u32) -> Option<&Process> {
        let (node, port) = self.location(id);
        self.network.machine(node)?.process(port)
    }

    /// Returns the best-effort barrier of a process.
    pub fn barrier(&self, id: u32) -> Option<Timestamp> {
        self.process(id)?.endpoint.barrier()
    }

    /// Returns the commit barrier of a process.
    pub fn commit_barrier(&self, id: u32) -> Option<Timestamp> {
        self.process(id)?.endpoint.commit_barrier()
    }

    /// Returns the number of processes that are not controllers. Their ids come first; those of the
    /// controllers follow.
    pub fn members(&self) -> u32 {
        self.network.application.members
    }

    /// Lets the process leave gracefully.
    pub fn leave(&mut self, id: u32) {
        let (node, port) = self.location(id);
        self.network.command(node, |_, machine, _| {
            if let Some(process) = machine.process_mut(port) {
                process.leave();
            }
        });
    }

    /// Forbids from now on that a process that runs is declared failed: see
    /// [`onepipe_sim_check::Checker::protect_living`].
    pub fn protect_living(&mut self) {
        self.network.application.checker.protect_living();
    }

    //= spec/failure.md#R56
    /// Adapts the checks to a fabric without controllers under reliable load: a sender that crashes
    /// leaves torn scatterings, and a receiver that has crashed holds back the commits of its
    /// senders until they give it up, `us` microseconds later at most.
    pub fn expect_no_controllers(&mut self, us: u64) {
        self.network.application.checker.allow_torn_by_crashes();
        self.liveness_delay_ns = us * 1_000;
    }

    /// Forbids from now on that a process that leaves is declared failed: see
    /// [`onepipe_sim_check::Checker::protect_leavers`].
    pub fn protect_leavers(&mut self) {
        self.network.application.checker.protect_leavers();
    }

    /// Makes the controllers' store unavailable for `us` microseconds.
    pub fn fail_store(&mut self, us: u64) {
        let at_ns = self.now().as_ns();
        if let Some(control_plane) = &mut self.network.application.control_plane {
            control_plane.fail_store(at_ns, us * 1_000);
        }
    }

    /// Ends all controllers, puts an older copy of their store in its place, and starts them again;
    /// `number` decides how many records the copy has.
    pub fn put_old_store(&mut self, number: u64) {
        let controllers = self.members()..self.topology().processes();
        controllers.clone().for_each(|id| self.crash_process(id));
        if let Some(control_plane) = &mut self.network.application.control_plane {
            control_plane.put_old_store(number);
        }
        controllers.for_each(|id| self.restart_process(id));
    }

    /// Expires the active controller's lease early: another one may become active while the first
    /// still considers itself active.
    pub fn expire_lease(&mut self) {
        if let Some(control_plane) = &mut self.network.application.control_plane {
            control_plane.expire_lease();
        }
    }

    /// Returns the node of a vertex of the topology.
    pub fn node(&self, vertex: Vertex) -> NodeId {
        self.network.node(vertex)
    }

    /// Returns all links between two nodes, both directions.
    pub fn between(&self, one: NodeId, other: NodeId) -> Vec<LinkId> {
        let is_pair =
            |from: NodeId, to: NodeId| (from, to) == (one, other) || (to, from) == (one, other);
        self.network
            .links()
            .filter(|(_, from, to)| is_pair(*from, *to))
            .map(|(id, ..)| id)
            .collect()
    }

    /// Replaces the fault settings of every link.
    pub fn set_link_faults(&mut self, faults: LinkFaults) {
        let links: Vec<LinkId> = self.network.links().map(|(id, ..)| id).collect();
        links.into_iter().for_each(|link| self.inject(Fault::SetLinkFaults(link, faults)));
    }

    /// Injects a fault now. Processes that it may cut off are allowed unknown outcomes.
    pub fn inject(&mut self, fault: Fault) {
        match fault {
            Fault::Crash(_)
            | Fault::CrashAfter(..)
            | Fault::Cut(_)
            | Fault::Pause(..)
            | Fault::Restart(_) => {
                self.set_lenient();
            }
            Fault::SetLinkFaults(_, faults) if faults != LinkFaults::default() => {
                self.set_lenient();
            }
            // Machines follow a step by at most one part in 512: less than a millisecond in half a
            // second of virtual time. A clock that is behind catches up by the barriers received.
            Fault::StepClock(..) => self.skew_ns += 1_000_000,
            _ => {}
        }
        self.network.inject(fault);
    }

    /// Declares the fabric fault-free until the next fault is injected: messages below an earlier
    /// promise on their link are violations and, unless a queue overflows, so are lost messages.
    pub fn set_strict(&mut self) {
        let lost = self.network.application.checker.counts().lost;
        self.fault_free_since = Some((lost, self.network.stats().drops));
        self.network.application.links.set_strict(true);
    }

    /// Returns the first replica that considers itself active, with its epoch.
    pub fn active(&self) -> Option<(u32, u32)> {
        let controllers = self.members()..self.topology().processes();
        controllers.into_iter().find_map(|id| {
            let (node, port) = self.location(id);
            let controller = self.network.machine(node)?.controller(port)?;
            controller.status().active.map(|epoch| (id, epoch.0))
        })
    }

    /// Ends all faults: links work, and nodes and processes run.
    pub fn heal(&mut self) {
        let links: Vec<LinkId> = self.network.links().map(|(id, ..)| id).collect();
        for link in links {
            self.network.inject(Fault::Repair(link));
            self.network.inject(Fault::SetLinkFaults(link, LinkFaults::default()));
        }
        for node in 0..self.network.nodes() {
            self.network.inject(Fault::Restart(NodeId(node)));
        }
        if let Some(control_plane) = &mut self.network.application.control_plane {
            control_plane.heal();
        }
        for id in 0..self.topology().processes() {
            // A process in the middle of leaving would be missing: restart it instead.
            if self.process(id).is_some_and(Process::is_leaving) {
                self.crash_process(id);
            }
            self.restart_process(id);
            self.set_slow(id, false);
            self.set_stopped(id, false);
        }
    }

    /// Stops the load.
    pub fn stop_load(&mut self) {
        self.network.application.is_loading = false;
    }

    //= spec/failure.md#R65
    /// Runs a healed fabric until both barriers of every process have passed what the process
    /// promises now, and, without controllers, until no link is lost: behind a lost link the
    /// barriers of a process pass alone, above what others will send. Longer than three times the
    /// bound is a violation (I10). Returns the time that it took, in ns.
    pub fn expect_liveness(&mut self) -> u64 {
        let start = self.now();
        let deadline_ns = 3 * self.liveness_bound_ns() + self.liveness_delay_ns;
        for id in (0..self.members()).filter(|id| !self.removed.contains(id)) {
            let promise = self.process(id).and_then(|process| process.endpoint.promises());
            // A process without a synchronized clock yet must reach any barrier at all.
            let target = promise.map_or(Timestamp::from_ns(0), |promises| promises.barrier);
            self.liveness.expect_above(ProcessId(id), target);
            self.commit_liveness.expect_above(ProcessId(id), target);
        }
        for _ in 0..100 {
            self.network.run_for(deadline_ns * NANOSECOND / 100);
            let mut have_passed = true;
            for id in 0..self.members() {
                let (barrier, commit) = (self.barrier(id), self.commit_barrier(id));
                // Each checker answers for all processes, so the answer after the last id holds.
                have_passed = self.liveness.observe(ProcessId(id), barrier);
                have_passed &= self.commit_liveness.observe(ProcessId(id), commit);
            }
            let is_whole =
                self.network.application.control_plane.is_some() || !self.has_lost_link();
            if have_passed && is_whole || self.network.is_out_of_steps() {
                break;
            }
        }
        if self.network.is_out_of_steps() {
            return self.now().since(start) / NANOSECOND;
        }
        let now = self.now();
        let network = &self.network;
        let endpoint = |id: ProcessId| {
            let (node, port) = location(network.topology(), id.0);
            network.machine(node)?.process(port).map(|process| &process.endpoint)
        };
        self.liveness.finish(now.as_ns(), |id| endpoint(id)?.barrier());
        self.commit_liveness.finish(now.as_ns(), |id| endpoint(id)?.commit_barrier());
        now.since(start) / NANOSECOND
    }

    /// Whether one end of a link between two nodes that run does not receive the other.
    fn has_lost_link(&self) -> bool {
        let switch = |vertex| self.network.machine(self.network.node(vertex))?.switch();
        self.topology().links().any(|link| {
            switch(link.from.node).is_some()
                && switch(link.to.node).is_some_and(|switch| !switch.is_live(link.to.port))
        })
    }

    /// Runs at most `us` microseconds. Returns whether every message has an outcome.
    pub fn drain_us(&mut self, us: u64) -> bool {
        for _ in 0..us.div_ceil(50) {
            if self.network.application.checker.open() == 0 {
                return true;
            }
            if self.network.is_out_of_steps() {
                return false;
            }
            self.run_us(50);
        }
        self.network.application.checker.open() == 0
    }

    /// Returns the time in which a healed fabric must recover, in ns.
    pub fn liveness_bound_ns(&self) -> u64 {
        let topology = self.topology();
        let last = onepipe_base::HostId(topology.hosts() - 1);
        let hops = topology.switches_between(onepipe_base::HostId(0), last) + 1;
        self.network.application.plan.liveness_bound_ns(topology.hosts(), hops, self.skew_ns)
    }

    /// Returns all violations so far.
    pub fn violations(&self) -> Violations {
        let app = &self.network.application;
        let mut all = app.checker.violations().clone();
        all.merge(app.links.violations());
        all.merge(app.send_levels.violations());
        all.merge(app.receive_levels.violations());
        all.merge(self.liveness.violations());
        all.merge(self.commit_liveness.violations());
        if let Some(control_plane) = &app.control_plane {
            all.merge(control_plane.epochs.violations());
        }
        if self.network.is_out_of_steps() {
            all.did_not_end(self.now().as_ns(), app.plan.network.steps_max);
        }
        all
    }

    /// Ends the run with the final checks and returns the report.
    pub fn finish(&mut self) -> Report {
        if self.is_stuck() {
            // The run did not complete: messages without an outcome are no violations.
            return self.report();
        }
        let at_ns = self.now().as_ns();
        let app = &mut self.network.application;
        if app
            .control_plane
            .as_ref()
            .is_some_and(|control_plane| control_plane.stats().partitions > 0)
        {
            app.checker.allow_torn();
        }
        app.checker.at_ns(at_ns);
        app.checker.finish();
        if let Some((lost, drops)) = self.fault_free_since
            && drops == self.network.stats().drops
        {
            self.network.application.checker.expect_no_loss_since(lost);
        }
        self.report()
    }

    /// Returns the report so far.
    pub fn report(&self) -> Report {
        Report::new(&self.network, &self.violations())
    }

    /// Ends strict checking: a fault is active, so receivers may be unreachable and messages late
    /// or lost.
    fn set_lenient(&mut self) {
        self.fault_free_since = None;
        self.network.application.links.set_strict(false);
        let processes = self.members();
        let checker = &mut self.network.application.checker;
        (0..processes).for_each(|id| checker.allow_unknown(ProcessId(id)));
    }

    fn location(&self, id: u32) -> (NodeId, Port) {
        location(self.topology(), id)
    }
}

fn location(topology: &Topology, id: u32) -> (NodeId, Port) {
    let host = topology.host_of(ProcessId(id));
    (NodeId(host.0), Port((id - topology.processes_of(host).start) as u16))
}
