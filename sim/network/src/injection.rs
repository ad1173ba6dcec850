//! Injection of faults, at once or by a schedule.

use onepipe_base::Machine;
use onepipe_sim_engine::{Instant, NANOSECOND};

use crate::part::Event;
use crate::run::Run;
use crate::{Application, Fault, LinkId, Network, NodeId};

impl<M: Machine, A: Application<M>> Network<M, A> {
    /// Schedules `fault` at `instant`.
    pub fn schedule(&mut self, instant: Instant, fault: Fault) {
        let index = self.shared.faults.len() as u32;
        self.shared.faults.push(fault);
        let at = instant.max(self.now);
        let queue = match &mut self.lookahead {
            Some(lookahead) => &mut lookahead.faults,
            None => &mut self.parts[0].queue,
        };
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

    /// Injects `fault` now.
    pub fn inject(&mut self, fault: Fault) {
        let node = self.shared.node_of(fault);
        self.with_part(node, |run| run.inject(fault));
    }
}

impl<M: Machine, A: Application<M>> Run<'_, M, A> {
    /// Injects a fault of a node of the part, or of a link that leaves one.
    pub(crate) fn inject(&mut self, fault: Fault) {
        self.trace.line(self.part.now, || format!("{fault:?}"));
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
        self.trace.note(self.part.now, 4 << 56 | kind << 32 | u64::from(target), 0);
        let index = self.index(self.shared.node_of(fault));
        match fault {
            Fault::Crash(_) => self.crash(index),
            Fault::CrashAfter(_, frames) => self.part.nodes[index].frames_left = Some(frames),
            Fault::Restart(_) => {
                if self.part.nodes[index].machine.is_none() {
                    self.part.nodes[index].clock.synchronise();
                    self.start(index);
                }
            }
            Fault::Cut(link) => {
                let slot = self.slot_of(link.0);
                self.part.links[slot].is_down = true;
                self.drop_in_flight(link);
            }
            Fault::Repair(link) => {
                let slot = self.slot_of(link.0);
                self.part.links[slot].is_down = false;
            }
            Fault::SetLinkFaults(link, faults) => {
                let (random, slot) = (self.fault_random(link), self.slot_of(link.0));
                self.part.links[slot].set_faults(faults, || random);
            }
            Fault::StepClock(_, ns) => self.part.nodes[index].clock.step(ns),
            Fault::Pause(_, ns) => {
                self.charge_cpu(index, ns * NANOSECOND);
                let node = &mut self.part.nodes[index];
                node.paused_until = node.free_at;
            }
        }
    }

    /// Stops a node that is up: its state, its ring and the frames on its outgoing links are lost.
    pub(crate) fn crash(&mut self, index: usize) {
        let id = self.id(index);
        let node = &mut self.part.nodes[index];
        node.frames_left = None;
        if node.machine.take().is_none() {
            return;
        }
        node.incarnation += 1;
        (node.wake_at, node.run_at) = (Instant::END, Instant::END);
        (node.free_at, node.paused_until) = (self.part.now, self.part.now);
        let ring = std::mem::take(&mut node.ring);
        self.scratch.stats.drops.node_down += ring.len() as u64;
        ring.into_iter().for_each(|(_, frame)| self.part.pool.free(frame));
        for slot in 0..self.part.links.len() {
            let link = LinkId(self.part.first_link + slot as u32);
            if self.shared.ends[link.index()].from == id {
                self.drop_in_flight(link);
            }
        }
        self.application.on_crash(self.part.now, id);
    }

    /// Drops the frames that are on a link or queued before it.
    fn drop_in_flight(&mut self, link: LinkId) {
        self.shared.begin_epoch(link);
        let slot = self.slot_of(link.0);
        self.part.links[slot].free_at = self.part.now;
        self.drop_queued(link.0);
    }
}
