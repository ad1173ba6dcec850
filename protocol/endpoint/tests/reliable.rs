//! The reliable service between processes that live: through loss, beside best effort, merged.

mod world;

use onepipe_base::{Port, ProcessId};
use onepipe_endpoint::{Config, Message, ReceiveMode, Service};
use onepipe_wire::{Opcode, parse_header};
use world::{Fate, Seen, World};

const PROCESSES: u32 = 4;

fn everybody(payload: &[u8]) -> Vec<(u32, &[u8])> {
    (0..PROCESSES).map(|to| (to, payload)).collect()
}

/// What receivers must agree on: not the index, each has its own message of a scattering.
fn shared(log: &[Seen]) -> Vec<(u64, u32, &[u8])> {
    log.iter().map(|seen| (seen.timestamp, seen.from, &seen.payload[..])).collect()
}

/// Loses a share of all frames, by a generator of its own.
fn lossy(percent: u64) -> impl FnMut(usize, usize, &[u8]) -> Fate {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    move |_, _, _| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        if state % 100 < percent { Fate::Lose } else { Fate::Pass }
    }
}

fn is_of(bytes: &[u8], opcode: Opcode) -> bool {
    parse_header(bytes).is_ok_and(|(_, found)| found == opcode)
}

#[test]
fn everything_arrives_once_at_everybody_through_loss_of_a_third() {
    let mut world = World::new(PROCESSES, |_| {});
    world.run(200_000);
    world.fate = Box::new(lossy(33));
    for round in 0..100u8 {
        for from in 0..PROCESSES as usize {
            world.scatter_reliably(from, &everybody(&[round; 90]));
        }
        world.run(20_000);
    }
    world.fate = Box::new(|_, _, _| Fate::Pass);
    world.run(400_000_000);
    world.check_order();
    for at in 0..PROCESSES as usize {
        assert_eq!(world.reliable_logs[at].len(), 400, "at {at}");
        let agree = shared(&world.reliable_logs[at]) == shared(&world.reliable_logs[0]);
        assert!(agree, "at {at}");
        assert!(world.failed[at].is_empty() && world.ends[at].is_settled());
    }
    assert!(world.ends[0].stats().packets_resent > 0);
    assert_eq!(world.ends[0].send_buffer_bytes(), 0);
}

#[test]
fn nobody_delivers_before_everybody_has_acknowledged() {
    let mut world = World::new(PROCESSES, |_| {});
    world.run(200_000);
    world.fate = Box::new(|from, _, bytes| {
        let is_held = from == 2 && is_of(bytes, Opcode::ReliableAck);
        if is_held { Fate::Lose } else { Fate::Pass }
    });
    world.scatter_reliably(0, &everybody(b"one"));
    world.scatter(0, &everybody(b"other"));
    world.run(3_000_000);
    for at in 0..PROCESSES as usize {
        assert!(world.reliable_logs[at].is_empty(), "not committed, delivered at {at}");
        assert_eq!(world.logs[at].len(), 1, "best effort does not wait");
        assert!(world.ends[at].commit_barrier() < world.ends[at].barrier());
    }
    world.fate = Box::new(|_, _, _| Fate::Pass);
    world.run(3_000_000);
    assert!((0..4).all(|at| world.reliable_logs[at].len() == 1));
}

#[test]
fn fragments_are_sent_again_until_the_message_is_whole() {
    let mut world = World::new(PROCESSES, |_| {});
    world.run(200_000);
    world.fate = Box::new(lossy(10));
    let long: Vec<u8> = (0..3_000_000u32).map(|at| (at * 7) as u8).collect();
    world.scatter_reliably(1, &[(0, &long), (2, b"short"), (3, &long[..70_000])]);
    world.run(600_000_000);
    assert_eq!(world.reliable_logs[0][0].payload, long);
    assert_eq!(world.reliable_logs[2][0].payload, b"short");
    assert_eq!(world.reliable_logs[3][0].payload, long[..70_000]);
}

#[test]
fn later_packets_show_a_gap_at_once() {
    let mut world = World::new(PROCESSES, |_| {});
    world.run(200_000);
    world.scatter_reliably(0, &[(1, b"opens")]);
    world.run(200_000);
    let mut data = 0;
    world.fate = Box::new(move |from, to, bytes| {
        let is_data = (from, to) == (0, 1) && is_of(bytes, Opcode::ReliableData);
        data += u32::from(is_data);
        if is_data && data == 2 { Fate::Lose } else { Fate::Pass }
    });
    for _ in 0..8 {
        world.scatter_reliably(0, &[(1, b"x")]);
        world.run(3_000);
    }
    world.run(30_000);
    assert_eq!(world.reliable_logs[1].len(), 9, "without waiting for the retransmission time");
    assert_eq!(world.ends[0].stats().packets_resent, 1);
}

#[test]
fn duplicates_are_delivered_once() {
    let mut world = World::new(PROCESSES, |_| {});
    world.run(200_000);
    world.fate = Box::new(|_, _, _| Fate::Twice);
    for _ in 0..50 {
        world.scatter_reliably(3, &everybody(b"once"));
        world.run(5_000);
    }
    world.run(2_000_000);
    assert!((0..4).all(|at| world.reliable_logs[at].len() == 50));
}

#[test]
fn a_receiver_that_does_not_consume_holds_senders_up_and_loses_nothing() {
    let mut world = World::new(PROCESSES, |config: &mut Config| {
        config.receive_buffer_bytes_max = 1 << 20;
        config.message_len_max = 64 << 10;
    });
    world.run(200_000);
    world.is_lazy[2] = true;
    for _ in 0..1_000 {
        world.scatter_reliably(0, &[(1, &[7; 900]), (2, &[8; 900])]);
    }
    world.run(20_000_000);
    let stuck = world.reliable_logs[1].len();
    assert!(stuck < 1_000, "its window closed after {stuck}");
    assert!(world.ends[2].receive_buffer_bytes() <= 1 << 20);
    world.is_lazy[2] = false;
    world.run(40_000_000);
    assert_eq!([world.reliable_logs[1].len(), world.reliable_logs[2].len()], [1_000, 1_000]);
}

#[test]
fn merged_streams_are_one_order_at_everybody() {
    let mut world = World::new(PROCESSES, |config: &mut Config| {
        config.receive_mode = ReceiveMode::Merged;
    });
    world.run(200_000);
    for round in 0..200u8 {
        for from in 0..PROCESSES as usize {
            match (usize::from(round) + from) % 2 {
                0 => world.scatter(from, &everybody(&[round])),
                _ => world.scatter_reliably(from, &everybody(&[round])),
            };
        }
        world.run(1_000);
    }
    world.run(3_000_000);
    for at in 0..PROCESSES as usize {
        let merged = &world.merged_logs[at];
        assert_eq!(merged.len(), 800);
        assert!(merged.windows(2).all(|pair| pair[0] < pair[1]), "at {at}");
        assert!(shared(merged) == shared(&world.merged_logs[0]), "at {at}");
    }
    assert!(!world.logs[0].is_empty() && !world.reliable_logs[0].is_empty());
}

#[test]
fn a_message_to_oneself_waits_for_its_siblings() {
    let mut world = World::new(PROCESSES, |_| {});
    world.run(200_000);
    world.fate = Box::new(|from, to, bytes| {
        let is_ack = (from, to) == (1, 0) && is_of(bytes, Opcode::ReliableAck);
        if is_ack { Fate::Late(500_000) } else { Fate::Pass }
    });
    world.scatter_reliably(0, &[(0, b"own"), (1, b"other")]);
    world.run(300_000);
    assert!(world.reliable_logs[0].is_empty());
    world.scatter_reliably(3, &[(0, b"later")]);
    world.run(1_000_000);
    let order: Vec<_> = world.reliable_logs[0].iter().map(|seen| seen.from).collect();
    assert_eq!(order, [0, 3]);
    assert_eq!(world.reliable_logs[0][0].payload, b"own");
}

#[test]
fn the_steady_state_keeps_nothing() {
    let mut world = World::new(PROCESSES, |_| {});
    world.run(200_000);
    for _ in 0..500 {
        world.scatter_reliably(0, &everybody(&[3; 200]));
        world.run(2_000);
    }
    world.run(1_000_000);
    assert_eq!((world.ends[0].send_buffer_bytes(), world.ends[0].pending()), (0, 0));
    let promises = world.ends[0].promises().expect("it has seen a clock");
    assert_eq!(promises.commit, promises.barrier, "nothing is open");
}

#[test]
fn services_are_told_apart_in_deliveries_and_ids() {
    let mut world = World::new(PROCESSES, |_| {});
    let message = [Message { to: ProcessId(1), payload: b"m" }];
    let ids = [
        world.ends[0].scatter(&message).expect("room"),
        world.ends[0].scatter_reliably(&message).expect("room"),
    ];
    assert_eq!(ids[0], ids[1], "each service counts for itself");
    world.run(1_000_000);
    assert_eq!((world.logs[1].len(), world.reliable_logs[1].len()), (1, 1));
    assert_ne!(Service::BestEffort, Service::Reliable);
    world.ends[1].unlink(Port(0));
}
