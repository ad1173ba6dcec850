//! Who has a path to the controller, found out anew only where something has changed.
//!
//! A path climbs from the controller's place and then goes down, never up again, and no process
//! hands anything on. So each node is two states: reached climbing, and reached at all. Their
//! distances are kept. Of a state that has lost its last neighbour one nearer the distance is
//! wrong, and of all that hang on it; these are searched anew from their neighbours that are
//! right. New links shorten what lies behind them. (G. Ramalingam and T. Reps, "An incremental
//! algorithm for a generalization of the shortest-path problem", Journal of Algorithms 21, 1996.)

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use onepipe_wire::Side;

use super::Net;
use super::net::FAR;

/// A node, as it is reached: climbing, or in any way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    at: usize,
    climbs: bool,
}

impl Net {
    /// Brings all paths up to date. Answers who has got one or lost it, ascending by number.
    pub(super) fn repair(&mut self) -> Vec<usize> {
        let touched = core::mem::take(&mut self.touched);
        let gained = core::mem::take(&mut self.gained);
        let mut turned = touched.clone();
        let both = |at: usize| [true, false].map(|climbs| State { at, climbs });
        // Who has lost all support, the nearest first: what they stood on is settled then.
        let mut doubtful = Agenda::default();
        for state in touched.iter().copied().flat_map(both) {
            doubtful.push(self.distance(state), state);
        }
        // Only who has gained something can be nearer than it was.
        let mut searched: Vec<State> = gained.iter().copied().flat_map(both).collect();
        while let Some((distance, state)) = doubtful.pop() {
            if self.distance(state) != distance || self.support(state, distance) <= distance {
                continue;
            }
            self.set(state, FAR);
            turned.insert(state.at);
            searched.push(state);
            self.successors(state, |net, next| {
                if net.distance(next) == distance + 1 {
                    doubtful.push(distance + 1, next);
                }
            });
        }
        let mut agenda = Agenda::default();
        for state in searched {
            agenda.push(self.support(state, 0), state);
        }
        while let Some((distance, state)) = agenda.pop() {
            if distance >= self.distance(state) {
                continue;
            }
            self.set(state, distance);
            turned.insert(state.at);
            self.successors(state, |net, next| {
                if distance + 1 < net.distance(next) {
                    agenda.push(distance + 1, next);
                }
            });
        }
        self.publish(turned)
    }

    /// Notes who is correct now. Answers of whom that is news.
    fn publish(&mut self, turned: BTreeSet<usize>) -> Vec<usize> {
        let mut news = Vec::new();
        for at in turned {
            let vertex = &self.vertices[at];
            let is_correct = vertex.is_present && vertex.descended != FAR;
            if self.set_correct(at, is_correct) {
                news.push(at);
            }
        }
        news
    }

    fn distance(&self, State { at, climbs }: State) -> u32 {
        let vertex = &self.vertices[at];
        if climbs { vertex.climbed } else { vertex.descended }
    }

    fn set(&mut self, State { at, climbs }: State, distance: u32) {
        let vertex = &mut self.vertices[at];
        if climbs {
            vertex.climbed = distance;
        } else {
            vertex.descended = distance;
        }
    }

    /// How far it is over its best neighbour, as things stand; or over any by which it is `enough`
    /// or less.
    fn support(&mut self, State { at, climbs }: State, enough: u32) -> u32 {
        self.visits += 1;
        let vertex = &self.vertices[at];
        if !vertex.is_open() || (climbs && !vertex.is_switch()) {
            return FAR;
        }
        if vertex.is_start && climbs == vertex.is_switch() {
            return 0;
        }
        let from = if climbs { Side::Lower } else { Side::Upper };
        let mut best = if climbs { FAR } else { vertex.climbed };
        let mut arcs = vertex.arcs_on(from).iter();
        let mut visits = 0;
        while best >= enough
            && let Some(arc) = arcs.next()
        {
            visits += 1;
            let other = &self.vertices[arc.to];
            if arc.is_up() && other.is_switch() && other.is_open() {
                best = best.min(if climbs { other.climbed } else { other.descended });
            }
        }
        self.visits += visits;
        best.saturating_add(1)
    }

    /// The states that it leads to.
    fn successors(&mut self, state: State, mut visit: impl FnMut(&Self, State)) {
        let State { at, climbs } = state;
        self.visits += 1;
        if climbs {
            visit(self, State { at, climbs: false });
        }
        if !self.vertices[at].is_switch() {
            return;
        }
        let arcs = self.vertices[at].arcs_on(if climbs { Side::Upper } else { Side::Lower });
        let count = arcs.len() as u64;
        for arc in arcs.iter().filter(|arc| arc.is_up()) {
            let other = &self.vertices[arc.to];
            if other.is_open() && (!climbs || other.is_switch()) {
                visit(self, State { at: arc.to, climbs });
            }
        }
        self.visits += count;
    }
}

/// States by their distance, the nearest first.
#[derive(Default)]
struct Agenda {
    by_distance: BTreeMap<u32, Vec<State>>,
}

impl Agenda {
    fn push(&mut self, distance: u32, state: State) {
        if distance != FAR {
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
