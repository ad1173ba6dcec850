//! How a replica gets the state of another one, when the entries that it lacks were trimmed.

use alloc::vec::Vec;

use onepipe_base::ProcessId;
use onepipe_base::mistake::{Mistake, makes};

use crate::base::Base;
use crate::entries::Entries;
use crate::message::{ReadState, Reply, Request, StatePart};
use crate::record::Change;
use crate::replica::{LogReplica, Role};
use crate::scattering::{Scattering, ScatteringKind};
use crate::state::{Part, PartRequest};

/// Timeouts without a part after which another replica is asked.
const TIMEOUTS_MAX: u32 = 4;
/// Smallest limit on the bytes of a part.
const PART_BYTES_MIN: usize = 1 << 10;

/// A question of another replica for a part of the state. The driver answers with
/// [`LogReplica::on_part`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StateRead {
    to: ProcessId,
    request: u64,
    /// The part that is asked for.
    pub part: PartRequest,
}

/// What is to be done with the state of a replica that catches up, in this order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Install {
    /// A part is to be installed.
    Part {
        /// Number of entries that the own state included when the part was asked for.
        since: u64,
        /// Where the part begins; 0 begins an installation.
        cursor: u64,
        /// The part.
        bytes: Vec<u8>,
    },
    /// All parts are installed: the state includes the first entries, of this number.
    Finish(u64),
}

/// A state that is being read from another replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Transfer {
    peer: ProcessId,
    /// Number of entries that the own state includes.
    since: u64,
    /// The log up to the entries that the first part includes.
    base: Option<Base>,
    /// Where the next part begins.
    cursor: u64,
    /// Whether a part has arrived since the last timeout.
    has_progress: bool,
    timeouts: u32,
}

impl LogReplica {
    /// Handles a question of another replica for a part of the state.
    pub(super) fn on_read_state(&mut self, from: ProcessId, read: &ReadState) {
        if self.role != Role::Member || !self.has_state || !self.replicas.contains(&from) {
            return;
        }
        let ReadState { request, since, image, cursor } = *read;
        let bytes_max = self.options.read_bytes_max.max(PART_BYTES_MIN);
        let part = PartRequest { since, image, cursor, bytes_max };
        // A replica asks for one part at a time.
        self.state_reads.retain(|read| read.to != from);
        self.state_reads.push_back(StateRead { to: from, request, part });
    }

    /// Returns the next question for a part of the state.
    pub fn poll_state_read(&mut self) -> Option<StateRead> {
        self.state_reads.pop_front()
    }

    /// Sends a part of the state to another replica; `None` if the image is not available any more.
    pub fn on_part(&mut self, read: &StateRead, part: Option<Part>) {
        let cursor = read.part.cursor;
        let is_first = cursor == 0;
        let base = match &part {
            // Without the log up to the first part a state cannot be used.
            Some(part) if is_first => match self.entries.base_at(part.len) {
                Some(base) => Some(base),
                None => return,
            },
            _ => None,
        };
        if let Some(part) = &part {
            self.hold(read.to, is_first.then_some(part.len));
        }
        let part = part.map(|part| (part.next, part.bytes));
        let reply = Reply::State(StatePart { request: read.request, cursor, part, base });
        self.unsent.push_back(Scattering {
            kind: ScatteringKind::BestEffort,
            receivers: [read.to].to_vec(),
            payload: reply.to_bytes(),
        });
    }

    /// Begins to read the state of another replica.
    pub(super) fn begin_transfer(&mut self, peer: ProcessId) {
        let since = self.applied;
        if let Role::CatchingUp(catch_up) = &mut self.role {
            let (base, cursor, has_progress, timeouts) = (None, 0, false, 0);
            let transfer = Transfer { peer, since, base, cursor, has_progress, timeouts };
            catch_up.transfer = Some(transfer);
            self.read_state();
        }
    }

    fn read_state(&mut self) {
        self.arm();
        let Role::CatchingUp(catch_up) = &self.role else { return };
        let Some(transfer) = &catch_up.transfer else { return };
        let image = transfer.base.as_ref().map(|base| base.len);
        let (request, since, cursor) = (catch_up.request, transfer.since, transfer.cursor);
        let peer = transfer.peer;
        let request = Request::ReadState(ReadState { request, since, image, cursor });
        self.send(ScatteringKind::BestEffort, [peer].into(), &request);
    }

    /// Asks again for a part that has not arrived. Returns false if no state is being read, or
    /// another replica is to be asked.
    pub(super) fn repeat_transfer(&mut self) -> bool {
        let Role::CatchingUp(catch_up) = &mut self.role else { return false };
        let Some(transfer) = &mut catch_up.transfer else { return false };
        if core::mem::take(&mut transfer.has_progress) {
            transfer.timeouts = 0;
            self.arm();
            return true;
        }
        transfer.timeouts += 1;
        if transfer.timeouts > TIMEOUTS_MAX {
            catch_up.transfer = None;
            return false;
        }
        self.read_state();
        true
    }

    /// Handles a part of the state of another replica.
    pub(super) fn on_state(&mut self, from: ProcessId, reply: StatePart) {
        let lacked_len = self.entries.base_len();
        let Role::CatchingUp(catch_up) = &mut self.role else { return };
        let Some(transfer) = &mut catch_up.transfer else { return };
        let expected = (transfer.peer, catch_up.request, transfer.cursor);
        if (from, reply.request, reply.cursor) != expected {
            return;
        }
        let Some((next, bytes)) = reply.part else {
            // The deadline starts the transfer over: the peer may not have another image yet.
            (transfer.base, transfer.cursor) = (None, 0);
            return;
        };
        if let Some(base) = reply.base.filter(|_| reply.cursor == 0) {
            // Nothing is committed while a member catches up, so no state is beyond its target.
            let end = catch_up.target.as_ref().map_or(u64::MAX, |target| target.len());
            if base.len <= self.applied || base.len < lacked_len || base.len > end {
                catch_up.transfer = None;
                return;
            }
            transfer.base = Some(base);
        }
        if transfer.base.is_none() || next == Some(0) {
            self.stats.malformed += 1;
            catch_up.transfer = None;
            return;
        }
        (transfer.has_progress, transfer.timeouts) = (true, 0);
        let (since, cursor) = (transfer.since, reply.cursor);
        self.installs.push_back((0, Install::Part { since, cursor, bytes }));
        match next {
            Some(next) => {
                transfer.cursor = next;
                self.read_state();
            }
            None => self.finish_transfer(),
        }
    }

    /// Replaces the beginning of the log by the state, and reads the entries behind.
    fn finish_transfer(&mut self) {
        let Role::CatchingUp(catch_up) = &mut self.role else { return };
        let Some(base) = catch_up.transfer.take().and_then(|transfer| transfer.base) else {
            return;
        };
        let len = base.len;
        self.stats.installed += 1;
        self.awaits_install = true;
        self.entries = Entries::from_base(base.clone());
        self.record(Change::Installed(base));
        // The state is never ahead of the stored log.
        self.installs.push_back((self.recorded, Install::Finish(len)));
        self.read();
    }

    /// Returns whether the state of another replica is being read or installed.
    pub fn is_installing(&self) -> bool {
        let is_reading = match &self.role {
            Role::CatchingUp(catch_up) => catch_up.transfer.is_some(),
            Role::Member => false,
        };
        is_reading || !self.installs.is_empty()
    }

    /// Returns what is to be done next with the state.
    pub fn poll_install(&mut self) -> Option<Install> {
        let is_due = self.installs.front().is_some_and(|(record, _)| {
            *record <= self.stored || makes(Mistake::InstalledBeforeStore)
        });
        is_due.then(|| self.installs.pop_front())?.map(|(_, install)| install)
    }
}
