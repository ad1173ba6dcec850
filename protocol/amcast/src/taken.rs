//! Which positions of whose log other members have taken: one number acknowledges all before it.

use alloc::vec;
use alloc::vec::Vec;

use onepipe_wire::{GroupId, MessageId};

use crate::config::Groups;

/// What the members of one group have said.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Heard {
    /// Of each, by its place: in this epoch it has taken all before this position.
    taken: Vec<(u32, u64)>,
    /// Of another group: which message was heard to stand at a position last. That of position `p`
    /// is also that of `p` + how many there are.
    messages: Vec<Option<MessageId>>,
}

/// What the members of all groups have taken, as far as this one has heard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Taken {
    groups: Vec<Heard>,
}

impl Taken {
    /// At a member of `own`: what stands where in its own log it knows.
    pub fn new(groups: &Groups, own: GroupId) -> Self {
        let positions = |at: usize| if at == own.index() { 0 } else { groups.open_max() };
        let heard = groups.groups.iter().enumerate().map(|(at, group)| Heard {
            taken: vec![(0, 0); group.members.len()],
            messages: vec![None; positions(at)],
        });
        Self { groups: heard.collect() }
    }

    /// The member of `group` at `place` says that it has taken all before `until` in `epoch`.
    /// Answers the positions of which it had not said so.
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

    /// Who of `group` has taken the position in `epoch`, by their places.
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

    /// The message stands at this position of the log of another group.
    pub fn place(&mut self, group: GroupId, position: u64, id: MessageId) {
        let Some(heard) = self.groups.get_mut(group.index()) else { return };
        let positions = heard.messages.len() as u64;
        if let Some(at) = position.checked_rem(positions) {
            heard.messages[at as usize] = Some(id);
        }
    }

    /// Which message may stand at this position of the log of another group.
    pub fn at(&self, group: GroupId, position: u64) -> Option<MessageId> {
        let heard = self.groups.get(group.index())?;
        let at = position.checked_rem(heard.messages.len() as u64)?;
        heard.messages[at as usize]
    }

    /// Positions of the log of another group of which it may be known what stands there.
    pub fn positions(&self, group: GroupId) -> u64 {
        self.groups.get(group.index()).map_or(0, |heard| heard.messages.len() as u64)
    }
}
