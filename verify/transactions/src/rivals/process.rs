//! A process of a rival, and the nodes of its network.

use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Transmit, Verdict};
use onepipe_node::Host;
use onepipe_sim_network::FabricNode;
use onepipe_sim_traffic::{CpuTimes, Forwarder, RateLimited};

use super::datagrams::Datagrams;
use crate::usage::Sent;

/// A process: datagrams, with threads of limited speed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RivalProcess {
    id: ProcessId,
    limited: RateLimited<Datagrams>,
    sent: Sent,
}

impl RivalProcess {
    /// Creates a process with these CPU times.
    pub fn new(id: ProcessId, cpu: CpuTimes) -> Self {
        let limited = RateLimited::counting(Datagrams::new(id), cpu);
        Self { id, limited, sent: Sent::default() }
    }

    /// Returns what the process has sent, and the CPU time that it has used.
    pub fn sent(&self) -> Sent {
        Sent { cpu: self.limited.spent(), ..self.sent }
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
            self.limited.charge_local_message();
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
