//! Lookahead windows: how far each node may run ahead of the others.
//!
//! An event at a node affects a neighbour no earlier than one link delay later. So a node may
//! handle all its events of that time before any other node runs, which keeps its state in the
//! cache: one window is worth hundreds of events. This is conservative parallel discrete-event
//! simulation.
//!
//! Data-centre topologies are bipartite: the nodes have two colours, and every neighbour of a node
//! has the other colour. The two colours run alternately, and the nodes of one colour may run on
//! several threads (`parallel`). With equal link delays, the nodes of one
//! colour start one delay behind their neighbours and stop one delay ahead of them, so each window
//! spans two delays.

use std::sync::atomic::{AtomicU64, Ordering};

use onepipe_sim_engine::{Instant, Queue, Span};

use crate::link::Link;
use crate::part::{Event, LinkEnds};

/// Progress of each node.
#[derive(Debug)]
pub(crate) struct Lookahead {
    /// All events of the node before this instant (in ps) are handled; none of its frames leaves
    /// earlier. Only the thread that runs the node changes it, and only neighbours read it.
    horizons: Vec<AtomicU64>,
    /// The nodes that send to the node, each with the delay of its link in ps.
    upstream: Vec<Vec<(u32, u64)>>,
    /// The nodes of one colour, followed by those of the other.
    order: Vec<u32>,
    /// Number of nodes of the first colour. `None`: nodes of one colour are neighbours.
    first_colour: Option<usize>,
    /// The nodes to which each node sends, ascending.
    neighbours: Vec<Vec<u32>>,
    /// The fault schedule.
    pub faults: Queue<Event>,
}

impl Lookahead {
    /// Creates the windows of `nodes` nodes at the start of virtual time, and sets the neighbour of
    /// each link. Returns `None` if any link has no delay: then no node may run ahead.
    pub fn new(nodes: usize, ends: &mut [LinkEnds], links: &[Link]) -> Option<Self> {
        let (mut upstream, mut neighbours) = (vec![Vec::new(); nodes], vec![Vec::new(); nodes]);
        for (link, ends) in links.iter().zip(&*ends) {
            let ps = link.propagation_ps();
            if ps == 0 {
                return None;
            }
            upstream[ends.to.index()].push((ends.from.0, ps));
            neighbours[ends.from.index()].push(ends.to.0);
        }
        for all in &mut neighbours {
            all.sort_unstable();
            all.dedup();
        }
        for link in ends {
            let position = neighbours[link.from.index()].binary_search(&link.to.0);
            let position = position.expect("every receiver is a neighbour");
            link.neighbour = u16::try_from(position).expect("a node has fewer than 2^16 ports");
        }
        let (order, first_colour) = bipartite_order(&upstream);
        let horizons = (0..nodes).map(|_| AtomicU64::new(0)).collect();
        let faults = Queue::new(Span::NODE);
        Some(Self { horizons, upstream, order, first_colour, neighbours, faults })
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns the nodes in the order in which they run.
    pub fn order(&self) -> &[u32] {
        &self.order
    }

    /// Returns the number of nodes of the first colour, which run first, if no node of either
    /// colour sends to one of its own colour.
    pub fn first_colour(&self) -> Option<usize> {
        self.first_colour
    }

    /// Returns the nodes to which a node sends, ascending.
    pub fn neighbours(&self, node: usize) -> &[u32] {
        &self.neighbours[node]
    }

    /// Returns the end of the next window of a node, which is exclusive. No event is due before
    /// `first` at any node; no window extends beyond `end`.
    pub fn window(&self, node: usize, first: Instant, end: Instant) -> Instant {
        // The earliest instant at which a further frame of the neighbour `from` can arrive.
        let arrival = |&(from, ps): &(u32, u64)| self.horizon(from as usize).max(first).after(ps);
        let window_end = self.upstream[node].iter().map(arrival).min().unwrap_or(end).min(end);
        let horizon = self.horizon(node).max(window_end);
        self.horizons[node].store(horizon.as_ps(), Ordering::Relaxed);
        window_end
    }

    fn horizon(&self, node: usize) -> Instant {
        Instant::from_ps(self.horizons[node].load(Ordering::Relaxed))
    }
}

/// Returns all nodes grouped by colour, so that neighbours have different colours where possible,
/// and the number of nodes of the first colour if all neighbours have.
fn bipartite_order(upstream: &[Vec<(u32, u64)>]) -> (Vec<u32>, Option<usize>) {
    let mut colours = vec![None; upstream.len()];
    let mut unvisited = Vec::new();
    for start in 0..upstream.len() {
        if colours[start].is_none() {
            colours[start] = Some(false);
            unvisited.push(start);
        }
        while let Some(node) = unvisited.pop() {
            for &(from, _) in &upstream[node] {
                if colours[from as usize].is_none() {
                    colours[from as usize] = colours[node].map(|colour: bool| !colour);
                    unvisited.push(from as usize);
                }
            }
        }
    }
    let nodes_of = |colour| {
        let colours = &colours;
        (0u32..)
            .zip(colours)
            .filter(move |(_, assigned)| **assigned == Some(colour))
            .map(|(node, _)| node)
    };
    let is_bipartite = (upstream.iter().zip(&colours))
        .all(|(all, colour)| all.iter().all(|&(from, _)| colours[from as usize] != *colour));
    let order = nodes_of(false).chain(nodes_of(true)).collect();
    (order, is_bipartite.then(|| nodes_of(false).count()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LinkConfig, NodeId};
    use onepipe_base::Port;

    /// Creates the windows of nodes that are linked in pairs.
    fn lookahead(nodes: usize, pairs: &[(u32, u32)], propagation_ns: u64) -> Option<Lookahead> {
        let config = LinkConfig { propagation_ns, ..LinkConfig::default() };
        let (to_port, neighbour) = (Port(0), 0);
        let ends = |from, to| LinkEnds { from: NodeId(from), to: NodeId(to), to_port, neighbour };
        let mut ends: Vec<_> =
            pairs.iter().flat_map(|&(one, other)| [ends(one, other), ends(other, one)]).collect();
        let links: Vec<_> = ends.iter().map(|_| Link::new(config)).collect();
        Lookahead::new(nodes, &mut ends, &links)
    }

    /// Runs three rounds: returns each node with the end of its window in ns.
    fn rounds(lookahead: &Lookahead, first_ns: u64, end_ns: u64) -> Vec<(u32, u64)> {
        let at = |ns: u64| Instant::from_ps(ns * 1_000);
        let window = |node| lookahead.window(node as usize, at(first_ns), at(end_ns)).as_ns();
        let rounds = (0..3).flat_map(|_| lookahead.order());
        rounds.map(|&node| (node, window(node))).collect()
    }

    #[test]
    fn windows_alternate_by_link_delay() {
        // A path of four: nodes 0 and 2 have one colour, 1 and 3 the other.
        let lookahead =
            lookahead(4, &[(0, 1), (1, 2), (2, 3)], 500).expect("every link has a delay");
        let seen = rounds(&lookahead, 0, 1_000_000);
        let expected = [500, 500, 1_000, 1_000, 1_500, 1_500, 2_000, 2_000, 2_500, 2_500, 3_000];
        let order = [0, 2, 1, 3].into_iter().cycle();
        let expected: Vec<_> = order.zip(expected.into_iter().chain([3_000])).collect();
        assert_eq!(seen, expected);
        assert_eq!(lookahead.first_colour(), Some(2));
    }

    #[test]
    fn windows_start_at_first_event_and_stop_before_end() {
        let lookahead = lookahead(2, &[(0, 1)], 500).expect("every link has a delay");
        assert_eq!(
            rounds(&lookahead, 10_000, 10_700)[..3],
            [(0, 10_500), (1, 10_700), (0, 10_700)]
        );
    }

    #[test]
    fn a_triangle_has_no_two_colours() {
        let lookahead = lookahead(3, &[(0, 1), (1, 2), (2, 0)], 500);
        assert_eq!(lookahead.expect("every link has a delay").first_colour(), None);
    }

    #[test]
    fn zero_delay_link_disables_lookahead() {
        assert!(lookahead(2, &[(0, 1)], 0).is_none());
    }
}
