//! How programs use a log.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use onepipe::{Doorbell, ProcessId};
use onepipe_log::{Committed, Entry, StateMessage};
use thiserror::Error;

use crate::shared::{NodeStats, Shared};

/// Why an entry was not appended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AppendFailure {
    /// Too many entries are in flight.
    #[error("{0} entries are in flight: append when some of them are committed")]
    Busy(usize),
    /// The entry is longer than a message of the fabric may be.
    #[error("an entry of {len} bytes is too long: the limit is {max}")]
    TooLong {
        /// Length of the entry in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// The node has ended, for this reason. An entry in flight may be in the log or not.
    #[error("this node has ended: {0}")]
    Ended(Arc<str>),
}

/// Why entries were not read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReadFailure {
    /// The entries were trimmed.
    #[error("the log begins with entry {0}: states include those before")]
    Trimmed(u64),
    /// No replica has answered.
    #[error("no replica answers: start them again")]
    Unavailable,
    /// The node has ended, for this reason.
    #[error("this node has ended: {0}")]
    Ended(Arc<str>),
}

/// Committed entries of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedEntries {
    /// Index of the first of them.
    pub index: u64,
    /// The entries, in order, as many as one reply has.
    pub entries: Vec<Entry>,
    /// Number of entries that the replica knows to be committed.
    pub committed_len: u64,
}

/// Called once, when an entry is committed or has failed.
pub type OnCommitted = Box<dyn FnOnce(Result<Committed, AppendFailure>) + Send>;

/// Called once with entries.
pub type OnEntries = Box<dyn FnOnce(Result<CommittedEntries, ReadFailure>) + Send>;

/// Called once with a number of entries.
pub type OnReadIndex = Box<dyn FnOnce(Result<u64, Arc<str>>) + Send>;

/// What the thread of a node takes over.
pub(crate) enum Submission {
    Append(Vec<u8>, OnCommitted),
    Read(u64, OnEntries),
    ReadIndex(OnReadIndex),
    Send(ProcessId, Vec<u8>),
}

impl Submission {
    /// Fails, as the node has ended.
    pub fn fail(self, reason: &Arc<str>) {
        match self {
            Self::Append(_, done) => done(Err(AppendFailure::Ended(Arc::clone(reason)))),
            Self::Read(_, done) => done(Err(ReadFailure::Ended(Arc::clone(reason)))),
            Self::ReadIndex(done) => done(Err(Arc::clone(reason))),
            // A message may be lost.
            Self::Send(..) => {}
        }
    }
}

/// Appends to a log and reads it, from any thread, by a [`crate::Node`].
#[derive(Clone)]
pub struct LogHandle {
    pub(crate) submissions: Sender<Submission>,
    pub(crate) bell: Doorbell,
    pub(crate) shared: Arc<Shared>,
}

impl LogHandle {
    /// Appends an entry. `on_committed` is called from the node's thread when all members of the
    /// view have stored the entry in the same position. Entries of one handle, and of its clones,
    /// are committed in the order in which they were appended; several may be in flight.
    pub fn append(&self, payload: Vec<u8>, on_committed: OnCommitted) {
        self.submit(Submission::Append(payload, on_committed));
    }

    /// Reads committed entries from an index on. `on_entries` is called from the node's thread,
    /// also if there is no such entry yet.
    pub fn read(&self, index: u64, on_entries: OnEntries) {
        self.submit(Submission::Read(index, on_entries));
    }

    /// Finds out how many entries the state of this node must have applied to include every entry
    /// that was committed before this call, by any client, and that the state of any other replica
    /// had applied: a read of the state is linearizable from then on. `on_index` is called from the
    /// node's thread; with an error if the node has no replica or ends.
    ///
    /// # Links that are dead
    /// A replica may be cut off, in one direction or in both, and declared failed without knowing
    /// so. A read that begins there after the others have gone on does not end: the fabric sends
    /// no barrier over a link that is dead in either direction. This assumes that a frame is
    /// handled within the time in which the fabric declares a process failed
    /// ([`onepipe::Builder::link_timeout`]), or that the clock of this host is behind others by
    /// less than that time. A fabric without controllers declares no process failed, and a log in
    /// it goes on without a replica only if that has said that it ends.
    pub fn read_index(&self, on_index: OnReadIndex) {
        self.submit(Submission::ReadIndex(on_index));
    }

    /// Sends a message to the state of another replica ([`onepipe_log::State::on_message`]), by
    /// best effort.
    pub fn send(&self, to: ProcessId, payload: &[u8]) {
        self.submit(Submission::Send(to, StateMessage(payload).to_bytes()));
    }

    fn submit(&self, submission: Submission) {
        match self.submissions.send(submission) {
            Ok(()) => self.bell.ring(),
            Err(refused) => {
                let reason = self.ended().unwrap_or_else(|| "its thread has ended".into());
                refused.0.fail(&reason);
            }
        }
    }

    /// Returns what the node does, at most 100 ms ago.
    pub fn stats(&self) -> NodeStats {
        self.shared.stats()
    }

    /// Returns why the node has ended, if it has.
    pub fn ended(&self) -> Option<Arc<str>> {
        self.shared.ended()
    }
}
