//! Member of a group. The leader proposes timestamps, the other members accept them; all of them
//! report final timestamps and the delivery barrier to the replicas.

mod ack;
mod election;
mod invariants;
mod join;
mod order;
mod repair;

use alloc::vec;
use alloc::vec::Vec;

use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Transmit, Verdict};
use onepipe_reliability::{RetransmitTimer, RttEstimator};
use onepipe_wire::{Amcast, Frame, GroupId, GroupSet, LogicalTime, Opcode};

use crate::ack_table::AckTable;
use crate::barrier::Clocks;
use crate::config::{Config, ConfigError};
use crate::epochs::LatestEpochs;
use crate::incarnations::Incarnations;
use crate::log::Log;
use crate::outbox::Outbox;
use crate::transfer::LogTransfer;
use crate::votes::Votes;

/// Event of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemberEvent {
    /// The member has become the leader of its group, in this epoch.
    Leads(u32),
    /// The member lags by more than other members retain: it cannot catch up and counts as crashed.
    Behind,
    /// Another process has received an earlier incarnation of this member, whose promises and log
    /// are lost. The member has stopped, and counts as crashed.
    Refused,
}

/// Counters of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MemberStats {
    /// Messages proposed by this member.
    pub proposed: u64,
    /// Messages whose final timestamp became known.
    pub decided: u64,
    /// Messages reported to their clients as complete.
    pub completed: u64,
    /// Messages refused with `Busy`.
    pub busy: u64,
    /// Packets that were malformed, from an unknown process, or addressed to another process.
    pub invalid: u64,
    /// Packets of members that had restarted: another incarnation of each was received before.
    pub reincarnated: u64,
    /// Packets received before the group had acknowledged this incarnation.
    pub early: u64,
    /// Packets of a past epoch, or of one that is not known here yet.
    pub other_epoch: u64,
    /// Misbehaviour: packets of an epoch that no election can have led to yet.
    pub epochs_ahead: u64,
    /// Proposals received out of order.
    pub gaps: u64,
    /// Packets retransmitted, on request or by a timeout.
    pub retransmitted: u64,
}

/// Role of a member in the epoch that it has promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Role {
    Leader,
    /// Follows the member at this index, or an unknown leader.
    Follower(Option<usize>),
    /// Collects promises for its own election.
    Candidate,
}

/// A member of one group; see `docs/design/amcast.md`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    config: Config,
    group: GroupId,
    /// Own index among the members of the group.
    index: usize,
    role: Role,
    /// Epoch promised: packets of earlier epochs are rejected.
    promised: u32,
    /// Candidate, by member index, to which the promise was given: no other one gets it.
    promised_to: Option<usize>,
    /// Latest epoch whose leader's log this member has installed.
    synced: u32,
    clock: LogicalTime,
    barrier: LogicalTime,
    /// Barrier last sent to the replicas.
    advertised: LogicalTime,
    clocks: Clocks,
    log: Log,
    votes: Votes,
    transfer: LogTransfer,
    /// All positions before this one have been accepted in the present epoch. One cumulative
    /// acknowledgement reports it instead of one for each position.
    accepted: u64,
    /// Latest epoch of which this member has learned decided positions. As long as that is later
    /// than its own epoch, its log may differ from the log of its own epoch's leader.
    learned_epoch: u32,
    ack_table: AckTable,
    /// Log length by member index; `None` until reported in this epoch.
    log_lens: Vec<Option<u64>>,
    /// Candidate: the promises received, by member index: the epoch of the member's log and the
    /// log's length.
    promises: Vec<Option<(u64, u64)>>,
    /// Consecutive timeouts of a candidate's log transfer.
    stalls: u32,
    /// End of the last request for missing positions, and the length of the next one, which doubles
    /// each time a request was answered in full.
    requested_until: u64,
    request_len: u64,
    /// First incomplete position at the last timeout: shows whether there was progress since.
    first_open_before: u64,
    /// First position that each replica lacks, by replica index.
    replica_next: Vec<u64>,
    outbox: Outbox,
    incarnations: Incarnations,
    epochs: LatestEpochs,
    /// Members of the group that have acknowledged this incarnation, itself included: one bit per
    /// member index.
    known_by: u32,
    /// Whether this incarnation was refused: the member has stopped.
    is_refused: bool,
    /// Packets were received since the last [`Member::advance`].
    is_dirty: bool,
    /// Groups that must be sent an acknowledgement: positions of theirs were accepted, or, for the
    /// own group, another group's proposal has raised the clock.
    pending_acks: GroupSet,
    /// Last accepted position that is for a group, by group index.
    last_accepted: Vec<u64>,
    timer: RetransmitTimer,
    rtt: RttEstimator,
    due: Option<Mono>,
    event: Option<MemberEvent>,
    stats: MemberStats,
}

impl Member {
    /// Creates a member with an empty log in epoch 1, which the group's first member leads.
    ///
    /// # Errors
    /// [`ConfigError`] if a setting is out of range or the process is not a member of any group.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let groups = &config.groups;
        let all = (0..groups.groups.len() as u16).map(GroupId);
        let found = all
            .filter_map(|group| Some((group, groups.member_index(group, config.process)?)))
            .next();
        let value = u64::from(config.process.0);
        let Some((group, index)) = found else {
            return Err(ConfigError { name: "process", value });
        };
        let own = &groups.groups[group.index()];
        let (positions, bytes) = (config.log_capacity(), groups.message_len_max());
        Ok(Self {
            group,
            index,
            role: if index == 0 { Role::Leader } else { Role::Follower(Some(0)) },
            promised: 1,
            promised_to: None,
            synced: 1,
            clock: LogicalTime(0),
            barrier: LogicalTime(0),
            advertised: LogicalTime(0),
            clocks: Clocks::NONE,
            log: Log::new(positions, bytes),
            votes: Votes::new(groups),
            transfer: LogTransfer::new(positions, bytes),
            accepted: 0,
            learned_epoch: 0,
            ack_table: AckTable::new(groups, group),
            log_lens: vec![None; own.members.len()],
            promises: vec![None; own.members.len()],
            stalls: 0,
            requested_until: 0,
            request_len: Self::REQUEST_LEN,
            first_open_before: 0,
            replica_next: vec![0; own.replicas.len()],
            outbox: Outbox::new(config.outbox, config.peers(group)),
            incarnations: Incarnations::new(groups),
            epochs: LatestEpochs::new(groups.groups.len()),
            known_by: 1 << index,
            is_refused: false,
            is_dirty: false,
            pending_acks: GroupSet::EMPTY,
            last_accepted: vec![0; groups.groups.len()],
            timer: RetransmitTimer::default(),
            rtt: config.rtt(),
            // An incarnation is announced at once.
            due: config.announces.then_some(Mono::from_ns(0)),
            event: None,
            stats: MemberStats::default(),
            config,
        })
    }

    /// Returns the settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the member's group.
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// Returns the present epoch.
    pub fn epoch(&self) -> u32 {
        self.promised
    }

    /// Returns whether this member leads its group in its epoch.
    pub fn is_leader(&self) -> bool {
        self.role == Role::Leader && self.has_joined() && !self.is_refused
    }

    /// Returns the delivery barrier: replicas may deliver messages at or below it.
    pub fn barrier(&self) -> LogicalTime {
        self.barrier
    }

    /// Returns the number of messages in the log that are not complete.
    pub fn open(&self) -> u64 {
        self.log.end() - self.log.first_open()
    }

    /// Returns the counters.
    pub fn stats(&self) -> &MemberStats {
        &self.stats
    }

    /// Returns the counters and resets them.
    pub fn take_stats(&mut self) -> MemberStats {
        core::mem::take(&mut self.stats)
    }

    /// Returns the number of packets dropped because the outbox was full.
    pub fn outbox_dropped(&self) -> u64 {
        self.outbox.dropped
    }

    /// Returns whether there may be something to send.
    pub fn wants_transmit(&self) -> bool {
        !self.is_refused && (self.is_dirty || !self.outbox.is_empty())
    }

    /// Returns whether the member has the log of its epoch. Only then its acknowledgements and its
    /// clock count.
    fn is_synced(&self) -> bool {
        self.synced == self.promised
    }

    //= spec/amcast.md#R6
    /// Returns how many positions have been accepted as the leader of the epoch has them.
    fn accepted(&self) -> u64 {
        match self.role {
            Role::Leader => self.log.end(),
            _ if self.learned_epoch > self.promised => 0,
            _ => self.accepted,
        }
    }

    fn new_packet(&self) -> Amcast {
        Amcast {
            clock: self.clock,
            count: self.log.end(),
            ..Amcast::new(self.group, self.promised)
        }
    }

    fn majority(&self) -> u32 {
        self.config.groups.majority(self.group)
    }

    /// Sends a packet to the members of `group` that `is_recipient` selects, except itself.
    fn send_to_members(
        &mut self,
        group: GroupId,
        opcode: Opcode,
        body: Amcast,
        message: Option<u64>,
        is_recipient: impl Fn(usize) -> bool,
    ) {
        let Some(group) = self.config.groups.get(group) else { return };
        for (member, to) in group.members.iter().enumerate() {
            if *to != self.config.process && is_recipient(member) {
                self.outbox.push(*to, opcode, body, message);
            }
        }
    }

    fn send(&mut self, to: ProcessId, opcode: Opcode, body: Amcast, message: Option<u64>) {
        self.outbox.push(to, opcode, body, message);
    }

    /// Sends a packet to a member of the own group.
    fn send_to_member(&mut self, member: usize, opcode: Opcode, body: Amcast) {
        debug_assert!(member < self.log_lens.len(), "the group has the member");
        self.send_to_members(self.group, opcode, body, None, |other| other == member);
    }

    /// Processes the consequences of everything received, queues acknowledgements and sets the
    /// timer.
    fn advance(&mut self, now: Now) {
        self.is_dirty = false;
        if self.is_refused {
            return;
        }
        self.accept_buffered();
        for group in core::mem::take(&mut self.pending_acks).iter() {
            match group == self.group {
                true => self.send_cumulative_ack(|_| true, 0),
                false => self.send_group_ack(group),
            }
        }
        self.on_barrier();
        self.rtt.track(now.mono, self.log.end(), self.log.first_open());
        if self.needs_timer() {
            if self.due.is_none() {
                self.due = Some(now.mono.after_ns(self.timer.next_timeout_ns(&self.rtt)));
            }
        } else {
            self.due = None;
            self.timer.reset();
        }
    }
}

impl Machine for Member {
    type Event = MemberEvent;

    fn handle_frame(&mut self, now: Now, _: Port, frame: &mut [u8]) -> Verdict {
        let own = self.config.process;
        let parsed = Frame::parse(frame).ok().filter(|frame| frame.header.dst() == own);
        let mut is_valid = false;
        if self.is_refused {
            return Verdict::Dropped;
        }
        if let Some(frame) = parsed {
            let (opcode, src) = (frame.opcode, frame.header.src());
            let incarnation = frame.header.incarnation();
            if !self.incarnations.admits(src, incarnation) {
                self.refuse(src, incarnation);
                return Verdict::Dropped;
            }
            //= spec/amcast.md#R21
            let is_coordinator =
                opcode == Opcode::NewLeader && self.config.coordinators.contains(&src);
            for packet in Amcast::packets(opcode, frame.payload) {
                is_valid = packet.is_ok_and(|(body, message)| match is_coordinator {
                    _ if !self.epochs.admits(body.group, body.epoch) => self.drop_ahead(),
                    true if !self.has_joined() => self.drop_early(),
                    true => body.group == self.group && self.on_coordinator(now, src, &body),
                    false => self.on_packet(opcode, src, &body, message),
                });
                if !is_valid {
                    break;
                }
            }
        }
        self.stats.invalid += u64::from(!is_valid);
        // Consequences are processed once for all packets that arrive together.
        self.is_dirty = true;
        self.check_after_input();
        if is_valid { Verdict::Consumed } else { Verdict::Dropped }
    }

    fn handle_timeout(&mut self, now: Now) {
        if self.is_dirty {
            self.advance(now);
        }
        if self.due.is_some_and(|due| due <= now.mono) {
            self.due = None;
            self.announce_incarnation();
            if self.has_joined() {
                self.on_timeout();
            }
            if cfg!(debug_assertions) {
                self.check_invariants();
            }
        }
        self.advance(now);
        self.check_after_input();
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        if self.is_refused {
            return None;
        }
        if self.is_dirty {
            self.advance(now);
        }
        let log = &self.log;
        let sender = self.config.own();
        let bytes = self.outbox.write(slot, now, sender, |body, position| {
            // The position may have been overwritten since the packet was queued.
            let is_held = log.get(position).is_some_and(|entry| entry.id == body.id);
            is_held.then(|| log.message(position))
        })?;
        Some(Transmit { port: Port(0), bytes })
    }

    fn poll_event(&mut self) -> Option<MemberEvent> {
        self.event.take()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.due
    }
}
