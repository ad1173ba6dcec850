//! `MULTI`/`EXEC` of four keys on three shards beside transactions of etcd.
//!
//! One load generator drives both: as many connections, each with one transaction at a time. etcd's
//! writes are on disk before its reply, and so are ours with `--data`. In memory, etcd has its
//! files in a file system without a disk, as it has no other way.

use anyhow::{Context, Result};
use etcd_client::{Client, KvClient, Txn, TxnOp};

use super::KvOptions;
use super::closed_loop::{Connection, drive, runtime};
use super::connections::MultiSets;
use super::report::KvReport;
use super::rounds::{Rounds, Trial};
use super::server::Server;
use super::workload::Workload;
use crate::Progress;

const ABOUT: &str = "transactions of 4 writes to random keys: MULTI/EXEC on 3 shards of onepipe kv \
                     serve, beside a transaction of etcd (one node); one closed loop for both, CPU \
                     time of the servers; the compared side stands at the end of a line";

/// Number of keys of a transaction.
const KEYS: usize = 4;

const ETCD: &str = "etcd, on disk";
const ETCD_IN_MEMORY: &str = "etcd, files in memory";

/// A side of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Onepipe { replicas: u16, is_durable: bool },
    Etcd { is_in_memory: bool },
}

const SIDES: [Side; 5] = [
    Side::Onepipe { replicas: 1, is_durable: true },
    Side::Etcd { is_in_memory: false },
    Side::Onepipe { replicas: 3, is_durable: true },
    Side::Onepipe { replicas: 1, is_durable: false },
    Side::Etcd { is_in_memory: true },
];

impl Side {
    fn name(self) -> String {
        match self {
            Self::Onepipe { replicas, is_durable: false } => {
                format!("onepipe, 3 shards x {replicas}, in memory")
            }
            Self::Onepipe { replicas, is_durable: true } => {
                format!("onepipe, 3 shards x {replicas}, fsync always")
            }
            Self::Etcd { is_in_memory: false } => ETCD.into(),
            Self::Etcd { is_in_memory: true } => ETCD_IN_MEMORY.into(),
        }
    }

    fn yardstick(self) -> Option<&'static str> {
        match self {
            Self::Onepipe { is_durable: true, .. } => Some(ETCD),
            Self::Onepipe { is_durable: false, .. } => Some(ETCD_IN_MEMORY),
            Self::Etcd { .. } => None,
        }
    }

    fn start(self, options: &KvOptions) -> Result<Server> {
        match self {
            Self::Onepipe { replicas, is_durable } => {
                Server::onepipe(&options.program, replicas, is_durable)
            }
            Self::Etcd { is_in_memory } => Server::etcd(is_in_memory),
        }
    }
}

/// Runs the benchmark.
pub(super) fn run(options: &KvOptions, mut progress: impl FnMut(Progress<'_>)) -> Result<KvReport> {
    let mut rounds = Rounds::default();
    let total = options.runs * SIDES.len() * options.concurrency.len();
    let mut done = 0;
    for _ in 0..options.runs {
        for side in SIDES {
            let name = side.name();
            let server = side.start(options).with_context(|| format!("starting {name}"))?;
            for &connections in &options.concurrency {
                let load = format!("{connections} connections");
                let case = format!("{name}: {load}");
                progress(Progress { case: &case, done, total });
                done += 1;
                let trial = runtime()?.block_on(measure(options, side, connections, &server));
                let trial = trial.with_context(|| case.clone())?;
                rounds.add(&load, (&name, side.yardstick()), Ok(trial));
            }
            server.stop().with_context(|| format!("stopping {name}"))?;
        }
    }
    Ok(rounds.report("kv etcd", ABOUT, options.runs))
}

async fn measure(
    options: &KvOptions,
    side: Side,
    connections: usize,
    server: &Server,
) -> Result<Trial> {
    let workload = |seed| Workload::new(seed, options.keys, options.value_bytes);
    let seeds = 0..connections as u64;
    let cpu_seconds = || server.cpu_seconds();
    match side {
        Side::Onepipe { .. } => {
            let mut clients = Vec::new();
            for seed in seeds {
                clients.push(MultiSets::connect(server.port(), workload(seed), KEYS).await?);
            }
            drive(clients, options.seconds, cpu_seconds).await
        }
        Side::Etcd { .. } => {
            let mut clients = Vec::new();
            for seed in seeds {
                clients.push(EtcdPuts::connect(server.port(), workload(seed)).await?);
            }
            drive(clients, options.seconds, cpu_seconds).await
        }
    }
}

/// Executes transactions of etcd that put a value under several random keys.
struct EtcdPuts {
    client: KvClient,
    workload: Workload,
}

impl EtcdPuts {
    /// Connects to a server of this machine.
    async fn connect(port: u16, workload: Workload) -> Result<Self> {
        let client = Client::connect([format!("127.0.0.1:{port}")], None).await;
        let client = client.with_context(|| format!("connecting to etcd at port {port}"))?;
        Ok(Self { client: client.kv_client(), workload })
    }
}

impl Connection for EtcdPuts {
    async fn transaction(&mut self) -> Result<()> {
        // etcd refuses a transaction that puts a key twice.
        let mut keys: Vec<Vec<u8>> = Vec::with_capacity(KEYS);
        while keys.len() < KEYS {
            let key = self.workload.key();
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let put = |key: Vec<u8>| TxnOp::put(key, self.workload.value(), None);
        let puts: Vec<TxnOp> = keys.into_iter().map(put).collect();
        let response = self.client.txn(Txn::new().and_then(puts)).await?;
        anyhow::ensure!(response.succeeded(), "etcd did not execute the transaction");
        Ok(())
    }
}
