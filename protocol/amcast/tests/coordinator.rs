//! Coordinators, members, a client and a replica on a lossless network: elections after crashes of
//! leaders and of coordinators.

use std::collections::VecDeque;

use onepipe_amcast::{
    Client, Config, Coordinator, CoordinatorConfig, Decision, Group, GroupId, GroupSet, Groups,
    Member, Replica, ReplicaEvent,
};
use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Timestamp, Verdict};
use onepipe_wire::header_unchecked;

const CLIENT: ProcessId = ProcessId(4);
const COORDINATORS: [ProcessId; 2] = [ProcessId(5), ProcessId(6)];
const GROUP: GroupId = GroupId(0);
const STEP_NS: u64 = 10_000;

fn groups() -> Groups {
    let members = [0, 1, 2].map(ProcessId).to_vec();
    Groups {
        groups: vec![Group { members, replicas: vec![ProcessId(3)] }],
        clients: vec![CLIENT],
        window: 4,
        message_groups_max: 1,
        frame_len_max: 256,
    }
}

struct World {
    members: Vec<Option<Member>>,
    replica: Replica,
    client: Client,
    coordinators: Vec<Coordinator>,
    /// Decisions in the store, which all coordinators share.
    written: Vec<Decision>,
    /// Coordinator that may write to the store.
    active: usize,
    frames: VecDeque<Vec<u8>>,
    delivered: Vec<u32>,
    now_ns: u64,
}

impl World {
    fn new() -> Self {
        let config = |process| Config {
            coordinators: COORDINATORS.to_vec(),
            ..Config::new(process, groups())
        };
        let member = |at| Member::new(config(ProcessId(at))).expect("it is a member");
        let coordinator =
            |process| Coordinator::new(CoordinatorConfig::new(process, groups())).expect("right");
        Self {
            members: (0..3).map(|at| Some(member(at))).collect(),
            replica: Replica::new(config(ProcessId(3))).expect("it is a replica"),
            client: Client::new(config(CLIENT)).expect("it is a client"),
            coordinators: COORDINATORS.map(coordinator).to_vec(),
            written: Vec::new(),
            active: usize::MAX,
            frames: VecDeque::new(),
            delivered: Vec::new(),
            now_ns: 1_000,
        }
    }

    fn now(&self) -> Now {
        let sync = Timestamp::from_ns((1 << 50) + self.now_ns);
        Now { mono: Mono::from_ns(self.now_ns), sync }
    }

    fn activate(&mut self, at: usize) {
        let (now, written) = (self.now(), self.written.clone());
        self.active = at;
        self.coordinators[at].activate(now, written);
    }

    fn run(&mut self, ns: u64) {
        for _ in 0..ns / STEP_NS {
            self.step();
        }
    }

    fn step(&mut self) {
        self.now_ns += STEP_NS;
        let now = self.now();
        let mut slot = [0; 256];
        let frames = &mut self.frames;
        let mut drive = |machine: &mut dyn Drive| machine.drive(now, &mut slot, frames);
        self.members.iter_mut().flatten().for_each(|member| drive(member));
        self.coordinators.iter_mut().for_each(|coordinator| drive(coordinator));
        drive(&mut self.replica);
        drive(&mut self.client);
        while let Some(event) = self.replica.poll_event() {
            let ReplicaEvent::Delivered(delivery) = event else { panic!("nobody is behind") };
            self.delivered.push(delivery.id.sequence);
        }
        while self.client.poll_event().is_some() {}
        for at in 0..self.coordinators.len() {
            while let Some(decision) = self.coordinators[at].poll_persist() {
                let is_written = at == self.active;
                if is_written {
                    self.written.push(decision);
                }
                self.coordinators[at].handle_persisted(now, decision, is_written);
            }
        }
        for mut frame in std::mem::take(&mut self.frames) {
            let to = header_unchecked(&frame).expect("a frame").dst();
            let verdict = match to {
                CLIENT => self.client.handle_frame(now, Port(0), &mut frame),
                ProcessId(3) => self.replica.handle_frame(now, Port(0), &mut frame),
                to if COORDINATORS.contains(&to) => {
                    let at = (to.0 - COORDINATORS[0].0) as usize;
                    self.coordinators[at].handle_frame(now, Port(0), &mut frame)
                }
                to => match &mut self.members[to.index()] {
                    Some(member) => member.handle_frame(now, Port(0), &mut frame),
                    None => Verdict::Consumed,
                },
            };
            assert_eq!(verdict, Verdict::Consumed, "to {to:?}");
        }
    }

    fn send(&mut self) -> u32 {
        let now = self.now();
        let to = GroupSet::EMPTY.with(GROUP);
        self.client.amcast(now, to, b"message").expect("there is room").sequence
    }

    fn leader(&self) -> Option<usize> {
        let leads = |member: &Option<Member>| member.as_ref().is_some_and(Member::is_leader);
        self.members.iter().position(leads)
    }
}

/// Common interface of the machines.
trait Drive {
    fn drive(&mut self, now: Now, slot: &mut [u8], frames: &mut VecDeque<Vec<u8>>);
}

impl<M: Machine> Drive for M {
    fn drive(&mut self, now: Now, slot: &mut [u8], frames: &mut VecDeque<Vec<u8>>) {
        if self.poll_timeout().is_some_and(|due| due <= now.mono) {
            self.handle_timeout(now);
        }
        while let Some(sent) = self.poll_transmit(now, slot) {
            frames.push_back(slot[..sent.bytes].to_vec());
        }
    }
}

#[test]
fn while_the_leader_lives_nobody_else_is_named() {
    let mut world = World::new();
    world.activate(0);
    world.send();
    world.run(50_000_000);
    assert_eq!((world.leader(), &world.delivered[..]), (Some(0), &[0][..]));
    assert!(world.written.is_empty());
    assert!(world.coordinators[0].stats().replies > 100, "they were asked");
}

#[test]
fn a_leader_that_dies_is_replaced_and_what_was_open_is_delivered() {
    let mut world = World::new();
    world.activate(0);
    world.send();
    world.run(5_000_000);
    world.members[0] = None;
    world.send();
    world.run(30_000_000);
    let [decision] = world.written[..] else { panic!("one election: {:?}", world.written) };
    assert_eq!((decision.group, decision.epoch), (GROUP, 2));
    assert_eq!(world.leader(), Some(decision.leader.index()));
    assert_eq!(world.delivered, [0, 1]);
    assert_eq!(world.coordinators[0].leader(GROUP), Some((decision.leader, 2)));
    // One of three members is no majority: no election is possible, and none is attempted.
    world.members[decision.leader.index()] = None;
    world.run(50_000_000);
    assert_eq!((world.leader(), world.written.len()), (None, 1));
}

#[test]
fn another_coordinator_goes_on_from_what_was_written_down() {
    let mut world = World::new();
    world.activate(0);
    world.run(2_000_000);
    world.members[0] = None;
    world.run(30_000_000);
    world.coordinators[0].deactivate();
    let second = world.leader().expect("another one leads");
    world.activate(1);
    world.run(30_000_000);
    assert_eq!((world.leader(), world.written.len()), (Some(second), 1), "no need for another");
    // The third member never restarts; the second one crashes.
    assert_eq!(world.coordinators[1].leader(GROUP), Some((ProcessId(second as u32), 2)));
}

#[test]
fn nothing_is_said_before_it_is_written() {
    let mut world = World::new();
    world.activate(0);
    world.run(2_000_000);
    // The store rejects the write: another coordinator may be active.
    world.active = usize::MAX;
    world.members[0] = None;
    world.run(50_000_000);
    assert_eq!((world.leader(), world.written.len()), (None, 0));
    assert_eq!(world.coordinators[0].stats().elections, 0);
    world.active = 0;
    world.run(20_000_000);
    assert!(world.leader().is_some(), "it tries again");
}

#[test]
fn a_coordinator_that_was_deposed_does_no_harm() {
    let mut world = World::new();
    world.activate(0);
    world.activate(1);
    world.members[0] = None;
    world.run(30_000_000);
    // Both coordinators have detected the failure; one could write.
    assert_eq!(world.written.len(), 1);
    assert_eq!(world.leader(), Some(world.written[0].leader.index()));
    world.send();
    world.run(5_000_000);
    assert_eq!(world.delivered, [0]);
}

#[test]
fn an_order_of_somebody_else_is_none() {
    let mut world = World::new();
    let mut stranger = Coordinator::new(CoordinatorConfig::new(ProcessId(9), groups()))
        .expect("its settings make sense");
    let now = world.now();
    stranger.activate(now, []);
    stranger.handle_timeout(now);
    let mut slot = [0; 256];
    let mut asked = 0;
    while stranger.poll_transmit(now, &mut slot).is_some() {
        asked += 1;
        let to = header_unchecked(&slot).expect("a frame").dst();
        let member = world.members[to.index()].as_mut().expect("it lives");
        assert_eq!(member.handle_frame(now, Port(0), &mut slot), Verdict::Dropped);
    }
    assert_eq!(asked, 3);
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let config = CoordinatorConfig {
        leader_timeout_ns: 2_000_000,
        ..CoordinatorConfig::new(CLIENT, groups())
    };
    assert_eq!(Coordinator::new(config).map_err(|error| error.name), Err("leader_timeout_ns"));
}
