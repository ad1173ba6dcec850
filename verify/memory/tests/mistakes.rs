//! The machines with one seeded mistake each (`--features mistakes`): the checks detect it within a
//! few seeds, all of which pass without it.
//!
//! All mistakes are in one test because the mistake is selected for the whole program.

use std::panic::catch_unwind;

use onepipe_base::mistake::{Mistake, choose};
use onepipe_verify_memory::run;

/// Each mistake with a seed that detects it.
const FIRST_SEEDS: &[(Mistake, u64)] = &[];

/// The mistakes to search for.
const SIMULATED: &[Mistake] =
    &[Mistake::MemoryReadAtDelivery, Mistake::BatchExecutedTwice, Mistake::VersionIgnored];

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

/// Searches for the seeds of the table above.
#[test]
#[ignore = "takes minutes"]
fn finds_first_seeds() {
    std::panic::set_hook(Box::new(|_| {}));
    let limit = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(300);
    for mistake in SIMULATED {
        let first = (0..limit).find_map(|seed| Some((seed, detected(Some(*mistake), seed)?)));
        eprintln!("{}: {first:?}", mistake.title());
    }
    let wrong = (0..limit).find_map(|seed| Some((seed, detected(None, seed)?)));
    eprintln!("none: {wrong:?}");
}
