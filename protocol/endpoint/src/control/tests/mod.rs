//! The process's side as a whole: frames in, frames out.

mod rig;

use alloc::vec::Vec;

use onepipe_wire::{AnnounceView, Flood, Frame, HEADER_LEN, LinkState, Recovery};
use proptest::prelude::*;

use super::*;
use rig::*;

#[test]
fn links_are_announced_in_parts_to_every_controller_and_again_ever_more_rarely() {
    let mut rig = Rig::new(Links::Mesh, ALL);
    assert_eq!((rig.drain(), rig.control.deadline()), (Vec::new(), None));
    for port in (0..12).filter(|port| *port != 1) {
        let peer = ProcessId(u32::from(port));
        let instance = Instance { address: Address::Process(peer), incarnation: Incarnation(3) };
        let (control, registers, now) = (&mut rig.control, &mut rig.registers, Mono::from_ns(9));
        assert_eq!(control.on_peer(registers, now, Port(port), instance), LinkNews::Good);
        registers.update(now, Port(port), Promises::both(CLOCK));
    }
    let said = rig.drain();
    let parts: Vec<_> = said
        .iter()
        .map(|(header, opcode, payload)| {
            assert_eq!(
                (*opcode, header.src(), header.incarnation().0),
                (Opcode::Announce, ProcessId(1), 4)
            );
            let part = AnnounceView::parse(payload).expect("just written");
            let ports: Vec<_> = part.links(CLOCK).map(|link| link.port.0).collect();
            (header.dst().0, part.announce.first, part.announce.total, ports)
        })
        .collect();
    let (front, rest) = ((0..9).filter(|port| *port != 1).collect(), (9..12).collect());
    let to = |controller: u32| [(controller, 0, 11, front), (controller, 8, 11, rest)];
    let [one, two] = to(30);
    let expected = [one.clone(), two.clone(), (31, 0, 11, one.3), (31, 8, 11, two.3)];
    assert_eq!(parts, expected);

    let mut pause_ns = ANNOUNCE_NS / 1_000;
    for _ in 0..15 {
        let due = rig.control.deadline().expect("for ever").as_ns();
        let pause = due - rig.ns;
        assert!((pause_ns / 2..=pause_ns).contains(&pause), "{pause}, not up to {pause_ns}");
        rig.ns = due - 1;
        assert_eq!(rig.drain(), []);
        rig.ns = due;
        assert_eq!(rig.drain(), said, "the same, again and again");
        pause_ns = (2 * pause_ns).min(ANNOUNCE_NS);
    }

    assert!(rig.control.on_link_dead(&mut rig.registers, Port(3)));
    let news = rig.drain();
    let part = AnnounceView::parse(&news[0].2).expect("just written");
    let dead = part.links(CLOCK).next().expect("first of all");
    assert_eq!((dead.port, dead.state), (Port(3), LinkState::Frozen { number: 1, commit: CLOCK }));
    let before = AnnounceView::parse(&said[0].2).expect("just written");
    assert_ne!(part.announce.generation, before.announce.generation);
}

#[test]
fn the_last_link_is_announced_wherever_the_parts_end() {
    for links in 1..=17 {
        let mut rig = Rig::new(Links::Mesh, ALL);
        for port in 2..2 + links {
            let peer = ProcessId(u32::from(port));
            let instance =
                Instance { address: Address::Process(peer), incarnation: Incarnation(3) };
            rig.control.on_peer(&mut rig.registers, Mono::from_ns(9), Port(port), instance);
            rig.registers.update(Mono::from_ns(9), Port(port), Promises::both(CLOCK));
        }
        let said = rig.drain();
        let parts = said.iter().map(|(_, _, payload)| AnnounceView::parse(payload));
        let count = parts.map(|part| part.expect("just written").links(CLOCK).len()).sum::<usize>();
        assert_eq!(count, 2 * usize::from(links), "each to two controllers");
    }
}

#[test]
fn without_controllers_it_says_nothing_and_believes_nobody() {
    let mut rig = Rig::on_switch(None);
    assert_eq!(rig.wave(&notice(id(1, 1), &[failure(3, 1, 1)])), Verdict::No);
    assert_eq!(rig.tell(0, Opcode::Ping, 0, &[]), Verdict::No);
    assert!(!rig.control.wrap(&[0; 60]));
    rig.control.on_unreachable(rig.now(), ProcessId(3));
    rig.control.start_recover(rig.now());
    assert!(!rig.control.is_relayed(rig.now(), ProcessId(3)));
    assert_eq!((rig.drain(), rig.failures()), (Vec::new(), Vec::new()));
    assert_eq!(rig.control.stats().frames_foreign, 2);
}

#[test]
fn a_wave_is_answered_when_all_it_tells_is_done_and_recorded() {
    let mut rig = Rig::on_switch(ALL);
    let told = notice(id(3, 7), &[failure(4, 2, 1), failure(9, 1, 2)]);
    assert_eq!(rig.wave(&told), Verdict::Yes);
    assert!(!rig.control.owes_completion(), "nothing was polled");
    let at = CLOCK.as_ns() + 1_500;
    assert_eq!(rig.failures(), [(4, 2, at), (9, 1, at)]);
    assert!(rig.control.owes_completion());
    assert_eq!(
        (rig.wave(&told), rig.failures(), rig.answers()),
        (Verdict::Yes, Vec::new(), Vec::new())
    );
    let (to, incarnation) = (ProcessId(4), Incarnation(1));
    let recall = Undeliverable { to, incarnation, timestamp: CLOCK };
    assert!(rig.control.on_undeliverable(recall));
    let sent = rig.opcodes();
    assert_eq!(sent, [(Opcode::Undeliverable, 30), (Opcode::Undeliverable, 31)]);
    rig.control.on_failures_handled();
    assert_eq!((rig.answers(), rig.control.undeliverable_pending()), (Vec::new(), 1));
    assert_eq!(rig.tell(1, Opcode::UndeliverableAck, 77, &[]), Verdict::Yes);
    assert_eq!(rig.answers(), [], "the record of something else");
    assert_eq!(rig.tell(1, Opcode::UndeliverableAck, 4 << 16, &[]), Verdict::Yes);
    let all = rig.drain();
    let (header, opcode, _) = &all[0];
    assert_eq!((all.len(), *opcode), (1, Opcode::FloodAck));
    assert_eq!((header.sender(), header.peer()), (Some(rig.control.own), Some(switch())));
    assert!(!rig.control.owes_completion());
    assert_eq!(
        (rig.wave(&told), rig.answers()),
        (Verdict::Yes, [(Opcode::FloodAck, id(3, 7))].into())
    );
    let flat = rig.tell(0, Opcode::Notice, 0, &told);
    assert_eq!((flat, rig.drain()[0].0.dst()), (Verdict::Yes, ProcessId(30)));
    let failed =
        |process, instance| rig.control.has_failed(ProcessId(process), Incarnation(instance));
    assert_eq!(
        (failed(5, 1).map(Timestamp::as_ns), failed(5, 2), failed(6, 1)),
        (Some(at), None, None)
    );
    assert_eq!((rig.control.epoch(), rig.control.stats().failures_told), (3, 2));
}

#[test]
fn a_new_active_controller_that_repeats_the_last_notice_is_answered_at_its_epoch() {
    let mut rig = Rig::on_switch(ALL);
    rig.wave(&notice(id(3, 7), &[failure(4, 2, 1)]));
    rig.failures();
    rig.control.on_failures_handled();
    assert_eq!(rig.answers(), [(Opcode::FloodAck, id(3, 7))]);
    rig.wave(&notice(id(4, 1), &[failure(4, 2, 1)]));
    assert!(rig.control.owes_completion() && rig.failures().is_empty());
    rig.control.on_failures_handled();
    assert_eq!(rig.answers(), [(Opcode::FloodAck, id(4, 1))]);
    for stale in [notice(id(3, 9), &[failure(8, 1, 1)]), resume(id(3, 9), rig.control.own, 1)] {
        assert_eq!(rig.wave(&stale), Verdict::No);
        assert_eq!(rig.tell(0, Opcode::Notice, 0, &stale), Verdict::No);
    }
    assert_eq!((rig.failures(), rig.answers()), (Vec::new(), Vec::new()));
    assert_eq!((rig.control.stats().waves_stale, rig.control.active()), (4, None));
}

#[test]
fn who_is_told_of_its_own_failure_stops_and_keeps_nobody_waiting() {
    let mut rig = Rig::on_switch(ALL);
    assert_eq!(rig.wave(&notice(id(3, 7), &[failure(0, 9, 3)])), Verdict::Yes);
    assert_eq!(rig.control.excluded(), None, "it was a former life");
    rig.failures();
    rig.control.on_failures_handled();
    rig.answers();
    assert_eq!(rig.wave(&notice(id(3, 8), &[failure(1, 1, 4)])), Verdict::Yes);
    assert_eq!(rig.control.excluded(), Some(CLOCK.wrapping_add_ns(1_500)));
    assert_eq!(rig.answers(), [(Opcode::FloodAck, id(3, 8))]);
    rig.tell(0, Opcode::Ping, 0, &[]);
    assert!(rig.control.on_link_dead(&mut rig.registers, Port(0)));
    rig.ns += 2 * ANNOUNCE_NS;
    assert_eq!(rig.drain(), [], "no sign of life, no announcement");

    rig.control.start_recover(rig.now());
    assert_eq!(rig.opcodes(), [(Opcode::Recover, 30), (Opcode::Recover, 31)]);
    let mut room = [0; 128];
    let whole = Recovery { complete: CLOCK, part: 0, parts: 1 };
    let recalls = [(ProcessId(2), CLOCK)];
    let told = [failure(1, 1, 4)];
    let bytes = whole.write(&mut room, told.into_iter(), recalls.into_iter()).expect("fits");
    assert_eq!(rig.tell(0, Opcode::Recovery, 0, &room[..bytes]), Verdict::Yes);
    let recovered = rig.control.poll_recovered().expect("all parts");
    let expected = Recovered { complete: CLOCK, failures: told.into(), recalls: recalls.into() };
    assert_eq!((recovered, rig.control.poll_recovered()), (expected, None));
    assert_eq!((rig.drain(), rig.control.controller_heard()), (Vec::new(), Some(rig.now())));
}

#[test]
fn a_resume_takes_this_life_s_holds_away_and_is_answered_whatever_it_names() {
    let mut rig = Rig::on_switch(ALL);
    let own = rig.control.own;
    assert!(rig.control.on_link_dead(&mut rig.registers, Port(0)));
    assert!(rig.registers.is_held(Port(0)));
    let way = |rig: &mut Rig, payload: &[u8]| rig.tell(0, Opcode::Notice, 0, payload);
    let former = Instance { incarnation: Incarnation(3), ..own };
    for (sequence, owner, number) in [(1, own, 9), (2, switch(), 1), (3, former, 1)] {
        let told = resume(id(1, sequence), owner, number);
        assert_eq!(way(&mut rig, &told), Verdict::Yes, "{owner:?} {number}");
        assert_eq!(rig.answers(), [(Opcode::Completed, id(1, sequence))]);
    }
    assert!(rig.registers.is_held(Port(0)));
    let told = resume(id(1, 4), own, 1);
    assert_eq!(way(&mut rig, &told), Verdict::LinksChanged);
    assert_eq!(way(&mut rig, &told), Verdict::Yes, "a repeat finds nothing");
    assert!(!rig.registers.is_held(Port(0)));
    assert_eq!(rig.answers(), [(Opcode::Completed, id(1, 4))]);
    assert_eq!(rig.control.stats().links_resolved, 1);
}

#[test]
fn a_freeze_that_names_the_switch_makes_its_link_dead_though_it_is_heard() {
    let mut rig = Rig::on_switch(ALL);
    let mut room = [0; 64];
    let written = Flood { id: id(2, 1) }.write_freeze(&mut room, [switch()].into_iter());
    let told = &room[..written.expect("fits").1];
    assert_eq!(rig.wave(told), Verdict::LinksChanged);
    assert!(!rig.registers.is_live(Port(0)) && rig.registers.is_held(Port(0)));
    assert_eq!(rig.answers(), [(Opcode::FloodAck, id(2, 1))]);
    assert_eq!((rig.beacon(), rig.wave(told)), (LinkNews::Refused, Verdict::No));
    assert_eq!(rig.control.echo(&rig.registers, Port(0)), None, "and says so");
    let stats = rig.control.stats();
    assert_eq!((stats.links_declared_dead, stats.frames_refused), (1, 2));
}

#[test]
fn a_controller_is_heard_and_answered() {
    let mut rig = Rig::on_switch(ALL);
    assert_eq!((rig.control.controller_heard(), rig.control.active()), (None, None));
    assert!(!rig.control.is_welcome());
    assert_eq!(rig.tell(1, Opcode::AnnounceAck, 3, &[]), Verdict::No, "to a former life");
    assert!(!rig.control.is_welcome() && rig.control.stats().welcomes_stale == 1);
    assert_eq!(rig.tell(1, Opcode::AnnounceAck, 4, &[]), Verdict::Yes);
    assert!(rig.control.is_welcome());
    assert_eq!(
        (rig.control.controller_heard(), rig.control.active()),
        (Some(rig.now()), Some(ProcessId(31)))
    );
    assert_eq!(rig.drain(), []);
    rig.ns += 1;
    assert_eq!(rig.tell(0, Opcode::Ping, 0, &[]), Verdict::Yes);
    assert_eq!(rig.opcodes(), [(Opcode::Pong, 30)]);
    assert_eq!(rig.control.active(), Some(ProcessId(30)));
}

#[test]
fn what_is_relayed_is_taken_out_and_answered_by_relay() {
    let mut rig = Rig::on_switch(ALL);
    let inner = framed((3, Opcode::ReliableAck, 42), &[1, 2, 3]);
    assert!(!rig.control.is_relayed(rig.now(), ProcessId(3)));
    assert_eq!(rig.tell(1, Opcode::Relayed, 0, &inner), Verdict::Relayed(42));
    assert!(rig.control.is_relayed(rig.now(), ProcessId(3)));
    let answer = [7; 256 - HEADER_LEN];
    assert!(rig.control.wrap(&answer) && !rig.control.wrap(&answer));
    let sent = rig.drain();
    let (header, opcode, payload) = &sent[0];
    assert_eq!((sent.len(), *opcode, header.dst().0), (1, Opcode::Relay, 31), "to the active one");
    assert_eq!(payload[..], answer);
    assert!(!rig.control.wrap(&[7; 257 - HEADER_LEN]), "too long");
    assert_eq!(RELAY_OVERHEAD_BYTES, HEADER_LEN);
    rig.control.on_direct(ProcessId(3));
    assert!(!rig.control.is_relayed(rig.now(), ProcessId(3)));
    rig.control.on_unreachable(rig.now(), ProcessId(4));
    assert!(rig.control.is_relayed(rig.now(), ProcessId(4)));
    rig.ns += 10 * ANNOUNCE_NS;
    assert!(!rig.control.is_relayed(rig.now(), ProcessId(4)), "the direct way is tried again");
}

#[test]
fn what_makes_no_sense_or_comes_from_no_controller_is_refused_and_counted() {
    let mut rig = Rig::on_switch(ALL);
    let good = notice(id(1, 1), &[failure(4, 1, 1)]);
    let mut malformed = 0;
    for opcode in [Opcode::Notice, Opcode::Relayed, Opcode::Recovery] {
        assert_eq!(rig.tell(0, opcode, 0, &[0; 5]), Verdict::No, "{opcode:?}");
        malformed += 1;
    }
    assert_eq!(rig.wave(&good[..good.len() - 1]), Verdict::No);
    // What processes say to controllers.
    for opcode in [
        Opcode::Announce,
        Opcode::Completed,
        Opcode::Relay,
        Opcode::Pong,
        Opcode::Undeliverable,
        Opcode::Recover,
    ] {
        assert_eq!(rig.tell(0, opcode, 0, &good), Verdict::No, "{opcode:?}");
        malformed += 1;
    }
    assert_eq!(rig.control.stats().frames_malformed, malformed + 1);
    for opcode in [Opcode::Notice, Opcode::Ping, Opcode::AnnounceAck, Opcode::UndeliverableAck] {
        for src in [0, 29, 32] {
            assert_eq!(rig.take(&framed((src, opcode, 0), &good)), Verdict::No);
        }
    }
    assert_eq!(rig.control.stats().frames_foreign, 12);
    assert_eq!((rig.control.active(), rig.failures(), rig.drain()), (None, Vec::new(), Vec::new()));
}

#[test]
fn on_a_mesh_only_a_controller_s_waves_count() {
    let mut rig = Rig::new(Links::Mesh, ALL);
    let payload = notice(id(1, 1), &[failure(4, 1, 1)]);
    for (src, expected) in [(3, 0), (31, 1)] {
        let bytes = framed((src, Opcode::Flood, 0), &payload);
        let frame = Frame::parse(&bytes).expect("intact");
        let (now, port) = (rig.now(), Port(src as u16));
        rig.control.on_link_frame(&mut rig.registers, now, port, (frame.header, frame.opcode));
        rig.control.on_frame(&mut rig.registers, (now, CLOCK), port, &frame);
        assert_eq!(rig.failures().len(), expected);
    }
    assert_eq!(rig.control.active(), Some(ProcessId(31)));
    rig.control.on_failures_handled();
    let sent = rig.drain();
    let (header, opcode, _) = &sent[0];
    let peer = Instance { address: Address::Process(ProcessId(31)), incarnation: Incarnation(1) };
    assert_eq!((*opcode, header.peer()), (Opcode::FloodAck, Some(peer)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever controllers and switches say, in whatever order: no panic, no frame without end,
    /// nothing overdue, and never a word about a failure twice.
    #[test]
    fn nothing_that_is_said_does_harm(
        said in prop::collection::vec(
            (0..Opcode::ALL.len(), 28..33u32, prop::collection::vec(any::<u8>(), 0..90), 0..4u32),
            1..120,
        ),
        handles in any::<bool>(),
    ) {
        let mut rig = Rig::on_switch(ALL);
        let mut told = [0u32; 32];
        for (step, (opcode, src, noise, epoch)) in said.into_iter().enumerate() {
            let (opcode, step) = (Opcode::ALL[opcode], step as u32);
            rig.ns += 1_000;
            // Noise, or a notice made of it.
            let instance = u32::from(noise.len() as u8 % 5);
            let entries: Vec<_> = noise
                .chunks_exact(2)
                .map(|pair| failure(u32::from(pair[0]) % 40, 1 + u32::from(pair[1]) % 5, instance))
                .take(9)
                .collect();
            let payload = notice(id(epoch, step), &entries);
            match step % 3 {
                0 => rig.wave(&payload),
                1 => rig.tell(src % 2, Opcode::Notice, step, &payload),
                _ => rig.take(&framed((src, opcode, step), &noise)),
            };
            while let Some(failure) = rig.control.poll_failure() {
                for process in failure.first.0..failure.first.0 + failure.count {
                    let slot = &mut told[process as usize];
                    prop_assert!(*slot <= failure.incarnation.0);
                    *slot = failure.incarnation.0 + 1;
                }
            }
            if handles && rig.control.owes_completion() {
                rig.control.on_failures_handled();
            }
            rig.control.on_timeout(rig.now());
            rig.drain();
        }
        prop_assert!(!handles || !rig.control.owes_completion());
    }
}
