//! Groups that agree on timestamps, over a network that loses, duplicates and reorders frames.

use crate::network;

use network::{Faults, Group};
use onepipe_base::{Incarnation, Machine, Port, ProcessId, Promises, Psn};
use onepipe_rivals::{Config, Delivery, GroupId, GroupSet, Method, Rival, SendError, To};
use onepipe_wire::{HEADER_LEN, Header, Opcode, seal};
use proptest::prelude::*;

/// Returns whether deliveries ascend by number, then by sender.
fn ascend(delivered: &[Delivery]) -> bool {
    delivered.windows(2).all(|two| (two[0].number, two[0].from) <= (two[1].number, two[1].from))
}

fn common(these: &[Delivery], those: &[Delivery]) -> Vec<Delivery> {
    these.iter().filter(|one| those.contains(one)).cloned().collect()
}

fn groups_of(bits: u64, groups: u32) -> GroupSet {
    let bits = bits & (u64::MAX >> (64 - groups));
    GroupSet::from_bits(if bits == 0 { 1 } else { bits })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn destination_groups_deliver_once_in_total_order(
        groups in 1u32..4,
        group_members in prop_oneof![Just(1u32), Just(3), Just(5)],
        clients in 0u32..3,
        faults in (0u8..60, 0u8..60, 0u8..60, 0u8..30).prop_map(
            |(lost, repeated, overtaken, corrupt)| Faults { lost, repeated, overtaken, corrupt },
        ),
        seed: u64,
        messages in prop::collection::vec((0usize..32, any::<u64>(), 0usize..300), 1..100),
    ) {
        let (members, nodes) = (groups * group_members, groups * group_members + clients);
        let method = Method::Primcast { groups, group_members };
        let mut group = Group::new(method, nodes, |_| {});
        group.chance = seed;
        let mut sent = vec![Vec::new(); nodes as usize];
        for (number, (member, bits, bytes)) in messages.iter().enumerate() {
            let (member, to) = (member % nodes as usize, groups_of(*bits, groups));
            let mut payload = (number as u64).to_be_bytes().to_vec();
            payload.resize(8 + bytes, member as u8);
            group.send(member, To::Groups(to), &payload).expect("the queues have space");
            for receiver in 0..members {
                if to.contains(GroupId((receiver / group_members) as u16)) {
                    sent[receiver as usize].push((ProcessId(member as u32), payload.clone()));
                }
            }
            if number % 3 == 0 {
                group.step(faults);
            }
        }
        let expected: Vec<usize> = sent.iter().map(Vec::len).collect();
        group.run_to_completion(&expected);
        // Enough steps to expose duplicate deliveries, and to notify the senders.
        (0..40).for_each(|_| group.step(faults));
        group.run_to_completion(&expected);
        (0..200).for_each(|_| group.step(Faults::default()));
        for (delivered, mut sent) in group.delivered.iter().zip(sent) {
            let mut all: Vec<_> =
                delivered.iter().map(|one| (one.from, one.payload.to_vec())).collect();
            all.sort_unstable();
            sent.sort_unstable();
            prop_assert_eq!(all, sent);
            prop_assert!(ascend(delivered));
        }
        for one in &group.delivered {
            for other in &group.delivered {
                prop_assert_eq!(common(one, other), common(other, one));
            }
        }
        for node in &group.nodes {
            prop_assert!(node.open() == 0 && node.is_drained());
        }
    }

    #[test]
    fn arbitrary_frames_are_harmless(
        entries in prop::collection::vec((0u8..6, 0u32..9, 0u32..3, prop_oneof![
            Just(0u64), Just(1), Just(u64::MAX), Just(u64::MAX - 1), any::<u64>(),
        ], 0u8..4), 1..12),
        src in 0u32..9,
    ) {
        let mut group = Group::new(Method::Primcast { groups: 2, group_members: 3 }, 7, |_| {});
        let now = group.now();
        let mut bytes = 1u32.to_be_bytes().to_vec();
        for (kind, origin, index, number, length) in entries {
            bytes.extend([kind, 0, 0, length]);
            bytes.extend(origin.to_be_bytes());
            bytes.extend(index.to_be_bytes());
            bytes.extend(number.to_be_bytes());
            bytes.extend(vec![7; length.into()]);
        }
        for to in [0, 1, 6] {
            let header = Header::new(Opcode::Foreign, ProcessId(src), ProcessId(to), Incarnation(1))
                .stamped(now.sync, Promises::both(now.sync), Psn(1));
            let mut frame = vec![0; HEADER_LEN + bytes.len()];
            frame[HEADER_LEN..].copy_from_slice(&bytes);
            seal(&mut frame, header, bytes.len());
            group.nodes[to as usize].handle_frame(now, Port(0), &mut frame);
            group.drain(to as usize);
        }
        let _ = group.send(0, To::All, b"x");
        group.step(Faults::default());
    }
}

/// Creates two groups of three members, and a client.
fn two_groups() -> Group {
    Group::new(Method::Primcast { groups: 2, group_members: 3 }, 7, |_| {})
}

#[test]
fn delivery_takes_three_steps() {
    let mut group = two_groups();
    group.send(6, To::All, b"x").expect("the queue has space");
    (0..2).for_each(|_| group.step(Faults::default()));
    assert!(group.delivered.iter().all(Vec::is_empty), "no member has seen a quorum");
    group.step(Faults::default());
    assert!(group.delivered[..6].iter().all(|all| all.len() == 1), "{:?}", group.delivered);
    assert_eq!(group.nodes[6].open(), 1, "the client was not notified");
    group.step(Faults::default());
    assert_eq!(group.nodes[6].open(), 0);
}

#[test]
fn other_groups_receive_nothing() {
    let mut group = two_groups();
    for _ in 0..20 {
        group.send(6, To::Groups(GroupSet::from_bits(0b10)), b"x").expect("the queue has space");
        group.step(Faults::default());
    }
    (0..100).for_each(|_| group.step(Faults::default()));
    let frames = |node: &Rival| node.stats().frames_sent + node.stats().frames_received;
    assert!(group.nodes[..3].iter().all(|node| frames(node) == 0));
    assert!(group.delivered[3..6].iter().all(|all| all.len() == 20));
}

/// With one of three members unreachable the group makes progress, with two it does not.
#[test]
fn majority_is_necessary_and_sufficient() {
    for (away, expected) in [(&[2][..], 1), (&[1, 2], 0)] {
        let mut group = two_groups();
        group.send(6, To::Groups(GroupSet::from_bits(0b01)), b"x").expect("the queue has space");
        for _ in 0..10 {
            group.in_flight.retain(|(to, _)| !away.contains(to));
            group.step(Faults::default());
        }
        assert_eq!(group.delivered[0].len(), expected, "{away:?} away");
    }
}

/// A clock raised by another member's was not advertised, and the last message was not delivered.
#[test]
fn advertises_clock_raised_by_other_member() {
    let mut group = two_groups();
    for _ in 0..5 {
        group.send(6, To::Groups(GroupSet::from_bits(0b10)), b"x").expect("the queue has space");
    }
    (0..10).for_each(|_| group.step(Faults::default()));
    group.send(6, To::All, b"both").expect("the queue has space");
    // Group 1's acknowledgements reach member 1 first, and its own then reach the other two.
    let mut held = Vec::new();
    for step in 0..12 {
        group.in_flight.retain(|(to, frame)| {
            let from = onepipe_wire::parse_header(frame).expect("just sealed").0.src();
            let is_held = step < 6 && (3..6).contains(&from.0) && [0, 2].contains(to);
            if is_held {
                held.push((*to, frame.clone()));
            }
            !is_held
        });
        if step == 6 {
            group.in_flight.extend(held.drain(..));
        }
        group.step(Faults::default());
    }
    assert!(group.delivered[..3].iter().all(|all| all.len() == 1), "{:?}", group.delivered);
}

#[test]
fn bounds_open_messages_and_refuses_unknown_groups() {
    let method = Method::Primcast { groups: 2, group_members: 3 };
    let mut group = Group::new(method, 7, |config| config.pending_max = 4);
    for _ in 0..4 {
        group.send(6, To::All, b"x").expect("the queue has space");
    }
    assert_eq!(group.send(6, To::All, b"x"), Err(SendError::Full));
    group.run_to_completion(&[4, 4, 4, 4, 4, 4, 0]);
    // The acknowledgements of the connections take further steps.
    (0..10).for_each(|_| group.step(Faults::default()));
    assert_eq!(group.send(6, To::All, b"x"), Ok(()));
    for to in [To::One(ProcessId(1)), To::Groups(GroupSet::EMPTY)] {
        assert_eq!(group.send(6, to, b"x"), Err(SendError::UnknownMember(7)));
    }
    assert_eq!(
        group.send(6, To::Groups(GroupSet::from_bits(4)), b"x"),
        Err(SendError::UnknownMember(7))
    );
    for (groups, group_members) in [(0, 3), (2, 2), (3, 3), (65, 1), (1, 65)] {
        let method = Method::Primcast { groups, group_members };
        assert!(Rival::new(Config::new(method, ProcessId(0), 7)).is_err(), "{method:?}");
    }
}
