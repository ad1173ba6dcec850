//! Faults: what is avoided.

use core::fmt;

use crate::layout::Crossings;

/// A faulty link or path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// The link between a rack and a path; with three tiers, that upper link of the ToR switch.
    Link {
        /// The rack.
        rack: u32,
        /// The path, or upper link.
        path: u32,
    },
    /// A path as a whole: all links to it.
    Path(u32),
    /// The upper link of a spine.
    SpineLink {
        /// The spine, counted pod by pod.
        spine: u32,
        /// The upper link of the spine.
        link: u32,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link { rack, path } => write!(f, "the link of rack {rack} to path {path}"),
            Self::Path(path) => write!(f, "path {path}"),
            Self::SpineLink { spine, link } => write!(f, "upper link {link} of spine {spine}"),
        }
    }
}

impl Fault {
    /// Returns the tier, the rack or spine (`None` for all), and the link.
    pub(crate) fn location(self) -> (usize, Option<u32>, u32) {
        match self {
            Self::Link { rack, path } => (0, Some(rack), path),
            Self::Path(path) => (0, None, path),
            Self::SpineLink { spine, link } => (1, Some(spine), link),
        }
    }

    /// Returns the fault of a link of a rack or spine.
    pub(crate) fn at(tier: usize, group: u16, link: u8) -> Self {
        let (group, link) = (u32::from(group), u32::from(link));
        match tier {
            0 => Self::Link { rack: group, path: link },
            _ => Self::SpineLink { spine: group, link },
        }
    }

    pub(crate) fn explains(self, crossings: &Crossings) -> bool {
        let (tier, group, link) = self.location();
        crossings[tier].is_some_and(|crossing| {
            let is_of =
                |group| u32::from(crossing.from) == group || u32::from(crossing.to) == group;
            link == u32::from(crossing.link) && group.is_none_or(is_of)
        })
    }
}
