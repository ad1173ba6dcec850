//! The state machine that the replicas of a log run.

use alloc::string::String;
use alloc::vec::Vec;

use onepipe_base::ProcessId;

use crate::entry::Entry;

/// Which part of a state another replica asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PartRequest {
    /// The state of the other replica includes the first `since` entries of the log: what later
    /// ones have not changed need not be sent.
    pub since: u64,
    /// Number of entries that the first part included which the other replica has received; `None`
    /// if the first part is asked for.
    pub image: Option<u64>,
    /// Where the part begins: 0, or [`Part::next`] of the part before. The meaning is up to the
    /// state.
    pub cursor: u64,
    /// Limit on the bytes of the part. It is at least 1 KiB.
    pub bytes_max: usize,
}

/// A part of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Number of entries that the part includes.
    pub len: u64,
    /// Where the next part begins, which is not 0; `None` after the last part.
    pub next: Option<u64>,
    /// The part, as [`State::install_part`] understands it.
    pub bytes: Vec<u8>,
}

/// A state machine that the replicas of a log run: each applies all committed entries in the order
/// of the log. No function waits for the disk longer than a write or a read of [`PartRequest`]
/// bytes may take, as the replica waits meanwhile.
///
/// # What survives
/// After a loss of power the state is one that includes the first [`State::durable_len`] entries,
/// and all entries from there on are applied again. A state whose entries have the same effect
/// when they are applied again, as writes of blocks have, may include later ones, too.
///
/// # Images
/// A replica that was away while the others have trimmed the log gets the state of another one in
/// parts, and then the entries from [`Part::len`] of the first part on. Either all parts are of one
/// moment (a state may hold the bytes of an image in memory until the last part was read), or, if
/// applying an entry again has no further effect, each part may be as the state is when it is
/// read: a replica does not serve before it has applied what any part may include.
pub trait State: Send + 'static {
    /// Applies the entry with this index in the log: the number of entries before it.
    fn apply(&mut self, index: u64, entry: &Entry);

    /// Begins to make durable what was applied, and does not wait for that.
    fn begin_sync(&mut self);

    /// Returns the number of entries that the state includes after a loss of power. Does not
    /// wait. A state that was just opened includes no more than that.
    fn durable_len(&self) -> u64;

    /// Returns a part of the state for another replica; `None` if the image of which earlier parts
    /// were is not available any more: then the other replica starts over.
    fn read_part(&mut self, request: &PartRequest) -> Option<Part>;

    /// Installs a part of the state of another replica, which was asked for with these values of
    /// [`PartRequest`]. One with cursor 0 begins an installation, and ends an incomplete one. Until
    /// [`State::finish_install`] is durable, [`State::durable_len`] remains as before, also after a
    /// loss of power.
    fn install_part(&mut self, since: u64, cursor: u64, bytes: &[u8]);

    /// Ends an installation: the state includes the first `len` entries, and the next one that is
    /// applied has the index `len`.
    fn finish_install(&mut self, len: u64);

    /// Handles a message of the state of another replica, which may be lost, repeated, or late by
    /// any time. Does not wait for a disk.
    fn on_message(&mut self, _from: ProcessId, _payload: &[u8]) {}

    /// Returns why the state cannot go on, if its disk has failed: then the replica ends.
    fn failure(&self) -> Option<String> {
        None
    }
}

/// The state of a log that is read, and not executed: it has no entry to remember, so the log is
/// never trimmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoState;

impl State for NoState {
    fn apply(&mut self, _: u64, _: &Entry) {}

    fn begin_sync(&mut self) {}

    fn durable_len(&self) -> u64 {
        0
    }

    fn read_part(&mut self, _: &PartRequest) -> Option<Part> {
        None
    }

    fn install_part(&mut self, _: u64, _: u64, _: &[u8]) {}

    fn finish_install(&mut self, _: u64) {}
}
