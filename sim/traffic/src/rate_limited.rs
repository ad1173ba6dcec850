//! A process with two threads of limited speed.

use std::collections::VecDeque;

use onepipe_base::{Machine, Mono, Now, Port, Transmit, Verdict};
use onepipe_wire::{HEADER_LEN, Header, Messages, Opcode, parse_header};

/// Length of one of several 64-byte messages in a frame, with its header.
const MESSAGE_LEN: usize = 72;
/// A frame of a rival with fewer bytes than this carries nothing but an acknowledgement.
const FOREIGN_LEN_MIN: usize = 20;

/// CPU times of a process, in ns.
///
/// A process has a thread that sends and one that polls for received packets, and the latter
/// generates acknowledgements, too (1Pipe sections 6.1 and 7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CpuTimes {
    /// Of the sending thread, for each message, of any kind.
    pub send_ns: u64,
    /// Of the sending thread, for each frame of acknowledgements and each probe.
    pub send_ack_ns: u64,
    /// Of the polling thread, for each received message with its acknowledgement.
    pub receive_ns: u64,
    /// Of the polling thread, for each received frame of acknowledgements and each probe.
    pub receive_ack_ns: u64,
}

impl CpuTimes {
    /// A process whose CPU is never busy.
    pub const NONE: Self = Self { send_ns: 0, send_ack_ns: 0, receive_ns: 0, receive_ack_ns: 0 };

    /// The processes of 1Pipe's testbed:
    ///
    /// - a process sends 5 M messages/s (figure 8a);
    /// - it receives, acknowledges, orders and delivers 6.1 M messages/s (figure 11, no delay);
    /// - a received acknowledgement takes 0.56 of the time of a received message. The paper does
    ///   not give that share: it was measured for our endpoints (`onepipe bench endpoint`, between
    ///   0.54 and 0.59).
    pub const PAPER: Self =
        Self { send_ns: 200, send_ack_ns: 0, receive_ns: 164, receive_ack_ns: 92 };

    /// The same processes with one thread, which sends acknowledgements as well: each costs as much
    /// as a message. Reception costs nothing. This shows what the second thread is worth.
    pub const ONE_THREAD: Self =
        Self { send_ns: 200, send_ack_ns: 200, receive_ns: 0, receive_ack_ns: 0 };
}

/// CPU time that the threads of a process have used, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Spent {
    /// Of the thread that sends.
    pub sending_ns: u64,
    /// Of the thread that polls for received frames.
    pub polling_ns: u64,
}

impl Spent {
    /// Returns what was used since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            sending_ns: self.sending_ns - earlier.sending_ns,
            polling_ns: self.polling_ns - earlier.polling_ns,
        }
    }
}

/// What a frame contains, as far as CPU time depends on it.
enum Content {
    Messages(u64),
    /// Acknowledgements, a probe or its reply, and nothing else.
    Acks,
    /// NICs or a dedicated core send and receive hop-only frames (1Pipe section 7.1).
    HopOnly,
}

/// A machine that sends and receives only as fast as the CPU times of its process allow.
///
/// A frame that arrives while the polling thread is busy waits in an inbox, which flow control
/// bounds; an idle process handles a frame at once. Frames are handled in the order of their
/// arrival, so a beacon overtakes no message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RateLimited<M> {
    /// The machine.
    pub machine: M,
    times: CpuTimes,
    /// Whether the messages in a frame are counted; otherwise their number follows from the length
    /// of the frame, as all have 64 bytes.
    is_counting: bool,
    sending_until: Mono,
    polling_until: Mono,
    /// CPU time of work without a frame that is not accounted yet.
    charged: Spent,
    /// Whether a frame was requested while the sending thread was busy.
    is_waiting: bool,
    /// Frames with the instants of their arrival.
    inbox: VecDeque<(Mono, Port, Vec<u8>)>,
    spent: Spent,
}

impl<M: Machine> RateLimited<M> {
    /// Creates a machine for messages of 64 bytes, with these CPU times.
    pub fn new(machine: M, times: CpuTimes) -> Self {
        Self {
            machine,
            times,
            is_counting: false,
            sending_until: Mono::from_ns(0),
            polling_until: Mono::from_ns(0),
            charged: Spent::default(),
            is_waiting: false,
            inbox: VecDeque::new(),
            spent: Spent::default(),
        }
    }

    /// Creates a machine whose messages have any length.
    pub fn counting(machine: M, times: CpuTimes) -> Self {
        Self { is_counting: true, ..Self::new(machine, times) }
    }

    /// Returns the CPU time that was used so far.
    pub fn spent(&self) -> Spent {
        self.spent
    }

    /// Charges the CPU times of a message of the process to itself, which leaves in no frame and
    /// takes as long as any other.
    pub fn charge_local_message(&mut self) {
        self.charged.sending_ns += self.times.send_ns;
        self.charged.polling_ns += self.times.receive_ns;
    }

    fn content(&self, frame: &[u8]) -> Content {
        match parse_header(frame) {
            Ok((_, opcode)) if opcode.is_hop_only() => Content::HopOnly,
            Ok((header, opcode)) if is_ack(&header, opcode) => Content::Acks,
            Ok((header, _)) if self.is_counting || header.is_shared() => {
                let payload = frame.get(HEADER_LEN..HEADER_LEN + header.length());
                let messages = Messages::of_frame(&header, payload.unwrap_or_default());
                Content::Messages(messages.map_or(1, |messages| messages.count().max(1) as u64))
            }
            Ok((header, _)) => Content::Messages((header.length() / MESSAGE_LEN).max(1) as u64),
            Err(_) => Content::HopOnly,
        }
    }

    /// Uses the sending thread from `now` on.
    fn spend_sending(&mut self, now: Mono, ns: u64) {
        self.sending_until = now.after_ns(ns);
        self.spent.sending_ns += ns;
    }

    /// Passes a frame to the machine, and uses the polling thread from `begin` on.
    #[inline]
    fn receive(&mut self, now: Now, begin: Mono, port: Port, frame: &mut [u8]) -> Verdict {
        let own_ns = match self.content(frame) {
            Content::Messages(messages) => messages * self.times.receive_ns,
            Content::Acks => self.times.receive_ack_ns,
            Content::HopOnly => 0,
        };
        let ns = own_ns + core::mem::take(&mut self.charged.polling_ns);
        self.polling_until = begin.after_ns(ns);
        self.spent.polling_ns += ns;
        self.machine.handle_frame(now, port, frame)
    }
}

/// Whether a frame only acknowledges or probes, in either service or of a rival.
fn is_ack(header: &Header, opcode: Opcode) -> bool {
    match opcode.in_best_effort() {
        Opcode::Ack | Opcode::Nak | Opcode::Probe | Opcode::ReliableAckBundle => true,
        Opcode::Foreign => header.length() < FOREIGN_LEN_MIN,
        _ => false,
    }
}

impl<M: Machine> Machine for RateLimited<M> {
    type Event = M::Event;

    #[inline]
    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        if now.mono < self.polling_until || !self.inbox.is_empty() {
            self.inbox.push_back((now.mono, port, frame.to_vec()));
            return Verdict::Consumed;
        }
        self.receive(now, now.mono, port, frame)
    }

    fn handle_timeout(&mut self, now: Now) {
        // A host whose network card is full runs its timers late. The polling thread has not
        // waited meanwhile.
        while now.mono >= self.polling_until
            && let Some((arrived, port, mut frame)) = self.inbox.pop_front()
        {
            let begin = arrived.max(self.polling_until);
            self.receive(now, begin, port, &mut frame);
        }
        self.is_waiting &= now.mono < self.sending_until;
        if !self.is_waiting && self.machine.poll_timeout().is_some_and(|due| due <= now.mono) {
            self.machine.handle_timeout(now);
        }
    }

    #[inline]
    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        self.is_waiting = now.mono < self.sending_until;
        if !self.is_waiting && self.charged.sending_ns > 0 {
            let ns = core::mem::take(&mut self.charged.sending_ns);
            self.spend_sending(now.mono, ns);
            self.is_waiting = true;
        }
        if self.is_waiting {
            return None;
        }
        let transmit = self.machine.poll_transmit(now, slot)?;
        let ns = match self.content(&slot[..transmit.bytes]) {
            Content::Messages(messages) => messages * self.times.send_ns,
            Content::Acks => self.times.send_ack_ns,
            Content::HopOnly => 0,
        };
        self.spend_sending(now.mono, ns);
        Some(transmit)
    }

    #[inline]
    fn poll_event(&mut self) -> Option<M::Event> {
        self.machine.poll_event()
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Mono> {
        // The machine's own timeout can wait: frames that it causes could not leave earlier.
        let sending = match self.is_waiting {
            true => Some(self.sending_until),
            false => self.machine.poll_timeout(),
        };
        let polling = (!self.inbox.is_empty()).then_some(self.polling_until);
        match (sending, polling) {
            (Some(sending), Some(polling)) => Some(sending.min(polling)),
            (sending, polling) => sending.or(polling),
        }
    }
}

#[cfg(test)]
mod tests {
    use onepipe_base::{Incarnation, ProcessId, Timestamp};
    use onepipe_wire::seal;

    use super::*;

    /// Records what it receives, and sends what is pending.
    #[derive(Default)]
    struct Recorder {
        received: Vec<Opcode>,
        pending: VecDeque<Opcode>,
    }

    impl Machine for Recorder {
        type Event = ();

        fn handle_frame(&mut self, _: Now, _: Port, frame: &mut [u8]) -> Verdict {
            self.received.push(parse_header(frame).expect("a header").1);
            Verdict::Consumed
        }

        fn handle_timeout(&mut self, _: Now) {}

        fn poll_transmit(&mut self, _: Now, slot: &mut [u8]) -> Option<Transmit> {
            let frame = frame(self.pending.pop_front()?);
            slot[..frame.len()].copy_from_slice(&frame);
            Some(Transmit { port: Port(0), bytes: frame.len() })
        }

        fn poll_event(&mut self) -> Option<()> {
            None
        }

        fn poll_timeout(&self) -> Option<Mono> {
            None
        }
    }

    /// Returns a frame with one message of 64 bytes, or without a payload.
    fn frame(opcode: Opcode) -> Vec<u8> {
        let header = Header::new(opcode, ProcessId(1), ProcessId(2), Incarnation(1));
        let mut slot = [0; 256];
        let payload_len = if opcode == Opcode::Data { 64 } else { 0 };
        let len = seal(&mut slot, header, payload_len);
        slot[..len].to_vec()
    }

    fn at(ns: u64) -> Now {
        Now { mono: Mono::from_ns(ns), sync: Timestamp::from_ns(ns) }
    }

    fn receive(process: &mut RateLimited<Recorder>, ns: u64, opcode: Opcode) {
        process.handle_frame(at(ns), Port(0), &mut frame(opcode));
    }

    #[test]
    fn idle_process_handles_frame_at_once_and_busy_one_later() {
        let mut process = RateLimited::new(Recorder::default(), CpuTimes::PAPER);
        receive(&mut process, 1_000, Opcode::Data);
        assert_eq!(process.machine.received, [Opcode::Data]);
        receive(&mut process, 1_001, Opcode::Ack);
        receive(&mut process, 1_002, Opcode::Beacon);
        assert_eq!(process.machine.received.len(), 1, "the polling thread is busy");
        assert_eq!(process.poll_timeout(), Some(Mono::from_ns(1_164)));
        process.handle_timeout(at(1_163));
        assert_eq!(process.machine.received.len(), 1);
        process.handle_timeout(at(1_164));
        assert_eq!(process.machine.received[1..], [Opcode::Ack], "no frame overtakes another");
        let end_ns = 1_164 + CpuTimes::PAPER.receive_ack_ns;
        assert_eq!(process.poll_timeout(), Some(Mono::from_ns(end_ns)));
        process.handle_timeout(at(end_ns));
        assert_eq!(process.machine.received[2..], [Opcode::Beacon]);
        assert_eq!(process.poll_timeout(), None);
        receive(&mut process, end_ns, Opcode::Data);
        assert_eq!(process.machine.received.len(), 4, "beacons cost nothing");
    }

    /// The timers of a host run late while its network card is full: with one frame a timer, 512
    /// processes that sent at 5 M/s received at 1.4 M/s (figure 8a).
    #[test]
    fn polling_thread_has_not_waited_for_a_late_timer() {
        let mut process = RateLimited::new(Recorder::default(), CpuTimes::PAPER);
        (1_000..1_004).for_each(|ns| receive(&mut process, ns, Opcode::Data));
        receive(&mut process, 3_000, Opcode::Data);
        assert_eq!(process.machine.received.len(), 1, "the timer was due and has not run");
        process.handle_timeout(at(3_000));
        assert_eq!(process.machine.received.len(), 5);
        let until_ns = 3_000 + CpuTimes::PAPER.receive_ns;
        receive(&mut process, until_ns - 1, Opcode::Data);
        assert_eq!(process.machine.received.len(), 5, "the last one began when it had arrived");
        assert_eq!(process.poll_timeout(), Some(Mono::from_ns(until_ns)));
    }

    /// Sends these frames as soon as possible. Returns when each leaves.
    fn departures(times: CpuTimes, frames: &[Opcode]) -> (Vec<u64>, Spent) {
        let pending = frames.iter().copied().collect();
        let machine = Recorder { pending, ..Recorder::default() };
        let mut process = RateLimited::new(machine, times);
        let (mut ns, mut left) = (0, Vec::new());
        loop {
            while process.poll_transmit(at(ns), &mut [0; 256]).is_some() {
                left.push(ns);
            }
            let Some(due) = process.poll_timeout() else { return (left, process.spent()) };
            ns = due.as_ns();
            process.handle_timeout(at(ns));
        }
    }

    #[test]
    fn second_thread_sends_acks() {
        let frames = [Opcode::Data, Opcode::Ack, Opcode::Probe, Opcode::Data, Opcode::Ack];
        let (two, spent) = departures(CpuTimes::PAPER, &frames);
        assert_eq!(two, [0, 200, 200, 200, 400]);
        assert_eq!(spent, Spent { sending_ns: 400, polling_ns: 0 });
        let (one, spent) = departures(CpuTimes::ONE_THREAD, &frames);
        assert_eq!(one, [0, 200, 400, 600, 800]);
        assert_eq!(spent, Spent { sending_ns: 1_000, polling_ns: 0 });
    }

    #[test]
    fn message_to_itself_takes_both_threads() {
        let mut process = RateLimited::new(Recorder::default(), CpuTimes::PAPER);
        process.charge_local_message();
        assert_eq!(process.poll_transmit(at(0), &mut [0; 256]), None);
        receive(&mut process, 0, Opcode::Data);
        receive(&mut process, 1, Opcode::Data);
        assert_eq!(process.poll_timeout(), Some(Mono::from_ns(200)));
        process.handle_timeout(at(327));
        assert_eq!(process.machine.received.len(), 1, "two messages take 328 ns");
        process.handle_timeout(at(328));
        assert_eq!(process.machine.received.len(), 2);
        assert_eq!(process.spent(), Spent { sending_ns: 200, polling_ns: 3 * 164 });
    }
}
