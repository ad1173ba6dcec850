//! Hands damaged blocks and scrubs to the thread that repairs.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};

use onepipe::ProcessId;
use onepipe_block_replica::{CopiedBlock, ScrubReport};
use onepipe_log_server::LogHandle;

/// What has become of a damaged block.
pub struct Repaired {
    /// The block as of another replica; `None` if no other one has it.
    pub block: Option<CopiedBlock>,
    /// Whether the damaged block was replaced.
    pub is_repaired: bool,
}

/// Called with the number of blocks that a scrub has compared.
pub type OnProgress = Box<dyn FnMut(u64) + Send>;

/// What the thread takes over.
pub enum Command {
    /// A message of another program's replica.
    Message(ProcessId, Vec<u8>),
    /// A block is damaged in a replica. Others must have applied the position.
    Repair { replica: usize, block: u64, position: u64, done: Sender<Repaired> },
    /// All replicas are to be compared, as of the position.
    Scrub { position: u64, on_progress: OnProgress, done: Sender<ScrubReport> },
    /// The replica of this program has a node, and the others are in other programs.
    Joined(usize, LogHandle),
}

/// Repairs blocks, from any thread.
pub struct Repairer {
    commands: Sender<Command>,
    /// Held during a scrub.
    scrubbing: Mutex<()>,
}

impl Repairer {
    /// Returns the handle, and what its thread takes over.
    pub fn new() -> (Repairer, Receiver<Command>) {
        let (commands, received) = channel();
        (Repairer { commands, scrubbing: Mutex::new(()) }, received)
    }

    /// Lets the thread reach the replicas of other programs by the node of this one.
    pub fn join(&self, replica: usize, node: LogHandle) {
        self.send(Command::Joined(replica, node));
    }

    /// Handles a message of another program's replica.
    pub fn on_message(&self, from: ProcessId, payload: &[u8]) {
        self.send(Command::Message(from, payload.to_vec()));
    }

    fn send(&self, command: Command) {
        // The thread ends after its device only.
        let _ = self.commands.send(command);
    }

    /// Repairs a block that is damaged in a replica, and waits for that. Returns the block.
    pub fn repair(&self, replica: usize, block: u64, position: u64) -> Option<Repaired> {
        let (done, repaired) = channel();
        self.send(Command::Repair { replica, block, position, done });
        repaired.recv().ok()
    }

    /// Compares all replicas that have applied a position, and waits for that.
    pub fn scrub(&self, position: u64, on_progress: OnProgress) -> Option<ScrubReport> {
        let _scrubbing = self.scrubbing.lock().unwrap_or_else(PoisonError::into_inner);
        let (done, report) = channel();
        self.send(Command::Scrub { position, on_progress, done });
        report.recv().ok()
    }
}
