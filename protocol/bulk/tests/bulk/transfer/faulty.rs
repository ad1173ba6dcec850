//! Links that lose, duplicate, reorder and corrupt frames; members that are slow or lack memory.

use std::cell::Cell;
use std::rc::Rc;

use onepipe_bulk::{Algorithm, Delivery, Link, Plain};
use onepipe_wire::{Frame, Opcode, SHORT_HEADER_LEN, seal};

use super::harness::{Faults, Harness, Rng, SECOND};
use super::healthy::{assert_complete, send_all};

/// Sizes that cover every kind of last block and last piece.
const SIZES: [usize; 5] = [7_501, 0, 1, 3_000, 12_345];

//= spec/bulk.md#R10
//= spec/bulk.md#R21
#[test]
fn delivers_over_faulty_lossy_links() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let n = 2 + rng.below(8) as usize;
        let mut harness = Harness::new(n, Link::Lossy, seed, |config| {
            config.lookahead_blocks = 1 + seed as u32 % 4;
            config.objects_max = 1 + seed as u32 % 8;
        });
        harness.is_zero_copy = seed % 3 == 0;
        harness.faults = Faults {
            loss: rng.below(250),
            duplication: rng.below(300),
            reordering: rng.below(500),
            corruption: rng.below(100),
        };
        send_all(&mut harness, &SIZES);
        assert!(harness.run(120 * SECOND), "seed {seed}: {:?}", harness.faults);
        assert_complete(&harness, &SIZES);
    }
}

//= spec/bulk.md#R21
//= spec/bulk.md#R22
#[test]
fn retransmits_corrupt_frame_on_reliable_link() {
    for seed in 0..20 {
        let mut harness = Harness::new(5, Link::Reliable, seed, |_| {});
        harness.is_zero_copy = seed % 2 == 0;
        harness.faults.corruption = 100;
        send_all(&mut harness, &SIZES);
        assert!(harness.run(120 * SECOND), "seed {seed}");
        assert_complete(&harness, &SIZES);
        let lost: u64 = (0..5).map(|rank| harness.group(rank).stats().frames_lost).sum();
        assert!(lost > 0);
    }
}

/// Flips a bit in the data of a piece whose frame has valid checks, as a relay with faulty memory
/// would.
pub fn corrupt_piece(bytes: &mut [u8]) -> bool {
    let Ok(frame) = Frame::parse(bytes) else { return false };
    let (opcode, header, length) = (frame.opcode, frame.header, frame.payload.len());
    // The headers of a piece are 64 bytes long.
    if opcode != Opcode::BulkPiece || length <= 64 {
        return false;
    }
    bytes[SHORT_HEADER_LEN + 64] ^= 1;
    seal(bytes, header, length);
    true
}

//= spec/bulk.md#R11
#[test]
fn requests_corrupt_block_again() {
    let links = [Link::Reliable, Link::Lossy];
    for (link, is_zero_copy) in links.into_iter().flat_map(|link| [(link, false), (link, true)]) {
        let mut harness = Harness::new(8, link, 1, |_| {});
        harness.is_zero_copy = is_zero_copy;
        let mut left = 5;
        harness.frame_fault = Box::new(move |_, from, _, bytes| {
            if from == 1 && left > 0 && corrupt_piece(bytes) {
                left -= 1;
            }
            true
        });
        send_all(&mut harness, &SIZES);
        assert!(harness.run(60 * SECOND), "{link:?}");
        assert_complete(&harness, &SIZES);
        let corrupt: u64 = (0..8).map(|rank| harness.group(rank).stats().blocks_corrupt).sum();
        assert!((1..=5).contains(&corrupt), "{corrupt}");
    }
}

//= spec/bulk.md#R11
#[test]
fn corruption_is_undetected_without_digests() {
    let mut harness = Harness::new(4, Link::Reliable, 1, |config| config.has_digests = false);
    let mut is_done = false;
    harness.frame_fault = Box::new(move |_, from, to, bytes| {
        is_done |= !is_done && (from, to) == (0, 1) && corrupt_piece(bytes);
        true
    });
    send_all(&mut harness, &[3_000]);
    assert!(harness.run(60 * SECOND));
    let bytes = |rank: usize| &harness.apps[rank].stable[&0];
    assert!((1..4).any(|rank| bytes(rank) != bytes(0)), "only the digests detect the corruption");
}

//= spec/bulk.md#R9
//= spec/bulk.md#R18
#[test]
fn late_memory_delays_only_its_member() {
    for (late_ns, ahead) in [(0, false), (50_000, false), (40_000_000, false), (0, true)] {
        for link in [Link::Reliable, Link::Lossy] {
            let mut harness = Harness::new(6, link, 1, |_| {});
            for rank in 1..6 {
                harness.apps[rank].memory_after_ns = late_ns * (rank as u64 % 2);
                if ahead {
                    (0..9).for_each(|_| harness.group(rank).offer_memory(vec![0; 20_000]));
                    harness.group(rank).offer_memory(vec![]);
                }
            }
            send_all(&mut harness, &SIZES);
            assert!(harness.run(60 * SECOND), "{late_ns} {ahead} {link:?}");
            assert_complete(&harness, &SIZES);
            let spare = std::iter::from_fn(|| harness.group(3).take_spare()).count();
            assert_eq!(spare, if ahead { 10 - SIZES.len() } else { 0 });
        }
    }
}

//= spec/bulk.md#R9
//= spec/bulk.md#R17
//= spec/bulk.md#R18
#[test]
fn at_most_one_block_arrives_before_memory() {
    for link in [Link::Reliable, Link::Lossy] {
        let mut harness = Harness::new(2, link, 1, |_| {});
        harness.apps[1].memory_after_ns = SECOND;
        send_all(&mut harness, &[20_000, 10_000]);
        harness.run(SECOND / 2);
        // A block has four pieces.
        assert_eq!(harness.group(0).stats().pieces_sent, 4, "{link:?}");
        assert!(harness.run(60 * SECOND));
        assert_complete(&harness, &[20_000, 10_000]);
    }
}

//= spec/bulk.md#R16
//= spec/bulk.md#R17
#[test]
fn tokens_cover_lookahead() {
    for ahead in [1, 2, 5] {
        let mut harness =
            Harness::new(2, Link::Reliable, 1, |config| config.lookahead_blocks = ahead);
        harness.group(1).offer_memory(vec![0; 20_000]);
        // Deliver the first state with a token for the first block, and then the pieces of a block.
        let left = Rc::new(Cell::new(0));
        let passes = Rc::clone(&left);
        harness.frame_fault = Box::new(move |_, from, _, bytes| {
            let is_state = Frame::parse(bytes).is_ok_and(|it| it.opcode == Opcode::BulkState);
            from == 0 || !is_state || passes.replace(0) > 0
        });
        harness.act(0, |root| root.send(vec![7; 20_000])).expect("the object is accepted");
        harness.run(SECOND / 2);
        assert_eq!(harness.group(0).stats().pieces_sent, 4, "a block has four pieces");
        left.set(1);
        harness.run(SECOND / 2);
        assert_eq!(harness.group(0).stats().pieces_sent, 4 * (1 + u64::from(ahead)));
    }
}

#[test]
fn slow_relay_delays_only_its_share() {
    for slow in [0, 1, 3, 7] {
        let mut harness = Harness::new(8, Link::Reliable, 1, |_| {});
        harness.byte_ns[slow] = 50;
        send_all(&mut harness, &SIZES);
        assert!(harness.run(60 * SECOND), "{slow}");
        assert_complete(&harness, &SIZES);
    }
}

//= spec/bulk.md#R29
#[test]
fn all_or_none_delivers_after_all_have_object() {
    for link in [Link::Reliable, Link::Lossy] {
        let mut harness = Harness::new(7, link, 3, |config| config.delivery = Delivery::AllOrNone);
        harness.byte_ns[5] = 20;
        send_all(&mut harness, &[5_000, 3_000]);
        let has = |harness: &Harness, rank: usize| harness.apps[rank].delivered.len();
        let is_first =
            harness.run_until(60 * SECOND, |harness| (1..7).any(|rank| has(harness, rank) > 0));
        assert!(
            is_first && (1..7).all(|rank| harness.group(rank).completed_by(rank as u32) >= Some(1))
        );
        assert!(harness.run(60 * SECOND));
        for app in &mut harness.apps {
            // The memory is returned with the next event.
            for (number, bytes) in &mut app.delivered {
                bytes.clone_from(&app.stable[number]);
            }
        }
        assert_complete(&harness, &[5_000, 3_000]);
    }
}

#[test]
fn leaders_relay_into_racks() {
    let racks = |sizes: &[u32]| Algorithm::Racks {
        across: Plain::Pipeline,
        inside: Plain::Pipeline,
        sizes: sizes.to_vec(),
    };
    for link in [Link::Reliable, Link::Lossy] {
        for sizes in [&[4, 4, 4][..], &[1, 5, 2, 3], &[7], &[1, 1, 1], &[3, 6, 2, 6]] {
            let n = sizes.iter().sum::<u32>() as usize;
            let mut harness = Harness::new(n, link, 1, |config| config.algorithm = racks(sizes));
            send_all(&mut harness, &SIZES);
            assert!(harness.run(60 * SECOND), "{sizes:?}");
            assert_complete(&harness, &SIZES);
        }
    }
}
