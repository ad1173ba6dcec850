//! What lies between the racks, whichever it is.

use crate::Timeslot;
use crate::isolate::{Fault, Isolation, Spans};
use crate::path::{Fabric, FabricError, Paths, Tree, TreePaths};
use crate::timeslot::{BATCH_SLOTS_MAX, Schedule};

/// The paths of a batch, from whatever has chosen them.
pub trait Routes {
    /// Endpoints of a rack: among them no path is needed.
    fn rack_nodes(&self) -> u32;

    /// The path of each packet of `src`, [`Paths::NONE`] where it has none.
    fn of(&self, src: u32) -> &[u8; BATCH_SLOTS_MAX as usize];
}

impl Routes for Paths {
    fn rack_nodes(&self) -> u32 {
        self.fabric().rack_nodes
    }

    #[inline]
    fn of(&self, src: u32) -> &[u8; BATCH_SLOTS_MAX as usize] {
        self.of(src)
    }
}

impl Routes for TreePaths {
    fn rack_nodes(&self) -> u32 {
        self.tree().rack_nodes
    }

    #[inline]
    fn of(&self, src: u32) -> &[u8; BATCH_SLOTS_MAX as usize] {
        self.of(src)
    }
}

/// A fabric of racks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Core {
    /// All endpoints are behind one switch: there is no path to choose.
    One {
        /// Endpoints.
        nodes: u32,
    },
    /// One tier of switches between the racks.
    Racks(Fabric),
    /// Two tiers.
    Tree(Tree),
}

impl Core {
    /// Endpoints.
    pub const fn nodes(&self) -> u32 {
        match self {
            Self::One { nodes } => *nodes,
            Self::Racks(fabric) => fabric.nodes,
            Self::Tree(tree) => tree.nodes,
        }
    }
}

/// The paths of whoever needs none.
static NOWHERE: [u8; BATCH_SLOTS_MAX as usize] = [Paths::NONE; BATCH_SLOTS_MAX as usize];

/// Gives every packet its path, through whichever it is.
#[expect(clippy::large_enum_variant, reason = "an arbiter has one")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CorePaths {
    /// None: so many endpoints are behind one switch.
    One(u32),
    /// See [`Paths`].
    Racks(Paths),
    /// See [`TreePaths`].
    Tree(TreePaths),
}

impl CorePaths {
    /// Of a fabric in which everything works.
    ///
    /// # Errors
    /// When there can be no such fabric.
    pub fn new(core: Core) -> Result<Self, FabricError> {
        match core {
            Core::One { nodes } => Ok(Self::One(nodes)),
            Core::Racks(fabric) => Paths::new(fabric).map(Self::Racks),
            Core::Tree(tree) => TreePaths::new(tree).map(Self::Tree),
        }
    }

    /// What finds faults in it, if there are paths to choose from.
    pub(crate) fn isolation(&self, spans: Spans) -> Option<Isolation> {
        match self {
            Self::One(_) => None,
            Self::Racks(paths) => Some(Isolation::of_racks(paths.fabric(), spans)),
            Self::Tree(paths) => Some(Isolation::of_tree(paths.tree(), spans)),
        }
    }

    /// Avoids what is faulty from now on, or uses it again.
    ///
    /// # Errors
    /// When there is no such thing in this fabric.
    pub fn avoid(&mut self, fault: Fault, avoids: bool) -> Result<(), FabricError> {
        let nowhere = |link| Err(FabricError { name: "link", value: link });
        match (self, fault) {
            (Self::Racks(paths), Fault::Link { rack, path }) => paths.set_cut(rack, path, avoids),
            (Self::Racks(paths), Fault::Path(path)) => paths.set_failed(path, avoids),
            (Self::Tree(paths), Fault::Link { rack, path }) => paths.set_cut(rack, path, avoids),
            (Self::Tree(paths), Fault::SpineLink { spine, link }) => {
                paths.set_spine_cut(spine, link, avoids)
            }
            (Self::One(_), Fault::Link { path, .. } | Fault::Path(path)) => nowhere(path),
            (Self::Tree(_), Fault::Path(path)) => nowhere(path),
            (Self::One(_) | Self::Racks(_), Fault::SpineLink { link, .. }) => nowhere(link),
        }
    }

    /// As [`Paths::assign`].
    pub fn assign(&mut self, schedule: &Schedule, start: Timeslot, slots: u32) -> u32 {
        match self {
            Self::One(_) => 0,
            Self::Racks(paths) => paths.assign(schedule, start, slots),
            Self::Tree(paths) => paths.assign(schedule, start, slots),
        }
    }
}

impl Routes for CorePaths {
    fn rack_nodes(&self) -> u32 {
        match self {
            Self::One(nodes) => (*nodes).max(1),
            Self::Racks(paths) => paths.rack_nodes(),
            Self::Tree(paths) => paths.rack_nodes(),
        }
    }

    #[inline]
    fn of(&self, src: u32) -> &[u8; BATCH_SLOTS_MAX as usize] {
        match self {
            Self::One(_) => &NOWHERE,
            Self::Racks(paths) => paths.of(src),
            Self::Tree(paths) => paths.of(src),
        }
    }
}
