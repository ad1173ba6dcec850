//! What lies between the racks, whichever it is.

use crate::isolate::{Fault, Isolation};
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

    /// What finds faults in it, if that can be: through two tiers a path names too many links.
    pub(crate) fn isolation(&self) -> Option<Isolation> {
        match self {
            Self::Racks(paths) => {
                let fabric = paths.fabric();
                Some(Isolation::new(fabric.nodes, fabric.rack_nodes, fabric.paths))
            }
            Self::One(_) | Self::Tree(_) => None,
        }
    }

    /// Avoids what is faulty from now on, or uses it again.
    ///
    /// # Errors
    /// When there is no such rack or path.
    pub fn avoid(&mut self, fault: Fault, avoids: bool) -> Result<(), FabricError> {
        match (self, fault.rack) {
            (Self::Racks(paths), Some(rack)) => paths.set_cut(rack, fault.path, avoids),
            (Self::Racks(paths), None) => paths.set_failed(fault.path, avoids),
            (Self::Tree(paths), Some(rack)) => paths.set_cut(rack, fault.path, avoids),
            (Self::One(_), _) | (Self::Tree(_), None) => {
                Err(FabricError { name: "path", value: fault.path })
            }
        }
    }

    /// As [`Paths::assign`].
    pub fn assign(&mut self, schedule: &Schedule, slots: u32) -> u32 {
        match self {
            Self::One(_) => 0,
            Self::Racks(paths) => paths.assign(schedule, slots),
            Self::Tree(paths) => paths.assign(schedule, slots),
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
