//! A member of a group: it proposes timestamps or takes those of its leader, and tells replicas
//! what is final and up to where the order is settled.

mod acknowledge;
mod elect;
mod order;
mod repair;

use alloc::vec;
use alloc::vec::Vec;

use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Transmit, Verdict};
use onepipe_wire::{Amcast, Frame, GroupId, GroupSet, LogicalTime, Opcode};

use crate::barrier::Clocks;
use crate::config::{Config, ConfigError};
use crate::log::Log;
use crate::outbox::Outbox;
use crate::patience::{Patience, Pause};
use crate::stage::Stage;
use crate::taken::Taken;
use crate::votes::Votes;

/// What a member tells who runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemberEvent {
    /// It leads its group now, in this epoch.
    Leads(u32),
    /// It has missed more than others keep: it can follow no more, and counts as crashed.
    Behind,
}

/// What a member has counted since its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MemberStats {
    /// Messages proposed here.
    pub proposed: u64,
    /// Messages whose final timestamp became known.
    pub decided: u64,
    /// Messages that clients were told are over.
    pub over: u64,
    /// Clients told to wait.
    pub busy: u64,
    /// Packets that were malformed, of somebody unknown, or for somebody else.
    pub foreign: u64,
    /// Packets of an epoch that is over, or not known here yet.
    pub other_epoch: u64,
    /// Proposals that came before others that were still missing.
    pub gaps: u64,
    /// Packets that said something again, asked for or by time.
    pub repeated: u64,
}

/// What a member is in the epoch that it has promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Role {
    Leader,
    /// Of the member at this place, once that is known.
    Follower(Option<usize>),
    /// Collects promises.
    Candidate,
}

/// A member of one group: it proposes timestamps or takes those of its leader, and tells replicas
/// what is final and up to where the order is settled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    config: Config,
    group: GroupId,
    place: usize,
    role: Role,
    /// No earlier epoch is followed any more.
    promised: u32,
    /// The epoch of whose leader it has taken the log.
    synced: u32,
    clock: LogicalTime,
    barrier: LogicalTime,
    /// The barrier that replicas were told.
    told: LogicalTime,
    clocks: Clocks,
    log: Log,
    votes: Votes,
    stage: Stage,
    /// All before this position are in the log as the leader has them. It is told in place of one
    /// acknowledgement for each.
    taken: u64,
    /// Of this epoch it has decided positions from others: while it is in an earlier one, its log
    /// may be another than that of its leader.
    later: u32,
    others_taken: Taken,
    /// How many positions each member has, by its place; nothing, until heard of in this epoch.
    counts: Vec<Option<u64>>,
    /// Of a candidate: what each member has promised with, by its place: of which epoch its log is,
    /// and how long.
    promises: Vec<Option<(u64, u64)>>,
    /// How often in a row nothing has come of the log that a candidate has asked for.
    stalls: u32,
    /// Positions before this one were asked for last, and how many at a time: twice as many as
    /// before, if all have come.
    asked_until: u64,
    burst: u64,
    /// The first position that was not over when it was last looked after.
    undone_before: u64,
    /// What each replica lacks first.
    wanted: Vec<u64>,
    outbox: Outbox,
    /// Something has come, and what follows from it has not been looked at.
    has_news: bool,
    /// Another group's proposal has raised the clock, or something was taken: these groups are to
    /// be told.
    reporting: GroupSet,
    /// The last position taken that was for a group, by its place.
    last_taken: Vec<u64>,
    pause: Pause,
    patience: Patience,
    due: Option<Mono>,
    event: Option<MemberEvent>,
    stats: MemberStats,
}

impl Member {
    /// A member that has heard nothing, in epoch 1, which the first member leads.
    ///
    /// # Errors
    /// When a setting makes no sense, or its process is no member of any group.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let groups = &config.groups;
        let all = (0..groups.groups.len() as u16).map(GroupId);
        let found = all
            .filter_map(|group| Some((group, groups.member_place(group, config.process)?)))
            .next();
        let value = u64::from(config.process.0);
        let Some((group, place)) = found else {
            return Err(ConfigError { name: "process", value });
        };
        let own = &groups.groups[group.index()];
        let (positions, octets) = (config.log_positions(), groups.message_octets_max());
        Ok(Self {
            group,
            place,
            role: if place == 0 { Role::Leader } else { Role::Follower(Some(0)) },
            promised: 1,
            synced: 1,
            clock: LogicalTime(0),
            barrier: LogicalTime(0),
            told: LogicalTime(0),
            clocks: Clocks::NONE,
            log: Log::new(positions, octets),
            votes: Votes::new(groups),
            stage: Stage::new(positions, octets),
            taken: 0,
            later: 0,
            others_taken: Taken::new(groups, group),
            counts: vec![None; own.members.len()],
            promises: vec![None; own.members.len()],
            stalls: 0,
            asked_until: 0,
            burst: Self::BURST,
            undone_before: 0,
            wanted: vec![0; own.replicas.len()],
            outbox: Outbox::new(config.outbox, config.peers(group)),
            has_news: false,
            reporting: GroupSet::EMPTY,
            last_taken: vec![0; groups.groups.len()],
            pause: Pause::default(),
            patience: Patience::new(config.repeat_ns),
            due: None,
            event: None,
            stats: MemberStats::default(),
            config,
        })
    }

    /// How it is set up.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Of which group it is a member.
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// The epoch that it is in.
    pub fn epoch(&self) -> u32 {
        self.promised
    }

    /// Whether it leads its group in its epoch.
    pub fn is_leader(&self) -> bool {
        self.role == Role::Leader
    }

    /// Up to where the order of its group is settled.
    pub fn barrier(&self) -> LogicalTime {
        self.barrier
    }

    /// Messages in its log that are not over yet.
    pub fn open(&self) -> u64 {
        self.log.end() - self.log.undone()
    }

    /// What it has counted.
    pub fn stats(&self) -> &MemberStats {
        &self.stats
    }

    /// What it has counted, which begins at 0 again.
    pub fn take_stats(&mut self) -> MemberStats {
        core::mem::take(&mut self.stats)
    }

    /// Packets that found no room to wait in.
    pub fn outbox_lost(&self) -> u64 {
        self.outbox.lost
    }

    /// Whether there may be something to send.
    pub fn wants_transmit(&self) -> bool {
        self.has_news || !self.outbox.is_empty()
    }

    /// Whether it has the log of its epoch: only then it acknowledges, and its clock counts.
    fn is_in(&self) -> bool {
        self.synced == self.promised
    }

    /// Positions that it has as the leader of its epoch has them.
    fn taken(&self) -> u64 {
        match self.role {
            Role::Leader => self.log.end(),
            _ if self.later > self.promised => 0,
            _ => self.taken,
        }
    }

    fn own(&self) -> Amcast {
        Amcast {
            clock: self.clock,
            count: self.log.end(),
            ..Amcast::new(self.group, self.promised)
        }
    }

    fn majority(&self) -> u32 {
        self.config.groups.majority(self.group)
    }

    /// Sends to the members of `group`, but not to itself.
    fn tell_members(
        &mut self,
        group: GroupId,
        opcode: Opcode,
        body: Amcast,
        message: Option<u64>,
        is_told: impl Fn(usize) -> bool,
    ) {
        let Some(group) = self.config.groups.get(group) else { return };
        for (place, to) in group.members.iter().enumerate() {
            if *to != self.config.process && is_told(place) {
                self.outbox.push(*to, opcode, body, message);
            }
        }
    }

    fn tell(&mut self, to: ProcessId, opcode: Opcode, body: Amcast, message: Option<u64>) {
        self.outbox.push(to, opcode, body, message);
    }

    /// To one of the own members.
    fn tell_place(&mut self, place: usize, opcode: Opcode, body: Amcast) {
        self.tell_members(self.group, opcode, body, None, |other| other == place);
    }

    /// What follows from whatever has just happened, and when to wake up.
    fn settle(&mut self, now: Now) {
        self.has_news = false;
        self.catch_up();
        for group in core::mem::take(&mut self.reporting).iter() {
            match group == self.group {
                true => self.report(|_| true, 0),
                false => self.acknowledge_all(group),
            }
        }
        self.on_settled();
        self.patience.time(now.mono, self.log.end(), self.log.undone());
        if self.is_unsettled() {
            if self.due.is_none() {
                self.due = Some(now.mono.after_ns(self.pause.next_ns(&self.patience)));
            }
        } else {
            self.due = None;
            self.pause.reset();
        }
    }
}

impl Machine for Member {
    type Event = MemberEvent;

    fn handle_frame(&mut self, now: Now, _: Port, frame: &mut [u8]) -> Verdict {
        let own = self.config.process;
        let parsed = Frame::parse(frame).ok().filter(|frame| frame.header.dst() == own);
        let mut is_taken = false;
        if let Some(frame) = parsed {
            let (opcode, src) = (frame.opcode, frame.header.src());
            let is_order = opcode == Opcode::NewLeader && self.config.coordinators.contains(&src);
            for packet in Amcast::packets(opcode, frame.payload) {
                is_taken = packet.is_ok_and(|(body, message)| match is_order {
                    true => body.group == self.group && self.on_coordinator(now, src, &body),
                    false => self.on_packet(opcode, src, &body, message),
                });
                if !is_taken {
                    break;
                }
            }
        }
        self.stats.foreign += u64::from(!is_taken);
        // What follows is looked at once for all that has come together.
        self.has_news = true;
        if is_taken { Verdict::Consumed } else { Verdict::Dropped }
    }

    fn handle_timeout(&mut self, now: Now) {
        if self.has_news {
            self.settle(now);
        }
        if self.due.is_some_and(|due| due <= now.mono) {
            self.due = None;
            self.on_due();
        }
        self.settle(now);
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        if self.has_news {
            self.settle(now);
        }
        let log = &self.log;
        let ends = (self.config.process, self.config.incarnation);
        let octets = self.outbox.write(slot, now, ends, |body, position| {
            // What it was about may have been overwritten meanwhile.
            let is_held = log.get(position).is_some_and(|entry| entry.id == body.id);
            is_held.then(|| log.message(position))
        })?;
        Some(Transmit { port: Port(0), octets })
    }

    fn poll_event(&mut self) -> Option<MemberEvent> {
        self.event.take()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.due
    }
}
