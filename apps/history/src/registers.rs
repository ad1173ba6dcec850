//! Real time in histories of registers.
//!
//! `adya` derives the order of a register's values from real time by walking from each transaction
//! to the next ones on the same key, which takes minutes for 20,000 transactions. This module
//! derives the same order from the transactions of each key alone, and leaves the graph and the
//! search for cycles to `adya`.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::time::{Duration, Instant};

use adya::graph::{
    CycleSpec, GraphBuilder, REALTIME, RW, RwMode, Search, Step, WR, WW, any_cycle, classify,
    find_cycle,
};

use crate::event::{Found, Key, Operation};
use crate::history::{History, Outcome, Transaction};
use crate::values::Writers;

/// Time that the search for cycles of all kinds may take in one strongly connected component.
const SEARCH_MAX: Duration = Duration::from_secs(1);

/// A version of a register: its value, or `None` before the first write.
type Version = Option<i64>;

/// A cycle: its name in Elle, the indices of its transactions, and its proof.
pub(crate) struct Cycle {
    pub(crate) name: String,
    pub(crate) transactions: Vec<usize>,
    pub(crate) explanation: String,
}

/// A committed transaction on one register.
struct Access {
    index: usize,
    /// The version that it read before it wrote; the first that it wrote if it read none.
    first: Version,
    /// The version that it left behind.
    last: Version,
    /// Whether it read the register before it wrote.
    is_reader: bool,
    is_writer: bool,
}

/// Searches for cycles in the graph with real time.
pub(crate) fn real_time_cycles(history: &History, writers: &Writers<'_>) -> Vec<Cycle> {
    let observed = writers.observed();
    let is_committed = |index: usize| match history.transactions()[index].outcome {
        Outcome::Ok => true,
        Outcome::Info => observed.contains(&index),
        Outcome::Fail => false,
    };
    let indices: Vec<usize> =
        (0..history.transactions().len()).filter(|index| is_committed(*index)).collect();
    let mut of_key: BTreeMap<&Key, Vec<Access>> = BTreeMap::new();
    let mut graph = Graph { history, builder: GraphBuilder::default(), reasons: HashMap::new() };
    for index in &indices {
        for (key, access) in accesses(&history.transactions()[*index], *index) {
            of_key.entry(key).or_default().push(access);
        }
    }
    for (key, accesses) in &of_key {
        graph.add_register(key, accesses);
    }
    let spans: Vec<Span> = indices.iter().map(|index| graph.span(*index, true)).collect();
    for (from, to) in precedence(&spans) {
        graph.builder.link(indices[from] as u32, indices[to] as u32, REALTIME);
    }
    graph.cycles()
}

fn accesses(transaction: &Transaction, index: usize) -> BTreeMap<&Key, Access> {
    let mut of_key: BTreeMap<&Key, Access> = BTreeMap::new();
    for operation in &transaction.operations {
        let (version, is_writer) = match operation {
            Operation::Write { value, .. } => (Some(*value), true),
            // The results of a transaction of unknown outcome are unknown.
            Operation::Read { .. } if transaction.outcome != Outcome::Ok => continue,
            Operation::Read { found: Found::Value(value), .. } => (Some(*value), false),
            Operation::Read { found: Found::Nil, .. } => (None, false),
            Operation::Read { .. } | Operation::Append { .. } => continue,
        };
        let access = of_key.entry(operation.key()).or_insert(Access {
            index,
            first: version,
            last: version,
            is_reader: !is_writer,
            is_writer,
        });
        if is_writer {
            access.last = version;
            access.is_writer = true;
        }
    }
    of_key
}

/// When a transaction ran. Only a target has predecessors.
struct Span {
    begins: usize,
    ends: usize,
    is_target: bool,
}

/// Returns pairs of spans of which the first ended before the second, a target, began. A pair is
/// left out if it follows from two others with a target between them (transitive reduction).
fn precedence(spans: &[Span]) -> Vec<(usize, usize)> {
    let mut events: Vec<(usize, bool, usize)> = Vec::new();
    for (index, span) in spans.iter().enumerate() {
        events.push((span.begins, false, index));
        if span.ends != usize::MAX {
            events.push((span.ends, true, index));
        }
    }
    events.sort_unstable();
    let mut pairs = Vec::new();
    let mut frontier: Vec<usize> = Vec::new();
    let mut predecessors: HashMap<usize, Vec<usize>> = HashMap::new();
    for (_, is_end, index) in events {
        if is_end {
            if let Some(implied) = predecessors.remove(&index) {
                frontier.retain(|one| !implied.contains(one));
            }
            frontier.push(index);
        } else if spans[index].is_target {
            pairs.extend(frontier.iter().map(|from| (*from, index)));
            predecessors.insert(index, frontier.clone());
        }
    }
    pairs
}

struct Graph<'h> {
    history: &'h History,
    builder: GraphBuilder,
    /// For each edge of data: the register and the two versions.
    reasons: HashMap<(usize, usize, u8), (&'h Key, Version, Version)>,
}

impl<'h> Graph<'h> {
    fn span(&self, index: usize, is_target: bool) -> Span {
        let transaction = &self.history.transactions()[index];
        Span { begins: transaction.invoked, ends: transaction.ends(), is_target }
    }

    fn add_register(&mut self, key: &'h Key, accesses: &[Access]) {
        let writers: HashMap<Version, usize> =
            accesses.iter().filter(|one| one.is_writer).map(|one| (one.last, one.index)).collect();
        let mut readers: HashMap<Version, Vec<usize>> = HashMap::new();
        for access in accesses.iter().filter(|access| access.is_reader) {
            readers.entry(access.first).or_default().push(access.index);
            if let Some(writer) = writers.get(&access.first) {
                self.link(*writer, access.index, WR, (key, access.first, access.first));
            }
        }
        for (before, after) in version_order(accesses, |index, target| self.span(index, target)) {
            let Some(next) = writers.get(&after) else { continue };
            if let Some(writer) = writers.get(&before) {
                self.link(*writer, *next, WW, (key, before, after));
            }
            for reader in readers.get(&before).into_iter().flatten() {
                self.link(*reader, *next, RW, (key, before, after));
            }
        }
    }

    fn link(&mut self, from: usize, to: usize, rel: u8, reason: (&'h Key, Version, Version)) {
        if from != to {
            self.builder.link(from as u32, to as u32, rel);
            self.reasons.entry((from, to, rel)).or_insert(reason);
        }
    }

    fn cycles(mut self) -> Vec<Cycle> {
        let count = self.history.transactions().len();
        let graph = std::mem::take(&mut self.builder).finish(count);
        let nodes: Vec<u32> = (0..count as u32).collect();
        let mut cycles = Vec::new();
        for component in graph.sccs(&nodes, |_| true) {
            let deadline = Instant::now() + SEARCH_MAX;
            let found = specs().into_iter().find_map(|spec| {
                match find_cycle(&graph, &component, &spec, deadline) {
                    Search::Found(steps) => Some(steps),
                    Search::NotFound => None,
                    Search::TimedOut => Some(any_cycle(&graph, &component)),
                }
            });
            let steps = found.unwrap_or_else(|| any_cycle(&graph, &component));
            cycles.push(self.explain(&steps));
        }
        cycles
    }

    fn explain(&self, steps: &[Step]) -> Cycle {
        let transactions: Vec<usize> = steps.iter().map(|step| step.from as usize).collect();
        let mut explanation = "a cycle of".to_string();
        for index in &transactions {
            explanation += &format!("\n  {}", self.history.transactions()[*index].describe());
        }
        for (at, step) in steps.iter().enumerate() {
            let (from, to) = (transactions[at], transactions[(at + 1) % transactions.len()]);
            let [a, b] = [from, to].map(|index| &self.history.transactions()[index]);
            let names = format!("T{} < T{}", a.number(), b.number());
            let show = |version: Version| version.map_or("nil".to_string(), |v| v.to_string());
            let reason = match (step.rel, self.reasons.get(&(from, to, step.rel))) {
                (WW, Some((key, before, after))) => {
                    format!("{} of key {key} precedes {}", show(*before), show(*after))
                }
                (WR, Some((key, value, _))) => {
                    format!("the latter read the former's {} of key {key}", show(*value))
                }
                (RW, Some((key, before, after))) => {
                    let (before, after) = (show(*before), show(*after));
                    format!("the former read {before} of key {key}, which precedes {after}")
                }
                _ => format!("the former completed before event {}, when it began", b.invoked),
            };
            write!(explanation, "\n  {names}, because {reason}").expect("a string has no errors");
        }
        Cycle { name: classify(steps), transactions, explanation }
    }
}

/// Returns the kinds of cycles, the worst first.
fn specs() -> Vec<CycleSpec> {
    let base = [
        ("G0", WW, RwMode::None, false),
        ("G1c", WW | WR, RwMode::None, true),
        ("G-single", WW | WR, RwMode::Single, false),
        ("G-nonadjacent", WW | WR, RwMode::Nonadjacent, false),
        ("G2", WW | WR, RwMode::Adjacent, false),
    ];
    let with = |extra| {
        base.map(|(name, allowed, rw, need_wr)| CycleSpec {
            name,
            allowed: allowed | extra,
            rw,
            need_wr,
            need: extra,
        })
    };
    with(0).into_iter().chain(with(REALTIME)).collect()
}

/// Returns pairs of versions of one register of which the first is certainly older.
fn version_order(
    accesses: &[Access],
    span: impl Fn(usize, bool) -> Span,
) -> Vec<(Version, Version)> {
    let mut order = Vec::new();
    for access in accesses.iter().filter(|access| access.is_writer) {
        order.push((None, access.last));
        if access.is_reader {
            order.push((access.first, access.last));
        }
    }
    let in_time = |is_target: &dyn Fn(&Access) -> bool| -> Vec<(Version, Version)> {
        let spans: Vec<Span> =
            accesses.iter().map(|access| span(access.index, is_target(access))).collect();
        let pairs = precedence(&spans).into_iter();
        pairs
            .map(|(from, to)| {
                let to = &accesses[to];
                (accesses[from].last, if to.is_reader { to.first } else { to.last })
            })
            .filter(|(before, after)| before != after)
            .collect()
    };
    order.extend(in_time(&|access| access.is_writer && !access.is_reader));
    // A stale read contradicts the order of the writes: then reads say nothing about the order.
    let mut complete = order.clone();
    complete.extend(in_time(&|_| true));
    if is_acyclic(&complete) { complete } else { order }
}

fn is_acyclic(order: &[(Version, Version)]) -> bool {
    let mut numbers: HashMap<Version, u32> = HashMap::new();
    let mut builder = GraphBuilder::default();
    for (before, after) in order {
        let [before, after] = [before, after].map(|version| {
            let next = numbers.len() as u32;
            *numbers.entry(*version).or_insert(next)
        });
        builder.link(before, after, WW);
    }
    let nodes: Vec<u32> = (0..numbers.len() as u32).collect();
    builder.finish(nodes.len()).sccs(&nodes, |_| true).is_empty()
}
