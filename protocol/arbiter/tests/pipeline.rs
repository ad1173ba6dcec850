//! Stages in a pipeline give out what one allocator does, however far one runs behind another.

use onepipe_arbiter::{Allocator, Config, Flow, Flows, Grant, Ledger, Policy, Stage, Timeslot};
use proptest::prelude::*;

const BATCH: u32 = 32;

/// A core: its stage, and what it has handed on that the next one has not taken.
struct Core {
    stage: Stage,
    onward: Flows,
    taken: usize,
}

impl Core {
    fn new(config: Config) -> Self {
        let stage = Stage::new(config).expect("the settings are right");
        Self { stage, onward: Flows::new(config.pairs_max), taken: 0 }
    }

    fn begin(&mut self, number: u64) {
        self.onward.clear();
        self.taken = 0;
        self.stage.begin(number, Timeslot(number * u64::from(BATCH)));
    }

    /// The next flows that it hands on, `count` at most.
    fn hand_on(&mut self, count: usize) -> Vec<Flow> {
        let flows: Vec<Flow> =
            self.onward.as_slice()[self.taken..].iter().take(count).copied().collect();
        self.taken += flows.len();
        flows
    }
}

/// What each batch gives when stages take turns; `pace` says how many flows one takes at a time.
fn in_stages(
    config: Config,
    cores: usize,
    rounds: &[Vec<(u32, u32, u32)>],
    pace: &[usize],
) -> Vec<Vec<Grant>> {
    let mut pace = pace.iter().copied().cycle();
    let mut ledger = Ledger::new(&config).expect("the settings are right");
    let mut cores: Vec<Core> = (0..cores).map(|_| Core::new(config)).collect();
    let mut batches = Vec::new();
    cores[0].begin(0);
    for (number, requests) in rounds.iter().enumerate() {
        let [at, next] = [number, number + 1].map(|number| number % cores.len());
        let [this, other] = cores.get_disjoint_mut([at, next]).expect("there are two at least");
        // The next batch begins while this one is under way, with what has been handed on already.
        other.begin(number as u64 + 1);
        for _ in 0..pace.next().expect("it never ends") {
            let flows = this.hand_on(pace.next().expect("it never ends"));
            other.stage.offer(&flows, &mut other.onward);
        }
        for &(src, dst, slots) in requests {
            let _ = ledger.request(src, dst, slots);
        }
        this.stage.finish(&mut ledger, &mut this.onward);
        batches.push(this.stage.batch().grants().to_vec());
        let rest = this.hand_on(usize::MAX);
        other.stage.offer(&rest, &mut other.onward);
    }
    batches
}

proptest! {
    #[test]
    fn the_number_of_cores_and_their_pace_change_nothing(
        rounds in prop::collection::vec(
            prop::collection::vec((0u32..40, 0u32..40, 1u32..200), 0..300),
            1..8,
        ),
        pace in prop::collection::vec(0usize..90, 1..8),
        cores in 2usize..5,
        is_fair in any::<bool>(),
        share_slots in 1u32..20,
    ) {
        let policy = if is_fair { Policy::MaxMinFair } else { Policy::ShortestFirst };
        let config = Config { batch_slots: BATCH, policy, share_slots, ..Config::new(40) };
        let mut allocator = Allocator::new(config).expect("the settings are right");
        let alone: Vec<Vec<Grant>> = rounds
            .iter()
            .map(|requests| {
                for &(src, dst, slots) in requests {
                    let _ = allocator.request(src, dst, slots);
                }
                allocator.next_batch().grants().to_vec()
            })
            .collect();
        let staged = in_stages(config, cores, &rounds, &pace);
        let other = alone.iter().zip(&staged).position(|(alone, staged)| alone != staged);
        prop_assert!(staged.len() == alone.len() && other.is_none(), "batch {other:?} is other");
    }
}
