//! Duration of transfers in virtual time, independent of the machine that runs the tests.

use onepipe_bulk::{Algorithm, Link, Plain, Schedule};

use crate::world::{SECOND, World};

/// Length of a block and of a piece in bytes.
const BLOCK: u32 = 8_000;
const PIECE: u32 = 1_000;
/// Time of a block in ns, with the headers of its frames, at one byte per ns.
const BLOCK_NS: u64 = 8 * (1_000 + 116);

/// Returns the duration of a transfer of `blocks` blocks to `n` members, in block times.
fn duration(n: usize, blocks: usize, plain: Plain, link: Link, slow: &[(usize, usize)]) -> f64 {
    let mut world = World::new(n, link, 1, |config| {
        config.block_len = BLOCK;
        config.piece_len = PIECE;
        config.frame_len_max = 1_200;
        config.algorithm = Algorithm::Plain(plain);
    });
    world.latency_ns = 1_000;
    for (one, other) in slow {
        world.slow.extend([((*one, *other), 2), ((*other, *one), 2)]);
    }
    for rank in 1..n {
        world.group(rank).offer_memory(vec![0; blocks * BLOCK as usize]);
    }
    let began = world.now;
    world.act(0, |root| root.send(vec![7; blocks * BLOCK as usize])).expect("it is taken");
    let all = |world: &mut World| world.apps[1..].iter().all(|app| !app.delivered.is_empty());
    assert!(world.run_until(SECOND, all), "{plain:?} of {n}");
    (world.now - began) as f64 / BLOCK_NS as f64
}

/// Returns the duration if only blocks took time.
fn ideal(n: usize, blocks: usize, plain: Plain) -> f64 {
    let schedule = Schedule::new(&Algorithm::Plain(plain), n as u32).expect("there is one");
    schedule.steps(blocks as u32) as f64
}

#[test]
fn a_transfer_takes_little_longer_than_its_steps() {
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

#[test]
fn one_link_at_half_rate_costs_a_pipeline_nearly_nothing_and_a_chain_half() {
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
fn a_receiver_that_stands_still_costs_that_time_and_no_more() {
    const BLOCKS: usize = 1_000;
    const STANDS_NS: u64 = 60_000_000;
    const LOST: u32 = 900;
    let took = |stands_ns: u64| {
        let mut world = World::new(2, Link::Lossy, 1, |config| {
            config.block_len = BLOCK;
            config.piece_len = PIECE;
            config.frame_len_max = 1_200;
            config.lookahead_blocks = 200;
        });
        // Some 400 frames are in flight in the steady state. One is lost while the window grows to
        // that: from then on the window is sufficient and grows slowly.
        world.latency_ns = 200_000;
        let mut frames = 0;
        world.fate = Box::new(move |_, from, _, _| {
            frames += u32::from(from == 0);
            frames != LOST
        });
        world.group(1).offer_memory(vec![0; BLOCKS * BLOCK as usize]);
        let began = world.now;
        world.act(0, |root| root.send(vec![7; BLOCKS * BLOCK as usize])).expect("it is taken");
        let half = |world: &mut World| {
            let progress = world.groups[1].as_ref().and_then(|group| group.progress(0));
            progress.is_some_and(|(here, _)| here >= BLOCKS as u32 / 2)
        };
        assert!(world.run_until(SECOND, half));
        world.stand_still(1, stands_ns);
        let all = |world: &mut World| !world.apps[1].delivered.is_empty();
        assert!(world.run_until(2 * SECOND, all));
        world.now - began
    };
    let (well, stood) = (took(0), took(STANDS_NS));
    // If the window stayed collapsed it would take 11 % longer.
    let rest = stood - STANDS_NS;
    assert!(rest <= well, "{rest} ns beside the pause, and {well} where there is none");
}

/// A small object costs little more than its frames: one per receiver with the object, one that
/// grants tokens for the next, one to the root that the object is complete, and one from the root
/// that it is stable.
#[test]
fn a_small_object_costs_few_frames() {
    const OBJECTS: u32 = 50;
    for n in [2, 4, 8, 16] {
        let mut world = World::new(n, Link::Reliable, 1, |_| {});
        for rank in 1..n {
            world.group(rank).offer_memory(vec![0; 1]);
        }
        let mut before = 0;
        for number in 0..OBJECTS {
            if number == 1 {
                // The first states have been exchanged.
                before = world.frames;
            }
            world.act(0, |root| root.send(vec![7])).expect("it is taken");
            let is_through = |world: &mut World| world.apps[0].stable.contains_key(&number);
            assert!(world.run_until(SECOND, is_through), "{number} to {n}");
            for rank in 1..n {
                world.group(rank).offer_memory(vec![0; 1]);
            }
        }
        let frames = (world.frames - before) as f64 / f64::from(OBJECTS - 1) / (n - 1) as f64;
        // If every member granted tokens to all neighbours it would be up to 8.
        assert!(frames < 4.0, "{frames} to each receiver of {n}");
    }
}
