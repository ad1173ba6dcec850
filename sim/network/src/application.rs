//! Whatever commands and observes the machines of a network.

use onepipe_base::{Machine, Now};
use onepipe_sim_engine::{Instant, NANOSECOND};

use crate::{LinkId, NodeId};

/// Where and when an [`Application`] is called, and what it may ask for.
#[derive(Debug)]
pub struct At<'a> {
    /// Virtual time.
    pub instant: Instant,
    /// The node.
    pub node: NodeId,
    /// What the node's clocks show.
    pub now: Now,
    pub(crate) alarms: &'a mut Vec<(Instant, NodeId, u32)>,
    pub(crate) busy_ps: &'a mut u64,
    pub(crate) crashes: &'a mut bool,
}

impl At<'_> {
    /// Asks for [`Application::on_alarm`] at this node, `ps` from now. A crash takes it back.
    pub fn alarm(&mut self, ps: u64, token: u32) {
        self.alarms.push((self.instant.after(ps), self.node, token));
    }

    /// Crashes the node as soon as the application returns.
    pub fn crash(&mut self) {
        *self.crashes = true;
    }

    /// Keeps the node's CPU busy for `ns` more.
    pub fn work(&mut self, ns: u64) {
        *self.busy_ps += ns * NANOSECOND;
    }
}

/// Builds, commands and observes the machines. One value for the whole network: what it learns at
/// one node it may compare with what it learnt at another.
pub trait Application<M: Machine> {
    /// A new machine for `node`, in its life number `life`, counted from 0.
    fn build(&mut self, node: NodeId, life: u32) -> M;

    /// The node has started, or started again.
    fn on_start(&mut self, at: At<'_>, machine: &mut M);

    /// The machine said something.
    fn on_event(&mut self, at: At<'_>, machine: &mut M, event: M::Event);

    /// The host's events are drained: the moment to look at it, and to submit more. Only called at
    /// hosts.
    fn on_settled(&mut self, at: At<'_>, machine: &mut M);

    /// An alarm rang. The machine is drained afterwards.
    fn on_alarm(&mut self, at: At<'_>, machine: &mut M, token: u32);

    /// The node has crashed: its state is gone.
    fn on_crash(&mut self, instant: Instant, node: NodeId);

    /// Fetches into the cache what the machine at `node` will need for a frame that arrives within
    /// nanoseconds, and changes nothing. The answer means nothing, but must be used.
    fn fetch(&self, _node: NodeId, _machine: &M, _frame: &[u8]) -> u64 {
        0
    }

    /// What a frame that a host takes, or sends, costs its CPU beyond [`crate::CpuConfig`], in ns.
    fn work_ns(&self, _node: NodeId, _frame: &[u8]) -> u64 {
        0
    }

    /// A frame enters `link`, before anything befalls it.
    fn on_departure(&mut self, instant: Instant, link: LinkId, frame: &[u8]);
}
