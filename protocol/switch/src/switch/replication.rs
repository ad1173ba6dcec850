//! Copies a frame with several receivers to each output that leads to some of them.

use core::ops::Range;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{Port, Verdict};
use onepipe_topology::FlowKey;
use onepipe_wire::{HEADER_LEN, Header, Opcode, Receivers, header_unchecked, parse_header};

use super::Forwarding;
use crate::Switch;
use crate::clock::Time;
use crate::form::Form;
use crate::stats::count_drop;

/// A shared frame that has receivers left.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Replication {
    input: Port,
    /// The header as received, before any copy was rewritten.
    header: Header,
    /// Position in the list after the last receiver that was served.
    next: usize,
    /// The header of the last copy.
    last: Header,
}

impl Replication {
    pub(super) fn is_begun(&self) -> bool {
        self.next > 0
    }
}

impl Switch {
    //= spec/ordering.md#R52
    /// Handles a shared frame: each call serves the next receivers that one output leads to, as if
    /// the frame were for them alone. The promise counts with the last copy only, because until
    /// then messages below it follow.
    #[cold]
    pub(super) fn on_shared(&mut self, time: Time, port: Port, frame: &mut [u8]) -> Verdict {
        let Ok((header, opcode)) = parse_header(frame) else {
            return count_drop(&mut self.stats.dropped_malformed);
        };
        let begun = self.replications.iter().position(|begun| begun.input == port);
        let begun = begun.map(|position| self.replications.swap_remove(position));
        let (original, mut next) = match begun {
            Some(begun) if header.is_same_copy(&begun.last) => (begun.header, begun.next),
            _ if !header.is_unaddressed() => {
                return self.on_frame(time, port, frame, Forwarding::Whole);
            }
            // Only chips send frames for several receivers to each other.
            _ if self.config.form != Form::Chip && self.aggregator.is_upper(port) => {
                return count_drop(&mut self.stats.dropped_malformed);
            }
            _ => (header, 0),
        };
        loop {
            let Some((list, run)) = parse_list(&original, opcode, frame) else {
                return count_drop(&mut self.stats.dropped_malformed);
            };
            let first = next.max(run.start);
            let (Some(receiver), Some(flow)) = (list.get(first), flow_to(&original, list, first))
            else {
                return count_drop(&mut self.stats.dropped_malformed);
            };
            next = self.end_of_run(port, &original, list, first..run.end);
            debug_assert!((first + 1..=run.end).contains(&next), "each is served once");
            let is_last = next == run.end;
            match next - first {
                1 => original.write_copy(frame, receiver),
                _ => original.write_run(frame, first..next),
            }
            let counts = is_last || makes(Mistake::PromiseBeforeCopies);
            match self.on_frame(time, port, frame, Forwarding::Copy { flow, counts }) {
                Verdict::Forward(output) if !is_last => {
                    let last = header_unchecked(frame);
                    self.replications.extend(last.map(|last| Replication {
                        input: port,
                        header: original,
                        next,
                        last,
                    }));
                    return Verdict::Replicate(output);
                }
                // Receivers that cannot be reached cost the others nothing.
                _ if !is_last => {}
                verdict => return verdict,
            }
        }
    }

    /// Returns the end of the receivers from `run.start` on that one copy of the frame serves:
    /// several of them if the same output leads to a switch on the way to all.
    fn end_of_run(
        &self,
        input: Port,
        header: &Header,
        list: Receivers<'_>,
        run: Range<usize>,
    ) -> usize {
        let output = |position| self.output(Some(input), flow_to(header, list, position)?).ok();
        let first = output(run.start).filter(|first| self.leads_to_chip(*first));
        let mut others = run.start + 1..run.end;
        match first {
            Some(_) => others.find(|position| output(*position) != first).unwrap_or(run.end),
            None => others.start,
        }
    }

    /// Whether the node at `port` is a switch that divides the receivers of shared frames.
    pub(super) fn leads_to_chip(&self, port: Port) -> bool {
        self.config.form == Form::Chip
            && (self.aggregator.is_upper(port) || self.links.is_switch_at(port))
    }
}

/// Returns the receivers of the frame with this header as it was received: their list, and the part
/// of it that the frame is for.
fn parse_list<'a>(
    header: &Header,
    opcode: Opcode,
    frame: &'a [u8],
) -> Option<(Receivers<'a>, Range<usize>)> {
    let payload = frame.get(HEADER_LEN..HEADER_LEN + header.length())?;
    let list = Receivers::parse(opcode, payload).ok()?;
    Some((list, header.run(list.count())?))
}

/// Returns the flow of the frame to a receiver by its position in the list.
fn flow_to(header: &Header, list: Receivers<'_>, position: usize) -> Option<FlowKey> {
    let (dst, psn) = list.get(position)?;
    Some(FlowKey { src: header.src(), dst, psn })
}
