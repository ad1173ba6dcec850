//! The interface between a simulated network and the code that drives its machines.

use onepipe_base::{Machine, Now};
use onepipe_sim_engine::{Instant, NANOSECOND};

use crate::{LinkId, NodeId};

/// Where and when an [`Application`] is called, and the requests that it may make.
#[derive(Debug)]
pub struct NodeContext<'a> {
    /// Virtual time of the call.
    pub instant: Instant,
    /// The node at which the call happens.
    pub node: NodeId,
    /// The readings of the node's clocks.
    pub now: Now,
    /// Whether the node runs and has handled all frames that have arrived. Commands and alarms
    /// reach the application while the node is paused, too.
    pub is_current: bool,
    pub(crate) alarms: &'a mut Vec<(Instant, NodeId, u32)>,
    pub(crate) busy_ps: &'a mut u64,
    pub(crate) crash_requested: &'a mut bool,
}

impl NodeContext<'_> {
    /// Requests [`Application::on_alarm`] at this node `ps` from now. A crash cancels the alarm.
    pub fn alarm(&mut self, ps: u64, token: u32) {
        self.alarms.push((self.instant.after(ps), self.node, token));
    }

    /// Crashes the node as soon as the application returns.
    pub fn crash(&mut self) {
        *self.crash_requested = true;
    }

    /// Keeps the node's CPU busy for another `ns`.
    pub fn charge_cpu(&mut self, ns: u64) {
        *self.busy_ps += ns * NANOSECOND;
    }
}

/// Builds, commands and observes the machines. One value serves the whole network, so that what it
/// observes at one node can be compared with what it observed at another.
pub trait Application<M: Machine> {
    /// Returns a new machine for `node` in its incarnation `incarnation`, counted from 0.
    fn build(&mut self, node: NodeId, incarnation: u32) -> M;

    /// Called when the node has started or restarted.
    fn on_start(&mut self, at: NodeContext<'_>, machine: &mut M);

    /// Called for every event of the machine.
    fn on_event(&mut self, at: NodeContext<'_>, machine: &mut M, event: M::Event);

    /// Called when a host has no more events: inspects the machine and may submit more work. Not
    /// called for switches.
    fn on_drained(&mut self, at: NodeContext<'_>, machine: &mut M);

    /// Called when an alarm fires. The machine is drained afterwards.
    fn on_alarm(&mut self, at: NodeContext<'_>, machine: &mut M, token: u32);

    /// Called when the node has crashed and its state is gone.
    fn on_crash(&mut self, instant: Instant, node: NodeId);

    /// Prefetches into the cache what the machine at `node` needs for a frame that arrives within
    /// nanoseconds. Has no other effect; the result carries no information, but must be used so
    /// that the loads are not optimized away.
    fn prefetch(&self, _node: NodeId, _machine: &M, _frame: &[u8]) -> u64 {
        0
    }

    /// Returns the CPU time in ns that a host spends on sending or receiving this frame, in
    /// addition to [`crate::CpuConfig`].
    fn cpu_ns(&self, _node: NodeId, _frame: &[u8]) -> u64 {
        0
    }

    /// Called when a frame enters `link`, before queueing and faults.
    fn on_departure(&mut self, instant: Instant, link: LinkId, frame: &[u8]);
}

/// An application that can be divided into one part for each node, so that nodes run on several
/// threads.
pub trait Divide<M: Machine>: Application<M> {
    /// The application of one node.
    type Part: DividedApplication<M>;

    /// Moves what concerns one node into its part, for each node in the order of their ids, or
    /// returns `None` if the application must not be divided. Parts are in use until they are
    /// united; in the meantime the application is not called.
    fn divide(&mut self) -> Option<Vec<Self::Part>>;

    /// Takes back the parts, in the order of their nodes.
    fn unite(&mut self, parts: Vec<Self::Part>);
}

/// The application of one node. It may be called on any thread.
pub trait DividedApplication<M: Machine>: Application<M> + Send {
    /// An observation that concerns another node.
    type Observation: Send;

    /// Takes the observations since the last call, each with the node that it concerns.
    fn take_observations(&mut self) -> impl Iterator<Item = (NodeId, Self::Observation)>;

    /// Handles an observation of another node, before the next window of its own node.
    fn handle_observation(&mut self, observation: Self::Observation);
}
