//! What a client of a table sends its requests through.

use onepipe_base::ProcessId;
use onepipe_memory::{MemoryClient, Operation, RequestId};

use crate::outcome::TableError;

/// Sends the requests of a table's client to owners of memory: a [`MemoryClient`], or a pipe, which
/// has one of its own.
pub trait Requests {
    /// Submits a request in the total order, as [`MemoryClient::submit`].
    ///
    /// # Errors
    /// The request cannot be submitted.
    fn submit(
        &mut self,
        batches: &[(ProcessId, &[Operation<'_>])],
    ) -> Result<RequestId, TableError>;

    /// Submits a batch in the order of its owner, as [`MemoryClient::submit_in_owner_order`].
    ///
    /// # Errors
    /// The batch cannot be submitted.
    fn submit_in_owner_order(
        &mut self,
        owner: ProcessId,
        batch: &[Operation<'_>],
    ) -> Result<RequestId, TableError>;
}

impl Requests for MemoryClient {
    fn submit(
        &mut self,
        batches: &[(ProcessId, &[Operation<'_>])],
    ) -> Result<RequestId, TableError> {
        MemoryClient::submit(self, batches).map_err(|_| TableError::Busy)
    }

    fn submit_in_owner_order(
        &mut self,
        owner: ProcessId,
        batch: &[Operation<'_>],
    ) -> Result<RequestId, TableError> {
        MemoryClient::submit_in_owner_order(self, owner, batch).map_err(|_| TableError::Busy)
    }
}
