//! Delivery of notifications, by flooding or by unicast to each process (`docs/design/failure.md`,
//! "How are updates flooded?").

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use onepipe_base::{Backoff, Instance, Mono, Port, ProcessId};
use onepipe_wire::{
    DECISION_TIP_LEN, DecisionTip, FAILURE_LEN, FLOOD_HEADER_LEN, Failure, Flood, FloodAck,
    FloodId, FloodKind, INSTANCE_LEN, RESOLVED_LEN, Resolved,
};

use crate::{Config, Epoch, Links};

/// The content of a notification.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Notification {
    /// Failures; a recipient acknowledges after it has completed them.
    Notice(Vec<Failure>),
    /// Frozen links that are released.
    Resume(Vec<Resolved>),
    /// Instances whose links are to be frozen by their neighbours.
    Freeze(Vec<Instance>),
}

impl Notification {
    pub(crate) fn kind(&self) -> FloodKind {
        match self {
            Self::Notice(_) => FloodKind::Notice,
            Self::Resume(_) => FloodKind::Resume,
            Self::Freeze(_) => FloodKind::Freeze,
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Notice(failures) => failures.len(),
            Self::Resume(resolved) => resolved.len(),
            Self::Freeze(instances) => instances.len(),
        }
    }

    fn per_frame(&self, payload_len: usize) -> usize {
        let (entry, tip_len) = match self {
            Self::Notice(_) => (FAILURE_LEN, DECISION_TIP_LEN),
            Self::Resume(_) => (RESOLVED_LEN, 0),
            Self::Freeze(_) => (INSTANCE_LEN, 0),
        };
        (payload_len.saturating_sub(FLOOD_HEADER_LEN + tip_len) / entry).max(1)
    }
}

/// The recipients of a notification; each of them acknowledges it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Recipients {
    /// Links over which the notification is flooded.
    pub links: BTreeSet<Port>,
    /// Processes that are notified by unicast.
    pub processes: BTreeSet<ProcessId>,
}

impl Recipients {
    fn is_subset(&self, of: &Self) -> bool {
        self.links.is_subset(&of.links) && self.processes.is_subset(&of.processes)
    }
}

/// Logarithm of the largest factor by which repeated restarts lengthen `restart_ns`.
const RESTART_LOG2_MAX: u32 = 5;

/// One delivery round of a notification: the entries that fit a frame are in flight, the others
/// follow.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Round {
    pub id: FloodId,
    pub notification: Notification,
    /// Whether all processes are recipients.
    pub is_full: bool,
    /// Number of announcements received when the round started.
    pub announcements: u64,
    pub started_at: Mono,
    recipients: Recipients,
    /// Index of the first entry in flight; as many as fit a frame follow it.
    from: usize,
    unacked: Recipients,
    unsent: Recipients,
    backoff: Backoff,
    /// When the round restarts as a new flood unless an acknowledgement arrives before.
    restart_at: Mono,
    /// When the round restarts in any case, because paths have changed.
    reroute_at: Option<Mono>,
}

/// The next transmission of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outgoing {
    Flood(Port),
    Notice(ProcessId),
}

/// The round in progress, at most one at a time, and the sequence of flood ids.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Broadcast {
    is_mesh: bool,
    payload_len: usize,
    /// The backoff of retransmissions, at its start.
    backoff: Backoff,
    restart_ns: u64,
    /// Number of restarts since a round was complete or paths changed.
    restarts: u32,
    epoch: u32,
    sequence: u32,
    round: Option<Round>,
    /// Processes that joined while a round was in progress.
    pending_joiners: BTreeSet<ProcessId>,
}

impl Broadcast {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            is_mesh: matches!(config.links, Links::Mesh(_)),
            payload_len: config.payload_len_max(),
            backoff: Backoff::new(config.retransmit_ns, config.retransmit_max_ns),
            restart_ns: config.restart_ns,
            restarts: 0,
            epoch: 0,
            sequence: 0,
            round: None,
            pending_joiners: BTreeSet::new(),
        }
    }

    /// Returns the epoch of its floods.
    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(self.epoch)
    }

    /// Asserts what holds between any two calls.
    pub(crate) fn check_invariants(&self) {
        let Some(round) = &self.round else { return };
        assert_eq!(round.id.epoch, self.epoch, "a round of another epoch");
        assert!(round.id.sequence <= self.sequence, "flood ids rise");
        assert!(round.from < round.notification.len().max(1), "no entry is in flight");
        assert!(round.from.is_multiple_of(round.notification.per_frame(self.payload_len)));
        let Round { recipients, unacked, unsent, .. } = round;
        let is_notice = round.notification.kind() == FloodKind::Notice;
        assert!(round.is_full || is_notice, "all nodes receive what concerns links");
        assert!(unacked.is_subset(recipients), "acknowledgements of others are awaited");
        assert!(unsent.is_subset(unacked), "what is acknowledged is not sent again");
    }

    /// Drops the round of the previous epoch and restarts the sequence.
    pub(crate) fn start_epoch(&mut self, epoch: Epoch) {
        (self.epoch, self.sequence) = (epoch.0, 0);
        self.clear();
    }

    /// Drops the round in progress and the pending joiners.
    pub(crate) fn clear(&mut self) {
        self.round = None;
        self.pending_joiners.clear();
    }

    /// Notes that `process` has joined and must be notified.
    pub(crate) fn add_joiner(&mut self, process: ProcessId) {
        self.pending_joiners.insert(process);
    }

    pub(crate) fn has_joiners(&self) -> bool {
        !self.pending_joiners.is_empty()
    }

    pub(crate) fn take_joiners(&mut self) -> BTreeSet<ProcessId> {
        core::mem::take(&mut self.pending_joiners)
    }

    /// Returns an id above all ids of this epoch so far.
    fn next_id(&mut self) -> FloodId {
        self.sequence += 1;
        FloodId { epoch: self.epoch, sequence: self.sequence }
    }

    /// Returns the id of the round in progress, or else a new one, for a unicast notice that
    /// belongs to no round.
    pub(crate) fn id_for_unicast(&mut self) -> FloodId {
        match &self.round {
            Some(round) => round.id,
            None => self.next_id(),
        }
    }

    pub(crate) fn round(&self) -> Option<&Round> {
        self.round.as_ref()
    }

    /// Starts a round with `notification`, which replaces the round in progress.
    pub(crate) fn start(
        &mut self,
        now: Mono,
        notification: Notification,
        recipients: Recipients,
        is_full: bool,
        announcements: u64,
    ) {
        let id = self.next_id();
        let mut round = Round {
            id,
            notification,
            is_full,
            announcements,
            started_at: now,
            unacked: recipients.clone(),
            unsent: recipients.clone(),
            recipients,
            from: 0,
            backoff: self.backoff.clone(),
            restart_at: self.restart_at(now),
            reroute_at: None,
        };
        round.start_backoff(now);
        self.round = Some(round);
    }

    /// Drops the round in progress. Unacknowledged processes of a partial round become pending
    /// joiners again.
    pub(crate) fn abandon(&mut self) {
        if let Some(round) = self.round.take().filter(|round| !round.is_full) {
            self.pending_joiners.extend(round.unacked.processes);
        }
    }

    /// Makes the round restart at `at` if links are still unacknowledged then: paths have changed.
    pub(crate) fn restart_by(&mut self, at: Mono) {
        if let Some(round) = self.round.as_mut().filter(|round| !round.unacked.links.is_empty()) {
            round.reroute_at = Mono::earlier(round.reroute_at, Some(at));
            self.restarts = 0;
        }
    }

    //= spec/failure.md#R66
    /// Returns when a round restarts to which nobody answers from `now` on.
    fn restart_at(&self, now: Mono) -> Mono {
        now.after_ns(self.restart_ns.saturating_mul(1 << self.restarts.min(RESTART_LOG2_MAX)))
    }

    /// Whether `process` has yet to receive or to acknowledge a notification.
    pub(crate) fn is_pending(&self, process: ProcessId) -> bool {
        let is_missing = |round: &Round| round.unacked.processes.contains(&process);
        self.pending_joiners.contains(&process) || self.round.as_ref().is_some_and(is_missing)
    }

    /// Handles the acknowledgement of all nodes behind `port`. Returns whether it was outstanding.
    pub(crate) fn on_flood_ack(&mut self, now: Mono, port: Port, ack: FloodAck) -> bool {
        let restart_at = self.restart_at(now);
        let Some(round) = self.round_of_ack(ack) else { return false };
        round.unsent.links.remove(&port);
        let is_progress = round.unacked.links.remove(&port);
        round.on_progress(is_progress, restart_at)
    }

    /// Handles the completion of `process`. Returns whether it was outstanding.
    pub(crate) fn on_completed(&mut self, now: Mono, process: ProcessId, ack: FloodAck) -> bool {
        let restart_at = self.restart_at(now);
        let Some(round) = self.round_of_ack(ack) else { return false };
        round.unsent.processes.remove(&process);
        let is_progress = round.unacked.processes.remove(&process);
        round.on_progress(is_progress, restart_at)
    }

    fn round_of_ack(&mut self, ack: FloodAck) -> Option<&mut Round> {
        self.round
            .as_mut()
            .filter(|round| (round.id, round.notification.kind()) == (ack.id, ack.kind))
    }

    /// Removes `process`, which has failed, from the recipients.
    pub(crate) fn on_failed(&mut self, process: ProcessId) {
        self.pending_joiners.remove(&process);
        let Some(round) = &mut self.round else { return };
        let port = u16::try_from(process.0).ok().filter(|_| self.is_mesh).map(Port);
        for recipients in [&mut round.recipients, &mut round.unacked, &mut round.unsent] {
            recipients.processes.remove(&process);
            recipients.links.retain(|link| Some(*link) != port);
        }
    }

    /// Once all recipients have acknowledged, sends the next entries under the next id. Returns the
    /// round when no entries are left.
    pub(crate) fn advance(&mut self, now: Mono) -> Option<Round> {
        let round = self.round.as_mut()?;
        if !(round.unacked.links.is_empty() && round.unacked.processes.is_empty()) {
            return None;
        }
        assert!(!self.wants_transmit(), "acknowledged before it was sent");
        self.restarts = 0;
        let round = self.round.as_mut()?;
        let from = round.from + round.notification.per_frame(self.payload_len);
        if from >= round.notification.len() {
            return self.round.take();
        }
        assert!(from > round.from, "entries follow each other");
        self.sequence += 1;
        round.id.sequence = self.sequence;
        round.from = from;
        round.unacked = round.recipients.clone();
        round.unsent = round.recipients.clone();
        round.restart_at = now.after_ns(self.restart_ns);
        round.reroute_at = None;
        round.start_backoff(now);
        None
    }

    /// When the next retransmission or restart is due.
    pub(crate) fn due(&self) -> Option<Mono> {
        let round = self.round.as_ref()?;
        Mono::earlier(round.backoff.due(), Some(round.restart_due()))
    }

    /// Schedules retransmissions to unacknowledged recipients. Returns whether the round has to be
    /// restarted.
    pub(crate) fn on_timeout(&mut self, now: Mono, retransmissions: &mut u64) -> bool {
        let Some(round) = &mut self.round else { return false };
        if now >= round.restart_due() {
            self.restarts += 1;
            return true;
        }
        if round.backoff.take(now) {
            round.unsent = round.unacked.clone();
            *retransmissions += (round.unsent.links.len() + round.unsent.processes.len()) as u64;
        }
        false
    }

    /// Takes the next transmission.
    pub(crate) fn pop(&mut self) -> Option<Outgoing> {
        let unsent = &mut self.round.as_mut()?.unsent;
        match unsent.links.pop_first() {
            Some(port) => Some(Outgoing::Flood(port)),
            None => unsent.processes.pop_first().map(Outgoing::Notice),
        }
    }

    /// Whether a transmission is pending.
    pub(crate) fn wants_transmit(&self) -> bool {
        self.round.as_ref().is_some_and(|round| {
            !(round.unsent.links.is_empty() && round.unsent.processes.is_empty())
        })
    }

    //= spec/failure.md#R60
    /// Writes the payload in flight into `buf`; a notice ends with `tip`. Returns its length in
    /// bytes.
    pub(crate) fn write(&self, buf: &mut [u8], tip: Option<DecisionTip>) -> Option<usize> {
        let round = self.round.as_ref()?;
        let flood = Flood { id: round.id };
        let fit = round.notification.per_frame(self.payload_len);
        debug_assert!(buf.len() >= self.payload_len, "the slot has a frame's length");
        let buf = &mut buf[..self.payload_len];
        let written = match &round.notification {
            Notification::Notice(failures) => {
                let failures = failures[round.from..].iter().take(fit).copied();
                let (_, bytes) = flood.write_notice(buf, failures)?;
                return match tip {
                    Some(tip) => tip.append_to_flood(buf, bytes),
                    None => Some(bytes),
                };
            }
            Notification::Resume(resolved) => {
                flood.write_resume(buf, resolved[round.from..].iter().take(fit).copied())
            }
            Notification::Freeze(instances) => {
                flood.write_freeze(buf, instances[round.from..].iter().take(fit).copied())
            }
        };
        written.map(|(_, bytes)| bytes)
    }
}

impl Round {
    fn restart_due(&self) -> Mono {
        self.reroute_at.map_or(self.restart_at, |at| at.min(self.restart_at))
    }

    /// Extends the restart deadline if an acknowledgement was outstanding: unicast to many
    /// processes takes long, and the round is healthy while acknowledgements arrive.
    fn on_progress(&mut self, is_progress: bool, restart_at: Mono) -> bool {
        if is_progress {
            self.restart_at = restart_at;
        }
        is_progress
    }

    /// Starts the backoff for retransmissions; the first transmission is pending already.
    fn start_backoff(&mut self, now: Mono) {
        self.backoff.on_change(now);
        self.backoff.take(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use onepipe_base::{Controllers, Incarnation, Timestamp};
    use onepipe_wire::FloodView;

    fn config() -> Config {
        let controllers = Controllers { first: ProcessId(90), count: 1 };
        // Two failures fit a frame.
        let frame_len_max =
            onepipe_wire::HEADER_LEN + FLOOD_HEADER_LEN + 2 * FAILURE_LEN + DECISION_TIP_LEN;
        Config { frame_len_max, ..Config::new(ProcessId(90), controllers) }
    }

    fn failure(process: u32) -> Failure {
        let at = Timestamp::from_ns(5);
        Failure {
            first: ProcessId(process),
            count: 1,
            incarnation: Incarnation(0),
            at,
            cause: onepipe_base::Cause::Unknown,
        }
    }

    fn everyone() -> Recipients {
        Recipients { links: BTreeSet::from([Port(0)]), processes: BTreeSet::from([ProcessId(7)]) }
    }

    #[test]
    fn notification_larger_than_a_frame_takes_several_floods() {
        let mut broadcast = Broadcast::new(&config());
        broadcast.start_epoch(Epoch(3));
        let notification = Notification::Notice([1, 3, 5].map(failure).into());
        let now = Mono::from_ns(100);
        broadcast.start(now, notification, everyone(), true, 0);
        let mut received = Vec::new();
        for sequence in 1..=2 {
            assert_eq!(broadcast.pop(), Some(Outgoing::Flood(Port(0))));
            assert_eq!(broadcast.pop(), Some(Outgoing::Notice(ProcessId(7))));
            assert_eq!(broadcast.pop(), None);
            let mut buf = [0; 200];
            let bytes = broadcast.write(&mut buf, None).expect("a round is in progress");
            let view = FloodView::parse(&buf[..bytes]).expect("written above");
            received.extend(view.failures(Timestamp::from_ns(5)).map(|failure| failure.first.0));
            let id = FloodId { epoch: 3, sequence };
            assert_eq!(view.id, id);
            assert!(broadcast.advance(now).is_none(), "no acknowledgement yet");
            let ack = FloodAck { id, kind: FloodKind::Notice };
            assert!(!broadcast.on_flood_ack(
                now,
                Port(0),
                FloodAck { kind: FloodKind::Resume, ..ack }
            ));
            assert!(broadcast.on_flood_ack(now, Port(0), ack));
            assert!(!broadcast.on_flood_ack(now, Port(0), ack));
            assert!(broadcast.on_completed(now, ProcessId(7), ack));
            assert_eq!(broadcast.advance(now).is_some(), sequence == 2);
        }
        assert_eq!(received, [1, 3, 5]);
    }

    #[test]
    fn retransmits_to_unacked_but_not_to_failed_processes() {
        let mut broadcast = Broadcast::new(&config());
        let recipients =
            Recipients { links: BTreeSet::new(), processes: BTreeSet::from([7, 8].map(ProcessId)) };
        broadcast.start(
            Mono::from_ns(0),
            Notification::Notice(vec![failure(1)]),
            recipients,
            true,
            0,
        );
        while broadcast.pop().is_some() {}
        let due = broadcast.due().expect("unanswered");
        let mut retransmissions = 0;
        assert!(!broadcast.on_timeout(due, &mut retransmissions));
        assert_eq!((retransmissions, broadcast.pop()), (2, Some(Outgoing::Notice(ProcessId(7)))));
        broadcast.on_failed(ProcessId(7));
        broadcast.on_failed(ProcessId(8));
        assert!(broadcast.pop().is_none());
        assert!(broadcast.advance(due).is_some());
    }

    #[test]
    fn restarts_an_unacked_flood() {
        let mut broadcast = Broadcast::new(&config());
        broadcast.start(Mono::from_ns(0), Notification::Freeze(vec![]), everyone(), false, 0);
        broadcast.on_failed(ProcessId(0));
        assert!(broadcast.advance(Mono::from_ns(1)).is_none(), "port 0 is the uplink");
        let mut retransmissions = 0;
        let restart = Mono::from_ns(config().restart_ns);
        assert!(broadcast.on_timeout(restart, &mut retransmissions));
        broadcast.abandon();
        assert_eq!((broadcast.due(), broadcast.wants_transmit()), (None, false));
    }

    //= spec/failure.md#R66
    #[test]
    fn restarts_are_spaced_until_one_is_complete() {
        let mut broadcast = Broadcast::new(&config());
        let mut now = Mono::from_ns(0);
        let mut wait_ns = |broadcast: &mut Broadcast| {
            broadcast.start(now, Notification::Freeze(vec![]), everyone(), false, 0);
            let restart = broadcast.round().expect("it has started").restart_due();
            let wait_ns = restart.since_ns(now);
            now = restart;
            assert!(broadcast.on_timeout(now, &mut 0));
            wait_ns / config().restart_ns
        };
        let waits: Vec<u64> = (0..8).map(|_| wait_ns(&mut broadcast)).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 32, 32]);
        let nobody = Recipients { links: BTreeSet::new(), processes: BTreeSet::new() };
        broadcast.start(Mono::from_ns(0), Notification::Freeze(vec![]), nobody, false, 0);
        assert!(broadcast.advance(Mono::from_ns(0)).is_some());
        assert_eq!(wait_ns(&mut broadcast), 1);
    }

    #[test]
    fn flat_broadcast_continues_while_acks_arrive() {
        let restart_ns = config().restart_ns;
        let mut broadcast = Broadcast::new(&config());
        let processes: BTreeSet<ProcessId> = (0..10).map(ProcessId).collect();
        let recipients = Recipients { links: BTreeSet::new(), processes: processes.clone() };
        broadcast.start(
            Mono::from_ns(0),
            Notification::Notice(vec![failure(20)]),
            recipients,
            true,
            0,
        );
        let ack = FloodAck {
            id: broadcast.round().expect("a round is in progress").id,
            kind: FloodKind::Notice,
        };
        let mut now = Mono::from_ns(0);
        for process in processes.into_iter().take(9) {
            now = now.after_ns(restart_ns - 1);
            assert!(!broadcast.on_timeout(now, &mut 0), "{process:?} answers in time");
            assert!(broadcast.on_completed(now, process, ack));
        }
        // A duplicate acknowledgement is no progress.
        now = now.after_ns(restart_ns);
        assert!(!broadcast.on_completed(now, ProcessId(0), ack));
        assert!(broadcast.on_timeout(now, &mut 0));
    }

    #[test]
    fn acks_do_not_postpone_restart_after_path_change() {
        let mut broadcast = Broadcast::new(&config());
        broadcast.start(Mono::from_ns(0), Notification::Freeze(vec![]), everyone(), false, 0);
        let ack = FloodAck {
            id: broadcast.round().expect("a round is in progress").id,
            kind: FloodKind::Freeze,
        };
        broadcast.restart_by(Mono::from_ns(500));
        assert!(broadcast.on_completed(Mono::from_ns(400), ProcessId(7), ack));
        assert_eq!(broadcast.due(), Some(Mono::from_ns(500)));
        assert!(broadcast.on_timeout(Mono::from_ns(500), &mut 0));
    }
}
