//! Groups over a network that loses, duplicates and reorders frames.

use crate::network;

use network::{Faults, Group};
use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Timestamp};
use onepipe_rivals::{Config, Delivery, Links, Method, Rival, SendError, To};
use onepipe_wire::parse_header;
use proptest::prelude::*;

fn methods() -> impl Strategy<Value = Method> {
    prop_oneof![
        Just(Method::Token),
        (1u64..200).prop_map(|steps| Method::Lamport { interval_ns: steps * 1_000 }),
        Just(Method::Sequencer),
        Just(Method::Unordered),
    ]
}

fn faults() -> impl Strategy<Value = Faults> {
    (0u8..60, 0u8..60, 0u8..60, 0u8..30).prop_map(|(lost, repeated, overtaken, corrupt)| Faults {
        lost,
        repeated,
        overtaken,
        corrupt,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn members_deliver_all_once_in_total_order(
        method in methods(),
        members in 1u32..6,
        faults in faults(),
        seed: u64,
        messages in prop::collection::vec((0usize..6, 0u32..12, 0usize..300), 1..120),
    ) {
        let mut group = Group::new(method, members, |_| {});
        group.chance = seed;
        // Messages that each member must deliver, by sender, in order.
        let mut sent = vec![vec![Vec::new(); members as usize]; members as usize];
        for (number, (member, to, bytes)) in messages.iter().enumerate() {
            let member = member % members as usize;
            let to = if *to < members { To::One(ProcessId(*to)) } else { To::All };
            let mut payload = (number as u64).to_be_bytes().to_vec();
            payload.resize(8 + bytes, member as u8);
            group.send(member, to, &payload).expect("the queues have space");
            for (receiver, sent) in sent.iter_mut().enumerate() {
                if to == To::All || to == To::One(ProcessId(receiver as u32)) {
                    sent[member].push(payload.clone());
                }
            }
            if number % 3 == 0 {
                group.step(faults);
            }
        }
        let expected: Vec<usize> =
            sent.iter().map(|sent| sent.iter().map(Vec::len).sum()).collect();
        group.run_to_completion(&expected);
        // Enough steps to expose duplicate deliveries.
        (0..40).for_each(|_| group.step(faults));
        group.run_to_completion(&expected);
        for (delivered, sent) in group.delivered.iter().zip(&sent) {
            for (member, sent) in sent.iter().enumerate() {
                let from_member = delivered.iter().filter(|one| one.from.index() == member);
                prop_assert!(from_member.map(|one| &one.payload[..]).eq(sent.iter().map(|s| &s[..])));
            }
        }
        if method != Method::Unordered {
            let pairs = group.delivered.iter().flat_map(|one| {
                group.delivered.iter().map(move |other| (one, other))
            });
            for (one, other) in pairs {
                let common = |these: &[Delivery], those: &[Delivery]| {
                    these.iter().filter(|one| those.contains(one)).cloned().collect::<Vec<_>>()
                };
                prop_assert_eq!(common(one, other), common(other, one));
            }
        }
    }

    #[test]
    fn arbitrary_frames_are_harmless(
        method in methods(),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        psn in any::<u32>(),
        src in 0u32..6,
    ) {
        use onepipe_base::{Incarnation, Promises, Psn};
        use onepipe_wire::{HEADER_LEN, Header, Opcode, seal};

        let mut group = Group::new(method, 3, |_| {});
        let now = group.now();
        let header = Header::new(Opcode::Foreign, ProcessId(src), ProcessId(0), Incarnation(1))
            .stamped(now.sync, Promises::both(now.sync), Psn(psn));
        let mut frame = vec![0; HEADER_LEN + bytes.len()];
        frame[HEADER_LEN..].copy_from_slice(&bytes);
        seal(&mut frame, header, bytes.len());
        group.nodes[0].handle_frame(now, Port(0), &mut frame);
        group.nodes[0].handle_frame(now, Port(0), &mut bytes.clone());
        group.drain(0);
    }
}

#[test]
fn unreachable_member_blocks_with_bounded_memory() {
    for method in [Method::Token, Method::Lamport { interval_ns: 10_000 }, Method::Sequencer] {
        let mut group = Group::new(method, 3, |config| config.pending_max = 20);
        let mut taken = 0;
        for _ in 0..400 {
            for member in 0..2 {
                taken += usize::from(group.send(member, To::All, b"x").is_ok());
            }
            group.in_flight.retain(|(to, _)| *to != 2);
            group.step(Faults::default());
            group.in_flight.retain(|(to, _)| *to != 2);
        }
        assert!(
            taken < 400,
            "{method:?}: {taken} messages were accepted while one member was unreachable"
        );
        assert_eq!(group.send(0, To::All, b"x"), Err(SendError::Full), "{method:?}");
        group.run_to_completion(&[taken; 3]);
        assert_eq!(group.delivered[0], group.delivered[2]);
        assert!(group.send(0, To::All, b"x").is_ok(), "the queue has space again");
    }
}

#[test]
fn coalesces_messages_to_same_member() {
    let mut group = Group::new(Method::Unordered, 2, |_| {});
    let now = group.now();
    for _ in 0..10 {
        group.nodes[0].send(now, To::All, &[0; 64]).expect("the queue has space");
    }
    group.drain(0);
    assert_eq!(group.in_flight.len(), 1, "ten messages of 64 bytes fit one frame");
}

#[test]
fn token_follows_the_messages_of_its_holder() {
    let mut holder = Rival::new(Config::new(Method::Token, ProcessId(0), 4)).expect("valid");
    let now = Now { mono: Mono::from_ns(0), sync: Timestamp::from_ns(1 << 50) };
    holder.send(now, To::All, &[0; 64]).expect("the queue has space");
    let mut slot = [0; 1_472];
    let mut receivers = Vec::new();
    while let Some(transmit) = holder.poll_transmit(now, &mut slot) {
        let (header, _) = parse_header(&slot[..transmit.bytes]).expect("a header");
        receivers.push(header.dst().0);
    }
    assert_eq!(receivers, [1, 2, 3, 1], "the token goes to the successor last");
}

#[test]
fn invalid_messages_and_settings_are_refused() {
    let config = Config::new(Method::Sequencer, ProcessId(2), 2);
    let mut sequencer =
        Rival::new(config.clone()).expect("the sequencer is behind the last member");
    let now = Now { mono: Mono::from_ns(0), sync: Timestamp::from_ns(1 << 50) };
    assert_eq!(sequencer.send(now, To::All, b"x"), Err(SendError::Sequencer));
    let mut member =
        Rival::new(Config { process: ProcessId(0), ..config.clone() }).expect("a member");
    let long = vec![0; 2_000];
    let refused = member.send(now, To::All, &long).expect_err("too long").to_string();
    assert!(refused.contains("2000") && refused.contains("1410"), "{refused}");
    let nobody = member.send(now, To::One(ProcessId(2)), b"x").expect_err("the sequencer's id");
    assert!(nobody.to_string().contains("2 members"), "{nobody}");
    for bad in [
        Config { process: ProcessId(3), ..config.clone() },
        Config { members: 0, ..config.clone() },
        Config { pending_max: 0, ..config.clone() },
        Config { entries_per_frame_max: 0, ..config.clone() },
        Config { frame_len_max: 60, ..config.clone() },
        Config { members: 70_000, links: Links::Mesh, ..config.clone() },
        Config { method: Method::Lamport { interval_ns: 0 }, ..config.clone() },
    ] {
        assert!(Rival::new(bad.clone()).is_err(), "{bad:?}");
    }
}

/// A frame sent right after a check of the connections, and lost, was never retransmitted.
#[test]
fn retransmits_frame_sent_right_after_tick() {
    let member = |process| {
        let config = Config::new(Method::Unordered, ProcessId(process), 2);
        Rival::new(config).expect("a valid configuration")
    };
    let now = |ns| Now { mono: Mono::from_ns(ns), sync: Timestamp::from_ns((1 << 50) + ns) };
    let poll = |rival: &mut Rival, ns| {
        let mut slot = [0; 1_472];
        let transmit = rival.poll_transmit(now(ns), &mut slot)?;
        Some(slot[..transmit.bytes].to_vec())
    };
    let (mut one, mut other) = (member(0), member(1));
    one.send(now(1), To::One(ProcessId(1)), b"first").expect("the queue has space");
    let mut frame = poll(&mut one, 1).expect("a frame to send");
    other.handle_frame(now(2_000), Port(0), &mut frame);
    other.handle_timeout(now(52_000));
    let mut ack = poll(&mut other, 52_000).expect("a pending acknowledgement");
    // The driver's send buffer was full: the second frame waits.
    one.send(now(3_000), To::One(ProcessId(1)), b"second").expect("the queue has space");
    one.handle_frame(now(53_000), Port(0), &mut ack);
    one.handle_timeout(now(53_000));
    assert!(poll(&mut one, 53_000).is_some_and(|frame| frame.len() > 60), "lost by the network");
    assert!(!one.is_drained());
    for _ in 0..200 {
        let due = one.poll_timeout().expect("a frame is in flight").as_ns();
        one.handle_timeout(now(due));
        if let Some(mut frame) = poll(&mut one, due) {
            other.handle_frame(now(due), Port(0), &mut frame);
            let came: Vec<_> = core::iter::from_fn(|| other.poll_event()).collect();
            assert_eq!(came.last().map(|last| &last.payload[..]), Some(&b"second"[..]));
            return;
        }
    }
    panic!("the frame was never retransmitted");
}
