//! The machines with one seeded mistake each (`--features mistakes`): the checks detect it at a
//! seed that passes without it. The first detecting seeds are known, so that the test takes
//! seconds.
//!
//! All mistakes are in one test because the mistake is selected for the whole program.

use onepipe_base::mistake::Mistake;
use onepipe_sim_check::run_known_mutations;
use onepipe_verify_transactions::{SIMULATED, caught};

/// Each mistake with a seed that detects it.
const FIRST_SEEDS: &[(Mistake, u64)] = &[
    (Mistake::ReadAtDelivery, 0),
    (Mistake::ExactnessIgnored, 113),
    (Mistake::ShardMissed, 0),
    (Mistake::OneReplyOfAll, 0),
];

#[test]
fn checks_catch_every_mistake() {
    assert!(FIRST_SEEDS.iter().map(|(mistake, _)| mistake).eq(SIMULATED));
    assert_eq!(run_known_mutations(FIRST_SEEDS, |_, _| true, caught), Vec::<&str>::new());
}
