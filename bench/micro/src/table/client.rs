//! The client: calls a table in one of the ways that are compared.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use onepipe::memory::Operation;
use onepipe::{Event, Message, Pipe, ProcessId};
use onepipe_base::Mono;
use onepipe_table::{Finished, OperationId, Outcome as Called, RivalClient, RivalOptions};
use onepipe_table_server::{PipeRequests, Table};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::job::{CALL_LIMIT, Job, KEYS, LEADER, Outcome, Protocol, TIMEOUT};
use super::leader::REPEAT_NS;
use crate::light::monotonic_ns;
use crate::stopwatch::{Measurement, Stopwatch};

/// Number of nodes that a client of a rival reserves at a time, as one of ours does.
const RESERVED: u32 = 64;

/// A client, however it accesses the table.
enum Client {
    Ordered(Table),
    Rival(RivalClient<PipeRequests>),
    /// Insertions are messages to the leader's program.
    Leader(RivalClient<PipeRequests>),
}

/// Calls the table until the time is over. Returns the pipe as well, which has not left.
pub(super) fn run(mut pipe: Pipe, job: &Job) -> Result<(Outcome, Pipe)> {
    wait_for_shard(&mut pipe, job)?;
    let mut client = Client::new(pipe, job);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut stopwatch = Stopwatch::start(job.seconds)?;
    let mut in_flight: BTreeMap<OperationId, (u64, u64)> = BTreeMap::new();
    let is_full = |submitted| job.inserts && submitted >= job.insertions_max();
    loop {
        while stopwatch.is_running()
            && !is_full(stopwatch.submitted())
            && in_flight.len() < job.window as usize
        {
            let key = match job.inserts {
                true => KEYS + stopwatch.submitted(),
                false => random.random_range(0..KEYS),
            };
            let began_ns = stopwatch.submit();
            let operation = client.call(job, key)?;
            in_flight.insert(operation, (key, began_ns));
        }
        if in_flight.is_empty() {
            break;
        }
        let Finished { operation, outcome } = client.finished()?;
        let (key, began_ns) = in_flight.remove(&operation).context("an unknown operation")?;
        let expected = match job.inserts {
            true => Called::Inserted,
            false => Called::Found(job.value(key)),
        };
        let outcome = outcome.context("calling the table")?;
        ensure!(outcome == expected, "key {key}: {outcome:?}");
        stopwatch.complete(began_ns)?;
    }
    let Measurement { operations, seconds, latencies } = stopwatch.finish();
    Ok((Outcome { calls: operations, seconds, latencies }, client.into_pipe()))
}

/// Waits until all replicas have registered the shard.
fn wait_for_shard(pipe: &mut Pipe, job: &Job) -> Result<()> {
    let began = Instant::now();
    let read = [Operation::Read { region: job.layout().region(0), offset: 0, len: 1 }];
    for replica in (0..job.replicas).map(ProcessId) {
        while pipe.execute(&[(replica, &read)])?.iter().any(|(_, answer)| answer.is_err()) {
            ensure!(began.elapsed() < TIMEOUT, "a replica does not register its region");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}

impl Client {
    fn new(pipe: Pipe, job: &Job) -> Self {
        let layout = job.layout();
        if job.protocol == Protocol::Ordered {
            let replicas = (0..job.replicas).map(ProcessId).collect();
            let table = Table::new(pipe, layout, vec![replicas]);
            return Self::Ordered(table.with_limit(CALL_LIMIT));
        }
        let asks_leader = job.protocol == Protocol::Leader;
        let options = RivalOptions { asks_leader, timeout_ns: REPEAT_NS, reserved: RESERVED };
        let rival = RivalClient::over(PipeRequests(pipe), 1, layout, vec![LEADER], options);
        if asks_leader && job.inserts { Self::Leader(rival) } else { Self::Rival(rival) }
    }

    fn call(&mut self, job: &Job, key: u64) -> Result<OperationId> {
        let now = Mono::from_ns(monotonic_ns());
        Ok(match (self, job.inserts) {
            (Self::Ordered(table), true) => table.client_mut().insert(key, &job.value(key))?,
            (Self::Ordered(table), false) => table.client_mut().look_up(key),
            (Self::Rival(rival), true) => rival.insert(now, key, &job.value(key)),
            (Self::Rival(rival), false) => rival.look_up(key),
            (Self::Leader(rival), _) => {
                let operation = rival.insert(now, key, &job.value(key));
                send_to_leader(rival)?;
                operation
            }
        })
    }

    /// Waits until an operation has ended.
    fn finished(&mut self) -> Result<Finished> {
        match self {
            Self::Ordered(table) => table.finished(TIMEOUT)?.context("no operation ends"),
            Self::Rival(rival) => loop {
                if let Some(finished) = rival.poll_finished() {
                    return Ok(finished);
                }
                let completed = rival.requests_mut().completed(TIMEOUT)?;
                rival.on_completed(completed.context("no request completes")?);
            },
            Self::Leader(rival) => {
                let began = Instant::now();
                loop {
                    if let Some(finished) = rival.poll_finished() {
                        return Ok(finished);
                    }
                    ensure!(began.elapsed() < TIMEOUT, "the leader does not reply");
                    let timeout = Duration::from_nanos(REPEAT_NS);
                    match rival.requests_mut().0.recv_timeout(timeout) {
                        Some(Event::Message(message)) => rival.on_leader_message(&message.payload),
                        _ => rival.repeat_to_leaders(Mono::from_ns(monotonic_ns())),
                    }
                    send_to_leader(rival)?;
                }
            }
        }
    }

    fn into_pipe(self) -> Pipe {
        match self {
            Self::Ordered(table) => table.into_pipe(),
            Self::Rival(rival) | Self::Leader(rival) => rival.into_requests().0,
        }
    }
}

fn send_to_leader(rival: &mut RivalClient<PipeRequests>) -> Result<()> {
    while let Some((to, payload)) = rival.poll_leader_message() {
        let pipe = &mut rival.requests_mut().0;
        pipe.scatter(&[Message { to, payload: &payload }]).context("asking the leader")?;
    }
    Ok(())
}
