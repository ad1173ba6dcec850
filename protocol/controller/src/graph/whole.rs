//! The same by a look at everything: what the tests compare each look with.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use onepipe_base::{Life, Timestamp};
use onepipe_wire::Side;

use super::{Graph, View, opposite};
use crate::ledger::Ledger;
use crate::region::Region;

/// What the two ends of a link say, the first one's word first.
type Views = (View, View);

/// The whole graph.
pub(crate) struct Whole<'a> {
    graph: &'a Graph,
    arcs: BTreeMap<Life, BTreeMap<(Life, Side), Views>>,
    reached: BTreeSet<Life>,
}

impl<'a> Whole<'a> {
    pub(crate) fn new(graph: &'a Graph, is_dead: impl Fn(Life) -> bool) -> Self {
        let mut arcs: BTreeMap<Life, BTreeMap<(Life, Side), Views>> =
            graph.iter().map(|(life, _)| (life, BTreeMap::new())).collect();
        for (life, node) in graph.iter() {
            for edge in &node.edges {
                if !arcs.contains_key(&edge.life) {
                    continue;
                }
                let view = if edge.is_up { View::Up } else { View::Down };
                let unknown = (View::Unknown, View::Unknown);
                let own = arcs.get_mut(&life).expect("all are there");
                own.entry((edge.life, edge.side)).or_insert(unknown).0 = view;
                let other = arcs.get_mut(&edge.life).expect("seen above");
                other.entry((life, opposite(edge.side))).or_insert(unknown).1 = view;
            }
        }
        let mut whole = Self { graph, arcs, reached: BTreeSet::new() };
        whole.reached = whole.reach(is_dead);
        whole
    }

    /// Who has a valley-free path of links that are up to the controller, not through any life that
    /// is dead.
    fn reach(&self, is_dead: impl Fn(Life) -> bool) -> BTreeSet<Life> {
        let mut seen: BTreeSet<(Life, bool)> = BTreeSet::new();
        let starts = self.graph.attachments().filter(|life| !is_dead(*life));
        let mut queue: VecDeque<(Life, bool)> =
            starts.map(|life| (life, is_switch(life))).collect();
        while let Some((life, climbs)) = queue.pop_front() {
            if !seen.insert((life, climbs)) || !is_switch(life) {
                continue;
            }
            for ((to, side), (own, other)) in &self.arcs[&life] {
                let is_up = *own != View::Down && *other != View::Down && !is_dead(*to);
                match side {
                    Side::Upper if is_up && climbs && is_switch(*to) => {
                        queue.push_back((*to, true))
                    }
                    Side::Lower if is_up => queue.push_back((*to, false)),
                    _ => {}
                }
            }
        }
        seen.into_iter().map(|(life, _)| life).collect()
    }

    /// Compares the net with this.
    pub(crate) fn check_net(&self) {
        let net = self.graph.net();
        for (life, arcs) in &self.arcs {
            let at = net.place(*life).expect("whoever is in the graph is in the net");
            let found: BTreeMap<(Life, Side), Views> = (net.arcs(at))
                .map(|arc| ((net.life(arc.to), arc.side), (arc.own, arc.other)))
                .collect();
            assert_eq!(&found, arcs, "links of {life:?}");
            assert_eq!(net.is_correct(at), self.reached.contains(life), "path of {life:?}");
        }
        let processes = self.reached.iter().filter(|life| !is_switch(**life)).count();
        assert_eq!((net.correct(), net.processes()), (self.reached.len(), processes));
        let places = |arcs: &BTreeMap<(Life, Side), Views>| {
            let up = |((_, side), (_, other)): &(&(Life, Side), &Views)| {
                *side == Side::Upper && *other == View::Up
            };
            arcs.iter().filter(up).count()
        };
        let is_double = |life: &Life| !is_switch(*life) && places(&self.arcs[life]) > 1;
        assert_eq!(net.doubles(), self.arcs.keys().filter(|life| is_double(life)).count());
        let frozen = self.graph.iter().filter(|(_, node)| !node.frozen.is_empty());
        let owners: Vec<Life> = frozen.map(|(life, _)| life).collect();
        assert_eq!(self.graph.owners().map(|(life, _)| life).collect::<Vec<_>>(), owners);
        let ready = owners.iter().filter(|owner| self.reached.contains(owner)).flat_map(|owner| {
            let frozen = self.graph.get(*owner).expect("it owns links").frozen.iter();
            let ready = frozen.filter(|entry| entry.is_resolved && !entry.is_told);
            ready.map(|entry| (*owner, entry.number))
        });
        let found = self.graph.ready().map(|(owner, entry)| (owner, entry.number));
        assert_eq!(found.collect::<Vec<_>>(), ready.collect::<Vec<_>>());
    }

    /// Compares who has joined, beside those who had `before`.
    pub(crate) fn check_joined(&self, before: &BTreeSet<Life>, joined: &[Life]) {
        let new: Vec<Life> = self.reached.difference(before).copied().collect();
        assert_eq!(joined, new);
    }

    pub(crate) fn suspected(&self, ledger: &Ledger) -> BTreeSet<Life> {
        if self.reached.is_empty() {
            return BTreeSet::new();
        }
        let mut held = BTreeSet::new();
        for (_, node) in self.graph.owners().filter(|(owner, _)| self.reached.contains(owner)) {
            let frozen = node.frozen.iter();
            held.extend(frozen.filter_map(|entry| entry.life));
        }
        let is_suspect = |(life, node): &(Life, &super::Node)| {
            let has_been = node.has_joined || held.contains(life);
            let is_over = ledger.has_failed(*life) || ledger.is_open(*life);
            !self.reached.contains(life) && has_been && !is_over
        };
        self.graph.iter().filter(is_suspect).map(|(life, _)| life).collect()
    }

    /// Compares the regions that hold any of `suspected`.
    pub(crate) fn check_regions(&self, suspected: &BTreeSet<Life>, found: &[Region]) {
        let net = self.graph.net();
        let mut expected = Vec::new();
        let mut left: BTreeSet<Life> =
            self.arcs.keys().filter(|life| !self.reached.contains(life)).copied().collect();
        while let Some(start) = left.pop_first() {
            let mut members = BTreeSet::from([start]);
            let mut work = alloc::vec![start];
            while let Some(life) = work.pop() {
                for (to, _) in self.arcs[&life].keys() {
                    if left.remove(to) {
                        members.insert(*to);
                        work.push(*to);
                    }
                }
            }
            if members.intersection(suspected).next().is_some() {
                expected.push(self.region(members));
            }
        }
        let life = |at: &usize| net.life(*at);
        let found = found.iter().map(|region| {
            let mut registers: Vec<(Life, Side, Timestamp)> = region
                .registers
                .iter()
                .map(|(at, side, at_ns)| (life(at), *side, *at_ns))
                .collect();
            registers.sort_unstable();
            let values = region.values(self.graph);
            let values = values.iter().map(|(at, value)| (life(at), *value)).collect();
            (
                region.members.iter().map(life).collect(),
                registers,
                region.heard.iter().map(life).collect(),
                values,
            )
        });
        let mut found: Vec<Border> = found.collect();
        found.sort_unstable();
        assert_eq!(found, expected);
    }

    fn region(&self, members: BTreeSet<Life>) -> Border {
        let mut heard = BTreeSet::new();
        for life in &members {
            for ((to, _), (own, other)) in &self.arcs[life] {
                let claims = *other == View::Unknown && *own == View::Up;
                if self.reached.contains(to) && (*other == View::Up || claims) {
                    heard.insert(*life);
                }
            }
        }
        let mut registers = Vec::new();
        for (_, node) in self.graph.iter().filter(|(life, _)| self.reached.contains(life)) {
            for entry in &node.frozen {
                if let Some(life) = entry.life.filter(|life| members.contains(life)) {
                    registers.push((life, entry.side, entry.commit));
                }
            }
        }
        registers.sort_unstable();
        let values = self.values(&members, &registers);
        (members, registers, heard, values)
    }

    /// Of each member all registers that its promises reach, one member after the other.
    fn values(
        &self,
        members: &BTreeSet<Life>,
        registers: &[(Life, Side, Timestamp)],
    ) -> BTreeMap<Life, Timestamp> {
        let of = |start: &Life| {
            let (mut seen, mut best) = (BTreeSet::new(), None);
            // A process speaks upwards; a switch has what it hears from below, and what from above.
            let both = [(*start, false), (*start, true)];
            let mut work = Vec::from_iter(both);
            while let Some((life, descends)) = work.pop() {
                if !seen.insert((life, descends)) {
                    continue;
                }
                let here = registers.iter().filter(|(at, _, _)| *at == life);
                let here = here.filter(|(_, side, _)| (*side == Side::Upper) == descends);
                best = here.map(|(_, _, commit)| *commit).max().max(best);
                if !descends && is_switch(life) {
                    work.push((life, true));
                }
                // Who hears it, in the region.
                for (to, side) in self.arcs[&life].keys().filter(|(to, _)| members.contains(to)) {
                    let hears = is_switch(*to) && self.hears(*to, life, opposite(*side));
                    match side {
                        Side::Upper if !descends && hears => work.push((*to, false)),
                        Side::Lower if is_switch(life) && descends && hears => {
                            work.push((*to, true));
                        }
                        _ => {}
                    }
                }
            }
            Some((*start, best?))
        };
        members.iter().filter_map(of).collect()
    }

    /// Whether the promises of `from` still count at `at`.
    fn hears(&self, at: Life, from: Life, side: Side) -> bool {
        match self.arcs[&at][&(from, side)] {
            (View::Up, _) | (View::Unknown, View::Up) => true,
            (View::Unknown, _) => false,
            (View::Down, _) => {
                let frozen = self.graph.get(at).expect("a member").frozen.iter();
                let mut held = frozen.filter(|entry| !entry.is_resolved);
                held.any(|entry| entry.life == Some(from))
            }
        }
    }
}

/// Who has failed, but is listed as up by a correct node.
pub(crate) fn ghosts(graph: &Graph, ledger: &Ledger) -> BTreeSet<Life> {
    let mut ghosts = BTreeSet::new();
    for (_, node) in graph.iter().filter(|(life, _)| graph.is_correct(*life)) {
        let up = node.edges.iter().filter(|edge| edge.is_up).map(|edge| edge.life);
        ghosts.extend(up.filter(|life| ledger.has_failed(*life)));
        ghosts.extend(&node.ghosts);
    }
    ghosts
}

/// Members, registers, who is heard, and the greatest values.
type Border =
    (BTreeSet<Life>, Vec<(Life, Side, Timestamp)>, BTreeSet<Life>, BTreeMap<Life, Timestamp>);

fn is_switch(life: Life) -> bool {
    super::process_of(life).is_none()
}
