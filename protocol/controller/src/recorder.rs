//! What is on its way into the store: failures, members, recalls and completions.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use onepipe_base::{Instance, Mono, Now, ProcessId, Psn};
use onepipe_wire::Undeliverable;

use crate::decisions::DecisionLog;
use crate::evidence::Evidence;
use crate::failure_detection::Decided;
use crate::graph::Graph;
use crate::persist_queue::PersistQueue;
use crate::{FailedInstance, Member, Record, RecordId, Severed};

/// Members per record at most, so that a record stays far below the size limits of stores.
pub(crate) const MEMBERS_PER_RECORD: usize = 256;

/// The records that the store has not written, and who waits for them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Recorder {
    queue: PersistQueue,
    /// Failures on their way into the store.
    deciding: BTreeMap<Instance, Deciding>,
    /// Members to be recorded.
    unrecorded: BTreeSet<Instance>,
    /// Members on their way into the store.
    recording: BTreeSet<Instance>,
    /// Batches of recalls that wait for the store.
    recalls: BTreeMap<RecordId, RecallBatch>,
}

/// A failure on its way into the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Deciding {
    /// When the instance became a suspect.
    pub since: Mono,
    /// When its failure was decided.
    pub at: Mono,
    pub evidence: Evidence,
}

/// A frame with recalls, which is acknowledged when they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RecallBatch {
    pub sender: ProcessId,
    pub psn: Psn,
}

impl Recorder {
    #[inline]
    pub(crate) fn queue(&self) -> &PersistQueue {
        &self.queue
    }

    /// Returns the record to write now; once per attempt.
    pub(crate) fn poll(&mut self) -> Option<(RecordId, Record)> {
        self.queue.poll()
    }

    /// Handles the successful write of `id`. Returns the record, or `None` if `id` was not
    /// outstanding.
    pub(crate) fn on_written(&mut self, id: RecordId) -> Option<Record> {
        self.queue.on_written(id)
    }

    /// Handles the failed write of `id`, which is offered again after `retry_after_ns`. Returns
    /// whether `id` was outstanding.
    pub(crate) fn on_failed(&mut self, now: Now, id: RecordId, retry_after_ns: u64) -> bool {
        self.queue.on_failed(now, id, retry_after_ns)
    }

    pub(crate) fn on_timeout(&mut self, now: Mono) {
        self.queue.on_timeout(now);
    }

    /// Drops everything; numbers of records are not reused.
    pub(crate) fn clear(&mut self) {
        let mut queue = core::mem::take(&mut self.queue);
        queue.clear();
        *self = Self { queue, ..Self::default() };
    }

    pub(crate) fn is_empty(&self) -> bool {
        let has_no_member = self.unrecorded.is_empty() && self.recording.is_empty();
        let has_no_decision = self.deciding.is_empty() && self.recalls.is_empty();
        self.queue.len() == 0 && has_no_member && has_no_decision
    }

    /// Queues a record of those failures that are not on their way: every evaluation finds all
    /// that are not written.
    pub(crate) fn decide(&mut self, now: Mono, mut failed: Vec<Decided>) {
        assert!(self.queue.len() >= self.deciding.len().min(1), "a decision is not queued");
        failed.retain(|decided| !self.deciding.contains_key(&decided.failed.instance));
        if failed.is_empty() {
            return;
        }
        for Decided { failed, since, evidence } in &failed {
            let deciding = Deciding { since: *since, at: now, evidence: *evidence };
            self.deciding.insert(failed.instance, deciding);
        }
        let instances = failed.into_iter().map(|decided| decided.failed).collect();
        self.queue.push(Record::Failed(instances));
    }

    /// Whether any failure is on its way into the store.
    #[inline]
    pub(crate) fn is_deciding(&self) -> bool {
        !self.deciding.is_empty()
    }

    /// Takes what is known of the decision about `failed`, which is written.
    pub(crate) fn take_decided(&mut self, now: Mono, failed: &FailedInstance) -> Deciding {
        let evidence = Evidence { cause: failed.cause, reporter: None };
        let unknown = Deciding { since: now, at: now, evidence };
        self.deciding.remove(&failed.instance).unwrap_or(unknown)
    }

    /// Notes that `instance` is a member that the store does not know.
    pub(crate) fn add_member(&mut self, instance: Instance) {
        self.unrecorded.insert(instance);
    }

    /// Forgets that `instance` is to be recorded.
    pub(crate) fn remove_member(&mut self, instance: Instance) {
        self.unrecorded.remove(&instance);
    }

    /// Whether `instance` is on its way into the store.
    #[inline]
    pub(crate) fn is_recording(&self, instance: Instance) -> bool {
        self.recording.contains(&instance)
    }

    /// Queues a record of members that the store does not know yet.
    pub(crate) fn record_members(&mut self, graph: &mut Graph) {
        // One record at a time; members that join meanwhile go into the next one.
        if !self.recording.is_empty() {
            return;
        }
        let mut members: Vec<Member> = Vec::new();
        while members.len() < MEMBERS_PER_RECORD
            && let Some(instance) = self.unrecorded.pop_first()
        {
            if graph.get(instance).is_none_or(|node| node.is_recorded) {
                continue;
            }
            members.extend(graph.member(instance));
            if let Some(node) = graph.get_mut(instance) {
                node.is_recorded = true;
            }
            self.recording.insert(instance);
        }
        assert_eq!(members.len(), self.recording.len(), "a member is not in the record");
        if !members.is_empty() {
            self.queue.push(Record::Members(members));
        }
    }

    /// Notes that `members` are written.
    pub(crate) fn on_members_written(&mut self, members: &[Member]) {
        for member in members {
            self.recording.remove(&member.instance);
        }
        assert!(self.recording.is_empty(), "one record at a time");
    }

    /// Queues a record of recalls, unless the batch is on its way. Returns false if `max` batches
    /// are already.
    pub(crate) fn recall(
        &mut self,
        batch: RecallBatch,
        entries: Vec<Undeliverable>,
        max: usize,
    ) -> bool {
        if self.recalls.values().any(|pending| *pending == batch) {
            return true;
        }
        if self.recalls.len() >= max {
            return false;
        }
        let id = self.queue.push(Record::Undeliverable { sender: batch.sender, entries });
        let known = self.recalls.insert(id, batch);
        assert!(known.is_none(), "a record has a new number");
        true
    }

    /// Takes the batch whose recalls are in record `id`, which is written.
    pub(crate) fn take_recalled(&mut self, id: RecordId) -> Option<RecallBatch> {
        self.recalls.remove(&id)
    }

    /// Whether a failure, or the completion of one, is on its way into the store.
    pub(crate) fn is_changing_failures(&self) -> bool {
        let mut records = self.queue.iter();
        records.any(|(_, record)| matches!(record, Record::Failed(_) | Record::Resumed { .. }))
    }

    /// Queues a record of resolved `instances` and severed `links`, unless there is none.
    pub(crate) fn complete(&mut self, instances: Vec<Instance>, links: Vec<Severed>) {
        assert!(links.iter().all(|link| link.owner != link.peer), "a link to itself");
        if !(instances.is_empty() && links.is_empty()) {
            self.queue.push(Record::Resumed { instances, links });
        }
    }

    //= spec/failure.md#R23
    /// Asserts that what is on its way into the store is what the records there say. At most
    /// `recalls_max` batches of recalls are.
    pub(crate) fn check_invariants(&self, decisions: &DecisionLog, recalls_max: usize) {
        self.queue.check_invariants();
        assert!(self.recording.len() <= MEMBERS_PER_RECORD, "members beyond the limit");
        assert!(self.recalls.len() <= recalls_max, "recalls beyond the limit");
        let (mut deciding, mut recording, mut recalls) = (0, 0, 0);
        for (id, record) in self.queue.iter() {
            match record {
                Record::Failed(failed) => {
                    deciding += failed.len();
                    let instances: BTreeSet<Instance> =
                        failed.iter().map(|failed| failed.instance).collect();
                    assert_eq!(instances.len(), failed.len(), "a failure twice in a record");
                    for instance in instances {
                        assert!(self.deciding.contains_key(&instance), "{instance:?}");
                        assert!(decisions.decision(instance).is_none(), "{instance:?}");
                    }
                }
                Record::Members(members) => {
                    recording += members.len();
                    let mut members = members.iter();
                    assert!(members.all(|member| self.recording.contains(&member.instance)));
                }
                Record::Undeliverable { sender, .. } => {
                    recalls += 1;
                    let known = self.recalls.get(id).map(|batch| &batch.sender);
                    assert_eq!(known, Some(sender), "the recall is acknowledged when written");
                }
                Record::Resumed { instances, .. } => {
                    let mut open = instances.iter();
                    assert!(open.all(|instance| decisions.is_open(*instance)));
                }
                Record::Epoch { .. } | Record::Dropped { .. } | Record::Leads(_) => {}
            }
        }
        assert_eq!(deciding, self.deciding.len(), "each failure is in one record");
        assert_eq!(recording, self.recording.len(), "each member is in one record");
        assert_eq!(recalls, self.recalls.len(), "each batch of recalls is in one record");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onepipe_base::{Address, Cause, Incarnation, Timestamp};

    fn decided(process: u32) -> Decided {
        let address = Address::Process(ProcessId(process));
        let instance = Instance { address, incarnation: Incarnation(1) };
        let (at, cause) = (Timestamp::from_ns(7), Cause::TimedOut);
        let failed = FailedInstance { instance, at, is_exact: true, cause };
        let evidence = Evidence { cause, reporter: Some(instance) };
        Decided { failed, since: Mono::from_ns(3), evidence }
    }

    #[test]
    fn failure_is_queued_once_until_it_is_written() {
        let mut recorder = Recorder::default();
        let (one, two) = (decided(1), decided(2));
        recorder.decide(Mono::from_ns(5), alloc::vec![one]);
        recorder.decide(Mono::from_ns(6), alloc::vec![one]);
        recorder.decide(Mono::from_ns(9), alloc::vec![one, two]);
        recorder.check_invariants(&DecisionLog::default(), 0);
        let mut written = Vec::new();
        while let Some((id, record)) = recorder.poll() {
            assert_eq!(recorder.on_written(id), Some(record.clone()));
            written.push(record);
        }
        let expected = [one, two].map(|decided| Record::Failed(alloc::vec![decided.failed]));
        assert_eq!(written, expected);
        let known = recorder.take_decided(Mono::from_ns(20), &two.failed);
        assert_eq!((known.since, known.at), (Mono::from_ns(3), Mono::from_ns(9)));
        assert!(recorder.is_deciding(), "the other one is not applied");
        let _ = recorder.take_decided(Mono::from_ns(20), &one.failed);
        let unknown = recorder.take_decided(Mono::from_ns(20), &one.failed);
        assert_eq!((unknown.at, unknown.evidence.reporter), (Mono::from_ns(20), None));
        assert!(recorder.is_empty());
    }

    #[test]
    fn recalls_are_limited_and_repetitions_are_not_queued() {
        let mut recorder = Recorder::default();
        let batch = |psn| RecallBatch { sender: ProcessId(4), psn: Psn(psn) };
        assert!(recorder.recall(batch(1), Vec::new(), 1));
        assert!(recorder.recall(batch(1), Vec::new(), 1), "a repetition");
        assert!(!recorder.recall(batch(2), Vec::new(), 1), "beyond the limit");
        recorder.check_invariants(&DecisionLog::default(), 1);
        let (id, _) = recorder.poll().expect("one record");
        assert_eq!(recorder.take_recalled(id), Some(batch(1)));
        recorder.clear();
        assert!(recorder.is_empty() && recorder.on_written(id).is_none());
    }
}
