//! Links that lose, duplicate, reorder and corrupt frames; members that are slow or lack memory.

use std::cell::Cell;
use std::rc::Rc;

use onepipe_bulk::{Algorithm, Delivery, Link, Plain};
use onepipe_wire::{Frame, HEADER_LEN, Opcode, seal};

use crate::healthy::{assert_complete, send_all};
use crate::world::{Dice, Faults, SECOND, World};

/// Sizes that cover every kind of last block and last piece.
const SIZES: [usize; 5] = [7_501, 0, 1, 3_000, 12_345];

#[test]
fn lossy_links_lose_repeat_reorder_and_corrupt() {
    for seed in 0..60 {
        let mut dice = Dice::new(seed);
        let n = 2 + dice.below(8) as usize;
        let mut world = World::new(n, Link::Lossy, seed, |config| {
            config.lookahead_blocks = 1 + seed as u32 % 4;
            config.objects_max = 1 + seed as u32 % 8;
        });
        world.is_in_place = seed % 3 == 0;
        world.faults = Faults {
            loss: dice.below(250),
            duplication: dice.below(300),
            reordering: dice.below(500),
            corruption: dice.below(100),
        };
        send_all(&mut world, &SIZES);
        assert!(world.run(120 * SECOND), "seed {seed}: {:?}", world.faults);
        assert_complete(&world, &SIZES);
    }
}

#[test]
fn a_corrupt_frame_on_a_reliable_link_is_sent_again() {
    for seed in 0..20 {
        let mut world = World::new(5, Link::Reliable, seed, |_| {});
        world.is_in_place = seed % 2 == 0;
        world.faults.corruption = 100;
        send_all(&mut world, &SIZES);
        assert!(world.run(120 * SECOND), "seed {seed}");
        assert_complete(&world, &SIZES);
        let lost: u64 = (0..5).map(|rank| world.group(rank).stats().frames_lost).sum();
        assert!(lost > 0);
    }
}

/// Flips a bit in the data of a piece whose frame has valid checks, as a relay with faulty memory
/// would.
pub fn corrupt_piece(bytes: &mut [u8]) -> bool {
    let Ok(frame) = Frame::parse(bytes) else { return false };
    let (opcode, header, length) = (frame.opcode, *frame.header, frame.payload.len());
    // The headers of a piece are 64 bytes long.
    if opcode != Opcode::BulkPiece || length <= 64 {
        return false;
    }
    bytes[HEADER_LEN + 64] ^= 1;
    seal(bytes, header, length);
    true
}

#[test]
fn a_corrupt_block_is_found_and_asked_for_again() {
    let links = [Link::Reliable, Link::Lossy];
    for (link, is_in_place) in links.into_iter().flat_map(|link| [(link, false), (link, true)]) {
        let mut world = World::new(8, link, 1, |_| {});
        world.is_in_place = is_in_place;
        let mut left = 5;
        world.fate = Box::new(move |_, from, _, bytes| {
            if from == 1 && left > 0 && corrupt_piece(bytes) {
                left -= 1;
            }
            true
        });
        send_all(&mut world, &SIZES);
        assert!(world.run(60 * SECOND), "{link:?}");
        assert_complete(&world, &SIZES);
        let corrupt: u64 = (0..8).map(|rank| world.group(rank).stats().blocks_corrupt).sum();
        assert!((1..=5).contains(&corrupt), "{corrupt}");
    }
}

#[test]
fn without_digests_a_corrupt_block_goes_unseen() {
    let mut world = World::new(4, Link::Reliable, 1, |config| config.has_digests = false);
    let mut is_done = false;
    world.fate = Box::new(move |_, from, to, bytes| {
        is_done |= !is_done && (from, to) == (0, 1) && corrupt_piece(bytes);
        true
    });
    send_all(&mut world, &[3_000]);
    assert!(world.run(60 * SECOND));
    let bytes = |rank: usize| &world.apps[rank].stable[&0];
    assert!((1..4).any(|rank| bytes(rank) != bytes(0)), "so the digests are what finds it");
}

#[test]
fn late_memory_holds_up_only_who_waits_for_it() {
    for (late_ns, ahead) in [(0, false), (50_000, false), (40_000_000, false), (0, true)] {
        for link in [Link::Reliable, Link::Lossy] {
            let mut world = World::new(6, link, 1, |_| {});
            for rank in 1..6 {
                world.apps[rank].memory_after_ns = late_ns * (rank as u64 % 2);
                if ahead {
                    (0..9).for_each(|_| world.group(rank).offer_memory(vec![0; 20_000]));
                    world.group(rank).offer_memory(vec![]);
                }
            }
            send_all(&mut world, &SIZES);
            assert!(world.run(60 * SECOND), "{late_ns} {ahead} {link:?}");
            assert_complete(&world, &SIZES);
            let spare = std::iter::from_fn(|| world.group(3).take_spare()).count();
            assert_eq!(spare, if ahead { 10 - SIZES.len() } else { 0 });
        }
    }
}

#[test]
fn without_memory_no_more_than_one_block_comes() {
    for link in [Link::Reliable, Link::Lossy] {
        let mut world = World::new(2, link, 1, |_| {});
        world.apps[1].memory_after_ns = SECOND;
        send_all(&mut world, &[20_000, 10_000]);
        world.run(SECOND / 2);
        // A block has four pieces.
        assert_eq!(world.group(0).stats().pieces_sent, 4, "{link:?}");
        assert!(world.run(60 * SECOND));
        assert_complete(&world, &[20_000, 10_000]);
    }
}

#[test]
fn a_sender_has_tokens_for_as_many_blocks_as_the_receiver_looks_ahead() {
    for ahead in [1, 2, 5] {
        let mut world = World::new(2, Link::Reliable, 1, |config| config.lookahead_blocks = ahead);
        world.group(1).offer_memory(vec![0; 20_000]);
        // Deliver the first state with a token for the first block, and then the pieces of a block.
        let left = Rc::new(Cell::new(0));
        let passes = Rc::clone(&left);
        world.fate = Box::new(move |_, from, _, bytes| {
            let is_state = Frame::parse(bytes).is_ok_and(|it| it.opcode == Opcode::BulkState);
            from == 0 || !is_state || passes.replace(0) > 0
        });
        world.act(0, |root| root.send(vec![7; 20_000])).expect("it is taken");
        world.run(SECOND / 2);
        assert_eq!(world.group(0).stats().pieces_sent, 4, "a block has four pieces");
        left.set(1);
        world.run(SECOND / 2);
        assert_eq!(world.group(0).stats().pieces_sent, 4 * (1 + u64::from(ahead)));
    }
}

#[test]
fn a_slow_relay_slows_only_its_share_and_nobody_fails() {
    for slow in [0, 1, 3, 7] {
        let mut world = World::new(8, Link::Reliable, 1, |_| {});
        world.byte_ns[slow] = 50;
        send_all(&mut world, &SIZES);
        assert!(world.run(60 * SECOND), "{slow}");
        assert_complete(&world, &SIZES);
    }
}

#[test]
fn nobody_delivers_before_all_have_it_where_all_or_none_is_asked_for() {
    for link in [Link::Reliable, Link::Lossy] {
        let mut world = World::new(7, link, 3, |config| config.delivery = Delivery::AllOrNone);
        world.byte_ns[5] = 20;
        send_all(&mut world, &[5_000, 3_000]);
        let has = |world: &World, rank: usize| world.apps[rank].delivered.len();
        let is_first =
            world.run_until(60 * SECOND, |world| (1..7).any(|rank| has(world, rank) > 0));
        assert!(
            is_first && (1..7).all(|rank| world.group(rank).completed_by(rank as u32) >= Some(1))
        );
        assert!(world.run(60 * SECOND));
        for app in &mut world.apps {
            // The memory is returned with the next event.
            for (number, bytes) in &mut app.delivered {
                bytes.clone_from(&app.stable[number]);
            }
        }
        assert_complete(&world, &[5_000, 3_000]);
    }
}

#[test]
fn racks_are_served_by_their_leaders() {
    let racks = |sizes: &[u32]| Algorithm::Racks {
        across: Plain::Pipeline,
        inside: Plain::Pipeline,
        sizes: sizes.to_vec(),
    };
    for link in [Link::Reliable, Link::Lossy] {
        for sizes in [&[4, 4, 4][..], &[1, 5, 2, 3], &[7], &[1, 1, 1], &[3, 6, 2, 6]] {
            let n = sizes.iter().sum::<u32>() as usize;
            let mut world = World::new(n, link, 1, |config| config.algorithm = racks(sizes));
            send_all(&mut world, &SIZES);
            assert!(world.run(60 * SECOND), "{sizes:?}");
            assert_complete(&world, &SIZES);
        }
    }
}
