//! How a replica catches up: first with the stable entries of others, then, as a member, with those
//! of the cut that has made it one.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use onepipe_base::{ProcessId, Timestamp};

use crate::cut::Cut;
use crate::entries::{Accepted, Entries};
use crate::message::{Entries as EntriesReply, Reply, Request};
use crate::record::Change;
use crate::replica::transfer::Transfer;
use crate::replica::{LogReplica, Role};
use crate::scattering::{Scattering, ScatteringKind};

/// Timeouts after which a replica no longer waits for the end of a round that it joins: by default
/// 2 s, as a controller may take a second to decide that a member has failed.
const ROUND_TIMEOUTS_MAX: u32 = 200;

/// The state of a replica that has not the whole log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct CatchUp {
    /// The end of the log that a member has to reach; `None` while the replica is no member.
    pub target: Option<Cut>,
    /// Timestamps of the own requests to join that were delivered.
    pub joins: BTreeSet<Timestamp>,
    /// The members that were last asked to admit this replica.
    pub asked: BTreeSet<ProcessId>,
    /// Timeouts in the round that this replica joins.
    pub round_timeouts: u32,
    /// Requests to join of other replicas that were delivered, each the last one of its sender: if
    /// that is a member of the view, its previous incarnation has ended.
    pub restarts: BTreeMap<ProcessId, (Timestamp, crate::View)>,
    /// The stored log before the replica has begun to catch up, if it was restored since.
    pub whole: Option<Box<Entries>>,
    /// Number of the current read.
    pub request: u64,
    /// The state of another replica that is being read.
    pub transfer: Option<Transfer>,
    /// Length and checksum of the beginning that another replica knows to be committed.
    pub committed: (u64, u64),
}

impl LogReplica {
    /// Asks the next peer for the entries behind the own ones.
    pub(super) fn read(&mut self) {
        self.arm();
        let Role::CatchingUp(catch_up) = &mut self.role else { return };
        catch_up.request += 1;
        let all = if catch_up.target.is_some() { &self.view.members } else { &self.replicas };
        let others: Vec<_> = all.iter().filter(|other| **other != self.process).collect();
        let Some(turn) = catch_up.request.checked_rem(others.len() as u64) else { return };
        let (request, peer) = (catch_up.request, *others[turn as usize]);
        let request = Request::Read(request, self.entries.len());
        self.send(ScatteringKind::BestEffort, [peer].into(), &request);
    }

    /// Asks the same peer for more.
    fn read_on(&mut self, peer: ProcessId) {
        let Role::CatchingUp(catch_up) = &self.role else { return };
        let request = Request::Read(catch_up.request, self.entries.len());
        self.send(ScatteringKind::BestEffort, [peer].into(), &request);
    }

    /// Answers a read: of another replica with stable entries, whose end it compares with the cut
    /// that admits it, of a client with committed ones. A cut that this replica has computed may be
    /// void.
    pub(super) fn on_read(&mut self, from: ProcessId, request: u64, index: u64) {
        if self.role != Role::Member {
            return;
        }
        let is_replica = self.replicas.contains(&from);
        let stable_len = match is_replica {
            true => self.entries.stable_len(),
            false => self.entries.committed_len(),
        };
        let checksum = self.entries.checksum(index).filter(|_| index <= stable_len);
        let mut bytes = 0;
        let fits = |entry: &&crate::Entry| {
            let is_first = bytes == 0;
            bytes += entry.payload.len() + 1;
            is_first || bytes <= self.options.read_bytes_max
        };
        let entries = (index..stable_len).filter_map(|index| self.entries.get(index));
        let entries = entries.take_while(fits).cloned().collect();
        let (view, base_len) = (self.view.clone(), self.entries.base_len());
        let committed_len = self.entries.committed_len();
        let committed = self.entries.checksum(committed_len).expect("committed entries exist");
        let reply = EntriesReply {
            view,
            request,
            index,
            base_len,
            committed: (committed_len, committed),
            stable_len,
            checksum,
            entries,
        };
        self.unsent.push_back(Scattering {
            kind: ScatteringKind::BestEffort,
            receivers: [from].to_vec(),
            payload: Reply::Entries(reply).to_bytes(),
        });
    }

    /// Handles the answer to a read.
    pub(super) fn on_entries(&mut self, from: ProcessId, reply: &EntriesReply) {
        let Role::CatchingUp(catch_up) = &mut self.role else { return };
        let expected = (catch_up.request, self.entries.len());
        if (reply.request, reply.index) != expected || catch_up.transfer.is_some() {
            return;
        }
        if reply.committed.0 > catch_up.committed.0 {
            catch_up.committed = reply.committed;
        }
        let lacks_state = self.applied < self.entries.base_len() && !self.awaits_install;
        if reply.base_len > self.entries.len() || lacks_state {
            return self.begin_transfer(from);
        }
        let own = self.entries.checksum(self.entries.len());
        match reply.checksum {
            Some(_) if reply.checksum == own => {}
            Some(_) => return self.start_over(),
            // The peer knows of fewer stable entries.
            None => return self.join(&reply.view),
        }
        for entry in &reply.entries {
            if self.entries.accept(entry.clone()) != Accepted::New {
                return self.start_over();
            }
            self.record(Change::Entry(entry.clone()));
        }
        let len = self.entries.len();
        let checksum = self.entries.checksum(len).expect("the log has this length");
        let _ = self.entries.set_stable(len, checksum);
        self.learn_committed();
        let is_member = self.reach_target();
        if is_member || self.role == Role::Member {
            return;
        }
        if len < reply.stable_len {
            self.read_on(from);
        } else {
            self.join(&reply.view);
        }
    }

    /// Notes what another replica knows to be committed, once the own log has all of that.
    fn learn_committed(&mut self) {
        let Role::CatchingUp(catch_up) = &self.role else { return };
        let (len, checksum) = catch_up.committed;
        if len > self.entries.committed_len() && len <= self.entries.len() {
            self.on_committed(len, checksum);
        }
    }

    /// Removes all entries that are not known to be committed, as others have a different log, and
    /// reads them again.
    fn start_over(&mut self) {
        let len = self.entries.committed_len();
        if len == self.entries.len() {
            // Committed entries differ from those of another replica: one of the two has a fault.
            // The next replica is asked at the deadline.
            self.stats.malformed += 1;
            return self.arm();
        }
        let is_truncated = self.entries.truncate(len);
        assert!(is_truncated, "committed entries exist");
        self.record(Change::Truncated(len));
        self.read();
    }

    /// Asks the members of a view for a new one with this replica, unless one has begun, or the
    /// state is not installed yet.
    fn join(&mut self, view: &crate::View) {
        let Role::CatchingUp(catch_up) = &mut self.role else { return };
        let has_state = self.applied >= self.entries.base_len();
        if catch_up.target.is_none() && self.round.is_none() && has_state {
            catch_up.asked.clone_from(&view.members);
            let mut receivers = view.members.clone();
            receivers.insert(self.process);
            self.send(ScatteringKind::Join, receivers, &Request::Join(view.clone()));
        }
    }

    /// Gives up a round that does not end, and asks to join again, as if the process had restarted.
    /// A member that restarts during the round sends its request to join to the members only, so
    /// that a joiner waits for a statement that never comes.
    pub(super) fn give_up_round(&mut self) {
        let is_joining = self.round.is_some();
        let Role::CatchingUp(catch_up) = &mut self.role else { return };
        if catch_up.target.is_some() || !is_joining {
            catch_up.round_timeouts = 0;
            return;
        }
        catch_up.round_timeouts += 1;
        if catch_up.round_timeouts > ROUND_TIMEOUTS_MAX {
            catch_up.round_timeouts = 0;
            catch_up.joins.clear();
            self.round = None;
        }
    }

    /// Becomes a member of the view that begins with a cut.
    pub(super) fn on_joined(&mut self, cut: Cut) {
        if let Role::CatchingUp(catch_up) = &mut self.role {
            catch_up.target = Some(cut);
            if !self.reach_target() {
                self.read();
            }
        }
    }

    /// Serves as a member if the log ends with the cut. Returns whether the own log is not to be
    /// read on: the replica serves, or starts over.
    pub(super) fn reach_target(&mut self) -> bool {
        let Role::CatchingUp(catch_up) = &self.role else { return false };
        let Some(cut) = &catch_up.target else { return false };
        let (len, end) = (self.entries.len(), cut.len());
        if len < end || self.applied < self.entries.base_len() {
            return false;
        }
        let checksum = cut.checksum();
        if len > end || self.entries.checksum(len) != Some(checksum) {
            self.start_over();
            return true;
        }
        self.role = Role::Member;
        self.consistent_len = end;
        let cut = Cut { base_len: len, base_checksum: checksum, retained: Vec::new() };
        self.record(Change::View(self.view.clone(), cut));
        self.begin_progress();
        self.notify_clients();
        true
    }
}
