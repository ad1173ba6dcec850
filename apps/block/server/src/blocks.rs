//! What stores the blocks.

use onepipe_block::{BlockSizes, Command, ErrorCode, Failure, Outcome};

/// A device that executes commands of all its clients.
///
/// A command is complete when its [`Completion`] is called, on any thread, also within
/// [`begin`](Self::begin). Commands may be executed in any order; a client that needs an order
/// waits for replies.
pub trait Blocks: Send + Sync + 'static {
    /// Returns the size in bytes, which never changes.
    fn size(&self) -> u64;

    /// Returns whether writes are refused.
    fn is_read_only(&self) -> bool;

    /// Returns whether a flush makes every write durable that was completed before it began,
    /// whatever connection the write came by, and a read sees every such write. Then clients may
    /// use several connections at once.
    fn is_flush_shared(&self) -> bool;

    /// Returns whether the device executes [`Command::Status`].
    fn knows_allocation(&self) -> bool;

    /// Returns the units of requests.
    fn block_sizes(&self) -> BlockSizes;

    /// Begins to execute a command, which lies within the device and is aligned. Does not wait for
    /// a disk or a network.
    fn begin(&self, command: Command, completion: Completion);
}

/// Receives the result of one command.
pub struct Completion(Option<Box<dyn FnOnce(Reply) + Send>>);

/// The result of a command.
pub type Reply = Result<Outcome, Failure>;

impl Completion {
    /// Calls `on_reply` with the result.
    pub fn new(on_reply: impl FnOnce(Reply) + Send + 'static) -> Completion {
        Completion(Some(Box::new(on_reply)))
    }

    /// Reports the result.
    pub fn complete(mut self, reply: Reply) {
        self.report(reply);
    }

    fn report(&mut self, reply: Reply) {
        if let Some(on_reply) = self.0.take() {
            on_reply(reply);
        }
    }
}

/// A command that is dropped, by a thread that panicked for example, has failed.
impl Drop for Completion {
    fn drop(&mut self) {
        self.report(Err(Failure::new(ErrorCode::Io, "the device has dropped the request")));
    }
}
