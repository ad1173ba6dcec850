//! Detection of pairs that a severed link partitions.

use alloc::vec::Vec;

use onepipe_base::Instance;
use onepipe_wire::Side;

use super::{Adjacency, Graph};

impl Graph {
    /// Whether `lower` does not reach some correct process while its link to `upper` is down. Takes
    /// time in proportion to the fabric, unless that link is up, or `lower` has another path to
    /// everything next to `upper`.
    pub(crate) fn is_cut_off(&mut self, upper: Instance, lower: Instance) -> bool {
        let (Some(above), Some(start)) = (self.adjacency.index(upper), self.adjacency.index(lower))
        else {
            return false;
        };
        if self.adjacency.is_linked(above, start) || self.adjacency.has_alternative(above, start) {
            return false;
        }
        let reached = self.adjacency.reach_from(start);
        let mut correct = (0..reached.len()).filter(|index| self.adjacency.is_correct(*index));
        correct.any(|index| !self.adjacency.is_switch(index) && !reached[index])
    }
}

impl Adjacency {
    /// Whether `lower` is correct and its link to `upper` is up.
    fn is_linked(&self, upper: usize, lower: usize) -> bool {
        self.is_correct(lower) && self.arcs(lower).any(|arc| arc.to == upper && arc.is_up())
    }

    /// Whether `lower` reaches every node that `upper` would lead it to over other switches.
    fn has_alternative(&mut self, upper: usize, lower: usize) -> bool {
        if !(self.is_switch(upper) && self.is_switch(lower) && self.is_correct(lower)) {
            return false;
        }
        let neighbours = |adjacency: &Self, index: usize| {
            let arcs =
                adjacency.arcs(index).filter(|arc| arc.is_up() && adjacency.is_correct(arc.to));
            arcs.map(|arc| (arc.side, arc.to)).collect::<Vec<_>>()
        };
        let wanted = neighbours(self, upper);
        let others: Vec<Vec<(Side, usize)>> = neighbours(self, lower)
            .into_iter()
            .filter(|(side, index)| {
                *side == Side::Upper && *index != upper && self.is_switch(*index)
            })
            .map(|(_, index)| neighbours(self, index))
            .collect();
        self.visits += (wanted.len() * (1 + others.len())) as u64;
        // Arcs are sorted by side and index.
        let leads_to = |neighbour: &(Side, usize)| {
            neighbour.1 == lower
                || others.iter().any(|other| other.binary_search(neighbour).is_ok())
        };
        wanted.iter().all(leads_to)
    }

    /// Returns which vertices are reached from `start` over correct instances only.
    fn reach_from(&mut self, start: usize) -> Vec<bool> {
        // A node is reached while climbing, or while descending only.
        let mut reached_uphill = alloc::vec![false; self.vertices.len()];
        let mut reached = reached_uphill.clone();
        let mut work =
            Vec::from_iter(self.is_correct(start).then(|| (start, self.is_switch(start))));
        let mut visits = 0;
        while let Some((index, is_uphill)) = work.pop() {
            let seen = if is_uphill { &mut reached_uphill[index] } else { &mut reached[index] };
            if core::mem::replace(seen, true) {
                continue;
            }
            // An earlier visit while descending has searched the lower side already.
            let was_reached = is_uphill && core::mem::replace(&mut reached[index], true);
            if !self.is_switch(index) {
                continue;
            }
            for arc in self.arcs(index).filter(|arc| arc.is_up() && self.is_correct(arc.to)) {
                visits += 1;
                match arc.side {
                    Side::Upper if is_uphill && self.is_switch(arc.to) => work.push((arc.to, true)),
                    Side::Lower if !was_reached => work.push((arc.to, false)),
                    _ => {}
                }
            }
        }
        self.visits += visits;
        reached
    }
}
