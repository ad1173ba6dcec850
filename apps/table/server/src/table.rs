//! A client of a table over a pipe, and what a process of a shard does.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use onepipe::memory::{RegionError, Rights};
use onepipe::{Pipe, ProcessId};
use onepipe_table::{Finished, Layout, OperationId, Outcome, TableClient, TableError};

use crate::requests::PipeRequests;

/// Number of nodes that a client reserves at a time.
const RESERVED: u32 = 64;
/// Time between two checks of whether the pipe has left.
const WAIT: Duration = Duration::from_secs(1);
/// Limit on the time of an operation, unless [`Table::with_limit`] sets another one.
pub const DEFAULT_LIMIT: Duration = Duration::from_secs(30);

/// Makes a process a replica of an empty shard: registers the shard's region.
///
/// # Errors
/// [`RegionError`]: the pipe has a region of this number, or has left.
pub fn serve(pipe: &mut Pipe, layout: Layout, shard: u16) -> Result<(), RegionError> {
    pipe.register(layout.region(shard), layout.empty_shard(), Rights::all())
}

/// A client of a table: each function that is named after an operation waits for its result.
///
/// An operation has several requests, and begins again when another client has changed its bucket
/// meanwhile. A request that is not answered ends after
/// [`ClientOptions::give_up_ns`](onepipe::memory::ClientOptions::give_up_ns) (10 s by default), and
/// an operation as a whole after [`Table::with_limit`] (30 s by default). A replica that has ended
/// is left out from then on.
#[derive(Debug)]
pub struct Table {
    client: TableClient<PipeRequests>,
    /// Operations that have ended while another one was awaited.
    finished: VecDeque<Finished>,
    limit: Duration,
    /// Operations with the times at which the table has first seen them, in order. Those that have
    /// ended are removed when they are the first.
    begun: VecDeque<(OperationId, Instant)>,
    /// The last operation in `begun`, ever.
    last_begun: u64,
}

impl Table {
    /// Creates a client. `replicas` has the processes of each shard, the same for all clients. The
    /// pipe is the table's: what it receives for the application is in [`Table::pipe_mut`].
    pub fn new(pipe: Pipe, layout: Layout, replicas: Vec<Vec<ProcessId>>) -> Self {
        // Clients begin at different replicas.
        let first = pipe.process().index();
        let client = TableClient::over(PipeRequests(pipe), first, layout, replicas, RESERVED);
        Self {
            client,
            finished: VecDeque::new(),
            limit: DEFAULT_LIMIT,
            begun: VecDeque::new(),
            last_begun: 0,
        }
    }

    /// Limits the time of an operation, which ends with [`TableError::TimedOut`] then. For one that
    /// is submitted through [`Table::client_mut`] the time begins with the next call of this table
    /// that waits.
    #[must_use]
    pub fn with_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Returns the pipe, for events and messages. Its requests are the table's alone.
    pub fn pipe_mut(&mut self) -> &mut Pipe {
        &mut self.client.requests_mut().0
    }

    /// Returns the client, which takes operations without waiting: several may be in flight, and
    /// [`Table::finished`] returns their results.
    pub fn client_mut(&mut self) -> &mut TableClient<PipeRequests> {
        &mut self.client
    }

    /// Returns the pipe, and ends the client: the results of operations in flight are lost.
    pub fn into_pipe(self) -> Pipe {
        self.client.into_requests().0
    }

    /// Inserts a key. Returns false if it is in the table.
    ///
    /// # Errors
    /// [`TableError`]; only after [`TableError::InDoubt`], [`TableError::ReplicasDiffer`],
    /// [`TableError::TimedOut`] and [`TableError::Left`] may the key have been inserted.
    pub fn insert(&mut self, key: u64, value: &[u8]) -> Result<bool, TableError> {
        let operation = self.client.insert(key, value)?;
        Ok(self.wait(operation)? == Outcome::Inserted)
    }

    /// Returns the value of a key, if it is in the table.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn look_up(&mut self, key: u64) -> Result<Option<Vec<u8>>, TableError> {
        let operation = self.client.look_up(key);
        match self.wait(operation)? {
            Outcome::Found(value) => Ok(Some(value)),
            _ => Ok(None),
        }
    }

    /// Replaces the value of a key. Returns false if the key is not in the table.
    ///
    /// # Errors
    /// As [`Table::insert`].
    pub fn update(&mut self, key: u64, value: &[u8]) -> Result<bool, TableError> {
        let operation = self.client.update(key, value)?;
        Ok(self.wait(operation)? == Outcome::Updated)
    }

    /// Removes a key. Returns false if it is not in the table.
    ///
    /// # Errors
    /// As [`Table::insert`].
    pub fn remove(&mut self, key: u64) -> Result<bool, TableError> {
        let operation = self.client.delete(key);
        Ok(self.wait(operation)? == Outcome::Deleted)
    }

    /// Waits for at most `timeout` until an operation has ended that was submitted through
    /// [`Table::client_mut`], and returns it.
    ///
    /// # Errors
    /// The pipe has left the fabric.
    pub fn finished(&mut self, timeout: Duration) -> Result<Option<Finished>, TableError> {
        let began = Instant::now();
        loop {
            let until_overdue = self.end_overdue();
            if let Some(finished) = self.poll_finished() {
                return Ok(Some(finished));
            }
            let rest = timeout.saturating_sub(began.elapsed());
            let completed = self.client.requests_mut().completed(rest.min(until_overdue))?;
            let is_over = rest.is_zero() || completed.is_none() && rest <= until_overdue;
            completed.into_iter().for_each(|completed| self.client.on_completed(completed));
            if is_over {
                return Ok(self.poll_finished());
            }
        }
    }

    /// Ends operations whose time is over. Returns the time until the next one's is.
    fn end_overdue(&mut self) -> Duration {
        let now = Instant::now();
        let last = self.client.last_operation().map_or(0, |last| last.0);
        self.begun.extend((self.last_begun + 1..=last).map(|number| (OperationId(number), now)));
        self.last_begun = last;
        while let Some((operation, began)) = self.begun.front().copied() {
            let rest = self.limit.saturating_sub(now.saturating_duration_since(began));
            if self.client.is_in_flight(operation) && !rest.is_zero() {
                return rest;
            }
            self.begun.pop_front();
            let limit_ms = u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX);
            self.client.time_out(operation, limit_ms);
        }
        Duration::MAX
    }

    fn poll_finished(&mut self) -> Option<Finished> {
        self.finished.pop_front().or_else(|| self.client.poll_finished())
    }

    fn wait(&mut self, operation: OperationId) -> Result<Outcome, TableError> {
        loop {
            let until_overdue = self.end_overdue();
            while let Some(finished) = self.client.poll_finished() {
                if finished.operation == operation {
                    return finished.outcome;
                }
                self.finished.push_back(finished);
            }
            if let Some(completed) =
                self.client.requests_mut().completed(WAIT.min(until_overdue))?
            {
                self.client.on_completed(completed);
            }
        }
    }
}
