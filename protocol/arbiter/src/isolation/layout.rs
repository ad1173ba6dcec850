//! The links that a packet crosses.

use crate::path::{Fabric, Tree};

/// Tiers of links that can be faulty: links of racks, and links of spines.
pub(super) const TIERS: usize = 2;

/// A path up from one rack or spine and down to another, through their links of the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Crossing {
    pub from: u16,
    pub to: u16,
    pub link: u8,
}

/// The links of one packet, by tier.
pub(super) type Crossings = [Option<Crossing>; TIERS];

/// The fabric, as its paths number the links.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Layout {
    rack_nodes: u32,
    racks: u32,
    rack_links: u32,
    /// Set for a fabric of three tiers.
    tree: Option<Tree>,
}

impl Layout {
    pub fn of_racks(fabric: &Fabric) -> Self {
        let Fabric { nodes, rack_nodes, paths, .. } = *fabric;
        Self { rack_nodes, racks: nodes.div_ceil(rack_nodes), rack_links: paths, tree: None }
    }

    pub fn of_tree(tree: &Tree) -> Self {
        let Tree { nodes, rack_nodes, rack_links, .. } = *tree;
        Self { rack_nodes, racks: nodes.div_ceil(rack_nodes), rack_links, tree: Some(*tree) }
    }

    pub fn has_spines(&self) -> bool {
        self.tree.is_some()
    }

    /// Returns the number of endpoints if every rack were full.
    pub fn nodes(&self) -> usize {
        (self.racks * self.rack_nodes) as usize
    }

    /// Returns the number of racks, or of spines.
    pub fn groups(&self, tier: usize) -> usize {
        let spines = self.tree.map_or(0, |tree| self.racks.div_ceil(tree.pod_racks) * tree.spines);
        [self.racks, spines][tier] as usize
    }

    /// Returns the number of links of each rack, or of each spine.
    pub fn links(&self, tier: usize) -> usize {
        [self.rack_links, self.tree.map_or(0, |tree| tree.spine_links)][tier] as usize
    }

    /// Returns the index of a link in tables of its tier.
    pub fn link_index(&self, tier: usize, group: u16, link: u8) -> usize {
        usize::from(group) * self.links(tier) + usize::from(link)
    }

    /// Whether packets go between two groups: a core joins spines of the same position in all pods.
    pub fn are_connected(&self, tier: usize, one: usize, other: usize) -> bool {
        let is_same_position = match (tier, self.tree) {
            (1, Some(tree)) => one as u32 % tree.spines == other as u32 % tree.spines,
            _ => true,
        };
        one != other && is_same_position
    }

    /// Returns the links that a packet crosses by a path; `None` if it stays in its rack, or the
    /// endpoint or path does not exist.
    pub fn crossings(&self, src: u16, dst: u16, path: u8) -> Option<Crossings> {
        let [from, to] = [src, dst].map(|node| u32::from(node) / self.rack_nodes);
        if from >= self.racks || to >= self.racks || from == to {
            return None;
        }
        let (link, above) = match self.tree {
            None => (u32::from(path), 0),
            Some(_) => (u32::from(path) % self.rack_links, u32::from(path) / self.rack_links),
        };
        if link >= self.rack_links {
            return None;
        }
        let crossing = |from: u32, to: u32, link: u32| Crossing {
            from: from as u16,
            to: to as u16,
            link: link as u8,
        };
        let racks = Some(crossing(from, to, link));
        let Some(Tree { pod_racks, spines, spine_links, .. }) = self.tree else {
            return Some([racks, None]);
        };
        let [from_pod, to_pod] = [from, to].map(|rack| rack / pod_racks);
        if from_pod == to_pod {
            return (above == 0).then_some([racks, None]);
        }
        let spine = link / (self.rack_links / spines);
        let [up, down] = [from_pod, to_pod].map(|pod| pod * spines + spine);
        (above < spine_links).then_some([racks, Some(crossing(up, down, above))])
    }
}
