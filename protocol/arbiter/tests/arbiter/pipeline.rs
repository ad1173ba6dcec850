//! A pipeline of workers grants the same as one allocator, whatever the timing of its workers.

use std::collections::VecDeque;

use onepipe_arbiter::{
    AllocatedBatch, Allocator, ArbiterConfig, Command, Config, Core, CorePaths, Demand, Dispatcher,
    Fault, Flow, Policy, RequestError, Routes, Schedule, Timeslot, Worker, WorkerCommand,
    WorkerQueues,
};
use onepipe_base::ProcessId;
use proptest::prelude::*;

const NODES: u32 = 40;
const BATCH: u32 = 32;

/// The grants of a batch with their paths, and the rejected demand.
#[derive(Clone, Debug, PartialEq)]
struct Outcome {
    start: Timeslot,
    pairs: Vec<Vec<(u16, u16, u8)>>,
    refused: Vec<(u32, u32, u32)>,
}

/// All outcomes, and the demand that is left with its number of pairs.
type Outcomes = (Vec<Outcome>, (u64, u32));

fn outcome(start: Timeslot, (schedule, routes): (&Schedule, &impl Routes)) -> Outcome {
    let pairs = (0..BATCH).map(|slot| {
        let path = |src: u16| routes.of(src.into())[slot as usize];
        schedule.pairs(slot).map(|(src, dst)| (src, dst, path(src))).collect()
    });
    Outcome { start, pairs: pairs.collect(), refused: Vec::new() }
}

fn config(
    policy: Policy,
    share_slots: u32,
    (pairs_max, renew_after_batches): (u32, u32),
) -> ArbiterConfig {
    let mut config = ArbiterConfig::new(ProcessId(NODES), Core::racks(NODES, 8, 8), 1_000);
    config.allocator = Config {
        nodes: NODES,
        batch_slots: BATCH,
        policy,
        share_slots,
        pairs_max,
        renew_after_batches,
    };
    config
}

/// Runs one allocator.
fn alone(config: &ArbiterConfig, commands: &[Command]) -> Outcomes {
    let mut allocator = Allocator::new(config.allocator).expect("the settings are right");
    let mut paths = CorePaths::new(config.core).expect("the fabric is right");
    let mut schedule = Schedule::new(NODES);
    let mut refused: Vec<(u32, u32, u32)> = Vec::new();
    let mut outcomes = Vec::new();
    for command in commands {
        match *command {
            Command::Demand(Demand::Forget(src)) => allocator.forget(src),
            Command::Demand(Demand::Want { src, dst, slots }) => {
                match allocator.request(src, dst, slots) {
                    Ok(()) => {}
                    Err(RequestError::TooMuch { refused: slots }) => {
                        refused.push((src, dst, slots));
                    }
                    Err(_) => refused.push((src, dst, slots)),
                }
            }
            Command::Avoid { fault, is_avoided } => {
                paths.avoid(fault, is_avoided).expect("the fault exists")
            }
            Command::Overload => allocator.on_overload(),
            Command::Batch(start) => {
                allocator.skip_to(start);
                schedule.fill(allocator.next_batch().grants());
                paths.assign(&schedule, start, BATCH);
                let refused = std::mem::take(&mut refused);
                outcomes.push(Outcome { refused, ..outcome(start, (&schedule, &paths)) });
            }
        }
    }
    (outcomes, (allocator.wanted(), allocator.pairs()))
}

/// A worker and its queues.
struct WorkerState {
    worker: Worker,
    commands: VecDeque<WorkerCommand>,
    fresh: VecDeque<Flow>,
    flows: VecDeque<Flow>,
    written: VecDeque<AllocatedBatch>,
}

impl WorkerState {
    /// Takes as much input as is drawn. Returns whether there was progress.
    fn step(&mut self, mut draw: impl FnMut(usize) -> usize, allocator: &Config) -> bool {
        let count = (1 + draw(30)).min(self.commands.len());
        let mut taken = self.worker.on_commands(&self.commands.make_contiguous()[..count]);
        self.commands.drain(..taken);
        if !self.worker.is_open() {
            return taken > 0;
        }
        let count = (1 + draw(90)).min(self.flows.len());
        let flows = self.worker.on_flows(&self.flows.make_contiguous()[..count]);
        self.flows.drain(..flows);
        taken += flows;
        let count = (1 + draw(40)).min(self.worker.missing() as usize);
        if count > 0 {
            self.worker.on_fresh(&self.fresh.make_contiguous()[..count]);
            self.fresh.drain(..count);
            taken += 1;
        }
        if self.worker.is_complete() {
            taken += 1;
            self.worker.finish();
            let mut allocated = AllocatedBatch::new(allocator);
            self.worker.write(&mut allocated);
            self.written.push_back(allocated);
        }
        taken > 0
    }
}

/// All workers, as targets of the dispatcher.
struct WorkerStates(Vec<WorkerState>);

impl WorkerQueues for WorkerStates {
    fn command(&mut self, worker: usize, command: WorkerCommand) {
        self.0[worker].commands.push_back(command);
    }

    fn admit(&mut self, worker: usize, flows: &[Flow]) {
        self.0[worker].fresh.extend(flows);
    }
}

/// Runs several workers; `draws` decides which one runs next, and how much input it takes.
fn run_interleaved(
    config: &ArbiterConfig,
    workers: usize,
    commands: &[Command],
    draws: &[u8],
) -> Outcomes {
    let mut draws = draws.iter().copied().cycle();
    let mut draw = |below: usize| usize::from(draws.next().expect("endless")) % below.max(1);
    let mut dispatcher =
        Dispatcher::new(&config.allocator, workers).expect("the settings are right");
    let state = |at| WorkerState {
        worker: Worker::new(config, at, workers).expect("the settings are right"),
        commands: VecDeque::new(),
        fresh: VecDeque::new(),
        flows: VecDeque::new(),
        written: VecDeque::new(),
    };
    let mut states = WorkerStates((0..workers).map(state).collect());
    states.0[0].flows.extend(Worker::initial_flows());
    let mut commands = commands.iter();
    let mut refused: Vec<Vec<_>> = vec![Vec::new()];
    let mut outcomes: Vec<Outcome> = Vec::new();
    let mut idle = 0;
    while idle < 100 {
        idle += 1;
        let mut commanded = 1 + draw(20);
        while commanded > 0
            && dispatcher.is_ready()
            && let Some(command) = commands.next()
        {
            commanded -= 1;
            idle = 0;
            let number = dispatcher.number();
            if let Some(of) = dispatcher.execute(*command, &mut states) {
                refused[number as usize].push((of.src, of.dst, of.slots));
            }
            refused.resize(dispatcher.number() as usize + 1, Vec::new());
        }
        // Every worker runs eventually, whatever is drawn.
        let at = if idle < 10 { draw(workers) } else { idle % workers };
        if states.0[at].step(&mut draw, &config.allocator) {
            idle = 0;
        }
        let forwarded = states.0[at].worker.forwarded().to_vec();
        states.0[at].worker.clear_forwarded();
        states.0[(at + 1) % workers].flows.extend(forwarded);
        // Results may be read late, but in order.
        let next = outcomes.len() % workers;
        if (idle >= 10 || draw(3) > 0)
            && let Some(mut allocated) = states.0[next].written.pop_front()
        {
            idle = 0;
            dispatcher.on_batch_allocated(&mut allocated, &mut states);
            allocated.build_schedule();
            let granted = allocated.summary();
            assert_eq!(granted.number, outcomes.len() as u64);
            let refused = std::mem::take(&mut refused[outcomes.len()]);
            let outcome = outcome(granted.start, (allocated.schedule(), &allocated));
            outcomes.push(Outcome { refused, ..outcome });
        }
    }
    (outcomes, (dispatcher.wanted(), dispatcher.pairs()))
}

fn a_command() -> impl Strategy<Value = Command> {
    let want = (0..NODES, 0..NODES, 1u32..200);
    let fault = (prop::option::of(0u32..5), 0u32..8, any::<bool>());
    prop_oneof![
        60 => want.prop_map(|(src, dst, slots)| Command::Demand(Demand::Want { src, dst, slots })),
        1 => Just(Command::Demand(Demand::Want { src: 3, dst: 4, slots: 70_000 })),
        4 => (0..NODES).prop_map(|src| Command::Demand(Demand::Forget(src))),
        1 => fault.prop_map(|(rack, path, is_avoided)| {
            let link = |rack| Fault::Link { rack, path };
            Command::Avoid { fault: rack.map_or(Fault::Path(path), link), is_avoided }
        }),
        2 => Just(Command::Overload),
        4 => Just(Command::Batch(Timeslot(0))),
    ]
}

proptest! {
    //= spec/arbiter.md#R13
    #[test]
    fn grants_are_independent_of_workers_and_timing(
        mut commands in prop::collection::vec(a_command(), 0..800),
        draws in prop::collection::vec(any::<u8>(), 1..60),
        workers in 1usize..5,
        is_fair in any::<bool>(),
        share_slots in 1u32..20,
        has_space in any::<bool>(),
        renew_after_batches in 1u32..5,
    ) {
        let mut next = 0;
        for command in &mut commands {
            if let Command::Batch(start) = command {
                *start = Timeslot(next);
                next += u64::from(BATCH) + next / 7 % 3;
            }
        }
        let policy = if is_fair { Policy::MaxMinFair } else { Policy::ShortestFirst };
        let pairs_max = if has_space { NODES * NODES } else { 150 };
        let config = config(policy, share_slots, (pairs_max, renew_after_batches));
        let (alone, left) = alone(&config, &commands);
        let (together, left_together) = run_interleaved(&config, workers, &commands, &draws);
        let other = alone.iter().zip(&together).position(|(alone, together)| alone != together);
        prop_assert!(alone.len() == together.len() && other.is_none(), "batch {other:?} is other");
        prop_assert_eq!(left, left_together);
    }
}
