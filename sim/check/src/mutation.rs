//! Mutation runs: the number of seeds that it takes to detect each seeded mistake of the machines,
//! as rows of a table.

use std::process::ExitCode;

use onepipe_base::mistake::Mistake;

/// Number of seeds that are tried with every mistake.
const SEEDS: u64 = 20;
/// A mistake that no seed below this one detects is missed.
const MUTATION_SEEDS_MAX: u64 = 1_000;

/// Tries the mistakes from seed 0 on. `detected` returns what a seed shows of a mistake, or of
/// none. Passes each row to `print_row`. Returns the number of missed mistakes.
fn run_mutations(
    mistakes: &[Mistake],
    detected: impl Fn(Option<Mistake>, u64) -> Option<String>,
    print_row: impl Fn(&str),
) -> usize {
    // Seeds that fail without any mistake do not count.
    let wrong: Vec<u64> = (0..SEEDS).filter(|seed| detected(None, *seed).is_some()).collect();
    print_row(&format!("| none | Nothing: the unmodified machines. | | | {} |", wrong.len()));
    let mut missed = 0;
    for mistake in mistakes {
        let caught = |seed: u64| {
            let detected = detected(Some(*mistake), seed).filter(|_| !wrong.contains(&seed))?;
            Some((seed, detected))
        };
        let by_many: Vec<(u64, String)> = (0..SEEDS).filter_map(caught).collect();
        let rare = |seed: u64| caught(seed).filter(|_| detected(None, seed).is_none());
        let first = by_many.first().cloned().or_else(|| (SEEDS..MUTATION_SEEDS_MAX).find_map(rare));
        let (title, what, many) = (mistake.title(), mistake.what(), by_many.len());
        print_row(&match first {
            Some((seed, by)) => format!("| `{title}` | {what} | {by} | {} | {many} |", seed + 1),
            None => {
                missed += 1;
                format!("| `{title}` | {what} | **missed** | > {MUTATION_SEEDS_MAX} | 0 |")
            }
        });
    }
    missed
}

/// Limit on the seeds that are tried for a mistake with a known seed. After a change of a machine
/// the known seed may no longer detect the mistake, and a seed that fails without the mistake does
/// not count.
const KNOWN_SEEDS_MAX: usize = 40;

/// Tries each mistake from the seed on that is known to detect it. `is_applicable` returns whether
/// a seed exercises the mistake; `caught` returns what it shows, if it passes without the mistake.
/// Returns the missed mistakes.
pub fn run_known_mutations(
    first_seeds: &[(Mistake, u64)],
    is_applicable: impl Fn(Mistake, u64) -> bool,
    caught: impl Fn(Mistake, u64) -> Option<String>,
) -> Vec<&'static str> {
    // Panics are caught and count as detections: suppress their output.
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for (mistake, first) in first_seeds {
        let applicable =
            (*first..).filter(|seed| is_applicable(*mistake, *seed)).take(KNOWN_SEEDS_MAX);
        match applicable.map(|seed| (seed, caught(*mistake, seed))).find(|(_, by)| by.is_some()) {
            Some((seed, by)) => {
                println!("{}: {} at seed {seed}", mistake.title(), by.unwrap_or_default());
            }
            None => missed.push(mistake.title()),
        }
    }
    let _ = std::panic::take_hook();
    missed
}

/// The main function of a program that prints the rows of the mistake named by its argument, or of
/// all `mistakes`. Fails if one was missed.
pub fn mutation_main(
    mistakes: &[Mistake],
    detected: impl Fn(Option<Mistake>, u64) -> Option<String>,
) -> ExitCode {
    let only = std::env::args().nth(1);
    let is_chosen = |mistake: &&Mistake| only.as_ref().is_none_or(|only| only == mistake.title());
    let chosen: Vec<Mistake> = mistakes.iter().filter(is_chosen).copied().collect();
    if chosen.is_empty() {
        eprintln!("no mistake has this title: see `cargo xtask bugs` for the titles");
        return ExitCode::from(2);
    }
    // Panics are caught and count as detections: suppress their output.
    std::panic::set_hook(Box::new(|_| {}));
    ExitCode::from(u8::from(run_mutations(&chosen, detected, |row| println!("{row}")) > 0))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn seeds_failing_without_the_mistake_do_not_count() {
        let (early, late) = (Mistake::AckTwice, Mistake::StaleEpoch);
        let detected = |mistake: Option<Mistake>, seed: u64| match mistake {
            _ if seed < 3 || seed == 30 => Some("always".to_owned()),
            Some(Mistake::AckTwice) => (seed == 5).then(|| "twice".to_owned()),
            Some(Mistake::StaleEpoch) => (seed == 40).then(|| "stale".to_owned()),
            _ => None,
        };
        let rows = RefCell::new(Vec::new());
        let all = [early, late, Mistake::NewTimestamp];
        assert_eq!(run_mutations(&all, detected, |row| rows.borrow_mut().push(row.to_owned())), 1);
        let ends = ["| | | 3 |", "| twice | 6 | 1 |", "| stale | 41 | 0 |", "| > 1000 | 0 |"];
        for (row, end) in rows.borrow().iter().zip(ends) {
            assert!(row.ends_with(end), "{row}");
        }
        assert_eq!(rows.borrow().len(), ends.len());
    }
}
