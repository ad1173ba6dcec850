//! The decision log: everything that is decided and in the store.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use onepipe_base::{Address, Cause, Incarnation, Instance, Mono, ProcessId, Timestamp};
use onepipe_wire::{Failure, GroupId, Undeliverable};

use crate::{FailedInstance, Leadership, Member, Record};

/// The contents of the store, and which of its failures are still open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct DecisionLog {
    /// Failures of processes and recalls by their number, from 1, in the order in which they were
    /// written. Of adjacent recalls that are not needed any more only the last is left.
    sequence: BTreeMap<u32, Entry>,
    /// Failures of processes, in the order of their decision.
    failures: Vec<Decision>,
    /// Index into `failures` of each instance that has one.
    by_instance: BTreeMap<Instance, usize>,
    /// The latest failed incarnation of each process.
    latest: BTreeMap<ProcessId, Incarnation>,
    /// Failed instances, switches included, that not all processes have completed.
    open: BTreeMap<Instance, FailedInstance>,
    /// By receiver: the recalls that it has not acknowledged with the sender of each, and their
    /// numbers in `sequence`.
    recalls: BTreeMap<ProcessId, BTreeMap<(Undeliverable, ProcessId), u32>>,
    /// Leaders of agreed-multicast groups, kept for their coordinators.
    leaders: BTreeMap<GroupId, Leadership>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Decision {
    failed: FailedInstance,
    /// When it was recorded or loaded.
    recorded_at: Mono,
    is_resolved: bool,
}

/// An entry of the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Entry {
    what: Sequenced,
    /// Digest of the sequence up to this entry.
    digest: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Sequenced {
    /// Index into the failures.
    Failure(usize),
    Recall(Undeliverable, ProcessId),
    /// The last of adjacent recalls that are not needed any more.
    Dropped,
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

    //= spec/failure.md#R23
    /// Asserts what holds between any two calls.
    pub(crate) fn check_invariants(&self) {
        assert_eq!(self.by_instance.len(), self.failures.len(), "a failure is decided twice");
        for (instance, index) in &self.by_instance {
            let Decision { failed, is_resolved, .. } = &self.failures[*index];
            assert_eq!(failed.instance, *instance);
            assert_ne!(*is_resolved, self.open.contains_key(instance), "{instance:?}");
            assert!(self.has_failed(*instance), "{instance:?}");
        }
        for (process, incarnation) in &self.latest {
            let address = Address::Process(*process);
            let latest = Instance { address, incarnation: *incarnation };
            assert!(self.by_instance.contains_key(&latest), "{latest:?} is not decided");
        }
        for (instance, failed) in &self.open {
            assert_eq!(failed.instance, *instance);
            let is_process = matches!(instance.address, Address::Process(_));
            assert_eq!(is_process, self.by_instance.contains_key(instance), "{instance:?}");
        }
        let is_own = |(group, last): (&GroupId, &Leadership)| last.group == *group;
        assert!(self.leaders.iter().all(is_own), "the leader of another group");
        // A log that counts to the end of the range does not count any more.
        if self.end().0 < u32::MAX {
            self.check_sequence();
        }
    }

    /// Asserts that the sequence has every decision once, and no gap.
    fn check_sequence(&self) {
        let (mut previous, mut failures, mut recalls) = (0, 0, 0);
        for (number, Entry { what, .. }) in &self.sequence {
            assert!(*number > previous, "numbers begin at 1 and rise");
            let is_next = *number == previous + 1 || *what == Sequenced::Dropped;
            assert!(is_next, "entries between {previous} and {number} are missing");
            match what {
                Sequenced::Failure(index) => {
                    assert_eq!(*index, failures, "failures are in the order of their decision");
                    failures += 1;
                }
                Sequenced::Recall(entry, sender) => {
                    let known = self.recalls.get(&entry.to);
                    let known = known.and_then(|recalls| recalls.get(&(*entry, *sender)));
                    assert_eq!(known, Some(number), "a recall of {sender:?}");
                    recalls += 1;
                }
                Sequenced::Dropped => {}
            }
            previous = *number;
        }
        assert_eq!(failures, self.failures.len(), "a failure is not in the sequence");
        let known: usize = self.recalls.values().map(BTreeMap::len).sum();
        assert_eq!(recalls, known, "a recall is not in the sequence");
        assert!(self.recalls.values().all(|recalls| !recalls.is_empty()));
    }

    /// Applies a record that is in the store. Returns the instances that it resolves.
    pub(crate) fn apply<'a>(&mut self, now: Mono, record: &'a Record) -> &'a [Instance] {
        match record {
            Record::Epoch { .. } => {}
            Record::Members(members) => {
                for member in members {
                    if let Address::Process(process) = member.instance.address {
                        self.drop_recalls(process, member.instance.incarnation);
                    }
                }
            }
            Record::Failed(instances) => {
                instances.iter().for_each(|failed| self.record_failure(now, *failed))
            }
            // A link that died alone may have come back since: nothing follows from its record.
            Record::Resumed { instances, .. } => {
                instances.iter().for_each(|instance| self.mark_resolved(*instance));
                return instances;
            }
            Record::Undeliverable { sender, entries } => {
                entries.iter().for_each(|entry| self.record_recall(*sender, *entry));
            }
            Record::Dropped { recalls, digest } => {
                let last = self.end().0.saturating_add(*recalls);
                self.sequence.insert(last, Entry { what: Sequenced::Dropped, digest: *digest });
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
            let (address, incarnation) = Instance::to_words(Some(failed.instance));
            let words = [address.into(), incarnation.into(), failed.at.as_ns()];
            self.extend(Sequenced::Failure(self.failures.len()), &words);
            self.failures.push(Decision { failed, recorded_at, is_resolved: false });
            let latest = self.latest.entry(process).or_insert(failed.instance.incarnation);
            *latest = failed.instance.incarnation.max(*latest);
        }
        self.open.insert(failed.instance, failed);
    }

    /// Records a recall, unless it is recorded.
    fn record_recall(&mut self, sender: ProcessId, entry: Undeliverable) {
        if self.has_recall(sender, entry) {
            return;
        }
        let (to, incarnation) = (entry.to.0.into(), entry.incarnation.0.into());
        let words = [u64::from(sender.0), to, incarnation, entry.timestamp.as_ns()];
        let number = self.extend(Sequenced::Recall(entry, sender), &words);
        self.recalls.entry(entry.to).or_default().insert((entry, sender), number);
    }

    /// Appends an entry to the sequence: FNV-1a over the digest so far and what is final about the
    /// entry. Returns its number.
    fn extend(&mut self, what: Sequenced, words: &[u64]) -> u32 {
        const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
        const PRIME: u64 = 0x0000_0100_0000_01b3;
        let (last, digest) = self.end();
        let words = [digest].into_iter().chain(words.iter().copied());
        let bytes = words.flat_map(u64::to_be_bytes);
        let digest = bytes.fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
        let number = last.saturating_add(1);
        let known = self.sequence.insert(number, Entry { what, digest });
        assert!(known.is_none() || number == u32::MAX, "a decision is final");
        number
    }

    fn mark_resolved(&mut self, instance: Instance) {
        self.open.remove(&instance);
        if let Some(index) = self.by_instance.get(&instance) {
            assert_eq!(self.failures[*index].failed.instance, instance);
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

    /// Returns the number of failures of processes and recalls, and the digest of their sequence.
    pub(crate) fn end(&self) -> (u32, u64) {
        self.sequence.last_key_value().map_or((0, 0), |(last, entry)| (*last, entry.digest))
    }

    /// Whether the sequence begins with `count` entries of this digest. The digests within recalls
    /// that are not needed any more are unknown, and any is right.
    pub(crate) fn contains(&self, count: u32, digest: u64) -> bool {
        match (count, self.sequence.get(&count)) {
            (0, _) => digest == 0,
            (_, Some(entry)) => entry.digest == digest,
            (_, None) => count < self.end().0,
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
        let all = self.recalls.get(&process).into_iter().flat_map(BTreeMap::keys);
        all.filter(move |(entry, _)| applies(entry)).map(|(entry, from)| (*from, entry.timestamp))
    }

    /// Whether this recall is recorded.
    pub(crate) fn has_recall(&self, sender: ProcessId, entry: Undeliverable) -> bool {
        self.recalls.get(&entry.to).is_some_and(|recalls| recalls.contains_key(&(entry, sender)))
    }

    /// Drops the recalls for incarnations of `process` before `before`. That incarnation is a
    /// member, and has nothing to recover of earlier ones.
    fn drop_recalls(&mut self, process: ProcessId, before: Incarnation) {
        let Some(recalls) = self.recalls.get_mut(&process) else { return };
        let is_over = |(entry, _): &(Undeliverable, ProcessId), _: &mut u32| {
            entry.incarnation == Incarnation(0) || entry.incarnation < before
        };
        let dropped: Vec<u32> = recalls.extract_if(.., is_over).map(|(_, number)| number).collect();
        if recalls.is_empty() {
            self.recalls.remove(&process);
        }
        dropped.into_iter().for_each(|number| self.drop_entry(number));
    }

    /// Drops an entry of the sequence. Its digest stays as long as the next entry does.
    fn drop_entry(&mut self, number: u32) {
        let is_dropped = |(_, entry): (&u32, &Entry)| entry.what == Sequenced::Dropped;
        assert!(number > 0, "numbers begin at 1");
        let previous = number - 1;
        if self.sequence.get_key_value(&previous).is_some_and(is_dropped) {
            self.sequence.remove(&previous);
        }
        if self.sequence.range(number..).nth(1).is_some_and(is_dropped) {
            self.sequence.remove(&number);
        } else if let Some(entry) = self.sequence.get_mut(&number) {
            entry.what = Sequenced::Dropped;
        }
    }

    /// Returns the same state in as few records as possible.
    pub(crate) fn records(&self) -> Vec<Record> {
        let mut records = Vec::new();
        let mut previous = 0;
        for (number, Entry { what, digest }) in &self.sequence {
            match (what, records.last_mut()) {
                (Sequenced::Failure(index), Some(Record::Failed(failed))) => {
                    failed.push(self.failures[*index].failed);
                }
                (Sequenced::Failure(index), _) => {
                    records.push(Record::Failed(alloc::vec![self.failures[*index].failed]));
                }
                (Sequenced::Recall(entry, sender), _) => {
                    let entries = alloc::vec![*entry];
                    records.push(Record::Undeliverable { sender: *sender, entries });
                }
                (Sequenced::Dropped, _) => {
                    let recalls = number - previous;
                    records.push(Record::Dropped { recalls, digest: *digest });
                }
            }
            previous = *number;
        }
        let is_switch = |open: &FailedInstance| !self.by_instance.contains_key(&open.instance);
        let switches: Vec<FailedInstance> = self.open().filter(is_switch).collect();
        if !switches.is_empty() {
            records.push(Record::Failed(switches));
        }
        let resolved = self.failures.iter().filter(|decision| decision.is_resolved);
        let instances: Vec<Instance> = resolved.map(|decision| decision.failed.instance).collect();
        if !instances.is_empty() {
            records.push(Record::Resumed { instances, links: Vec::new() });
        }
        records.extend(self.leaders.values().copied().map(Record::Leads));
        records
    }
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
    //= spec/failure.md#R23
    let order = |failure: &Failure| (failure.incarnation, failure.at, failure.cause);
    let are_disjoint = |one: &Failure, other: &Failure| {
        order(one) < order(other)
            || (order(one) == order(other) && one.first.0 + one.count < other.first.0)
    };
    assert!(failures.is_sorted_by(are_disjoint), "ranges of failures are disjoint");
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

    #[test]
    fn different_failure_timestamps_are_not_merged() {
        let one = failed(3, 1, 90);
        let left = FailedInstance { cause: Cause::Left, ..failed(6, 1, 91) };
        let instances = vec![one, failed(4, 1, 91), failed(5, 1, 91), left, failed(8, 1, 91)];
        let (decisions, _) = DecisionLog::load(NOW, &[Record::Failed(instances.clone())]);
        let notice = decisions.recent_failures(NOW, 0);
        let rows: Vec<_> =
            notice.iter().map(|row| (row.first.0, row.count, row.at.as_ns())).collect();
        assert_eq!(rows, [(3, 1, 90), (4, 2, 91), (8, 1, 91), (6, 1, 91)]);
        for failed in instances {
            assert_eq!(decisions.decision(failed.instance), Some(failed), "by its own index");
        }
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

    fn recalled(to: u32, incarnation: u32, ns: u64) -> Record {
        let (to, incarnation) = (ProcessId(to), Incarnation(incarnation));
        let entry = Undeliverable { to, incarnation, timestamp: Timestamp::from_ns(ns) };
        Record::Undeliverable { sender: ProcessId(9), entries: vec![entry] }
    }

    fn member(process: u32, incarnation: u32) -> Record {
        let instance = failed(process, incarnation, 0).instance;
        Record::Members(vec![Member { instance, links: vec![] }])
    }

    /// Returns the digests of all beginnings of the sequence.
    fn digests(records: &[Record]) -> Vec<(u32, u64)> {
        let mut ends = Vec::new();
        let mut decisions = DecisionLog::default();
        for record in records {
            decisions.apply(NOW, record);
            ends.push(decisions.end());
        }
        ends
    }

    //= spec/failure.md#R60
    #[test]
    fn shortened_log_has_the_same_end() {
        let records = [
            recalled(1, 1, 10),
            Record::Failed(vec![failed(1, 1, 5)]),
            recalled(1, 1, 11),
            recalled(1, 1, 11),
            recalled(2, 1, 12),
            recalled(1, 1, 13),
            member(1, 2),
            // The acknowledgement was lost, so its sender repeats it.
            recalled(1, 1, 11),
            Record::Failed(vec![failed(2, 1, 6)]),
            member(2, 2),
            recalled(3, 1, 14),
        ];
        let ends = digests(&records);
        let counts: Vec<u32> = ends.iter().map(|(count, _)| *count).collect();
        assert_eq!(counts, [1, 2, 3, 3, 4, 5, 5, 6, 7, 7, 8]);
        for prefix in 0..=records.len() {
            let (mut decisions, _) = DecisionLog::load(NOW, &records[..prefix]);
            let shorter = decisions.records();
            let (mut copy, _) = DecisionLog::load(NOW, &shorter);
            assert_eq!(copy, decisions);
            assert!(shorter.len() <= prefix.max(1));
            // The shortened log may grow and be shortened again.
            for record in &records[prefix..] {
                decisions.apply(NOW, record);
                copy.apply(NOW, record);
                (copy, _) = DecisionLog::load(NOW, &copy.records());
                assert_eq!((copy.end(), &copy), (decisions.end(), &decisions));
            }
            assert_eq!(copy.end(), ends[records.len() - 1]);
            for (count, digest) in &ends {
                assert!(copy.contains(*count, *digest), "{count}");
            }
        }
        let (all, _) = DecisionLog::load(NOW, &records);
        // Numbers 3 to 5, and 4 since process 2 is back, are one record.
        let is_dropped = |record: &&Record| matches!(record, Record::Dropped { .. });
        let dropped: Vec<Record> = all.records().iter().filter(is_dropped).cloned().collect();
        let row = |recalls, count: usize| Record::Dropped { recalls, digest: ends[count].1 };
        assert_eq!(dropped, [row(1, 0), row(3, 5)]);
        assert!(all.contains(2, ends[1].1) && !all.contains(2, 1), "of a failure");
        assert!(all.contains(4, 1), "unknown");
        assert!(all.contains(0, 0) && !all.contains(0, 1) && !all.contains(9, 0));
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
