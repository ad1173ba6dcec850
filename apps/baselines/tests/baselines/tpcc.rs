//! TPC-C on the protocols with concurrency control: consistency conditions, and equal replicas.

use crate::model;

use model::{Faults, Load, Model, Random, Setup};
use onepipe_baselines::{FarmReads, Finished, Part, Protocol};
use onepipe_tpcc::{Database, Generator, Mix, Scale, Transaction, Warehouse, check};
use std::collections::BTreeMap;

const WAREHOUSES: u16 = 2;
const REPLICAS: u16 = 3;

struct TpccLoad {
    generators: Vec<Generator>,
    open: BTreeMap<u32, Transaction>,
    assembled: u64,
}

impl Load for TpccLoad {
    fn next(&mut self, client: u32, random: &mut Random) -> Vec<Part> {
        let home = client as usize % self.generators.len();
        let transaction = self.generators[home].transaction(&mut random.0);
        let part = |(shard, bytes)| Part::new::<Warehouse>(shard, bytes);
        let parts = transaction.parts().into_iter().map(part).collect();
        self.open.insert(client, transaction);
        parts
    }

    fn done(&mut self, client: u32, finished: Finished) {
        let transaction = self.open.remove(&client).expect("a transaction ends once");
        let results: Vec<(u16, &[u8])> =
            finished.results.iter().map(|(shard, bytes)| (*shard, &bytes[..])).collect();
        transaction.assemble(&results).expect("results of all shards");
        self.assembled += 1;
    }
}

/// Runs New-Order and Payment under a protocol. Returns what is wrong at the end.
fn run(protocol: Protocol, seed: u64) -> Result<(), String> {
    let scale = Scale { warehouses: WAREHOUSES, districts: 2, customers: 30, items: 100 };
    let database = Database::new(scale, seed).expect("a valid scale");
    let catalogue = database.catalogue();
    let warehouse = |shard: u16| -> Warehouse {
        database.warehouse(shard + 1, catalogue.clone()).expect("each shard has a warehouse")
    };
    let (shards, replicas) = (WAREHOUSES, REPLICAS);
    let faults = Faults { lost: 3, duplicated: 3 };
    let mut model =
        Model::new(Setup { protocol, shards, replicas, clients: 6, faults, seed }, warehouse);
    let mix = Mix { remote_line_percent: 20, remote_payment_percent: 50, ..Mix::default() };
    let generators = (1..=WAREHOUSES).filter_map(|w_id| Generator::new(&database, w_id, mix));
    let generators = generators.collect();
    let mut load = TpccLoad { generators, open: BTreeMap::new(), assembled: 0 };
    model.run(200, &mut load);
    assert_eq!(load.assembled, 200);
    model.check_end()?;
    let primaries = (0..WAREHOUSES).map(|shard| usize::from(shard * REPLICAS));
    let primaries: Vec<&Warehouse> = primaries.map(|id| model.servers[id].state()).collect();
    check(&primaries).map_err(|violation| violation.to_string())
}

#[test]
fn warehouses_are_consistent_and_replicas_equal() {
    let farm = Protocol::Farm(FarmReads::Validated);
    for protocol in [Protocol::TwoPhaseLocking, Protocol::Optimistic, farm] {
        for seed in 0..4 {
            assert_eq!(run(protocol, seed), Ok(()), "{protocol:?}, seed {seed}");
        }
    }
}

#[test]
fn the_checks_catch_replicas_without_an_order() {
    let found = (0..4).find_map(|seed| run(Protocol::NonTx, seed).err());
    let what = found.expect("replicas execute in different orders");
    assert!(what.contains("differ"), "{what}");
}
