//! The whole control plane: frames in, frames out.

mod harness;

use alloc::vec::Vec;

use onepipe_wire::{
    AnnounceView, DECISION_TIP_LEN, DecisionTip, Flood, Frame, HEADER_LEN, LinkState, Recovery,
};
use proptest::prelude::*;

use super::*;
use harness::*;

//= spec/failure.md#R20
#[test]
fn announces_links_in_parts_with_backoff() {
    let mut harness = Harness::new(Links::Mesh, ALL);
    assert_eq!((harness.drain(), harness.control.deadline()), (Vec::new(), None));
    for port in (0..12).filter(|port| *port != 1) {
        let peer = ProcessId(u32::from(port));
        let instance = Instance { address: Address::Process(peer), incarnation: Incarnation(3) };
        let (control, registers, now) =
            (&mut harness.control, &mut harness.registers, Mono::from_ns(9));
        assert_eq!(control.on_peer_instance(registers, now, Port(port), instance), LinkEvent::Good);
        registers.update(now, Port(port), Promises::both(CLOCK));
    }
    let sent = harness.drain();
    let parts: Vec<_> = sent
        .iter()
        .map(|(header, opcode, payload)| {
            assert_eq!(
                (*opcode, header.src(), header.incarnation().0),
                (Opcode::Announce, ProcessId(1), 4)
            );
            let part = AnnounceView::parse(payload).expect("written above");
            let ports: Vec<_> = part.links(CLOCK).map(|link| link.port.0).collect();
            (header.dst().0, part.announce.first, part.announce.total, ports)
        })
        .collect();
    let (front, rest) = ((0..8).filter(|port| *port != 1).collect(), (8..12).collect());
    let to = |controller: u32| [(controller, 0, 11, front), (controller, 7, 11, rest)];
    let [one, two] = to(30);
    let expected = [one.clone(), two.clone(), (31, 0, 11, one.3), (31, 7, 11, two.3)];
    assert_eq!(parts, expected);

    let mut pause_ns = ANNOUNCE_NS / 1_000;
    for _ in 0..15 {
        let due = harness.control.deadline().expect("announcements never stop").as_ns();
        let pause = due - harness.ns;
        assert!((pause_ns / 2..=pause_ns).contains(&pause), "{pause}, expected at most {pause_ns}");
        harness.ns = due - 1;
        assert_eq!(harness.drain(), []);
        harness.ns = due;
        assert_eq!(harness.drain(), sent, "the same announcement again");
        pause_ns = (2 * pause_ns).min(ANNOUNCE_NS);
    }

    assert!(harness.control.on_link_down(&mut harness.registers, Port(3), Cause::TimedOut));
    let update = harness.drain();
    let part = AnnounceView::parse(&update[0].2).expect("written above");
    let dead = part.links(CLOCK).next().expect("dead links come first");
    assert_eq!(
        (dead.port, dead.state),
        (Port(3), LinkState::Frozen { number: 1, commit: CLOCK, cause: Cause::TimedOut })
    );
    let before = AnnounceView::parse(&sent[0].2).expect("written above");
    assert_ne!(part.announce.generation, before.announce.generation);
}

#[test]
fn announces_every_link_at_any_part_boundary() {
    for links in 1..=17 {
        let mut harness = Harness::new(Links::Mesh, ALL);
        for port in 2..2 + links {
            let peer = ProcessId(u32::from(port));
            let instance =
                Instance { address: Address::Process(peer), incarnation: Incarnation(3) };
            harness.control.on_peer_instance(
                &mut harness.registers,
                Mono::from_ns(9),
                Port(port),
                instance,
            );
            harness.registers.update(Mono::from_ns(9), Port(port), Promises::both(CLOCK));
        }
        let sent = harness.drain();
        let parts = sent.iter().map(|(_, _, payload)| AnnounceView::parse(payload));
        let count =
            parts.map(|part| part.expect("written above").links(CLOCK).len()).sum::<usize>();
        assert_eq!(count, 2 * usize::from(links), "each link to both controllers");
    }
}

#[test]
fn is_inert_without_controllers() {
    let mut harness = Harness::on_switch(None);
    assert_eq!(harness.flood_from_switch(&notice(id(1, 1), &[failure(3, 1, 1)])), Effect::Rejected);
    assert_eq!(harness.receive_control(0, Opcode::Ping, 0, &[]), Effect::Rejected);
    assert!(!harness.control.encapsulate(harness.now(), ProcessId(3), &[0; 60]));
    harness.control.on_unreachable(harness.now(), ProcessId(3));
    harness.control.start_recover(harness.now());
    assert!(!harness.control.is_relayed(harness.now(), ProcessId(3)));
    assert_eq!((harness.drain(), harness.failures()), (Vec::new(), Vec::new()));
    assert_eq!(harness.control.stats().frames_foreign, 2);
}

//= spec/failure.md#R25
//= spec/failure.md#R26
#[test]
fn flood_is_acked_once_handled_and_recorded() {
    let mut harness = Harness::on_switch(ALL);
    let flood = notice(id(3, 7), &[failure(4, 2, 1), failure(9, 1, 2)]);
    assert_eq!(harness.flood_from_switch(&flood), Effect::Accepted);
    assert!(!harness.control.is_completion_pending(), "no failure was polled yet");
    let at = CLOCK.as_ns() + 1_500;
    assert_eq!(harness.failures(), [(4, 2, at), (9, 1, at)]);
    assert!(harness.control.is_completion_pending());
    assert_eq!(
        (harness.flood_from_switch(&flood), harness.failures(), harness.acks()),
        (Effect::Accepted, Vec::new(), Vec::new())
    );
    let (to, incarnation) = (ProcessId(4), Incarnation(1));
    let recall = Undeliverable { to, incarnation, timestamp: CLOCK };
    assert!(harness.control.on_undeliverable(recall));
    let sent = harness.opcodes();
    assert_eq!(sent, [(Opcode::Undeliverable, 30), (Opcode::Undeliverable, 31)]);
    harness.control.on_failures_handled();
    assert_eq!((harness.acks(), harness.control.undeliverable_pending()), (Vec::new(), 1));
    assert_eq!(harness.receive_control(1, Opcode::UndeliverableAck, 77, &[]), Effect::Accepted);
    assert_eq!(harness.acks(), [], "the acknowledgement of another batch");
    assert_eq!(
        harness.receive_control(1, Opcode::UndeliverableAck, 4 << 16, &[]),
        Effect::Accepted
    );
    let all = harness.drain();
    let (header, opcode, _) = &all[0];
    assert_eq!((all.len(), *opcode), (1, Opcode::FloodAck));
    assert_eq!((header.sender(), header.peer()), (Some(harness.control.own), Some(switch())));
    assert!(!harness.control.is_completion_pending());
    assert_eq!(
        (harness.flood_from_switch(&flood), harness.acks()),
        (Effect::Accepted, [(Opcode::FloodAck, id(3, 7))].into())
    );
    let flat = harness.receive_control(0, Opcode::Notice, 0, &flood);
    assert_eq!((flat, harness.drain()[0].0.dst()), (Effect::Accepted, ProcessId(30)));
    let failed = |process, incarnation| {
        harness.control.failed_at(ProcessId(process), Incarnation(incarnation))
    };
    assert_eq!(
        (failed(5, 1).map(Timestamp::as_ns), failed(5, 2), failed(6, 1)),
        (Some(at), None, None)
    );
    assert_eq!((harness.control.epoch(), harness.control.stats().failures_reported), (3, 2));
}

#[test]
fn repeated_notice_is_acked_at_the_new_epoch() {
    let mut harness = Harness::on_switch(ALL);
    harness.flood_from_switch(&notice(id(3, 7), &[failure(4, 2, 1)]));
    harness.failures();
    harness.control.on_failures_handled();
    assert_eq!(harness.acks(), [(Opcode::FloodAck, id(3, 7))]);
    harness.flood_from_switch(&notice(id(4, 1), &[failure(4, 2, 1)]));
    assert!(harness.control.is_completion_pending() && harness.failures().is_empty());
    harness.control.on_failures_handled();
    assert_eq!(harness.acks(), [(Opcode::FloodAck, id(4, 1))]);
    for stale in [notice(id(3, 9), &[failure(8, 1, 1)]), resume(id(3, 9), harness.control.own, 1)] {
        assert_eq!(harness.flood_from_switch(&stale), Effect::Rejected);
        assert_eq!(harness.receive_control(0, Opcode::Notice, 0, &stale), Effect::Rejected);
    }
    assert_eq!((harness.failures(), harness.acks()), (Vec::new(), Vec::new()));
    assert_eq!(
        (harness.control.stats().floods_stale, harness.control.active_controller()),
        (4, None)
    );
}

//= spec/failure.md#R32
#[test]
fn excluded_process_stops_and_blocks_nothing() {
    let mut harness = Harness::on_switch(ALL);
    assert_eq!(harness.flood_from_switch(&notice(id(3, 7), &[failure(0, 9, 3)])), Effect::Accepted);
    assert_eq!(harness.control.excluded(), None, "a previous incarnation failed");
    harness.failures();
    harness.control.on_failures_handled();
    harness.acks();
    assert_eq!(harness.flood_from_switch(&notice(id(3, 8), &[failure(1, 1, 4)])), Effect::Accepted);
    assert_eq!(harness.control.excluded(), Some(CLOCK.wrapping_add_ns(1_500)));
    harness.failures();
    harness.control.on_failures_handled();
    assert_eq!(harness.acks(), [], "it has not stopped: a burst is unfinished");
    harness.control.on_stopped();
    assert_eq!(harness.acks(), [(Opcode::FloodAck, id(3, 8))]);
    assert_eq!(harness.flood_from_switch(&notice(id(3, 9), &[failure(2, 1, 4)])), Effect::Accepted);
    assert_eq!(harness.acks(), [(Opcode::FloodAck, id(3, 9))], "a later notice delays nothing");
    harness.receive_control(0, Opcode::Ping, 0, &[]);
    assert!(harness.control.on_link_down(&mut harness.registers, Port(0), Cause::TimedOut));
    harness.ns += 2 * ANNOUNCE_NS;
    assert_eq!(harness.drain(), [], "no Pong, no announcement");

    harness.control.start_recover(harness.now());
    assert_eq!(harness.opcodes(), [(Opcode::Recover, 30), (Opcode::Recover, 31)]);
    let mut buf = [0; 128];
    let whole = Recovery { complete: CLOCK, part: 0, parts: 1 };
    let recalls = [(ProcessId(2), CLOCK)];
    let flood = [failure(1, 1, 4)];
    let bytes = whole.write(&mut buf, flood.into_iter(), recalls.into_iter()).expect("fits");
    assert_eq!(harness.receive_control(0, Opcode::Recovery, 0, &buf[..bytes]), Effect::Accepted);
    let recovered = harness.control.poll_recovered().expect("every part was received");
    let expected = Recovered { complete: CLOCK, failures: flood.into(), recalls: recalls.into() };
    assert_eq!((recovered, harness.control.poll_recovered()), (expected, None));
    assert_eq!(
        (harness.drain(), harness.control.controller_last_seen()),
        (Vec::new(), Some(harness.now()))
    );
}

#[test]
fn resume_resolves_own_links_and_is_always_acked() {
    let mut harness = Harness::on_switch(ALL);
    let own = harness.control.own;
    assert!(harness.control.on_link_down(&mut harness.registers, Port(0), Cause::TimedOut));
    assert!(harness.registers.is_held(Port(0)));
    let notify = |harness: &mut Harness, payload: &[u8]| {
        harness.receive_control(0, Opcode::Notice, 0, payload)
    };
    let previous = Instance { incarnation: Incarnation(3), ..own };
    for (sequence, owner, number) in [(1, own, 9), (2, switch(), 1), (3, previous, 1)] {
        let flood = resume(id(1, sequence), owner, number);
        assert_eq!(notify(&mut harness, &flood), Effect::Accepted, "{owner:?} {number}");
        assert_eq!(harness.acks(), [(Opcode::Completed, id(1, sequence))]);
    }
    assert!(harness.registers.is_held(Port(0)));
    let flood = resume(id(1, 4), own, 1);
    assert_eq!(notify(&mut harness, &flood), Effect::LinksChanged);
    assert_eq!(notify(&mut harness, &flood), Effect::Accepted, "a repeated resume changes nothing");
    assert!(!harness.registers.is_held(Port(0)));
    assert_eq!(harness.acks(), [(Opcode::Completed, id(1, 4))]);
    assert_eq!(harness.control.stats().links_resolved, 1);
}

//= spec/failure.md#R42
#[test]
fn freeze_kills_the_link_of_a_live_switch() {
    let mut harness = Harness::on_switch(ALL);
    let mut buf = [0; 64];
    let written = Flood { id: id(2, 1) }.write_freeze(&mut buf, [switch()].into_iter());
    let flood = &buf[..written.expect("fits").1];
    assert_eq!(harness.flood_from_switch(flood), Effect::LinksChanged);
    assert!(!harness.registers.is_live(Port(0)) && harness.registers.is_held(Port(0)));
    assert_eq!(harness.acks(), [(Opcode::FloodAck, id(2, 1))]);
    assert_eq!(
        (harness.beacon(), harness.flood_from_switch(flood)),
        (LinkEvent::Refused, Effect::Rejected)
    );
    assert_eq!(
        harness.control.peer(&harness.registers, Port(0)),
        None,
        "the peer is no longer confirmed"
    );
    let stats = harness.control.stats();
    assert_eq!((stats.links_declared_dead, stats.frames_refused), (1, 2));
}

//= spec/failure.md#R60
#[test]
fn announces_the_latest_end_of_the_log() {
    let mut harness = Harness::on_switch(ALL);
    let announced = |harness: &mut Harness| {
        harness.ns += 1_000_000_000;
        let sent = harness.drain();
        let payloads = sent.iter().filter(|(_, opcode, _)| *opcode == Opcode::Announce);
        payloads
            .map(|(_, _, payload)| AnnounceView::parse(payload).expect("written above"))
            .map(|view| view.announce.tip)
            .next_back()
            .expect("announcements are periodic")
    };
    assert_eq!(announced(&mut harness), None);
    let tip = |epoch, decided| DecisionTip {
        epoch,
        decided,
        digest: 5,
        replica: ProcessId(31),
        incarnation: Incarnation(1),
    };
    let mut payload = [0; DECISION_TIP_LEN];
    for (received, remembered) in
        [(tip(2, 3), tip(2, 3)), (tip(5, 2), tip(2, 3)), (tip(2, 4), tip(2, 4))]
    {
        received.write(&mut payload).expect("it fits");
        harness.receive_control(1, Opcode::AnnounceAck, 4, &payload);
        assert_eq!(announced(&mut harness), Some(remembered));
    }
    let mut flood = notice(id(2, 1), &[failure(3, 1, 1)]);
    let len = flood.len();
    flood.resize(len + DECISION_TIP_LEN, 0);
    tip(2, 5).append_to_flood(&mut flood, len).expect("there is space");
    assert_eq!(harness.flood_from_switch(&flood), Effect::Accepted);
    assert_eq!(announced(&mut harness), Some(tip(2, 5)));
    // As does the acknowledgement of recalls.
    tip(2, 6).write(&mut payload).expect("it fits");
    harness.receive_control(1, Opcode::UndeliverableAck, 4, &payload);
    assert_eq!(announced(&mut harness), Some(tip(2, 6)));
}

#[test]
fn tracks_and_answers_the_active_controller() {
    let mut harness = Harness::on_switch(ALL);
    assert_eq!(
        (harness.control.controller_last_seen(), harness.control.active_controller()),
        (None, None)
    );
    assert!(!harness.control.is_registered());
    assert_eq!(
        harness.receive_control(1, Opcode::AnnounceAck, 3, &[]),
        Effect::Rejected,
        "for a previous incarnation"
    );
    assert!(!harness.control.is_registered() && harness.control.stats().announce_acks_stale == 1);
    assert_eq!(harness.receive_control(1, Opcode::AnnounceAck, 4, &[]), Effect::Accepted);
    assert!(harness.control.is_registered());
    assert_eq!(
        (harness.control.controller_last_seen(), harness.control.active_controller()),
        (Some(harness.now()), Some(ProcessId(31)))
    );
    assert_eq!(harness.drain(), []);
    harness.ns += 1;
    assert_eq!(harness.receive_control(0, Opcode::Ping, 0, &[]), Effect::Accepted);
    assert_eq!(harness.opcodes(), [(Opcode::Pong, 30)]);
    assert_eq!(harness.control.active_controller(), Some(ProcessId(30)));
}

#[test]
fn relayed_frames_are_answered_by_relay() {
    let mut harness = Harness::on_switch(ALL);
    let inner = frame_from((3, Opcode::ReliableData, 42), &[1, 2, 3]);
    assert!(!harness.control.is_relayed(harness.now(), ProcessId(3)));
    assert_eq!(harness.receive_control(1, Opcode::Relayed, 0, &inner), Effect::Relayed(42));
    assert!(harness.control.is_relayed(harness.now(), ProcessId(3)));
    let answer = [7; 256 - HEADER_LEN];
    let now = harness.now();
    let mut encapsulate = |inner| harness.control.encapsulate(now, ProcessId(3), inner);
    assert!(encapsulate(&answer) && !encapsulate(&answer));
    let sent = harness.drain();
    let (header, opcode, payload) = &sent[0];
    assert_eq!(
        (sent.len(), *opcode, header.dst().0),
        (1, Opcode::Relay, 31),
        "to the active controller"
    );
    assert_eq!(payload[..], answer);
    let too_long = [7; 257 - HEADER_LEN];
    assert!(!harness.control.encapsulate(harness.now(), ProcessId(3), &too_long), "too long");
    assert_eq!(crate::config::RELAY_OVERHEAD_BYTES, HEADER_LEN);
    harness.control.on_direct(ProcessId(3));
    assert!(!harness.control.is_relayed(harness.now(), ProcessId(3)));
    harness.control.on_unreachable(harness.now(), ProcessId(4));
    assert!(harness.control.is_relayed(harness.now(), ProcessId(4)));
    harness.ns += 10 * ANNOUNCE_NS;
    assert!(
        !harness.control.is_relayed(harness.now(), ProcessId(4)),
        "forgotten unless found unreachable again"
    );
}

#[test]
fn malformed_and_foreign_frames_are_counted() {
    let mut harness = Harness::on_switch(ALL);
    let good = notice(id(1, 1), &[failure(4, 1, 1)]);
    let mut malformed = 0;
    for opcode in [Opcode::Notice, Opcode::Relayed, Opcode::Recovery] {
        assert_eq!(harness.receive_control(0, opcode, 0, &[0; 5]), Effect::Rejected, "{opcode:?}");
        malformed += 1;
    }
    assert_eq!(harness.flood_from_switch(&good[..good.len() - 1]), Effect::Rejected);
    // Frames from processes to controllers.
    for opcode in [
        Opcode::Announce,
        Opcode::Completed,
        Opcode::Relay,
        Opcode::Pong,
        Opcode::Undeliverable,
        Opcode::Recover,
    ] {
        assert_eq!(harness.receive_control(0, opcode, 0, &good), Effect::Rejected, "{opcode:?}");
        malformed += 1;
    }
    assert_eq!(harness.control.stats().frames_malformed, malformed + 1);
    for opcode in [Opcode::Notice, Opcode::Ping, Opcode::AnnounceAck, Opcode::UndeliverableAck] {
        for src in [0, 29, 32] {
            assert_eq!(harness.receive(&frame_from((src, opcode, 0), &good)), Effect::Rejected);
        }
    }
    assert_eq!(harness.control.stats().frames_foreign, 12);
    assert_eq!(
        (harness.control.active_controller(), harness.failures(), harness.drain()),
        (None, Vec::new(), Vec::new())
    );
}

#[test]
fn mesh_accepts_floods_only_from_controllers() {
    let mut harness = Harness::new(Links::Mesh, ALL);
    let payload = notice(id(1, 1), &[failure(4, 1, 1)]);
    for (src, expected) in [(3, 0), (31, 1)] {
        let bytes = frame_from((src, Opcode::Flood, 0), &payload);
        let frame = Frame::parse(&bytes).expect("intact");
        let (now, port) = (harness.now(), Port(src as u16));
        harness.control.on_link_frame(&mut harness.registers, now, port, &frame);
        harness.control.on_frame(&mut harness.registers, now, CLOCK, port, &frame);
        assert_eq!(harness.failures().len(), expected);
    }
    assert_eq!(harness.control.active_controller(), Some(ProcessId(31)));
    harness.control.on_failures_handled();
    let sent = harness.drain();
    let (header, opcode, _) = &sent[0];
    let peer = Instance { address: Address::Process(ProcessId(31)), incarnation: Incarnation(1) };
    assert_eq!((*opcode, header.peer()), (Opcode::FloodAck, Some(peer)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever controllers and switches send, in whatever order: no panic, no endless sequence of
    /// frames, no overdue deadline, and no failure reported twice.
    #[test]
    fn survives_arbitrary_controller_frames(
        sent in prop::collection::vec(
            (0..Opcode::ALL.len(), 28..33u32, prop::collection::vec(any::<u8>(), 0..90), 0..4u32),
            1..120,
        ),
        handles in any::<bool>(),
    ) {
        let mut harness = Harness::on_switch(ALL);
        let mut last_reported = [0u32; 32];
        for (step, (opcode, src, noise, epoch)) in sent.into_iter().enumerate() {
            let (opcode, step) = (Opcode::ALL[opcode], step as u32);
            harness.ns += 1_000;
            // Random bytes, or a notice made of them.
            let incarnation = u32::from(noise.len() as u8 % 5);
            let entries: Vec<_> = noise
                .chunks_exact(2)
                .map(|pair| failure(u32::from(pair[0]) % 40, 1 + u32::from(pair[1]) % 5, incarnation))
                .take(9)
                .collect();
            let payload = notice(id(epoch, step), &entries);
            match step % 3 {
                0 => harness.flood_from_switch(&payload),
                1 => harness.receive_control(src % 2, Opcode::Notice, step, &payload),
                _ => harness.receive(&frame_from((src, opcode, step), &noise)),
            };
            while let Some(failure) = harness.control.poll_failure() {
                for process in failure.first.0..failure.first.0 + failure.count {
                    let slot = &mut last_reported[process as usize];
                    prop_assert!(*slot <= failure.incarnation.0);
                    *slot = failure.incarnation.0 + 1;
                }
            }
            if handles && harness.control.is_completion_pending() {
                harness.control.on_failures_handled();
            }
            harness.control.on_timeout(harness.now());
            harness.drain();
        }
        prop_assert!(!handles || !harness.control.is_completion_pending());
    }
}
