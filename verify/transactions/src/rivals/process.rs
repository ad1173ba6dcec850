//! A process of a rival, and the nodes of its network.

use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Transmit, Verdict};
use onepipe_node::Host;
use onepipe_sim_network::FabricNode;
use onepipe_sim_traffic::{Forwarder, RateLimited};

use super::datagrams::Datagrams;
use crate::usage::Sent;

/// A process: datagrams, with a CPU of limited speed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RivalProcess {
    id: ProcessId,
    limited: RateLimited<Datagrams>,
    sent: Sent,
    message_ns: u64,
}

impl RivalProcess {
    /// Creates a process whose CPU needs `message_ns` for each message that it sends.
    pub fn new(id: ProcessId, message_ns: u64) -> Self {
        let limited = RateLimited::counting(Datagrams::new(id), message_ns);
        Self { id, limited, sent: Sent::default(), message_ns }
    }

    /// Returns what the process has sent.
    pub fn sent(&self) -> Sent {
        self.sent
    }

    /// Sends a message.
    pub fn send(&mut self, to: ProcessId, payload: Vec<u8>) {
        self.limited.machine.send(to, payload);
    }
}

impl Machine for RivalProcess {
    type Event = (ProcessId, Vec<u8>);

    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        self.limited.handle_frame(now, port, frame)
    }

    fn handle_timeout(&mut self, now: Now) {
        self.limited.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        let transmit = self.limited.poll_transmit(now, slot)?;
        self.sent.on_frame(&slot[..transmit.bytes]);
        Some(transmit)
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        let event = self.limited.poll_event()?;
        // A message to oneself leaves in no frame, and takes as much CPU time as any other.
        if event.0 == self.id {
            self.sent.local += 1;
            self.limited.charge_ns(self.message_ns);
        }
        Some(event)
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.limited.poll_timeout()
    }
}

/// A host whose processes are behind a virtual switch, a switch that only forwards, or an idle
/// host.
pub type RivalNode = FabricNode<Host<Forwarder, RivalProcess>, Forwarder>;
