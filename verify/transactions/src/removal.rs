//! The failure of section 7.3 of 1Pipe: the link of a host with a replica is cut under TPC-C.

use std::collections::BTreeMap;

use onepipe_base::ProcessId;
use onepipe_controller::Recovery;
use onepipe_topology::ShapeError;
use onepipe_tpcc::Warehouse;
use onepipe_transaction::State;

use crate::cluster::Cluster;
use crate::load::{Done, Load, Next, Terminal};
use crate::setup::{Costs, Setup};
use crate::tpcc::{HOSTS, TpccLoad, TpccRun, spread_replicas};

/// Time before the cut, in ns: the controller has registered all processes, and connections are
/// open.
const WARM_UP_NS: u64 = 3_000_000;
/// Time between two observations of the clients, in ns.
const STEP_NS: u64 = 1_000;
/// Longest time until all clients have removed the replica, in steps.
const STEPS_MAX: u64 = 5_000;
/// Time in which transactions end after the removal, in ns.
const END_NS: u64 = 5_000_000;
/// Time between two observations of the replica that returns, in ns, and the longest time until it
/// has caught up, in steps.
const CATCH_UP_STEP_NS: u64 = 20_000;
const CATCH_UP_STEPS_MAX: u64 = 25_000;

/// Parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Removal {
    /// Whether the controller floods its notices; otherwise it contacts all processes one by one.
    pub is_flooded: bool,
    /// CPU time of the controller for each process that it contacts, in ns.
    pub contact_ns: u64,
    /// Transactions in flight of each client.
    pub terminals: u32,
    /// The number of items and customers of TPC-C is divided by this, from 1.
    pub divisor: u32,
    /// Seed of the run: it chooses the replica and the time of the cut, too.
    pub seed: u64,
}

/// Results of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RemovalFigures {
    /// Time from the cut until the first client has removed the replica, in us.
    pub first_us: f64,
    /// Time from the cut until all clients have removed the replica, in us.
    pub removed_us: f64,
    /// Latencies of the transactions that were in flight to the replica's warehouse between the cut
    /// and the removal, less the mean latency before, in us.
    pub added_us: Vec<f64>,
    /// Latencies of the transactions that were in flight at that time to other warehouses only,
    /// less the mean latency before, in us.
    pub others_added_us: Vec<f64>,
    /// Mean latency before the cut, in us.
    pub before_us: f64,
    /// Time from the repair of the link until the replica has caught up, in us. Its process starts
    /// again as soon as it is notified that it was declared failed.
    pub caught_up_us: f64,
    /// Length of the replica's encoded state, in bytes.
    pub image_bytes: usize,
    /// What was wrong. Empty if all is right.
    pub violations: Vec<String>,
}

/// A transaction that took place.
#[derive(Clone, Debug)]
struct Span {
    started_ns: u64,
    ended_ns: u64,
    shards: Vec<u16>,
}

/// TPC-C with a record of when transactions begin and end.
#[derive(Debug)]
struct RecordedLoad {
    load: TpccLoad,
    /// When each transaction in flight began, and its shards.
    open: BTreeMap<Terminal, (u64, Vec<u16>)>,
    spans: Vec<Span>,
    failed: u64,
}

impl Load<Warehouse> for RecordedLoad {
    fn state(&mut self, shard: u16) -> Warehouse {
        self.load.state(shard)
    }

    fn next(&mut self, at_ns: u64, terminal: Terminal) -> Next {
        let next = self.load.next(at_ns, terminal);
        if let Next::Submit(_, parts) = &next {
            let shards = parts.iter().map(|(shard, _)| *shard).collect();
            self.open.insert(terminal, (at_ns, shards));
        }
        next
    }

    fn done(&mut self, done: Done) {
        let (started_ns, ended_ns) = (done.started_ns, done.at_ns);
        let (_, shards) = self.open.remove(&done.terminal).unwrap_or_default();
        match done.outcome {
            Ok(_) => self.spans.push(Span { started_ns, ended_ns, shards }),
            Err(_) => self.failed += 1,
        }
        self.load.done(done);
    }
}

impl Removal {
    /// Runs TPC-C, and cuts the link: one process on each host of the testbed, 12 of them with
    /// replicas, the controller on the last host, and clients on all others.
    ///
    /// # Errors
    /// The testbed is out of range.
    ///
    /// # Panics
    /// The replicas do not fit the testbed.
    pub fn run(&self) -> Result<RemovalFigures, ShapeError> {
        let run = TpccRun { seed: self.seed, ..TpccRun::new(HOSTS, self.divisor) };
        let mut plan = Setup::testbed(&Costs::PAPER, HOSTS, self.seed)?;
        Setup::add_controller(&mut plan);
        if let Some(control_plane) = &mut plan.control_plane {
            let is_flooded = self.is_flooded;
            control_plane.controller.recovery =
                if is_flooded { Recovery::Tree } else { Recovery::Flat };
        }
        let placement = spread_replicas(run.scale.warehouses, 1);
        let processes = HOSTS - 1;
        let clients = (0..processes).filter(|id| placement.shard_of(ProcessId(*id)).is_none());
        let clients: Vec<u32> = clients.collect();
        let shard = (self.seed % u64::from(placement.shards())) as u16;
        let replicas = placement.replicas(shard);
        let replica = replicas[self.seed as usize / 4 % replicas.len()];
        let setup = Setup {
            clients: clients.iter().copied().collect(),
            terminals: self.terminals,
            cpu: Costs::PAPER.cpu,
            contact_ns: self.contact_ns,
            ..Setup::new(plan, processes, placement)
        };
        let load = TpccLoad::new(&run, &clients);
        let load = RecordedLoad { load, open: BTreeMap::new(), spans: Vec::new(), failed: 0 };
        let mut cluster = Cluster::new(setup, load);
        // Each run cuts the link at another phase of the beacons and of the transactions.
        cluster.run_ns(WARM_UP_NS + self.seed * 7_919);
        let (cut_ns, before) = (cluster.now_ns(), cluster.load().spans.len());
        cluster.cut_host(replica);
        let mut figures = RemovalFigures::default();
        for _ in 0..STEPS_MAX {
            cluster.run_ns(STEP_NS);
            let has_removed = |id: &&u32| {
                let client = cluster.client(ProcessId(**id));
                client.is_some_and(|client| client.placement().up(shard).all(|up| up != replica))
            };
            let count = clients.iter().filter(has_removed).count();
            let us = (cluster.now_ns() - cut_ns) as f64 / 1e3;
            if count > 0 && figures.first_us == 0.0 {
                figures.first_us = us;
            }
            if count == clients.len() {
                figures.removed_us = us;
                break;
            }
        }
        if figures.removed_us == 0.0 {
            figures.violations.push(format!("the clients have not removed {replica:?}"));
        }
        let removed_ns = cluster.now_ns();
        cluster.run_ns(END_NS);
        figures.summarize(cluster.load(), before, (cut_ns, removed_ns), shard);
        figures.caught_up_us = return_replica(&mut cluster, replica);
        match cluster.replica(replica) {
            Some(replica) if figures.caught_up_us > 0.0 => {
                let mut image = Vec::new();
                replica.state().save(&mut image);
                figures.image_bytes = image.len();
            }
            _ => figures.violations.push(format!("{replica:?} has not caught up")),
        }
        Ok(figures)
    }
}

/// Repairs the link of a replica. Returns the time until the replica has caught up, in us; 0 if it
/// has not.
fn return_replica(cluster: &mut Cluster<Warehouse, RecordedLoad>, process: ProcessId) -> f64 {
    cluster.repair_host(process);
    let repaired_ns = cluster.now_ns();
    let mut has_restarted = false;
    for _ in 0..CATCH_UP_STEPS_MAX {
        cluster.run_ns(CATCH_UP_STEP_NS);
        if !has_restarted && cluster.process(process).is_none() {
            cluster.restart(process);
            has_restarted = true;
        }
        let is_serving =
            cluster.replica(process).is_some_and(|replica| has_restarted && replica.is_serving());
        if is_serving {
            return (cluster.now_ns() - repaired_ns) as f64 / 1e3;
        }
    }
    0.0
}

impl RemovalFigures {
    fn summarize(
        &mut self,
        load: &RecordedLoad,
        before: usize,
        (cut_ns, removed_ns): (u64, u64),
        shard: u16,
    ) {
        let latency_us = |span: &Span| (span.ended_ns - span.started_ns) as f64 / 1e3;
        // The first transactions open connections.
        let steady = &load.spans[before / 2..before];
        self.before_us = steady.iter().map(latency_us).sum::<f64>() / steady.len().max(1) as f64;
        let in_flight = load
            .spans
            .iter()
            .filter(|span| span.started_ns <= removed_ns && span.ended_ns > cut_ns);
        for span in in_flight {
            let added_us = latency_us(span) - self.before_us;
            match span.shards.contains(&shard) {
                true => self.added_us.push(added_us),
                false => self.others_added_us.push(added_us),
            }
        }
        let stuck = load.open.values().filter(|(started_ns, _)| *started_ns <= removed_ns).count();
        if stuck > 0 {
            self.violations.push(format!("{stuck} transactions have not ended"));
        }
        if load.failed > 0 {
            self.violations.push(format!("{} transactions have failed", load.failed));
        }
        self.violations.extend(load.load.violations().iter().cloned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_a_cut_off_replica_and_completes_its_transactions() {
        let removal =
            Removal { is_flooded: false, contact_ns: 3_000, terminals: 1, divisor: 100, seed: 2 };
        let figures = removal.run().expect("the testbed is in range");
        assert_eq!(figures.violations, Vec::<String>::new());
        assert!(figures.first_us > 30.0, "links time out after ten beacon intervals: {figures:?}");
        assert!(figures.first_us <= figures.removed_us, "{figures:?}");
        assert!(figures.caught_up_us > 0.0 && figures.image_bytes > 0, "{figures:?}");
        assert!(!figures.added_us.is_empty() && figures.before_us > 10.0, "{figures:?}");
        let free = Removal { contact_ns: 0, ..removal }.run().expect("the testbed is in range");
        assert!(free.removed_us < figures.removed_us, "{free:?} {figures:?}");
    }
}
