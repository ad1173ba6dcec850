//! Copies a frame with several receivers to the port of each of them.

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{Port, Verdict};
use onepipe_wire::{HEADER_LEN, Header, SharedReceiver, SharedReceivers, parse_header};

use crate::Switch;
use crate::clock::Time;
use crate::stats::count_drop;

/// A shared frame that has receivers left.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Replication {
    input: Port,
    /// The header as received, before any copy was rewritten.
    header: Header,
    /// Number of receivers that were served, and the last of them.
    served: usize,
    last: SharedReceiver,
}

impl Replication {
    pub(super) fn is_begun(&self) -> bool {
        self.served > 0
    }
}

impl Switch {
    //= spec/ordering.md#R52
    /// Handles a shared frame: each call serves one receiver as if the frame were for it alone. The
    /// promise counts with the last copy only, because until then messages below it follow.
    #[cold]
    pub(super) fn on_shared(&mut self, time: Time, port: Port, frame: &mut [u8]) -> Verdict {
        let Ok((header, _)) = parse_header(frame) else {
            return count_drop(&mut self.stats.dropped_malformed);
        };
        let end = HEADER_LEN + header.length();
        let begun = self
            .replication
            .take_if(|begun| begun.input == port && header.is_copy_of(&begun.header, begun.last));
        let (original, mut served) = match begun {
            Some(begun) => (begun.header, begun.served),
            // The first switch replicates: none comes from another one.
            None if header.is_unaddressed() && self.aggregator.is_upper(port) => {
                return count_drop(&mut self.stats.dropped_malformed);
            }
            None if header.is_unaddressed() => (header, 0),
            // Another switch has replicated it.
            None => return self.on_frame(time, port, frame, true),
        };
        loop {
            let list = frame.get(HEADER_LEN..end).map(SharedReceivers::parse);
            let Some((count, Some(receiver))) =
                list.and_then(Result::ok).map(|(list, _)| (list.count(), list.get(served)))
            else {
                return count_drop(&mut self.stats.dropped_malformed);
            };
            original.write_copy(frame, receiver);
            served += 1;
            debug_assert!(served <= count, "a receiver is served twice");
            let is_last = served == count;
            let counts = is_last || makes(Mistake::PromiseBeforeCopies);
            match self.on_frame(time, port, frame, counts) {
                Verdict::Forward(output) if !is_last => {
                    self.replication =
                        Some(Replication { input: port, header: original, served, last: receiver });
                    return Verdict::Replicate(output);
                }
                // A receiver that cannot be reached costs the others nothing.
                _ if !is_last => {}
                verdict => return verdict,
            }
        }
    }
}
