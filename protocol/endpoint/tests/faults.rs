//! Links that lose, repeat, delay and corrupt; clocks that step; peers that die and come back.

mod world;

use onepipe_base::{Incarnation, Machine, Port, ProcessId};
use onepipe_endpoint::{Config, Endpoint, Outcome};
use proptest::prelude::*;
use world::{Fate, World};

const HOUR_NS: i64 = 3_600_000_000_000;

/// A small generator of its own, so that every case is replayed by its seed.
fn dice(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % below
    }
}

/// I4, I12 and the order: each message sent to another process was delivered once, or reported.
fn check_every_message_is_accounted_for(world: &World, sent: &[(usize, u32, Vec<u8>)]) {
    world.check_order();
    let mut fates = std::collections::BTreeMap::new();
    for (number, (from, to, payload)) in sent.iter().enumerate() {
        let log = &world.logs[*to as usize];
        let delivered = log.iter().filter(|seen| seen.payload == *payload).count();
        assert!(delivered <= 1, "message {number} was delivered {delivered} times");
        fates.insert((*from, *to, payload.clone()), delivered);
    }
    let delivered: usize = fates.values().sum();
    let total: usize = world.logs.iter().map(Vec::len).sum();
    assert_eq!(total, delivered, "something was delivered that nobody sent");
    let lost: usize = (0..world.ends.len()).map(|at| world.lost(at)).sum();
    let failed: usize = world.failed.iter().map(Vec::len).sum();
    assert_eq!(failed, lost, "an outcome is unknown though every peer answers");
    assert_eq!(delivered + lost, sent.len(), "delivered {delivered}, lost {lost}");
    for end in &world.ends {
        assert_eq!((end.send_buffer_bytes(), end.receive_buffer_bytes()), (0, 0));
    }
}

fn storm(seed: u64, loss: u64, twice: u64, late: u64, corrupt: u64) {
    let mut world = World::new(3, |config| {
        config.message_len_max = 1 << 20;
        // Peers are slow to answer, never gone: no outcome may be unknown.
        config.probes_max = 100;
    });
    world.run(20_000);
    let mut roll = dice(seed);
    let mut sent = Vec::new();
    let mut link = dice(seed ^ 0xabcdef);
    world.fate = Box::new(move |_, _, _| match link(1000) {
        x if x < loss => Fate::Lose,
        x if x < loss + twice => Fate::Twice,
        x if x < loss + twice + late => Fate::Late(link(20_000)),
        x if x < loss + twice + late + corrupt => Fate::Corrupt,
        _ => Fate::Pass,
    });
    for number in 0..300u64 {
        let from = roll(3) as usize;
        let size = match roll(20) {
            0 => 10_000 + roll(500_000) as usize,
            _ => 8 + roll(200) as usize,
        };
        let mut messages = Vec::new();
        for to in 0..3u32 {
            let mut payload = vec![to as u8; size];
            payload[..8].copy_from_slice(&number.to_be_bytes());
            if roll(3) > 0 {
                messages.push((to, payload));
            }
        }
        if !messages.is_empty() {
            let refs: Vec<_> = messages.iter().map(|(to, p)| (*to, &p[..])).collect();
            world.scatter(from, &refs);
            sent.extend(messages.into_iter().map(|(to, payload)| (from, to, payload)));
        }
        world.run(roll(5_000));
    }
    world.run(300_000_000);
    world.fate = Box::new(|_, _, _| Fate::Pass);
    world.run(200_000_000);
    check_every_message_is_accounted_for(&world, &sent);
}

#[test]
fn thirty_percent_loss_is_reported_message_by_message() {
    storm(1, 300, 0, 0, 0);
}

#[test]
fn links_that_repeat_reorder_and_corrupt_cost_messages_not_order() {
    storm(2, 0, 500, 0, 0);
    storm(3, 0, 0, 300, 0);
    storm(4, 0, 0, 0, 200);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn every_message_is_delivered_or_reported(seed in any::<u64>(), loss in 0u64..300, twice in 0u64..200, late in 0u64..200, corrupt in 0u64..100) {
        storm(seed, loss, twice, late, corrupt);
    }
}

#[test]
fn a_clock_that_steps_an_hour_costs_nobody_anything() {
    for step in [HOUR_NS, -HOUR_NS] {
        let mut world = World::new(3, |_| {});
        world.run(20_000);
        world.skew[1] += step;
        for round in 0..50u8 {
            for from in 0..3 {
                world.scatter(from, &[(0, &[round]), (1, &[round]), (2, &[round])]);
            }
            world.run(2_000);
        }
        world.run(20_000);
        world.check_order();
        assert!(world.logs.iter().all(|log| log.len() == 150), "step {step}");
    }
}

#[test]
fn the_clock_wraps_in_the_middle_of_a_run() {
    let mut world = World::new(2, |_| {});
    // The world's origin is a multiple of 2^48: start 50 us below the next one.
    let to_wrap = (1i64 << 48) - 50_000;
    world.skew = vec![to_wrap; 2];
    for round in 0..100u8 {
        world.scatter(0, &[(1, &[round]), (0, &[round])]);
        world.scatter(1, &[(0, &[round]), (1, &[round])]);
        world.run(1_000);
    }
    world.run(20_000);
    world.check_order();
    assert!(world.logs.iter().all(|log| log.len() == 200));
    assert!(world.failed.iter().all(Vec::is_empty));
}

#[test]
fn a_dead_peer_delays_the_others_by_the_link_timeout_and_its_messages_are_reported() {
    let mut world = World::new(3, |config| config.probes_max = 3);
    world.scatter(0, &[(1, b"a"), (2, b"a")]);
    world.run(100_000);
    world.is_dead[2] = true;
    world.scatter(0, &[(1, b"b"), (2, b"b")]);
    world.run(100_000);
    assert_eq!(world.links_lost[0], [Port(2)]);
    assert_eq!(world.logs[1].len(), 2, "the living go on");
    world.run(100_000_000);
    let outcomes: Vec<_> = world.failed[0].iter().map(|f| (f.to.0, f.outcome)).collect();
    assert_eq!(outcomes, [(2, Outcome::Unknown)]);
    // What is sent to it now was surely not delivered.
    world.scatter(0, &[(1, b"c"), (2, b"c")]);
    world.run(100_000_000);
    assert_eq!(world.failed[0].last().map(|f| f.outcome), Some(Outcome::Lost));
    assert_eq!(world.logs[1].len(), 3);
}

#[test]
fn a_peer_that_restarts_is_a_new_one() {
    let mut world = World::new(2, |_| {});
    world.scatter(0, &[(1, b"to the first life")]);
    world.scatter(1, &[(0, b"from the first life")]);
    world.run(100_000);
    let config = Config { incarnation: Incarnation(2), ..world::config(1, 2) };
    world.ends[1] = Endpoint::new(config).expect("valid");
    world.run(100_000);
    world.scatter(0, &[(1, b"unknown fate")]);
    world.run(100_000);
    world.scatter(0, &[(1, b"to the second life")]);
    world.scatter(1, &[(0, b"from the second life")]);
    world.run(1_000_000);
    world.check_order();
    let texts = |at: usize| -> Vec<_> {
        world.logs[at].iter().map(|s| String::from_utf8_lossy(&s.payload).into_owned()).collect()
    };
    assert_eq!(texts(0), ["from the first life", "from the second life"]);
    assert_eq!(texts(1), ["to the first life", "to the second life"]);
    assert_eq!(world.failed[0].len(), 1);
}

#[test]
fn marks_make_the_sender_slow_down() {
    let frames_of = |is_marked: bool| {
        let mut world = World::new(2, |_| {});
        world.delay_ns = 20_000;
        if is_marked {
            world.fate = Box::new(|_, _, _| Fate::Mark);
        }
        for _ in 0..4_000 {
            world.scatter(0, &[(1, &[1; 936])]);
        }
        world.run(600_000);
        world.logs[1].len()
    };
    let (free, marked) = (frames_of(false), frames_of(true));
    assert!(marked * 4 < free, "{marked} with marks, {free} without");
}

#[test]
fn bytes_from_anywhere_change_nothing() {
    let mut world = World::new(2, |_| {});
    world.run(10_000);
    let mut roll = dice(7);
    let before = world.ends[1].clone();
    for _ in 0..10_000 {
        let mut junk: Vec<u8> = (0..roll(200)).map(|_| roll(256) as u8).collect();
        let now = world.now(1);
        let port = Port(roll(4) as u16);
        let verdict = world.ends[1].handle_frame(now, port, &mut junk);
        assert_eq!(verdict, onepipe_base::Verdict::Dropped);
    }
    assert_eq!(world.ends[1].stats().frames_malformed, 10_000);
    assert_eq!(world.ends[1].barrier(), before.barrier());
}

#[test]
fn well_formed_frames_of_strangers_are_dropped() {
    let mut world = World::new(2, |_| {});
    world.run(10_000);
    let now = world.now(1);
    let mut send = |opcode, src, dst, port, payload: &[u8]| {
        let header =
            onepipe_wire::Header::new(opcode, ProcessId(src), ProcessId(dst), Incarnation(1));
        let promises = onepipe_base::Promises::both(now.sync);
        let header = header.stamped(now.sync, promises, onepipe_base::Psn(5));
        let mut bytes = vec![0; 64 + payload.len()];
        bytes[onepipe_wire::HEADER_LEN..][..payload.len()].copy_from_slice(payload);
        let length = onepipe_wire::seal(&mut bytes, header, payload.len());
        world.ends[1].handle_frame(now, Port(port), &mut bytes[..length]);
        (world.ends[1].stats().frames_misrouted, world.ends[1].stats().frames_malformed)
    };
    use onepipe_wire::Opcode;
    assert_eq!(send(Opcode::Data, 0, 7, 0, b""), (1, 0), "for somebody else");
    assert_eq!(send(Opcode::Data, 9, 1, 9, b""), (2, 0), "from nobody");
    assert_eq!(send(Opcode::Data, 0, 1, 1, b""), (3, 0), "over another's link");
    assert_eq!(send(Opcode::Ack, 0, 1, 0, b"short"), (3, 1));
    assert_eq!(send(Opcode::Probe, 0, 1, 0, b"short"), (3, 2));
    assert_eq!(send(Opcode::Connect, 0, 1, 0, b"short"), (3, 3));
}
