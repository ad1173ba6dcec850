//! Tests of whole transactions on several warehouses.

mod bytes;
mod load;
mod mutations;
mod profiles;
mod rates;
mod runs;

use alloc::vec::Vec;

use onepipe_base::Timestamp;
use onepipe_transaction::State;
use rand_xoshiro::Xoshiro256StarStar;

use crate::random;
use crate::{
    AssembleError, Database, Generator, Mix, Outcome, Scale, Transaction, Violation, Warehouse,
};

const SCALE: Scale = Scale { warehouses: 4, districts: 3, customers: 90, items: 200 };

/// All warehouses of a database, each one shard with one replica.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shards {
    database: Database,
    warehouses: Vec<Warehouse>,
    at_ns: u64,
}

impl Shards {
    fn new(scale: Scale, seed: u64) -> Self {
        let database = Database::new(scale, seed).expect("the scale is valid");
        let catalogue = database.catalogue();
        let w_ids = 1..=scale.warehouses;
        let warehouses =
            w_ids.map(|w_id| database.warehouse(w_id, catalogue.clone()).expect("it exists"));
        Self { database, warehouses: warehouses.collect(), at_ns: 1 }
    }

    /// Executes a transaction at all its shards, at the next timestamp.
    fn run(&mut self, transaction: &Transaction) -> Result<Outcome, AssembleError> {
        self.at_ns += 1;
        let mut results = Vec::new();
        for (shard, part) in transaction.parts() {
            let mut bytes = Vec::new();
            if let Some(warehouse) = self.warehouses.get_mut(usize::from(shard)) {
                warehouse.execute(Timestamp::from_ns(self.at_ns), &part, &mut bytes);
            }
            results.push((shard, bytes));
        }
        let results: Vec<_> = results.iter().map(|(shard, bytes)| (*shard, &bytes[..])).collect();
        transaction.assemble(&results)
    }

    /// Executes `count` transactions of terminals of all warehouses.
    fn run_random(&mut self, random: &mut Xoshiro256StarStar, count: u32) {
        for _ in 0..count {
            let w_id = random::within(random, 1, self.database.scale().warehouses.into()) as u16;
            let transaction = self.terminal(w_id, Mix::default()).transaction(random);
            self.run(&transaction).expect("generated inputs are valid");
        }
    }

    fn terminal(&self, w_id: u16, mix: Mix) -> Generator {
        Generator::new(&self.database, w_id, mix).expect("the warehouse exists")
    }

    fn check(&self) -> Result<(), Violation> {
        crate::check(&self.warehouses.iter().collect::<Vec<_>>())
    }

    fn digests(&self) -> Vec<u64> {
        self.warehouses.iter().map(State::digest).collect()
    }
}
