//! How the view changes: all members state what they have, and retain what all of them have.
//!
//! Whatever begins a round, ends a process in it or completes it has a position in the total order
//! of reliable messages. So each replica takes the same steps, and computes the same view and cut.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{ProcessId, Timestamp};

use crate::cut::{Cut, Statement};
use crate::message::Request;
use crate::record::Change;
use crate::replica::{LogReplica, Role};
use crate::scattering::{Scattering, ScatteringKind};
use crate::view::View;

/// A change of the view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Round {
    /// Members that have ended.
    ended: BTreeSet<ProcessId>,
    /// Replicas that will be members, with the timestamps of their requests.
    joiners: BTreeMap<ProcessId, Timestamp>,
    statements: BTreeMap<ProcessId, Statement>,
    /// Members that state nothing any more: those that have restarted, as their requests to join
    /// say, and those that have left. Joiners may not receive either message.
    silent: BTreeSet<ProcessId>,
    /// The own statement was sent.
    is_stated: bool,
}

impl LogReplica {
    /// Applies the ends of processes at or below a timestamp.
    pub(super) fn apply_ends(&mut self, until: Timestamp) {
        while let Some((at, process)) = self.ending.first().copied().filter(|one| one.0 <= until) {
            self.ending.pop_first();
            self.ended.insert(process, at);
            let is_member =
                self.view.members.contains(&process) && self.is_current_end(process, at);
            if let Some(round) = &mut self.round {
                round.joiners.retain(|joiner, joined| *joiner != process || at < *joined);
                if is_member {
                    round.ended.insert(process);
                }
            } else if is_member && !self.is_outside() {
                let ended = [process].into();
                self.round = Some(Round { ended, ..Round::default() });
            }
            self.complete_round();
        }
    }

    /// Returns whether an end is that of the current incarnation of a process.
    fn is_current_end(&self, process: ProcessId, at: Timestamp) -> bool {
        let since = self.since.get(&process);
        process != self.process && since.is_none_or(|since| at >= *since)
    }

    /// Returns whether the replica is no member.
    fn is_outside(&self) -> bool {
        matches!(&self.role, Role::CatchingUp(catch_up) if catch_up.target.is_none())
    }

    pub(super) fn on_sync(&mut self, view: &View) {
        if *view == self.view && !self.is_outside() && self.round.is_none() {
            self.round = Some(Round::default());
        }
    }

    /// Handles a request to join. One that was sent in another view is void, as some of the members
    /// may not have received it; one during a round is void, too. The sender repeats it.
    pub(super) fn on_join(&mut self, at: Timestamp, from: ProcessId, view: &View) {
        if from == self.process {
            self.on_own_join(at, view);
        } else if self.is_outside() && self.round.is_none() {
            // A round that this replica joins may have begun.
            if let Role::CatchingUp(catch_up) = &mut self.role {
                catch_up.restarts.insert(from, (at, view.clone()));
            }
        } else if *view != self.view {
            self.stats.outdated += 1;
        } else if view.members.contains(&from) {
            self.on_member_restarted(at, from);
        } else if self.round.is_some() {
            self.stats.outdated += 1;
        } else if self.replicas.contains(&from) {
            self.round = Some(Round { joiners: [(from, at)].into(), ..Round::default() });
        } else {
            self.stats.malformed += 1;
        }
    }

    /// Handles an own request to join, as the others do.
    fn on_own_join(&mut self, at: Timestamp, view: &View) {
        let mut is_void = false;
        if !self.is_outside() && *view == self.view {
            // The request was sent before this replica had begun the view. The others take it for
            // that of a process that has started again.
            let is_own = |round: &Round| round.statements.contains_key(&self.process);
            if self.round.as_ref().is_some_and(is_own) {
                return;
            }
            is_void = self.round.is_some();
            self.rejoin(self.now);
        }
        if let Role::CatchingUp(catch_up) = &mut self.role
            && !is_void
        {
            catch_up.joins.insert(at);
        }
    }

    /// Handles that a member asks to join: it has started again, and a fabric without controllers
    /// has not reported its end. It states nothing any more.
    fn on_member_restarted(&mut self, at: Timestamp, from: ProcessId) {
        if self.round.is_some() {
            self.on_member_silent(from);
        } else {
            let (ended, joiners) = ([from].into(), [(from, at)].into());
            self.round = Some(Round { ended, joiners, ..Round::default() });
        }
        self.complete_round();
    }

    /// Notes in a round that a member sends no statement any more, unless it has sent one.
    fn on_member_silent(&mut self, member: ProcessId) {
        let Some(round) = &mut self.round else { return };
        if round.statements.contains_key(&member) {
            return;
        }
        round.ended.insert(member);
        round.silent.insert(member);
        if round.is_stated && !round.joiners.is_empty() {
            // The joiners have to know, too, also if the round ends now.
            self.send_statement();
        }
    }

    /// Notes that this replica is about to end: what [`LogReplica::poll_scattering`] returns next
    /// is the last that it sends. The others go on in a view without it, also in a fabric that has
    /// no controllers, which would decide on its end.
    pub fn leave(&mut self) {
        self.unsent.clear();
        self.replies.clear();
        let mut others = match (&self.role, &self.round) {
            // The request to join may have begun a round of which this replica does not know yet.
            (Role::CatchingUp(catch_up), None) if catch_up.target.is_none() => {
                catch_up.asked.clone()
            }
            _ => self.view.members.clone(),
        };
        if let Some(round) = &self.round {
            others.extend(round.joiners.keys());
            others = &others - &round.ended;
        }
        // A scattering to a process that has ended reaches no other one either.
        others = &others - &self.ending();
        others.remove(&self.process);
        if !others.is_empty() {
            self.send(ScatteringKind::Leave, others, &Request::Leave);
        }
    }

    /// Handles that a replica ends: its last message has a position in the total order, as a
    /// decision of the fabric has.
    pub(super) fn on_leave(&mut self, at: Timestamp, from: ProcessId) {
        if makes(Mistake::LeaverAwaited) {
            return;
        }
        if let Some(round) = &mut self.round {
            round.joiners.retain(|joiner, joined| *joiner != from || at < *joined);
        }
        // A joiner of whose request the sender did not know has not received this message.
        let is_member = self.view.members.contains(&from) && self.is_current_end(from, at);
        if is_member && !makes(Mistake::LeaveUnknownToJoiner) {
            self.on_member_silent(from);
        }
        self.on_ended(from, at);
        self.apply_ends(at);
    }

    pub(super) fn on_statement(
        &mut self,
        from: ProcessId,
        view: &View,
        joiners: BTreeMap<ProcessId, Timestamp>,
        (silent, statement): (BTreeSet<ProcessId>, Statement),
    ) {
        if let Role::CatchingUp(catch_up) = &self.role
            && catch_up.target.is_none()
            && self.round.is_none()
            && let Some(joined) = joiners.get(&self.process).copied()
            && catch_up.joins.contains(&joined)
        {
            // A round is never joined when a member has already ended in it. So those that have
            // ended in this one have done so since.
            let is_new = |(_, at): &(&ProcessId, &Timestamp)| **at >= joined;
            let ended = self.ended.iter().filter(is_new).map(|(process, _)| *process);
            let is_restart = |(_, restart): &(&ProcessId, &(Timestamp, View))| {
                restart.0 >= joined && restart.1 == *view
            };
            let restarted =
                catch_up.restarts.iter().filter(is_restart).map(|(process, _)| *process);
            // The previous incarnation of this process may have been a member, too.
            let ended = ended
                .chain(restarted)
                .chain([self.process])
                .filter(|process| view.members.contains(process))
                .collect();
            self.view = view.clone();
            // No member had ended when this replica asked to join.
            self.since = view.members.iter().map(|member| (*member, joined)).collect();
            self.round = Some(Round { ended, joiners, ..Round::default() });
        }
        let is_outside = self.is_outside();
        let Some(round) = &mut self.round else { return };
        if *view == self.view && view.members.contains(&from) {
            round.statements.entry(from).or_insert(statement);
            if is_outside {
                round.ended.extend(silent.intersection(&view.members));
            }
        }
        self.complete_round();
    }

    /// Begins the next view if all members have stated what they have, or have ended.
    fn complete_round(&mut self) {
        let Some(round) = &self.round else { return };
        let is_known = |member: &ProcessId| {
            round.statements.contains_key(member) || round.ended.contains(member)
        };
        if !self.view.members.iter().all(is_known) {
            return;
        }
        let Some(round) = self.round.take() else { return };
        let mut members: BTreeSet<_> = &self.view.members - &round.ended;
        members.extend(round.joiners.keys());
        let cut = Cut::of(round.statements.values());
        let (Some(cut), true) = (cut, members.contains(&self.process)) else {
            // All members have ended without a statement, or have excluded this process.
            self.role = Role::CatchingUp(Box::default());
            return self.arm();
        };
        self.since.extend(&round.joiners);
        self.view = View { number: self.view.number + 1, members };
        self.has_synced = false;
        self.stats.views += 1;
        if self.role != Role::Member {
            return self.on_joined(cut);
        }
        if self.entries.cut(&cut) {
            if !makes(Mistake::CutNotStored) {
                self.record(Change::View(self.view.clone(), cut));
            }
            self.begin_progress();
            self.notify_clients();
        } else {
            // The own log contradicts that of others: a fault of this process.
            self.rejoin(self.now);
        }
    }

    /// Notifies all clients of the view: those that wait for it, and those with entries.
    pub(super) fn notify_clients(&mut self) {
        let mut clients = core::mem::take(&mut self.waiting);
        clients.extend(self.entries.sessions());
        let has_ended = |process| self.ended.contains_key(&process);
        let clients: Vec<_> =
            clients.into_iter().filter(|client| !has_ended(client.process)).collect();
        clients.into_iter().for_each(|client| self.reply(client, 0, 0..0));
    }

    /// Sends what is due: the own statement, once all that it states is stored, or a request for a
    /// new view, if a client has ended whose last entries may be in some logs only.
    pub(super) fn advance(&mut self) {
        if self.role != Role::Member {
            return;
        }
        let is_stored = self.stored >= self.recorded;
        if let Some(round) = self.round.as_mut().filter(|round| !round.is_stated && is_stored) {
            round.is_stated = true;
            self.send_statement();
        }
        self.send_progress();
        if self.round.is_none() && !self.has_synced && self.has_orphan() {
            self.has_synced = true;
            let receivers = &self.view.members - &self.ending();
            self.send(ScatteringKind::Sync, receivers, &Request::Sync(self.view.clone()));
        }
    }

    /// Returns whether an entry that may not be in all logs is of a client that has ended.
    fn has_orphan(&self) -> bool {
        let is_orphan =
            |at: Timestamp, process| self.ended.get(&process).is_some_and(|ended| at < *ended);
        !self.ended.is_empty()
            && self.entries.unstable().any(|id| is_orphan(id.at, id.client.process))
    }

    /// Returns the processes of which an end is known that reliable messages have not reached.
    fn ending(&self) -> BTreeSet<ProcessId> {
        // The end of the previous incarnation of a joiner may be reported after its request.
        let joiners = self.round.as_ref().map(|round| &round.joiners);
        let is_current = |(at, process): &&(Timestamp, ProcessId)| {
            let joined = joiners.and_then(|joiners| joiners.get(process));
            self.is_current_end(*process, *at) && joined.is_none_or(|joined| at >= joined)
        };
        self.ending.iter().filter(is_current).map(|(_, process)| *process).collect()
    }

    fn send_statement(&mut self) {
        let Some(round) = &self.round else { return };
        let mut receivers: BTreeSet<_> = &self.view.members - &round.ended;
        receivers.extend(round.joiners.keys());
        let (joiners, silent) = (round.joiners.clone(), round.silent.clone());
        let statement = self.entries.statement();
        let request = Request::Statement(self.view.clone(), joiners, silent, statement);
        self.send(ScatteringKind::Statement, &receivers - &self.ending(), &request);
    }

    pub(super) fn send(
        &mut self,
        kind: ScatteringKind,
        receivers: BTreeSet<ProcessId>,
        request: &Request<'_>,
    ) {
        let receivers = receivers.into_iter().collect();
        self.unsent.push_back(Scattering { kind, receivers, payload: request.to_bytes() });
    }

    pub(super) fn repeat_failed(&mut self) {
        for kind in core::mem::take(&mut self.failed) {
            match kind {
                ScatteringKind::Sync => self.has_synced = false,
                ScatteringKind::Statement => {
                    if let Some(round) = &mut self.round {
                        round.is_stated = round.statements.contains_key(&self.process);
                    }
                }
                // A replica that catches up repeats its request anyway.
                ScatteringKind::Join | ScatteringKind::Leave | ScatteringKind::BestEffort => {}
            }
        }
    }
}
