//! `cargo run --release -p onepipe-sim-scenarios --example swarm FROM COUNT [first] [PLACEMENT]`:
//! runs random scenarios by seed and checks every invariant. Prints each failing seed with a
//! minimal set of faults. With `first` it stops at the first failing seed and prints how many seeds
//! it took. PLACEMENT (`chip`, `switch-cpu` or `delegate`) overrides where the switches' machines
//! run.

use std::process::ExitCode;

use onepipe_sim_scenarios::{Placement, RunOutcome, Swarm};

/// Limit on the runs that are spent on shrinking a failing seed.
const SHRINK_ATTEMPTS: u32 = 60;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut numbers = words.iter().map(|word| word.parse::<u64>());
    let (Some(Ok(from)), Some(Ok(count))) = (numbers.next(), numbers.next()) else {
        eprintln!("usage: swarm FROM COUNT [first] [chip|switch-cpu|delegate]");
        return ExitCode::from(2);
    };
    let ends_at_first = words.iter().any(|word| word == "first");
    let placement = Placement::ALL
        .into_iter()
        .find(|placement| words.iter().any(|word| word == placement.name()));
    let draw = |seed| match placement {
        Some(placement) => Swarm::draw_with(seed, placement),
        None => Swarm::draw(seed),
    };
    if count == 1 {
        return trace(from, draw(from));
    }
    let (mut failing, mut delivered) = (0, 0);
    for seed in from..from + count {
        let swarm = draw(seed);
        let outcome = swarm.attempt();
        if let RunOutcome::Report(report) = &outcome {
            delivered += report.messages.delivered;
        }
        if !outcome.is_ok() {
            failing += 1;
            if ends_at_first {
                let rules = outcome.rules().map_or("panic".to_owned(), |rules| {
                    rules.iter().map(|rule| format!("{rule:?}")).collect::<Vec<_>>().join(", ")
                });
                println!("found after {} seeds: {rules}", seed - from + 1);
                return ExitCode::FAILURE;
            }
            println!("seed {seed} violates {:?}", outcome.rules());
            let shrunk = swarm.shrunk(&outcome, SHRINK_ATTEMPTS);
            println!("  with {:?}, removed {:?}", shrunk.timeline, shrunk.removed);
            for line in outcome.violations().iter().take(3) {
                println!("  {line}");
            }
        }
    }
    println!("{count} seeds, {delivered} deliveries checked, {failing} failing");
    ExitCode::from(u8::from(failing > 0))
}

/// Runs one seed, shrunk if it fails, and writes its trace.
fn trace(seed: u64, mut swarm: Swarm) -> ExitCode {
    let outcome = swarm.attempt();
    if !outcome.is_ok() {
        swarm = swarm.shrunk(&outcome, SHRINK_ATTEMPTS);
    }
    println!("{:#?}, removed {:?}", swarm.timeline, swarm.removed);
    swarm.plan.network.trace_lines_max = 1 << 20;
    let outcome = swarm.attempt();
    outcome.violations().iter().for_each(|line| println!("{line}"));
    if let RunOutcome::Report(report) = &outcome {
        let path = std::env::temp_dir().join(format!("seed-{seed}.txt"));
        match std::fs::write(&path, report.trace_lines.join("\n")) {
            Ok(()) => println!("history: {}", path.display()),
            Err(error) => println!("{}: {error}", path.display()),
        }
    }
    ExitCode::from(u8::from(!outcome.is_ok()))
}
