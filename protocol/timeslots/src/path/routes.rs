//! Access to the paths of a batch, for any path selection.

use super::{Paths, TreePaths};
use crate::timeslot::BATCH_SLOTS_MAX;

/// The paths of a batch, as chosen by any path selection.
pub trait Routes {
    /// Returns the number of endpoints per rack. Packets within a rack need no path.
    fn rack_nodes(&self) -> u32;

    /// Returns the path of `src` in each timeslot, or [`Paths::NONE`].
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
