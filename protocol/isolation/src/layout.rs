//! The links that a packet crosses.

/// Tiers of links that can be faulty: links of racks, and links of spines.
pub(crate) const TIERS: usize = 2;

/// A path up from one rack or spine and down to another, through their links of the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Crossing {
    pub from: u16,
    pub to: u16,
    pub link: u8,
}

/// The links of one packet, by tier.
pub(crate) type Crossings = [Option<Crossing>; TIERS];

/// The second tier of a fabric of three tiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spines {
    /// Racks per pod.
    pub pod_racks: u32,
    /// Spines per pod, each with the same number of links to each rack.
    pub count: u32,
    /// Upper links of a spine.
    pub links: u32,
}

/// The fabric, as its paths number the links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    rack_nodes: u32,
    racks: u32,
    rack_links: u32,
    /// Set for a fabric of three tiers.
    spines: Option<Spines>,
}

impl Layout {
    /// Returns the layout of `nodes` endpoints in racks of `rack_nodes`, at least 1, with
    /// `rack_links` paths between any two racks.
    pub const fn of_racks(nodes: u32, rack_nodes: u32, rack_links: u32) -> Self {
        assert!(rack_nodes > 0 && rack_links <= u64::BITS, "one bit for each link of a rack");
        assert!(nodes <= 1 << 16, "endpoints have 16-bit numbers");
        Self { rack_nodes, racks: nodes.div_ceil(rack_nodes), rack_links, spines: None }
    }

    /// Returns the layout with a second tier: the link of a path is the path modulo the links of a
    /// rack, and the upper link of the spine is the quotient.
    #[must_use]
    pub const fn with_spines(self, spines: Spines) -> Self {
        assert!(spines.count > 0 && self.rack_links.is_multiple_of(spines.count));
        assert!(spines.pod_racks > 0 && spines.links <= u64::BITS);
        Self { spines: Some(spines), ..self }
    }

    pub(crate) fn has_spines(&self) -> bool {
        self.spines.is_some()
    }

    /// Returns the number of endpoints if every rack were full.
    pub(crate) fn nodes(&self) -> usize {
        (self.racks * self.rack_nodes) as usize
    }

    /// Returns the number of racks, or of spines.
    pub(crate) fn groups(&self, tier: usize) -> usize {
        let pods = |spines: Spines| self.racks.div_ceil(spines.pod_racks);
        let spines = self.spines.map_or(0, |spines| pods(spines) * spines.count);
        [self.racks, spines][tier] as usize
    }

    /// Returns the number of links of each rack, or of each spine.
    pub(crate) fn links(&self, tier: usize) -> usize {
        [self.rack_links, self.spines.map_or(0, |spines| spines.links)][tier] as usize
    }

    /// Returns the index of a link in tables of its tier.
    pub(crate) fn link_index(&self, tier: usize, group: u16, link: u8) -> usize {
        debug_assert!(usize::from(link) < self.links(tier), "the link exists");
        debug_assert!(usize::from(group) < self.groups(tier), "the rack or spine exists");
        usize::from(group) * self.links(tier) + usize::from(link)
    }

    /// Whether packets go between two groups: a core joins spines of the same position in all pods.
    pub(crate) fn are_connected(&self, tier: usize, one: usize, other: usize) -> bool {
        let is_same_position = match (tier, self.spines) {
            (1, Some(spines)) => one as u32 % spines.count == other as u32 % spines.count,
            _ => true,
        };
        one != other && is_same_position
    }

    /// Returns the links that a packet crosses by a path; `None` if it stays in its rack, or the
    /// endpoint or path does not exist.
    pub(crate) fn crossings(&self, src: u16, dst: u16, path: u8) -> Option<Crossings> {
        let [from, to] = [src, dst].map(|node| u32::from(node) / self.rack_nodes);
        if from >= self.racks || to >= self.racks || from == to {
            return None;
        }
        let (link, above) = match self.spines {
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
        let Some(Spines { pod_racks, count, links }) = self.spines else {
            return Some([racks, None]);
        };
        let [from_pod, to_pod] = [from, to].map(|rack| rack / pod_racks);
        if from_pod == to_pod {
            return (above == 0).then_some([racks, None]);
        }
        let spine = link / (self.rack_links / count);
        let [up, down] = [from_pod, to_pod].map(|pod| pod * count + spine);
        (above < links).then_some([racks, Some(crossing(up, down, above))])
    }
}
