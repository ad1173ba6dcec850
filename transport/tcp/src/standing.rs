//! How a group stands, as the doors of its members know it.

use std::collections::VecDeque;
use std::fmt;

/// Groups that a door remembers: the last ones.
const GROUPS_MAX: usize = 1024;

/// How a group stands at one of its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Nothing is known there of a group of this name.
    Unknown,
    /// It waits for the others, too.
    Meeting,
    /// It has waited for somebody in vain.
    GivenUp,
    /// All have met, and it is at work.
    Begun,
    /// It is over.
    Ended,
}

impl Standing {
    pub(crate) const fn bits(self) -> u32 {
        match self {
            Self::Unknown => 0,
            Self::Meeting => 1,
            Self::GivenUp => 2,
            Self::Begun => 3,
            Self::Ended => 4,
        }
    }

    pub(crate) const fn from_bits(bits: u32) -> Option<Self> {
        match bits {
            0 => Some(Self::Unknown),
            1 => Some(Self::Meeting),
            2 => Some(Self::GivenUp),
            3 => Some(Self::Begun),
            4 => Some(Self::Ended),
            _ => None,
        }
    }

    /// Whether nobody who has not met the others will ever meet them.
    pub(crate) const fn is_final(self) -> bool {
        matches!(self, Self::Begun | Self::Ended)
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "is not known",
            Self::Meeting => "waits for others",
            Self::GivenUp => "was given up before all had come",
            Self::Begun => "has begun without this member",
            Self::Ended => "has ended",
        })
    }
}

/// What a door knows of groups, the last ones last.
#[derive(Debug, Default)]
pub(crate) struct Register(VecDeque<(u64, Standing)>);

impl Register {
    pub fn get(&self, group: u64) -> Standing {
        let known = self.0.iter().rev().find(|(known, _)| *known == group);
        known.map_or(Standing::Unknown, |(_, standing)| *standing)
    }

    pub fn set(&mut self, group: u64, standing: Standing) {
        self.0.retain(|(known, _)| *known != group);
        if self.0.len() == GROUPS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((group, standing));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_groups_are_remembered_and_how_they_stand() {
        let mut register = Register::default();
        assert_eq!(register.get(5), Standing::Unknown);
        register.set(5, Standing::Meeting);
        register.set(5, Standing::Begun);
        assert_eq!(register.get(5), Standing::Begun);
        for group in 100..100 + GROUPS_MAX as u64 {
            register.set(group, Standing::Ended);
        }
        assert_eq!((register.get(5), register.get(100)), (Standing::Unknown, Standing::Ended));
    }

    #[test]
    fn every_standing_is_told_as_it_is() {
        let known = (0..5).filter_map(Standing::from_bits);
        assert!(known.map(Standing::bits).eq(0..5));
        assert_eq!(Standing::from_bits(5), None);
    }
}
