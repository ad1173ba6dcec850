//! Failure detection and failure timestamps: the cut between the correct and the failed part of the
//! graph (`docs/design/failure.md`, "Who has failed, and when?").

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{Address, Cause, Incarnation, Instance, Mono, Now, ProcessId, WIRE_MODULUS};

use crate::decisions::DecisionLog;
use crate::evidence::{Evidence, Reports, Suspect};
#[cfg(test)]
use crate::graph::reference::Reference;
use crate::graph::{Graph, process_of};
use crate::own_links::Reception;
use crate::region::{Region, regions};
use crate::{Config, FailedInstance};

/// Instances that have no path to the controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Suspects {
    /// When each of them lost its path.
    since: BTreeMap<Instance, Mono>,
    /// Instances that count as dead although frames of them arrive.
    declared_dead: BTreeSet<Instance>,
    /// Neighbours of the controller whose links were idle at the last evaluation.
    idle: BTreeSet<Instance>,
    /// Addresses whose instances may count as dead or alive after a change here or a decision.
    dirty: BTreeSet<Address>,
    /// Instances that were connected once, are not any more, and have not failed.
    disconnected: BTreeSet<Instance>,
    /// Disconnected instances for which correct nodes held a register at the last evaluation.
    with_registers: BTreeSet<Instance>,
    /// Failed instances that a node lists as up.
    failed_but_listed: BTreeSet<Instance>,
    /// Failed, unresolved instances that shared a region with a suspect at the last evaluation.
    dependencies: BTreeSet<Instance>,
    /// Whether `since` is unknown and must be rebuilt from `disconnected` and `with_registers`.
    is_unknown: bool,
    /// Regions are not evaluated before this time.
    backoff_until: Option<Mono>,
}

/// Visits per evaluation without a backoff: a pod of a fat tree of 32 K hosts has half of that.
const VISITS_PER_EVALUATION: usize = 16_384;
/// Backoff for each visited node and link, in ns. A visit takes some 10 ns (measured by
/// `sim/recovery/examples/evaluation.rs`): where half of a large fabric is suspected and changes
/// all the time, evaluations take at most a third of the time.
const BACKOFF_NS_PER_VISIT: u64 = 20;

/// A failure to be recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decided {
    pub failed: FailedInstance,
    /// When the instance became a suspect.
    pub since: Mono,
    pub evidence: Evidence,
}

/// What the controller observes on its own links.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    /// Neighbours whose links are idle.
    pub idle: BTreeSet<Instance>,
    pub reception: Reception,
}

/// A region, what correct nodes report of its members, and how well the controller receives.
#[derive(Clone, Copy)]
struct Border<'a> {
    region: &'a Region,
    reports: &'a Reports,
    reception: Reception,
}

/// The result of an evaluation.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Instances that are connected for the first time.
    pub joined: Vec<Instance>,
    /// Failures to be recorded.
    pub failed: Vec<Decided>,
    /// Instances whose neighbours have to freeze their links to them.
    pub freeze: Vec<Instance>,
    /// Processes to be pinged.
    pub ping: Vec<ProcessId>,
    /// Whether most of the fabric would have failed but is alive: this replica itself is cut off.
    pub is_minority: bool,
    /// When to evaluate again even if nothing changes.
    pub reevaluate_at: Option<Mono>,
    /// Number of instances that more than one switch lists as up.
    pub duplicates: usize,
    /// Whether regions were skipped because the last evaluation was expensive.
    pub is_backing_off: bool,
}

impl Suspects {
    /// Makes `instance` count as dead from now on.
    pub(crate) fn declare_dead(&mut self, instance: Instance) {
        self.declared_dead.insert(instance);
        self.dirty.insert(instance.address);
    }

    pub(crate) fn contains(&self, instance: Instance) -> bool {
        self.since.contains_key(&instance)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.since.is_empty()
    }

    /// Asserts what holds between any two calls.
    pub(crate) fn check_invariants(&self, decisions: &DecisionLog) {
        assert!(!self.is_unknown || self.since.is_empty(), "suspects are known");
        for instance in self.since.keys().chain(&self.declared_dead) {
            assert!(!decisions.is_open(*instance), "{instance:?} is decided, not suspected");
        }
    }

    /// Whether nothing has been evaluated in this epoch.
    pub(crate) fn is_unknown(&self) -> bool {
        self.is_unknown
    }

    /// Whether registers held for `instance`, which has failed, may be needed to decide about
    /// suspects behind it. They are normally decided together; but another replica may have decided
    /// it from the other side of a partition.
    pub(crate) fn is_depended_on(&self, instance: Instance) -> bool {
        self.dependencies.contains(&instance)
    }

    /// Handles recorded failures. If other instances are suspected by now, the next evaluation
    /// determines whether they are behind these.
    pub(crate) fn on_decided(&mut self, instances: impl Iterator<Item = Instance>) {
        if !self.is_empty() {
            self.dependencies.extend(instances);
        }
    }

    /// Removes `instance`, which is decided or gone.
    pub(crate) fn forget(&mut self, instance: Instance) {
        self.since.remove(&instance);
        self.declared_dead.remove(&instance);
        self.dirty.insert(instance.address);
    }

    /// Forgets suspects and deadlines: they belong to the previous epoch.
    pub(crate) fn clear(&mut self) {
        self.since.clear();
        (self.is_unknown, self.backoff_until) = (true, None);
        let declared_dead = core::mem::take(&mut self.declared_dead);
        self.dirty.extend(declared_dead.into_iter().map(|instance| instance.address));
    }

    /// Evaluates what has changed in the graph. `changed_at` is when the first change was reported.
    pub(crate) fn evaluate(
        &mut self,
        now: Now,
        changed_at: Mono,
        config: &Config,
        graph: &mut Graph,
        decisions: &DecisionLog,
        observed: Observed,
    ) -> Findings {
        let mut findings = Findings::default();
        #[cfg(test)]
        let joined = graph
            .iter()
            .filter(|(_, node)| node.has_joined)
            .map(|(instance, _)| instance)
            .collect();
        let Observed { idle, reception } = observed;
        for instance in self.idle.symmetric_difference(&idle) {
            self.dirty.insert(instance.address);
        }
        self.idle = idle;
        core::mem::take(&mut self.dirty).into_iter().for_each(|address| graph.mark_dirty(address));
        let changed_instances =
            graph.update_reachability(|graph, instance| self.is_dead(graph, decisions, instance));
        for instance in &changed_instances {
            if decisions.has_failed(*instance) {
                self.failed_but_listed.insert(*instance);
            }
            let is_correct = graph.is_correct(*instance);
            let Some(node) = graph.get_mut(*instance) else {
                self.disconnected.remove(instance);
                continue;
            };
            node.connected_since = is_correct.then(|| node.connected_since.unwrap_or(now.mono));
            if is_correct && !core::mem::replace(&mut node.has_joined, true) {
                findings.joined.push(*instance);
            }
            if node.has_joined && !is_correct && !decisions.has_failed(*instance) {
                self.disconnected.insert(*instance);
            } else {
                self.disconnected.remove(instance);
            }
        }
        self.failed_but_listed.retain(|instance| {
            decisions.has_failed(*instance) && graph.adjacency().is_listed(*instance)
        });
        findings.duplicates = graph.adjacency().duplicates();
        #[cfg(test)]
        self.check(graph, decisions, &joined, &findings);
        if graph.adjacency().correct_count() == 0 {
            // Not even the controller's own switch is known: nothing can be said about any
            // instance.
            self.since.clear();
            self.is_unknown = true;
            return findings;
        }
        self.suspect(changed_at, graph, decisions, changed_instances);
        if let Some(until) = self.backoff_until.filter(|until| now.mono < *until) {
            (findings.is_backing_off, findings.reevaluate_at) = (true, Some(until));
            return findings;
        }
        let regions = regions(graph, self.since.keys().copied());
        #[cfg(test)]
        self.check_regions(graph, decisions, &regions);
        let members = regions.iter().flat_map(|region| &region.members);
        let instances = members.map(|index| graph.adjacency().instance(*index));
        self.dependencies = instances.filter(|instance| decisions.is_open(*instance)).collect();
        let visits = regions.iter().map(|region| region.visits).sum();
        graph.note_visits(visits);
        let backoff_ns = visits as u64 * BACKOFF_NS_PER_VISIT;
        self.backoff_until =
            (visits > VISITS_PER_EVALUATION).then(|| now.mono.after_ns(backoff_ns));
        let reports = Reports::collect(graph, |instance| self.since.contains_key(&instance));
        for region in &regions {
            let border = Border { region, reports: &reports, reception };
            self.decide_region(now, config, graph, decisions, border, &mut findings);
        }
        findings.failed.sort_unstable_by_key(|decided| decided.failed.instance);
        let instances = || findings.failed.iter().map(|decided| decided.failed.instance);
        assert!(instances().is_sorted_by(|one, other| one < other), "decided once");
        assert!(instances().all(|instance| self.since.contains_key(&instance)), "suspected first");
        assert!(!instances().any(|instance| decisions.has_failed(instance)), "decided before");
        findings
    }

    /// Returns failed instances that a correct node lists as up.
    pub(crate) fn stale_peers(&self, graph: &Graph) -> BTreeSet<Instance> {
        let is_listed = |instance: &&Instance| graph.adjacency().is_listed_by_correct(**instance);
        let listed = self.failed_but_listed.iter().filter(is_listed).copied();
        listed.chain(graph.stale_peers()).collect()
    }

    /// Updates the suspects among `changed_instances`. An instance that never was connected is a
    /// suspect, too, if a correct node holds a register for it.
    fn suspect(
        &mut self,
        changed_at: Mono,
        graph: &mut Graph,
        decisions: &DecisionLog,
        mut changed_instances: BTreeSet<Instance>,
    ) {
        let mut with_registers = BTreeSet::new();
        let mut visits = changed_instances.len();
        for (_, node) in graph.correct_owners() {
            visits += 1 + node.frozen.len();
            with_registers.extend(node.frozen.iter().filter_map(|entry| entry.instance).filter(
                |instance| {
                    let is_over = decisions.has_failed(*instance);
                    !is_over && graph.get(*instance).is_some() && !graph.is_correct(*instance)
                },
            ));
        }
        graph.note_visits(visits);
        changed_instances.extend(&with_registers);
        changed_instances.append(&mut self.with_registers);
        if core::mem::take(&mut self.is_unknown) {
            changed_instances.extend(&self.disconnected);
        }
        for instance in changed_instances {
            let is_lost =
                self.disconnected.contains(&instance) || with_registers.contains(&instance);
            if is_lost && !decisions.is_open(instance) {
                self.since.entry(instance).or_insert(changed_at);
            } else {
                self.since.remove(&instance);
            }
        }
        self.with_registers = with_registers;
        #[cfg(test)]
        self.check_suspects(graph, decisions);
    }

    /// Whether `instance` counts as dead, whatever its links.
    fn is_dead(&self, graph: &Graph, decisions: &DecisionLog, instance: Instance) -> bool {
        graph.is_superseded(instance)
            || decisions.has_failed(instance)
            || self.declared_dead.contains(&instance)
            || self.idle.contains(&instance)
    }

    //= spec/failure.md#R21
    /// Decides about one region, or sets when to try again.
    fn decide_region(
        &self,
        now: Now,
        config: &Config,
        graph: &Graph,
        decisions: &DecisionLog,
        border: Border<'_>,
        findings: &mut Findings,
    ) {
        let Border { region, reports, reception } = border;
        let adjacency = graph.adjacency();
        let suspects = || {
            let members = region.members.iter();
            members
                .filter_map(|index| Some((*index, *self.since.get(&adjacency.instance(*index))?)))
        };
        let mut wake_at =
            |at: Mono| findings.reevaluate_at = Mono::earlier(findings.reevaluate_at, Some(at));
        // The quiet time begins when the last suspect of the region has lost its path.
        let Some(since) = suspects().map(|(_, since)| since).max() else { return };
        // Frames from a suspect postpone the decision: its links may be up again, and not all ends
        // have announced so.
        let last_seen = |(index, _): (usize, Mono)| {
            let instance = adjacency.instance(index);
            graph
                .get(instance)
                .and_then(|node| node.last_seen)
                .filter(|_| !self.declared_dead.contains(&instance))
        };
        let quiet_since =
            suspects().filter_map(last_seen).max().map_or(since, |last_seen| last_seen.max(since));
        let mut decide_at =
            quiet_since.after_ns(config.quiet_ns).min(since.after_ns(config.grace_ns));
        let processes =
            || suspects().filter_map(|(index, _)| process_of(adjacency.instance(index)));
        //= spec/failure.md#R30
        if processes().count() > adjacency.correct_process_count() {
            // The larger part can hardly have failed: probably the controller is cut off.
            let is_alive = quiet_since > since;
            findings.is_minority |= is_alive;
            findings.ping.extend(processes());
            decide_at = if is_alive {
                quiet_since.after_ns(config.grace_ns)
            } else {
                since.after_ns(config.ping_timeout_ns)
            };
        }
        //= spec/failure.md#R49
        let protected_until = suspects().filter_map(|(index, since)| {
            let instance = adjacency.instance(index);
            if self.declared_dead.contains(&instance) || graph.is_superseded(instance) {
                return None;
            }
            let suspect = Suspect { instance, since, last_seen: last_seen((index, since)) };
            reports.protected_until(config, graph, reception, suspect)
        });
        let protected_until = protected_until.max();
        decide_at = protected_until.map_or(decide_at, |until| until.max(decide_at));
        if now.mono < decide_at {
            return wake_at(decide_at);
        }
        // Missing registers are waited for after that.
        let waiting_since = protected_until.map_or(since, |until| until.max(since));
        let mut is_exact = true;
        // Registers of instances that have failed already are not needed.
        let is_needed = |index: &&usize| !decisions.has_failed(adjacency.instance(**index));
        if region.up_members.iter().any(|index| is_needed(&index)) {
            let is_declared_dead =
                |index: &usize| self.declared_dead.contains(&adjacency.instance(*index));
            let freeze_at = waiting_since.after_ns(config.freeze_after_ns);
            let must_freeze_all = now.mono >= freeze_at;
            let needed = region.up_members.iter().filter(is_needed);
            let freeze = needed.filter(|index| must_freeze_all || is_declared_dead(index));
            findings.freeze.extend(freeze.map(|index| adjacency.instance(*index)));
            let give_up_at = waiting_since.after_ns(config.inexact_after_ns);
            if now.mono < give_up_at {
                return wake_at(if must_freeze_all { give_up_at } else { freeze_at });
            }
            is_exact = false;
        }
        assert!(now.mono >= decide_at, "decided before its time");
        let registers = region.greatest_registers(graph);
        for (index, since) in suspects() {
            let instance = adjacency.instance(index);
            // Of two incarnations of one process the earlier one is decided first, or together with
            // the later.
            let first = Instance { incarnation: Incarnation(0), ..instance };
            let is_blocked = self.since.range(first..instance).next().is_some()
                && !suspects()
                    .any(|(other, _)| (first..instance).contains(&adjacency.instance(other)));
            if is_blocked || decisions.has_failed(instance) {
                continue;
            }
            // Without a register, no correct node has ever received promises of the instance, so no
            // process can deliver messages of it: any F below its first message will do.
            let lower_bound = || now.sync.saturating_sub_ns(WIRE_MODULUS / 4);
            let at = registers.get(&index).copied().unwrap_or_else(lower_bound);
            let at = match () {
                () if makes(Mistake::FailureTooLate) => at.wrapping_add_ns(1_000),
                () if makes(Mistake::FailureTooEarly) => at.saturating_sub_ns(1_000),
                () => at,
            };
            //= spec/failure.md#R22
            let is_reported = |at| region.registers.iter().any(|(.., commit)| *commit == at);
            assert!(
                !registers.contains_key(&index) || is_reported(at),
                "the failure timestamp of {instance:?} is a register that a node reports"
            );
            let evidence = self.evidence(graph, reports, instance);
            let failed = FailedInstance { instance, at, is_exact, cause: evidence.cause };
            findings.failed.push(Decided { failed, since, evidence });
        }
    }
}

impl Suspects {
    //= spec/failure.md#R50
    /// Returns the evidence on which the failure of `instance` is decided.
    fn evidence(&self, graph: &Graph, reports: &Reports, instance: Instance) -> Evidence {
        let reported = reports.evidence(instance);
        let own = |cause| Evidence { cause, reporter: None };
        match reported {
            Some(evidence) if evidence.cause.is_certain() => evidence,
            _ if self.declared_dead.contains(&instance) => own(Cause::Fenced),
            _ if graph.is_superseded(instance) => own(Cause::Superseded),
            Some(evidence) => evidence,
            None => own(Cause::TimedOut),
        }
    }
}

#[cfg(test)]
impl Suspects {
    /// Compares the incremental reachability with a reference evaluation.
    fn check(
        &self,
        graph: &Graph,
        decisions: &DecisionLog,
        joined: &BTreeSet<Instance>,
        findings: &Findings,
    ) {
        let reference = Reference::new(graph, |instance| self.is_dead(graph, decisions, instance));
        reference.check_adjacency();
        reference.check_joined(joined, &findings.joined);
    }

    /// Compares the suspects with a reference evaluation.
    fn check_suspects(&self, graph: &Graph, decisions: &DecisionLog) {
        let reference = Reference::new(graph, |instance| self.is_dead(graph, decisions, instance));
        assert!(reference.suspected(decisions).iter().eq(self.since.keys()));
    }

    /// Compares the borders of the regions with a reference evaluation.
    fn check_regions(&self, graph: &Graph, decisions: &DecisionLog, regions: &[Region]) {
        let reference = Reference::new(graph, |instance| self.is_dead(graph, decisions, instance));
        reference.check_regions(&reference.suspected(decisions), regions);
    }
}
