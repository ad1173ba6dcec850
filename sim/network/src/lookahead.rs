//! Lookahead windows: how far each node may run ahead of the others.
//!
//! An event at a node affects a neighbour no earlier than one link delay later. So a node may
//! handle all its events of that time before any other node runs, which keeps its state in the
//! cache: one window is worth hundreds of events. This is conservative parallel discrete-event
//! simulation on one thread.
//!
//! Data-centre topologies are bipartite: the nodes have two colours, and every neighbour of a node
//! has the other colour. The two colours run alternately. With equal link delays, the nodes of one
//! colour start one delay behind their neighbours and stop one delay ahead of them, so each window
//! spans two delays.

use onepipe_sim_engine::Instant;

use crate::link::Link;

/// Progress of each node.
#[derive(Debug)]
pub(crate) struct Lookahead {
    /// All events of the node before this instant are handled; none of its frames leaves earlier.
    horizons: Vec<Instant>,
    /// The nodes that send to the node, each with the delay of its link in ps.
    upstream: Vec<Vec<(u32, u64)>>,
    /// The nodes of one colour, followed by those of the other.
    order: Vec<u32>,
}

impl Lookahead {
    /// Creates the windows of `nodes` nodes at the start of virtual time. Returns `None` if any
    /// link has no delay: then no node may run ahead.
    pub fn new(nodes: usize, links: &[Link]) -> Option<Self> {
        let mut upstream = vec![Vec::new(); nodes];
        for link in links {
            let ps = link.propagation_ps();
            if ps == 0 {
                return None;
            }
            upstream[link.to.index()].push((link.from.0, ps));
        }
        let order = bipartite_order(&upstream);
        Some(Self { horizons: vec![Instant::START; nodes], upstream, order })
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns the node at a position of a round and the end of its window, which is exclusive. No
    /// event is due before `first` at any node; no window extends beyond `end`.
    pub fn window(&mut self, position: usize, first: Instant, end: Instant) -> (usize, Instant) {
        let node = self.order[position] as usize;
        // The earliest instant at which a further frame of the neighbour `from` can arrive.
        let arrival = |&(from, ps): &(u32, u64)| self.horizons[from as usize].max(first).after(ps);
        let window_end = self.upstream[node].iter().map(arrival).min().unwrap_or(end).min(end);
        self.horizons[node] = self.horizons[node].max(window_end);
        (node, window_end)
    }
}

/// Returns all nodes grouped by colour, so that neighbours have different colours where possible.
fn bipartite_order(upstream: &[Vec<(u32, u64)>]) -> Vec<u32> {
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
    nodes_of(false).chain(nodes_of(true)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LinkConfig, NodeId};
    use onepipe_base::Port;

    fn links(pairs: &[(u32, u32)], propagation_ns: u64) -> Vec<Link> {
        let config = LinkConfig { propagation_ns, ..LinkConfig::default() };
        let link = |from, to| Link::new(config, NodeId(from), NodeId(to), Port(0));
        pairs.iter().flat_map(|&(one, other)| [link(one, other), link(other, one)]).collect()
    }

    /// Runs three rounds: returns each node with the end of its window in ns.
    fn rounds(lookahead: &mut Lookahead, first_ns: u64, end_ns: u64) -> Vec<(usize, u64)> {
        let at = |ns: u64| Instant::from_ps(ns * 1_000);
        let count = lookahead.len();
        let index = |index| lookahead.window(index % count, at(first_ns), at(end_ns));
        (0..3 * count).map(index).map(|(node, until)| (node, until.as_ns())).collect()
    }

    #[test]
    fn windows_alternate_by_link_delay() {
        // A path of four: nodes 0 and 2 have one colour, 1 and 3 the other.
        let mut lookahead = Lookahead::new(4, &links(&[(0, 1), (1, 2), (2, 3)], 500))
            .expect("every link has a delay");
        let seen = rounds(&mut lookahead, 0, 1_000_000);
        let expected = [500, 500, 1_000, 1_000, 1_500, 1_500, 2_000, 2_000, 2_500, 2_500, 3_000];
        let order = [0, 2, 1, 3].into_iter().cycle();
        let expected: Vec<_> = order.zip(expected.into_iter().chain([3_000])).collect();
        assert_eq!(seen, expected);
    }

    #[test]
    fn windows_start_at_first_event_and_stop_before_end() {
        let mut lookahead =
            Lookahead::new(2, &links(&[(0, 1)], 500)).expect("every link has a delay");
        assert_eq!(
            rounds(&mut lookahead, 10_000, 10_700)[..3],
            [(0, 10_500), (1, 10_700), (0, 10_700)]
        );
    }

    #[test]
    fn zero_delay_link_disables_lookahead() {
        assert!(Lookahead::new(2, &links(&[(0, 1)], 0)).is_none());
    }
}
