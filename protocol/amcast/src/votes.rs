//! Votes: which members have accepted which timestamp of an open message.

use alloc::vec;
use alloc::vec::Vec;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_wire::{GroupId, GroupSet, LogicalTime, MessageId};

use crate::config::{Groups, MEMBERS_MAX};

/// Votes of the members of one group for a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Vote {
    epoch: u32,
    timestamp: LogicalTime,
    /// Position of the message in the log of that epoch, if known.
    position: Option<u64>,
    /// Members that have accepted the timestamp: one bit per member index.
    voters: u32,
}

/// A member that votes: its group, and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Voter {
    pub group: GroupId,
    pub member: usize,
}

/// Vote cell of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cell {
    pub id: MessageId,
    pub groups: GroupSet,
    /// Position of the message in the own log, if any.
    pub position: Option<u64>,
}

/// Vote cells, one for each message that may be open. Message `s` of a client shares its cell with
/// message `s` + window, which cannot start before message `s` is complete.
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

    /// Returns the cell that `id` maps to. It may belong to an earlier or a later message.
    pub fn get(&self, id: MessageId) -> Option<&Cell> {
        self.cells[self.index(id)?].as_ref()
    }

    /// Opens a cell, replacing that of an earlier message.
    pub fn open(&mut self, cell: Cell) {
        let Some(index) = self.index(cell.id) else { return };
        debug_assert!(!cell.groups.is_empty(), "a message has a destination");
        let begin = index * self.message_groups_max;
        self.votes[begin..begin + self.message_groups_max].fill(Vote::default());
        self.cells[index] = Some(cell);
    }

    /// Sets the log position of a message if it still has its cell.
    pub fn set_position(&mut self, id: MessageId, position: u64) {
        let Some(index) = self.index(id) else { return };
        if let Some(cell) = self.cells[index].as_mut().filter(|cell| cell.id == id) {
            cell.position = Some(position);
        }
    }

    /// Clears the log position of a message if it was `position`.
    pub fn clear_position(&mut self, id: MessageId, position: u64) {
        let Some(index) = self.index(id) else { return };
        let is_it = |cell: &&mut Cell| cell.id == id && cell.position == Some(position);
        if let Some(cell) = self.cells[index].as_mut().filter(is_it) {
            cell.position = None;
        }
    }

    /// Records that a member has accepted `timestamp` in `epoch`. Votes of an earlier epoch are
    /// dropped.
    pub fn vote(&mut self, id: MessageId, voter: Voter, epoch: u32, timestamp: LogicalTime) {
        let Voter { group, member } = voter;
        let Some(index) = self.index(id) else { return };
        let Some(cell) = self.cells[index].filter(|cell| cell.id == id) else { return };
        let nth = cell.groups.rank(group);
        if !cell.groups.contains(group) || nth >= self.message_groups_max {
            return;
        }
        let vote = &mut self.votes[index * self.message_groups_max + nth];
        //= spec/amcast.md#R7
        if epoch > vote.epoch {
            *vote = Vote { epoch, timestamp, position: None, voters: 0 };
        }
        if epoch != vote.epoch || timestamp != vote.timestamp || member >= MEMBERS_MAX {
            return;
        }
        let before = vote.voters;
        if makes(Mistake::AckTwice) && vote.voters >> member & 1 == 1 {
            vote.voters |= vote.voters << 1 | 1;
        }
        vote.voters |= 1 << member;
        debug_assert_eq!(
            vote.voters | before,
            before | 1 << member,
            "each member votes for itself"
        );
    }

    /// Records that the message is at `position` in the log of `epoch` of `group`. Returns whether
    /// the present votes are of that epoch.
    pub fn set_remote_position(
        &mut self,
        id: MessageId,
        group: GroupId,
        epoch: u32,
        position: u64,
    ) -> bool {
        let Some(index) = self.index(id) else { return false };
        let Some(cell) = self.cells[index].filter(|cell| cell.id == id) else { return false };
        let nth = cell.groups.rank(group);
        if !cell.groups.contains(group) || nth >= self.message_groups_max {
            return false;
        }
        let vote = &mut self.votes[index * self.message_groups_max + nth];
        if vote.epoch == epoch {
            vote.position = Some(position);
        }
        vote.epoch == epoch
    }

    /// Records that a member has accepted the entry at `position` in `epoch`. Returns whether the
    /// message is known to be at that position.
    pub fn vote_at_position(
        &mut self,
        id: MessageId,
        voter: Voter,
        epoch: u32,
        position: u64,
    ) -> bool {
        let vote = self.get_vote(id, voter.group);
        let is_it = vote.epoch == epoch && vote.position == Some(position);
        if is_it {
            self.vote(id, voter, epoch, vote.timestamp);
        }
        is_it
    }

    fn get_vote(&self, id: MessageId, group: GroupId) -> Vote {
        let found = self.index(id).and_then(|index| {
            let cell = self.cells[index].filter(|cell| cell.id == id)?;
            let nth = cell.groups.rank(group);
            let is_there = cell.groups.contains(group) && nth < self.message_groups_max;
            is_there.then(|| self.votes[index * self.message_groups_max + nth])
        });
        found.unwrap_or_default()
    }

    /// Records that a majority of `group` has accepted `timestamp`, as reported by a member that
    /// has decided the message. The maximum epoch makes the votes immune to any other.
    pub fn set_agreed(&mut self, id: MessageId, group: GroupId, timestamp: LogicalTime) {
        for member in 0..MEMBERS_MAX {
            self.vote(id, Voter { group, member }, u32::MAX, timestamp);
        }
    }

    /// Returns the latest epoch of `group` in which the message was accepted.
    pub fn epoch(&self, id: MessageId, group: GroupId) -> u32 {
        self.get_vote(id, group).epoch
    }

    /// Returns the members of `group` that have accepted the timestamp, one bit per member index.
    pub fn voters(&self, id: MessageId, group: GroupId) -> u32 {
        self.get_vote(id, group).voters
    }

    /// Returns whether a majority of `group` has accepted the timestamp.
    pub fn is_agreed(&self, groups: &Groups, id: MessageId, group: GroupId) -> bool {
        self.get_vote(id, group).voters.count_ones() >= groups.majority(group)
    }

    //= spec/amcast.md#R8
    /// Returns the final timestamp once majorities of all groups have accepted theirs.
    pub fn decided(&self, groups: &Groups, cell: &Cell) -> Option<LogicalTime> {
        let is_agreed = cell.groups.iter().all(|group| self.is_agreed(groups, cell.id, group));
        let timestamps = cell.groups.iter().map(|group| self.get_vote(cell.id, group).timestamp);
        if is_agreed { timestamps.max() } else { None }
    }

    /// Panics if a cell is not that of its message, or has votes of processes that are no members.
    /// `is_at` returns whether a message may be at a position of the own log.
    pub fn check_invariants(&self, groups: &Groups, is_at: impl Fn(u64, MessageId) -> bool) {
        assert_eq!(self.votes.len(), self.cells.len() * self.message_groups_max);
        for (at, cell) in self.cells.iter().enumerate() {
            let votes = &self.votes[at * self.message_groups_max..][..self.message_groups_max];
            let Some(cell) = cell else {
                let is_empty = |vote: &Vote| *vote == Vote::default();
                assert!(votes.iter().all(is_empty), "votes are for a message");
                continue;
            };
            assert_eq!(self.index(cell.id), Some(at), "a message has one cell");
            let is_right = cell.position.is_none_or(|position| is_at(position, cell.id));
            assert!(is_right, "the position of a cell is that of its message");
            for (vote, group) in votes.iter().zip(cell.groups.iter()) {
                let members = groups.get(group).map_or(0, |group| group.members.len());
                let is_counted = vote.voters >> members == 0;
                assert!(is_counted || vote.epoch == u32::MAX, "only members of a group vote");
            }
        }
    }
}
