//! Pings at a fixed interval, and their replies.

use std::collections::VecDeque;

use onepipe_base::{Incarnation, Machine, Mono, Now, Port, ProcessId, Transmit, Verdict};
use onepipe_wire::{Frame, Header, Opcode, SHORT_HEADER_LEN, seal};

/// The first bytes of the payload.
const MAGIC: [u8; 4] = *b"png\x01";
/// Length of the payload: the magic, whether it is a reply, and the time of the request.
const PAYLOAD_LEN: usize = MAGIC.len() + 1 + 8;

/// A ping reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pong {
    /// The host that replied.
    pub from: ProcessId,
    /// Round trip, ns.
    pub ns: u64,
}

/// Sends pings at fixed intervals, and replies to those of others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pinger {
    host: ProcessId,
    card: Port,
    /// Targets with the interval in ns and the time of the next request.
    targets: Vec<(ProcessId, u64, Mono)>,
    /// Replies to send: the destination, and the time of the request.
    replies: VecDeque<(ProcessId, u64)>,
    pongs: VecDeque<Pong>,
    requests_sent: u64,
}

impl Pinger {
    /// Creates a host without targets.
    pub fn new(host: ProcessId, card: Port) -> Self {
        let (replies, pongs) = (VecDeque::new(), VecDeque::new());
        Self { host, card, targets: Vec::new(), replies, pongs, requests_sent: 0 }
    }

    /// Pings `peer` now, and then every `every_ns`.
    pub fn ping(&mut self, now: Now, peer: ProcessId, every_ns: u64) {
        self.targets.push((peer, every_ns.max(1), now.mono));
    }

    /// Returns the number of requests sent.
    pub const fn requests_sent(&self) -> u64 {
        self.requests_sent
    }

    /// Whether a frame is a ping or a reply.
    pub fn is_ping(frame: &[u8]) -> bool {
        Frame::parse(frame)
            .is_ok_and(|frame| frame.opcode == Opcode::Foreign && frame.payload.starts_with(&MAGIC))
    }

    fn take(&mut self, now: Now, frame: &[u8]) -> Option<()> {
        let frame = Frame::parse(frame).ok()?;
        let is_ours = frame.opcode == Opcode::Foreign && frame.header.dst() == self.host;
        let rest = frame.payload.strip_prefix(&MAGIC).filter(|_| is_ours)?;
        let (is_reply, rest) = rest.split_first()?;
        let sent_ns = u64::from_be_bytes(*rest.first_chunk()?);
        let from = frame.header.src();
        match *is_reply {
            0 => self.replies.push_back((from, sent_ns)),
            _ => {
                let ns = now.mono.as_ns().checked_sub(sent_ns)?;
                self.pongs.push_back(Pong { from, ns });
            }
        }
        Some(())
    }

    /// Returns the destination of the next frame, whether it is a reply, and the time of the
    /// request.
    fn next(&mut self, now: Now) -> Option<(ProcessId, bool, u64)> {
        if let Some((to, sent_ns)) = self.replies.pop_front() {
            return Some((to, true, sent_ns));
        }
        let due = self.targets.iter_mut().find(|(.., due)| *due <= now.mono)?;
        let (to, every_ns, sent_at) = *due;
        due.2 = sent_at.after_ns(every_ns);
        self.requests_sent += 1;
        Some((to, false, sent_at.as_ns()))
    }
}

impl Pinger {
    /// Writes the next frame. Returns its destination and its length.
    pub fn poll_to(&mut self, now: Now, slot: &mut [u8]) -> Option<(ProcessId, usize)> {
        let (to, is_reply, sent_ns) = self.next(now)?;
        let space = &mut slot[SHORT_HEADER_LEN..];
        space[..4].copy_from_slice(&MAGIC);
        space[4] = is_reply.into();
        space[5..PAYLOAD_LEN].copy_from_slice(&sent_ns.to_be_bytes());
        let header = Header::new(Opcode::Foreign, self.host, to, Incarnation(1));
        Some((to, seal(slot, header, PAYLOAD_LEN)))
    }
}

impl Machine for Pinger {
    type Event = Pong;

    fn handle_frame(&mut self, now: Now, _port: Port, frame: &mut [u8]) -> Verdict {
        self.take(now, frame).map_or(Verdict::Dropped, |()| Verdict::Consumed)
    }

    fn handle_timeout(&mut self, _now: Now) {}

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        let (_, bytes) = self.poll_to(now, slot)?;
        Some(Transmit { port: self.card, bytes })
    }

    fn poll_event(&mut self) -> Option<Pong> {
        self.pongs.pop_front()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.targets.iter().map(|(.., due)| *due).min()
    }
}

#[cfg(test)]
mod tests {
    use onepipe_base::Timestamp;

    use super::*;

    fn at(ns: u64) -> Now {
        Now { mono: Mono::from_ns(ns), sync: Timestamp::from_ns((1 << 50) + ns) }
    }

    #[test]
    fn pings_are_sent_on_time_and_answered_once() {
        let (one, other) = (ProcessId(0), ProcessId(1));
        let (mut asker, mut answerer) = (Pinger::new(one, Port(1)), Pinger::new(other, Port(1)));
        asker.ping(at(1_000), other, 500);
        let mut slot = [0; 128];
        for round in 0..3 {
            let due = 1_000 + round * 500;
            assert_eq!(asker.poll_timeout(), Some(Mono::from_ns(due)));
            assert_eq!(asker.poll_transmit(at(due - 1), &mut slot), None, "not yet");
            let sent = asker.poll_transmit(at(due), &mut slot).expect("a request is due");
            assert!(Pinger::is_ping(&slot[..sent.bytes]));
            let verdict = answerer.handle_frame(at(due + 50), Port(1), &mut slot[..sent.bytes]);
            assert_eq!(verdict, Verdict::Consumed);
            let sent = answerer.poll_transmit(at(due + 60), &mut slot).expect("a reply is due");
            assert_eq!(answerer.poll_transmit(at(due + 60), &mut [0; 128]), None, "once");
            let verdict = asker.handle_frame(at(due + 100), Port(1), &mut slot[..sent.bytes]);
            assert_eq!(verdict, Verdict::Consumed);
            assert_eq!(asker.poll_event(), Some(Pong { from: other, ns: 100 }));
            assert_eq!(asker.poll_event(), None);
        }
        assert_eq!(asker.requests_sent(), 3);
        assert_eq!(answerer.handle_frame(at(0), Port(1), &mut [0; 30]), Verdict::Dropped);
    }
}
