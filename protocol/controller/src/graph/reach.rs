//! Incremental reachability: which instances have a path to the controller.
//!
//! A path climbs from the controller's attachment and then descends, never to climb again;
//! processes do not forward. So each node has two states: reached while climbing, and reached at
//! all. The distance of each state is stored. A state that has lost its last neighbour at a
//! distance one less has a wrong distance, and so has every state that depends on it; these states
//! are searched again from neighbours with correct distances. New links shorten the distances
//! behind them. (G. Ramalingam and T. Reps,
//! Algorithms 21, 1996.)

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use onepipe_wire::Side;

use super::Adjacency;
use super::adjacency::UNREACHABLE;

/// A node and how it is reached: while climbing, or at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    index: usize,
    is_uphill: bool,
}

impl Adjacency {
    /// Brings all distances up to date. Returns the indices that gained or lost their path, in
    /// ascending order.
    pub(super) fn update_reachability(&mut self) -> Vec<usize> {
        let touched = core::mem::take(&mut self.touched);
        let gained = core::mem::take(&mut self.gained);
        let mut changed = touched.clone();
        let both = |index: usize| [true, false].map(|is_uphill| State { index, is_uphill });
        // States that lost all support, nearest first: the states that they depend on are final by
        // then.
        let mut unsupported = DistanceQueue::default();
        for state in touched.iter().copied().flat_map(both) {
            unsupported.push(self.distance(state), state);
        }
        // Only states that gained a link can be nearer than before.
        let mut to_search: Vec<State> = gained.iter().copied().flat_map(both).collect();
        while let Some((distance, state)) = unsupported.pop() {
            if self.distance(state) != distance
                || self.distance_via_neighbours(state, distance) <= distance
            {
                continue;
            }
            self.set_distance(state, UNREACHABLE);
            changed.insert(state.index);
            to_search.push(state);
            self.for_each_successor(state, |adjacency, next| {
                if adjacency.distance(next) == distance + 1 {
                    unsupported.push(distance + 1, next);
                }
            });
        }
        let mut queue = DistanceQueue::default();
        for state in to_search {
            queue.push(self.distance_via_neighbours(state, 0), state);
        }
        while let Some((distance, state)) = queue.pop() {
            if distance >= self.distance(state) {
                continue;
            }
            self.set_distance(state, distance);
            changed.insert(state.index);
            self.for_each_successor(state, |adjacency, next| {
                if distance + 1 < adjacency.distance(next) {
                    queue.push(distance + 1, next);
                }
            });
        }
        self.update_correct(changed)
    }

    /// Updates which instances are correct. Returns those that have changed.
    fn update_correct(&mut self, changed: BTreeSet<usize>) -> Vec<usize> {
        let mut changed_indices = Vec::new();
        for index in changed {
            let vertex = &self.vertices[index];
            let is_correct = vertex.is_present && vertex.distance != UNREACHABLE;
            debug_assert!(!is_correct || !vertex.is_dead, "a dead instance has no path");
            let max = vertex.uphill_distance.saturating_add(1);
            debug_assert!(vertex.distance <= max, "a path that turns is one link longer");
            if self.set_correct(index, is_correct) {
                changed_indices.push(index);
            }
        }
        changed_indices
    }

    fn distance(&self, State { index, is_uphill }: State) -> u32 {
        let vertex = &self.vertices[index];
        if is_uphill { vertex.uphill_distance } else { vertex.distance }
    }

    fn set_distance(&mut self, State { index, is_uphill }: State, distance: u32) {
        let vertex = &mut self.vertices[index];
        if is_uphill {
            vertex.uphill_distance = distance;
        } else {
            vertex.distance = distance;
        }
    }

    /// Returns the distance over the best neighbour, or over any neighbour that makes it at most
    /// `bound`.
    fn distance_via_neighbours(&mut self, State { index, is_uphill }: State, bound: u32) -> u32 {
        self.visits += 1;
        let vertex = &self.vertices[index];
        if !vertex.is_open() || (is_uphill && !vertex.is_switch()) {
            return UNREACHABLE;
        }
        if vertex.is_attached && is_uphill == vertex.is_switch() {
            return 0;
        }
        let from = if is_uphill { Side::Lower } else { Side::Upper };
        let mut best = if is_uphill { UNREACHABLE } else { vertex.uphill_distance };
        let mut arcs = vertex.arcs_on(from).iter();
        let mut visits = 0;
        while best >= bound
            && let Some(arc) = arcs.next()
        {
            visits += 1;
            let other = &self.vertices[arc.to];
            if arc.is_up() && other.is_switch() && other.is_open() {
                best = best.min(if is_uphill { other.uphill_distance } else { other.distance });
            }
        }
        self.visits += visits;
        best.saturating_add(1)
    }

    /// Visits the states that `state` leads to.
    fn for_each_successor(&mut self, state: State, mut visit: impl FnMut(&Self, State)) {
        let State { index, is_uphill } = state;
        self.visits += 1;
        if is_uphill {
            visit(self, State { index, is_uphill: false });
        }
        if !self.vertices[index].is_switch() {
            return;
        }
        let arcs = self.vertices[index].arcs_on(if is_uphill { Side::Upper } else { Side::Lower });
        let count = arcs.len() as u64;
        for arc in arcs.iter().filter(|arc| arc.is_up()) {
            let other = &self.vertices[arc.to];
            if other.is_open() && (!is_uphill || other.is_switch()) {
                visit(self, State { index: arc.to, is_uphill });
            }
        }
        self.visits += count;
    }
}

/// A priority queue of states, nearest first.
#[derive(Default)]
struct DistanceQueue {
    by_distance: BTreeMap<u32, Vec<State>>,
}

impl DistanceQueue {
    fn push(&mut self, distance: u32, state: State) {
        if distance != UNREACHABLE {
            self.by_distance.entry(distance).or_default().push(state);
        }
    }

    fn pop(&mut self) -> Option<(u32, State)> {
        let mut first = self.by_distance.first_entry()?;
        let (distance, state) = (*first.key(), first.get_mut().pop());
        if first.get().is_empty() {
            first.remove();
        }
        Some((distance, state?))
    }
}
