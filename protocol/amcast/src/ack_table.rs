//! Cumulative acknowledgements: positions of each group's log that other members have accepted.

use alloc::vec;
use alloc::vec::Vec;

use onepipe_wire::{GroupId, MessageId};

use crate::config::{Groups, MEMBERS_MAX};

/// Acknowledgements of the members of one group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct GroupAcks {
    /// Per member: epoch, and the position before which it has accepted everything.
    accepted: Vec<(u32, u64)>,
    /// Another group's messages: the latest one known to be at a position. Position `p` shares its
    /// slot with position `p` + length.
    messages: Vec<Option<MessageId>>,
}

/// Acknowledgements of the members of all groups, as received by this member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AckTable {
    groups: Vec<GroupAcks>,
}

impl AckTable {
    /// Creates the table of a member of `own`. Positions of its own group are in its log instead.
    pub fn new(groups: &Groups, own: GroupId) -> Self {
        let positions = |at: usize| if at == own.index() { 0 } else { groups.open_max() };
        let acks = groups.groups.iter().enumerate().map(|(at, group)| GroupAcks {
            accepted: vec![(0, 0); group.members.len()],
            messages: vec![None; positions(at)],
        });
        Self { groups: acks.collect() }
    }

    /// Handles a cumulative acknowledgement of all positions before `until`. Returns the positions
    /// that it acknowledges for the first time.
    pub fn on_ack(
        &mut self,
        group: GroupId,
        member: usize,
        epoch: u32,
        until: u64,
    ) -> core::ops::Range<u64> {
        let acks = self.groups.get_mut(group.index());
        let Some(known) = acks.and_then(|acks| acks.accepted.get_mut(member)) else { return 0..0 };
        let before = if known.0 == epoch { known.1 } else { 0 };
        if epoch < known.0 || until <= before {
            return 0..0;
        }
        debug_assert!(epoch > known.0 || until > known.1, "an acknowledgement is never revoked");
        *known = (epoch, until);
        before..until
    }

    /// Returns the indices of the members that have accepted the position in `epoch`.
    pub fn acked_by(
        &self,
        group: GroupId,
        position: u64,
        epoch: u32,
    ) -> impl Iterator<Item = usize> + use<> {
        const _: () = assert!(MEMBERS_MAX <= u32::BITS as usize, "a bit for each member");
        let acks = self.groups.get(group.index());
        let all = acks.into_iter().flat_map(|acks| acks.accepted.iter().enumerate());
        let has_accepted =
            |(_, known): &(usize, &(u32, u64))| known.0 == epoch && known.1 > position;
        let mut members =
            all.filter(has_accepted).fold(0u32, |members, (member, _)| members | 1 << member);
        core::iter::from_fn(move || {
            let member = (members != 0).then(|| members.trailing_zeros() as usize)?;
            members &= members - 1;
            Some(member)
        })
    }

    /// Records the message at a position of another group's log.
    pub fn set_message(&mut self, group: GroupId, position: u64, id: MessageId) {
        let Some(acks) = self.groups.get_mut(group.index()) else { return };
        let positions = acks.messages.len() as u64;
        if let Some(at) = position.checked_rem(positions) {
            acks.messages[at as usize] = Some(id);
        }
    }

    /// Returns the latest message known to be at a position of another group's log.
    pub fn message_at(&self, group: GroupId, position: u64) -> Option<MessageId> {
        let acks = self.groups.get(group.index())?;
        let at = position.checked_rem(acks.messages.len() as u64)?;
        acks.messages[at as usize]
    }

    /// Returns how many positions of another group's log are held.
    pub fn capacity(&self, group: GroupId) -> u64 {
        self.groups.get(group.index()).map_or(0, |acks| acks.messages.len() as u64)
    }
}
