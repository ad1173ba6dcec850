//! Workers in a pipeline give out what one allocator does, however far one runs behind another.

use std::collections::VecDeque;

use onepipe_arbiter::{
    Allocated, Allocator, ArbiterConfig, Command, Config, Core, CorePaths, Demand, Fabric, Fault,
    Flow, Ledger, Policy, RequestError, Routes, Schedule, Timeslot, Turn, Worker,
};
use onepipe_base::ProcessId;
use proptest::prelude::*;

const NODES: u32 = 40;
const BATCH: u32 = 32;

/// What a batch gives, by which paths, and what it refuses; what is wanted then, and by how many.
#[derive(Clone, Debug, PartialEq)]
struct Outcome {
    start: Timeslot,
    pairs: Vec<Vec<(u16, u16, u8)>>,
    refused: Vec<(u32, u32, u32)>,
    left: (u64, u32),
}

fn outcome(
    start: Timeslot,
    (schedule, routes): (&Schedule, &impl Routes),
    refused: Vec<(u32, u32, u32)>,
    left: (u64, u32),
) -> Outcome {
    let pairs = (0..BATCH).map(|slot| {
        let path = |src: u16| routes.of(src.into())[slot as usize];
        schedule.pairs(slot).map(|(src, dst)| (src, dst, path(src))).collect()
    });
    Outcome { start, pairs: pairs.collect(), refused, left }
}

fn config(policy: Policy, share_slots: u32, pairs_max: u32) -> ArbiterConfig {
    let mut config = ArbiterConfig::new(ProcessId(NODES), NODES, (8, 8), 1_000);
    config.core = Core::Racks(Fabric { nodes: NODES, rack_nodes: 8, paths: 8, is_strict: false });
    config.allocator =
        Config { batch_slots: BATCH, policy, share_slots, pairs_max, ..Config::new(NODES) };
    config
}

/// What one allocator does.
fn alone(config: &ArbiterConfig, commands: &[Command]) -> Vec<Outcome> {
    let mut allocator = Allocator::new(config.allocator).expect("the settings are right");
    let mut paths = CorePaths::new(config.core).expect("the fabric is right");
    let mut schedule = Schedule::new(NODES);
    let mut refused: Vec<(u32, u32, u32)> = Vec::new();
    let mut outcomes = Vec::new();
    for command in commands {
        match *command {
            Command::Demand(Demand::Forget(src)) => {
                allocator.forget(src);
                refused.retain(|(refused, ..)| *refused != src);
            }
            Command::Demand(Demand::Want { src, dst, slots }) => {
                match allocator.request(src, dst, slots) {
                    Ok(()) => {}
                    Err(RequestError::TooMuch { refused: slots }) => {
                        refused.push((src, dst, slots));
                    }
                    Err(_) => refused.push((src, dst, slots)),
                }
            }
            Command::Avoid { fault, avoids } => paths.avoid(fault, avoids).expect("it is there"),
            Command::Batch(start) => {
                allocator.skip_to(start);
                schedule.fill(allocator.next_batch().grants());
                paths.assign(&schedule, BATCH);
                let refused = std::mem::take(&mut refused);
                let left = (allocator.wanted(), allocator.pairs());
                outcomes.push(outcome(start, (&schedule, &paths), refused, left));
            }
        }
    }
    outcomes
}

/// A worker and what is on its way to it.
struct Place {
    worker: Worker,
    commands: VecDeque<Command>,
    flows: VecDeque<Flow>,
    ledger: Option<Ledger>,
}

/// What several workers do; `draws` says whose turn it is, and how much it takes.
fn in_turns(
    config: &ArbiterConfig,
    workers: usize,
    commands: &[Command],
    draws: &[u8],
) -> Vec<Outcome> {
    let mut draws = draws.iter().copied().cycle();
    let mut draw = |below: usize| usize::from(draws.next().expect("endless")) % below.max(1);
    let mut turn = Turn::new(workers);
    let mut places: Vec<Place> = (0..workers)
        .map(|at| Place {
            worker: Worker::new(config, at, workers).expect("the settings are right"),
            commands: VecDeque::new(),
            flows: VecDeque::new(),
            ledger: None,
        })
        .collect();
    places[0].flows.extend(Worker::first_flows());
    places[0].ledger = Some(Ledger::new(&config.allocator).expect("the settings are right"));
    let mut commands = commands.iter();
    let mut allocated = Allocated::new(NODES);
    let mut outcomes = Vec::new();
    let mut idle = 0;
    while idle < 100 {
        idle += 1;
        for command in commands.by_ref().take(1 + draw(20)) {
            turn.of(command).for_each(|at| places[at].commands.push_back(*command));
            idle = 0;
        }
        // Everybody has a turn now and then, whatever is drawn.
        let at = if idle < 10 { draw(workers) } else { idle % workers };
        let place = &mut places[at];
        let count = (1 + draw(30)).min(place.commands.len());
        let taken = place.worker.on_commands(&place.commands.make_contiguous()[..count]);
        place.commands.drain(..taken);
        idle = if taken > 0 { 0 } else { idle };
        if !place.worker.is_open() {
            continue;
        }
        let count = (1 + draw(90)).min(place.flows.len());
        let taken = place.worker.on_flows(&place.flows.make_contiguous()[..count]);
        place.flows.drain(..taken);
        idle = if taken > 0 { 0 } else { idle };
        let ledger = if place.worker.has_all() { place.ledger.take() } else { None };
        let ledger = ledger.map(|mut ledger| {
            place.worker.on_ledger(&mut ledger);
            place.worker.write(&mut allocated);
            let refused = allocated.refused().iter().map(|of| (of.src, of.dst, of.slots)).collect();
            let given = allocated.given();
            assert_eq!(given.number, outcomes.len() as u64);
            let left = (given.wanted, given.pairs);
            outcomes.push(outcome(given.start, (allocated.schedule(), &allocated), refused, left));
            idle = 0;
            ledger
        });
        let onward = place.worker.onward().to_vec();
        place.worker.clear_onward();
        let next = &mut places[(at + 1) % workers];
        next.flows.extend(onward);
        if ledger.is_some() {
            next.ledger = ledger;
        }
    }
    outcomes
}

fn a_command() -> impl Strategy<Value = Command> {
    let want = (0..NODES, 0..NODES, 1u32..200);
    let fault = (prop::option::of(0u32..5), 0u32..8, any::<bool>());
    prop_oneof![
        60 => want.prop_map(|(src, dst, slots)| Command::Demand(Demand::Want { src, dst, slots })),
        1 => Just(Command::Demand(Demand::Want { src: 3, dst: 4, slots: 70_000 })),
        4 => (0..NODES).prop_map(|src| Command::Demand(Demand::Forget(src))),
        1 => fault.prop_map(|(rack, path, avoids)| {
            let link = |rack| Fault::Link { rack, path };
            Command::Avoid { fault: rack.map_or(Fault::Path(path), link), avoids }
        }),
        4 => Just(Command::Batch(Timeslot(0))),
    ]
}

proptest! {
    #[test]
    fn the_number_of_cores_and_their_pace_change_nothing(
        mut commands in prop::collection::vec(a_command(), 0..800),
        draws in prop::collection::vec(any::<u8>(), 1..60),
        workers in 1usize..5,
        is_fair in any::<bool>(),
        share_slots in 1u32..20,
        has_room in any::<bool>(),
    ) {
        let mut next = 0;
        for command in &mut commands {
            if let Command::Batch(start) = command {
                *start = Timeslot(next);
                next += u64::from(BATCH) + next / 7 % 3;
            }
        }
        let policy = if is_fair { Policy::MaxMinFair } else { Policy::ShortestFirst };
        let pairs_max = if has_room { NODES * NODES } else { 150 };
        let config = config(policy, share_slots, pairs_max);
        let alone = alone(&config, &commands);
        let together = in_turns(&config, workers, &commands, &draws);
        let other = alone.iter().zip(&together).position(|(alone, together)| alone != together);
        prop_assert!(alone.len() == together.len() && other.is_none(), "batch {other:?} is other");
    }
}
