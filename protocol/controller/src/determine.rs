//! Who has failed, and when: the cut between the correct and the failed part of the graph
//! (design: failure.md, "Who has failed, and when?").

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{Address, Incarnation, Instance, Mono, Now, ProcessId, WIRE_MODULUS};

#[cfg(test)]
use crate::graph::whole::Whole;
use crate::graph::{Graph, process_of};
use crate::ledger::Ledger;
use crate::region::{Region, regions};
use crate::{Config, FailedInstance};

/// Lives that have no path to the controller, and since when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Suspects {
    since: BTreeMap<Instance, Mono>,
    /// Lives that are to count as dead though they are heard.
    condemned: BTreeSet<Instance>,
    /// Direct links of the controller itself that were silent at the last look.
    deaf: BTreeSet<Instance>,
    /// Whose lives may count as dead, or not any more, by what is noted here or decided.
    doubted: BTreeSet<Address>,
    /// Who was connected once and is not, and has not failed.
    lost: BTreeSet<Instance>,
    /// Who is not connected, but correct nodes held a register for it at the last look.
    held: BTreeSet<Instance>,
    /// Who has failed and is listed as up.
    listed: BTreeSet<Instance>,
    /// Decided, but not done, and in one region with somebody suspected at the last look.
    entangled: BTreeSet<Instance>,
    /// `since` says nothing: it is to be told anew by `lost` and `held`.
    is_blank: bool,
    /// Before this, regions are not looked at.
    rests_until: Option<Mono>,
}

/// What a look at the regions may visit without having to rest: a pod of a fat tree of 32 K hosts
/// has half of that.
const VISITS_A_LOOK: usize = 16_384;
/// How long to rest for each node and link that was visited, in ns. A visit takes some 10 ns (see
/// `examples/look.rs`): where half of a large fabric is suspected and changes all the time, a third
/// of the time at most is spent on finding out what that means.
const REST_NS_A_VISIT: u64 = 20;

/// What a look at the graph has brought.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Who is connected for the first time.
    pub joined: Vec<Instance>,
    /// Who has failed, by a decision that is to be recorded, and since when they were suspected.
    pub failed: Vec<(FailedInstance, Mono)>,
    /// Lives whose neighbours are to be told to freeze their links to them.
    pub freeze: Vec<Instance>,
    /// Processes that are to be asked for a sign of life.
    pub ask: Vec<ProcessId>,
    /// Most of the fabric would have failed, but lives: it is this replica that is cut off.
    pub is_outvoted: bool,
    /// When to look again even if nothing changes.
    pub again_at: Option<Mono>,
    /// Lives that are listed as up by more than one switch.
    pub doubles: usize,
    /// Nothing was decided this time: the last decision has taken too much work.
    pub is_resting: bool,
}

impl Suspects {
    /// `instance` counts as dead from now on.
    pub(crate) fn condemn(&mut self, instance: Instance) {
        self.condemned.insert(instance);
        self.doubted.insert(instance.address);
    }

    pub(crate) fn contains(&self, instance: Instance) -> bool {
        self.since.contains_key(&instance)
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.since.is_empty()
    }

    /// Whether nothing has been found out in this reign.
    pub(crate) fn is_blank(&self) -> bool {
        self.is_blank
    }

    /// Whether what is held for `instance`, which has failed, may be needed to decide about others who
    /// are behind it. They are decided together; but another replica may have seen them from the
    /// other side, when it was not they who had no path.
    pub(crate) fn entangles(&self, instance: Instance) -> bool {
        self.entangled.contains(&instance)
    }

    /// It is recorded that these have failed. If others have come under suspicion since that was
    /// decided, the next look says whether they are behind these.
    pub(crate) fn on_decided(&mut self, instances: impl Iterator<Item = Instance>) {
        if !self.is_empty() {
            self.entangled.extend(instances);
        }
    }

    /// `instance` is decided, or counts no more.
    pub(crate) fn forget(&mut self, instance: Instance) {
        self.since.remove(&instance);
        self.condemned.remove(&instance);
        self.doubted.insert(instance.address);
    }

    /// Another replica was active until now: its impatience was not this one's.
    pub(crate) fn clear(&mut self) {
        self.since.clear();
        (self.is_blank, self.rests_until) = (true, None);
        let condemned = core::mem::take(&mut self.condemned);
        self.doubted.extend(condemned.into_iter().map(|instance| instance.address));
    }

    /// Looks at what has changed in the graph. `changed` is when the change that gives reason for
    /// it was heard of; `deaf` are direct links of the controller itself that are silent.
    pub(crate) fn look(
        &mut self,
        now: Now,
        changed: Mono,
        config: &Config,
        graph: &mut Graph,
        ledger: &Ledger,
        deaf: BTreeSet<Instance>,
    ) -> Findings {
        let mut findings = Findings::default();
        #[cfg(test)]
        let joined = graph
            .iter()
            .filter(|(_, node)| node.has_joined)
            .map(|(instance, _)| instance)
            .collect();
        for instance in self.deaf.symmetric_difference(&deaf) {
            self.doubted.insert(instance.address);
        }
        self.deaf = deaf;
        core::mem::take(&mut self.doubted).into_iter().for_each(|address| graph.doubt(address));
        let news = graph.repair(|graph, instance| self.is_dead(graph, ledger, instance));
        for instance in &news {
            if ledger.has_failed(*instance) {
                self.listed.insert(*instance);
            }
            let is_correct = graph.is_correct(*instance);
            let Some(node) = graph.get_mut(*instance) else {
                self.lost.remove(instance);
                continue;
            };
            if is_correct && !core::mem::replace(&mut node.has_joined, true) {
                findings.joined.push(*instance);
            }
            if node.has_joined && !is_correct && !ledger.has_failed(*instance) {
                self.lost.insert(*instance);
            } else {
                self.lost.remove(instance);
            }
        }
        self.listed
            .retain(|instance| ledger.has_failed(*instance) && graph.net().is_listed(*instance));
        findings.doubles = graph.net().doubles();
        #[cfg(test)]
        self.check(graph, ledger, &joined, &findings);
        if graph.net().correct() == 0 {
            // Not even its own switch is known: this replica knows nothing about anybody.
            self.since.clear();
            self.is_blank = true;
            return findings;
        }
        self.suspect(changed, graph, ledger, news);
        if let Some(until) = self.rests_until.filter(|until| now.mono < *until) {
            (findings.is_resting, findings.again_at) = (true, Some(until));
            return findings;
        }
        let regions = regions(graph, self.since.keys().copied());
        #[cfg(test)]
        self.check_regions(graph, ledger, &regions);
        let members = regions.iter().flat_map(|region| &region.members);
        let instances = members.map(|at| graph.net().instance(*at));
        self.entangled = instances.filter(|instance| ledger.is_open(*instance)).collect();
        let visits = regions.iter().map(|region| region.visits).sum();
        graph.note_visits(visits);
        let rest_ns = visits as u64 * REST_NS_A_VISIT;
        self.rests_until = (visits > VISITS_A_LOOK).then(|| now.mono.after_ns(rest_ns));
        for region in &regions {
            self.judge(now, config, graph, ledger, region, &mut findings);
        }
        findings.failed.sort_unstable_by_key(|(failed, _)| failed.instance);
        findings
    }

    /// Who has failed, but is listed as up by a correct node.
    pub(crate) fn ghosts(&self, graph: &Graph) -> BTreeSet<Instance> {
        let is_heard = |instance: &&Instance| graph.net().is_listed_by_correct(**instance);
        let open = self.listed.iter().filter(is_heard).copied();
        open.chain(graph.ghosts()).collect()
    }

    /// Notes who has no path and might have failed, among those of whom there is `news`. A life
    /// that never was connected might, too, if a correct node holds a register for it.
    fn suspect(
        &mut self,
        changed: Mono,
        graph: &mut Graph,
        ledger: &Ledger,
        mut news: BTreeSet<Instance>,
    ) {
        let mut held = BTreeSet::new();
        let mut visits = news.len();
        for (_, node) in graph.correct_owners() {
            visits += 1 + node.frozen.len();
            held.extend(node.frozen.iter().filter_map(|entry| entry.instance).filter(|instance| {
                let is_over = ledger.has_failed(*instance);
                !is_over && graph.get(*instance).is_some() && !graph.is_correct(*instance)
            }));
        }
        graph.note_visits(visits);
        news.extend(&held);
        news.append(&mut self.held);
        if core::mem::take(&mut self.is_blank) {
            news.extend(&self.lost);
        }
        for instance in news {
            let is_lost = self.lost.contains(&instance) || held.contains(&instance);
            if is_lost && !ledger.is_open(instance) {
                self.since.entry(instance).or_insert(changed);
            } else {
                self.since.remove(&instance);
            }
        }
        self.held = held;
        #[cfg(test)]
        self.check_suspects(graph, ledger);
    }

    /// Whether `instance` counts as dead, whatever its links.
    fn is_dead(&self, graph: &Graph, ledger: &Ledger, instance: Instance) -> bool {
        graph.is_superseded(instance)
            || ledger.has_failed(instance)
            || self.condemned.contains(&instance)
            || self.deaf.contains(&instance)
    }

    /// Decides about one region, or says why not yet.
    fn judge(
        &self,
        now: Now,
        config: &Config,
        graph: &Graph,
        ledger: &Ledger,
        region: &Region,
        findings: &mut Findings,
    ) {
        let net = graph.net();
        let suspects = || {
            let members = region.members.iter();
            members.filter_map(|at| Some((*at, *self.since.get(&net.instance(*at))?)))
        };
        let mut wake = |at: Mono| findings.again_at = Mono::earlier(findings.again_at, Some(at));
        let Some(since) = suspects().map(|(_, since)| since).max() else { return };
        // Signs of life put it off: its links may be up again, and not all have said so yet.
        let heard = |(at, _): (usize, Mono)| {
            let instance = net.instance(at);
            graph
                .get(instance)
                .and_then(|node| node.heard)
                .filter(|_| !self.condemned.contains(&instance))
        };
        let quiet = suspects().filter_map(heard).max().map_or(since, |heard| heard.max(since));
        let mut ready = quiet.after_ns(config.settle_ns).min(since.after_ns(config.grace_ns));
        let processes = || suspects().filter_map(|(at, _)| process_of(net.instance(at)));
        if processes().count() > net.processes() {
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
        let is_needed = |at: &&usize| !ledger.has_failed(net.instance(**at));
        if region.heard.iter().any(|at| is_needed(&at)) {
            let is_condemned = |at: &usize| self.condemned.contains(&net.instance(*at));
            let freeze_at = since.after_ns(config.freeze_after_ns);
            let all = now.mono >= freeze_at;
            let heard = region.heard.iter().filter(is_needed);
            let freeze = heard.filter(|at| all || is_condemned(at));
            findings.freeze.extend(freeze.map(|at| net.instance(*at)));
            let give_up = since.after_ns(config.inexact_after_ns);
            if now.mono < give_up {
                return wake(if all { give_up } else { freeze_at });
            }
            is_exact = false;
        }
        let values = region.values(graph);
        for (at, since) in suspects() {
            let instance = net.instance(at);
            // Of two lives of one process the former is decided first, or with the latter.
            let first = Instance { incarnation: Incarnation(0), ..instance };
            let waits = self.since.range(first..instance).next().is_some()
                && !suspects().any(|(other, _)| (first..instance).contains(&net.instance(other)));
            if waits || ledger.has_failed(instance) {
                continue;
            }
            // No correct node has ever heard of it: nobody has anything of it to deliver.
            let nothing = || now.sync.saturating_sub_ns(WIRE_MODULUS / 4);
            let at = values.get(&at).copied().unwrap_or_else(nothing);
            let at = match () {
                () if makes(Mistake::FailureTooLate) => at.wrapping_add_ns(1_000),
                () if makes(Mistake::FailureTooEarly) => at.saturating_sub_ns(1_000),
                () => at,
            };
            findings.failed.push((FailedInstance { instance, at, is_exact }, since));
        }
    }
}

#[cfg(test)]
impl Suspects {
    /// Compares what is kept of paths with a look at everything.
    fn check(
        &self,
        graph: &Graph,
        ledger: &Ledger,
        joined: &BTreeSet<Instance>,
        findings: &Findings,
    ) {
        let whole = Whole::new(graph, |instance| self.is_dead(graph, ledger, instance));
        whole.check_net();
        whole.check_joined(joined, &findings.joined);
    }

    /// The same for who is suspected.
    fn check_suspects(&self, graph: &Graph, ledger: &Ledger) {
        let whole = Whole::new(graph, |instance| self.is_dead(graph, ledger, instance));
        assert!(whole.suspected(ledger).iter().eq(self.since.keys()));
    }

    /// The same for the borders of the regions.
    fn check_regions(&self, graph: &Graph, ledger: &Ledger, regions: &[Region]) {
        let whole = Whole::new(graph, |instance| self.is_dead(graph, ledger, instance));
        whole.check_regions(&whole.suspected(ledger), regions);
    }
}
