//! Connected regions of instances without a path, and the cut between them and the rest
//! (`docs/design/failure.md`, "Who has failed, and when?").

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use onepipe_base::{Instance, Timestamp};
use onepipe_wire::Side;

use crate::graph::{Arc, Graph, View};

/// A region, by adjacency indices, and what is known of its border.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Region {
    /// In ascending order of instance.
    pub members: Vec<usize>,
    /// Registers that correct nodes hold for a member: the member, the owner's side of the link,
    /// and the commit.
    pub registers: Vec<(usize, Side, Timestamp)>,
    /// Members that a correct node lists as up.
    pub up_members: BTreeSet<usize>,
    /// Number of links visited.
    pub visits: usize,
}

/// Returns the regions of instances without a path that contain any of `suspected`.
pub(crate) fn regions(graph: &Graph, suspected: impl Iterator<Item = Instance>) -> Vec<Region> {
    let adjacency = graph.adjacency();
    let mut region_of: BTreeMap<usize, usize> = BTreeMap::new();
    let mut regions: Vec<Region> = Vec::new();
    for start in suspected.filter_map(|instance| adjacency.index(instance)) {
        if region_of.contains_key(&start) {
            continue;
        }
        let number = regions.len();
        region_of.insert(start, number);
        let (mut members, mut up_members) = (alloc::vec![start], BTreeSet::new());
        let (mut visited, mut visits) = (0, 0);
        while let Some(index) = members.get(visited).copied() {
            visited += 1;
            for Arc { to, other, own, .. } in adjacency.arcs(index) {
                visits += 1;
                if adjacency.is_correct(to) {
                    let is_listed_by_member_only = other == View::Unknown && own == View::Up;
                    if other == View::Up || is_listed_by_member_only {
                        up_members.insert(index);
                    }
                } else if region_of.insert(to, number).is_none() {
                    members.push(to);
                }
            }
        }
        members.sort_unstable_by_key(|index| adjacency.instance(*index));
        assert!(!members.iter().any(|index| adjacency.is_correct(*index)), "beyond the cut");
        assert!(!up_members.iter().any(|index| adjacency.is_correct(*index)), "beyond the cut");
        regions.push(Region { members, registers: Vec::new(), up_members, visits });
    }
    for (_, node) in graph.correct_owners() {
        for entry in &node.frozen {
            let index = entry.instance.and_then(|instance| adjacency.index(instance));
            let number = index.and_then(|index| Some((index, *region_of.get(&index)?)));
            if let Some((index, number)) = number {
                assert!(!adjacency.is_correct(index), "a register of a correct node");
                // A frozen lower port received what climbs, an upper port what descends.
                regions[number].registers.push((index, entry.side, entry.commit));
                regions[number].visits += 1;
            }
        }
    }
    regions
}

impl Region {
    //= spec/failure.md#R22
    /// Returns, for each member, the greatest register on the border that its promises can reach
    /// through the region, up and then down; nothing for members that reach none.
    pub(crate) fn greatest_registers(&self, graph: &Graph) -> BTreeMap<usize, Timestamp> {
        let adjacency = graph.adjacency();
        // A switch is two nodes: its aggregate of inputs from below (`false`), which climbs, and
        // of all its inputs (`true`), which descends.
        let mut seen: BTreeSet<(usize, bool)> = BTreeSet::new();
        let mut greatest = BTreeMap::new();
        let mut registers = self.registers.clone();
        registers.sort_unstable_by_key(|(_, _, commit)| core::cmp::Reverse(*commit));
        let mut work: Vec<(usize, bool)> = Vec::new();
        for (start, side, commit) in registers {
            work.push((start, side == Side::Upper));
            // Walks against the direction of promises. Registers are visited in descending order,
            // so the first commit that reaches a member is its greatest.
            while let Some((index, descends)) = work.pop() {
                if !seen.insert((index, descends)) {
                    continue;
                }
                let known = greatest.entry(index).or_insert(commit);
                assert!(*known >= commit, "registers are visited in descending order");
                if !adjacency.is_switch(index) {
                    continue;
                }
                if descends {
                    work.push((index, false));
                }
                let from = if descends { Side::Upper } else { Side::Lower };
                for arc in adjacency
                    .arcs(index)
                    .filter(|arc| arc.side == from && !adjacency.is_correct(arc.to))
                {
                    if is_aggregated(graph, index, &arc)
                        && (!descends || adjacency.is_switch(arc.to))
                    {
                        work.push((arc.to, descends));
                    }
                }
            }
        }
        greatest
    }
}

/// Whether the promises of `arc.to` are still aggregated at `index`.
fn is_aggregated(graph: &Graph, index: usize, arc: &Arc) -> bool {
    let adjacency = graph.adjacency();
    match arc.own {
        View::Up => true,
        View::Unknown => arc.other == View::Up,
        View::Down => graph.get(adjacency.instance(index)).is_some_and(|node| {
            let peer = Some(adjacency.instance(arc.to));
            node.frozen.iter().any(|entry| entry.instance == peer && !entry.is_resolved)
        }),
    }
}
