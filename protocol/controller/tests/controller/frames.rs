//! One controller and its responses to valid and invalid frames.

use crate::harness;

use harness::{
    CONTROLLER, announce, announce_decided, announce_part, at, config, drain, frame, instance,
    link, process, relay_0_to_1, star, star_with, switch,
};
use onepipe_base::{
    Address, Cause, Incarnation, Instance, Machine, Port, ProcessId, Promises, Psn, Timestamp,
    Verdict,
};
use onepipe_controller::{
    Config, Controller, Epoch, FailedInstance, Member, PersistError, Record, RecordId,
};
use onepipe_wire::{
    Announce, FloodAck, FloodView, Frame, HEADER_LEN, Header, Link, LinkState, Opcode,
    RecoveryView, Side, Undeliverable, seal,
};
use proptest::prelude::*;

//= spec/failure.md#R34
#[test]
fn acks_announcements_once_the_store_has_the_member() {
    let mut controller = star(&[]);
    let mut slot = [0; 1_500];
    let mut opcodes = Vec::new();
    while let Some(transmit) = controller.poll_transmit(at(50_000), &mut slot) {
        opcodes.push(Frame::parse(&slot[..transmit.bytes]).expect("sealed").opcode);
    }
    assert_eq!(opcodes, [Opcode::Hello], "no member is recorded yet");
    let acked = |sent: Vec<(Opcode, ProcessId, Psn, Vec<u8>)>| {
        let acked = sent.into_iter().filter(|(opcode, ..)| *opcode == Opcode::AnnounceAck);
        let named = acked.inspect(|(_, _, psn, _)| assert_eq!(*psn, Psn(1), "its incarnation"));
        named.map(|(_, to, ..)| to.0).collect::<Vec<_>>()
    };
    assert_eq!(acked(drain(&mut controller, at(50_000))), [0, 1]);
    let up = [link(0, Side::Upper, instance(switch(0), 1))];
    let mut again = announce(instance(process(1), 1), 1, &up);
    assert_eq!(controller.handle_frame(at(60_000), Port(0), &mut again), Verdict::Consumed);
    assert_eq!(acked(drain(&mut controller, at(60_000))), [1]);
}

#[test]
fn evaluates_after_a_quiet_period_or_at_the_latest_deadline() {
    let mut controller = star(&[]);
    let quiet_ns = controller.config().quiet_ns;
    let evaluations = |controller: &Controller| controller.stats().evaluations;
    let tor = instance(switch(0), 1);
    let own = link(2, Side::Lower, instance(process(CONTROLLER.0), 1));
    // One report after the other, each within the quiet period of the previous one.
    let (interval_ns, before) = (quiet_ns / 2, evaluations(&controller));
    let (mut now, mut evaluated) = (100_000, Vec::new());
    for generation in 2..22 {
        now += interval_ns;
        let below = link(3, Side::Lower, instance(switch(generation % 2 + 1), 1));
        let mut bytes = announce(tor, generation, &[own, below]);
        controller.handle_frame(at(now), Port(0), &mut bytes);
        if evaluations(&controller) > before + evaluated.len() as u64 {
            evaluated.push(generation);
        }
    }
    assert_eq!(evaluated, [18], "eight times as late as the first, and no later");
    let due = now + quiet_ns;
    controller.handle_timeout(at(due - 1));
    assert_eq!(evaluations(&controller), before + 1, "the quiet period is not over");
    controller.handle_timeout(at(due));
    assert_eq!(evaluations(&controller), before + 2);
    // One report arrives during an evaluation, which takes longer than the quiet period.
    controller.handle_frame(at(due), Port(0), &mut announce(tor, 22, &[own]));
    controller.handle_timeout(at(due + 2 * quiet_ns));
    assert_eq!(evaluations(&controller), before + 2, "other reports may be unread");
    controller.handle_timeout(at(due + 3 * quiet_ns));
    assert_eq!(evaluations(&controller), before + 3);
}

//= spec/failure.md#R44
//= spec/failure.md#R26
//= spec/failure.md#R33
#[test]
fn records_recalls_once_and_returns_them_on_recover() {
    let (mut controller, failed) = star_with_failure();
    let sent = drain(&mut controller, at(50_000));
    let is_about_itself = |sent: &&(Opcode, ProcessId, Psn, Vec<u8>)| {
        (sent.0, sent.1) == (Opcode::Notice, ProcessId(1))
    };
    let notice = sent.iter().find(is_about_itself).expect("it has announced itself");
    let view = FloodView::parse(&notice.3).expect("well-formed");
    assert_eq!(view.failures(failed.at).len(), 1);

    let timestamp = Timestamp::from_ns((1 << 50) - 7);
    let entry = Undeliverable { to: ProcessId(1), incarnation: Incarnation(1), timestamp };
    for round in 0..2 {
        let mut bytes = frame(Opcode::Undeliverable, instance(process(0), 1), 17, |buf| {
            Undeliverable::write(buf, [entry].into_iter())
        });
        controller.handle_frame(at(60_000), Port(0), &mut bytes);
        let record = controller.poll_persist();
        assert_eq!(record.is_some(), round == 0, "{record:?}");
        if let Some((id, record)) = record {
            assert_eq!(
                record,
                Record::Undeliverable { sender: ProcessId(0), entries: vec![entry] }
            );
            assert_eq!(controller.handle_frame(at(60_000), Port(0), &mut bytes), Verdict::Consumed);
            assert!(drain_only(&mut controller).is_empty(), "not recorded yet");
            controller.handle_persisted(at(60_000), id, Ok(()));
        }
        assert_eq!(drain_only(&mut controller), [(Opcode::UndeliverableAck, Psn(17))]);
    }

    // Process 0 has announced no commit barrier above the failure yet: no reply would be complete.
    let mut recover = frame(Opcode::Recover, failed.instance, 0, |_| 0);
    let verdict = controller.handle_frame(at(69_000), Port(0), &mut recover);
    assert_eq!((verdict, drain_only(&mut controller)), (Verdict::Dropped, vec![]));
    let near = at(65_000).sync;
    let up = [link(0, Side::Upper, instance(switch(0), 1))];
    let mut bytes = announce_decided(instance(process(0), 1), 2, &up, near);
    controller.handle_frame(at(69_000), Port(0), &mut bytes);
    drain(&mut controller, at(69_000));

    let (mut recalls, mut failures) = (Vec::new(), 0);
    // Time advances; the reply stays the same, even if part 0 is requested again.
    for (turn, part) in [0, 0, 1, 0].into_iter().enumerate() {
        let now = at(70_000 + turn as u64);
        let mut bytes = frame(Opcode::Recover, failed.instance, part, |_| 0);
        assert_eq!(controller.handle_frame(now, Port(0), &mut bytes), Verdict::Consumed);
        let sent = drain(&mut controller, now);
        let (_, to, psn, payload) = sent.last().expect("answered");
        assert_eq!((*to, *psn), (ProcessId(1), Psn(part)));
        let view = RecoveryView::parse(payload).expect("well-formed");
        let recovery = view.recovery(near);
        assert_eq!((recovery.complete, u32::from(recovery.part), recovery.parts), (near, part, 2));
        if (1..3).contains(&turn) {
            recalls.extend(view.recalls(near));
            failures += view.failures(near).len();
        }
    }
    assert_eq!((recalls, failures), (vec![(ProcessId(0), timestamp)], 1));
    let mut bytes = frame(Opcode::Recover, instance(process(0), 1), 0, |_| 0);
    let verdict = controller.handle_frame(at(70_000), Port(0), &mut bytes);
    assert_eq!(verdict, Verdict::Dropped, "it has not failed");
}

//= spec/failure.md#R33
//= spec/failure.md#R44
#[test]
fn recovery_reply_stays_when_recalls_follow() {
    let (mut controller, failed) = star_with_failure();
    drain(&mut controller, at(50_000));
    let sender = instance(process(0), 1);
    let up = [link(0, Side::Upper, instance(switch(0), 1))];
    // Process 0 announces its commit barrier, and records a recall once that has passed.
    let report = |controller: &mut Controller, ns: u64, generation: u32| {
        let mut bytes = announce_decided(sender, generation, &up, at(ns).sync);
        assert_eq!(controller.handle_frame(at(ns), Port(0), &mut bytes), Verdict::Consumed);
        let timestamp = at(ns).sync.wrapping_add_ns(7);
        let entry = Undeliverable { to: ProcessId(1), incarnation: Incarnation(1), timestamp };
        let mut bytes = frame(Opcode::Undeliverable, sender, generation, |buf| {
            Undeliverable::write(buf, [entry].into_iter())
        });
        assert_eq!(controller.handle_frame(at(ns), Port(0), &mut bytes), Verdict::Consumed);
        drain(controller, at(ns));
        timestamp
    };
    let first = report(&mut controller, 60_000, 2);
    let mut parts = Vec::new();
    for part in 0..2 {
        let now = at(70_000 + u64::from(part));
        let mut bytes = frame(Opcode::Recover, failed.instance, part, |_| 0);
        assert_eq!(controller.handle_frame(now, Port(0), &mut bytes), Verdict::Consumed);
        let sent = drain(&mut controller, now);
        let (_, _, _, payload) = sent.last().expect("answered");
        let view = RecoveryView::parse(payload).expect("well-formed");
        let recalls: Vec<_> = view.recalls(now.sync).collect();
        parts.push((view.recovery(now.sync).complete, recalls));
        // The failed process delivers nothing above the reported timestamp, so it need not know.
        report(&mut controller, 80_000 + u64::from(part), 3 + part);
    }
    let complete = at(60_000).sync;
    assert_eq!(parts, [(complete, vec![]), (complete, vec![(ProcessId(0), first)])]);
}

/// Makes a controller of a star that has recorded that process 1 has failed.
fn star_with_failure() -> (Controller, FailedInstance) {
    let failed = FailedInstance {
        instance: instance(process(1), 1),
        at: Timestamp::from_ns(1 << 50),
        is_exact: true,
        cause: Cause::Unknown,
    };
    let controller = star(&[
        Record::Members(vec![Member { instance: failed.instance, links: vec![] }]),
        Record::Failed(vec![failed]),
        Record::Resumed { instances: vec![failed.instance], links: vec![] },
    ]);
    (controller, failed)
}

fn drain_only(controller: &mut Controller) -> Vec<(Opcode, Psn)> {
    let mut slot = [0; 1_500];
    let mut sent = Vec::new();
    while let Some(transmit) = controller.poll_transmit(at(60_000), &mut slot) {
        let frame = Frame::parse(&slot[..transmit.bytes]).expect("sealed");
        sent.push((frame.opcode, frame.header.psn()));
    }
    sent
}

#[test]
fn counts_rejected_frames_by_reason() {
    let mut controller = star(&[]);
    drain(&mut controller, at(50_000));
    let mut send_bad = |mut bytes: Vec<u8>, port| {
        let verdict = controller.handle_frame(at(60_000), Port(port), &mut bytes);
        assert_eq!(verdict, Verdict::Dropped);
        *controller.stats()
    };
    let tor = instance(switch(0), 1);
    let up = [link(0, Side::Upper, tor)];
    assert_eq!(send_bad(announce(instance(process(100), 1), 1, &up), 0).dropped_range, 1);
    assert_eq!(send_bad(announce(instance(switch(10), 1), 1, &[]), 0).dropped_range, 2);
    let beyond = [link(0, Side::Upper, instance(switch(10), 1))];
    assert_eq!(send_bad(announce(instance(process(1), 1), 2, &beyond), 0).dropped_range, 3);
    assert_eq!(send_bad(announce(instance(process(91), 1), 2, &up), 0).dropped_foreign, 1);
    assert_eq!(send_bad(announce(instance(process(1), 1), 1, &up), 1).dropped_foreign, 2);
    assert_eq!(send_bad(announce(instance(process(1), 0), 9, &up), 0).dropped_stale, 1);
    assert_eq!(send_bad(announce(tor, 0, &[]), 0).dropped_stale, 2);
    let completed = |buf: &mut [u8]| {
        let id = onepipe_wire::FloodId { epoch: 1, sequence: 9 };
        let ack = onepipe_wire::FloodAck { id, kind: onepipe_wire::FloodKind::Notice };
        ack.write(buf).expect("fits")
    };
    let stale = frame(Opcode::Completed, instance(process(1), 1), 0, completed);
    assert_eq!(send_bad(stale, 0).dropped_stale, 3);
    assert_eq!(
        send_bad(frame(Opcode::Data, instance(process(1), 1), 0, |_| 0), 0).dropped_foreign,
        3
    );
    assert_eq!(
        send_bad(frame(Opcode::Relay, instance(process(1), 1), 0, |_| 30), 0).dropped_malformed,
        1
    );
    assert_eq!(send_bad(vec![1; 80], 0).dropped_malformed, 2);
    controller.depose(at(60_000));
    let mut relay = frame(Opcode::Relay, instance(process(1), 1), 0, |_| 30);
    assert_eq!(controller.handle_frame(at(60_000), Port(0), &mut relay), Verdict::Dropped);
    assert_eq!(controller.stats().dropped_standby, 1);
    assert!(controller.poll_persist().is_none() && !controller.is_active());
}

//= spec/failure.md#R17
/// A switch that hangs delays all answers, and so does a replica that is off its core: the answers
/// are still to be read. Found with a switch that was stopped for 0.3 s, which excluded a process.
#[test]
fn receive_stall_extends_pending_pings() {
    const MS: u64 = 1_000_000;
    let beacon = || frame(Opcode::Beacon, instance(switch(0), 1), 0, |_| 0);
    for is_timeout_first in [true, false] {
        let mut controller = star(&[]);
        drain(&mut controller, at(50_000));
        controller.handle_frame(at(60_000), Port(0), &mut relay_0_to_1());
        assert_eq!(controller.stats().relayed, 1);
        // The process has 5 ms for an answer, but nothing is received at all before 20 ms.
        if is_timeout_first {
            controller.handle_timeout(at(10 * MS));
            controller.handle_timeout(at(20 * MS));
        }
        controller.handle_frame(at(20 * MS), Port(0), &mut beacon());
        controller.handle_timeout(at(20 * MS));
        controller.handle_frame(at(22 * MS), Port(0), &mut beacon());
        controller.handle_timeout(at(24 * MS));
        assert_eq!(controller.stats().pings_unanswered, 0);
        controller.handle_frame(at(24 * MS), Port(0), &mut beacon());
        controller.handle_timeout(at(26 * MS));
        assert_eq!(controller.stats().pings_unanswered, 1, "frames arrived all the time");
    }
}

#[test]
fn counts_an_instance_at_two_switches() {
    let mut controller = star(&[]);
    let other = instance(switch(1), 1);
    let twice = [link(0, Side::Lower, instance(process(1), 1))];
    controller.handle_frame(at(60_000), Port(0), &mut announce(other, 1, &twice));
    controller.handle_timeout(at(90_000));
    assert_eq!(controller.stats().duplicate_registrations, 1);
}

#[test]
fn snapshot_is_equivalent_to_the_log() {
    let mut controller = star(&[]);
    assert_eq!(controller.snapshot(), None, "a record is pending");
    drain(&mut controller, at(50_000));
    let snapshot = controller.snapshot().expect("no record is pending");
    let mut copy = Controller::new(config()).expect("a valid configuration");
    copy.activate(at(60_000), Epoch(2), &snapshot);
    let instances = |controller: &Controller| {
        let members = controller.status().members.into_iter();
        members.map(|member| member.instance).collect::<Vec<_>>()
    };
    assert_eq!(instances(&copy), instances(&controller));
    assert_eq!(copy.snapshot().map(|records| records.len()), Some(snapshot.len()));
}

#[derive(Clone, Debug)]
enum Step {
    Frame { opcode: Opcode, from: u32, incarnation: u32, psn: u32, payload: Vec<u8>, port: u16 },
    Announce { from: u32, incarnation: u32, generation: u32, links: Vec<(u16, u8, u32, u32, u32)> },
    Bytes(Vec<u8>),
    Wait(u64),
    Persisted { id: u64, outcome: u8 },
    Activate(u32),
    Depose,
}

fn any_step() -> impl Strategy<Value = Step> {
    let from = prop_oneof![0u32..4, Just(90), Just(1 << 31), Just((1 << 31) + 1), any::<u32>()];
    let links = prop::collection::vec((0u16..4, 0u8..6, from.clone(), 0u32..3, 0u32..4), 0..5);
    let opcode = prop::sample::select(Opcode::ALL);
    prop_oneof![
        4 => (opcode, from.clone(), 0u32..3, any::<u32>(), prop::collection::vec(any::<u8>(), 0..70),
            0u16..2)
            .prop_map(|(opcode, from, incarnation, psn, payload, port)| {
                Step::Frame { opcode, from, incarnation, psn, payload, port }
            }),
        6 => (from, 0u32..3, 0u32..4, links).prop_map(|(from, incarnation, generation, links)| {
            Step::Announce { from, incarnation, generation, links }
        }),
        1 => prop::collection::vec(any::<u8>(), 0..120).prop_map(Step::Bytes),
        4 => (0u64..3_000_000).prop_map(Step::Wait),
        2 => (0u64..6, 0u8..3).prop_map(|(id, outcome)| Step::Persisted { id, outcome }),
        1 => (1u32..5).prop_map(Step::Activate),
        1 => Just(Step::Depose),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn survives_any_sequence_of_inputs(
        steps in prop::collection::vec(any_step(), 1..80),
    ) {
        let mut controller = star(&[]);
        let mut now = 50_000;
        for step in steps {
            match step {
                Step::Frame { opcode, from, incarnation, psn, payload, port } => {
                    let mut slot = vec![0; 1_500];
                    slot[HEADER_LEN..HEADER_LEN + payload.len()].copy_from_slice(&payload);
                    let header = Header::new(
                        opcode, ProcessId(from), CONTROLLER, Incarnation(incarnation));
                    let stamp = at(now).sync;
                    let header = header.stamped(stamp, Promises::both(stamp), Psn(psn));
                    let length = seal(&mut slot, header, payload.len());
                    slot.truncate(length);
                    controller.handle_frame(at(now), Port(port), &mut slot);
                }
                Step::Announce { from, incarnation, generation, links } => {
                    let Some(address) = Address::from_bits(from) else { continue };
                    let links: Vec<Link> = links.into_iter().map(|link| {
                        let (port, kind, peer, incarnation, number) = link;
                        let side = [Side::Lower, Side::Upper, Side::Direct][usize::from(kind % 3)];
                        let commit = at(now).sync;
                        let state = match kind / 3 {
                            0 => LinkState::Up,
                            _ => LinkState::Frozen { number, commit, cause: Cause::TimedOut },
                        };
                        let instance = Instance::from_words(peer, incarnation);
                        Link { port: Port(port), side, instance, state }
                    }).collect();
                    let mut bytes = announce(instance(address, incarnation), generation, &links);
                    controller.handle_frame(at(now), Port(0), &mut bytes);
                }
                Step::Bytes(mut bytes) => {
                    controller.handle_frame(at(now), Port(0), &mut bytes);
                }
                Step::Wait(ns) => {
                    now += ns;
                    controller.handle_timeout(at(now));
                }
                Step::Persisted { id, outcome } => {
                    controller.poll_persist();
                    let result = [Ok(()), Err(PersistError::Failed), Err(PersistError::Deposed)];
                    controller.handle_persisted(at(now), RecordId(id), result[usize::from(outcome)]);
                }
                Step::Activate(epoch) => controller.activate(at(now), Epoch(epoch), &[]),
                Step::Depose => controller.depose(at(now)),
            }
            drain(&mut controller, at(now));
            // Whatever is due is done, and then is not due any more.
            if controller.poll_timeout().is_some_and(|due| due <= at(now).mono) {
                controller.handle_timeout(at(now));
                drain(&mut controller, at(now));
            }
            let due = controller.poll_timeout();
            prop_assert!(due.is_none_or(|due| due > at(now).mono));
            controller.status();
            controller.check_invariants();
        }
    }
}

/// Runs timers until `end` and acknowledges all floods. Returns the frozen links that they resolve.
fn resolved(controller: &mut Controller, tor: Instance, end: u64) -> Vec<u32> {
    let mut numbers = Vec::new();
    let mut now = at(0);
    loop {
        for (opcode, to, _, payload) in drain(controller, now) {
            let (ack_opcode, from) = match opcode {
                Opcode::Flood => (Opcode::FloodAck, tor),
                Opcode::Notice => (Opcode::Completed, instance(Address::Process(to), 1)),
                _ => continue,
            };
            let view = FloodView::parse(&payload).expect("well-formed");
            numbers.extend(view.resolved().map(|resolved| resolved.number));
            let ack = FloodAck { id: view.id, kind: view.kind };
            let mut bytes = frame(ack_opcode, from, 0, |buf| ack.write(buf).expect("fits"));
            controller.handle_frame(now, Port(0), &mut bytes);
        }
        let Some(due) = controller.poll_timeout().filter(|due| due.as_ns() <= end) else { break };
        now = at(due.as_ns());
        controller.handle_timeout(now);
    }
    numbers
}

#[test]
fn resumes_each_death_of_a_resolved_instance() {
    let (mut controller, failed) = star_with_failure();
    let tor = instance(switch(0), 1);
    resolved(&mut controller, tor, 200_000);
    let own = instance(process(CONTROLLER.0), 1);
    let up = [link(0, Side::Lower, instance(process(0), 1)), link(2, Side::Lower, own)];
    let dead = |number| Link {
        state: LinkState::Frozen {
            number,
            commit: Timestamp::from_ns((1 << 50) - 3),
            cause: Cause::TimedOut,
        },
        ..link(1, Side::Lower, failed.instance)
    };
    for (turn, number) in [7, 8, 12].into_iter().enumerate() {
        let (turn, ns) = (turn as u32, 1_000_000 * (turn as u64 + 1));
        let links = [&[dead(number)][..], &up].concat();
        let mut bytes = announce(tor, 10 + 2 * turn, &links);
        assert_eq!(controller.handle_frame(at(ns), Port(0), &mut bytes), Verdict::Consumed);
        let numbers = resolved(&mut controller, tor, ns + 400_000);
        assert_eq!(numbers, [number], "turn {turn}");
        // Its owner has not received the Resume, and announces the link again.
        let mut bytes = announce(tor, 10 + 2 * turn, &links);
        controller.handle_frame(at(ns + 400_000), Port(0), &mut bytes);
        let again = resolved(&mut controller, tor, ns + 600_000);
        assert_eq!(again, [number], "turn {turn}, again");
        let mut bytes = announce(tor, 11 + 2 * turn, &up);
        controller.handle_frame(at(ns + 700_000), Port(0), &mut bytes);
        assert_eq!(resolved(&mut controller, tor, ns + 900_000), [], "turn {turn}, done");
    }
}

#[test]
fn mesh_link_down_fails_a_process_without_timeout() {
    let links = onepipe_controller::Links::Mesh(4);
    let mut controller =
        Controller::new(Config { links, ..config() }).expect("a valid configuration");
    controller.activate(at(0), Epoch(1), &[]);
    let own = instance(process(CONTROLLER.0), 1);
    for number in 0..3 {
        let up = [link(90, Side::Direct, own)];
        let mut bytes = announce(instance(process(number), 1), 1, &up);
        controller.handle_frame(at(1_000), Port(number as u16), &mut bytes);
    }
    let failed = |controller: &mut Controller, end: u64| {
        let mut all = Vec::new();
        loop {
            while let Some((id, record)) = controller.poll_persist() {
                if let Record::Failed(instances) = &record {
                    all.extend(instances.iter().map(|failed| failed.instance));
                }
                controller.handle_persisted(at(end), id, Ok(()));
            }
            let Some(due) = controller.poll_timeout().filter(|due| due.as_ns() <= end) else {
                return all;
            };
            controller.handle_timeout(at(due.as_ns().max(100_000)));
            let mut slot = [0; 1_500];
            while controller.poll_transmit(at(end), &mut slot).is_some() {}
        }
    };
    assert_eq!(failed(&mut controller, 100_000), []);
    controller.handle_link_down(Port(77));
    let mut other = controller.clone();
    controller.handle_link_down(Port(2));
    assert_eq!(failed(&mut controller, 1_000_000), [instance(process(2), 1)]);
    assert_eq!(failed(&mut other, 1_000_000), [], "it waits for the timeout");
}

/// A process once made a controller remember as many instances as it could name.
//= spec/ordering.md#R82
#[test]
fn what_a_node_announces_is_limited() {
    let limits = Config {
        process_neighbours_max: 4,
        switch_neighbours_max: 8,
        incarnations_max: 2,
        ..config()
    };
    let mut controller = star_with(limits, &[]);
    drain(&mut controller, at(50_000));
    let before = controller.status().members.len();
    let mut put = |from, generation, links: &[Link]| {
        let mut bytes = announce(from, generation, links);
        controller.handle_frame(at(60_000), Port(0), &mut bytes);
        controller.stats().dropped_excessive
    };
    let named = |first, count| -> Vec<Link> {
        let switch = |at: u32| instance(switch(1 + (first + at) % 9), 1 + (first + at) / 9);
        (0..count).map(|at| link(at as u16, Side::Upper, switch(at))).collect()
    };
    let (one, other) = (instance(process(0), 1), instance(process(1), 1));
    // Too many at once; and one after the other, as each that was up counts on.
    assert_eq!(put(one, 2, &named(0, 5)), 1);
    assert_eq!((put(one, 3, &named(0, 3)), put(one, 4, &named(3, 3))), (1, 2));
    // Too many incarnations of one address.
    let incarnations = [7, 8, 9].map(|at| link(at, Side::Upper, instance(switch(9), at.into())));
    assert_eq!(put(other, 2, &incarnations), 3);
    assert_eq!(put(other, 3, &incarnations[..2]), 3, "another node has limits of its own");
    assert_eq!(controller.status().members.len(), before + 3 + 2);
    let mut put_part = |from, total, links: &[Link]| {
        let part = Announce { generation: 4, first: 0, total, tip: None };
        let mut bytes = announce_part(part, from, links, at(0).sync);
        controller.handle_frame(at(70_000), Port(0), &mut bytes);
        controller.stats().dropped_excessive
    };
    let root = instance(switch(9), 1);
    assert_eq!(put_part(other, 5, &named(0, 1)), 4, "it can never be complete");
    assert_eq!(put_part(root, 8, &named(0, 8)), 4, "a switch may have more neighbours");
    assert_eq!(put_part(root, 9, &named(0, 1)), 5);
}
