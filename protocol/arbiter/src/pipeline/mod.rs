//! Allocation by several cores.
//!
//! control plane → commands → dispatcher → `[worker, worker, …]` → batches → dispatcher → control
//! plane
//!
//! The [`Dispatcher`] keeps the demand. Each [`Worker`] allocates the batches in turn: it serves
//! the flows that the previous worker forwards, while that one is still at work, and then the new
//! ones. Drained flows return to the dispatcher with the result of the batch. All messages travel
//! in order between one sender and one receiver, so the driver needs single-producer,
//! single-consumer rings and nothing else. The grants equal those of one [`crate::Allocator`] that
//! executes the same commands (`docs/design/arbiter.md`, "How do several cores give out what one
//! would?").

mod batch;
mod dispatcher;
mod worker;

pub use batch::AllocatedBatch;
pub use dispatcher::{Dispatcher, WorkerCommand, WorkerQueues};
pub use worker::Worker;
