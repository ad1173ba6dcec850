//! Random deaths, restarts and resumes against a naive model of frozen commits.

use crate::harness;

use harness::{
    OWN, at, beacon, both, frame_with_hops, guarded, instance_of, of_link, process, put, ts,
};
use onepipe_base::{
    Address, Instance, Machine, Port, Promises, SwitchId, Timestamp, Verdict, WIRE_MODULUS,
};
use onepipe_switch::{Config, Switch, SwitchEvent};
use onepipe_topology::{ForwardingTable, Route};
use onepipe_wire::{
    AnnounceView, Flags, Flood, FloodId, HEADER_LEN, HOPS_MAX, Header, LinkState, Opcode, Resolved,
    seal_with_hops,
};
use proptest::collection::vec;
use proptest::prelude::*;

const LOWER: usize = 4;
const PORTS: usize = 6;
/// Dead instances of one address that a port distinguishes.
const INSTANCES_MAX: usize = 8;
/// The controller's port: the lower port after those of the processes.
const CONTROLLER_PORT: u16 = LOWER as u16;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A frame for a process that another switch has relayed: it counts for its link.
    Frame {
        from: usize,
        to: usize,
    },
    /// One in four of an upper port carries no commit.
    Beacon {
        from: usize,
    },
    Restarted {
        from: usize,
    },
    /// The other end says that it receives nothing.
    OneWay {
        from: usize,
    },
    Lost {
        from: usize,
    },
    /// Lost, and another peer takes its place.
    Moved {
        from: usize,
    },
    Leave {
        from: usize,
    },
    /// Names one of the dead links, or none.
    Resume {
        which: usize,
    },
}

fn steps() -> impl Strategy<Value = Vec<(Step, u64, u64)>> {
    let port = || 0..PORTS;
    let step = prop_oneof![
        8 => (port(), 0..LOWER).prop_map(|(from, to)| Step::Frame { from, to }),
        6 => port().prop_map(|from| Step::Beacon { from }),
        2 => port().prop_map(|from| Step::Restarted { from }),
        1 => port().prop_map(|from| Step::OneWay { from }),
        2 => port().prop_map(|from| Step::Lost { from }),
        1 => port().prop_map(|from| Step::Moved { from }),
        1 => (0..LOWER).prop_map(|from| Step::Leave { from }),
        3 => (0..8usize).prop_map(|which| Step::Resume { which }),
    ];
    vec((step, 0..2_000u64, 0..4_000u64), 1..150)
}

#[derive(Clone, Copy, Debug)]
struct Dead {
    number: u32,
    port: usize,
    instance: Instance,
    commit: Timestamp,
}

#[derive(Clone, Copy, Default)]
enum Await {
    #[default]
    NotAdvertised,
    Count(Timestamp),
    Counted,
}

/// The formula of `docs/design/failure.md`, with no thought of speed.
#[derive(Default)]
struct Model {
    live: [Option<Promises>; PORTS],
    confirmed: [bool; PORTS],
    advertised: [Option<Promises>; PORTS],
    /// Inputs that have promised, since they came up, as much as was advertised on any output.
    caught_up: [bool; PORTS],
    /// Upper inputs whose last promises carried no commit.
    without_commit: [bool; PORTS],
    /// What the other end of an upper port must count before joiners below commit.
    awaited: [Await; PORTS],
    max_commit_advertised: Option<Timestamp>,
    /// The same for lower ports alone.
    max_commit_below: Option<Timestamp>,
    dead: Vec<Dead>,
    last: u32,
    /// Whether a link has died since the last flood.
    is_cut: bool,
    /// The switch that has died at an upper port and is resolved, and up to where it had promised.
    passed: [Option<(Address, Timestamp)>; PORTS],
}

impl Model {
    fn update(&mut self, port: usize, promises: Promises) {
        let held = self.live[port];
        if held.is_none() {
            self.awaited[port] = match self.advertised[port] {
                Some(advertised) => Await::Count(advertised.barrier),
                None => Await::NotAdvertised,
            };
        }
        self.live[port] = Some(held.map_or(promises, |held| held.max(promises)));
        self.without_commit[port] = port >= LOWER && promises.commit < ts(0);
        let is_counted = |upper: usize| {
            self.live[upper].is_none() || matches!(self.awaited[upper], Await::Counted)
        };
        self.caught_up[port] |= match port < LOWER {
            true => {
                (LOWER..PORTS).all(is_counted)
                    && self.max_commit_advertised <= Some(promises.commit)
            }
            false => self.max_commit_below <= Some(promises.barrier),
        };
        if held.is_none() && port >= LOWER {
            // The ports below wait until they are counted there, too.
            self.caught_up[..LOWER].fill(false);
        }
    }

    /// Handles a beacon of `port` that counts what was advertised up to `counted`.
    fn on_counted(&mut self, port: usize, counted: Timestamp) {
        if matches!(self.awaited[port], Await::Count(awaited) if awaited <= counted) {
            self.awaited[port] = Await::Counted;
        }
    }

    fn kill(&mut self, port: usize, instance: Instance) -> bool {
        (self.confirmed[port], self.without_commit[port]) = (false, false);
        if self.live[port].is_some() {
            self.caught_up[port] = false;
        }
        let Some(promises) = self.live[port].take() else { return false };
        let mut commit = promises.commit.max(self.presumed(port, instance));
        let is_same = |dead: &Dead| dead.port == port && dead.instance == instance;
        let is_related =
            |dead: &Dead| dead.port == port && dead.instance.address == instance.address;
        if let Some(at) = self.dead.iter().position(is_same) {
            commit = self.dead.remove(at).commit;
        } else if self.dead.iter().copied().filter(|dead| is_related(dead)).count() == INSTANCES_MAX
        {
            let at = self.dead.iter().rposition(is_related).expect("there are some");
            commit = commit.min(self.dead.remove(at).commit);
        }
        self.last += 1;
        self.dead.push(Dead { number: self.last, port, instance, commit });
        self.is_cut = true;
        true
    }

    /// Returns what is known of the nodes behind `port`, whatever the switch that dies there now
    /// has promised: up to where its incarnations had promised before, as far as that was
    /// advertised.
    fn presumed(&self, port: usize, instance: Instance) -> Timestamp {
        let is_previous =
            |dead: &&Dead| dead.port == port && dead.instance.address == instance.address;
        let held = self.dead.iter().filter(is_previous).map(|dead| dead.commit);
        let passed = self.passed[port].filter(|(address, _)| *address == instance.address);
        let promised = held.chain(passed.map(|(_, commit)| commit)).max();
        let both = promised.zip(self.max_commit_below).filter(|_| port >= LOWER);
        both.map_or(Timestamp::from_ns(0), |(promised, advertised)| promised.min(advertised))
    }

    fn resolve(&mut self, at: usize) {
        let Dead { port, instance, commit, .. } = self.dead.remove(at);
        let known = self.passed[port].filter(|(address, _)| *address == instance.address);
        let commit = known.map_or(commit, |(_, known)| known.max(commit));
        self.passed[port] = Some((instance.address, commit));
    }

    fn may_advertise(&self, output: usize) -> bool {
        let gets_commits = || self.caught_up[output] && self.without_commit == [false; PORTS];
        self.confirmed[output] && (output >= LOWER || gets_commits())
    }

    fn is_stopped(&self, output: usize) -> bool {
        let is_held = self.dead.iter().any(|dead| dead.port < LOWER || output < LOWER);
        self.is_cut && is_held
    }

    fn advertise(&mut self, now: u64, output: usize) -> Option<Promises> {
        let feeds = |input: usize| match (input < LOWER, output < LOWER) {
            (true, true) => input != output,
            (true, false) | (false, true) => true,
            (false, false) => false,
        };
        let live = |input: usize| self.live[input];
        let mut barriers: Vec<_> =
            (0..PORTS).filter(|port| feeds(*port)).filter_map(live).collect();
        if barriers.is_empty() && output < LOWER {
            barriers.extend(self.live[output]);
        }
        let barrier = barriers.iter().map(|promises| promises.barrier).min()?;
        let is_own_held = output < LOWER && self.dead.iter().any(|dead| dead.port == output);
        let counts = |port: usize| feeds(port) || (is_own_held && port == output);
        let held = self.dead.iter().filter(|dead| counts(dead.port)).map(|dead| dead.commit);
        let promised = (0..PORTS).filter(|port| counts(*port)).filter_map(live);
        let commits = promised.map(|promises| promises.commit).chain(held);
        let alone = self.live[output].map(|own| own.commit);
        let commit = commits.min().or(alone).expect("at least one promise");
        let may_advertise = self.may_advertise(output);
        let stays = |before: &Promises| self.is_stopped(output) && before.commit >= ts(0);
        let stopped_at = self.advertised[output].filter(stays).map(|before| before.commit);
        let commit = stopped_at.map_or(commit, |before| commit.min(before));
        let commit = if may_advertise { commit } else { no_commit(now) };
        let fresh = Promises { barrier, commit };
        let advertised = self.advertised[output].map_or(fresh, |advertised| advertised.max(fresh));
        self.advertised[output] = Some(advertised);
        if let Await::NotAdvertised = self.awaited[output] {
            self.awaited[output] = Await::Count(advertised.barrier);
        }
        if may_advertise {
            self.max_commit_advertised = self.max_commit_advertised.max(Some(advertised.commit));
            if output < LOWER {
                self.max_commit_below = self.max_commit_below.max(Some(advertised.commit));
            }
        }
        // A process may be another instance than the one that got commits here.
        let commit =
            if may_advertise || output >= LOWER { advertised.commit } else { no_commit(now) };
        Some(Promises { commit, ..advertised })
    }
}

struct Harness {
    switch: Switch,
    model: Model,
    now: u64,
    flood_sequence: u32,
    instances: [u32; PORTS],
    /// Whether the second of two addresses is at each port.
    is_second: [bool; PORTS],
    senders: [Option<Promises>; PORTS],
}

fn no_commit(now: u64) -> Timestamp {
    Timestamp::from_ns(ts(now).as_ns() - WIRE_MODULUS / 4)
}

fn machine_port(port: usize) -> u16 {
    if port < LOWER { port as u16 } else { port as u16 + 1 }
}

impl Harness {
    fn new() -> Self {
        let config = Config {
            upper_ports: 2,
            link_timeout_ns: 0,
            frame_len_max: 65_000,
            route: Route::ForwardingTable(ForwardingTable::new(64, true)),
            ..guarded(LOWER as u16 + 1)
        };
        let mut switch = Switch::new(config).expect("valid");
        switch.handle_timeout(at(0));
        let controller = process(harness::CONTROLLER, 1);
        put(&mut switch, at(0), CONTROLLER_PORT, of_link(Opcode::Hello, controller, None, both(0)));
        while switch.poll_event().is_some() {}
        Self {
            switch,
            model: Model::default(),
            now: 10,
            flood_sequence: 0,
            instances: [1; PORTS],
            is_second: [false; PORTS],
            senders: [None; PORTS],
        }
    }

    fn instance(&self, port: usize) -> Instance {
        let id = port as u32 + if self.is_second[port] { 20 } else { 0 };
        match port < LOWER {
            true => process(id, self.instances[port]),
            false => instance_of(Address::Switch(SwitchId(10 + id)), self.instances[port]),
        }
    }

    fn promise(&mut self, from: usize, behind: u64, commit_behind: u64) -> Promises {
        let barrier = ts((self.now + 10_000).saturating_sub(behind));
        let commit = ts((self.now + 10_000).saturating_sub(commit_behind));
        let promises = Promises { barrier, commit };
        let promises = self.senders[from].map_or(promises, |held| held.max(promises));
        self.senders[from] = Some(promises);
        promises
    }

    fn beacon(&mut self, from: usize, ack_from: Option<Instance>, promises: Promises) {
        let (instance, port) = (self.instance(from), machine_port(from));
        let verdict = beacon(&mut self.switch, at(self.now), port, (instance, ack_from), promises);
        assert_eq!(verdict, Verdict::Consumed);
    }

    /// Sends the beacon as often as needed: a link that was lost often needs more.
    fn beacon_until_up(&mut self, from: usize, ack_from: Option<Instance>, promises: Promises) {
        let port = Port(machine_port(from));
        for _ in 0..1_024 {
            self.beacon(from, ack_from, promises);
            if self.switch.is_live(port) {
                return;
            }
        }
        panic!("{from} stays down");
    }

    /// Brings the link up, as two ends that both know of its loss do.
    fn bring_up(&mut self, from: usize, promises: Promises) {
        if self.model.live[from].is_none() {
            self.beacon_until_up(from, None, promises);
            self.confirm(from, promises);
        }
    }

    /// Delivers a beacon that names the switch, and counts what it has advertised.
    fn confirm(&mut self, from: usize, promises: Promises) {
        self.beacon(from, Some(OWN), promises);
        self.model.update(from, promises);
        self.model.on_counted(from, promises.barrier);
        self.model.confirmed[from] = true;
    }

    fn kill(&mut self, port: usize) {
        self.model.kill(port, self.instance(port));
    }

    fn step(&mut self, step: Step, behind: u64, commit_behind: u64) {
        self.now += 7;
        match step {
            Step::Frame { from, to } => {
                let promises = self.promise(from, behind, commit_behind);
                self.bring_up(from, promises);
                let mut bytes =
                    frame_with_hops(Opcode::Data, 50, to as u32, promises, HOPS_MAX - 1);
                let port = Port(machine_port(from));
                let verdict = self.switch.handle_frame(at(self.now), port, &mut bytes);
                self.model.update(from, promises);
                if let Verdict::Forward(output) = verdict {
                    let index = usize::from(output.0) - usize::from(output.0 > CONTROLLER_PORT);
                    let promises = harness::promises_of(&bytes, at(self.now));
                    assert_eq!(Some(promises), self.model.advertise(self.now, index));
                }
            }
            Step::Beacon { from } => {
                let mut promises = self.promise(from, behind, commit_behind);
                self.bring_up(from, promises);
                if from >= LOWER && commit_behind.is_multiple_of(4) {
                    promises.commit = no_commit(self.now);
                }
                self.confirm(from, promises);
            }
            Step::Restarted { from } => {
                if self.model.live[from].is_some() {
                    self.kill(from);
                }
                self.instances[from] += 1;
                self.senders[from] = None;
                let promises = self.promise(from, behind, commit_behind);
                self.beacon(from, None, promises);
                self.model.update(from, promises);
                self.model.on_counted(from, promises.barrier);
                self.check_advertised();
                self.confirm(from, promises);
            }
            Step::OneWay { from } => {
                if self.model.live[from].is_some() {
                    let promises = self.promise(from, behind, commit_behind);
                    self.beacon(from, None, promises);
                    self.kill(from);
                    // The other end must receive it again, and say so.
                    self.beacon_until_up(from, Some(OWN), promises);
                    self.confirm(from, promises);
                }
            }
            Step::Lost { from } => {
                self.switch.mark_link_lost(Port(machine_port(from)));
                self.kill(from);
            }
            Step::Moved { from } => {
                self.switch.mark_link_lost(Port(machine_port(from)));
                self.kill(from);
                self.is_second[from] ^= true;
                self.instances[from] += 1;
                self.senders[from] = None;
            }
            Step::Leave { from } => {
                if self.model.live[from].is_some() {
                    let promises = self.promise(from, behind, commit_behind);
                    let instance = self.instance(from);
                    let leave = of_link(Opcode::Leave, instance, Some(OWN), promises);
                    put(&mut self.switch, at(self.now), from as u16, leave);
                    if self.model.live[from].is_some() {
                        self.model.update(from, promises);
                        self.kill(from);
                    }
                }
            }
            Step::Resume { which } => self.resume(which),
        }
        self.check_advertised();
        self.check_dead();
        while let Some(event) = self.switch.poll_event() {
            assert!(!matches!(event, SwitchEvent::ControllerLost(_)));
        }
    }

    fn resume(&mut self, which: usize) {
        let number = self.model.dead.get(which).map_or(0, |dead| dead.number);
        if which < self.model.dead.len() {
            self.model.resolve(which);
        }
        self.model.is_cut = false;
        self.flood_sequence += 1;
        let mut bytes = [0; HEADER_LEN + 64];
        let flood_sequence = Flood { id: FloodId { epoch: 1, sequence: self.flood_sequence } };
        let resolved = [Resolved { owner: OWN, number }].into_iter();
        let (_, payload) =
            flood_sequence.write_resume(&mut bytes[HEADER_LEN..], resolved).expect("fits");
        let controller = process(harness::CONTROLLER, 1);
        let header = Header::hop_only(Opcode::Flood, controller, None, both(0));
        let length = seal_with_hops(&mut bytes, header, payload, 0);
        let verdict =
            self.switch.handle_frame(at(self.now), Port(CONTROLLER_PORT), &mut bytes[..length]);
        assert_eq!(verdict, Verdict::Consumed);
    }

    /// Checks what every output would get now, on a clone of the switch.
    fn check_advertised(&mut self) {
        let mut switch = self.switch.clone();
        let due = switch.poll_timeout().expect("an instant").as_ns().max(self.now) + 3_000;
        switch.handle_timeout(at(due));
        for sent in harness::sent(&mut switch, at(due)) {
            if sent.opcode == Opcode::Beacon && sent.port != CONTROLLER_PORT {
                let index = usize::from(sent.port) - usize::from(sent.port > CONTROLLER_PORT);
                let mut model = self.model.copy();
                let promises = sent.header.promises(at(due).sync);
                let expected = model.advertise(due, index);
                if sent.header.has(Flags::UNFED) {
                    assert!(index >= LOWER, "processes get no unfed beacons");
                    let is_held = self.model.dead.iter().any(|dead| dead.port < LOWER);
                    assert_eq!((expected, is_held), (None, sent.header.has(Flags::HOLDS)));
                    continue;
                }
                assert_eq!(Some(promises), expected, "output {index}");
                assert_eq!(sent.header.has(Flags::HOLDS), self.model.is_stopped(index));
                let before = self.model.advertised[index];
                let may_advertise = index >= LOWER || self.model.may_advertise(index);
                let is_back = before.is_some_and(|before| {
                    promises.barrier < before.barrier
                        || (may_advertise && promises.commit < before.commit)
                });
                assert!(!is_back, "{promises:?} after {before:?}");
            }
        }
    }

    /// Checks which dead links are announced to the controller.
    fn check_dead(&mut self) {
        let mut switch = self.switch.clone();
        let due = switch.poll_timeout().expect("an instant").as_ns().max(self.now) + 20_000_000;
        switch.handle_timeout(at(due));
        let sent = harness::sent_in(&mut switch, at(due), 65_000);
        let announce = sent.iter().find(|sent| sent.opcode == Opcode::Announce).expect("due");
        let view = AnnounceView::parse(&announce.payload).expect("well-formed");
        let mut dead = Vec::new();
        for link in view.links(ts(self.now)) {
            if let LinkState::Frozen { number, commit, .. } = link.state {
                dead.push((number, link.port.0, link.instance, commit));
            }
        }
        let expected =
            self.model.dead.iter().map(|dead| {
                (dead.number, machine_port(dead.port), Some(dead.instance), dead.commit)
            });
        assert_eq!(dead, expected.collect::<Vec<_>>());
    }
}

impl Model {
    fn copy(&self) -> Self {
        Self { dead: self.dead.clone(), ..*self }
    }
}

proptest! {
    #[test]
    fn held_commits_match_the_model(steps in steps()) {
        let mut harness = Harness::new();
        for (step, behind, commit_behind) in steps {
            harness.step(step, behind, commit_behind);
        }
        let stats = *harness.switch.stats();
        prop_assert_eq!((stats.events_lost, stats.dropped_stale), (0, 0));
    }
}
