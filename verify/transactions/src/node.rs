//! A process with a CPU of limited speed, and the nodes of its network.

use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Timestamp, Transmit, Verdict};
use onepipe_controller::Controller;
use onepipe_endpoint::{Endpoint, Event};
use onepipe_node::Host;
use onepipe_sim_network::FabricNode;
use onepipe_sim_traffic::{CpuTimes, RateLimited};
use onepipe_switch::Switch;

use crate::usage::Sent;

/// A process: the real endpoint, with threads of limited speed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    id: ProcessId,
    limited: RateLimited<Endpoint>,
    /// The commit barrier below which every reliable message has been handed out.
    drained: Option<Timestamp>,
    sent: Sent,
}

impl Process {
    /// Creates a process with these CPU times.
    pub fn new(id: ProcessId, endpoint: Endpoint, cpu: CpuTimes) -> Self {
        let limited = RateLimited::counting(endpoint, cpu);
        Self { id, limited, drained: None, sent: Sent::default() }
    }

    /// Returns what the process has sent, and the CPU time that it has used.
    pub fn sent(&self) -> Sent {
        Sent { cpu: self.limited.spent(), ..self.sent }
    }

    /// Returns the endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        &self.limited.machine
    }

    /// Returns the endpoint for commands.
    pub fn endpoint_mut(&mut self) -> &mut Endpoint {
        &mut self.limited.machine
    }

    /// Returns the commit barrier below which every reliable message has been handed out: the one
    /// that was read before the endpoint had no more events.
    pub fn drained(&self) -> Option<Timestamp> {
        self.drained
    }
}

impl Machine for Process {
    type Event = Event;

    #[inline]
    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        self.limited.handle_frame(now, port, frame)
    }

    fn handle_timeout(&mut self, now: Now) {
        self.limited.handle_timeout(now);
    }

    #[inline]
    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        let transmit = self.limited.poll_transmit(now, slot)?;
        self.sent.on_frame(&slot[..transmit.bytes]);
        Some(transmit)
    }

    #[inline]
    fn poll_event(&mut self) -> Option<Event> {
        let barrier = self.endpoint().commit_barrier();
        let event = self.limited.poll_event();
        match &event {
            None => self.drained = self.drained.max(barrier),
            // A message to oneself leaves in no frame, and takes as much CPU time as any other.
            Some(Event::Delivered(delivery)) if delivery.from == self.id => {
                self.sent.local += 1;
                self.limited.charge_local_message();
            }
            Some(_) => {}
        }
        event
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Mono> {
        self.limited.poll_timeout()
    }
}

/// A host whose processes are behind a virtual switch, a switch, the controller, or an idle host.
pub type Node = FabricNode<Host<Switch, Process>, Switch, Controller>;

/// An event of a [`Node`].
pub type NodeEvent = <Node as Machine>::Event;

/// Returns the endpoint of the process at a port of a host, for commands.
pub fn endpoint_mut(node: &mut Node, port: Port) -> Option<&mut Endpoint> {
    node.host_mut()?.process_mut(port).map(Process::endpoint_mut)
}
