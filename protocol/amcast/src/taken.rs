//! Cumulative acknowledgements: positions of each group's log that other members have accepted.

use alloc::vec;
use alloc::vec::Vec;

use onepipe_wire::{GroupId, MessageId};

use crate::config::Groups;

/// Acknowledgements of the members of one group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Heard {
    /// Per member: epoch, and the position before which it has accepted everything.
    taken: Vec<(u32, u64)>,
    /// Another group's messages: the latest one known to be at a position. Position `p` shares its
    /// slot with position `p` + length.
    messages: Vec<Option<MessageId>>,
}

/// Acknowledgements of the members of all groups, as received by this member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Taken {
    groups: Vec<Heard>,
}

impl Taken {
    /// Creates the table of a member of `own`. Positions of its own group are in its log instead.
    pub fn new(groups: &Groups, own: GroupId) -> Self {
        let positions = |at: usize| if at == own.index() { 0 } else { groups.open_max() };
        let heard = groups.groups.iter().enumerate().map(|(at, group)| Heard {
            taken: vec![(0, 0); group.members.len()],
            messages: vec![None; positions(at)],
        });
        Self { groups: heard.collect() }
    }

    /// Handles a cumulative acknowledgement of all positions before `until`. Returns the positions
    /// that it acknowledges for the first time.
    pub fn hear(
        &mut self,
        group: GroupId,
        place: usize,
        (epoch, until): (u32, u64),
    ) -> core::ops::Range<u64> {
        let heard = self.groups.get_mut(group.index());
        let Some(known) = heard.and_then(|heard| heard.taken.get_mut(place)) else { return 0..0 };
        let before = if known.0 == epoch { known.1 } else { 0 };
        if epoch < known.0 || until <= before {
            return 0..0;
        }
        *known = (epoch, until);
        before..until
    }

    /// Returns the indices of the members that have accepted the position in `epoch`.
    pub fn by(
        &self,
        group: GroupId,
        position: u64,
        epoch: u32,
    ) -> impl Iterator<Item = usize> + use<> {
        let heard = self.groups.get(group.index());
        let all = heard.into_iter().flat_map(|heard| heard.taken.iter().enumerate());
        let has_taken = |(_, known): &(usize, &(u32, u64))| known.0 == epoch && known.1 > position;
        let mut places = all.filter(has_taken).fold(0u32, |places, (place, _)| places | 1 << place);
        core::iter::from_fn(move || {
            let place = (places != 0).then(|| places.trailing_zeros() as usize)?;
            places &= places - 1;
            Some(place)
        })
    }

    /// Records the message at a position of another group's log.
    pub fn place(&mut self, group: GroupId, position: u64, id: MessageId) {
        let Some(heard) = self.groups.get_mut(group.index()) else { return };
        let positions = heard.messages.len() as u64;
        if let Some(at) = position.checked_rem(positions) {
            heard.messages[at as usize] = Some(id);
        }
    }

    /// Returns the latest message known to be at a position of another group's log.
    pub fn at(&self, group: GroupId, position: u64) -> Option<MessageId> {
        let heard = self.groups.get(group.index())?;
        let at = position.checked_rem(heard.messages.len() as u64)?;
        heard.messages[at as usize]
    }

    /// Returns how many positions of another group's log are held.
    pub fn positions(&self, group: GroupId) -> u64 {
        self.groups.get(group.index()).map_or(0, |heard| heard.messages.len() as u64)
    }
}
