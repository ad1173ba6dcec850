//! Checks the claims of `docs/design/bulk.md` on the schedules themselves.

extern crate std;

use super::*;
use alloc::vec;
use std::collections::BTreeSet;

const PLAIN: [Plain; 4] = [Plain::Sequential, Plain::Chain, Plain::Tree, Plain::Pipeline];

fn plain(algorithm: Plain, members: u32) -> Schedule {
    Schedule::new(&Algorithm::Plain(algorithm), members).expect("valid members")
}

fn racks(across: Plain, inside: Plain, sizes: Vec<u32>) -> Schedule {
    let members = sizes.iter().sum();
    Schedule::new(&Algorithm::Racks { across, inside, sizes }, members).expect("valid members")
}

/// Splits `members` into racks of `size` members; the last one may be smaller.
fn split(members: u32, size: u32) -> Vec<u32> {
    (0..members).step_by(size as usize).map(|first| size.min(members - first)).collect()
}

/// Runs the schedule for an object of up to 64 blocks. Checks that both views of each step agree,
/// that members only send blocks received earlier, that no block is received twice, and that all
/// members have all blocks in the end.
fn check(schedule: &Schedule, blocks: u32) {
    let members = schedule.members();
    let all = u64::MAX >> (64 - blocks);
    let mut held = vec![0u64; members as usize];
    held[0] = all;
    let mut came = Vec::new();
    for step in 0..schedule.steps(blocks) {
        let (mut sent, mut received) = (0, 0);
        for rank in 0..members {
            if let Some(Transfer { peer, block }) = schedule.outgoing(rank, blocks, step) {
                let has = |rank: u32| held[rank as usize] >> block & 1 == 1;
                assert!(peer < members && peer != rank && block < blocks);
                assert!(has(rank), "{rank} has no {block} yet in step {step} of {schedule:?}");
                assert!(!has(peer), "{peer} has {block} in step {step} of {schedule:?}");
                let view = schedule.incoming(peer, blocks, step);
                assert_eq!(view, Some(Transfer { peer: rank, block }), "{step} of {schedule:?}");
                came.push((peer, block));
                sent += 1;
            }
            received += u32::from(schedule.incoming(rank, blocks, step).is_some());
        }
        assert_eq!(sent, received, "step {step} of {blocks} blocks, {schedule:?}");
        for (rank, block) in came.drain(..) {
            held[rank as usize] |= 1 << block;
        }
    }
    assert!(held.iter().all(|held| *held == all), "{blocks} blocks, {schedule:?}");
}

fn log2_up(members: u32) -> u64 {
    members.next_power_of_two().ilog2().into()
}

//= spec/bulk.md#R1
//= spec/bulk.md#R2
//= spec/bulk.md#R3
#[test]
fn schedules_up_to_64_members_are_complete_and_causal() {
    for members in 2..=64 {
        let hybrid = racks(Plain::Pipeline, Plain::Pipeline, split(members, 4));
        for blocks in 1..=64 {
            let (b, n) = (u64::from(blocks), u64::from(members));
            let bounds = [b * (n - 1), b + n - 2, b * log2_up(members), b + log2_up(members) - 1];
            for (algorithm, bound) in PLAIN.into_iter().zip(bounds) {
                let schedule = plain(algorithm, members);
                assert_eq!(schedule.steps(blocks), bound, "{algorithm:?} {members} {blocks}");
                check(&schedule, blocks);
            }
            check(&hybrid, blocks);
        }
    }
}

//= spec/bulk.md#R1
//= spec/bulk.md#R2
#[test]
fn schedules_of_larger_groups() {
    let large = (65..=130).chain([255, 256, 257, 511, 512]);
    for (members, blocks) in large.flat_map(|members| [1, 2, 7, 33].map(|blocks| (members, blocks)))
    {
        check(&plain(Plain::Pipeline, members), blocks);
        check(&plain(Plain::Chain, members), blocks);
        check(&racks(Plain::Pipeline, Plain::Chain, split(members, 16)), blocks);
    }
    check(&plain(Plain::Tree, 512), 3);
    check(&plain(Plain::Sequential, 512), 3);
}

#[test]
fn racks_of_any_size_by_chain_or_pipeline() {
    for across in [Plain::Chain, Plain::Pipeline] {
        for inside in PLAIN {
            for sizes in [vec![1], vec![1, 1, 1], vec![5, 1, 7, 2, 3], vec![3, 8, 8, 1, 4, 6, 2]] {
                for blocks in [1, 2, 3, 4, 5, 9, 32] {
                    check(&racks(across, inside, sizes.clone()), blocks);
                }
            }
        }
    }
}

//= spec/bulk.md#R5
#[test]
fn one_copy_crosses_to_each_rack_in_few_rounds() {
    for size in [2, 3, 4, 7] {
        let sizes = split(28, size);
        let (across, blocks) = (sizes.len() as u32, 40);
        let schedule = racks(Plain::Pipeline, Plain::Pipeline, sizes);
        let rounds = u64::from(blocks) + log2_up(across) + log2_up(size);
        assert!(schedule.steps(blocks) <= 2 * rounds, "{}", schedule.steps(blocks));
        let mut crossed = 0;
        for step in 0..schedule.steps(blocks) {
            let sent =
                (0..28).filter_map(|rank| Some((rank, schedule.outgoing(rank, blocks, step)?)));
            crossed += sent.filter(|(rank, sent)| rank / size != sent.peer / size).count() as u32;
        }
        assert_eq!(crossed, (across - 1) * blocks);
    }
}

//= spec/bulk.md#R6
#[test]
fn first_sender_is_independent_of_object() {
    for members in 2..=130u32 {
        let schedule = plain(Plain::Pipeline, members);
        for (rank, blocks) in (1..members).flat_map(|rank| [1, 2, 3, 4, 9, 64].map(|b| (rank, b))) {
            let first = schedule.first_block(rank, blocks).expect("not the root");
            if members.is_power_of_two() {
                let expected = First {
                    step: rank.ilog2().into(),
                    from: rank & !(1 << rank.ilog2()),
                    block: rank.trailing_zeros().min(blocks - 1),
                };
                assert_eq!(first, expected, "{rank} of {members}, {blocks} blocks");
            }
            let many = schedule.first_block(rank, BLOCKS_MAX).expect("not the root");
            if blocks > 1 {
                assert_eq!((first.step, first.from), (many.step, many.from), "{rank} of {members}");
                assert_eq!(first.block, many.block.min(blocks - 1));
            }
        }
    }
    let hybrid = racks(Plain::Pipeline, Plain::Pipeline, split(30, 7));
    // Only leaders: for other members it depends on the gaps in their leader's stream.
    for rank in (7..30).step_by(7) {
        let first = |blocks| hybrid.first_block(rank, blocks).expect("not the root").from;
        assert!([2, 3, 9, 64].iter().all(|blocks| first(*blocks) == first(BLOCKS_MAX)), "{rank}");
    }
    assert_eq!(hybrid.first_block(0, 5), None);
}

/// Returns the step in which each block arrives at each rank.
fn arrivals(schedule: &Schedule, blocks: u32) -> Vec<Vec<u64>> {
    let mut came = vec![vec![0; blocks as usize]; schedule.members() as usize];
    for step in 0..schedule.steps(blocks) {
        for rank in 0..schedule.members() {
            if let Some(found) = schedule.incoming(rank, blocks, step) {
                came[rank as usize][found.block as usize] = step;
            }
        }
    }
    came
}

#[test]
fn slack_matches_formula() {
    for l in 2..=6u32 {
        let (members, blocks) = (1 << l, 200);
        let schedule = plain(Plain::Pipeline, members);
        let came = arrivals(&schedule, blocks);
        for step in [50, 51, 52, 53, 77, 150u64] {
            let sent = (1..members).filter_map(|rank| {
                let sent = schedule.outgoing(rank, blocks, step)?;
                Some(step - came[rank as usize][sent.block as usize])
            });
            let slack: Vec<u64> = sent.collect();
            // All receivers but the root's partner send: n-2.
            assert_eq!(slack.len() as u32, members - 2);
            // 2(1 - (l-1)/(n-2)), times the n-2 senders.
            let sum: u64 = slack.iter().sum();
            assert_eq!(sum, u64::from(2 * (members - 2) - 2 * (l - 1)), "{members} members");
            assert_eq!(slack.iter().min(), Some(&1));
            assert_eq!(slack.iter().max(), Some(&u64::from(l - 1)));
        }
    }
}

/// Returns the duration of the schedule if each member starts a step when its last one is complete,
/// and each transfer takes `cost` of sender and receiver.
fn duration(schedule: &Schedule, blocks: u32, cost: impl Fn(u32, u32) -> u64) -> u64 {
    let mut free = vec![0u64; schedule.members() as usize];
    for step in 0..schedule.steps(blocks) {
        let mut next = free.clone();
        for rank in 0..schedule.members() {
            if let Some(Transfer { peer, .. }) = schedule.outgoing(rank, blocks, step) {
                let (from, to) = (rank as usize, peer as usize);
                let done = free[from].max(free[to]) + cost(rank, peer);
                next[from] = next[from].max(done);
                next[to] = next[to].max(done);
            }
        }
        free = next;
    }
    free.into_iter().max().unwrap_or(0)
}

#[test]
fn slow_link_costs_pipeline_little_and_chain_half() {
    let blocks = 1024;
    for l in 3..=6u32 {
        let members = 1 << l;
        for (algorithm, link, rate_share) in [
            // l T' / (T + (l-1) T') with T' = T/2, in thousandths.
            (Plain::Pipeline, (0, 1), 1000 * l / (l + 1)),
            (Plain::Pipeline, (members - 1, members - 2), 1000 * l / (l + 1)),
            (Plain::Chain, (2, 3), 500),
        ] {
            let schedule = plain(algorithm, members);
            let is_slow = |from, to| (from, to) == link || (to, from) == link;
            let even = duration(&schedule, blocks, |_, _| 1);
            assert_eq!(even, schedule.steps(blocks));
            let slow = duration(&schedule, blocks, |from, to| 1 + u64::from(is_slow(from, to)));
            let found = 1000 * even / slow;
            assert!(found.abs_diff(rate_share.into()) <= 16, "{algorithm:?} of {members}: {found}");
        }
    }
}

//= spec/bulk.md#R4
#[test]
fn member_has_few_neighbours() {
    for members in 2..=130u32 {
        let (schedule, blocks) = (plain(Plain::Pipeline, members), 40);
        let d = members.ilog2() as usize;
        for rank in 0..members {
            let steps = 0..schedule.steps(blocks);
            let met = steps.flat_map(|step| {
                let out = schedule.outgoing(rank, blocks, step);
                [out, schedule.incoming(rank, blocks, step)].into_iter().flatten()
            });
            let met: BTreeSet<u32> = met.map(|transfer| transfer.peer).collect();
            match members.is_power_of_two() {
                true => assert_eq!(met.len(), d),
                false => assert!(met.len() <= 2 * d + 1, "{} of {rank}", met.len()),
            }
        }
    }
}

#[test]
fn rejects_invalid_groups() {
    let of = |algorithm: &Algorithm, members| Schedule::new(algorithm, members).map(|_| ());
    let chain = Algorithm::Plain(Plain::Chain);
    assert_eq!(of(&chain, 0), Err(ScheduleError::Members(0)));
    assert_eq!(of(&chain, MEMBERS_MAX + 1), Err(ScheduleError::Members(MEMBERS_MAX + 1)));
    let racks = |across, sizes| Algorithm::Racks { across, inside: Plain::Tree, sizes };
    assert_eq!(of(&racks(Plain::Tree, vec![2, 2]), 4), Err(ScheduleError::Across));
    for sizes in [vec![2, 3], vec![4, 0], vec![]] {
        assert_eq!(of(&racks(Plain::Chain, sizes), 4), Err(ScheduleError::Racks));
    }
    for algorithm in PLAIN {
        let alone = plain(algorithm, 1);
        assert_eq!((alone.steps(9), alone.first_block(0, 9)), (0, None));
    }
}
