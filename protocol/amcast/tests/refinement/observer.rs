//! Maps the packets of two groups to steps of the rules (`../rules/model.rs`): each packet must be
//! permitted by the rules, given the packets before.
//!
//! The internal state of members is not inspected. Their packets reveal the facts that a state of
//! the rules consists of: proposals reveal positions of the log of an epoch, acknowledgements
//! reveal accepted positions, and promises reveal when a member leaves an epoch, and with what. So
//! each packet either repeats known facts, or is one or several steps. Here members are held to two
//! more rules: a clock must have been sent before any member counts it, and a member that has
//! promised an epoch sends nothing more for the previous one.

use std::collections::BTreeMap;

use onepipe_amcast::{GroupId, GroupSet, MessageId};
use onepipe_wire::{Amcast, Opcode};

use crate::harness::SentPacket;
use crate::model::{Action, BOTH, Bug, FIRST, MESSAGES, OTHER, Phase, Rules, State};

/// Members per group.
pub const MEMBERS: usize = 3;
const OWN: usize = 0;

/// Number of times that each step was seen.
pub type Seen = BTreeMap<&'static str, u64>;

/// Checks one history.
pub struct Observer {
    rules: Rules,
    state: State,
    /// Group that is the first one of the rules.
    first: GroupId,
    /// Index in the rules of each member of the first group.
    indices: [usize; MEMBERS],
    /// Messages of the rules.
    ids: [Option<MessageId>; MESSAGES],
    /// Highest clock sent, by group, epoch and member.
    clocks: [[[u8; MEMBERS]; 2]; 2],
    /// Highest clock that the leader has sent with a count of its positions.
    leaders: [[u8; 2]; 2],
    /// Promises to the elected member: member index, count and clock.
    promises: Vec<(usize, u8, u8)>,
    has_promised: [bool; MEMBERS],
    /// Valid barriers of each group, with their counts.
    sent_barrier: [Vec<(u8, u8)>; 2],
    pub seen: Seen,
    /// States visited.
    pub states: Vec<State>,
}

type Permitted = Result<(), String>;

fn small(number: u64) -> Result<u8, String> {
    u8::try_from(number)
        .ok()
        .filter(|small| *small < crate::model::NEVER)
        .ok_or_else(|| format!("{number} is impossible in a history of this length"))
}

impl Observer {
    /// Creates an observer for messages to these groups, in the notation of the rules. The member
    /// at `elected` of group `first` may be elected.
    pub fn new(groups: [u8; MESSAGES], first: GroupId, elected: usize) -> Self {
        // Followers are symmetric: the elected one is the second member of the rules.
        let indices = if elected == 2 { [0, 2, 1] } else { [0, 1, 2] };
        let rules = Rules { groups, candidate: indices[elected], bug: Bug::None };
        Self {
            rules,
            state: State::default(),
            first,
            indices,
            ids: [None; MESSAGES],
            clocks: [[[0; MEMBERS]; 2]; 2],
            leaders: [[0; 2]; 2],
            promises: Vec::new(),
            has_promised: [false; MEMBERS],
            sent_barrier: [Vec::new(), Vec::new()],
            seen: Seen::new(),
            states: Vec::new(),
        }
    }

    /// Returns whether all messages are decided.
    pub fn is_all_decided(&self) -> bool {
        (0..MESSAGES as u8).all(|message| self.rules.last(&self.state, message).is_some())
    }

    /// Checks the packets sent at one time, sorted by causality: earlier epochs first, within an
    /// epoch promises before anything else, and proposals before acknowledgements before the rest.
    pub fn observe(&mut self, packets: &[SentPacket]) -> Permitted {
        let mut all: Vec<&SentPacket> = packets.iter().collect();
        all.sort_by_key(|packets| {
            let rank = match packets.opcode {
                Opcode::AmcastPromise => 0,
                Opcode::NewLeader => 1,
                Opcode::Prop if !packets.body.has(Amcast::DECIDED) => 2,
                Opcode::AmcastAck if !packets.body.has(Amcast::DECIDED) => 3,
                _ => 4,
            };
            (packets.src, packets.body.epoch, rank, packets.body.position)
        });
        let before = self.state;
        for packets in all {
            self.on_packet(packets)
                .map_err(|why| format!("{packets:?}: {why}; {:?}", self.state))?;
        }
        if self.state != before {
            self.states.push(self.state);
        }
        Ok(())
    }

    fn count(&mut self, step: &'static str) {
        *self.seen.entry(step).or_default() += 1;
    }

    fn on_packet(&mut self, packets: &SentPacket) -> Permitted {
        let (body, src) = (&packets.body, packets.src.index());
        // Clients and replicas are not members.
        let all = 2 * MEMBERS;
        let is_members = src < all && src / MEMBERS == body.group.index();
        if !is_members {
            return Ok(());
        }
        if body.has(Amcast::JOIN) {
            return Ok(());
        }
        let (group, at) = (usize::from(body.group != self.first), src % MEMBERS);
        let index = if group == OWN { self.indices[at] } else { at };
        let Some(epoch) = (body.epoch as usize).checked_sub(1).filter(|epoch| *epoch < 2 - group)
        else {
            return Err("unknown epoch".into());
        };
        let to_member = packets.dst.index() < all;
        let is_asked = body.has(Amcast::WANTS_REPLY);
        match packets.opcode {
            Opcode::Prop => self.on_prop((group, index, epoch), body),
            Opcode::AmcastAck => self.on_ack((group, index, epoch), body),
            Opcode::AmcastPromise if to_member => self.on_promise(index, body),
            Opcode::NewLeader if !is_asked && epoch == 0 => match index {
                0 => Ok(()),
                _ => Err("the sender does not lead".into()),
            },
            Opcode::NewLeader if !is_asked => self.on_new_leader(index, body),
            Opcode::Deliver => self.on_deliver((group, index), body),
            _ => Ok(()),
        }
    }

    fn name_of(&self, id: MessageId) -> Result<u8, String> {
        let found = self.ids.iter().position(|known| *known == Some(id));
        found.map(|at| at as u8).ok_or_else(|| "no leader has proposed the message".into())
    }

    /// Returns the name of a message. Messages to the same groups are named in the order of their
    /// first proposals.
    fn name(&mut self, id: MessageId, groups: GroupSet) -> Result<u8, String> {
        if let Ok(known) = self.name_of(id) {
            return Ok(known);
        }
        let kind = match (groups.contains(self.first), groups.len()) {
            (true, 1) => FIRST,
            (true, _) => BOTH,
            _ => OTHER,
        };
        let mut free = (0..MESSAGES).filter(|at| self.ids[*at].is_none());
        let at = free.find(|at| self.rules.groups[*at] == kind);
        let at = at.ok_or("unknown message")?;
        self.ids[at] = Some(id);
        Ok(at as u8)
    }

    /// Performs a step of the rules.
    fn step(&mut self, action: Action) -> Permitted {
        let mut permitted = Vec::new();
        self.rules.moves(&self.state, &mut permitted);
        if !permitted.contains(&action) {
            return Err(format!("the rules do not permit {action:?}"));
        }
        let next = self.rules.step(&self.state, action);
        self.state =
            next.ok_or_else(|| format!("{action:?} reports a clock that does not count"))?;
        Ok(())
    }

    fn leads(&self, (group, index, epoch): (usize, usize, usize)) -> bool {
        match group {
            OWN => self.rules.leader(epoch) == index && (epoch == 0 || self.state.base.is_some()),
            _ => index == 0,
        }
    }

    fn entry(&self, group: usize, epoch: usize, position: u64) -> Option<(u8, u8)> {
        let log = if group == OWN { &self.state.logs[epoch] } else { &self.state.other };
        log.all().get(position as usize).copied()
    }

    fn on_prop(&mut self, who: (usize, usize, usize), body: &Amcast) -> Permitted {
        let (group, _, epoch) = who;
        let timestamp = small(body.timestamp.0)?;
        if body.has(Amcast::DECIDED) {
            let stands = (self.name_of(body.id)?, Some(timestamp));
            self.decided(group, body.position, stands, small(body.barrier.0)?)?;
        } else if !self.leads(who) {
            // A position of a member's log, in a transfer to the candidate.
            let stands = (self.name_of(body.id)?, timestamp);
            let is_in = |epoch: usize| self.entry(group, epoch, body.position) == Some(stands);
            return match group == OWN && (0..2).any(is_in) {
                true => Ok(()),
                false => Err("the entry is in no log".into()),
            };
        } else if let Some(entry) = self.entry(group, epoch, body.position) {
            if entry != (self.name(body.id, body.groups)?, timestamp) {
                return Err(format!("{entry:?} is at that position"));
            }
        } else {
            let message = self.name(body.id, body.groups)?;
            let clock = timestamp.checked_sub(1).ok_or("no timestamp is 0")?;
            self.step(match group {
                OWN => Action::Propose { epoch, message, clock },
                _ => Action::ProposeOther { message, clock },
            })?;
            if self.entry(group, epoch, body.position) != Some((message, timestamp)) {
                return Err("another position is next".into());
            }
            self.count(["proposed", "proposed by the second leader"][epoch]);
        }
        if self.leads(who) { self.on_clock(who, body) } else { Ok(()) }
    }

    /// Handles acceptance of all positions before `until` in the log of the epoch.
    fn take(&mut self, (group, member, epoch): (usize, usize, usize), until: u64) -> Permitted {
        let until = small(until)?;
        if group != OWN {
            let has = self.state.other.end >= until;
            return if has {
                Ok(())
            } else {
                Err("no leader has proposed as many positions".into())
            };
        }
        if epoch == 1 && self.state.members[member].phase != Phase::Synced {
            self.step(Action::Sync { member })?;
            self.count("log transferred");
        }
        while self.state.members[member].accepted[epoch] < until {
            self.step(Action::Accept { member, epoch })?;
            self.count("taken");
        }
        Ok(())
    }

    /// Handles a member's clock in an epoch.
    fn on_clock(&mut self, who: (usize, usize, usize), body: &Amcast) -> Permitted {
        let (group, index, epoch) = who;
        let clock = small(body.clock.0)?;
        if clock == 0 {
            return Ok(());
        }
        let kind = [FIRST, OTHER][group];
        if !self.rules.clocks(&self.state, kind, 0).any(|known| known == clock) {
            return Err("no member can know that clock".into());
        }
        if group == OWN && !self.rules.raise(&mut self.state, index, epoch, clock) {
            return Err("that clock does not count in the epoch".into());
        }
        if self.leads(who) {
            let log = if group == OWN { &self.state.logs[epoch] } else { &self.state.other };
            let is_later = log
                .all()
                .get(body.count as usize..)
                .map(|later| later.iter().all(|(_, timestamp)| *timestamp > clock));
            match is_later {
                Some(true) => {
                    let known = &mut self.leaders[group][epoch];
                    *known = (*known).max(clock);
                }
                Some(false) => return Err("the leader had more positions at that clock".into()),
                // A leader that has learned of a later leader's decision does not lead any more.
                None if epoch == 0 && self.state.base.is_some() => {}
                None => return Err("the log is shorter".into()),
            }
            if group != OWN {
                self.state.other_clock = self.state.other_clock.max(clock);
            }
        }
        let known = &mut self.clocks[group][epoch][index];
        *known = (*known).max(clock);
        Ok(())
    }

    fn on_ack(&mut self, who: (usize, usize, usize), body: &Amcast) -> Permitted {
        let (group, index, epoch) = who;
        let has_left = group == OWN && epoch == 0 && self.has_promised[index];
        if body.has(Amcast::MESSAGE) {
            let stands = (self.name_of(body.id)?, small(body.timestamp.0)?);
            if body.has(Amcast::DECIDED) {
                if !self.is_agreed(group, body.position, stands.0, Some(stands.1)) {
                    return Err("the group has not agreed on that".into());
                }
                if has_left && body.clock.0 == 0 {
                    return Ok(());
                }
            } else if self.entry(group, epoch, body.position) != Some(stands) {
                return Err("another entry is at that position".into());
            }
        }
        if has_left {
            return Err("the sender has promised a later epoch".into());
        }
        if !body.has(Amcast::DECIDED) {
            let of_message = u64::from(body.has(Amcast::MESSAGE));
            self.take(who, body.position + of_message)?;
        }
        self.on_clock(who, body)
    }

    fn on_promise(&mut self, index: usize, body: &Amcast) -> Permitted {
        let (count, clock) = (small(body.count)?, small(body.clock.0)?);
        self.has_promised[index] = true;
        if self.state.base.is_none() {
            if count < self.state.members[index].accepted[0] {
                return Err("the sender has accepted more positions".into());
            }
            if clock < self.clocks[OWN][0][index] {
                return Err("the sender has reported a higher clock".into());
            }
            self.promises.push((index, count, clock));
        }
        Ok(())
    }

    /// Handles the start of the elected leader, with the log and the clock of a majority.
    fn on_new_leader(&mut self, index: usize, body: &Amcast) -> Permitted {
        if index != self.rules.candidate {
            return Err("the sender was not elected".into());
        }
        if self.state.base.is_some() {
            return Ok(());
        }
        self.has_promised[index] = true;
        let (count, clock) = (small(body.count)?, small(body.clock.0)?);
        let (promises, before) = (self.promises.clone(), self.state);
        let mut why = "no member has promised".to_string();
        for (mut with, until, promised) in promises {
            if index == 0 && with == 2 {
                // This follower is the second member of the rules.
                self.swap_followers();
                with = 1;
            }
            let base = self.take((OWN, with, 0), u64::from(until));
            let base = base.and_then(|()| match count > until {
                true => self.take((OWN, index, 0), u64::from(count)),
                false => Ok(()),
            });
            let begun = base.and_then(|()| self.step(Action::Begin { with, clock }));
            match begun {
                Ok(())
                    if promised <= clock && self.state.base.map(|base| base.0) == Some(count) =>
                {
                    self.count("epoch begun");
                    // Its clock since the election counts from now on.
                    self.clocks[OWN][1][index] = clock;
                    self.leaders[OWN][1] = clock;
                    return Ok(());
                }
                Ok(()) => why = format!("with {with}, {:?}", self.state.base),
                Err(not) => why = not,
            }
            if self.indices != [0, 1, 2] && index == 0 {
                self.swap_followers();
            }
            self.state = before;
        }
        Err(why)
    }

    fn swap_followers(&mut self) {
        self.indices.swap(1, 2);
        self.state.members.swap(1, 2);
        self.has_promised.swap(1, 2);
        self.clocks[OWN].iter_mut().for_each(|clocks| clocks.swap(1, 2));
    }

    fn is_agreed(&self, group: usize, position: u64, message: u8, timestamp: Option<u8>) -> bool {
        let is_it = |at: u64, entry: (u8, u8)| {
            let is_its = timestamp.is_none_or(|timestamp| timestamp == entry.1);
            at == position && entry.0 == message && is_its
        };
        match group {
            OWN => {
                self.rules.agreed(&self.state).any(|(at, id, time)| is_it(at.into(), (id, time)))
            }
            _ => self.entry(group, 0, position).is_some_and(|entry| is_it(position, entry)),
        }
    }

    fn decided(
        &mut self,
        group: usize,
        position: u64,
        (message, timestamp): (u8, Option<u8>),
        last: u8,
    ) -> Permitted {
        if !self.is_agreed(group, position, message, timestamp) {
            return Err("the group has not agreed on that position".into());
        }
        if self.rules.last(&self.state, message) != Some(last) {
            return Err("that is not its final timestamp".into());
        }
        self.count("decided");
        Ok(())
    }

    fn on_deliver(&mut self, (group, index): (usize, usize), body: &Amcast) -> Permitted {
        let last = small(body.timestamp.0)?;
        if body.has(Amcast::MESSAGE | Amcast::DECIDED) {
            self.decided(group, body.position, (self.name_of(body.id)?, None), last)?;
        } else if body.has(Amcast::MESSAGE) {
            // A completion, addressed to the client.
            let known = self.name_of(body.id)?;
            let is_it = last == 0 || self.rules.last(&self.state, known) == Some(last);
            return if is_it { Ok(()) } else { Err("that is not its final timestamp".into()) };
        }
        self.on_barrier((group, index), small(body.barrier.0)?, small(body.count)?)
    }

    /// Returns whether a member has sent such a clock in the epoch, or is `who` itself.
    fn has_sent_clock(
        &self,
        (group, index): (usize, usize),
        epoch: usize,
        clock: u8,
        who: usize,
    ) -> bool {
        who == index || self.clocks[group][epoch][who] >= clock
    }

    /// Returns whether the leader has sent such a clock.
    fn leader_has_sent_clock(
        &self,
        (group, index): (usize, usize),
        epoch: usize,
        clock: u8,
    ) -> bool {
        let leader = if group == OWN { self.rules.leader(epoch) } else { 0 };
        leader == index || self.leaders[group][epoch] >= clock
    }

    /// Handles a barrier that covers `count` positions.
    fn on_barrier(&mut self, (group, index): (usize, usize), barrier: u8, count: u8) -> Permitted {
        let follows =
            |sent_barrier: &(u8, u8)| sent_barrier.0 >= barrier && sent_barrier.1 <= count;
        if barrier == 0 || self.sent_barrier[group].iter().any(follows) {
            return Ok(());
        }
        let mut all = Vec::new();
        self.rules.barriers(&self.state, &mut all);
        for action in all {
            let has_sent_clock = match action {
                Action::SendBarrier { epoch, sent_barrier, clock, of, asks_leader } => {
                    let least = clock.min(barrier);
                    let mut of = of.into_iter();
                    group == OWN
                        && (sent_barrier.0, sent_barrier.1 <= count) == (barrier, true)
                        && of.all(|who| self.has_sent_clock((group, index), epoch, least, who))
                        && (!asks_leader
                            || self.leader_has_sent_clock((group, index), epoch, least))
                }
                Action::SendBarrierOther { sent_barrier, clock } => {
                    let packets =
                        |who: &usize| self.has_sent_clock((group, index), 0, barrier, *who);
                    group != OWN
                        && (sent_barrier.0, sent_barrier.1 <= count) == (barrier, true)
                        && 2 * (0..MEMBERS).filter(packets).count() > MEMBERS
                        && self.leader_has_sent_clock((group, index), 0, clock.min(barrier))
                }
                _ => false,
            };
            let next = if has_sent_clock { self.rules.step(&self.state, action) } else { None };
            if let Some(next) = next {
                let is_later = matches!(action, Action::SendBarrier { epoch: 1, .. });
                self.count(
                    ["barrier sent", "barrier sent in the second epoch"][usize::from(is_later)],
                );
                // The rules have one barrier per history, so check each barrier separately.
                self.state = State { sent_barrier: None, ..next };
                self.sent_barrier[group].push((barrier, count));
                return Ok(());
            }
        }
        Err("the rules permit no such barrier".into())
    }
}
