//! Cases that need no network: golden frames, the allocator's grants and paths, block schedules.

use std::fs;
use std::path::Path;

use onepipe_arbiter::{Allocator, Config, Fabric, Paths, Policy, Schedule, Timeslot};
use onepipe_bulk::{Algorithm, Plain};

use crate::Case;
use crate::digest::{self, Digest};

/// Number of batches in a trace of requests.
const BATCHES: u32 = 400;
/// A linear congruential generator (Numerical Recipes): the same requests in every build.
const MULTIPLIER: u32 = 1_664_525;
const INCREMENT: u32 = 1_013_904_223;

/// Returns the cases of golden frames, grants and schedules.
pub fn cases() -> Vec<Case> {
    let mut cases = vec![Case::new("golden frames".to_owned(), golden_frames)];
    for (name, policy) in
        [("max-min", Policy::MaxMinFair), ("shortest-first", Policy::ShortestFirst)]
    {
        for nodes in [16, 64, 256] {
            for batch_slots in [16, 64] {
                let config = Config { policy, batch_slots, ..Config::new(nodes) };
                let name = format!("grants {name} nodes={nodes} batch={batch_slots}");
                cases.push(Case::new(name, move || grants(config)));
            }
        }
    }
    for members in [1, 2, 3, 4, 5, 7, 8, 13, 16, 31, 32, 64, 100] {
        cases.push(Case::new(format!("schedules members={members}"), move || schedules(members)));
    }
    cases
}

/// Returns the digest of the bytes of all golden frames, whatever the names of their files.
fn golden_frames() -> u64 {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../protocol/wire/testdata");
    let files = fs::read_dir(&folder).expect("the checkout has golden frames");
    let mut digests = Vec::new();
    for file in files {
        let path = file.expect("the folder can be read").path();
        if path.extension().is_some_and(|extension| extension == "hex") {
            let text = fs::read_to_string(&path).expect("the file can be read");
            digests.push(digest::of(frame_bytes(&text)));
        }
    }
    digests.sort_unstable();
    digest::of(digests)
}

/// Returns the bytes of a golden frame: the hexadecimal values after each `field:`, without
/// comments (`#`) and definitions (`@`).
fn frame_bytes(text: &str) -> Vec<u64> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let fields = lines.filter(|line| !line.trim_start().starts_with('@'));
    let values = fields.filter_map(|line| line.split_once(':')).map(|(_, bytes)| bytes);
    let bytes = values.flat_map(str::split_whitespace);
    bytes.map(|byte| u64::from_str_radix(byte, 16).expect("a byte has two digits")).collect()
}

/// Returns the digest of the grants and paths of a trace, which overloads the allocator, lets it
/// drain, and drops endpoints.
fn grants(config: Config) -> u64 {
    let nodes = config.nodes;
    let fabric = Fabric { nodes, rack_nodes: nodes / 4, paths: 4, is_strict: true };
    let mut paths = Paths::new(fabric).expect("racks divide the endpoints");
    let mut allocator = Allocator::new(config).expect("the settings are in range");
    let mut schedule = Schedule::new(nodes);
    let mut digest = Digest::default();
    // State of the generator of requests.
    let mut random = 1u32;
    for batch in 0..BATCHES {
        let requests = if batch % 100 < 60 { nodes * 3 } else { 0 };
        for _ in 0..requests {
            random = random.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT);
            let (src, dst) = ((random >> 8) % nodes, (random >> 18) % nodes);
            // The digest covers refusals, too: the same requests must be refused.
            digest.add(allocator.request(src, dst, random >> 27).is_ok().into());
        }
        if batch % 50 == 49 {
            allocator.forget(batch % nodes);
        }
        schedule.fill(allocator.next_batch().grants());
        let start = Timeslot(u64::from(batch * config.batch_slots));
        digest.add(paths.assign(&schedule, start, config.batch_slots).into());
        for src in 0..nodes {
            let mut busy_slots = schedule.busy(src);
            digest.add(busy_slots);
            while busy_slots != 0 {
                let slot = busy_slots.trailing_zeros() as usize;
                digest.add(schedule.of(src)[slot].into());
                digest.add(paths.of(src)[slot].into());
                busy_slots &= busy_slots - 1;
            }
        }
    }
    digest.finish()
}

/// Returns the digest of every transfer of every member, for objects of 1 to 17 and of 64 blocks,
/// by every algorithm.
fn schedules(members: u32) -> u64 {
    let mut digest = Digest::default();
    let plain = [Plain::Sequential, Plain::Chain, Plain::Tree, Plain::Pipeline];
    let mut algorithms: Vec<Algorithm> = plain.into_iter().map(Algorithm::Plain).collect();
    let rack_sizes = |size: u32| {
        (0..members).step_by(size as usize).map(|first| size.min(members - first)).collect()
    };
    for across in [Plain::Chain, Plain::Pipeline] {
        for inside in plain {
            for size in [1, 3, 8] {
                algorithms.push(Algorithm::Racks { across, inside, sizes: rack_sizes(size) });
            }
        }
    }
    for algorithm in &algorithms {
        let schedule = onepipe_bulk::Schedule::new(algorithm, members).expect("there is one");
        for blocks in (1..=17).chain([64]) {
            digest.add(schedule.steps(blocks));
            for rank in 0..members {
                let first = schedule.first_block(rank, blocks);
                let first = first.map_or([u64::MAX; 3], |first| {
                    [first.step, first.from.into(), first.block.into()]
                });
                first.into_iter().for_each(|field| digest.add(field));
                for step in 0..schedule.steps(blocks) {
                    for transfer in [
                        schedule.outgoing(rank, blocks, step),
                        schedule.incoming(rank, blocks, step),
                    ] {
                        digest.add(transfer.map_or(u64::MAX, |transfer| {
                            u64::from(transfer.peer) << 32 | u64::from(transfer.block)
                        }));
                    }
                }
            }
        }
    }
    digest.finish()
}
