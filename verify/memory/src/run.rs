//! A run of a random scenario, and its verdict.

use std::collections::BTreeMap;

use onepipe_base::ProcessId;
use onepipe_history::{Verdict, map_linearizability};
use onepipe_memory::RegionId;
use onepipe_sim_engine::Random;
use onepipe_sim_network::LinkFaults;

use crate::cluster::Cluster;
use crate::recorded::Recorded;
use crate::scenario::{JOIN_US, Scenario};

/// Time in which all calls must end without faults, in us.
const DRAIN_US: u64 = 60_000;
/// Time between two checks of a condition that is waited for, in us.
const SLICE_US: u64 = 200;

/// The results of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// Calls that have ended with a result.
    pub calls: u64,
    /// Calls that have changed the table.
    pub changes: u64,
    /// Calls whose effect is unknown.
    pub in_doubt: u64,
    /// Walks that began again, as a bucket had changed.
    pub restarted: u64,
    /// Changes that were tried again.
    pub conflicts: u64,
    /// Batches that clients have repeated, and owners have not executed again.
    pub repeated: u64,
    /// Times at which clients have asked owners for a reply.
    pub asked: u64,
    /// Injected faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Checks that could not decide.
    pub undecided: u64,
    /// What was wrong. Empty if all is right.
    pub violations: Vec<String>,
    /// Digest of the run: equal seeds have equal ones.
    pub trace_hash: u64,
}

impl Report {
    /// Whether nothing was wrong.
    pub fn is_ok(&self) -> bool {
        self.violations.is_empty()
    }
}

/// Runs the scenario of `seed`, and checks the history.
pub fn run(seed: u64) -> Report {
    Scenario::draw(seed).run()
}

impl Scenario {
    /// Runs the scenario, and checks the history.
    pub fn run(&self) -> Report {
        let seed = self.setup.plan.seed;
        let mut report = Report { seed, ..Report::default() };
        let load = Recorded::new(self.mix, Random::named(seed, "load", 0));
        let mut cluster = Cluster::new(self.setup.clone(), load);
        cluster.run_ns(JOIN_US * 1_000);
        cluster.load_mut().start();
        cluster.wake();
        let mut now_us = 0;
        for (at_us, fault) in &self.timeline {
            cluster.run_ns((at_us - now_us) * 1_000);
            now_us = *at_us;
            fault.inject(&mut cluster);
            *report.faults.entry(fault.name()).or_default() += 1;
        }
        cluster.run_ns(self.load_us.saturating_sub(now_us) * 1_000);
        cluster.set_link_faults(LinkFaults::default());
        cluster.load_mut().stop();
        self.end(&mut cluster, &mut report);
        verify(&cluster, &mut report);
        report
    }

    /// Lets all calls end, then looks all keys up.
    fn end(&self, cluster: &mut Cluster<Recorded>, report: &mut Report) {
        drain(cluster, |cluster| cluster.in_flight() == 0);
        if cluster.in_flight() > 0 {
            report
                .violations
                .push(format!("liveness: {} calls have not ended", cluster.in_flight()));
            return;
        }
        cluster.load_mut().look_up_all(self.reader);
        cluster.wake();
        let is_done =
            |cluster: &Cluster<_>| load(cluster).has_looked_up_all() && cluster.in_flight() == 0;
        drain(cluster, is_done);
        if !is_done(cluster) {
            report.violations.push("liveness: the final look-ups have not ended".into());
        }
        // All replicas execute what was sent.
        cluster.run_ns(2 * SLICE_US * 1_000);
    }
}

fn load(cluster: &Cluster<Recorded>) -> &Recorded {
    cluster.load()
}

fn drain(cluster: &mut Cluster<Recorded>, is_done: impl Fn(&Cluster<Recorded>) -> bool) {
    for _ in 0..DRAIN_US / SLICE_US {
        if is_done(cluster) || cluster.is_out_of_steps() {
            return;
        }
        cluster.run_ns(SLICE_US * 1_000);
    }
}

fn verify(cluster: &Cluster<Recorded>, report: &mut Report) {
    (report.calls, report.changes, report.in_doubt) = cluster.load().counts();
    report.trace_hash = cluster.trace_hash();
    let violations = &mut report.violations;
    let setup = cluster.setup();
    for process in (0..setup.processes).map(ProcessId) {
        if let Some(client) = cluster.client(process) {
            let (stats, memory) = (client.stats(), client.memory_stats());
            report.restarted += stats.restarted;
            report.conflicts += stats.conflicts;
            report.asked += memory.asked;
            if stats.disagreements + memory.malformed > 0 {
                violations.push(format!("client: {} has {stats:?}, {memory:?}", process.0));
            }
        }
        if let Some(owner) = cluster.owner(process) {
            let stats = owner.stats();
            report.repeated += stats.repeated;
            if stats.malformed + stats.refused > 0 {
                violations.push(format!("owner: {} has {stats:?}", process.0));
            }
        }
    }
    if cluster.is_out_of_steps() {
        violations.push("liveness: the run has reached its limit of steps".into());
    }
    for (shard, replicas) in setup.replicas.iter().enumerate() {
        let id = RegionId(shard as u32);
        let regions = replicas.iter().filter_map(|process| cluster.owner(*process)?.region(id));
        let regions: Vec<&[u8]> = regions.map(|region| region.bytes()).collect();
        if regions.windows(2).any(|pair| pair[0] != pair[1]) {
            violations.push(format!("replicas: those of shard {shard} differ"));
        }
        if regions.first().is_some_and(|region| setup.layout.content(region).is_none()) {
            violations.push(format!("lists: those of shard {shard} are damaged"));
        }
    }
    violations.extend(cluster.load().violations().iter().cloned());
    let verdict = map_linearizability(&cluster.load().calls());
    match verdict {
        Verdict::Valid => {}
        Verdict::Undecided(_) => report.undecided += 1,
        Verdict::Violated(_) => violations.push(format!("linearizability: {verdict}")),
    }
}
