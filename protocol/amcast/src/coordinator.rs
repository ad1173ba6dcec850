//! Failure detector and leader election. The coordinator probes the members of all groups and
//! appoints another leader when one does not answer. It takes no part in ordering: while no
//! coordinator is up, only the replacement of failed leaders is delayed.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use onepipe_base::{Incarnation, Machine, Mono, Now, Port, ProcessId, Transmit, Verdict};
use onepipe_wire::{Amcast, Frame, GroupId, Opcode};

use crate::config::{ConfigError, Groups};
use crate::outbox::Outbox;

/// Settings of a coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CoordinatorConfig {
    /// Own process: one of the `coordinators` that members are configured with.
    pub process: ProcessId,
    /// Own incarnation.
    pub incarnation: Incarnation,
    /// Groups to monitor.
    pub groups: Groups,
    /// Interval at which members are probed, in ns. Default 1 ms.
    pub ask_ns: u64,
    /// Failure timeout: a leader that has not answered for this long, in ns, is replaced. More than
    /// twice `probe_ns`. Default 5 ms; increase it where processes share cores and may be
    /// descheduled for longer.
    pub silence_ns: u64,
}

impl CoordinatorConfig {
    /// Returns the default settings.
    pub const fn new(process: ProcessId, groups: Groups) -> Self {
        Self {
            process,
            incarnation: Incarnation(1),
            groups,
            ask_ns: 1_000_000,
            silence_ns: 5_000_000,
        }
    }
}

/// Appointment of the leader of an epoch. A decision must be persisted where all coordinators read
/// it before it takes effect, so that no two members ever lead in the same epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Decision {
    /// The group.
    pub group: GroupId,
    /// The epoch.
    pub epoch: u32,
    /// Leader of the epoch.
    pub leader: ProcessId,
}

/// Counters of a coordinator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CoordinatorStats {
    /// Leaders appointed.
    pub elections: u64,
    /// Replies of members.
    pub answers: u64,
    /// Invalid packets.
    pub foreign: u64,
}

/// Last status received from a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Known {
    /// When the status was received.
    heard: Mono,
    /// The member's epoch, the epoch of its log, and the length of the log.
    promised: u32,
    synced: u64,
    count: u64,
}

/// Monitoring state of a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Watch {
    /// Last decision: the epoch and the index of its leader.
    epoch: u32,
    leader: usize,
    /// Decision that is being persisted: epoch and leader index.
    next: Option<(u32, usize)>,
    members: Vec<Known>,
}

/// Appoints leaders. Of several coordinators, at most one is active: the holder of the lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Coordinator {
    config: CoordinatorConfig,
    is_active: bool,
    groups: Vec<Watch>,
    to_write: VecDeque<Decision>,
    decided: VecDeque<Decision>,
    outbox: Outbox,
    due: Option<Mono>,
    stats: CoordinatorStats,
}

impl Coordinator {
    /// Creates an inactive coordinator.
    ///
    /// # Errors
    /// [`ConfigError`] if a setting is out of range.
    pub fn new(config: CoordinatorConfig) -> Result<Self, ConfigError> {
        config.groups.check()?;
        if config.ask_ns == 0 || config.silence_ns / 2 <= config.ask_ns {
            return Err(ConfigError { name: "silence_ns", value: config.silence_ns });
        }
        let nothing = Known { heard: Mono::from_ns(0), promised: 0, synced: 0, count: 0 };
        let watch = |group: &crate::Group| Watch {
            epoch: 1,
            leader: 0,
            next: None,
            members: vec![nothing; group.members.len()],
        };
        let members = config.groups.groups.iter().flat_map(|group| group.members.iter().copied());
        let outbox = Outbox::new(2 * members.clone().count(), members);
        Ok(Self {
            is_active: false,
            groups: config.groups.groups.iter().map(watch).collect(),
            to_write: VecDeque::new(),
            decided: VecDeque::new(),
            outbox,
            due: None,
            stats: CoordinatorStats::default(),
            config,
        })
    }

    /// Activates the coordinator; `decisions` are all decisions that were ever persisted.
    pub fn activate(&mut self, now: Now, decisions: impl IntoIterator<Item = Decision>) {
        self.is_active = true;
        self.to_write.clear();
        for decision in decisions {
            let place = self.config.groups.member_place(decision.group, decision.leader);
            let watch = self.groups.get_mut(decision.group.index());
            if let (Some(watch), Some(place)) = (watch, place)
                && decision.epoch > watch.epoch
            {
                (watch.epoch, watch.leader) = (decision.epoch, place);
            }
        }
        for watch in &mut self.groups {
            watch.next = None;
            // No status was received while inactive: start all failure timeouts now.
            watch.members.iter_mut().for_each(|member| member.heard = now.mono);
        }
        self.due = Some(now.mono);
    }

    /// Deactivates the coordinator, because another one is or may be active.
    pub fn deactivate(&mut self) {
        self.is_active = false;
        self.due = None;
        self.to_write.clear();
    }

    /// Returns whether the coordinator is active.
    pub fn is_active(&self) -> bool {
        self.is_active
    }

    /// Returns the leader of `group` and its epoch, according to the last decision.
    pub fn leader(&self, group: GroupId) -> Option<(ProcessId, u32)> {
        let watch = self.groups.get(group.index())?;
        Some((self.config.groups.get(group)?.members[watch.leader], watch.epoch))
    }

    /// Returns the last decision of each group. Older decisions need not be stored.
    pub fn decisions(&self) -> impl Iterator<Item = Decision> {
        let all = (0..self.groups.len() as u16).map(GroupId);
        let decision = |group| {
            let (leader, epoch) = self.leader(group)?;
            (epoch > 1).then_some(Decision { group, epoch, leader })
        };
        all.filter_map(decision)
    }

    /// Returns the counters.
    pub fn stats(&self) -> &CoordinatorStats {
        &self.stats
    }

    /// Returns the next decision to persist; report the result to
    /// [`Coordinator::handle_persisted`].
    pub fn poll_persist(&mut self) -> Option<Decision> {
        self.to_write.pop_front()
    }

    /// Handles the result of a write. Decisions that were superseded meanwhile are ignored.
    pub fn handle_persisted(&mut self, now: Now, decision: Decision, is_written: bool) {
        let place = self.config.groups.member_place(decision.group, decision.leader);
        let Some(watch) = self.groups.get_mut(decision.group.index()) else { return };
        let Some(place) = place.filter(|place| watch.next == Some((decision.epoch, *place))) else {
            return;
        };
        watch.next = None;
        if !is_written || !self.is_active {
            return;
        }
        (watch.epoch, watch.leader) = (decision.epoch, place);
        watch.members[place].heard = now.mono;
        self.stats.elections += 1;
        self.decided.push_back(decision);
        self.order(decision.group);
    }

    /// Notifies the leader of its appointment.
    fn order(&mut self, group: GroupId) {
        let Some((leader, epoch)) = self.leader(group) else { return };
        self.outbox.push(leader, Opcode::NewLeader, Amcast::new(group, epoch), None);
    }

    fn on_answer(&mut self, now: Now, place: usize, body: &Amcast) {
        let watch = &mut self.groups[body.group.index()];
        self.stats.answers += 1;
        let (promised, synced, count) = (body.epoch, body.timestamp.0, body.count);
        watch.members[place] = Known { heard: now.mono, promised, synced, count };
        if self.is_active && place == watch.leader && promised < watch.epoch {
            self.order(body.group);
        }
    }

    /// Probes the members of a group and starts an election if the leader has failed.
    fn look_after(&mut self, now: Now, at: usize) {
        let group = GroupId(at as u16);
        let majority = self.config.groups.majority(group) as usize;
        let (silence_ns, members) =
            (self.config.silence_ns, &self.config.groups.groups[at].members);
        for member in members {
            let body = Amcast { flags: Amcast::ASKS, ..Amcast::new(group, 0) };
            self.outbox.push(*member, Opcode::NewLeader, body, None);
        }
        let watch = &mut self.groups[at];
        let silent_ns = |known: &Known| now.mono.since_ns(known.heard);
        let leader = watch.members[watch.leader];
        let is_passed = leader.promised > watch.epoch;
        if watch.next.is_some() || (silent_ns(&leader) <= silence_ns && !is_passed) {
            return;
        }
        // Candidates have answered within half the timeout. Of these, choose the one with the most
        // recent and longest log: it has to fetch least.
        let is_there = |known: &&Known| silent_ns(known) <= silence_ns / 2;
        if watch.members.iter().filter(is_there).count() < majority {
            return;
        }
        let there = watch.members.iter().enumerate().filter(|(_, known)| is_there(known));
        let best =
            there.max_by_key(|(place, known)| (known.synced, known.count, usize::MAX - place));
        let last = watch.members.iter().map(|known| known.promised).max().unwrap_or_default();
        let (Some((place, _)), Some(epoch)) = (best, last.max(watch.epoch).checked_add(1)) else {
            return;
        };
        watch.next = Some((epoch, place));
        self.to_write.push_back(Decision { group, epoch, leader: members[place] });
    }
}

impl Machine for Coordinator {
    type Event = Decision;

    fn handle_frame(&mut self, now: Now, _: Port, frame: &mut [u8]) -> Verdict {
        let own = self.config.process;
        let parsed = Frame::parse(frame).ok().filter(|frame| frame.header.dst() == own);
        let mut is_taken = false;
        if let Some(frame) = parsed.filter(|frame| frame.opcode == Opcode::AmcastPromise) {
            let bodies = Amcast::packets(frame.opcode, frame.payload).map_while(Result::ok);
            for (body, _) in bodies {
                let groups = &self.config.groups;
                let Some(place) = groups.member_place(body.group, frame.header.src()) else {
                    break;
                };
                self.on_answer(now, place, &body);
                is_taken = true;
            }
        }
        self.stats.foreign += u64::from(!is_taken);
        if is_taken { Verdict::Consumed } else { Verdict::Dropped }
    }

    fn handle_timeout(&mut self, now: Now) {
        if self.due.is_some_and(|due| due <= now.mono) {
            (0..self.groups.len()).for_each(|at| self.look_after(now, at));
            self.due = Some(now.mono.after_ns(self.config.ask_ns));
        }
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        let ends = (self.config.process, self.config.incarnation);
        let bytes = self.outbox.write(slot, now, ends, |_, _| None)?;
        Some(Transmit { port: Port(0), bytes })
    }

    fn poll_event(&mut self) -> Option<Decision> {
        self.decided.pop_front()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.due
    }
}
