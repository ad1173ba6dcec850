//! A process with a CPU of limited speed, and the nodes of its network.

use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Timestamp, Transmit, Verdict};
use onepipe_controller::Controller;
use onepipe_endpoint::{Endpoint, Event};
use onepipe_node::Host;
use onepipe_sim_network::FabricNode;
use onepipe_sim_traffic::RateLimited;
use onepipe_switch::Switch;

use crate::usage::Sent;

/// A process: the real endpoint, with a CPU of limited speed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    id: ProcessId,
    limited: RateLimited<Endpoint>,
    /// The commit barrier below which every reliable message has been handed out.
    drained: Option<Timestamp>,
    sent: Sent,
    message_ns: u64,
}

impl Process {
    /// Creates a process whose CPU needs `message_ns` for each message that it sends, and `ack_ns`
    /// for an acknowledgement.
    pub fn new(id: ProcessId, endpoint: Endpoint, message_ns: u64, ack_ns: u64) -> Self {
        let limited = RateLimited::counting(endpoint, message_ns).with_ack_ns(ack_ns);
        Self { id, limited, drained: None, sent: Sent::default(), message_ns }
    }

    /// Returns what the process has sent.
    pub fn sent(&self) -> Sent {
        self.sent
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
                self.limited.charge_ns(self.message_ns);
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
