//! What must hold in every state.

use std::collections::BTreeMap;

use onepipe_log::{Committed, Entry, LogReplica, Session};

use super::Fabric;
use super::node::Node;
use super::store::Store;

fn entries(replica: &LogReplica) -> impl Iterator<Item = &Entry> {
    (replica.base_len()..replica.len()).filter_map(|index| replica.unstable_entry(index))
}

/// The entries of a client have consecutive numbers from 1, each once, in the order of timestamps.
/// Of a log that was trimmed the first ones are not known.
fn has_no_gap(replica: &LogReplica) -> Result<(), String> {
    let mut last = BTreeMap::new();
    for entry in entries(replica) {
        let first = if replica.base_len() == 0 { 0 } else { entry.id.number - 1 };
        let last = last.entry(entry.id.client).or_insert(first);
        *last += 1;
        if entry.id.number != *last {
            return Err(format!("{:?} follows number {}", entry.id, *last - 1));
        }
    }
    Ok(())
}

/// Logs with equal checksums are equal, and others are not.
fn is_covered_by_checksum(one: &LogReplica, other: &LogReplica) -> Result<(), String> {
    let from = one.base_len().max(other.base_len());
    let mut is_equal = one.checksum(from) == other.checksum(from);
    for index in from..one.len().min(other.len()) {
        is_equal &= one.unstable_entry(index) == other.unstable_entry(index);
        if is_equal != (one.checksum(index + 1) == other.checksum(index + 1)) {
            return Err(format!("checksums of {} entries contradict the logs", index + 1));
        }
    }
    Ok(())
}

/// Committed entries of two replicas are the same.
fn agree(one: &LogReplica, other: &LogReplica) -> Result<(), String> {
    let from = one.base_len().max(other.base_len());
    for index in from..one.committed_len().min(other.committed_len()) {
        if one.entry(index) != other.entry(index) {
            return Err(format!("two replicas have different committed entries {index}"));
        }
    }
    Ok(())
}

impl<S: Store> Fabric<S> {
    /// The replicas that the fabric counts as up.
    pub fn members(&self) -> impl Iterator<Item = &LogReplica> {
        let nodes = self.nodes.iter().filter(|node| !node.is_excluded);
        nodes.filter_map(|node| node.replica.as_ref())
    }

    /// Returns what is wrong with the payloads of logs, if anything.
    pub fn check_payloads(&self) -> Result<(), String> {
        for entry in self.members().flat_map(entries) {
            if entry.payload != Self::payload(entry.id.client.session, entry.id.number) {
                return Err(format!("{:?} has the payload of another entry", entry.id));
            }
        }
        Ok(())
    }

    /// Returns what is wrong, if anything.
    pub fn check(&self) -> Result<(), String> {
        let all: Vec<_> = self.members().collect();
        for (index, one) in all.iter().enumerate() {
            has_no_gap(one)?;
            for other in &all[..index] {
                is_covered_by_checksum(one, other)?;
            }
        }
        // What a process has that does not know of its exclusion yet is readable, too.
        let running: Vec<_> = self.nodes.iter().filter_map(|node| node.replica.as_ref()).collect();
        for (index, one) in running.iter().enumerate() {
            running[..index].iter().try_for_each(|other| agree(one, other))?;
        }
        self.check_committed(&all)?;
        self.check_states()
    }

    /// All states have applied the same entries, and among them what is committed, in its position.
    fn check_states(&self) -> Result<(), String> {
        let lists =
            self.nodes.iter().filter_map(|node| Some(node.executor.as_ref()?.state().list()));
        let lists: Vec<_> = lists.collect();
        self.nodes.iter().try_for_each(Node::check_state)?;
        for (index, one) in lists.iter().enumerate() {
            for other in &lists[..index] {
                if let Some(at) = one.iter().zip(*other).position(|(one, other)| one != other) {
                    return Err(format!("two states differ in entry {at}"));
                }
            }
            for user in &self.users {
                let client = Session { process: user.process, session: user.session };
                let is_other = |committed: &&Committed| {
                    let item = one.get(committed.position.index as usize);
                    item.is_some_and(|item| *item != (client, committed.number))
                };
                if let Some(committed) = user.committed.iter().find(is_other) {
                    return Err(format!("a state has another entry than {committed:?}"));
                }
            }
        }
        Ok(())
    }

    fn check_committed(&self, all: &[&LogReplica]) -> Result<(), String> {
        for user in &self.users {
            for (index, committed) in user.committed.iter().enumerate() {
                if committed.number != index as u64 + 1 {
                    return Err(format!("{committed:?} is committed out of order"));
                }
                for replica in all.iter().filter(|replica| replica.is_whole()) {
                    if committed.position.index < replica.base_len() {
                        continue;
                    }
                    let Some(entry) = replica.unstable_entry(committed.position.index) else {
                        return Err(format!("{committed:?} is missing at a replica"));
                    };
                    let id = (entry.id.client.process, entry.id.client.session, entry.id.number);
                    if id != (user.process, user.session, committed.number)
                        || entry.id.at != committed.position.at
                    {
                        return Err(format!("{committed:?} was replaced by {:?}", entry.id));
                    }
                }
            }
        }
        Ok(())
    }
}
