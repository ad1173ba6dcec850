//! A process with a limited message rate.

use onepipe_base::{Machine, Mono, Now, Port, Transmit, Verdict};
use onepipe_wire::{HEADER_LEN, Messages, Opcode, parse_header};

/// Length of one of several 64-byte messages in a frame, with its header.
const MESSAGE_LEN: usize = 72;

/// A machine that sends only as fast as its CPU time per message allows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RateLimited<M> {
    /// The machine.
    pub machine: M,
    message_ns: u64,
    /// CPU time of an acknowledgement, a probe or its reply.
    ack_ns: u64,
    /// Whether the messages in a frame are counted; otherwise their number follows from the length
    /// of the frame, as all have 64 bytes.
    is_counting: bool,
    busy_until: Mono,
    /// CPU time of work other than sending that is not accounted yet.
    charged_ns: u64,
    /// Whether a frame was requested while the CPU was busy.
    is_waiting: bool,
}

impl<M: Machine> RateLimited<M> {
    /// Creates a machine whose CPU needs `message_ns` for each message that it sends, of any kind.
    pub fn new(machine: M, message_ns: u64) -> Self {
        let busy_until = Mono::from_ns(0);
        let ack_ns = message_ns;
        Self {
            machine,
            message_ns,
            ack_ns,
            is_counting: false,
            busy_until,
            charged_ns: 0,
            is_waiting: false,
        }
    }

    /// Creates a machine whose messages have any length.
    pub fn counting(machine: M, message_ns: u64) -> Self {
        Self { is_counting: true, ..Self::new(machine, message_ns) }
    }

    /// Returns the machine with another CPU time for acknowledgements and probes, in ns.
    pub fn with_ack_ns(self, ack_ns: u64) -> Self {
        Self { ack_ns, ..self }
    }

    /// Charges CPU time for work other than sending: the next frame leaves that much later.
    pub fn charge_ns(&mut self, ns: u64) {
        self.charged_ns += ns;
    }

    /// Returns the CPU time of a frame: that of its messages, at least of one.
    fn cost_ns(&self, frame: &[u8]) -> u64 {
        match parse_header(frame) {
            // NICs or a dedicated core send hop-only frames (1Pipe section 7.1).
            Ok((_, opcode)) if opcode.is_hop_only() => 0,
            Ok((_, opcode)) if is_ack(opcode) => self.ack_ns,
            Ok((header, _)) if self.is_counting || header.is_shared() => {
                let payload = frame.get(HEADER_LEN..HEADER_LEN + header.length());
                let messages = Messages::of_frame(&header, payload.unwrap_or_default());
                self.message_ns * messages.map_or(1, |messages| messages.count().max(1) as u64)
            }
            Ok((header, _)) => self.message_ns * (header.length() / MESSAGE_LEN).max(1) as u64,
            Err(_) => 0,
        }
    }
}

/// Whether a frame acknowledges or probes, in either service.
fn is_ack(opcode: Opcode) -> bool {
    matches!(opcode.in_best_effort(), Opcode::Ack | Opcode::Nak | Opcode::Probe)
}

impl<M: Machine> Machine for RateLimited<M> {
    type Event = M::Event;

    #[inline]
    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        self.machine.handle_frame(now, port, frame)
    }

    fn handle_timeout(&mut self, now: Now) {
        self.is_waiting &= now.mono < self.busy_until;
        if !self.is_waiting && self.machine.poll_timeout().is_some_and(|due| due <= now.mono) {
            self.machine.handle_timeout(now);
        }
    }

    #[inline]
    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        self.is_waiting = now.mono < self.busy_until;
        if !self.is_waiting && self.charged_ns > 0 {
            let ns = core::mem::take(&mut self.charged_ns);
            (self.busy_until, self.is_waiting) = (now.mono.after_ns(ns), true);
        }
        if self.is_waiting {
            return None;
        }
        let transmit = self.machine.poll_transmit(now, slot)?;
        self.busy_until = now.mono.after_ns(self.cost_ns(&slot[..transmit.bytes]));
        Some(transmit)
    }

    #[inline]
    fn poll_event(&mut self) -> Option<M::Event> {
        self.machine.poll_event()
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Mono> {
        // The machine's own timeout can wait: frames that it causes could not leave earlier.
        match self.is_waiting {
            true => Some(self.busy_until),
            false => self.machine.poll_timeout(),
        }
    }
}
