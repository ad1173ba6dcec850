//! Open messages and who has taken which timestamp for them.

use alloc::vec;
use alloc::vec::Vec;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_wire::{GroupId, GroupSet, LogicalTime, MessageId};

use crate::config::{Groups, MEMBERS_MAX};

/// What the members of one group have said of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Vote {
    epoch: u32,
    timestamp: LogicalTime,
    /// Where the message is in the log of that epoch, if that was told.
    position: Option<u64>,
    /// Who, by their places.
    by: u32,
}

/// A message that the member has heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cell {
    pub id: MessageId,
    pub groups: GroupSet,
    /// Where it is in the log, if it is.
    pub position: Option<u64>,
}

/// A cell for each message that may be open: that of message `s` of a client is also that of its
/// message `s` + window, which begins when `s` is over.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Votes {
    cells: Vec<Option<Cell>>,
    votes: Vec<Vote>,
    window: u32,
    message_groups_max: usize,
}

impl Votes {
    pub fn new(groups: &Groups) -> Self {
        let cells = groups.open_max();
        Self {
            cells: vec![None; cells],
            votes: vec![Vote::default(); cells * groups.message_groups_max],
            window: groups.window,
            message_groups_max: groups.message_groups_max,
        }
    }

    fn index(&self, id: MessageId) -> Option<usize> {
        let index =
            id.client as usize * self.window as usize + (id.sequence % self.window) as usize;
        (index < self.cells.len()).then_some(index)
    }

    /// What lies where `id` belongs: the message itself, an earlier or a later one.
    pub fn get(&self, id: MessageId) -> Option<&Cell> {
        self.cells[self.index(id)?].as_ref()
    }

    /// Begins a message, where there may be an earlier one.
    pub fn begin(&mut self, cell: Cell) {
        let Some(index) = self.index(cell.id) else { return };
        let begin = index * self.message_groups_max;
        self.votes[begin..begin + self.message_groups_max].fill(Vote::default());
        self.cells[index] = Some(cell);
    }

    /// The message, if it is still there, is at `position`.
    pub fn place(&mut self, id: MessageId, position: u64) {
        let Some(index) = self.index(id) else { return };
        if let Some(cell) = self.cells[index].as_mut().filter(|cell| cell.id == id) {
            cell.position = Some(position);
        }
    }

    /// The message is not at `position` any more, if it was there.
    pub fn displace(&mut self, id: MessageId, position: u64) {
        let Some(index) = self.index(id) else { return };
        let is_it = |cell: &&mut Cell| cell.id == id && cell.position == Some(position);
        if let Some(cell) = self.cells[index].as_mut().filter(is_it) {
            cell.position = None;
        }
    }

    /// A member of `group` has taken `timestamp` for the message in `epoch`.
    pub fn vote(
        &mut self,
        id: MessageId,
        (group, place): (GroupId, usize),
        (epoch, timestamp): (u32, LogicalTime),
    ) {
        let Some(index) = self.index(id) else { return };
        let Some(cell) = self.cells[index].filter(|cell| cell.id == id) else { return };
        let nth = cell.groups.place(group);
        if !cell.groups.contains(group) || nth >= self.message_groups_max {
            return;
        }
        let vote = &mut self.votes[index * self.message_groups_max + nth];
        if epoch > vote.epoch {
            *vote = Vote { epoch, timestamp, position: None, by: 0 };
        }
        if epoch != vote.epoch || timestamp != vote.timestamp || place >= MEMBERS_MAX {
            return;
        }
        if makes(Mistake::AckTwice) && vote.by >> place & 1 == 1 {
            vote.by |= vote.by << 1 | 1;
        }
        vote.by |= 1 << place;
    }

    /// In the log of `epoch` of `group` the message is at `position`. Answers whether it is known
    /// to be taken in that epoch.
    pub fn locate(&mut self, id: MessageId, group: GroupId, epoch: u32, position: u64) -> bool {
        let Some(index) = self.index(id) else { return false };
        let Some(cell) = self.cells[index].filter(|cell| cell.id == id) else { return false };
        let nth = cell.groups.place(group);
        if !cell.groups.contains(group) || nth >= self.message_groups_max {
            return false;
        }
        let vote = &mut self.votes[index * self.message_groups_max + nth];
        if vote.epoch == epoch {
            vote.position = Some(position);
        }
        vote.epoch == epoch
    }

    /// The member of `group` at `place` has taken what was at `position` in `epoch`. Answers
    /// whether that was the message.
    pub fn vote_at(
        &mut self,
        id: MessageId,
        (group, place): (GroupId, usize),
        (epoch, position): (u32, u64),
    ) -> bool {
        let vote = self.of(id, group);
        let is_it = vote.epoch == epoch && vote.position == Some(position);
        if is_it {
            self.vote(id, (group, place), (epoch, vote.timestamp));
        }
        is_it
    }

    fn of(&self, id: MessageId, group: GroupId) -> Vote {
        let found = self.index(id).and_then(|index| {
            let cell = self.cells[index].filter(|cell| cell.id == id)?;
            let nth = cell.groups.place(group);
            let is_there = cell.groups.contains(group) && nth < self.message_groups_max;
            is_there.then(|| self.votes[index * self.message_groups_max + nth])
        });
        found.unwrap_or_default()
    }

    /// A majority of `group` has taken `timestamp`, says who knows.
    pub fn agree(&mut self, id: MessageId, group: GroupId, timestamp: LogicalTime) {
        for place in 0..MEMBERS_MAX {
            self.vote(id, (group, place), (u32::MAX, timestamp));
        }
    }

    /// The last epoch of `group` in which it was taken.
    pub fn epoch(&self, id: MessageId, group: GroupId) -> u32 {
        self.of(id, group).epoch
    }

    /// Who of `group` has taken the timestamp of its last epoch.
    pub fn by(&self, id: MessageId, group: GroupId) -> u32 {
        self.of(id, group).by
    }

    /// Whether a majority of `group` has.
    pub fn is_agreed(&self, groups: &Groups, id: MessageId, group: GroupId) -> bool {
        self.of(id, group).by.count_ones() >= groups.majority(group)
    }

    /// The final timestamp, if majorities of all groups have taken theirs.
    pub fn decided(&self, groups: &Groups, cell: &Cell) -> Option<LogicalTime> {
        let is_agreed = cell.groups.iter().all(|group| self.is_agreed(groups, cell.id, group));
        let timestamps = cell.groups.iter().map(|group| self.of(cell.id, group).timestamp);
        if is_agreed { timestamps.max() } else { None }
    }
}
