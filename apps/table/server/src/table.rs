//! A client of a table over a pipe, and what a process of a shard does.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use onepipe::memory::{RegionError, Rights};
use onepipe::{Pipe, ProcessId};
use onepipe_table::{Finished, Layout, OperationId, Outcome, TableClient, TableError};

use crate::requests::PipeRequests;

/// Number of nodes that a client reserves at a time.
const RESERVED: u32 = 64;
/// Time between two checks of whether the pipe has left. Requests end by themselves before.
const WAIT: Duration = Duration::from_secs(1);

/// Makes a process a replica of an empty shard: registers the shard's region.
///
/// # Errors
/// [`RegionError`]: the pipe has a region of this number, or has left.
pub fn serve(pipe: &mut Pipe, layout: Layout, shard: u16) -> Result<(), RegionError> {
    pipe.register(layout.region(shard), layout.empty_shard(), Rights::all())
}

/// A client of a table: each function that is named after an operation waits for its result.
///
/// Requests that are not answered end after
/// [`ClientOptions::give_up_ns`](onepipe::memory::ClientOptions::give_up_ns) (10 s by default), so
/// the waits are bounded. A replica that has ended is left out from then on.
#[derive(Debug)]
pub struct Table {
    client: TableClient<PipeRequests>,
    /// Operations that have ended while another one was awaited.
    finished: VecDeque<Finished>,
}

impl Table {
    /// Creates a client. `replicas` has the processes of each shard, the same for all clients. The
    /// pipe is the table's: what it receives for the application is in [`Table::pipe_mut`].
    pub fn new(pipe: Pipe, layout: Layout, replicas: Vec<Vec<ProcessId>>) -> Self {
        // Clients begin at different replicas.
        let first = pipe.process().index();
        let client = TableClient::over(PipeRequests(pipe), first, layout, replicas, RESERVED);
        Self { client, finished: VecDeque::new() }
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
    /// [`TableError`]; only after [`TableError::InDoubt`] and [`TableError::Left`] may the key have
    /// been inserted.
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
            if let Some(finished) = self.poll_finished() {
                return Ok(Some(finished));
            }
            let rest = timeout.saturating_sub(began.elapsed());
            let completed = self.client.requests_mut().completed(rest)?;
            let is_over = completed.is_none() || rest.is_zero();
            completed.into_iter().for_each(|completed| self.client.on_completed(completed));
            if is_over {
                return Ok(self.poll_finished());
            }
        }
    }

    fn poll_finished(&mut self) -> Option<Finished> {
        self.finished.pop_front().or_else(|| self.client.poll_finished())
    }

    fn wait(&mut self, operation: OperationId) -> Result<Outcome, TableError> {
        loop {
            while let Some(finished) = self.client.poll_finished() {
                if finished.operation == operation {
                    return finished.outcome;
                }
                self.finished.push_back(finished);
            }
            if let Some(completed) = self.client.requests_mut().completed(WAIT)? {
                self.client.on_completed(completed);
            }
        }
    }
}
