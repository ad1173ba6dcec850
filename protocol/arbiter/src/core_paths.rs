//! Path selection through any kind of fabric.

use onepipe_isolation::{Fault, Isolation, Layout, Spines, Timing};

use crate::{
    BATCH_SLOTS_MAX, Fabric, FabricError, Paths, Routes, Schedule, Timeslot, Tree, TreePaths,
};

/// The kind of fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Core {
    /// All endpoints are attached to one switch: there is no path to choose.
    One {
        /// Number of endpoints.
        nodes: u32,
    },
    /// One tier of switches between the racks.
    Racks(Fabric),
    /// Two tiers of switches between the racks.
    Tree(Tree),
}

impl Core {
    /// Returns racks of `rack_nodes` endpoints with `paths` paths between any two.
    pub const fn racks(nodes: u32, rack_nodes: u32, paths: u32) -> Self {
        Self::Racks(Fabric { nodes, rack_nodes, paths, is_strict: false })
    }

    /// Returns the number of endpoints.
    pub const fn nodes(&self) -> u32 {
        match self {
            Self::One { nodes } => *nodes,
            Self::Racks(fabric) => fabric.nodes,
            Self::Tree(tree) => tree.nodes,
        }
    }
}

/// A row without paths.
static NO_PATH_ROW: [u8; BATCH_SLOTS_MAX as usize] = [Paths::NONE; BATCH_SLOTS_MAX as usize];

/// Path selection for any kind of fabric.
#[expect(clippy::large_enum_variant, reason = "an arbiter has one")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CorePaths {
    /// No paths: one switch with this number of endpoints.
    One(u32),
    /// See [`Paths`].
    Racks(Paths),
    /// See [`TreePaths`].
    Tree(TreePaths),
}

impl CorePaths {
    /// Creates the path selection of a fabric without faults.
    ///
    /// # Errors
    /// When the fabric is invalid.
    pub fn new(core: Core) -> Result<Self, FabricError> {
        match core {
            Core::One { nodes } => Ok(Self::One(nodes)),
            Core::Racks(fabric) => Paths::new(fabric).map(Self::Racks),
            Core::Tree(tree) => TreePaths::new(tree).map(Self::Tree),
        }
    }

    /// Creates the fault isolation of the fabric, if it has paths to choose from.
    pub(crate) fn isolation(&self, timing: Timing) -> Option<Isolation> {
        match self {
            Self::One(_) => None,
            Self::Racks(paths) => {
                let Fabric { nodes, rack_nodes, paths, .. } = *paths.fabric();
                Some(Isolation::new(Layout::of_racks(nodes, rack_nodes, paths), timing))
            }
            Self::Tree(paths) => {
                let tree = paths.tree();
                let layout = Layout::of_racks(tree.nodes, tree.rack_nodes, tree.rack_links);
                let Tree { pod_racks, spines: count, spine_links: links, .. } = *tree;
                let layout = layout.with_spines(Spines { pod_racks, count, links });
                Some(Isolation::new(layout, timing))
            }
        }
    }

    /// Starts or stops avoiding a faulty link or path.
    ///
    /// # Errors
    /// When the fabric has no such link or path.
    pub fn avoid(&mut self, fault: Fault, is_avoided: bool) -> Result<(), FabricError> {
        let no_such_link = |link| Err(FabricError { name: "link", value: link });
        match (self, fault) {
            (Self::Racks(paths), Fault::Link { rack, path }) => {
                paths.set_cut(rack, path, is_avoided)
            }
            (Self::Racks(paths), Fault::Path(path)) => paths.set_failed(path, is_avoided),
            (Self::Tree(paths), Fault::Link { rack, path }) => {
                paths.set_cut(rack, path, is_avoided)
            }
            (Self::Tree(paths), Fault::SpineLink { spine, link }) => {
                paths.set_spine_cut(spine, link, is_avoided)
            }
            (Self::One(_), Fault::Link { path, .. } | Fault::Path(path)) => no_such_link(path),
            (Self::Tree(_), Fault::Path(path)) => no_such_link(path),
            (Self::One(_) | Self::Racks(_), Fault::SpineLink { link, .. }) => no_such_link(link),
        }
    }

    /// Assigns paths to a batch, as [`Paths::assign`].
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
            Self::One(_) => &NO_PATH_ROW,
            Self::Racks(paths) => paths.of(src),
            Self::Tree(paths) => paths.of(src),
        }
    }
}
