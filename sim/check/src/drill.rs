//! How many seeds it takes to catch each mistake that the machines can be told to make (design:
//! testing.md row 40), as rows of a table.

use std::process::ExitCode;

use onepipe_base::mistake::Mistake;

/// So many seeds are tried with every mistake.
const SEEDS: u64 = 20;
/// A mistake that lives longer than this was missed.
const DRILL_SEEDS_MAX: u64 = 1_000;

/// Tries the mistakes from seed 0 on. `shown` says what a seed shows of a mistake, or of none;
/// `tell` is told the rows as they come. Answers how many mistakes were missed.
fn drill(
    mistakes: &[Mistake],
    shown: impl Fn(Option<Mistake>, u64) -> Option<String>,
    tell: impl Fn(&str),
) -> usize {
    // Seeds that are wrong by themselves prove nothing.
    let wrong: Vec<u64> = (0..SEEDS).filter(|seed| shown(None, *seed).is_some()).collect();
    tell(&format!("| none | Nothing: the machines as they are. | | | {} |", wrong.len()));
    let mut missed = 0;
    for mistake in mistakes {
        let caught = |seed: u64| {
            let shown = shown(Some(*mistake), seed).filter(|_| !wrong.contains(&seed))?;
            Some((seed, shown))
        };
        let by_many: Vec<(u64, String)> = (0..SEEDS).filter_map(caught).collect();
        let rare = |seed: u64| caught(seed).filter(|_| shown(None, seed).is_none());
        let first = by_many.first().cloned().or_else(|| (SEEDS..DRILL_SEEDS_MAX).find_map(rare));
        let (title, what, many) = (mistake.title(), mistake.what(), by_many.len());
        tell(&match first {
            Some((seed, by)) => format!("| `{title}` | {what} | {by} | {} | {many} |", seed + 1),
            None => {
                missed += 1;
                format!("| `{title}` | {what} | **missed** | > {DRILL_SEEDS_MAX} | 0 |")
            }
        });
    }
    missed
}

/// A change of a machine moves what a seed shows, and a seed that is wrong without the mistake,
/// too, proves nothing: then the next ones are tried, so many at most.
const KNOWN_SEEDS_MAX: usize = 40;

/// Tries each mistake from a seed on that is known to show it. `is_apt` says whether a seed draws
/// what the mistake is about, `caught` whether it shows it and is right without. Answers which were
/// missed.
pub fn drill_known(
    first_seeds: &[(Mistake, u64)],
    is_apt: impl Fn(Mistake, u64) -> bool,
    caught: impl Fn(Mistake, u64) -> Option<String>,
) -> Vec<&'static str> {
    // What panics is caught, and counts.
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for (mistake, first) in first_seeds {
        let apt = (*first..).filter(|seed| is_apt(*mistake, *seed)).take(KNOWN_SEEDS_MAX);
        match apt.map(|seed| (seed, caught(*mistake, seed))).find(|(_, by)| by.is_some()) {
            Some((seed, by)) => {
                println!("{}: {} at seed {seed}", mistake.title(), by.unwrap_or_default());
            }
            None => missed.push(mistake.title()),
        }
    }
    let _ = std::panic::take_hook();
    missed
}

/// A program that writes the rows for the mistake that its argument names, or for all of these. It
/// fails when one was missed.
pub fn drill_program(
    mistakes: &[Mistake],
    shown: impl Fn(Option<Mistake>, u64) -> Option<String>,
) -> ExitCode {
    let only = std::env::args().nth(1);
    let is_chosen = |mistake: &&Mistake| only.as_ref().is_none_or(|only| only == mistake.title());
    let chosen: Vec<Mistake> = mistakes.iter().filter(is_chosen).copied().collect();
    if chosen.is_empty() {
        eprintln!("no such mistake");
        return ExitCode::from(2);
    }
    // What panics is caught, and counts.
    std::panic::set_hook(Box::new(|_| {}));
    ExitCode::from(u8::from(drill(&chosen, shown, |row| println!("{row}")) > 0))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn seeds_that_are_wrong_by_themselves_prove_nothing() {
        let (early, late) = (Mistake::AckTwice, Mistake::StaleEpoch);
        let shown = |mistake: Option<Mistake>, seed: u64| match mistake {
            _ if seed < 3 || seed == 30 => Some("always".to_owned()),
            Some(Mistake::AckTwice) => (seed == 5).then(|| "twice".to_owned()),
            Some(Mistake::StaleEpoch) => (seed == 40).then(|| "stale".to_owned()),
            _ => None,
        };
        let rows = RefCell::new(Vec::new());
        let all = [early, late, Mistake::NewTimestamp];
        assert_eq!(drill(&all, shown, |row| rows.borrow_mut().push(row.to_owned())), 1);
        let ends = ["| | | 3 |", "| twice | 6 | 1 |", "| stale | 41 | 0 |", "| > 1000 | 0 |"];
        for (row, end) in rows.borrow().iter().zip(ends) {
            assert!(row.ends_with(end), "{row}");
        }
        assert_eq!(rows.borrow().len(), ends.len());
    }
}
