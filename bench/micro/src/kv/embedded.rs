//! The store as a library of this process, without a network and without the protocol of Redis.
//!
//! There is no other embedded store whose transactions are replicated and ordered: a hash map under
//! a lock would do a small part of the work, and in one process only. So the yardstick is what a
//! program would use instead on one machine: Redis over a Unix socket, with transactions pipelined
//! on one connection. The CPU time of both sides is that of clients and servers together.

use anyhow::{Context, Result, ensure};
use onepipe_kv::{Command, Value};
use onepipe_kv_server::{Backend, Cluster, ClusterOptions, NodeHandle, Replies};
use onepipe_transaction::{ClientOptions, ReadMode};

use super::report::KvReport;
use super::rounds::{Rounds, Trial};
use super::server::{Server, new_fabric};
use super::workload::{Workload, multi, resp};
use super::{KvOptions, in_process, redis_socket};
use crate::Progress;

const ABOUT: &str = "transactions of the library in this process, on 3 shards over shared memory, \
                     beside MULTI/EXEC pipelined to redis-server over a Unix socket; 32 \
                     transactions in flight; CPU time of clients and servers together";

/// Number of transactions in flight.
const IN_FLIGHT: usize = 32;
/// Share of writes while the number of operations changes, in percent: as in figure 14c of 1Pipe.
const WRITE_PERCENT: u8 = 5;
/// Number of operations while the share of writes changes: as in figure 14b.
const OPERATIONS: usize = 2;

const REDIS: &str = "redis-server, Unix socket";

/// Replicas of each shard of our sides.
const REPLICAS: [u16; 2] = [1, 3];

/// A load: the number of operations of a transaction, and the share of transactions that write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Load {
    operations: usize,
    write_percent: u8,
}

impl Load {
    fn name(self) -> String {
        format!("{} operations, {} % writes", self.operations, self.write_percent)
    }

    /// Returns all loads that the options ask for, each once.
    fn all(options: &KvOptions) -> Vec<Self> {
        let of_operations = options.operations.iter();
        let of_operations =
            of_operations.map(|&operations| Self { operations, write_percent: WRITE_PERCENT });
        let of_shares = options.write_percents.iter();
        let of_shares =
            of_shares.map(|&write_percent| Self { operations: OPERATIONS, write_percent });
        let mut loads = Vec::new();
        for load in of_operations.chain(of_shares) {
            if !loads.contains(&load) {
                loads.push(load);
            }
        }
        loads
    }
}

/// Runs the benchmark.
pub(super) fn run(options: &KvOptions, mut progress: impl FnMut(Progress<'_>)) -> Result<KvReport> {
    let loads = Load::all(options);
    let mut rounds = Rounds::default();
    let total = options.runs * (REPLICAS.len() + 1) * loads.len();
    let mut done = 0;
    let mut begin = |name: &str, load: Load| {
        progress(Progress { case: &format!("{name}: {}", load.name()), done, total });
        done += 1;
    };
    for round in 0..options.runs {
        for replicas in REPLICAS {
            let name = format!("onepipe, 3 shards x {replicas}");
            let cluster = start(replicas).with_context(|| format!("starting {name}"))?;
            fill(&cluster.handle(), options)?;
            for &load in &loads {
                begin(&name, load);
                let trial = measure(&cluster.handle(), options, load, round as u64);
                let trial = trial.with_context(|| format!("{name}: {}", load.name()))?;
                rounds.add(&load.name(), (&name, Some(REDIS)), Ok(trial));
            }
            let disagreements = cluster.handle().stats().disagreements;
            ensure!(disagreements == 0, "{disagreements} replies differ between replicas");
        }
        let server = Server::redis(false)?;
        fill_redis(&server, options)?;
        for &load in &loads {
            begin(REDIS, load);
            let trial = measure_redis(&server, options, load, round as u64);
            let trial = trial.with_context(|| format!("{REDIS}: {}", load.name()))?;
            rounds.add(&load.name(), (REDIS, None), Ok(trial));
        }
        server.stop()?;
    }
    Ok(rounds.report("kv embedded", ABOUT, options.runs))
}

fn start(replicas: u16) -> Result<Cluster> {
    let options = ClusterOptions {
        fabric: new_fabric(),
        shards: 3,
        replicas,
        storage: None,
        reads: ReadMode::Strict,
        client: ClientOptions::default(),
        threads: 0,
    };
    Ok(Cluster::start(&options)?)
}

fn command(words: &[&[u8]]) -> Result<Command> {
    let words: Vec<Vec<u8>> = words.iter().map(|word| word.to_vec()).collect();
    Command::parse(&words).map_err(|error| anyhow::anyhow!("{error}"))
}

/// Sets all keys, so that each read finds a value.
fn fill(node: &NodeHandle, options: &KvOptions) -> Result<()> {
    const BATCH: u64 = 100;
    let value = vec![b'v'; options.value_bytes];
    for first in (0..options.keys).step_by(BATCH as usize) {
        let numbers = first..options.keys.min(first + BATCH);
        let set = |number| command(&[b"SET", &Workload::key_of(number), &value]);
        let commands = numbers.map(set).collect::<Result<Vec<_>>>()?;
        let (finished, replies) = std::sync::mpsc::channel();
        node.begin(commands, Box::new(move |replies| drop(finished.send(replies))));
        replies.recv().context("the store has ended")??;
    }
    Ok(())
}

/// Measures the library under a load; reads are strict.
fn measure(node: &NodeHandle, options: &KvOptions, load: Load, seed: u64) -> Result<Trial> {
    let mut workload = Workload::new(seed, options.keys, options.value_bytes);
    let value = workload.value().to_vec();
    let begin = |finish: in_process::Finish<Replies>| {
        let is_write = workload.is_chosen(load.write_percent);
        let next = |_| {
            let key = workload.key();
            match is_write {
                true => command(&[b"SET", &key, &value]),
                false => command(&[b"GET", &key]),
            }
        };
        let commands = (0..load.operations).map(next).collect::<Result<Vec<_>>>()?;
        node.begin(commands, Box::new(|replies| finish.with(replies)));
        Ok(is_write)
    };
    let check = |is_write: bool, replies: Replies| {
        let replies = replies?;
        let is_right = |reply: &Value| match reply {
            Value::Ok => is_write,
            Value::Bulk(found) => !is_write && *found == value,
            _ => false,
        };
        let is_complete = replies.len() == load.operations;
        ensure!(is_complete && replies.iter().all(is_right), "the replies are {replies:?}");
        Ok(())
    };
    in_process::drive(IN_FLIGHT, options.seconds, begin, check)
}

fn fill_redis(server: &Server, options: &KvOptions) -> Result<()> {
    let mut number = 0..options.keys;
    let value = vec![b'v'; options.value_bytes];
    let mut stream = std::os::unix::net::UnixStream::connect(server.socket())?;
    while let Some(first) = number.next() {
        use std::io::{Read, Write};
        let numbers: Vec<u64> = std::iter::once(first).chain(number.by_ref().take(999)).collect();
        let set = |number: &u64| resp(&[b"SET", &Workload::key_of(*number), &value]);
        let bytes: Vec<u8> = numbers.iter().flat_map(set).collect();
        stream.write_all(&bytes)?;
        let mut replies = vec![0; 5 * numbers.len()];
        stream.read_exact(&mut replies)?;
        ensure!(replies == b"+OK\r\n".repeat(numbers.len()), "Redis refuses a SET");
    }
    Ok(())
}

/// Measures Redis under the same load.
fn measure_redis(server: &Server, options: &KvOptions, load: Load, seed: u64) -> Result<Trial> {
    let mut workload = Workload::new(seed, options.keys, options.value_bytes);
    let value = workload.value().to_vec();
    let found = [format!("${}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat();
    let next = || {
        let is_write = workload.is_chosen(load.write_percent);
        let next = |_| {
            let key = workload.key();
            match is_write {
                true => resp(&[b"SET", &key, &value]),
                false => resp(&[b"GET", &key]),
            }
        };
        let commands: Vec<Vec<u8>> = (0..load.operations).map(next).collect();
        let reply: &[u8] = if is_write { b"+OK\r\n" } else { &found };
        multi(&commands, &reply.repeat(load.operations))
    };
    let cpu_seconds = || server.cpu_seconds();
    redis_socket::drive(&server.socket(), IN_FLIGHT, options.seconds, next, cpu_seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_load_comes_once() {
        let options = KvOptions {
            operations: vec![2, 8],
            write_percents: vec![5, 50],
            ..KvOptions::new("onepipe".into())
        };
        let loads: Vec<String> = Load::all(&options).into_iter().map(Load::name).collect();
        let expected =
            ["2 operations, 5 % writes", "8 operations, 5 % writes", "2 operations, 50 % writes"];
        assert_eq!(loads, expected);
    }
}
