//! The rules as a model: states, actions and properties.

use stateright::{Model, Property};

pub const MESSAGES: usize = 3;
/// Groups as bits; the first group holds the election.
pub const FIRST: u8 = 0b01;
pub const OTHER: u8 = 0b10;
pub const BOTH: u8 = 0b11;
/// Above any timestamp: three messages in two groups, and three of them twice.
pub const NEVER: u8 = 15;

/// Seeded bug of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    None,
    QuorumForgotten,
    GapsIgnored,
    PendingForgotten,
    NewTimestamp,
    StaleEpoch,
    AckTwice,
    /// A clock that has risen since a promise counts in the previous epoch.
    RisenClock,
    /// The candidate uses its own log instead of the longest promised one.
    OwnLog,
    /// The candidate starts with its own clock instead of the highest promised one.
    OwnClock,
    /// A member that has restarted with an empty memory takes part again. Otherwise a restart is a
    /// crash: the member takes no more steps, which the rules permit at any time.
    VotesWithoutMemory,
}

/// A message, and the group's timestamp for it.
pub type Entry = (u8, u8);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Log {
    entries: [Entry; MESSAGES],
    pub end: u8,
}

impl Log {
    pub fn all(&self) -> &[Entry] {
        &self.entries[..self.end.into()]
    }

    pub fn position(&self, message: u8) -> Option<u8> {
        self.all().iter().position(|(one, _)| *one == message).map(|at| at as u8)
    }

    fn push(&mut self, entry: Entry) {
        self.entries[usize::from(self.end)] = entry;
        self.end += 1;
    }
}

/// Member of the first group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// Number of positions accepted in each epoch.
    pub accepted: [u8; 2],
    pub clock: u8,
    pub phase: Phase,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Is in the first epoch.
    #[default]
    First,
    /// Has promised the second epoch.
    Promised,
    /// Has the initial log of the second epoch.
    Synced,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct State {
    /// Logs of the first group in each epoch.
    pub logs: [Log; 2],
    /// Length of the initial log of the second epoch, and the highest clock promised.
    pub base: Option<(u8, u8)>,
    pub members: [Member; 3],
    /// Log of the second group.
    pub other: Log,
    pub other_clock: u8,
    /// Barrier sent: the group, the barrier and the number of positions that it covers.
    pub sent_barrier: Option<(u8, u8, u8)>,
    /// Follower that has restarted with an empty memory, and what it had accepted before in each
    /// epoch: those acknowledgements stay sent.
    pub restarted: Option<(usize, [u8; 2])>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The leader of the first group in this epoch proposes, with its clock raised to `clock`.
    Propose {
        epoch: usize,
        message: u8,
        clock: u8,
    },
    /// The leader of the second group proposes.
    ProposeOther {
        message: u8,
        clock: u8,
    },
    Accept {
        member: usize,
        epoch: usize,
    },
    /// The candidate starts with its own promise and that of `with`; the higher clock is `clock`.
    Begin {
        with: usize,
        clock: u8,
    },
    Sync {
        member: usize,
    },
    /// A follower of the first group restarts with an empty memory.
    Restart {
        member: usize,
    },
    /// A barrier of the first group: the clocks of two members, and of its leader if needed.
    SendBarrier {
        epoch: usize,
        sent_barrier: (u8, u8),
        clock: u8,
        of: [usize; 2],
        asks_leader: bool,
    },
    SendBarrierOther {
        sent_barrier: (u8, u8),
        clock: u8,
    },
}

#[derive(Clone, Debug)]
pub struct Rules {
    /// Destination groups of each message.
    pub groups: [u8; MESSAGES],
    pub candidate: usize,
    pub bug: Bug,
}

impl Rules {
    fn makes(&self, bug: Bug) -> bool {
        self.bug == bug
    }

    fn is_for(&self, message: u8, groups: u8) -> bool {
        self.groups[usize::from(message)] & groups == groups
    }

    /// Returns `clock` and the timestamps above it that members of a group can know.
    pub fn clocks(&self, state: &State, group: u8, clock: u8) -> impl Iterator<Item = u8> + use<> {
        let own = |entry: &&Entry| self.is_for(entry.0, group);
        let logs = state.logs.iter().chain([&state.other]);
        let seen = logs.flat_map(Log::all).filter(own);
        let seen = seen.fold(0u16, |seen, (_, timestamp)| seen | 1 << timestamp);
        (clock..NEVER).filter(move |value| *value == clock || seen >> value & 1 == 1)
    }

    pub fn leader(&self, epoch: usize) -> usize {
        [0, self.candidate][epoch]
    }

    /// Returns whether a majority of the first group has accepted the position in the epoch.
    fn is_agreed(&self, state: &State, epoch: usize, position: u8) -> bool {
        let is_by = |(index, member): &(usize, &Member)| {
            let before = state.restarted.filter(|(restarted, _)| restarted == index);
            let before = before.map_or(0, |(_, accepted)| accepted[epoch]);
            member.accepted[epoch].max(before) > position
        };
        let by = state.members.iter().enumerate().filter(is_by).count();
        position < state.logs[epoch].end && by >= if self.makes(Bug::AckTwice) { 1 } else { 2 }
    }

    /// Returns what the first group has agreed on: positions, messages and timestamps.
    pub fn agreed<'a>(&'a self, state: &'a State) -> impl Iterator<Item = (u8, u8, u8)> + 'a {
        (0..2).flat_map(move |epoch| {
            let entries = (0..).zip(state.logs[epoch].all());
            let agreed = entries.filter(move |(at, _)| self.is_agreed(state, epoch, *at));
            agreed.map(|(at, (message, timestamp))| (at, *message, *timestamp))
        })
    }

    /// Returns the final timestamp of a message if all its groups have agreed on theirs.
    pub fn last(&self, state: &State, message: u8) -> Option<u8> {
        let own = self.agreed(state).find(|agreed| agreed.1 == message).map(|agreed| agreed.2);
        let other = state.other.position(message).map(|at| state.other.entries[usize::from(at)].1);
        match self.groups[usize::from(message)] {
            FIRST => own,
            BOTH => Some(own?.max(other?)),
            _ => other,
        }
    }

    /// Returns the barriers that any prefix of the log permits, apart from clocks: the barrier, the
    /// number of positions, and whether the leader's clock must have reached it.
    fn barriers_of(&self, state: &State, log: &Log) -> Vec<(u8, u8, bool)> {
        let mut all = Vec::new();
        for known in 0..=log.end {
            let asks_leader = known == log.end || self.makes(Bug::GapsIgnored);
            let below = |at: u8| log.entries[usize::from(at)].1 - 1;
            let seen = if asks_leader { NEVER } else { below(known) };
            for decided in 0..=known {
                let is_pending = decided < known && !self.makes(Bug::PendingForgotten);
                all.push((
                    seen.min(if is_pending { below(decided) } else { NEVER }),
                    decided,
                    asks_leader,
                ));
                let next = log.entries[usize::from(decided.min(2))].0;
                if decided == known || self.last(state, next).is_none() {
                    break;
                }
            }
        }
        all
    }

    fn proposals(&self, state: &State, group: u8, log: &Log) -> Vec<u8> {
        let is_used = |message: u8| {
            state.logs.iter().chain([&state.other]).any(|log| log.position(message).is_some())
        };
        let all = (0..MESSAGES as u8).filter(|message| self.is_for(*message, group));
        let left = all.filter(|message| log.position(*message).is_none());
        // Of symmetric messages not proposed yet, only the first may be proposed.
        let is_first = |message: &u8| {
            is_used(*message)
                || (0..*message).all(|before| {
                    is_used(before)
                        || self.groups[usize::from(before)] != self.groups[usize::from(*message)]
                })
        };
        left.filter(is_first).collect()
    }

    /// Raises the member's clock in the epoch to `clock`. Returns whether that is possible.
    pub fn raise(&self, state: &mut State, index: usize, epoch: usize, clock: u8) -> bool {
        let member = &mut state.members[index];
        let promised = state.base.map_or(0, |(_, promised)| promised);
        // A follower's clock only matters in the first epoch.
        if (epoch == 0 && member.phase == Phase::First) || (epoch == 1 && index == self.candidate) {
            member.clock = member.clock.max(clock);
        }
        match (epoch, member.phase) {
            (0, Phase::Promised | Phase::Synced) if !self.makes(Bug::RisenClock) => {
                promised >= clock
            }
            (0, _) => true,
            (_, phase) => phase == Phase::Synced,
        }
    }

    pub fn barriers(&self, state: &State, actions: &mut Vec<Action>) {
        for epoch in 0..2 {
            if epoch == 1 && state.base.is_none() {
                continue;
            }
            for (limit, count, asks_leader) in self.barriers_of(state, &state.logs[epoch]) {
                let mut last = 0;
                for clock in self.clocks(state, FIRST, 0) {
                    let barrier = limit.min(clock);
                    // Higher clocks than needed make no difference.
                    if barrier == last || barrier == 0 {
                        continue;
                    }
                    last = barrier;
                    for of in [[0, 1], [0, 2], [1, 2]] {
                        let sent_barrier = (barrier, count);
                        actions.push(Action::SendBarrier {
                            epoch,
                            sent_barrier,
                            clock,
                            of,
                            asks_leader,
                        });
                    }
                }
            }
        }
        for (limit, count, asks_leader) in self.barriers_of(state, &state.other) {
            let mut last = 0;
            for clock in self.clocks(state, OTHER, 0) {
                let barrier = limit.min(clock);
                if barrier != last {
                    last = barrier;
                    let clock = if asks_leader { clock } else { 0 };
                    actions
                        .push(Action::SendBarrierOther { sent_barrier: (barrier, count), clock });
                }
            }
        }
    }

    /// Returns all actions but barriers.
    pub fn moves(&self, state: &State, actions: &mut Vec<Action>) {
        for epoch in 0..2 {
            let leader = &state.members[self.leader(epoch)];
            let leads = [leader.phase == Phase::First, state.base.is_some()][epoch];
            for message in self.proposals(state, FIRST, &state.logs[epoch]) {
                let clocks = self.clocks(state, FIRST, leader.clock).filter(|_| leads);
                actions.extend(clocks.map(|clock| Action::Propose { epoch, message, clock }));
            }
        }
        for message in self.proposals(state, OTHER, &state.other) {
            let clocks = self.clocks(state, OTHER, state.other_clock);
            actions.extend(clocks.map(|clock| Action::ProposeOther { message, clock }));
        }
        for (index, member) in state.members.iter().enumerate() {
            let is_first = member.phase == Phase::First || self.makes(Bug::StaleEpoch);
            let follows = [is_first, member.phase == Phase::Synced];
            for epoch in (0..2).filter(|epoch| follows[*epoch]) {
                if member.accepted[epoch] < state.logs[epoch].end {
                    actions.push(Action::Accept { member: index, epoch });
                }
            }
            let can_restart = index != 0 && index != self.candidate && state.restarted.is_none();
            if self.makes(Bug::VotesWithoutMemory) && can_restart {
                actions.push(Action::Restart { member: index });
            }
            let candidate = &state.members[self.candidate];
            if state.base.is_some() && member.phase != Phase::Synced {
                actions.push(Action::Sync { member: index });
            }
            // Followers are symmetric to a leader that is elected again.
            if state.base.is_none() && index != self.candidate && (self.candidate, index) != (0, 2)
            {
                let clocks = self.clocks(state, FIRST, candidate.clock.max(member.clock));
                actions.extend(clocks.map(|clock| Action::Begin { with: index, clock }));
            }
        }
    }

    /// Returns the state after an action, or `None` if a clock in it is impossible.
    pub fn step(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        match action {
            Action::Propose { epoch, message, clock } => {
                state.logs[epoch].push((message, clock + 1));
                let leader = &mut state.members[self.leader(epoch)];
                leader.clock = clock + 1;
                leader.accepted[epoch] = state.logs[epoch].end;
            }
            Action::ProposeOther { message, clock } => {
                state.other.push((message, clock + 1));
                state.other_clock = clock + 1;
            }
            Action::Accept { member, epoch } => {
                let member = &mut state.members[member];
                let (_, timestamp) = state.logs[epoch].entries[usize::from(member.accepted[epoch])];
                member.accepted[epoch] += 1;
                if member.phase == Phase::First {
                    member.clock = member.clock.max(timestamp);
                }
            }
            Action::Begin { with, clock } => {
                let promised = state.members[with];
                state.members[with].phase = Phase::Promised;
                state.members[with].clock = 0;
                let leader = &mut state.members[self.candidate];
                let own = leader.accepted[0];
                let base =
                    if self.makes(Bug::OwnLog) { own } else { own.max(promised.accepted[0]) };
                state.logs[1] = Log { end: base, ..state.logs[0] };
                state.logs[1].entries[usize::from(base)..].fill(Entry::default());
                if !self.makes(Bug::OwnClock) {
                    leader.clock = clock;
                }
                if self.makes(Bug::NewTimestamp) {
                    for entry in &mut state.logs[1].entries[..usize::from(base)] {
                        leader.clock += 1;
                        entry.1 = leader.clock;
                    }
                }
                (leader.accepted[1], leader.phase) = (base, Phase::Synced);
                state.base = Some((base, clock));
            }
            Action::Sync { member } => {
                let (base, _) = state.base?;
                let accepted = [state.members[member].accepted[0], base];
                state.members[member] = Member { accepted, clock: 0, phase: Phase::Synced };
            }
            Action::Restart { member } => {
                state.restarted = Some((member, state.members[member].accepted));
                state.members[member] = Member::default();
            }
            Action::SendBarrier { epoch, sent_barrier, clock, of, asks_leader } => {
                let leader = asks_leader.then_some(self.leader(epoch));
                let quorum = of.into_iter().filter(|_| !self.makes(Bug::QuorumForgotten));
                for index in quorum.chain(leader) {
                    if !self.raise(&mut state, index, epoch, clock.min(sent_barrier.0)) {
                        return None;
                    }
                }
                state.sent_barrier = Some((FIRST, sent_barrier.0, sent_barrier.1));
            }
            Action::SendBarrierOther { sent_barrier, clock } => {
                state.other_clock = state.other_clock.max(clock);
                state.sent_barrier = Some((OTHER, sent_barrier.0, sent_barrier.1));
            }
        }
        Some(state)
    }

    /// Returns whether a position may still arrive below the barrier: an existing position behind
    /// it with a timestamp at or below it, or a new proposal. Otherwise the state need not be
    /// explored: all other properties are independent of barriers.
    fn is_dangerous(&self, state: &State) -> bool {
        let Some((group, barrier, count)) = state.sent_barrier else { return true };
        let stands = |log: &Log| {
            let behind = log.all().iter().skip(count.into());
            behind.into_iter().any(|(_, timestamp)| *timestamp <= barrier)
        };
        let is_low = |clock: u8| clock < barrier;
        if group != FIRST {
            return stands(&state.other) || is_low(state.other_clock);
        }
        let first = &state.members[0];
        state.logs.iter().any(stands)
            || (first.phase == Phase::First && is_low(first.clock))
            || state.base.is_none()
            || is_low(state.members[self.candidate].clock)
    }

    /// Checks that each position has one message, and each message one position and timestamp.
    fn agrees(&self, state: &State) -> bool {
        let differ = |one: (u8, u8, u8), other: (u8, u8, u8)| {
            one != other && (one.0 == other.0 || one.1 == other.1)
        };
        self.agreed(state).all(|one| !self.agreed(state).any(|other| differ(one, other)))
    }

    /// Checks that no decision at or below the barrier is behind the positions that it covers.
    fn is_barrier_safe(&self, state: &State) -> bool {
        let Some((group, barrier, count)) = state.sent_barrier else { return true };
        let is_right = |message: u8, position: u8| {
            position < count || self.last(state, message).is_none_or(|last| last > barrier)
        };
        match group {
            FIRST => self.agreed(state).all(|(at, message, _)| is_right(message, at)),
            _ => (0..).zip(state.other.all()).all(|(at, (message, _))| is_right(*message, at)),
        }
    }
}

impl Model for Rules {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.moves(state, actions);
        if state.sent_barrier.is_none() {
            self.barriers(state, actions);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        self.step(last, action).filter(|state| self.is_dangerous(state))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("agreement", |rules: &Rules, state: &State| rules.agrees(state)),
            Property::always(
                "no position is added below a barrier",
                |rules: &Rules, state: &State| rules.is_barrier_safe(state),
            ),
            Property::sometimes(DECIDED, |rules: &Rules, state: &State| {
                let all = (0..MESSAGES as u8).all(|message| rules.last(state, message).is_some());
                all && state.base.is_some()
            }),
            Property::sometimes(BOTH_LEAD, |rules: &Rules, state: &State| {
                let old = state.members[0].phase == Phase::First || rules.candidate == 0;
                old && state.base.is_some_and(|(base, _)| state.logs[1].end > base)
            }),
        ]
    }
}

pub const DECIDED: &str = "all is decided, and another member leads";
pub const BOTH_LEAD: &str = "the new leader proposes beside the old one";
