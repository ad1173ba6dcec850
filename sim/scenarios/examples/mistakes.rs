//! `cargo run --release -p onepipe-sim-scenarios --features mistakes --example mistakes [TITLE]`:
//! how many seeds it takes to catch each mistake that the machines can make, as rows of a table.
//! What `cargo xtask bugs` runs.

use std::process::ExitCode;

use onepipe_base::mistake::Mistake;
use onepipe_sim_scenarios::shown;

/// So many seeds are tried with every mistake.
const SEEDS: u64 = 20;
/// A mistake that lives longer than this was missed.
const SEEDS_MAX: u64 = 1_000;

fn main() -> ExitCode {
    let only = std::env::args().nth(1);
    let is_chosen = |mistake: &&Mistake| only.as_ref().is_none_or(|only| only == mistake.title());
    let chosen: Vec<&Mistake> = Mistake::of_scattering().iter().filter(is_chosen).collect();
    if chosen.is_empty() {
        eprintln!("no such mistake");
        return ExitCode::from(2);
    }
    // What panics is caught, and counts.
    std::panic::set_hook(Box::new(|_| {}));
    // Seeds that are wrong by themselves prove nothing.
    let wrong: Vec<u64> = (0..SEEDS).filter(|seed| shown(None, *seed).is_some()).collect();
    println!("| none | Nothing: the machines as they are. | | | {} |", wrong.len());
    let mut missed = 0;
    for mistake in chosen {
        let caught = |seed: u64| {
            let shown = shown(Some(*mistake), seed).filter(|_| !wrong.contains(&seed))?;
            Some((seed, shown))
        };
        let by_many: Vec<(u64, String)> = (0..SEEDS).filter_map(caught).collect();
        let rare = |seed: u64| caught(seed).filter(|_| shown(None, seed).is_none());
        let first = by_many.first().cloned().or_else(|| (SEEDS..SEEDS_MAX).find_map(rare));
        let (title, what, many) = (mistake.title(), mistake.what(), by_many.len());
        match first {
            Some((seed, by)) => println!("| `{title}` | {what} | {by} | {} | {many} |", seed + 1),
            None => {
                missed += 1;
                println!("| `{title}` | {what} | **missed** | > {SEEDS_MAX} | 0 |");
            }
        }
    }
    ExitCode::from(u8::from(missed > 0))
}
