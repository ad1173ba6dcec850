//! The decision log: everything that is decided and in the store.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use onepipe_base::{Address, Cause, Incarnation, Instance, Mono, ProcessId, Timestamp};
use onepipe_wire::{Failure, GroupId, Undeliverable};

use crate::{FailedInstance, Leadership, Member, Record};

/// The contents of the store, and which of its failures are still open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct DecisionLog {
    /// Failures of processes, in the order of their decision.
    failures: Vec<Decision>,
    /// Index into `failures` of each instance that has one.
    by_instance: BTreeMap<Instance, usize>,
    /// The latest failed incarnation of each process.
    latest: BTreeMap<ProcessId, Incarnation>,
    /// Failed instances, switches included, that not all processes have completed.
    open: BTreeMap<Instance, FailedInstance>,
    /// By receiver: the recalls that it has not acknowledged, and the sender of each.
    recalls: BTreeMap<ProcessId, BTreeSet<(Undeliverable, ProcessId)>>,
    /// Leaders of agreed-multicast groups, kept for their coordinators.
    leaders: BTreeMap<GroupId, Leadership>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Decision {
    failed: FailedInstance,
    /// Digest of this failure and of all earlier ones.
    digest: u64,
    /// When it was recorded or loaded.
    recorded_at: Mono,
    is_resolved: bool,
}

impl DecisionLog {
    /// Replays a log. Also returns the members.
    pub(crate) fn load(now: Mono, records: &[Record]) -> (Self, BTreeMap<Instance, Member>) {
        let (mut decisions, mut members) = (Self::default(), BTreeMap::new());
        for record in records {
            if let Record::Members(list) = record {
                members.extend(list.iter().map(|member| (member.instance, member.clone())));
            }
            for instance in decisions.apply(now, record) {
                members.remove(instance);
            }
        }
        members.retain(|instance, _| !decisions.is_resolved(*instance));
        (decisions, members)
    }

    /// Applies a record that is in the store. Returns the instances that it resolves.
    pub(crate) fn apply<'a>(&mut self, now: Mono, record: &'a Record) -> &'a [Instance] {
        match record {
            Record::Epoch { .. } | Record::Members(_) => {}
            Record::Failed(instances) => {
                instances.iter().for_each(|failed| self.record_failure(now, *failed))
            }
            // A link that died alone may have come back since: nothing follows from its record.
            Record::Resumed { instances, .. } => {
                instances.iter().for_each(|instance| self.mark_resolved(*instance));
                return instances;
            }
            Record::Undeliverable { sender, entries } => {
                for entry in entries {
                    self.recalls.entry(entry.to).or_default().insert((*entry, *sender));
                }
            }
            Record::Leads(leadership) => {
                let last = self.leaders.entry(leadership.group).or_insert(*leadership);
                if last.epoch < leadership.epoch {
                    *last = *leadership;
                }
            }
        }
        &[]
    }

    //= spec/failure.md#R23
    /// Records a failure. The first decision about an instance of a process is final.
    fn record_failure(&mut self, recorded_at: Mono, failed: FailedInstance) {
        if let Address::Process(process) = failed.instance.address {
            if self.by_instance.contains_key(&failed.instance) {
                return;
            }
            self.by_instance.insert(failed.instance, self.failures.len());
            let digest = extend(self.digest(self.failures.len()).unwrap_or(0), failed);
            self.failures.push(Decision { failed, digest, recorded_at, is_resolved: false });
            let latest = self.latest.entry(process).or_insert(failed.instance.incarnation);
            *latest = failed.instance.incarnation.max(*latest);
        }
        self.open.insert(failed.instance, failed);
    }

    fn mark_resolved(&mut self, instance: Instance) {
        self.open.remove(&instance);
        if let Some(index) = self.by_instance.get(&instance) {
            self.failures[*index].is_resolved = true;
        }
    }

    /// Whether this incarnation of the process, or a later one, has failed.
    pub(crate) fn has_failed(&self, instance: Instance) -> bool {
        match instance.address {
            Address::Process(process) => {
                self.latest.get(&process).is_some_and(|latest| *latest >= instance.incarnation)
            }
            Address::Switch(_) => false,
        }
    }

    /// Returns the decision about exactly this instance of a process or, while it is open, of a
    /// switch.
    pub(crate) fn decision(&self, instance: Instance) -> Option<FailedInstance> {
        let decided = self.by_instance.get(&instance).map(|index| self.failures[*index].failed);
        decided.or_else(|| self.open.get(&instance).copied())
    }

    /// Whether the process has failed and all processes have completed that.
    pub(crate) fn is_resolved(&self, instance: Instance) -> bool {
        self.has_failed(instance) && !self.open.contains_key(&instance)
    }

    /// Returns the failures that not all processes have completed.
    pub(crate) fn open(&self) -> impl ExactSizeIterator<Item = FailedInstance> {
        self.open.values().copied()
    }

    pub(crate) fn is_open(&self, instance: Instance) -> bool {
        self.open.contains_key(&instance)
    }

    /// Returns all failures of processes, oldest first.
    pub(crate) fn failures(&self) -> impl ExactSizeIterator<Item = FailedInstance> {
        self.failures.iter().map(|decision| decision.failed)
    }

    /// Returns the digest of the first `count` failures of processes; `None` if there are fewer.
    pub(crate) fn digest(&self, count: usize) -> Option<u64> {
        match count.checked_sub(1) {
            None => Some(0),
            Some(last) => self.failures.get(last).map(|decision| decision.digest),
        }
    }

    /// Whether any failure of a process is resolved.
    pub(crate) fn has_resolved(&self) -> bool {
        self.failures.iter().any(|decision| decision.is_resolved)
    }

    /// Whether any failure is open or recent, so that a notice has to be sent.
    pub(crate) fn has_notice(&self, now: Mono, notice_retention_ns: u64) -> bool {
        let is_recent = |last: &Decision| now.since_ns(last.recorded_at) < notice_retention_ns;
        let is_process = |instance: &Instance| matches!(instance.address, Address::Process(_));
        self.failures.last().is_some_and(is_recent) || self.open.keys().any(is_process)
    }

    /// Returns the open and the recent failures in the form of a notice: incarnations of one
    /// process in their order, and adjacent processes with equal failure timestamps and causes in
    /// one entry.
    pub(crate) fn recent_failures(&self, now: Mono, notice_retention_ns: u64) -> Vec<Failure> {
        let is_recent = |decision: &&Decision| {
            !decision.is_resolved || now.since_ns(decision.recorded_at) < notice_retention_ns
        };
        to_failures(self.failures.iter().filter(is_recent).map(|decision| decision.failed))
    }

    /// Returns the failure of the latest failed incarnation of `process`, in the form of a notice.
    pub(crate) fn latest_failure(&self, process: ProcessId) -> Option<Failure> {
        let address = Address::Process(process);
        let instance = Instance { address, incarnation: *self.latest.get(&process)? };
        to_failures(self.decision(instance).into_iter()).pop()
    }

    /// Returns the recalls that this incarnation of `process` has not acknowledged. Incarnation 0
    /// in a recall stands for any.
    pub(crate) fn recalls(
        &self,
        process: ProcessId,
        incarnation: Incarnation,
    ) -> impl Iterator<Item = (ProcessId, Timestamp)> + use<'_> {
        let applies = move |entry: &Undeliverable| {
            entry.incarnation == Incarnation(0) || entry.incarnation == incarnation
        };
        let all = self.recalls.get(&process).into_iter().flatten();
        all.filter(move |(entry, _)| applies(entry)).map(|(entry, from)| (*from, entry.timestamp))
    }

    /// Whether this recall is recorded.
    pub(crate) fn has_recall(&self, sender: ProcessId, entry: Undeliverable) -> bool {
        self.recalls.get(&entry.to).is_some_and(|recalls| recalls.contains(&(entry, sender)))
    }

    /// Drops the recalls for incarnations of `process` before `before`. That incarnation is a
    /// member, and has nothing to recover of earlier ones.
    pub(crate) fn drop_recalls(&mut self, process: ProcessId, before: Incarnation) {
        if let Some(recalls) = self.recalls.get_mut(&process) {
            recalls.retain(|(entry, _)| {
                entry.incarnation != Incarnation(0) && entry.incarnation >= before
            });
        }
    }

    /// Returns the same state in as few records as possible.
    pub(crate) fn records(&self) -> Vec<Record> {
        let mut records = Vec::new();
        let mut failed: Vec<FailedInstance> = self.failures().collect();
        failed.extend(self.open().filter(|open| !self.by_instance.contains_key(&open.instance)));
        let resolved = self.failures.iter().filter(|decision| decision.is_resolved);
        let instances: Vec<Instance> = resolved.map(|decision| decision.failed.instance).collect();
        if !failed.is_empty() {
            records.push(Record::Failed(failed));
        }
        if !instances.is_empty() {
            records.push(Record::Resumed { instances, links: Vec::new() });
        }
        for (entry, sender) in self.recalls.values().flatten() {
            let entries = alloc::vec![*entry];
            records.push(Record::Undeliverable { sender: *sender, entries });
        }
        records.extend(self.leaders.values().copied().map(Record::Leads));
        records
    }
}

/// Extends the digest of a sequence of failures by one: FNV-1a over what is final about it.
fn extend(digest: u64, failed: FailedInstance) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let (address, incarnation) = Instance::to_words(Some(failed.instance));
    let words = [digest, address.into(), incarnation.into(), failed.at.as_ns()];
    let bytes = words.into_iter().flat_map(u64::to_be_bytes);
    bytes.fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

/// Converts failures into the entries of a notice; adjacent processes with equal F and
/// cause share one entry.
fn to_failures(failures: impl Iterator<Item = FailedInstance>) -> Vec<Failure> {
    let mut list: Vec<(Incarnation, Timestamp, Cause, ProcessId)> = failures
        .filter_map(|failed| match failed.instance.address {
            Address::Process(process) => {
                Some((failed.instance.incarnation, failed.at, failed.cause, process))
            }
            Address::Switch(_) => None,
        })
        .collect();
    list.sort_unstable();
    let mut failures: Vec<Failure> = Vec::new();
    for (incarnation, at, cause, process) in list {
        match failures.last_mut() {
            Some(last)
                if (last.incarnation, last.at, last.cause) == (incarnation, at, cause)
                    && last.first.0 + last.count == process.0 =>
            {
                last.count += 1;
            }
            _ => failures.push(Failure { first: process, count: 1, incarnation, at, cause }),
        }
    }
    failures
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn failed(process: u32, incarnation: u32, ns: u64) -> FailedInstance {
        let address = Address::Process(ProcessId(process));
        let instance = Instance { address, incarnation: Incarnation(incarnation) };
        FailedInstance {
            instance,
            at: Timestamp::from_ns(ns),
            is_exact: true,
            cause: Cause::Unknown,
        }
    }

    const NOW: Mono = Mono::from_ns(1_000);

    #[test]
    fn merges_adjacent_processes_with_equal_failure_timestamps() {
        let instances =
            vec![failed(4, 2, 70), failed(5, 1, 90), failed(3, 1, 90), failed(4, 1, 90)];
        let (decisions, _) = DecisionLog::load(NOW, &[Record::Failed(instances)]);
        let notice = decisions.recent_failures(NOW, 0);
        let row = |first, count, incarnation, ns| Failure {
            first: ProcessId(first),
            count,
            incarnation: Incarnation(incarnation),
            at: Timestamp::from_ns(ns),
            cause: Cause::Unknown,
        };
        assert_eq!(notice, [row(3, 3, 1, 90), row(4, 1, 2, 70)]);
        assert_eq!(decisions.latest_failure(ProcessId(4)), Some(row(4, 1, 2, 70)));
        assert_eq!(decisions.latest_failure(ProcessId(6)), None);
    }

    //= spec/failure.md#R23
    #[test]
    fn decision_is_immutable_across_reload() {
        let (one, again) = (failed(1, 1, 10), failed(1, 1, 20));
        let open = failed(2, 1, 30);
        let records = [
            Record::Failed(vec![one]),
            Record::Failed(vec![again, open]),
            Record::Resumed { instances: vec![one.instance], links: vec![] },
        ];
        let (decisions, _) = DecisionLog::load(NOW, &records);
        assert_eq!(decisions.decision(one.instance), Some(one));
        assert!(decisions.is_resolved(one.instance) && !decisions.is_resolved(open.instance));
        assert!(
            decisions.has_failed(open.instance) && !decisions.has_failed(failed(2, 2, 0).instance)
        );
        assert_eq!(decisions.open().collect::<Vec<_>>(), [open]);
        let (copy, _) = DecisionLog::load(NOW, &decisions.records());
        assert_eq!(copy, decisions);
        assert_eq!(decisions.recent_failures(NOW, 0).len(), 1, "resolved failures are not recent");
        assert_eq!(decisions.recent_failures(NOW, 1).len(), 2);
    }

    #[test]
    fn keeps_the_latest_leader_of_each_group() {
        let leads = |group, epoch, leader| {
            let (group, leader) = (GroupId(group), ProcessId(leader));
            Record::Leads(Leadership { group, epoch, leader })
        };
        let (decisions, _) =
            DecisionLog::load(NOW, &[leads(1, 3, 7), leads(0, 2, 5), leads(1, 2, 6)]);
        assert_eq!(decisions.records(), [leads(0, 2, 5), leads(1, 3, 7)]);
    }

    #[test]
    fn resolved_member_is_removed() {
        let instance = failed(1, 1, 10).instance;
        let member = Member { instance, links: vec![] };
        let other = Member { instance: failed(2, 1, 0).instance, links: vec![] };
        let records = [
            Record::Members(vec![member, other.clone()]),
            Record::Failed(vec![failed(1, 1, 10)]),
            Record::Resumed { instances: vec![instance], links: vec![] },
        ];
        let (_, members) = DecisionLog::load(NOW, &records);
        assert_eq!(members.into_values().collect::<Vec<_>>(), [other]);
    }
}
