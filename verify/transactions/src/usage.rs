//! The resources that transactions use: messages of processes, and bytes on links.

use onepipe_sim_network::{HopKind, LinkId};
use onepipe_sim_traffic::Spent;
use onepipe_transaction::{Reply, Request};
use onepipe_wire::{HEADER_LEN, Messages, Opcode, parse_header};

/// Messages that a process has sent, by what they are for. A message to several receivers that
/// leaves once counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sent {
    /// Requests to replicas.
    pub requests: u64,
    /// Replies to clients.
    pub replies: u64,
    /// Acknowledgements and probes.
    pub acks: u64,
    /// Fragments of large messages, handshakes and all others.
    pub others: u64,
    /// Messages of any kind to the process itself, which leave in no frame.
    pub local: u64,
    /// Frames that carry requests and replies, several of which may share a frame.
    pub frames: u64,
    /// CPU time of the process.
    pub cpu: Spent,
}

impl Sent {
    /// Counts a frame that the process has sent.
    pub(crate) fn on_frame(&mut self, frame: &[u8]) {
        let Ok((header, opcode)) = parse_header(frame) else { return };
        let payload = frame.get(HEADER_LEN..HEADER_LEN + header.length()).unwrap_or_default();
        let messages = match opcode.in_best_effort() {
            _ if opcode.is_hop_only() => return,
            Opcode::Data | Opcode::SharedData => Messages::of_frame(&header, payload),
            Opcode::Ack | Opcode::Nak | Opcode::Probe | Opcode::ReliableAckBundle => {
                self.acks += 1;
                return;
            }
            _ => {
                self.others += 1;
                return;
            }
        };
        self.frames += 1;
        for message in messages.into_iter().flatten().flatten() {
            match message.payload {
                payload if Request::is_request(payload) => self.requests += 1,
                payload if Reply::is_reply(payload) => self.replies += 1,
                _ => self.others += 1,
            }
        }
    }

    /// Returns what was sent since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            requests: self.requests - earlier.requests,
            replies: self.replies - earlier.replies,
            acks: self.acks - earlier.acks,
            others: self.others - earlier.others,
            local: self.local - earlier.local,
            frames: self.frames - earlier.frames,
            cpu: self.cpu.since(earlier.cpu),
        }
    }
}

/// Bytes that have entered each link, overhead included, by [`HopKind`].
#[derive(Clone, Debug, Default)]
pub struct LinkBytes {
    overhead_bytes: u64,
    links: Vec<[u64; HopKind::ALL.len()]>,
}

impl LinkBytes {
    /// Creates counters for links whose frames take `overhead_bytes` more than their length.
    pub(crate) fn new(overhead_bytes: u64) -> Self {
        Self { overhead_bytes, links: Vec::new() }
    }

    /// Counts a frame that enters a link.
    pub(crate) fn on_departure(&mut self, link: LinkId, frame: &[u8]) {
        if self.links.len() <= link.index() {
            self.links.resize(link.index() + 1, Default::default());
        }
        let bytes = frame.len() as u64 + self.overhead_bytes;
        self.links[link.index()][HopKind::of_frame(frame) as usize] += bytes;
    }

    /// Returns the bytes that have entered a link.
    pub fn of(&self, link: LinkId) -> [u64; HopKind::ALL.len()] {
        self.links.get(link.index()).copied().unwrap_or_default()
    }
}

/// The resources that the transactions of a measurement have used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Requests that processes sent for a transaction; one to several receivers counts once.
    pub requests: f64,
    /// Replies for a transaction.
    pub replies: f64,
    /// Acknowledgements and probes for a transaction.
    pub acks: f64,
    /// Fragments, handshakes and all others for a transaction.
    pub others: f64,
    /// Messages of processes to themselves for a transaction.
    pub local: f64,
    /// Requests and replies in a frame.
    pub messages_per_frame: f64,
    /// CPU time of the busiest sending thread, as a share of the measured time.
    pub sending_busiest: f64,
    /// Mean CPU time of the sending threads of processes with a client or a replica, as a share of
    /// the measured time.
    pub sending_mean: f64,
    /// CPU time of the busiest polling thread, as a share of the measured time.
    pub polling_busiest: f64,
    /// Mean CPU time of the polling threads, like that of the sending threads.
    pub polling_mean: f64,
    /// Transmission time of the fullest link of a host, as a share of the measured time.
    pub link_fullest: f64,
    /// Bytes on that link by [`HopKind`], divided by the number of transactions of all processes.
    pub link_bytes: [f64; HopKind::ALL.len()],
}

impl Usage {
    /// Returns the factor by which the rate would grow if nothing but the fullest link of a host
    /// limited it: all bytes but those of beacons grow with the rate.
    pub fn link_headroom(&self) -> f64 {
        let bytes: f64 = self.link_bytes.iter().sum();
        let beacons = self.link_fullest * self.link_bytes[HopKind::Beacon as usize] / bytes;
        (1.0 - beacons) / (self.link_fullest - beacons)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_full_link_carries_twice_as_many_transactions() {
        let usage = Usage {
            link_fullest: 0.5,
            link_bytes: [300.0, 80.0, 0.0, 0.0, 0.0],
            ..Usage::default()
        };
        assert!((usage.link_headroom() - 2.0).abs() < 1e-9);
        // A tenth of the link has beacons, whatever the rate.
        let link_bytes = [300.0, 100.0, 0.0, 100.0, 0.0];
        let usage = Usage { link_bytes, ..usage };
        assert!((usage.link_headroom() - 0.9 / 0.4).abs() < 1e-9);
    }
}
