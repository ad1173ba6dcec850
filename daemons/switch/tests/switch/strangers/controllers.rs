//! Two controllers with one id at different switches of a tree: the first one stays.

use std::net::SocketAddr;
use std::time::Instant;

use onepipe_base::{
    Address, Controllers, Incarnation, Instance, ProcessId, Promises, Psn, SwitchId, Timestamp,
};
use onepipe_daemon_switch::Config;
use onepipe_wire::{
    HEADER_LEN, Header, JoinAnswer, JoinRole, Members, Opcode, RefuseReason, parse_header,
    seal_with_hops,
};

use super::lab::{Lab, Stranger, TIMEOUT};

const CONTROLLER: u32 = 15;
/// As of a frame that a switch has sent for a neighbour below it.
const RELAYED_HOPS: u8 = 2;
/// What the statement of a switch says if only that controller is behind it.
const STATEMENT: [u64; 16] = {
    let mut bits = [0; 16];
    bits[0] = 1 << CONTROLLER;
    bits
};

/// A controller counts as live for six seconds, as the machine may be busy.
fn calm(config: &mut Config) {
    let first = ProcessId(CONTROLLER);
    config.controllers = Some(Controllers { first, count: 1 });
    (config.heartbeat_interval_ns, config.ports_max) = (2_000_000_000, 8);
}

/// A root with one switch below, between which statements pass. Returns the address of the latter.
fn tree() -> (Lab, SocketAddr) {
    let mut lab = Lab::new(calm);
    let below = lab.add_below(calm);
    let process = lab.process(1);
    lab.attach(&[&process]);
    lab.run_until("the link of the switches is up", |lab| lab.below[0].members().count() == 1);
    (lab, below)
}

fn controller(switch: SocketAddr) -> Stranger {
    Lab::stranger_at(switch, Address::Process(ProcessId(CONTROLLER)), JoinRole::Controller)
}

fn is_taken(answer: JoinAnswer) -> bool {
    matches!(answer, JoinAnswer::Refused { reason: RefuseReason::Taken, .. })
}

impl Stranger {
    fn hello(&self) {
        let nothing = Promises::both(Timestamp::from_ns(1));
        self.send(Header::hop_only(Opcode::Hello, self.instance, None, nothing), |_| 0);
    }
}

impl Lab {
    /// Returns whether the switch of `controller` answers its Hello, or does not know it any more.
    fn is_served(&mut self, controller: &Stranger) -> bool {
        let (started, mut bytes) = (Instant::now(), [0; 2048]);
        while controller.socket.recv(&mut bytes).is_ok() {}
        while started.elapsed() < TIMEOUT {
            controller.hello();
            self.turn();
            while let Ok(len) = controller.socket.recv(&mut bytes) {
                match parse_header(&bytes[..len]) {
                    Ok((_, Opcode::Hello)) => return true,
                    Ok((_, Opcode::JoinAnswer)) => return false,
                    _ => {}
                }
            }
        }
        panic!("the switch does not answer");
    }

    /// Joins as soon as the id is free.
    fn joins_again(&mut self, controller: &Stranger) {
        let started = Instant::now();
        while !matches!(self.join(controller), JoinAnswer::Accepted(_)) {
            assert!(started.elapsed() < TIMEOUT, "the id is never free again");
        }
    }

    /// Asserts that `controller` loses its port, and gets none again.
    fn ends(&mut self, controller: &Stranger, running: &Stranger) {
        let started = Instant::now();
        loop {
            assert!(started.elapsed() < TIMEOUT, "the later controller is still admitted");
            assert!(self.is_served(running), "the earlier controller has lost its port");
            // A switch to which the other one is not stated yet admits it once more.
            if !self.is_served(controller) && is_taken(self.join(controller)) {
                return;
            }
        }
    }
}

//= spec/ordering.md#R68
//= spec/ordering.md#R75
#[test]
fn controller_that_runs_at_another_switch_is_not_admitted() {
    let (mut lab, below) = tree();
    let root = lab.address;
    let beside = lab.add_below(calm);
    lab.run_until("the second link is up", |lab| lab.below[1].members().count() == 1);
    for (at, others) in [(root, [below, beside]), (below, [root, beside]), (beside, [below, root])]
    {
        let first = controller(at);
        lab.joins_again(&first);
        assert!(lab.is_served(&first));
        // The statements of its switch come in order, so those of the controller are there before.
        let process = Lab::stranger_at(at, Address::Process(ProcessId(2)), JoinRole::Process);
        lab.attach(&[&process]);
        lab.run_until("all switches know of the process", |lab| {
            let mut switches = std::iter::once(&lab.switch).chain(&lab.below);
            switches.all(|switch| switch.members().any(|member| member == ProcessId(2)))
        });
        for other in others {
            assert!(is_taken(lab.join(&controller(other))), "{other} admits a second one");
        }
        assert!(lab.is_served(&first), "the first one has lost its port");
        for switch in std::iter::once(&lab.switch).chain(&lab.below) {
            assert!(switch.members().all(|member| member != ProcessId(CONTROLLER)));
        }
        // The lower switch hangs, so the root takes its link for lost after a while.
        if at == root {
            let second = controller(below);
            lab.joins_again(&second);
            second.hello();
        }
        // Killed: the kernel refuses what the switch sends to it.
        first.hello();
        drop((first, process));
        for other in others {
            let second = controller(other);
            lab.joins_again(&second);
            second.hello();
        }
        lab.run_until("the port of the process is free", |lab| {
            let mut switches = std::iter::once(&lab.switch).chain(&lab.below);
            switches.all(|switch| switch.members().all(|member| member != ProcessId(2)))
        });
    }
}

/// What its switch and others have stated about a controller does not stand in its own way.
//= spec/ordering.md#R68
#[test]
fn restart_of_a_switch_ends_no_controller() {
    for is_at_root in [true, false] {
        let (mut lab, below) = tree();
        let [own, other] = if is_at_root { [lab.address, below] } else { [below, lab.address] };
        let running = controller(own);
        lab.joined(&running);
        for (number, id) in [(0, 2), (1, 3), (0, 4)] {
            lab.restart(number, calm);
            while !lab.is_served(&running) {
                let answer = lab.join(&running);
                assert!(matches!(answer, JoinAnswer::Accepted(_)), "{answer:?}");
            }
            let process = Lab::stranger_at(own, Address::Process(ProcessId(id)), JoinRole::Process);
            lab.attach(&[&process]);
            lab.run_until("the link is up again", |lab| {
                let mut switches = std::iter::once(&lab.switch).chain(&lab.below);
                switches.all(|switch| switch.members().any(|member| member == ProcessId(id)))
            });
            assert!(lab.is_served(&running), "it is not admitted any more");
            assert!(is_taken(lab.join(&controller(other))), "it is not stated any more");
        }
    }
}

/// A switch below that speaks by hand.
struct Neighbour {
    port: Stranger,
    root: Option<Instance>,
    version: u64,
}

impl Neighbour {
    /// Joins, and waits until its link is up.
    fn new(lab: &mut Lab) -> Self {
        let mut port = lab.stranger(Address::Switch(SwitchId(9)), JoinRole::Switch);
        port.wants_members = true;
        lab.joined(&port);
        let root = lab.next(&port, |frame| frame.header.sender());
        let mut neighbour = Self { port, root, version: 0 };
        let started = Instant::now();
        while lab.switch.members().count() == 0 {
            assert!(started.elapsed() < TIMEOUT, "the link is not up");
            neighbour.state(lab, [1; 16]);
        }
        neighbour
    }

    /// States what is behind it.
    fn state(&mut self, lab: &mut Lab, bits: [u64; 16]) {
        self.version += 1;
        let now = lab.now();
        let promises = Promises::both(now);
        self.port
            .send(Header::hop_only(Opcode::Beacon, self.port.instance, self.root, promises), |_| 0);
        let header =
            Header::hop_only(Opcode::Members, self.port.instance, None, Promises::both(now));
        let members = Members { range: 0, version: self.version, bits: Some(bits) };
        self.port.send(header, |buf| members.write(buf).expect("there is space"));
        lab.turn();
    }

    /// Announces a controller below it.
    fn announce(&self, lab: &mut Lab, incarnation: Incarnation) {
        let (now, process) = (lab.now(), ProcessId(CONTROLLER));
        let join = Header::new(Opcode::Join, process, process, incarnation);
        let mut frame = [0; HEADER_LEN];
        let join = join.stamped(now, Promises::both(now), Psn::FIRST);
        seal_with_hops(&mut frame, join, 0, RELAYED_HOPS);
        self.port.socket.send(&frame).expect("the loopback is there");
        lab.turn();
    }

    /// Returns whether it is notified that this incarnation is to end.
    fn is_refused(&self, incarnation: Incarnation) -> bool {
        let address = Address::Process(ProcessId(CONTROLLER));
        let (mut bytes, mut is_refused) = ([0; 2048], false);
        while let Ok(len) = self.port.socket.recv(&mut bytes) {
            let Ok((header, Opcode::JoinAnswer)) = parse_header(&bytes[..len]) else { continue };
            is_refused |= header.peer() == Some(Instance { address, incarnation })
                && JoinAnswer::parse(&bytes[HEADER_LEN..len]).is_ok_and(is_taken);
        }
        is_refused
    }
}

/// The announcement of a later incarnation once took the port of the running controller.
//= spec/ordering.md#R68
#[test]
fn announced_controller_does_not_take_over_a_port() {
    let mut lab = Lab::new(calm);
    let mut neighbour = Neighbour::new(&mut lab);
    let first = controller(lab.address);
    lab.joined(&first);
    assert!(lab.is_served(&first));
    let Incarnation(known) = first.instance.incarnation;
    let (earlier, later) = (Incarnation(known - 1), Incarnation(known + 1));
    for bits in [[0; 16], STATEMENT] {
        neighbour.state(&mut lab, bits);
        neighbour.announce(&mut lab, later);
        assert!(lab.is_served(&first), "an announcement has taken its port");
        assert!(neighbour.is_refused(later));
    }
    // What has run before it stays, unless its switch has lost it.
    neighbour.state(&mut lab, [0; 16]);
    neighbour.announce(&mut lab, earlier);
    assert!(lab.is_served(&first) && !neighbour.is_refused(earlier));
    neighbour.state(&mut lab, STATEMENT);
    neighbour.announce(&mut lab, earlier);
    assert!(!lab.is_served(&first) && is_taken(lab.join(&first)));
}

/// Two controllers that are admitted at different switches at the same time, as neither switch
/// knows of the other one.
//= spec/ordering.md#R68
#[test]
fn later_of_two_controllers_that_join_at_once_ends() {
    for is_earlier_below in [false, true] {
        let mut lab = Lab::new(calm);
        let below = lab.add_below(calm);
        let mut controllers = [controller(lab.address), controller(below)];
        let [at_root, at_below] = &mut controllers;
        let Incarnation(known) = at_root.instance.incarnation;
        at_below.instance.incarnation = Incarnation(known - 1);
        if !is_earlier_below {
            std::mem::swap(&mut at_root.instance, &mut at_below.instance);
        }
        // No frame passes between the switches until both have admitted one.
        for (number, joiner) in controllers.iter().enumerate() {
            lab.stopped = vec![1 - number];
            lab.joined(joiner);
        }
        lab.stopped.clear();
        let [earlier, later] = if is_earlier_below { [1, 0] } else { [0, 1] };
        lab.ends(&controllers[later], &controllers[earlier]);
    }
}

/// What a lower switch announces is dropped while no controller runs; the root once reported that
/// process 2147483649 is not served.
#[test]
fn announcement_of_a_switch_names_no_process() {
    let (mut lab, _) = tree();
    let before = lab.switch.machine_stats().dropped_unknown;
    lab.run_until("an announcement is dropped", |lab| {
        lab.switch.machine_stats().dropped_unknown > before + 3
    });
    assert_eq!(lab.switch.stats().process_out_of_range, None);
}
