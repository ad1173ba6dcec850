//! Reference evaluation of the whole graph, with which the tests compare every incremental one.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use onepipe_base::{Instance, Timestamp};
use onepipe_wire::Side;

use super::{Graph, View, opposite};
use crate::decisions::DecisionLog;
use crate::region::Region;

/// The views of the two ends of a link, this end's first.
type Views = (View, View);

/// The whole graph.
pub(crate) struct Reference<'a> {
    graph: &'a Graph,
    arcs: BTreeMap<Instance, BTreeMap<(Instance, Side), Views>>,
    reached: BTreeSet<Instance>,
}

impl<'a> Reference<'a> {
    pub(crate) fn new(graph: &'a Graph, is_dead: impl Fn(Instance) -> bool) -> Self {
        let mut arcs: BTreeMap<Instance, BTreeMap<(Instance, Side), Views>> =
            graph.iter().map(|(instance, _)| (instance, BTreeMap::new())).collect();
        for (instance, node) in graph.iter() {
            for edge in &node.edges {
                if !arcs.contains_key(&edge.instance) {
                    continue;
                }
                let view = if edge.is_up { View::Up } else { View::Down };
                let unknown = (View::Unknown, View::Unknown);
                let own = arcs.get_mut(&instance).expect("every instance is a key");
                own.entry((edge.instance, edge.side)).or_insert(unknown).0 = view;
                let other = arcs.get_mut(&edge.instance).expect("seen above");
                other.entry((instance, opposite(edge.side))).or_insert(unknown).1 = view;
            }
        }
        let mut reference = Self { graph, arcs, reached: BTreeSet::new() };
        reference.reached = reference.reach(is_dead);
        reference
    }

    /// Returns the instances with a valley-free path of up links to the controller that avoids dead
    /// instances.
    fn reach(&self, is_dead: impl Fn(Instance) -> bool) -> BTreeSet<Instance> {
        let mut seen: BTreeSet<(Instance, bool)> = BTreeSet::new();
        let starts = self.graph.attachments().filter(|instance| !is_dead(*instance));
        let mut queue: VecDeque<(Instance, bool)> =
            starts.map(|instance| (instance, is_switch(instance))).collect();
        while let Some((instance, is_uphill)) = queue.pop_front() {
            if !seen.insert((instance, is_uphill)) || !is_switch(instance) {
                continue;
            }
            for ((to, side), (own, other)) in &self.arcs[&instance] {
                let is_up = *own != View::Down && *other != View::Down && !is_dead(*to);
                match side {
                    Side::Upper if is_up && is_uphill && is_switch(*to) => {
                        queue.push_back((*to, true))
                    }
                    Side::Lower if is_up => queue.push_back((*to, false)),
                    _ => {}
                }
            }
        }
        seen.into_iter().map(|(instance, _)| instance).collect()
    }

    /// Compares the adjacency with the reference.
    pub(crate) fn check_adjacency(&self) {
        let adjacency = self.graph.adjacency();
        for (instance, arcs) in &self.arcs {
            let index = adjacency.index(*instance).expect("every node of the graph has an index");
            let found: BTreeMap<(Instance, Side), Views> = (adjacency.arcs(index))
                .map(|arc| ((adjacency.instance(arc.to), arc.side), (arc.own, arc.other)))
                .collect();
            assert_eq!(&found, arcs, "links of {instance:?}");
            assert_eq!(
                adjacency.is_correct(index),
                self.reached.contains(instance),
                "path of {instance:?}"
            );
        }
        let processes = self.reached.iter().filter(|instance| !is_switch(**instance)).count();
        assert_eq!(
            (adjacency.correct_count(), adjacency.correct_process_count()),
            (self.reached.len(), processes)
        );
        let uplink_count = |arcs: &BTreeMap<(Instance, Side), Views>| {
            let up = |((_, side), (_, other)): &(&(Instance, Side), &Views)| {
                *side == Side::Upper && *other == View::Up
            };
            arcs.iter().filter(up).count()
        };
        let is_duplicate =
            |instance: &Instance| !is_switch(*instance) && uplink_count(&self.arcs[instance]) > 1;
        assert_eq!(
            adjacency.duplicates(),
            self.arcs.keys().filter(|instance| is_duplicate(instance)).count()
        );
        let frozen = self.graph.iter().filter(|(_, node)| !node.frozen.is_empty());
        let owners: Vec<Instance> = frozen.map(|(instance, _)| instance).collect();
        assert_eq!(self.graph.owners().map(|(instance, _)| instance).collect::<Vec<_>>(), owners);
        let resumable =
            owners.iter().filter(|owner| self.reached.contains(owner)).flat_map(|owner| {
                let frozen =
                    self.graph.get(*owner).expect("owners are nodes of the graph").frozen.iter();
                let resumable = frozen.filter(|entry| entry.is_resolved && !entry.is_notified);
                resumable.map(|entry| (*owner, entry.number))
            });
        let found = self.graph.resumable().map(|(owner, entry)| (owner, entry.number));
        assert_eq!(found.collect::<Vec<_>>(), resumable.collect::<Vec<_>>());
    }

    /// Compares the newly joined instances; `before` had joined already.
    pub(crate) fn check_joined(&self, before: &BTreeSet<Instance>, joined: &[Instance]) {
        let new: Vec<Instance> = self.reached.difference(before).copied().collect();
        assert_eq!(joined, new);
    }

    pub(crate) fn suspected(&self, decisions: &DecisionLog) -> BTreeSet<Instance> {
        if self.reached.is_empty() {
            return BTreeSet::new();
        }
        let mut with_registers = BTreeSet::new();
        for (_, node) in self.graph.owners().filter(|(owner, _)| self.reached.contains(owner)) {
            let frozen = node.frozen.iter();
            with_registers.extend(frozen.filter_map(|entry| entry.instance));
        }
        let is_suspect = |(instance, node): &(Instance, &super::Node)| {
            let is_known = node.has_joined || with_registers.contains(instance);
            let is_over = decisions.has_failed(*instance) || decisions.is_open(*instance);
            !self.reached.contains(instance) && is_known && !is_over
        };
        self.graph.iter().filter(is_suspect).map(|(instance, _)| instance).collect()
    }

    /// Compares the regions that contain any of `suspected`.
    pub(crate) fn check_regions(&self, suspected: &BTreeSet<Instance>, found: &[Region]) {
        let adjacency = self.graph.adjacency();
        let mut expected = Vec::new();
        let mut left: BTreeSet<Instance> =
            self.arcs.keys().filter(|instance| !self.reached.contains(instance)).copied().collect();
        while let Some(start) = left.pop_first() {
            let mut members = BTreeSet::from([start]);
            let mut work = alloc::vec![start];
            while let Some(instance) = work.pop() {
                for (to, _) in self.arcs[&instance].keys() {
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
        let instance = |index: &usize| adjacency.instance(*index);
        let found = found.iter().map(|region| {
            let mut registers: Vec<(Instance, Side, Timestamp)> = region
                .registers
                .iter()
                .map(|(index, side, commit)| (instance(index), *side, *commit))
                .collect();
            registers.sort_unstable();
            let greatest_registers = region.greatest_registers(self.graph);
            let greatest_registers =
                greatest_registers.iter().map(|(index, value)| (instance(index), *value)).collect();
            (
                region.members.iter().map(instance).collect(),
                registers,
                region.up_members.iter().map(instance).collect(),
                greatest_registers,
            )
        });
        let mut found: Vec<Border> = found.collect();
        found.sort_unstable();
        assert_eq!(found, expected);
    }

    fn region(&self, members: BTreeSet<Instance>) -> Border {
        let mut up_members = BTreeSet::new();
        for instance in &members {
            for ((to, _), (own, other)) in &self.arcs[instance] {
                let is_listed_by_member_only = *other == View::Unknown && *own == View::Up;
                if self.reached.contains(to) && (*other == View::Up || is_listed_by_member_only) {
                    up_members.insert(*instance);
                }
            }
        }
        let mut registers = Vec::new();
        for (_, node) in self.graph.iter().filter(|(instance, _)| self.reached.contains(instance)) {
            for entry in &node.frozen {
                if let Some(instance) = entry.instance.filter(|instance| members.contains(instance))
                {
                    registers.push((instance, entry.side, entry.commit));
                }
            }
        }
        registers.sort_unstable();
        let greatest_registers = self.greatest_registers(&members, &registers);
        (members, registers, up_members, greatest_registers)
    }

    /// Returns the greatest register that the promises of each member reach, computed separately
    /// for each member.
    fn greatest_registers(
        &self,
        members: &BTreeSet<Instance>,
        registers: &[(Instance, Side, Timestamp)],
    ) -> BTreeMap<Instance, Timestamp> {
        let greatest = |start: &Instance| {
            let (mut seen, mut best) = (BTreeSet::new(), None);
            // A process promises upwards; a switch aggregates inputs from below, and inputs from
            // above.
            let both = [(*start, false), (*start, true)];
            let mut work = Vec::from_iter(both);
            while let Some((instance, descends)) = work.pop() {
                if !seen.insert((instance, descends)) {
                    continue;
                }
                let own_registers = registers.iter().filter(|(member, _, _)| *member == instance);
                let own_registers =
                    own_registers.filter(|(_, side, _)| (*side == Side::Upper) == descends);
                best = own_registers.map(|(_, _, commit)| *commit).max().max(best);
                if !descends && is_switch(instance) {
                    work.push((instance, true));
                }
                // Receivers of its promises within the region.
                for (to, side) in self.arcs[&instance].keys().filter(|(to, _)| members.contains(to))
                {
                    let is_aggregated =
                        is_switch(*to) && self.is_aggregated(*to, instance, opposite(*side));
                    match side {
                        Side::Upper if !descends && is_aggregated => work.push((*to, false)),
                        Side::Lower if is_switch(instance) && descends && is_aggregated => {
                            work.push((*to, true));
                        }
                        _ => {}
                    }
                }
            }
            Some((*start, best?))
        };
        members.iter().filter_map(greatest).collect()
    }

    /// Whether the promises of `from` are still aggregated at `receiver`.
    fn is_aggregated(&self, receiver: Instance, from: Instance, side: Side) -> bool {
        match self.arcs[&receiver][&(from, side)] {
            (View::Up, _) | (View::Unknown, View::Up) => true,
            (View::Unknown, _) => false,
            (View::Down, _) => {
                let frozen = self.graph.get(receiver).expect("a member").frozen.iter();
                let mut held = frozen.filter(|entry| !entry.is_resolved);
                held.any(|entry| entry.instance == Some(from))
            }
        }
    }
}

/// Returns failed instances that a correct node lists as up.
pub(crate) fn stale_peers(graph: &Graph, decisions: &DecisionLog) -> BTreeSet<Instance> {
    let mut stale_peers = BTreeSet::new();
    for (_, node) in graph.iter().filter(|(instance, _)| graph.is_correct(*instance)) {
        let up = node.edges.iter().filter(|edge| edge.is_up).map(|edge| edge.instance);
        stale_peers.extend(up.filter(|instance| decisions.has_failed(*instance)));
        stale_peers.extend(&node.stale_peers);
    }
    stale_peers
}

/// Members, registers, members listed as up, and the greatest values.
type Border = (
    BTreeSet<Instance>,
    Vec<(Instance, Side, Timestamp)>,
    BTreeSet<Instance>,
    BTreeMap<Instance, Timestamp>,
);

fn is_switch(instance: Instance) -> bool {
    super::process_of(instance).is_none()
}
