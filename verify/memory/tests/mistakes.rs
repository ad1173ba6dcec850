//! The machines with one seeded mistake each (`--features mistakes`): the checks detect it at a
//! seed that passes without it.
//!
//! All mistakes are in one test because the mistake is selected for the whole program.

use std::panic::catch_unwind;

use onepipe_base::mistake::{Mistake, choose};
use onepipe_verify_memory::run;

/// Each mistake that scenarios detect, with a seed that does. The models of the fabric in
/// `protocol/memory` and `apps/table` detect the others, for which latencies have to differ more,
/// or requests that no client of a table sends.
const FIRST_SEEDS: &[(Mistake, u64)] = &[
    (Mistake::FailedCompareIgnored, 1),
    (Mistake::PointerBeforeNode, 1),
    (Mistake::ReusedBeforeRemoved, 3),
    (Mistake::MissAtFirstNode, 0),
];

/// Returns the name of the check that detects a mistake at a seed.
fn detected(mistake: Option<Mistake>, seed: u64) -> Option<String> {
    choose(mistake);
    let report = catch_unwind(|| run(seed));
    choose(None);
    let Ok(report) = report else { return Some("an assertion".to_owned()) };
    let name = |what: &String| what.split(':').next().unwrap_or_default().to_owned();
    report.violations.first().map(name)
}

#[test]
fn checks_catch_every_mistake() {
    std::panic::set_hook(Box::new(|_| {}));
    let found = FIRST_SEEDS.iter().map(|(mistake, seed)| {
        (mistake.title(), detected(Some(*mistake), *seed), detected(None, *seed))
    });
    let found: Vec<_> = found.collect();
    let _ = std::panic::take_hook();
    for (title, with, without) in &found {
        println!("{title}: {with:?}");
        assert!(with.is_some(), "{title} is not detected");
        assert_eq!(*without, None, "{title}: its seed fails without it");
    }
}
