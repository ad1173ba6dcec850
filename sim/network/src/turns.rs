//! Whose turn it is, and how far each node may run on alone.
//!
//! What happens at a node reaches a neighbour no earlier than the link between them is long. So a
//! node may live through everything up to then before any other one moves, and its memory stays in
//! the cache: one turn is worth hundreds of events. The trees of data centres have two colours: who
//! is of the one has neighbours only of the other. So the two take turns, and each overtakes the
//! other by a link's length, in leaps of two.

use onepipe_sim_engine::Instant;

use crate::link::Link;

/// How far each node has come.
#[derive(Debug)]
pub(crate) struct Turns {
    /// Everything before has happened at the node; nothing leaves it earlier.
    reached: Vec<Instant>,
    /// Who sends to the node, and how long that takes at least, in ps.
    feeders: Vec<Vec<(u32, u64)>>,
    /// The nodes of one colour, then those of the other.
    order: Vec<u32>,
}

impl Turns {
    /// The turns of so many nodes, none of which has begun. `None` when something takes no time
    /// from one to another: then nobody may run ahead.
    pub fn new(nodes: usize, links: &[Link]) -> Option<Self> {
        let mut feeders = vec![Vec::new(); nodes];
        for link in links {
            let ps = link.propagation_ps();
            if ps == 0 {
                return None;
            }
            feeders[link.to.index()].push((link.from.0, ps));
        }
        let order = by_colour(&feeders);
        Some(Self { reached: vec![Instant::START; nodes], feeders, order })
    }

    /// How many nodes take turns.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// The node whose turn is number `turn` of a round, and how far it may come: short of the
    /// answer. Nothing happens before `first` anywhere, and nobody may come to `end`.
    pub fn next(&mut self, turn: usize, first: Instant, end: Instant) -> (usize, Instant) {
        let node = self.order[turn] as usize;
        let reached = |&(from, ps): &(u32, u64)| self.reached[from as usize].max(first).after(ps);
        let short_of = self.feeders[node].iter().map(reached).min().unwrap_or(end).min(end);
        self.reached[node] = self.reached[node].max(short_of);
        (node, short_of)
    }
}

/// All nodes, neighbours in different halves where that can be.
fn by_colour(feeders: &[Vec<(u32, u64)>]) -> Vec<u32> {
    let mut colours = vec![None; feeders.len()];
    let mut waiting = Vec::new();
    for start in 0..feeders.len() {
        if colours[start].is_none() {
            colours[start] = Some(false);
            waiting.push(start);
        }
        while let Some(node) = waiting.pop() {
            for &(from, _) in &feeders[node] {
                if colours[from as usize].is_none() {
                    colours[from as usize] = colours[node].map(|colour: bool| !colour);
                    waiting.push(from as usize);
                }
            }
        }
    }
    let of = |colour| {
        let colours = &colours;
        (0u32..).zip(colours).filter(move |(_, held)| **held == Some(colour)).map(|(node, _)| node)
    };
    of(false).chain(of(true)).collect()
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

    /// Three rounds: who comes how far, in ns.
    fn rounds(turns: &mut Turns, first_ns: u64, end_ns: u64) -> Vec<(usize, u64)> {
        let at = |ns: u64| Instant::from_ps(ns * 1_000);
        let count = turns.len();
        let turn = |turn| turns.next(turn % count, at(first_ns), at(end_ns));
        (0..3 * count).map(turn).map(|(node, until)| (node, until.as_ns())).collect()
    }

    #[test]
    fn neighbours_overtake_each_other_by_a_link_and_nobody_by_more() {
        // A path of four: 0 and 2 are of one colour, 1 and 3 of the other.
        let mut turns = Turns::new(4, &links(&[(0, 1), (1, 2), (2, 3)], 500)).expect("links last");
        let seen = rounds(&mut turns, 0, 1_000_000);
        let expected = [500, 500, 1_000, 1_000, 1_500, 1_500, 2_000, 2_000, 2_500, 2_500, 3_000];
        let order = [0, 2, 1, 3].into_iter().cycle();
        let expected: Vec<_> = order.zip(expected.into_iter().chain([3_000])).collect();
        assert_eq!(seen, expected);
    }

    #[test]
    fn nobody_comes_to_the_end_and_all_begin_where_something_happens() {
        let mut turns = Turns::new(2, &links(&[(0, 1)], 500)).expect("links last");
        assert_eq!(
            rounds(&mut turns, 10_000, 10_700)[..3],
            [(0, 10_500), (1, 10_700), (0, 10_700)]
        );
    }

    #[test]
    fn where_a_link_takes_no_time_there_are_no_turns() {
        assert!(Turns::new(2, &links(&[(0, 1)], 0)).is_none());
    }
}
