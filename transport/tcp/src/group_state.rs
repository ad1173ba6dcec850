//! The states of groups, as known by the listeners of their members.

use std::collections::VecDeque;
use std::fmt;

/// Maximum number of groups remembered.
const GROUPS_MAX: usize = 1024;

/// The state of a group at one of its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupState {
    /// No group of this number is known.
    Unknown,
    /// The member waits for the others.
    Rendezvous,
    /// The member has given up waiting for the others.
    Abandoned,
    /// All members have connected, and the group is running.
    Running,
    /// The group has ended.
    Ended,
}

impl GroupState {
    pub(crate) const fn bits(self) -> u32 {
        match self {
            Self::Unknown => 0,
            Self::Rendezvous => 1,
            Self::Abandoned => 2,
            Self::Running => 3,
            Self::Ended => 4,
        }
    }

    pub(crate) const fn from_bits(bits: u32) -> Option<Self> {
        match bits {
            0 => Some(Self::Unknown),
            1 => Some(Self::Rendezvous),
            2 => Some(Self::Abandoned),
            3 => Some(Self::Running),
            4 => Some(Self::Ended),
            _ => None,
        }
    }

    /// Whether a member that has not connected yet cannot join any more.
    pub(crate) const fn is_final(self) -> bool {
        matches!(self, Self::Running | Self::Ended)
    }
}

impl fmt::Display for GroupState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "is unknown",
            Self::Rendezvous => "waits for other members",
            Self::Abandoned => "was abandoned before all members had connected",
            Self::Running => "has started without this member",
            Self::Ended => "has ended",
        })
    }
}

/// The states of the latest groups, in order of their last change.
#[derive(Debug, Default)]
pub(crate) struct GroupStates(VecDeque<(u64, GroupState)>);

impl GroupStates {
    pub fn get(&self, group: u64) -> GroupState {
        let known = self.0.iter().rev().find(|(known, _)| *known == group);
        known.map_or(GroupState::Unknown, |(_, group_state)| *group_state)
    }

    pub fn set(&mut self, group: u64, group_state: GroupState) {
        self.0.retain(|(known, _)| *known != group);
        if self.0.len() == GROUPS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((group, group_state));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_groups_are_remembered() {
        let mut states = GroupStates::default();
        assert_eq!(states.get(5), GroupState::Unknown);
        states.set(5, GroupState::Rendezvous);
        states.set(5, GroupState::Running);
        assert_eq!(states.get(5), GroupState::Running);
        for group in 100..100 + GROUPS_MAX as u64 {
            states.set(group, GroupState::Ended);
        }
        assert_eq!((states.get(5), states.get(100)), (GroupState::Unknown, GroupState::Ended));
    }

    #[test]
    fn every_state_round_trips() {
        let known = (0..5).filter_map(GroupState::from_bits);
        assert!(known.map(GroupState::bits).eq(0..5));
        assert_eq!(GroupState::from_bits(5), None);
    }
}
