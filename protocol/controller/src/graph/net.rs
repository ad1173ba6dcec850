//! The graph in flat arrays, for one pass of thought over it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use onepipe_base::{Address, Life};
use onepipe_wire::Side;

use super::{Graph, opposite};

/// What a node says of its links to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum View {
    /// Nothing yet.
    Unknown,
    /// It was up, and is not.
    Down,
    /// It is up.
    Up,
}

/// The links from one node to another on one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arc {
    pub from: usize,
    pub to: usize,
    /// Where they lead, seen from `from`.
    pub side: Side,
    /// What `from` says.
    pub own: View,
    /// What `to` says.
    pub other: View,
}

impl Arc {
    /// Both ends agree that it is up, or one says so and the other knows nothing yet.
    pub(crate) fn is_up(&self) -> bool {
        self.own != View::Down && self.other != View::Down
    }
}

/// All lives, numbered in ascending order, and the links between them in both directions.
#[derive(Debug)]
pub(crate) struct Net {
    pub lives: Vec<Life>,
    arcs: Vec<Arc>,
    first: Vec<usize>,
    attachments: Vec<usize>,
}

impl Net {
    pub(crate) fn new(graph: &Graph) -> Self {
        let lives: Vec<Life> = graph.iter().map(|(life, _)| life).collect();
        let mut arcs = Vec::new();
        for (from, (_, node)) in graph.iter().enumerate() {
            for edge in &node.edges {
                let Ok(to) = lives.binary_search(&edge.life) else { continue };
                let view = if edge.is_up { View::Up } else { View::Down };
                let (side, unknown) = (edge.side, View::Unknown);
                arcs.push(Arc { from, to, side, own: view, other: unknown });
                let side = opposite(side);
                arcs.push(Arc { from: to, to: from, side, own: unknown, other: view });
            }
        }
        // One comparison of words instead of three of fields: this is most of the work.
        arcs.sort_unstable_by_key(|arc| {
            (arc.from as u128) << 64 | (arc.to as u128) << 2 | arc.side as u128
        });
        arcs.dedup_by(|arc, kept| {
            let is_same = (arc.from, arc.to, arc.side) == (kept.from, kept.to, kept.side);
            if is_same {
                kept.own = kept.own.max(arc.own);
                kept.other = kept.other.max(arc.other);
            }
            is_same
        });
        let mut first = alloc::vec![0; lives.len() + 1];
        arcs.iter().for_each(|arc| first[arc.from + 1] += 1);
        (1..first.len()).for_each(|at| first[at] += first[at - 1]);
        let place = |life: Life| lives.binary_search(&life).ok();
        let attachments = graph.attachments().filter_map(place).collect();
        Self { lives, arcs, first, attachments }
    }

    /// The links of `node`.
    pub(crate) fn arcs(&self, node: usize) -> &[Arc] {
        let Range { start, end } = self.first[node]..self.first[node + 1];
        &self.arcs[start..end]
    }

    pub(crate) fn is_switch(&self, node: usize) -> bool {
        matches!(self.lives[node].address, Address::Switch(_))
    }

    /// Who has a valley-free path of links that are up to the controller, not through any node for
    /// which `is_out`.
    pub(crate) fn reach(&self, is_out: impl Fn(usize) -> bool) -> Vec<bool> {
        self.reach_from(&self.attachments, is_out)
    }

    /// As [`Net::reach`], from `starts` instead of the controller's own place.
    pub(crate) fn reach_from(&self, starts: &[usize], is_out: impl Fn(usize) -> bool) -> Vec<bool> {
        // A node is reached climbing, or descending only.
        let mut climbed = alloc::vec![false; self.lives.len()];
        let mut reached = climbed.clone();
        let mut queue: VecDeque<(usize, bool)> = VecDeque::new();
        let starts = starts.iter().copied().filter(|start| !is_out(*start));
        queue.extend(starts.map(|start| (start, self.is_switch(start))));
        while let Some((node, climbs)) = queue.pop_front() {
            let seen = if climbs { &mut climbed[node] } else { &mut reached[node] };
            if core::mem::replace(seen, true) {
                continue;
            }
            let was_reached = climbs && core::mem::replace(&mut reached[node], true);
            if !self.is_switch(node) {
                continue;
            }
            for arc in self.arcs(node).iter().filter(|arc| arc.is_up() && !is_out(arc.to)) {
                match arc.side {
                    Side::Upper if climbs && self.is_switch(arc.to) => {
                        queue.push_back((arc.to, true));
                    }
                    Side::Lower if !was_reached => queue.push_back((arc.to, false)),
                    _ => {}
                }
            }
        }
        reached
    }
}
