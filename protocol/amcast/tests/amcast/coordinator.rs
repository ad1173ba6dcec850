//! Coordinators, members, a client and a replica on a lossless network: elections after crashes of
//! leaders and of coordinators.

use std::collections::VecDeque;

use onepipe_amcast::{
    Client, Config, Coordinator, CoordinatorConfig, Decision, Group, GroupId, GroupSet, Groups,
    Member, Replica, ReplicaEvent,
};
use onepipe_base::{
    Incarnation, Machine, Mono, Now, Port, ProcessId, Promises, Psn, Timestamp, Verdict,
};
use onepipe_wire::{Amcast, Header, Opcode, SHORT_HEADER_LEN, header_unchecked, seal};

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

struct Harness {
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

impl Harness {
    fn new() -> Self {
        let config = |process| Config {
            coordinators: COORDINATORS.to_vec(),
            ..Config::new(process, groups())
        };
        let member = |at| Member::new(config(ProcessId(at))).expect("a member");
        let coordinator =
            |process| Coordinator::new(CoordinatorConfig::new(process, groups())).expect("right");
        Self {
            members: (0..3).map(|at| Some(member(at))).collect(),
            replica: Replica::new(config(ProcessId(3))).expect("a replica"),
            client: Client::new(config(CLIENT)).expect("a client"),
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
        let mut drive = |machine: &mut dyn AnyMachine| machine.drive(now, &mut slot, frames);
        self.members.iter_mut().flatten().for_each(|member| drive(member));
        self.coordinators.iter_mut().for_each(|coordinator| drive(coordinator));
        drive(&mut self.replica);
        drive(&mut self.client);
        while let Some(event) = self.replica.poll_event() {
            let ReplicaEvent::Delivered(delivery) = event else { panic!("no replica is behind") };
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
        self.client.amcast(now, to, b"message").expect("the window has space").sequence
    }

    fn leader(&self) -> Option<usize> {
        let leads = |member: &Option<Member>| member.as_ref().is_some_and(Member::is_leader);
        self.members.iter().position(leads)
    }
}

/// Common interface of the machines.
trait AnyMachine {
    fn drive(&mut self, now: Now, slot: &mut [u8], frames: &mut VecDeque<Vec<u8>>);
}

impl<M: Machine> AnyMachine for M {
    fn drive(&mut self, now: Now, slot: &mut [u8], frames: &mut VecDeque<Vec<u8>>) {
        if self.poll_timeout().is_some_and(|due| due <= now.mono) {
            self.handle_timeout(now);
        }
        while let Some(sent) = self.poll_transmit(now, slot) {
            frames.push_back(slot[..sent.bytes].to_vec());
        }
    }
}

//= spec/amcast.md#R20
#[test]
fn live_leader_is_not_replaced() {
    let mut harness = Harness::new();
    harness.activate(0);
    harness.send();
    harness.run(50_000_000);
    assert_eq!((harness.leader(), &harness.delivered[..]), (Some(0), &[0][..]));
    assert!(harness.written.is_empty());
    assert!(harness.coordinators[0].stats().replies > 100, "members were probed");
}

//= spec/amcast.md#R20
#[test]
fn replaces_crashed_leader_and_delivers_open_messages() {
    let mut harness = Harness::new();
    harness.activate(0);
    harness.send();
    harness.run(5_000_000);
    harness.members[0] = None;
    harness.send();
    harness.run(30_000_000);
    let [decision] = harness.written[..] else { panic!("one election: {:?}", harness.written) };
    assert_eq!((decision.group, decision.epoch), (GROUP, 2));
    assert_eq!(harness.leader(), Some(decision.leader.index()));
    assert_eq!(harness.delivered, [0, 1]);
    assert_eq!(harness.coordinators[0].leader(GROUP), Some((decision.leader, 2)));
    // One of three members is no majority: no election is possible, and none is attempted.
    harness.members[decision.leader.index()] = None;
    harness.run(50_000_000);
    assert_eq!((harness.leader(), harness.written.len()), (None, 1));
}

#[test]
fn next_coordinator_resumes_from_persisted_decisions() {
    let mut harness = Harness::new();
    harness.activate(0);
    harness.run(2_000_000);
    harness.members[0] = None;
    harness.run(30_000_000);
    harness.coordinators[0].deactivate();
    let second = harness.leader().expect("another member leads");
    harness.activate(1);
    harness.run(30_000_000);
    assert_eq!((harness.leader(), harness.written.len()), (Some(second), 1), "no need for another");
    // The third member never restarts; the second one crashes.
    assert_eq!(harness.coordinators[1].leader(GROUP), Some((ProcessId(second as u32), 2)));
}

//= spec/amcast.md#R19
#[test]
fn notifies_leader_only_after_persisting() {
    let mut harness = Harness::new();
    harness.activate(0);
    harness.run(2_000_000);
    // The store rejects the write: another coordinator may be active.
    harness.active = usize::MAX;
    harness.members[0] = None;
    harness.run(50_000_000);
    assert_eq!((harness.leader(), harness.written.len()), (None, 0));
    assert_eq!(harness.coordinators[0].stats().elections, 0);
    harness.active = 0;
    harness.run(20_000_000);
    assert!(harness.leader().is_some(), "the election is repeated");
}

//= spec/amcast.md#R19
#[test]
fn deposed_coordinator_is_harmless() {
    let mut harness = Harness::new();
    harness.activate(0);
    harness.activate(1);
    harness.members[0] = None;
    harness.run(30_000_000);
    // Both coordinators have detected the failure; one could write.
    assert_eq!(harness.written.len(), 1);
    assert_eq!(harness.leader(), Some(harness.written[0].leader.index()));
    harness.send();
    harness.run(5_000_000);
    assert_eq!(harness.delivered, [0]);
}

//= spec/amcast.md#R20
//= spec/amcast.md#R22
/// The store of the coordinator went back to before it appointed the leader of epoch 2, and another
/// member is appointed for the same epoch.
#[test]
fn older_store_gives_an_epoch_one_leader_only() {
    let mut harness = Harness::new();
    harness.run(1_000_000);
    let now = harness.now();
    harness.members[0] = None;
    assert!(harness.members[2].as_mut().expect("alive").lead(now, 2));
    harness.run(1_000_000);
    assert_eq!(harness.leader(), Some(2));
    harness.written = vec![Decision { group: GROUP, epoch: 2, leader: ProcessId(1) }];
    harness.activate(0);
    harness.send();
    harness.run(30_000_000);
    let [_, decision] = harness.written[..] else { panic!("one election: {:?}", harness.written) };
    assert_eq!((decision.epoch, harness.leader()), (3, Some(decision.leader.index())));
    assert_eq!(harness.delivered, [0]);
}

//= spec/amcast.md#R21
#[test]
fn ignores_appointment_from_other_process() {
    let mut harness = Harness::new();
    let mut stranger = Coordinator::new(CoordinatorConfig::new(ProcessId(9), groups()))
        .expect("a valid configuration");
    let now = harness.now();
    stranger.activate(now, []);
    stranger.handle_timeout(now);
    let mut slot = [0; 256];
    let mut asked = 0;
    while stranger.poll_transmit(now, &mut slot).is_some() {
        asked += 1;
        let to = header_unchecked(&slot).expect("a frame").dst();
        let member = harness.members[to.index()].as_mut().expect("a live machine");
        assert_eq!(member.handle_frame(now, Port(0), &mut slot), Verdict::Dropped);
    }
    assert_eq!(asked, 3);
}

#[test]
fn rejects_invalid_settings() {
    let config = CoordinatorConfig {
        leader_timeout_ns: 2_000_000,
        ..CoordinatorConfig::new(CLIENT, groups())
    };
    assert_eq!(Coordinator::new(config).map_err(|error| error.name), Err("leader_timeout_ns"));
}

//= spec/amcast.md#R37
/// A reply with the last epoch once made the coordinator give up all elections of the group.
#[test]
fn coordinator_drops_replies_of_impossible_epochs() {
    let mut harness = Harness::new();
    harness.activate(0);
    harness.run(3_000_000);
    let now = harness.now();
    let mut frame = vec![0; 256];
    let body = Amcast::new(GROUP, u32::MAX);
    let len = body.write(&mut frame[SHORT_HEADER_LEN..]).expect("there is space");
    let header = Header::new(Opcode::AmcastPromise, ProcessId(0), COORDINATORS[0], Incarnation(1));
    let promises = Promises::both(now.sync);
    let len = seal(&mut frame, header.stamped(now.sync, promises, Psn::FIRST), len);
    let coordinator = &mut harness.coordinators[0];
    assert_eq!(coordinator.handle_frame(now, Port(0), &mut frame[..len]), Verdict::Dropped);
    assert_eq!(coordinator.stats().epochs_ahead, 1);
    harness.members[0] = None;
    harness.run(20_000_000);
    assert!(harness.leader().is_some(), "another member leads");
}
