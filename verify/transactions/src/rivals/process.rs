//! A process of a rival, and the nodes of its network.

use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Transmit, Verdict};
use onepipe_node::{Host, HostEvent};
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

/// A host with processes, a switch, or an idle host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RivalNode {
    /// Processes behind a virtual switch.
    Host(Host<Forwarder, RivalProcess>),
    /// A switch that only forwards.
    Switch(Forwarder),
    /// A host that does not take part.
    Idle,
}

impl RivalNode {
    /// Returns the process at a port of a host.
    pub fn process(&self, port: Port) -> Option<&RivalProcess> {
        match self {
            Self::Host(host) => host.process(port),
            _ => None,
        }
    }

    /// Returns the process at a port of a host, for commands.
    pub fn process_mut(&mut self, port: Port) -> Option<&mut RivalProcess> {
        match self {
            Self::Host(host) => host.process_mut(port),
            _ => None,
        }
    }
}

impl Machine for RivalNode {
    /// A message to the process at a port: its sender and its payload.
    type Event = (Port, ProcessId, Vec<u8>);

    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        match self {
            Self::Host(host) => host.handle_frame(now, port, frame),
            Self::Switch(switch) => switch.handle_frame(now, port, frame),
            Self::Idle => Verdict::Dropped,
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        if let Self::Host(host) = self {
            host.handle_timeout(now);
        }
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        match self {
            Self::Host(host) => host.poll_transmit(now, slot),
            _ => None,
        }
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        let Self::Host(host) = self else { return None };
        loop {
            if let HostEvent::Process(port, (from, payload)) = host.poll_event()? {
                return Some((port, from, payload));
            }
        }
    }

    fn poll_timeout(&self) -> Option<Mono> {
        match self {
            Self::Host(host) => host.poll_timeout(),
            _ => None,
        }
    }
}
