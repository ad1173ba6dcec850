//! A tree of switches and processes that state to each other who is there, over links that lose,
//! duplicate and delay.

use onepipe_base::{
    Address, Controllers, Incarnation, Instance, Machine, Mono, Now, Port, ProcessId, Promises,
    SwitchId, Timestamp, Verdict,
};
use onepipe_join::{Roster, Side};
use onepipe_wire::{HEADER_LEN, Header, Members, Opcode, seal};
use proptest::prelude::*;

const PROCESSES: u32 = 1_100;
/// Both ranges of ids.
const IDS: [u32; 4] = [1, 2, 1_030, 1_099];
const CONTROLLERS: Controllers = Controllers { first: ProcessId(1_040), count: 2 };
/// Port of the switch above.
const UP: Port = Port(2);

fn at(ns: u64) -> Now {
    Now { mono: Mono::from_ns(ns), sync: Timestamp::from_ns(ns + (1 << 60)) }
}

fn instance(address: Address) -> Instance {
    Instance { address, incarnation: Incarnation(1) }
}

/// The root has switches 1 and 2 at its ports 0 and 1; each of these has two processes.
struct Tree {
    now_ns: u64,
    switches: [Roster; 3],
    processes: [Roster; 4],
    frames: u64,
}

/// Where a frame goes: to a switch or a process, and there to a port.
enum End {
    Switch(usize, Port),
    Process(usize),
}

impl Tree {
    fn new() -> Self {
        let switch = |id| instance(Address::Switch(SwitchId(id)));
        let mut switches = [0, 1, 2]
            .map(|id| Roster::new(switch(id), 3, PROCESSES).with_controllers(Some(CONTROLLERS)));
        let now = at(0);
        for below in [0, 1] {
            switches[0].open(now, Port(below), Side::Below { wants_members: true });
            switches[0].set_up(now, Port(below), true);
            switches[usize::from(below) + 1].open(now, UP, Side::Above);
            switches[usize::from(below) + 1].set_up(now, UP, true);
        }
        let process = |id| instance(Address::Process(ProcessId(id)));
        let processes = IDS.map(|id| Roster::of_process(process(id), PROCESSES));
        Self { now_ns: 0, switches, processes, frames: 0 }
    }

    /// The switch and the port of process `index`.
    fn attachment(index: usize) -> (usize, Port) {
        (1 + index / 2, Port((index % 2) as u16))
    }

    fn join(&mut self, index: usize) {
        let (switch, port) = Self::attachment(index);
        let (process, now) = (ProcessId(IDS[index]), at(self.now_ns));
        self.processes[index] = Roster::of_process(instance(Address::Process(process)), PROCESSES);
        self.switches[switch].open(now, port, Side::Process { process, wants_members: true });
        self.switches[switch].set_up(now, port, true);
    }

    fn set_up(&mut self, index: usize, is_up: bool) {
        let (switch, port) = Self::attachment(index);
        self.switches[switch].set_up(at(self.now_ns), port, is_up);
    }

    fn restart_switch(&mut self, index: usize) {
        let now = at(self.now_ns);
        let below = Port(index as u16 - 1);
        let own = instance(Address::Switch(SwitchId(index as u32)));
        self.switches[0].open(now, below, Side::Below { wants_members: true });
        self.switches[0].set_up(now, below, true);
        let roster = Roster::new(own, 3, PROCESSES);
        self.switches[index] = roster.with_controllers(Some(CONTROLLERS));
        self.switches[index].open(now, UP, Side::Above);
        self.switches[index].set_up(now, UP, true);
        for process in [2 * (index - 1), 2 * (index - 1) + 1] {
            self.processes[process].forget(now, Port(0));
        }
    }

    /// Runs for `ns`. `copies` says how many copies of the next frame arrive.
    fn run(&mut self, ns: u64, mut copies: impl FnMut() -> usize) {
        let until = self.now_ns + ns;
        while self.now_ns < until {
            self.now_ns += 1_000_000;
            let now = at(self.now_ns);
            let mut sent = Vec::new();
            let mut slot = [0; 256];
            for (index, switch) in self.switches.iter_mut().enumerate() {
                while let Some(transmit) = switch.poll_transmit(now, &mut slot) {
                    let to = match (index, transmit.port) {
                        (0, port) => End::Switch(usize::from(port.0) + 1, UP),
                        (_, UP) => End::Switch(0, Port(index as u16 - 1)),
                        (_, port) => End::Process(2 * (index - 1) + usize::from(port.0)),
                    };
                    sent.push((to, slot[..transmit.bytes].to_vec()));
                }
            }
            for (index, process) in self.processes.iter_mut().enumerate() {
                while let Some(transmit) = process.poll_transmit(now, &mut slot) {
                    let (switch, port) = Self::attachment(index);
                    sent.push((End::Switch(switch, port), slot[..transmit.bytes].to_vec()));
                }
            }
            self.frames += sent.len() as u64;
            for (to, frame) in sent {
                for _ in 0..copies() {
                    let mut frame = frame.clone();
                    match to {
                        End::Switch(switch, port) => {
                            self.switches[switch].handle_frame(now, port, &mut frame)
                        }
                        End::Process(process) => {
                            self.processes[process].handle_frame(now, Port(0), &mut frame)
                        }
                    };
                }
            }
        }
    }

    /// What process `index` knows.
    fn known(&self, index: usize) -> Vec<u32> {
        self.processes[index].members().map(|process| process.0).collect()
    }
}

//= spec/ordering.md#R75
//= spec/ordering.md#R76
#[test]
fn members_pass_a_tree_and_nothing_is_sent_at_rest() {
    let mut tree = Tree::new();
    (0..4).for_each(|index| tree.join(index));
    tree.run(100_000_000, || 1);
    assert_eq!(tree.known(0), [2, 1_030, 1_099]);
    assert_eq!(tree.known(3), [1, 2, 1_030]);
    tree.set_up(1, false);
    tree.run(100_000_000, || 1);
    assert_eq!(tree.known(3), [1, 1_030]);
    let frames = tree.frames;
    tree.run(10_000_000_000, || 1);
    assert_eq!(tree.frames, frames, "nothing changes");
}

//= spec/ordering.md#R68
//= spec/ordering.md#R75
/// Frames of several neighbours may arrive before the next poll.
#[test]
fn pending_update_is_not_put_off_by_a_later_one() {
    let mut tree = Tree::new();
    tree.run(1_000_000_000, || 1);
    let switch = &mut tree.switches[1];
    for (port, ns) in [(0, 2_000_000_000), (1, 2_000_000_010)] {
        let process = ProcessId(IDS[port as usize]);
        switch.open(at(ns), Port(port), Side::Process { process, wants_members: true });
        switch.set_up(at(ns), Port(port), true);
        switch.check_invariants();
    }
    assert_eq!(switch.poll_timeout(), Some(Mono::from_ns(2_000_000_000)));
}

#[test]
fn switches_know_controllers_and_processes_do_not() {
    let mut tree = Tree::new();
    (0..3).for_each(|index| tree.join(index));
    tree.run(100_000_000, || 1);
    let process = CONTROLLERS.first;
    tree.switches[2].open(at(tree.now_ns), Port(1), Side::Controller { process });
    for is_up in [true, false, true] {
        tree.switches[2].set_up(at(tree.now_ns), Port(1), is_up);
        tree.run(100_000_000, || 1);
        let is_reached = [Port(0), Port(1), UP]
            .map(|port| tree.switches.each_ref().map(|switch| switch.is_reached(port, process)));
        assert_eq!(is_reached, [[false; 3], [is_up, false, is_up], [false, is_up, false]]);
        let is_behind = tree.switches.each_ref().map(|switch| switch.is_behind_switch(process));
        assert_eq!(is_behind, [is_up, is_up, false], "the switch of the controller itself");
        for switch in &tree.switches {
            assert!(switch.members().map(|member| member.0).eq([1, 2, 1_030]));
        }
        assert_eq!((tree.known(0), tree.known(2)), (vec![2, 1_030], vec![1, 2]));
    }
    // The root does not know it any more, until it is stated again.
    tree.restart_switch(2);
    tree.run(100_000_000, || 1);
    assert!(tree.switches.iter().all(|switch| !switch.is_behind_switch(process)));
}

#[test]
fn restarted_switch_learns_and_states_again() {
    let mut tree = Tree::new();
    (0..4).for_each(|index| tree.join(index));
    tree.run(100_000_000, || 1);
    tree.restart_switch(1);
    tree.run(100_000_000, || 1);
    assert_eq!(tree.known(3), [1_030], "nobody is joined below the switch that has restarted");
    assert_eq!(tree.known(1), [0; 0], "what the previous incarnation stated is dropped");
    tree.join(0);
    tree.run(100_000_000, || 1);
    assert_eq!((tree.known(3), tree.known(0)), (vec![1, 1_030], vec![1_030, 1_099]));
}

#[test]
fn process_cannot_speak_for_others() {
    let mut tree = Tree::new();
    (0..2).for_each(|index| tree.join(index));
    tree.run(100_000_000, || 1);
    let mut slot = [0; 256];
    let update = Members { range: 0, version: u64::MAX, bits: Some([u64::MAX; 16]) };
    let len = write(update, &mut slot);
    tree.switches[1].handle_frame(at(tree.now_ns), Port(0), &mut slot[..len]);
    tree.run(100_000_000, || 1);
    assert_eq!((tree.known(0), tree.known(1)), (vec![2], vec![1]));
}

/// Delivers an update of the first range to a process. Returns the number of acknowledgements.
fn state(process: &mut Roster, now: Now, version: u64, first_word: u64) -> usize {
    let mut bits = [0; 16];
    bits[0] = first_word;
    let mut slot = [0; 256];
    let len = write(Members { range: 0, version, bits: Some(bits) }, &mut slot);
    process.handle_frame(now, Port(0), &mut slot[..len]);
    std::iter::from_fn(|| process.poll_transmit(now, &mut slot)).count()
}

//= spec/ordering.md#R76
#[test]
fn statement_that_was_overtaken_is_ignored() {
    let own = instance(Address::Process(ProcessId(0)));
    let mut process = Roster::of_process(own, PROCESSES);
    // The version and the first processes of each update in the order of their arrival, its
    // acknowledgements, and what is known then. An acknowledgement may be lost.
    let updates: [(u64, u64, usize, &[u32]); 4] = [
        (7, 0b0110, 1, &[1, 2]),
        (6, 0b1000, 0, &[1, 2]),
        (7, 0b1000, 1, &[1, 2]),
        (8, 0b1000, 1, &[3]),
    ];
    for (version, bits, acks, known) in updates {
        assert_eq!(state(&mut process, at(version), version, bits), acks, "version {version}");
        assert!(process.members().map(|process| process.0).eq(known.iter().copied()));
    }
}

//= spec/ordering.md#R76
#[test]
fn late_statement_of_previous_incarnation_is_replaced() {
    let mut tree = Tree::new();
    (0..2).for_each(|index| tree.join(index));
    tree.run(100_000_000, || 1);
    let late = at(tree.now_ns).sync.as_ns();
    tree.run(100_000_000, || 1);
    tree.restart_switch(1);
    state(&mut tree.processes[1], at(tree.now_ns), late, 1 << 5);
    assert_eq!(tree.known(1), [5]);
    let (switch, port) = Tree::attachment(1);
    let side = Side::Process { process: ProcessId(IDS[1]), wants_members: true };
    tree.switches[switch].open(at(tree.now_ns), port, side);
    tree.set_up(1, true);
    tree.join(0);
    tree.run(100_000_000, || 1);
    assert_eq!((tree.known(0), tree.known(1)), (vec![2], vec![1]));
}

#[test]
fn ids_at_or_above_the_limit_are_ignored() {
    let mut process = Roster::of_process(instance(Address::Process(ProcessId(0))), PROCESSES);
    let mut slot = [0; 256];
    for bits in [[u64::MAX; 16], [0; 16]] {
        let version = 1 + u64::from(bits[0] == 0);
        let len = write(Members { range: 1, version, bits: Some(bits) }, &mut slot);
        process.handle_frame(at(1), Port(0), &mut slot[..len]);
        let known = (1_024..PROCESSES).filter(|_| version == 1);
        assert!(process.members().map(|process| process.0).eq(known));
    }
}

#[test]
fn ack_of_a_later_version_hides_no_change() {
    let mut tree = Tree::new();
    (0..2).for_each(|index| tree.join(index));
    tree.run(100_000_000, || 1);
    let mut slot = [0; 256];
    let len = write(Members { range: 0, version: u64::MAX, bits: None }, &mut slot);
    tree.switches[1].handle_frame(at(tree.now_ns), Port(0), &mut slot[..len]);
    tree.set_up(1, false);
    tree.run(100_000_000, || 1);
    assert_eq!(tree.known(0), [0; 0]);
}

/// Writes a frame of a stranger.
fn write(members: Members, slot: &mut [u8]) -> usize {
    let len = members.write(&mut slot[HEADER_LEN..]).expect("it fits");
    let own = instance(Address::Switch(SwitchId(9)));
    let nothing = Promises::both(Timestamp::from_ns(1));
    seal(slot, Header::hop_only(Opcode::Members, own, None, nothing), len)
}

proptest! {
    //= spec/ordering.md#R76
    #[test]
    fn members_are_right_after_loss_and_duplication(
        steps in prop::collection::vec((0..6_usize, any::<bool>(), 1..40_u64), 1..20),
        copies in prop::collection::vec(0..3_usize, 200),
    ) {
        let mut tree = Tree::new();
        let mut is_joined = [false; 4];
        let mut copies = copies.into_iter();
        for (index, joins, ms) in steps {
            match (index, joins) {
                (4 | 5, _) => {
                    tree.restart_switch(index - 3);
                    let first = 2 * (index - 4);
                    (is_joined[first], is_joined[first + 1]) = (false, false);
                }
                (_, true) => {
                    tree.join(index);
                    is_joined[index] = true;
                }
                (_, false) => {
                    tree.set_up(index, false);
                    is_joined[index] = false;
                }
            }
            tree.run(ms * 1_000_000, || copies.next().unwrap_or(1));
        }
        tree.run(20_000_000_000, || 1);
        for index in (0..4).filter(|index| is_joined[*index]) {
            let others = (0..4).filter(|other| *other != index && is_joined[*other]);
            let expected: Vec<u32> = others.map(|other| IDS[other]).collect();
            prop_assert_eq!(tree.known(index), expected);
        }
    }

    #[test]
    fn arbitrary_payloads_are_harmless(
        range in any::<u32>(),
        version in any::<u64>(),
        bits in prop::option::of(any::<[u64; 16]>()),
        port in 0..4_u16,
    ) {
        let mut tree = Tree::new();
        (0..2).for_each(|index| tree.join(index));
        let mut slot = [0; 256];
        let len = write(Members { range, version, bits }, &mut slot);
        let verdict = tree.switches[1].handle_frame(at(1), Port(port), &mut slot[..len]);
        prop_assert_eq!(verdict == Verdict::Consumed, port < 3 && range < 2);
        prop_assert!(tree.switches[1].members().all(|process| process.0 < PROCESSES));
    }
}
