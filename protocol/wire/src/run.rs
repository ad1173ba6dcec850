//! Runs of packets of agreed multicast: one packet that stands for consecutive messages of a
//! client.

use crate::{Amcast, DecodeError, LogicalTime, MessageId, Opcode};

impl Amcast {
    /// Iterates over the packets of a frame with `opcode`, those of a run one by one. A Start or
    /// Prop has one packet or run with its messages, other frames any number of packets. Stops
    /// after the first malformed one.
    pub const fn packets(opcode: Opcode, payload: &[u8]) -> AmcastPackets<'_> {
        AmcastPackets { runs: Self::runs(opcode, payload), run: None, nth: 0 }
    }

    /// As [`Amcast::packets`], without splitting the runs.
    pub const fn runs(opcode: Opcode, payload: &[u8]) -> AmcastRuns<'_> {
        let carries_message = matches!(opcode, Opcode::Start | Opcode::Prop);
        AmcastRuns { rest: Some(payload), carries_message }
    }

    /// Returns packet `nth` of a run, counted from 0, as a single packet. `nth` is at most
    /// [`Amcast::further`].
    #[must_use]
    pub const fn nth(&self, nth: u8) -> Self {
        let sequence = self.id.sequence.wrapping_add(nth as u32);
        let timestamp = LogicalTime(self.timestamp.0.wrapping_add(nth as u64));
        let position = self.position.wrapping_add(nth as u64);
        let id = MessageId { client: self.id.client, sequence };
        Self { id, timestamp, position, further: 0, ..*self }
    }

    /// Returns sequence number, timestamp and position of the last packet; `None` on overflow.
    pub(crate) fn last_of_run(&self) -> Option<(u32, u64, u64)> {
        let further = u64::from(self.further);
        let sequence = self.id.sequence.checked_add(self.further.into())?;
        Some((
            sequence,
            self.timestamp.0.checked_add(further)?,
            self.position.checked_add(further)?,
        ))
    }

    /// Appends `next` to the run and returns true if it continues the run. The fields about the
    /// sender (clock, barrier and count) become those of `next`.
    pub fn append(&mut self, next: &Self) -> bool {
        let is_like = self.flags & next.flags & Self::MESSAGE != 0
            && (self.flags, self.group, self.epoch) == (next.flags, next.group, next.epoch)
            && (self.groups, self.id.client) == (next.groups, next.id.client);
        let next_position = (next.id.sequence, next.timestamp.0, next.position);
        let longer = Self { further: self.further.saturating_add(1), ..*self };
        let is_next = is_like
            && self.further < u8::MAX
            && next.further == 0
            && longer.last_of_run().is_some_and(|last| last == next_position);
        if is_next {
            let Self { clock, barrier, count, .. } = *next;
            *self = Self { clock, barrier, count, ..longer };
        }
        is_next
    }
}

/// A packet of a frame, possibly a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AmcastRun<'a> {
    /// The first packet of the run, with the number of further ones.
    pub first: Amcast,
    /// The message that it carries; in a run all messages, each preceded by its length in 2 bytes.
    pub messages: &'a [u8],
}

/// Bytes of the length before each message of a run.
pub const AMCAST_LENGTH_BYTES: usize = 2;

impl<'a> AmcastRun<'a> {
    /// Splits the first message of a run from `messages`.
    fn split(messages: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        let (length, rest) = messages.split_first_chunk::<AMCAST_LENGTH_BYTES>()?;
        rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
    }
}

/// Iterator over the packets of a frame without splitting runs: see [`Amcast::runs`].
#[derive(Clone, Debug)]
pub struct AmcastRuns<'a> {
    rest: Option<&'a [u8]>,
    carries_message: bool,
}

impl<'a> Iterator for AmcastRuns<'a> {
    type Item = Result<AmcastRun<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.rest.take()?;
        Some(Amcast::parse(rest).and_then(|(first, behind)| {
            if !self.carries_message {
                self.rest = (!behind.is_empty()).then_some(behind);
                return Ok(AmcastRun { first, messages: &[] });
            }
            let mut rest = Some(behind);
            for _ in 0..=first.further {
                rest = rest.and_then(AmcastRun::split).map(|(_, rest)| rest);
            }
            if first.further > 0 && rest != Some(&[]) {
                return Err(DecodeError::Field { field: "further", value: first.further.into() });
            }
            Ok(AmcastRun { first, messages: behind })
        }))
    }
}

/// Iterator over the single packets of a frame: see [`Amcast::packets`].
#[derive(Clone, Debug)]
pub struct AmcastPackets<'a> {
    runs: AmcastRuns<'a>,
    run: Option<AmcastRun<'a>>,
    nth: u8,
}

impl<'a> Iterator for AmcastPackets<'a> {
    /// A packet, and the message that it carries.
    type Item = Result<(Amcast, &'a [u8]), DecodeError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let Some(run) = &mut self.run else {
            return Some(self.runs.next()?.map(|run| {
                if run.first.further == 0 {
                    return (run.first, run.messages);
                }
                (self.nth, self.run) = (0, Some(run));
                let message = self.next_message();
                (run.first.nth(0), message)
            }));
        };
        self.nth += 1;
        let packet = run.first.nth(self.nth);
        let is_last = self.nth == run.first.further;
        let message = self.next_message();
        if is_last {
            self.run = None;
        }
        Some(Ok((packet, message)))
    }
}

impl<'a> AmcastPackets<'a> {
    /// Returns the next message of the run, whose lengths have been verified.
    fn next_message(&mut self) -> &'a [u8] {
        let Some(run) = self.run.as_mut().filter(|_| self.runs.carries_message) else { return &[] };
        let Some((message, rest)) = AmcastRun::split(run.messages) else { return &[] };
        run.messages = rest;
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AMCAST_LEN, GroupId, GroupSet};

    #[test]
    fn run_parses_as_its_packets() {
        let id = |sequence| MessageId { client: 3, sequence };
        let packet = |nth: u64| Amcast {
            timestamp: LogicalTime(70 + nth),
            position: 40 + nth,
            clock: LogicalTime(90 + nth),
            ..Amcast::new(GroupId(1), 1).with_message(id(9 + nth as u32), GroupSet::from_bits(2))
        };
        let mut run = packet(0);
        for other in [packet(2), Amcast { epoch: 2, ..packet(1) }, Amcast { flags: 0, ..packet(1) }]
        {
            assert!(!run.append(&other), "{other:?}");
        }
        assert!(run.append(&packet(1)) && run.append(&packet(2)) && !run.append(&packet(4)));
        let mut bytes = [0; 2 * AMCAST_LEN];
        for buf in bytes.chunks_mut(AMCAST_LEN) {
            run.write(buf).expect("it fits");
        }
        let clock = LogicalTime(92);
        let each = (0..3).map(|nth| Amcast { clock, ..packet(nth) });
        let read = Amcast::packets(Opcode::AmcastAck, &bytes).map(|read| read.expect("a packet").0);
        assert!(read.eq(each.clone().chain(each.clone())));
        // With messages, of any length.
        let mut payload = bytes[..AMCAST_LEN].to_vec();
        payload.extend_from_slice(b"\0\x02ab\0\0\0\x01c");
        let read = Amcast::packets(Opcode::Prop, &payload).map(|read| read.expect("a packet"));
        let messages: [&[u8]; 3] = [b"ab", b"", b"c"];
        assert!(read.eq(each.zip(messages)));
        // The messages must fill the frame.
        for cut in [&payload[..payload.len() - 1], &[&payload[..], b"d"].concat()] {
            let mut read = Amcast::packets(Opcode::Start, cut);
            assert!(matches!(read.next(), Some(Err(DecodeError::Field { field: "further", .. }))));
            assert_eq!(read.next(), None);
        }
    }

    #[test]
    fn run_does_not_overflow() {
        let id = MessageId { client: 0, sequence: u32::MAX - 1 };
        let first = Amcast::new(GroupId(0), 1).with_message(id, GroupSet::from_bits(1));
        let mut run = Amcast { further: 1, ..first };
        let mut buf = [0; AMCAST_LEN];
        run.write(&mut buf).expect("it fits");
        assert_eq!(Amcast::parse(&buf).map(|(read, _)| read), Ok(run));
        run.further = 2;
        run.write(&mut buf).expect("it fits");
        assert!(Amcast::parse(&buf).is_err(), "no number is behind the last");
        Amcast { further: 1, ..Amcast::new(GroupId(0), 1) }.write(&mut buf).expect("it fits");
        assert!(Amcast::parse(&buf).is_err(), "a run is one of messages");
        let mut run = Amcast { further: u8::MAX - 1, position: 0, ..first.nth(0) };
        run.id.sequence = 0;
        let next = |nth| Amcast { further: 0, ..run.nth(nth) };
        let (last, behind) = (next(u8::MAX), next(u8::MAX).nth(1));
        assert!(run.append(&last) && !run.append(&behind), "it is full");
    }
}
