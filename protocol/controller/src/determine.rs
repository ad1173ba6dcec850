//! Who has failed, and when: the cut between the correct and the failed part of the graph
//! (design: failure.md, "Who has failed, and when?").

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use onepipe_base::{Life, Mono, Now, ProcessId, Timestamp, WIRE_MODULUS};
use onepipe_wire::Side;

use crate::graph::{Arc, Graph, Net, View, process_of};
use crate::ledger::Ledger;
use crate::{Config, FailedLife};

/// Lives that have no path to the controller, and since when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Suspects {
    since: BTreeMap<Life, Mono>,
    /// Lives that are to count as dead though they are heard.
    condemned: BTreeSet<Life>,
}

/// What a look at the graph has brought.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Who is connected, all of them.
    pub correct: Vec<Life>,
    /// Who is connected for the first time.
    pub joined: Vec<Life>,
    /// Who has failed, by a decision that is to be recorded, and since when they were suspected.
    pub failed: Vec<(FailedLife, Mono)>,
    /// Lives whose neighbours are to be told to freeze their links to them.
    pub freeze: Vec<Life>,
    /// Processes that are to be asked for a sign of life.
    pub ask: Vec<ProcessId>,
    /// Most of the fabric would have failed, but lives: it is this replica that is cut off.
    pub is_outvoted: bool,
    /// When to look again even if nothing changes.
    pub again_at: Option<Mono>,
    /// Lives that are listed as up by more than one switch.
    pub doubles: usize,
}

/// Lives without a path that hang together, and what is known of their border.
struct Region {
    members: Vec<usize>,
    /// Registers that correct nodes hold for a member: which, on which side of it, and its commit.
    registers: Vec<(usize, Side, Timestamp)>,
    /// Members that a correct node still hears.
    heard: BTreeSet<usize>,
}

impl Suspects {
    /// `life` counts as dead from now on.
    pub(crate) fn condemn(&mut self, life: Life) {
        self.condemned.insert(life);
    }

    pub(crate) fn contains(&self, life: Life) -> bool {
        self.since.contains_key(&life)
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.since.is_empty()
    }

    /// `life` is decided, or counts no more.
    pub(crate) fn forget(&mut self, life: Life) {
        self.since.remove(&life);
        self.condemned.remove(&life);
    }

    /// Another replica was active until now: its impatience was not this one's.
    pub(crate) fn clear(&mut self) {
        self.since.clear();
        self.condemned.clear();
    }

    /// Looks at the whole graph. `changed` is when the change that gives reason for it was heard
    /// of; `is_deaf` says which direct links of the controller itself are silent.
    pub(crate) fn look(
        &mut self,
        now: Now,
        changed: Mono,
        config: &Config,
        graph: &mut Graph,
        ledger: &Ledger,
        is_deaf: impl Fn(Life) -> bool,
    ) -> Findings {
        let net = Net::new(graph);
        let mut findings = Findings { doubles: count_doubles(&net), ..Findings::default() };
        let is_out = |(life, is_superseded): (&Life, bool)| {
            is_superseded
                || ledger.has_failed(*life)
                || self.condemned.contains(life)
                || is_deaf(*life)
        };
        let out: Vec<bool> = net.lives.iter().zip(graph.superseded()).map(is_out).collect();
        let reached = net.reach(|at| out[at]);
        for ((life, node), _) in graph.iter_mut().zip(&reached).filter(|(_, reached)| **reached) {
            findings.correct.push(life);
            if !core::mem::replace(&mut node.has_joined, true) {
                findings.joined.push(life);
            }
        }
        self.since.retain(|life, _| net.lives.binary_search(life).is_ok_and(|at| !reached[at]));
        if findings.correct.is_empty() {
            // Not even its own switch is known: this replica knows nothing about anybody.
            self.since.clear();
            return findings;
        }
        let suspected = self.suspect(changed, &net, &reached, graph, ledger);
        for region in regions(&net, &reached, graph) {
            if region.members.iter().any(|at| suspected[*at]) {
                self.judge(now, config, (&net, &reached), graph, ledger, &region, &mut findings);
            }
        }
        findings
    }

    /// Notes who is newly suspected. A life that never was connected is, too, if a correct node
    /// holds a register for it.
    fn suspect(
        &mut self,
        changed: Mono,
        net: &Net,
        reached: &[bool],
        graph: &Graph,
        ledger: &Ledger,
    ) -> Vec<bool> {
        let mut held = alloc::vec![false; net.lives.len()];
        for owner in graph.owners() {
            let is_correct = net.lives.binary_search(&owner).is_ok_and(|at| reached[at]);
            let Some(node) = graph.get(owner).filter(|_| is_correct) else { continue };
            for life in node.frozen.iter().filter_map(|entry| entry.life) {
                if let Ok(at) = net.lives.binary_search(&life) {
                    held[at] = true;
                }
            }
        }
        let is_suspect = |(at, life): (usize, &Life)| {
            let has_been = graph.get(*life).is_some_and(|node| node.has_joined) || held[at];
            !reached[at] && has_been && !ledger.has_failed(*life) && !ledger.is_open(*life)
        };
        let suspected: Vec<bool> = net.lives.iter().enumerate().map(is_suspect).collect();
        for (life, _) in net.lives.iter().zip(&suspected).filter(|(_, suspected)| **suspected) {
            self.since.entry(*life).or_insert(changed);
        }
        self.since.retain(|life, _| net.lives.binary_search(life).is_ok_and(|at| suspected[at]));
        suspected
    }

    /// Decides about one region, or says why not yet.
    #[expect(clippy::too_many_arguments, reason = "the arrays that a look shares")]
    fn judge(
        &self,
        now: Now,
        config: &Config,
        (net, reached): (&Net, &[bool]),
        graph: &Graph,
        ledger: &Ledger,
        region: &Region,
        findings: &mut Findings,
    ) {
        let suspects = || {
            region.members.iter().filter_map(|at| Some((*at, *self.since.get(&net.lives[*at])?)))
        };
        let mut wake = |at: Mono| findings.again_at = Mono::earlier(findings.again_at, Some(at));
        let Some(since) = suspects().map(|(_, since)| since).max() else { return };
        // Signs of life put it off: its links may be up again, and not all have said so yet.
        let heard = |(at, _): (usize, Mono)| {
            let life = net.lives[at];
            graph.get(life).and_then(|node| node.heard).filter(|_| !self.condemned.contains(&life))
        };
        let quiet = suspects().filter_map(heard).max().map_or(since, |heard| heard.max(since));
        let mut ready = quiet.after_ns(config.settle_ns).min(since.after_ns(config.grace_ns));
        let processes = || suspects().filter_map(|(at, _)| process_of(net.lives[at]));
        if processes().count()
            > findings.correct.iter().filter_map(|life| process_of(*life)).count()
        {
            // The greater part can hardly have failed. Is it the controller that is cut off?
            let is_alive = quiet > since;
            findings.is_outvoted |= is_alive;
            findings.ask.extend(processes());
            ready = if is_alive {
                quiet.after_ns(config.grace_ns)
            } else {
                since.after_ns(config.ping_timeout_ns)
            };
        }
        if now.mono < ready {
            return wake(ready);
        }
        let mut is_exact = true;
        // Of who has failed already nothing is needed any more.
        let is_needed = |at: &&usize| !ledger.has_failed(net.lives[**at]);
        if region.heard.iter().any(|at| is_needed(&at)) {
            let is_condemned = |at: &usize| self.condemned.contains(&net.lives[*at]);
            let freeze_at = since.after_ns(config.freeze_after_ns);
            let all = now.mono >= freeze_at;
            let heard = region.heard.iter().filter(is_needed);
            let freeze = heard.filter(|at| all || is_condemned(at));
            findings.freeze.extend(freeze.map(|at| net.lives[*at]));
            let give_up = since.after_ns(config.inexact_after_ns);
            if now.mono < give_up {
                return wake(if all { give_up } else { freeze_at });
            }
            is_exact = false;
        }
        let values = values(net, reached, graph, region);
        for (at, since) in suspects() {
            let life = net.lives[at];
            // Of two lives of one process the former is decided first, or with the latter.
            let is_former = |other: &(usize, Mono)| {
                let other = net.lives[other.0];
                other.address == life.address && other.incarnation < life.incarnation
            };
            let waits =
                self.since.keys().any(|other| {
                    other.address == life.address && other.incarnation < life.incarnation
                }) && !suspects().any(|other| is_former(&other));
            if waits || ledger.has_failed(life) {
                continue;
            }
            // No correct node has ever heard of it: nobody has anything of it to deliver.
            let nothing = || now.sync.saturating_sub_ns(WIRE_MODULUS / 4);
            let at = values[at].unwrap_or_else(nothing);
            #[cfg(feature = "bug-failure-too-late")]
            let at = at.wrapping_add_ns(1_000);
            #[cfg(feature = "bug-failure-too-early")]
            let at = at.saturating_sub_ns(1_000);
            findings.failed.push((FailedLife { life, at, is_exact }, since));
        }
    }
}

/// Processes that more than one switch has at a lower port.
fn count_doubles(net: &Net) -> usize {
    let is_double = |at: &usize| {
        let places = net.arcs(*at).iter();
        let places = places.filter(|arc| arc.side == Side::Upper && arc.other == View::Up);
        !net.is_switch(*at) && places.count() > 1
    };
    (0..net.lives.len()).filter(is_double).count()
}

/// The parts into which the unreached lives fall, and their borders.
fn regions(net: &Net, reached: &[bool], graph: &Graph) -> Vec<Region> {
    let mut region_of = alloc::vec![usize::MAX; net.lives.len()];
    let mut regions: Vec<Region> = Vec::new();
    for start in 0..net.lives.len() {
        if reached[start] || region_of[start] != usize::MAX {
            continue;
        }
        let number = regions.len();
        let mut region =
            Region { members: alloc::vec![start], registers: Vec::new(), heard: BTreeSet::new() };
        region_of[start] = number;
        let mut done = 0;
        while let Some(at) = region.members.get(done).copied() {
            done += 1;
            for Arc { to, other, own, .. } in net.arcs(at).iter().copied() {
                if reached[to] {
                    let claims = other == View::Unknown && own == View::Up;
                    if other == View::Up || claims {
                        region.heard.insert(at);
                    }
                } else if region_of[to] == usize::MAX {
                    region_of[to] = number;
                    region.members.push(to);
                }
            }
        }
        regions.push(region);
    }
    for owner in graph.owners() {
        let is_correct = net.lives.binary_search(&owner).is_ok_and(|at| reached[at]);
        let Some(node) = graph.get(owner).filter(|_| is_correct) else { continue };
        for entry in &node.frozen {
            let place = entry.life.and_then(|life| net.lives.binary_search(&life).ok());
            if let Some(at) = place.filter(|at| !reached[*at]) {
                // Seen from the owner: what comes from below climbs.
                regions[region_of[at]].registers.push((at, entry.side, entry.commit));
            }
        }
    }
    regions
}

/// For each life of the region the greatest value among the registers on its border that its
/// promises can reach through the region: up, then down.
fn values(net: &Net, reached: &[bool], graph: &Graph, region: &Region) -> Vec<Option<Timestamp>> {
    // A switch is two nodes: what it has heard from below, and what from above and below.
    let mut up: Vec<Option<Timestamp>> = alloc::vec![None; net.lives.len()];
    let mut down = up.clone();
    let mut registers = region.registers.clone();
    registers.sort_unstable_by_key(|(_, _, commit)| core::cmp::Reverse(*commit));
    let mut work: Vec<(usize, bool)> = Vec::new();
    for (start, side, commit) in registers {
        work.push((start, side == Side::Upper));
        // Against the way of promises. The greatest value comes first, so the first one stays.
        while let Some((at, descends)) = work.pop() {
            let value = if descends { &mut down[at] } else { &mut up[at] };
            if value.is_some() {
                continue;
            }
            *value = Some(commit);
            if !net.is_switch(at) {
                continue;
            }
            if descends {
                work.push((at, false));
            }
            let from = if descends { Side::Upper } else { Side::Lower };
            for arc in net.arcs(at).iter().filter(|arc| arc.side == from && !reached[arc.to]) {
                if hears(net, graph, arc) && (!descends || net.is_switch(arc.to)) {
                    work.push((arc.to, descends));
                }
            }
        }
    }
    (0..net.lives.len()).map(|at| up[at].max(down[at])).collect()
}

/// Whether the promises of `arc.to` still count at `arc.from`.
fn hears(net: &Net, graph: &Graph, arc: &Arc) -> bool {
    let peer = net.lives[arc.to];
    match arc.own {
        View::Up => true,
        View::Unknown => arc.other == View::Up,
        View::Down => graph.get(net.lives[arc.from]).is_some_and(|node| {
            let mut held = node.frozen.iter();
            held.any(|entry| entry.life == Some(peer) && !entry.is_resolved)
        }),
    }
}
