//! Failure detector and leader election. The coordinator probes the members of all groups and
//! appoints another leader when one does not answer. It takes no part in ordering: while no
//! coordinator is up, only the replacement of failed leaders is delayed.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use onepipe_base::{
    Incarnation, Machine, Mono, Now, Port, ProcessId, ProcessInstance, Transmit, Verdict,
};
use onepipe_wire::{Amcast, Frame, GroupId, Opcode};

use crate::config::{ConfigError, Groups};
use crate::epochs::jumps;
use crate::incarnations::{Incarnations, refusal};
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
    pub probe_interval_ns: u64,
    /// Failure timeout: a leader that has not answered for this long, in ns, is replaced. More than
    /// twice `probe_interval_ns`. Default 5 ms; increase it where processes share cores and may be
    /// descheduled for longer.
    pub leader_timeout_ns: u64,
}

impl CoordinatorConfig {
    /// Returns the default settings.
    pub const fn new(process: ProcessId, groups: Groups) -> Self {
        Self {
            process,
            incarnation: Incarnation(1),
            groups,
            probe_interval_ns: 1_000_000,
            leader_timeout_ns: 5_000_000,
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
    pub replies: u64,
    /// Replies of members that had restarted: another incarnation of each was received before.
    pub reincarnated: u64,
    /// Misbehaviour: replies that name an epoch which no election can have led to yet.
    pub epochs_ahead: u64,
    /// Invalid packets.
    pub invalid: u64,
}

/// Last status received from a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct MemberStatus {
    /// When the status was received.
    last_seen: Mono,
    /// The member's epoch, the epoch of its log, and the length of the log.
    promised: u32,
    synced: u64,
    count: u64,
    /// Whether the member leads its epoch, or is a candidate for it.
    leads: bool,
}

/// Monitoring state of a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct GroupMonitor {
    /// Last decision: the epoch and the index of its leader.
    epoch: u32,
    leader: usize,
    /// Decision that is being persisted: epoch and leader index.
    pending: Option<(u32, usize)>,
    members: Vec<MemberStatus>,
}

/// Appoints leaders. Of several coordinators, at most one is active: the holder of the lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Coordinator {
    config: CoordinatorConfig,
    is_active: bool,
    groups: Vec<GroupMonitor>,
    to_persist: VecDeque<Decision>,
    decided: VecDeque<Decision>,
    outbox: Outbox,
    incarnations: Incarnations,
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
        if config.probe_interval_ns == 0 || config.leader_timeout_ns / 2 <= config.probe_interval_ns
        {
            return Err(ConfigError { name: "leader_timeout_ns", value: config.leader_timeout_ns });
        }
        let unknown = MemberStatus {
            last_seen: Mono::from_ns(0),
            promised: 0,
            synced: 0,
            count: 0,
            leads: false,
        };
        let monitor = |group: &crate::Group| GroupMonitor {
            epoch: 1,
            leader: 0,
            pending: None,
            members: vec![unknown; group.members.len()],
        };
        let members = config.groups.groups.iter().flat_map(|group| group.members.iter().copied());
        let outbox = Outbox::new(2 * members.clone().count(), members);
        Ok(Self {
            is_active: false,
            groups: config.groups.groups.iter().map(monitor).collect(),
            to_persist: VecDeque::new(),
            decided: VecDeque::new(),
            outbox,
            incarnations: Incarnations::new(&config.groups),
            due: None,
            stats: CoordinatorStats::default(),
            config,
        })
    }

    /// Activates the coordinator; `decisions` are all decisions that were ever persisted.
    pub fn activate(&mut self, now: Now, decisions: impl IntoIterator<Item = Decision>) {
        self.is_active = true;
        self.to_persist.clear();
        for decision in decisions {
            let index = self.config.groups.member_index(decision.group, decision.leader);
            let monitor = self.groups.get_mut(decision.group.index());
            if let (Some(monitor), Some(index)) = (monitor, index)
                && decision.epoch > monitor.epoch
            {
                (monitor.epoch, monitor.leader) = (decision.epoch, index);
            }
        }
        for monitor in &mut self.groups {
            monitor.pending = None;
            // No status was received while inactive: start all failure timeouts now.
            monitor.members.iter_mut().for_each(|member| member.last_seen = now.mono);
        }
        self.due = Some(now.mono);
    }

    /// Deactivates the coordinator, because another one is or may be active.
    pub fn deactivate(&mut self) {
        self.is_active = false;
        self.due = None;
        self.to_persist.clear();
    }

    /// Returns whether the coordinator is active.
    pub fn is_active(&self) -> bool {
        self.is_active
    }

    /// Returns the leader of `group` and its epoch, according to the last decision.
    pub fn leader(&self, group: GroupId) -> Option<(ProcessId, u32)> {
        let monitor = self.groups.get(group.index())?;
        Some((self.config.groups.get(group)?.members[monitor.leader], monitor.epoch))
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
        self.to_persist.pop_front()
    }

    //= spec/amcast.md#R19
    /// Handles the result of a write. Decisions that were superseded meanwhile are ignored.
    pub fn handle_persisted(&mut self, now: Now, decision: Decision, is_written: bool) {
        let index = self.config.groups.member_index(decision.group, decision.leader);
        let Some(monitor) = self.groups.get_mut(decision.group.index()) else { return };
        let Some(index) = index.filter(|index| monitor.pending == Some((decision.epoch, *index)))
        else {
            return;
        };
        monitor.pending = None;
        if !is_written || !self.is_active {
            return;
        }
        debug_assert!(decision.epoch > monitor.epoch, "epochs never go back");
        (monitor.epoch, monitor.leader) = (decision.epoch, index);
        monitor.members[index].last_seen = now.mono;
        self.stats.elections += 1;
        self.decided.push_back(decision);
        self.notify_leader(decision.group);
    }

    /// Checks that the state does not contradict itself. For tests, simulations and fuzzers.
    ///
    /// # Panics
    /// If it does: a bug of this crate.
    pub fn check_invariants(&self) {
        assert_eq!(self.groups.len(), self.config.groups.groups.len(), "each group is monitored");
        for monitor in &self.groups {
            assert!(monitor.epoch > 0, "groups begin in epoch 1");
            assert!(monitor.leader < monitor.members.len(), "a leader is a member");
            if let Some((epoch, leader)) = monitor.pending {
                assert!(epoch > monitor.epoch, "an election leads to a later epoch");
                assert!(leader < monitor.members.len(), "a member is elected");
            }
        }
        assert!(self.is_active || self.due.is_none(), "an inactive coordinator rests");
        assert!(self.is_active || self.to_persist.is_empty(), "and decides nothing");
        let pending = self.groups.iter().filter(|monitor| monitor.pending.is_some()).count();
        assert!(self.to_persist.len() <= pending, "a decision is stored once");
        self.outbox.check_invariants();
    }

    /// Notifies the leader of its appointment.
    fn notify_leader(&mut self, group: GroupId) {
        let Some((leader, epoch)) = self.leader(group) else { return };
        self.outbox.push(leader, Opcode::NewLeader, Amcast::new(group, epoch), None);
    }

    fn on_status(&mut self, now: Now, index: usize, body: &Amcast) {
        let monitor = &mut self.groups[body.group.index()];
        self.stats.replies += 1;
        let (promised, synced, count) = (body.epoch, body.timestamp.0, body.count);
        let leads = body.has(Amcast::LEADS);
        monitor.members[index] =
            MemberStatus { last_seen: now.mono, promised, synced, count, leads };
        if self.is_active && index == monitor.leader && promised < monitor.epoch {
            self.notify_leader(body.group);
        }
    }

    /// Probes the members of a group and starts an election if the leader has failed.
    fn check_group(&mut self, now: Now, at: usize) {
        let group = GroupId(at as u16);
        let majority = self.config.groups.majority(group) as usize;
        let (leader_timeout_ns, members) =
            (self.config.leader_timeout_ns, &self.config.groups.groups[at].members);
        for member in members {
            let body = Amcast { flags: Amcast::WANTS_REPLY, ..Amcast::new(group, 0) };
            self.outbox.push(*member, Opcode::NewLeader, body, None);
        }
        let monitor = &mut self.groups[at];
        let idle_ns = |known: &MemberStatus| now.mono.since_ns(known.last_seen);
        let leader = monitor.members[monitor.leader];
        let is_superseded =
            leader.promised > monitor.epoch || (leader.promised == monitor.epoch && !leader.leads);
        //= spec/amcast.md#R20
        if monitor.pending.is_some() || (idle_ns(&leader) <= leader_timeout_ns && !is_superseded) {
            return;
        }
        //= spec/amcast.md#R20
        // Candidates have answered within half the timeout. Of these, choose the one with the most
        // recent and longest log: it has to fetch least.
        let is_live = |known: &&MemberStatus| idle_ns(known) <= leader_timeout_ns / 2;
        if monitor.members.iter().filter(is_live).count() < majority {
            return;
        }
        let live = monitor.members.iter().enumerate().filter(|(_, known)| is_live(known));
        let best =
            live.max_by_key(|(index, known)| (known.synced, known.count, usize::MAX - index));
        let last = monitor.members.iter().map(|known| known.promised).max().unwrap_or_default();
        let (Some((index, _)), Some(epoch)) = (best, last.max(monitor.epoch).checked_add(1)) else {
            return;
        };
        debug_assert!(epoch > monitor.epoch, "an election leads to a later epoch");
        monitor.pending = Some((epoch, index));
        self.to_persist.push_back(Decision { group, epoch, leader: members[index] });
    }
}

impl Machine for Coordinator {
    type Event = Decision;

    fn handle_frame(&mut self, now: Now, _: Port, frame: &mut [u8]) -> Verdict {
        let own = self.config.process;
        let parsed = Frame::parse(frame).ok().filter(|frame| frame.header.dst() == own);
        let mut is_valid = false;
        if let Some(frame) = parsed.filter(|frame| frame.opcode == Opcode::AmcastPromise) {
            let bodies = Amcast::packets(frame.opcode, frame.payload).map_while(Result::ok);
            let (src, incarnation) = (frame.header.src(), frame.header.incarnation());
            for (body, _) in bodies {
                let groups = &self.config.groups;
                let Some(index) = groups.member_index(body.group, src) else {
                    break;
                };
                if !self.incarnations.admits(src, incarnation) {
                    self.stats.reincarnated += 1;
                    self.outbox.push(src, Opcode::Gap, refusal(body.group, incarnation), None);
                    return Verdict::Dropped;
                }
                //= spec/amcast.md#R37
                if jumps(self.groups[body.group.index()].epoch, body.epoch) {
                    self.stats.epochs_ahead += 1;
                    break;
                }
                self.on_status(now, index, &body);
                is_valid = true;
            }
        }
        self.stats.invalid += u64::from(!is_valid);
        if is_valid { Verdict::Consumed } else { Verdict::Dropped }
    }

    fn handle_timeout(&mut self, now: Now) {
        if self.due.is_some_and(|due| due <= now.mono) {
            (0..self.groups.len()).for_each(|at| self.check_group(now, at));
            self.due = Some(now.mono.after_ns(self.config.probe_interval_ns));
            if cfg!(debug_assertions) {
                self.check_invariants();
            }
        }
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        let CoordinatorConfig { process, incarnation, .. } = self.config;
        let sender = ProcessInstance { process, incarnation };
        let bytes = self.outbox.write(slot, now, sender, |_, _| None)?;
        Some(Transmit { port: Port(0), bytes })
    }

    fn poll_event(&mut self) -> Option<Decision> {
        self.decided.pop_front()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.due
    }
}
