//! Requests of a table that go through a pipe.

use std::time::Duration;

use onepipe::memory::{Completed, Operation, RequestError, RequestId};
use onepipe::{Pipe, ProcessId};
use onepipe_table::{Requests, TableError};

/// Requests through a pipe, whose requests are those of a table alone.
#[derive(Debug)]
pub struct PipeRequests(pub Pipe);

impl PipeRequests {
    /// Waits for at most `timeout` until a request has completed, and returns it.
    ///
    /// # Errors
    /// The pipe has left the fabric.
    pub fn completed(&mut self, timeout: Duration) -> Result<Option<Completed>, TableError> {
        match self.0.completed(timeout) {
            None if self.0.memory_stats().is_none() => Err(TableError::Left),
            completed => Ok(completed),
        }
    }
}

fn table_error(error: RequestError) -> TableError {
    match error {
        RequestError::Left => TableError::Left,
        _ => TableError::Busy,
    }
}

impl Requests for PipeRequests {
    fn submit(
        &mut self,
        batches: &[(ProcessId, &[Operation<'_>])],
    ) -> Result<RequestId, TableError> {
        self.0.request(batches).map_err(table_error)
    }

    fn submit_in_owner_order(
        &mut self,
        owner: ProcessId,
        batch: &[Operation<'_>],
    ) -> Result<RequestId, TableError> {
        self.0.request_in_owner_order(owner, batch).map_err(table_error)
    }
}
