//! Figure 15 of 1Pipe: New-Order and Payment of TPC-C on warehouses with three replicas each.

use std::collections::BTreeMap;
use std::sync::Arc;

use onepipe_base::ProcessId;
use onepipe_sim_network::LinkFaults;
use onepipe_topology::ShapeError;
use onepipe_tpcc::{
    Catalogue, Database, Generator, Mix, Outcome, Scale, Transaction, Warehouse, check,
};
use onepipe_transaction::{Kind, Placement, State};
use rand_xoshiro::Xoshiro256StarStar;
use rand_xoshiro::rand_core::SeedableRng;

use crate::benchmark::{Figures, Rates, measure};
use crate::cluster::Cluster;
use crate::load::{Done, Load, Next, Terminal};
use crate::protocol::Protocol;
use crate::setup::{Costs, Setup};

/// Time before the load, in ns: all processes have joined by then.
const JOIN_NS: u64 = 50_000;
/// Time in which transactions end and replicas catch up after the load, in ns.
const END_NS: u64 = 2_000_000;
/// Replicas of a warehouse.
const REPLICAS: u16 = 3;

/// Parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct TpccRun {
    /// The protocol.
    pub protocol: Protocol,
    /// Number of processes: see [`Setup::testbed`]. Three for each warehouse have its replicas, and
    /// all others a client.
    pub processes: u32,
    /// Sizes of the tables.
    pub scale: Scale,
    /// Transactions that a client has in flight.
    pub terminals: u32,
    /// Costs of the testbed.
    pub costs: Costs,
    /// Loss rate of every link during the load, in parts per billion.
    pub loss_ppb: u32,
    /// Length of the load before the measurement, in us.
    pub warm_up_us: u64,
    /// Length of the measurement, in us.
    pub measure_us: u64,
    /// Seed of the run.
    pub seed: u64,
}

/// Results of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TpccFigures {
    /// Rates and latencies.
    pub figures: Figures,
    /// Transactions per second in all.
    pub per_s: f64,
    /// Number of orders that were entered.
    pub ordered: u64,
    /// Number of orders that were rolled back.
    pub rolled_back: u64,
    /// Number of payments.
    pub paid: u64,
    /// What was wrong. Empty if all is right.
    pub violations: Vec<String>,
}

impl TpccRun {
    /// Creates a run of our protocol on 4 warehouses of the specification's sizes, divided by `divisor`, which is
    /// at most 100.
    pub fn new(processes: u32, divisor: u32) -> Self {
        let scale = Scale {
            warehouses: 4,
            districts: 10,
            customers: 3_000 / divisor,
            items: 100_000 / divisor,
        };
        Self {
            protocol: Protocol::Onepipe,
            processes,
            scale,
            terminals: 8,
            costs: Costs::PAPER,
            loss_ppb: 0,
            warm_up_us: 300,
            measure_us: 500,
            seed: 1,
        }
    }

    /// Runs it, lets all transactions end, and checks the warehouses.
    ///
    /// # Errors
    /// The processes do not fit the testbed.
    ///
    /// # Panics
    /// They do not fill its hosts, or there are too few for the replicas, or the scale is invalid.
    /// Rivals do not run yet.
    pub fn run(&self) -> Result<TpccFigures, ShapeError> {
        assert_eq!(self.protocol, Protocol::Onepipe, "the rivals do not run yet");
        let plan = Setup::testbed(&self.costs, self.processes, self.seed)?;
        let placement = Placement::consecutive(0, self.scale.warehouses, REPLICAS)
            .expect("three replicas of each warehouse");
        let servers = u32::from(self.scale.warehouses * REPLICAS);
        assert!(servers < self.processes, "the replicas leave no process for clients");
        let setup = Setup {
            clients: (servers..self.processes).collect(),
            terminals: self.terminals,
            message_ns: self.costs.message_ns,
            ..Setup::new(plan, self.processes, placement)
        };
        let mut cluster = Cluster::new(setup, TpccLoad::new(self));
        cluster.run_ns(JOIN_NS);
        let losses = LinkFaults { loss_ppb: self.loss_ppb, ..LinkFaults::default() };
        cluster.set_link_faults(losses);
        let times_ns = (self.warm_up_us * 1_000, self.measure_us * 1_000);
        let figures = measure(&mut cluster, times_ns, |load: &mut TpccLoad| &mut load.rates);
        cluster.load_mut().is_over = true;
        cluster.set_link_faults(LinkFaults::default());
        cluster.run_ns(END_NS);
        let load = cluster.load();
        Ok(TpccFigures {
            per_s: figures.per_s_and_process * f64::from(self.processes),
            figures,
            ordered: load.ordered,
            rolled_back: load.rolled_back,
            paid: load.paid,
            violations: violations(&cluster),
        })
    }
}

/// Checks that all transactions have ended, that replicas are equal, and the conditions of the
/// specification.
fn violations(cluster: &Cluster<Warehouse, TpccLoad>) -> Vec<String> {
    let mut violations = cluster.load().violations.clone();
    if cluster.in_flight() > 0 {
        violations.push(format!("{} transactions have not ended", cluster.in_flight()));
    }
    let placement = &cluster.setup().placement;
    let mut warehouses = Vec::new();
    for shard in 0..placement.shards() {
        let replicas = placement.replicas(shard).iter();
        let states = replicas.filter_map(|id| cluster.replica(*id).map(|replica| replica.state()));
        let states: Vec<&Warehouse> = states.collect();
        if states.windows(2).any(|pair| pair[0].digest() != pair[1].digest()) {
            violations.push(format!("the replicas of shard {shard} differ"));
        }
        warehouses.extend(states.first().copied());
    }
    if let Err(violation) = check(&warehouses) {
        violations.push(violation.to_string());
    }
    for process in (0..cluster.setup().processes).map(ProcessId) {
        let stats = cluster.client(process).map(|client| client.stats()).unwrap_or_default();
        if stats.disagreements + stats.malformed > 0 {
            violations.push(format!("client {}: {stats:?}", process.0));
        }
    }
    violations
}

#[derive(Debug)]
struct TpccLoad {
    database: Database,
    catalogue: Arc<Catalogue>,
    generators: Vec<Generator>,
    random: Xoshiro256StarStar,
    open: BTreeMap<Terminal, Transaction>,
    rates: Rates,
    is_over: bool,
    ordered: u64,
    rolled_back: u64,
    paid: u64,
    violations: Vec<String>,
}

impl TpccLoad {
    fn new(run: &TpccRun) -> Self {
        let database = Database::new(run.scale, run.seed).expect("the scale is valid");
        let warehouses = 1..=run.scale.warehouses;
        let generators =
            warehouses.filter_map(|w_id| Generator::new(&database, w_id, Mix::default()));
        Self {
            catalogue: database.catalogue(),
            generators: generators.collect(),
            random: Xoshiro256StarStar::seed_from_u64(run.seed),
            open: BTreeMap::new(),
            rates: Rates::default(),
            is_over: false,
            ordered: 0,
            rolled_back: 0,
            paid: 0,
            violations: Vec::new(),
            database,
        }
    }
}

impl Load<Warehouse> for TpccLoad {
    fn state(&mut self, shard: u16) -> Warehouse {
        let warehouse = self.database.warehouse(shard + 1, self.catalogue.clone());
        warehouse.expect("each shard has a warehouse of the database")
    }

    fn next(&mut self, at_ns: u64, terminal: Terminal) -> Next {
        if self.is_over {
            return Next::Stop;
        }
        if at_ns < JOIN_NS {
            return Next::Wait(JOIN_NS - at_ns + u64::from(terminal.process.0 * 97 % 5_000));
        }
        // Each terminal belongs to one warehouse.
        let home = (terminal.process.0 + terminal.index) as usize % self.generators.len();
        let transaction = self.generators[home].transaction(&mut self.random);
        let parts = transaction.parts();
        self.open.insert(terminal, transaction);
        Next::Submit(Kind::Write, parts)
    }

    fn done(&mut self, done: Done) {
        let Some(transaction) = self.open.remove(&done.terminal) else { return };
        let latency_ns = done.at_ns - done.started_ns;
        let kind = match transaction {
            Transaction::NewOrder(_) => "new order",
            Transaction::Payment(_) => "payment",
            Transaction::OrderStatus(_) => "order status",
        };
        let attempts = done.outcome.as_ref().ok().map(|committed| committed.attempts);
        self.rates.ended(kind, latency_ns, attempts);
        let Ok(committed) = done.outcome else { return };
        let results = committed.results.iter().map(|(shard, bytes)| (*shard, &bytes[..]));
        match transaction.assemble(&results.collect::<Vec<_>>()) {
            Ok(Outcome::Ordered(_)) => self.ordered += 1,
            Ok(Outcome::RolledBack(_)) => self.rolled_back += 1,
            Ok(Outcome::Paid(_)) => self.paid += 1,
            Ok(Outcome::Status(_)) => {}
            Err(error) => self.violations.push(error.to_string()),
        }
    }
}
