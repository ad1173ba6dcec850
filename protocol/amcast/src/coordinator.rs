//! Who leads next: it watches the members of all groups, and names another leader when one is
//! silent. It takes no part in the order of messages; while it is down nothing stalls but the
//! replacement of leaders.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use onepipe_base::{Incarnation, Machine, Mono, Now, Port, ProcessId, Transmit, Verdict};
use onepipe_wire::{Amcast, Frame, GroupId, Opcode};

use crate::config::{ConfigError, Groups};
use crate::outbox::Outbox;

/// How a coordinator is set up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CoordinatorConfig {
    /// Who it is: one of those that members know as their coordinators.
    pub process: ProcessId,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// All groups.
    pub groups: Groups,
    /// How often members are asked how they are, ns. Default 1 ms.
    pub ask_ns: u64,
    /// A leader that has not answered for so long is replaced, ns; more than two `ask_ns`. Default
    /// 5 ms; where processes share cores they may be off them for longer.
    pub silence_ns: u64,
}

impl CoordinatorConfig {
    /// The defaults.
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

/// Who leads a group in an epoch. It must be written down where all coordinators read it before
/// anybody hears of it: so no two ever lead in the same epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Decision {
    /// The group.
    pub group: GroupId,
    /// The epoch.
    pub epoch: u32,
    /// Who leads in it.
    pub leader: ProcessId,
}

/// What a coordinator has counted since its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CoordinatorStats {
    /// Leaders that it has named.
    pub elections: u64,
    /// Answers of members.
    pub answers: u64,
    /// Packets that made no sense.
    pub foreign: u64,
}

/// What is known of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Known {
    heard: Mono,
    /// The epoch that it is in, that of its log, and how long that is.
    promised: u32,
    synced: u64,
    count: u64,
}

/// What is known of a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Watch {
    /// The last decision: the epoch and the place of its leader.
    epoch: u32,
    leader: usize,
    /// What is being written down: the same of the next one.
    next: Option<(u32, usize)>,
    members: Vec<Known>,
}

/// A coordinator: it names leaders. Of several one is active, the one that the store says.
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
    /// A coordinator that is not active.
    ///
    /// # Errors
    /// When a setting makes no sense.
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

    /// It is the active one from now on; `decisions` are all that were ever written down.
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
            // It has not listened before: nobody has been silent.
            watch.members.iter_mut().for_each(|member| member.heard = now.mono);
        }
        self.due = Some(now.mono);
    }

    /// Another one is active, or may be.
    pub fn deactivate(&mut self) {
        self.is_active = false;
        self.due = None;
        self.to_write.clear();
    }

    /// Whether it is the active one.
    pub fn is_active(&self) -> bool {
        self.is_active
    }

    /// Who leads `group`, and in which epoch, as it has decided last.
    pub fn leader(&self, group: GroupId) -> Option<(ProcessId, u32)> {
        let watch = self.groups.get(group.index())?;
        Some((self.config.groups.get(group)?.members[watch.leader], watch.epoch))
    }

    /// Its last decision of each group that has had any: all that need be kept.
    pub fn decisions(&self) -> impl Iterator<Item = Decision> {
        let all = (0..self.groups.len() as u16).map(GroupId);
        let decision = |group| {
            let (leader, epoch) = self.leader(group)?;
            (epoch > 1).then_some(Decision { group, epoch, leader })
        };
        all.filter_map(decision)
    }

    /// What it has counted.
    pub fn stats(&self) -> &CoordinatorStats {
        &self.stats
    }

    /// The next decision that must be written down; then [`Coordinator::handle_persisted`].
    pub fn poll_persist(&mut self) -> Option<Decision> {
        self.to_write.pop_front()
    }

    /// A decision was written down, or could not be.
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

    /// Tells the leader that it leads.
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
        // Who has answered lately, and of these the one that has most: the others fetch least.
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
        let octets = self.outbox.write(slot, now, ends, |_, _| None)?;
        Some(Transmit { port: Port(0), octets })
    }

    fn poll_event(&mut self) -> Option<Decision> {
        self.decided.pop_front()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.due
    }
}
