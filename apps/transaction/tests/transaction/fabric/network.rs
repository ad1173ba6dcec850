//! What is sent in the model, and what becomes of it.

use std::collections::BTreeMap;

use onepipe_base::{Mono, ProcessId, ScatteringId, Timestamp};
use onepipe_transaction::{OutgoingScattering, Request, RequestKind};

use super::clients::Sent;
use super::{FIRST_CLIENT, Fabric, LAG_MAX_NS};

/// A message in flight.
pub struct Message {
    pub timestamp: u64,
    pub from: ProcessId,
    pub to: ProcessId,
    pub is_reliable: bool,
    pub payload: Vec<u8>,
}

impl Fabric {
    /// Sends what replicas have for each other.
    pub(super) fn send_of_replicas(&mut self) {
        let processes: Vec<ProcessId> = self.replicas.keys().copied().collect();
        for process in processes {
            let now = Mono::from_ns(self.clock);
            loop {
                let replica = self.replicas.get_mut(&process).expect("a replica");
                replica.handle_timeout(now);
                let Some(scattering) = replica.poll_scattering(now) else { break };
                if self.random.percent(5) {
                    let replica = self.replicas.get_mut(&process).expect("a replica");
                    replica.on_scattering_refused(scattering);
                    break;
                }
                self.sequence += 1;
                let id = ScatteringId(self.sequence);
                let replica = self.replicas.get_mut(&process).expect("a replica");
                replica.on_scattering_submitted(&scattering, id);
                self.transmit(process, id, scattering.is_reliable, &scattering.messages);
            }
        }
    }

    /// Sends what processes that start have for each other.
    pub(super) fn send_of_starting(&mut self) {
        let processes: Vec<ProcessId> = self.starting.keys().copied().collect();
        for process in processes {
            let now = Mono::from_ns(self.clock);
            while let Some(starting) = self.starting.get_mut(&process)
                && let Some(scattering) = starting.start.poll_scattering(now)
            {
                if self.random.percent(5) {
                    // The fabric does not accept it, and the driver drops it.
                    continue;
                }
                self.sequence += 1;
                let id = ScatteringId(self.sequence);
                self.transmit(process, id, scattering.is_reliable, &scattering.messages);
            }
        }
    }

    pub(super) fn stamp(&mut self) -> u64 {
        self.last_stamp = (self.last_stamp + 1).max(self.clock);
        self.clock = self.last_stamp;
        self.last_stamp
    }

    pub(super) fn send(&mut self, client: usize, scattering: &OutgoingScattering) {
        self.sequence += 1;
        let id = ScatteringId(self.sequence);
        self.clients[client].on_submitted(scattering, id);
        let from = ProcessId(FIRST_CLIENT + client as u32);
        self.transmit(from, id, scattering.is_reliable, &scattering.messages);
    }

    pub(super) fn transmit(
        &mut self,
        from: ProcessId,
        id: ScatteringId,
        is_reliable: bool,
        messages: &[(ProcessId, Vec<u8>)],
    ) {
        let timestamp = self.stamp();
        self.note_sent(timestamp, from, messages);
        let is_lost = self.random.percent(self.faults.lost)
            || messages.iter().any(|(to, _)| self.failed.contains(to));
        if is_lost {
            self.reports.push((self.clock + 300, from, is_reliable, id));
            if is_reliable {
                return;
            }
        } else if is_reliable && self.random.percent(self.faults.unknown) {
            self.reports.push((self.clock + 300, from, is_reliable, id));
        }
        for (index, (to, payload)) in messages.iter().enumerate() {
            if !(is_lost && index == 0) {
                self.enqueue(timestamp, from, *to, is_reliable, payload.clone());
            }
        }
    }

    /// Notes a write of a client, with the parts of all its messages.
    fn note_sent(&mut self, timestamp: u64, from: ProcessId, messages: &[(ProcessId, Vec<u8>)]) {
        for (_, payload) in messages {
            let Some(request) = Request::parse(payload) else { continue };
            if request.kind == RequestKind::Write {
                let (session, number, parts) = (request.session, request.number, BTreeMap::new());
                let effective = Timestamp::from_ns(timestamp);
                let sent = Sent { from, session, number, parts, effective };
                let sent = self.sent.entry(effective).or_insert(sent);
                let parts = request.parts.iter();
                sent.parts.extend(parts.map(|(shard, part)| (*shard, part.to_vec())));
            }
        }
    }

    pub(super) fn enqueue(
        &mut self,
        timestamp: u64,
        from: ProcessId,
        to: ProcessId,
        is_reliable: bool,
        payload: Vec<u8>,
    ) {
        self.sequence += 1;
        let message = Message { timestamp, from, to, is_reliable, payload };
        self.messages.insert((timestamp, from.0, self.sequence), message);
    }

    /// Returns the commit barrier of a process. What is sent later has a timestamp above.
    pub(super) fn barrier(&mut self, process: ProcessId) -> u64 {
        let lag = self.lags.entry(process).or_insert(0);
        if self.random.percent(20) {
            *lag = self.random.below(LAG_MAX_NS);
        }
        self.clock.saturating_sub(*lag)
    }
}
