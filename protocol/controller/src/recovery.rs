//! Replies to excluded processes that recover (`docs/design/failure.md`, "What can be done after
//! having failed?").

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use onepipe_base::{Instance, Now, ProcessId, Timestamp, WIRE_MODULUS};
use onepipe_wire::{FAILURE_LEN, Failure, RECOVERY_HEADER_LEN, Recovery};

use crate::decisions::DecisionLog;
use crate::graph::{Graph, process_of};

/// Replies in progress. A reply must not change while its parts are fetched one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct RecoveryReplies {
    by_instance: BTreeMap<Instance, RecoveryReply>,
}

/// Everything that a failed process must know.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RecoveryReply {
    /// Timestamp below which the outcome of everything that the process may have buffered is known.
    pub complete: Timestamp,
    pub failures: Vec<Failure>,
    pub recalls: Vec<(ProcessId, Timestamp)>,
}

impl RecoveryReplies {
    /// Stores a new reply for `instance`. At most `max` are kept: the one of the lowest instance is
    /// evicted, and requested again.
    pub(crate) fn start(&mut self, instance: Instance, reply: RecoveryReply, max: usize) {
        if self.by_instance.len() >= max && !self.by_instance.contains_key(&instance) {
            self.by_instance.pop_first();
        }
        self.by_instance.insert(instance, reply);
    }

    /// Asserts what holds between any two calls.
    pub(crate) fn check_invariants(&self, max: usize) {
        assert!(self.by_instance.len() <= max, "replies beyond the limit");
        assert!(self.by_instance.keys().all(|instance| process_of(*instance).is_some()));
    }

    pub(crate) fn get(&self, instance: Instance) -> Option<&RecoveryReply> {
        self.by_instance.get(&instance)
    }

    pub(crate) fn clear(&mut self) {
        self.by_instance.clear();
    }
}

impl RecoveryReply {
    //= spec/failure.md#R33
    /// Collects the reply for `instance`, which has failed. `None` while the reply is not complete.
    /// No failure may be open, since a later failure may have left scatterings open that the
    /// process holds. No link may be frozen: a notice may have passed while it was dead, and nodes
    /// behind it have not recalled yet what they must.
    pub(crate) fn collect(
        now: Now,
        instance: Instance,
        graph: &Graph,
        decisions: &DecisionLog,
    ) -> Option<Self> {
        let mut frozen = graph.correct_owners().flat_map(|(_, node)| &node.frozen);
        let is_complete = decisions.is_resolved(instance)
            && decisions.open().len() == 0
            && !frozen.any(|entry| !entry.is_resolved);
        let process = process_of(instance).filter(|_| is_complete)?;
        Some(Self {
            complete: decided(now, instance, graph, decisions)?,
            failures: decisions.recent_failures(now.mono, u64::MAX),
            recalls: decisions.recalls(process, instance.incarnation).collect(),
        })
    }

    /// Writes one part into the payload of a frame. Returns its length in bytes, or `None` if there
    /// is no such part.
    pub(crate) fn write(&self, part: u32, buf: &mut [u8]) -> Option<usize> {
        let failures_per_part = buf.len().saturating_sub(RECOVERY_HEADER_LEN) / FAILURE_LEN;
        let recalls_per_part = Recovery::recalls_fitting(buf.len(), 0);
        let failure_parts = self.failures.len().div_ceil(failures_per_part.max(1));
        let parts = (failure_parts + self.recalls.len().div_ceil(recalls_per_part.max(1))).max(1);
        let (part, parts) = (u16::try_from(part).ok()?, u16::try_from(parts).ok()?);
        if part >= parts {
            return None;
        }
        assert!(parts > 0 && failure_parts <= usize::from(parts), "each part has a number");
        let part_index = usize::from(part);
        let failures = self
            .failures
            .iter()
            .copied()
            .skip(part_index * failures_per_part)
            .take(failures_per_part);
        let recall_part = part_index.checked_sub(failure_parts);
        let skip =
            recall_part.map_or(self.recalls.len(), |recall_part| recall_part * recalls_per_part);
        let recalls = self.recalls.iter().copied().skip(skip).take(recalls_per_part);
        Recovery { complete: self.complete, part, parts }.write(buf, failures, recalls)
    }
}

//= spec/failure.md#R44
/// Returns the timestamp below which the outcome of everything that `instance` may have buffered
/// is known: the lowest commit barrier of the correct processes. No process fails below it later.
/// `None` until it has passed the failure of `instance`, which may have received what was scattered
/// until then.
fn decided(
    now: Now,
    instance: Instance,
    graph: &Graph,
    decisions: &DecisionLog,
) -> Option<Timestamp> {
    // A process that knows of none announces a timestamp this far in the past, or further.
    let unset = now.sync.saturating_sub_ns(WIRE_MODULUS / 8);
    let Some(decided) = graph.decided(unset).ok()? else { return Some(now.sync) };
    let failed = decisions.decision(instance).map(|failed| failed.at);
    (Some(decided) > failed).then_some(decided)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onepipe_base::Incarnation;
    use onepipe_wire::RecoveryView;

    #[test]
    fn parts_carry_every_entry_exactly_once() {
        let near = Timestamp::from_ns(1 << 50);
        for (failures, recalls) in [(0, 0), (1, 0), (0, 1), (7, 9), (3, 30), (40, 1)] {
            let failure = |process| Failure {
                first: ProcessId(process),
                count: 1,
                incarnation: Incarnation(1),
                at: near,
                cause: onepipe_base::Cause::Unknown,
            };
            let reply = RecoveryReply {
                complete: near,
                failures: (0..failures).map(failure).collect(),
                recalls: (0..recalls).map(|process| (ProcessId(process), near)).collect(),
            };
            let mut buf = [0; RECOVERY_HEADER_LEN + 3 * FAILURE_LEN + 5];
            let (mut read_failures, mut read_recalls) = (Vec::new(), Vec::new());
            let mut part = 0;
            while let Some(bytes) = reply.write(part, &mut buf) {
                let view = RecoveryView::parse(&buf[..bytes]).expect("written above");
                read_failures.extend(view.failures(near));
                read_recalls.extend(view.recalls(near));
                part += 1;
                if u32::from(view.recovery(near).parts) == part {
                    break;
                }
            }
            assert_eq!(
                (read_failures, read_recalls),
                (reply.failures.clone(), reply.recalls.clone())
            );
            assert_eq!(reply.write(part, &mut buf), None);
        }
    }
}
