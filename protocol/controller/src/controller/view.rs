//! Snapshots of the state, for operators and for stores.

use alloc::vec::Vec;

use onepipe_base::{Cause, Instance};
use onepipe_wire::Resolved;

use super::Controller;
use crate::Record;
use crate::record::Member;
use crate::recorder::MEMBERS_PER_RECORD;
use crate::status::{FrozenStatus, MemberState, MemberStatus, Status};

impl Controller {
    /// Returns the current state. Takes time in proportion to the size of the fabric.
    pub fn status(&self) -> Status {
        let is_leave = |instance| {
            let decision = self.decisions.decision(instance);
            decision.is_some_and(|decided| decided.cause == Cause::Left)
        };
        let member = |(instance, node): (Instance, &crate::graph::Node)| {
            let is_over = self.decisions.has_failed(instance) || self.decisions.is_open(instance);
            let state = match () {
                () if self.graph.is_correct(instance) => MemberState::Up,
                () if is_over && is_leave(instance) => MemberState::Left,
                () if is_over => MemberState::Failed,
                () if node.has_joined => MemberState::Suspected,
                () => MemberState::Joining,
            };
            let links_up = node.edges.iter().filter(|edge| edge.is_up).count();
            MemberStatus { instance, state, links_up }
        };
        let frozen = self.graph.owners().flat_map(|(owner, node)| {
            node.frozen.iter().map(move |entry| FrozenStatus {
                link: Resolved { owner, number: entry.number },
                peer: entry.instance,
                commit: entry.commit,
            })
        });
        Status {
            replica: self.config.process,
            active: self.term.epoch(),
            is_store_available: !self.recorder.queue().has_failed(),
            records_waiting: self.recorder.queue().len(),
            attachments: self.graph.attachments().collect(),
            members: self.graph.iter().map(member).collect(),
            open: self.decisions.open().collect(),
            failures: self.decisions.failures().collect(),
            frozen: frozen.collect(),
            stats: self.stats,
        }
    }

    /// Returns the state as few records, see [`crate::Store::replace`]. `None` while a record is
    /// pending, or when this replica is not active.
    pub fn snapshot(&self) -> Option<Vec<Record>> {
        let epoch = self.term.epoch().filter(|_| self.recorder.queue().len() == 0)?;
        let mut records = alloc::vec![Record::Epoch { epoch, replica: self.config.process }];
        let joined = self.graph.iter().filter(|(_, node)| node.has_joined && node.is_recorded);
        let members: Vec<Member> =
            joined.filter_map(|(instance, _)| self.graph.member(instance)).collect();
        let chunks = members.chunks(MEMBERS_PER_RECORD);
        records.extend(chunks.map(|chunk| Record::Members(chunk.to_vec())));
        records.extend(self.decisions.records());
        Some(records)
    }
}
