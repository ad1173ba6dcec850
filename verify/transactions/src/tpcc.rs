//! Figure 15 of 1Pipe: New-Order and Payment of TPC-C on warehouses with three replicas each.

use std::collections::BTreeMap;
use std::sync::Arc;

use onepipe_base::ProcessId;
use onepipe_baselines::ClientOptions as RivalOptions;
use onepipe_topology::ShapeError;
use onepipe_tpcc::{
    Catalogue, Database, Generator, Mix, Outcome, Scale, Transaction, Warehouse, check,
};
use onepipe_transaction::{ClientOptions, Kind, Placement, State};
use rand_xoshiro::Xoshiro256StarStar;
use rand_xoshiro::rand_core::SeedableRng;

use crate::benchmark::{Figures, Rates, measure};
use crate::cluster::Cluster;
use crate::load::{Done, Load, Next, Terminal};
use crate::measured::Measured;
use crate::protocol::Protocol;
use crate::rivals::RivalCluster;
use crate::setup::{Costs, Setup};

/// Time before the load, in ns: all processes have joined by then.
const JOIN_NS: u64 = 50_000;
/// Longest time in which transactions end after the load, in ns.
const END_NS_MAX: u64 = 200_000_000;
/// Time in which replicas catch up after the last transaction, in ns.
const CATCH_UP_NS: u64 = 2_000_000;
/// Hosts of the testbed.
pub(crate) const HOSTS: u32 = 32;
/// Replicas of a warehouse.
const REPLICAS: u16 = 3;

/// Parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct TpccRun {
    /// The protocol.
    pub protocol: Protocol,
    /// Number of processes with a client. They are spread evenly over the 32 hosts of the testbed.
    /// The replicas, three for each warehouse, have processes of their own, at most one on a host.
    pub clients: u32,
    /// Sizes of the tables.
    pub scale: Scale,
    /// Transactions that a client has in flight.
    pub terminals: u32,
    /// Shortest time from one transaction of a terminal to its next, in ns. 0: the next one is
    /// submitted when one has ended.
    pub period_ns: u64,
    /// Time of a client from the end of a transaction to the submission of that terminal's next
    /// one, in ns.
    pub client_ns: u64,
    /// Longest time before the second attempt of a rival at a transaction with a conflict, in ns:
    /// see [`onepipe_baselines::ClientOptions`].
    pub backoff_ns: u64,
    /// Costs of the testbed.
    pub costs: Costs,
    /// Loss rate of the links that lead to a host, in parts per billion.
    pub loss_ppb: u32,
    /// Minimum probe timeout of the endpoints, in ns.
    pub probe_timeout_ns: u64,
    /// How clients run.
    pub client: ClientOptions,
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
    /// Creates a run of our protocol on 4 warehouses of the specification's sizes, divided by
    /// `divisor`, which is at most 100, without loss, and with the timers of a real deployment.
    pub fn new(clients: u32, divisor: u32) -> Self {
        let scale = Scale {
            warehouses: 4,
            districts: 10,
            customers: 3_000 / divisor,
            items: 100_000 / divisor,
        };
        Self {
            protocol: Protocol::Onepipe,
            clients,
            scale,
            terminals: 8,
            period_ns: 0,
            client_ns: 0,
            backoff_ns: RivalOptions::default().backoff_ns,
            costs: Costs::PAPER,
            loss_ppb: 0,
            probe_timeout_ns: 200_000,
            client: ClientOptions { is_durable: false, ..ClientOptions::default() },
            warm_up_us: 300,
            measure_us: 500,
            seed: 1,
        }
    }

    /// Runs the load, lets all transactions end, and checks the warehouses.
    ///
    /// # Errors
    /// The processes do not fit the testbed.
    ///
    /// # Panics
    /// There are more replicas than hosts, or the scale is invalid.
    pub fn run(&self) -> Result<TpccFigures, ShapeError> {
        let (setup, clients) = self.setup()?;
        let load = TpccLoad::new(self, &clients);
        Ok(match self.protocol.rival() {
            None => self.run_on(&mut Cluster::new(setup, load)),
            Some(rival) => self.run_on(&mut RivalCluster::new(setup, rival, load)),
        })
    }

    /// Returns the setup, and the clients in the order of their home warehouses.
    fn setup(&self) -> Result<(Setup, Vec<u32>), ShapeError> {
        let servers = u32::from(self.scale.warehouses * REPLICAS);
        assert!(servers <= HOSTS, "each replica has a host");
        let per_host = (self.clients + servers).div_ceil(HOSTS);
        let processes = HOSTS * per_host;
        let mut plan = Setup::testbed(&self.costs, processes, self.seed)?;
        plan.endpoint.probe_timeout_min_ns = self.probe_timeout_ns;
        let placement = spread_replicas(self.scale.warehouses, per_host);
        // The first process of each host, then the second one, and so on.
        let spread = (0..processes).map(|number| number % HOSTS * per_host + number / HOSTS);
        let clients = spread.filter(|id| placement.shard_of(ProcessId(*id)).is_none());
        let clients: Vec<u32> = clients.take(self.clients as usize).collect();
        let setup = Setup {
            clients: clients.iter().copied().collect(),
            client: self.client,
            terminals: self.terminals,
            rival: RivalOptions { backoff_ns: self.backoff_ns, ..RivalOptions::default() },
            cpu: self.costs.cpu,
            ..Setup::new(plan, processes, placement)
        };
        Ok((setup, clients))
    }

    fn run_on(
        &self,
        cluster: &mut impl Measured<State = Warehouse, Load = TpccLoad>,
    ) -> TpccFigures {
        let processes = cluster.setup().processes;
        cluster.lose_at_hosts(self.loss_ppb);
        let times_ns = (JOIN_NS + self.warm_up_us * 1_000, self.measure_us * 1_000);
        let figures = measure(cluster, times_ns, |load: &mut TpccLoad| &mut load.rates);
        cluster.load_mut().is_over = true;
        cluster.lose_at_hosts(0);
        let end_ns = cluster.now_ns() + END_NS_MAX;
        while cluster.in_flight() > 0 && cluster.now_ns() < end_ns {
            cluster.run_ns(JOIN_NS);
        }
        cluster.run_ns(CATCH_UP_NS);
        let load = cluster.load();
        TpccFigures {
            per_s: figures.per_s_and_process * f64::from(processes),
            figures,
            ordered: load.ordered,
            rolled_back: load.rolled_back,
            paid: load.paid,
            violations: violations(cluster, self.protocol),
        }
    }
}

/// Returns the processes with replicas, three for each warehouse: the first processes of hosts that
/// are spread over the testbed.
pub(crate) fn spread_replicas(warehouses: u16, per_host: u32) -> Placement {
    let servers = u32::from(warehouses * REPLICAS);
    let replica = |number: u32| ProcessId(number * HOSTS / servers * per_host);
    let shards = (0..servers).step_by(REPLICAS.into());
    let shards = shards.map(|first| (first..first + u32::from(REPLICAS)).map(replica).collect());
    Placement::new(shards.collect()).expect("each process has one replica")
}

/// Checks that all transactions have ended, that replicas are equal, and the conditions of the
/// specification. Without concurrency control replicas differ, and are not compared.
fn violations(
    cluster: &impl Measured<State = Warehouse, Load = TpccLoad>,
    protocol: Protocol,
) -> Vec<String> {
    let mut violations = cluster.load().violations.clone();
    if cluster.in_flight() > 0 {
        violations.push(format!("{} transactions have not ended", cluster.in_flight()));
    }
    let placement = &cluster.setup().placement;
    let mut warehouses = Vec::new();
    for shard in 0..placement.shards() {
        let replicas = placement.replicas(shard).iter();
        let states: Vec<&Warehouse> = replicas.filter_map(|id| cluster.state(*id)).collect();
        let is_ordered = protocol != Protocol::NonTx;
        if is_ordered && states.windows(2).any(|pair| pair[0].digest() != pair[1].digest()) {
            violations.push(format!("the replicas of shard {shard} differ"));
        }
        warehouses.extend(states.first().copied());
    }
    if let Err(violation) = check(&warehouses) {
        violations.push(violation.to_string());
    }
    violations.extend(cluster.violations());
    violations
}

/// The load of TPC-C's clients.
#[derive(Debug)]
pub(crate) struct TpccLoad {
    database: Database,
    catalogue: Arc<Catalogue>,
    generators: Vec<Generator>,
    /// Home warehouse of each client, by index in `generators`.
    homes: BTreeMap<ProcessId, usize>,
    random: Xoshiro256StarStar,
    open: BTreeMap<Terminal, Transaction>,
    terminals: u32,
    period_ns: u64,
    client_ns: u64,
    /// When the next transaction of each terminal is due, if the rate is limited or clients take
    /// time.
    due_ns: BTreeMap<Terminal, u64>,
    rates: Rates,
    is_over: bool,
    ordered: u64,
    rolled_back: u64,
    paid: u64,
    violations: Vec<String>,
}

impl TpccLoad {
    pub fn new(run: &TpccRun, clients: &[u32]) -> Self {
        let database = Database::new(run.scale, run.seed).expect("the scale is valid");
        let warehouses = 1..=run.scale.warehouses;
        let generators =
            warehouses.filter_map(|w_id| Generator::new(&database, w_id, Mix::default()));
        Self {
            catalogue: database.catalogue(),
            generators: generators.collect(),
            homes: clients.iter().map(|id| ProcessId(*id)).zip(0..).collect(),
            random: Xoshiro256StarStar::seed_from_u64(run.seed),
            open: BTreeMap::new(),
            terminals: run.terminals,
            period_ns: run.period_ns,
            client_ns: run.client_ns,
            due_ns: BTreeMap::new(),
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

impl TpccLoad {
    /// Returns what was wrong with results.
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// Returns how long a terminal waits until its next transaction is due, in ns.
    fn wait_ns(&mut self, at_ns: u64, terminal: Terminal) -> Option<u64> {
        let (terminals, period_ns) = (u64::from(self.terminals), self.period_ns);
        let apart_ns = period_ns.max(self.client_ns);
        if apart_ns == 0 {
            return None;
        }
        // The terminals of a client, and the clients, begin at different times of a period.
        let spread = u64::from(terminal.index) + u64::from(terminal.process.0) * terminals;
        let offset_ns = spread * 0x9e37_79b9 % apart_ns;
        let due_ns = self.due_ns.entry(terminal).or_insert(at_ns + offset_ns);
        if at_ns < *due_ns {
            return Some(*due_ns - at_ns);
        }
        // A transaction that is late delays all later ones of its terminal.
        *due_ns = at_ns.max(*due_ns) + period_ns;
        None
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
        if let Some(wait_ns) = self.wait_ns(at_ns, terminal) {
            return Next::Wait(wait_ns);
        }
        // Each terminal belongs to one warehouse.
        let home =
            self.homes.get(&terminal.process).map_or(0, |home| home + terminal.index as usize);
        let home = home % self.generators.len();
        let transaction = self.generators[home].transaction(&mut self.random);
        let parts = transaction.parts();
        self.open.insert(terminal, transaction);
        Next::Submit(Kind::Write, parts)
    }

    fn done(&mut self, done: Done) {
        let Some(transaction) = self.open.remove(&done.terminal) else { return };
        if let Some(due_ns) = self.due_ns.get_mut(&done.terminal) {
            *due_ns = (done.at_ns + self.client_ns).max(*due_ns);
        }
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
