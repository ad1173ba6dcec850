//! Unordered messages between processes, without a promise of delivery.

use std::collections::{BTreeMap, VecDeque};

use onepipe_base::{
    Incarnation, Machine, Mono, Now, Port, ProcessId, Promises, Psn, Transmit, Verdict,
};
use onepipe_wire::{
    FRAGMENT_HEADER_LEN, Fragment, FragmentHeader, Frame, HEADER_LEN, Header, Message, Messages,
    Opcode, seal, write_fragment_header, write_message,
};

/// Limit on the messages that are being reassembled. At the limit, that with the lowest process and
/// index is dropped.
const PARTIAL_MAX: usize = 1_024;

/// A message that arrived in fragments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Partial {
    bytes: Vec<u8>,
    received: usize,
}

/// The datagrams of a process. As in the frames of ordered messages, small messages to the same
/// receiver share a frame, and large ones are fragmented. Fragments of a message travel one after
/// the other; a message that loses one is lost.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Datagrams {
    id: ProcessId,
    queues: BTreeMap<ProcessId, VecDeque<Vec<u8>>>,
    /// Processes with messages to be sent, each once.
    ready: VecDeque<ProcessId>,
    /// Index and offset of the message that is being fragmented.
    fragmented: Option<(u16, usize)>,
    next_index: u16,
    partial: BTreeMap<(ProcessId, u16), Partial>,
    received: VecDeque<(ProcessId, Vec<u8>)>,
}

impl Datagrams {
    pub fn new(id: ProcessId) -> Self {
        Self {
            id,
            queues: BTreeMap::new(),
            ready: VecDeque::new(),
            fragmented: None,
            next_index: 0,
            partial: BTreeMap::new(),
            received: VecDeque::new(),
        }
    }

    /// Sends a message.
    pub fn send(&mut self, to: ProcessId, payload: Vec<u8>) {
        if to == self.id {
            return self.received.push_back((to, payload));
        }
        let queue = self.queues.entry(to).or_default();
        if queue.is_empty() {
            self.ready.push_back(to);
        }
        queue.push_back(payload);
    }

    /// Writes as many messages as fit, or the next fragment of a large one. Returns the opcode and
    /// the length.
    fn write(&mut self, to: ProcessId, buffer: &mut [u8]) -> (Opcode, usize) {
        let queue = self.queues.entry(to).or_default();
        let mut len = 0;
        while self.fragmented.is_none()
            && let Some(payload) = queue.front()
            && let Some(more) =
                write_message(&mut buffer[len..], Message { delta_ns: 0, index: 0, payload })
        {
            len += more;
            queue.pop_front();
        }
        if len > 0 || queue.is_empty() {
            return (Opcode::Data, len);
        }
        let message = &queue[0];
        let (index, offset) = self.fragmented.unwrap_or((self.next_index, 0));
        let rest = message.len() - offset;
        let piece = rest.min(buffer.len() - FRAGMENT_HEADER_LEN);
        let (message_len, start) = (message.len() as u32, offset as u32);
        write_fragment_header(buffer, FragmentHeader { index, message_len, offset: start });
        buffer[FRAGMENT_HEADER_LEN..][..piece].copy_from_slice(&message[offset..offset + piece]);
        self.fragmented = (piece < rest).then_some((index, offset + piece));
        if self.fragmented.is_none() {
            self.next_index = index.wrapping_add(1);
            queue.pop_front();
        }
        (Opcode::Fragment, FRAGMENT_HEADER_LEN + piece)
    }

    fn on_fragment(&mut self, from: ProcessId, payload: &[u8]) -> Option<()> {
        let Fragment { header, piece } = Fragment::parse(payload).ok()?;
        let key = (from, header.index);
        if header.offset == 0 {
            while self.partial.len() >= PARTIAL_MAX {
                self.partial.pop_first();
            }
            self.partial.insert(key, Partial::default());
        }
        // A gap ends the message: fragments arrive in order or not at all.
        let partial = self.partial.get_mut(&key)?;
        if partial.received != header.offset as usize {
            self.partial.remove(&key);
            return None;
        }
        partial.bytes.extend_from_slice(piece);
        partial.received += piece.len();
        if partial.received == header.message_len as usize {
            let whole = self.partial.remove(&key)?;
            self.received.push_back((from, whole.bytes));
        }
        Some(())
    }

    fn on_frame(&mut self, frame: &[u8]) -> Option<()> {
        let frame = Frame::parse(frame).ok()?;
        let from = frame.header.src();
        match frame.opcode {
            _ if frame.header.dst() != self.id => None,
            Opcode::Data => {
                let messages = Messages::new(frame.payload).flatten();
                self.received.extend(messages.map(|message| (from, message.payload.to_vec())));
                Some(())
            }
            Opcode::Fragment => self.on_fragment(from, frame.payload),
            _ => None,
        }
    }
}

impl Machine for Datagrams {
    /// A message, with its sender.
    type Event = (ProcessId, Vec<u8>);

    fn handle_frame(&mut self, _: Now, _: Port, frame: &mut [u8]) -> Verdict {
        self.on_frame(frame).map_or(Verdict::Dropped, |()| Verdict::Consumed)
    }

    fn handle_timeout(&mut self, _: Now) {}

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        let to = *self.ready.front()?;
        let (opcode, len) = self.write(to, &mut slot[HEADER_LEN..]);
        // No other message is begun before all fragments of this one are sent.
        if self.fragmented.is_none() {
            self.ready.pop_front();
            if self.queues.get(&to).is_some_and(|queue| !queue.is_empty()) {
                self.ready.push_back(to);
            }
        }
        let header = Header::new(opcode, self.id, to, Incarnation(1));
        let header = header.stamped(now.sync, Promises::both(now.sync), Psn::FIRST);
        Some(Transmit { port: Port(0), bytes: seal(slot, header, len) })
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        self.received.pop_front()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        None
    }
}

#[cfg(test)]
mod tests {
    use onepipe_base::Timestamp;

    use super::*;

    const NOW: Now = Now { mono: Mono::from_ns(1), sync: Timestamp::from_ns(1 << 50) };

    /// Passes all frames of one process to another, except for those at these positions. Returns
    /// the number of frames.
    fn pass(from: &mut Datagrams, to: &mut Datagrams, lost: &[usize]) -> usize {
        let mut slot = [0; 1_472];
        let mut count = 0;
        while let Some(transmit) = from.poll_transmit(NOW, &mut slot) {
            if !lost.contains(&count) {
                to.handle_frame(NOW, Port(0), &mut slot[..transmit.bytes]);
            }
            count += 1;
        }
        count
    }

    #[test]
    fn small_messages_share_a_frame_and_large_ones_are_fragmented() {
        let (mut one, mut other) = (Datagrams::new(ProcessId(1)), Datagrams::new(ProcessId(2)));
        let sent: Vec<Vec<u8>> = vec![vec![1; 64], vec![], vec![2; 64], vec![3; 4_000], vec![4; 9]];
        sent.iter().for_each(|payload| one.send(ProcessId(2), payload.clone()));
        assert_eq!(pass(&mut one, &mut other, &[]), 1 + 3 + 1);
        let received = std::iter::from_fn(|| other.poll_event());
        assert!(received.eq(sent.into_iter().map(|payload| (ProcessId(1), payload))));
    }

    #[test]
    fn a_message_that_loses_a_fragment_is_lost() {
        for lost in 0..3 {
            let (mut one, mut other) = (Datagrams::new(ProcessId(1)), Datagrams::new(ProcessId(2)));
            one.send(ProcessId(2), vec![1; 4_000]);
            assert_eq!(pass(&mut one, &mut other, &[lost]), 3);
            assert_eq!(other.poll_event(), None);
            one.send(ProcessId(2), vec![2; 4_000]);
            pass(&mut one, &mut other, &[]);
            assert_eq!(other.poll_event(), Some((ProcessId(1), vec![2; 4_000])));
        }
    }
}
