//! TPC-C's New-Order and Payment on this machine: all replicas are nodes over shared memory.

use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::{Context, Result, ensure};
use onepipe_base::Timestamp;
use onepipe_kv_server::{Cluster, ClusterOptions, NodeHandle, Results};
use onepipe_tpcc::{Catalogue, Database, Generator, Mix, Scale, Transaction, Warehouse, check};
use onepipe_transaction::{ClientOptions, Exact, ReadMode, State};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::report::KvReport;
use super::rounds::{Rounds, Trial};
use super::server::new_fabric;
use super::{KvOptions, in_process};
use crate::Progress;

const ABOUT: &str = "TPC-C's New-Order and Payment, half each, in memory; a shard for each \
                     warehouse; all nodes in this process over shared memory; the terminals keep a \
                     number of transactions in flight; CPU time of nodes and terminals together";

/// Replicas of each warehouse: three as in 1Pipe section 7.3.2, and one, as the yardstick that
/// shows what replication costs.
const REPLICAS: [u16; 2] = [3, 1];

/// Seed of the rows after the load.
const SEED: u64 = 1;

fn side(warehouses: u16, replicas: u16) -> String {
    format!("{warehouses} warehouses x {replicas}")
}

/// Runs the benchmark, and checks the data after each run.
pub(super) fn run(options: &KvOptions, mut progress: impl FnMut(Progress<'_>)) -> Result<KvReport> {
    let database = Database::new(scale(options), SEED)?;
    let total = options.runs * REPLICAS.len() * options.concurrency.len();
    progress(Progress { case: "loading the tables", done: 0, total });
    let loaded = load(&database)?;
    let yardstick = side(options.warehouses, 1);
    let mut rounds = Rounds::default();
    let mut transactions = 0;
    let mut done = 0;
    for round in 0..options.runs {
        for replicas in REPLICAS {
            let name = side(options.warehouses, replicas);
            let run = Run::start(&loaded, replicas).with_context(|| format!("starting {name}"))?;
            for &in_flight in &options.concurrency {
                let load = format!("{in_flight} transactions in flight");
                progress(Progress { case: &format!("{name}: {load}"), done, total });
                done += 1;
                let trial = run.measure(&database, options.seconds, (in_flight, round as u64));
                let trial = trial.with_context(|| format!("{name}: {load}"))?;
                let yardstick = (replicas > 1).then_some(yardstick.as_str());
                rounds.add(&load, (&name, yardstick), Ok(trial));
            }
            transactions += run.finish().with_context(|| format!("after the run of {name}"))?;
        }
    }
    let mut report = rounds.report("kv tpcc", ABOUT, options.runs);
    report.notes.push(format!(
        "checked after each run, {transactions} transactions in all: consistency conditions 1 to \
         4, 8 and 9, the stock, and equal digests of all replicas"
    ));
    Ok(report)
}

fn scale(options: &KvOptions) -> Scale {
    let of = |size: u32| (size * options.scale_percent / 100).max(1);
    let full = Scale::default();
    Scale {
        warehouses: options.warehouses,
        customers: of(full.customers),
        items: of(full.items),
        ..full
    }
}

/// Returns all warehouses after the load.
fn load(database: &Database) -> Result<Vec<Warehouse>> {
    let catalogue: Arc<Catalogue> = database.catalogue();
    let warehouse = |w_id| database.warehouse(w_id, Arc::clone(&catalogue));
    let w_ids = 1..=database.scale().warehouses;
    w_ids.map(|w_id| warehouse(w_id).context("the database has the warehouse")).collect()
}

/// A warehouse that the benchmark can read after the run, while a node holds it. Nothing else locks
/// it before, so the lock costs little beside a transaction.
#[derive(Clone)]
struct Shared(Arc<Mutex<Warehouse>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Warehouse> {
        self.0.lock().expect("no thread panics while it holds the lock")
    }
}

impl State for Shared {
    fn execute(&mut self, at: Timestamp, part: &[u8], results: &mut Vec<u8>) {
        self.lock().execute(at, part, results);
    }

    fn read(&self, at: Timestamp, part: &[u8], results: &mut Vec<u8>) -> Exact {
        self.lock().read(at, part, results)
    }

    fn digest(&self) -> u64 {
        self.lock().digest()
    }

    fn save(&self, bytes: &mut Vec<u8>) {
        self.lock().save(bytes);
    }

    fn load(&mut self, bytes: &[u8]) -> bool {
        self.lock().load(bytes)
    }
}

/// A database that runs.
struct Run {
    cluster: Cluster,
    /// By shard, then by replica.
    replicas: Vec<Vec<Shared>>,
}

impl Run {
    fn start(loaded: &[Warehouse], replicas: u16) -> Result<Self> {
        let copy = |warehouse: &Warehouse| Shared(Arc::new(Mutex::new(warehouse.clone())));
        let copies = |warehouse| (0..replicas).map(|_| copy(warehouse)).collect();
        let states: Vec<Vec<Shared>> = loaded.iter().map(copies).collect();
        let options = ClusterOptions {
            fabric: new_fabric(),
            shards: loaded.len() as u16,
            replicas,
            storage: None,
            reads: ReadMode::Strict,
            client: ClientOptions::default(),
            threads: 0,
        };
        // Each node of a shard takes the next copy.
        let left = Arc::new(Mutex::new(states.clone()));
        let initial = move |shard: u16| {
            let mut left = left.lock().expect("no thread panics while it holds the lock");
            left[usize::from(shard)].pop().expect("there is a copy for each replica")
        };
        let cluster = Cluster::start_states(&options, initial)?;
        Ok(Self { cluster, replicas: states })
    }

    /// Measures with a number of transactions in flight, of terminals of all warehouses in turn.
    fn measure(
        &self,
        database: &Database,
        seconds: f64,
        (in_flight, seed): (usize, u64),
    ) -> Result<Trial> {
        let terminals = terminals(database)?;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let node: NodeHandle = self.cluster.handle();
        let begin = |finish: in_process::Finish<Results>| {
            let terminal = &terminals[(random.next_u64() % terminals.len() as u64) as usize];
            let transaction = terminal.transaction(&mut random);
            node.execute(false, transaction.parts(), Box::new(|results| finish.with(results)));
            Ok(transaction)
        };
        let check = |transaction: Transaction, results: Results| {
            let results = results?;
            let results: Vec<(u16, &[u8])> =
                results.iter().map(|(shard, bytes)| (*shard, bytes.as_slice())).collect();
            // A rolled back order has an outcome, too: the specification counts it.
            transaction.assemble(&results)?;
            Ok(())
        };
        in_process::drive(in_flight, seconds, begin, check)
    }

    /// Ends all nodes, and checks what they hold. Returns the number of transactions.
    fn finish(self) -> Result<u64> {
        let node = self.cluster.handle();
        drop(self.cluster);
        let stats = node.stats();
        ensure!(stats.disagreements == 0, "{} replies differ", stats.disagreements);
        for (shard, replicas) in self.replicas.iter().enumerate() {
            let digests: Vec<u64> = replicas.iter().map(State::digest).collect();
            let is_equal = digests.iter().all(|digest| *digest == digests[0]);
            ensure!(is_equal, "the replicas of shard {shard} have the digests {digests:x?}");
        }
        let locked: Vec<_> = self.replicas.iter().map(|replicas| replicas[0].lock()).collect();
        check(&locked.iter().map(|warehouse| &**warehouse).collect::<Vec<_>>())?;
        Ok(stats.transactions)
    }
}

fn terminals(database: &Database) -> Result<Vec<Generator>> {
    let of = |w_id| Generator::new(database, w_id, Mix::default());
    let w_ids = 1..=database.scale().warehouses;
    w_ids.map(|w_id| of(w_id).context("the database has the warehouse")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiny() -> (KvOptions, Database) {
        let options = KvOptions {
            runs: 1,
            seconds: 0.1,
            concurrency: vec![4],
            warehouses: 2,
            scale_percent: 1,
            ..KvOptions::new("onepipe".into())
        };
        let database = Database::new(scale(&options), SEED).expect("the sizes are in range");
        (options, database)
    }

    #[test]
    fn runs_and_checks_a_small_database() {
        let (options, _) = tiny();
        let report = run(&options, |_| {}).expect("the conditions hold");
        let sides = &report.loads[0].sides;
        assert_eq!(sides.len(), 2, "{report}");
        assert!(sides.iter().all(|side| side.rate.is_some_and(|rate| rate > 0.0)), "{report}");
        assert_eq!(sides[0].yardstick.as_ref(), Some(&sides[1].side));
    }

    /// A replica that has executed something else is found.
    #[test]
    fn differing_replica_is_an_error() {
        let (_, database) = tiny();
        let loaded = load(&database).expect("the warehouses exist");
        let run = Run::start(&loaded, 2).expect("the fabric is new");
        let terminal = Generator::new(&database, 1, Mix::default()).expect("warehouse 1 exists");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let part = Transaction::Payment(terminal.payment(&mut random)).to_bytes();
        run.replicas[0][1].lock().execute(Timestamp::from_ns(1), &part, &mut Vec::new());
        let error = run.finish().expect_err("the replicas differ").to_string();
        assert!(error.contains("shard 0"), "{error}");
    }
}
