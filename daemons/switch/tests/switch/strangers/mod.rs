//! What a socket that was not admitted, or sends as another, can do: nothing.
//!
//! Each test is an attack that once had an effect, with the datagrams that it takes.

mod controllers;
mod lab;

use std::time::Instant;

use onepipe_base::{
    Address, Cause, Controllers, Incarnation, Instance, ProcessId, Promises, SwitchId, Timestamp,
    WIRE_MODULUS,
};
use onepipe_wire::{
    Failure, Flood, FloodId, FloodView, Frame, HEADER_LEN, Header, JOIN_LEN, JoinAnswer, JoinRole,
    Members, Opcode, RefuseReason,
};

use lab::{Lab, Stranger, TIMEOUT};

impl Stranger {
    /// Notifies of the failure of process 7.
    fn notice(&self, epoch: u32, at: Timestamp) {
        let (first, incarnation) = (ProcessId(7), Incarnation(1));
        let failure = Failure { first, count: 1, incarnation, at, cause: Cause::Unknown };
        let flood = Flood { id: FloodId { epoch, sequence: 1 } };
        let header = Header::hop_only(Opcode::Flood, self.instance, None, Promises::both(at));
        self.send(header, |buf| {
            flood.write_notice(buf, [failure].into_iter()).expect("there is space").1
        });
    }
}

/// One datagram of an unknown process with an old barrier once stopped all deliveries for 0.1 s.
//= spec/ordering.md#R64
#[test]
fn promise_of_unknown_address_does_not_count() {
    let mut lab = Lab::new(|_| {});
    let member = lab.process(1);
    lab.joined(&member);
    let began = lab.now();
    let attacker = lab.process(2);
    let old = began.saturating_sub_ns(3_600_000_000_000);
    for _ in 0..20 {
        attacker.frame(Opcode::Join, (2, attacker.instance.incarnation), 2, old);
        attacker.beacon(old);
    }
    lab.turn();
    assert_eq!(lab.switch.stats().ports_assigned, 1);
    let passed = {
        let started = Instant::now();
        loop {
            assert!(started.elapsed() < TIMEOUT, "the barrier does not pass the attack");
            let now = lab.now();
            member.beacon(now);
            let mut bytes = [0; 2048];
            lab.switch.turn(|_| {});
            if let Ok(len) = member.socket.recv(&mut bytes)
                && let Ok(frame) = Frame::parse(&bytes[..len])
                && frame.opcode == Opcode::Beacon
                && frame.header.promises(now).barrier > began
            {
                break true;
            }
        }
    };
    assert!(passed);
}

/// 128 sockets once filled the switch, and a process was not even notified.
//= spec/ordering.md#R62
//= spec/ordering.md#R64
#[test]
fn sockets_that_do_not_answer_take_no_port() {
    let mut lab = Lab::new(|_| {});
    let attackers: Vec<Stranger> = (0..12).map(|_| lab.process(2)).collect();
    for attacker in &attackers {
        attacker.request(0);
        attacker.request(77);
        attacker.beacon(Timestamp::from_ns(5));
        lab.turn();
    }
    assert_eq!(lab.switch.stats().ports_assigned, 0);
    let members: Vec<Stranger> = (4..8).map(|process| lab.process(process)).collect();
    members.iter().for_each(|member| lab.joined(member));
    let refused = lab.join(&lab.process(8));
    assert!(matches!(refused, JoinAnswer::Refused { reason: RefuseReason::Full, .. }));
}

/// A cookie is of no use at another address, under another id or in another role.
//= spec/ordering.md#R64
#[test]
fn cookie_is_bound_to_address_and_identity() {
    let mut lab = Lab::new(|_| {});
    let (honest, mut thief, mut liar) = (lab.process(1), lab.process(1), lab.process(1));
    thief.instance = honest.instance;
    honest.request(0);
    let JoinAnswer::Challenge { cookie, .. } = lab.answer(&honest) else { panic!("a challenge") };
    thief.request(cookie);
    assert!(matches!(lab.answer(&thief), JoinAnswer::Challenge { .. }));
    liar.socket = honest.socket.try_clone().expect("the system duplicates it");
    for instance in [
        Instance { address: Address::Process(ProcessId(2)), ..honest.instance },
        Instance { incarnation: Incarnation(1), ..honest.instance },
    ] {
        liar.instance = instance;
        liar.request(cookie);
        assert!(matches!(lab.answer(&liar), JoinAnswer::Challenge { .. }));
    }
    assert_eq!(lab.switch.stats().ports_assigned, 0);
}

/// Frames with the source of another once moved its route: 13 of its frames leaked.
//= spec/ordering.md#R65
#[test]
fn frame_under_another_id_moves_no_route() {
    let mut lab = Lab::new(|_| {});
    let (victim, other, attacker) = (lab.process(1), lab.process(2), lab.process(3));
    lab.attach(&[&victim, &other, &attacker]);
    let now = lab.now();
    for incarnation in [victim.instance.incarnation, Incarnation(u32::MAX)] {
        attacker.frame(Opcode::Data, (1, incarnation), 2, now);
        attacker.frame(Opcode::Connect, (1, incarnation), 2, now);
        attacker.frame(Opcode::Beacon, (1, incarnation), 1, now);
        attacker.frame(Opcode::Members, (1, incarnation), 1, now);
    }
    lab.turn();
    assert_eq!(lab.switch.stats().frames_misattributed, 8);
    other.frame(Opcode::Data, (2, other.instance.incarnation), 1, now);
    let got = lab.next(&victim, |frame| (frame.opcode == Opcode::Data).then(|| frame.header.src()));
    assert_eq!(got, Some(ProcessId(2)), "the route still leads to the victim");
}

/// One failure notice "of a controller" once stopped reliable delivery permanently.
//= spec/ordering.md#R65
//= spec/ordering.md#R66
#[test]
fn process_cannot_speak_as_a_controller() {
    let controllers = Controllers { first: ProcessId(15), count: 1 };
    let mut lab = Lab::new(|config| config.controllers = Some(controllers));
    let (victim, attacker) = (lab.process(1), lab.process(3));
    lab.attach(&[&victim, &attacker]);
    let now = lab.now();
    let own = attacker.instance.incarnation;
    for opcode in [Opcode::Notice, Opcode::Flood, Opcode::Ping, Opcode::AnnounceAck] {
        attacker.frame(opcode, (15, own), 1, now);
        attacker.frame(opcode, (3, own), 1, now);
    }
    lab.turn();
    assert_eq!(lab.switch.stats().frames_misattributed, 8);
    let reserved = lab.join(&lab.process(15));
    assert!(matches!(reserved, JoinAnswer::Refused { reason: RefuseReason::IsController, .. }));
    let address = Address::Process(ProcessId(3));
    let imposter = lab.join(&lab.stranger(address, JoinRole::Controller));
    assert!(matches!(imposter, JoinAnswer::Refused { reason: RefuseReason::NotController, .. }));
}

/// An incarnation of 2^32 - 1 once muted the real process.
//= spec/ordering.md#R66
#[test]
fn incarnation_ahead_of_the_clock_is_refused() {
    let mut lab = Lab::new(|_| {});
    let mut attacker = lab.process(1);
    let honest = attacker.instance.incarnation.0;
    for ahead in [1_000, u32::MAX - honest] {
        attacker.instance.incarnation = Incarnation(honest + ahead);
        let refused = lab.join(&attacker);
        assert!(matches!(refused, JoinAnswer::Refused { reason: RefuseReason::Incarnation, .. }));
    }
    attacker.instance.incarnation = Incarnation(honest + 100);
    lab.joined(&attacker);
}

/// Two controllers with one id once decided apart, each with its own store.
//= spec/ordering.md#R68
#[test]
fn second_controller_with_the_same_id_is_refused() {
    let controllers = Controllers { first: ProcessId(15), count: 1 };
    let mut lab = Lab::new(|config| {
        config.controllers = Some(controllers);
        // A machine that is this busy for three of these has other worries.
        config.heartbeat_interval_ns = 2_000_000_000;
    });
    let address = Address::Process(ProcessId(15));
    let first = lab.stranger(address, JoinRole::Controller);
    lab.joined(&first);
    let second = lab.stranger(address, JoinRole::Controller);
    let refused = lab.join(&second);
    assert!(matches!(refused, JoinAnswer::Refused { reason: RefuseReason::Taken, .. }));
    // The first one is not received any more.
    let started = Instant::now();
    while !matches!(lab.join(&second), JoinAnswer::Accepted(_)) {
        assert!(started.elapsed() < TIMEOUT, "the id is never free again");
    }
}

/// An answer is never longer than what it answers, so nothing is amplified.
//= spec/ordering.md#R62
#[test]
fn answers_are_not_longer_than_questions() {
    let mut lab = Lab::new(|_| {});
    let attacker = lab.process(1);
    attacker.beacon(Timestamp::from_ns(1));
    assert_eq!(lab.answer(&attacker), JoinAnswer::NotAdmitted);
    let mut slot = [0; HEADER_LEN + JOIN_LEN];
    assert_eq!(JoinAnswer::NotAdmitted.write(&mut slot), Some(0));
    attacker.request(0);
    let JoinAnswer::Challenge { terms, .. } = lab.answer(&attacker) else { panic!("a challenge") };
    assert_eq!((terms.processes_max, terms.controllers), (16, None));
    assert_eq!(terms.link_timeout_ns, 20_000_000_000);
    let switch = Instance { address: Address::Switch(SwitchId(0)), incarnation: Incarnation(0) };
    let noise = Header::hop_only(
        Opcode::JoinAnswer,
        switch,
        None,
        Promises::both(Timestamp::from_ns(WIRE_MODULUS / 2)),
    );
    attacker.send(noise, |_| 0);
    lab.turn();
    assert_eq!(lab.switch.stats().ports_assigned, 0);
}

/// A process that was not admitted for a moment has dropped what the switch had stated.
//= spec/ordering.md#R76
#[test]
fn members_are_stated_again_after_readmission() {
    let mut lab = Lab::new(|_| {});
    let (mut one, other) = (lab.process(1), lab.process(2));
    one.wants_members = true;
    lab.attach(&[&one, &other]);
    for admission in 0..2 {
        let update = lab.next(&one, |frame| {
            let members = Members::parse(frame.payload).ok();
            members.filter(|members| {
                frame.opcode == Opcode::Members && members.bits.is_some_and(|bits| bits[0] == 0b100)
            })
        });
        let Members { range, version, .. } =
            update.unwrap_or_else(|| panic!("nothing is stated after admission {admission}"));
        let now = lab.now();
        let header = Header::hop_only(Opcode::Members, one.instance, None, Promises::both(now));
        let ack = Members { range, version, bits: None };
        one.send(header, |buf| ack.write(buf).expect("there is space"));
        lab.turn();
        lab.joined(&one);
    }
}

/// A notice with the last epoch once stopped the recovery of all later failures. The port of a
/// controller passes notices.
//= spec/ordering.md#R69
#[test]
fn notice_with_an_epoch_that_jumps_is_not_forwarded() {
    let mut lab = Lab::new(|config| {
        config.controllers = Some(Controllers { first: ProcessId(15), count: 1 });
    });
    let member = lab.process(1);
    let attacker = lab.stranger(Address::Process(ProcessId(15)), JoinRole::Controller);
    lab.attach(&[&member]);
    lab.joined(&attacker);
    let now = lab.now();
    let hello = Header::hop_only(Opcode::Hello, attacker.instance, None, Promises::both(now));
    attacker.send(hello, |_| 0);
    member.beacon(now);
    lab.turn();
    for (epoch, forwarded) in [(1, 1), (u32::MAX, 1), (2, 2)] {
        let now = lab.now();
        attacker.notice(epoch, now);
        lab.turn();
        // A flood is repeated until it is acknowledged; a later one takes its place.
        let found = lab.next(&member, |frame| {
            let flood = FloodView::parse(frame.payload).ok();
            let flood = flood.filter(|_| frame.opcode == Opcode::Flood)?;
            assert!(flood.id.epoch <= 2, "{flood:?}");
            (flood.id.epoch == forwarded).then_some(())
        });
        assert!(found.is_some(), "the switch does not forward epoch {forwarded}");
    }
}

/// A barrier of the far future once raised all later timestamps.
//= spec/ordering.md#R17
#[test]
fn barrier_far_ahead_is_not_passed_on() {
    const HOUR_NS: u64 = 3_600_000_000_000;
    let mut lab = Lab::new(|_| {});
    let (member, attacker) = (lab.process(1), lab.process(2));
    lab.attach(&[&member, &attacker]);
    let began = lab.now();
    for hours in [3, 18] {
        attacker.beacon(began.wrapping_add_ns(hours * HOUR_NS));
        attacker.frame(
            Opcode::Data,
            (2, attacker.instance.incarnation),
            1,
            began.wrapping_add_ns(hours * HOUR_NS),
        );
    }
    lab.turn();
    assert_eq!(lab.switch.machine_stats().dropped_ahead, 4);
    // The honest barrier passes, and no other one.
    let mut bytes = [0; 2048];
    let started = Instant::now();
    loop {
        assert!(started.elapsed() < TIMEOUT, "the barrier does not pass the attack");
        let now = lab.now();
        member.beacon(now);
        attacker.beacon(now);
        lab.switch.turn(|_| {});
        let Ok(len) = member.socket.recv(&mut bytes) else { continue };
        let Ok(frame) = Frame::parse(&bytes[..len]) else { continue };
        let barrier = frame.header.promises(now).barrier;
        assert!(barrier.since_ns(began) < HOUR_NS, "{barrier:?}");
        if frame.opcode == Opcode::Beacon && barrier > began {
            break;
        }
    }
}
