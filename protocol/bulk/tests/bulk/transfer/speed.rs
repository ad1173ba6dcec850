//! Duration of transfers in virtual time, independent of the machine that runs the tests.

use onepipe_bulk::{Algorithm, Link, Plain, Schedule};

use super::harness::{Harness, SECOND};

/// Length of a block and of a piece in bytes.
const BLOCK: u32 = 8_000;
const PIECE: u32 = 1_000;
/// Time of a block in ns, with the headers of its frames, at one byte per ns.
const BLOCK_NS: u64 = 8 * (1_000 + 102);

/// Returns the duration of a transfer of `blocks` blocks to `n` members, in block times.
fn duration(n: usize, blocks: usize, plain: Plain, link: Link, slow: &[(usize, usize)]) -> f64 {
    let mut harness = Harness::new(n, link, 1, |config| {
        config.block_len = BLOCK;
        config.piece_len = PIECE;
        config.frame_len_max = 1_200;
        config.algorithm = Algorithm::Plain(plain);
    });
    harness.latency_ns = 1_000;
    for (one, other) in slow {
        harness.slow.extend([((*one, *other), 2), ((*other, *one), 2)]);
    }
    for rank in 1..n {
        harness.group(rank).offer_memory(vec![0; blocks * BLOCK as usize]);
    }
    let began = harness.now;
    harness
        .act(0, |root| root.send(vec![7; blocks * BLOCK as usize]))
        .expect("the object is accepted");
    let all = |harness: &mut Harness| harness.apps[1..].iter().all(|app| !app.delivered.is_empty());
    assert!(harness.run_until(SECOND, all), "{plain:?} of {n}");
    (harness.now - began) as f64 / BLOCK_NS as f64
}

/// Returns the duration if only blocks took time.
fn ideal(n: usize, blocks: usize, plain: Plain) -> f64 {
    let schedule = Schedule::new(&Algorithm::Plain(plain), n as u32).expect("valid members");
    schedule.steps(blocks as u32) as f64
}

#[test]
fn transfer_takes_little_longer_than_its_steps() {
    let blocks = 128;
    for (n, plain) in
        [2, 4, 6, 8, 16].into_iter().flat_map(|n| [(n, Plain::Pipeline), (n, Plain::Chain)])
    {
        for (link, most) in [(Link::Reliable, 1.07), (Link::Lossy, 1.10)] {
            let found = duration(n, blocks, plain, link, &[]) / ideal(n, blocks, plain);
            assert!((1.0..most).contains(&found), "{plain:?} of {n} over {link:?}: {found}");
        }
    }
}

//= spec/bulk.md#R7
#[test]
fn half_rate_link_costs_pipeline_little_and_chain_half() {
    // Strict steps would keep 75 to 86 % of the rate (RDMC section 4.5).
    for (n, blocks) in [(8, 128), (16, 128), (64, 64)] {
        for link in [(0, 1), (n - 1, n - 2)] {
            let even = duration(n, blocks, Plain::Pipeline, Link::Reliable, &[]);
            let slow = duration(n, blocks, Plain::Pipeline, Link::Reliable, &[link]);
            assert!(even / slow > 0.95, "{n}: {even} and {slow}");
        }
    }
    let even = duration(8, 128, Plain::Chain, Link::Reliable, &[]);
    let slow = duration(8, 128, Plain::Chain, Link::Reliable, &[(2, 3)]);
    assert!((0.5..0.56).contains(&(even / slow)), "{even} and {slow}");
}

/// A stalled receiver loses nothing: queued frames arrive at once afterwards, and the window is as
/// large as before.
#[test]
fn stalled_receiver_costs_only_the_stall() {
    const BLOCKS: usize = 1_000;
    const STALL_NS: u64 = 60_000_000;
    const LOST: u32 = 900;
    let took = |stands_ns: u64| {
        let mut harness = Harness::new(2, Link::Lossy, 1, |config| {
            config.block_len = BLOCK;
            config.piece_len = PIECE;
            config.frame_len_max = 1_200;
            config.lookahead_blocks = 200;
        });
        // Some 400 frames are in flight in the steady state. One is lost while the window grows to
        // that: from then on the window is sufficient and grows slowly.
        harness.latency_ns = 200_000;
        let mut frames = 0;
        harness.frame_fault = Box::new(move |_, from, _, _| {
            frames += u32::from(from == 0);
            frames != LOST
        });
        harness.group(1).offer_memory(vec![0; BLOCKS * BLOCK as usize]);
        let began = harness.now;
        harness
            .act(0, |root| root.send(vec![7; BLOCKS * BLOCK as usize]))
            .expect("the object is accepted");
        let half = |harness: &mut Harness| {
            let progress = harness.groups[1].as_ref().and_then(|group| group.progress(0));
            progress.is_some_and(|(here, _)| here >= BLOCKS as u32 / 2)
        };
        assert!(harness.run_until(SECOND, half));
        harness.stall(1, stands_ns);
        let all = |harness: &mut Harness| !harness.apps[1].delivered.is_empty();
        assert!(harness.run_until(2 * SECOND, all));
        harness.now - began
    };
    let (well, stood) = (took(0), took(STALL_NS));
    // If the window stayed collapsed it would take 11 % longer.
    let rest = stood - STALL_NS;
    assert!(rest <= well, "{rest} ns apart from the stall, and {well} ns without one");
}

/// A small object costs little more than its frames: one per receiver with the object, one that
/// grants tokens for the next, one to the root that the object is complete, and one from the root
/// that it is stable.
#[test]
fn small_object_costs_few_frames() {
    const OBJECTS: u32 = 50;
    for n in [2, 4, 8, 16] {
        let mut harness = Harness::new(n, Link::Reliable, 1, |_| {});
        for rank in 1..n {
            harness.group(rank).offer_memory(vec![0; 1]);
        }
        let mut before = 0;
        for number in 0..OBJECTS {
            if number == 1 {
                // The first states have been exchanged.
                before = harness.frames;
            }
            harness.act(0, |root| root.send(vec![7])).expect("the object is accepted");
            let is_through = |harness: &mut Harness| harness.apps[0].stable.contains_key(&number);
            assert!(harness.run_until(SECOND, is_through), "{number} to {n}");
            for rank in 1..n {
                harness.group(rank).offer_memory(vec![0; 1]);
            }
        }
        let frames = (harness.frames - before) as f64 / f64::from(OBJECTS - 1) / (n - 1) as f64;
        // If every member granted tokens to all neighbours it would be up to 8.
        assert!(frames < 4.0, "{frames} to each receiver of {n}");
    }
}
