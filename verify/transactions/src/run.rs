//! A run of a random scenario, and its verdict.

use std::collections::BTreeMap;

use onepipe_base::ProcessId;
use onepipe_history::{
    FinalReads, Order, Verdict, durability, linearizability, serializability,
    strict_serializability,
};
use onepipe_kv::Store;
use onepipe_sim_engine::Random;
use onepipe_sim_network::LinkFaults;
use onepipe_transaction::State;

use crate::cluster::Cluster;
use crate::recorded::{Counts, Recorded};
use crate::scenario::{JOIN_US, Scenario};

/// Time in which all transactions must end without faults, in us.
const DRAIN_US: u64 = 60_000;
/// Time between two checks of a condition that is waited for, in us.
const SLICE_US: u64 = 200;

/// The results of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// Transactions by kind.
    pub counts: Counts,
    /// Scatterings that clients have sent again, as the first attempt was lost.
    pub retried: u64,
    /// Reads repeated because no timestamp was exact at all shards.
    pub inexact: u64,
    /// Times at which clients have asked replicas for the reply to a write.
    pub asked: u64,
    /// Injected faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Processes that have not ended.
    pub running: u64,
    /// Shards of which no replica is left, so that nothing can be read at the end.
    pub lost_shards: u64,
    /// Checks that could not decide.
    pub undecided: u64,
    /// What was wrong. Empty if all is right.
    pub violations: Vec<String>,
    /// Virtual time of the whole run, in ns.
    pub virtual_ns: u64,
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
        cluster.load_mut().stop();
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

    /// Lets all transactions end, then reads all keys.
    fn end(&self, cluster: &mut Cluster<Store, Recorded>, report: &mut Report) {
        drain(cluster, |cluster| cluster.in_flight() == 0);
        if cluster.in_flight() > 0 {
            let what = format!("{} transactions have not ended", cluster.in_flight());
            report.violations.push(what);
            return;
        }
        let reader = cluster.client(self.reader);
        let Some(placement) = reader.map(|reader| reader.placement().clone()) else {
            report.violations.push("the reader has ended".into());
            return;
        };
        // A stranded replica, whose peers failed before it had caught up, counts as failed.
        let is_serving = |process: ProcessId| {
            cluster.replica(process).is_some_and(|replica| !replica.is_stranded())
        };
        let is_lost = |shard: &u16| !placement.up(*shard).any(is_serving);
        report.lost_shards = (0..placement.shards()).filter(is_lost).count() as u64;
        if report.lost_shards == 0 {
            cluster.load_mut().read_all(self.reader);
            cluster.wake();
            drain(cluster, |cluster| cluster.load().unread() == 0 && cluster.in_flight() == 0);
            if cluster.load().unread() > 0 {
                report.violations.push("the final reads have not ended".into());
            }
        }
        if report.lost_shards == 0 {
            drain(cluster, |cluster| cluster.catching_up() == 0);
        }
        if report.lost_shards == 0 && cluster.catching_up() > 0 {
            let what = format!("{} replicas have not caught up", cluster.catching_up());
            report.violations.push(what);
        }
        // All replicas execute what was sent.
        cluster.run_ns(2 * SLICE_US * 1_000);
    }
}

fn drain(
    cluster: &mut Cluster<Store, Recorded>,
    is_done: impl Fn(&Cluster<Store, Recorded>) -> bool,
) {
    for _ in 0..DRAIN_US / SLICE_US {
        if is_done(cluster) || cluster.is_out_of_steps() {
            return;
        }
        cluster.run_ns(SLICE_US * 1_000);
    }
}

fn verify(cluster: &Cluster<Store, Recorded>, report: &mut Report) {
    report.counts = cluster.load().counts();
    report.virtual_ns = cluster.now_ns();
    report.trace_hash = cluster.trace_hash();
    let setup = cluster.setup();
    for process in (0..setup.processes).map(ProcessId) {
        report.running += u64::from(cluster.process(process).is_some());
        if let Some(client) = cluster.client(process) {
            let stats = client.stats();
            report.retried += stats.retried;
            report.inexact += stats.inexact;
            report.asked += stats.asked;
            let wrong = stats.disagreements + stats.malformed;
            if wrong > 0 {
                report.violations.push(format!("client {}: {stats:?}", process.0));
            }
        }
        if let Some(replica) = cluster.replica(process)
            && replica.stats().malformed > 0
        {
            report.violations.push(format!("replica {}: {:?}", process.0, replica.stats()));
        }
    }
    if cluster.is_out_of_steps() {
        report.violations.push("the run has reached its limit of steps".into());
    }
    for shard in 0..setup.placement.shards() {
        let replicas = setup.placement.replicas(shard).iter();
        let states = replicas.filter_map(|process| Some((process.0, cluster.replica(*process)?)));
        let digests = states.map(|(process, replica)| (process, replica.state().digest()));
        let digests: Vec<(u32, u64)> = digests.collect();
        if digests.windows(2).any(|pair| pair[0].1 != pair[1].1) {
            report.violations.push(format!("the replicas of shard {shard} differ: {digests:x?}"));
        }
    }
    report.violations.extend(cluster.load().violations().iter().cloned());
    verify_history(cluster.load(), report);
}

fn verify_history(load: &Recorded, report: &mut Report) {
    let (all, strict) = match (load.history(true), load.history(false)) {
        (Ok(all), Ok(strict)) => (all, strict),
        (Err(error), _) | (_, Err(error)) => {
            report.violations.push(error.to_string());
            return;
        }
    };
    let mut verdicts = vec![
        ("strict serializability", strict_serializability(&strict)),
        ("serializability with sessions", serializability(&all, Order::Session)),
        ("linearizability", linearizability(&strict)),
    ];
    let at_end = FinalReads::of(&all);
    if report.lost_shards == 0 && !at_end.is_empty() {
        verdicts.push(("durability", durability(&all, &at_end)));
    }
    for (name, verdict) in verdicts {
        if let Verdict::Undecided(_) = verdict {
            report.undecided += 1;
        } else if verdict != Verdict::Valid {
            report.violations.push(format!("{name}: {verdict}"));
        }
    }
}
