//! Properties of a complete history.

use std::collections::{BTreeMap, BTreeSet};

use onepipe_amcast::{Client, GroupId, LogicalTime, MessageId};

use super::Harness;

impl Harness {
    /// Uniform agreement: what any replica has delivered, even one that crashed, all live replicas
    /// of all its destination groups have delivered, at the same position of the order.
    pub fn disagreement(&self) -> Option<String> {
        let mut indices: BTreeMap<MessageId, LogicalTime> = BTreeMap::new();
        for (timestamp, id) in self.delivered.iter().flatten() {
            if indices.insert(*id, *timestamp).is_some_and(|known| known != *timestamp) {
                return Some(format!("{id:?} has two places"));
            }
        }
        for (at, delivered) in self.delivered.iter().enumerate() {
            let group = GroupId(self.group_of_replica(at) as u16);
            let mut all: Vec<(LogicalTime, MessageId)> = indices
                .iter()
                .filter(|(id, _)| self.sent.get(id).is_some_and(|sent| sent.0.contains(group)))
                .map(|(id, timestamp)| (*timestamp, *id))
                .collect();
            all.sort_unstable();
            let is_alive = self.replicas[at].is_some();
            let is_right = if is_alive { *delivered == all } else { all.starts_with(delivered) };
            if !is_right {
                let (has, of) = (delivered.len(), all.len());
                return Some(format!("replica {at} has delivered {has} of {of}, or others"));
            }
        }
        None
    }

    /// Validity: messages of live clients are complete, and complete messages are delivered.
    pub(super) fn undelivered(&self) -> Option<String> {
        let delivered: BTreeSet<MessageId> =
            self.delivered.iter().flatten().map(|(_, id)| *id).collect();
        for (id, (groups, _)) in &self.sent {
            let has_replica = groups.iter().any(|group| {
                let own =
                    group.index() * self.plan.replicas..(group.index() + 1) * self.plan.replicas;
                own.into_iter().any(|replica| self.replicas[replica].is_some())
            });
            if self.over.contains(id) && has_replica && !delivered.contains(id) {
                return Some(format!("{id:?} is complete and was not delivered"));
            }
            if self.clients[id.client as usize].is_some() && !self.over.contains(id) {
                return Some(format!("{id:?} is not complete"));
            }
        }
        let is_left = |(client, left): (&Option<Client>, &u32)| client.is_some() && *left > 0;
        let is_any_left = self.clients.iter().zip(&self.left).any(is_left);
        is_any_left.then(|| "a client could not send all".to_string())
    }
}
