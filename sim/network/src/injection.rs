//! Injection of faults, at once or by a schedule.

use onepipe_base::Machine;
use onepipe_sim_engine::{Instant, NANOSECOND};

use crate::network::{Event, Network};
use crate::{Application, Fault, LinkId, NodeId};

impl<M: Machine, A: Application<M>> Network<M, A> {
    /// Schedules `fault` at `instant`.
    pub fn schedule(&mut self, instant: Instant, fault: Fault) {
        let index = self.faults.len() as u32;
        self.faults.push(fault);
        let at = instant.max(self.now);
        let queue = self.queues.last_mut().expect("a network has a queue");
        queue.schedule(at, Event::Fault { index });
    }

    /// Returns the links, in both directions, between nodes for which `is_inside` holds and all
    /// other nodes. Cutting them partitions the network.
    pub fn boundary_links(&self, is_inside: impl Fn(NodeId) -> bool) -> Vec<LinkId> {
        self.links()
            .filter(|(_, from, to)| is_inside(*from) != is_inside(*to))
            .map(|(link, ..)| link)
            .collect()
    }

    pub(crate) fn on_fault(&mut self, index: usize) {
        self.inject(self.faults[index]);
    }

    /// Injects `fault` now.
    pub fn inject(&mut self, fault: Fault) {
        self.trace.line(self.now, || format!("{fault:?}"));
        // The number of a node or a link.
        let (kind, target) = match fault {
            Fault::Crash(node) => (0, node.0),
            Fault::Restart(node) => (1, node.0),
            Fault::Cut(link) => (2, link.0),
            Fault::Repair(link) => (3, link.0),
            Fault::SetLinkFaults(link, _) => (4, link.0),
            Fault::StepClock(node, _) => (5, node.0),
            Fault::Pause(node, _) => (6, node.0),
            Fault::CrashAfter(node, _) => (7, node.0),
        };
        self.trace.note(self.now, 4 << 56 | kind << 32 | u64::from(target), 0);
        match fault {
            Fault::Crash(node) => self.crash(node),
            Fault::CrashAfter(node, frames) => {
                self.nodes[node.index()].frames_left = Some(frames);
            }
            Fault::Restart(node) => {
                if self.nodes[node.index()].machine.is_none() {
                    self.nodes[node.index()].clock.synchronise();
                    self.start(node);
                }
            }
            Fault::Cut(link) => {
                self.links[link.index()].is_down = true;
                self.drop_in_flight(link);
            }
            Fault::Repair(link) => self.links[link.index()].is_down = false,
            Fault::SetLinkFaults(link, faults) => {
                let random = self.random("link faults", link.0);
                self.links[link.index()].set_faults(faults, || random);
            }
            Fault::StepClock(node, ns) => self.nodes[node.index()].clock.step(ns),
            Fault::Pause(node, ns) => {
                self.charge_cpu(node.index(), ns * NANOSECOND);
                let node = &mut self.nodes[node.index()];
                node.paused_until = node.free_at;
            }
        }
    }

    /// Stops a node that is up: its state, its ring and the frames on its outgoing links are lost.
    pub(crate) fn crash(&mut self, id: NodeId) {
        let node = &mut self.nodes[id.index()];
        node.frames_left = None;
        if node.machine.take().is_none() {
            return;
        }
        node.incarnation += 1;
        (node.wake_at, node.run_at) = (Instant::END, Instant::END);
        (node.free_at, node.paused_until) = (self.now, self.now);
        let ring = std::mem::take(&mut node.ring);
        self.stats.drops.node_down += ring.len() as u64;
        ring.into_iter().for_each(|(_, frame)| self.pool.free(frame));
        for link in 0..self.links.len() {
            if self.links[link].from == id {
                self.drop_in_flight(LinkId(link as u32));
            }
        }
        self.application.on_crash(self.now, id);
    }

    /// Drops the frames that are on a link or queued before it.
    fn drop_in_flight(&mut self, link: LinkId) {
        self.links[link.index()].begin_epoch(self.now);
        self.drop_queued(link.0);
    }
}
